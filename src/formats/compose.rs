//! Edits of containers: keeps, replaces or adds entries, and returns the new container as a list of
//! parts.
//!
//! Most parts are ranges of the old container, so that large images are neither read nor copied.
//! The module of each container has a `compose` function, which takes [`Item`]s and returns
//! [`Part`]s.
//!
//! ```
//! use offld::formats::bundle::{self, Source, write};
//! use offld::formats::compose::{Item, join};
//!
//! let object = |id, bytes| Source { id, size: 4, bytes };
//! let mut old = Vec::new();
//! write(vec![object("hip-amdgcn-amd-amdhsa--gfx908", &b"one."[..]), object("hip-amdgcn-amd-amdhsa--gfx90a", b"two.")], 64, &mut old)?;
//!
//! // The first code object goes, the second one gets other bytes.
//! let parts = bundle::compose(&old, &[Item::Changed { entry: 1, size: 5 }])?;
//! let new = join(&old, &parts, &[b"other"])?;
//! let [bundle] = &bundle::read_all(&new)?[..] else { return Err("one bundle".into()) };
//! assert_eq!((bundle.entries[0].id, bundle.entries[0].object), ("hip-amdgcn-amd-amdhsa--gfx90a", &b"other"[..]));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod likeness;

use std::ops::Range;

use super::slice;
use crate::error::Malformed;

pub use likeness::{Likeness, by_likeness};

/// A part of a file or container that is assembled when it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// This range of the old bytes.
    Old(Range<u64>),
    /// New contents, with their index in the list that the caller passed (of items or of sizes).
    New(usize),
    /// Other bytes.
    Bytes(Vec<u8>),
    /// This many zeros.
    Zeros(u64),
}

/// An entry of the new container. Entries are written in the order of the list, and unlisted
/// entries are removed.
///
/// `N` describes an entry that the old container does not have, `S` the replaced contents, usually
/// by their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<N, S = u64> {
    /// The entry with this index in the old container, unchanged.
    Old(usize),
    /// The same entry with other contents.
    Changed {
        /// The entry's index in the old container.
        entry: usize,
        /// The size of the new contents in bytes.
        size: S,
    },
    /// An entry that the old container does not have.
    New(N),
}

impl Part {
    /// Number of bytes. `new` has the size of the new contents with an index.
    pub fn size(&self, new: impl FnOnce(usize) -> u64) -> u64 {
        match self {
            Part::Old(range) => range.end.saturating_sub(range.start),
            Part::New(index) => new(*index),
            Part::Bytes(bytes) => bytes.len() as u64,
            Part::Zeros(count) => *count,
        }
    }
}

impl<N, S> Item<N, S> {
    /// The entry's index in the old container, or `None` for a new entry.
    pub fn old(&self) -> Option<usize> {
        match self {
            Item::Old(entry) | Item::Changed { entry, .. } => Some(*entry),
            Item::New(_) => None,
        }
    }
}

/// Whether `items` are all `count` entries of the old container in their order, so that nothing
/// changes.
pub(super) fn is_same<N, S>(items: &[Item<N, S>], count: usize) -> bool {
    items.len() == count
        && items
            .iter()
            .enumerate()
            .all(|(place, item)| matches!(item, Item::Old(entry) if *entry == place))
}

/// Checks that the unchanged entries are together no larger than the old container of `available`
/// bytes. In a damaged container, many entries may overlap, and each would be written in full. The
/// fault has the offset `at`.
pub(super) fn check_kept(
    sizes: impl Iterator<Item = u64>,
    available: u64,
    at: u64,
) -> Result<(), Malformed> {
    let kept = sizes.fold(0u64, u64::saturating_add);
    if kept > available {
        Err(Malformed::new("the entries of the container overlap", at))
    } else {
        Ok(())
    }
}

/// Assembles the parts in memory, for small containers. `new` has the contents for each
/// `Part::New`, in the order of `parts`.
///
/// # Errors
/// A part is outside of `data`, or `new` has too few elements.
pub fn join(data: &[u8], parts: &[Part], new: &[&[u8]]) -> Result<Vec<u8>, Malformed> {
    let mut new = new.iter();
    let mut all = Vec::new();
    for part in parts {
        match part {
            Part::Old(range) => {
                let size = range.end.saturating_sub(range.start);
                all.extend(slice(
                    data,
                    range.start,
                    size,
                    "a range past the end",
                    range.start,
                )?);
            }
            Part::New(_) => all.extend(
                *new.next()
                    .ok_or(Malformed::new("new contents are missing", 0))?,
            ),
            Part::Bytes(bytes) => all.extend(bytes),
            Part::Zeros(count) => all.resize(
                all.len()
                    .saturating_add(usize::try_from(*count).unwrap_or(usize::MAX)),
                0,
            ),
        }
    }
    Ok(all)
}

/// Parts in the order of the new file, and their size so far.
#[derive(Default)]
pub(super) struct PartList {
    pub(super) parts: Vec<Part>,
    pub(super) size: u64,
}

impl PartList {
    pub(super) fn old(&mut self, range: Range<u64>) {
        self.size += range.end.saturating_sub(range.start);
        push_old(&mut self.parts, range);
    }

    /// Adds the `size` bytes of the new contents with this index.
    pub(super) fn contents(&mut self, index: usize, size: u64) {
        self.size += size;
        self.parts.push(Part::New(index));
    }

    pub(super) fn bytes(&mut self, bytes: Vec<u8>) {
        self.size += bytes.len() as u64;
        self.parts.push(Part::Bytes(bytes));
    }

    /// Adds zeros up to the offset `at`.
    pub(super) fn pad_to(&mut self, at: u64) {
        push_zeros(&mut self.parts, at.saturating_sub(self.size));
        self.size = self.size.max(at);
    }
}

/// Adds zeros to `parts` if `count` is not 0.
pub(super) fn push_zeros(parts: &mut Vec<Part>, count: u64) {
    if count > 0 {
        parts.push(Part::Zeros(count));
    }
}

/// Adds a range of the old bytes to `parts`, merged with the preceding range if they touch.
pub(super) fn push_old(parts: &mut Vec<Part>, range: Range<u64>) {
    match parts.last_mut() {
        _ if range.start >= range.end => {}
        Some(Part::Old(last)) if last.end == range.start => last.end = range.end,
        _ => parts.push(Part::Old(range)),
    }
}
