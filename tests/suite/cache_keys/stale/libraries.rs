//! Libraries that a linker reads, and search directories with another candidate.

use std::fs;

use super::{BOTH, EVERY, GNU, LLD, Scenario};

/// The linker's search path: `first`, then `second`.
const SEARCH: &[&str] = &["-Lfirst", "-Lsecond", "-lhelper"];
const NO_FILES: &[&str] = &["--device-compiler=-nostdlib"];

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a_member_of_a_thin_archive_changes",
        linkers: EVERY,
        line: &["-Lthin", "-lhelper"],
        environment: &[],
        before: |hunt| {
            hunt.put("helper.o", 1, "thin/helper.o")?;
            hunt.thin("thin/libhelper.a", "thin/helper.o")
        },
        change: |hunt| hunt.put("helper.o", 2, "thin/helper.o"),
    },
    Scenario {
        name: "a_thin_archive_is_made_again_with_the_same_bytes",
        linkers: EVERY,
        line: &["-Lthin", "-lhelper"],
        environment: &[],
        before: |hunt| {
            hunt.put("helper.o", 1, "thin/helper.o")?;
            hunt.thin("thin/libhelper.a", "thin/helper.o")
        },
        change: |hunt| {
            let before = fs::read(hunt.at("thin/libhelper.a"))?;
            hunt.put("helper.o", 2, "thin/helper.o")?;
            hunt.thin("thin/libhelper.a", "thin/helper.o")?;
            let same = fs::read(hunt.at("thin/libhelper.a"))? == before;
            if same {
                Ok(())
            } else {
                Err("the thin archive has other bytes".into())
            }
        },
    },
    Scenario {
        name: "members_in_another_folder_of_an_archive_that_is_named_by_its_path",
        linkers: EVERY,
        line: &["thin/libhelper.a"],
        environment: &[],
        before: |hunt| {
            hunt.put("helper.o", 1, "objects/helper.o")?;
            hunt.folder("thin")?;
            hunt.thin("thin/libhelper.a", "objects/helper.o")
        },
        change: |hunt| hunt.put("helper.o", 2, "objects/helper.o"),
    },
    Scenario {
        name: "a_thin_archive_that_a_script_names",
        linkers: EVERY,
        line: &["-Lfirst", "-lhelper"],
        environment: &[],
        before: |hunt| {
            hunt.put("helper.o", 1, "first/helper.o")?;
            hunt.thin("first/libthin.a", "first/helper.o")?;
            hunt.write("first/libhelper.so", "INPUT(libthin.a)\n")
        },
        change: |hunt| hunt.put("helper.o", 2, "first/helper.o"),
    },
    Scenario {
        name: "a_library_of_an_exact_name_with_a_folder",
        linkers: EVERY,
        line: &["-Lfirst", "-Lsecond", "-l:sub/libhelper.a"],
        environment: &[],
        before: |hunt| {
            hunt.folder("first")?;
            hunt.archive(1, "second/sub/libhelper.a")
        },
        change: |hunt| hunt.archive(2, "first/sub/libhelper.a"),
    },
    Scenario {
        name: "a_script_names_a_file_with_a_folder",
        linkers: BOTH,
        line: SEARCH,
        environment: &[],
        before: |hunt| {
            hunt.write("first/libhelper.so", "INPUT(sub/libreal.a)\n")?;
            hunt.archive(1, "second/sub/libreal.a")
        },
        change: |hunt| hunt.archive(2, "sub/libreal.a"),
    },
    Scenario {
        name: "a_script_names_a_file_without_a_folder",
        linkers: BOTH,
        line: SEARCH,
        environment: &[],
        before: |hunt| {
            hunt.write("first/libhelper.so", "INPUT(libreal.a)\n")?;
            hunt.archive(1, "second/libreal.a")
        },
        change: |hunt| hunt.archive(2, "libreal.a"),
    },
    Scenario {
        name: "a_script_names_a_file_that_appears_beside_it",
        linkers: &["ld.lld", "ld.wild"],
        line: &["-Lsecond", "-Lscripts", "-lhelper"],
        environment: &[],
        before: |hunt| {
            hunt.write("scripts/libhelper.so", "INPUT(libreal.a)\n")?;
            hunt.archive(1, "second/libreal.a")
        },
        change: |hunt| hunt.archive(2, "scripts/libreal.a"),
    },
    Scenario {
        name: "equals_sign_below_a_sysroot",
        linkers: EVERY,
        line: &[
            "--sysroot={}/root",
            "-L=/first",
            "-L=/second",
            "-lhelper",
            NO_FILES[0],
        ],
        environment: &[],
        before: |hunt| {
            hunt.folder("root/first")?;
            hunt.archive(1, "root/second/libhelper.a")
        },
        change: |hunt| hunt.archive(2, "root/first/libhelper.a"),
    },
    Scenario {
        name: "own_folders_of_gnus_linker_below_a_sysroot",
        linkers: GNU,
        line: &["--sysroot={}/root", "-lhelper", NO_FILES[0]],
        environment: &[],
        before: |hunt| {
            hunt.folder("root/usr/local/lib64")?;
            hunt.archive(1, "root/usr/local/lib/libhelper.a")
        },
        change: |hunt| hunt.archive(2, "root/usr/local/lib64/libhelper.a"),
    },
    Scenario {
        name: "a_folder_that_a_script_has_searched",
        linkers: BOTH,
        line: &["-Lfirst", "-lhelper"],
        environment: &[],
        before: |hunt| {
            hunt.folder("early")?;
            hunt.write(
                "first/libhelper.so",
                "SEARCH_DIR(early)\nSEARCH_DIR(\"late\")\nINPUT(-lreal)\n",
            )?;
            hunt.archive(1, "late/libreal.a")
        },
        change: |hunt| hunt.archive(2, "early/libreal.a"),
    },
    Scenario {
        // GNU ld lists an included script by the name in the script, which is not a valid path.
        // Such links are not cached.
        name: "an_included_script_appears_in_the_current_folder",
        linkers: LLD,
        line: SEARCH,
        environment: &[],
        before: |hunt| {
            hunt.write("first/libhelper.so", "INCLUDE more.ld\n")?;
            hunt.write("second/more.ld", "INPUT(libone.a)\n")?;
            hunt.archive(1, "second/libone.a")?;
            hunt.archive(2, "second/libtwo.a")
        },
        change: |hunt| hunt.write("more.ld", "INPUT(libtwo.a)\n"),
    },
    Scenario {
        name: "the_contents_of_an_archive",
        linkers: EVERY,
        line: SEARCH,
        environment: &[],
        before: |hunt| hunt.archive(1, "second/libhelper.a"),
        change: |hunt| hunt.archive(2, "second/libhelper.a"),
    },
    Scenario {
        name: "an_archive_in_an_earlier_folder",
        linkers: EVERY,
        line: SEARCH,
        environment: &[],
        before: |hunt| {
            hunt.folder("first")?;
            hunt.archive(1, "second/libhelper.a")
        },
        change: |hunt| hunt.archive(2, "first/libhelper.a"),
    },
    Scenario {
        name: "an_earlier_folder_appears",
        linkers: EVERY,
        line: SEARCH,
        environment: &[],
        before: |hunt| hunt.archive(1, "second/libhelper.a"),
        change: |hunt| {
            hunt.archive(2, "new/libhelper.a")?;
            Ok(fs::rename(hunt.at("new"), hunt.at("first"))?)
        },
    },
    Scenario {
        name: "the_shared_form_of_a_library",
        linkers: EVERY,
        line: SEARCH,
        environment: &[],
        before: |hunt| hunt.archive(1, "second/libhelper.a"),
        change: |hunt| hunt.put("libhelper.so", 2, "second/libhelper.so"),
    },
    Scenario {
        name: "another_soname",
        linkers: EVERY,
        line: SEARCH,
        environment: &[],
        before: |hunt| hunt.put("libhelper.so", 1, "first/libhelper.so"),
        change: |hunt| hunt.put("libhelper.so", 2, "first/libhelper.so"),
    },
    Scenario {
        name: "a_library_goes",
        linkers: EVERY,
        line: SEARCH,
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "first/libhelper.a")?;
            hunt.archive(2, "second/libhelper.a")
        },
        change: |hunt| Ok(fs::remove_file(hunt.at("first/libhelper.a"))?),
    },
    Scenario {
        name: "a_link_to_a_library_leads_elsewhere",
        linkers: EVERY,
        line: SEARCH,
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "one/libhelper.a")?;
            hunt.archive(2, "two/libhelper.a")?;
            hunt.folder("first")?;
            hunt.link_to("../one/libhelper.a", "first/libhelper.a")
        },
        change: |hunt| hunt.link_to("../two/libhelper.a", "first/libhelper.a"),
    },
    Scenario {
        name: "a_link_to_a_folder_leads_elsewhere",
        linkers: EVERY,
        line: SEARCH,
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "one/libhelper.a")?;
            hunt.archive(2, "two/libhelper.a")?;
            hunt.link_to("one", "first")
        },
        change: |hunt| hunt.link_to("two", "first"),
    },
    Scenario {
        name: "what_a_link_leads_to_appears",
        linkers: EVERY,
        line: SEARCH,
        environment: &[],
        before: |hunt| {
            hunt.folder("first")?;
            hunt.folder("elsewhere")?;
            hunt.link_to("../elsewhere/libhelper.a", "first/libhelper.a")?;
            hunt.archive(1, "second/libhelper.a")
        },
        change: |hunt| hunt.archive(2, "elsewhere/libhelper.a"),
    },
    Scenario {
        name: "a_script_is_edited_in_place",
        linkers: EVERY,
        line: SEARCH,
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "second/libone.a")?;
            hunt.archive(2, "second/libtwo.a")?;
            hunt.write("first/libhelper.so", "INPUT(-lone)\n")
        },
        change: |hunt| hunt.write("first/libhelper.so", "INPUT(-ltwo)\n"),
    },
    Scenario {
        name: "a_version_script",
        linkers: EVERY,
        line: &[
            "-Lsecond",
            "-lhelper",
            "--device-linker=--version-script=versions.map",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "second/libhelper.a")?;
            hunt.write("versions.map", "{ global: helper; };\n")
        },
        change: |hunt| hunt.write("versions.map", "{ local:  helper; };\n"),
    },
    Scenario {
        // With `-T`, GNU ld uses no other script, so the script would need the whole layout.
        name: "a_script_of_the_line_appears_in_the_current_folder",
        linkers: LLD,
        line: &["-Lsecond", "--device-linker=-T", "--device-linker=extra.ld"],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "second/libone.a")?;
            hunt.archive(2, "second/libtwo.a")?;
            hunt.write("second/extra.ld", "INPUT(-lone)\n")
        },
        change: |hunt| hunt.write("extra.ld", "INPUT(-ltwo)\n"),
    },
    Scenario {
        name: "an_object_that_an_argument_names",
        linkers: EVERY,
        line: &["--device-linker=objects/helper.o"],
        environment: &[],
        before: |hunt| hunt.put("helper.o", 1, "objects/helper.o"),
        change: |hunt| hunt.put("helper.o", 2, "objects/helper.o"),
    },
    Scenario {
        name: "abbreviations_of_a_folder_for_libraries",
        linkers: GNU,
        line: &[
            "--device-linker=--library-pa=first",
            "--device-linker=-Lsecond",
            "--device-linker=-lhelper",
        ],
        environment: &[],
        before: |hunt| {
            hunt.folder("first")?;
            hunt.archive(1, "second/libhelper.a")
        },
        change: |hunt| hunt.archive(2, "first/libhelper.a"),
    },
    Scenario {
        name: "abbreviations_of_a_folder_for_libraries_with_the_value_apart",
        linkers: GNU,
        line: &[
            "--device-linker=--library-p",
            "--device-linker=first",
            "--device-linker=-Lsecond",
            "--device-linker=-lhelper",
        ],
        environment: &[],
        before: |hunt| {
            hunt.folder("first")?;
            hunt.archive(1, "second/libhelper.a")
        },
        change: |hunt| hunt.archive(2, "first/libhelper.a"),
    },
    Scenario {
        name: "abbreviations_of_a_version_script",
        linkers: GNU,
        line: &[
            "-Lsecond",
            "-lhelper",
            "--device-linker=--version-scr=versions.map",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "second/libhelper.a")?;
            hunt.write("versions.map", "{ global: helper; };\n")
        },
        change: |hunt| hunt.write("versions.map", "{ local:  helper; };\n"),
    },
    Scenario {
        name: "inputs_are_remapped_by_a_list",
        linkers: LLD,
        line: &[
            "--device-linker=--remap-inputs-file=list",
            "first/libhelper.a",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "first/libhelper.a")?;
            hunt.archive(2, "second/libhelper.a")?;
            hunt.write("list", "first/libhelper.a=first/libhelper.a\n")
        },
        change: |hunt| hunt.write("list", "first/libhelper.a=second/libhelper.a\n"),
    },
    Scenario {
        name: "files_are_written_through_memory",
        linkers: LLD,
        line: SEARCH,
        environment: &[],
        before: |hunt| hunt.archive(1, "second/libhelper.a"),
        change: |hunt| {
            // Overwritten in place with the same timestamp, as by a program that has mapped the
            // file.
            let path = hunt.at("second/libhelper.a");
            hunt.archive(2, "other.a")?;
            let bytes = fs::read(hunt.at("other.a"))?;
            let file = fs::File::options().write(true).open(&path)?;
            std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 0)?;
            Ok(file.set_modified(std::time::SystemTime::UNIX_EPOCH)?)
        },
    },
    Scenario {
        name: "files_change_places",
        linkers: EVERY,
        line: SEARCH,
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "second/libhelper.a")?;
            hunt.archive(2, "second/other.a")
        },
        change: |hunt| {
            let [one, two] = ["second/libhelper.a", "second/other.a"].map(|name| hunt.at(name));
            let flags = rustix::fs::RenameFlags::EXCHANGE;
            Ok(
                rustix::fs::renameat_with(rustix::fs::CWD, &one, rustix::fs::CWD, &two, flags)
                    .map_err(std::io::Error::from)?,
            )
        },
    },
    Scenario {
        name: "files_by_a_link_of_links",
        linkers: EVERY,
        line: SEARCH,
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "one/lib/libhelper.a")?;
            hunt.archive(2, "two/lib/libhelper.a")?;
            hunt.link_to("one", "inner")?;
            hunt.link_to("inner", "outer")?;
            hunt.link_to("outer/lib", "first")
        },
        change: |hunt| hunt.link_to("two", "inner"),
    },
    Scenario {
        name: "files_in_a_folder_whose_date_is_set_back",
        linkers: EVERY,
        line: SEARCH,
        environment: &[],
        before: |hunt| {
            hunt.folder("first")?;
            hunt.date("first")?;
            hunt.archive(1, "second/libhelper.a")
        },
        change: |hunt| {
            hunt.archive(2, "first/libhelper.a")?;
            hunt.date("first")
        },
    },
];
