//! Magic numbers: the first bytes of each format. The format modules use this one, so it must not
//! use them.

use object::elf;

/// ELF.
pub const ELF: [u8; 4] = elf::ELFMAG;
/// A regular archive: neither thin nor AIX.
pub const ARCHIVE: [u8; 8] = object::archive::MAGIC;
/// A thin archive, whose members are separate files.
pub const THIN_ARCHIVE: [u8; 8] = object::archive::THIN_MAGIC;
/// An AIX archive.
pub const AIX_ARCHIVE: [u8; 8] = object::archive::AIX_BIG_MAGIC;
/// LLVM bitcode.
pub const BITCODE: [u8; 4] = [b'B', b'C', 0xc0, 0xde];
/// The wrapper header that Apple's tools put before bitcode.
pub const BITCODE_WRAPPER: [u8; 4] = [0xde, 0xc0, 0x17, 0x0b];
/// LLVM's OffloadBinary, compressed or not.
pub const OFFLOAD_BINARY: [u8; 4] = [0x10, 0xff, 0x10, 0xad];
/// clang-offload-bundler's binary bundle. The markers of its text bundles and the names of its
/// sections begin with the same text.
pub const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
/// clang-offload-bundler's compressed bundle.
pub const COMPRESSED_BUNDLE: &[u8] = b"CCOB";
/// NVIDIA's fatbinary.
pub const FATBIN: [u8; 4] = [0x50, 0xed, 0x55, 0xba];
/// NVIDIA's Tile IR, as bytecode (CUDA 13.1).
pub const TILE_IR: [u8; 8] = *b"\x7fTileIR\0";
/// A SPIR-V module of little-endian words.
pub const SPIRV: [u8; 4] = 0x0723_0203_u32.to_le_bytes();
/// A SPIR-V module of big-endian words.
pub const SPIRV_BIG_ENDIAN: [u8; 4] = 0x0723_0203_u32.to_be_bytes();
/// A zstd frame (RFC 8878). In containers, compressed data without this magic is zlib.
pub const ZSTD: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// The first of the sixteen magic numbers of skippable zstd frames, which decoders ignore. Four
/// little-endian bytes with the length of the contents follow.
pub const ZSTD_SKIPPABLE: u32 = 0x184d_2a50;
/// The local header of a zip file's first member. A zip file without members begins with
/// [`EMPTY_ZIP`].
pub const ZIP: [u8; 4] = *b"PK\x03\x04";
/// The end record of a zip file.
pub const EMPTY_ZIP: [u8; 4] = *b"PK\x05\x06";

/// gzip (RFC 1952) with deflate, the only method that it defines.
pub const GZIP: [u8; 3] = [0x1f, 0x8b, 8];
/// An xz file.
pub const XZ: [u8; 6] = *b"\xfd7zXZ\0";
/// A bzip2 block, after `BZh` and a digit. [`BZIP2_END`] follows the last block.
pub const BZIP2_BLOCK: [u8; 6] = [0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
/// The end of a bzip2 file.
pub const BZIP2_END: [u8; 6] = [0x17, 0x72, 0x45, 0x38, 0x50, 0x90];
/// The magic of a POSIX or GNU tar header, at offset [`TAR_AT`] of the header.
pub const TAR: [u8; 5] = *b"ustar";
/// The offset of [`TAR`] in bytes.
pub const TAR_AT: usize = 257;

/// Whether `data` starts with bitcode, with or without its wrapper header.
pub fn is_bitcode(data: &[u8]) -> bool {
    data.starts_with(&BITCODE) || data.starts_with(&BITCODE_WRAPPER)
}

/// Whether `data` starts with an archive that [`archive::members`](crate::archive::members) reads,
/// thin or not.
pub fn is_archive(data: &[u8]) -> bool {
    [ARCHIVE, THIN_ARCHIVE, AIX_ARCHIVE]
        .iter()
        .any(|magic| data.starts_with(magic))
}

/// Whether `data` starts with a SPIR-V module.
pub fn is_spirv(data: &[u8]) -> bool {
    data.starts_with(&SPIRV) || data.starts_with(&SPIRV_BIG_ENDIAN)
}
