//! The other input classes of decision 0026: dependencies of shared libraries, groups, sysroots in
//! scripts, lists, and GCC installations.

use libtest_mimic::Failed;

use super::{BOTH, EVERY, GNU, Hunt, LLD, Scenario};
use crate::support::llvm;

/// A library in `outer` that needs `libhelper.so.1`, which is in `late`.
fn needing(hunt: &Hunt, more: &[&str]) -> Result<(), Failed> {
    hunt.folder("early")?;
    hunt.folder("outer")?;
    hunt.put("libhelper.so", 1, "late/libhelper.so.1")?;
    let words = [
        "-shared",
        "-nostdlib",
        "-Wl,--no-as-needed",
        "late/libhelper.so.1",
        "-o",
        "outer/libouter.so",
    ];
    hunt.work
        .run(llvm("clang"), [&words[..], more].concat())
        .map(drop)
}

/// The device link finds `helper` in a dependency of the library, and the image names that
/// dependency.
const OUTER: [&str; 4] = [
    "--device-linker=--no-as-needed",
    "--device-linker=--copy-dt-needed-entries",
    "--device-linker=-Louter",
    "--device-linker=-louter",
];

/// A GCC installation of `version`, without GCC's libraries but with the hunt's library.
fn gcc(hunt: &Hunt, version: u32, answer: u32) -> Result<(), Failed> {
    let folder = format!("gcc/lib/gcc/x86_64-linux-gnu/{version}");
    hunt.archive(answer, &format!("{folder}/libhelper.a"))?;
    hunt.write(&format!("{folder}/crtbegin.o"), "")
}

/// `first/libhelper.a`, a thin archive by GNU ar whose members come from another archive.
fn thin_of_archive(hunt: &Hunt, answer: u32) -> Result<(), Failed> {
    hunt.archive(answer, "first/inner.a")?;
    let _ = std::fs::remove_file(hunt.at("first/libhelper.a"));
    hunt.work
        .run("ar", ["rcsTD", "first/libhelper.a", "first/inner.a"])
        .map(drop)
}

/// `symbols.o`, an object with the symbol `other` at `address`.
fn symbols(hunt: &Hunt, address: &str) -> Result<(), Failed> {
    hunt.write("empty.c", "")?;
    hunt.work
        .run(llvm("clang"), ["-c", "empty.c", "-o", "empty.o"])?;
    let defsym = format!("--defsym=other={address}");
    hunt.work
        .run("ld.bfd", ["-r", "empty.o", &defsym, "-o", "symbols.o"])?;
    hunt.date("symbols.o")
}

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "an_archive_whose_members_a_thin_one_has",
        linkers: GNU,
        line: &["-Lfirst", "-lhelper"],
        environment: &[],
        before: |hunt| thin_of_archive(hunt, 1),
        change: |hunt| hunt.archive(2, "first/inner.a"),
    },
    Scenario {
        name: "a_thin_archive_by_a_link_to_it",
        linkers: EVERY,
        line: &["-Lfirst", "-lhelper"],
        environment: &[],
        before: |hunt| {
            hunt.put("helper.o", 1, "thin/helper.o")?;
            hunt.thin("thin/libhelper.a", "thin/helper.o")?;
            hunt.folder("first")?;
            hunt.put("helper.o", 1, "first/helper.o")?;
            hunt.link_to("../thin/libhelper.a", "first/libhelper.a")
        },
        // Linkers search thin members relative to the path by which they found the archive.
        change: |hunt| hunt.put("helper.o", 2, "first/helper.o"),
    },
    Scenario {
        name: "what_a_shared_library_needs",
        linkers: GNU,
        line: &[
            OUTER[0],
            OUTER[1],
            OUTER[2],
            OUTER[3],
            "--device-linker=-rpath-link",
            "--device-linker={}/early:{}/late",
        ],
        environment: &[],
        before: |hunt| needing(hunt, &[]),
        change: |hunt| hunt.put("libhelper.so", 2, "early/libhelper.so.1"),
    },
    Scenario {
        name: "what_a_shared_library_needs_in_a_folder_of_the_environment",
        linkers: GNU,
        line: &OUTER,
        environment: &[("LD_LIBRARY_PATH", "early:late")],
        before: |hunt| needing(hunt, &[]),
        change: |hunt| hunt.put("libhelper.so", 2, "early/libhelper.so.1"),
    },
    Scenario {
        name: "what_a_shared_library_needs_by_its_own_run_path",
        linkers: GNU,
        line: &OUTER,
        environment: &[],
        before: |hunt| needing(hunt, &["-Wl,-rpath,$ORIGIN/../early:$ORIGIN/../late"]),
        change: |hunt| hunt.put("libhelper.so", 2, "early/libhelper.so.1"),
    },
    Scenario {
        name: "groups_and_libraries_as_needed_in_scripts",
        linkers: EVERY,
        line: &["-Lscripts", "-Lfirst", "-Lsecond", "-lhelper"],
        environment: &[],
        before: |hunt| {
            hunt.folder("first")?;
            hunt.write("scripts/libhelper.so", "GROUP(AS_NEEDED(-lreal))\n")?;
            hunt.put("libhelper.so", 1, "second/libreal.so")
        },
        change: |hunt| hunt.put("libhelper.so", 2, "first/libreal.so"),
    },
    Scenario {
        name: "absolute_names_in_scripts_below_a_sysroot",
        linkers: EVERY,
        line: &[
            "--sysroot={}/root",
            "-L=/first",
            "-lhelper",
            "--device-compiler=-nostdlib",
        ],
        environment: &[],
        before: |hunt| {
            hunt.write("root/first/libhelper.so", "INPUT(/second/libreal.a)\n")?;
            hunt.archive(1, "root/second/libreal.a")
        },
        change: |hunt| hunt.archive(2, "root/second/libreal.a"),
    },
    Scenario {
        name: "names_with_the_sysroot_in_scripts",
        linkers: BOTH,
        line: &[
            "--sysroot={}/root",
            "-L=/first",
            "-lhelper",
            "--device-compiler=-nostdlib",
        ],
        environment: &[],
        before: |hunt| {
            hunt.write("root/first/libhelper.so", "INPUT(=/second/libreal.a)\n")?;
            hunt.archive(1, "root/second/libreal.a")
        },
        change: |hunt| hunt.archive(2, "root/second/libreal.a"),
    },
    Scenario {
        name: "a_list_that_an_argument_names",
        linkers: LLD,
        line: &[
            "-Lsecond",
            "-lhelper",
            "--device-linker=--symbol-ordering-file=order",
            "--device-linker=--no-warn-symbol-ordering",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "second/libhelper.a")?;
            hunt.write("order", "nobody\n")
        },
        change: |hunt| hunt.write("order", "helper\n"),
    },
    Scenario {
        name: "a_later_gcc_is_installed",
        linkers: EVERY,
        line: &[
            "--device-compiler=-nostdlib",
            "--device-compiler=--gcc-toolchain={}/gcc",
            "--device-linker=-lhelper",
        ],
        environment: &[],
        before: |hunt| gcc(hunt, 12, 1),
        change: |hunt| gcc(hunt, 99, 2),
    },
    Scenario {
        name: "dates_of_the_folder_with_gccs_versions_are_set_back",
        linkers: EVERY,
        line: &[
            "--device-compiler=-nostdlib",
            "--device-compiler=--gcc-toolchain={}/gcc",
            "--device-linker=-lhelper",
        ],
        environment: &[],
        before: |hunt| {
            gcc(hunt, 12, 1)?;
            hunt.date("gcc/lib/gcc/x86_64-linux-gnu")
        },
        change: |hunt| {
            gcc(hunt, 99, 2)?;
            hunt.date("gcc/lib/gcc/x86_64-linux-gnu")
        },
    },
    Scenario {
        name: "a_folder_named_like_a_library",
        linkers: GNU,
        line: &["-Lfirst", "-Lsecond", "-lhelper"],
        environment: &[],
        before: |hunt| {
            hunt.folder("first/libhelper.a")?;
            hunt.archive(1, "second/libhelper.a")
        },
        change: |hunt| {
            std::fs::remove_dir(hunt.at("first/libhelper.a"))?;
            hunt.archive(2, "first/libhelper.a")
        },
    },
    Scenario {
        name: "a_library_for_another_processor_comes_first",
        linkers: GNU,
        line: &["-Lfirst", "-Lsecond", "-lhelper"],
        environment: &[],
        before: |hunt| {
            let object = ["--target=i386-linux-gnu", "-xc", "/dev/null", "-c"];
            hunt.folder("first")?;
            hunt.work
                .run(llvm("clang"), [&object[..], &["-oother.o"]].concat())?;
            hunt.work
                .run(llvm("llvm-ar"), ["rcD", "first/libhelper.a", "other.o"])?;
            hunt.archive(1, "second/libhelper.a")
        },
        change: |hunt| hunt.archive(2, "first/libhelper.a"),
    },
    Scenario {
        name: "addresses_of_symbols_from_a_file",
        linkers: BOTH,
        line: &[
            "-Lsecond",
            "-lhelper",
            "--device-linker=--just-symbols=symbols.o",
            "--device-linker=--defsym=copy=other",
            "--device-linker=--export-dynamic",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "second/libhelper.a")?;
            symbols(hunt, "0x1000")
        },
        change: |hunt| symbols(hunt, "0x2000"),
    },
    Scenario {
        name: "data_in_binary_form",
        linkers: BOTH,
        line: &[
            "-Lsecond",
            "-lhelper",
            "--device-linker=--format=binary",
            "--device-linker=data",
            "--device-linker=--format=default",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "second/libhelper.a")?;
            hunt.write("data", "one")
        },
        change: |hunt| hunt.write("data", "two"),
    },
];
