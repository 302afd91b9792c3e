//! Containers: each is composed anew of the images that stay and of those that come.

use std::ops::Range;

use anyhow::{Context, Result};

use super::blocks::Block;
use super::compress;
use super::rewriter::{Location, Rewriter};
use super::{Changed, Moved, Outcome, Repack};
use crate::contents::inflate;
use crate::contents::report::Step;
use crate::error::Malformed;
use crate::formats::bundle::{self, NewObject};
use crate::formats::compose::{Item, Part};
use crate::formats::compressed::{Header, Method};
use crate::formats::containers::{Kind, row};
use crate::formats::offload_binary::{self, Entry, Head};
use crate::io::file_slice::FileSlice;
use crate::io::rope::Rope;

/// A container of a row.
pub(super) struct Container {
    pub(super) kind: Kind,
    /// The range in the row.
    pub(super) old: Range<u64>,
    pub(super) piece: FileSlice,
    /// For messages.
    pub(super) place: String,
}

/// The containers in `piece`, which is at `place`.
pub(super) fn containers(
    piece: &FileSlice,
    place: &str,
) -> impl Iterator<Item = Result<Container>> {
    row(piece.bytes()).map(move |item| {
        let item = item.map_err(|fault| fault.reason);
        let found = item.with_context(|| place.to_owned())?;
        let (kind, old) = (found.kind, found.range);
        let place = format!("{place}: {} at {:#x}", kind.name(), old.start);
        let whole = piece.slice(old.start, old.end - old.start);
        Ok(Container {
            kind,
            piece: whole.with_context(|| format!("{place}: past the end"))?,
            old,
            place,
        })
    })
}

/// The items of the new container with these images; none where all of them stay.
fn items<N>(slots: &[Block]) -> Option<Vec<Item<N>>> {
    let item = |(entry, slot): (usize, &Block)| match &slot.outcome {
        Outcome::Same => Some(Item::Old(entry)),
        Outcome::Gone => None,
        Outcome::New(new) => Some(Item::Changed {
            entry,
            size: new.bytes.size(),
        }),
    };
    let is_new = !slots.iter().all(Block::is_same);
    is_new.then(|| slots.iter().enumerate().filter_map(item).collect())
}

impl Rewriter<'_> {
    /// What becomes of a container of the row at `location`.
    pub(super) fn container(
        &mut self,
        location: &Location,
        container: Container,
    ) -> Result<Outcome> {
        let at = container.old.start;
        let inner = location.inside(container.piece, container.place);
        let outcome = match container.kind {
            Kind::OffloadBinary => self.offload_binary(&inner),
            Kind::Bundle => self.bundle(&inner),
            Kind::CompressedBundle => self.compressed_bundle(&inner, at),
            Kind::Fatbinary => self.fatbinary(&inner),
        };
        inner.piece.release();
        outcome
    }

    fn offload_binary(&mut self, location: &Location) -> Result<Outcome> {
        let place = || location.place.clone();
        let head = Head::read(location.piece.bytes(), 0).with_context(place)?;
        let Some(packed) = head.packed else {
            return self.plain_offload_binary(location);
        };
        let method = if packed.zstd {
            Method::Zstd
        } else {
            Method::Zlib
        };
        let start = head.plain_start(location.piece.bytes()).unwrap_or_default();
        let plain = inflate::offload_binary(
            &location.piece.from(packed.at),
            method,
            start,
            packed.plain_size,
        )
        .with_context(place)?;
        if self.places.is_some() {
            self.note_stream(location, &location.piece.from(packed.at), plain, packed.at)?;
            return Ok(Outcome::Same);
        }
        let first = self.next;
        match self.plain_offload_binary(&location.inside(plain.clone(), location.place.clone()))? {
            Outcome::Gone => Ok(Outcome::Gone),
            Outcome::Same if !self.packs_anew(first) => Ok(Outcome::Same),
            Outcome::Same => {
                let packed =
                    compress::offload_binary(&plain.into(), method, self.levels, self.spool)?;
                Ok(self.smaller(packed, location.piece.size()))
            }
            Outcome::New(new) => {
                compress::offload_binary(&new.bytes, method, self.levels, self.spool)
                    .map(Outcome::from)
            }
        }
    }

    fn plain_offload_binary(&mut self, location: &Location) -> Result<Outcome> {
        let images = offload_binary::read_all(location.piece.bytes())
            .with_context(|| location.place.clone())?;
        let images: Vec<Range<u64>> = images
            .iter()
            .map(|image| image.at..image.at + image.image.len() as u64)
            .collect();
        let slots = self.slots(location, images)?;
        let Some(items) = items::<Entry<'_>>(&slots) else {
            return Ok(Outcome::Same);
        };
        if items.is_empty() {
            return Ok(Outcome::Gone);
        }
        let parts = offload_binary::compose(location.piece.bytes(), &items)
            .with_context(|| location.place.clone())?;
        joined(&location.piece, parts, slots)
    }

    fn bundle(&mut self, location: &Location) -> Result<Outcome> {
        let place = || location.place.clone();
        let head = bundle::read_head(location.piece.bytes(), location.piece.size())
            .map_err(Malformed::or_io)
            .with_context(place)?;
        let ranges = head.slots.iter().map(|slot| {
            // The offset of an empty entry has no meaning.
            let start = if slot.size == 0 { 0 } else { slot.offset };
            start..start + slot.size
        });
        let slots = self.slots(location, ranges.collect())?;
        let Some(items) = items::<NewObject<'_>>(&slots) else {
            return Ok(Outcome::Same);
        };
        let ids = || head.slots.iter().map(|slot| slot.id.as_str());
        self.note_emptied(&slots, ids(), &location.place);
        let parts = bundle::compose(location.piece.bytes(), &items).with_context(place)?;
        joined(&location.piece, parts, slots)
    }

    /// Notes that only the host's entries are left of a bundle.
    fn note_emptied<'i>(
        &mut self,
        slots: &[Block],
        ids: impl Iterator<Item = &'i str>,
        place: &str,
    ) {
        let device =
            |(slot, id): (&Block, &str)| (!id.starts_with("host")).then_some(slot.is_gone());
        let gone: Vec<bool> = slots.iter().zip(ids).filter_map(device).collect();
        if !gone.is_empty() && gone.iter().all(|gone| *gone) {
            self.emptied.push(place.to_owned());
        }
    }

    pub(super) fn text_bundle(&mut self, location: &Location, comment: &str) -> Result<Outcome> {
        let place = || location.place.clone();
        let spans = bundle::text::scan(comment, location.piece.bytes())
            .map_err(Malformed::or_io)
            .with_context(place)?;
        let slots = self.slots(
            location,
            spans
                .iter()
                .map(|span| span.start..span.start + span.size)
                .collect(),
        )?;
        let Some(items) = items::<NewObject<'_>>(&slots) else {
            return Ok(Outcome::Same);
        };
        self.note_emptied(
            &slots,
            spans.iter().map(|span| span.id.as_str()),
            &location.place,
        );
        // Text without the bundle's markers would be taken for an image of the container that it is
        // in.
        if items.is_empty() && location.inside {
            return Ok(Outcome::Gone);
        }
        let parts =
            bundle::text::compose(comment, location.piece.bytes(), &items).with_context(place)?;
        joined(&location.piece, parts, slots)
    }

    /// The bundle that is compressed as a whole. `at` is where it is in what holds it. It is
    /// inflated only if it changes.
    fn compressed_bundle(&mut self, location: &Location, at: u64) -> Result<Outcome> {
        let place = || location.place.clone();
        let header = Header::read(location.piece.bytes(), 0).with_context(place)?;
        if self.places.is_some() {
            let plain = inflate::compressed_bundle(&location.piece.from(header.size), header)
                .with_context(place)?;
            self.note_stream(location, &location.piece.from(header.size), plain, 0)?;
            return Ok(Outcome::Same);
        }
        if let Some(offset) = location
            .piece
            .file_offset(0)
            .filter(|_| self.levels.repack == Repack::No)
        {
            let is_it = |step: &Step| matches!(step, Step::Container { name: "compressed-bundle", offset: Some(start), within, .. } if *start == offset && *within == at);
            let rest = self.images.get(self.next..).unwrap_or_default();
            let count = rest
                .iter()
                .take_while(|image| image.path.iter().any(is_it))
                .count();
            if self.all_stay(count) {
                self.next += count;
                return Ok(Outcome::Same);
            }
        }
        let plain = inflate::compressed_bundle(&location.piece.from(header.size), header)
            .with_context(place)?;
        let first = self.next;
        match self.enter(&location.inside(plain.clone(), location.place.clone()))? {
            Outcome::Gone => Ok(Outcome::Gone),
            Outcome::Same if !self.packs_anew(first) => Ok(Outcome::Same),
            Outcome::Same => {
                let sorted = if self.levels.sort {
                    compress::sorted(&plain).with_context(place)?
                } else {
                    None
                };
                let bundle = sorted.unwrap_or_else(|| plain.into());
                let packed = compress::bundle(&bundle, header, self.levels, self.spool)?;
                Ok(self.smaller(packed, location.piece.size()))
            }
            Outcome::New(new) => {
                compress::bundle(&new.bytes, header, self.levels, self.spool).map(Outcome::from)
            }
        }
    }

    /// What becomes of compressed data of `size` bytes that is `packed` anew and else the same: it
    /// stays as it is where only what becomes smaller is wanted, and this does not.
    fn smaller(&mut self, packed: Rope, size: u64) -> Outcome {
        self.recompressed.all += 1;
        if self.levels.only_smaller && packed.size() >= size {
            return Outcome::Same;
        }
        self.recompressed.smaller += 1;
        packed.into()
    }

    /// Whether a container is compressed anew in which nothing changes. Its images are those from
    /// `first` up to the next one.
    fn packs_anew(&self, first: usize) -> bool {
        let images = self
            .images
            .get(first..self.next)
            .unwrap_or_default()
            .iter()
            .filter(|image| image.is_device());
        let mut devices = images.map(|image| (&image.triple, &image.target));
        match self.levels.repack {
            Repack::No => false,
            Repack::Shared => {
                let first = devices.next();
                devices.any(|device| Some(device) != first)
            }
            Repack::All => true,
        }
    }

    /// What becomes of the images of a container, in their order.
    fn slots(&mut self, location: &Location, ranges: Vec<Range<u64>>) -> Result<Vec<Block>> {
        let mut slots = Vec::new();
        for old in ranges {
            let piece = location
                .piece
                .slice(old.start, old.end.saturating_sub(old.start));
            let inner = location.inside(
                piece.with_context(|| format!("{}: past the end", location.place))?,
                location.place.clone(),
            );
            slots.push(Block {
                outcome: self.enter(&inner)?,
                old,
            });
        }
        Ok(slots)
    }
}

/// The container that is assembled from `parts` of `piece`, in which `slots` are the images.
fn joined(piece: &FileSlice, parts: Vec<Part>, slots: Vec<Block>) -> Result<Outcome> {
    let mut kept: Vec<Range<u64>> = Vec::new();
    // By the index of their items.
    let (mut ranges, mut new, mut inner) = (Vec::new(), Vec::new(), Vec::new());
    for Block { old, outcome } in slots {
        let changed = match outcome {
            Outcome::Gone => continue,
            Outcome::Same => {
                kept.push(old.clone());
                Changed::default()
            }
            Outcome::New(changed) => changed,
        };
        ranges.push(old);
        new.push(changed.bytes);
        inner.push(changed.moved);
    }
    let (mut moved, mut start) = (Vec::new(), 0);
    for part in &parts {
        let size = part.size(|index| new.get(index).map_or(0, Rope::size));
        match part {
            Part::Old(range) => {
                let is_here = |old: &&Range<u64>| {
                    range.start <= old.start && old.end <= range.end && !old.is_empty()
                };
                moved.extend(kept.iter().filter(is_here).map(|old| {
                    let at = start + (old.start - range.start);
                    Moved {
                        old: old.clone(),
                        new: at..at + (old.end - old.start),
                    }
                }));
            }
            Part::New(index) => {
                if let Some((old, inner)) = ranges.get(*index).zip(inner.get_mut(*index)) {
                    moved.extend(inner.drain(..).map(|moved| moved.within(old.start, start)));
                    moved.push(Moved {
                        old: old.clone(),
                        new: start..start + size,
                    });
                }
            }
            Part::Bytes(_) | Part::Zeros(_) => {}
        }
        start += size;
    }
    let bytes = Rope::of_parts(piece, parts, new)?;
    Ok(Outcome::New(Changed { bytes, moved }))
}
