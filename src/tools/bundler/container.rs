//! The entries of a file that holds bundles, whatever it is: a bundle, a compressed one, several of both in a row, an object with
//! bundles in its sections, or a program with `.hip_fatbin` sections. An entry is a range of the file, or of a temporary file where
//! it was compressed: code objects themselves are not read here.

use std::io::{self, BufReader};
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::error::Malformed;
use crate::formats::bundle::{self, Id};
use crate::formats::compressed::{self, Header, Method, Unpack};
use crate::formats::fat_object;
use crate::io::piece::{Piece, Spool};
use crate::io::rope::Rope;
use crate::sys::session::Session;

/// How much is read and written at once when something is decompressed.
const BUFFER: usize = 256 << 10;

/// What a file may be, by the type that the user gives with `-type=`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Hint {
    /// An object with bundles in its sections, or, where it is not an object, a bundle (`-type=o`, members of archives).
    Object,
    /// A bundle, whatever else it looks like (`-type=bc`, `gch`, `ast`).
    Binary,
}

/// A file's entries.
pub(crate) struct Container {
    /// In the order of the file.
    pub entries: Vec<BundleEntry>,
    /// The compressed bundles among them, in the order of the file.
    pub compressed: Vec<Inflated>,
    /// All of the file, decompressed.
    pub whole: Rope,
}

/// An entry of a bundle: an id and a code object.
#[derive(Clone)]
pub(crate) struct BundleEntry {
    /// Its id, as stored.
    pub id: String,
    content: EntryContent,
}

#[derive(Clone)]
enum EntryContent {
    Bytes(Piece),
    /// This object without its bundles.
    HostOf(Piece),
}

/// A compressed bundle that was decompressed.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Inflated {
    /// The version of its header.
    pub version: u16,
    /// How it was compressed.
    pub method: Method,
    /// Its size with the header.
    pub total_size: u64,
    /// The size of the compressed data alone.
    pub packed_size: u64,
    /// The size decompressed.
    pub plain_size: u64,
    /// Its hash, which has been verified.
    pub hash: u64,
    /// How long it took.
    pub time: Duration,
}

impl BundleEntry {
    /// An entry with these bytes.
    pub(crate) fn new(id: String, bytes: Piece) -> Self {
        BundleEntry { id, content: EntryContent::Bytes(bytes) }
    }

    /// Whether it stands for the host's object, which is what remains of the file without its bundles.
    pub(crate) fn is_host_mark(&self) -> bool {
        matches!(self.content, EntryContent::HostOf(_))
    }

    /// The id, parsed.
    pub(crate) fn parsed_id(&self) -> Id {
        Id::parse(&self.id)
    }

    /// The code object. In an object with bundles, the host's entry holds no bytes of its own: its code object is the object itself
    /// without the bundles.
    pub(crate) fn contents(&self) -> Result<Rope> {
        match &self.content {
            EntryContent::Bytes(piece) => Ok(Rope::from(piece.clone())),
            EntryContent::HostOf(object) => host_object(object),
        }
    }
}

/// Finds the entries of `piece`. Messages call it `what` (`input`, `code object`) and `name`.
pub(crate) fn read(
    piece: &Piece,
    name: &str,
    hint: Hint,
    what: &'static str,
    spool: &mut Spool,
    session: &Session,
) -> Result<Container> {
    let mut reader = BundleReader { name, what, hint, spool, session, entries: Vec::new(), compressed: Vec::new() };
    let whole = reader.file(piece)?;
    Ok(Container { entries: reader.entries, compressed: reader.compressed, whole })
}

/// What is in `piece`, decompressed, for bundles of text, whose entries are found by their marks. What is not compressed is the
/// piece itself.
pub(crate) fn inflate(piece: &Piece, name: &str, spool: &mut Spool, session: &Session) -> Result<(Rope, Vec<Inflated>)> {
    let hint = Hint::Binary;
    let mut reader = BundleReader { name, what: "input", hint, spool, session, entries: Vec::new(), compressed: Vec::new() };
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
    /// Takes in the entries of a file; returns all of it decompressed.
    fn file(&mut self, piece: &Piece) -> Result<Rope> {
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
        Ok(if self.compressed.is_empty() { Rope::from(piece.clone()) } else { plain })
    }

    /// Hands on each of the bundles that follow one another in `piece`, decompressed. Zeros may be between them: linkers put the
    /// sections of several objects together, each aligned.
    fn each(&mut self, piece: &Piece, mut take: impl FnMut(&mut Self, Piece) -> Result<()>) -> Result<()> {
        let data = piece.bytes();
        let mut at = 0;
        while let Some(rest) = data.get(at as usize..).filter(|rest| !rest.is_empty()) {
            let size = if compressed::is_compressed(rest) {
                let (size, plain) = self.inflate_at(piece, at)?;
                take(self, plain)?;
                size
            } else if bundle::is_bundle(rest) {
                let size = bundle::read_at(data, at).with_context(|| self.name.to_owned())?.size;
                take(self, part(piece, at, size)?)?;
                size
            } else {
                let text =
                    format!("'{}': {} bytes after the last bundle, from offset {at:#x} on, are no bundle", self.name, rest.len());
                self.session.shell.warn(&text);
                break;
            };
            at += size;
            at += data.get(at as usize..).map_or(0, |rest| rest.iter().take_while(|byte| **byte == 0).count() as u64);
        }
        Ok(())
    }

    /// Decompresses the bundle that starts at `at`; also returns the size it has in the file. It is streamed: neither form of it is
    /// ever in memory.
    fn inflate_at(&mut self, piece: &Piece, at: u64) -> Result<(u64, Piece)> {
        let context = || format!("Failed to decompress {}: {}", self.what, self.name);
        let started = Instant::now();
        let rest = piece.slice(at, piece.size() - at).with_context(context)?;
        let header = Header::read(rest.bytes(), at).with_context(context)?;
        let size = header.total.unwrap_or(rest.size());
        let fault = |what, offset| Malformed::new(what, at + offset);
        let whole = rest.slice(0, size).ok_or(fault("size field past the end", 0)).with_context(context)?;
        let packed = part(&whole, header.size, size - header.size)?;
        if !header.is_likely(packed.size()) {
            let what = "uncompressed size is more than the compressed data can hold";
            return Err(fault(what, header.size)).with_context(context);
        }
        let unpack = Unpack::new(header, BufReader::with_capacity(BUFFER, packed.reader()), at).with_context(context)?;
        let mut unpack = BufReader::with_capacity(BUFFER, unpack);
        let plain = self.spool.add(|out| io::copy(&mut unpack, out).map(drop).map_err(Malformed::or_io)).with_context(context)?;
        let from = unpack.get_ref().get_ref();
        let left = from.buffer().len() as u64 + from.get_ref().left();
        if left > 0 && header.total.is_some() {
            return Err(fault("bytes after the compressed data", header.size)).with_context(context);
        }
        self.compressed.push(Inflated {
            version: header.version,
            method: header.method,
            total_size: size - left,
            packed_size: packed.size() - left,
            plain_size: header.plain_size,
            hash: header.hash,
            time: started.elapsed(),
        });
        Ok((size - left, plain))
    }

    /// Takes in the entries of a bundle.
    fn bundle(&mut self, piece: &Piece) -> Result<()> {
        let read = bundle::read_at(piece.bytes(), 0).with_context(|| self.name.to_owned())?;
        for entry in read.entries {
            let content = EntryContent::Bytes(part(piece, entry.at, entry.object.len() as u64)?);
            self.entries.push(BundleEntry { id: entry.id.to_owned(), content });
        }
        Ok(())
    }

    /// Takes in the entries that an object holds in its sections.
    fn object(&mut self, piece: &Piece) -> Result<()> {
        if self.hint == Hint::Binary || fat_object::kind(piece.bytes()).is_none() {
            return Ok(());
        }
        let sections = fat_object::bundle_sections(piece.bytes()).with_context(|| self.name.to_owned())?;
        for section in &sections {
            let bytes = part(piece, section.at, section.size)?;
            let mark = is_mark(&bytes) && Id::parse(section.id).kind == "host";
            let content = if mark { EntryContent::HostOf(piece.clone()) } else { EntryContent::Bytes(bytes) };
            self.entries.push(BundleEntry { id: section.id.to_owned(), content });
        }
        if !sections.is_empty() {
            return Ok(());
        }
        for section in fat_object::hip_sections(piece.bytes()).with_context(|| self.name.to_owned())? {
            let bundles = part(piece, section.start, section.end - section.start)?;
            if starts_bundle(bundles.bytes()) {
                self.each(&bundles, |reader, one| reader.bundle(&one))?;
            }
        }
        Ok(())
    }
}

/// Whether these are the contents of a host's section that stands for the object itself: one zero byte, or several where a linker
/// has put objects together (`-r`).
fn is_mark(bytes: &Piece) -> bool {
    const MOST: u64 = 4096;
    (1..MOST).contains(&bytes.size()) && bytes.bytes().iter().all(|byte| *byte == 0)
}

fn starts_bundle(data: &[u8]) -> bool {
    bundle::is_bundle(data) || compressed::is_compressed(data)
}

fn part(piece: &Piece, at: u64, size: u64) -> Result<Piece> {
    piece.slice(at, size).with_context(|| format!("{size} bytes from offset {at:#x} are past the end of the file"))
}

/// `object` without its bundles.
fn host_object(object: &Piece) -> Result<Rope> {
    let plan = fat_object::without_bundles(object.bytes())?;
    rewritten(plan, object, &[])
}

/// The object that `plan` makes of `object`, with new sections whose contents are `payloads`.
pub(crate) fn rewritten(plan: fat_object::ObjectPlan, object: &Piece, payloads: &[Piece]) -> Result<Rope> {
    let mut rope = Rope::default();
    for one in plan.parts {
        match one {
            fat_object::ObjectPart::Object(range) => rope.push_piece(part(object, range.start, range.end - range.start)?),
            fat_object::ObjectPart::Section(index) => {
                rope.push_piece(payloads.get(index).context("a section without contents")?.clone());
            }
            fat_object::ObjectPart::Made(bytes) => rope.push_bytes(bytes),
            fat_object::ObjectPart::Zeros(count) => rope.push_zeros(count),
        }
    }
    Ok(rope)
}
