//! The line of a reproduction: the user's, expanded, with every path that is read pointing below `root/`, every path that is
//! written into `out/`, and the names of tools left to the script that runs it. Collects the files that options name.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::root::Root;
use crate::args::{Arg, ArgKind, Id, Ledger};
use crate::link::inputs::search::Search;

/// The folder for what the link writes.
pub(super) const OUT: &str = "out";

/// Options of host linkers, by name, whose value is a file to read.
const FILES: &[&str] = &[
    "R",
    "call-graph-ordering-file",
    "dynamic-list",
    "export-dynamic-symbol-list",
    "in-implib",
    "irpgo-profile",
    "just-symbols",
    "lto-cs-profile-file",
    "lto-sample-profile",
    "remap-inputs-file",
    "retain-symbols-file",
    "section-order",
    "section-ordering-file",
    "symbol-ordering-file",
];

/// Those whose value is a script, which linkers look for in the library folders too.
const SCRIPTS: &[&str] = &["T", "c", "dT", "default-script", "mri-script", "script", "version-script"];

/// Those whose value is a file to write.
const OUTPUTS: &[&str] = &[
    "Map",
    "base-file",
    "dependency-file",
    "lto-obj-path",
    "opt-remarks-filename",
    "out-implib",
    "output-def",
    "print-archive-stats",
    "print-symbol-counts",
    "print-symbol-order",
    "thinlto-cache-dir",
    "thinlto-index-only",
    "time-trace",
    "why-extract",
];

/// Those whose value is folders, separated by colons.
const FOLDERS: &[&str] = &["Y", "rpath-link"];

/// What becomes of an argument.
enum Treat {
    Keep,
    /// Two words become one.
    Join,
    /// The script says it, or it is not repeated.
    Drop,
    /// LLVM's wrapper does not know it.
    OffldOnly,
    Input,
    File,
    Script,
    /// A file may follow an `=` in the value.
    FileWithin,
    Output,
    Folder,
    Folders,
}

/// The line, as far as it is written.
pub(super) struct Line<'a> {
    root: &'a Root,
    search: &'a Search,
    /// Before which word the host linker's part of the line begins.
    front: usize,
    /// Its words.
    pub(super) words: Vec<OsString>,
    /// Our options that LLVM's wrapper does not know.
    pub(super) offld_only: Vec<OsString>,
    /// Files that it names.
    pub(super) files: Vec<PathBuf>,
    /// Linker scripts that options name, which may name files in turn.
    pub(super) scripts: Vec<PathBuf>,
}

impl<'a> Line<'a> {
    /// An empty line.
    pub(super) fn new(root: &'a Root, search: &'a Search) -> Self {
        let (words, offld_only) = (Vec::new(), Vec::new());
        Line { root, search, front: 0, words, offld_only, files: Vec::new(), scripts: Vec::new() }
    }

    /// Appends all of a command line.
    pub(super) fn append(&mut self, ledger: &Ledger) {
        for arg in ledger.args() {
            self.argument(arg, &ledger.tokens()[arg.tokens.clone()]);
            if matches!(arg.kind, ArgKind::Separator) {
                self.front = self.words.len();
            }
        }
    }

    /// Names an output that the line does not name: in front, so that the wrapper objects stay before the inputs.
    pub(super) fn output_in_front(&mut self, name: &OsStr) {
        self.words.splice(self.front..self.front, ["-o".into(), Path::new(OUT).join(name).into_os_string()]);
    }

    /// Appends an option for a folder.
    pub(super) fn folder(&mut self, option: &str, folder: &Path) {
        let mut word = OsString::from(option);
        word.push(self.root.place(folder));
        self.words.push(word);
    }

    fn argument(&mut self, arg: &Arg, tokens: &[OsString]) {
        let (treat, value) = treat(arg, tokens);
        let new = match (treat, &value) {
            (Treat::Drop, _) => return,
            (Treat::OffldOnly, _) => return self.offld_only.extend_from_slice(tokens),
            (Treat::Join, Some(value)) if tokens.len() == 2 => {
                return self.words.push([&tokens[0], OsStr::new("="), value.as_os_str()].map(OsStr::new).join(OsStr::new("")));
            }
            (_, None) | (Treat::Keep | Treat::Join, _) => None,
            (Treat::Input, Some(value)) => Some(self.input(Path::new(value))),
            (Treat::File, Some(value)) => self.file(Path::new(value)),
            (Treat::Script, Some(value)) => self.script(Path::new(value)),
            (Treat::FileWithin, Some(value)) => self.file_within(value),
            (Treat::Output, Some(value)) => output(Path::new(value)),
            (Treat::Folder, Some(value)) => self.placed_folder(value),
            (Treat::Folders, Some(value)) => self.placed_folders(value),
        };
        match (new, value) {
            (Some(new), Some(value)) => self.words.extend(with_value(tokens, &value, &new)),
            _ => self.words.extend_from_slice(tokens),
        }
    }

    /// An input is moved even when it is not there: then it must be missing from the reproduction too.
    fn input(&mut self, path: &Path) -> OsString {
        if path.is_file() {
            self.files.push(path.to_path_buf());
        }
        self.root.place(path).into_os_string()
    }

    fn file(&mut self, path: &Path) -> Option<OsString> {
        path.is_file().then(|| self.input(path))
    }

    fn script(&mut self, path: &Path) -> Option<OsString> {
        let in_folder = || {
            let mut exact = OsString::from(":");
            exact.push(path);
            self.search.library(&exact, false)
        };
        let found = if path.is_file() { Some(path.to_path_buf()) } else { in_folder() }?;
        self.scripts.push(found.clone());
        Some(self.input(&found))
    }

    /// `<kind>=<file>`, `<triple>=<file>`, `-plugin-opt=<name>=<file>`: the file begins after one of the `=`, or the value is it.
    fn file_within(&mut self, value: &OsStr) -> Option<OsString> {
        let bytes = value.as_bytes();
        let after_equals = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'=').map(|(index, _)| index + 1);
        for start in std::iter::once(0).chain(after_equals) {
            if let Some(file) = self.file(Path::new(OsStr::from_bytes(&bytes[start..]))) {
                let mut new = OsStr::from_bytes(&bytes[..start]).to_owned();
                new.push(file);
                return Some(new);
            }
        }
        None
    }

    fn placed_folder(&self, folder: &OsStr) -> Option<OsString> {
        (!folder.is_empty()).then(|| self.root.place(&self.search.rooted(Path::new(folder))).into_os_string())
    }

    fn placed_folders(&self, folders: &OsStr) -> Option<OsString> {
        let folders = folders.as_bytes().split(|byte| *byte == b':').map(OsStr::from_bytes);
        let placed: Vec<OsString> = folders.map(|folder| self.placed_folder(folder).unwrap_or_default()).collect();
        Some(placed.join(OsStr::new(":")))
    }
}

/// What becomes of an argument, and its value: of an option without a row, what follows its `=`.
fn treat(arg: &Arg, tokens: &[OsString]) -> (Treat, Option<OsString>) {
    let row = match arg.kind {
        ArgKind::Input => return (Treat::Input, arg.value.clone()),
        ArgKind::Separator => return (Treat::Keep, None),
        ArgKind::Unknown => return unknown(tokens),
        ArgKind::Known(row) => row,
    };
    let treat = match row.id {
        Id::Cache | Id::DryRun | Id::HostTriple | Id::LinkerPath | Id::OffldClang | Id::OffldLinker | Id::Reproduce => {
            Treat::Drop
        }
        Id::NoOffloadRuntime | Id::Why => Treat::OffldOnly,
        Id::LinkWholeArchive => Treat::File,
        Id::BitcodeLibrary
        | Id::BuiltinBitcode
        | Id::DeviceCompiler
        | Id::DeviceLinker
        | Id::Mllvm
        | Id::OffloadOpt
        | Id::OverrideImage => Treat::FileWithin,
        Id::LinkOut | Id::Output | Id::TimeTrace => Treat::Output,
        Id::LibraryPath | Id::Sysroot => Treat::Folder,
        _ => by_name(row.name),
    };
    (treat, arg.value.clone())
}

fn by_name(name: &str) -> Treat {
    match name {
        _ if FILES.contains(&name) => Treat::File,
        _ if SCRIPTS.contains(&name) => Treat::Script,
        _ if OUTPUTS.contains(&name) => Treat::Output,
        _ if FOLDERS.contains(&name) => Treat::Folders,
        // LLVM's wrapper takes the library for an input, and links device code for CPUs with it.
        "plugin" => Treat::Join,
        // Names of symbols, paths at run time (-rpath, -dynamic-linker, -soname), and plugins, which belong to the linker.
        _ => Treat::Keep,
    }
}

/// An option that no table has: `--name=value`. A value is taken for a file only by an absolute path, as `name` may mean anything.
fn unknown(tokens: &[OsString]) -> (Treat, Option<OsString>) {
    let token = tokens.first().map_or(&[][..], |token| token.as_bytes());
    let Some(equals) = token.iter().position(|byte| *byte == b'=') else { return (Treat::Keep, None) };
    let name = String::from_utf8_lossy(&token[..equals]);
    let value = OsStr::from_bytes(&token[equals + 1..]).to_owned();
    let treat = match by_name(name.trim_start_matches('-')) {
        Treat::Keep if Path::new(&value).is_absolute() => Treat::File,
        treat => treat,
    };
    (treat, Some(value))
}

/// A file to write goes into `out/` under its name; `-` is stdout.
fn output(path: &Path) -> Option<OsString> {
    let name = path.file_name().filter(|name| *name != "-")?;
    Some(Path::new(OUT).join(name).into_os_string())
}

/// The tokens of an argument with another value: the last one ends with it, joined or separate.
fn with_value(tokens: &[OsString], value: &OsStr, new: &OsStr) -> Vec<OsString> {
    let mut tokens = tokens.to_vec();
    if let Some(last) = tokens.last_mut() {
        let spelling = last.as_bytes().strip_suffix(value.as_bytes()).unwrap_or_default();
        let mut word = OsStr::from_bytes(spelling).to_owned();
        word.push(new);
        *last = word;
    }
    tokens
}
