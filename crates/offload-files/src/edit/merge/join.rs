//! Composes the merged file: the first build, with the images of the others. `host_file` merges
//! objects and programs; containers and rows of containers are merged here.

mod host_file;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use anyhow::{Context, Result, anyhow, bail};

use super::images::MergedUnit;
use super::lockstep::{Build, Location, Locations, Shape};
use crate::contents::inflate;
use crate::contents::tree::{Node, NodeKind};
use crate::edit::containers::{Block, check_align, lay_out, new_start};
use crate::edit::{Changed, Levels, Moved, Outcome, compress};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::Rope;
use offload_formats::archive::resize::plan;
use offload_formats::bundle::{self, Head, NewObject};
use offload_formats::compose::Item;
use offload_formats::compressed::Header;
use offload_formats::containers::Kind;
use offload_formats::error::Malformed;
use offload_formats::fatbin::{self, Code, Entry, NewEntry};
use offload_formats::offload_binary;

/// Merges `builds`, with the images that `units` select ([`check_images`](super::check_images)).
/// Returns `None` if the result equals the first build. Compressed and composed data is in `spool`.
///
/// # Errors
/// A build is damaged, or an image cannot be added at its location; the error names the location
/// and the reason.
pub(crate) fn join(
    builds: &[Build<'_>],
    units: &[MergedUnit],
    spool: &mut Spool,
) -> Result<Option<Rope>> {
    let locations = Locations::of(builds);
    let mut joiner = Joiner {
        fates: fates(builds.len(), units),
        placed: HashSet::new(),
        spool,
    };
    let outcome = joiner.enter(&locations)?;
    joiner.check_all_placed(builds, units)?;
    match outcome {
        Outcome::Same => Ok(None),
        Outcome::New(changed) => Ok(Some(changed.bytes)),
        Outcome::Gone => Err(anyhow!(
            "{}: nothing is left of the file",
            locations.base()?.place
        )),
    }
}

/// The decision about an image.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// The image is included; the number is its rank in the order of all images.
    Taken(usize),
    /// The image is left out, because another build has the same one.
    Also,
}

/// The state of the recursion.
struct Joiner<'j> {
    /// For each build, the fates of its images by number. Images that runtimes do not see, such as
    /// the host entries of bundles, have none.
    fates: Vec<HashMap<usize, Fate>>,
    /// The images that the file has, by build and number.
    placed: HashSet<(usize, usize)>,
    spool: &'j mut Spool,
}

impl Joiner<'_> {
    /// Merges the data at a location, and returns the outcome for the first build.
    fn enter(&mut self, locations: &Locations<'_>) -> Result<Outcome> {
        match locations.shape()? {
            Shape::Same => {
                self.record_identical(locations);
                Ok(Outcome::Same)
            }
            Shape::Archive => self.archive(locations),
            Shape::Host => self.host_file(locations),
            Shape::Containers => {
                let base = locations.base()?;
                let row = self.row(&locations.all)?;
                Ok(row
                    .lay_out(&base.piece, crate::edit::containers::ALIGNMENT, |_| false)
                    .with_context(|| base.place.clone())?
                    .outcome())
            }
            Shape::Other => bail!(
                "{}: files of this format cannot be merged",
                locations.base()?.place
            ),
        }
    }

    /// Records the images of identical data as present.
    fn record_identical(&mut self, locations: &Locations<'_>) {
        for (build, location) in locations.all.iter().enumerate() {
            if let Some(node) = location.node {
                self.record_placed(build, node);
            }
        }
    }

    /// Records the images in `node` of a build as present.
    fn record_placed(&mut self, build: usize, node: &Node) {
        let images = node.images.clone();
        self.placed.extend(images.map(|image| (build, image)));
    }

    fn fate(&self, build: usize, image: usize) -> Option<Fate> {
        self.fates.get(build)?.get(&image).copied()
    }

    fn archive(&mut self, locations: &Locations<'_>) -> Result<Outcome> {
        let base = locations.base()?;
        let start = base.piece.file_offset(0).unwrap_or_default();
        let (mut sizes, mut ropes) = (Vec::new(), Vec::new());
        for member in locations.members()? {
            let piece = &member.base()?.piece;
            let offset = piece
                .file_offset(0)
                .and_then(|at| at.checked_sub(start))
                .context("a member outside of its archive")?;
            if let Outcome::New(Changed { bytes, .. }) = self.enter(&member)? {
                sizes.push((offset, bytes.size()));
                ropes.push(bytes);
            }
            member.release();
        }
        if sizes.is_empty() {
            return Ok(Outcome::Same);
        }
        let parts = plan(base.piece.bytes(), &sizes)
            .map_err(|fault| anyhow!(fault.in_archive(&base.place)))?;
        let bytes =
            Rope::of_parts(&base.piece, parts, ropes).with_context(|| base.place.clone())?;
        Ok(bytes.into())
    }

    /// Checks that the file has every selected image of the other builds.
    fn check_all_placed(&self, builds: &[Build<'_>], units: &[MergedUnit]) -> Result<()> {
        for taken in units.iter().flat_map(|unit| &unit.images) {
            if taken.build > 0 && !self.placed.contains(&(taken.build, taken.image)) {
                let file = builds
                    .get(taken.build)
                    .map(|build| build.path.display().to_string())
                    .unwrap_or_default();
                bail!("{file}: cannot merge image {} at its location", taken.image);
            }
        }
        Ok(())
    }
}

/// The fates of the images of each build.
fn fates(builds: usize, units: &[MergedUnit]) -> Vec<HashMap<usize, Fate>> {
    let mut fates = vec![HashMap::new(); builds];
    let mut set = |build: usize, image: usize, fate: Fate| {
        if let Some(of_build) = fates.get_mut(build) {
            // An image for several runtimes is in several units; its position in the first of these
            // counts.
            of_build.entry(image).or_insert(fate);
        }
    };
    for (rank, taken) in units.iter().flat_map(|unit| &unit.images).enumerate() {
        set(taken.build, taken.image, Fate::Taken(rank));
        taken
            .also
            .iter()
            .for_each(|(build, image)| set(*build, *image, Fate::Also));
    }
    fates
}

// Merges rows of containers in sections and files. An OffloadBinary usually holds one image, so
// those of the other builds are added to the row. Bundles and fatbinaries are passed to a runtime
// one by one, so each gets the entries of its counterparts.

/// A container of a build.
struct BuildContainer<'b> {
    build: usize,
    node: &'b Node,
    kind: Kind,
    /// Its range in its row.
    old: Range<u64>,
    piece: FileSlice,
    /// The location, for messages.
    place: String,
}

/// The merged row.
enum Row {
    Same,
    /// Each container stays, with more entries.
    Each(Vec<Block>),
    /// The row has more containers.
    More(Vec<Listed>),
}

/// A container in a row that has become longer.
struct Listed {
    build: usize,
    /// Its range in its build's row.
    old: Range<u64>,
    bytes: Rope,
    /// Whether the container has all of its images; otherwise duplicates were removed.
    is_whole: bool,
}

/// A container in the new row.
#[derive(Debug, Clone)]
struct Placed {
    build: usize,
    /// Its range in its build's row.
    old: Range<u64>,
    /// Its offset in the new row.
    new: u64,
    is_whole: bool,
}

/// The layout of a row.
enum LaidOut {
    Same,
    New {
        changed: Changed,
        /// The containers, if the row has more than before.
        placed: Vec<Placed>,
    },
}

impl LaidOut {
    /// The outcome for a row that is the whole file.
    fn outcome(self) -> Outcome {
        match self {
            LaidOut::Same => Outcome::Same,
            LaidOut::New { changed, .. } => Outcome::New(changed),
        }
    }
}

impl Row {
    /// Lays out the row in place of `piece`, the first build's. Containers keep their alignment, up
    /// to `align`, and keep their offset if `is_fixed` returns true.
    ///
    /// # Errors
    /// A container must keep its offset and cannot.
    fn lay_out(
        self,
        piece: &FileSlice,
        align: u64,
        is_fixed: impl Fn(&Range<u64>) -> bool,
    ) -> Result<LaidOut> {
        match self {
            Row::Same => Ok(LaidOut::Same),
            Row::Each(blocks) => Ok(LaidOut::New {
                changed: lay_out(piece, blocks, align, is_fixed)?,
                placed: Vec::new(),
            }),
            Row::More(listed) => {
                if let Some(fixed) = listed
                    .iter()
                    .find(|one| one.build == 0 && is_fixed(&one.old))
                {
                    bail!(
                        "the container at {:#x} cannot move to make room for others",
                        fixed.old.start
                    );
                }
                side_by_side(piece, listed, align)
            }
        }
    }
}

/// Places containers one after another.
fn side_by_side(piece: &FileSlice, listed: Vec<Listed>, align: u64) -> Result<LaidOut> {
    check_align(align)?;
    let mut changed = Changed::default();
    let mut placed = Vec::new();
    for Listed {
        build,
        old,
        bytes,
        is_whole,
    } in listed
    {
        let start = new_start(old.start, changed.bytes.size(), align);
        changed.bytes.pad_to(start);
        if build == 0 {
            changed.moved.push(Moved {
                old: old.clone(),
                new: start..start + bytes.size(),
            });
        }
        changed.bytes.append(bytes);
        placed.push(Placed {
            build,
            old,
            new: start,
            is_whole,
        });
    }
    // Linkers pad sections of containers to a multiple of the containers' alignment.
    if piece.size().is_multiple_of(align.max(1)) {
        changed
            .bytes
            .pad_to(changed.bytes.size().next_multiple_of(align.max(1)));
    }
    Ok(LaidOut::New { changed, placed })
}

impl Joiner<'_> {
    /// Merges the rows at these locations, one for each build. Some of them may be empty.
    fn row(&mut self, locations: &[Location<'_>]) -> Result<Row> {
        let all = locations
            .iter()
            .enumerate()
            .map(|(build, location)| containers_of(build, location))
            .collect::<Result<Vec<_>>>()?;
        let place = locations
            .first()
            .map(|location| location.place.as_str())
            .unwrap_or_default();
        let is_list = |found: &BuildContainer<'_>| found.kind == Kind::OffloadBinary;
        if all.iter().flatten().all(is_list) {
            return self.merge_list(all);
        }
        if all.iter().flatten().any(is_list) {
            bail!("{place}: cannot match OffloadBinaries that are next to other containers");
        }
        let count = all.first().map_or(0, Vec::len);
        if let Some((location, others)) = locations
            .iter()
            .zip(&all)
            .find(|(_, others)| others.len() != count)
        {
            bail!(
                "{place} has {count} containers, but {} has {}",
                location.place,
                others.len()
            );
        }
        let mut rows: Vec<_> = all.into_iter().map(Vec::into_iter).collect();
        let mut blocks = Vec::new();
        for _ in 0..count {
            let column: Vec<BuildContainer<'_>> =
                rows.iter_mut().filter_map(Iterator::next).collect();
            let base = column.first().context("no builds to merge")?;
            blocks.push(Block {
                old: base.old.clone(),
                outcome: self.entries(&column)?,
            });
        }
        Ok(if blocks.iter().all(Block::is_same) {
            Row::Same
        } else {
            Row::Each(blocks)
        })
    }

    /// Merges OffloadBinaries: those of all builds, in the order of their images.
    fn merge_list(&mut self, all: Vec<Vec<BuildContainer<'_>>>) -> Result<Row> {
        let mut listed: Vec<(Option<usize>, Listed)> = Vec::new();
        for found in all.into_iter().flatten() {
            let images = found.node.images.clone();
            let fates: Vec<Option<Fate>> =
                images.map(|image| self.fate(found.build, image)).collect();
            let ranks = fates.iter().filter_map(|fate| match fate {
                Some(Fate::Taken(rank)) => Some(*rank),
                _ => None,
            });
            let rank = ranks.min();
            if found.build > 0 && rank.is_none() {
                if !fates.is_empty() && fates.iter().all(Option::is_none) {
                    bail!("{}: unknown runtime of its images", found.place);
                }
                continue;
            }
            let is_whole = !fates.contains(&Some(Fate::Also));
            let bytes = if is_whole {
                found.piece.clone().into()
            } else {
                self.without_duplicates(&found)?
            };
            self.record_placed(found.build, found.node);
            listed.push((
                rank,
                Listed {
                    build: found.build,
                    old: found.old,
                    bytes,
                    is_whole,
                },
            ));
        }
        if listed.iter().all(|(_, one)| one.build == 0) {
            return Ok(Row::Same);
        }
        listed.sort_by_key(|(rank, _)| *rank);
        Ok(Row::More(listed.into_iter().map(|(_, one)| one).collect()))
    }

    /// An OffloadBinary without its duplicate images.
    fn without_duplicates(&self, found: &BuildContainer<'_>) -> Result<Rope> {
        let place = || found.place.clone();
        let data = found.piece.bytes();
        if offload_binary::Head::read(data, 0)
            .with_context(place)?
            .packed
            .is_some()
        {
            bail!(
                "{}: cannot merge a compressed container that shares images with another build",
                found.place
            );
        }
        let fates = self.entry_fates(found)?;
        let stays = |(entry, fate): (usize, &Option<Fate>)| {
            (*fate != Some(Fate::Also)).then_some(Item::Old(entry))
        };
        let items: Vec<Item<offload_binary::Entry<'_>>> =
            fates.iter().enumerate().filter_map(stays).collect();
        let parts = offload_binary::compose(data, &items).with_context(place)?;
        Rope::of_parts(&found.piece, parts, []).with_context(place)
    }

    /// The fates of the entries of a container, in order. Embedded images share the fate of their
    /// entry.
    ///
    /// # Errors
    /// An entry is itself a container.
    fn entry_fates(&self, found: &BuildContainer<'_>) -> Result<Vec<Option<Fate>>> {
        let entries = match (found.kind, found.node.children.as_slice()) {
            (Kind::CompressedBundle, [row]) => row
                .children
                .first()
                .map_or(&[][..], |bundle| &bundle.children),
            (_, entries) => entries,
        };
        let fate = |entry: &Node| match entry.image() {
            Some(image) => Ok(self.fate(found.build, image)),
            None => bail!("{}: nested containers cannot be merged", found.place),
        };
        entries.iter().map(fate).collect()
    }
}

/// The containers of the row at `location`.
fn containers_of<'b>(build: usize, location: &Location<'b>) -> Result<Vec<BuildContainer<'b>>> {
    let containers = location.node.map_or(&[][..], |row| &row.children);
    let found = |node: &'b Node| {
        let NodeKind::Container(kind) = node.kind else {
            bail!("{}: not a row of containers", location.place);
        };
        let old = node.range.clone();
        let place = format!("{}: {} at {:#x}", location.place, kind.name(), old.start);
        let piece = location.piece.slice(old.start, old.end - old.start);
        Ok(BuildContainer {
            build,
            node,
            kind,
            piece: piece.with_context(|| format!("{place}: past the end"))?,
            old,
            place,
        })
    };
    containers.iter().map(found).collect()
}

// Merges one bundle or fatbinary of every build: the first one gets the selected entries of the
// others. A bundle that is compressed as a whole is decompressed, and recompressed with its old
// method.

/// An entry of the new container: its build, and its index in that build's container.
type Chosen = (usize, usize);

/// The entries of the new container, and the entries of other builds that no runtime uses.
struct Choice {
    taken: Vec<Chosen>,
    unknown: Vec<Chosen>,
}

impl Choice {
    /// Whether the first build has all taken entries.
    fn is_same(&self) -> bool {
        self.taken.iter().all(|(build, _)| *build == 0)
    }
}

impl Joiner<'_> {
    /// Merges these containers, one of each build, and returns the outcome for the first.
    fn entries(&mut self, column: &[BuildContainer<'_>]) -> Result<Outcome> {
        let base = column.first().context("no builds to merge")?;
        let is_fatbinary = |found: &BuildContainer<'_>| found.kind == Kind::Fatbinary;
        if let Some(other) = column
            .iter()
            .find(|found| is_fatbinary(found) != is_fatbinary(base))
        {
            bail!(
                "{} and {} are containers of different kinds",
                base.place,
                other.place
            );
        }
        if is_fatbinary(base) {
            self.fatbinary(column)
        } else {
            self.bundle(column)
        }
    }

    /// Chooses the entries of the new container, in order.
    fn choose(&mut self, column: &[BuildContainer<'_>]) -> Result<Choice> {
        let (mut taken, mut unknown) = (Vec::new(), Vec::new());
        for found in column {
            for (entry, fate) in self.entry_fates(found)?.into_iter().enumerate() {
                match fate {
                    Some(Fate::Taken(rank)) => taken.push((Some(rank), (found.build, entry))),
                    Some(Fate::Also) => {}
                    // The host entry, which comes first.
                    None if found.build == 0 => taken.push((None, (0, entry))),
                    None => unknown.push((found.build, entry)),
                }
            }
            self.record_placed(found.build, found.node);
        }
        taken.sort_by_key(|(rank, _)| *rank);
        Ok(Choice {
            taken: taken.into_iter().map(|(_, chosen)| chosen).collect(),
            unknown,
        })
    }

    fn bundle(&mut self, column: &[BuildContainer<'_>]) -> Result<Outcome> {
        let base = column.first().context("no builds to merge")?;
        let plain = column
            .iter()
            .map(decompressed)
            .collect::<Result<Vec<_>>>()?;
        let heads = column.iter().zip(&plain).map(|(found, (plain, _))| {
            bundle::read_head(plain.bytes(), plain.size())
                .map_err(Malformed::or_io)
                .with_context(|| found.place.clone())
        });
        let heads = heads.collect::<Result<Vec<Head>>>()?;
        let choice = self.choose(column)?;
        let object = |(build, entry): Chosen| {
            let (slot, (plain, _)) = heads.get(build)?.slots.get(entry).zip(plain.get(build))?;
            // The offset of an empty entry has no meaning.
            let at = if slot.size == 0 { 0 } else { slot.offset };
            Some((slot.id.as_str(), plain.slice(at, slot.size)?))
        };
        let object = |chosen: Chosen| {
            object(chosen).with_context(|| format!("{}: an entry past the end", base.place))
        };
        for chosen in &choice.unknown {
            let (id, bytes) = object(*chosen)?;
            let count = heads.first().map_or(0, |head| head.slots.len());
            let own = (0..count).map(|entry| object((0, entry)));
            let own = own.collect::<Result<Vec<_>>>()?;
            if !own
                .iter()
                .any(|(own, has)| *own == id && has.bytes() == bytes.bytes())
            {
                let other = column
                    .get(chosen.0)
                    .map(|found| found.place.as_str())
                    .unwrap_or_default();
                bail!("{other}: entry `{id}` differs from that of {}", base.place);
            }
        }
        if choice.is_same() {
            return Ok(Outcome::Same);
        }
        let (mut items, mut new) = (Vec::new(), Vec::new());
        for chosen in &choice.taken {
            let (id, bytes) = object(*chosen)?;
            items.push(if chosen.0 == 0 {
                Item::Old(chosen.1)
            } else {
                Item::New(NewObject {
                    id,
                    size: bytes.size(),
                })
            });
            new.push(Rope::from(bytes));
        }
        let (first, header) = plain.first().context("no builds to merge")?;
        let parts = bundle::compose(first.bytes(), &items).with_context(|| base.place.clone())?;
        let bytes = Rope::of_parts(first, parts, new).with_context(|| base.place.clone())?;
        let bytes = match header {
            Some(header) => compress::bundle(&bytes, *header, Levels::default(), self.spool)?,
            None => bytes,
        };
        Ok(bytes.into())
    }

    fn fatbinary(&mut self, column: &[BuildContainer<'_>]) -> Result<Outcome> {
        let base = column.first().context("no builds to merge")?;
        let all = column.iter().map(|found| {
            let read =
                fatbin::read_all(found.piece.bytes()).with_context(|| found.place.clone())?;
            Ok(read.into_iter().flat_map(|one| one.entries).collect())
        });
        let all = all.collect::<Result<Vec<Vec<Entry<'_>>>>>()?;
        let choice = self.choose(column)?;
        if let Some((build, entry)) = choice.unknown.first() {
            let other = column
                .get(*build)
                .map(|found| found.place.as_str())
                .unwrap_or_default();
            bail!("{other}: unknown runtime of entry {entry}");
        }
        if choice.is_same() {
            return Ok(Outcome::Same);
        }
        let (mut items, mut new) = (Vec::new(), Vec::new());
        for (build, number) in choice.taken {
            let entry = all
                .get(build)
                .and_then(|entries| entries.get(number))
                .context("no such entry")?;
            let size = entry.stored.len() as u64;
            let stored = column
                .get(build)
                .and_then(|found| found.piece.slice(entry.at, size))
                .context("an entry past the end")?;
            let plain_size = if entry.method.is_some() {
                entry.plain_size
            } else {
                size
            };
            let code = Code {
                method: entry.method,
                stored: size,
                plain_size,
            };
            items.push(if build == 0 {
                Item::Old(number)
            } else {
                Item::New(NewEntry {
                    header: entry.header,
                    code,
                })
            });
            new.push(Rope::from(stored));
        }
        let parts =
            fatbin::compose(base.piece.bytes(), &items).with_context(|| base.place.clone())?;
        let bytes = Rope::of_parts(&base.piece, parts, new).with_context(|| base.place.clone())?;
        Ok(bytes.into())
    }
}

/// The decompressed bundle, and its header if it was compressed.
fn decompressed(found: &BuildContainer<'_>) -> Result<(FileSlice, Option<Header>)> {
    if found.kind != Kind::CompressedBundle {
        return Ok((found.piece.clone(), None));
    }
    let place = || found.place.clone();
    let header = Header::read(found.piece.bytes(), 0).with_context(place)?;
    let plain =
        inflate::compressed_bundle(&found.piece.from(header.size), header).with_context(place)?;
    Ok((plain, Some(header)))
}
