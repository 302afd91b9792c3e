//! Arguments of a reproduction: the user's, with response files expanded, paths of inputs below
//! `root/`, and paths of outputs in `out/`. The script adds the names of the tools. Collects the
//! files that options name.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::path::{Component, Path, PathBuf};

use anyhow::{Context, Result};

use crate::args::{Arg, ArgKind, ArgumentList, Id, joined};
use crate::link::inputs::search::Search;

/// The directory of all files.
pub(super) const ROOT: &str = "root";
/// The directory for the files that the link writes.
pub(super) const OUT: &str = "out";

/// Options of host linkers, by name, whose value is a file to read.
const FILE_OPTIONS: &[&str] = &[
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

/// Options whose value is a script, which linkers also search for in the library directories.
const SCRIPT_OPTIONS: &[&str] = &[
    "T",
    "c",
    "dT",
    "default-script",
    "mri-script",
    "script",
    "version-script",
];

/// Options whose value is a file to write.
const OUTPUT_OPTIONS: &[&str] = &[
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

/// Options whose value is a list of directories, separated by colons.
const FOLDER_OPTIONS: &[&str] = &["Y", "rpath-link"];

/// The way to rewrite an argument.
enum Rewrite {
    Keep,
    /// Option and value become one argument.
    Join,
    /// Removed, because the script adds it or it does not affect the reproduction.
    Drop,
    /// Moved to the options that LLVM's wrapper does not have.
    OffldOnly,
    Input,
    File,
    Script,
    /// The value may contain a file name after an `=`.
    FileWithin,
    Output,
    Folder,
    Folders,
}

/// The arguments so far.
pub(super) struct ReproducedLine<'a> {
    root: &'a Root,
    search: &'a Search,
    /// The index at which the host linker's arguments begin.
    front: usize,
    /// The rewritten arguments.
    pub(super) args: Vec<OsString>,
    /// Options of offld that LLVM's wrapper does not have.
    pub(super) offld_only: Vec<OsString>,
    /// Files that the arguments name.
    pub(super) files: Vec<PathBuf>,
    /// Linker scripts that options name, which may name files in turn.
    pub(super) scripts: Vec<PathBuf>,
}

impl<'a> ReproducedLine<'a> {
    pub(super) fn new(root: &'a Root, search: &'a Search) -> Self {
        let (args, offld_only) = (Vec::new(), Vec::new());
        ReproducedLine {
            root,
            search,
            front: 0,
            args,
            offld_only,
            files: Vec::new(),
            scripts: Vec::new(),
        }
    }

    /// Appends all arguments of a command line.
    pub(super) fn append(&mut self, arguments: &ArgumentList) {
        for arg in arguments.args() {
            self.argument(arg, &arguments.tokens()[arg.tokens.clone()]);
            if matches!(arg.kind, ArgKind::Separator) {
                self.front = self.args.len();
            }
        }
    }

    /// Adds an output to a command line without one. It comes first, so that the wrapper's objects
    /// stay before the inputs.
    pub(super) fn output_in_front(&mut self, name: &OsStr) {
        self.args.splice(
            self.front..self.front,
            ["-o".into(), Path::new(OUT).join(name).into_os_string()],
        );
    }

    /// Appends an option for a directory.
    pub(super) fn folder(&mut self, option: &str, folder: &Path) {
        self.args.push(joined(option, self.root.place(folder)));
    }

    fn argument(&mut self, arg: &Arg, tokens: &[OsString]) {
        let (rewrite, value) = rewrite(arg, tokens);
        let new = match (rewrite, &value) {
            (Rewrite::Drop, _) => return,
            (Rewrite::OffldOnly, _) => return self.offld_only.extend_from_slice(tokens),
            (Rewrite::Join, Some(value)) if tokens.len() == 2 => {
                return self.args.push(
                    [&tokens[0], OsStr::new("="), value.as_os_str()]
                        .map(OsStr::new)
                        .join(OsStr::new("")),
                );
            }
            (_, None) | (Rewrite::Keep | Rewrite::Join, _) => None,
            (Rewrite::Input, Some(value)) => Some(self.input(Path::new(value))),
            (Rewrite::File, Some(value)) => self.file(Path::new(value)),
            (Rewrite::Script, Some(value)) => self.script(Path::new(value)),
            (Rewrite::FileWithin, Some(value)) => self.file_within(value),
            (Rewrite::Output, Some(value)) => output(Path::new(value)),
            (Rewrite::Folder, Some(value)) => self.placed_folder(value),
            (Rewrite::Folders, Some(value)) => self.placed_folders(value),
        };
        match (new, value) {
            (Some(new), Some(value)) => self.args.extend(with_value(tokens, &value, &new)),
            _ => self.args.extend_from_slice(tokens),
        }
    }

    /// Rewrites the path of an input even if the file is missing, so that it is missing in the
    /// reproduction as well.
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
        let found = self.search.script(path)?;
        self.scripts.push(found.clone());
        Some(self.input(&found))
    }

    /// Rewrites `<kind>=<file>`, `<triple>=<file>` and `-plugin-opt=<name>=<file>`: the file name
    /// is the whole value, or follows one of the `=`.
    fn file_within(&mut self, value: &OsStr) -> Option<OsString> {
        let bytes = value.as_bytes();
        let after_equals = bytes
            .iter()
            .enumerate()
            .filter(|(_, byte)| **byte == b'=')
            .map(|(index, _)| index + 1);
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
        (!folder.is_empty()).then(|| {
            self.root
                .place(&self.search.rooted(Path::new(folder)))
                .into_os_string()
        })
    }

    fn placed_folders(&self, folders: &OsStr) -> Option<OsString> {
        let folders = folders
            .as_bytes()
            .split(|byte| *byte == b':')
            .map(OsStr::from_bytes);
        let placed: Vec<OsString> = folders
            .map(|folder| self.placed_folder(folder).unwrap_or_default())
            .collect();
        Some(placed.join(OsStr::new(":")))
    }
}

/// Returns the way to rewrite an argument, and its value. For an option without a table row, the
/// value is the text after its `=`.
fn rewrite(arg: &Arg, tokens: &[OsString]) -> (Rewrite, Option<OsString>) {
    let row = match arg.kind {
        ArgKind::Input => return (Rewrite::Input, arg.value.clone()),
        ArgKind::Separator => return (Rewrite::Keep, None),
        ArgKind::Unknown => return unknown(tokens),
        ArgKind::Known(row) => row,
    };
    let rewrite = match row.id {
        // The machine of the reproduction has its own compilers, cache, memory and queue.
        Id::Cache
        | Id::DryRun
        | Id::HostTriple
        | Id::Launcher
        | Id::LauncherWait
        | Id::LinkerPath
        | Id::Memory
        | Id::OffldClang
        | Id::OffldLinker
        | Id::RemoteJobs
        | Id::Reproduce => Rewrite::Drop,
        Id::Distribute
        | Id::ExternalImages
        | Id::Kpack
        | Id::LateImages
        | Id::LtoPartitions
        | Id::NoLto
        | Id::NoOffldNote
        | Id::NoOffloadRuntime
        | Id::OffldSyclRegistration
        | Id::StableNames
        | Id::Why => Rewrite::OffldOnly,
        Id::LinkWholeArchive => Rewrite::File,
        Id::BitcodeLibrary
        | Id::BuiltinBitcode
        | Id::DeviceCompiler
        | Id::DeviceLinker
        | Id::Mllvm
        | Id::OffloadOpt
        | Id::OverrideImage => Rewrite::FileWithin,
        Id::LinkOut | Id::Output | Id::TimeTrace => Rewrite::Output,
        Id::LibraryPath | Id::Sysroot => Rewrite::Folder,
        // The other options of LLVM's wrapper and of host linkers.
        Id::Compress
        | Id::CompressionLevel
        | Id::CudaPath
        | Id::EmbedBitcode
        | Id::EmitFatbinOnly
        | Id::Help
        | Id::Jobs
        | Id::PrintWrappedModule
        | Id::SaveTemps
        | Id::ShouldExtract
        | Id::TimeTraceGranularity
        | Id::Verbose
        | Id::Version
        | Id::ClangBackend
        | Id::DeviceDebug
        | Id::OptLevel
        | Id::PassRemarks
        | Id::PassRemarksAnalysis
        | Id::PassRemarksMissed
        | Id::PtxasArg
        | Id::StripSections
        | Id::TargetFeature
        | Id::AllowMultipleDefinition
        | Id::AsNeeded
        | Id::Bdynamic
        | Id::Bstatic
        | Id::Defsym
        | Id::Emulation
        | Id::EndGroup
        | Id::EndLib
        | Id::Entry
        | Id::Format
        | Id::FortranCommon
        | Id::GcSections
        | Id::GpSize
        | Id::Library
        | Id::LinkAlternateName
        | Id::LinkDefaultLib
        | Id::LinkEntry
        | Id::LinkExport
        | Id::LinkNoDefaultLib
        | Id::NoAsNeeded
        | Id::NoFortranCommon
        | Id::NoGcSections
        | Id::NoWholeArchive
        | Id::PopState
        | Id::PushState
        | Id::Relocatable
        | Id::Rpath
        | Id::Script
        | Id::Shared
        | Id::StartGroup
        | Id::StartLib
        | Id::Static
        | Id::Undefined
        | Id::UndefinedGlob
        | Id::WholeArchive
        | Id::Wrap
        | Id::Z
        | Id::Flag
        | Id::Operand => by_name(row.name),
    };
    (rewrite, arg.value.clone())
}

fn by_name(name: &str) -> Rewrite {
    match name {
        _ if FILE_OPTIONS.contains(&name) => Rewrite::File,
        _ if SCRIPT_OPTIONS.contains(&name) => Rewrite::Script,
        _ if OUTPUT_OPTIONS.contains(&name) => Rewrite::Output,
        _ if FOLDER_OPTIONS.contains(&name) => Rewrite::Folders,
        // LLVM's wrapper takes a separate value for an input, and links CPU device code with it.
        "plugin" => Rewrite::Join,
        // Values that are not files to read: symbols, run-time paths (-rpath, -dynamic-linker,
        // -soname), plugins of the linker.
        _ => Rewrite::Keep,
    }
}

/// Splits an option without a table row, `--name=value`. Its value counts as a file only if it is
/// the absolute path of one, because the meaning of `name` is unknown.
fn unknown(tokens: &[OsString]) -> (Rewrite, Option<OsString>) {
    let token = tokens.first().map_or(&[][..], |token| token.as_bytes());
    let Some(equals) = token.iter().position(|byte| *byte == b'=') else {
        return (Rewrite::Keep, None);
    };
    let name = String::from_utf8_lossy(&token[..equals]);
    let value = OsStr::from_bytes(&token[equals + 1..]).to_owned();
    let rewrite = match by_name(name.trim_start_matches('-')) {
        Rewrite::Keep if Path::new(&value).is_absolute() => Rewrite::File,
        rewrite => rewrite,
    };
    (rewrite, Some(value))
}

/// Returns the path in `out/` for an output file; none for `-`, which is stdout.
fn output(path: &Path) -> Option<OsString> {
    let name = path.file_name().filter(|name| *name != "-")?;
    Some(Path::new(OUT).join(name).into_os_string())
}

/// Returns the tokens of an argument with the value replaced. The last token is the value, or ends
/// with it.
fn with_value(tokens: &[OsString], value: &OsStr, new: &OsStr) -> Vec<OsString> {
    let mut tokens = tokens.to_vec();
    if let Some(last) = tokens.last_mut() {
        let spelling = last
            .as_bytes()
            .strip_suffix(value.as_bytes())
            .unwrap_or_default();
        let mut arg = OsStr::from_bytes(spelling).to_owned();
        arg.push(new);
        *last = arg;
    }
    tokens
}

/// Maps paths of the command line to paths in the reproduction.
pub(super) struct Root {
    current: PathBuf,
}

impl Root {
    /// Creates a map for a command line with paths relative to the current directory.
    pub(super) fn here() -> Result<Root> {
        Ok(Root {
            current: std::env::current_dir().context("cannot determine the current directory")?,
        })
    }

    /// The directory that relative paths of the command line refer to.
    pub(super) fn current(&self) -> &Path {
        &self.current
    }

    /// Returns the path of `path` in the reproduction, relative to the reproduction's directory.
    pub(super) fn place(&self, path: &Path) -> PathBuf {
        let absolute = self.absolute(path);
        Path::new(ROOT).join(absolute.strip_prefix("/").unwrap_or(&absolute))
    }

    /// Returns `path` as an absolute path without `.` and `..`. A symlink is resolved only if `..`
    /// follows, because that means the parent of its target.
    fn absolute(&self, path: &Path) -> PathBuf {
        let mut done = PathBuf::new();
        for part in self.current.join(path).components() {
            match part {
                Component::CurDir => {}
                Component::ParentDir => {
                    if done.is_symlink() {
                        done = done.canonicalize().unwrap_or(done);
                    }
                    done.pop();
                }
                part => done.push(part),
            }
        }
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_is_the_absolute_path_without_dots() {
        let root = Root {
            current: "/nowhere/here".into(),
        };
        assert_eq!(
            root.place(Path::new("./a.o")),
            Path::new("root/nowhere/here/a.o")
        );
        assert_eq!(
            root.place(Path::new("../b/./c.o")),
            Path::new("root/nowhere/b/c.o")
        );
        assert_eq!(root.place(Path::new("/../x")), Path::new("root/x"));
    }

    #[test]
    fn the_parent_of_a_symlink_is_that_of_its_target() {
        let dir = tempfile::tempdir().unwrap();
        let dir = dir.path().canonicalize().unwrap();
        std::fs::create_dir_all(dir.join("a/b")).unwrap();
        std::os::unix::fs::symlink(dir.join("a/b"), dir.join("link")).unwrap();
        let root = Root {
            current: dir.clone(),
        };
        let below = |path: &str| {
            Path::new(ROOT)
                .join(dir.strip_prefix("/").unwrap())
                .join(path)
        };
        assert_eq!(root.place(Path::new("link/../x")), below("a/x"));
        assert_eq!(root.place(Path::new("link/x")), below("link/x"));
    }
}
