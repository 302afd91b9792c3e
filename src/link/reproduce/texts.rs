//! Texts of a reproduction: the script that repeats the link, the original command line, and the
//! versions of the tools.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::line::OUT;
use crate::args::Role;
use crate::sys::posix_shell::quoted_if_needed;
use crate::sys::run;
use crate::sys::toolchain::Compiler;

/// The values that are inserted into the script.
pub(super) struct ScriptValues<'a> {
    /// The tool that the command line is for.
    pub(super) role: Role,
    /// The linker of the original link.
    pub(super) linker: &'a Path,
    /// The output's name.
    pub(super) output: &'a OsStr,
    /// The option for the host's triple, if it is known.
    pub(super) host_triple: &'a [OsString],
    /// Options of offld that LLVM's wrapper does not have.
    pub(super) offld_only: &'a [OsString],
}

/// `run.sh`.
pub(super) fn script(values: &ScriptValues<'_>) -> Vec<u8> {
    let output = [OsStr::new(OUT), values.output].join(OsStr::new("/"));
    let tool_name = match values.role {
        Role::Wrapper => "clang-linker-wrapper",
        Role::Ld => "ld",
    };
    // `--emit-fatbin-only` needs no linker, but the script needs a name there.
    let linker = if values.linker.as_os_str().is_empty() {
        OsStr::new("ld")
    } else {
        values.linker.as_os_str()
    };
    let replacements: [(&[u8], Vec<u8>); 6] = [
        (b"@LINKER@", quoted(linker)),
        (b"@OUTPUT@", one_line(&output)),
        (b"@OUT@", OUT.into()),
        (b"@HOST_TRIPLE@", all_quoted(values.host_triple)),
        (b"@OFFLD_ONLY@", all_quoted(values.offld_only)),
        (b"@PERSONALITY@", tool_name.into()),
    ];
    let mut text = Vec::new();
    let mut rest: &[u8] = include_bytes!("run.sh");
    while let Some((byte, after)) = rest.split_first() {
        match replacements.iter().find(|(name, _)| rest.starts_with(name)) {
            Some((name, value)) => {
                text.extend_from_slice(value);
                rest = &rest[name.len()..];
            }
            None => {
                text.push(*byte);
                rest = after;
            }
        }
    }
    text
}

/// `original.txt`: shell commands that repeat the original link.
pub(super) fn original(folder: &Path, given: &[OsString]) -> Vec<u8> {
    let mut text = b"cd ".to_vec();
    text.extend(quoted(folder.as_os_str()));
    text.push(b'\n');
    text.extend(quoted(&std::env::args_os().next().unwrap_or_default()));
    for arg in given {
        text.push(b' ');
        text.extend(quoted(arg));
    }
    text.push(b'\n');
    text
}

/// `versions.txt`.
pub(super) fn versions(compiler: Option<&Compiler>, linker: &Path) -> Vec<u8> {
    let mut text = format!("offld {}\n", env!("CARGO_PKG_VERSION")).into_bytes();
    tool(
        &mut text,
        "device compiler",
        compiler.map(|compiler| compiler.path.as_path()),
    );
    tool(
        &mut text,
        "host linker",
        Some(linker).filter(|linker| !linker.as_os_str().is_empty()),
    );
    text
}

fn tool(text: &mut Vec<u8>, what: &str, path: Option<&Path>) {
    let Some(path) = path else {
        return text.extend(format!("{what}: none found\n").bytes());
    };
    let answer = run::stdout_of(path, &["--version"]).unwrap_or_default();
    text.extend(format!("{what}: {}", one_line(path.as_os_str()).escape_ascii()).bytes());
    text.extend(
        format!(
            " ({})\n",
            answer.lines().next().unwrap_or("unknown version")
        )
        .bytes(),
    );
}

fn all_quoted(args: &[OsString]) -> Vec<u8> {
    args.iter()
        .map(|arg| quoted(arg))
        .collect::<Vec<_>>()
        .join(&b' ')
}

fn quoted(arg: &OsStr) -> Vec<u8> {
    quoted_if_needed(arg.as_bytes())
}

/// Returns `text` for a comment: line breaks, which would end the comment, are replaced.
fn one_line(text: &OsStr) -> Vec<u8> {
    text.as_bytes()
        .iter()
        .map(|byte| if *byte == b'\n' { b'?' } else { *byte })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_placeholder_of_the_script_is_replaced() {
        let values = ScriptValues {
            role: Role::Ld,
            linker: Path::new("/a b/ld"),
            output: OsStr::new("x"),
            host_triple: &[],
            offld_only: &["--wrapper-why".into()],
        };
        let text = String::from_utf8(script(&values)).unwrap();
        assert!(
            text.contains("linker='/a b/ld'\n") && text.contains("set -- ld \"$@\""),
            "{text}"
        );
        assert!(text.contains("set -- --wrapper-why \"$@\""), "{text}");
        assert_eq!(
            text.matches('@').count(),
            text.matches("$@").count() + text.matches("@response.txt").count()
        );
    }

    #[test]
    fn arguments_are_quoted_byte_for_byte() {
        assert_eq!(quoted(OsStr::from_bytes(b"it's \xff")), b"'it'\\''s \xff'");
        assert_eq!(quoted(OsStr::new("")), b"''");
    }
}
