//! Sections of an ELF file or a COFF object get other contents. The new file is a rope: what stays is copied by the system, not through memory.

use std::ops::Range;

use super::piece::Piece;
use super::rope::Rope;
use crate::error::Malformed;
use crate::formats::coff;
pub(crate) use crate::formats::elf::resize::NO_ROOM;
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
/// where they are move behind everything that is loaded, to the address that `addresses_with` tells.
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
/// `addresses_with` tells. They are addresses in the file, none of them null; the loader makes them right wherever the
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
    resize_with(file, replacements, patches, pointers, &[])
}

/// As `resize_with_pointers`, and new contents of the sections with the indices `movable` may begin at a later address although they
/// fit where they are, since all that points to them is among the patches: they do not stand right behind the program headers then,
/// of which tools add more. `addresses_with` tells the addresses.
///
/// # Errors
/// As `resize_with_pointers` has them.
pub(crate) fn resize_with(
    file: &Piece,
    replacements: Vec<Replacement>,
    patches: Vec<Patch>,
    pointers: &[u64],
    movable: &[usize],
) -> Result<Rope, Malformed> {
    let size = |new: &Replacement| new_size(new.section, new.contents.size(), movable);
    let sizes: Vec<NewSize> = replacements.iter().map(size).collect();
    put_together(file, replacements, plan(file.bytes(), &sizes, &patches, pointers)?)
}

/// The COFF object `file` with other contents in some sections; `Replacement::section` is the number of a section, from 1. What is
/// behind them moves in the file.
///
/// # Errors
/// The file is damaged; a section has no bytes in the file, has relocations, is named twice, or shares its bytes; the object becomes
/// larger than its format allows.
pub(crate) fn resize_coff(file: &Piece, replacements: Vec<Replacement>) -> Result<Rope, Malformed> {
    let size = |new: &Replacement| new_size(new.section, new.contents.size(), &[]);
    let sizes: Vec<NewSize> = replacements.iter().map(size).collect();
    put_together(file, replacements, coff::resize::plan(file.bytes(), &sizes)?)
}

/// The program `file` with a page more in front, in which the headers of file and segments stand, and how many bytes that is: everything
/// else is so much further back in the file, at the address where it was. None where a file can have none.
///
/// # Errors
/// The file is damaged.
pub(crate) fn with_front_page(file: &Piece) -> Result<Option<(u64, Rope)>, Malformed> {
    let Some((page, parts)) = resize::with_front_page(file.bytes())? else { return Ok(None) };
    Ok(Some((page, put_together(file, Vec::new(), parts)?)))
}

/// The program `file` in which each of `ranges` of it is a section called `name`; they are in order, each with bytes of one loaded
/// section. Everything stays where it is.
///
/// # Errors
/// The file is damaged or an object; a range is of no such section; the names of sections are loaded.
pub(crate) fn divide(file: &Piece, ranges: &[Range<u64>], name: &str) -> Result<Rope, Malformed> {
    put_together(file, Vec::new(), resize::divide(file.bytes(), ranges, name.as_bytes())?)
}

fn put_together(file: &Piece, replacements: Vec<Replacement>, parts: Vec<Part>) -> Result<Rope, Malformed> {
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
/// a program or shared library, all given to `resize_with` at once with as many `pointers`; and the address of these. The sections
/// with the indices `movable` may begin at a later address. For an object they say nothing.
///
/// # Errors
/// As `resize_with` has them.
pub(crate) fn addresses_with(
    file: &Piece,
    sizes: &[(usize, u64)],
    pointers: usize,
    movable: &[usize],
) -> Result<(Vec<u64>, u64), Malformed> {
    let sizes: Vec<NewSize> = sizes.iter().map(|(section, size)| new_size(*section, *size, movable)).collect();
    resize::addresses(file.bytes(), &sizes, pointers)
}

fn new_size(section: usize, size: u64, movable: &[usize]) -> NewSize {
    NewSize { section, size, may_move: movable.contains(&section) }
}
