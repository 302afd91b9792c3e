//! Bytes that C gets and frees.

#![expect(unsafe_code, reason = "names that C finds")]

/// Bytes that the caller has got, with one zero byte behind them that is not counted. Freed by `offld_buffer_free`.
#[derive(Debug)]
pub struct OffldBuffer(Vec<u8>);

impl OffldBuffer {
    /// These bytes, which are not copied.
    pub(super) fn new(mut bytes: Vec<u8>) -> OffldBuffer {
        bytes.push(0);
        OffldBuffer(bytes)
    }
}

/// The bytes, valid until the buffer is freed. NULL for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_buffer_data(buffer: Option<&OffldBuffer>) -> *const u8 {
    buffer.map_or(std::ptr::null(), |buffer| buffer.0.as_ptr())
}

/// How many bytes there are. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_buffer_size(buffer: Option<&OffldBuffer>) -> usize {
    buffer.map_or(0, |buffer| buffer.0.len().saturating_sub(1))
}

/// Frees a buffer. NULL is nothing to do.
#[unsafe(no_mangle)]
pub extern "C" fn offld_buffer_free(buffer: Option<Box<OffldBuffer>>) {
    drop(buffer);
}
