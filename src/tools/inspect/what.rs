//! What bytes are, told by their first, never by a name.

use object::FileKind;
use object::read::coff::CoffFile;

use crate::formats::{bundle, compressed, fatbin, magic, offload_binary};

/// Kinds of bytes that device code is in, or is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// One or more OffloadBinaries, bundles, compressed bundles, fatbinaries in a row.
    Containers,
    /// A text bundle with these comments.
    TextBundle(&'static str),
    /// An archive.
    Archive,
    /// ELF, COFF, PE or another file with sections.
    Object(FileKind),
    /// LLVM bitcode.
    Bitcode,
    /// A SPIR-V module.
    Spirv,
    /// PTX.
    Ptx,
    /// No bytes at all.
    Empty,
    /// Nothing that is looked into.
    Unknown,
}

/// What `data` is. `host`: it is a file or a member of an archive, not what a container holds; COFF objects, which have no magic to
/// speak of, are looked for only there.
pub(super) fn what(data: &[u8], host: bool) -> What {
    if data.is_empty() {
        return What::Empty;
    }
    if is_container(data) {
        return What::Containers;
    }
    if magic::is_archive(data) {
        return What::Archive;
    }
    if magic::is_bitcode(data) {
        return What::Bitcode;
    }
    if magic::is_spirv(data) {
        return What::Spirv;
    }
    if let Some(comment) = text_bundle(data) {
        return What::TextBundle(comment);
    }
    match FileKind::parse(data) {
        Ok(FileKind::Coff) if host && CoffFile::<&[u8]>::parse(data).is_ok() => What::Object(FileKind::Coff),
        Ok(FileKind::CoffBig) if host => What::Object(FileKind::CoffBig),
        Ok(kind) if is_linkable(kind) => What::Object(kind),
        _ if is_ptx(data) => What::Ptx,
        _ => What::Unknown,
    }
}

/// Whether `data` starts as a container of device code does that others may follow.
pub(super) fn is_container(data: &[u8]) -> bool {
    offload_binary::is_offload_binary(data)
        || bundle::is_bundle(data)
        || compressed::is_compressed(data)
        || fatbin::is_fatbin(data)
}

fn is_linkable(kind: FileKind) -> bool {
    use FileKind::{Elf32, Elf64, MachO32, MachO64, Pe32, Pe64, Xcoff32, Xcoff64};
    matches!(kind, Elf32 | Elf64 | MachO32 | MachO64 | Pe32 | Pe64 | Xcoff32 | Xcoff64)
}

/// The comments of the text bundle that `data` starts as, with or without the empty line before the first marker.
fn text_bundle(data: &[u8]) -> Option<&'static str> {
    let line = data.strip_prefix(b"\r\n").or(data.strip_prefix(b"\n")).unwrap_or(data);
    let marks = |comment: &str| bundle::text::start_marker(comment, "").trim().to_owned();
    ["//", "#", ";"].into_iter().find(|comment| line.starts_with(marks(comment).as_bytes()))
}

/// PTX starts, after comments, with the version of its language.
fn is_ptx(data: &[u8]) -> bool {
    const LOOKED_AT: usize = 64 << 10;
    let start = String::from_utf8_lossy(data.get(..LOOKED_AT).unwrap_or(data));
    let mut lines = start.lines().map(str::trim).filter(|line| !line.is_empty() && !line.starts_with("//"));
    lines.next().is_some_and(|line| line.starts_with(".version"))
}
