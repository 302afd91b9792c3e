//! NVIDIA's fatbinaries: entries stay to the byte, go, or get other code, which is compressed as
//! that of the old entry was.

use std::io::Write;

use anyhow::{Context, Result, bail};

use super::rewriter::{Location, Rewriter};
use super::{Outcome, Repack, Verdict};
use crate::contents::inflate;
use crate::formats::compose::Item;
use crate::formats::fatbin::{self, Code, Entry, Kind, Method, compose};
use crate::io::file_slice::{FileSlice, Spool};
use crate::io::rope::Rope;

/// The level of zstd that NVIDIA's tools use.
const LEVEL: i32 = 3;

impl Rewriter<'_> {
    /// What becomes of a fatbinary. Without entries it stays one: what registers it has something
    /// to register.
    pub(super) fn fatbinary(&mut self, location: &Location) -> Result<Outcome> {
        let place = || location.place.clone();
        let read = fatbin::read_all(location.piece.bytes()).with_context(place)?;
        let entries: Vec<&Entry<'_>> = read.iter().flat_map(|one| &one.entries).collect();
        let (mut items, mut new) = (Vec::new(), Vec::new());
        let mut changes = false;
        for (number, entry) in entries.iter().enumerate() {
            // Cubins are padded, and compressed ones have their inflated size in the report.
            let at = location
                .piece
                .file_offset(entry.at)
                .filter(|_| entry.method.is_none());
            let image = self.next;
            let verdict = self.take(&location.place, None, at)?;
            let stored = location
                .piece
                .slice(entry.at, entry.stored.len() as u64)
                .with_context(place)?;
            let code = match verdict {
                Verdict::Keep => {
                    self.note_image(&stored, image);
                    let is_zstd = entry.method == Some(Method::Zstd) && entry.kind != Kind::LtoIr;
                    let repack = self.levels.repack == Repack::All && is_zstd;
                    let plain = repack
                        .then(|| inflate::fatbinary_entry(&stored, Method::Zstd, entry.plain_size));
                    plain.transpose().with_context(place)?
                }
                Verdict::Drop => {
                    changes = true;
                    continue;
                }
                Verdict::Replace(_) if entry.kind == Kind::LtoIr => {
                    bail!(
                        "{}: cannot replace LTO IR: only NVIDIA's tools can write its format",
                        location.place
                    )
                }
                Verdict::Replace(bytes) => Some(bytes.clone()),
            };
            if matches!(verdict, Verdict::Keep)
                && self.levels.repack == Repack::All
                && entry.method.is_some()
            {
                self.recompressed.all += 1;
                self.recompressed.lz4 += u64::from(entry.method == Some(Method::Lz4));
            }
            let Some(plain) = code else {
                items.push(Item::Old(number));
                new.push(Rope::default());
                continue;
            };
            let (code, bytes) = packed(
                &plain,
                entry,
                self.levels.level.unwrap_or(LEVEL),
                self.spool,
            )
            .with_context(place)?;
            if matches!(verdict, Verdict::Keep) {
                if self.levels.only_smaller && bytes.size() >= entry.stored.len() as u64 {
                    items.push(Item::Old(number));
                    new.push(Rope::default());
                    continue;
                }
                self.recompressed.smaller += 1;
            }
            changes = true;
            items.push(Item::Changed {
                entry: number,
                size: code,
            });
            new.push(bytes);
        }
        if !changes {
            return Ok(Outcome::Same);
        }
        if items.is_empty() && !entries.is_empty() {
            self.emptied.push(location.place.clone());
        }
        let parts = compose(location.piece.bytes(), &items).with_context(place)?;
        let bytes = Rope::of_parts(&location.piece, parts, new).with_context(place)?;
        Ok(bytes.into())
    }
}

/// The code `plain`, stored as that of `entry` is.
fn packed(
    plain: &FileSlice,
    entry: &Entry<'_>,
    level: i32,
    spool: &mut Spool,
) -> Result<(Code, Rope)> {
    let mut rope = Rope::from(plain.clone());
    // The text of PTX ends with a zero, which extracted text does not have.
    if entry.kind == Kind::Ptx && plain.bytes().last() != Some(&0) {
        rope.push_zeros(1);
    }
    let plain_size = rope.size();
    let Some(method) = entry.method else {
        return Ok((Code::plain(plain_size), rope));
    };
    let bytes = match method {
        Method::Lz4 => Rope::from(fatbin::lz4(&rope.read()?)),
        Method::Zstd => spool
            .add(|file| {
                let mut encoder = zstd::stream::write::Encoder::new(&mut *file, level)?;
                encoder.set_pledged_src_size(Some(plain_size))?;
                encoder.include_contentsize(true)?;
                rope.write_to(&mut encoder)?;
                encoder.finish()?.flush()?;
                Ok(())
            })?
            .into(),
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
