//! Reads a linker's command line: whether all files that the linker reads and writes can be determined, and which folders it
//! searches. Also parses the dependency file that it writes (`--dependency-file`).

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use super::linker_command::{INPUT, LinkerCommand, OUTPUT};
use super::nvidia;
use crate::sys::session::{self, Session};
use crate::sys::toolchain;

/// The linkers whose reads are known: those that write dependency files, and NVIDIA's, which reads little ([`nvidia`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Linker {
    /// LLVM's, which searches only the folders of its command line.
    Lld,
    /// GNU's, which searches built-in folders, too.
    Gnu,
    /// NVIDIA's, by itself or run by LLVM's wrapper of it.
    Nvidia,
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

/// Options by which the linker reads or writes files that the dependency file does not list, or prints what a cached link would
/// not.
const UNTRACKED_OPTIONS: [&str; 41] = [
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
    "mllvm=-info-output-file",
    "mllvm=-pass-remarks-output",
    "opt-remarks",
    "out-implib",
    "plugin-opt=-load",
    "plugin-opt=cs-profile-generate",
    "plugin-opt=dwo_dir",
    "plugin-opt=obj-path",
    "plugin-opt=opt-remarks",
    "plugin-opt=save-temps",
    "plugin-opt=stats-file",
    "plugin-opt=-info-output-file",
    "plugin-opt=-pass-remarks-output",
    "plugin-opt=thinlto-index-only",
    "print-",
    "reproduce",
    "save-temps",
    "sort-section-report",
    "stats",
    "thinlto-cache-dir",
    "thinlto-distributor",
    "thinlto-emit-imports",
    "thinlto-index-only",
    "thinlto-remote-compiler",
    "time-trace",
    "trace",
    "verbose",
    "warn-backrefs-file",
    "why-extract",
    "why-live",
    "lto-emit-asm",
];

/// The same of the code generator's options, after `-mllvm`.
const UNTRACKED_VALUES: [&str; 4] = ["-load", "-stats-json", "-info-output-file", "-pass-remarks-output"];

/// What a linker's command line tells about the files that it reads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LinkerArgs {
    /// The linker.
    pub(super) linker: Linker,
    /// The folders it searches, in order, with the sysroot in place of `=`.
    pub(super) folders: Vec<PathBuf>,
    /// Files that arguments name, besides inputs: scripts, profiles, lists.
    pub(super) files: Vec<String>,
    /// Relative names in arguments, which may be those of files that the linker searches for.
    pub(super) called: Vec<PathBuf>,
    /// Files that arguments name and that are not there, where a linker goes on without them.
    pub(super) absent: Vec<PathBuf>,
    /// `--sysroot`.
    pub(super) sysroot: Option<PathBuf>,
    /// The libraries of the line, as `-l` names them; for NVIDIA's linker.
    pub(super) libraries: Vec<String>,
    /// Programs that the linker runs, as absolute paths.
    pub(super) tools: Vec<PathBuf>,
    /// The value of `-m`, with which GNU's linker also chooses its own folders.
    pub(super) emulation: Option<String>,
}

impl LinkerArgs {
    /// Reads the arguments of `linker_command`, or says why the files that it reads and writes cannot be determined.
    pub(super) fn read(linker_command: &LinkerCommand) -> Result<LinkerArgs, String> {
        if nvidia::is_linker(&linker_command.program) {
            return nvidia::read(linker_command);
        }
        let linker = Linker::of(&linker_command.program)
            .ok_or_else(|| format!("{} is not known to list the files that it reads", linker_command.program.display()))?;
        if Session::env(session::LLD_REPRODUCE).is_some() {
            return Err(format!("{} is set", session::LLD_REPRODUCE));
        }
        let mut line = LinkerArgs::empty(linker);
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
            } else if arg.starts_with("-m") && !arg.starts_with("-ml") {
                line.emulation = value_of(arg, &mut args, &["-m"]).map(str::to_owned);
            }
            files.extend(named_files(arg));
            line.call(arg);
        }
        for name in [session::LD_LIBRARY_PATH, session::LD_RUN_PATH] {
            let folders = Session::env(name).filter(|_| linker == Linker::Gnu).unwrap_or_default();
            line.folders.extend(std::env::split_paths(&folders).filter(|folder| !folder.as_os_str().is_empty()));
        }
        line.folders = line.folders.iter().map(|folder| line.rooted(folder)).collect();
        line.folders.extend(line.sysroot.clone());
        line.files = files.into_iter().collect();
        Ok(line)
    }

    pub(super) fn empty(linker: Linker) -> LinkerArgs {
        LinkerArgs {
            linker,
            folders: Vec::new(),
            files: Vec::new(),
            called: Vec::new(),
            absent: Vec::new(),
            sysroot: None,
            libraries: Vec::new(),
            tools: Vec::new(),
            emulation: None,
        }
    }

    /// A folder as linkers search it: below the sysroot if it begins with `=` or `$SYSROOT`.
    pub(super) fn rooted(&self, folder: &Path) -> PathBuf {
        let text = folder.to_string_lossy();
        match (text.strip_prefix('=').or_else(|| text.strip_prefix("$SYSROOT")), &self.sysroot) {
            (Some(rest), Some(root)) => root.join(rest.trim_start_matches('/')),
            (Some(rest), None) => rest.into(),
            (None, _) => folder.to_owned(),
        }
    }

    /// Takes down what an argument may call a file by.
    fn call(&mut self, arg: &str) {
        let value = arg.rsplit_once('=').map(|(_, value)| value);
        let script = arg.strip_prefix("-T").filter(|value| !value.is_empty());
        let names = [Some(arg).filter(|arg| !arg.starts_with('-')), value, script];
        self.called.extend(names.into_iter().flatten().filter(|name| !name.starts_with('/')).map(PathBuf::from));
        // Profiles and the like are read by the code generator, which may do without one.
        let soft = |(option, _): &(&str, &str)| ["profile", "file", "list", "sections"].iter().any(|word| option.contains(word));
        let soft = arg.rsplit_once('=').filter(soft).map(|(_, value)| value).filter(|value| !value.is_empty());
        self.absent.extend(soft.map(PathBuf::from).filter(|path| !path.exists()));
    }

    fn check(&self, arg: &str, next: Option<&str>) -> Result<(), String> {
        let Some(option) = arg.strip_prefix('-') else { return Ok(()) };
        let option = option.strip_prefix('-').unwrap_or(option);
        let plugin = self.linker == Linker::Gnu && option.starts_with("plugin") && !option.starts_with("plugin-opt");
        let loads_code_or_writes_stats =
            option == "mllvm" && next.is_some_and(|next| UNTRACKED_VALUES.iter().any(|name| next.starts_with(name)));
        let matches = |name: &str| if name.len() < 3 { option == name } else { option.starts_with(name) };
        if plugin {
            return Err("the linker is given a plugin".to_owned());
        }
        if loads_code_or_writes_stats
            || option == "t"
            || option == "v"
            || option == "V"
            || option == "version"
            || option == "help"
            || (arg.starts_with("-y") && !arg.starts_with("--"))
            || UNTRACKED_OPTIONS.iter().any(|name| matches(name))
        {
            return Err(format!("the linker is given `{arg}`"));
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn for_tests(linker: Linker, folders: Vec<PathBuf>) -> LinkerArgs {
        LinkerArgs { folders, ..LinkerArgs::empty(linker) }
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
        for args in [
            &["-y", "f"][..],
            &["-yf"],
            &["--why-live=f"],
            &["-mllvm", "-info-output-file=x"],
            &["-Map=x"],
            &["--Map", "x"],
            &["--save-temps"],
            &["-mllvm", "-load=p.so"],
            &["--reproduce=r.tar"],
            &["-t"],
        ] {
            assert!(LinkerArgs::read(&linker_command(args)).is_err(), "{args:?}");
        }
        for args in [
            &["--no-undefined"][..],
            &["--version-script=x"],
            &["--youngest"],
            &["-plugin-opt=mcpu=gfx90a"],
            &["-mllvm", "-O2"],
            &["--threads=2"],
            &["-m", "elf_x86_64"],
        ] {
            assert!(LinkerArgs::read(&linker_command(args)).is_ok(), "{args:?}");
        }
        let line =
            LinkerArgs::read(&linker_command(&["-Lone", "-L", "two", "--library-path=three", "-rpath", "four:five"])).unwrap();
        assert_eq!(line.folders, ["one", "two", "three", "four", "five"].map(PathBuf::from));
    }

    #[test]
    fn the_sysroot_stands_for_the_equals_sign() {
        let mut line = LinkerArgs::for_tests(Linker::Gnu, Vec::new());
        let rooted = |line: &LinkerArgs| ["=/lib", "$SYSROOT/lib", "lib"].map(|folder| line.rooted(Path::new(folder)));
        assert_eq!(rooted(&line), ["/lib", "/lib", "lib"].map(PathBuf::from));
        line.sysroot = Some("/root".into());
        assert_eq!(rooted(&line), ["/root/lib", "/root/lib", "lib"].map(PathBuf::from));
    }

    #[test]
    fn files_that_may_come_into_being() {
        let Some(line) = LinkerArgs::read(&linker_command(&["-T", "s.ld", "--lto-basic-block-sections=none.txt"])).ok() else {
            return;
        };
        assert_eq!(line.absent, [PathBuf::from("none.txt")]);
        assert!(line.called.contains(&PathBuf::from("s.ld")));
    }

    #[test]
    fn make_syntax() {
        let text = "out: \\\n a\\ b.o \\\n c$$d \\\n  e\n\na\\ b.o:\n";
        assert_eq!(prerequisites(text).unwrap(), ["a b.o", "c$d", "e"]);
        assert_eq!(prerequisites("out: \\\n a.o \\\n b"), None);
        assert_eq!(prerequisites(""), None);
    }
}
