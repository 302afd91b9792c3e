//! New names of sections and symbols. They are appended to the string tables of the old names.

use super::layout::Edited;
use super::{Edit, Numbers, SectionView};
use crate::error::Malformed;
use crate::formats::elf::file::{Object, Section};
use std::collections::{BTreeMap, HashMap};

/// Prefixes of relocation section names; the name of the relocated section follows.
const RELOCATION_PREFIXES: [&[u8]; 3] = [b".rela", b".rel", b".crel"];

/// Strings to append, by the section index of their string table.
#[derive(Default)]
pub(super) struct Names(BTreeMap<usize, Tail>);

#[derive(Default)]
struct Tail {
    bytes: Vec<u8>,
    /// The offset of each name, which is stored once.
    offsets: HashMap<Vec<u8>, u32>,
}

impl Names {
    /// Adds `name` to string table `table`, which has `len` bytes of its own, and returns its
    /// offset. `at` is the location of the old name, for errors.
    pub(super) fn add(
        &mut self,
        table: usize,
        len: usize,
        mut name: Vec<u8>,
        at: u64,
    ) -> Result<u32, Malformed> {
        let tail = self.0.entry(table).or_default();
        if let Some(offset) = tail.offsets.get(&name) {
            return Ok(*offset);
        }
        let offset = u32::try_from(len + tail.bytes.len())
            .map_err(|_| Malformed::new("more names than a string table can hold", at))?;
        tail.offsets.insert(name.clone(), offset);
        name.push(0);
        tail.bytes.append(&mut name);
        Ok(offset)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(super) fn append_to(self, edited: &mut [Edited<'_>]) -> Result<(), Malformed> {
        for (table, tail) in self.0 {
            let Some(table) = edited.get_mut(table) else {
                continue;
            };
            // Without a final zero, the last old name would continue with the first new one.
            if table.body.last().is_some_and(|byte| *byte != 0) {
                return Err(Malformed::new(
                    "string table without a terminating zero",
                    table.header.offset,
                ));
            }
            table.body.to_mut().extend(tail.bytes);
        }
        Ok(())
    }
}

impl Section<'_> {
    pub(super) fn view(&self, index: usize) -> SectionView<'_> {
        SectionView {
            index,
            name: self.name,
            kind: self.header.kind,
            flags: self.header.flags,
        }
    }
}

/// Renames the remaining sections, and the relocation sections of renamed sections.
pub(super) fn rename_sections(
    object: &Object<'_>,
    numbers: &Numbers,
    edit: &Edit<'_>,
    names: &mut Names,
    edited: &mut [Edited<'_>],
) -> Result<(), Malformed> {
    let sections = &object.sections;
    let new_name = |index: usize, section: &Section<'_>| (edit.rename_section)(section.view(index));
    let table_size = sections
        .get(object.names)
        .map_or(0, |table| table.body.len());
    let kept = sections
        .iter()
        .zip(edited)
        .enumerate()
        .skip(1)
        .filter(|(index, _)| numbers.of(*index).is_some());
    for (index, (section, edited)) in kept {
        let along = || {
            let target_index = section.header.info as usize;
            let target = sections
                .get(target_index)
                .filter(|_| section.header.is_relocations())?;
            let prefix = section
                .name
                .strip_suffix(target.name)
                .filter(|prefix| RELOCATION_PREFIXES.contains(prefix))?;
            Some([prefix, &new_name(target_index, target)?].concat())
        };
        if let Some(name) = new_name(index, section).or_else(along) {
            edited.header.name =
                names.add(object.names, table_size, name, section.header.offset)?;
        }
    }
    Ok(())
}
