//! Finds the entries of files with bundles. Such a file is a row of bundles, compressed or not, an
//! object with bundles in its sections, or a program with `.hip_fatbin` sections. An entry is a
//! range of the file, or of a temporary file after decompression. Code objects are not read here.

use std::io::{self, BufReader};
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::Rope;
use offld_system::session::Session;
use offload_formats::bundle::{self, Id, text};
use offload_formats::bundled_object;
use offload_formats::compressed::{self, Header, Method, Unpack};
use offload_formats::containers::{self, Fault, Item, Kind};
use offload_formats::error::Malformed;

/// The buffer size for decompression.
const BUFFER: usize = 256 << 10;

/// The possible formats of a file, according to the user's `-type=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    /// An object with bundles in its sections, or else a bundle (`-type=o`, members of archives).
    Object,
    /// A bundle, whatever else the file looks like (`-type=bc`, `gch`, `ast`).
    Binary,
}

pub(crate) struct Container {
    /// The entries, in the order of the file.
    pub entries: Vec<BundleEntry>,
    /// The compressed bundles of the file, in order.
    pub compressed: Vec<Inflated>,
    /// The whole file, decompressed.
    pub whole: Rope,
}

/// An entry of a bundle: an ID and a code object.
#[derive(Clone)]
pub(crate) struct BundleEntry {
    /// The ID, as stored.
    pub id: String,
    content: EntryContent,
}

#[derive(Clone)]
enum EntryContent {
    Bytes(FileSlice),
    /// This object without its bundles.
    HostOf(FileSlice),
}

/// A compressed bundle that was decompressed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inflated {
    /// The version of the header.
    pub version: u16,
    /// The compression method.
    pub method: Method,
    /// The size, including the header.
    pub total_size: u64,
    /// The size of the compressed data, without the header.
    pub packed_size: u64,
    /// The uncompressed size.
    pub plain_size: u64,
    /// The hash, which has been verified.
    pub hash: u64,
    /// The duration of decompression.
    pub time: Duration,
}

impl BundleEntry {
    /// An entry with these contents.
    pub(crate) fn new(id: String, bytes: FileSlice) -> Self {
        BundleEntry {
            id,
            content: EntryContent::Bytes(bytes),
        }
    }

    /// Whether the entry stands for the host object: the file without its bundles.
    pub(crate) fn is_host_mark(&self) -> bool {
        matches!(self.content, EntryContent::HostOf(_))
    }

    pub(crate) fn parsed_id(&self) -> Id {
        Id::parse(&self.id)
    }

    /// The code object. In an object with bundles, the host's entry is empty: its code object is
    /// the object itself without the bundles.
    pub(crate) fn contents(&self) -> Result<Rope> {
        match &self.content {
            EntryContent::Bytes(piece) => Ok(Rope::from(piece.clone())),
            EntryContent::HostOf(object) => host_object(object),
        }
    }
}

/// Finds the entries of `piece`. Messages call it `what` (`input`, `code object`) and `name`.
pub(crate) fn read(
    piece: &FileSlice,
    name: &str,
    hint: Hint,
    what: &'static str,
    spool: &mut Spool,
    session: &Session,
) -> Result<Container> {
    let mut reader = BundleReader {
        name,
        what,
        hint,
        spool,
        session,
        entries: Vec::new(),
        compressed: Vec::new(),
    };
    let whole = reader.file(piece)?;
    Ok(Container {
        entries: reader.entries,
        compressed: reader.compressed,
        whole,
    })
}

/// Decompresses `piece` for text bundles, whose entries are found by their markers. Uncompressed
/// data is returned as it is.
pub(crate) fn inflate(
    piece: &FileSlice,
    name: &str,
    spool: &mut Spool,
    session: &Session,
) -> Result<(Rope, Vec<Inflated>)> {
    let hint = Hint::Binary;
    let mut reader = BundleReader {
        name,
        what: "input",
        hint,
        spool,
        session,
        entries: Vec::new(),
        compressed: Vec::new(),
    };
    if !compressed::is_compressed(piece.bytes()) {
        return Ok((Rope::from(piece.clone()), Vec::new()));
    }
    let mut plain = Rope::default();
    reader.each(piece, |_, one| {
        plain.push_piece(one);
        Ok(())
    })?;
    Ok((plain, reader.compressed))
}

struct BundleReader<'r> {
    name: &'r str,
    what: &'static str,
    hint: Hint,
    spool: &'r mut Spool,
    session: &'r Session,
    entries: Vec<BundleEntry>,
    compressed: Vec<Inflated>,
}

impl BundleReader<'_> {
    /// Collects the entries of a file. Returns the decompressed file.
    fn file(&mut self, piece: &FileSlice) -> Result<Rope> {
        if !starts_bundle(piece.bytes()) {
            self.object(piece)?;
            return Ok(Rope::from(piece.clone()));
        }
        let mut plain = Rope::default();
        self.each(piece, |reader, one| {
            if bundle::is_bundle(one.bytes()) {
                reader.bundle(&one)?;
            } else {
                reader.object(&one)?;
            }
            plain.push_piece(one);
            Ok(())
        })?;
        Ok(if self.compressed.is_empty() {
            Rope::from(piece.clone())
        } else {
            plain
        })
    }

    /// Calls `take` with each bundle in `piece`, decompressed. Zeros may follow each bundle,
    /// because linkers concatenate the aligned sections of several objects.
    fn each(
        &mut self,
        piece: &FileSlice,
        mut take: impl FnMut(&mut Self, FileSlice) -> Result<()>,
    ) -> Result<()> {
        for item in containers::row(piece.bytes()) {
            match item {
                Ok(Item {
                    kind: Kind::CompressedBundle,
                    range,
                }) => {
                    let plain = self
                        .inflate(piece, range)
                        .with_context(|| self.not_decompressed())?;
                    take(self, plain)?;
                }
                Ok(Item {
                    kind: Kind::Bundle,
                    range,
                }) => take(self, part(piece, range.start, range.end - range.start)?)?,
                Err(Fault {
                    kind: Some(Kind::CompressedBundle),
                    reason,
                    ..
                }) => return Err(reason).with_context(|| self.not_decompressed()),
                Err(Fault {
                    kind: Some(Kind::Bundle),
                    reason,
                    ..
                }) => return Err(reason).with_context(|| self.name.to_owned()),
                Ok(Item {
                    range: Range { start: at, .. },
                    ..
                })
                | Err(Fault { at, .. }) => {
                    let text = format!(
                        "'{}': ignoring {} bytes after the last bundle, from offset {at:#x} on",
                        self.name,
                        piece.size() - at
                    );
                    self.session.shell.warn(&text);
                    break;
                }
            }
        }
        Ok(())
    }

    fn not_decompressed(&self) -> String {
        format!("Failed to decompress {}: {}", self.what, self.name)
    }

    /// Decompresses the bundle at `range`. Both forms are streamed, so that neither has to be in
    /// memory.
    fn inflate(&mut self, piece: &FileSlice, range: Range<u64>) -> Result<FileSlice> {
        let started = Instant::now();
        let (at, size) = (range.start, range.end - range.start);
        let whole = part(piece, at, size)?;
        let header = Header::read(whole.bytes(), at)?;
        let packed = whole.from(header.size);
        let fault = |what| Malformed::new(what, at + header.size);
        if !header.is_likely(packed.size()) {
            let what = "uncompressed size is more than the compressed data can hold";
            return Err(fault(what).into());
        }
        let unpack = Unpack::new(
            header,
            BufReader::with_capacity(BUFFER, packed.reader()),
            at,
        )?;
        let mut unpack = BufReader::with_capacity(BUFFER, unpack);
        let plain = self.spool.add(|out| {
            io::copy(&mut unpack, out)
                .map(drop)
                .map_err(Malformed::or_io)
        })?;
        let from = unpack.get_ref().get_ref();
        if !from.buffer().is_empty() || from.get_ref().left() > 0 {
            return Err(fault("bytes after the compressed data").into());
        }
        self.compressed.push(Inflated {
            version: header.version,
            method: header.method,
            total_size: size,
            packed_size: packed.size(),
            plain_size: header.plain_size,
            hash: header.hash,
            time: started.elapsed(),
        });
        Ok(plain)
    }

    /// Collects the entries of a bundle.
    fn bundle(&mut self, piece: &FileSlice) -> Result<()> {
        let read = bundle::read_at(piece.bytes(), 0).with_context(|| self.name.to_owned())?;
        for entry in read.entries {
            let content = EntryContent::Bytes(part(piece, entry.at, entry.object.len() as u64)?);
            self.entries.push(BundleEntry {
                id: entry.id.to_owned(),
                content,
            });
        }
        Ok(())
    }

    /// Collects the entries in an object's sections.
    fn object(&mut self, piece: &FileSlice) -> Result<()> {
        if self.hint == Hint::Binary || bundled_object::kind(piece.bytes()).is_none() {
            return Ok(());
        }
        let sections =
            bundled_object::bundle_sections(piece.bytes()).with_context(|| self.name.to_owned())?;
        for section in &sections {
            let bytes = part(piece, section.at, section.size)?;
            let mark = is_mark(&bytes) && Id::parse(section.id).kind == "host";
            let content = if mark {
                EntryContent::HostOf(piece.clone())
            } else {
                EntryContent::Bytes(bytes)
            };
            self.entries.push(BundleEntry {
                id: section.id.to_owned(),
                content,
            });
        }
        if !sections.is_empty() {
            return Ok(());
        }
        for section in
            bundled_object::hip_sections(piece.bytes()).with_context(|| self.name.to_owned())?
        {
            let bundles = part(piece, section.start, section.end - section.start)?;
            if starts_bundle(bundles.bytes()) {
                self.each(&bundles, |reader, one| reader.bundle(&one))?;
            }
        }
        Ok(())
    }
}

/// Whether these are the contents of a host section that stands for the object itself: one zero
/// byte, or several after a relocatable link (`-r`).
fn is_mark(bytes: &FileSlice) -> bool {
    const LIMIT: u64 = 4096;
    (1..LIMIT).contains(&bytes.size()) && bytes.bytes().iter().all(|byte| *byte == 0)
}

fn starts_bundle(data: &[u8]) -> bool {
    bundle::is_bundle(data) || compressed::is_compressed(data)
}

fn part(piece: &FileSlice, at: u64, size: u64) -> Result<FileSlice> {
    piece
        .slice(at, size)
        .with_context(|| format!("{size} bytes from offset {at:#x} are past the end of the file"))
}

/// Returns `object` without its bundles.
fn host_object(object: &FileSlice) -> Result<Rope> {
    let parts = bundled_object::without_bundles(object.bytes())?;
    Ok(Rope::of_parts(object, parts, [])?)
}

/// The entries of the text bundle in `piece`, which belongs to the file `name`. `comment` is the
/// prefix of marker lines.
pub(super) fn text_entries(
    piece: &FileSlice,
    comment: &str,
    name: &str,
) -> Result<Vec<BundleEntry>> {
    let spans = text::scan(comment, BufReader::with_capacity(128 << 10, piece.reader()));
    let spans = spans
        .map_err(Malformed::or_io)
        .with_context(|| name.to_owned())?;
    let entry = |span: text::Span| {
        let part = piece
            .slice(span.start, span.size)
            .with_context(|| format!("'{name}' became shorter while it was read"))?;
        Ok(BundleEntry::new(span.id, part))
    };
    spans.into_iter().map(entry).collect()
}
