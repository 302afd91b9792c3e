//! Destinations of bytes: a function of the caller, a file descriptor, a file.

#![expect(unsafe_code, reason = "calls a function of the caller")]

use std::ffi::{c_int, c_void};
use std::io::{self, Write};

use super::status::OffldError;
use crate::error::Error;

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
