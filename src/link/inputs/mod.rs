//! The host link's inputs as bytes: every file the line names is found, opened and memory-mapped, linker scripts are followed,
//! archives are spread into members, and each piece carries what its position on the line means. Owns all bytes; later
//! stages borrow. What cannot be found or read is left out: the host linker says so in its own words.

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
    /// What an error names.
    pub origin: Origin,
    bytes: Bytes,
    /// What the bytes are.
    pub kind: Magic,
    /// Archive semantics: part of the link only when something needs it.
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

/// A file on the link line, in order.
#[derive(Debug)]
pub struct InputFile {
    /// Where it is.
    pub path: PathBuf,
    /// What it is.
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
    /// For each of the line's inputs the file it names, if it was found and is no linker script.
    pub named: Vec<Option<usize>>,
}

/// The files that a link reads, for whoever takes them elsewhere.
#[derive(Debug, Default)]
pub struct OpenedFiles {
    /// Every one, by every path it is found at: scripts and the members of thin archives too.
    pub opened: Vec<OpenedFile>,
    /// The folders that scripts add to the search.
    pub script_folders: Vec<PathBuf>,
}

/// A file that a link opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OpenedFile {
    /// Where.
    pub path: PathBuf,
    /// A linker script names it, not the line.
    pub by_script: bool,
}

/// Opens what `specs` name.
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
        // The members before a damaged one are there.
        let _ = expand_into(&mut expanded, index, file);
        files.opened.extend(expanded.thin.into_iter().map(|path| OpenedFile { path, by_script: false }));
    }
    files
}

/// Whether so many bytes are looked through that starting threads pays.
pub(crate) fn worth_threads(sizes: impl Iterator<Item = usize>) -> bool {
    const FEW: usize = 32 << 20;
    sizes.sum::<usize>() > FEW
}

/// What is in a file.
#[derive(Default)]
struct Expanded {
    objects: Vec<InputObject>,
    /// The files of a thin archive's members.
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
    /// Archives and shared objects by device and inode: one that is named again counts once (docs/spec/faults.md F13).
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

    /// Takes in what `path` names; returns its index in `Inputs::files` unless it is a script or not there.
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
        /// Scripts that name scripts; a cycle ends here.
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

/// The bytes of a regular file that is not empty, and which file it is.
fn open_regular(path: &Path) -> Option<(Bytes, (u64, u64))> {
    let file = File::open(path).ok()?;
    let meta = file.metadata().ok()?;
    if !meta.is_file() || meta.len() == 0 {
        return None;
    }
    Some((Bytes::map(&file, meta.len()).ok()?, (meta.dev(), meta.ino())))
}
