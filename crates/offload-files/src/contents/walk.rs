//! Recursion through a file and everything it contains, down to the device images. An error in a
//! container ends the inspection of that container only: it is recorded, and the rest is still
//! inspected.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Error, Result};
use object::FileKind;

use super::folders::Choice;
use super::image::{self, ImageMetadata};
use super::inflate::{self, Allowance};
use super::layout::{Fill, Layout, LayoutPosition, Part};
use super::report::{Entries, FileReport, Image, Linker, Module, Place, Registration, Step};
use super::tree::{NodeKind, Recorder};
use super::{Options, Reader, archive, bytes_of, containers, objects, registers};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::progress::{Meter, Reached};
use offld_system::signals::Signals;
use offld_system::threads::lock;
use offload_formats::containers::check_nesting;
use offload_formats::elf::link_note::{self, LinkedBy};
use offload_formats::magic::{ByteKind, byte_kind};
use offload_formats::model::Generation;
use offload_formats::registration::read::{self, Registered};
use offload_formats::{error, offload_entries};

/// Limit of the members, sections and containers that are opened in a file: this number, and one
/// more for every [`BYTES_EACH`] bytes of the file. Without a limit a small file could take
/// forever, such as a thin archive that has itself as a member twice.
const FEW: u64 = 4096;
const BYTES_EACH: u64 = 16;
/// The name of the first member of a Debian package.
const DEBIAN: &[u8] = b"debian-binary";

/// The state of the recursion: the limits and the results.
pub(super) struct Walk<'r> {
    pub(super) options: &'r Options,
    pub(super) signals: Arc<Signals>,
    pub(super) images: Vec<Image>,
    pub(super) registrations: Vec<Registration>,
    pub(super) entries: Vec<Entries>,
    pub(super) modules: Vec<Module>,
    pub(super) linked_by: Vec<Linker>,
    pub(super) registered: Vec<Registered>,
    pub(super) errors: Vec<String>,
    /// Whether a file or member that is not selected was skipped.
    pub(super) left_out: bool,
    /// The tree of the parts that were found.
    pub(super) tree: Recorder,
    /// The layout of the file, if sizes are requested.
    pub(super) layout: Option<Layout>,
    /// How many more members, sections and containers may be opened.
    left: Arc<AtomicU64>,
    /// How many more bytes may be decompressed from compressed files and members.
    pub(super) allowance: Allowance,
    /// The progress through the file.
    pub(super) reached: Reached,
    spool: &'r Mutex<Spool>,
    reader: &'r Reader<'r>,
}

/// The limits that all walks through one file share.
pub(super) struct Limits<'r> {
    reader: &'r Reader<'r>,
    left: Arc<AtomicU64>,
    allowance: Allowance,
    reached: Reached,
}

/// Bytes to be inspected, with their location and the metadata of the enclosing containers.
#[derive(Clone)]
pub(super) struct Cursor {
    pub(super) piece: FileSlice,
    /// The file on disk that contains them. Paths in thin archives and run paths are relative to
    /// it.
    pub(super) file: PathBuf,
    pub(super) place: Place,
    /// The indices of the enclosing archive members: two members of one archive may have the same
    /// name.
    pub(super) numbers: Vec<usize>,
    pub(super) facts: ImageMetadata,
    /// Whether they are in a container. Such bytes are an image, whatever their format.
    pub(super) inside: bool,
    pub(super) depth: usize,
    /// Whether they are selected.
    pub(super) choice: Choice,
    /// Their position in the layout.
    pub(super) spot: LayoutPosition,
}

impl Cursor {
    /// Returns a cursor for a part of these bytes, one level deeper.
    pub(super) fn deeper(&self, piece: FileSlice, place: Place, facts: ImageMetadata) -> Cursor {
        let (file, numbers) = (self.file.clone(), self.numbers.clone());
        let (inside, depth) = (self.inside, self.depth + 1);
        Cursor {
            piece,
            file,
            place,
            numbers,
            facts,
            inside,
            depth,
            choice: self.choice,
            spot: self.spot,
        }
    }

    /// Whether bytes of this kind are inspected: selected bytes, and archives that may have
    /// selected members.
    pub(super) fn is_selected(&self, kind: ByteKind) -> bool {
        let has_members = || match kind {
            ByteKind::Zip | ByteKind::Tar | ByteKind::Compressed(_) => true,
            // A Debian package is an archive of tar archives.
            ByteKind::Archive => {
                self.depth == 0
                    && self
                        .piece
                        .bytes()
                        .get(8..)
                        .is_some_and(|rest| rest.starts_with(DEBIAN))
            }
            _ => false,
        };
        match self.choice {
            Choice::Selected => true,
            Choice::Within => has_members(),
            Choice::Excluded => false,
        }
    }

    /// Returns the same cursor, marked as being in a container.
    pub(super) fn inside(self) -> Cursor {
        Cursor {
            inside: true,
            ..self
        }
    }
}

impl<'r> Walk<'r> {
    /// Starts the inspection of a file of `size` bytes.
    pub(super) fn new(reader: &'r Reader<'r>, size: u64) -> Self {
        let Reader {
            options,
            session,
            spool,
            ..
        } = reader;
        let signals = Arc::clone(&session.signals);
        let left = Arc::new(AtomicU64::new(FEW + size / BYTES_EACH));
        let (images, registrations, entries) = (Vec::new(), Vec::new(), Vec::new());
        let (modules, linked_by) = (Vec::new(), Vec::new());
        let (registered, errors) = (Vec::new(), Vec::new());
        let reached = reader.meter.map(Meter::file).unwrap_or_default();
        let allowance = Allowance::new(size, options.max_unpacked, &signals);
        let layout = options.sizes.as_ref().map(Layout::new);
        Walk {
            options,
            signals,
            images,
            registrations,
            entries,
            modules,
            linked_by,
            registered,
            errors,
            left_out: false,
            tree: Recorder::default(),
            layout,
            left,
            allowance,
            reached,
            spool,
            reader,
        }
    }

    /// Creates a walk through a part that another walk has found.
    pub(super) fn within(limits: &Limits<'r>) -> Walk<'r> {
        Walk {
            left: Arc::clone(&limits.left),
            allowance: limits.allowance.clone(),
            reached: limits.reached.clone(),
            ..Walk::new(limits.reader, 0)
        }
    }

    /// The limits for walks through parts of this file.
    pub(super) fn limits(&self) -> Limits<'r> {
        Limits {
            reader: self.reader,
            left: Arc::clone(&self.left),
            allowance: self.allowance.clone(),
            reached: self.reached.clone(),
        }
    }

    /// Returns the bytes of an image for callers that write them after the walk. Decompressed data
    /// is in a temporary file together with everything else that was decompressed there. There may
    /// be more such files than can be open at once, so the image alone is copied to a file that
    /// many images share.
    pub(super) fn image_bytes(&self, piece: &FileSlice) -> Result<FileSlice> {
        if !piece.is_made() || piece.copied_from().is_none() {
            return Ok(piece.clone());
        }
        let mut spool = lock(self.spool);
        spool.add(|file| {
            io::copy(&mut bytes_of::reader(piece), file)?;
            Ok(())
        })
    }

    /// The report on the file `path` of the type `kind`.
    pub(super) fn report(self, path: &Path, kind: &'static str) -> FileReport {
        let Walk {
            images,
            registrations,
            entries,
            modules,
            linked_by,
            registered,
            errors,
            left_out,
            tree,
            ..
        } = self;
        let (file, also) = (path.display().to_string(), Vec::new());
        FileReport {
            file,
            also,
            kind,
            images,
            registrations,
            entries,
            modules,
            linked_by,
            errors,
            registered,
            left_out,
            tree: tree.into_root(),
        }
    }

    /// Inspects the bytes at `cursor`, recursively. Errors are recorded.
    pub(super) fn enter(&mut self, cursor: &Cursor) {
        let one_less = |left: u64| left.checked_sub(1);
        match self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less)
        {
            Err(_) => return,
            Ok(1) => self.errors.push(format!(
                "{}: too many nested items for the file size; not all is inspected",
                cursor.file.display()
            )),
            Ok(_) => {}
        }
        if let Err(error) = self.inspect(cursor) {
            self.note(&error);
        }
        cursor.piece.release();
    }

    /// The cursor of the member `name` of a zip or tar archive. `cursor` is at the bytes of the
    /// member and has the choice of the archive. The result has that of the member.
    pub(super) fn as_member(&self, cursor: Cursor, name: &str) -> Cursor {
        let choice = self
            .options
            .selection
            .of(Path::new(name), Some(cursor.choice));
        self.member(Cursor { choice, ..cursor }, name)
    }

    /// Reports progress: the member of a zip file with the stored bytes `packed` is done.
    pub(super) fn report_progress(&self, packed: &FileSlice) {
        match packed.file_offset(packed.size()) {
            // If sizes are requested, members are inspected in parallel.
            Some(_) if self.layout.is_some() => self.reached.more(packed.size()),
            Some(end) => self.reached.up_to(end),
            None => {}
        }
    }

    /// Skips the bytes at `cursor`, which are not selected. `inflated` is their uncompressed size.
    pub(super) fn leave_out(&mut self, cursor: &Cursor, inflated: u64) {
        self.left_out = true;
        self.unread(cursor, Part::LeftOut, inflated);
    }

    /// Records an error.
    pub(super) fn note(&mut self, error: &Error) {
        self.errors.push(error::chain(error));
    }

    fn inspect(&mut self, cursor: &Cursor) -> Result<()> {
        self.signals.check()?;
        // If sizes are requested, most of the work follows after everything has been entered.
        if let Some(at) = cursor
            .piece
            .file_offset(0)
            .filter(|_| self.layout.is_none())
        {
            self.reached.up_to(at);
        }
        check_nesting(cursor.depth, &cursor.place)?;
        let kind = byte_kind(cursor.piece.bytes(), !cursor.inside);
        if !cursor.is_selected(kind) {
            self.leave_out(cursor, cursor.piece.size());
            return Ok(());
        }
        match kind {
            ByteKind::Container(_) => self.node(NodeKind::Row, &cursor.piece, |walk| {
                containers::sequence(walk, cursor)
            }),
            ByteKind::TextBundle(comment) => {
                self.node(NodeKind::TextBundle, &cursor.piece, |walk| {
                    containers::text_bundle(walk, cursor, comment)
                })
            }
            ByteKind::Archive => self.node(NodeKind::Archive, &cursor.piece, |walk| {
                archive::members(walk, cursor)
            }),
            ByteKind::Zip => self.node(NodeKind::Zip, &cursor.piece, |walk| {
                archive::zip_members(walk, cursor)
            }),
            ByteKind::Tar => self.node(NodeKind::Tar, &cursor.piece, |walk| {
                archive::tar_members(walk, cursor)
            }),
            ByteKind::Compressed(compression) => {
                self.node(NodeKind::Compressed, &cursor.piece, |walk| {
                    inflate::compressed_file(walk, cursor, compression)
                })
            }
            // The number of images in an archive must not depend on `headers_only`.
            ByteKind::Zstd
                if !self.options.headers_only || inflate::holds_archive(&cursor.piece) =>
            {
                self.node(NodeKind::ZstdFrame, &cursor.piece, |walk| {
                    containers::zstd_frame(walk, cursor)
                })
            }
            ByteKind::Zstd => {
                containers::unread_frame(self, cursor);
                Ok(())
            }
            ByteKind::Object(kind) if cursor.inside || is_device_object(cursor, kind) => {
                self.device_object(cursor, kind)
            }
            ByteKind::Object(kind) => self.node(NodeKind::HostFile(kind), &cursor.piece, |walk| {
                walk.host_object(cursor, kind)
            }),
            ByteKind::Bitcode if !cursor.inside => objects::host_bitcode(self, cursor),
            ByteKind::Unknown | ByteKind::Empty if !cursor.inside => {
                self.bytes(
                    cursor,
                    if cursor.depth > 0 {
                        Part::Files
                    } else {
                        Part::Other
                    },
                );
                Ok(())
            }
            _ => image::add_leaf(self, cursor),
        }
    }

    /// Inspects an object or program for the host.
    fn host_object(&mut self, cursor: &Cursor, kind: FileKind) -> Result<()> {
        let cursor = &self.object(cursor, Fill::Host);
        let before = self.images.len();
        objects::sections(self, cursor)?;
        objects::variables(self, cursor, None)?;
        if self.layout.is_some() {
            return objects::in_plain_data(self, cursor, before);
        }
        // Old wrappers put images at places that only the descriptors name.
        let is_in_container = |image: &Image| {
            image
                .path
                .iter()
                .any(|step| matches!(step, Step::Container { .. }))
        };
        let are_bare = !self
            .images
            .get(before..)
            .unwrap_or_default()
            .iter()
            .any(is_in_container);
        let registered = if self.options.registered {
            let found =
                read::read(cursor.piece.bytes()).with_context(|| cursor.place.to_string())?;
            let (members, numbers) = (cursor.place.members(), cursor.numbers.clone());
            Registered {
                members,
                numbers,
                base: cursor.piece.file_offset(0),
                ..found
            }
        } else {
            Registered::default()
        };
        if self.options.registered {
            objects::descriptor_images(self, cursor, &registered, before);
        } else if are_bare && let Ok(found) = read::read(cursor.piece.bytes()) {
            objects::descriptor_images(self, cursor, &found, before);
        }
        let has_images = self.images.len() > before;
        registers::registrations(self, cursor, has_images)
            .with_context(|| cursor.place.to_string())?;
        self.entries(cursor)?;
        if !registered.is_empty() {
            self.registered.push(registered);
        }
        if is_elf(kind) {
            self.linkers(cursor)?;
            registers::modules(self, cursor)?;
        }
        objects::in_plain_data(self, cursor, before)
    }

    /// Adds the tables of entries of an object or program.
    fn entries(&mut self, cursor: &Cursor) -> Result<()> {
        let members = cursor.place.members();
        let tables = offload_entries::tables(cursor.piece.bytes());
        for table in tables.with_context(|| format!("{}: entry tables", cursor.place))? {
            let entry_size = table.entry_size();
            let count = entry_size.map(|size| table.size / size);
            let llvm = table.generation.map(|generation| match generation {
                Generation::Llvm14 | Generation::Llvm15 => "14 to 19",
                Generation::Llvm20 => "20",
                Generation::Llvm21 => "21 or later",
            });
            self.entries.push(Entries {
                members: members.clone(),
                section: table.section,
                entry_size,
                count,
                llvm,
            });
        }
        Ok(())
    }

    /// Adds the tools that linked an ELF file, from its notes.
    fn linkers(&mut self, cursor: &Cursor) -> Result<()> {
        let members = cursor.place.members();
        for by in link_note::read(cursor.piece.bytes())
            .with_context(|| format!("{}: notes", cursor.place))?
        {
            let LinkedBy {
                version: offld,
                device_compiler,
                ..
            } = by;
            self.linked_by.push(Linker {
                members: members.clone(),
                offld,
                device_compiler,
            });
        }
        Ok(())
    }

    /// Adds an object as an image, and inspects its sections, because it may embed other images.
    fn device_object(&mut self, cursor: &Cursor, kind: FileKind) -> Result<()> {
        self.node(NodeKind::Image, &cursor.piece, |walk| {
            let cursor = &image::add(walk, cursor)?;
            // An image in a container may be truncated or only look like ELF. That is not an error
            // here.
            if is_elf(kind) && objects::is_readable(cursor.piece.bytes()) {
                objects::sections(walk, cursor)?;
            }
            Ok(())
        })
    }
}

fn is_elf(kind: FileKind) -> bool {
    matches!(kind, FileKind::Elf32 | FileKind::Elf64)
}

/// Whether the object at `cursor`, which is not in a container, is device code itself.
fn is_device_object(cursor: &Cursor, kind: FileKind) -> bool {
    is_elf(kind) && image::is_device(cursor.piece.bytes())
}
