//! Parses linker arguments to determine which files a linker reads and writes, and which
//! directories it searches.
//!
//! Also parses the dependency file that the linker writes (`--dependency-file`).

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use super::{DUMP, INPUT, OUTPUT, nvidia, reads};
use crate::args::gnu_ld;
use crate::toolchain::{self, LinkerFamily};
use offld_system::environment;

/// Linkers whose inputs can be determined: those that write dependency files, and NVIDIA's linker
/// ([`nvidia`]).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Linker {
    /// ld.lld, which searches only the directories in its arguments.
    Lld,
    /// GNU ld, which searches built-in directories, too.
    Gnu,
    /// wild, which searches only the directories in its arguments. Its dependency file omits thin
    /// archives and files named by options.
    Wild,
    /// nvlink, run directly or through LLVM's wrapper.
    Nvidia,
}

impl Linker {
    /// Identifies the linker at `path`, with symlinks resolved. `None` if it is not known to write
    /// dependency files.
    pub(super) fn of(path: &Path) -> Option<Linker> {
        if toolchain::is_ld_lld(path) {
            return Some(Linker::Lld);
        }
        if toolchain::linker_family(path) == LinkerFamily::Wild {
            return Some(Linker::Wild);
        }
        let real = path.canonicalize().ok()?;
        let name = real.file_name()?.to_string_lossy().into_owned();
        (name == "ld.bfd" || name.ends_with("-ld.bfd")).then_some(Linker::Gnu)
    }
}

/// A linker's program and arguments with placeholders.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct LinkerCommand {
    pub(super) program: PathBuf,
    pub(super) args: Vec<String>,
    /// The compiler's warnings as complete lines, which every link prints again.
    pub(super) warnings: String,
}

impl LinkerCommand {
    /// Returns the command for another architecture of the same vendor, or `None` unless exactly
    /// one argument, and no warning, names `from`.
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

/// Prefixes of options that read or write files missing from the dependency file, or that print
/// output which a cached link would not print. Names shorter than three characters match exactly.
const UNTRACKED_OPTIONS: [&str; 38] = [
    "M",
    "Map",
    "chroot",
    "cref",
    "dependency-file",
    "error-handling-script",
    "load-pass-plugin",
    "lto-cs-profile-generate",
    "lto-obj-path",
    "lto-pgo-",
    "opt-remarks",
    "out-implib",
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
    "target-help",
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
    "write-gc-stats",
];

/// Options with a file that wild also searches for in library directories, and that its dependency
/// file omits.
const WILD_SEARCHED_FILES: [&str; 4] = [
    "dynamic-list",
    "export-dynamic-symbol-list",
    "retain-symbols-file",
    "version-script",
];

/// Prefix of the environment variables that make wild write further files, or run another linker.
const VARIABLES_OF_WILD: &str = "WILD_";

/// Prefixes of LLVM options with the effects of [`UNTRACKED_OPTIONS`], after `-mllvm` or
/// `-plugin-opt=`.
const UNTRACKED_VALUES: [&str; 4] = [
    "-load",
    "-stats-json",
    "-info-output-file",
    "-pass-remarks-output",
];

/// Parts of the names of LLVM options that write files: graphs, printed output, summaries.
const WRITING_PARTS: [&str; 10] = [
    "-dot-",
    "-dotcfg",
    "-dump-",
    "-log-file",
    "-output",
    "-print-ir-path",
    "-print-on-crash-path",
    "-print-partition-",
    "-stats-file",
    "-write-summary",
];

/// The linker arguments that determine which files the linker reads.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct LinkerArgs {
    pub(super) linker: Linker,
    /// The search directories in order, with the sysroot in place of `=`.
    pub(super) folders: Vec<PathBuf>,
    /// Files named by arguments other than inputs: scripts, profiles, lists.
    pub(super) files: Vec<String>,
    /// Relative names in arguments, which the linker may search for.
    pub(super) called: Vec<PathBuf>,
    /// Missing files named by arguments, if the linker can do without them.
    pub(super) absent: Vec<PathBuf>,
    /// The value of `--sysroot`.
    pub(super) sysroot: Option<PathBuf>,
    /// The libraries in the arguments. For nvlink they have no `-l` in front, otherwise they do.
    pub(super) libraries: Vec<String>,
    /// Absolute paths of the programs that the linker runs.
    pub(super) tools: Vec<PathBuf>,
    /// The value of `-m`. GNU ld also chooses its built-in directories by it.
    pub(super) emulation: Option<String>,
}

impl LinkerArgs {
    /// Parses the arguments of `linker_command`, or returns the reason why its input and output
    /// files cannot be determined.
    pub(super) fn read(linker_command: &LinkerCommand) -> Result<LinkerArgs, String> {
        if nvidia::is_linker(&linker_command.program) {
            return nvidia::read(linker_command);
        }
        let linker = Linker::of(&linker_command.program).ok_or_else(|| {
            format!(
                "{} is not known to list its input files",
                linker_command.program.display()
            )
        })?;
        if environment::get(environment::LLD_REPRODUCE).is_some() {
            return Err(format!("{} is set", environment::LLD_REPRODUCE));
        }
        if linker == Linker::Wild
            && let Some(name) = environment::names()
                .find(|name| name.to_string_lossy().starts_with(VARIABLES_OF_WILD))
        {
            return Err(format!("{} is set", name.display()));
        }
        let mut line = LinkerArgs::empty(linker);
        let words = words(linker, &linker_command.args)?;
        let mut args = words.iter().map(AsRef::as_ref).peekable();
        let mut files = BTreeSet::new();
        while let Some(arg) = args.next() {
            line.check(arg, args.peek().copied())?;
            if let Some(folder) =
                value_of(arg, &mut args, &["-L", "--library-path", "-library-path"])
            {
                line.folders.push(folder.into());
            } else if let Some(folders) = value_of(
                arg,
                &mut args,
                &["-rpath-link", "--rpath-link", "-rpath", "--rpath", "-R"],
            ) {
                line.folders.extend(folders.split(':').map(PathBuf::from));
            } else if let Some(folder) = value_of(arg, &mut args, &["--sysroot", "-sysroot"]) {
                // GNU ld ignores any other spelling.
                if linker != Linker::Gnu || arg.starts_with("--sysroot=") {
                    line.sysroot = Some(folder.into());
                }
            } else if let Some(library) = value_of(arg, &mut args, &["-l", "--library", "-library"])
            {
                line.libraries.push(format!("-l{library}"));
            } else if arg.starts_with("-m") && !arg.starts_with("-ml") {
                line.emulation = value_of(arg, &mut args, &["-m"]).map(str::to_owned);
            }
            files.extend(named_files(arg)?);
            line.record_names(arg);
        }
        for name in [environment::LD_LIBRARY_PATH, environment::LD_RUN_PATH] {
            let folders = environment::get(name)
                .filter(|_| linker == Linker::Gnu)
                .unwrap_or_default();
            line.folders.extend(
                std::env::split_paths(&folders).filter(|folder| !folder.as_os_str().is_empty()),
            );
        }
        line.folders = line
            .folders
            .iter()
            .map(|folder| line.rooted(folder))
            .collect();
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

    /// Resolves a search directory: it is below the sysroot if it begins with `=` or `$SYSROOT`.
    pub(super) fn rooted(&self, folder: &Path) -> PathBuf {
        let text = folder.to_string_lossy();
        match (
            text.strip_prefix('=')
                .or_else(|| text.strip_prefix("$SYSROOT")),
            &self.sysroot,
        ) {
            (Some(rest), Some(root)) => root.join(rest.trim_start_matches('/')),
            (Some(rest), None) => rest.into(),
            (None, _) => folder.to_owned(),
        }
    }

    /// Records the file names that an argument may contain.
    fn record_names(&mut self, arg: &str) {
        let value = arg.rsplit_once('=').map(|(_, value)| value);
        let script = arg.strip_prefix("-T").filter(|value| !value.is_empty());
        let names = [Some(arg).filter(|arg| !arg.starts_with('-')), value, script];
        self.called.extend(
            names
                .into_iter()
                .flatten()
                .filter(|name| !name.starts_with('/'))
                .map(PathBuf::from),
        );
        // The code generator reads profiles and the like, and can do without them.
        let optional = |(option, _): &(&str, &str)| {
            [
                "profile", "file", "list", "sections", "path", "replay", "summary",
            ]
            .iter()
            .any(|word| option.contains(word))
        };
        let optional = arg
            .rsplit_once('=')
            .filter(optional)
            .map(|(_, value)| value)
            .filter(|value| !value.is_empty());
        self.absent
            .extend(optional.map(PathBuf::from).filter(|path| !path.exists()));
    }

    fn check(&self, arg: &str, next: Option<&str>) -> Result<(), String> {
        let Some(option) = arg.strip_prefix('-') else {
            return Ok(());
        };
        let option = option.strip_prefix('-').unwrap_or(option);
        // The code generator's options have one dash or two.
        let option = option.replacen("=--", "=-", 1);
        let next = next.map(|next| {
            next.strip_prefix('-')
                .filter(|rest| rest.starts_with('-'))
                .unwrap_or(next)
        });
        let plugin = matches!(self.linker, Linker::Gnu | Linker::Wild)
            && option.starts_with("plugin")
            && !option.starts_with("plugin-opt");
        let llvm_option = if option == "mllvm" {
            next
        } else {
            option
                .strip_prefix("mllvm=")
                .or(option.strip_prefix("plugin-opt="))
        };
        let is_untracked_llvm_option = llvm_option
            .filter(|value| value.starts_with('-'))
            .is_some_and(|value| {
                let name = value.split('=').next().unwrap_or_default();
                let writes =
                    value.contains('=') && WRITING_PARTS.iter().any(|part| name.contains(part));
                writes
                    || name.ends_with("-directory")
                    || UNTRACKED_VALUES.iter().any(|name| value.starts_with(name))
            });
        let matches = |name: &str| {
            if name.len() < 3 {
                option == name
            } else {
                option.starts_with(name)
            }
        };
        if plugin {
            return Err("the cache does not support linker plugins".to_owned());
        }
        if self.linker == Linker::Wild {
            let (name, value) = option
                .split_once('=')
                .map_or((&*option, next), |(name, value)| (name, Some(value)));
            if WILD_SEARCHED_FILES.contains(&name)
                && value.is_some_and(|file| !Path::new(file).exists())
            {
                return Err(format!(
                    "wild searches directories for the file of `{arg}` and does not report the path"
                ));
            }
        }
        if is_untracked_llvm_option
            || option == "t"
            || option == "v"
            || option == "V"
            || option == "version"
            || option == "help"
            || (arg.starts_with("-y") && !arg.starts_with("--"))
            || UNTRACKED_OPTIONS.iter().any(|name| matches(name))
        {
            return Err(format!(
                "the cache does not support the linker argument `{arg}`"
            ));
        }
        Ok(())
    }

    #[cfg(test)]
    pub(super) fn for_tests(linker: Linker, folders: Vec<PathBuf>) -> LinkerArgs {
        LinkerArgs {
            folders,
            ..LinkerArgs::empty(linker)
        }
    }
}

/// Expands abbreviated options for GNU ld, as it does itself. Fails if an abbreviation is
/// ambiguous.
fn words(linker: Linker, args: &[String]) -> Result<Vec<Cow<'_, str>>, String> {
    let word = |arg| match linker {
        Linker::Gnu => Ok(gnu_ld::spelled_out(arg)?.map_or(Cow::Borrowed(arg), Cow::Owned)),
        Linker::Lld | Linker::Wild | Linker::Nvidia => Ok(Cow::Borrowed(arg)),
    };
    args.iter().map(String::as_str).map(word).collect()
}

/// Returns the value of one of the options `names`, from `arg` or the argument after it.
fn value_of<'w>(
    arg: &'w str,
    args: &mut std::iter::Peekable<impl Iterator<Item = &'w str>>,
    names: &[&str],
) -> Option<&'w str> {
    for name in names {
        let Some(rest) = arg.strip_prefix(name) else {
            continue;
        };
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

/// Returns the existing files that `arg` names: the whole argument, or the part after its last `=`.
/// Fails if one is a pipe or the like.
fn named_files(arg: &str) -> Result<Vec<String>, String> {
    if arg == INPUT || arg == OUTPUT {
        return Ok(Vec::new());
    }
    let mut files = Vec::new();
    for part in [Some(arg), arg.rsplit_once('=').map(|(_, value)| value)]
        .into_iter()
        .flatten()
    {
        let part = part.trim_start_matches('@');
        let Ok(meta) = std::fs::metadata(part) else {
            continue;
        };
        if meta.is_file() {
            files.push(part.to_owned());
        } else if reads::is_read_once(Path::new(part), &meta) {
            return Err(reads::read_once(Path::new(part)));
        }
    }
    Ok(files)
}

/// Returns the files listed in the dependency file `text` of `linker`. `None` if the file is
/// truncated or ambiguous.
pub(super) fn prerequisites(linker: Linker, text: &str) -> Option<Vec<String>> {
    match linker {
        Linker::Lld | Linker::Nvidia => first_rule(text),
        Linker::Gnu | Linker::Wild => empty_rules(text),
    }
}

/// Returns the targets of the rules after the first, which have no prerequisites: one for each
/// prerequisite of the first rule.
///
/// GNU ld and wild escape nothing, so the first rule does not show where a name with spaces ends.
/// Returns `None` if the names in the first rule differ.
fn empty_rules(text: &str) -> Option<Vec<String>> {
    let text = text.strip_suffix('\n')?;
    let (first, rest) = text.split_once("\n\n").unwrap_or((text, ""));
    let rules = rest.split_terminator("\n\n");
    let names: Vec<String> = rules
        .map(|rule| rule.strip_suffix(':').map(str::to_owned))
        .collect::<Option<_>>()?;
    // wild writes them on one line, GNU ld each on its own line.
    let listed = |before: &str| {
        first.ends_with(
            &names
                .iter()
                .fold(":".to_owned(), |listed, name| listed + before + name),
        )
    };
    (listed(" ") || listed(" \\\n  ")).then_some(names)
}

/// Returns the prerequisites of the first rule, whose target is the output.
///
/// In make's syntax, `\` escapes a space, `#` or `\` in a name, and `$` is doubled.
fn first_rule(text: &str) -> Option<Vec<String>> {
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
    // Without an end of the rule, the file is truncated.
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn linker_command(more: &[&str]) -> LinkerCommand {
        let mut args: Vec<String> = ["-o", OUTPUT, INPUT].map(str::to_owned).into();
        args.extend(more.iter().map(|arg| (*arg).to_owned()));
        LinkerCommand {
            program: "/usr/lib/llvm-22/bin/ld.lld".into(),
            args,
            warnings: String::new(),
        }
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
            &["-mllvm", "--stats-json"],
            &["-mllvm=--info-output-file=x"],
            &["-plugin-opt=-pass-remarks-output=x"],
            &["-mllvm", "--cfg-dot-filename-prefix=x"],
            &["-mllvm", "-ir-dump-directory=x"],
            &["-plugin-opt=-amdgpu-module-splitting-print-module-dotcfg=x"],
        ] {
            assert!(LinkerArgs::read(&linker_command(args)).is_err(), "{args:?}");
        }
        for args in [
            &["--no-undefined"][..],
            &["--version-script=x"],
            &["--youngest"],
            &["-plugin-opt=mcpu=gfx90a"],
            &["-mllvm", "-O2"],
            &["-mllvm", "-inline-threshold=10"],
            &["-plugin-opt=-mattr=+x"],
            &["--threads=2"],
            &["-m", "elf_x86_64"],
        ] {
            assert!(LinkerArgs::read(&linker_command(args)).is_ok(), "{args:?}");
        }
        let line = LinkerArgs::read(&linker_command(&[
            "-Lone",
            "-L",
            "two",
            "--library-path=three",
            "-rpath",
            "four:five",
        ]))
        .unwrap();
        assert_eq!(
            line.folders,
            ["one", "two", "three", "four", "five"].map(PathBuf::from)
        );
    }

    #[test]
    fn files_that_wild_searches_are_untracked() {
        let there = format!(
            "--version-script={}",
            std::env::current_exe().unwrap().display()
        );
        for (linker, there_alone) in [(Linker::Wild, true), (Linker::Lld, false)] {
            let line = LinkerArgs::for_tests(linker, Vec::new());
            assert_eq!(
                line.check("--version-script=none.ver", None).is_err(),
                there_alone
            );
            assert_eq!(
                line.check("--dynamic-list", Some("none.list")).is_err(),
                there_alone
            );
            assert_eq!(line.check(&there, None), Ok(()));
        }
    }

    #[test]
    fn abbreviated_options_of_gnu_ld_are_expanded() {
        let spelled = |args: &[&str]| {
            let args: Vec<String> = args.iter().map(|arg| (*arg).to_owned()).collect();
            words(Linker::Gnu, &args).map(|words| {
                words
                    .iter()
                    .map(|word| word.clone().into_owned())
                    .collect::<Vec<_>>()
            })
        };
        let words_of = |words: &[&str]| {
            Ok(words
                .iter()
                .map(|word| (*word).to_owned())
                .collect::<Vec<_>>())
        };
        assert_eq!(
            spelled(&["--library-pa", "L1", "-lq"]),
            words_of(&["--library-path", "L1", "-lq"])
        );
        assert_eq!(
            spelled(&["-Ma=m.txt", "-Map=n.txt"]),
            words_of(&["--Map=m.txt", "-Map=n.txt"])
        );
        assert!(
            spelled(&["--dep=d.txt"])
                .unwrap_err()
                .contains("--dependency-file")
        );
        let lld = ["--Ma=m.txt".to_owned()];
        assert_eq!(words(Linker::Lld, &lld).unwrap(), ["--Ma=m.txt"]);
    }

    #[test]
    fn the_sysroot_replaces_the_equals_sign() {
        let mut line = LinkerArgs::for_tests(Linker::Gnu, Vec::new());
        let rooted = |line: &LinkerArgs| {
            ["=/lib", "$SYSROOT/lib", "lib"].map(|folder| line.rooted(Path::new(folder)))
        };
        assert_eq!(rooted(&line), ["/lib", "/lib", "lib"].map(PathBuf::from));
        line.sysroot = Some("/root".into());
        assert_eq!(
            rooted(&line),
            ["/root/lib", "/root/lib", "lib"].map(PathBuf::from)
        );
    }

    #[test]
    fn files_that_may_appear_are_recorded() {
        let Some(line) = LinkerArgs::read(&linker_command(&[
            "-T",
            "s.ld",
            "--lto-basic-block-sections=none.txt",
        ]))
        .ok() else {
            return;
        };
        assert_eq!(line.absent, [PathBuf::from("none.txt")]);
        assert!(line.called.contains(&PathBuf::from("s.ld")));
    }

    #[test]
    fn make_syntax() {
        let text = "out: \\\n a\\ b.o \\\n c$$d \\\n  e\n\na\\ b.o:\n";
        let names = |text: &str| prerequisites(Linker::Lld, text);
        assert_eq!(names(text).unwrap(), ["a b.o", "c$d", "e"]);
        assert_eq!(names("out: \\\n a.o \\\n b"), None);
        assert_eq!(names(""), None);
    }

    #[test]
    fn gnu_ld_and_wild_escape_nothing() {
        for linker in [Linker::Gnu, Linker::Wild] {
            let names = |text: &str| prerequisites(linker, text);
            assert_eq!(
                names("a out: a b.o c$d\n\na b.o:\n\nc$d:\n").unwrap(),
                ["a b.o", "c$d"]
            );
            assert_eq!(
                names("o o: \\\n  a b.o \\\n  c\n\na b.o:\n\nc:\n").unwrap(),
                ["a b.o", "c"]
            );
            assert_eq!(names("out:\n").unwrap(), [""; 0]);
            // A line feed in a name, and truncated files.
            for text in [
                "out: a\n\nb c\n\na\n\nb:\n\nc:\n",
                "out: a b\n\na:\n\nb",
                "out: a b\n\na:\n",
                "out: \\\n  a \\\n  b\n\na:\n",
                "out: \\\n  a \\\n",
                "out: a",
                "",
            ] {
                assert_eq!(names(text), None, "{text:?}");
            }
        }
    }
}
