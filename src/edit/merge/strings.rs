//! Whether bytes that differ are names that differ in what says a place and in nothing else.

use super::place_names::{self, Remedy};

/// No name is longer; so much is looked for its ends.
const LONGEST: usize = 4096;

/// What makes the names around two places agree, if they differ in what says a place alone.
pub(super) fn remedy_at(one: &[u8], at: usize, other: &[u8], other_at: usize) -> Option<Remedy> {
    place_names::remedy(around(one, at)?, around(other, other_at)?)
}

/// The string with the byte at `at`, without the zeros around it.
fn around(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let lowest = at.saturating_sub(LONGEST);
    let before = bytes.get(lowest..at)?;
    let start = memchr::memrchr(0, before).map_or(lowest, |zero| lowest + zero + 1);
    let after = bytes.get(at..bytes.len().min(at.saturating_add(LONGEST)))?;
    let end = at + memchr::memchr(0, after)?;
    bytes.get(start..end)
}

/// What makes the strings of two sections agree, if there are as many and they differ in what says
/// a place alone.
pub(super) fn remedy_of_all(one: &[u8], other: &[u8]) -> Option<Remedy> {
    let mut remedy = None;
    let (mut first, mut second) = (one.split(|byte| *byte == 0), other.split(|byte| *byte == 0));
    loop {
        match (first.next(), second.next()) {
            (None, None) => return remedy,
            (Some(one), Some(other)) if one == other => {}
            (Some(one), Some(other)) => remedy = Some(place_names::remedy(one, other)?),
            _ => return None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::place_names::ONE_TREE;
    use super::*;

    #[test]
    fn names_are_found_around_a_byte() {
        let one = b"a\0__omp_offloading_1_22_f_l1\0b\0";
        let other = b"a\0__omp_offloading_1_23_f_l1\0b\0";
        let at = one
            .iter()
            .zip(other)
            .position(|(one, other)| one != other)
            .unwrap_or_default();
        assert_eq!(remedy_at(one, at, other, at), Some(ONE_TREE));
        assert_eq!(remedy_of_all(one, other), Some(ONE_TREE));
        assert_eq!(
            remedy_of_all(one, b"a\0__omp_offloading_1_2_f_l1\0b\0"),
            Some(ONE_TREE)
        );
        assert_eq!(
            remedy_of_all(one, b"a\0__omp_offloading_1_2_f_l1\0c\0"),
            None
        );
        assert_eq!(remedy_of_all(one, b"a\0__omp_offloading_1_2_f_l1\0"), None);
        assert_eq!(remedy_at(b"\0abc\0", 2, b"\0adc\0", 2), None);
        assert_eq!(remedy_at(b"abc", 1, b"adc", 1), None);
        assert_eq!(remedy_at(b"abc", 7, b"adc", 1), None);
    }
}
