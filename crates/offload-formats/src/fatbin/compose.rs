//! Edits of fatbinaries, and LZ4 compression of code as NVIDIA's readers accept it.

#[cfg(test)]
mod tests;

use std::ops::Range;

use super::{ENTRY_SIZE, FLAG_LZ4, FLAG_ZSTD, HEADER_SIZE, Method, entry, size};
use crate::bytes::{overwrite, slice, u16_at, u32_at, u64_at};
use crate::compose::{Item, Part, check_kept, is_same, push_old, push_zeros};
use crate::error::Malformed;

/// The alignment of entries, from the start of the fatbinary.
const ALIGN: u64 = 8;

/// The properties of stored code that an entry's header contains.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Code {
    /// The compression method, if the code is compressed.
    pub method: Option<Method>,
    /// The number of stored bytes, without padding.
    pub stored: u64,
    /// The uncompressed size, equal to `stored` for uncompressed code. For PTX, it includes the
    /// terminating zero.
    pub plain_size: u64,
}

impl Code {
    /// Uncompressed code of `size` bytes.
    pub fn plain(size: u64) -> Self {
        Code {
            method: None,
            stored: size,
            plain_size: size,
        }
    }

    /// The size with padding.
    fn padded(&self) -> Result<u64, Malformed> {
        self.stored.checked_next_multiple_of(ALIGN).ok_or(TOO_LARGE)
    }
}

const TOO_LARGE: Malformed = Malformed {
    what: "too large for a fatbinary",
    at: 0,
};

/// An entry to add to a fatbinary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewEntry<'a> {
    /// The entry's header from another fatbinary, with its additional data
    /// ([`Entry::header`](super::Entry::header)).
    pub header: &'a [u8],
    /// The stored code.
    pub code: Code,
}

/// Returns the parts of the fatbinary at the start of `data` with the entries of `items`, in their
/// order. `Part::New` has the index of an item and stands for its code as stored, without padding.
///
/// A kept entry is identical in header, name and padding. For changed code, only the sizes and the
/// compression method change in the header. Data after the fatbinary is not part of the result. An
/// empty list gives a valid fatbinary without entries, in which no GPU finds code.
///
/// # Errors
/// The fatbinary is damaged, an item names a missing entry, a new header is invalid, or compressed
/// code has 4 GiB or more.
///
/// ```
/// use offload_formats::compose::{Item, join};
/// use offload_formats::fatbin::{Code, MAGIC, compose, read_all};
///
/// let mut entry = [0; 64 + 8];
/// (entry[0], entry[4], entry[8], entry[28]) = (1, 64, 8, 90); // PTX, the sizes of header and code, the processor
/// let mut old = [&MAGIC[..], &1u16.to_le_bytes(), &16u16.to_le_bytes(), &72u64.to_le_bytes()].concat();
/// old.extend(entry);
///
/// let parts = compose(&old, &[Item::Changed { entry: 0, size: Code::plain(13) }])?;
/// let new = join(&old, &parts, &[b".version 8.0\n"])?;
/// let found = &read_all(&new)?[0].entries[0];
/// assert_eq!((found.arch.as_str(), found.stored), ("sm_90", &b".version 8.0\n\0\0\0"[..]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compose(data: &[u8], items: &[Item<NewEntry<'_>, Code>]) -> Result<Vec<Part>, Malformed> {
    let whole = slice(data, 0, size(data)?, "fatbinary size past the end", 8)?;
    let header_size: u64 = u16_at(whole, 6).into();
    let olds = places(whole, header_size)?;
    if is_same(items, olds.len()) {
        return Ok(vec![Part::Old(0..whole.len() as u64)]);
    }
    let old = |place: usize| {
        olds.get(place)
            .ok_or(Malformed::new("the fatbinary has no such entry", 0))
    };
    let kept = items
        .iter()
        .filter(|item| matches!(item, Item::Old(_)))
        .filter_map(Item::old);
    let kept_size = |place| olds.get(place).map_or(0, |old: &Place| old.end - old.start);
    check_kept(kept.map(kept_size), whole.len() as u64, 0)?;
    let mut entries = Vec::new();
    let mut total = 0u64;
    for (place, item) in items.iter().enumerate() {
        let added = match item {
            Item::Old(entry) => {
                let old = old(*entry)?;
                push_old(&mut entries, old.start..old.end);
                old.end - old.start
            }
            Item::Changed { entry, size } => {
                let Range { start, end } = old(*entry)?.header();
                push_entry(
                    &mut entries,
                    slice(
                        whole,
                        start,
                        end - start,
                        "fatbinary entry past the end",
                        start,
                    )?,
                    *size,
                    place,
                )?
            }
            Item::New(new) => push_entry(&mut entries, new.header, new.code, place)?,
        };
        total = total.checked_add(added).ok_or(TOO_LARGE)?;
    }
    let mut head = whole.get(..8).unwrap_or_default().to_vec();
    head.extend(total.to_le_bytes());
    let mut parts = vec![Part::Bytes(head)];
    push_old(&mut parts, HEADER_SIZE..header_size);
    parts.append(&mut entries);
    Ok(parts)
}

/// The location of an entry.
struct Place {
    start: u64,
    /// The offset of the code.
    code: u64,
    end: u64,
}

impl Place {
    fn header(&self) -> Range<u64> {
        self.start..self.code
    }
}

fn places(whole: &[u8], mut at: u64) -> Result<Vec<Place>, Malformed> {
    let mut all = Vec::new();
    while at < whole.len() as u64 {
        let (read, end) = entry(whole, at)?;
        all.push(Place {
            start: at,
            code: read.at,
            end,
        });
        at = end;
    }
    Ok(all)
}

/// Adds an entry with this header and the code of the item at `place` to the parts. Returns the
/// entry's size.
fn push_entry(
    parts: &mut Vec<Part>,
    header: &[u8],
    code: Code,
    place: usize,
) -> Result<u64, Malformed> {
    let length = header.len() as u64;
    if length < ENTRY_SIZE || u64::from(u32_at(header, 4)) != length {
        return Err(Malformed::new("not a header of a fatbinary entry", 0));
    }
    let padded = code.padded()?;
    let flag = match code.method {
        Some(Method::Lz4) => FLAG_LZ4,
        Some(Method::Zstd) => FLAG_ZSTD,
        None => 0,
    };
    let (packed, plain_size) = match code.method {
        Some(_) => (
            u32::try_from(code.stored).map_err(|_| TOO_LARGE)?,
            code.plain_size,
        ),
        None => (0, 0),
    };
    let flags = u64_at(header, 40) & !(FLAG_LZ4 | FLAG_ZSTD) | flag;
    let mut header = header.to_vec();
    overwrite(&mut header, 8, &padded.to_le_bytes());
    overwrite(&mut header, 16, &packed.to_le_bytes());
    overwrite(&mut header, 40, &flags.to_le_bytes());
    overwrite(&mut header, 56, &plain_size.to_le_bytes());
    parts.push(Part::Bytes(header));
    if code.stored > 0 {
        parts.push(Part::New(place));
    }
    push_zeros(parts, padded - code.stored);
    length.checked_add(padded).ok_or(TOO_LARGE)
}

/// Compresses `plain` as one LZ4 block, which every CUDA release reads. Only for entries that used
/// LZ4 before, because zstd compresses better.
pub fn lz4(plain: &[u8]) -> Vec<u8> {
    lz4_flex::block::compress(plain)
}
