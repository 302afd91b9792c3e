//! Bytes that the C caller owns and frees.

#![expect(unsafe_code, reason = "exported C symbols")]

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
