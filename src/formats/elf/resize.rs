//! Sections of an ELF file get other contents, and the file becomes as much smaller or larger. What
//! is computed here is a list of parts, of which most are ranges of the old file: nothing large is
//! read or copied.
//!
//! * In a relocatable object, a section may get any size. What stands behind it moves in the file,
//!   each section at its alignment.
//! * In a program or shared library, addresses stay. Where contents become shorter, whole pages of
//!   the file that are no longer needed are taken out of it; contents that do not fit where they
//!   are move behind everything that is loaded.

mod divide;
mod front_page;
mod linked;
mod symbols;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};

use object::elf;

use super::edit::{Contents, OutputFile, OutputSection, Policy};
use super::file::{Object, PatchedBytes, Section};
use super::raw::{FileHeader, Record, SectionHeader};
use crate::error::Malformed;
use crate::formats::compose::Part;
use crate::formats::{overlap, range};
pub(crate) use divide::divide;
pub(crate) use front_page::with_front_page;

const NO_POINTERS: &str = "cannot add pointers to an object";

/// What is wrong where a program needs more segments than it has room for: with a page in front
/// (`with_front_page`) it may have that.
pub(crate) const NO_ROOM: &str = "no room for another program header";

/// The size that a section is to have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct NewSize {
    /// Its index in the section table.
    pub section: usize,
    /// In bytes.
    pub size: u64,
    /// Whether contents of a program that fit where they are may begin at a later address there,
    /// since all that points to them is made right. They do so where tools need room for program
    /// headers.
    pub may_move: bool,
}

/// Bytes that are written over those at an offset of the old file. They must be outside of the
/// sections that get new contents, of the file header and of the tables of sections and segments,
/// which are written here.
#[derive(Debug, Clone)]
pub struct Patch {
    /// Where the first byte is in the old file.
    pub offset: u64,
    /// The new bytes, as many as they replace.
    pub bytes: Vec<u8>,
}

/// The parts, in order, of the ELF file `data` in which sections have other sizes and `patches` are
/// made. A program or shared library gets an array of `pointers`, where there are any: addresses in
/// the file, none of them null, which the loader makes right wherever the file is loaded.
/// `addresses` tells where the array will be.
///
/// Symbols that point behind the new end of a section get its start and the size 0: their addresses
/// mean nothing any longer, and tools warn of symbols outside of their section. A symbol that a
/// patch changes stays as it was patched. Relocations are not looked at.
///
/// # Errors
/// The file is damaged, or not of a kind that can be changed; a section has no bytes in the file,
/// is named twice, or shares its bytes with another or with a segment that must stay whole; a patch
/// is of bytes that are not copied; there is no room for another program header, or for the
/// relocations of pointers.
pub(crate) fn plan(
    data: &[u8],
    sizes: &[NewSize],
    patches: &[Patch],
    pointers: &[u64],
) -> Result<Vec<Part>, Malformed> {
    let object = Object::parse_any(data)?;
    let sizes = Sizes::of(&object, sizes)?;
    let mut bytes = PatchedBytes::new(data);
    for patch in patches {
        sizes.check_patch(&object, patch)?;
        bytes.set(patch.offset, &patch.bytes)?;
    }
    match object.head.kind {
        elf::ET_REL if !pointers.is_empty() => Err(Malformed::new(NO_POINTERS, 16)),
        elf::ET_REL => lay_out_object(&object, &sizes, bytes),
        _ => linked::lay_out(&object, &sizes, bytes, pointers),
    }
}

/// The parts of a relocatable object whose sections have other sizes.
fn lay_out_object(
    object: &Object<'_>,
    sizes: &Sizes,
    mut bytes: PatchedBytes<'_>,
) -> Result<Vec<Part>, Malformed> {
    symbols::correct(object, sizes, &symbols::Renumbered::default(), &mut bytes)?;
    check_apart(object)?;
    let section = |(index, section): (usize, &Section<'_>)| OutputSection {
        header: section.header,
        contents: match sizes.by_index.get(&index) {
            Some((place, size)) => Contents::New {
                index: *place,
                size: *size,
            },
            None => Contents::Old(section.body.len() as u64),
        },
        fixed: false,
    };
    let file = OutputFile {
        bytes,
        class: object.class,
        head: object.head,
        sections: object.sections.iter().enumerate().map(section).collect(),
        names: object.names as u32,
        start: FileHeader::size(object.class) as u64,
    };
    file.lay_out(Policy::HeadersInPlace)
}

/// Checks that the file header, the sections and the section headers of an object share no bytes.
fn check_apart(object: &Object<'_>) -> Result<(), Malformed> {
    let table = object.sections.len() * SectionHeader::size(object.class);
    let mut ranges = vec![range(object.head.shoff, table as u64)?];
    for section in object.sections.iter().skip(1) {
        if !section.body.is_empty() {
            ranges.push(range(section.header.offset, section.body.len() as u64)?);
        }
    }
    ranges.sort_by_key(|range| range.start);
    let mut end = FileHeader::size(object.class) as u64;
    for range in ranges {
        if range.start < end {
            return Err(Malformed::new("sections overlap", range.start));
        }
        end = range.end;
    }
    Ok(())
}

/// The address that the contents of each section in `sizes` will have in the file that `plan` makes
/// of the same sizes and as many pointers, and the address of the array of pointers, which is 0
/// where there are none. Contents that do not fit where they are move behind everything that is
/// loaded; all others stay, or begin somewhat later if they may. In relocatable objects and for
/// sections that are not loaded it is the address in the section's header, which says nothing.
///
/// # Errors
/// As `plan` has them.
pub(crate) fn addresses(
    data: &[u8],
    sizes: &[NewSize],
    pointers: usize,
) -> Result<(Vec<u64>, u64), Malformed> {
    let object = Object::parse_any(data)?;
    if object.head.kind != elf::ET_REL {
        return linked::addresses(&object, data, sizes, pointers);
    }
    if pointers > 0 {
        return Err(Malformed::new(NO_POINTERS, 16));
    }
    Sizes::of(&object, sizes)?;
    let of = |new: &NewSize| {
        object
            .sections
            .get(new.section)
            .map_or(0, |section| section.header.addr)
    };
    Ok((sizes.iter().map(of).collect(), 0))
}

/// The sections that get new contents.
#[derive(Clone, Default)]
struct Sizes {
    /// For the index of each its place in the caller's list, and its new size.
    by_index: BTreeMap<usize, (usize, u64)>,
    /// Those that may begin at a later address.
    movable: BTreeSet<usize>,
}

impl Sizes {
    fn of(object: &Object<'_>, sizes: &[NewSize]) -> Result<Sizes, Malformed> {
        let table = object.head.shoff;
        let mut all = Sizes::default();
        for (place, new) in sizes.iter().enumerate() {
            let section = object
                .sections
                .get(new.section)
                .ok_or(Malformed::new("no such section", table))?;
            if new.section == 0 || section.header.is_empty_in_file() {
                return Err(Malformed::new(
                    "cannot add contents to a section without bytes in the file",
                    section.header.offset,
                ));
            }
            if all
                .by_index
                .insert(new.section, (place, new.size))
                .is_some()
            {
                return Err(Malformed::new(
                    "new contents for the same section twice",
                    section.header.offset,
                ));
            }
            if new.may_move {
                all.movable.insert(new.section);
            }
        }
        Ok(all)
    }

    fn of_section(&self, index: usize) -> Option<u64> {
        self.by_index.get(&index).map(|(_, size)| *size)
    }

    /// Checks that a patch changes nothing that is replaced or written anew.
    fn check_patch(&self, object: &Object<'_>, patch: &Patch) -> Result<(), Malformed> {
        let fault = |what| Err(Malformed::new(what, patch.offset));
        let patched = range(patch.offset, patch.bytes.len() as u64)?;
        for index in self.by_index.keys() {
            let of_section = object.sections.get(*index).map(|section| section.header);
            if let Some(header) = of_section
                && overlap(&patched, &range(header.offset, header.size)?)
            {
                return fault("patched bytes are in a section with new contents");
            }
        }
        let head = &object.head;
        let sections = (object.sections.len() as u64).saturating_mul(head.shentsize.into());
        let segments = u64::from(head.phnum) * u64::from(head.phentsize);
        for (at, size) in [
            (0, head.ehsize.into()),
            (head.shoff, sections),
            (head.phoff, segments),
        ] {
            if overlap(&patched, &range(at, size)?) {
                return fault("patched bytes are in the headers of the file");
            }
        }
        Ok(())
    }
}
