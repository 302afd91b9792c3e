//! Differences in code for x86-64: distances of 32 bits from the end of an instruction, and
//! addresses in programs that are linked for fixed ones. Instructions are not decoded; the bytes
//! before a field tell whether a distance can stand there.

use super::moves::Stretch;
use super::{Compared, distance};

/// What may follow a distance in its instruction: a constant of so many bytes.
const CONSTANTS: [u64; 4] = [0, 1, 2, 4];

/// Where the field ends that explains the difference at `at`. What is before `done` is part of
/// another one.
pub(super) fn explained(
    compared: &Compared<'_, '_>,
    stretch: &Stretch<'_>,
    at: usize,
    done: usize,
) -> Option<usize> {
    // The field may begin with bytes that are equal.
    let starts = |width: usize| (at.saturating_sub(width - 1).max(done)..=at).rev();
    let is_distance = |start: &usize| {
        has_distance(stretch.bytes[0], *start) && leads_to_same(compared, stretch, *start)
    };
    if let Some(start) = starts(4).find(is_distance) {
        return Some(start + 4);
    }
    // GNU ld counts a thread-local variable that is not there (a weak one) from the end of
    // thread-local memory like all others, as if it stood at address 0. No code uses what comes of
    // it.
    let is_no_variable = |start: &usize| {
        let numbers = compared.numbers(stretch, *start, 4).zip(compared.tls_ends);
        numbers.is_some_and(|([one, other], [end, other_end])| {
            distance(one) == end.wrapping_neg() && distance(other) == other_end.wrapping_neg()
        })
    };
    if let Some(start) = starts(4).find(is_no_variable) {
        return Some(start + 4);
    }
    if !compared.is_fixed {
        return None;
    }
    let is_address = |start: usize, width: usize| {
        compared
            .numbers(stretch, start, width)
            .is_some_and(|[one, other]| compared.moves.is_same(one, other))
    };
    let found = [4, 8].into_iter().find_map(|width| {
        Some((
            starts(width).find(|start| is_address(*start, width))?,
            width,
        ))
    });
    found.map(|(start, width)| start + width)
}

/// Whether the bytes before `start` are those of an instruction with a distance there: a jump, a
/// call, or any with an operand relative to the instruction pointer (Intel's manual, volume 2,
/// 2.2.1.6).
fn has_distance(code: &[u8], start: usize) -> bool {
    let before = |back: usize| start.checked_sub(back).and_then(|at| code.get(at)).copied();
    match before(1) {
        // call, jmp
        Some(0xe8 | 0xe9) => true,
        // Jumps under a condition, and the start of a transaction.
        Some(0x80..=0x8f) if before(2) == Some(0x0f) => true,
        Some(0xf8) if before(2) == Some(0xc7) => true,
        // ModRM: mod 00, rm 101.
        Some(modrm) => modrm & 0xc7 == 0x05,
        None => false,
    }
}

fn leads_to_same(compared: &Compared<'_, '_>, stretch: &Stretch<'_>, start: usize) -> bool {
    let Some([one, other]) = compared.numbers(stretch, start, 4) else {
        return false;
    };
    let target = |base: u64, number: u64, constant: u64| {
        base.wrapping_add(start as u64 + 4 + constant)
            .wrapping_add(distance(number))
    };
    CONSTANTS.iter().any(|constant| {
        compared.moves.is_same(
            target(stretch.one, one, *constant),
            target(stretch.other, other, *constant),
        )
    })
}
