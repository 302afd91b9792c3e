//! The magic numbers of all formats, and the kind of a file by its contents, never by its name. COFF objects, PTX and text have no
//! magic number and are recognized by more of their contents. (docs/spec/link-driver.md 3.2)
//!
//! ```
//! use offld::formats::magic::{Magic, magic};
//!
//! assert_eq!(magic(b"\x10\xff\x10\xad"), Magic::OffloadBinary);
//! assert_eq!(magic(b"!<thin>\n"), Magic::Archive);
//! assert_eq!(magic(b"INPUT(libx.a)\n"), Magic::Text);
//! ```

use object::elf;
use object::read::coff::CoffFile;

/// ELF.
pub const ELF: [u8; 4] = elf::ELFMAG;
/// An archive, unless it is one of the next two kinds.
pub const ARCHIVE: [u8; 8] = object::archive::MAGIC;
/// A thin archive, whose members are files of their own.
pub const THIN_ARCHIVE: [u8; 8] = object::archive::THIN_MAGIC;
/// An archive of AIX.
pub const AIX_ARCHIVE: [u8; 8] = object::archive::AIX_BIG_MAGIC;
/// LLVM bitcode.
pub const BITCODE: [u8; 4] = [b'B', b'C', 0xc0, 0xde];
/// The wrapper that Apple's tools put around bitcode.
pub const BITCODE_WRAPPER: [u8; 4] = [0xde, 0xc0, 0x17, 0x0b];
/// LLVM's OffloadBinary, compressed or not.
pub const OFFLOAD_BINARY: [u8; 4] = [0x10, 0xff, 0x10, 0xad];
/// clang-offload-bundler's binary bundle. The markers in its text bundles, and the names of the sections that it makes, begin with
/// the same words.
pub const BUNDLE: &[u8] = b"__CLANG_OFFLOAD_BUNDLE__";
/// clang-offload-bundler's compressed bundle.
pub const COMPRESSED_BUNDLE: &[u8] = b"CCOB";
/// NVIDIA's fatbinary.
pub const FATBIN: [u8; 4] = [0x50, 0xed, 0x55, 0xba];
/// NVIDIA's Tile IR, as bytecode (CUDA 13.1).
pub const TILE_IR: [u8; 8] = *b"\x7fTileIR\0";
/// A SPIR-V module whose words are little-endian.
pub const SPIRV: [u8; 4] = 0x0723_0203_u32.to_le_bytes();
/// A SPIR-V module whose words are big-endian.
pub const SPIRV_BIG_ENDIAN: [u8; 4] = 0x0723_0203_u32.to_be_bytes();
/// A zstd frame (RFC 8878). In containers, compressed data without this magic is zlib.
pub const ZSTD: [u8; 4] = 0xfd2f_b528_u32.to_le_bytes();
/// A frame of zstd that its decoders skip: any of sixteen numbers begins one, of which this is the first. The length of what is in it
/// follows in four bytes, little-endian.
pub const ZSTD_SKIPPABLE: u32 = 0x184d_2a50;
/// The first member of a zip file; a zip file without members is its end alone.
pub const ZIP: [u8; 4] = *b"PK\x03\x04";
/// The end of a zip file.
pub const EMPTY_ZIP: [u8; 4] = *b"PK\x05\x06";

/// What gzip writes: RFC 1952, with the only method that it knows.
pub const GZIP: [u8; 3] = [0x1f, 0x8b, 8];
/// A file of xz.
pub const XZ: [u8; 6] = *b"\xfd7zXZ\0";
/// A block of bzip2, behind `BZh` and a digit; the end of the file is where the last block is followed by [`BZIP2_END`].
pub const BZIP2_BLOCK: [u8; 6] = [0x31, 0x41, 0x59, 0x26, 0x53, 0x59];
/// The end of a file of bzip2.
pub const BZIP2_END: [u8; 6] = [0x17, 0x72, 0x45, 0x38, 0x50, 0x90];
/// A header of a tar archive, where POSIX or GNU wrote it, and where in it this is.
pub const TAR: [u8; 5] = *b"ustar";
/// The offset of [`TAR`] in bytes.
pub const TAR_AT: usize = 257;

/// Whether `data` starts as bitcode does, in its wrapper or not.
pub fn is_bitcode(data: &[u8]) -> bool {
    data.starts_with(&BITCODE) || data.starts_with(&BITCODE_WRAPPER)
}

/// Whether `data` starts as an archive does that [`archive::members`](super::archive::members) reads, thin or not.
pub fn is_archive(data: &[u8]) -> bool {
    [ARCHIVE, THIN_ARCHIVE, AIX_ARCHIVE].iter().any(|magic| data.starts_with(magic))
}

/// Whether `data` starts as a SPIR-V module does.
pub fn is_spirv(data: &[u8]) -> bool {
    data.starts_with(&SPIRV) || data.starts_with(&SPIRV_BIG_ENDIAN)
}

/// The kinds of files that a link line can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Magic {
    /// An ELF relocatable object or executable.
    Elf,
    /// An ELF shared object or position independent executable: only the host link uses it.
    ElfShared,
    /// A COFF object, big or small.
    Coff,
    /// LLVM bitcode, with or without its wrapper header.
    Bitcode,
    /// An OffloadBinary by itself.
    OffloadBinary,
    /// An archive, thin or not.
    Archive,
    /// Text that may be a linker script.
    Text,
    /// Anything else, which is not read.
    Other,
}

/// The kind of `data`.
pub fn magic(data: &[u8]) -> Magic {
    match data {
        _ if data.starts_with(&ELF) => elf_kind(data),
        _ if is_bitcode(data) => Magic::Bitcode,
        _ if data.starts_with(&OFFLOAD_BINARY) => Magic::OffloadBinary,
        _ if is_archive(data) => Magic::Archive,
        _ if is_coff(data) => Magic::Coff,
        _ if is_text(data) => Magic::Text,
        _ => Magic::Other,
    }
}

/// The type of an ELF file. Only this field of the header is read; none if the data ends before it.
pub fn elf_type(data: &[u8]) -> Option<elf::FileType> {
    let is_big_endian = data.get(5) == Some(&elf::ELFDATA2MSB.0);
    let field = data.get(16..18).and_then(|field| <[u8; 2]>::try_from(field).ok())?;
    Some(elf::FileType(if is_big_endian { u16::from_be_bytes(field) } else { u16::from_le_bytes(field) }))
}

/// The kind of an ELF file, by its type. A truncated header counts as ELF, so that the reader reports the error with its offset.
fn elf_kind(data: &[u8]) -> Magic {
    match elf_type(data) {
        Some(elf::ET_DYN) => Magic::ElfShared,
        None | Some(elf::ET_REL | elf::ET_EXEC) => Magic::Elf,
        Some(_) => Magic::Other,
    }
}

/// Whether `data` is a COFF object: one with a known machine and tables inside the file, or a big object, by its header, which
/// import files do not have.
fn is_coff(data: &[u8]) -> bool {
    match object::FileKind::parse(data) {
        Ok(object::FileKind::Coff) => CoffFile::<&[u8]>::parse(data).is_ok(),
        Ok(object::FileKind::CoffBig) => true,
        _ => false,
    }
}

fn is_text(data: &[u8]) -> bool {
    const LOOKED_AT: usize = 1024;
    let start = data.get(..LOOKED_AT).unwrap_or(data);
    !start.is_empty() && start.iter().all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x20..=0x7e | 0x80..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_are_told_by_their_first_bytes() {
        let mut elf = vec![0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0];
        assert_eq!(magic(&elf), Magic::Elf);
        elf[16] = 3;
        assert_eq!(magic(&elf), Magic::ElfShared);
        (elf[5], elf[16], elf[17]) = (2, 0, 1);
        assert_eq!(magic(&elf), Magic::Elf, "big endian");
        assert_eq!(magic(b"BC\xc0\xde...."), Magic::Bitcode);
        assert_eq!(magic(b"!<thin>\n"), Magic::Archive);
        assert_eq!(magic(b"/* GNU ld script */ GROUP ( a.so )"), Magic::Text);
        assert_eq!(magic(&[0, 0, 0, 0]), Magic::Other);
        assert_eq!(magic(b""), Magic::Other);
    }
}
