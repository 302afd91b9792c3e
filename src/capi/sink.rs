//! Where bytes go that C asks for: a function of the caller, a file descriptor, a file.

#![expect(unsafe_code, reason = "a function of the caller is called")]

use std::ffi::{c_int, c_void};
use std::io::{self, Write};

use super::status::OffldError;
use crate::error::Error;

/// A function that takes bytes, part after part: `size` bytes at `data`, which are gone when it has returned. `context` is what it
/// was handed over with. It returns 0 to go on; anything else ends the call with `OFFLD_STATUS_STOPPED`. It must return: no
/// `longjmp` and no C++ exception may leave it.
pub type OffldWrite = Option<unsafe extern "C" fn(context: *mut c_void, data: *const u8, size: usize) -> c_int>;

/// Writes by a function of the caller.
struct Function {
    write: unsafe extern "C" fn(*mut c_void, *const u8, usize) -> c_int,
    context: *mut c_void,
    /// What it has ended the call with.
    ended: Option<c_int>,
}

impl Write for Function {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: the caller has handed both over for this.
        match unsafe { (self.write)(self.context, bytes.as_ptr(), bytes.len()) } {
            0 => Ok(bytes.len()),
            value => {
                self.ended = Some(value);
                Err(io::ErrorKind::Other.into())
            }
        }
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// Has `all` write its bytes to the caller's function.
///
/// # Safety
/// `write` can be called with `context` and any bytes.
pub(super) unsafe fn to_function(
    write: OffldWrite,
    context: *mut c_void,
    all: impl FnOnce(&mut dyn Write) -> Result<(), Error>,
) -> Result<(), OffldError> {
    let write = write.ok_or_else(|| OffldError::argument("the function that takes the bytes is NULL"))?;
    let mut function = Function { write, context, ended: None };
    let written = all(&mut function);
    match function.ended {
        Some(value) => Err(OffldError::stopped(value)),
        None => Ok(written?),
    }
}
