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

mod symbols;
#[cfg(test)]
pub(in crate::elf) mod tests;

use std::borrow::Cow;

use md5::{Digest, Md5};
use object::elf;

use crate::bytes::u64_at;
use crate::compose::{Part, PartList, join};
use crate::elf::SHT_LLVM_OFFLOADING;
use crate::elf::file::{Object, PatchedBytes, Section};
use crate::elf::raw::{Class, FileHeader, Record, SectionHeader};
use crate::error::{Error, Malformed};
use crate::offload_sections::{
    DUMMY_PREFIX, NAME, RELOCATABLE, START_PREFIX, STOP_PREFIX, entry_table, is_longer,
};
use symbols::Names;

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
pub(crate) struct Changed<'a> {
    /// The object. Its sections are those before the edit.
    pub object: Object<'a>,
    /// New numbers of the sections.
    pub numbers: Numbers,
    /// All sections of the object, including removed ones.
    pub edited: Vec<Edited<'a>>,
    names: Names,
}

/// Applies `edit` to the sections of `object`.
pub(crate) fn change<'a>(
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
        symbols::renumber(&object, &numbers, kept, &mut edited)?;
    }
    symbols::rename_sections(&object, &numbers, edit, &mut names, &mut edited)?;
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
pub(crate) struct Numbers(Vec<Option<u32>>);

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

// Edits the output of a relocatable offload link (docs/spec/link-driver.md 9.1): removes linked
// device images, and gives the entry tables and their bounds unique names. Without that, a later
// link would link those images again and mix its entries with theirs.

/// Prefixes of the symbols of a table; the name of the table follows. The last one belongs to a
/// hidden global symbol of LLVM up to 19, which two relocatable outputs must not both define.
const BOUNDS: [&str; 3] = [START_PREFIX, STOP_PREFIX, DUMMY_PREFIX];
/// The name of that hidden symbol in LLVM 14 and 15.
pub(crate) const OLD_DUMMY: &str = "__dummy.omp_offloading.entry";

/// Whether this section of a relocatable output contains linked device code: `.llvm.offloading` by
/// name or type, or `.llvm.offloading.<triple>.<arch>` of LLVM 14.
pub fn is_fat_section(section: SectionView<'_>) -> bool {
    (section.name == NAME.as_bytes()
        || is_longer(section.name)
        || section.kind == SHT_LLVM_OFFLOADING)
        && !section.name.starts_with(RELOCATABLE.as_bytes())
}

/// Returns LLVM's tag of a relocatable output: the first 8 bytes of its MD5 digest as a
/// little-endian number, in hexadecimal without leading zeros.
pub fn entry_table_tag(output: &[u8]) -> String {
    format!("{:x}", u64_at(&Md5::digest(output), 0))
}

/// Returns the parts of the relocatable output `data` without its fat sections, and with `_<tag>`
/// appended to the names of its entry tables and their bounds. Marks the tables for linkers to
/// keep, because nothing refers to an entry, and because in ld.lld the bounds of a table do not
/// keep it alive by default.
pub fn rename_entry_tables(data: &[u8], tag: &str) -> Result<Vec<Part>, Error> {
    if tag.is_empty()
        || !tag
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
    {
        return Err(Error::usage(format!(
            "invalid tag `{tag}`: expected letters, digits and _"
        )));
    }
    let tagged = |name: &[u8]| [name, b"_", tag.as_bytes()].concat();
    let is_table = |section: SectionView<'_>| entry_table(section.name).is_some();
    let rename_section = |section: SectionView<'_>| is_table(section).then(|| tagged(section.name));
    let rename_symbol = |symbol: SymbolView<'_>| {
        (!symbol.local && goes_with_a_table(symbol.name)).then(|| tagged(symbol.name))
    };
    let edit = Edit {
        remove: &is_fat_section,
        rename_section: &rename_section,
        rename_symbol: &rename_symbol,
        retain: &is_table,
    };
    Ok(plan(data, &edit)?)
}

fn goes_with_a_table(symbol: &[u8]) -> bool {
    let of_table = |prefix: &&str| symbol.strip_prefix(prefix.as_bytes()).and_then(entry_table);
    BOUNDS.iter().any(|prefix| of_table(prefix).is_some()) || symbol == OLD_DUMMY.as_bytes()
}

// Layout of a rewritten file: the file header, the sections in their old order, and the section
// headers.

/// Largest alignment of a section in the file, whatever its alignment in memory.
const MAX_FILE_ALIGN: u64 = 4096;

/// A section of the old file with its edits, not yet laid out in the new file.
pub(crate) struct Edited<'a> {
    pub header: SectionHeader,
    pub body: Cow<'a, [u8]>,
}

impl<'a> Edited<'a> {
    pub(crate) fn unchanged(section: &Section<'a>) -> Self {
        Edited {
            header: section.header,
            body: Cow::Borrowed(section.body),
        }
    }
}

/// Layout rules of a rewritten file: the alignment of sections, and the location of the section
/// headers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Policy {
    /// The section headers are last. Alignments are limited to a page.
    HeadersLast,
    /// The section headers keep their position among the sections. Alignments are limited to a
    /// page, and empty sections are not aligned.
    HeadersInPlace,
    /// Layout of llvm-objcopy: the section headers are last, and every section has its full
    /// alignment.
    Objcopy,
}

impl Policy {
    fn align(self, section: &OutputSection) -> u64 {
        match self {
            Policy::Objcopy => section.header.align.max(1),
            Policy::HeadersLast if section.header.kind == elf::SHT_NOBITS => 1,
            Policy::HeadersInPlace if section.size() == 0 => 1,
            _ => file_align(section.header.align),
        }
    }

    fn table_align(self, class: Class) -> u64 {
        match self {
            Policy::HeadersLast => 8,
            Policy::HeadersInPlace | Policy::Objcopy => class.address_size() as u64,
        }
    }
}

/// A section of the new file.
pub(crate) struct OutputSection {
    /// Header of the section. Before the layout, it contains the offset in the old file, or
    /// `u64::MAX` for an added section.
    pub header: SectionHeader,
    pub contents: Contents,
    /// Whether the section keeps its offset because it is part of a segment.
    pub fixed: bool,
}

/// Bytes of a section in the new file.
pub(crate) enum Contents {
    /// This many bytes at the section's offset in the old file.
    Old(u64),
    /// Bytes that the edit created.
    Made(Vec<u8>),
    /// Contents that the caller provides.
    New {
        /// Index in the caller's list.
        index: usize,
        /// Size in bytes.
        size: u64,
    },
}

impl OutputSection {
    /// Size in the file, in bytes.
    pub(crate) fn size(&self) -> u64 {
        match &self.contents {
            Contents::Old(size) | Contents::New { size, .. } => *size,
            Contents::Made(bytes) => bytes.len() as u64,
        }
    }

    /// Whether the section had bytes in the old file.
    fn had_bytes(&self) -> bool {
        match &self.contents {
            Contents::New { .. } => self.header.size > 0,
            _ => self.size() > 0,
        }
    }
}

impl From<Edited<'_>> for OutputSection {
    fn from(edited: Edited<'_>) -> Self {
        OutputSection {
            header: edited.header,
            contents: match edited.body {
                Cow::Borrowed(body) => Contents::Old(body.len() as u64),
                Cow::Owned(body) => Contents::Made(body),
            },
            fixed: false,
        }
    }
}

/// Returns the remaining sections by their new numbers. Links in their headers use the new numbers.
pub(crate) fn kept(
    numbers: &Numbers,
    edited: Vec<Edited<'_>>,
) -> Result<Vec<OutputSection>, Malformed> {
    let mut sections = Vec::with_capacity(edited.len());
    for (index, edited) in edited.into_iter().enumerate() {
        if numbers.of(index).is_some() {
            let mut section = OutputSection::from(edited);
            renumber(&mut section.header, numbers)?;
            sections.push(section);
        }
    }
    Ok(sections)
}

/// A file to lay out.
pub(crate) struct OutputFile<'a> {
    /// The old file with patches.
    pub bytes: PatchedBytes<'a>,
    pub class: Class,
    pub head: FileHeader,
    /// The sections by their new numbers, starting with the null section.
    pub sections: Vec<OutputSection>,
    /// New number of the section with the section names.
    pub names: u32,
    /// End of the bytes that keep their offsets: those of the file header and of segments. All
    /// sections that move are placed after them.
    pub start: u64,
}

impl OutputFile<'_> {
    /// Returns the parts of the new file.
    pub(crate) fn lay_out(mut self, policy: Policy) -> Result<Vec<Part>, Malformed> {
        let head_size = FileHeader::size(self.class) as u64;
        let table_size = (self.sections.len() * SectionHeader::size(self.class)) as u64;
        // The file header is added last, because it contains the offset of the section headers.
        let mut out = PartList {
            size: head_size,
            ..PartList::default()
        };
        out.old(head_size..self.start);
        let (mut table_at, mut table_part) = (0, 0);
        // Without a limit, a small file could require any number of zeros.
        let mut gaps_left = (self.bytes.old().len() as u64).saturating_mul(2) + (64 << 20);
        for index in self.order(policy) {
            let Some(section) = self.sections.get_mut(index) else {
                continue;
            };
            if index == 0 {
                table_at = out.size.next_multiple_of(policy.table_align(self.class));
                out.pad_to(table_at);
                // Filled in when all offsets are known.
                table_part = out.parts.len();
                out.bytes(Vec::new());
                out.size += table_size;
                continue;
            }
            let old = section.header.offset;
            let fault = Malformed::new("a section's alignment is too large", old);
            let start = out
                .size
                .checked_next_multiple_of(policy.align(section))
                .ok_or(fault)?;
            if policy == Policy::Objcopy {
                gaps_left = gaps_left.checked_sub(start - out.size).ok_or(fault)?;
            }
            out.pad_to(start);
            section.header.offset = start;
            match std::mem::replace(&mut section.contents, Contents::Old(0)) {
                Contents::Old(size) => {
                    self.bytes
                        .emit(old..old.saturating_add(size), &mut out.parts);
                    out.size += size;
                }
                Contents::Made(bytes) => out.bytes(bytes),
                Contents::New { index, size } => {
                    let fault = Malformed::new("new contents are too large", old);
                    start.checked_add(size).ok_or(fault)?;
                    section.header.size = size;
                    out.contents(index, size);
                }
            }
        }
        let last = match policy {
            Policy::HeadersInPlace => out.size,
            Policy::HeadersLast | Policy::Objcopy => table_at,
        };
        if !self.class.is_64 && last > u64::from(u32::MAX) {
            return Err(Malformed::new("too large for a 32-bit object", 0));
        }
        let headers = self.sections.iter().map(|section| section.header).collect();
        let (head, table) = tables(self.class, self.head, headers, self.names, table_at);
        if let Some(part) = out.parts.get_mut(table_part) {
            *part = Part::Bytes(table);
        }
        out.parts.insert(0, Part::Bytes(head));
        Ok(out.parts)
    }

    /// Returns the numbers of the sections that move, in file order. Number 0 represents the
    /// section headers.
    fn order(&self, policy: Policy) -> Vec<usize> {
        let in_place = policy == Policy::HeadersInPlace;
        let table = if in_place { self.head.shoff } else { u64::MAX };
        let moving = self.sections.iter().enumerate().skip(1);
        let moving = moving.filter(|(_, section)| !section.fixed);
        // If the section headers stay in position, empty sections come before other bytes at the
        // same offset.
        let mut order: Vec<(u64, bool, usize)> = moving
            .map(|(index, section)| {
                let is_behind = in_place && section.had_bytes();
                (section.header.offset, is_behind, index)
            })
            .collect();
        order.push((table, true, 0));
        order.sort_unstable();
        order.into_iter().map(|(.., index)| index).collect()
    }
}

/// Returns the alignment in the file for a section with alignment `align` in memory.
pub(crate) fn file_align(align: u64) -> u64 {
    if align.is_power_of_two() {
        align.min(MAX_FILE_ALIGN)
    } else {
        1
    }
}

/// Updates the section's link and info to the new section numbers.
pub(crate) fn renumber(header: &mut SectionHeader, numbers: &Numbers) -> Result<(), Malformed> {
    let fault = Malformed::new(
        "cannot remove a section that another section refers to",
        header.offset,
    );
    if header.kind == elf::SHT_NULL {
        return Ok(());
    }
    header.link = numbers.of(header.link as usize).ok_or(fault)?;
    if header.info_is_section() {
        header.info = numbers.of(header.info as usize).ok_or(fault)?;
    }
    Ok(())
}

/// Returns the file header and the section headers as bytes. Numbers that do not fit into the file
/// header are stored in the null section's header.
pub(crate) fn tables(
    class: Class,
    mut head: FileHeader,
    mut headers: Vec<SectionHeader>,
    names: u32,
    table_at: u64,
) -> (Vec<u8>, Vec<u8>) {
    let count = u16::try_from(headers.len())
        .ok()
        .filter(|count| *count < elf::SHN_LORESERVE);
    let short_names = u16::try_from(names)
        .ok()
        .filter(|names| *names < elf::SHN_LORESERVE);
    let length = headers.len() as u64;
    if let Some(null) = headers.first_mut() {
        null.size = if count.is_none() { length } else { 0 };
        null.link = if short_names.is_none() { names } else { 0 };
    }
    head.shoff = table_at;
    head.shnum = count.unwrap_or(0);
    head.shstrndx = short_names.map_or(elf::SHN_XINDEX, elf::SymbolSection);
    let mut table = Vec::with_capacity(headers.len() * SectionHeader::size(class));
    headers
        .iter()
        .for_each(|header| header.append(class, &mut table));
    (head.to_bytes(class), table)
}
