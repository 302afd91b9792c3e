//! Test helper: writes OffloadBinaries of versions 2 and 3 without the writers under test, and
//! compresses them.

use std::io::Write;

/// Flags, strings, contents.
pub(crate) type TestImage<'a> = (u32, &'a [(&'a str, &'a str)], &'a [u8]);

/// The layout of versions 2 and 3: entries, 24-byte strings, one string table, images without
/// padding between them.
pub(super) fn write_shared(version: u32, images: &[TestImage]) -> Vec<u8> {
    let header = if version == 3 { 40 } else { 32 };
    let strings_at = header + 40 * images.len() as u64;
    let pairs: Vec<_> = images.iter().flat_map(|(_, strings, _)| *strings).collect();
    let mut table = vec![0];
    let mut string_entries = Vec::new();
    let table_at = strings_at + 24 * pairs.len() as u64;
    for (key, value) in pairs {
        let key_at = table_at + table.len() as u64;
        table.extend(key.bytes().chain([0]));
        let value_at = table_at + table.len() as u64;
        table.extend(value.bytes());
        [key_at, value_at, value.len() as u64]
            .iter()
            .for_each(|field| string_entries.extend(field.to_le_bytes()));
    }
    let images_at = (table_at + table.len() as u64).next_multiple_of(8);
    let (mut entries, mut bytes, mut first_string) = (Vec::new(), Vec::<u8>::new(), strings_at);
    for (flags, strings, image) in images {
        entries.extend([1, 0, 1, 0]);
        entries.extend(flags.to_le_bytes());
        for field in [
            first_string,
            strings.len() as u64,
            images_at + bytes.len() as u64,
            image.len() as u64,
        ] {
            entries.extend(field.to_le_bytes());
        }
        first_string += 24 * strings.len() as u64;
        bytes.extend(*image);
    }
    let mut binary = b"\x10\xff\x10\xad".to_vec();
    binary.extend(version.to_le_bytes());
    let size = (images_at + bytes.len() as u64).next_multiple_of(8);
    [size, header, images.len() as u64]
        .iter()
        .for_each(|field| binary.extend(field.to_le_bytes()));
    binary.resize(header as usize, 0);
    binary.extend(entries.into_iter().chain(string_entries).chain(table));
    binary.resize(images_at as usize, 0);
    binary.extend(bytes);
    binary.resize(size as usize, 0);
    binary
}

/// Compresses everything after the header of a version 3 binary.
pub(super) fn compress(plain: &[u8], zstd: bool) -> std::io::Result<Vec<u8>> {
    let packed = if zstd {
        zstd::bulk::compress(&plain[40..], 3)?
    } else {
        let mut encoder =
            flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(&plain[40..])?;
        encoder.finish()?
    };
    let mut binary = plain[..40].to_vec();
    binary.extend(packed);
    let size = binary.len() as u64;
    binary[8..16].copy_from_slice(&size.to_le_bytes());
    binary[32..40].copy_from_slice(&(plain.len() as u64).to_le_bytes());
    Ok(binary)
}
