//! Formats detected from contents, not from names, and their magic numbers
//! (docs/spec/link-driver.md 3.2).
//!
//! COFF objects, PTX and text have no magic number. Their headers or first bytes identify them.
//!
//! ```
//! use offload_formats::magic::{Magic, magic};
//!
//! assert_eq!(magic(b"\x10\xff\x10\xad"), Magic::OffloadBinary);
//! assert_eq!(magic(b"!<thin>\n"), Magic::Archive);
//! assert_eq!(magic(b"INPUT(libx.a)\n"), Magic::Text);
//! ```

pub(crate) mod numbers;

use object::read::coff::CoffFile;
use object::{FileKind, elf};

use super::compression::Compression;
use super::containers::Kind;
use super::{bundle, kpack, tar, zip};

pub use numbers::*;

/// The file types that a command line of the linker can name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Magic {
    /// An ELF relocatable object or executable.
    Elf,
    /// An ELF shared object or position-independent executable. Only the host link uses it.
    ElfShared,
    /// A COFF object, big or small.
    Coff,
    /// LLVM bitcode, with or without its wrapper header.
    Bitcode,
    /// A separate OffloadBinary.
    OffloadBinary,
    /// An archive, thin or not.
    Archive,
    /// Text that may be a linker script.
    Text,
    /// Any other file. offld does not read it.
    Other,
}

/// The type of the file with the contents `data`.
pub fn magic(data: &[u8]) -> Magic {
    if data.starts_with(&ELF) {
        return elf_kind(data);
    }
    match byte_kind(data, true) {
        ByteKind::Bitcode => Magic::Bitcode,
        ByteKind::Container(Kind::OffloadBinary) => Magic::OffloadBinary,
        ByteKind::Archive => Magic::Archive,
        ByteKind::Object(FileKind::Coff | FileKind::CoffBig) => Magic::Coff,
        _ if is_text(data) => Magic::Text,
        _ => Magic::Other,
    }
}

/// The formats that contain or are device code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ByteKind {
    /// A container, which other containers may follow ([`row`](super::containers::row)).
    Container(Kind),
    /// A text bundle whose comments start with this.
    TextBundle(&'static str),
    /// A kpack archive.
    Kpack,
    /// An archive, thin or not.
    Archive,
    /// A zip file, such as a Python wheel.
    Zip,
    /// A tar archive.
    Tar,
    /// A file that is compressed as a whole.
    Compressed(Compression),
    /// ELF, COFF, PE or another file with sections.
    Object(FileKind),
    /// LLVM bitcode, with or without its wrapper header.
    Bitcode,
    /// A SPIR-V module.
    Spirv,
    /// PTX.
    Ptx,
    /// NVIDIA's Tile IR.
    TileIr,
    /// A zstd frame, as SYCL compilers store images.
    Zstd,
    /// No bytes.
    Empty,
    /// Any other format, which is not inspected.
    Unknown,
}

impl ByteKind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        use FileKind::{Coff, CoffBig, Elf32, Elf64, MachO32, MachO64, Pe32, Pe64};
        match self {
            ByteKind::Container(kind) => kind.name(),
            ByteKind::TextBundle(_) => "text-bundle",
            ByteKind::Kpack => "kpack",
            ByteKind::Archive => "archive",
            ByteKind::Zip => "zip",
            ByteKind::Tar => "tar",
            ByteKind::Compressed(compression) => compression.name(),
            ByteKind::Object(Elf32 | Elf64) => "elf",
            ByteKind::Object(Coff | CoffBig) => "coff-object",
            ByteKind::Object(Pe32 | Pe64) => "pe",
            ByteKind::Object(MachO32 | MachO64) => "mach-o",
            ByteKind::Object(_) => "object",
            ByteKind::Bitcode => "bitcode",
            ByteKind::Spirv => "spirv",
            ByteKind::Ptx => "ptx",
            ByteKind::TileIr => "tile-ir",
            ByteKind::Zstd => "zstd",
            ByteKind::Empty => "empty",
            ByteKind::Unknown => "unknown",
        }
    }
}

/// The format of `data`. `host` is true for a file or a member of an archive, and false for an
/// image in a container. Only the former can be COFF objects: they have no magic number, and an
/// image could be mistaken for one.
pub fn byte_kind(data: &[u8], host: bool) -> ByteKind {
    if let Some(kind) = Kind::of(data) {
        return ByteKind::Container(kind);
    }
    match data {
        [] => ByteKind::Empty,
        _ if is_archive(data) => ByteKind::Archive,
        _ if is_bitcode(data) => ByteKind::Bitcode,
        _ if is_spirv(data) => ByteKind::Spirv,
        _ if data.starts_with(&TILE_IR) => ByteKind::TileIr,
        _ if !host && data.starts_with(&ZSTD) => ByteKind::Zstd,
        _ if host && kpack::is_kpack(data) => ByteKind::Kpack,
        _ if host && zip::is_zip(data) => ByteKind::Zip,
        _ if host && tar::is_tar(data) => ByteKind::Tar,
        _ => {
            if let Some(compression) = Compression::of(data).filter(|_| host) {
                return ByteKind::Compressed(compression);
            }
            if let Some(comment) = text_bundle(data) {
                return ByteKind::TextBundle(comment);
            }
            match FileKind::parse(data) {
                Ok(kind) if is_object(data, kind, host) => ByteKind::Object(kind),
                _ if is_ptx(data) => ByteKind::Ptx,
                _ => ByteKind::Unknown,
            }
        }
    }
}

/// The part of compressed data that is decompressed to recognize its format.
pub const START: u64 = 64 << 10;

/// Whether there can be device code in a file that begins with `start`, which is all of it or
/// [`START`] bytes.
pub fn may_have_device_code(start: &[u8]) -> bool {
    match byte_kind(start, true) {
        ByteKind::Empty => false,
        // Whether it is a COFF object depends on tables further on.
        ByteKind::Unknown => {
            start.len() as u64 >= START && matches!(FileKind::parse(start), Ok(FileKind::Coff))
        }
        _ => true,
    }
}

/// Whether `data` is an object or program of this kind. Small COFF objects have no magic number, so
/// the machine must be known, and the tables must lie inside the file. Big ones have a header that
/// differs from that of import files.
fn is_object(data: &[u8], kind: FileKind, host: bool) -> bool {
    use FileKind::{Coff, CoffBig, Elf32, Elf64, MachO32, MachO64, Pe32, Pe64, Xcoff32, Xcoff64};
    match kind {
        Coff => host && CoffFile::<&[u8]>::parse(data).is_ok(),
        CoffBig => host,
        Elf32 | Elf64 | MachO32 | MachO64 | Pe32 | Pe64 | Xcoff32 | Xcoff64 => true,
        _ => false,
    }
}

/// The start of comments in a text bundle, if `data` is one. An empty line before the first marker
/// is optional.
fn text_bundle(data: &[u8]) -> Option<&'static str> {
    let line = data
        .strip_prefix(b"\r\n")
        .or(data.strip_prefix(b"\n"))
        .unwrap_or(data);
    let marks = |comment: &str| bundle::text::start_marker(comment, "").trim().to_owned();
    ["//", "#", ";"]
        .into_iter()
        .find(|comment| line.starts_with(marks(comment).as_bytes()))
}

/// PTX starts, after comments, with the version of its language.
fn is_ptx(data: &[u8]) -> bool {
    const LOOKED_AT: usize = 64 << 10;
    let start = String::from_utf8_lossy(data.get(..LOOKED_AT).unwrap_or(data));
    let mut lines = start
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines
        .next()
        .is_some_and(|line| line.starts_with(".version"))
}

/// The type of an ELF file, or `None` if the data ends before that field. No other field is read,
/// except the byte order.
pub fn elf_type(data: &[u8]) -> Option<elf::FileType> {
    let is_big_endian = data.get(5) == Some(&elf::ELFDATA2MSB.0);
    let field = data
        .get(16..18)
        .and_then(|field| <[u8; 2]>::try_from(field).ok())?;
    Some(elf::FileType(if is_big_endian {
        u16::from_be_bytes(field)
    } else {
        u16::from_le_bytes(field)
    }))
}

/// A truncated header counts as ELF, so that the reader reports the error with its offset.
fn elf_kind(data: &[u8]) -> Magic {
    match elf_type(data) {
        Some(elf::ET_DYN) => Magic::ElfShared,
        None | Some(elf::ET_REL | elf::ET_EXEC) => Magic::Elf,
        Some(_) => Magic::Other,
    }
}

fn is_text(data: &[u8]) -> bool {
    const PREFIX: usize = 1024;
    let start = data.get(..PREFIX).unwrap_or(data);
    !start.is_empty()
        && start
            .iter()
            .all(|byte| matches!(byte, b'\t' | b'\n' | b'\r' | 0x0c | 0x20..=0x7e | 0x80..))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_follow_from_the_first_bytes() {
        let mut elf = vec![
            0x7f, b'E', b'L', b'F', 2, 1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,
        ];
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
