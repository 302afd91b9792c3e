//! Containers composed anew: which of a container's entries stay, change or come, and what the new container is then made of. It is
//! told as a list of parts, most of which are ranges of the old container, so that nothing large is read or copied.
//!
//! Each container has a `compose` of its own, which takes [`Item`]s and gives [`Part`]s.
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

/// A part of a file or container that is put together when it is written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Part {
    /// This range of the old bytes.
    Old(Range<u64>),
    /// The new contents that belong to the place with this number in the list that the caller gave (of items, of sizes).
    New(usize),
    /// Other bytes.
    Bytes(Vec<u8>),
    /// As many zeros.
    Zeros(u64),
}

/// An entry of a container that is composed anew. They are written in the order in which they are listed; what is not listed goes.
/// `N` is what a container must know of an entry that it did not have, `S` what it must know of other contents: their size.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Item<N, S = u64> {
    /// The entry at this place of the old container, as it is.
    Old(usize),
    /// The same with other contents.
    Changed {
        /// The entry's place in the old container.
        entry: usize,
        /// How large the new contents are, in bytes.
        size: S,
    },
    /// An entry that the old container does not have.
    New(N),
}

impl<N, S> Item<N, S> {
    /// The place of the entry in the old container; none of a new one.
    pub fn old(&self) -> Option<usize> {
        match self {
            Item::Old(entry) | Item::Changed { entry, .. } => Some(*entry),
            Item::New(_) => None,
        }
    }
}

/// Whether `items` are all of the `count` entries of the old container, as and where they are: nothing changes then.
pub(super) fn is_same<N, S>(items: &[Item<N, S>], count: usize) -> bool {
    items.len() == count && items.iter().enumerate().all(|(place, item)| matches!(item, Item::Old(entry) if *entry == place))
}

/// Checks that what is kept of an old container of `available` bytes is no more than the container itself: in a damaged one many
/// entries may be of the same bytes, which would be written once for each of them. The fault is told at `at`.
pub(super) fn check_kept(sizes: impl Iterator<Item = u64>, available: u64, at: u64) -> Result<(), Malformed> {
    let kept = sizes.fold(0u64, u64::saturating_add);
    if kept > available { Err(Malformed::new("the entries of the container overlap", at)) } else { Ok(()) }
}

/// The parts put together in memory: for what is small. `new` has the contents for the `Part::New` among `parts`, in the order in
/// which these stand there.
///
/// # Errors
/// A part is outside of `data`, or there are fewer contents than parts that need them.
pub fn join(data: &[u8], parts: &[Part], new: &[&[u8]]) -> Result<Vec<u8>, Malformed> {
    let mut new = new.iter();
    let mut all = Vec::new();
    for part in parts {
        match part {
            Part::Old(range) => {
                let size = range.end.saturating_sub(range.start);
                all.extend(slice(data, range.start, size, "a range past the end", range.start)?);
            }
            Part::New(_) => all.extend(*new.next().ok_or(Malformed::new("new contents are missing", 0))?),
            Part::Bytes(bytes) => all.extend(bytes),
            Part::Zeros(count) => all.resize(all.len().saturating_add(usize::try_from(*count).unwrap_or(usize::MAX)), 0),
        }
    }
    Ok(all)
}

/// Adds zeros to `parts`, unless there are none to add.
pub(super) fn push_zeros(parts: &mut Vec<Part>, count: u64) {
    if count > 0 {
        parts.push(Part::Zeros(count));
    }
}

/// Adds a range of the old bytes to `parts`, as one with the range before it where they touch.
pub(super) fn push_old(parts: &mut Vec<Part>, range: Range<u64>) {
    match parts.last_mut() {
        _ if range.start >= range.end => {}
        Some(Part::Old(last)) if last.end == range.start => last.end = range.end,
        _ => parts.push(Part::Old(range)),
    }
}
