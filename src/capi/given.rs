//! Checks of the C caller's arguments: bytes, texts, paths, file descriptors, and functions that
//! receive bytes.

#![expect(
    unsafe_code,
    reason = "exported C symbols and pointers from the caller"
)]

use std::ffi::{CStr, OsStr, c_char, c_int, c_void};
use std::fs::File;
use std::io::{self, Write};
use std::os::fd::BorrowedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use super::status::OffldError;
use offload_formats::error::Error;

/// Returns the `size` bytes at `data`, which may be NULL if `size` is 0.
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
        return Err(OffldError::argument(format!(
            "{size} bytes exceed the address space"
        )));
    }
    // SAFETY: the caller guarantees it, and the bytes end within the address space.
    Ok(unsafe { std::slice::from_raw_parts(data, size) })
}

/// Returns the C string at `text`; `None` for NULL.
///
/// # Safety
/// `text` is NULL, or ends with a zero byte and does not change during the call.
unsafe fn c_string<'a>(text: *const c_char) -> Option<&'a [u8]> {
    // SAFETY: the caller guarantees it.
    (!text.is_null()).then(|| unsafe { CStr::from_ptr(text) }.to_bytes())
}

/// Returns the path at `text`, as arbitrary bytes.
///
/// # Safety
/// The same as for [`c_string`].
pub(super) unsafe fn path<'a>(text: *const c_char) -> Result<&'a Path, OffldError> {
    // SAFETY: the caller guarantees it.
    let bytes =
        unsafe { c_string(text) }.ok_or_else(|| OffldError::argument("the path is NULL"))?;
    Ok(Path::new(OsStr::from_bytes(bytes)))
}

/// Returns the `count` paths at `texts`, which may be NULL if `count` is 0.
///
/// # Safety
/// `texts` is NULL, or `count` pointers can be read there, each as for [`path`].
pub(super) unsafe fn paths<'a>(
    texts: *const *const c_char,
    count: usize,
) -> Result<Vec<&'a Path>, OffldError> {
    if count == 0 {
        return Ok(Vec::new());
    }
    if texts.is_null() {
        return Err(OffldError::argument(format!("{count} paths at NULL")));
    }
    // SAFETY: the caller guarantees it.
    let texts = unsafe { std::slice::from_raw_parts(texts, count) };
    // SAFETY: the caller guarantees it.
    texts.iter().map(|text| unsafe { path(*text) }).collect()
}

/// Returns the name that messages use for input without a path, or `otherwise` for NULL.
///
/// # Safety
/// The same as for [`c_string`].
pub(super) unsafe fn name(text: *const c_char, otherwise: &str) -> &Path {
    // SAFETY: the caller guarantees it.
    unsafe { c_string(text) }.map_or(Path::new(otherwise), |bytes| {
        Path::new(OsStr::from_bytes(bytes))
    })
}

/// Returns the UTF-8 text at `text`. `what` names the argument in errors.
///
/// # Safety
/// The same as for [`c_string`].
pub(super) unsafe fn text<'a>(text: *const c_char, what: &str) -> Result<&'a str, OffldError> {
    // SAFETY: the caller guarantees it.
    let bytes =
        unsafe { c_string(text) }.ok_or_else(|| OffldError::argument(format!("{what} is NULL")))?;
    std::str::from_utf8(bytes)
        .map_err(|error| OffldError::argument(format!("{what} is not UTF-8: {error}")))
}

/// Duplicates the file descriptor `number`; the caller's descriptor stays open.
pub(super) fn file(number: i32) -> Result<File, OffldError> {
    if number < 0 {
        return Err(OffldError::argument(format!(
            "invalid file descriptor {number}"
        )));
    }
    // SAFETY: the descriptor is used for this one system call, which checks whether it is open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    Ok(File::from(borrowed.try_clone_to_owned()?))
}

/// A function that receives bytes, in several calls: `size` bytes at `data`, which are valid until
/// it returns. `context` is the pointer that was passed with the function. It returns 0 to
/// continue; any other value ends the call with `OFFLD_STATUS_STOPPED`. It must return normally: no
/// `longjmp` and no C++ exception may leave it.
pub type OffldWrite =
    Option<unsafe extern "C" fn(context: *mut c_void, data: *const u8, size: usize) -> c_int>;

/// A writer that calls the caller's function.
struct Function {
    write: unsafe extern "C" fn(*mut c_void, *const u8, usize) -> c_int,
    context: *mut c_void,
    /// The nonzero value that the function returned, if it ended the call.
    stop_value: Option<c_int>,
}

impl Write for Function {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the caller passed both for this purpose.
        match unsafe { (self.write)(self.context, bytes.as_ptr(), bytes.len()) } {
            0 => Ok(bytes.len()),
            value => {
                self.stop_value = Some(value);
                Err(io::ErrorKind::Other.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Runs `all` with a writer that calls the caller's function.
///
/// # Safety
/// `write` can be called with `context` and any bytes.
pub(super) unsafe fn to_function(
    write: OffldWrite,
    context: *mut c_void,
    all: impl FnOnce(&mut dyn Write) -> Result<(), Error>,
) -> Result<(), OffldError> {
    let write = write.ok_or_else(|| OffldError::argument("the write function is NULL"))?;
    let mut function = Function {
        write,
        context,
        stop_value: None,
    };
    let written = all(&mut function);
    match function.stop_value {
        Some(value) => Err(OffldError::stopped(value)),
        None => Ok(written?),
    }
}

#[cfg(test)]
mod tests {
    use std::ptr;

    use super::*;

    #[test]
    fn invalid_arguments_are_rejected_before_they_are_read() {
        // SAFETY: the calls that must fail read nothing, and the others read constants.
        unsafe {
            assert_eq!(bytes(ptr::null(), 0).unwrap(), b"");
            assert!(bytes(ptr::null(), 1).is_err());
            assert!(bytes(b"x".as_ptr(), usize::MAX).is_err());
            assert!(bytes(b"x".as_ptr(), isize::MAX as usize + 1).is_err());
            assert_eq!(bytes(b"xy".as_ptr(), 2).unwrap(), b"xy");
            assert!(path(ptr::null()).is_err() && text(c"\xff".as_ptr(), "the key").is_err());
            assert_eq!(
                path(c"\xff".as_ptr()).unwrap().as_os_str().as_bytes(),
                b"\xff"
            );
            assert_eq!(
                (name(ptr::null(), "x"), name(c"y".as_ptr(), "x")),
                (Path::new("x"), Path::new("y"))
            );
        }
        assert!(file(-1).is_err() && file(i32::MIN).is_err() && file(i32::MAX).is_err());
    }
}
