//! Files that a compiler driver reads before it selects the linker and its arguments.

use super::{EVERY, GNU, Scenario};
use crate::support::llvm;

/// Two arguments of the same length, which produce two different images.
const ONE: &str = "-Wl,--build-id=0x01\n";
const TWO: &str = "-Wl,--build-id=0x02\n";

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "a_file_of_arguments_by_a_relative_path",
        linkers: EVERY,
        line: &["-Llib", "-lhelper", "--device-compiler=@flags"],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "lib/libhelper.a")?;
            hunt.write("flags", ONE)
        },
        change: |hunt| hunt.write("flags", TWO),
    },
    Scenario {
        name: "a_file_of_arguments_by_an_absolute_path",
        linkers: EVERY,
        line: &["-Llib", "-lhelper", "--device-compiler=@{}/folder/flags"],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "lib/libhelper.a")?;
            hunt.write("folder/flags", ONE)
        },
        change: |hunt| hunt.write("folder/flags", TWO),
    },
    Scenario {
        name: "a_file_of_arguments_in_another",
        linkers: EVERY,
        line: &["-Llib", "-lhelper", "--device-compiler=@folder/flags"],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "lib/libhelper.a")?;
            hunt.write("folder/flags", "-Wl,-z,now '@folder/more flags'\n")?;
            hunt.write("folder/more flags", ONE)
        },
        change: |hunt| hunt.write("folder/more flags", TWO),
    },
    Scenario {
        name: "a_file_of_arguments_for_the_linker",
        linkers: EVERY,
        line: &["-Llib", "-lhelper", "--device-linker=@flags"],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "lib/libhelper.a")?;
            hunt.write("flags", "--build-id=0x01\n")
        },
        change: |hunt| hunt.write("flags", "--build-id=0x02\n"),
    },
    Scenario {
        name: "a_file_of_arguments_in_a_configuration_file",
        linkers: EVERY,
        line: &[
            "-Llib",
            "-lhelper",
            "--device-compiler=--config={}/folder/my.cfg",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "lib/libhelper.a")?;
            hunt.write("folder/my.cfg", "# mine\n-Wl,-z,now\n@more\n")?;
            hunt.write("folder/more", ONE)
        },
        change: |hunt| hunt.write("folder/more", TWO),
    },
    Scenario {
        name: "a_configuration_file_in_the_users_folder",
        linkers: EVERY,
        line: &[
            "-Llib",
            "-lhelper",
            "--device-compiler=--config-user-dir={}/user",
            "--device-compiler=--config=my.cfg",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "lib/libhelper.a")?;
            hunt.write("user/my.cfg", ONE)
        },
        change: |hunt| hunt.write("user/my.cfg", TWO),
    },
    Scenario {
        name: "a_configuration_file_in_the_systems_folder",
        linkers: EVERY,
        line: &[
            "-Llib",
            "-lhelper",
            "--device-compiler=--config-system-dir={}/system",
            "--device-compiler=--config=my.cfg",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "lib/libhelper.a")?;
            hunt.write("system/my.cfg", ONE)
        },
        change: |hunt| hunt.write("system/my.cfg", TWO),
    },
    Scenario {
        name: "a_configuration_file_appears_in_the_folder_that_comes_first",
        linkers: EVERY,
        line: &[
            "-Llib",
            "-lhelper",
            "--device-compiler=--config-user-dir={}/user",
            "--device-compiler=--config-system-dir={}/system",
            "--device-compiler=--config=my.cfg",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "lib/libhelper.a")?;
            hunt.folder("user")?;
            hunt.write("system/my.cfg", ONE)
        },
        change: |hunt| hunt.write("user/my.cfg", TWO),
    },
    Scenario {
        name: "an_include_below_the_configuration_folder",
        linkers: EVERY,
        line: &[
            "-Llib",
            "-lhelper",
            "--device-compiler=--config-user-dir={}/user",
            "--device-compiler=--config=my.cfg",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "lib/libhelper.a")?;
            hunt.write("user/my.cfg", "@sub/one\n")?;
            hunt.write("user/sub/one", "@two\n")?;
            hunt.write("user/sub/two", ONE)
        },
        change: |hunt| hunt.write("user/sub/two", TWO),
    },
    Scenario {
        name: "another_linker_earlier_on_the_path",
        linkers: GNU,
        line: &[
            "--linker-path=/usr/bin/ld",
            "-Llib",
            "-lhelper",
            "--device-compiler=-fuse-ld=bfd",
        ],
        environment: &[("PATH", "early:late")],
        before: |hunt| {
            hunt.archive(1, "lib/libhelper.a")?;
            hunt.folder("early")?;
            hunt.folder("late")?;
            hunt.link_to(&hunt.linker.display().to_string(), "late/ld.bfd")
        },
        change: |hunt| hunt.other_linker("early/ld.bfd"),
    },
    Scenario {
        name: "another_linker_earlier_on_the_compilers_path",
        linkers: EVERY,
        line: &[
            "--linker-path=/usr/bin/ld",
            "-Llib",
            "-lhelper",
            "--device-compiler=-fuse-ld={linker}",
        ],
        environment: &[("COMPILER_PATH", "early:late")],
        before: |hunt| {
            hunt.archive(1, "lib/libhelper.a")?;
            hunt.folder("early")?;
            hunt.folder("late")?;
            hunt.link_to(
                &hunt.linker.display().to_string(),
                &format!("late/{}", hunt.linker_name()),
            )
        },
        change: |hunt| hunt.other_linker(&format!("early/{}", hunt.linker_name())),
    },
    Scenario {
        name: "another_linker_in_a_folder_of_the_line",
        linkers: EVERY,
        line: &[
            "--linker-path=/usr/bin/ld",
            "-Llib",
            "-lhelper",
            "--device-compiler=-fuse-ld={linker}",
            "--device-compiler=-Bfolder/prefix-",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "lib/libhelper.a")?;
            hunt.folder("folder")
        },
        change: |hunt| hunt.other_linker(&format!("folder/prefix-{}", hunt.linker_name())),
    },
    Scenario {
        name: "another_linker_among_gccs_tools",
        linkers: GNU,
        line: &[
            "--linker-path=/usr/bin/ld",
            "-Llib",
            "-lhelper",
            "--device-compiler=-fuse-ld=bfd",
            "--device-compiler=-nostdlib",
            "--device-compiler=--gcc-toolchain={}/gcc",
        ],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "lib/libhelper.a")?;
            hunt.folder("gcc/x86_64-linux-gnu/bin")?;
            hunt.write("gcc/lib/gcc/x86_64-linux-gnu/99/crtbegin.o", "")
        },
        change: |hunt| hunt.other_linker("gcc/x86_64-linux-gnu/bin/ld.bfd"),
    },
    Scenario {
        name: "a_folder_of_the_environment",
        linkers: EVERY,
        line: &["--device-linker=-lhelper"],
        environment: &[("LIBRARY_PATH", "early:late")],
        before: |hunt| {
            hunt.folder("early")?;
            hunt.archive(1, "late/libhelper.a")
        },
        change: |hunt| hunt.archive(2, "early/libhelper.a"),
    },
    Scenario {
        name: "dates_of_a_folder_with_start_files_are_set_back",
        linkers: EVERY,
        line: &["-Llib", "-lhelper", "--device-compiler=-B{}/start"],
        environment: &[],
        before: |hunt| {
            hunt.archive(1, "lib/libhelper.a")?;
            hunt.folder("start")?;
            hunt.date("start")?;
            hunt.work.file(
                "marker.c",
                "const char marker[] = \"the later start file\";\n",
            );
            hunt.work
                .run(llvm("clang"), ["-fPIC", "-c", "marker.c", "-o", "marker.o"])
                .map(drop)
        },
        change: |hunt| {
            hunt.write("start/crtn.o", std::fs::read(hunt.at("marker.o"))?)?;
            hunt.date("start")
        },
    },
];
