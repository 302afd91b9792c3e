//! Sections of an ELF file get other contents. The new file is a rope: what stays is copied by the system, not through memory.

use super::piece::Piece;
use super::rope::Rope;
use crate::error::Malformed;
pub use crate::formats::elf::resize::Patch;
use crate::formats::elf::resize::{self, NewSize, Part, plan};

/// New contents for a section.
#[derive(Debug, Clone)]
pub struct Replacement {
    /// Its index in the section table.
    pub section: usize,
    /// What is to be in it.
    pub contents: Rope,
}

/// The ELF file `file` with other contents in some sections and `patches` made. Contents may have any size. In programs and shared
/// libraries addresses stay, and whole pages of the file that are no longer needed are taken out of it; contents that do not fit
/// where they are move behind everything that is loaded, to the address that `addresses` tells.
///
/// Symbols that point behind the new end of a section get its start and the size 0; relocations are the caller's to change.
///
/// # Errors
/// The file is damaged, or not of a kind that can be changed; a section has no bytes in the file, is named twice, or shares its
/// bytes with another or with a segment that must stay whole; a patch is of bytes that are replaced or written anew; there is no
/// room for another program header.
pub fn resize(file: &Piece, replacements: Vec<Replacement>, patches: Vec<Patch>) -> Result<Rope, Malformed> {
    resize_with_pointers(file, replacements, patches, &[])
}

/// As `resize`, and a program or shared library gets an array of `pointers` behind everything that is loaded, at the address that
/// `addresses_with_pointers` tells. They are addresses in the file, none of them null; the loader makes them right wherever the
/// file is loaded. The array is writable.
///
/// # Errors
/// As `resize` has them; pointers for an object, or for a file that can be at any address and whose relocations cannot become more.
pub(crate) fn resize_with_pointers(
    file: &Piece,
    replacements: Vec<Replacement>,
    patches: Vec<Patch>,
    pointers: &[u64],
) -> Result<Rope, Malformed> {
    let sizes: Vec<NewSize> =
        replacements.iter().map(|new| NewSize { section: new.section, size: new.contents.size() }).collect();
    let parts = plan(file.bytes(), &sizes, &patches, pointers)?;
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

/// The addresses that new contents will have in memory, for each section (its index, and the size of its new contents in bytes) of
/// a program or shared library, all given to `resize` at once. For an object they say nothing.
///
/// # Errors
/// As `resize` has them.
pub(crate) fn addresses(file: &Piece, sizes: &[(usize, u64)]) -> Result<Vec<u64>, Malformed> {
    addresses_with_pointers(file, sizes, 0).map(|(addresses, _)| addresses)
}

/// As `addresses`, for a file that gets an array of `pointers` pointers; and the address of this array.
///
/// # Errors
/// As `resize_with_pointers` has them.
pub(crate) fn addresses_with_pointers(
    file: &Piece,
    sizes: &[(usize, u64)],
    pointers: usize,
) -> Result<(Vec<u64>, u64), Malformed> {
    let sizes: Vec<NewSize> = sizes.iter().map(|(section, size)| NewSize { section: *section, size: *size }).collect();
    resize::addresses(file.bytes(), &sizes, pointers)
}
