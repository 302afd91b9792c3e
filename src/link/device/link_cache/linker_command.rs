//! The linker command that a compiler would run for an image, as printed for `-###`.
//!
//! The answer is cached, because for a small image the compiler takes longer to choose the
//! arguments than the linker takes to link. Both the query and the cached answer have placeholders
//! for everything that differs from link to link.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Placeholder for the inputs. It must be an existing file whose name does not reveal a file type
/// to the compiler.
pub(in crate::link::device) const INPUT: &str = "/dev/null";
/// Placeholder for the image: an unwritable path, in case a compiler ignores `-###` and runs the
/// link.
pub(in crate::link::device) const OUTPUT: &str = "/dev/null/image";
/// Placeholder for the prefix of further outputs (`-dumpdir`).
pub(super) const DUMP: &str = "/dev/null/dump.";

/// A linker's program and arguments with placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LinkerCommand {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    /// The compiler's warnings as complete lines, which every link prints again.
    pub(super) warnings: String,
}

/// Returns the compiler's arguments for the query. `args`: the arguments for a link of [`INPUT`] to
/// [`OUTPUT`].
pub(super) fn query(args: &[OsString]) -> Vec<OsString> {
    let mut query = vec![OsString::from("-###")];
    query.extend(args.iter().cloned());
    if let Some(at) = query.iter().position(|arg| arg == "-dumpdir")
        && let Some(folder) = query.get_mut(at + 1)
    {
        *folder = DUMP.into();
    }
    query
}

/// Parses the linker command from the compiler's answer, or returns the reason why there is none.
pub(super) fn parse(stderr: &[u8]) -> Result<LinkerCommand, String> {
    let text = std::str::from_utf8(stderr)
        .map_err(|_| "the linker's command line is not in UTF-8".to_owned())?;
    let mut command = None;
    let mut warnings = String::new();
    for line in text.lines() {
        if let Some(args) = line.strip_prefix(" \"") {
            if command.replace(args).is_some() {
                return Err("the compiler would run more than one program".to_owned());
            }
        } else if line.contains(": warning: ")
            || line.contains(": note: ")
            || line.contains(": remark: ")
        {
            warnings.push_str(line);
            warnings.push('\n');
        } else if line.contains(": error: ")
            || line.starts_with(" (in-process)")
            || line.starts_with(" Arguments passed via")
        {
            return Err(format!("the compiler reports `{}`", line.trim()));
        }
    }
    let mut args = command
        .and_then(split_args)
        .ok_or_else(|| "the compiler prints no linker command for -###".to_owned())?;
    if args.iter().any(|arg| arg.starts_with('@')) {
        return Err("the linker's command line is in a response file".to_owned());
    }
    let program = PathBuf::from(args.remove(0));
    let count = |stand_in: &str| args.iter().filter(|arg| *arg == stand_in).count();
    if !program.is_absolute() || count(INPUT) != 1 || count(OUTPUT) != 1 {
        return Err("the linker command that the compiler prints has an unknown form".to_owned());
    }
    Ok(LinkerCommand {
        program,
        args,
        warnings,
    })
}

/// Splits a line of `-###`, starting after its first quote: `"a" "b\"c"`. A `\` escapes `"`, `\`
/// and `$`.
fn split_args(line: &str) -> Option<Vec<String>> {
    let mut args = Vec::new();
    let mut rest = line.chars();
    loop {
        let mut arg = String::new();
        loop {
            match rest.next()? {
                '"' => break,
                '\\' => arg.push(rest.next()?),
                other => arg.push(other),
            }
        }
        args.push(arg);
        match (rest.next(), rest.next()) {
            (None, _) => return Some(args),
            (Some(' '), Some('"')) => {}
            _ => return None,
        }
    }
}

impl LinkerCommand {
    /// Returns the command for another architecture of the same vendor, or `None` unless one
    /// argument and no warning names it.
    ///
    /// `from` and `to` have no features, because features change more arguments.
    pub(super) fn for_processor(&self, from: &str, to: &str) -> Option<LinkerCommand> {
        let option = format!("-plugin-opt=mcpu={from}");
        let mentions = self.args.iter().filter(|arg| arg.contains(from)).count();
        let at = self.args.iter().position(|arg| *arg == option)?;
        if mentions != 1 || self.warnings.contains(from) {
            return None;
        }
        let mut other = self.clone();
        other.args[at] = format!("-plugin-opt=mcpu={to}");
        Some(other)
    }

    /// Replaces the placeholders by `inputs`, the image path `output`, and `dump`, the prefix of
    /// further outputs.
    pub(super) fn filled(&self, inputs: &[OsString], output: &Path, dump: &OsStr) -> Vec<OsString> {
        let mut filled = Vec::with_capacity(self.args.len() + inputs.len());
        for arg in &self.args {
            match arg.as_str() {
                INPUT => filled.extend(inputs.iter().cloned()),
                OUTPUT => filled.push(output.as_os_str().to_owned()),
                other => filled.push(replaced(other, DUMP, dump)),
            }
        }
        filled
    }
}

fn replaced(text: &str, what: &str, with: &OsStr) -> OsString {
    match text.split_once(what) {
        None => text.into(),
        Some((before, after)) => {
            OsString::from_vec([before.as_bytes(), with.as_bytes(), after.as_bytes()].concat())
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "Debian clang version 22.1.8\nTarget: x86_64\nThread model: posix\nInstalledDir: /usr/bin\n\
        clang: warning: argument unused during compilation: '-x' [-Wunused]\n \
        \"/usr/bin/ld.lld\" \"-shared\" \"-o\" \"/dev/null/image\" \"a\\\"b\\\\c\" \"/dev/null\" \"-plugin-opt=dwo_dir=/dev/null/dump.dwo\"\n";

    #[test]
    fn an_answer_becomes_a_command() {
        let linker_command = parse(ANSWER.as_bytes()).unwrap();
        assert_eq!(linker_command.program, Path::new("/usr/bin/ld.lld"));
        assert_eq!(
            linker_command.warnings,
            "clang: warning: argument unused during compilation: '-x' [-Wunused]\n"
        );
        let line = linker_command.filled(
            &["i.o".into(), "j.o".into()],
            Path::new("out"),
            OsStr::new("prog."),
        );
        let line: Vec<String> = line
            .into_iter()
            .map(|arg| arg.into_string().unwrap())
            .collect();
        assert_eq!(
            line,
            [
                "-shared",
                "-o",
                "out",
                "a\"b\\c",
                "i.o",
                "j.o",
                "-plugin-opt=dwo_dir=prog.dwo"
            ]
        );
    }

    #[test]
    fn other_answers_than_one_linker_are_errors() {
        let twice = format!("{ANSWER} \"/usr/bin/objcopy\" \"x\"\n");
        assert!(
            parse(twice.as_bytes())
                .unwrap_err()
                .contains("more than one")
        );
        let failed = "clang: error: no such file or directory: 'x'\n";
        assert!(
            parse(failed.as_bytes())
                .unwrap_err()
                .contains("no such file")
        );
        let relative = ANSWER.replace("/usr/bin/ld.lld", "clang-sycl-linker");
        assert!(
            parse(relative.as_bytes())
                .unwrap_err()
                .contains("unknown form")
        );
        assert!(parse(b"").is_err());
        for end in 0..ANSWER.len() - 1 {
            // A truncated answer must not panic.
            let _ = parse(&ANSWER.as_bytes()[..end]);
        }
    }

    #[test]
    fn one_architecture_replaces_another() {
        let text = ANSWER.replace("-shared", "-plugin-opt=mcpu=gfx90a");
        let linker_command = parse(text.as_bytes()).unwrap();
        let other = linker_command.for_processor("gfx90a", "gfx1100").unwrap();
        assert!(
            other.args.contains(&"-plugin-opt=mcpu=gfx1100".to_owned())
                && !other.args.iter().any(|arg| arg.contains("gfx90a"))
        );
        assert_eq!(
            other.for_processor("gfx1100", "gfx90a").unwrap(),
            linker_command
        );
        assert_eq!(linker_command.for_processor("gfx906", "gfx1100"), None);
        let twice = parse(text.replace("dwo_dir", "gfx90a").as_bytes()).unwrap();
        assert_eq!(twice.for_processor("gfx90a", "gfx1100"), None);
    }

    #[test]
    fn a_query_has_placeholders_only() {
        let args: Vec<OsString> = ["-o", OUTPUT, "-dumpdir", "zaxpy.img.", INPUT]
            .map(OsString::from)
            .into();
        assert_eq!(
            query(&args),
            ["-###", "-o", OUTPUT, "-dumpdir", DUMP, INPUT]
        );
    }
}
