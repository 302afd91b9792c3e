//! OffloadBinaries: packing and writing images, and unpacking them. Buffers that the C caller owns.

#![expect(
    unsafe_code,
    reason = "exported C symbols and pointers from the caller"
)]

use std::ffi::{c_char, c_int, c_void};
use std::io::Write;

use super::given::{self, OffldWrite, to_function};
use super::status::{
    OffldError, OffldStatus, OffldString, Text, catch_into_status, made, needed, nth, shown,
};
use crate::facade::{self, StoredImage};
use offld_system::io::file_slice::FileSlice;
use offload_formats::error::Error;
use offload_formats::model::ImageKind;

/// One binary for each image, in sequence: version 1 of the format, which every LLVM release reads.
pub const OFFLD_PACK_SEPARATE: u32 = 1;
/// One binary for all images: version 2 of the format, which LLVM 23 reads.
pub const OFFLD_PACK_SHARED: u32 = 2;

/// Images with their metadata, to write to an OffloadBinary or read from one. Created by
/// `offld_package_new` or `offld_package_read`, freed by `offld_package_free`. Several threads may
/// read a package at the same time; while one changes it, no other may use it.
#[derive(Debug, Default)]
pub struct OffldPackage {
    /// Each entry is boxed, so that pointers that C holds stay valid when entries are added.
    #[expect(clippy::vec_box, reason = "C holds pointers to the entries")]
    entries: Vec<Box<OffldEntry>>,
}

/// Creates an empty package.
#[unsafe(no_mangle)]
pub extern "C" fn offld_package_new() -> Box<OffldPackage> {
    Box::default()
}

/// Unpacks the OffloadBinaries in the `size` bytes at `data`: one or several, of any version,
/// compressed or not. Every image becomes an entry as it is stored, even if it is a container
/// itself (`offld_open_memory` also opens containers in images). Flags and strings are preserved,
/// and HIP has today's number in all entries. The bytes are copied. The status is malformed for
/// other data, and for compressed data that is more than 1000 times as large after decompression.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_package_read(
    data: *const u8,
    size: usize,
    package: *mut *mut OffldPackage,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let read = || {
        // SAFETY: the caller guarantees it.
        let bytes = unsafe { given::bytes(data, size) }?;
        let images = facade::unpack_bytes(bytes)?;
        Ok(OffldPackage {
            entries: images
                .into_iter()
                .map(|image| Box::new(OffldEntry::new(image)))
                .collect(),
        })
    };
    // SAFETY: the caller guarantees it.
    unsafe { made(package, error, read) }
}

/// Adds an image: the `size` bytes at `data`, which are copied. Sets `*index`, unless `index` is
/// NULL, to the image's index for the functions below, which is the previous number of images. The
/// new entry has no programming model and no strings. Its format is object or bitcode, according to
/// its bytes.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_package_add(
    package: Option<&mut OffldPackage>,
    data: *const u8,
    size: usize,
    index: *mut usize,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let add = || {
        let entries = &mut needed(package, "the package")?.entries;
        // SAFETY: the caller guarantees it.
        let bytes = unsafe { given::bytes(data, size) }?;
        let number = entries.len();
        entries.push(Box::new(OffldEntry::new(StoredImage::new(
            FileSlice::owned(bytes.to_vec()),
        ))));
        if !index.is_null() {
            // SAFETY: the caller guarantees it.
            unsafe { index.write(number) };
        }
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    unsafe { catch_into_status(error, add) }
}

/// Changes one entry of `package`.
///
/// # Safety
/// The same as for [`catch_into_status`].
unsafe fn change(
    package: Option<&mut OffldPackage>,
    index: usize,
    error: *mut *mut OffldError,
    change: impl FnOnce(&mut OffldEntry) -> Result<(), OffldError>,
) -> OffldStatus {
    let body = || {
        let entries = &mut needed(package, "the package")?.entries;
        let (count, entry) = (entries.len(), entries.get_mut(index));
        change(entry.ok_or_else(|| {
            OffldError::argument(format!("no image {index}: the package has {count}"))
        })?)
    };
    // SAFETY: the caller guarantees it.
    unsafe { catch_into_status(error, body) }
}

/// Converts a number that is stored with 16 bits.
fn short(number: u32, what: &str) -> Result<u16, OffldError> {
    u16::try_from(number)
        .map_err(|_| OffldError::argument(format!("invalid {what} {number:#x}: more than 16 bits")))
}

/// Sets the programming models of an image, one bit for each: `OFFLD_KIND_OPENMP` and so on, or 0.
/// Use 3 for HIP if a linker of LLVM 15 to 20 reads the package.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_package_set_kinds(
    package: Option<&mut OffldPackage>,
    index: usize,
    kinds: u32,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let set = |entry: &mut OffldEntry| {
        entry.image.offload_kind = short(kinds, "set of kinds")?;
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    unsafe { change(package, index, error, set) }
}

/// Sets the format of an image: `OFFLD_FORMAT_OBJECT` and so on, or any 16-bit number.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_package_set_format(
    package: Option<&mut OffldPackage>,
    index: usize,
    format: u32,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let set = |entry: &mut OffldEntry| {
        entry.image.image_kind = ImageKind::from_raw(short(format, "format")?);
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    unsafe { change(package, index, error, set) }
}

/// Sets the flags of an image's entry (default: 0).
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_package_set_flags(
    package: Option<&mut OffldPackage>,
    index: usize,
    flags: u32,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let set = |entry: &mut OffldEntry| {
        entry.image.flags = flags;
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    unsafe { change(package, index, error, set) }
}

/// Stores a string with an image and replaces an existing one with the same key. Linkers select
/// images by `triple` and `arch`. Key and value are UTF-8. Strings that were obtained from this
/// entry before become invalid.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_package_set_string(
    package: Option<&mut OffldPackage>,
    index: usize,
    key: *const c_char,
    value: *const c_char,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let set = |entry: &mut OffldEntry| {
        // SAFETY: the caller guarantees it.
        let (key, value) = unsafe {
            (
                given::text(key, "the key")?,
                given::text(value, "the value")?,
            )
        };
        entry.set(key, value);
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    unsafe { change(package, index, error, set) }
}

/// Returns the number of images. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_package_count(package: Option<&OffldPackage>) -> usize {
    package.map_or(0, |package| package.entries.len())
}

/// Returns the image with this index, valid until the package is freed; NULL if `index` is out of
/// range, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_package_entry(
    package: Option<&OffldPackage>,
    index: usize,
) -> Option<&OffldEntry> {
    package?.entries.get(index).map(Box::as_ref)
}

/// Writes the package in this form.
fn write(package: Option<&OffldPackage>, form: u32, out: &mut dyn Write) -> Result<(), Error> {
    let images: Vec<&StoredImage> = package
        .iter()
        .flat_map(|package| &package.entries)
        .map(|entry| &entry.image)
        .collect();
    facade::pack_to(&images, form == OFFLD_PACK_SHARED, out)
}

/// Checks the form and the package.
fn checked(package: Option<&OffldPackage>, form: u32) -> Result<Option<&OffldPackage>, OffldError> {
    if form != OFFLD_PACK_SEPARATE && form != OFFLD_PACK_SHARED {
        return Err(OffldError::argument(format!(
            "invalid form {form}: expected OFFLD_PACK_SEPARATE or OFFLD_PACK_SHARED"
        )));
    }
    needed(package, "the package").map(Some)
}

/// Writes the images into memory, in the form `OFFLD_PACK_SEPARATE` or `OFFLD_PACK_SHARED`. The
/// caller frees the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_package_write_memory(
    package: Option<&OffldPackage>,
    form: u32,
    buffer: *mut *mut OffldBuffer,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let all = || {
        let mut bytes = Vec::new();
        write(checked(package, form)?, form, &mut bytes)?;
        Ok(OffldBuffer::new(bytes))
    };
    // SAFETY: the caller guarantees it.
    unsafe { made(buffer, error, all) }
}

/// Writes the images to the file at `path`, which appears complete or not at all, and replaces an
/// existing file. `-` is stdout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_package_write_path(
    package: Option<&OffldPackage>,
    form: u32,
    path: *const c_char,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let all = || {
        let package = checked(package, form)?;
        // SAFETY: the caller guarantees it.
        let path = unsafe { given::path(path) }?;
        Ok(facade::whole_file(path, |out| write(package, form, out))?)
    };
    // SAFETY: the caller guarantees it.
    unsafe { catch_into_status(error, all) }
}

/// Writes the images to the current position of a file descriptor, which the caller keeps.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_package_write_fd(
    package: Option<&OffldPackage>,
    form: u32,
    descriptor: c_int,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let all = || {
        Ok(write(
            checked(package, form)?,
            form,
            &mut given::file(descriptor)?,
        )?)
    };
    // SAFETY: the caller guarantees it.
    unsafe { catch_into_status(error, all) }
}

/// Passes the written bytes to `write`, in several calls.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_package_write(
    package: Option<&OffldPackage>,
    form: u32,
    write: OffldWrite,
    context: *mut c_void,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let all = || {
        let package = checked(package, form)?;
        // SAFETY: the caller guarantees it.
        unsafe { to_function(write, context, |out| self::write(package, form, out)) }
    };
    // SAFETY: the caller guarantees it.
    unsafe { catch_into_status(error, all) }
}

/// Frees a package and everything that belongs to it. Does nothing for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_package_free(package: Option<Box<OffldPackage>>) {
    drop(package);
}

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

/// Bytes that the caller owns, followed by one zero byte that is not counted. Freed by
/// `offld_buffer_free`.
#[derive(Debug)]
pub struct OffldBuffer(Vec<u8>);

impl OffldBuffer {
    /// Takes `bytes` without copying them.
    pub(super) fn new(mut bytes: Vec<u8>) -> OffldBuffer {
        bytes.push(0);
        OffldBuffer(bytes)
    }
}

/// Returns the bytes, valid until the buffer is freed. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_buffer_data(buffer: Option<&OffldBuffer>) -> *const u8 {
    buffer.map_or(std::ptr::null(), |buffer| buffer.0.as_ptr())
}

/// Returns the number of bytes. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_buffer_size(buffer: Option<&OffldBuffer>) -> usize {
    buffer.map_or(0, |buffer| buffer.0.len().saturating_sub(1))
}

/// Frees a buffer. Does nothing for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_buffer_free(buffer: Option<Box<OffldBuffer>>) {
    drop(buffer);
}

#[cfg(test)]
mod tests {
    use super::*;

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
