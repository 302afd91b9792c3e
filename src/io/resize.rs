//! Replaces the contents of sections in an ELF file or a COFF object. The new file is a rope:
//! unchanged parts are copied by the kernel, not through memory.

use std::ops::Range;

use super::file_slice::FileSlice;
use super::rope::Rope;
use crate::error::Malformed;
use crate::formats::coff;
pub(crate) use crate::formats::elf::resize::NO_ROOM;
pub use crate::formats::elf::resize::Patch;
use crate::formats::elf::resize::{self, NewSize, plan};

/// New contents for a section.
#[derive(Debug, Clone)]
pub struct Replacement {
    /// Index in the section table.
    pub section: usize,
    /// The new contents.
    pub contents: Rope,
}

/// Returns the ELF file `file` with new contents in some sections, and with `patches` applied.
/// Contents may have any size. In programs and shared libraries, addresses stay, and whole pages of
/// the file that are no longer needed are removed. Contents that do not fit into their old location
/// move behind all loaded data, to the address that `addresses_with` returns.
///
/// Symbols beyond the new end of a section get its start and the size 0. The caller must change
/// relocations.
///
/// # Errors
/// The file is damaged, or its kind cannot be changed. A section has no bytes in the file, is named
/// twice, or shares its bytes with another section or an indivisible segment. A patch covers bytes
/// that are replaced or rewritten. There is no room for another program header.
pub fn resize(
    file: &FileSlice,
    replacements: Vec<Replacement>,
    patches: Vec<Patch>,
) -> Result<Rope, Malformed> {
    resize_with(file, replacements, patches, &[], &[])
}

/// Like `resize`, and adds an array of `pointers` to a program or shared library. The array is
/// writable, and behind all loaded data, at the address that `addresses_with` returns. The pointers
/// are addresses in the file, none of them null. The loader relocates them to the file's load
/// address.
///
/// New contents of the sections with the indices `movable` may begin at a later address even if
/// they fit into their old location. This requires that `patches` cover all pointers to them. Then
/// they do not directly follow the program headers, to which other tools add more. `addresses_with`
/// returns the addresses.
///
/// # Errors
/// Those of `resize`. There are pointers for an object, or for a position-independent file whose
/// relocations cannot be extended.
pub(crate) fn resize_with(
    file: &FileSlice,
    replacements: Vec<Replacement>,
    patches: Vec<Patch>,
    pointers: &[u64],
    movable: &[usize],
) -> Result<Rope, Malformed> {
    let size = |new: &Replacement| new_size(new.section, new.contents.size(), movable);
    let sizes: Vec<NewSize> = replacements.iter().map(size).collect();
    Rope::of_parts(
        file,
        plan(file.bytes(), &sizes, &patches, pointers)?,
        replacements.into_iter().map(|new| new.contents),
    )
}

/// Returns the COFF object `file` with new contents in some sections; `Replacement::section` is the
/// number of a section, from 1. Data behind them moves in the file.
///
/// # Errors
/// The file is damaged. A section has no bytes in the file, has relocations, is named twice, or
/// shares its bytes. The object becomes larger than its format allows.
pub(crate) fn resize_coff(
    file: &FileSlice,
    replacements: Vec<Replacement>,
) -> Result<Rope, Malformed> {
    let size = |new: &Replacement| new_size(new.section, new.contents.size(), &[]);
    let sizes: Vec<NewSize> = replacements.iter().map(size).collect();
    Rope::of_parts(
        file,
        coff::resize::plan(file.bytes(), &sizes)?,
        replacements.into_iter().map(|new| new.contents),
    )
}

/// Returns the program `file` with one more page in front for the file header and the program
/// headers, and the size of that page. Everything else moves back by that many bytes in the file,
/// and stays at its address. Returns `None` if the file cannot have such a page.
///
/// # Errors
/// The file is damaged.
pub(crate) fn with_front_page(file: &FileSlice) -> Result<Option<(u64, Rope)>, Malformed> {
    let Some((page, parts)) = resize::with_front_page(file.bytes())? else {
        return Ok(None);
    };
    Ok(Some((page, Rope::of_parts(file, parts, [])?)))
}

/// Returns the program `file` with a section called `name` for each of `ranges`. The ranges are in
/// order, each with bytes of one loaded section. Everything stays at its offset and address.
///
/// # Errors
/// The file is damaged or an object, a range is not within a loaded section, or the section names
/// are loaded.
pub(crate) fn divide(
    file: &FileSlice,
    ranges: &[Range<u64>],
    name: &str,
) -> Result<Rope, Malformed> {
    let parts = resize::divide(file.bytes(), ranges, name.as_bytes())?;
    Rope::of_parts(file, parts, [])
}

/// Returns the addresses in memory of new contents, for sections of a program or shared library
/// (index, and size of the new contents in bytes). They must be passed to `resize_with` together,
/// with as many `pointers`. Also returns the address of the pointers. The sections with the indices
/// `movable` may begin at a later address. For an object, the results are meaningless.
///
/// # Errors
/// Those of `resize_with`.
pub(crate) fn addresses_with(
    file: &FileSlice,
    sizes: &[(usize, u64)],
    pointers: usize,
    movable: &[usize],
) -> Result<(Vec<u64>, u64), Malformed> {
    let sizes: Vec<NewSize> = sizes
        .iter()
        .map(|(section, size)| new_size(*section, *size, movable))
        .collect();
    resize::addresses(file.bytes(), &sizes, pointers)
}

fn new_size(section: usize, size: u64, movable: &[usize]) -> NewSize {
    NewSize {
        section,
        size,
        may_move: movable.contains(&section),
    }
}
