//! `clang-offload-bundler` compared with LLVM's: the same messages for the same command lines, and
//! bundles that each reads of the other, with the bundlers of LLVM 14 to 22. Also the faults of
//! LLVM's bundler (docs/spec/faults.md, B1 to B24), of which `tests/cases/clang-offload-bundler/`
//! has the most.

mod large;
mod messages;
mod releases;
mod types;

use std::ffi::OsStr;
use std::path::PathBuf;
use std::process::{Command, Output};

use libtest_mimic::{Failed, Trial};

use crate::support::{Work, expect_equal, llvm, made, output, text};

pub(crate) const HOST: &str = "host-x86_64-unknown-linux-gnu-";
pub(crate) const GFX906: &str = "hip-amdgcn-amd-amdhsa--gfx906";
pub(crate) const GFX90A: &str = "hip-amdgcn-amd-amdhsa--gfx90a";

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { messages types releases large }
}

/// offld, under the name of the bundler.
pub(crate) fn ours() -> PathBuf {
    made().links.join("clang-offload-bundler")
}

/// The bundler of LLVM 22.
pub(crate) fn theirs() -> PathBuf {
    llvm("clang-offload-bundler")
}

/// A command for `tool` with these arguments in `work`, without environment variables that affect
/// bundlers.
pub(crate) fn bundler(
    work: &Work,
    tool: impl AsRef<OsStr>,
    words: &[impl AsRef<OsStr>],
) -> Command {
    let mut command = work.command(tool);
    command.args(words);
    for name in ["IGNORE_ENV_VAR", "VERBOSE", "COMPRESS", "COMPRESSION_LEVEL"] {
        command.env_remove(format!("OFFLOAD_BUNDLER_{name}"));
    }
    command.env_remove("COMPRESSED_BUNDLE_FORMAT_VERSION");
    command
}

/// Splits a command line at whitespace.
pub(crate) fn words(line: &str) -> Vec<&str> {
    line.split_whitespace().collect()
}

/// Runs a bundler command line in `work`, which must succeed. Returns stdout.
pub(crate) fn done(work: &Work, tool: impl AsRef<OsStr>, line: &str) -> Result<String, Failed> {
    crate::support::run(&mut bundler(work, tool, &words(line)))
}

/// Exit status, stdout and stderr, with the same names for both tools and for temporary files.
pub(crate) fn told(tool: &Command, ended: &Output) -> String {
    let own = tool.get_program().to_string_lossy().into_owned();
    let folder = own.rsplit_once('/').map_or("", |(folder, _)| folder);
    let named = |bytes: &[u8]| {
        text(bytes)
            .replace(&own, "BUNDLER")
            .replace(&format!("{folder}/llvm-objcopy"), "llvm-objcopy")
    };
    format!(
        "status {:?}\n{}---\n{}",
        ended.status.code(),
        named(&ended.stdout),
        named(&ended.stderr)
    )
}

/// Runs a command line with both bundlers. Fails unless exit status and output are equal.
pub(crate) fn same(work: &Work, line: &str, envs: &[(&str, &str)]) -> Result<(), Failed> {
    let mut seen = Vec::new();
    for tool in [theirs(), ours()] {
        let mut command = bundler(work, tool, &words(line));
        command.envs(envs.iter().copied());
        let ended = output(&mut command)?;
        seen.push(told(&command, &ended));
    }
    expect_equal(&format!("{line} with {envs:?}"), &seen[0], &seen[1])
}

/// The contents of a file in `work`.
pub(crate) fn read(work: &Work, name: &str) -> Result<String, Failed> {
    let bytes =
        std::fs::read(work.path().join(name)).map_err(|error| format!("{name}: {error}"))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Writes three files to bundle.
pub(crate) fn files(work: &Work) {
    for (name, contents) in [
        ("host", "the host"),
        ("one", "the first code object"),
        ("two", "the second"),
    ] {
        work.file(name, contents);
    }
}

/// Bundles the three files under these ids into `name`.
pub(crate) fn bundle(work: &Work, kind: &str, ids: [&str; 3], name: &str) -> Result<(), Failed> {
    let line = format!(
        "-type={kind} -targets={} -input=host -input=one -input=two -output={name}",
        ids.join(",")
    );
    done(work, ours(), &line).map(drop)
}
