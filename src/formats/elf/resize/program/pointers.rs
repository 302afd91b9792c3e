//! Sections that the file did not have. An array of pointers is appended behind everything that is
//! loaded. In a position-independent file, each pointer needs a relocation, so the relocation table
//! grows and moves there, too. An empty section in front of another one keeps tools from moving the
//! latter.

use std::collections::BTreeMap;

use object::elf;

use super::segments::{Dynamic, Linked, has_bytes};
use super::{Change, Layout, Part, is_moved_with_others};
use crate::error::Malformed;
use crate::formats::elf::file::PatchedBytes;
use crate::formats::elf::raw::SectionHeader;
use crate::formats::elf::resize::{NewContents, Sizes};

/// The name of the section of the array.
const NAME: &[u8] = b".data.rel.pointers";
const NAME_OF_RELOCATIONS: &[u8] = b".rela.dyn";
/// The name of an empty section in front of one that must not move.
const NAME_OF_GUARD: &[u8] = b".fixed.start";
/// From this size on, in bytes, the old place of the relocation table is removed from the file, if a
/// segment can be split there.
const LARGE: u64 = 1 << 16;

/// A section that the file did not have.
#[derive(Debug)]
pub(super) struct Added {
    /// Its header, without address and offset.
    pub header: SectionHeader,
    /// The index of its contents.
    pub place: usize,
}

/// The changes for an array of pointers, and for sections that must not move.
pub(super) struct Pointers {
    /// The sections that get new contents: the caller's, and those that change for the array. The
    /// indices of the latter's contents follow the caller's.
    pub sizes: Sizes,
    pub added: Vec<Added>,
    /// The headers of empty sections, each with the index of the section behind it.
    pub guards: Vec<(usize, SectionHeader)>,
    /// The number of the caller's contents.
    places: usize,
    /// The names to append to the section names.
    names: Vec<u8>,
    relocations: Option<Relocations>,
}

/// The relocation table that grows.
struct Relocations {
    /// The type of a relocation that adds the load address.
    relative: u64,
    /// The section, or `None` if the file has none.
    section: Option<usize>,
}

impl Pointers {
    /// The changes for `count` pointers.
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

    /// Adds an empty section in front of a section with new contents that other tools would move. They
    /// move no section from the first one on that is neither a note nor a table of the loader by its
    /// type, and images have a type of their own.
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

    /// The offset of a section's name in the section names, to which it is added if necessary.
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

    /// Decides whether the old place of the relocation table stays in the file. With `keeps_gap` it
    /// always does, so that no segment is split.
    pub(super) fn mark(&self, changes: &mut [Change], keeps_gap: bool) {
        let place = self.place_of_relocations();
        for change in changes
            .iter_mut()
            .filter(|change| self.relocations.is_some() && change.place == place)
        {
            change.keeps_room = keeps_gap || change.header.size < LARGE;
        }
    }

    /// The address of the array.
    pub(super) fn address(layout: &Layout) -> u64 {
        layout
            .arranged
            .added
            .first()
            .map_or(0, |location| location.addr)
    }

    /// Writes the entries of the dynamic section. Returns the contents that change for the array of
    /// `pointers`, by their indices.
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

    /// Adds `count` relocations to the entries of the dynamic section.
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

/// The `parts`, with `contents` inserted by their indices.
pub(super) fn filled(parts: Vec<Part>, mut contents: BTreeMap<usize, Vec<Part>>) -> Vec<Part> {
    let filled = parts.into_iter().flat_map(|part| match part {
        Part::New(place) => contents.remove(&place).unwrap_or_else(|| vec![part]),
        part => vec![part],
    });
    filled.collect()
}

/// The type of a relocation that adds the load address (source: the psABI documents).
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

/// The relocation table of the dynamic section. `None` if there is none, but room for its entries.
fn table_of_relocations(linked: &Linked<'_>, size: u64) -> Result<Option<usize>, Malformed> {
    let fault = |what| Malformed::new(what, linked.object.head.shoff);
    if entry(linked, elf::DT_REL).is_some() {
        return Err(fault(
            "cannot add pointers to a file whose relocations have no addends",
        ));
    }
    let Some(table) = entry(linked, elf::DT_RELA) else {
        // One entry must stay: it ends the list.
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

/// The entry of the dynamic section with this tag.
fn entry(linked: &Linked<'_>, tag: elf::DynamicTag) -> Option<Dynamic> {
    linked
        .dynamic()
        .take_while(|entry| entry.tag != elf::DT_NULL)
        .find(|entry| entry.tag == tag)
}

/// The unused entries of the dynamic section, with the one that ends the list.
fn spare<'a>(linked: &'a Linked<'_>) -> impl Iterator<Item = Dynamic> + 'a {
    linked
        .dynamic()
        .skip_while(|entry| entry.tag != elf::DT_NULL)
}
