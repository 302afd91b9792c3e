//! The recursion through a file and what it contains, with what becomes of each image. It meets the
//! images in the order in which [`contents`](crate::contents) has reported them, which is checked
//! at each of them.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use object::FileKind;

use super::image_ranges::Places;
use super::{Changed, Fixed, Levels, Outcome, Recompressed, Verdict};
use crate::contents::is_device_elf;
use crate::contents::report::{FileReport, Image, Step};
use crate::formats::archive::resize::plan;
use crate::formats::archive::{ArchiveFault, MemberContents, members};
use crate::formats::containers::check_nesting;
use crate::formats::magic::{self, ByteKind, byte_kind};
use crate::io::file_slice::{FileSlice, Spool};
use crate::io::rope::Rope;

const IN_DATA: &str = "cannot change images in data sections: the program loads them itself";

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
    /// The counts of recompressed containers.
    pub(super) recompressed: Recompressed,
    /// Where images are, where that is wanted.
    pub(super) places: Option<Places>,
}

/// Bytes to be rewritten, and where they are.
#[derive(Clone)]
pub(super) struct Location {
    pub(super) piece: FileSlice,
    /// For messages: `libx.a(a.o): .hip_fatbin`.
    pub(super) place: String,
    /// The file, and the members of archives: `libx.a(a.o)`.
    pub(super) file: String,
    /// Whether they are in a container: then they are an image, whatever their format.
    pub(super) inside: bool,
    pub(super) depth: usize,
}

impl Location {
    /// Something in these bytes.
    pub(super) fn within(&self, piece: FileSlice, place: String) -> Location {
        Location {
            piece,
            place,
            file: self.file.clone(),
            inside: self.inside,
            depth: self.depth + 1,
        }
    }

    /// The member at `place` in these bytes.
    pub(super) fn member(&self, piece: FileSlice, place: String) -> Location {
        Location {
            file: place.clone(),
            ..self.within(piece, place)
        }
    }

    /// Whether the byte at this offset of the file on disk is one of these.
    fn has(&self, at: u64) -> bool {
        let start = self.piece.file_offset(0);
        start.is_some_and(|start| at >= start && at - start < self.piece.size().max(1))
    }

    /// A container or image in these bytes.
    pub(super) fn inside(&self, piece: FileSlice, place: String) -> Location {
        Location {
            inside: true,
            ..self.within(piece, place)
        }
    }
}

impl<'a> Rewriter<'a> {
    /// Starts with the first image of `report`; each image has one of `verdicts`.
    ///
    /// # Errors
    /// The report has errors.
    pub(super) fn new(
        report: &'a FileReport,
        verdicts: &'a [Verdict],
        levels: Levels,
        spool: &'a mut Spool,
    ) -> Result<Self> {
        if let Some(error) = report.errors.first() {
            bail!("{error}");
        }
        Ok(Rewriter {
            images: &report.images,
            verdicts,
            next: 0,
            levels,
            spool,
            emptied: Vec::new(),
            recompressed: Recompressed::default(),
            places: None,
        })
    }

    /// What becomes of the file `piece`, which was opened at `path`. Every image of the report must
    /// be in it.
    pub(super) fn file(&mut self, path: &Path, piece: &FileSlice) -> Result<Outcome> {
        let place = path.display().to_string();
        let location = Location {
            piece: piece.clone(),
            file: place.clone(),
            place,
            inside: false,
            depth: 0,
        };
        let outcome = self.enter(&location)?;
        match self.images.get(self.next) {
            None => Ok(outcome),
            Some(image) => bail!(
                "{}: cannot change image {} at its location",
                location.place,
                image.index
            ),
        }
    }

    /// What becomes of the bytes at `location`.
    pub(super) fn enter(&mut self, location: &Location) -> Result<Outcome> {
        check_nesting(location.depth, &location.place)?;
        let data = location.piece.bytes();
        match byte_kind(data, !location.inside) {
            ByteKind::Container(_) => self.containers(location),
            ByteKind::TextBundle(comment) => self.text_bundle(location, comment),
            ByteKind::Archive if !location.inside => self.archive(location),
            ByteKind::Archive if self.of_archive(location).is_none() => Ok(Outcome::Same),
            ByteKind::Zip => self.pinned(location, "a zip file in another file"),
            ByteKind::Tar => self.pinned(location, "a tar archive"),
            ByteKind::Compressed(_) => self.pinned(location, "a compressed file"),
            ByteKind::Bitcode if !location.inside => self.bitcode(location),
            ByteKind::Unknown | ByteKind::Empty if !location.inside => Ok(Outcome::Same),
            ByteKind::Object(FileKind::Elf32 | FileKind::Elf64)
                if !location.inside && !is_device_elf(data) =>
            {
                let outcome = self.host_file(location)?;
                self.in_data(location)?;
                Ok(outcome)
            }
            ByteKind::Object(FileKind::Coff | FileKind::CoffBig) if !location.inside => {
                let outcome = self.host_file(location)?;
                self.in_data(location)?;
                Ok(outcome)
            }
            ByteKind::Object(FileKind::Pe32 | FileKind::Pe64) if !location.inside => {
                self.pinned(location, "a Windows program")
            }
            ByteKind::Object(FileKind::Elf32 | FileKind::Elf64) => self.image(location),
            ByteKind::Object(_) if !location.inside => {
                self.pinned(location, "an object of this format")
            }
            _ => self.image(location),
        }
    }

    /// What becomes of an image that stands by itself at `location`.
    pub(super) fn image(&mut self, location: &Location) -> Result<Outcome> {
        if let Some(count) = self.of_archive(location) {
            return self.whole(location, count);
        }
        // A frame of zstd may be listed by what is in it.
        let size = Some(location.piece.size())
            .filter(|_| !location.piece.bytes().starts_with(&magic::ZSTD));
        let number = self.next;
        Ok(
            match self.take(&location.place, size, location.piece.file_offset(0))? {
                Verdict::Keep => {
                    self.note_image(&location.piece, number);
                    Outcome::Same
                }
                Verdict::Drop => Outcome::Gone,
                Verdict::Replace(bytes) => Rope::from(bytes.clone()).into(),
            },
        )
    }

    /// How many of the next images are members of the archive at `location`, which is there in the
    /// place of an image.
    fn of_archive(&self, location: &Location) -> Option<usize> {
        let rest = self.images.get(self.next..).unwrap_or_default();
        let first = rest.first()?;
        let steps = first.steps_to_archive()?;
        let is_here = |image: &&Image| {
            let within = image
                .path
                .get(steps)
                .and_then(offset_of)
                .is_none_or(|at| location.has(at));
            within
                && image.steps_to_archive() == Some(steps)
                && image.path.get(..steps) == first.path.get(..steps)
        };
        Some(rest.iter().take_while(is_here).count()).filter(|count| *count > 0)
    }

    /// What becomes of the archive at `location`, which has the next `count` images: it stays or
    /// goes as a whole.
    fn whole(&mut self, location: &Location, count: usize) -> Result<Outcome> {
        let verdicts = self
            .verdicts
            .get(self.next..self.next + count)
            .unwrap_or_default();
        let outcome = if verdicts.iter().all(Verdict::is_keep) {
            self.note_image(&location.piece, self.next);
            Outcome::Same
        } else if verdicts
            .iter()
            .all(|verdict| matches!(verdict, Verdict::Drop))
        {
            Outcome::Gone
        } else {
            let why = "they share an archive of Intel's ocloc with images for other devices; select all of them or none";
            return Err(self.fixed(location, count, why.to_owned()).into());
        };
        self.next += count;
        Ok(outcome)
    }

    /// That the next `count` images, which are at `location`, cannot be changed there.
    pub(super) fn fixed(&self, location: &Location, count: usize, why: String) -> Fixed {
        let mut kinds: Vec<String> = Vec::new();
        for kind in self
            .images
            .iter()
            .skip(self.next)
            .take(count)
            .flat_map(|image| &image.kinds)
        {
            if !kinds.contains(kind) {
                kinds.push(kind.clone());
            }
        }
        Fixed {
            place: location.file.clone(),
            kinds,
            why,
        }
    }

    /// What becomes of the next image, which must be the one that has this size and this offset in
    /// the file.
    pub(super) fn take(
        &mut self,
        place: &str,
        size: Option<u64>,
        offset: Option<u64>,
    ) -> Result<&'a Verdict> {
        let next = self.images.get(self.next).zip(self.verdicts.get(self.next));
        let is_same = |listed: Option<u64>, here: Option<u64>| {
            listed.is_none() || here.is_none() || listed == here
        };
        let is_it = |(image, _): &(&Image, &Verdict)| {
            is_same(Some(image.size), size) && is_same(image.offset, offset)
        };
        let (image, verdict) = next
            .filter(is_it)
            .with_context(|| format!("{place}: the images differ from those listed at first"))?;
        self.next += 1;
        // What an image embeds goes and stays with it.
        let embedded =
            |next: &Image| next.path.len() > image.path.len() && next.path.starts_with(&image.path);
        while self.images.get(self.next).is_some_and(embedded) {
            if !self.verdicts.get(self.next).is_none_or(Verdict::is_keep)
                && !matches!(verdict, Verdict::Drop)
            {
                bail!("{place}: cannot change an image inside another image on its own");
            }
            self.next += 1;
        }
        Ok(verdict)
    }

    /// What becomes of the images at `location`, of which `what` says where they are: they cannot
    /// be changed there.
    pub(super) fn pinned(&mut self, location: &Location, what: &str) -> Result<Outcome> {
        let within = |offset: Option<u64>| offset.is_some_and(|at| location.has(at));
        // What was unpacked stands nowhere in the file, unless something around it does.
        let is_unpacked = |image: &Image| {
            image.offset.is_none() && image.path.iter().all(|step| offset_of(step).is_none())
        };
        let is_here = |image: &Image| {
            within(image.offset)
                || image.path.iter().any(|step| within(offset_of(step)))
                || is_unpacked(image)
        };
        while self.images.get(self.next).is_some_and(is_here) {
            if !self.verdicts.get(self.next).is_none_or(Verdict::is_keep) {
                if self
                    .images
                    .get(self.next)
                    .is_some_and(|image| image.in_data)
                {
                    bail!("{}: {IN_DATA}", location.place);
                }
                return Err(self
                    .fixed(location, 1, format!("they are in {what}"))
                    .into());
            }
            self.next += 1;
        }
        Ok(Outcome::Same)
    }

    /// What becomes of the bitcode at `location`: a device library, or a host module with images in
    /// it.
    fn bitcode(&mut self, location: &Location) -> Result<Outcome> {
        let start = location.piece.file_offset(0);
        let is_itself = |image: &Image| {
            image.offset == start && start.is_some() && image.size == location.piece.size()
        };
        if self.images.get(self.next).is_some_and(is_itself) {
            self.image(location)
        } else {
            self.pinned(location, "host bitcode")
        }
    }

    /// Passes over the images in plain data of the object or program at `location`: what points to
    /// them is not known.
    fn in_data(&mut self, location: &Location) -> Result<()> {
        while let Some(image) = self.images.get(self.next).filter(|image| image.in_data) {
            let (start, end) = (
                location.piece.file_offset(0),
                location.piece.file_offset(location.piece.size()),
            );
            let first = image.path.iter().rev().find_map(offset_of).or(image.offset);
            if let (Some(start), Some(end), Some(at)) = (start, end, first)
                && !(start..=end).contains(&at)
            {
                break;
            }
            if !self.verdicts.get(self.next).is_none_or(Verdict::is_keep) {
                bail!("{}: {IN_DATA}", location.place);
            }
            self.next += 1;
        }
        Ok(())
    }

    /// How many of the `count` next images stay as they are.
    pub(super) fn all_stay(&self, count: usize) -> bool {
        self.verdicts
            .iter()
            .skip(self.next)
            .take(count)
            .all(Verdict::is_keep)
    }

    /// The archive at `location`, with what becomes of the images in its members. The rest of it
    /// stays to the byte.
    fn archive(&mut self, location: &Location) -> Result<Outcome> {
        if location.piece.bytes().starts_with(&magic::THIN_ARCHIVE) {
            return self.pinned(location, "a thin archive; edit the member files");
        }
        self.members(location)
            .with_context(|| location.place.clone())
    }

    fn members(&mut self, location: &Location) -> Result<Outcome> {
        let describe = |fault: ArchiveFault| anyhow!(fault.in_archive(&location.place));
        let mut changed: Vec<((u64, u64), Rope)> = Vec::new();
        for member in members(location.piece.bytes()).map_err(describe)? {
            let member = member.map_err(describe)?;
            let place = format!("{}({})", location.place, member.shown_name());
            let MemberContents::Within { offset, size } = member.contents else {
                bail!("{place}: cannot change a member of a thin archive: edit the member file");
            };
            let piece = location
                .piece
                .slice(offset, size)
                .with_context(|| place.clone())?;
            let inner = location.member(piece, place);
            match self.enter(&inner)? {
                Outcome::Same => {}
                Outcome::Gone => {
                    self.emptied.push(inner.place);
                    changed.push(((offset, 0), Rope::default()));
                }
                Outcome::New(Changed { bytes, .. }) => {
                    changed.push(((offset, bytes.size()), bytes))
                }
            }
            location.piece.release();
        }
        if changed.is_empty() {
            return Ok(Outcome::Same);
        }
        let (sizes, ropes): (Vec<_>, Vec<_>) = changed.into_iter().unzip();
        let parts = plan(location.piece.bytes(), &sizes).map_err(describe)?;
        let bytes = Rope::of_parts(&location.piece, parts, ropes)
            .with_context(|| location.place.clone())?;
        Ok(bytes.into())
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
