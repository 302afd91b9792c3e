//! The producer of a bitcode file, from its IDENTIFICATION_BLOCK (`LLVM19.1.7`). Nothing after that
//! block is read.

use super::stream::unwrapped;
use crate::formats::bitstream::cursor::{Cursor, Scope};

const IDENTIFICATION_BLOCK: u32 = 13;
const IDENTIFICATION_STRING: u64 = 1;

/// The major version of the LLVM that wrote `bitcode`. `None` if the file does not contain it
/// (before LLVM 3.8) or is not bitcode.
pub fn producer_major(bitcode: &[u8]) -> Option<u32> {
    crate::model::llvm_major(&producer(bitcode)?)
}

/// The producer's name, as stored: `LLVM19.1.7`, or a vendor's, such as `APPLE_1_1500.3.9.4_0`.
pub fn producer(bitcode: &[u8]) -> Option<String> {
    let (stream, _) = unwrapped(bitcode).ok()?;
    let mut cursor = Cursor::new(stream).ok()?;
    // The identification block usually comes first. Blocks before it are skipped.
    loop {
        let scope = cursor.top().ok()?;
        if scope.id == IDENTIFICATION_BLOCK {
            return identification(&mut cursor, scope);
        }
        cursor.skip(scope).ok()?;
    }
}

fn identification(cursor: &mut Cursor<'_>, mut scope: Scope) -> Option<String> {
    while let Some(open) = cursor.next_record(&mut scope).ok()? {
        if open.code == IDENTIFICATION_STRING {
            return String::from_utf8(cursor.bytes(open).ok()?.into_owned()).ok();
        }
        cursor.pass(open).ok()?;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::magic::BITCODE_WRAPPER;

    /// The first 48 bytes of a file from clang 19.1.7: magic, identification block, start of the
    /// module.
    #[rustfmt::skip]
    const CLANG_19: &[u8] = &[
        0x42, 0x43, 0xc0, 0xde, 0x35, 0x14, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x62, 0x0c, 0x30, 0x24,
        0x4a, 0x59, 0xbe, 0x66, 0xdd, 0xfb, 0xb5, 0xbf, 0x0b, 0x51, 0x80, 0x4c, 0x01, 0x00, 0x00, 0x00,
        0x21, 0x0c, 0x00, 0x00, 0x99, 0x01, 0x00, 0x00, 0x0b, 0x02, 0x21, 0x00, 0x02, 0x00, 0x00, 0x00,
    ];

    #[test]
    fn reads_the_producer() {
        assert_eq!(producer(CLANG_19).as_deref(), Some("LLVM19.1.7"));
        assert_eq!(producer_major(CLANG_19), Some(19));
    }

    #[test]
    fn reads_through_the_wrapper() {
        let mut wrapped = BITCODE_WRAPPER.to_vec();
        for field in [0, 20, CLANG_19.len() as u32, 7] {
            wrapped.extend(field.to_le_bytes());
        }
        wrapped.extend(CLANG_19);
        assert_eq!(producer_major(&wrapped), Some(19));
    }

    #[test]
    fn survives_every_prefix_and_every_flip() {
        for len in 0..CLANG_19.len() {
            producer(&CLANG_19[..len]);
        }
        for bit in 0..CLANG_19.len() * 8 {
            let mut bytes = CLANG_19.to_vec();
            bytes[bit / 8] ^= 1 << (bit % 8);
            producer(&bytes);
        }
        assert_eq!(producer(b"\x7fELF"), None);
    }
}
