//! Image kinds from file extensions, and file names for extracted images.

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use crate::model::ImageKind;

/// The image kind of a file, by its extension (docs/spec/containers.md 4.2). LLVM 22 does not know
/// `spv`, which LLVM 23 added, and `ptx`, which CUDA's tools use.
pub(super) fn image_kind(file: &Path) -> ImageKind {
    match split(file).1 {
        b"o" => ImageKind::Object,
        b"bc" => ImageKind::Bitcode,
        b"cubin" => ImageKind::Cubin,
        b"fatbin" => ImageKind::Fatbinary,
        b"s" | b"ptx" => ImageKind::Ptx,
        b"spv" => ImageKind::Spirv,
        _ => ImageKind::None,
    }
}

/// The file extension for an image kind. Empty for kinds without one.
fn extension(kind: ImageKind) -> &'static str {
    match kind {
        ImageKind::Object => "o",
        ImageKind::Bitcode => "bc",
        ImageKind::Cubin => "cubin",
        ImageKind::Fatbinary => "fatbin",
        ImageKind::Ptx => "s",
        ImageKind::Spirv => "spv",
        ImageKind::None | ImageKind::Other(_) => "",
    }
}

/// Returns `<stem of the input>-<triple>-<arch>.<index>.<extension>`, always a file in the current
/// directory. Triple and architecture come from the file, and a `/` in them would lead elsewhere
/// (docs/spec/faults.md P8).
pub(super) fn generated(
    input: &Path,
    triple: &[u8],
    arch: &[u8],
    index: usize,
    kind: ImageKind,
) -> String {
    let stem = plain(split(input).0);
    format!(
        "{stem}-{}-{}.{index}.{}",
        plain(triple),
        plain(arch),
        extension(kind)
    )
}

/// Replaces each character that is invalid or unwise in a file name by `_`.
fn plain(text: &[u8]) -> String {
    let text = String::from_utf8_lossy(text);
    text.chars()
        .map(|c| {
            if c == '/' || c == '\\' || c.is_control() || c == '\u{fffd}' {
                '_'
            } else {
                c
            }
        })
        .collect()
}

/// The file name without its directory, split at the last dot. As in LLVM, `.bc` is only an
/// extension.
fn split(file: &Path) -> (&[u8], &[u8]) {
    let name = file.file_name().unwrap_or(OsStr::new("")).as_bytes();
    match name.iter().rposition(|byte| *byte == b'.') {
        Some(dot) => (
            name.get(..dot).unwrap_or_default(),
            name.get(dot + 1..).unwrap_or_default(),
        ),
        None => (name, &[]),
    }
}
