//! Edits of binary bundles. The result equals the output of [`write`](super::write) for the same
//! objects, with the alignment of the old bundle.

#[cfg(test)]
mod tests;

use super::{Bundle, Entry, frame, read_at};
use crate::compose::{Item, Part, PartList, check_kept, is_same};
use crate::error::Malformed;

/// The largest alignment that [`alignment`] tries. By default, no writer uses more than the 4096
/// bytes of HIP.
const LARGEST_ALIGN: u64 = 1 << 20;

/// A code object to add to a bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewObject<'a> {
    /// The ID, which is stored unchanged.
    pub id: &'a str,
    /// The size in bytes.
    pub size: u64,
}

/// Returns the parts of the bundle at the start of `data` with the code objects of `items`, in
/// their order. `Part::New` has the index of an item. IDs stay as stored, and objects start at
/// multiples of the bundle's [`alignment`]. Data after the bundle is not part of the result.
///
/// Every bundle has an entry for the host, usually the first one, which is empty. `items` must list
/// it too. A bundle without entries has 32 bytes.
///
/// # Errors
/// The bundle is damaged, an item names a missing entry, or kept entries overlap.
pub fn compose(data: &[u8], items: &[Item<NewObject<'_>>]) -> Result<Vec<Part>, Malformed> {
    let bundle = read_at(data, 0)?;
    if is_same(items, bundle.entries.len()) {
        return Ok(vec![Part::Old(0..bundle.size)]);
    }
    let entry = |place: usize| {
        bundle
            .entries
            .get(place)
            .ok_or(Malformed::new("the bundle has no such code object", 0))
    };
    let mut objects = Vec::with_capacity(items.len());
    for item in items {
        objects.push(match item {
            Item::Old(place) => entry(*place).map(|entry| (entry.id, entry.object.len() as u64))?,
            Item::Changed { entry: place, size } => (entry(*place)?.id, *size),
            Item::New(new) => (new.id, new.size),
        });
    }
    let kept = items
        .iter()
        .zip(&objects)
        .filter(|(item, _)| matches!(item, Item::Old(_)));
    check_kept(kept.map(|(_, (_, size))| *size), bundle.size, 0)?;
    let frame = frame(&objects, alignment(&bundle))
        .map_err(|_| Malformed::new("too large for a bundle", 0))?;
    let mut out = PartList::default();
    out.bytes(frame.head);
    for (place, ((item, (_, size)), offset)) in
        items.iter().zip(&objects).zip(frame.offsets).enumerate()
    {
        out.pad_to(offset);
        match item.old().map(entry).transpose()? {
            Some(old) if matches!(item, Item::Old(_)) => {
                out.old(old.at..old.at.saturating_add(*size))
            }
            _ if *size > 0 => out.contents(place, *size),
            _ => {}
        }
    }
    Ok(out.parts)
}

/// The alignment that reproduces the offsets of the code objects of `bundle` when they are written
/// again.
///
/// If several alignments do, the result is 1, which is the bundler's default, or else the largest.
/// If none does (another writer, an edited bundle), the result is the largest power of two up to
/// 4096 that divides all offsets. A bundle whose objects are all empty gives 1.
pub fn alignment(bundle: &Bundle<'_>) -> u64 {
    let objects: Vec<(&str, u64)> = bundle
        .entries
        .iter()
        .map(|entry| (entry.id, entry.object.len() as u64))
        .collect();
    let filled = |entry: &&Entry<'_>| !entry.object.is_empty();
    let offsets: Vec<u64> = bundle
        .entries
        .iter()
        .filter(filled)
        .map(|entry| entry.at.saturating_sub(bundle.at))
        .collect();
    if offsets.is_empty() {
        return 1;
    }
    let reproduces = |align: &u64| {
        let frame = frame(&objects, *align).ok();
        frame.is_some_and(|frame| {
            let starts = bundle
                .entries
                .iter()
                .zip(frame.offsets)
                .filter(|(entry, _)| filled(entry));
            starts.map(|(_, start)| start).eq(offsets.iter().copied())
        })
    };
    if reproduces(&1) {
        return 1;
    }
    let powers =
        || std::iter::successors(Some(LARGEST_ALIGN), |align| (*align > 1).then(|| align / 2));
    let of_all = |align: &u64| {
        *align <= super::HIP_ALIGN && offsets.iter().all(|offset| offset.is_multiple_of(*align))
    };
    // An alignment that is not a power of two divides all offsets, so it is at most their common
    // divisor.
    let common = offsets.iter().fold(0, |all, offset| gcd(all, *offset));
    powers()
        .find(reproduces)
        .or(Some(common).filter(reproduces))
        .or_else(|| powers().find(of_all))
        .unwrap_or(1)
}

/// The greatest common divisor. If one number is 0, the result is the other one.
fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 {
        one
    } else {
        gcd(other, one.checked_rem(other).unwrap_or(0))
    }
}
