//! OffloadBinaries: images put together and written, and taken apart.

#![expect(unsafe_code, reason = "names that C finds, and pointers that it hands in")]

use std::ffi::{c_char, c_int, c_void};
use std::io::Write;

use super::buffer::OffldBuffer;
use super::entry::OffldEntry;
use super::given;
use super::sink::{OffldWrite, to_function};
use super::status::{OffldError, OffldStatus, made, needed, told};
use crate::error::Error;
use crate::facade::{self, StoredImage};
use crate::io::piece::Piece;
use crate::model::ImageKind;

/// A binary for each image, one behind the other: version 1 of the format, which every release of LLVM reads.
pub const OFFLD_PACK_SEPARATE: u32 = 1;
/// One binary for all images: version 2 of the format, which LLVM 23 reads.
pub const OFFLD_PACK_SHARED: u32 = 2;

/// Images with what they are for, which become an OffloadBinary, or have come out of one. Made by `offld_package_new` or
/// `offld_package_read`, freed by `offld_package_free`. Several threads may read it at the same time; while one changes it, no other
/// may use it.
#[derive(Debug, Default)]
pub struct OffldPackage {
    /// Each in a box of its own, so that what C has of one stays where it is when others are added.
    #[expect(clippy::vec_box, reason = "C holds pointers to the entries")]
    entries: Vec<Box<OffldEntry>>,
}

/// A package without images.
#[unsafe(no_mangle)]
pub extern "C" fn offld_package_new() -> Box<OffldPackage> {
    Box::default()
}

/// Takes the OffloadBinaries apart that the `size` bytes at `data` are: one or several, of any version, compressed or not. Every
/// image is an entry as it is stored, whatever it is itself (`offld_open_memory` goes on into images that are containers); `flags`
/// and strings are kept, and HIP has today's number in all of them. The bytes are copied. Malformed is what is no OffloadBinary, and
/// a compressed one that is more than 1000 times as large as its file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_package_read(
    data: *const u8,
    size: usize,
    package: *mut *mut OffldPackage,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let read = || {
        // SAFETY: the caller says so.
        let bytes = unsafe { given::bytes(data, size) }?;
        let images = facade::unpack_bytes(bytes)?;
        Ok(OffldPackage { entries: images.into_iter().map(|image| Box::new(OffldEntry::new(image))).collect() })
    };
    // SAFETY: the caller says so.
    unsafe { made(package, error, read) }
}

/// Adds an image: the `size` bytes at `data`, which are copied. Its number, which the functions below take, goes to `*index`, unless
/// `index` is NULL: it is the number of images that were there before. It is for no programming model and has no strings yet, and is
/// an object or bitcode by its bytes.
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
        // SAFETY: the caller says so.
        let bytes = unsafe { given::bytes(data, size) }?;
        let number = entries.len();
        entries.push(Box::new(OffldEntry::new(StoredImage::new(Piece::owned(bytes.to_vec())))));
        if !index.is_null() {
            // SAFETY: the caller says so.
            unsafe { index.write(number) };
        }
        Ok(())
    };
    // SAFETY: the caller says so.
    unsafe { told(error, add) }
}

/// Changes one entry of `package`.
///
/// # Safety
/// That of [`told`].
unsafe fn change(
    package: Option<&mut OffldPackage>,
    index: usize,
    error: *mut *mut OffldError,
    change: impl FnOnce(&mut OffldEntry) -> Result<(), OffldError>,
) -> OffldStatus {
    let body = || {
        let entries = &mut needed(package, "the package")?.entries;
        let (count, entry) = (entries.len(), entries.get_mut(index));
        change(entry.ok_or_else(|| OffldError::argument(format!("there is no image {index}: there are {count}")))?)
    };
    // SAFETY: the caller says so.
    unsafe { told(error, body) }
}

/// A number that is stored with 16 bits.
fn short(number: u32, what: &str) -> Result<u16, OffldError> {
    u16::try_from(number).map_err(|_| OffldError::argument(format!("{number:#x} is no {what}: it has more than 16 bits")))
}

/// Says which programming models an image is for: `OFFLD_KIND_OPENMP` and the like, a bit for each, or 0. For linkers of LLVM 15 to
/// 19, HIP is 3.
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
    // SAFETY: the caller says so.
    unsafe { change(package, index, error, set) }
}

/// Says what the image's bytes are: `OFFLD_FORMAT_OBJECT` and the like, or any number of 16 bits.
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
    // SAFETY: the caller says so.
    unsafe { change(package, index, error, set) }
}

/// Sets the flags of an image's entry; 0 if nothing is said.
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
    // SAFETY: the caller says so.
    unsafe { change(package, index, error, set) }
}

/// Stores a string with an image, in place of one with the same key: `triple` and `arch` are those that linkers go by. Both are
/// UTF-8. What was asked of the entry's strings before is not valid any longer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_package_set_string(
    package: Option<&mut OffldPackage>,
    index: usize,
    key: *const c_char,
    value: *const c_char,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let set = |entry: &mut OffldEntry| {
        // SAFETY: the caller says so.
        let (key, value) = unsafe { (given::text(key, "the key")?, given::text(value, "the value")?) };
        entry.set(key, value);
        Ok(())
    };
    // SAFETY: the caller says so.
    unsafe { change(package, index, error, set) }
}

/// How many images there are. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_package_count(package: Option<&OffldPackage>) -> usize {
    package.map_or(0, |package| package.entries.len())
}

/// An image by its number, valid until the package is freed; NULL where there are fewer, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_package_entry(package: Option<&OffldPackage>, index: usize) -> Option<&OffldEntry> {
    package?.entries.get(index).map(Box::as_ref)
}

/// Writes the package in this form.
fn write(package: Option<&OffldPackage>, form: u32, out: &mut dyn Write) -> Result<(), Error> {
    let images: Vec<&StoredImage> = package.iter().flat_map(|package| &package.entries).map(|entry| &entry.image).collect();
    facade::pack_to(&images, form == OFFLD_PACK_SHARED, out)
}

/// What can be written, and in which form.
fn checked(package: Option<&OffldPackage>, form: u32) -> Result<Option<&OffldPackage>, OffldError> {
    if form != OFFLD_PACK_SEPARATE && form != OFFLD_PACK_SHARED {
        return Err(OffldError::argument(format!("{form} is neither OFFLD_PACK_SEPARATE nor OFFLD_PACK_SHARED")));
    }
    needed(package, "the package").map(Some)
}

/// Writes the images into memory, in the form `OFFLD_PACK_SEPARATE` or `OFFLD_PACK_SHARED`. The caller frees the buffer.
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
    // SAFETY: the caller says so.
    unsafe { made(buffer, error, all) }
}

/// Writes the images to the file at `path`, which appears whole or not at all, and takes the place of one that is there. `-` is
/// stdout.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_package_write_path(
    package: Option<&OffldPackage>,
    form: u32,
    path: *const c_char,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let all = || {
        let package = checked(package, form)?;
        // SAFETY: the caller says so.
        let path = unsafe { given::path(path) }?;
        Ok(facade::whole_file(path, |out| write(package, form, out))?)
    };
    // SAFETY: the caller says so.
    unsafe { told(error, all) }
}

/// Writes the images to where the file descriptor stands, which stays the caller's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_package_write_fd(
    package: Option<&OffldPackage>,
    form: u32,
    descriptor: c_int,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let all = || Ok(write(checked(package, form)?, form, &mut given::file(descriptor)?)?);
    // SAFETY: the caller says so.
    unsafe { told(error, all) }
}

/// Hands what is written to `write`, part after part.
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
        // SAFETY: the caller says so.
        unsafe { to_function(write, context, |out| self::write(package, form, out)) }
    };
    // SAFETY: the caller says so.
    unsafe { told(error, all) }
}

/// Frees a package and everything that was asked of it. NULL is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn offld_package_free(package: Option<Box<OffldPackage>>) {
    drop(package);
}
