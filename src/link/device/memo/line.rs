//! What a linker's command line says: whether all that the linker reads and writes can be known, where it searches, and what it was
//! told to write down itself (`--dependency-file`).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::linker_command::{INPUT, LinkerCommand, OUTPUT};
use crate::sys::session::{self, Session};
use crate::sys::toolchain;

/// Which linker it is, as far as it matters here.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Linker {
    /// LLVM's. It searches where the line says, and nowhere else.
    Lld,
    /// GNU's. It searches in folders of its own, too.
    Gnu,
}

impl Linker {
    /// Of the program at `path`, through links; none of one that is not known to write dependency files.
    pub(super) fn of(path: &Path) -> Option<Linker> {
        if toolchain::is_ld_lld(path) {
            return Some(Linker::Lld);
        }
        let real = path.canonicalize().ok()?;
        let name = real.file_name()?.to_string_lossy().into_owned();
        (name == "ld.bfd" || name.ends_with("-ld.bfd")).then_some(Linker::Gnu)
    }
}

/// Options that have the linker read or write what a dependency file does not tell of, or print what a repeated link would not.
const UNKNOWN: [&str; 33] = [
    "M",
    "Map",
    "cref",
    "dependency-file",
    "load-pass-plugin",
    "lto-cs-profile-generate",
    "lto-obj-path",
    "lto-pgo-",
    "mllvm=-load",
    "mllvm=-stats-json",
    "opt-remarks",
    "out-implib",
    "plugin-opt=-load",
    "plugin-opt=cs-profile-generate",
    "plugin-opt=dwo_dir",
    "plugin-opt=obj-path",
    "plugin-opt=opt-remarks",
    "plugin-opt=save-temps",
    "plugin-opt=stats-file",
    "plugin-opt=thinlto-index-only",
    "print-",
    "reproduce",
    "save-temps",
    "sort-section-report",
    "stats",
    "thinlto-emit-imports",
    "thinlto-index-only",
    "time-trace",
    "trace",
    "verbose",
    "warn-backrefs-file",
    "why-extract",
    "lto-emit-asm",
];

/// What is known of a linker's line.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Line {
    /// The linker.
    pub(super) linker: Linker,
    /// The folders it searches, in order, as the line names them.
    pub(super) folders: Vec<PathBuf>,
    /// Files that words of the line name, besides inputs: scripts, profiles, lists.
    pub(super) files: Vec<String>,
    sysroot: Option<PathBuf>,
}

impl Line {
    /// Reads `linker_command`'s line, or says why a link by it cannot be known whole.
    pub(super) fn read(linker_command: &LinkerCommand) -> Result<Line, String> {
        let linker = Linker::of(&linker_command.program)
            .ok_or_else(|| format!("{} is not known to say which files it has read", linker_command.program.display()))?;
        if Session::env(session::LLD_REPRODUCE).is_some() {
            return Err(format!("{} is set", session::LLD_REPRODUCE));
        }
        let mut line = Line { linker, folders: Vec::new(), files: Vec::new(), sysroot: None };
        let mut words = linker_command.args.iter().map(String::as_str).peekable();
        let mut files = BTreeSet::new();
        while let Some(word) = words.next() {
            line.check(word, words.peek().copied())?;
            if let Some(folder) = valued(word, &mut words, &["-L", "--library-path", "-library-path"]) {
                line.folders.push(folder.into());
            } else if let Some(folders) = valued(word, &mut words, &["-rpath-link", "--rpath-link", "-rpath", "--rpath", "-R"]) {
                line.folders.extend(folders.split(':').map(PathBuf::from));
            } else if let Some(folder) = valued(word, &mut words, &["--sysroot", "-sysroot"]) {
                line.sysroot = Some(folder.into());
            }
            files.extend(named_files(word));
        }
        for name in [session::LD_LIBRARY_PATH, session::LD_RUN_PATH] {
            let folders = Session::env(name).filter(|_| linker == Linker::Gnu).unwrap_or_default();
            line.folders.extend(std::env::split_paths(&folders).filter(|folder| !folder.as_os_str().is_empty()));
        }
        if let Some(root) = line.sysroot.clone() {
            let below = |folder: &PathBuf| match folder.to_string_lossy().strip_prefix('=') {
                Some(rest) => root.join(rest.trim_start_matches('/')),
                None => folder.clone(),
            };
            line.folders = line.folders.iter().map(below).collect();
            line.folders.push(root);
        }
        line.files = files.into_iter().collect();
        Ok(line)
    }

    fn check(&self, word: &str, next: Option<&str>) -> Result<(), String> {
        let Some(option) = word.strip_prefix('-') else { return Ok(()) };
        let option = option.strip_prefix('-').unwrap_or(option);
        let plugin = self.linker == Linker::Gnu && option.starts_with("plugin") && !option.starts_with("plugin-opt");
        let passed = option == "mllvm" && next.is_some_and(|next| next.starts_with("-load") || next.starts_with("-stats-json"));
        let matches = |name: &str| if name.len() < 3 { option == name } else { option.starts_with(name) };
        if plugin {
            return Err("the linker is given a plugin".to_owned());
        }
        if passed || option == "t" || option == "v" || option == "V" || UNKNOWN.iter().any(|name| matches(name)) {
            return Err(format!("the linker is given `{word}`"));
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn for_tests(linker: Linker, folders: Vec<PathBuf>) -> Line {
        Line { linker, folders, files: Vec::new(), sysroot: None }
    }

    /// The files that would have been read in place of `path`, or before it, if they were there: the same name, and the library's other
    /// form, in every folder that is searched.
    pub(super) fn shadowing_paths(&self, path: &str, more: &[PathBuf]) -> BTreeSet<PathBuf> {
        let path = Path::new(path);
        let Some(name) = path.file_name().and_then(OsStr::to_str) else { return BTreeSet::new() };
        let stem = name.split_once(".so").map(|(stem, _)| stem).or_else(|| name.strip_suffix(".a"));
        let mut names = vec![name.to_owned()];
        names.extend(stem.into_iter().flat_map(|stem| [format!("{stem}.so"), format!("{stem}.a")]));
        let folders = self.folders.iter().chain(more).map(PathBuf::as_path).chain(path.parent());
        let mut shadowing_paths: BTreeSet<PathBuf> =
            folders.flat_map(|folder| names.iter().map(move |name| folder.join(name))).collect();
        if let (Some(root), Ok(rest)) = (&self.sysroot, path.strip_prefix("/")) {
            shadowing_paths.insert(root.join(rest));
        }
        shadowing_paths.remove(path);
        shadowing_paths
    }
}

/// The value of one of the options `names` in `word`, or after it.
fn valued<'w>(word: &'w str, words: &mut std::iter::Peekable<impl Iterator<Item = &'w str>>, names: &[&str]) -> Option<&'w str> {
    for name in names {
        let Some(rest) = word.strip_prefix(name) else { continue };
        if rest.is_empty() {
            return words.peek().copied();
        }
        if let Some(value) = rest.strip_prefix('=').filter(|_| name.len() > 2) {
            return Some(value);
        }
        if name.len() == 2 {
            return Some(rest);
        }
    }
    None
}

/// What of `word` is a file that is there: itself, or what follows its last `=`.
fn named_files(word: &str) -> Vec<String> {
    if word == INPUT || word == OUTPUT {
        return Vec::new();
    }
    let parts = [Some(word), word.rsplit_once('=').map(|(_, value)| value)];
    let files = parts.into_iter().flatten().map(|part| part.trim_start_matches('@'));
    files.filter(|part| Path::new(part).is_file()).map(str::to_owned).collect()
}

/// The prerequisites in a dependency file in make's syntax: of its first rule, whose target is the output. A space, `#` or `\` in a
/// name has a `\` before it, a `$` is doubled.
pub(super) fn prerequisites(text: &str) -> Option<Vec<String>> {
    let mut names = Vec::new();
    let mut name = String::new();
    let mut chars = text.split_once(": ")?.1.chars().peekable();
    while let Some(char) = chars.next() {
        match (char, chars.peek()) {
            ('\\', Some('\n')) => {
                chars.next();
                names.push(std::mem::take(&mut name));
            }
            ('\\', Some(' ' | '#' | '\\')) => name.extend(chars.next()),
            ('$', Some('$')) => name.extend(chars.next()),
            (' ', _) => names.push(std::mem::take(&mut name)),
            ('\n', _) => {
                names.push(name);
                names.retain(|name| !name.is_empty());
                return Some(names);
            }
            (other, _) => name.push(other),
        }
    }
    // The rule does not end: something has been cut off.
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linker_command(words: &[&str]) -> LinkerCommand {
        let mut args: Vec<String> = ["-o", OUTPUT, INPUT].map(str::to_owned).into();
        args.extend(words.iter().map(|word| (*word).to_owned()));
        LinkerCommand { program: "/usr/lib/llvm-22/bin/ld.lld".into(), args, warnings: String::new() }
    }

    #[test]
    fn options_that_hide_something_are_seen() {
        if Linker::of(&linker_command(&[]).program).is_none() {
            return;
        }
        for words in
            [&["-Map=x"][..], &["--Map", "x"], &["--save-temps"], &["-mllvm", "-load=p.so"], &["--reproduce=r.tar"], &["-t"]]
        {
            assert!(Line::read(&linker_command(words)).is_err(), "{words:?}");
        }
        for words in
            [&["--no-undefined"][..], &["-plugin-opt=mcpu=gfx90a"], &["-mllvm", "-O2"], &["--threads=2"], &["-m", "elf_x86_64"]]
        {
            assert!(Line::read(&linker_command(words)).is_ok(), "{words:?}");
        }
        let line = Line::read(&linker_command(&["-Lone", "-L", "two", "--library-path=three", "-rpath", "four:five"])).unwrap();
        assert_eq!(line.folders, ["one", "two", "three", "four", "five"].map(PathBuf::from));
    }

    #[test]
    fn rivals_are_wherever_is_searched() {
        let line = Line { linker: Linker::Lld, folders: vec!["a".into(), "/b".into()], files: Vec::new(), sysroot: None };
        let shadowing_paths: Vec<String> =
            line.shadowing_paths("/b/libx.a", &[]).into_iter().map(|path| path.to_str().unwrap().to_owned()).collect();
        assert_eq!(shadowing_paths, ["/b/libx.so", "a/libx.a", "a/libx.so"]);
        let sysroot = Line { sysroot: Some("/root".into()), ..line };
        assert!(sysroot.shadowing_paths("/lib/libc.so.6", &[]).contains(Path::new("/root/lib/libc.so.6")));
    }

    #[test]
    fn make_syntax() {
        let text = "out: \\\n a\\ b.o \\\n c$$d \\\n  e\n\na\\ b.o:\n";
        assert_eq!(prerequisites(text).unwrap(), ["a b.o", "c$d", "e"]);
        assert_eq!(prerequisites("out: \\\n a.o \\\n b"), None);
        assert_eq!(prerequisites(""), None);
    }
}
