//! What C hands in: bytes, text and paths, each looked at before it is used.

#![expect(unsafe_code, reason = "memory of the caller, who says that it is there for the time of the call")]

use std::ffi::{CStr, OsStr, c_char};
use std::fs::File;
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::status::OffldError;

/// `size` bytes from `data`, which may be NULL if there are none.
///
/// # Safety
/// `data` is NULL, or `size` bytes can be read there and do not change during the call.
pub(super) unsafe fn bytes<'a>(data: *const u8, size: usize) -> Result<&'a [u8], OffldError> {
    if size == 0 {
        return Ok(&[]);
    }
    if data.is_null() {
        return Err(OffldError::argument(format!("{size} bytes at NULL")));
    }
    if isize::try_from(size).is_err() || data.addr().checked_add(size).is_none() {
        return Err(OffldError::argument(format!("{size} bytes are more than there can be")));
    }
    // SAFETY: the caller says so, and they end within the address space.
    Ok(unsafe { std::slice::from_raw_parts(data, size) })
}

/// The C string at `text`, if there is one.
///
/// # Safety
/// `text` is NULL, or ends with a zero and does not change during the call.
unsafe fn c_string<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller says so.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// The path at `text`: bytes, whatever they stand for.
///
/// # Safety
/// That of [`c_string`].
pub(super) unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path, OffldError> {
    // SAFETY: the caller says so.
    let bytes = unsafe { c_string(text) }.ok_or_else(|| OffldError::argument("the path is NULL"))?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// The name that messages have for what has no path, or `otherwise`.
///
/// # Safety
/// That of [`c_string`].
pub(super) unsafe fn name(text: *const c_char, otherwise: &str) -> &Path {
    // SAFETY: the caller says so.
    unsafe { c_string(text) }.map_or(Path::new(otherwise), |bytes| Path::new(OsStr::from_bytes(bytes)))
}

/// The UTF-8 text at `text`, which is `what`.
///
/// # Safety
/// That of [`c_string`].
pub(super) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, OffldError> {
    // SAFETY: the caller says so.
    let bytes = unsafe { c_string(text) }.ok_or_else(|| OffldError::argument(format!("{what} is NULL")))?;
    std::str::from_utf8(bytes).map_err(|error| OffldError::argument(format!("{what} is no UTF-8: {error}")))
}

/// The file with the descriptor `number`, as a descriptor of our own; the caller's stays open.
pub(super) fn file(number: i32) -> Result<File, OffldError> {
    if number < 0 {
        return Err(OffldError::argument(format!("{number} is no file descriptor")));
    }
    // SAFETY: it is used for this one call of the system, which says whether it is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(File::from(borrowed.try_clone_to_owned()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::ptr;

    #[test]
    fn what_cannot_be_is_refused_before_it_is_touched() {
        // SAFETY: nothing is read where an error is expected, and the rest is constant.
        unsafe {
            assert_eq!(bytes(ptr::null(), 0).unwrap(), b"");
            assert!(bytes(ptr::null(), 1).is_err());
            assert!(bytes(b"x".as_ptr(), usize::MAX).is_err());
            assert!(bytes(b"x".as_ptr(), isize::MAX as usize + 1).is_err());
            assert_eq!(bytes(b"xy".as_ptr(), 2).unwrap(), b"xy");
            assert!(path(ptr::null()).is_err() && text(c"\xff".as_ptr(), "the key").is_err());
            assert_eq!(path(c"\xff".as_ptr()).unwrap().as_os_str().as_bytes(), b"\xff");
            assert_eq!((name(ptr::null(), "x"), name(c"y".as_ptr(), "x")), (Path::new("x"), Path::new("y")));
        }
        assert!(file(-1).is_err() && file(i32::MIN).is_err() && file(i32::MAX).is_err());
    }
}
