//! Sections added to a file. An array of pointers is appended after everything that is loaded. In a
//! position-independent file, each pointer needs a relocation, so the relocation table grows and
//! moves there as well. An empty section before another one prevents other tools from moving the
//! latter.

use std::collections::BTreeMap;

use object::elf;

use super::segments::{Dynamic, Linked, has_bytes};
use super::{Change, Layout, Part, is_moved_with_others};
use crate::elf::file::PatchedBytes;
use crate::elf::raw::SectionHeader;
use crate::elf::resize::{NewContents, Sizes};
use crate::error::Malformed;

/// Name of the section with the array.
const NAME: &[u8] = b".data.rel.pointers";
const NAME_OF_RELOCATIONS: &[u8] = b".rela.dyn";
/// Name of an empty section before one that must not move.
const NAME_OF_GUARD: &[u8] = b".fixed.start";
/// Size in bytes from which the old range of the relocation table is removed from the file, if a
/// segment can be split there.
const LARGE: u64 = 1 << 16;

/// A section to add to the file.
#[derive(Debug)]
pub(super) struct Added {
    /// Its header, without address and offset.
    pub header: SectionHeader,
    /// Index of its contents.
    pub place: usize,
}

/// Changes for an array of pointers, and for sections that must not move.
pub(super) struct Pointers {
    /// Sections with new contents: those of the caller, and those that change for the array. The
    /// contents of the latter have indices after the caller's.
    pub sizes: Sizes,
    pub added: Vec<Added>,
    /// Headers of empty sections, each with the index of the section after it.
    pub guards: Vec<(usize, SectionHeader)>,
    /// Number of the caller's contents.
    places: usize,
    /// Names to append to the section names.
    names: Vec<u8>,
    relocations: Option<Relocations>,
}

/// The relocation table that grows.
struct Relocations {
    /// Type of a relocation that adds the load address.
    relative: u64,
    /// Index of the section. `None` if the file has no relocation table.
    section: Option<usize>,
}

impl Pointers {
    /// Returns the changes for `count` pointers.
    pub(super) fn of(linked: &Linked<'_>, sizes: &Sizes, count: usize) -> Result<Self, Malformed> {
        let places = sizes.by_index.len();
        let (added, guards, names) = (Vec::new(), Vec::new(), Vec::new());
        let mut all = Pointers {
            sizes: sizes.clone(),
            added,
            guards,
            places,
            names,
            relocations: None,
        };
        if count > 0 {
            all.add_array(linked, count)?;
        }
        all.add_guards(linked, sizes)?;
        if let Some(names) = linked
            .object
            .sections
            .get(linked.object.names)
            .filter(|_| !all.names.is_empty())
        {
            if names.header.is_allocated() {
                return Err(Malformed::new(
                    "cannot add a section name: the section names are loaded",
                    names.header.offset,
                ));
            }
            let size = names.header.size.saturating_add(all.names.len() as u64);
            all.resize(linked, linked.object.names, places, size)?;
        }
        Ok(all)
    }

    /// Adds an empty section before a section with new contents if other tools would move that
    /// section. Those tools move sections only up to the first one of type `SHT_PROGBITS`, not
    /// counting the interpreter's name. Notes, loader tables and image sections have other types
    /// and do not stop them.
    fn add_guards(&mut self, linked: &Linked<'_>, sizes: &Sizes) -> Result<(), Malformed> {
        let object = linked.object;
        let can_be_named = sizes.of_section(object.names).is_none()
            && object
                .sections
                .get(object.names)
                .is_some_and(|names| !names.header.is_allocated());
        if !can_be_named || !is_moved_with_others(linked) || linked.dynamic().next().is_none() {
            return Ok(());
        }
        let stops =
            |kind: elf::SectionType, name: &[u8]| kind == elf::SHT_PROGBITS && name != b".interp";
        let first = object
            .sections
            .iter()
            .position(|section| stops(section.header.kind, section.name));
        for (index, NewContents { size, .. }) in &sizes.by_index {
            let Some(header) = object.sections.get(*index).map(|section| section.header) else {
                continue;
            };
            let is_kept = header.is_allocated() && *size > 0 && *size <= header.size;
            if is_kept && first.is_none_or(|first| *index < first) {
                let name = self.name(linked, NAME_OF_GUARD)?;
                let guard = SectionHeader {
                    name,
                    kind: elf::SHT_PROGBITS,
                    flags: elf::SHF_ALLOC,
                    align: 1,
                    ..SectionHeader::default()
                };
                self.guards.push((
                    *index,
                    SectionHeader {
                        addr: header.addr,
                        offset: header.offset,
                        ..guard
                    },
                ));
                break;
            }
        }
        Ok(())
    }

    fn add_array(&mut self, linked: &Linked<'_>, count: usize) -> Result<(), Malformed> {
        let object = linked.object;
        let word = object.class.address_size() as u64;
        let size = |words: u64| {
            let size = (count as u64).checked_mul(words * word);
            size.ok_or(Malformed::new("more pointers than fit into memory", 0))
        };
        let array = SectionHeader {
            name: self.name(linked, NAME)?,
            kind: elf::SHT_PROGBITS,
            flags: elf::SHF_ALLOC | elf::SHF_WRITE,
            size: size(1)?,
            align: word,
            ..SectionHeader::default()
        };
        self.added.push(Added {
            header: array,
            place: self.place_of_array(),
        });
        if object.head.kind == elf::ET_DYN {
            let table = Relocations {
                relative: relative(linked)?,
                section: table_of_relocations(linked, 3 * word)?,
            };
            match table
                .section
                .and_then(|index| Some((index, object.sections.get(index)?.header)))
            {
                Some((index, header)) => {
                    let size = header
                        .size
                        .checked_add(size(3)?)
                        .ok_or(Malformed::new("too many relocations", header.offset))?;
                    self.resize(linked, index, self.place_of_relocations(), size)?;
                }
                None => {
                    let symbols = object
                        .sections
                        .iter()
                        .position(|section| section.header.kind == elf::SHT_DYNSYM);
                    let header = SectionHeader {
                        name: self.name(linked, NAME_OF_RELOCATIONS)?,
                        kind: elf::SHT_RELA,
                        flags: elf::SHF_ALLOC,
                        size: size(3)?,
                        link: symbols.map_or(0, |index| index as u32),
                        align: word,
                        entsize: 3 * word,
                        ..SectionHeader::default()
                    };
                    self.added.push(Added {
                        header,
                        place: self.place_of_relocations(),
                    });
                }
            }
            self.relocations = Some(table);
        }
        Ok(())
    }

    fn place_of_array(&self) -> usize {
        self.places + 1
    }

    fn place_of_relocations(&self) -> usize {
        self.places + 2
    }

    fn resize(
        &mut self,
        linked: &Linked<'_>,
        section: usize,
        place: usize,
        size: u64,
    ) -> Result<(), Malformed> {
        let at = linked
            .object
            .sections
            .get(section)
            .map_or(0, |section| section.header.offset);
        match self
            .sizes
            .by_index
            .insert(section, NewContents { place, size })
        {
            None => Ok(()),
            Some(_) => Err(Malformed::new(
                "new contents for a section that pointers must extend",
                at,
            )),
        }
    }

    /// Returns the offset of a section's name in the section names. Adds the name if it is missing.
    fn name(&mut self, linked: &Linked<'_>, name: &[u8]) -> Result<u32, Malformed> {
        let names = linked
            .object
            .sections
            .get(linked.object.names)
            .map_or(&[][..], |section| section.body);
        let whole = [b"\0", name, b"\0"].concat();
        if let Some(at) = memchr::memmem::find(names, &whole) {
            return Ok(at as u32 + 1);
        }
        let at = names.len() + self.names.len();
        self.names.extend([name, b"\0"].concat());
        u32::try_from(at).map_err(|_| Malformed::new("section names are too long", 0))
    }

    /// Decides whether the old range of the relocation table stays in the file. With `keeps_gap`,
    /// it always stays, so that no segment is split.
    pub(super) fn mark(&self, changes: &mut [Change], keeps_gap: bool) {
        let place = self.place_of_relocations();
        for change in changes
            .iter_mut()
            .filter(|change| self.relocations.is_some() && change.place == place)
        {
            change.keeps_room = keeps_gap || change.header.size < LARGE;
        }
    }

    /// Returns the address of the array.
    pub(super) fn address(layout: &Layout) -> u64 {
        layout
            .arranged
            .added
            .first()
            .map_or(0, |location| location.addr)
    }

    /// Updates the entries of the dynamic section. Returns the contents that change for the array
    /// of `pointers`, by their indices.
    pub(super) fn contents(
        &self,
        linked: &Linked<'_>,
        layout: &Layout,
        pointers: &[u64],
        bytes: &mut PatchedBytes<'_>,
    ) -> Result<BTreeMap<usize, Vec<Part>>, Malformed> {
        let (object, mut contents) = (linked.object, BTreeMap::new());
        let class = object.class;
        let old = |index: usize, parts: &mut Vec<Part>| {
            if let Some(section) = object.sections.get(index) {
                bytes.emit(
                    section.header.offset..section.header.offset + section.header.size,
                    parts,
                );
            }
        };
        let mut names = Vec::new();
        old(object.names, &mut names);
        names.push(Part::Bytes(self.names.clone()));
        contents.insert(self.places, names);
        let words = pointers
            .iter()
            .flat_map(|pointer| class.address_bytes(*pointer))
            .collect();
        contents.insert(self.place_of_array(), vec![Part::Bytes(words)]);
        if let Some(table) = &self.relocations {
            let word = class.address_size();
            let mut entries = Vec::with_capacity(pointers.len() * 3 * word);
            for (number, pointer) in pointers.iter().enumerate() {
                let at = Self::address(layout).saturating_add((number * word) as u64);
                [at, table.relative, *pointer]
                    .iter()
                    .for_each(|field| entries.extend(class.address_bytes(*field)));
            }
            let mut parts = vec![Part::Bytes(entries)];
            table
                .section
                .iter()
                .for_each(|index| old(*index, &mut parts));
            contents.insert(self.place_of_relocations(), parts);
            self.write_dynamic(linked, layout, pointers.len() as u64, bytes)?;
        }
        Ok(contents)
    }

    /// Adds `count` relocations to the table's entries in the dynamic section.
    fn write_dynamic(
        &self,
        linked: &Linked<'_>,
        layout: &Layout,
        count: u64,
        bytes: &mut PatchedBytes<'_>,
    ) -> Result<(), Malformed> {
        let class = linked.object.class;
        let word = class.address_size() as u64;
        let place = self.place_of_relocations();
        let moved = layout
            .changes
            .iter()
            .position(|change| change.place == place)
            .and_then(|number| layout.location(number));
        let address = moved
            .or(layout.arranged.added.get(1).copied())
            .unwrap_or_default()
            .addr;
        let mut spare = spare(linked);
        for (tag, more) in [
            (elf::DT_RELA, None),
            (elf::DT_RELASZ, Some(count.saturating_mul(3 * word))),
            (elf::DT_RELAENT, Some(0)),
            (elf::DT_RELACOUNT, Some(count)),
        ] {
            if let Some(entry) = entry(linked, tag) {
                let value = more.map_or(address, |more| entry.value.saturating_add(more));
                bytes.set(entry.value_at, &class.address_bytes(value))?;
            } else if tag != elf::DT_RELACOUNT {
                let to = spare
                    .next()
                    .ok_or(Malformed::new("no room in the dynamic section", 0))?;
                let value = if tag == elf::DT_RELAENT {
                    3 * word
                } else {
                    more.unwrap_or(address)
                };
                bytes.set(
                    to.value_at - word,
                    &[
                        class.address_bytes(tag.0 as u64),
                        class.address_bytes(value),
                    ]
                    .concat(),
                )?;
            }
        }
        Ok(())
    }
}

/// Returns the `parts` with `contents` inserted by their indices.
pub(super) fn filled(parts: Vec<Part>, mut contents: BTreeMap<usize, Vec<Part>>) -> Vec<Part> {
    let filled = parts.into_iter().flat_map(|part| match part {
        Part::New(place) => contents.remove(&place).unwrap_or_else(|| vec![part]),
        part => vec![part],
    });
    filled.collect()
}

/// Returns the type of a relocation that adds the load address (source: the psABI documents).
fn relative(linked: &Linked<'_>) -> Result<u64, Malformed> {
    let kind = match linked.object.head.machine {
        elf::EM_X86_64 => elf::R_X86_64_RELATIVE,
        elf::EM_AARCH64 if linked.object.class.is_64 => elf::R_AARCH64_RELATIVE,
        elf::EM_PPC64 => elf::R_PPC64_RELATIVE,
        elf::EM_S390 => elf::R_390_RELATIVE,
        elf::EM_RISCV => elf::R_RISCV_RELATIVE,
        elf::EM_LOONGARCH => elf::R_LARCH_RELATIVE,
        _ => {
            return Err(Malformed::new(
                "cannot add pointers to position-independent files for this processor",
                18,
            ));
        }
    };
    Ok(kind.0.into())
}

/// Returns the relocation table of the dynamic section. `None` if there is no table, but room for
/// its entries.
fn table_of_relocations(linked: &Linked<'_>, size: u64) -> Result<Option<usize>, Malformed> {
    let fault = |what| Malformed::new(what, linked.object.head.shoff);
    if entry(linked, elf::DT_REL).is_some() {
        return Err(fault(
            "cannot add pointers to a file whose relocations have no addends",
        ));
    }
    let Some(table) = entry(linked, elf::DT_RELA) else {
        // One unused entry must stay, because it ends the list.
        let has_room = spare(linked).nth(3).is_some();
        return if has_room {
            Ok(None)
        } else {
            Err(fault(
                "no room in the dynamic section for a table of relocations",
            ))
        };
    };
    let length = entry(linked, elf::DT_RELASZ).map(|entry| entry.value);
    let is_known = entry(linked, elf::DT_RELAENT).is_some_and(|entry| entry.value == size);
    let mut sections = linked.object.headers();
    let found = sections.position(|header| {
        let is_it = header.addr == table.value && Some(header.size) == length;
        is_it && header.kind == elf::SHT_RELA && header.is_allocated() && has_bytes(&header)
    });
    found.filter(|_| is_known).map(Some).ok_or(fault(
        "no section contains the relocation table that the dynamic section names",
    ))
}

/// Returns the entry of the dynamic section with this tag.
fn entry(linked: &Linked<'_>, tag: elf::DynamicTag) -> Option<Dynamic> {
    linked
        .dynamic()
        .take_while(|entry| entry.tag != elf::DT_NULL)
        .find(|entry| entry.tag == tag)
}

/// Returns the unused entries of the dynamic section, including the one that ends the list.
fn spare<'a>(linked: &'a Linked<'_>) -> impl Iterator<Item = Dynamic> + 'a {
    linked
        .dynamic()
        .skip_while(|entry| entry.tag != elf::DT_NULL)
}
