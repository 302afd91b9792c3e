//! Composes the merged file: the first build, with the images of the others. `row` merges rows of
//! containers, `host_file` objects and programs; the entries of one container are merged here.

mod host_file;
mod row;
#[cfg(test)]
mod tests;

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, anyhow, bail};

use super::images::MergedUnit;
use super::lockstep::{Build, Locations, Shape};
use crate::contents::inflate;
use crate::contents::tree::Node;
use crate::edit::{Changed, Levels, Outcome, compress};
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::Rope;
use offload_formats::archive::resize::plan;
use offload_formats::bundle::{self, Head, NewObject};
use offload_formats::compose::Item;
use offload_formats::compressed::Header;
use offload_formats::containers::Kind;
use offload_formats::error::Malformed;
use offload_formats::fatbin::{self, Code, Entry, NewEntry};
use row::BuildContainer;

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
