//! The state of the walk through a file and everything it contains, down to the device images:
//! limits and results. An error in a container ends the inspection of that container only: it is
//! recorded, and the rest is still inspected. `enter` has the steps of the walk.

use std::io::{self, Read};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Error, Result};

use super::layout::Part;
use super::layout::record::{Layout, LayoutPosition};
use super::report::{
    Entries, ExternalImages, Fault, FileReport, Image, Linker, Module, PackReference, Place,
    Registration,
};
use super::selection::Choice;
use super::tree::{ImageMetadata, NodeKind, Recorder};
use super::{Options, Reader, bytes_of};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::progress::{Meter, Reached};
use offld_system::signals::Signals;
use offld_system::threads::lock;
use offload_formats::error;
use offload_formats::magic::ByteKind;
use offload_formats::model::OffloadKind;
use offload_formats::registration::read::Registered;

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
    pub(super) references: Vec<PackReference>,
    pub(super) external: Vec<ExternalImages>,
    pub(super) faults: Vec<Fault>,
    pub(super) registered: Vec<Registered>,
    pub(super) errors: Vec<String>,
    /// Whether a file or member that is not selected was skipped.
    pub(super) left_out: bool,
    /// Whether to open the files with a program's device code.
    pub(super) follows: bool,
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
        let (references, external, faults) = (Vec::new(), Vec::new(), Vec::new());
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
            references,
            external,
            faults,
            registered,
            errors,
            left_out: false,
            follows: false,
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
    /// is in a temporary file with other decompressed data. There can be too many of these files to
    /// keep open. So the image is copied to one file that many images share.
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
            references: kpack,
            external,
            faults,
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
            kpack,
            external,
            faults,
            errors,
            registered,
            left_out,
            tree: tree.into_root(),
        }
    }

    /// Counts the part at `cursor`, which is about to be opened. False if the file has too many.
    pub(super) fn may_open(&mut self, cursor: &Cursor) -> bool {
        let one_less = |left: u64| left.checked_sub(1);
        let left = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, one_less);
        if left == Ok(1) {
            self.errors.push(format!(
                "{}: too many nested items for the file size; not all is inspected",
                cursor.file.display()
            ));
        }
        left.is_ok()
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

    /// Records a contradiction in a kpack archive or in a reference to it.
    pub(super) fn fault(&mut self, cursor: &Cursor, what: &'static str, text: String) {
        self.fault_for(OffloadKind::Hip, cursor, what, text);
    }

    /// Notes a fault of code that the runtime `kind` loads.
    pub(super) fn fault_for(
        &mut self,
        kind: OffloadKind,
        cursor: &Cursor,
        what: &'static str,
        text: String,
    ) {
        self.faults.push(Fault {
            members: cursor.place.members(),
            what,
            runtime: kind.name(),
            text,
        });
    }

    /// Goes into the part `piece`: the parts that `go` finds are children of its node.
    pub(super) fn node<R>(
        &mut self,
        kind: NodeKind,
        piece: &FileSlice,
        go: impl FnOnce(&mut Self) -> R,
    ) -> R {
        let range = self.tree.range(piece);
        self.node_at(kind, range, piece, go)
    }

    /// As [`Walk::node`], for a part at `range` of `packed`: compressed bytes that stay compressed.
    pub(super) fn node_at<R>(
        &mut self,
        kind: NodeKind,
        range: Range<u64>,
        packed: &FileSlice,
        go: impl FnOnce(&mut Self) -> R,
    ) -> R {
        // If sizes are requested, the tree is not needed, and compressed parts are entered in
        // another order.
        if self.layout.is_some() {
            return go(self);
        }
        self.tree.open(kind, range, self.images.len(), packed);
        let done = go(self);
        self.tree.close(self.images.len());
        done
    }

    /// Adds an image to the report, and a node for it, whose bytes are in `piece`.
    pub(super) fn push_image(&mut self, image: Image, piece: &FileSlice) {
        self.node(NodeKind::Image, piece, |walk| walk.images.push(image));
    }
}

// Limits of decompression: a small file must not fill the memory or the disk.

/// The default limit for each file, in bytes.
pub(super) const MAX_UNPACKED: u64 = 64 << 30;
/// Decompressed bytes that each byte of the file allows. Deflate, the most common method, cannot
/// grow much further.
const GROWTH: u64 = 1000;
/// Smaller files count as files of this size, because a few bytes of zeros do no harm.
const LEAST_SIZE: u64 = 64 << 10;

/// The limit from the size of a file of `size` bytes.
fn growth(size: u64) -> u64 {
    size.max(LEAST_SIZE).saturating_mul(GROWTH)
}

/// The default limit for a file of `size` bytes.
pub fn most_unpacked(size: u64) -> u64 {
    growth(size).min(MAX_UNPACKED)
}

/// The remaining bytes of the limit of one file. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Allowance {
    left: Arc<AtomicU64>,
    limit: Limit,
    signals: Arc<Signals>,
}

/// The lower one of the two limits.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Option(u64),
    Growth,
}

impl Allowance {
    /// Creates the allowance of a file of `size` bytes, with at most `max_unpacked` decompressed
    /// bytes.
    fn new(size: u64, max_unpacked: u64, signals: &Arc<Signals>) -> Self {
        let growth = growth(size);
        let limit = if max_unpacked <= growth {
            Limit::Option(max_unpacked)
        } else {
            Limit::Growth
        };
        Allowance {
            left: Arc::new(AtomicU64::new(growth.min(max_unpacked))),
            limit,
            signals: Arc::clone(signals),
        }
    }

    /// Takes `size` bytes from the allowance.
    ///
    /// # Errors
    /// Fewer bytes are left; none is taken then. The text names the limit.
    pub(super) fn take(&self, size: u64) -> Result<(), String> {
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(size)
            });
        taken.map(drop).map_err(|_| match self.limit {
            Limit::Option(most) => {
                format!("not unpacked: the file would unpack to more than the {most} bytes of --max-unpacked; raise that limit")
            }
            Limit::Growth => {
                format!("not unpacked: the file would unpack to more than {GROWTH} times its size")
            }
        })
    }

    /// Returns a reader of `inner` that takes the bytes it reads from the allowance, and stops
    /// after a signal.
    pub(super) fn metered<R: Read>(&self, inner: R) -> Metered<R> {
        Metered {
            inner,
            allowance: self.clone(),
        }
    }
}

/// Reader of decompressed data within the allowance. Its error at the limit is [`TooMuch`].
#[derive(Debug)]
pub(super) struct Metered<R> {
    inner: R,
    allowance: Allowance,
}

/// The error of exceeding the limit.
#[derive(Debug)]
struct TooMuch(String);

impl std::fmt::Display for TooMuch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TooMuch {}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.allowance.signals.check().map_err(io::Error::other)?;
        let len = self.inner.read(buffer)?;
        self.allowance
            .take(len as u64)
            .map_err(|limit| io::Error::other(TooMuch(limit)))?;
        Ok(len)
    }
}
