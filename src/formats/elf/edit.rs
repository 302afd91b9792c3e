//! Rewrites a relocatable ELF object of any class, byte order and machine: removes sections,
//! renames sections and symbols, and marks sections that linkers must keep. All other contents stay
//! byte for byte. Sections and symbols are renumbered without gaps, and the bytes of removed
//! sections leave the file. The result is a list of parts, so that unchanged bytes are copied from
//! file to file.
//!
//! New names are appended to the string table. Old names stay in it, because other strings may
//! share their tails.
//!
//! `OutputFile` lays out the new file. It also serves fat objects (`bundled_object`), whose layout
//! equals that of llvm-objcopy, and objects with resized sections (`resize`), whose sections keep
//! their order. `resize` and `strip` handle programs and shared libraries, because their layout has
//! a meaning.

mod entry_tables;
mod layout;
mod names;
mod relocations;
mod symbols;

#[cfg(test)]
pub(in crate::formats::elf) mod tests;

pub(crate) use entry_tables::OLD_DUMMY;
pub use entry_tables::{entry_table_tag, is_fat_section, rename_entry_tables};
pub(in crate::formats) use layout::{
    Contents, OutputFile, OutputSection, Policy, file_align, kept, renumber, tables,
};

use crate::error::Malformed;
use crate::formats::compose::{Part, join};
use crate::formats::elf::file::{Object, PatchedBytes, Section};
use crate::formats::elf::raw::{Class, FileHeader, Record};
use layout::Edited;
use names::Names;
use object::elf;
use std::borrow::Cow;

/// Properties of a section by which [`Edit`] selects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SectionView<'a> {
    /// Index in the section table.
    pub index: usize,
    /// Name of the section.
    pub name: &'a [u8],
    /// Type (`sh_type`).
    pub kind: elf::SectionType,
    /// Flags (`sh_flags`).
    pub flags: elf::SectionFlags,
}

/// Properties of a symbol by which [`Edit`] selects it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct SymbolView<'a> {
    /// Name of the symbol.
    pub name: &'a [u8],
    /// Whether the symbol is local to the object.
    pub local: bool,
    /// Whether the symbol is undefined in the object.
    pub undefined: bool,
}

/// Changes to an object. A new name must not contain a zero byte.
pub struct Edit<'e> {
    /// Whether to remove the section, with its relocations, the symbols that it defines, and a
    /// group that loses all members. Symbol tables, string tables and groups cannot be removed.
    pub remove: &'e dyn Fn(SectionView<'_>) -> bool,
    /// The section's new name, or `None` to keep the name. Relocations of the section are renamed
    /// with it.
    pub rename_section: &'e dyn Fn(SectionView<'_>) -> Option<Vec<u8>>,
    /// The symbol's new name, or `None` to keep the name.
    pub rename_symbol: &'e dyn Fn(SymbolView<'_>) -> Option<Vec<u8>>,
    /// Whether linkers must keep the section even if nothing refers to it (`SHF_GNU_RETAIN`).
    pub retain: &'e dyn Fn(SectionView<'_>) -> bool,
}

impl std::fmt::Debug for Edit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Edit").finish_non_exhaustive()
    }
}

impl Default for Edit<'_> {
    fn default() -> Self {
        Edit {
            remove: &|_| false,
            rename_section: &|_| None,
            rename_symbol: &|_| None,
            retain: &|_| false,
        }
    }
}

/// Returns the parts of the object `data` after `edit`. An edit without effect returns the same
/// bytes.
///
/// # Errors
/// The object is damaged. A section to remove contains symbols, strings or a group, or another
/// section needs it (for a relocation, a link, or a group's signature).
pub fn plan(data: &[u8], edit: &Edit<'_>) -> Result<Vec<Part>, Malformed> {
    let Changed {
        object,
        numbers,
        mut edited,
        names,
    } = change(Object::parse(data)?, edit)?;
    let same_headers = object
        .sections
        .iter()
        .zip(&edited)
        .all(|(section, edited)| section.header == edited.header);
    if names.is_empty() && numbers.all_stay() && same_headers {
        return Ok(vec![Part::Old(0..data.len() as u64)]);
    }
    object.check_overlap()?;
    names.append_to(&mut edited)?;
    let mut sections = kept(&numbers, edited)?;
    for section in &mut sections {
        if section.header.kind != elf::SHT_NOBITS {
            section.header.size = section.size();
        }
    }
    let file = OutputFile {
        bytes: PatchedBytes::new(data),
        class: object.class,
        head: object.head,
        sections,
        names: numbers.of(object.names).unwrap_or(0),
        start: FileHeader::size(object.class) as u64,
    };
    file.lay_out(Policy::HeadersLast)
}

/// An object whose sections have been edited, but not yet laid out in a new file.
pub(in crate::formats) struct Changed<'a> {
    /// The object. Its sections are those before the edit.
    pub object: Object<'a>,
    /// New numbers of the sections.
    pub numbers: Numbers,
    /// All sections of the object, including removed ones.
    pub edited: Vec<Edited<'a>>,
    names: Names,
}

/// Applies `edit` to the sections of `object`.
pub(in crate::formats) fn change<'a>(
    mut object: Object<'a>,
    edit: &Edit<'_>,
) -> Result<Changed<'a>, Malformed> {
    let numbers = Numbers::without(&removed(&object, edit)?);
    if !numbers.all_stay() {
        object.check_overlap()?;
    }
    let mut names = Names::default();
    let mut edited: Vec<Edited<'a>> = object.sections.iter().map(Edited::unchanged).collect();
    let symbols = symbols::edit(&object, &numbers, edit, &mut names, &mut edited)?;
    if let Some(kept) = &symbols {
        relocations::renumber(&object, &numbers, kept, &mut edited)?;
    }
    names::rename_sections(&object, &numbers, edit, &mut names, &mut edited)?;
    retain_sections(&mut object, edit, &mut edited);
    groups(&object, &numbers, &mut edited);
    Ok(Changed {
        object,
        numbers,
        edited,
        names,
    })
}

/// Returns the bytes of the object after `edit`. See [`plan`].
pub fn rewrite(data: &[u8], edit: &Edit<'_>) -> Result<Vec<u8>, Malformed> {
    join(data, &plan(data, edit)?, &[])
}

/// Returns the removed sections: those that `edit` removes, their relocations, and groups that lose
/// all members.
fn removed(object: &Object<'_>, edit: &Edit<'_>) -> Result<Vec<bool>, Malformed> {
    let sections = &object.sections;
    let mut removed: Vec<bool> = sections
        .iter()
        .enumerate()
        .map(|(index, section)| index != 0 && (edit.remove)(section.view(index)))
        .collect();
    let tables = [
        elf::SHT_SYMTAB,
        elf::SHT_STRTAB,
        elf::SHT_SYMTAB_SHNDX,
        elf::SHT_GROUP,
    ];
    if let Some((section, _)) = sections
        .iter()
        .zip(&removed)
        .find(|(section, goes)| **goes && tables.contains(&section.header.kind))
    {
        let what = "cannot remove a section with symbols, strings or a group";
        return Err(Malformed::new(what, section.header.offset));
    }
    let goes = |removed: &[bool], section: u32| removed.get(section as usize) == Some(&true);
    for (index, section) in sections
        .iter()
        .enumerate()
        .filter(|(_, section)| section.header.is_relocations())
    {
        if goes(&removed, section.header.info)
            && let Some(removed) = removed.get_mut(index)
        {
            *removed = true;
        }
    }
    for (index, section) in sections
        .iter()
        .enumerate()
        .filter(|(_, section)| section.header.kind == elf::SHT_GROUP)
    {
        let mut members = group_members(object.class, section).peekable();
        let all_go = members.peek().is_some() && members.all(|member| goes(&removed, member));
        if let Some(removed) = removed.get_mut(index) {
            *removed = all_go;
        }
    }
    Ok(removed)
}

/// Marks the sections that linkers must keep. GNU tools read this flag only if the file header has
/// the GNU ABI.
fn retain_sections(object: &mut Object<'_>, edit: &Edit<'_>, edited: &mut [Edited<'_>]) {
    let retained = object.sections.iter().zip(edited).enumerate().skip(1);
    for (_, (_, edited)) in
        retained.filter(|(index, (section, _))| (edit.retain)(section.view(*index)))
    {
        edited.header.flags |= elf::SHF_GNU_RETAIN;
        if object.head.ident.os_abi == elf::ELFOSABI_NONE {
            object.head.ident.os_abi = elf::ELFOSABI_GNU;
        }
    }
}

/// Returns the members of the group in `section`. The first word contains flags and is skipped.
fn group_members(class: Class, section: &Section<'_>) -> impl Iterator<Item = u32> {
    section
        .body
        .chunks_exact(4)
        .skip(1)
        .filter_map(move |word| class.word(word))
}

/// Drops removed sections from the groups, and renumbers the other members.
fn groups(object: &Object<'_>, numbers: &Numbers, edited: &mut [Edited<'_>]) {
    for (index, (section, edited)) in object.sections.iter().zip(edited).enumerate() {
        if section.header.kind != elf::SHT_GROUP || numbers.of(index).is_none() {
            continue;
        }
        let mut body = section.body.get(..4).unwrap_or_default().to_vec();
        for member in group_members(object.class, section) {
            let number = match numbers.of(member as usize) {
                Some(number) => number,
                // A number past the last section stays.
                None if member as usize >= object.sections.len() => member,
                None => continue,
            };
            body.extend(object.class.word_bytes(number));
        }
        edited.body = Cow::Owned(body);
    }
}

/// New numbers of sections or symbols.
pub(in crate::formats) struct Numbers(Vec<Option<u32>>);

impl Numbers {
    /// Numbers the entries that are not removed, in order.
    pub(crate) fn without(removed: &[bool]) -> Self {
        let mut next = 0..;
        Numbers(
            removed
                .iter()
                .map(|removed| if *removed { None } else { next.next() })
                .collect(),
        )
    }

    /// Returns the new number of `old`. `None` if it was removed or does not exist.
    pub(crate) fn of(&self, old: usize) -> Option<u32> {
        self.0.get(old).copied().flatten()
    }

    /// Returns how many of the first `end` entries stay.
    fn kept_before(&self, end: usize) -> u32 {
        self.0.iter().take(end).flatten().count() as u32
    }

    fn all_stay(&self) -> bool {
        self.0.iter().all(Option::is_some)
    }
}
