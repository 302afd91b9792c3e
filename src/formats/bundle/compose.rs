//! Bundles composed anew of code objects that an old one has, and others. The result is what [`write`](super::write) makes of the
//! same objects, at the alignment that the old bundle has.

#[cfg(test)]
mod tests;

use super::{Bundle, Entry, frame, read_at};
use crate::error::Malformed;
use crate::formats::compose::{Item, Part, check_kept, is_same, push_old, push_zeros};

/// The largest alignment that is looked for: no writer uses more than HIP's 4096 of its own accord.
const LARGEST_ALIGN: u64 = 1 << 20;

/// A code object that a bundle is to get.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewObject<'a> {
    /// Its id, which is written as it is.
    pub id: &'a str,
    /// Its size in bytes.
    pub size: u64,
}

/// The parts of the bundle at the start of `data` with other code objects: those of `items`, in their order. `Part::New` has the place
/// of an item. Ids stay as they are stored, and objects stand at multiples of the bundle's [`alignment`]. What follows the bundle in
/// `data` is no part of the new one.
///
/// Every bundle has an entry for the host, as a rule the first one and empty: it is to be listed as well. A bundle with no entries at
/// all is 32 bytes.
///
/// # Errors
/// The bundle is damaged; an item is of an entry that it does not have; the entries that are kept overlap.
pub fn compose(data: &[u8], items: &[Item<NewObject<'_>>]) -> Result<Vec<Part>, Malformed> {
    let bundle = read_at(data, 0)?;
    if is_same(items, bundle.entries.len()) {
        return Ok(vec![Part::Old(0..bundle.size)]);
    }
    let entry = |place: usize| bundle.entries.get(place).ok_or(Malformed::new("the bundle has no such code object", 0));
    let mut objects = Vec::with_capacity(items.len());
    for item in items {
        objects.push(match item {
            Item::Old(place) => entry(*place).map(|entry| (entry.id, entry.object.len() as u64))?,
            Item::Changed { entry: place, size } => (entry(*place)?.id, *size),
            Item::New(new) => (new.id, new.size),
        });
    }
    let kept = items.iter().zip(&objects).filter(|(item, _)| matches!(item, Item::Old(_)));
    check_kept(kept.map(|(_, (_, size))| *size), bundle.size, 0)?;
    let frame = frame(&objects, alignment(&bundle)).map_err(|_| Malformed::new("a bundle cannot be that large", 0))?;
    let mut end = frame.head.len() as u64;
    let mut parts = vec![Part::Bytes(frame.head)];
    for (place, ((item, (_, size)), offset)) in items.iter().zip(&objects).zip(frame.offsets).enumerate() {
        push_zeros(&mut parts, offset.saturating_sub(end));
        match item.old().map(entry).transpose()? {
            Some(old) if matches!(item, Item::Old(_)) => push_old(&mut parts, old.at..old.at.saturating_add(*size)),
            _ if *size > 0 => parts.push(Part::New(place)),
            _ => {}
        }
        end = offset.saturating_add(*size);
    }
    Ok(parts)
}

/// The alignment at which the code objects of `bundle` stand: with it, writing them again gives the same offsets. Where that is true of
/// several, 1, which is the bundler's own, else the largest; where it is true of none (another writer, a bundle that was changed by
/// hand), the largest that all offsets have, 4096 at most. 1 where there is nothing to tell it by.
pub fn alignment(bundle: &Bundle<'_>) -> u64 {
    let objects: Vec<(&str, u64)> = bundle.entries.iter().map(|entry| (entry.id, entry.object.len() as u64)).collect();
    let filled = |entry: &&Entry<'_>| !entry.object.is_empty();
    let offsets: Vec<u64> = bundle.entries.iter().filter(filled).map(|entry| entry.at.saturating_sub(bundle.at)).collect();
    if offsets.is_empty() {
        return 1;
    }
    let gives = |align: &u64| {
        let frame = frame(&objects, *align).ok();
        frame.is_some_and(|frame| {
            let starts = bundle.entries.iter().zip(frame.offsets).filter(|(entry, _)| filled(entry));
            starts.map(|(_, start)| start).eq(offsets.iter().copied())
        })
    };
    if gives(&1) {
        return 1;
    }
    let powers = || std::iter::successors(Some(LARGEST_ALIGN), |align| (*align > 1).then(|| align / 2));
    let of_all = |align: &u64| *align <= super::HIP_ALIGN && offsets.iter().all(|offset| offset.is_multiple_of(*align));
    // An alignment that is no power of two is at most the first offset, and divides all of them.
    let common = offsets.iter().fold(0, |all, offset| gcd(all, *offset));
    powers().find(gives).or(Some(common).filter(gives)).or_else(|| powers().find(of_all)).unwrap_or(1)
}

/// The largest number that divides both; the other one where one is 0.
fn gcd(one: u64, other: u64) -> u64 {
    if other == 0 { one } else { gcd(other, one.checked_rem(other).unwrap_or(0)) }
}
