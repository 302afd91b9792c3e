//! Rebuilds containers: composes each container from its remaining and new entries, and lays out
//! rows of containers.

use std::ops::Range;

use anyhow::{Context, Result, bail, ensure};

use super::compress;
use super::rewriter::{Location, Rewriter};
use super::{Changed, Moved, Outcome, Repack, Verdict};
use crate::contents::inflate;
use crate::contents::tree::{Node, NodeKind};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::Rope;
use offload_formats::bundle::{self, NewObject};
use offload_formats::compose::{Item, Part};
use offload_formats::compressed::Header;
use offload_formats::containers::Kind;
use offload_formats::error::Malformed;
use offload_formats::fatbin::{self, Code};
use offload_formats::kpack::{self, Archive, Scheme};
use offload_formats::magic::{ByteKind, byte_kind};
use offload_formats::offload_binary::{self, Entry, Head};

/// The alignment of containers in a file without sections.
pub(super) const ALIGNMENT: u64 = 8;
/// The zstd level of NVIDIA's tools.
const FATBINARY_LEVEL: i32 = 3;

/// A container of a row, or an entry of a container.
pub(super) struct Block {
    /// Its old range.
    pub(super) old: Range<u64>,
    pub(super) outcome: Outcome,
}

impl Block {
    pub(super) fn is_same(&self) -> bool {
        matches!(self.outcome, Outcome::Same)
    }

    pub(super) fn is_gone(&self) -> bool {
        matches!(self.outcome, Outcome::Gone)
    }
}

/// The entries of the new container, with these images; `None` if all of them stay.
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
    /// Rebuilds a row of containers.
    pub(super) fn containers(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        let blocks = self.blocks(node, location)?;
        if blocks.iter().all(Block::is_same) {
            return Ok(Outcome::Same);
        }
        if blocks.iter().all(Block::is_gone) {
            return Ok(Outcome::Gone);
        }
        Ok(Outcome::New(
            lay_out(&location.piece, blocks, ALIGNMENT, |_| false)
                .with_context(|| location.place.clone())?,
        ))
    }

    /// Rebuilds the children of `node`: the containers of a row, or the entries of a container.
    pub(super) fn blocks(&mut self, node: &Node, location: &Location) -> Result<Vec<Block>> {
        let mut blocks = Vec::with_capacity(node.children.len());
        for child in &node.children {
            let inner = location.entry(child)?;
            blocks.push(Block {
                old: child.range.clone(),
                outcome: self.rebuild(child, &inner)?,
            });
        }
        Ok(blocks)
    }

    /// Rebuilds a container.
    pub(super) fn container(
        &mut self,
        kind: Kind,
        node: &Node,
        location: &Location,
    ) -> Result<Outcome> {
        let outcome = match kind {
            Kind::OffloadBinary => self.offload_binary(node, location),
            Kind::Bundle => self.bundle(node, location),
            Kind::CompressedBundle => self.compressed_bundle(node, location),
            Kind::Fatbinary => self.fatbinary(node, location),
        };
        // Release the pages that the headers occupied.
        location.piece.release();
        outcome
    }

    fn offload_binary(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        let place = || location.place.clone();
        let head = Head::read(location.piece.bytes(), 0).with_context(place)?;
        let Some(packed) = head.packed else {
            return self.plain_offload_binary(node, location);
        };
        if self.stays(node) {
            return Ok(Outcome::Same);
        }
        let method = inflate::method_of(&packed);
        let plain = inflate::offload_binary(&location.piece, &head, &packed).with_context(place)?;
        match self.plain_offload_binary(node, &location.decompressed(plain.clone()))? {
            Outcome::Gone => Ok(Outcome::Gone),
            Outcome::Same if !self.recompresses(node) => Ok(Outcome::Same),
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

    fn plain_offload_binary(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        let entries = self.blocks(node, location)?;
        let Some(items) = items::<Entry<'_>>(&entries) else {
            return Ok(Outcome::Same);
        };
        if items.is_empty() {
            return Ok(Outcome::Gone);
        }
        let parts = offload_binary::compose(location.piece.bytes(), &items)
            .with_context(|| location.place.clone())?;
        joined(&location.piece, parts, entries)
    }

    fn bundle(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        let place = || location.place.clone();
        let entries = self.blocks(node, location)?;
        let Some(items) = items::<NewObject<'_>>(&entries) else {
            return Ok(Outcome::Same);
        };
        let head = bundle::read_head(location.piece.bytes(), location.piece.size())
            .map_err(Malformed::or_io)
            .with_context(place)?;
        let ids = head.slots.iter().map(|slot| slot.id.as_str());
        self.note_emptied(&entries, ids, &location.place);
        let parts = bundle::compose(location.piece.bytes(), &items).with_context(place)?;
        joined(&location.piece, parts, entries)
    }

    /// Reports a bundle that has lost all entries but those of the host.
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

    pub(super) fn text_bundle(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        let place = || location.place.clone();
        let entries = self.blocks(node, location)?;
        let Some(items) = items::<NewObject<'_>>(&entries) else {
            return Ok(Outcome::Same);
        };
        let data = location.piece.bytes();
        let ByteKind::TextBundle(comment) = byte_kind(data, !location.inside) else {
            bail!("{}: not a text bundle", location.place);
        };
        let spans = bundle::text::scan(comment, data)
            .map_err(Malformed::or_io)
            .with_context(place)?;
        self.note_emptied(
            &entries,
            spans.iter().map(|span| span.id.as_str()),
            &location.place,
        );
        // Without the bundle's markers the remaining text would look like an image of the outer
        // container.
        if items.is_empty() && location.inside {
            return Ok(Outcome::Gone);
        }
        let parts = bundle::text::compose(comment, data, &items).with_context(place)?;
        joined(&location.piece, parts, entries)
    }

    /// Rebuilds a kpack archive. New code objects are compressed if the old ones are.
    pub(super) fn kpack(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        let place = || location.place.clone();
        let mut blocks = self.blocks(node, location)?;
        if blocks.iter().all(Block::is_same) {
            return Ok(Outcome::Same);
        }
        if blocks.iter().all(Block::is_gone) {
            return Ok(Outcome::Gone);
        }
        let data = location.piece.bytes();
        let scheme = Archive::read(data).with_context(place)?.scheme;
        let mut items = Vec::with_capacity(blocks.len());
        for (entry, block) in blocks.iter_mut().enumerate() {
            items.push(match &mut block.outcome {
                Outcome::Same => Item::Old(entry),
                Outcome::Gone => continue,
                Outcome::New(Changed { bytes, .. }) => {
                    let original_size = bytes.size();
                    if scheme == Scheme::ZstdPerKernel {
                        let level = self.levels.level.unwrap_or(kpack::LEVEL);
                        *bytes = compress::zstd_frame(bytes, level, self.spool)?;
                    }
                    let size = kpack::Code {
                        stored: bytes.size(),
                        original_size,
                    };
                    Item::Changed { entry, size }
                }
            });
        }
        let parts = kpack::compose(data, &items).with_context(place)?;
        joined(&location.piece, parts, blocks)
    }

    /// Rebuilds a bundle that is compressed as a whole. It is decompressed only if it changes.
    fn compressed_bundle(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        let place = || location.place.clone();
        let Some(contents) = node.children.first().filter(|_| !self.stays(node)) else {
            return Ok(Outcome::Same);
        };
        let header = Header::read(location.piece.bytes(), 0).with_context(place)?;
        let plain = inflate::compressed_bundle(&location.piece.from(header.size), header)
            .with_context(place)?;
        match self.rebuild(contents, &location.decompressed(plain.clone()))? {
            Outcome::Gone => Ok(Outcome::Gone),
            Outcome::Same if !self.recompresses(node) => Ok(Outcome::Same),
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

    /// The outcome for compressed data of `size` bytes that was recompressed to `packed`, with the
    /// same contents. With `only_smaller` the old data stays unless `packed` is smaller.
    fn smaller(&mut self, packed: Rope, size: u64) -> Outcome {
        self.recompressed.all += 1;
        if self.levels.only_smaller && packed.size() >= size {
            return Outcome::Same;
        }
        self.recompressed.smaller += 1;
        packed.into()
    }

    /// Whether a compressed container stays as it is: no image changes, and no recompression is
    /// requested.
    fn stays(&self, node: &Node) -> bool {
        self.levels.repack == Repack::No && self.all_stay(node)
    }

    /// Whether to recompress a container whose images do not change.
    fn recompresses(&self, node: &Node) -> bool {
        let images = self
            .images
            .get(node.images.clone())
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

    /// Rebuilds a fatbinary. Entries stay byte for byte, are removed, or get other code, which is
    /// compressed like that of the old entry. A fatbinary without entries remains, because its
    /// registration refers to it.
    fn fatbinary(&mut self, node: &Node, location: &Location) -> Result<Outcome> {
        let place = || location.place.clone();
        let read = fatbin::read_all(location.piece.bytes()).with_context(place)?;
        let entries: Vec<&fatbin::Entry<'_>> = read.iter().flat_map(|one| &one.entries).collect();
        ensure!(
            entries.len() == node.children.len(),
            "{}: the file has changed",
            location.place
        );
        let (mut items, mut new) = (Vec::new(), Vec::new());
        for (number, (entry, child)) in entries.iter().zip(&node.children).enumerate() {
            let entry_location = location.entry(child)?;
            match self.fatbinary_entry(entry, child, &entry_location)? {
                EntryOutcome::Gone => continue,
                EntryOutcome::Same => {
                    items.push(Item::Old(number));
                    new.push(Rope::default());
                }
                EntryOutcome::Code(code, bytes) => {
                    items.push(Item::Changed {
                        entry: number,
                        size: code,
                    });
                    new.push(bytes);
                }
            }
        }
        let is_same = |item: &Item<fatbin::NewEntry<'_>, Code>| matches!(item, Item::Old(_));
        if items.len() == entries.len() && items.iter().all(is_same) {
            return Ok(Outcome::Same);
        }
        if items.is_empty() && !entries.is_empty() {
            self.emptied.push(location.place.clone());
        }
        let parts = fatbin::compose(location.piece.bytes(), &items).with_context(place)?;
        let bytes = Rope::of_parts(&location.piece, parts, new).with_context(place)?;
        Ok(bytes.into())
    }

    fn fatbinary_entry(
        &mut self,
        entry: &fatbin::Entry<'_>,
        node: &Node,
        location: &Location,
    ) -> Result<EntryOutcome> {
        let place = || location.place.clone();
        let level = self.levels.level.unwrap_or(FATBINARY_LEVEL);
        match self.entry_verdict(node, location)? {
            Verdict::Drop => Ok(EntryOutcome::Gone),
            Verdict::Replace(_) if entry.kind == fatbin::Kind::LtoIr => {
                bail!(
                    "{}: cannot replace LTO IR: only NVIDIA's tools can write its format",
                    location.place
                )
            }
            Verdict::Replace(code) => {
                let (code, bytes) = packed(code, entry, level, self.spool).with_context(place)?;
                Ok(EntryOutcome::Code(code, bytes))
            }
            Verdict::Keep if self.levels.repack != Repack::All || entry.method.is_none() => {
                Ok(EntryOutcome::Same)
            }
            Verdict::Keep => {
                let is_lz4 = entry.method == Some(fatbin::Method::Lz4);
                self.recompressed.all += 1;
                self.recompressed.lz4 += u64::from(is_lz4);
                if is_lz4 || entry.kind == fatbin::Kind::LtoIr {
                    return Ok(EntryOutcome::Same);
                }
                let plain = inflate::fatbinary_entry(
                    &location.piece,
                    fatbin::Method::Zstd,
                    entry.plain_size,
                )
                .with_context(place)?;
                let (code, bytes) = packed(&plain, entry, level, self.spool).with_context(place)?;
                if self.levels.only_smaller && bytes.size() >= entry.stored.len() as u64 {
                    return Ok(EntryOutcome::Same);
                }
                self.recompressed.smaller += 1;
                Ok(EntryOutcome::Code(code, bytes))
            }
        }
    }
}

impl<'a> Rewriter<'a> {
    /// The verdict of the image in an entry of a fatbinary.
    fn entry_verdict(&self, entry: &Node, location: &Location) -> Result<&'a Verdict> {
        match entry.children.first() {
            Some(image) if matches!(image.kind, NodeKind::Image) => self.verdict(image, location),
            _ => self
                .fixed(entry, location, "an entry of a fatbinary")
                .map(|_| &Verdict::Keep),
        }
    }
}

/// An entry of a fatbinary after the edit.
enum EntryOutcome {
    Same,
    Gone,
    /// New code, as stored in the entry.
    Code(Code, Rope),
}

/// The largest alignment of a section with containers.
const LARGEST_ALIGN: u64 = 1 << 24;

/// Fails for the alignment of a damaged section. The gaps in the new file could fill the disk.
pub(super) fn check_align(align: u64) -> Result<()> {
    ensure!(
        align <= LARGEST_ALIGN && (align == 0 || align.is_power_of_two()),
        "the section's alignment {align:#x} is not a power of two up to {LARGEST_ALIGN:#x}"
    );
    Ok(())
}

/// Returns the offset of a container that follows `end` bytes. The container keeps the alignment of
/// its old offset, up to `align`.
pub(super) fn new_start(old: u64, end: u64, align: u64) -> u64 {
    let own = if old == 0 {
        align
    } else {
        1 << old.trailing_zeros().min(62)
    };
    end.next_multiple_of(own.min(align).max(1))
}

/// Lays out the containers of `piece`, each at its old alignment, up to `align`. Containers for
/// which `is_fixed` returns true keep their offset.
///
/// # Errors
/// A container must keep its offset, but the containers before it extend beyond that offset, or
/// `align` is that of a damaged section.
pub(super) fn lay_out(
    piece: &FileSlice,
    blocks: Vec<Block>,
    align: u64,
    is_fixed: impl Fn(&Range<u64>) -> bool,
) -> Result<Changed> {
    check_align(align)?;
    let mut bytes = Rope::default();
    let mut moved = Vec::new();
    let old_end = blocks.last().map_or(0, |block| block.old.end);
    let old_size = piece.size();
    for Block { old, outcome } in blocks {
        let (new, inner) = match outcome {
            Outcome::Gone => continue,
            Outcome::Same => (
                piece
                    .slice(old.start, old.end - old.start)
                    .map(Rope::from)
                    .unwrap_or_default(),
                Vec::new(),
            ),
            Outcome::New(Changed { bytes, moved }) => (bytes, moved),
        };
        let start = if is_fixed(&old) {
            old.start
        } else {
            new_start(old.start, bytes.size(), align)
        };
        if start < bytes.size() {
            bail!(
                "the container at {:#x} cannot move, but the containers before it have become larger",
                old.start
            );
        }
        bytes.pad_to(start);
        let size = new.size();
        bytes.append(new);
        moved.extend(
            inner
                .into_iter()
                .map(|moved| moved.within(old.start, start)),
        );
        moved.push(Moved {
            new: start..start + size,
            old,
        });
    }
    // Linkers pad sections of containers to a multiple of the containers' alignment; padding after
    // the last container stays.
    if old_size > old_end && bytes.size() > 0 {
        let padded = bytes.size().saturating_add(old_size - old_end);
        bytes.pad_to(padded.min(bytes.size().next_multiple_of(align.max(1))));
    }
    Ok(Changed { bytes, moved })
}

/// The container that consists of `parts` of `piece`, with `slots` for its images.
fn joined(piece: &FileSlice, parts: Vec<Part>, slots: Vec<Block>) -> Result<Outcome> {
    let mut unchanged: Vec<Range<u64>> = Vec::new();
    // Indexed like `slots`.
    let (mut ranges, mut new, mut inner) = (Vec::new(), Vec::new(), Vec::new());
    for Block { old, outcome } in slots {
        let changed = match outcome {
            Outcome::Gone => continue,
            Outcome::Same => {
                unchanged.push(old.clone());
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
                let is_within = |old: &&Range<u64>| {
                    range.start <= old.start && old.end <= range.end && !old.is_empty()
                };
                moved.extend(unchanged.iter().filter(is_within).map(|old| {
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

/// Stores the code `plain` like that of `entry`, compressed or not.
fn packed(
    plain: &FileSlice,
    entry: &fatbin::Entry<'_>,
    level: i32,
    spool: &mut Spool,
) -> Result<(Code, Rope)> {
    let mut rope = Rope::from(plain.clone());
    // PTX text ends with a zero byte, which extracted text lacks.
    if entry.kind == fatbin::Kind::Ptx && plain.bytes().last() != Some(&0) {
        rope.push_zeros(1);
    }
    let plain_size = rope.size();
    let Some(method) = entry.method else {
        return Ok((Code::plain(plain_size), rope));
    };
    let bytes = match method {
        fatbin::Method::Lz4 => Rope::from(fatbin::lz4(&rope.read()?)),
        fatbin::Method::Zstd => compress::zstd_frame(&rope, level, spool)?,
    };
    Ok((
        Code {
            method: Some(method),
            stored: bytes.size(),
            plain_size,
        },
        bytes,
    ))
}
