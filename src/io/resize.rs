//! Sections of an ELF file get other contents. The new file is a rope: what stays is copied by the system, not through memory.

use super::piece::Piece;
use super::rope::Rope;
use crate::error::Malformed;
pub use crate::formats::elf::resize::Patch;
use crate::formats::elf::resize::{NewSize, Part, plan};

/// New contents for a section.
#[derive(Debug, Clone)]
pub struct Replacement {
    /// Its index in the section table.
    pub section: usize,
    /// What is to be in it.
    pub contents: Rope,
}

/// The ELF file `file` with other contents in some sections and `patches` made. In relocatable objects contents may have any size; in
/// programs and shared libraries at most the size that the section has. There all addresses stay, and whole pages of the file
/// that are no longer needed are taken out of it.
///
/// Symbols that point behind the new end of a section get its start and the size 0; relocations are the caller's to change.
///
/// # Errors
/// The file is damaged, or not of a kind that can be changed; a section has no bytes in the file, or is named twice; a section of a
/// linked file becomes larger; a patch is of bytes that are replaced or written anew.
pub fn resize(file: &Piece, replacements: Vec<Replacement>, patches: Vec<Patch>) -> Result<Rope, Malformed> {
    let sizes: Vec<NewSize> =
        replacements.iter().map(|new| NewSize { section: new.section, size: new.contents.size() }).collect();
    let parts = plan(file.bytes(), &sizes, &patches)?;
    let mut contents: Vec<Option<Rope>> = replacements.into_iter().map(|new| Some(new.contents)).collect();
    let mut rope = Rope::default();
    for part in parts {
        match part {
            Part::Old(range) => {
                let size = range.end.saturating_sub(range.start);
                rope.push_piece(file.slice(range.start, size).ok_or(Malformed::new("a range past the end", range.start))?);
            }
            Part::New(place) => rope.append(contents.get_mut(place).and_then(Option::take).unwrap_or_default()),
            Part::Bytes(bytes) => rope.push_bytes(bytes),
            Part::Zeros(count) => rope.push_zeros(count),
        }
    }
    Ok(rope)
}

/// The address at which each section will be: STUB until the layout of linked files is there.
pub(crate) fn addresses(file: &Piece, sizes: &[(usize, u64)]) -> Result<Vec<u64>, Malformed> {
    use object::{Object, ObjectSection};
    let read = object::File::parse(file.bytes()).map_err(|_| Malformed::new("not an ELF file", 0))?;
    Ok(sizes
        .iter()
        .map(|(index, _)| read.section_by_index(object::SectionIndex(*index)).map_or(0, |one| one.address()))
        .collect())
}
