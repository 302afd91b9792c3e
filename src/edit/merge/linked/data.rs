//! Differences in data: pointers, and distances of 32 bits as tables of jumps and of unwinding have
//! them.

use super::moves::{Kind, Stretch};
use super::{Compared, distance};

/// How far before an entry a table may begin from where its distances count.
const LARGEST_TABLE: u64 = 1 << 16;

/// Where the field ends that explains the difference at `at`. What is before `done` is part of
/// another one.
pub(super) fn explained(
    compared: &Compared<'_, '_>,
    stretch: &Stretch<'_>,
    at: usize,
    done: usize,
) -> Option<usize> {
    let word = compared.class.address_size();
    let pointer = start_of(stretch, at, word).filter(|start| *start >= done);
    if let Some(start) = pointer.filter(|start| is_pointer(compared, stretch, *start)) {
        return Some(start + word);
    }
    let is_distance = |start: &usize| *start >= done && leads_to_same(compared, stretch, *start);
    let aligned = start_of(stretch, at, 4).filter(is_distance);
    let anywhere = || {
        (at.saturating_sub(3)..=at)
            .rev()
            .filter(|_| stretch.kind == Kind::Frames)
            .find(is_distance)
    };
    aligned.or_else(anywhere).map(|start| start + 4)
}

/// Where the aligned field of `width` bytes begins that `at` is in; none where it is aligned in one
/// program and not in the other.
fn start_of(stretch: &Stretch<'_>, at: usize, width: usize) -> Option<usize> {
    let within = |address: u64| (address.wrapping_add(at as u64) % width as u64) as usize;
    let back = within(stretch.one);
    if back == within(stretch.other) {
        at.checked_sub(back)
    } else {
        None
    }
}

/// Whether a word is a pointer that leads to the same in both programs. Without fixed addresses the
/// loader must know of it, but for the tables of linkage, which hold addresses of this file that
/// the loader knows by its own table.
fn is_pointer(compared: &Compared<'_, '_>, stretch: &Stretch<'_>, start: usize) -> bool {
    let address = stretch.one.wrapping_add(start as u64);
    let may_be = compared.is_fixed
        || stretch.name.starts_with(b".got")
        || compared.filled.contains(&address);
    let numbers = compared.numbers(stretch, start, compared.class.address_size());
    may_be && numbers.is_some_and(|[one, other]| compared.moves.is_same(one, other))
}

/// Whether a distance leads to the same in both programs. It counts from itself, or from the start
/// of the table that it is in: for unwinding that is the section, otherwise somewhere before it in
/// the same stretch, which has moved like it.
fn leads_to_same(compared: &Compared<'_, '_>, stretch: &Stretch<'_>, start: usize) -> bool {
    let Some([one, other]) = compared.numbers(stretch, start, 4) else {
        return false;
    };
    let [one, other] = [one, other].map(distance);
    let place = stretch.one.wrapping_add(start as u64);
    let moved = stretch.other.wrapping_sub(stretch.one);
    if stretch.kind == Kind::Frames {
        let is_same = |base: u64| {
            let (first, second) = (
                base.wrapping_add(one),
                base.wrapping_add(moved).wrapping_add(other),
            );
            compared.moves.moved(first) == Some(second)
        };
        return is_same(place) || is_same(stretch.one);
    }
    let lowest = place.saturating_sub(LARGEST_TABLE).max(stretch.one);
    let target = |base: u64| base.checked_add_signed(one as i64);
    let shift = moved.wrapping_add(other.wrapping_sub(one));
    target(place).is_some_and(|last| {
        compared
            .moves
            .reaches(target(lowest).unwrap_or(0).min(last), last, shift)
    })
}
