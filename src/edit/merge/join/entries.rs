//! Merges one bundle or fatbinary of every build: the first one gets the selected entries of the
//! others. A bundle that is compressed as a whole is decompressed, and recompressed with its old
//! method.

use anyhow::{Context, Result, bail};

use super::row::BuildContainer;
use super::{Fate, Joiner};
use crate::contents::inflate;
use crate::edit::{Levels, Outcome, compress};
use crate::error::Malformed;
use crate::formats::bundle::{self, Head, NewObject};
use crate::formats::compose::Item;
use crate::formats::compressed::Header;
use crate::formats::containers::Kind;
use crate::formats::fatbin::{self, Code, Entry, NewEntry};
use crate::io::file_slice::FileSlice;
use crate::io::rope::Rope;

/// An entry of the new container: its build, and its index in that build's container.
type Chosen = (usize, usize);

/// The entries of the new container, and the entries of other builds that no runtime uses.
struct Choice {
    taken: Vec<Chosen>,
    unknown: Vec<Chosen>,
}

impl Choice {
    /// Whether the first build has all of them.
    fn is_same(&self) -> bool {
        self.taken.iter().all(|(build, _)| *build == 0)
    }
}

impl Joiner<'_> {
    /// Merges these containers, one of each build, and returns the outcome for the first.
    pub(super) fn entries(&mut self, column: &[BuildContainer<'_>]) -> Result<Outcome> {
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
