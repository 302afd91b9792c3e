//! Writes and edits OffloadBinaries: version 1, which every LLVM release reads, and versions 2 and
//! 3, which LLVM 23 reads. Versions 2 and 3 hold all images with one string table.
//!
//! String tables match LLVM's byte for byte (docs/spec/containers.md 4.3, 4.5). The caller decides
//! the order of strings, which in LLVM is that of a hash table. A frame is a binary without its
//! images, so that callers can stream gigabytes.

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use super::{
    ENTRY_SIZE, FLAG_METADATA_ONLY, HEADER_SIZE, Head, Image, LONG_HEADER_SIZE, MAGIC, read_first,
};
use crate::bytes::slice;
use crate::compose::{Item, Part, check_kept, is_same, push_old, push_zeros};
use crate::error::Malformed;
use crate::model::ImageKind;

/// A version 1 binary without its image, for writers that stream the image or leave it in place.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// The bytes before the image: header, entry, strings, padding.
    pub head: Vec<u8>,
    /// The offset of the image: the length of `head`.
    pub image_offset: u64,
    /// The size of the image.
    pub image_size: u64,
    /// The size of the whole binary. Zeros fill the space after the image.
    pub total_size: u64,
}

/// The description of an image to be written.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry<'a> {
    /// The type of the image's bytes.
    pub image_kind: ImageKind,
    /// The bits of the programming models.
    pub offload_kind: u16,
    /// The entry's flags.
    pub flags: u32,
    /// Pairs of key and value, in the order to store. Version 1 terminates strings with a zero, so
    /// they must not contain one.
    pub strings: Vec<(&'a [u8], &'a [u8])>,
    /// The size of the image.
    pub image_size: u64,
}

/// A binary of version 2 or 3 without its images, which follow `head` in the order of the entries.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct SharedFrame {
    /// The bytes before the first image.
    pub head: Vec<u8>,
    /// The offset of each image. Images are back to back, except in a [`spaced_frame`].
    pub places: Vec<u64>,
    /// The size of the whole binary. Zeros fill the space after the last image.
    pub total_size: u64,
}

/// Returns the frame of a version 1 binary for an image of `image_size` bytes.
pub fn frame(
    image_kind: ImageKind,
    offload_kind: u16,
    flags: u32,
    strings: &[(&str, &str)],
    image_size: u64,
) -> Frame {
    let strings = strings
        .iter()
        .map(|(key, value)| (key.as_bytes(), value.as_bytes()))
        .collect();
    frame_of(&Entry {
        image_kind,
        offload_kind,
        flags,
        strings,
        image_size,
    })
}

/// Returns the frame of a version 1 binary.
pub fn frame_of(entry: &Entry<'_>) -> Frame {
    let layout = Layout {
        version: 1,
        header_size: HEADER_SIZE,
        string_entry: 16,
    };
    let frame = layout.frame(std::slice::from_ref(entry), back_to_back);
    Frame {
        image_offset: frame.head.len() as u64,
        head: frame.head,
        image_size: entry.image_size,
        total_size: frame.total_size,
    }
}

/// Returns the frame of a version 2 binary.
pub fn shared_frame(entries: &[Entry<'_>]) -> SharedFrame {
    spaced_frame(entries, back_to_back)
}

/// Returns the frame of a version 2 binary with images at the offsets that `place` returns. `place`
/// gets the index of an entry and the first free offset, and returns that offset or a later one.
/// Zeros fill the gaps.
pub fn spaced_frame(entries: &[Entry<'_>], place: impl FnMut(usize, u64) -> u64) -> SharedFrame {
    Layout {
        version: 2,
        header_size: HEADER_SIZE,
        string_entry: 24,
    }
    .frame(entries, place)
}

/// Returns the frame of an uncompressed version 3 binary, from which a compressed one is made.
pub fn plain_frame(entries: &[Entry<'_>]) -> SharedFrame {
    Layout {
        version: 3,
        header_size: LONG_HEADER_SIZE,
        string_entry: 24,
    }
    .frame(entries, back_to_back)
}

fn back_to_back(_: usize, free: u64) -> u64 {
    free
}

/// Returns a version 1 binary with `image`.
pub fn write(
    image_kind: ImageKind,
    offload_kind: u16,
    flags: u32,
    strings: &[(&str, &str)],
    image: &[u8],
) -> Vec<u8> {
    let frame = frame(image_kind, offload_kind, flags, strings, image.len() as u64);
    let mut binary = frame.head;
    binary.reserve_exact((frame.total_size - frame.image_offset) as usize);
    binary.extend(image);
    binary.resize(frame.total_size as usize, 0);
    binary
}

/// The differences between versions.
struct Layout {
    version: u32,
    /// The size of the header, which the entries follow.
    header_size: u64,
    string_entry: u64,
}

impl Layout {
    /// Returns header, entries, string entries, string table and padding, and the offsets of the
    /// images.
    fn frame(
        &self,
        entries: &[Entry<'_>],
        mut place: impl FnMut(usize, u64) -> u64,
    ) -> SharedFrame {
        let pairs = || entries.iter().flat_map(|entry| &entry.strings);
        let mut strings_at = self.header_size + ENTRY_SIZE * entries.len() as u64;
        let table_at = strings_at + self.string_entry * pairs().count() as u64;
        let (table, offsets) = string_table(pairs().flat_map(|(key, value)| [*key, *value]));
        let mut free = (table_at + table.len() as u64).next_multiple_of(8);
        let head_size = free as usize;
        let mut places = Vec::with_capacity(entries.len());
        for (number, entry) in entries.iter().enumerate() {
            let at = place(number, free).max(free);
            places.push(at);
            free = at + entry.image_size;
        }
        let total_size = free.next_multiple_of(8);

        let mut bytes = Vec::with_capacity(head_size);
        bytes.extend(MAGIC);
        bytes.extend(self.version.to_le_bytes());
        // The size of an entry in version 1, the number of entries since version 2.
        let field = if self.version == 1 {
            ENTRY_SIZE
        } else {
            entries.len() as u64
        };
        put(&mut bytes, &[total_size, self.header_size, field]);
        // The longer header has the uncompressed size, which is 0 for uncompressed data.
        bytes.resize(self.header_size as usize, 0);
        for (entry, image_at) in entries.iter().zip(&places) {
            bytes.extend(entry.image_kind.raw().to_le_bytes());
            bytes.extend(entry.offload_kind.to_le_bytes());
            bytes.extend(entry.flags.to_le_bytes());
            put(
                &mut bytes,
                &[
                    strings_at,
                    entry.strings.len() as u64,
                    *image_at,
                    entry.image_size,
                ],
            );
            strings_at += self.string_entry * entry.strings.len() as u64;
        }
        let at = |text: &[u8]| table_at + offsets.get(text).copied().unwrap_or(0);
        for (key, value) in pairs() {
            put(&mut bytes, &[at(key), at(value)]);
            if self.string_entry == 24 {
                put(&mut bytes, &[value.len() as u64]);
            }
        }
        bytes.extend(&table);
        bytes.resize(head_size, 0);
        SharedFrame {
            head: bytes,
            places,
            total_size,
        }
    }
}

fn put(bytes: &mut Vec<u8>, fields: &[u64]) {
    fields
        .iter()
        .for_each(|field| bytes.extend(field.to_le_bytes()));
}

/// Returns the table of all keys and values, and the offset of each. The zero at the start is the
/// empty string.
fn string_table<'a>(strings: impl Iterator<Item = &'a [u8]>) -> (Vec<u8>, BTreeMap<&'a [u8], u64>) {
    let mut sorted: Vec<&[u8]> = strings.filter(|text| !text.is_empty()).collect();
    // In descending order of the reversed strings, so that a suffix directly follows a string that
    // ends with it.
    sorted.sort_by(|one, other| other.iter().rev().cmp(one.iter().rev()));

    let mut table = vec![0];
    let mut offsets = BTreeMap::new();
    let mut appended: &[u8] = &[];
    for text in sorted {
        if appended.ends_with(text) {
            offsets.insert(text, (table.len() - text.len() - 1) as u64);
        } else {
            offsets.insert(text, table.len() as u64);
            table.extend(text);
            table.push(0);
            appended = text;
        }
    }
    (table, offsets)
}

/// Returns the parts of the binary at the start of `data` with the images of `items`, in their
/// order, equal to the output of the writers here. `Part::New` has the index of an item. Kept
/// images retain their kinds, flags and strings, and the binary its version. Data after the binary
/// is not part of the result.
///
/// Version 1 holds one image: several items give several binaries, back to back, and an empty list
/// gives no data. For later versions, an empty list gives a binary without images.
///
/// A compressed binary (version 3) is an error. Decompress it first ([`Packed`](super::Packed)),
/// edit the result and compress it again ([`pack`](super::pack)).
///
/// # Errors
/// The binary is damaged or compressed, an item names a missing image, or kept images overlap. A
/// new image is too large, or a string for version 1 contains a zero.
///
/// ```
/// use offload_formats::compose::{Item, join};
/// use offload_formats::offload_binary::{compose, read_all, write};
/// use offload_formats::model::{ImageKind, OffloadKind};
///
/// let strings = [("triple", "nvptx64-nvidia-cuda"), ("arch", "sm_90")];
/// let old = write(ImageKind::Cubin, OffloadKind::Cuda as u16, 0, &strings, b"code");
/// let parts = compose(&old, &[Item::Changed { entry: 0, size: 10 }])?;
/// assert_eq!(join(&old, &parts, &[b"other code"])?, write(ImageKind::Cubin, 2, 0, &strings, b"other code"));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn compose(data: &[u8], items: &[Item<Entry<'_>>]) -> Result<Vec<Part>, Malformed> {
    let head = Head::read(data, 0)?;
    if head.packed.is_some() {
        return Err(Malformed::new(
            "cannot change a compressed offload binary in place",
            0,
        ));
    }
    let whole = slice(data, 0, head.size, "size field past the end", 0)?;
    let mut images = Vec::new();
    read_first(whole, &mut images, 0)?;
    if is_same(items, images.len()) {
        return Ok(vec![Part::Old(0..head.size)]);
    }
    let kept = items
        .iter()
        .filter(|item| matches!(item, Item::Old(_)))
        .filter_map(Item::old);
    check_kept(
        kept.filter_map(|place| images.get(place))
            .map(|image| image.image.len() as u64),
        head.size,
        0,
    )?;
    let entries = items
        .iter()
        .map(|item| entry(&images, item, head.version))
        .collect::<Result<Vec<_>, Malformed>>()?;
    let total = entries
        .iter()
        .fold(0u64, |all, entry| all.saturating_add(entry.image_size));
    if total > i64::MAX as u64 {
        return Err(Malformed::new("too large for an offload binary", 0));
    }
    let mut parts = Vec::new();
    let mut add =
        |images: &[Image<'_>], head: Vec<u8>, total_size: u64, first: usize, count: usize| {
            let mut end = head.len() as u64;
            parts.push(Part::Bytes(head));
            for (place, (item, entry)) in items
                .iter()
                .zip(&entries)
                .enumerate()
                .skip(first)
                .take(count)
            {
                push_image(&mut parts, images, place, item, entry.image_size);
                end = end.saturating_add(entry.image_size);
            }
            push_zeros(&mut parts, total_size.saturating_sub(end));
        };
    match head.version {
        1 => {
            for (place, entry) in entries.iter().enumerate() {
                let frame = frame_of(entry);
                add(&images, frame.head, frame.total_size, place, 1);
            }
        }
        version => {
            let frame = if version == 2 {
                shared_frame(&entries)
            } else {
                plain_frame(&entries)
            };
            add(&images, frame.head, frame.total_size, 0, items.len());
        }
    }
    Ok(parts)
}

/// The entry that the new binary has for an item.
fn entry<'a>(
    images: &'a [Image<'_>],
    item: &Item<Entry<'a>>,
    version: u32,
) -> Result<Entry<'a>, Malformed> {
    let (place, size) = match item {
        Item::Old(place) => (*place, None),
        Item::Changed { entry, size } => (*entry, Some(*size)),
        Item::New(new) => {
            let has_zero = |(key, value): &(&[u8], &[u8])| {
                key.contains(&0) || (version == 1 && value.contains(&0))
            };
            if new.strings.iter().any(has_zero) {
                return Err(Malformed::new(
                    "a string of an image contains a zero byte",
                    0,
                ));
            }
            return Ok(new.clone());
        }
    };
    let image = images
        .get(place)
        .ok_or(Malformed::new("the offload binary has no such image", 0))?;
    Ok(Entry {
        image_kind: image.image_kind,
        offload_kind: image.offload_kind,
        // The entry only described an image and has contents now.
        flags: if size.is_some_and(|size| size > 0) {
            image.flags & !FLAG_METADATA_ONLY
        } else {
            image.flags
        },
        strings: image
            .strings
            .iter()
            .map(|(key, value)| (key.as_ref(), value.as_ref()))
            .collect(),
        image_size: size.unwrap_or(image.image.len() as u64),
    })
}

/// Adds the `size` bytes of the item at `place`.
fn push_image(
    parts: &mut Vec<Part>,
    images: &[Image<'_>],
    place: usize,
    item: &Item<Entry<'_>>,
    size: u64,
) {
    match item {
        Item::Old(old) => {
            if let Some(image) = images.get(*old) {
                push_old(parts, image.at..image.at.saturating_add(size));
            }
        }
        _ if size > 0 => parts.push(Part::New(place)),
        _ => {}
    }
}
