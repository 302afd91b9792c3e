//! Numbers and ranges of bytes, each checked against the end of the data.

use std::ops::Range;

use crate::error::Malformed;

/// The number of zeros at the start of `data`.
pub fn zeros(data: &[u8]) -> usize {
    data.iter().take_while(|byte| **byte == 0).count()
}

/// Returns `len` bytes of `data` from `offset`. A range outside of `data` is the fault `what` at
/// offset `at`.
pub fn slice<'a>(
    data: &'a [u8],
    offset: u64,
    len: u64,
    what: &'static str,
    at: u64,
) -> Result<&'a [u8], Malformed> {
    let fault = Malformed::new(what, at);
    let start = usize::try_from(offset).map_err(|_| fault)?;
    let end = usize::try_from(offset.checked_add(len).ok_or(fault)?).map_err(|_| fault)?;
    data.get(start..end).ok_or(fault)
}

/// The bytes before the first zero, or `None` if there is no zero.
pub fn c_string(bytes: &[u8]) -> Option<&[u8]> {
    bytes.get(..memchr::memchr(0, bytes)?)
}

/// The range of `size` bytes from `offset` on.
pub fn range(offset: u64, size: u64) -> Result<Range<u64>, Malformed> {
    let end = offset
        .checked_add(size)
        .ok_or(Malformed::new("a range past the largest offset", offset))?;
    Ok(offset..end)
}

/// Whether both ranges have a byte in common.
pub fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start.max(other.start) < one.end.min(other.end)
}

/// The little-endian number at `at`. It is 0 if a byte of it is missing.
pub fn u16_at(data: &[u8], at: usize) -> u16 {
    u16::from_le_bytes(bytes_at(data, at))
}

/// The little-endian number at `at`. It is 0 if a byte of it is missing.
pub fn u32_at(data: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes_at(data, at))
}

/// The little-endian number at `at`. It is 0 if a byte of it is missing.
pub fn u64_at(data: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes_at(data, at))
}

fn bytes_at<const N: usize>(data: &[u8], at: usize) -> [u8; N] {
    let bytes = data.get(at..).and_then(|rest| rest.first_chunk());
    bytes.copied().unwrap_or([0; N])
}

/// Replaces the bytes at `at`, unless the range is outside of `bytes`.
pub fn overwrite(bytes: &mut [u8], at: usize, new: &[u8]) {
    if let Some(old) = bytes.get_mut(at..at + new.len()) {
        old.copy_from_slice(new);
    }
}

/// The little-endian number of `size` bytes, at most 8, at `at`. Missing bytes are the fault
/// `what`.
pub fn number(data: &[u8], at: u64, size: u64, what: &'static str) -> Result<u64, Malformed> {
    slice(data, at, size, what, at).map(little_endian)
}

/// The little-endian number in `bytes`, which are at most 8.
pub fn little_endian(bytes: &[u8]) -> u64 {
    let add = |value, byte: &u8| value << 8 | u64::from(*byte);
    bytes.iter().rev().fold(0, add)
}
