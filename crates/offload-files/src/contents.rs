//! Inspection of files: finds the device images in objects, programs, archives, zip files and
//! containers, at any depth. A damaged part is reported as an error, and the rest of the file is
//! still inspected. Images are read in chunks, so memory use does not depend on their size.
//!
//! `walk` and `enter` do the recursion; `containers`, `objects` and `archive` each read one family
//! of formats. `inflate` decompresses data and whole files, within the limits of the walk.
//! `packs` reads kpack archives.
//! `image` describes an image. `registers` finds the runtimes that a file registers with. `report`
//! is the result as data, `tree` the nested parts of the file, `layout` the item that each byte
//! belongs to. `units` groups images as runtimes see them, and finds images with a wrong label in
//! their container. `folders` finds the files below a directory, and decides which of them are
//! inspected.

mod archive;
pub(crate) mod bytes_of;
pub(crate) mod containers;
mod enter;
pub mod external;
pub mod folders;
mod image;
pub(crate) mod inflate;
pub mod layout;
pub(crate) mod objects;
pub(crate) mod packs;
mod registers;
pub mod report;
pub mod selection;
#[cfg(test)]
mod tests;
pub(crate) mod tree;
pub(crate) mod units;
mod walk;

use std::path::Path;
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};
use object::FileKind;
use object::elf::{ET_DYN, ET_EXEC, ET_REL};

use folders::Found;
pub(crate) use image::kernel_names;
use layout::{Footprint, Names};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::progress::Meter;
use offld_system::session::Session;
use offload_formats::archive::is_thin;
use offload_formats::dynamic;
use offload_formats::magic::{self, ByteKind, byte_kind};
use report::{FileReport, Place, UNREADABLE};
use selection::{Choice, Selection};
use tree::ImageMetadata;
pub use walk::most_unpacked;
use walk::{Cursor, Walk};

/// Options of an inspection.
#[derive(Debug, Clone)]
pub struct Options {
    /// Whether to list the kernels of images.
    pub kernels: bool,
    /// Whether to compute digests of the code of kernels.
    pub code: bool,
    /// Whether to read headers only: no hashes or checksums, and only the header of a compressed
    /// bundle is decompressed.
    pub headers_only: bool,
    /// Whether to read the registered entries and their names, and the properties of each image by
    /// which its runtime chooses one.
    pub registered: bool,
    /// Whether to keep the bytes of each image, for callers that write them to files.
    pub keep_bytes: bool,
    /// Whether to attribute each byte to an item (`Reader::footprint`); the names of the items
    /// are stored here. If set, images are not hashed, and registrations are not searched for.
    pub sizes: Option<Arc<Names>>,
    /// Limit of the decompressed data of one file, in bytes. The limit of 1000 times the file size
    /// applies as well.
    pub max_unpacked: u64,
    /// Whether to open no other file: neither the members of a thin archive nor the libraries that
    /// a program needs.
    pub alone: bool,
    /// Whether to open the files with a program's device code: kpack archives, and external images.
    pub packs: bool,
    /// The files and members to inspect.
    pub selection: Arc<Selection>,
}

impl Default for Options {
    fn default() -> Self {
        Options {
            kernels: false,
            code: false,
            headers_only: false,
            registered: false,
            keep_bytes: false,
            max_unpacked: walk::MAX_UNPACKED,
            sizes: None,
            alone: false,
            packs: false,
            selection: Arc::default(),
        }
    }
}

/// Inspects files.
#[derive(Debug)]
pub struct Reader<'r> {
    options: Options,
    session: &'r Session,
    /// Decompressed images whose bytes are needed after the inspection.
    spool: Mutex<Spool>,
    /// The progress display.
    meter: Option<&'r Meter>,
}

impl<'r> Reader<'r> {
    /// Creates a reader for any number of files.
    pub fn new(options: Options, session: &'r Session) -> Self {
        Reader {
            options,
            session,
            spool: Mutex::new(Spool::new(session)),
            meter: None,
        }
    }

    /// Returns the same reader, which reports its progress to `meter`.
    pub(crate) fn shown_by(self, meter: &'r Meter) -> Self {
        Reader {
            meter: Some(meter),
            ..self
        }
    }

    /// Inspects one file. Errors in its contents are in the report. Fails if the file cannot be
    /// opened.
    pub fn open(&self, path: &Path) -> Result<FileReport> {
        Ok(self.opened(path, FileSlice::open(path)?))
    }

    /// Inspects a file that was named or found in a directory. Archives that a program refers to
    /// are opened for named files only: in directories, they are found by themselves.
    pub(crate) fn found(&self, found: &Found) -> FileReport {
        self.one(&found.path, self.options.packs && found.named)
    }

    /// Inspects one of many files. If it cannot be opened, the report has the error.
    pub(crate) fn one_of_many(&self, path: &Path) -> FileReport {
        self.one(path, self.options.packs)
    }

    fn one(&self, path: &Path, follows: bool) -> FileReport {
        // There may be more files than can be open at once, and files whose images are kept are
        // needed to the end.
        let piece = if self.options.keep_bytes {
            FileSlice::try_open_one_of_many(path)
        } else {
            FileSlice::try_open(path)
        };
        match piece.with_context(|| path.display().to_string()) {
            Ok(piece) => self.inspected(path, piece, follows),
            Err(error) => self.unreadable(path, &error),
        }
    }

    /// The report on a file that cannot be opened.
    pub(crate) fn unreadable(&self, path: &Path, error: &anyhow::Error) -> FileReport {
        let mut walk = Walk::new(self, 0);
        walk.note(error);
        walk.report(path, UNREADABLE)
    }

    /// Returns the item that each byte of a file belongs to, the type of the file, and the errors
    /// in its contents. Needs [`Options::sizes`]. Fails if the file cannot be opened.
    pub(crate) fn footprint(&self, path: &Path) -> Result<(Footprint, &'static str, Vec<String>)> {
        let piece = FileSlice::open(path)?;
        let kind = kind(piece.bytes());
        let mut walk = Walk::new(self, piece.size());
        let (size, reached) = (piece.size(), walk.reached.clone());
        reached.now_at(&path.display().to_string());
        self.enter(&mut walk, path, piece);
        let (mut footprint, errors) = walk.footprint();
        debug_assert_eq!(
            footprint.leaves.iter().map(|leaf| leaf.file).sum::<u64>(),
            footprint.size,
            "each byte once"
        );
        layout::finish::find_units(&mut footprint);
        reached.up_to(size);
        Ok((footprint, kind, errors))
    }

    /// Inspects `piece`, the contents of the file at `path`.
    pub fn opened(&self, path: &Path, piece: FileSlice) -> FileReport {
        self.inspected(path, piece, self.options.packs)
    }

    /// Inspects `piece`, the contents of the file at `path`. `follows`: opens the kpack archives that
    /// a program refers to.
    fn inspected(&self, path: &Path, piece: FileSlice, follows: bool) -> FileReport {
        let mut walk = Walk::new(self, piece.size());
        walk.follows = follows;
        let kind = kind(piece.bytes());
        let size = piece.size();
        walk.reached.now_at(&path.display().to_string());
        self.enter(&mut walk, path, piece);
        walk.reached.up_to(size);
        walk.report(path, kind)
    }

    fn enter(&self, walk: &mut Walk<'_>, path: &Path, piece: FileSlice) {
        let place = Place {
            file: path.to_owned(),
            steps: Vec::new(),
        };
        let (facts, spot) = (
            ImageMetadata::default(),
            layout::record::LayoutPosition::default(),
        );
        let (file, numbers) = (path.to_owned(), Vec::new());
        // Standard input has no name.
        let choice = if path == Path::new("-") {
            Choice::Selected
        } else {
            self.options.selection.of(path, None)
        };
        let cursor = Cursor {
            piece,
            file,
            place,
            numbers,
            facts,
            inside: false,
            depth: 0,
            spot,
            choice,
        };
        let cursor = walk.root(&cursor);
        walk.enter(&cursor);
    }
}

/// The type of a file, for the report.
fn kind(data: &[u8]) -> &'static str {
    match byte_kind(data, true) {
        ByteKind::Archive if is_thin(data) => "thin-archive",
        ByteKind::Object(FileKind::Elf32 | FileKind::Elf64) => elf_kind(data),
        kind => kind.name(),
    }
}

/// The type of an ELF file: object, library or program. A position-independent program has the ELF
/// type of a library, but names a loader.
fn elf_kind(data: &[u8]) -> &'static str {
    match magic::elf_type(data) {
        Some(ET_REL) => "elf-object",
        Some(ET_EXEC) => "elf-executable",
        Some(ET_DYN) if matches!(dynamic::interpreter(data), Ok(Some(_))) => "elf-executable",
        Some(ET_DYN) => "elf-shared",
        _ => "elf",
    }
}

/// Whether the ELF file `data` is device code itself, not an object or program for the host.
pub(crate) fn is_device_elf(data: &[u8]) -> bool {
    image::is_device(data)
}
