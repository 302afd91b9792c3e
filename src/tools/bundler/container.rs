//! The entries of a file that holds bundles, whatever it is: a bundle, a compressed one, several of both in a row, an object with
//! bundles in its sections, or a program with `.hip_fatbin` sections. Entries are parts of files, decompressed where they were
//! compressed; no code object is read here.

use std::io::{self, BufReader, Write};
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};

use crate::error::Malformed;
use crate::formats::bundle::{self, Id};
use crate::formats::compressed::{self, Header, Method, Unpack};
use crate::formats::fat_object;
use crate::io::outputs::Output;
use crate::io::piece::{Piece, Spool};
use crate::io::rope;
use crate::sys::session::Session;

/// How much is read and written at once.
const BUFFER: usize = 256 << 10;

/// What a file may be, by the type that its user gives.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Hint {
    /// An object with bundles in its sections; if it is no object, a bundle (`-type=o`, members of archives).
    Object,
    /// A bundle, whatever else it looks like (`-type=bc`, `gch`, `ast`).
    Binary,
}

/// How the entries were held. A compressed file is what it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Form {
    /// There are none.
    Nothing,
    /// Bundles.
    Bundle,
    /// Sections of an object.
    Sections,
    /// Bundles in `.hip_fatbin` sections.
    HipFatbin,
}

/// A file's entries.
pub struct Container {
    /// In the order of the file.
    pub entries: Vec<Entry>,
    /// How they were held.
    pub form: Form,
    /// What was compressed, in the order of the file.
    pub compressed: Vec<Inflated>,
    /// All of the file, decompressed.
    pub whole: Contents,
}

/// An entry.
#[derive(Clone)]
pub struct Entry {
    /// Its id, as stored.
    pub id: String,
    content: Content,
}

#[derive(Clone)]
enum Content {
    Bytes(Piece),
    /// This object without its bundles.
    HostOf(Piece),
}

/// Bytes to be written: parts of files and what lies between them.
#[derive(Clone, Default)]
pub struct Contents(Vec<Part>);

#[derive(Clone)]
enum Part {
    File(Piece),
    Made(Vec<u8>),
    Zeros(u64),
}

/// A compressed bundle that was decompressed.
#[derive(Debug, Clone, Copy)]
pub struct Inflated {
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

impl Entry {
    /// An entry with these bytes.
    pub fn new(id: String, bytes: Piece) -> Self {
        Entry { id, content: Content::Bytes(bytes) }
    }

    /// Whether it stands for the host's object, which is what the object is without its bundles.
    pub fn is_host_mark(&self) -> bool {
        matches!(self.content, Content::HostOf(_))
    }

    /// The id, read.
    pub fn parsed_id(&self) -> Id {
        Id::parse(&self.id)
    }

    /// The bytes. The entry of the host in an object with bundles is the object without them; its section is but a mark.
    pub fn contents(&self) -> Result<Contents> {
        match &self.content {
            Content::Bytes(piece) => Ok(Contents::from(piece.clone())),
            Content::HostOf(object) => host_object(object),
        }
    }
}

impl From<Piece> for Contents {
    fn from(piece: Piece) -> Self {
        Contents(vec![Part::File(piece)])
    }
}

impl Contents {
    /// How many bytes there are.
    pub fn size(&self) -> u64 {
        let sizes = self.0.iter().map(|part| match part {
            Part::File(piece) => piece.size(),
            Part::Made(bytes) => bytes.len() as u64,
            Part::Zeros(count) => *count,
        });
        sizes.sum()
    }

    /// Writes them to an output, where the system can without bringing them into this process.
    pub fn write_to(&self, out: &mut Output) -> io::Result<()> {
        for part in &self.0 {
            match part {
                Part::File(piece) => piece.copy_to(out)?,
                Part::Made(bytes) => out.write_all(bytes)?,
                Part::Zeros(count) => drop(io::copy(&mut io::Read::take(io::repeat(0), *count), out)?),
            }
        }
        Ok(())
    }

    /// Writes them.
    pub fn copy_to(&self, out: &mut impl Write) -> io::Result<()> {
        for part in &self.0 {
            match part {
                Part::File(piece) => drop(rope::stream(&mut piece.reader(), out)?),
                Part::Made(bytes) => out.write_all(bytes)?,
                Part::Zeros(count) => drop(io::copy(&mut io::Read::take(io::repeat(0), *count), out)?),
            }
        }
        Ok(())
    }

    /// The bytes as one piece; those that are not are written to `spool` first.
    pub fn into_piece(self, spool: &mut Spool<'_>) -> Result<Piece> {
        match &self.0[..] {
            [Part::File(piece)] => Ok(piece.clone()),
            _ => spool.add(|out| Ok(self.copy_to(out)?)),
        }
    }
}

/// Opens the file at `path` (`-` for stdin) and finds its entries. A file without any is no error; one that starts as a bundle does
/// and is none is one, and so is damaged compressed data.
pub fn open(path: &Path, hint: Hint, session: &Session) -> Result<Container> {
    let mut spool = Spool::new(session);
    let piece = Piece::open(path)?;
    read(&piece, &path.display().to_string(), hint, "input", &mut spool, session)
}

/// Finds the entries of `piece`. `name` and `what` (`input`, `code object`) are for messages.
pub fn read(
    piece: &Piece,
    name: &str,
    hint: Hint,
    what: &'static str,
    spool: &mut Spool<'_>,
    session: &Session,
) -> Result<Container> {
    let mut reader = Reader { name, what, hint, spool, session, entries: Vec::new(), compressed: Vec::new() };
    let (form, whole) = reader.file(piece)?;
    let form = if reader.entries.is_empty() { Form::Nothing } else { form };
    Ok(Container { entries: reader.entries, form, compressed: reader.compressed, whole })
}

/// What is in `piece`, decompressed: for files of text, whose entries are found in it by their marks. Not compressed, it is the
/// piece itself.
pub fn inflate(piece: &Piece, name: &str, spool: &mut Spool<'_>, session: &Session) -> Result<(Contents, Vec<Inflated>)> {
    let hint = Hint::Binary;
    let mut reader = Reader { name, what: "input", hint, spool, session, entries: Vec::new(), compressed: Vec::new() };
    if !compressed::is_compressed(piece.bytes()) {
        return Ok((Contents::from(piece.clone()), Vec::new()));
    }
    let mut plain = Vec::new();
    reader.each(piece, |_, one| {
        plain.push(Part::File(one));
        Ok(())
    })?;
    Ok((Contents(plain), reader.compressed))
}

struct Reader<'r, 's> {
    name: &'r str,
    what: &'static str,
    hint: Hint,
    spool: &'r mut Spool<'s>,
    session: &'r Session,
    entries: Vec<Entry>,
    compressed: Vec<Inflated>,
}

impl Reader<'_, '_> {
    /// The entries of a file, how it holds them, and all of it decompressed.
    fn file(&mut self, piece: &Piece) -> Result<(Form, Contents)> {
        if !starts_bundle(piece.bytes()) {
            return Ok((self.object(piece)?, Contents::from(piece.clone())));
        }
        let mut form = Form::Bundle;
        let mut plain = Vec::new();
        self.each(piece, |reader, one| {
            if bundle::is_bundle(one.bytes()) {
                reader.bundle(&one)?;
            } else {
                form = reader.object(&one)?;
            }
            plain.push(Part::File(one));
            Ok(())
        })?;
        let whole = if self.compressed.is_empty() { Contents::from(piece.clone()) } else { Contents(plain) };
        Ok((form, whole))
    }

    /// Hands on each bundle of those that stand one after another in `piece`, decompressed. Zeros may be between them: linkers put
    /// the sections of several objects together.
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

    /// Decompresses what starts at `at`; also returns the size it had. Read and written as a stream: neither form of it is in memory.
    fn inflate_at(&mut self, piece: &Piece, at: u64) -> Result<(u64, Piece)> {
        let told = || format!("Failed to decompress {}: {}", self.what, self.name);
        let started = Instant::now();
        let rest = piece.slice(at, piece.size() - at).with_context(told)?;
        let header = Header::read(rest.bytes(), at).with_context(told)?;
        let size = header.total.unwrap_or(rest.size());
        let fault = |what, offset| Malformed::new(what, at + offset);
        let whole = rest.slice(0, size).ok_or(fault("size field past the end", 0)).with_context(told)?;
        let packed = part(&whole, header.size, size - header.size)?;
        if !header.is_likely(packed.size()) {
            let what = "uncompressed size is more than the compressed data can hold";
            return Err(fault(what, header.size)).with_context(told);
        }
        let unpack = Unpack::new(header, BufReader::with_capacity(BUFFER, packed.reader()), at).with_context(told)?;
        let mut unpack = BufReader::with_capacity(BUFFER, unpack);
        let plain = self.spool.add(|out| io::copy(&mut unpack, out).map(drop).map_err(Malformed::or_io)).with_context(told)?;
        let from = unpack.get_ref().get_ref();
        let left = from.buffer().len() as u64 + from.get_ref().left();
        if left > 0 && header.total.is_some() {
            return Err(fault("bytes after the compressed data", header.size)).with_context(told);
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

    fn bundle(&mut self, piece: &Piece) -> Result<()> {
        let read = bundle::read_at(piece.bytes(), 0).with_context(|| self.name.to_owned())?;
        for entry in read.entries {
            let content = Content::Bytes(part(piece, entry.at, entry.object.len() as u64)?);
            self.entries.push(Entry { id: entry.id.to_owned(), content });
        }
        Ok(())
    }

    /// The entries that an object holds in its sections.
    fn object(&mut self, piece: &Piece) -> Result<Form> {
        if self.hint == Hint::Binary || fat_object::kind(piece.bytes()).is_none() {
            return Ok(Form::Nothing);
        }
        let sections = fat_object::bundle_sections(piece.bytes()).with_context(|| self.name.to_owned())?;
        for section in &sections {
            let bytes = part(piece, section.at, section.size)?;
            let mark = is_mark(&bytes) && Id::parse(section.id).kind == "host";
            let content = if mark { Content::HostOf(piece.clone()) } else { Content::Bytes(bytes) };
            self.entries.push(Entry { id: section.id.to_owned(), content });
        }
        if !sections.is_empty() {
            return Ok(Form::Sections);
        }
        for section in fat_object::hip_sections(piece.bytes()).with_context(|| self.name.to_owned())? {
            let bundles = part(piece, section.start, section.end - section.start)?;
            if starts_bundle(bundles.bytes()) {
                self.each(&bundles, |reader, one| reader.bundle(&one))?;
            }
        }
        Ok(Form::HipFatbin)
    }
}

/// Whether these are the bytes of a host's section that stands for the object itself: a zero, or several where a linker has put
/// objects together (`-r`).
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
fn host_object(object: &Piece) -> Result<Contents> {
    let plan = fat_object::without_bundles(object.bytes())?;
    contents(plan, object, &[])
}

/// What a plan says to write: parts of `object`, new sections out of `payloads`.
pub fn contents(plan: fat_object::Plan, object: &Piece, payloads: &[Piece]) -> Result<Contents> {
    let parts = plan.parts.into_iter().map(|one| {
        Ok(match one {
            fat_object::Part::Object(range) => Part::File(part(object, range.start, range.end - range.start)?),
            fat_object::Part::Section(index) => Part::File(payloads.get(index).context("a section without contents")?.clone()),
            fat_object::Part::Made(bytes) => Part::Made(bytes),
            fat_object::Part::Zeros(count) => Part::Zeros(count),
        })
    });
    Ok(Contents(parts.collect::<Result<_>>()?))
}
