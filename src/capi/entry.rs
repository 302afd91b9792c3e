//! An image of a package, with its metadata.

#![expect(unsafe_code, reason = "exported C symbols")]

use super::text::{OffldString, Text, nth, shown};
use crate::facade::StoredImage;

/// The producer gave no format.
pub const OFFLD_FORMAT_NONE: u32 = 0;
/// A native object or shared object of the device.
pub const OFFLD_FORMAT_OBJECT: u32 = 1;
/// LLVM bitcode.
pub const OFFLD_FORMAT_BITCODE: u32 = 2;
/// A CUDA cubin.
pub const OFFLD_FORMAT_CUBIN: u32 = 3;
/// A CUDA fatbinary.
pub const OFFLD_FORMAT_FATBINARY: u32 = 4;
/// PTX text.
pub const OFFLD_FORMAT_PTX: u32 = 5;
/// SPIR-V.
pub const OFFLD_FORMAT_SPIRV: u32 = 6;

/// An image of a package. It belongs to the package.
#[derive(Debug)]
pub struct OffldEntry {
    pub(super) image: StoredImage,
    keys: Vec<Text>,
    values: Vec<Text>,
}

impl OffldEntry {
    pub(super) fn new(image: StoredImage) -> OffldEntry {
        let text = |bytes: &[u8]| Text::from(String::from_utf8_lossy(bytes));
        let keys = image.strings.iter().map(|(key, _)| text(key)).collect();
        let values = image.strings.iter().map(|(_, value)| text(value)).collect();
        OffldEntry {
            image,
            keys,
            values,
        }
    }

    /// Stores a string. If the key exists, replaces its last value, which is the one in effect.
    pub(super) fn set(&mut self, key: &str, value: &str) {
        let known = self
            .image
            .strings
            .iter()
            .rposition(|(known, _)| known == key.as_bytes());
        match known.and_then(|at| Some((self.image.strings.get_mut(at)?, self.values.get_mut(at)?)))
        {
            Some((pair, text)) => {
                pair.1 = value.into();
                *text = Text::from(value);
            }
            None => {
                self.image.strings.push((key.into(), value.into()));
                self.keys.push(Text::from(key));
                self.values.push(Text::from(value));
            }
        }
    }
}

/// Returns the stored programming models of an entry, one bit for each: `OFFLD_KIND_OPENMP` and so
/// on.
#[unsafe(no_mangle)]
pub extern "C" fn offld_entry_kinds(entry: Option<&OffldEntry>) -> u32 {
    entry.map_or(0, |entry| entry.image.offload_kind.into())
}

/// Returns the stored format of an entry: `OFFLD_FORMAT_OBJECT` and so on, or a number that this
/// version does not know.
#[unsafe(no_mangle)]
pub extern "C" fn offld_entry_format(entry: Option<&OffldEntry>) -> u32 {
    entry.map_or(0, |entry| entry.image.image_kind.raw().into())
}

/// Returns the stored flags of an entry.
#[unsafe(no_mangle)]
pub extern "C" fn offld_entry_flags(entry: Option<&OffldEntry>) -> u32 {
    entry.map_or(0, |entry| entry.image.flags)
}

/// Returns the bytes of an entry, valid until the package is freed. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_entry_data(entry: Option<&OffldEntry>) -> *const u8 {
    entry.map_or(std::ptr::null(), |entry| {
        entry.image.contents.bytes().as_ptr()
    })
}

/// Returns the number of bytes of an entry. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_entry_size(entry: Option<&OffldEntry>) -> usize {
    entry.map_or(0, |entry| entry.image.contents.bytes().len())
}

/// Returns the number of strings that are stored with an entry.
#[unsafe(no_mangle)]
pub extern "C" fn offld_entry_string_count(entry: Option<&OffldEntry>) -> usize {
    entry.map_or(0, |entry| entry.keys.len())
}

/// Returns the key of the string with this index, in stored order; empty if `index` is out of
/// range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_entry_string_key(entry: Option<&OffldEntry>, index: usize) -> OffldString {
    nth(entry.map(|entry| &entry.keys), index)
}

/// Returns the value of the string with this index; empty if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_entry_string_value(
    entry: Option<&OffldEntry>,
    index: usize,
) -> OffldString {
    nth(entry.map(|entry| &entry.values), index)
}

/// Returns the value of the key `triple`; empty if the entry has none.
#[unsafe(no_mangle)]
pub extern "C" fn offld_entry_triple(entry: Option<&OffldEntry>) -> OffldString {
    value(entry, b"triple")
}

/// Returns the value of the key `arch`; empty if the entry has none.
#[unsafe(no_mangle)]
pub extern "C" fn offld_entry_arch(entry: Option<&OffldEntry>) -> OffldString {
    value(entry, b"arch")
}

/// Returns the value of `key`. If there are several, the last one counts.
fn value(entry: Option<&OffldEntry>, key: &[u8]) -> OffldString {
    let at = |entry: &&OffldEntry| entry.keys.iter().rposition(|known| known.bytes() == key);
    shown(entry.and_then(|entry| entry.values.get(at(&entry)?)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::io::file_slice::FileSlice;
    use crate::model::ImageKind;

    #[test]
    fn format_numbers_match_the_model() {
        let all = [
            (OFFLD_FORMAT_NONE, ImageKind::None),
            (OFFLD_FORMAT_OBJECT, ImageKind::Object),
            (OFFLD_FORMAT_BITCODE, ImageKind::Bitcode),
            (OFFLD_FORMAT_CUBIN, ImageKind::Cubin),
            (OFFLD_FORMAT_FATBINARY, ImageKind::Fatbinary),
            (OFFLD_FORMAT_PTX, ImageKind::Ptx),
            (OFFLD_FORMAT_SPIRV, ImageKind::Spirv),
        ];
        all.iter()
            .for_each(|(number, kind)| assert_eq!(*number, u32::from(kind.raw())));
    }

    #[test]
    fn a_string_replaces_the_last_value_of_its_key() {
        let mut image = StoredImage::new(FileSlice::owned(Vec::new()));
        image.strings = vec![
            (b"arch".to_vec(), b"a".to_vec()),
            (b"arch".to_vec(), b"b".to_vec()),
        ];
        let mut entry = OffldEntry::new(image);
        entry.set("arch", "c");
        entry.set("triple", "t");
        let values: Vec<&[u8]> = entry
            .image
            .strings
            .iter()
            .map(|(_, value)| value.as_slice())
            .collect();
        assert_eq!(values, [b"a", b"c", b"t"]);
        assert_eq!(entry.values, Text::all(["a", "c", "t"]));
        assert_eq!(offld_entry_arch(Some(&entry)).size, 1);
    }
}
