//! Forms of file names: dots in paths, which ld.lld omits from its dependency file, and names
//! inside objects.

use libtest_mimic::Failed;

use super::{EVERY, Hunt, LLD, Scenario};
use crate::support::{OFFLOAD, llvm};

/// `link`, a symlink to `other/inner`, and a library in `other/lib`, with a decoy of the same name
/// in `lib`. `link/../lib` is `other/lib`.
fn through_a_link(hunt: &Hunt) -> Result<(), Failed> {
    hunt.folder("other/inner")?;
    hunt.link_to("other/inner", "link")?;
    hunt.archive(1, "other/lib/libhelper.a")?;
    hunt.archive(1, "lib/libhelper.a")
}

/// An object with a kernel that names the library it needs.
fn naming_kernel(hunt: &Hunt, library: &str) -> Result<(), Failed> {
    let code = format!(
        "#pragma omp begin declare target\nint helper(int);\n#pragma omp end declare target\n#pragma comment(lib, \"{library}\")\n\
         int kernel(int x) {{\n#pragma omp target map(tofrom: x)\n  x = helper(x) + 1;\n  return x;\n}}\n"
    );
    hunt.work.file("kernel.c", code);
    let words = ["-O1", "-fPIC", "-c", "kernel.c", "-o", "kernel.o"];
    hunt.work
        .run(llvm("clang"), [&OFFLOAD[..], &words].concat())
        .map(drop)?;
    hunt.folder("first/sub")
}

/// These apply to the device linker only, because the object affects the host linker, too.
const SEARCH: &[&str] = &[
    "--device-linker=-Lfirst",
    "--device-linker=-Lsecond",
    "--unresolved-symbols=ignore-all",
];

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "dots_after_a_link_to_a_folder",
        linkers: EVERY,
        line: &["-Llink/../lib", "-lhelper"],
        environment: &[],
        before: through_a_link,
        change: |hunt| hunt.archive(2, "other/lib/libhelper.a"),
    },
    Scenario {
        name: "dots_after_a_link_that_leads_elsewhere",
        linkers: EVERY,
        line: &["-Llink/../lib", "-lhelper"],
        environment: &[],
        before: |hunt| {
            through_a_link(hunt)?;
            hunt.folder("two/inner")?;
            hunt.archive(2, "two/lib/libhelper.a")
        },
        change: |hunt| hunt.link_to("two/inner", "link"),
    },
    Scenario {
        name: "dots_in_the_name_of_an_input",
        linkers: EVERY,
        line: &["link/../lib/libhelper.a"],
        environment: &[],
        before: through_a_link,
        change: |hunt| hunt.archive(2, "other/lib/libhelper.a"),
    },
    Scenario {
        name: "dots_before_a_folder_that_is_searched",
        linkers: EVERY,
        line: &["-L./first", "-L./second", "-l:sub/libhelper.a"],
        environment: &[],
        before: |hunt| {
            hunt.folder("first")?;
            hunt.archive(1, "second/sub/libhelper.a")
        },
        change: |hunt| hunt.archive(2, "first/sub/libhelper.a"),
    },
    Scenario {
        name: "dots_in_a_name_in_a_script",
        linkers: EVERY,
        line: &["-Lscripts", "-Lsecond", "-lhelper"],
        environment: &[],
        before: |hunt| {
            hunt.write("scripts/libhelper.so", "INPUT(sub/../sub/libreal.a)\n")?;
            hunt.archive(1, "sub/libreal.a")
        },
        change: |hunt| hunt.archive(2, "scripts/sub/libreal.a"),
    },
    Scenario {
        name: "dots_before_a_script_of_the_line",
        linkers: LLD,
        line: &[
            "-Lsecond",
            "--device-linker=-T",
            "--device-linker=./extra.ld",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "second/libone.a")?;
            hunt.archive(2, "second/libtwo.a")?;
            hunt.write("second/extra.ld", "INPUT(-lone)\n")
        },
        change: |hunt| hunt.write("extra.ld", "INPUT(-ltwo)\n"),
    },
    Scenario {
        name: "objects_name_a_library_by_its_path",
        linkers: LLD,
        line: SEARCH,
        environment: &[],
        before: |hunt| {
            naming_kernel(hunt, "sub/helper.a")?;
            hunt.archive(1, "sub/helper.a")
        },
        change: |hunt| hunt.archive(2, "first/sub/helper.a"),
    },
    Scenario {
        name: "objects_name_a_library_that_appears_with_an_ending",
        linkers: LLD,
        line: SEARCH,
        environment: &[],
        before: |hunt| {
            naming_kernel(hunt, "helper.a")?;
            hunt.archive(1, "helper.a")
        },
        change: |hunt| hunt.archive(2, "second/libhelper.a.a"),
    },
    Scenario {
        name: "spaces_in_the_name_of_a_folder",
        linkers: EVERY,
        line: &["-Lone folder", "-lhelper"],
        environment: &[],
        before: |hunt| hunt.archive(1, "one folder/libhelper.a"),
        change: |hunt| hunt.archive(2, "one folder/libhelper.a"),
    },
    Scenario {
        name: "an_archive_before_a_thin_one",
        linkers: EVERY,
        line: &["-Lfirst", "-Lsecond", "-lhelper"],
        environment: &[],
        before: |hunt| {
            hunt.folder("first")?;
            hunt.put("helper.o", 1, "second/helper.o")?;
            hunt.thin("second/libhelper.a", "second/helper.o")
        },
        change: |hunt| hunt.archive(2, "first/libhelper.a"),
    },
    Scenario {
        name: "a_thin_archive_that_a_script_names_as_a_library",
        linkers: EVERY,
        line: &["-Lfirst", "-lhelper"],
        environment: &[],
        before: |hunt| {
            hunt.put("helper.o", 1, "first/one.o")?;
            hunt.put("helper.o", 2, "first/two.o")?;
            hunt.thin("first/libthin.a", "first/one.o")?;
            hunt.write("first/libhelper.so", "INPUT(-lthin)\n")
        },
        change: |hunt| hunt.thin("first/libthin.a", "first/two.o"),
    },
    Scenario {
        name: "a_sysroot_that_is_a_link",
        linkers: EVERY,
        line: &[
            "--sysroot={}/root",
            "-L=/first",
            "-lhelper",
            "--device-compiler=-nostdlib",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "one/first/libhelper.a")?;
            hunt.archive(2, "two/first/libhelper.a")?;
            hunt.link_to("one", "root")
        },
        change: |hunt| hunt.link_to("two", "root"),
    },
    Scenario {
        name: "a_script_in_a_folder_that_is_a_link",
        linkers: EVERY,
        line: &["-Lfirst", "-lhelper"],
        environment: &[],
        before: |hunt| {
            for (answer, folder) in [(1, "one"), (2, "two")] {
                hunt.archive(answer, &format!("{folder}/libreal.a"))?;
                hunt.write(&format!("{folder}/libhelper.so"), "INPUT(libreal.a)\n")?;
            }
            hunt.link_to("one", "first")
        },
        change: |hunt| hunt.link_to("two", "first"),
    },
];
