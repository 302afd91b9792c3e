//! The inputs of the host link: finds, opens and memory-maps every file that the command line names, follows linker scripts, and expands
//! archives into members. Each object records what options before it mean for it (whole or lazy archives). Owns all bytes, which later
//! stages borrow. Files that cannot be found or read are left out, because the host linker reports them.

mod archive;
mod script;
pub mod search;

use std::collections::HashMap;
use std::ffi::OsString;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::Result;
use rayon::prelude::*;

use crate::args::request::{InputName, InputSpec};
use crate::formats::magic::{self, Magic};
use crate::io::bytes::Bytes;
use crate::model::Origin;
use script::ScriptEntry;
use search::Search;

/// One host object: a file, or a member of an archive.
#[derive(Debug)]
pub struct InputObject {
    /// Where it is from, for error messages.
    pub origin: Origin,
    bytes: Bytes,
    /// The file format.
    pub kind: Magic,
    /// Archive semantics: part of the link only if something needs it.
    pub lazy: bool,
    /// Which of `Inputs::files` it belongs to.
    pub file: usize,
}

impl InputObject {
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
    bytes: Bytes,
    whole: bool,
    lazy: bool,
}

impl InputFile {
    /// The file's bytes.
    pub fn data(&self) -> &[u8] {
        self.bytes.as_slice()
    }
}

/// All inputs of one link.
#[derive(Debug, Default)]
pub struct Inputs {
    /// The files, in command-line order.
    pub files: Vec<InputFile>,
    /// The objects in them, in command-line order, members in archive order.
    pub objects: Vec<InputObject>,
    /// For each input of the command line, the index of its file, if it was found and is not a linker script.
    pub named: Vec<Option<usize>>,
}

/// The files that a link reads, for reproductions.
#[derive(Debug, Default)]
pub struct OpenedFiles {
    /// Every file, by every path that it is opened by, including scripts and members of thin archives.
    pub opened: Vec<OpenedFile>,
    /// Folders that scripts add to the search (`SEARCH_DIR`).
    pub script_folders: Vec<PathBuf>,
}

/// A file that a link opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedFile {
    /// Its path.
    pub path: PathBuf,
    /// Whether a linker script names it, not the command line.
    pub by_script: bool,
}

/// Opens the files that `specs` name. An error if an archive is damaged.
pub fn open(specs: &[InputSpec], search: &Search) -> Result<Inputs> {
    let mut inputs = Opener::all(specs, search).inputs;
    let expanded: Vec<Result<Expanded>> = if worth_threads(inputs.files.iter().map(|file| file.bytes.as_slice().len())) {
        inputs.files.par_iter().enumerate().map(|(index, file)| expand(index, file)).collect()
    } else {
        inputs.files.iter().enumerate().map(|(index, file)| expand(index, file)).collect()
    };
    for expanded in expanded {
        inputs.objects.append(&mut expanded?.objects);
    }
    Ok(inputs)
}

/// The files that [`open`] opens, as far as they can be read.
pub fn files(specs: &[InputSpec], search: &Search) -> OpenedFiles {
    let opener = Opener::all(specs, search);
    let mut files = opener.files;
    for (index, file) in opener.inputs.files.iter().enumerate() {
        let mut expanded = Expanded::default();
        // An error is ignored: the members before a damaged one have been added.
        let _ = expand_into(&mut expanded, index, file);
        files.opened.extend(expanded.thin.into_iter().map(|path| OpenedFile { path, by_script: false }));
    }
    files
}

/// Whether so many bytes are to be searched that starting threads pays.
pub(crate) fn worth_threads(sizes: impl Iterator<Item = usize>) -> bool {
    const FEW: usize = 32 << 20;
    sizes.sum::<usize>() > FEW
}

/// The contents of a file.
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
    let origin = Origin::file(&file.path);
    match file.kind {
        Magic::Archive => return archive::expand(&origin, &file.bytes, index, !file.whole, expanded),
        Magic::ElfShared | Magic::Text | Magic::Other => {}
        kind => expanded.objects.push(InputObject { origin, bytes: file.bytes.clone(), kind, lazy: file.lazy, file: index }),
    }
    Ok(())
}

struct Opener {
    search: Search,
    inputs: Inputs,
    files: OpenedFiles,
    /// Archives and shared objects by device and inode: each is added once, however often it is named (docs/spec/faults.md F13).
    seen: HashMap<(u64, u64), usize>,
    /// Libraries looked up already; drivers name libgcc and libc several times.
    libraries: HashMap<(OsString, bool), Option<usize>>,
}

impl Opener {
    fn all(specs: &[InputSpec], search: &Search) -> Opener {
        let (inputs, files) = (Inputs::default(), OpenedFiles::default());
        let mut opener = Opener { search: search.clone(), inputs, files, seen: HashMap::new(), libraries: HashMap::new() };
        for spec in specs {
            let named = opener.spec(spec);
            opener.inputs.named.push(named);
        }
        opener
    }

    fn spec(&mut self, spec: &InputSpec) -> Option<usize> {
        let name = match &spec.name {
            InputName::File(_) if spec.binary => return None,
            InputName::File(path) => return self.file(&self.search.file(path), spec, 0),
            InputName::Library(name) => name,
        };
        let key = (name.clone(), spec.prefer_static);
        if let Some(&known) = self.libraries.get(&key)
            && !spec.whole_archive
        {
            return known;
        }
        let named = self.search.library(name, spec.prefer_static).and_then(|path| self.file(&path, spec, 0));
        self.libraries.insert(key, named);
        named
    }

    /// Opens the file at `path`; returns its index in `Inputs::files` unless it is a script or cannot be read.
    fn file(&mut self, path: &Path, spec: &InputSpec, depth: usize) -> Option<usize> {
        let (bytes, id) = open_regular(path)?;
        self.files.opened.push(OpenedFile { path: path.to_path_buf(), by_script: depth > 0 });
        let kind = magic::magic(bytes.as_slice());
        if kind == Magic::Text {
            self.script(path, &bytes, spec, depth);
            return None;
        }
        let index = self.inputs.files.len();
        if matches!(kind, Magic::Archive | Magic::ElfShared) {
            let first = *self.seen.entry(id).or_insert(index);
            if let Some(earlier) = self.inputs.files.get_mut(first) {
                earlier.whole |= spec.whole_archive;
                return Some(first);
            }
        }
        let (whole, lazy) = (spec.whole_archive, spec.lazy);
        self.inputs.files.push(InputFile { path: path.to_path_buf(), kind, bytes, whole, lazy });
        Some(index)
    }

    fn script(&mut self, path: &Path, bytes: &Bytes, spec: &InputSpec, depth: usize) {
        /// How deep scripts may be nested, which also ends cycles.
        const DEEPEST: usize = 10;
        if depth >= DEEPEST {
            return;
        }
        for entry in script::entries(bytes.as_slice()) {
            let named = match entry {
                ScriptEntry::File(name) | ScriptEntry::Script(name) => self.search.script_entry(&name, path),
                ScriptEntry::Library(name) => self.search.library(&name, spec.prefer_static),
                ScriptEntry::Folder(folder) => {
                    let folder = self.search.rooted(&folder);
                    self.search = self.search.with_folder(&folder);
                    self.files.script_folders.push(folder);
                    None
                }
            };
            if let Some(found) = named {
                self.file(&found, spec, depth + 1);
            }
        }
    }
}

/// The bytes of a regular file that is not empty, with its device and inode numbers.
fn open_regular(path: &Path) -> Option<(Bytes, (u64, u64))> {
    let file = File::open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() == 0 {
        return None;
    }
    Some((Bytes::map(&file, meta.len()).ok()?, (meta.dev(), meta.ino())))
}
