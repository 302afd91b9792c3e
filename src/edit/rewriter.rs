//! The recursion through a file and what it contains, with what becomes of each image. It meets the images in the order in which
//! [`contents`](crate::contents) has reported them, which is checked at each of them.

use anyhow::{Context, Result, anyhow, bail};
use object::FileKind;

use super::places::Places;
use super::{Changed, Levels, Outcome, Verdict};
use crate::contents::is_device_elf;
use crate::contents::report::{Image, Step};
use crate::contents::what::{ByteKind, byte_kind};
use crate::formats::archive::MAX_NESTING;
use crate::formats::magic;
use crate::io::piece::{Piece, Spool};
use crate::io::rope::Rope;

/// The state of the recursion.
pub(super) struct Rewriter<'a> {
    pub(super) images: &'a [Image],
    pub(super) verdicts: &'a [Verdict],
    /// The image that is met next.
    pub(super) next: usize,
    pub(super) levels: Levels,
    pub(super) spool: &'a mut Spool,
    /// What has lost all of its images.
    pub(super) emptied: Vec<String>,
    /// Where images are, where that is wanted.
    pub(super) places: Option<Places>,
}

/// Bytes to be rewritten, and where they are.
#[derive(Clone)]
pub(super) struct Spot {
    pub(super) piece: Piece,
    /// For messages: `libx.a(a.o): .hip_fatbin`.
    pub(super) place: String,
    /// Whether they are in a container: then they are an image, whatever their format.
    pub(super) inside: bool,
    pub(super) depth: usize,
}

impl Spot {
    /// Something in these bytes.
    pub(super) fn within(&self, piece: Piece, place: String) -> Spot {
        Spot { piece, place, inside: self.inside, depth: self.depth + 1 }
    }

    /// A container or image in these bytes.
    pub(super) fn inside(&self, piece: Piece, place: String) -> Spot {
        Spot { inside: true, ..self.within(piece, place) }
    }
}

impl<'a> Rewriter<'a> {
    /// What becomes of the bytes at `spot`.
    pub(super) fn enter(&mut self, spot: &Spot) -> Result<Outcome> {
        if spot.depth > MAX_NESTING {
            bail!("{}: nested more than {MAX_NESTING} deep", spot.place);
        }
        let data = spot.piece.bytes();
        match byte_kind(data, !spot.inside) {
            ByteKind::Containers => self.containers(spot),
            ByteKind::TextBundle(comment) => self.text_bundle(spot, comment),
            ByteKind::Archive if !spot.inside => self.archive(spot),
            ByteKind::Archive => self.pinned(spot, "an archive in a container"),
            ByteKind::Zip => self.pinned(spot, "a zip file in another file"),
            ByteKind::Tar => self.pinned(spot, "a tar archive"),
            ByteKind::Compressed(_) => self.pinned(spot, "a compressed file"),
            ByteKind::Bitcode if !spot.inside => self.pinned(spot, "bitcode for the host"),
            ByteKind::Unknown | ByteKind::Empty if !spot.inside => Ok(Outcome::Same),
            ByteKind::Object(FileKind::Elf32 | FileKind::Elf64) if !spot.inside && !is_device_elf(data) => self.host_file(spot),
            ByteKind::Object(FileKind::Coff | FileKind::CoffBig) if !spot.inside => self.host_file(spot),
            ByteKind::Object(FileKind::Pe32 | FileKind::Pe64) if !spot.inside => self.pinned(spot, "a program for Windows"),
            ByteKind::Object(FileKind::Elf32 | FileKind::Elf64) => self.image(spot),
            ByteKind::Object(_) if !spot.inside => self.pinned(spot, "an object of this format"),
            _ => self.image(spot),
        }
    }

    /// What becomes of an image that stands by itself at `spot`.
    pub(super) fn image(&mut self, spot: &Spot) -> Result<Outcome> {
        // A frame of zstd may be listed by what is in it.
        let size = Some(spot.piece.size()).filter(|_| !spot.piece.bytes().starts_with(&magic::ZSTD));
        let number = self.next;
        Ok(match self.take(&spot.place, size, spot.piece.file_offset(0))? {
            Verdict::Keep => {
                self.note_image(&spot.piece, number);
                Outcome::Same
            }
            Verdict::Drop => Outcome::Gone,
            Verdict::Replace(bytes) => Outcome::New(Changed::from(Rope::from(bytes.clone()))),
        })
    }

    /// What becomes of the next image, which must be the one that has this size and this offset in the file.
    pub(super) fn take(&mut self, place: &str, size: Option<u64>, offset: Option<u64>) -> Result<&'a Verdict> {
        let next = self.images.get(self.next).zip(self.verdicts.get(self.next));
        let is_same = |listed: Option<u64>, here: Option<u64>| listed.is_none() || here.is_none() || listed == here;
        let is_it = |(image, _): &(&Image, &Verdict)| is_same(Some(image.size), size) && is_same(image.offset, offset);
        let (image, verdict) =
            next.filter(is_it).with_context(|| format!("{place}: the images here are not those that were listed"))?;
        self.next += 1;
        // What an image embeds goes and stays with it.
        let embedded = |next: &Image| next.path.len() > image.path.len() && next.path.starts_with(&image.path);
        while self.images.get(self.next).is_some_and(embedded) {
            if !self.verdicts.get(self.next).is_none_or(Verdict::is_keep) && !matches!(verdict, Verdict::Drop) {
                bail!("{place}: an image in another image cannot be changed by itself");
            }
            self.next += 1;
        }
        Ok(verdict)
    }

    /// What becomes of the images at `spot`, of which `what` says where they are: they cannot be changed there.
    pub(super) fn pinned(&mut self, spot: &Spot, what: &str) -> Result<Outcome> {
        let (start, size) = (spot.piece.file_offset(0), spot.piece.size());
        let within =
            |offset: Option<u64>| matches!((start, offset), (Some(start), Some(at)) if at >= start && at - start < size.max(1));
        // What was unpacked stands nowhere in the file, unless something around it does.
        let is_unpacked = |image: &Image| image.offset.is_none() && image.path.iter().all(|step| offset_of(step).is_none());
        let is_here =
            |image: &Image| within(image.offset) || image.path.iter().any(|step| within(offset_of(step))) || is_unpacked(image);
        while self.images.get(self.next).is_some_and(is_here) {
            if !self.verdicts.get(self.next).is_none_or(Verdict::is_keep) {
                bail!("{}: images in {what} cannot be changed", spot.place);
            }
            self.next += 1;
        }
        Ok(Outcome::Same)
    }

    /// How many of the `count` next images stay as they are.
    pub(super) fn all_stay(&self, count: usize) -> bool {
        self.verdicts.iter().skip(self.next).take(count).all(Verdict::is_keep)
    }

    /// That every image of the report was met.
    pub(super) fn check_all_met(&self, spot: &Spot) -> Result<()> {
        match self.images.get(self.next) {
            None => Ok(()),
            Some(image) => Err(anyhow!("{}: image {} is where none can be changed", spot.place, image.index)),
        }
    }

    fn archive(&mut self, spot: &Spot) -> Result<Outcome> {
        if spot.piece.bytes().starts_with(&magic::THIN_ARCHIVE) {
            return self.pinned(spot, "a thin archive, whose members are files of their own,");
        }
        super::archives::rewrite(self, spot).with_context(|| spot.place.clone())
    }
}

fn offset_of(step: &Step) -> Option<u64> {
    match step {
        Step::Member { offset, .. }
        | Step::Compressed { offset, .. }
        | Step::Section { offset, .. }
        | Step::Symbol { offset, .. }
        | Step::Container { offset, .. } => *offset,
    }
}
