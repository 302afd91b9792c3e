//! What every call returns: errors as a status and an object with the text, where panics become
//! errors; text, as UTF-8 with its length and a terminating zero byte; the versions of the library.

#![expect(
    unsafe_code,
    reason = "exported C symbols and pointers from the caller"
)]

use std::any::Any;
use std::ffi::c_char;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use offload_formats::error::Error;

/// The version of the binary interface that this header describes. It increases when a function is
/// removed or changes its meaning, and it is part of the shared library's name (`liboffld.so.1`).
/// New functions do not increase it.
pub const OFFLD_ABI_VERSION: u32 = 1;

/// Returns the version of the binary interface of the loaded library. Compare it with
/// `OFFLD_ABI_VERSION` if the program loads the library at run time.
#[unsafe(no_mangle)]
pub extern "C" fn offld_abi_version() -> u32 {
    OFFLD_ABI_VERSION
}

/// Returns the version of offld, such as `1.2.3`.
#[unsafe(no_mangle)]
pub extern "C" fn offld_version() -> OffldString {
    constant(concat!(env!("CARGO_PKG_VERSION"), "\0"))
}

/// The result of a call.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffldStatus {
    /// Success.
    Ok = 0,
    /// An invalid argument: NULL for a required pointer, a size or index out of range, text that is
    /// not UTF-8.
    Argument = 1,
    /// The system could not open, read or write something: `offld_error_system` has its error
    /// number.
    Io = 2,
    /// Bytes that break their format: `offld_error_offset` may have the location.
    Malformed = 3,
    /// The caller's function ended the call with a nonzero value.
    Stopped = 4,
    /// Something is unsupported or missing.
    Other = 5,
    /// A defect of offld. The call had no effect, and the library remains usable.
    Internal = 6,
}

/// The error of a call. Freed by `offld_error_free`.
#[derive(Debug)]
pub struct OffldError {
    status: OffldStatus,
    message: Text,
    offset: Option<u64>,
    system: i32,
}

impl OffldError {
    fn new(status: OffldStatus, message: impl AsRef<str>) -> OffldError {
        OffldError {
            status,
            message: Text::from(message),
            offset: None,
            system: 0,
        }
    }

    /// An invalid argument.
    pub(super) fn argument(message: impl AsRef<str>) -> OffldError {
        OffldError::new(OffldStatus::Argument, message)
    }

    /// The error after the caller's function returned `value`.
    pub(super) fn stopped(value: i32) -> OffldError {
        OffldError::new(
            OffldStatus::Stopped,
            format!("the write function has returned {value}"),
        )
    }

    /// The error for a panic.
    fn internal(panic: &(dyn Any + Send)) -> OffldError {
        let text = panic
            .downcast_ref::<&str>()
            .copied()
            .or(panic.downcast_ref::<String>().map(String::as_str));
        OffldError::new(
            OffldStatus::Internal,
            format!(
                "a bug in offld: {}",
                text.unwrap_or("no further information")
            ),
        )
    }
}

impl From<Error> for OffldError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Malformed { offset, .. } => OffldError {
                offset,
                ..OffldError::new(OffldStatus::Malformed, message)
            },
            Error::Io { error, .. } => OffldError {
                system: error.raw_os_error().unwrap_or(0),
                ..OffldError::new(OffldStatus::Io, message)
            },
            Error::Usage { .. } => OffldError::new(OffldStatus::Argument, message),
            Error::StepFailed(_) | Error::Other { .. } => {
                OffldError::new(OffldStatus::Other, message)
            }
        }
    }
}

impl From<std::io::Error> for OffldError {
    fn from(error: std::io::Error) -> Self {
        Error::from(error).into()
    }
}

/// Returns a required handle; NULL is an error.
pub(super) fn needed<T>(handle: Option<T>, what: &str) -> Result<T, OffldError> {
    handle.ok_or_else(|| OffldError::argument(format!("{what} is NULL")))
}

/// Runs `body` and reports its result to C: returns a status, and sets `*error`, unless `error` is
/// NULL, to an error or NULL.
///
/// # Safety
/// `error` is NULL or can be written to.
pub(super) unsafe fn catch_into_status(
    error: *mut *mut OffldError,
    body: impl FnOnce() -> Result<(), OffldError>,
) -> OffldStatus {
    // State that a panic leaves inconsistent is dropped with `body`, or is a handle that is only
    // read.
    let result = catch_unwind(AssertUnwindSafe(body))
        .unwrap_or_else(|panic| Err(OffldError::internal(&*panic)));
    let (status, fault) = match result {
        Ok(()) => (OffldStatus::Ok, None),
        Err(fault) => (fault.status, Some(Box::new(fault))),
    };
    if !error.is_null() {
        // SAFETY: the caller guarantees it. The previous value may be uninitialized, and is not
        // dropped.
        unsafe { error.write(fault.map_or(ptr::null_mut(), Box::into_raw)) };
    }
    status
}

/// Like [`catch_into_status`], but also sets `*out` to a handle that the caller owns, or to NULL
/// after an error.
///
/// # Safety
/// The same as for [`catch_into_status`], for both pointers.
pub(super) unsafe fn made<T>(
    out: *mut *mut T,
    error: *mut *mut OffldError,
    body: impl FnOnce() -> Result<T, OffldError>,
) -> OffldStatus {
    let out = ptr::NonNull::new(out);
    if let Some(out) = out {
        // SAFETY: the caller guarantees it.
        unsafe { out.write(ptr::null_mut()) };
    }
    let body = || {
        let out = needed(out, "the pointer for the result")?;
        let handle = Box::new(body()?);
        // SAFETY: the caller guarantees it.
        unsafe { out.write(Box::into_raw(handle)) };
        Ok(())
    };
    // SAFETY: the caller guarantees it.
    unsafe { catch_into_status(error, body) }
}

/// Returns the status of the error.
#[unsafe(no_mangle)]
pub extern "C" fn offld_error_status(error: Option<&OffldError>) -> OffldStatus {
    error.map_or(OffldStatus::Ok, |error| error.status)
}

/// Returns the whole message: the operation, the file, member and section, and the cause. Empty for
/// NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_error_message(error: Option<&OffldError>) -> OffldString {
    shown(error.map(|error| &error.message))
}

/// Returns the offset in bytes of the format error that the message reports; `OFFLD_NONE` if it is
/// unknown.
#[unsafe(no_mangle)]
pub extern "C" fn offld_error_offset(error: Option<&OffldError>) -> u64 {
    error.and_then(|error| error.offset).unwrap_or(u64::MAX)
}

/// Returns the system's error number (`errno`) for `OFFLD_STATUS_IO`; 0 if there is none.
#[unsafe(no_mangle)]
pub extern "C" fn offld_error_system(error: Option<&OffldError>) -> i32 {
    error.map_or(0, |error| error.system)
}

/// Frees an error. Does nothing for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_error_free(error: Option<Box<OffldError>>) {
    drop(error);
}

/// Returns the name of a status, such as `malformed`: a constant. `unknown` for an invalid status.
#[unsafe(no_mangle)]
pub extern "C" fn offld_status_name(status: i32) -> OffldString {
    const NAMES: [&str; 7] = [
        "ok\0",
        "argument\0",
        "io\0",
        "malformed\0",
        "stopped\0",
        "other\0",
        "internal\0",
    ];
    constant(
        usize::try_from(status)
            .ok()
            .and_then(|status| NAMES.get(status))
            .copied()
            .unwrap_or("unknown\0"),
    )
}

/// Text: `size` bytes of UTF-8, followed by one zero byte that is not counted, so that `data` is a
/// C string as well. `data` is never NULL; missing text has the size 0. Text belongs to the handle
/// that it was obtained from, and is valid until that handle is freed. Names from damaged or
/// hostile files may contain zero bytes. Invalid UTF-8 in a file is replaced by U+FFFD.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OffldString {
    /// The first byte.
    pub data: *const c_char,
    /// The number of bytes, without the zero byte at the end.
    pub size: usize,
}

/// Owned text with a terminating zero byte.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text(Box<[u8]>);

impl<T: AsRef<str>> From<T> for Text {
    fn from(text: T) -> Self {
        let mut bytes = Vec::with_capacity(text.as_ref().len() + 1);
        bytes.extend(text.as_ref().as_bytes());
        bytes.push(0);
        Text(bytes.into_boxed_slice())
    }
}

impl Text {
    /// Converts text; `None` becomes empty text.
    pub(super) fn of(text: Option<impl AsRef<str>>) -> Text {
        text.map_or_else(|| Text::from(""), Text::from)
    }

    /// Converts each text of `all`.
    pub(super) fn all(all: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<Text> {
        all.into_iter().map(Text::from).collect()
    }

    /// The text without the zero byte.
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.split_last().map_or(&[], |(_, text)| text)
    }
}

/// Returns `text` for C; empty text for `None`.
pub(super) fn shown(text: Option<&Text>) -> OffldString {
    match text {
        Some(text) => OffldString {
            data: text.0.as_ptr().cast(),
            size: text.bytes().len(),
        },
        None => constant("\0"),
    }
}

/// Returns the text with this index in `all` for C; empty text if `index` is out of range.
pub(super) fn nth(all: Option<&Vec<Text>>, index: usize) -> OffldString {
    shown(all.and_then(|all| all.get(index)))
}

/// Returns a constant, which must end with a zero byte.
pub(super) fn constant(text: &'static str) -> OffldString {
    debug_assert!(text.ends_with('\0'));
    OffldString {
        data: text.as_ptr().cast(),
        size: text.len().saturating_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_an_error_and_leaves_no_handle() {
        let (mut out, mut error) = (ptr::dangling_mut::<u32>(), ptr::null_mut());
        // SAFETY: both are variables of this function.
        let status = unsafe { made(&raw mut out, &raw mut error, || panic!("at {}", 5)) };
        assert_eq!((status, out.is_null()), (OffldStatus::Internal, true));
        // SAFETY: the call above returned it with ownership.
        let error = unsafe { Box::from_raw(error) };
        assert_eq!(error.message.bytes(), b"a bug in offld: at 5");
    }

    #[test]
    fn library_errors_have_a_status_and_numbers() {
        let missing =
            crate::inspect("/nonexistent/file", &crate::InspectOptions::default()).unwrap_err();
        let error = OffldError::from(missing);
        assert_eq!(
            (error.status, error.system, error.offset),
            (OffldStatus::Io, 2, None)
        );
        let fault = OffldError::from(Error::from(offload_formats::error::Malformed::new(
            "cut short",
            40,
        )));
        assert_eq!(
            (fault.status, fault.system, offld_error_offset(Some(&fault))),
            (OffldStatus::Malformed, 0, 40)
        );
    }

    #[test]
    fn every_status_has_its_name() {
        let name = |status: i32| {
            let OffldString { data, size } = offld_status_name(status);
            // SAFETY: a constant of this file.
            unsafe { std::slice::from_raw_parts(data.cast::<u8>(), size) }
        };
        assert_eq!(name(OffldStatus::Ok as i32), b"ok");
        assert_eq!(name(OffldStatus::Internal as i32), b"internal");
        assert_eq!((name(-1), name(7)), (&b"unknown"[..], &b"unknown"[..]));
    }

    #[test]
    fn the_size_excludes_the_zero_byte() {
        let text = Text::from("a\0ü");
        assert_eq!(
            (text.bytes(), shown(Some(&text)).size),
            ("a\0ü".as_bytes(), 4)
        );
        assert_eq!(text.0.last(), Some(&0));
        assert_eq!(
            (
                shown(None).size,
                nth(Some(&vec![text]), 1).size,
                Text::of(None::<&str>).bytes()
            ),
            (0, 0, &b""[..])
        );
    }
}
