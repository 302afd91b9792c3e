//! Shared libraries of the linker itself: a different library makes a different linker, with
//! different images.

use libtest_mimic::{Failed, Trial};

use super::{EVERY, Hunt, LLD, Scenario};
use crate::setup::mount_namespace;
use crate::support::{Outcome, ensure, expect_in, llvm, missing, passed, stderr_of, with_llvm};

/// The device linker is the hunt's own.
const LINE: &[&str] = &[
    "-Llib",
    "-lhelper",
    "--device-compiler=--ld-path={}/tool/ld.{linker}",
];

/// Creates `tool/ld.lld` or `tool/ld.bfd`, linked with `words`. The program gets an argument from
/// its library `libchoice.so` and runs the real linker with it. The directory `late` has such a
/// library, and the directory `early` is empty.
fn tool(hunt: &Hunt, words: &[&str]) -> Result<(), Failed> {
    hunt.archive(1, "lib/libhelper.a")?;
    for folder in ["tool", "early", "late"] {
        hunt.folder(folder)?;
    }
    choice(hunt, 1, "late/libchoice.so")?;
    let source = format!(
        "#include <unistd.h>\nextern const char *choice(void);\nint main(int count, char **words) {{\n  char *all[count + 2];\n  \
         for (int at = 0; at < count; ++at) all[at] = words[at];\n  all[0] = \"{linker}\";\n  all[count] = (char *)choice();\n  \
         all[count + 1] = 0;\n  execv(all[0], all);\n  return 127;\n}}\n",
        linker = hunt.linker.display()
    );
    hunt.work.file("tool.c", source);
    let output = format!("tool/{}", hunt.linker_name());
    let fixed = ["-w", "tool.c", "late/libchoice.so", "-o", output.as_str()];
    hunt.work
        .run(llvm("clang"), fixed.iter().chain(words))
        .map(drop)
}

/// A library at `name` that returns a different argument for each number.
fn choice(hunt: &Hunt, number: u32, name: &str) -> Result<(), Failed> {
    hunt.work.file(
        "choice.c",
        format!("const char *choice(void) {{ return \"--build-id=0x0{number}\"; }}\n"),
    );
    let made = hunt.at("libchoice.so");
    let words = [
        "-shared",
        "-fPIC",
        "-Wl,-soname,libchoice.so",
        "choice.c",
        "-o",
        "libchoice.so",
    ];
    hunt.work.run(llvm("clang"), words)?;
    let bytes = std::fs::read(&made)?;
    hunt.write(name, bytes)
}

pub(super) const SCENARIOS: &[Scenario] = &[
    Scenario {
        name: "tools_a_library_appears_earlier_on_the_run_path",
        linkers: EVERY,
        line: LINE,
        environment: &[],
        before: |hunt| {
            tool(
                hunt,
                &[
                    "-Wl,-rpath,$ORIGIN/../early:$ORIGIN/../late",
                    "-Wl,--enable-new-dtags",
                ],
            )
        },
        change: |hunt| choice(hunt, 2, "early/libchoice.so"),
    },
    Scenario {
        name: "tools_a_library_appears_earlier_on_the_run_path_of_old",
        linkers: LLD,
        line: LINE,
        environment: &[],
        before: |hunt| {
            tool(
                hunt,
                &[
                    "-Wl,-rpath,$ORIGIN/../early:$ORIGIN/../late",
                    "-Wl,--disable-new-dtags",
                ],
            )
        },
        change: |hunt| choice(hunt, 2, "early/libchoice.so"),
    },
    Scenario {
        name: "tools_a_library_appears_earlier_in_a_folder_of_the_environment",
        linkers: LLD,
        line: LINE,
        environment: &[("LD_LIBRARY_PATH", "early:late")],
        before: |hunt| tool(hunt, &[]),
        change: |hunt| choice(hunt, 2, "early/libchoice.so"),
    },
    Scenario {
        name: "tools_a_library_appears_in_a_folder_that_was_not_there",
        linkers: LLD,
        line: LINE,
        environment: &[],
        before: |hunt| tool(hunt, &["-Wl,-rpath,$ORIGIN/../none:$ORIGIN/../late"]),
        change: |hunt| choice(hunt, 2, "none/libchoice.so"),
    },
    Scenario {
        name: "tools_a_library_for_better_processors_appears",
        linkers: LLD,
        line: LINE,
        environment: &[],
        before: |hunt| tool(hunt, &["-Wl,-rpath,$ORIGIN/../late"]),
        change: |hunt| choice(hunt, 2, "late/glibc-hwcaps/x86-64-v2/libchoice.so"),
    },
    Scenario {
        name: "tools_a_library_that_is_loaded_before_all_others",
        linkers: LLD,
        line: LINE,
        environment: &[("LD_PRELOAD", "before/libchoice.so")],
        before: |hunt| {
            choice(hunt, 1, "before/libchoice.so")?;
            tool(hunt, &["-Wl,-rpath,$ORIGIN/../late"])
        },
        change: |hunt| {
            // Not overwritten in place, because running programs have mapped it.
            std::fs::remove_file(hunt.at("before/libchoice.so"))?;
            choice(hunt, 2, "before/libchoice.so")
        },
    },
];

/// Links whose linker finds its libraries by the loader's cache, and links that are not cached,
/// because only the loader can resolve the names of the linker's libraries.
pub(super) fn trials() -> Vec<Trial> {
    let trial = |name: &str, environment, words| {
        with_llvm(
            &format!("cache_keys::stale::tools_{name}::ld_lld"),
            move || named_by_words(environment, words),
        )
    };
    vec![
        with_llvm(
            "cache_keys::stale::tools_a_library_in_the_loaders_cache::ld_lld",
            in_the_loaders_cache,
        ),
        trial(
            "a_preloaded_library_named_by_a_word",
            ("LD_PRELOAD", "words/$LIB/libchoice.so"),
            &[],
        ),
        trial(
            "a_folder_of_the_environment_named_by_a_word",
            ("LD_LIBRARY_PATH", "words/$LIB:late"),
            &[],
        ),
        trial(
            "a_run_path_with_a_word",
            ("LD_LIBRARY_PATH", "none"),
            &["-Wl,-rpath,$ORIGIN/../words/${LIB}:$ORIGIN/../late"],
        ),
    ]
}

/// The possible expansions of `$LIB`.
const LIB: [&str; 3] = ["lib/x86_64-linux-gnu", "lib64", "lib"];

fn named_by_words(environment: (&str, &str), words: &[&str]) -> Outcome {
    let Some(hunt) = Hunt::new("ld.lld", &std::env::temp_dir())? else {
        return missing("ld.lld");
    };
    // If the variable does not lead to the library, the run path does.
    let late: &[&str] = if environment.0 == "LD_PRELOAD" {
        &["-Wl,-rpath,$ORIGIN/../late"]
    } else {
        words
    };
    tool(&hunt, late)?;
    hunt.rest();
    let link = |cached| hunt.link(LINE, &[environment], cached);
    let (first, _) = link(true)?;
    let (_, messages) = link(true)?;
    expect_in(
        &messages,
        "device link for x86_64-pc-linux-gnu: not cached: ",
    )?;
    expect_in(&messages, "only the loader can expand")?;
    LIB.iter()
        .try_for_each(|folder| choice(&hunt, 2, &format!("words/{folder}/libchoice.so")))?;
    let ((after, _), (right, _)) = (link(true)?, link(false)?);
    ensure(
        right != first,
        || "the change changes nothing: this test could not fail",
    )?;
    ensure(after == right, || "a stale image")?;
    passed()
}

fn in_the_loaders_cache() -> Outcome {
    let Some(hunt) = Hunt::new("ld.lld", &std::env::temp_dir())? else {
        return missing("ld.lld");
    };
    let Some(namespace) = mount_namespace(&hunt.work) else {
        return missing("mount namespaces (unshare --mount)");
    };
    tool(&hunt, &[])?;
    choice(&hunt, 2, "early/libchoice.so")?;
    let extra = "-w -shared -x c /dev/null -Wl,-soname,libextra.so -o early/libextra.so";
    hunt.work.run(llvm("clang"), extra.split(' '))?;
    hunt.folder("more")?;
    std::fs::rename(hunt.at("early/libextra.so"), hunt.at("more/libextra.so"))?;
    for (list, folders) in [
        ("first", &["late"][..]),
        ("with_another_library", &["late", "more"]),
        ("with_another_choice", &["early"]),
    ] {
        let lines = folders
            .iter()
            .map(|folder| hunt.at(folder).display().to_string() + "\n");
        hunt.work.file("list.conf", lines.collect::<String>());
        hunt.work
            .run("/sbin/ldconfig", ["-X", "-C", list, "-f", "list.conf"])?;
    }
    hunt.rest();
    let link = |list: &str, cached: bool| -> Result<(Vec<u8>, String), Failed> {
        let command = hunt.command(LINE);
        let mut inside = hunt.work.command("unshare");
        inside
            .args(namespace)
            .args([
                "sh",
                "-euc",
                "mount --bind \"$0\" /etc/ld.so.cache; exec \"$@\"",
            ])
            .arg(list)
            .arg(command.get_program())
            .args(command.get_args())
            .env("OFFLD_CLANG", llvm("clang"));
        let cache = if cached {
            hunt.at("cache")
        } else {
            "off".into()
        };
        let messages = stderr_of(inside.env("OFFLD_CACHE", cache))?;
        Ok((std::fs::read(hunt.at("out.so"))?, messages))
    };
    const FOUND: &str = "device link for x86_64-pc-linux-gnu: found in the cache";
    let (first, messages) = link("first", true)?;
    expect_in(&messages, "no earlier link of this output is recorded")?;
    expect_in(&link("first", true)?.1, FOUND)?;
    // An installation has added another library, and later only the timestamp of the list differs.
    expect_in(&link("with_another_library", true)?.1, FOUND)?;
    std::fs::File::options()
        .append(true)
        .open(hunt.at("with_another_library"))?
        .set_modified(std::time::UNIX_EPOCH)?;
    hunt.rest();
    expect_in(&link("with_another_library", true)?.1, FOUND)?;
    let (after, messages) = link("with_another_choice", true)?;
    let (right, _) = link("with_another_choice", false)?;
    ensure(
        right != first,
        || "the change changes nothing: this test could not fail",
    )?;
    ensure(after == right, || format!("a stale image\n{messages}"))?;
    passed()
}
