//! Goes into a file, and into whatever is in it, down to the device images. Each kind of container has its way; what is wrong with one
//! ends that one, and is told beside what the rest holds.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Error, Result, bail};
use object::FileKind;

use super::image::ImageMetadata;
use super::report::{Image, Place, Registration};
use super::what::{What, what};
use super::{Request, archive, bitcode, containers, image, objects, registers};
use crate::error;
use crate::formats::archive::MAX_NESTING;
use crate::io::piece::Piece;
use crate::sys::signals::Signals;

/// How many things are gone into in a file of no size; larger ones may hold one more for each [`BYTES_EACH`]. Things that hold each
/// other several times could else make a small file endless: a thin archive that names itself twice does.
const FEW: u64 = 4096;
const BYTES_EACH: u64 = 16;

/// What is found on the way.
pub(super) struct Walk<'r> {
    pub(super) request: &'r Request,
    pub(super) signals: Arc<Signals>,
    pub(super) images: Vec<Image>,
    pub(super) registrations: Vec<Registration>,
    pub(super) errors: Vec<String>,
    /// How many more things are gone into.
    left: u64,
}

/// Bytes on the way: where they are, and what is known of them from what they are in.
#[derive(Clone)]
pub(super) struct Cursor {
    pub(super) piece: Piece,
    /// The file on disk that they are in, for what is found beside it.
    pub(super) file: PathBuf,
    pub(super) place: Place,
    pub(super) facts: ImageMetadata,
    /// Whether a container holds them: then they are an image, whatever they look like.
    pub(super) inside: bool,
    pub(super) depth: usize,
}

impl Cursor {
    /// What is in these bytes: one step further.
    pub(super) fn deeper(&self, piece: Piece, place: Place, facts: ImageMetadata) -> Cursor {
        Cursor { piece, file: self.file.clone(), place, facts, inside: self.inside, depth: self.depth + 1 }
    }

    /// The same in a container.
    pub(super) fn inside(self) -> Cursor {
        Cursor { inside: true, ..self }
    }
}

impl<'r> Walk<'r> {
    /// A walk through a file of `size` bytes.
    pub(super) fn new(request: &'r Request, signals: Arc<Signals>, size: u64) -> Self {
        let left = FEW + size / BYTES_EACH;
        Walk { request, signals, images: Vec::new(), registrations: Vec::new(), errors: Vec::new(), left }
    }

    /// Goes into `cursor`. What cannot be read is noted.
    pub(super) fn enter(&mut self, cursor: &Cursor) {
        match self.left {
            0 => return,
            1 => self
                .errors
                .push(format!("{}: more things in it, or in one another, than a file of its size has", cursor.file.display())),
            _ => {}
        }
        self.left -= 1;
        if let Err(error) = self.go(cursor) {
            self.note(&error);
        }
    }

    /// Notes an error.
    pub(super) fn note(&mut self, error: &Error) {
        self.errors.push(error::chain(error));
    }

    fn go(&mut self, cursor: &Cursor) -> Result<()> {
        self.signals.check()?;
        if cursor.depth > MAX_NESTING {
            bail!("{}: nested more than {MAX_NESTING} deep", cursor.place);
        }
        match what(cursor.piece.bytes(), !cursor.inside) {
            What::Containers => containers::sequence(self, cursor),
            What::TextBundle(comment) => containers::text_bundle(self, cursor, comment),
            What::Archive => archive::members(self, cursor),
            What::Object(kind) if cursor.inside => self.device_object(cursor, kind),
            What::Object(kind) => self.host_object(cursor, kind),
            What::Bitcode if !cursor.inside => bitcode::host(self, cursor),
            What::Unknown | What::Empty if !cursor.inside => Ok(()),
            _ => image::add(self, cursor),
        }
    }

    /// An object or program of the host, or device code by itself.
    fn host_object(&mut self, cursor: &Cursor, kind: FileKind) -> Result<()> {
        if matches!(kind, FileKind::Elf32 | FileKind::Elf64) && image::is_device(cursor.piece.bytes()) {
            return self.device_object(cursor, kind);
        }
        objects::sections(self, cursor)?;
        objects::variables(self, cursor, None)?;
        registers::of(self, cursor).with_context(|| cursor.place.to_string())
    }

    /// An object as an image; it may be a fat one.
    fn device_object(&mut self, cursor: &Cursor, kind: FileKind) -> Result<()> {
        image::add(self, cursor)?;
        // What a container holds need not be whole, and it need not be what it looks like.
        if matches!(kind, FileKind::Elf32 | FileKind::Elf64) && objects::is_readable(cursor.piece.bytes()) {
            objects::sections(self, cursor)?;
        }
        Ok(())
    }
}
