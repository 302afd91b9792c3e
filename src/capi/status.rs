//! How errors are told to C: a number, and an object with the text. A panic ends here and becomes one.

#![expect(unsafe_code, reason = "names that C finds, and results that are written where C wants them")]

use std::any::Any;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

use super::text::{OffldString, Text, constant, shown};
use crate::error::Error;

/// What came of a call.
#[repr(i32)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OffldStatus {
    /// It has worked.
    Ok = 0,
    /// An argument cannot be: NULL where something must be, a size or index out of range, text that is no UTF-8.
    Argument = 1,
    /// The system did not let something be opened, read or written: `offld_error_system` has its number.
    Io = 2,
    /// Bytes break their format: `offld_error_offset` may say where.
    Malformed = 3,
    /// The caller's function ended the call by a value that is not 0.
    Stopped = 4,
    /// Something that is not supported, or that is not there.
    Other = 5,
    /// A defect of offld. The call has had no effect, and the library can be used further on.
    Internal = 6,
}

/// What went wrong in a call. Freed by `offld_error_free`.
#[derive(Debug)]
pub struct OffldError {
    status: OffldStatus,
    message: Text,
    offset: Option<u64>,
    system: i32,
}

impl OffldError {
    fn new(status: OffldStatus, message: impl AsRef<str>) -> OffldError {
        OffldError { status, message: Text::from(message), offset: None, system: 0 }
    }

    /// An argument that cannot be.
    pub(super) fn argument(message: impl AsRef<str>) -> OffldError {
        OffldError::new(OffldStatus::Argument, message)
    }

    /// The caller's function has ended the call by `value`.
    pub(super) fn stopped(value: i32) -> OffldError {
        OffldError::new(OffldStatus::Stopped, format!("the function that takes the bytes has returned {value}"))
    }

    /// A panic.
    fn internal(panic: &(dyn Any + Send)) -> OffldError {
        let text = panic.downcast_ref::<&str>().copied().or(panic.downcast_ref::<String>().map(String::as_str));
        OffldError::new(OffldStatus::Internal, format!("a defect of offld: {}", text.unwrap_or("it does not say more")))
    }
}

impl From<Error> for OffldError {
    fn from(error: Error) -> Self {
        let message = error.to_string();
        match error {
            Error::Malformed { offset, .. } => OffldError { offset, ..OffldError::new(OffldStatus::Malformed, message) },
            Error::Io { error, .. } => {
                OffldError { system: error.raw_os_error().unwrap_or(0), ..OffldError::new(OffldStatus::Io, message) }
            }
            Error::Usage { .. } => OffldError::new(OffldStatus::Argument, message),
            Error::StepFailed(_) | Error::Other { .. } => OffldError::new(OffldStatus::Other, message),
        }
    }
}

impl From<std::io::Error> for OffldError {
    fn from(error: std::io::Error) -> Self {
        Error::from(error).into()
    }
}

/// A handle that is not there, though it must be.
pub(super) fn needed<T>(handle: Option<T>, what: &str) -> Result<T, OffldError> {
    handle.ok_or_else(|| OffldError::argument(format!("{what} is NULL")))
}

/// Runs `body`, and tells C what comes of it: a status, and at `error`, unless that is NULL, an error or NULL.
///
/// # Safety
/// `error` is NULL or can be written to.
pub(super) unsafe fn told(error: *mut *mut OffldError, body: impl FnOnce() -> Result<(), OffldError>) -> OffldStatus {
    // What a panic leaves half done is dropped with `body`, or is a handle that is only read.
    let ended = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| Err(OffldError::internal(&*panic)));
    let (status, fault) = match ended {
        Ok(()) => (OffldStatus::Ok, None),
        Err(fault) => (fault.status, Some(Box::new(fault))),
    };
    if !error.is_null() {
        // SAFETY: the caller says so. What was there may be uninitialized, and is not dropped.
        unsafe { error.write(fault.map_or(ptr::null_mut(), Box::into_raw)) };
    }
    status
}

/// The same, with a handle at `out` that the caller gets; NULL where there is an error.
///
/// # Safety
/// The same, for both pointers.
pub(super) unsafe fn made<T>(
    out: *mut *mut T,
    error: *mut *mut OffldError,
    body: impl FnOnce() -> Result<T, OffldError>,
) -> OffldStatus {
    let out = ptr::NonNull::new(out);
    if let Some(out) = out {
        // SAFETY: the caller says so.
        unsafe { out.write(ptr::null_mut()) };
    }
    let body = || {
        let out = needed(out, "where the result is to go")?;
        let made = Box::new(body()?);
        // SAFETY: the caller says so.
        unsafe { out.write(Box::into_raw(made)) };
        Ok(())
    };
    // SAFETY: the caller says so.
    unsafe { told(error, body) }
}

/// Which of the statuses the error is.
#[unsafe(no_mangle)]
pub extern "C" fn offld_error_status(error: Option<&OffldError>) -> OffldStatus {
    error.map_or(OffldStatus::Ok, |error| error.status)
}

/// The whole message: what was done with which file, member and section, and why it failed. Empty for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_error_message(error: Option<&OffldError>) -> OffldString {
    shown(error.map(|error| &error.message))
}

/// How far into the bytes the fault is that the message tells; `OFFLD_NONE` where that is not known.
#[unsafe(no_mangle)]
pub extern "C" fn offld_error_offset(error: Option<&OffldError>) -> u64 {
    error.and_then(|error| error.offset).unwrap_or(u64::MAX)
}

/// The system's number of the error (`errno`) with `OFFLD_STATUS_IO`; 0 where there is none.
#[unsafe(no_mangle)]
pub extern "C" fn offld_error_system(error: Option<&OffldError>) -> i32 {
    error.map_or(0, |error| error.system)
}

/// Frees an error. NULL is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn offld_error_free(error: Option<Box<OffldError>>) {
    drop(error);
}

/// The name of a status, such as `malformed`: a constant. A number that is no status is `unknown`.
#[unsafe(no_mangle)]
pub extern "C" fn offld_status_name(status: i32) -> OffldString {
    const NAMES: [&str; 7] = ["ok\0", "argument\0", "io\0", "malformed\0", "stopped\0", "other\0", "internal\0"];
    constant(usize::try_from(status).ok().and_then(|status| NAMES.get(status)).copied().unwrap_or("unknown\0"))
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
        // SAFETY: it was made a moment ago.
        let error = unsafe { Box::from_raw(error) };
        assert_eq!(error.message.bytes(), b"a defect of offld: at 5");
    }

    #[test]
    fn what_the_library_tells_is_told_by_number_too() {
        let missing = crate::inspect("/nonexistent/file", &crate::InspectOptions::default()).unwrap_err();
        let error = OffldError::from(missing);
        assert_eq!((error.status, error.system, error.offset), (OffldStatus::Io, 2, None));
        let fault = OffldError::from(Error::from(crate::error::Malformed::new("cut short", 40)));
        assert_eq!((fault.status, fault.system, offld_error_offset(Some(&fault))), (OffldStatus::Malformed, 0, 40));
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
}
