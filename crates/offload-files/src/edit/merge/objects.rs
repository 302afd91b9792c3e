//! Compares the host halves of two objects, ELF or COFF: their sections, paired by name and order,
//! with contents, relocations and groups; and their symbols. Relocations are compared by the name
//! of their target, because the numbers of symbols may differ.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::ops::Range;

use anyhow::{Context, Result};
use object::elf;

use super::host_file::{self, HostFile, Key, Section, Symbol};
use super::{Difference, Differences, Names, ParsedHost, is_left_out, place_names};
use offload_formats::model::{printable, printable_name};

/// Adds the differences of two objects.
///
/// # Errors
/// The relocations are damaged.
pub(super) fn compare(
    one: &ParsedHost<'_>,
    other: &ParsedHost<'_>,
    found: &mut Differences,
) -> Result<()> {
    let (first, second) = (View::of(one), View::of(other));
    for (name, missing, there) in [(other.name, &first, &second), (one.name, &second, &first)] {
        for (key, index) in missing
            .sections
            .iter()
            .filter(|(key, _)| !there.sections.contains_key(key))
        {
            if !missing.is_all_device(*index) {
                found.in_section(
                    printable_name(key.name),
                    format!("is not in {}", printable(name)),
                );
            }
        }
    }
    for (key, index) in &first.sections {
        if let Some(other) = second.sections.get(key) {
            Pair {
                one: (&first, *index),
                other: (&second, *other),
            }
            .compare(found)?;
        }
    }
    symbols(&first, &second, found);
    Ok(())
}

/// An object with lookup tables for the comparison.
struct View<'h, 'd> {
    half: &'h ParsedHost<'d>,
    /// The compared sections, by key.
    sections: BTreeMap<Key<'d>, usize>,
    names: Names<'d>,
    /// The relocation sections of each section.
    relocations: BTreeMap<usize, Vec<usize>>,
}

/// The target of a relocation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Against<'d> {
    Nothing,
    /// A symbol that other files may define.
    Name(&'d [u8]),
    /// An offset in a section.
    Place(Key<'d>, u64),
    /// A symbol without a section: an absolute one, or thread-local data.
    Other(&'d [u8], u16, u64),
}

impl<'h, 'd> View<'h, 'd> {
    fn of(half: &'h ParsedHost<'d>) -> Self {
        let file = &half.file;
        let compared = |section: &Section<'_>| {
            !section.header.is_relocations() && !section.is_symbols() && !is_left_out(section, true)
        };
        let sections = file
            .sections
            .iter()
            .enumerate()
            .filter(|(_, section)| compared(section));
        let sections = sections
            .map(|(index, section)| (section.key, index))
            .collect();
        View {
            half,
            sections,
            names: Names::of(file),
            relocations: file.relocation_tables(),
        }
    }

    fn file(&self) -> &'h HostFile<'d> {
        &self.half.file
    }

    fn section(&self, index: usize) -> Option<&'h Section<'d>> {
        self.file().sections.get(index)
    }

    fn key(&self, index: usize) -> Option<Key<'d>> {
        self.section(index).map(|section| section.key)
    }

    fn is_all_device(&self, index: usize) -> bool {
        let covered = |section: &Section<'_>| match self.half.device_parts(section).as_slice() {
            [part] => part.start == 0 && part.end >= section.header.size,
            _ => false,
        };
        self.section(index).is_some_and(covered)
    }

    /// Whether a location in a section belongs to device code.
    fn is_device(&self, section: usize, value: u64) -> bool {
        self.section(section).is_some_and(|own| {
            host_file::is_device(own)
                || self
                    .half
                    .device_parts(own)
                    .iter()
                    .any(|part| part.contains(&value))
        })
    }

    fn against(&self, symbol: usize) -> Against<'d> {
        let Some(symbol) = self.file().symbols.get(symbol).filter(|_| symbol != 0) else {
            return Against::Nothing;
        };
        match symbol.section.and_then(|section| self.key(section)) {
            Some(key) if symbol.is_local() => Against::Place(key, symbol.value),
            _ if symbol.is_local() => Against::Other(symbol.name, symbol.special, symbol.value),
            _ => Against::Name(symbol.name),
        }
    }

    fn describe(&self, against: &Against<'_>) -> String {
        match against {
            Against::Nothing => "nothing".to_owned(),
            Against::Name(name) | Against::Other(name, ..) => format!("`{}`", printable_name(name)),
            Against::Place(key, value) => format!("`{}`+{value:#x}", printable_name(key.name)),
        }
    }
}

/// Two sections with the same key.
struct Pair<'v, 'h, 'd> {
    one: (&'v View<'h, 'd>, usize),
    other: (&'v View<'h, 'd>, usize),
}

impl Pair<'_, '_, '_> {
    fn compare(&self, found: &mut Differences) -> Result<()> {
        let (Some(one), Some(other)) = (
            self.one.0.section(self.one.1),
            self.other.0.section(self.other.1),
        ) else {
            return Ok(());
        };
        let (first, second) = (&one.header, &other.header);
        let head = |own: &Section<'_>| {
            (
                own.header.kind,
                own.header.flags,
                own.header.align,
                own.header.entsize,
            )
        };
        if self.one.0.is_all_device(self.one.1) && self.other.0.is_all_device(self.other.1) {
            return Ok(());
        }
        if head(one) != head(other) {
            found.in_section(
                one.printable_name(),
                "the type, flags, alignment or entry sizes differ".to_owned(),
            );
            return Ok(());
        }
        if first.kind == elf::SHT_GROUP {
            self.group(found);
            return Ok(());
        }
        let linked = |view: &View<'_, '_>, link: u32| {
            view.key(link as usize).map(|key| printable_name(key.name))
        };
        if first.flags.contains(elf::SHF_LINK_ORDER)
            && linked(self.one.0, first.link) != linked(self.other.0, second.link)
        {
            found.in_section(
                one.printable_name(),
                "the section belongs to different sections".to_owned(),
            );
        }
        if first.size != second.size {
            let what = format!(
                "size is {} bytes in {}, but {} in {}",
                first.size,
                printable(self.one.0.half.name),
                second.size,
                printable(self.other.0.half.name)
            );
            let remedy = place_names::remedy_of_all(one.body, other.body);
            found.add(Difference {
                section: one.printable_name(),
                symbol: None,
                what,
                remedy,
            });
            return Ok(());
        }
        self.bytes(one, other, found);
        self.relocations(one, found)
    }

    /// Compares the bytes outside of device code, up to the first difference.
    fn bytes(&self, one: &Section<'_>, other: &Section<'_>, found: &mut Differences) {
        let parts = self.one.0.half.device_parts(one);
        if parts != self.other.0.half.device_parts(other) {
            found.in_section(
                one.printable_name(),
                "device code is at different offsets".to_owned(),
            );
            return;
        }
        for part in outside(&parts, one.body.len() as u64) {
            let range = part.start as usize..part.end as usize;
            let bytes = one.body.get(range.clone()).zip(other.body.get(range));
            let Some(at) = bytes.and_then(|(one, other)| {
                one.iter().zip(other).position(|(one, other)| one != other)
            }) else {
                continue;
            };
            let at = part.start as usize + at;
            let remedy = place_names::remedy_at(one.body, at, other.body, at);
            let what = if remedy.is_some() {
                "names differ"
            } else {
                "bytes differ"
            };
            let symbol = self
                .one
                .0
                .names
                .at(self.one.1, at as u64)
                .or(Some((String::new(), at as u64)));
            found.add(Difference {
                section: one.printable_name(),
                symbol,
                what: what.to_owned(),
                remedy,
            });
            return;
        }
    }

    fn relocations(&self, section: &Section<'_>, found: &mut Differences) -> Result<()> {
        let [first, second] = [self.one, self.other].map(|(view, index)| relocations(view, index));
        let (first, second) = (first?, second?);
        let differ = first.iter().zip(&second).find(|(one, other)| one != other);
        let at = |place: u64| {
            self.one
                .0
                .names
                .at(self.one.1, place)
                .or(Some((String::new(), place)))
        };
        if let Some(((place, _, one, _), (_, _, other, _))) = differ {
            let what = format!(
                "refers to {} in one build, to {} in the other",
                self.one.0.describe(one),
                self.other.0.describe(other)
            );
            let what = if one == other {
                "the relocations differ in place, type or addend".to_owned()
            } else {
                what
            };
            let remedy = match (one, other) {
                (Against::Name(one), Against::Name(other)) => place_names::remedy(one, other),
                _ => None,
            };
            found.add(Difference {
                section: section.printable_name(),
                symbol: at(*place),
                what,
                remedy,
            });
        } else if first.len() != second.len() {
            found.in_section(
                section.printable_name(),
                format!(
                    "{} relocations in one build, {} in the other",
                    first.len(),
                    second.len()
                ),
            );
        }
        Ok(())
    }

    /// Compares the members of two groups, and their signature symbols.
    fn group(&self, found: &mut Differences) {
        let [one, other] = [self.one, self.other].map(|(view, index)| {
            let section = view.section(index)?;
            let class = view.file().class;
            let mut words = section
                .body
                .chunks_exact(4)
                .filter_map(|word| class.word(word));
            let flags = words.next();
            let members = words.filter(|member| {
                view.section(*member as usize)
                    .is_some_and(|own| !own.header.is_relocations())
            });
            let members: Vec<_> = members.map(|member| view.key(member as usize)).collect();
            let name = view
                .file()
                .symbols
                .get(section.header.info as usize)
                .map(|symbol| symbol.name);
            Some((flags, members, name))
        });
        if one != other {
            let name = one
                .and_then(|(_, _, name)| name)
                .map(|name| (printable_name(name), 0));
            let what = "the section groups differ".to_owned();
            found.add(Difference {
                section: ".group".to_owned(),
                symbol: name,
                what,
                remedy: None,
            });
        }
    }
}

/// The gaps between `parts` in `size` bytes.
fn outside(parts: &[Range<u64>], size: u64) -> Vec<Range<u64>> {
    let mut at = 0;
    let mut found = Vec::new();
    for part in parts {
        found.push(at..part.start.min(size));
        at = part.end.min(size);
    }
    found.push(at..size);
    found.retain(|range| range.start < range.end);
    found
}

/// The relocations of a section, without those of device code: offset, type, target, addend.
type Relocations<'d> = Vec<(u64, u32, Against<'d>, Option<i64>)>;

fn relocations<'d>(view: &View<'_, 'd>, index: usize) -> Result<Relocations<'d>> {
    let mut all = Vec::new();
    let device = view
        .section(index)
        .map(|section| view.half.device_parts(section))
        .unwrap_or_default();
    for table in view.relocations.get(&index).into_iter().flatten() {
        let read = view
            .file()
            .relocations(*table)
            .with_context(|| printable(view.half.name).into_owned())?;
        let host = read
            .iter()
            .filter(|one| !device.iter().any(|part| part.contains(&one.place)));
        all.extend(host.map(|one| (one.place, one.kind, view.against(one.symbol), one.addend)));
    }
    // Relocations at the same offset belong together, in their order.
    all.sort_by_key(|(place, ..)| *place);
    Ok(all)
}

/// The attributes of a symbol that must match: name, section, special section index, value, size,
/// type and binding, visibility, and weak alias.
type SymbolKey<'d> = (&'d [u8], Option<Key<'d>>, u16, u64, u64, u8, u8, &'d [u8]);

fn symbols(one: &View<'_, '_>, other: &View<'_, '_>, found: &mut Differences) {
    let (first, second) = (symbol_keys(one), symbol_keys(other));
    let (mut left, mut right) = (first.iter().peekable(), second.iter().peekable());
    let section =
        |key: Option<Key<'_>>| key.map_or_else(String::new, |key| printable_name(key.name));
    loop {
        let order = match (left.peek(), right.peek()) {
            (None, None) => return,
            (Some(_), None) => Ordering::Less,
            (None, Some(_)) => Ordering::Greater,
            (Some(one), Some(other)) if one == other => Ordering::Equal,
            (Some(one), Some(other)) if one.0 == other.0 => {
                let what =
                    "the symbol differs in section, value, size, type, binding or visibility"
                        .to_owned();
                found.of_symbol(section(one.1), one.0, what, None);
                Ordering::Equal
            }
            (Some(one), Some(other)) => one.cmp(other),
        };
        let missing = |symbol: Option<&SymbolKey<'_>>, name: &str, found: &mut Differences| {
            if let Some(symbol) = symbol {
                found.of_symbol(
                    section(symbol.1),
                    symbol.0,
                    format!("is not in {}", printable(name)),
                    None,
                );
            }
        };
        match order {
            Ordering::Less => missing(left.next(), other.half.name, found),
            Ordering::Greater => missing(right.next(), one.half.name, found),
            Ordering::Equal => drop((left.next(), right.next())),
        }
    }
}

/// The symbols of an object in an order that does not depend on the file, without those of device
/// code, of sections and of source files.
fn symbol_keys<'d>(view: &View<'_, 'd>) -> Vec<SymbolKey<'d>> {
    let is_left_out = |symbol: &Symbol<'_>| {
        let in_section = symbol.section.is_some_and(|index| {
            view.is_device(index, symbol.value)
                || view
                    .section(index)
                    .is_none_or(|section| is_left_out(section, true))
        });
        in_section || matches!(symbol.kind(), elf::STT_FILE | elf::STT_SECTION)
    };
    let symbols = view
        .file()
        .symbols
        .iter()
        .skip(1)
        .filter(|symbol| !is_left_out(symbol));
    let each = |symbol: &Symbol<'d>| {
        let key = symbol.section.and_then(|index| view.key(index));
        (
            symbol.name,
            key,
            symbol.special,
            symbol.value,
            symbol.size,
            symbol.info.0,
            symbol.other,
            symbol.stands_for,
        )
    };
    let mut all: Vec<SymbolKey<'d>> = symbols.map(each).collect();
    all.sort();
    all
}
