//! Files that the host linker writes next to its output and that name the objects of the link, such
//! as dependency files and maps. The objects that offld adds are temporary. If a dependency file
//! named them, a build system would find them missing and relink each time. Dependency files and
//! maps would also differ after each link.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use memchr::memmem;

use crate::args::settings::LinkSettings;
use crate::args::{Arg, ArgKind, ArgumentList};
use crate::toolchain::{self, LinkerFamily};
use offld_system::atomic_file;
use offld_system::session::Session;

/// A completed host link.
pub(crate) struct Done<'a> {
    /// The command line as the user gave it.
    pub arguments: &'a ArgumentList,
    /// The settings of that command line.
    pub settings: &'a LinkSettings,
    pub linker: &'a Path,
    /// The objects that offld added to the command line.
    pub objects: &'a [PathBuf],
    /// Copies that the linker read in place of inputs, each with its input.
    pub copies: &'a [(PathBuf, PathBuf)],
    pub output: &'a Path,
    /// The file that the linker wrote: the output, or for late images the program that becomes the
    /// output.
    pub written: &'a Path,
}

/// The option that makes linkers write rules for make.
const RULES: &str = "dependency-file";
/// The options that make linkers write other files with object names: the map of each linker, and
/// reports of ld.lld.
const TEXTS: [&str; 3] = ["Map", "print-archive-stats", "why-extract"];

/// Removes offld's temporary files from the dependency files and maps of `done`. Adds to the
/// dependency files all files that only device links read.
///
/// # Errors
/// A file cannot be read or written.
pub(crate) fn clean(done: &Done<'_>, session: &Session) -> Result<()> {
    let args = done.arguments.args().iter();
    let family = toolchain::linker_family(done.linker);
    for (arg, name) in args.filter_map(|arg| Some((arg, option_name(arg, done.arguments, family)?)))
    {
        let Some(file) = operand(arg, done.arguments).map(PathBuf::from) else {
            continue;
        };
        let rewrite = |file: &Path| {
            let old = std::fs::read(file)?;
            let new = if name == RULES {
                rules(&old, done, family)
            } else {
                text(&old, session.scratch.folder().as_deref())
            };
            if new != old {
                atomic_file::replace(file, |out| Ok(out.write_all(&new)?))?;
            }
            Ok(())
        };
        // Pipes and devices cannot be read again.
        if std::fs::metadata(&file).is_ok_and(|meta| meta.is_file()) {
            let edited = session.runner.edit(&file, &rewrite);
            edited.with_context(|| {
                format!(
                    "cannot remove the names of temporary files from `{}`",
                    file.display()
                )
            })?;
        }
    }
    Ok(())
}

/// If an argument is an option in [`RULES`] or [`TEXTS`], returns the name of that option. GNU ld
/// accepts abbreviations of its long options.
fn option_name(arg: &Arg, arguments: &ArgumentList, family: LinkerFamily) -> Option<&'static str> {
    /// The shortest unambiguous abbreviations.
    const SHORTEST: [(&str, usize); 2] = [(RULES, "depe".len()), ("Map", "Ma".len())];
    let token = arguments.tokens().get(arg.tokens.start)?.to_string_lossy();
    let given = match arg.kind {
        ArgKind::Known(row) => row.name,
        ArgKind::Unknown => {
            let option = token.strip_prefix("--").or(token.strip_prefix('-'))?;
            option.split_once('=').map_or(option, |(name, _)| name)
        }
        ArgKind::Separator | ArgKind::Input => return None,
    };
    let abbreviates =
        |(name, shortest): &&(&str, usize)| given.len() >= *shortest && name.starts_with(given);
    let abbreviated = || {
        SHORTEST
            .iter()
            .find(abbreviates)
            .map(|(name, _)| *name)
            .filter(|_| family == LinkerFamily::Gnu)
    };
    [RULES]
        .into_iter()
        .chain(TEXTS)
        .find(|name| *name == given)
        .or_else(abbreviated)
}

/// Returns the operand of an option: the text after `=`, or the next token. The option may be
/// missing from the option tables.
fn operand(arg: &Arg, arguments: &ArgumentList) -> Option<OsString> {
    if let Some(value) = &arg.value {
        return Some(value.clone());
    }
    let token = arguments.tokens().get(arg.tokens.start)?.as_bytes();
    match token.iter().position(|byte| *byte == b'=') {
        Some(equals) => Some(OsStr::from_bytes(&token[equals + 1..]).to_owned()),
        None => arguments.tokens().get(arg.tokens.end).cloned(),
    }
}

/// Returns a map or a report without the temporary directory of offld's objects. Their file names
/// remain.
fn text(old: &[u8], folder: Option<&Path>) -> Vec<u8> {
    let Some(folder) = folder else {
        return old.to_vec();
    };
    replaced(old, &[folder.as_os_str().as_bytes(), b"/"].concat(), b"")
}

fn replaced(old: &[u8], from: &[u8], to: &[u8]) -> Vec<u8> {
    let mut new = Vec::with_capacity(old.len());
    let mut rest = 0;
    for at in memmem::find_iter(old, from) {
        new.extend(&old[rest..at]);
        new.extend(to);
        rest = at + from.len();
    }
    new.extend(&old[rest..]);
    new
}

/// Returns the rules for make in `old` without temporary files, and with the files that only device
/// links read.
fn rules(old: &[u8], done: &Done<'_>, family: LinkerFamily) -> Vec<u8> {
    // With --save-temps the objects remain after the link.
    let temporary = done
        .objects
        .iter()
        .filter(|_| !done.settings.run.save_temps);
    let unwanted = temporary
        .flat_map(|path| [raw(path), escaped(path)])
        .collect();
    let mut text = old.to_vec();
    for (copy, input) in done.copies {
        for name in [raw, escaped] {
            text = replaced(&text, &name(copy), &name(input));
        }
    }
    let mut lines = Lines::without(&text, &unwanted);
    if done.written != done.output {
        lines.rename_target(&raw(done.written), &raw(done.output));
    }
    for path in done.settings.device_files() {
        // Only ld.lld escapes names.
        lines.add(if family == LinkerFamily::Lld {
            escaped(&path)
        } else {
            raw(&path)
        });
    }
    lines.lines.join(&b'\n')
}

fn raw(path: &Path) -> Vec<u8> {
    path.to_path_buf().into_os_string().into_vec()
}

/// The name in ld.lld's escaping for make.
fn escaped(path: &Path) -> Vec<u8> {
    let mut name = Vec::new();
    for byte in path.as_os_str().as_bytes() {
        match byte {
            b' ' => {
                let slashes = name.iter().rev().take_while(|byte| **byte == b'\\').count();
                name.extend(std::iter::repeat_n(b'\\', slashes + 1));
            }
            b'#' => name.push(b'\\'),
            b'$' => name.push(b'$'),
            _ => {}
        }
        name.push(*byte);
    }
    name
}

/// The lines of a dependency file: a rule for the output, and an empty rule for each prerequisite.
/// GNU ld, gold and ld.lld write each prerequisite on its own line; mold and wild write all on one
/// line.
struct Lines {
    lines: Vec<Vec<u8>>,
}

/// Line end of a rule that continues on the next line.
const CONTINUES: &[u8] = b" \\";

impl Lines {
    /// The lines of `text` without the names `unwanted`.
    fn without(text: &[u8], unwanted: &HashSet<Vec<u8>>) -> Lines {
        let mut lines: Vec<Vec<u8>> = Vec::new();
        for line in text.split(|byte| *byte == b'\n') {
            if line
                .strip_suffix(b":")
                .is_some_and(|name| unwanted.contains(name))
            {
                lines.pop_if(|last| last.is_empty());
                continue;
            }
            let (body, continues) = line
                .strip_suffix(CONTINUES)
                .map_or((line, false), |body| (body, true));
            if line.starts_with(b" ") && unwanted.contains(body.trim_ascii_start()) {
                if let Some(last) = lines
                    .last_mut()
                    .filter(|last| !continues && last.ends_with(CONTINUES))
                {
                    last.truncate(last.len() - CONTINUES.len());
                }
                continue;
            }
            lines.push(
                unwanted
                    .iter()
                    .fold(line.to_vec(), |line, name| without_word(line, name)),
            );
        }
        Lines { lines }
    }

    fn rename_target(&mut self, from: &[u8], to: &[u8]) {
        for line in &mut self.lines {
            if let Some(rest) = line
                .strip_prefix(from)
                .filter(|rest| rest.starts_with(b":"))
            {
                *line = [to, rest].concat();
            }
        }
    }

    /// Adds the prerequisite `name`, unless it is there already.
    fn add(&mut self, name: Vec<u8>) {
        let empty_rule = [name.as_slice(), b":"].concat();
        let Some(end) = self
            .lines
            .iter()
            .position(|line| !line.ends_with(CONTINUES))
        else {
            return;
        };
        if self.lines.contains(&empty_rule) {
            return;
        }
        let indent = self.lines[end]
            .iter()
            .take_while(|byte| **byte == b' ')
            .count();
        if indent == 0 {
            self.lines[end].extend([b" ", name.as_slice()].concat());
        } else {
            self.lines[end].extend(CONTINUES);
            self.lines
                .insert(end + 1, [vec![b' '; indent], name].concat());
        }
        let behind = self.lines.len() - usize::from(self.lines.last().is_some_and(Vec::is_empty));
        self.lines.splice(behind..behind, [Vec::new(), empty_rule]);
    }
}

/// Returns `line` without the word `name`, if that ends at a space or at the end of the line.
fn without_word(line: Vec<u8>, name: &[u8]) -> Vec<u8> {
    let word = [b" ", name].concat();
    let is_whole = |at: &usize| line.get(at + word.len()).is_none_or(|next| *next == b' ');
    match memmem::find_iter(&line, &word).find(is_whole) {
        Some(at) => [&line[..at], &line[at + word.len()..]].concat(),
        None => line,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn without(text: &str, names: &[&str]) -> String {
        let unwanted = names
            .iter()
            .flat_map(|name| [raw(Path::new(name)), escaped(Path::new(name))])
            .collect();
        String::from_utf8(
            Lines::without(text.as_bytes(), &unwanted)
                .lines
                .join(&b'\n'),
        )
        .unwrap()
    }

    #[test]
    fn names_go_from_rules_of_every_form() {
        let ours = ["/t/x y.o", "/t/z.o"];
        let gnu = "out: \\\n  /t/x y.o \\\n  a.o \\\n  /t/z.o\n\n/t/x y.o:\n\na.o:\n\n/t/z.o:\n";
        assert_eq!(without(gnu, &ours), "out: \\\n  a.o\n\na.o:\n");
        let lld = "out: \\\n /t/x\\ y.o \\\n /t/z.o \\\n a.o\n\n/t/x\\ y.o:\n\n/t/z.o:\n\na.o:\n";
        assert_eq!(without(lld, &ours), "out: \\\n a.o\n\na.o:\n");
        let mold =
            "out: a.o /t/x y.o /t/z.old /t/z.o\n\na.o:\n\n/t/x y.o:\n\n/t/z.old:\n\n/t/z.o:\n";
        assert_eq!(
            without(mold, &ours),
            "out: a.o /t/z.old\n\na.o:\n\n/t/z.old:\n"
        );
        assert_eq!(without("out: \\\n /t/z.o\n\n/t/z.o:\n", &ours), "out:\n");
        assert_eq!(without("", &ours), "");
    }

    #[test]
    fn names_are_added_in_the_form_of_the_file() {
        for (text, expected) in [
            (
                "out: \\\n  a.o\n\na.o:\n",
                "out: \\\n  a.o \\\n  q.o\n\na.o:\n\nq.o:\n",
            ),
            ("out: a.o\n\na.o:\n", "out: a.o q.o\n\na.o:\n\nq.o:\n"),
            ("out:\n", "out: q.o\n\nq.o:\n"),
            ("out: q.o\n\nq.o:\n", "out: q.o\n\nq.o:\n"),
        ] {
            let mut lines = Lines::without(text.as_bytes(), &HashSet::new());
            lines.add(b"q.o".to_vec());
            assert_eq!(
                String::from_utf8(lines.lines.join(&b'\n')).unwrap(),
                expected
            );
        }
    }

    #[test]
    fn ld_lld_escapes_for_make() {
        assert_eq!(escaped(Path::new("/a b\\ c/$#")), b"/a\\ b\\\\\\ c/$$\\#");
    }
}
