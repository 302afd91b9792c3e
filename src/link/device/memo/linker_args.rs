//! Reads a linker's command line: whether all files that the linker reads and writes can be determined, and which folders it searches.
//! Also parses the dependency file that it writes (`--dependency-file`).

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::path::{Path, PathBuf};

use super::linker_command::{INPUT, LinkerCommand, OUTPUT};
use crate::sys::session::{self, Session};
use crate::sys::toolchain;

/// The linkers that write dependency files.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Linker {
    /// LLVM's, which searches only the folders of its command line.
    Lld,
    /// GNU's, which searches built-in folders, too.
    Gnu,
}

impl Linker {
    /// The linker that the program at `path` is, symlinks resolved; none if it is not known to write dependency files.
    pub(super) fn of(path: &Path) -> Option<Linker> {
        if toolchain::is_ld_lld(path) {
            return Some(Linker::Lld);
        }
        let real = path.canonicalize().ok()?;
        let name = real.file_name()?.to_string_lossy().into_owned();
        (name == "ld.bfd" || name.ends_with("-ld.bfd")).then_some(Linker::Gnu)
    }
}

/// Options by which the linker reads or writes files that the dependency file does not list, or prints what a cached link would not.
const UNTRACKED_OPTIONS: [&str; 33] = [
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

/// What a linker's command line tells about the files that it reads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LinkerArgs {
    /// The linker.
    pub(super) linker: Linker,
    /// The folders it searches, in order, as the arguments name them.
    pub(super) folders: Vec<PathBuf>,
    /// Files that arguments name, besides inputs: scripts, profiles, lists.
    pub(super) files: Vec<String>,
    sysroot: Option<PathBuf>,
}

impl LinkerArgs {
    /// Reads the arguments of `linker_command`, or says why the files that it reads and writes cannot be determined.
    pub(super) fn read(linker_command: &LinkerCommand) -> Result<LinkerArgs, String> {
        let linker = Linker::of(&linker_command.program)
            .ok_or_else(|| format!("{} is not known to list the files that it reads", linker_command.program.display()))?;
        if Session::env(session::LLD_REPRODUCE).is_some() {
            return Err(format!("{} is set", session::LLD_REPRODUCE));
        }
        let mut line = LinkerArgs { linker, folders: Vec::new(), files: Vec::new(), sysroot: None };
        let mut args = linker_command.args.iter().map(String::as_str).peekable();
        let mut files = BTreeSet::new();
        while let Some(arg) = args.next() {
            line.check(arg, args.peek().copied())?;
            if let Some(folder) = value_of(arg, &mut args, &["-L", "--library-path", "-library-path"]) {
                line.folders.push(folder.into());
            } else if let Some(folders) = value_of(arg, &mut args, &["-rpath-link", "--rpath-link", "-rpath", "--rpath", "-R"]) {
                line.folders.extend(folders.split(':').map(PathBuf::from));
            } else if let Some(folder) = value_of(arg, &mut args, &["--sysroot", "-sysroot"]) {
                line.sysroot = Some(folder.into());
            }
            files.extend(named_files(arg));
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

    fn check(&self, arg: &str, next: Option<&str>) -> Result<(), String> {
        let Some(option) = arg.strip_prefix('-') else { return Ok(()) };
        let option = option.strip_prefix('-').unwrap_or(option);
        let plugin = self.linker == Linker::Gnu && option.starts_with("plugin") && !option.starts_with("plugin-opt");
        let loads_code_or_writes_stats =
            option == "mllvm" && next.is_some_and(|next| next.starts_with("-load") || next.starts_with("-stats-json"));
        let matches = |name: &str| if name.len() < 3 { option == name } else { option.starts_with(name) };
        if plugin {
            return Err("the linker is given a plugin".to_owned());
        }
        if loads_code_or_writes_stats
            || option == "t"
            || option == "v"
            || option == "V"
            || UNTRACKED_OPTIONS.iter().any(|name| matches(name))
        {
            return Err(format!("the linker is given `{arg}`"));
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn for_tests(linker: Linker, folders: Vec<PathBuf>) -> LinkerArgs {
        LinkerArgs { linker, folders, files: Vec::new(), sysroot: None }
    }

    /// The paths at which a file would be read in place of `path`, or searched before it, if it existed: the same name, and the library's
    /// other form (shared or archive), in every folder that is searched.
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

/// The value of one of the options `names`, in `arg` or in the argument after it.
fn value_of<'w>(arg: &'w str, args: &mut std::iter::Peekable<impl Iterator<Item = &'w str>>, names: &[&str]) -> Option<&'w str> {
    for name in names {
        let Some(rest) = arg.strip_prefix(name) else { continue };
        if rest.is_empty() {
            return args.peek().copied();
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

/// The existing files that `arg` names: the whole argument, or what follows its last `=`.
fn named_files(arg: &str) -> Vec<String> {
    if arg == INPUT || arg == OUTPUT {
        return Vec::new();
    }
    let parts = [Some(arg), arg.rsplit_once('=').map(|(_, value)| value)];
    let files = parts.into_iter().flatten().map(|part| part.trim_start_matches('@'));
    files.filter(|part| Path::new(part).is_file()).map(str::to_owned).collect()
}

/// The prerequisites of the first rule in a dependency file, whose target is the output; none if the file is truncated. In make's
/// syntax, a space, `#` or `\` in a name is escaped by `\`, and `$` is doubled.
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
    // The rule has no end: the file is truncated.
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linker_command(more: &[&str]) -> LinkerCommand {
        let mut args: Vec<String> = ["-o", OUTPUT, INPUT].map(str::to_owned).into();
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        LinkerCommand { program: "/usr/lib/llvm-22/bin/ld.lld".into(), args, warnings: String::new() }
    }

    #[test]
    fn untracked_options_are_refused() {
        if Linker::of(&linker_command(&[]).program).is_none() {
            return;
        }
        for args in
            [&["-Map=x"][..], &["--Map", "x"], &["--save-temps"], &["-mllvm", "-load=p.so"], &["--reproduce=r.tar"], &["-t"]]
        {
            assert!(LinkerArgs::read(&linker_command(args)).is_err(), "{args:?}");
        }
        for args in
            [&["--no-undefined"][..], &["-plugin-opt=mcpu=gfx90a"], &["-mllvm", "-O2"], &["--threads=2"], &["-m", "elf_x86_64"]]
        {
            assert!(LinkerArgs::read(&linker_command(args)).is_ok(), "{args:?}");
        }
        let line =
            LinkerArgs::read(&linker_command(&["-Lone", "-L", "two", "--library-path=three", "-rpath", "four:five"])).unwrap();
        assert_eq!(line.folders, ["one", "two", "three", "four", "five"].map(PathBuf::from));
    }

    #[test]
    fn every_searched_folder_may_shadow_a_library() {
        let line = LinkerArgs { linker: Linker::Lld, folders: vec!["a".into(), "/b".into()], files: Vec::new(), sysroot: None };
        let shadowing_paths: Vec<String> =
            line.shadowing_paths("/b/libx.a", &[]).into_iter().map(|path| path.to_str().unwrap().to_owned()).collect();
        assert_eq!(shadowing_paths, ["/b/libx.so", "a/libx.a", "a/libx.so"]);
        let sysroot = LinkerArgs { sysroot: Some("/root".into()), ..line };
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
