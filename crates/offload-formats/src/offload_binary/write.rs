//! Writes OffloadBinaries: version 1, which every LLVM release reads, and versions 2 and 3, which
//! LLVM 23 reads. Versions 2 and 3 hold all images with one string table.
//!
//! String tables match LLVM's byte for byte (docs/spec/containers.md 4.3, 4.5). The caller decides
//! the order of strings, which in LLVM is that of a hash table. A frame is a binary without its
//! images, so that callers can stream gigabytes.

use super::{ENTRY_SIZE, HEADER_SIZE, LONG_HEADER_SIZE, MAGIC};
use crate::model::ImageKind;
use std::collections::BTreeMap;

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
