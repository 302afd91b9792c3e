//! Files that somebody has signed: with other bytes the signature is wrong, and what checks it
//! refuses the file.

use std::fs::File;
use std::path::Path;

use anyhow::{Context, Result, bail};
use object::{Object, ObjectSection};

use crate::io::file_slice::FileSlice;
use crate::sys::attributes;

/// How files end to which the kernel's `sign-file` has added a signature.
const APPENDED: &[u8] = b"~Module signature appended~\n";
/// Sections in which tools keep a signature of the file.
const SECTIONS: [&str; 3] = [".signature", ".sig", ".sgn"];

/// That the file at `path` is not signed.
///
/// # Errors
/// It is; the error says by what.
pub(super) fn check(path: &Path, piece: &FileSlice) -> Result<()> {
    let by = if piece.bytes().ends_with(APPENDED) {
        Some("with a signature at its end".to_owned())
    } else {
        of_attribute(path)?.or_else(|| of_section(piece.bytes()))
    };
    match by {
        None => Ok(()),
        Some(by) => bail!(
            "{}: the file is signed {by}, and a change would invalidate the signature; pass --force to change it anyway",
            path.display()
        ),
    }
}

fn of_attribute(path: &Path) -> Result<Option<String>> {
    if path == Path::new("-") {
        return Ok(None);
    }
    let file = File::open(path).with_context(|| path.display().to_string())?;
    let name = attributes::signature(&file).with_context(|| path.display().to_string())?;
    Ok(name.map(|name| format!("by its extended attribute `{name}`")))
}

fn of_section(data: &[u8]) -> Option<String> {
    let file = object::File::parse(data).ok()?;
    file.sections().find_map(|section| {
        let name = section.name().ok()?;
        (SECTIONS.contains(&name) && section.size() > 0).then(|| format!("in its section `{name}`"))
    })
}
