//! What a compiler would run to link an image: asked of it once (`-###`), so that later links can do without it. A compiler takes
//! longer to decide on the linker's line than the linker takes for a small image.
//!
//! The query is put with stand-ins for whatever differs from link to link; the answer has them, too, and is kept.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

/// Stands for the inputs. It must be a file that is there and whose name says nothing of what is in it.
pub(in crate::link::device) const INPUT: &str = "/dev/null";
/// Stands for the image: a place where no program can write, should one not take the query for a query.
pub(in crate::link::device) const OUTPUT: &str = "/dev/null/image";
/// Stands for what names of further outputs begin with (`-dumpdir`).
pub(super) const DUMP: &str = "/dev/null/dump.";

/// A linker's command line with the stand-ins in it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LinkerCommand {
    /// The linker.
    pub(super) program: PathBuf,
    /// Its arguments.
    pub(super) args: Vec<String>,
    /// What the compiler warned of on the way, to be said again on every link. Whole lines.
    pub(super) warnings: String,
}

/// The compiler's arguments for the query: `args` as for a link of [`INPUT`] to [`OUTPUT`].
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

/// The linker_command in a compiler's answer, or why there is none.
pub(super) fn answer(stderr: &[u8]) -> Result<LinkerCommand, String> {
    let text = std::str::from_utf8(stderr).map_err(|_| "its command line is not in UTF-8".to_owned())?;
    let mut command = None;
    let mut warnings = String::new();
    for line in text.lines() {
        if let Some(words) = line.strip_prefix(" \"") {
            if command.replace(words).is_some() {
                return Err("the compiler would run more than one program".to_owned());
            }
        } else if line.contains(": warning: ") || line.contains(": note: ") || line.contains(": remark: ") {
            warnings.push_str(line);
            warnings.push('\n');
        } else if line.contains(": error: ") || line.starts_with(" (in-process)") || line.starts_with(" Arguments passed via") {
            return Err(format!("the compiler says `{}`", line.trim()));
        }
    }
    let mut words = command.and_then(words).ok_or_else(|| "the compiler does not say what it would run".to_owned())?;
    if words.iter().any(|word| word.starts_with('@')) {
        return Err("its command line is in a response file".to_owned());
    }
    let program = PathBuf::from(words.remove(0));
    let count = |stand_in: &str| words.iter().filter(|word| *word == stand_in).count();
    if !program.is_absolute() || count(INPUT) != 1 || count(OUTPUT) != 1 {
        return Err("the compiler's command line is of no known form".to_owned());
    }
    Ok(LinkerCommand { program, args: words, warnings })
}

/// The words of a line of `-###` after its first quote: `"a" "b\"c"`, with `\` before `"`, `\` and `$`.
fn words(line: &str) -> Option<Vec<String>> {
    let mut words = Vec::new();
    let mut rest = line.chars();
    loop {
        let mut word = String::new();
        loop {
            match rest.next()? {
                '"' => break,
                '\\' => word.push(rest.next()?),
                other => word.push(other),
            }
        }
        words.push(word);
        match (rest.next(), rest.next()) {
            (None, _) => return Some(words),
            (Some(' '), Some('"')) => {}
            _ => return None,
        }
    }
}

impl LinkerCommand {
    /// The same for another processor of one kind, where the line tells it nothing but the processor's name; `from` and `to` are plain
    /// names without features, which change more than the name.
    pub(super) fn for_processor(&self, from: &str, to: &str) -> Option<LinkerCommand> {
        let word = format!("-plugin-opt=mcpu={from}");
        let telling = self.args.iter().filter(|arg| arg.contains(from)).count();
        let at = self.args.iter().position(|arg| *arg == word)?;
        if telling != 1 || self.warnings.contains(from) {
            return None;
        }
        let mut other = self.clone();
        other.args[at] = format!("-plugin-opt=mcpu={to}");
        Some(other)
    }

    /// The arguments with `inputs` words for the inputs and `output` for the image; `dump` for what outputs' names begin with.
    pub(super) fn filled(&self, inputs: &[OsString], output: &Path, dump: &OsStr) -> Vec<OsString> {
        let mut line = Vec::with_capacity(self.args.len() + inputs.len());
        for arg in &self.args {
            match arg.as_str() {
                INPUT => line.extend(inputs.iter().cloned()),
                OUTPUT => line.push(output.as_os_str().to_owned()),
                other => line.push(replaced(other, DUMP, dump)),
            }
        }
        line
    }
}

fn replaced(text: &str, what: &str, with: &OsStr) -> OsString {
    match text.split_once(what) {
        None => text.into(),
        Some((before, after)) => OsString::from_vec([before.as_bytes(), with.as_bytes(), after.as_bytes()].concat()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ANSWER: &str = "Debian clang version 22.1.8\nTarget: x86_64\nThread model: posix\nInstalledDir: /usr/bin\n\
        clang: warning: argument unused during compilation: '-x' [-Wunused]\n \
        \"/usr/bin/ld.lld\" \"-shared\" \"-o\" \"/dev/null/image\" \"a\\\"b\\\\c\" \"/dev/null\" \"-plugin-opt=dwo_dir=/dev/null/dump.dwo\"\n";

    #[test]
    fn an_answer_becomes_a_line() {
        let linker_command = answer(ANSWER.as_bytes()).unwrap();
        assert_eq!(linker_command.program, Path::new("/usr/bin/ld.lld"));
        assert_eq!(linker_command.warnings, "clang: warning: argument unused during compilation: '-x' [-Wunused]\n");
        let line = linker_command.filled(&["i.o".into(), "j.o".into()], Path::new("out"), OsStr::new("prog."));
        let line: Vec<String> = line.into_iter().map(|word| word.into_string().unwrap()).collect();
        assert_eq!(line, ["-shared", "-o", "out", "a\"b\\c", "i.o", "j.o", "-plugin-opt=dwo_dir=prog.dwo"]);
    }

    #[test]
    fn what_is_not_one_linker_is_no_recipe() {
        let twice = format!("{ANSWER} \"/usr/bin/objcopy\" \"x\"\n");
        assert!(answer(twice.as_bytes()).unwrap_err().contains("more than one"));
        let failed = "clang: error: no such file or directory: 'x'\n";
        assert!(answer(failed.as_bytes()).unwrap_err().contains("no such file"));
        let relative = ANSWER.replace("/usr/bin/ld.lld", "clang-sycl-linker");
        assert!(answer(relative.as_bytes()).unwrap_err().contains("no known form"));
        assert!(answer(b"").is_err());
        for end in 0..ANSWER.len() - 1 {
            // Whatever is cut off does not make another line of it.
            let _ = answer(&ANSWER.as_bytes()[..end]);
        }
    }

    #[test]
    fn one_processor_stands_for_another() {
        let text = ANSWER.replace("-shared", "-plugin-opt=mcpu=gfx90a");
        let linker_command = answer(text.as_bytes()).unwrap();
        let other = linker_command.for_processor("gfx90a", "gfx1100").unwrap();
        assert!(
            other.args.contains(&"-plugin-opt=mcpu=gfx1100".to_owned()) && !other.args.iter().any(|arg| arg.contains("gfx90a"))
        );
        assert_eq!(other.for_processor("gfx1100", "gfx90a").unwrap(), linker_command);
        assert_eq!(linker_command.for_processor("gfx906", "gfx1100"), None);
        let twice = answer(text.replace("dwo_dir", "gfx90a").as_bytes()).unwrap();
        assert_eq!(twice.for_processor("gfx90a", "gfx1100"), None);
    }

    #[test]
    fn the_question_has_stand_ins_only() {
        let args: Vec<OsString> = ["-o", OUTPUT, "-dumpdir", "zaxpy.img.", INPUT].map(OsString::from).into();
        assert_eq!(query(&args), ["-###", "-o", OUTPUT, "-dumpdir", DUMP, INPUT]);
    }
}
