//! OffloadBinaries: packing and writing images, and unpacking them.

#![expect(
    unsafe_code,
    reason = "exported C symbols and pointers from the caller"
)]

use std::ffi::{c_char, c_int, c_void};
use std::io::Write;

use super::buffer::OffldBuffer;
use super::entry::OffldEntry;
use super::given;
use super::sink::{OffldWrite, to_function};
use super::status::{OffldError, OffldStatus, catch_into_status, made, needed};
use crate::error::Error;
use crate::facade::{self, StoredImage};
use crate::io::file_slice::FileSlice;
use crate::model::ImageKind;

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
/// Use 3 for HIP if a linker of LLVM 15 to 19 reads the package.
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
