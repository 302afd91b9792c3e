//! Inputs of the host link: finds, opens and memory-maps every file that the command line names,
//! follows linker scripts, and expands archives into members. Each object records the effect of
//! earlier options on it (whole or lazy archives). Owns all bytes, which later stages borrow. Files
//! that cannot be found or read are omitted, because the host linker reports them.

mod script;
pub(crate) mod search;

use std::collections::{BTreeSet, HashMap};
use std::ffi::{OsStr, OsString};
use std::fs::{File, Metadata};
use std::os::unix::fs::{FileExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};

use anyhow::{Context, Result, anyhow, bail};
use rayon::prelude::*;

use crate::args::settings::{InputName, InputSpec};
use offld_system::io::bytes::Bytes;
use offld_system::threads;
use offload_formats::archive::{self, ArchiveFault, MemberContents, shown_name};
use offload_formats::containers::MAX_NESTING;
use offload_formats::magic::{self, Magic, magic};
use offload_formats::model::Origin;
use script::ScriptEntry;
use search::Search;

pub(crate) use script::ScriptSymbols;

/// One host object: a file, or a member of an archive.
#[derive(Debug)]
pub(crate) struct InputObject {
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
    pub(crate) fn origin(&self) -> Origin {
        match &self.place {
            Place::File(path) => Origin::file(path),
            Place::Member { archive, name } => archive.member(&shown_name(name.as_slice())),
        }
    }

    pub(crate) fn data(&self) -> &[u8] {
        self.bytes.as_slice()
    }
}

/// A file that the command line or a linker script names.
#[derive(Debug)]
pub(crate) struct InputFile {
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
    pub(crate) fn data(&self) -> &[u8] {
        match &self.contents {
            Contents::Read(bytes) => bytes.as_slice(),
            Contents::Later(bytes) => bytes
                .get_or_init(|| Bytes::open(&self.path).unwrap_or_else(|_| Vec::new().into()))
                .as_slice(),
        }
    }

    /// Whether this is the file with the metadata `other`.
    pub(crate) fn is(&self, other: &Metadata) -> bool {
        let has_its_size = match &self.contents {
            Contents::Read(bytes) => bytes.as_slice().len() as u64 == other.len(),
            Contents::Later(_) => true,
        };
        // Asking the system for each of many files would take as long as a small link.
        has_its_size && is_at(&self.path, other)
    }

    /// The number of bytes that are mapped already.
    pub(crate) fn size(&self) -> usize {
        match &self.contents {
            Contents::Read(bytes) => bytes.as_slice().len(),
            Contents::Later(_) => 0,
        }
    }
}

/// Whether the file at `path` has the metadata `other`.
pub(crate) fn is_at(path: &Path, other: &Metadata) -> bool {
    std::fs::metadata(path).is_ok_and(|own| (own.dev(), own.ino()) == (other.dev(), other.ino()))
}

/// All inputs of one link.
#[derive(Debug, Default)]
pub(crate) struct Inputs {
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
pub(crate) enum Loaded {
    /// A file, by its index in `Inputs::files`; archives and libraries are searched at each
    /// mention.
    File(usize),
    /// A linker script, by its index in `Inputs::scripts`.
    Script(usize),
}

/// A mention of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LoadedFile {
    pub what: Loaded,
    /// `--as-needed` is in effect.
    pub as_needed: bool,
    /// The group that contains the mention: a `--start-group`, or the file list of a script.
    pub group: Option<usize>,
    /// The index of the token that names the file, or [`InputSpec::NO_TOKEN`] if no token does.
    pub token: usize,
    /// `-T` names the linker script.
    pub by_option: bool,
}

/// The files that a link reads, for reproductions.
#[derive(Debug, Default)]
pub(crate) struct OpenedFiles {
    /// Every file, by every path that it is opened by, including scripts and members of thin
    /// archives.
    pub opened: Vec<OpenedFile>,
    /// Directories that scripts add to the search path (`SEARCH_DIR`).
    pub script_folders: Vec<PathBuf>,
}

/// A file that a link opens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct OpenedFile {
    /// The path by which it is opened.
    pub path: PathBuf,
    /// Whether a linker script names it, not the command line.
    pub by_script: bool,
}

/// Opens the files that `specs` name. Fails if an archive is damaged. `on_file` gets the kind and
/// the bytes of each file as it is opened, so that dependent work can begin while other files are
/// opened.
pub(crate) fn open(
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
pub(crate) fn files(specs: &[InputSpec], search: &Search) -> OpenedFiles {
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

/// Calls `each` for all `items` with their indices, in parallel if their sizes are worth it.
/// Returns the results in order.
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
        Magic::Archive => return expand_archive(&file.path, bytes, index, !file.whole, expanded),
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
            InputName::Script(name) => {
                let found = self.search.script(name).filter(|path| is_script(path))?;
                self.file(&found, spec, 0)
            }
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
            by_option: false,
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
            .push(script::symbols_of(bytes.as_slice()));
        self.inputs.loads.push(LoadedFile {
            what,
            as_needed: false,
            group: spec.state.group,
            token: spec.token,
            by_option: matches!(spec.name, InputName::Script(_)),
        });
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
fn is_script(path: &Path) -> bool {
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

/// Returns the kind and the contents of an open file of `size` bytes. For a large file, reads the
/// header first: a shared object need not be mapped, and mapping costs more than a read.
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

// Objects in an archive, including members of nested archives. A member borrows its archive's
// bytes; members of a thin archive are separate files.

/// Appends every object in the archive `bytes` to `out`, in order, with nested archives expanded in
/// place. `lazy` and `file` are copied into each [`InputObject`].
fn expand_archive(
    path: &Path,
    bytes: &Bytes,
    file: usize,
    lazy: bool,
    out: &mut Expanded,
) -> Result<()> {
    ArchiveWalk { file, lazy, out }.archive(Origin::file(path), path, bytes, 0)
}

struct ArchiveWalk<'o> {
    file: usize,
    lazy: bool,
    out: &'o mut Expanded,
}

impl ArchiveWalk<'_> {
    /// Walks one archive. `at` is the file that contains it: the names in a thin archive are
    /// relative to that file.
    fn archive(&mut self, origin: Origin, at: &Path, bytes: &Bytes, depth: usize) -> Result<()> {
        let origin = Arc::new(origin);
        let context = |fault: ArchiveFault| anyhow!(fault.in_archive(&origin));
        for member in archive::members(bytes.as_slice()).map_err(context)? {
            let member = member.map_err(context)?;
            let inner = || origin.member(&member.shown_name());
            let (own_file, contents) = match member.contents {
                MemberContents::Within { offset, size } => (
                    None,
                    bytes
                        .slice(offset, size)
                        .with_context(|| inner().to_string())?,
                ),
                MemberContents::File => {
                    let path = member.file(at);
                    let Some(contents) = self.member_file(&origin, &path)? else {
                        continue;
                    };
                    (Some(path), contents)
                }
                MemberContents::InArchive { header } => {
                    let path = member.file(at);
                    let Some(other) = self.member_file(&origin, &path)? else {
                        continue;
                    };
                    let (archive, faulty) = (inner(), |fault: ArchiveFault| {
                        anyhow!(fault.in_archive(&inner()))
                    });
                    let place = archive::member_at(other.as_slice(), header).map_err(faulty)?;
                    let place = place.and_then(|found| match found.contents {
                        MemberContents::Within { offset, size } => {
                            Some((found, other.slice(offset, size)?))
                        }
                        _ => None,
                    });
                    let (found, contents) = place.with_context(|| {
                        format!("{archive}: no member at {header:#x}. Rebuild the thin archive")
                    })?;
                    let kind = magic(contents.as_slice());
                    if !matches!(kind, Magic::Archive | Magic::Text | Magic::Other) {
                        self.object(Arc::new(archive), &other, found.name, contents, kind);
                    }
                    continue;
                }
            };
            match magic(contents.as_slice()) {
                Magic::Archive if depth < MAX_NESTING => {
                    self.archive(
                        inner(),
                        own_file.as_deref().unwrap_or(at),
                        &contents,
                        depth + 1,
                    )?;
                }
                Magic::Archive => bail!(
                    "{}: archives are nested more than {MAX_NESTING} deep",
                    inner()
                ),
                Magic::Text | Magic::Other => {}
                kind => self.object(Arc::clone(&origin), bytes, member.name, contents, kind),
            }
        }
        Ok(())
    }

    /// Adds the member `contents` of `archive`. Borrows `name` from `names` if it is part of those
    /// bytes, and copies it otherwise.
    fn object(
        &mut self,
        archive: Arc<Origin>,
        names: &Bytes,
        name: &[u8],
        contents: Bytes,
        kind: Magic,
    ) {
        let name = names.part(name).unwrap_or_else(|| name.to_vec().into());
        self.out.objects.push(InputObject {
            place: Place::Member { archive, name },
            bytes: contents,
            kind,
            lazy: self.lazy,
            file: self.file,
        });
    }

    /// Opens the file of a thin archive's member. Returns none if a lazy archive's file is missing:
    /// the linker reports that if it needs the member.
    fn member_file(&mut self, origin: &Origin, path: &Path) -> Result<Option<Bytes>> {
        match Bytes::open(path) {
            Ok(bytes) => {
                self.out.thin.push(path.to_owned());
                Ok(Some(bytes))
            }
            Err(_) if self.lazy && !path.exists() => Ok(None),
            Err(error) => Err(error).with_context(|| {
                format!(
                    "{origin}: cannot read the thin archive's member `{}`",
                    path.display()
                )
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStrExt;

    use super::*;

    /// Returns a thin archive with one member, by its path.
    fn thin(member: &[u8]) -> Vec<u8> {
        let names = [member, b"/\n"].concat();
        let names = [
            names.as_slice(),
            if names.len() % 2 == 1 { b"\n" } else { b"" },
        ]
        .concat();
        let header = |name: &str, size: usize| {
            format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644).into_bytes()
        };
        [
            b"!<thin>\n".to_vec(),
            header("//", names.len()),
            names,
            header("/0", 18),
        ]
        .concat()
    }

    #[test]
    fn thin_members_are_found_from_where_their_archive_is_and_by_any_name() {
        let dir = tempfile::tempdir().unwrap();
        let inner = dir.path().join("inner");
        std::fs::create_dir(&inner).unwrap();
        let elf = [
            &[
                0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,
            ][..],
            &[0; 46],
        ]
        .concat();
        std::fs::write(inner.join(OsStr::from_bytes(b"k\xff.o")), elf).unwrap();
        std::fs::write(inner.join("i.a"), thin(b"k\xff.o")).unwrap();
        let outer = dir.path().join("o.a");
        std::fs::write(&outer, thin(b"inner/i.a")).unwrap();
        let mut out = Expanded::default();
        expand_archive(&outer, &Bytes::open(&outer).unwrap(), 0, true, &mut out).unwrap();
        assert_eq!((out.objects.len(), out.thin.len()), (1, 2));
    }
}
