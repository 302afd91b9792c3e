//! Recognizes the format of bytes by how they start, never by a file name.

use object::FileKind;
use object::read::coff::CoffFile;

use crate::formats::compression::Compression;
use crate::formats::{bundle, compressed, fatbin, magic, offload_binary, tar, zip};

/// How much of what is compressed is unpacked to tell what it is.
pub(crate) const START: u64 = 64 << 10;

/// The formats that hold or are device code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ByteKind {
    /// One or more OffloadBinaries, bundles, compressed bundles, fatbinaries in a row.
    Containers,
    /// A text bundle whose comments start with this.
    TextBundle(&'static str),
    /// An archive.
    Archive,
    /// A zip file, such as a Python wheel.
    Zip,
    /// A tar archive.
    Tar,
    /// A file that is compressed as a whole.
    Compressed(Compression),
    /// ELF, COFF, PE or another file with sections.
    Object(FileKind),
    /// LLVM bitcode.
    Bitcode,
    /// A SPIR-V module.
    Spirv,
    /// PTX.
    Ptx,
    /// NVIDIA's Tile IR.
    TileIr,
    /// One frame of zstd by itself, as SYCL's compilers store images.
    Zstd,
    /// No bytes.
    Empty,
    /// Any other format, which is not inspected.
    Unknown,
}

/// The format of `data`. `host`: it is a file or a member of an archive, not an image in a
/// container. COFF objects are recognized only there, as they have no magic number and an image
/// could be mistaken for one.
pub(crate) fn byte_kind(data: &[u8], host: bool) -> ByteKind {
    if data.is_empty() {
        return ByteKind::Empty;
    }
    if is_container(data) {
        return ByteKind::Containers;
    }
    if magic::is_archive(data) {
        return ByteKind::Archive;
    }
    if !host && data.starts_with(&magic::ZSTD) {
        return ByteKind::Zstd;
    }
    if host && zip::is_zip(data) {
        return ByteKind::Zip;
    }
    if host && tar::is_tar(data) {
        return ByteKind::Tar;
    }
    if let Some(compression) = Compression::of(data).filter(|_| host) {
        return ByteKind::Compressed(compression);
    }
    if magic::is_bitcode(data) {
        return ByteKind::Bitcode;
    }
    if magic::is_spirv(data) {
        return ByteKind::Spirv;
    }
    if data.starts_with(&magic::TILE_IR) {
        return ByteKind::TileIr;
    }
    if let Some(comment) = text_bundle(data) {
        return ByteKind::TextBundle(comment);
    }
    match FileKind::parse(data) {
        Ok(FileKind::Coff) if host && CoffFile::<&[u8]>::parse(data).is_ok() => {
            ByteKind::Object(FileKind::Coff)
        }
        Ok(FileKind::CoffBig) if host => ByteKind::Object(FileKind::CoffBig),
        Ok(kind) if is_linkable(kind) => ByteKind::Object(kind),
        _ if is_ptx(data) => ByteKind::Ptx,
        _ => ByteKind::Unknown,
    }
}

/// Whether there can be device code in a file that begins with `start`, which is all of it or
/// [`START`] bytes.
pub(crate) fn may_have_device_code(start: &[u8]) -> bool {
    match byte_kind(start, true) {
        ByteKind::Empty => false,
        // Whether it is a COFF object is told by tables further on.
        ByteKind::Unknown => {
            start.len() as u64 >= START && matches!(FileKind::parse(start), Ok(FileKind::Coff))
        }
        _ => true,
    }
}

/// Whether `data` starts with a container of device code that other containers may follow.
pub(crate) fn is_container(data: &[u8]) -> bool {
    offload_binary::is_offload_binary(data)
        || bundle::is_bundle(data)
        || compressed::is_compressed(data)
        || fatbin::is_fatbin(data)
}

fn is_linkable(kind: FileKind) -> bool {
    use FileKind::{Elf32, Elf64, MachO32, MachO64, Pe32, Pe64, Xcoff32, Xcoff64};
    matches!(
        kind,
        Elf32 | Elf64 | MachO32 | MachO64 | Pe32 | Pe64 | Xcoff32 | Xcoff64
    )
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
