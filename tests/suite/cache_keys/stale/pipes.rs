//! Files that can be read only once: a pipe has other contents each time, under the same path.

use std::process::Command;

use libtest_mimic::{Failed, Trial};

use super::{BOTH, Hunt};
use crate::support::{Outcome, ensure, expect_in, missing, passed, stderr_of, with_llvm};

/// Arguments that name the pipe, and two contents for it that produce different images.
struct Case {
    name: &'static str,
    linkers: &'static [&'static str],
    words: &'static [&'static str],
    contents: [&'static str; 2],
}

const CASES: [Case; 4] = [
    Case {
        name: "arguments_for_the_linker",
        linkers: BOTH,
        words: &["--device-linker=@/dev/fd/9"],
        contents: ["--build-id=0x01", "--build-id=0x02"],
    },
    Case {
        name: "arguments_for_the_compiler",
        linkers: BOTH,
        words: &["--device-compiler=@/dev/fd/9"],
        contents: ["-Wl,--build-id=0x01", "-Wl,--build-id=0x02"],
    },
    Case {
        name: "a_version_script",
        linkers: BOTH,
        words: &["--device-linker=--version-script=/dev/fd/9"],
        contents: ["{ global: helper; };", "{ local: helper; };"],
    },
    Case {
        name: "symbols_to_be_kept",
        linkers: &["ld.bfd"],
        words: &["--device-linker=--retain-symbols-file=/dev/fd/9"],
        contents: ["helper", "nothing"],
    },
];

pub(super) fn trials() -> Vec<Trial> {
    let each = CASES
        .iter()
        .flat_map(|case| case.linkers.iter().map(move |linker| (case, *linker)));
    let trial = |(case, linker): (&'static Case, &'static str)| {
        let name = format!(
            "cache_keys::stale::pipes_{}::{}",
            case.name,
            linker.replace('.', "_")
        );
        with_llvm(&name, move || piped(case, linker))
    };
    each.map(trial).collect()
}

/// Links with `contents` in the pipe. Returns the output and the messages.
fn link(
    hunt: &Hunt,
    case: &Case,
    contents: &str,
    cached: bool,
) -> Result<(Vec<u8>, String), Failed> {
    let line = [&["-Llib", "-lhelper"], case.words].concat();
    let link = hunt.command(&line);
    let mut command: Command = hunt.work.command("bash");
    command
        .args(["-c", r#"exec 9< <(echo "$CONTENTS"); exec "$0" "$@""#])
        .arg(link.get_program())
        .args(link.get_args());
    for (name, value) in link
        .get_envs()
        .filter_map(|(name, value)| Some((name, value?)))
    {
        command.env(name, value);
    }
    command.env("CONTENTS", contents);
    let cache = if cached {
        hunt.at("cache").into_os_string()
    } else {
        "off".into()
    };
    let stderr = stderr_of(command.env("OFFLD_CACHE", cache))?;
    Ok((std::fs::read(hunt.at("out.so"))?, stderr))
}

fn piped(case: &Case, linker: &str) -> Outcome {
    if which::which("bash").is_err() {
        return missing("bash");
    }
    let Some(hunt) = Hunt::new(linker, &std::env::temp_dir())? else {
        return missing(linker);
    };
    hunt.archive(1, "lib/libhelper.a")?;
    hunt.rest();
    let (first, messages) = link(&hunt, case, case.contents[0], true)?;
    expect_in(&messages, "not cached: /dev/fd/9 is not a regular file")?;
    let (after, _) = link(&hunt, case, case.contents[1], true)?;
    let (right, _) = link(&hunt, case, case.contents[1], false)?;
    ensure(
        right != first,
        || "the change changes nothing: this test could not fail",
    )?;
    ensure(after == right, || "a stale image")?;
    passed()
}
