//! Inputs of the host link: finds, opens and memory-maps every file that the command line names,
//! follows linker scripts, and expands archives into members. Each object records the effect of
//! earlier options on it (whole or lazy archives). Owns all bytes, which later stages borrow. Files
//! that cannot be found or read are omitted, because the host linker reports them.

mod archive;
mod script;
mod script_symbols;
pub mod search;

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::Result;
use rayon::prelude::*;

use crate::args::settings::{InputName, InputSpec};
use crate::formats::archive::shown_name;
use crate::formats::magic::{self, Magic};
use crate::io::bytes::Bytes;
use crate::model::Origin;
use crate::sys::threads;
use script::ScriptEntry;
use search::Search;

pub use script_symbols::ScriptSymbols;

/// One host object: a file, or a member of an archive.
#[derive(Debug)]
pub struct InputObject {
    place: Place,
    bytes: Bytes,
    /// The file format.
    pub kind: Magic,
    /// Archive semantics: part of the link only if another object needs it.
    pub lazy: bool,
    /// The index of the object's file in `Inputs::files`.
    pub file: usize,
}

/// The location of an object. Archives have thousands of members, and few appear in messages, so
/// their full names are built on demand.
#[derive(Debug)]
enum Place {
    File(PathBuf),
    Member { archive: Arc<Origin>, name: Bytes },
}

impl InputObject {
    /// Returns the object's file and member, for error messages.
    pub fn origin(&self) -> Origin {
        match &self.place {
            Place::File(path) => Origin::file(path),
            Place::Member { archive, name } => archive.member(&shown_name(name.as_slice())),
        }
    }

    /// The object's bytes.
    pub fn data(&self) -> &[u8] {
        self.bytes.as_slice()
    }
}

/// A file that the command line names.
#[derive(Debug)]
pub struct InputFile {
    /// Its path.
    pub path: PathBuf,
    /// The file format.
    pub kind: Magic,
    contents: Contents,
    whole: bool,
    lazy: bool,
}

/// The bytes of a file.
#[derive(Debug)]
enum Contents {
    Read(Bytes),
    /// The bytes of a shared object, mapped on first use because few links read them.
    Later(OnceLock<Bytes>),
}

impl InputFile {
    /// Returns the file's bytes; empty if the file cannot be read (any more).
    pub fn data(&self) -> &[u8] {
        match &self.contents {
            Contents::Read(bytes) => bytes.as_slice(),
            Contents::Later(bytes) => bytes
                .get_or_init(|| Bytes::open(&self.path).unwrap_or_else(|_| Vec::new().into()))
                .as_slice(),
        }
    }

    /// The number of bytes that are mapped already.
    fn size(&self) -> usize {
        match &self.contents {
            Contents::Read(bytes) => bytes.as_slice().len(),
            Contents::Later(_) => 0,
        }
    }
}

/// All inputs of one link.
#[derive(Debug, Default)]
pub struct Inputs {
    /// The files, in command-line order.
    pub files: Vec<InputFile>,
    /// The objects in them, in command-line order, members in archive order.
    pub objects: Vec<InputObject>,
    /// For each input of the command line, the index of its file, if it was found and is not a
    /// linker script.
    pub named: Vec<Option<usize>>,
    /// Libraries of the command line that no directory contains, by the index of the input.
    pub missing: BTreeSet<usize>,
    /// Every mention of a file, by the command line or a script, in the order in which linkers read
    /// them.
    pub loads: Vec<LoadedFile>,
    /// The symbols that the linker scripts among the inputs need, one entry for each script.
    pub scripts: Vec<ScriptSymbols>,
}

/// The file or script that is read at a position of the command line.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Loaded {
    /// A file, by its index in `Inputs::files`; archives and libraries are searched at each
    /// mention.
    File(usize),
    /// A linker script, by its index in `Inputs::scripts`.
    Script(usize),
}

/// A mention of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LoadedFile {
    /// What is read.
    pub what: Loaded,
    /// `--as-needed` is in effect.
    pub as_needed: bool,
    /// The group that contains the mention: a `--start-group`, or the file list of a script.
    pub group: Option<usize>,
    /// The index of the token that names the file, or [`InputSpec::NO_TOKEN`] if no token does.
    pub token: usize,
}

/// The files that a link reads, for reproductions.
#[derive(Debug, Default)]
pub struct OpenedFiles {
    /// Every file, by every path that it is opened by, including scripts and members of thin
    /// archives.
    pub opened: Vec<OpenedFile>,
    /// Directories that scripts add to the search path (`SEARCH_DIR`).
    pub script_folders: Vec<PathBuf>,
}

/// A file that a link opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedFile {
    /// The path by which it is opened.
    pub path: PathBuf,
    /// Whether a linker script names it, not the command line.
    pub by_script: bool,
}

/// Opens the files that `specs` name. Fails if an archive is damaged. `on_file` gets the kind and
/// the bytes of each file as it is opened, so that dependent work can begin while other files are
/// opened.
pub fn open(
    specs: &[InputSpec],
    search: &Search,
    on_file: &mut dyn FnMut(Magic, &[u8]),
) -> Result<Inputs> {
    let mut inputs = Opener::all(specs, search, on_file).inputs;
    for expanded in map_all(&inputs.files, InputFile::size, expand) {
        inputs.objects.append(&mut expanded?.objects);
    }
    Ok(inputs)
}

/// Returns the files that [`open`] opens, as far as they can be read.
pub fn files(specs: &[InputSpec], search: &Search) -> OpenedFiles {
    let mut ignore = |_: Magic, _: &[u8]| {};
    let opener = Opener::all(specs, search, &mut ignore);
    let mut files = opener.files;
    for (index, file) in opener.inputs.files.iter().enumerate() {
        let mut expanded = Expanded::default();
        // An error is ignored: the members before a damaged one have been added.
        let _ = expand_into(&mut expanded, index, file);
        files
            .opened
            .extend(expanded.thin.into_iter().map(|path| OpenedFile {
                path,
                by_script: false,
            }));
    }
    files
}

/// Calls `each` for all `items` with their indices, in parallel if their sizes are worth it. Returns
/// the results in order.
pub(crate) fn map_all<'t, T: Sync, R: Send>(
    items: &'t [T],
    size: impl Fn(&T) -> usize,
    each: impl Fn(usize, &'t T) -> R + Sync,
) -> Vec<R> {
    let each = |(index, item)| each(index, item);
    if worth_threads(items.iter().map(size)) {
        threads::in_parallel(|| items.par_iter().enumerate().map(each).collect())
    } else {
        items.iter().enumerate().map(each).collect()
    }
}

/// Whether the total of `sizes` in bytes is large enough to start threads for searching it.
pub(crate) fn worth_threads(sizes: impl Iterator<Item = usize>) -> bool {
    const FEW: usize = 32 << 20;
    sizes.sum::<usize>() > FEW
}

/// The objects in a file.
#[derive(Default)]
struct Expanded {
    objects: Vec<InputObject>,
    /// The paths of a thin archive's members.
    thin: Vec<PathBuf>,
}

fn expand(index: usize, file: &InputFile) -> Result<Expanded> {
    let mut expanded = Expanded::default();
    expand_into(&mut expanded, index, file)?;
    Ok(expanded)
}

fn expand_into(expanded: &mut Expanded, index: usize, file: &InputFile) -> Result<()> {
    let Contents::Read(bytes) = &file.contents else {
        return Ok(());
    };
    match file.kind {
        Magic::Archive => return archive::expand(&file.path, bytes, index, !file.whole, expanded),
        Magic::ElfShared | Magic::Text | Magic::Other => {}
        kind => {
            let place = Place::File(file.path.clone());
            expanded.objects.push(InputObject {
                place,
                bytes: bytes.clone(),
                kind,
                lazy: file.lazy,
                file: index,
            });
        }
    }
    Ok(())
}

struct Opener<'f> {
    search: Search,
    inputs: Inputs,
    files: OpenedFiles,
    /// Archives and shared objects by device and inode. Each is added once, however often it is
    /// named (docs/spec/faults.md F13).
    seen: HashMap<(u64, u64), usize>,
    /// Results of library searches. Drivers name libgcc and libc several times.
    libraries: HashMap<(OsString, bool), Option<usize>>,
    /// How many scripts were read.
    script_groups: usize,
    on_file: &'f mut dyn FnMut(Magic, &[u8]),
}

impl<'f> Opener<'f> {
    fn all(
        specs: &[InputSpec],
        search: &Search,
        on_file: &'f mut dyn FnMut(Magic, &[u8]),
    ) -> Opener<'f> {
        let (inputs, files) = (Inputs::default(), OpenedFiles::default());
        let (search, seen, libraries) = (search.clone(), HashMap::new(), HashMap::new());
        let mut opener = Opener {
            search,
            inputs,
            files,
            seen,
            libraries,
            script_groups: 0,
            on_file,
        };
        for (index, spec) in specs.iter().enumerate() {
            let named = opener.spec(spec);
            if let (InputName::Library(name), None) = (&spec.name, named)
                && opener
                    .search
                    .library(name, spec.state.prefer_static)
                    .is_none()
            {
                opener.inputs.missing.insert(index);
            }
            opener.inputs.named.push(named);
        }
        opener
    }

    fn spec(&mut self, spec: &InputSpec) -> Option<usize> {
        match &spec.name {
            InputName::File(_) if spec.state.binary => None,
            InputName::File(path) => self.file(&self.search.file(path), spec, 0),
            InputName::Library(name) => self.library(name, spec, 0),
        }
    }

    /// Finds the library `name` and opens it. Returns the same as [`Opener::file`].
    fn library(&mut self, name: &OsStr, spec: &InputSpec, depth: usize) -> Option<usize> {
        let key = (name.to_owned(), spec.state.prefer_static);
        if let Some(&known) = self.libraries.get(&key)
            && !spec.state.whole_archive
        {
            known.into_iter().for_each(|file| self.load(file, spec));
            return known;
        }
        let named = self
            .search
            .library(name, spec.state.prefer_static)
            .and_then(|path| self.file(&path, spec, depth));
        self.libraries.insert(key, named);
        named
    }

    /// Opens the file at `path`. Returns its index in `Inputs::files`, or none if the file is a
    /// script or cannot be read.
    fn file(&mut self, path: &Path, spec: &InputSpec, depth: usize) -> Option<usize> {
        let (file, size, id) = open_regular(path)?;
        self.files.opened.push(OpenedFile {
            path: path.to_path_buf(),
            by_script: depth > 0,
        });
        let (kind, contents) = contents(&file, size)?;
        if let (Magic::Text, Contents::Read(bytes)) = (kind, &contents) {
            self.script(path, bytes, spec, depth);
            return None;
        }
        if let Contents::Read(bytes) = &contents {
            (self.on_file)(kind, bytes.as_slice());
        }
        let index = self.inputs.files.len();
        if matches!(kind, Magic::Archive | Magic::ElfShared) {
            let first = *self.seen.entry(id).or_insert(index);
            if let Some(earlier) = self.inputs.files.get_mut(first) {
                earlier.whole |= spec.state.whole_archive;
                self.load(first, spec);
                return Some(first);
            }
        }
        self.load(index, spec);
        let (whole, lazy) = (spec.state.whole_archive, spec.state.lazy);
        self.inputs.files.push(InputFile {
            path: path.to_path_buf(),
            kind,
            contents,
            whole,
            lazy,
        });
        Some(index)
    }

    fn load(&mut self, file: usize, spec: &InputSpec) {
        let (as_needed, group, token) = (spec.state.as_needed, spec.state.group, spec.token);
        self.inputs.loads.push(LoadedFile {
            what: Loaded::File(file),
            as_needed,
            group,
            token,
        });
    }

    fn script(&mut self, path: &Path, bytes: &Bytes, spec: &InputSpec, depth: usize) {
        /// Maximum nesting of scripts, which also ends cycles.
        const DEEPEST: usize = 10;
        if depth >= DEEPEST {
            return;
        }
        let what = Loaded::Script(self.inputs.scripts.len());
        self.inputs
            .scripts
            .push(script_symbols::of(bytes.as_slice()));
        // Scripts of options have no position on the command line and are read before all files.
        let place = if spec.token == InputSpec::NO_TOKEN {
            0
        } else {
            self.inputs.loads.len()
        };
        self.inputs.loads.insert(
            place,
            LoadedFile {
                what,
                as_needed: false,
                group: spec.state.group,
                token: spec.token,
            },
        );
        // Linkers search the files of a script's GROUP repeatedly, like those of a group on the
        // command line.
        self.script_groups += 1;
        let mut grouped = spec.clone();
        let group = usize::MAX - self.script_groups;
        grouped.state.group.get_or_insert(group);
        let spec = &grouped;
        for entry in script::entries(bytes.as_slice()) {
            match entry {
                ScriptEntry::File(name) | ScriptEntry::Script(name) => {
                    if let Some(found) = self.search.script_entry(&name, path) {
                        self.file(&found, spec, depth + 1);
                    }
                }
                ScriptEntry::Library(name) => {
                    self.library(&name, spec, depth + 1);
                }
                ScriptEntry::Folder(folder) => {
                    let folder = self.search.rooted(&folder);
                    self.search = self.search.with_folder(&folder);
                    self.files.script_folders.push(folder);
                    // Libraries that were not found may be in the new directory.
                    self.libraries.retain(|_, named| named.is_some());
                }
            }
        }
    }
}

/// Whether the file at `path` is a linker script, judged by its contents.
pub fn is_script(path: &Path) -> bool {
    open_regular(path)
        .and_then(|(file, size, _)| contents(&file, size))
        .is_some_and(|(kind, _)| kind == Magic::Text)
}

/// Opens a regular file that is not empty. Returns it with its size in bytes, and its device and
/// inode numbers.
fn open_regular(path: &Path) -> Option<(File, u64, (u64, u64))> {
    let file = File::open(path).ok()?;
    let meta = file.metadata().ok()?;
    (meta.is_file() && meta.len() > 0).then(|| (file, meta.len(), (meta.dev(), meta.ino())))
}

/// Returns the kind and the contents of an open file of `size` bytes. Of a large file, the header
/// is read first: a shared object need not be mapped then, and maps cost more than a read.
fn contents(file: &File, size: u64) -> Option<(Magic, Contents)> {
    const HEADER: usize = 64;
    const LARGE: u64 = 16 << 10;
    let mut header = [0; HEADER];
    if size > LARGE
        && file.read_exact_at(&mut header, 0).is_ok()
        && magic::magic(&header) == Magic::ElfShared
    {
        return Some((Magic::ElfShared, Contents::Later(OnceLock::new())));
    }
    let bytes = Bytes::map(file, size).ok()?;
    Some((magic::magic(bytes.as_slice()), Contents::Read(bytes)))
}
