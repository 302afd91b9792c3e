//! Writes version 1, the one that every release reads. The string table is LLVM's to the byte (containers spec 4.3); the
//! strings' order is the caller's, where LLVM has its hash order.

use super::{ENTRY_SIZE, HEADER_SIZE, MAGIC};
use crate::model::ImageKind;
use std::collections::BTreeMap;

/// All of a binary but the image: for writers that stream the image, or leave it where it is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Frame {
    /// What comes before the image: header, entry, strings, padding.
    pub head: Vec<u8>,
    /// Where the image starts: the length of `head`.
    pub image_offset: u64,
    /// How long the image is.
    pub image_size: u64,
    /// Size of the whole binary; zeros fill it up after the image.
    pub total_size: u64,
}

/// The frame of a binary for an image of `image_size` bytes.
pub fn frame(image_kind: ImageKind, offload_kind: u16, flags: u32, strings: &[(&str, &str)], image_size: u64) -> Frame {
    let strings_at = HEADER_SIZE + ENTRY_SIZE;
    let table_at = strings_at + 16 * strings.len() as u64;
    let (table, offsets) = string_table(strings);
    let image_offset = (table_at + table.len() as u64).next_multiple_of(8);
    let total_size = (image_offset + image_size).next_multiple_of(8);

    let mut head = Vec::with_capacity(image_offset as usize);
    head.extend(MAGIC);
    head.extend(1u32.to_le_bytes());
    for field in [total_size, HEADER_SIZE, ENTRY_SIZE] {
        head.extend(field.to_le_bytes());
    }
    head.extend(image_kind.raw().to_le_bytes());
    head.extend(offload_kind.to_le_bytes());
    head.extend(flags.to_le_bytes());
    for field in [strings_at, strings.len() as u64, image_offset, image_size] {
        head.extend(field.to_le_bytes());
    }
    for string in strings.iter().flat_map(|(key, value)| [key, value]) {
        head.extend((table_at + offsets.get(string).copied().unwrap_or(0)).to_le_bytes());
    }
    head.extend(&table);
    head.resize(image_offset as usize, 0);
    Frame { head, image_offset, image_size, total_size }
}

/// A binary that holds `image`.
pub fn write(image_kind: ImageKind, offload_kind: u16, flags: u32, strings: &[(&str, &str)], image: &[u8]) -> Vec<u8> {
    let frame = frame(image_kind, offload_kind, flags, strings, image.len() as u64);
    let mut binary = frame.head;
    binary.reserve_exact((frame.total_size - frame.image_offset) as usize);
    binary.extend(image);
    binary.resize(frame.total_size as usize, 0);
    binary
}

/// The table of all keys and values, and where each one is in it; the empty string is the zero at the front.
fn string_table<'a>(strings: &[(&'a str, &'a str)]) -> (Vec<u8>, BTreeMap<&'a str, u64>) {
    let mut sorted: Vec<&str> = strings.iter().flat_map(|(key, value)| [*key, *value]).filter(|text| !text.is_empty()).collect();
    // From the last byte backwards, larger and longer first: what is the end of another string comes right after it.
    sorted.sort_by(|one, other| other.bytes().rev().cmp(one.bytes().rev()));

    let mut table = vec![0];
    let mut offsets = BTreeMap::new();
    let mut appended = "";
    for text in sorted {
        if appended.ends_with(text) {
            offsets.insert(text, (table.len() - text.len() - 1) as u64);
        } else {
            offsets.insert(text, table.len() as u64);
            table.extend(text.bytes());
            table.push(0);
            appended = text;
        }
    }
    (table, offsets)
}
