//! Rewrites a relocatable ELF object of any class, byte order and machine: removes sections, renames sections and symbols. All
//! else stays as it is, to the byte. Sections and symbols are renumbered, so that no linker meets a gap, and the bytes of removed
//! sections are gone from the file. What is kept is lent, not copied: an object of gigabytes is written with little memory.
//!
//! New names go to the end of the string table; old ones stay in it, because other strings may share their tails.
//! Linked programs and libraries are not edited here: their layout is part of what they mean.

mod entry_tables;
mod layout;
mod names;
pub(in crate::formats) mod read;
mod relocations;
mod symbols;

#[cfg(test)]
mod tests;

pub use entry_tables::{entry_table_tag, is_fat_section, rename_entry_tables};
pub use layout::Rewritten;
pub(in crate::formats) use layout::{Edited, renumber, tables};

use crate::error::Malformed;
use names::Names;
use read::{Object, SHT_GROUP, SHT_STRTAB, SHT_SYMTAB, SHT_SYMTAB_SHNDX};
use std::borrow::Cow;

/// The section type of fat objects, `SHT_LLVM_OFFLOADING`.
pub const SHT_LLVM_OFFLOADING: u32 = 0x6fff_4c0b;

/// A section, to decide by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SectionView<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Its type (`sh_type`).
    pub kind: u32,
    /// Its flags (`sh_flags`).
    pub flags: u64,
}

/// A symbol, to decide by.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SymbolView<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// Whether it is local to the object.
    pub local: bool,
    /// Whether it is not defined here.
    pub undefined: bool,
}

/// What is to be changed. A new name must hold no zero byte.
pub struct Edit<'e> {
    /// Whether this section goes; with it go its relocations, the symbols defined in it, and a group of which nothing is left. Not
    /// asked about symbol tables, string tables and groups, which belong to the object.
    pub remove: &'e dyn Fn(SectionView<'_>) -> bool,
    /// The section's new name, if it gets one. Its relocations are renamed with it.
    pub rename_section: &'e dyn Fn(SectionView<'_>) -> Option<Vec<u8>>,
    /// The symbol's new name, if it gets one.
    pub rename_symbol: &'e dyn Fn(SymbolView<'_>) -> Option<Vec<u8>>,
}

impl Default for Edit<'_> {
    fn default() -> Self {
        Edit { remove: &|_| false, rename_section: &|_| None, rename_symbol: &|_| None }
    }
}

/// The object `data` with `edit` made, ready to be written. The same bytes when there is nothing to change. A section that others
/// need (a relocation, a link, a group's signature) cannot be removed: that is an error, told where it is needed.
pub fn plan<'a>(data: &'a [u8], edit: &Edit<'_>) -> Result<Rewritten<'a>, Malformed> {
    let Changed { object, numbers, mut edited, names } = change(Object::parse(data)?, edit)?;
    if names.is_empty() && numbers.all_stay() {
        return Ok(Rewritten::unchanged(data));
    }
    object.check_overlap()?;
    names.append_to(&mut edited)?;
    layout::lay_out(&object, &numbers, edited)
}

/// An object with an edit made in its sections, which have no place in a new file yet.
pub(in crate::formats) struct Changed<'a> {
    /// The object as it was.
    pub object: Object<'a>,
    /// The new numbers of its sections.
    pub numbers: Numbers,
    /// Each section of the object, those included that go.
    pub edited: Vec<Edited<'a>>,
    names: Names,
}

/// Makes `edit` in the sections of `object`.
pub(in crate::formats) fn change<'a>(object: Object<'a>, edit: &Edit<'_>) -> Result<Changed<'a>, Malformed> {
    let numbers = Numbers::without(&removed(&object, edit));
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
    groups(&object, &numbers, &mut edited);
    Ok(Changed { object, numbers, edited, names })
}

/// `plan`, written to memory.
pub fn rewrite(data: &[u8], edit: &Edit<'_>) -> Result<Vec<u8>, Malformed> {
    Ok(plan(data, edit)?.to_vec())
}

/// Which sections go: those asked for, the relocations of those, and groups of which nothing is left.
fn removed(object: &Object<'_>, edit: &Edit<'_>) -> Vec<bool> {
    let sections = &object.sections;
    let bookkeeping = |kind| matches!(kind, 0 | SHT_SYMTAB | SHT_STRTAB | SHT_SYMTAB_SHNDX | SHT_GROUP);
    let asked = |view: SectionView<'_>| !bookkeeping(view.kind) && (edit.remove)(view);
    let mut removed: Vec<bool> = sections.iter().map(|section| asked(section.view())).collect();
    for (index, section) in sections.iter().enumerate() {
        if section.header.is_relocations() && removed[section.header.info as usize] {
            removed[index] = true;
        }
    }
    for (index, section) in sections.iter().enumerate() {
        if section.header.kind == SHT_GROUP {
            let mut members = object.group_members(index).peekable();
            removed[index] = members.peek().is_some() && members.all(|member| removed.get(member as usize) == Some(&true));
        }
    }
    removed
}

impl Object<'_> {
    /// The sections of the group in section `index`.
    fn group_members(&self, index: usize) -> impl Iterator<Item = u32> {
        let words = self.sections.get(index).map_or(&[][..], |section| section.body).chunks_exact(4);
        words.skip(1).map(|word| self.class.number(word, 0, 4) as u32)
    }
}

/// Takes removed sections out of the groups, and renumbers the rest.
fn groups(object: &Object<'_>, numbers: &Numbers, edited: &mut [Edited<'_>]) {
    for (index, section) in object.sections.iter().enumerate() {
        if section.header.kind != SHT_GROUP || numbers.of(index).is_none() {
            continue;
        }
        let mut body = section.body.get(..4).unwrap_or_default().to_vec();
        for member in object.group_members(index) {
            let number = match numbers.of(member as usize) {
                Some(number) => number,
                // An index past the sections is not ours to mend.
                None if member as usize >= object.sections.len() => member,
                None => continue,
            };
            body.extend(object.class.word(number));
        }
        edited[index].body = Cow::Owned(body);
    }
}

/// The new number of each thing that stays (sections, symbols).
pub(in crate::formats) struct Numbers(Vec<Option<u32>>);

impl Numbers {
    fn without(removed: &[bool]) -> Self {
        let mut next = 0..;
        Numbers(removed.iter().map(|removed| if *removed { None } else { next.next() }).collect())
    }

    /// The new number of what was number `old`; none when it is gone, or never was.
    pub fn of(&self, old: usize) -> Option<u32> {
        self.0.get(old).copied().flatten()
    }

    /// How many of the first `end` stay.
    fn kept_before(&self, end: usize) -> u32 {
        self.0.iter().take(end).flatten().count() as u32
    }

    fn all_stay(&self) -> bool {
        self.0.iter().all(Option::is_some)
    }
}
