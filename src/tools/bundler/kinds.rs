//! The file types of `-type=` (docs/spec/containers.md 2.7).

use std::ffi::OsStr;

use anyhow::{Result, bail};

/// The bundle format of a file type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Layout {
    /// A text bundle with this comment prefix.
    Text(&'static str),
    /// A binary bundle.
    Binary,
    /// Sections of an object if the reference input is one, otherwise a binary bundle.
    Object,
    /// An archive whose members are like `Object`.
    Archive,
}

/// The layout for `-type=name`.
pub(super) fn layout(name: &OsStr) -> Result<Layout> {
    Ok(match name.to_str() {
        Some("i" | "ii" | "cui" | "hipi") => Layout::Text("//"),
        Some("d" | "s") => Layout::Text("#"),
        Some("ll") => Layout::Text(";"),
        Some("bc" | "gch" | "ast") => Layout::Binary,
        Some("o") => Layout::Object,
        Some("a") => Layout::Archive,
        _ => bail!("'{}': invalid file type specified", name.to_string_lossy()),
    })
}
