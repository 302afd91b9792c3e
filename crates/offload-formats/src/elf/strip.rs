//! Removes debug information from device images for AMD GPUs, NVIDIA GPUs and CPUs. All contents
//! that a runtime loads stay byte for byte: segments, addresses, symbols, notes, and NVIDIA's data
//! about kernels. The result is a list of parts, most of them ranges of the old file.
//!
//! The headers of debug sections are removed as well if nothing refers to the section numbers that
//! this changes. NVIDIA images refer to sections and symbols by number in undocumented locations.
//! In such images, the headers stay and the sections become empty.
//!
//! The layout of `edit` does not fit, because images have segments, and because bytes without a
//! header must stay.

#[cfg(test)]
mod tests;

use std::ops::Range;

use object::elf;

use super::edit::{Numbers, renumber, tables};
use super::file::{Object, Section};
use super::raw::{Class, ProgramHeader, Record, SectionHeader, Symbol, section_of_symbol};
use crate::bytes::{overlap, range, slice};
use crate::compose::{Part, push_old, push_zeros};
use crate::error::Malformed;

/// Returns the parts of the ELF file `data` without its debug sections and their relocations. If
/// there are none, the result is one part with the whole file.
///
/// In NVIDIA images, `.debug_frame` stays, because NVIDIA's assembler writes it even if no debug
/// information is requested. Loaded sections also stay, and sections that share bytes with
/// remaining contents.
///
/// # Errors
/// The file is damaged.
///
/// ```
/// use object::write::Object;
/// use object::{Architecture, BinaryFormat, Endianness, File, Object as _, ObjectSection as _, SectionKind};
/// use offload_formats::compose::join;
/// use offload_formats::elf::strip::strip_debug;
///
/// let mut image = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
/// for (name, kind) in [(".text", SectionKind::Text), (".debug_info", SectionKind::Debug)] {
///     let section = image.add_section(Vec::new(), name.into(), kind);
///     image.set_section_data(section, vec![7; 1000], 1);
/// }
/// let image = image.write()?;
/// let stripped = join(&image, &strip_debug(&image)?, &[])?;
/// assert!(stripped.len() < image.len() - 900);
/// assert_eq!(File::parse(&*stripped)?.section_by_name(".text").map(|section| section.size()), Some(1000));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn strip_debug(data: &[u8]) -> Result<Vec<Part>, Malformed> {
    let object = Object::parse_any(data)?;
    let asked = debug_sections(&object);
    let Some((layout, gone)) = without(data, &object, asked)? else {
        return Ok(vec![Part::Old(0..data.len() as u64)]);
    };
    let headers: Vec<SectionHeader> = object.headers().collect();
    let removed = if keeps_numbers(&object, &gone) {
        remove(&headers, &gone)
    } else {
        None
    };
    let (headers, names) = match removed {
        Some((headers, numbers)) => (headers, numbers.of(object.names).unwrap_or(0)),
        None => (emptied(headers, &gone), object.names as u32),
    };
    Ok(layout.parts(&object, headers, names))
}

/// Returns for each section whether it is debug information.
fn debug_sections(object: &Object<'_>) -> Vec<bool> {
    let nvidia = object.head.machine == elf::EM_CUDA;
    let debug = |section: &Section<'_>| {
        !section.header.is_empty_for(object.head.machine) && is_debug(section, nvidia)
    };
    let mut debug: Vec<bool> = object.sections.iter().map(debug).collect();
    for (index, section) in object.sections.iter().enumerate() {
        let of_debug = section.header.is_relocations()
            && !section.header.is_allocated()
            && debug.get(section.header.info as usize) == Some(&true);
        if let Some(debug) = debug.get_mut(index).filter(|_| of_debug) {
            *debug = true;
        }
    }
    debug
}

fn is_debug(section: &Section<'_>, nvidia: bool) -> bool {
    if section.header.is_allocated() || section.header.size == 0 {
        return false;
    }
    // NVIDIA images contain a second set of many sections, for NVIDIA's finalizer. Its relocation
    // sections have their own type and are recognized by name.
    let name = section
        .name
        .strip_prefix(b".nv.merc")
        .filter(|_| nvidia)
        .unwrap_or(section.name);
    let name = [&b".rela"[..], b".rel"]
        .into_iter()
        .find_map(|start| name.strip_prefix(start))
        .filter(|_| nvidia)
        .unwrap_or(name);
    if nvidia && name == b".debug_frame" {
        return false;
    }
    let starts = [&b".debug_"[..], b".zdebug_", b".nv_debug_"];
    starts.into_iter().any(|start| name.starts_with(start)) || name == b".gdb_index"
}

/// Returns the layout of the file without the debug sections `asked`, and the sections that are
/// actually removed. `None` if none can be removed.
fn without(
    data: &[u8],
    object: &Object<'_>,
    asked: Vec<bool>,
) -> Result<Option<(Layout, Vec<bool>)>, Malformed> {
    let mut gone = asked;
    // A section that must stay can keep another one that shares bytes with it.
    for _ in 0..3 {
        if !gone.contains(&true) {
            return Ok(None);
        }
        let layout = Layout::of(data, object, &gone)?;
        let stays = layout.in_use(object, &gone);
        if !stays.contains(&true) {
            return Ok(Some((layout, gone)));
        }
        gone.iter_mut()
            .zip(stays)
            .for_each(|(gone, stays)| *gone &= !stays);
    }
    Ok(None)
}

/// Whether the removal of the sections changes no section number outside of the section headers.
fn keeps_numbers(object: &Object<'_>, gone: &[bool]) -> bool {
    let is_linked = matches!(object.head.kind, elf::ET_EXEC | elf::ET_DYN);
    let first = gone.iter().position(|gone| *gone).unwrap_or(gone.len());
    let behind = || object.sections.iter().skip(first);
    let in_table_only = behind()
        .all(|section| !section.header.is_allocated() && section.header.kind != elf::SHT_GROUP);
    let extended = object
        .sections
        .iter()
        .any(|section| section.header.kind == elf::SHT_SYMTAB_SHNDX);
    object.head.machine != elf::EM_CUDA
        && is_linked
        && in_table_only
        && !extended
        && object
            .sections
            .iter()
            .all(|section| !refers_behind(object.class, section, first))
}

/// Whether `section` is a symbol table with a symbol in a section with number `first` or higher.
fn refers_behind(class: Class, section: &Section<'_>, first: usize) -> bool {
    if !matches!(section.header.kind, elf::SHT_SYMTAB | elf::SHT_DYNSYM) {
        return false;
    }
    let symbols = section
        .body
        .chunks_exact(Symbol::size(class))
        .filter_map(|record| Symbol::of(class, record));
    let sections = symbols.filter_map(|symbol| section_of_symbol(class, 0, symbol.shndx, None));
    sections.into_iter().any(|number| number as usize >= first)
}

/// Returns the headers of the remaining sections, and the new numbers. `None` if a remaining
/// section refers to a removed one.
fn remove(headers: &[SectionHeader], gone: &[bool]) -> Option<(Vec<SectionHeader>, Numbers)> {
    let numbers = Numbers::without(gone);
    let mut kept = Vec::new();
    for (header, _) in headers.iter().zip(gone).filter(|(_, gone)| !**gone) {
        let mut header = *header;
        renumber(&mut header, &numbers).ok()?;
        kept.push(header);
    }
    Some((kept, numbers))
}

/// Returns the headers, with size 0 for removed sections.
fn emptied(mut headers: Vec<SectionHeader>, gone: &[bool]) -> Vec<SectionHeader> {
    for (header, _) in headers.iter_mut().zip(gone).filter(|(_, gone)| **gone) {
        header.size = 0;
    }
    headers
}

/// Alignment of section headers, program headers, and bytes without a header.
const TABLE_ALIGN: u64 = 8;

/// A range of bytes that stay together, with unchanged distances between them.
#[derive(Debug, Clone)]
struct Run {
    old: Range<u64>,
    /// New and old offset are equal modulo this power of two.
    align: u64,
    /// The new offset, which is at most the old one.
    new: u64,
}

/// Offsets of the remaining bytes. Bytes before the first removed section keep their offset. The
/// others move towards the start of the file, as far as their alignment permits.
struct Layout {
    /// The remaining ranges in file order, without overlap. The first one contains everything
    /// before the first removed section.
    runs: Vec<Run>,
    segments: Vec<ProgramHeader>,
    /// The section headers in the old file.
    table: Range<u64>,
}

impl Layout {
    /// Lays out the file `data` without the sections marked in `gone`. At least one is marked.
    fn of(data: &[u8], object: &Object<'_>, gone: &[bool]) -> Result<Layout, Malformed> {
        let head = &object.head;
        let segments = head.program_headers(object.class, data)?;
        let tables = object.header_ranges()?;
        let [_, table, _] = tables.clone();
        if tables
            .iter()
            .enumerate()
            .any(|(at, one)| tables.iter().skip(at + 1).any(|other| overlap(one, other)))
        {
            return Err(Malformed::new(
                "the headers of the file overlap",
                head.shoff,
            ));
        }
        let mut stay: Vec<(Range<u64>, u64)> = tables
            .into_iter()
            .map(|table| (table, TABLE_ALIGN))
            .collect();
        for segment in segments.iter().filter(|segment| segment.filesz > 0) {
            stay.push((range(segment.offset, segment.filesz)?, segment.align));
        }
        let mut go = Vec::new();
        for (section, gone) in object.sections.iter().zip(gone).skip(1) {
            let header = section.header;
            match gone {
                _ if header.is_empty_for(object.head.machine) => {}
                true => go.push(range(header.offset, header.size)?),
                false => stay.push((range(header.offset, header.size)?, header.align)),
            }
        }
        let first = go
            .iter()
            .map(|range| range.start)
            .min()
            .unwrap_or(data.len() as u64);
        stay.push((0..first, 1));
        stay.extend(unknown(data, &stay, &go)?);
        Ok(Layout {
            runs: runs(stay),
            segments,
            table,
        })
    }

    /// Returns for each section whether it is marked in `gone` but shares bytes that stay.
    fn in_use(&self, object: &Object<'_>, gone: &[bool]) -> Vec<bool> {
        let overlaps = |header: &SectionHeader| {
            let next = self
                .runs
                .partition_point(|run| run.old.end <= header.offset);
            self.runs
                .get(next)
                .is_some_and(|run| run.old.start < header.offset.saturating_add(header.size))
        };
        object
            .sections
            .iter()
            .zip(gone)
            .map(|(section, gone)| *gone && overlaps(&section.header))
            .collect()
    }

    /// Returns the new offset of the byte at `old`. For a removed byte, this is the end of the
    /// bytes before it.
    fn moved(&self, old: u64) -> u64 {
        let behind = self.runs.partition_point(|run| run.old.start <= old);
        let run = behind.checked_sub(1).and_then(|at| self.runs.get(at));
        run.map_or(old, |run| {
            run.new
                .saturating_add(old.min(run.old.end).saturating_sub(run.old.start))
        })
    }

    /// Returns the parts of the new file. `headers` still contain the old offsets; `names` is the
    /// number of the section with the section names.
    fn parts(self, object: &Object<'_>, mut headers: Vec<SectionHeader>, names: u32) -> Vec<Part> {
        let class = object.class;
        headers
            .iter_mut()
            .skip(1)
            .for_each(|header| header.offset = self.moved(header.offset));
        let mut head = object.head;
        if head.phnum > 0 {
            head.phoff = self.moved(head.phoff);
        }
        let mut segments = Vec::new();
        for segment in &self.segments {
            ProgramHeader {
                offset: self.moved(segment.offset),
                ..*segment
            }
            .append(class, &mut segments);
        }
        let (head, table) = tables(class, head, headers, names, self.moved(self.table.start));
        let mut changes = [
            (0, head),
            (object.head.phoff, segments),
            (self.table.start, table),
        ];
        changes.sort_by_key(|(at, _)| *at);
        let (mut parts, mut end) = (Vec::new(), 0);
        for run in &self.runs {
            push_zeros(&mut parts, run.new.saturating_sub(end));
            let mut at = run.old.start;
            for (start, bytes) in changes
                .iter()
                .filter(|(start, bytes)| run.old.contains(start) && !bytes.is_empty())
            {
                push_old(&mut parts, at..*start);
                parts.push(Part::Bytes(bytes.clone()));
                at = start.saturating_add(bytes.len() as u64);
            }
            // There may be fewer section headers than before. A range with only section headers
            // becomes shorter.
            let rest = if run.old == self.table {
                at..at
            } else {
                at..run.old.end
            };
            end = run
                .new
                .saturating_add(rest.end.saturating_sub(run.old.start));
            push_old(&mut parts, rest);
        }
        parts
    }
}

/// Merges overlapping ranges, each with its alignment, and assigns new offsets.
fn runs(mut ranges: Vec<(Range<u64>, u64)>) -> Vec<Run> {
    ranges.retain(|(range, _)| range.start < range.end);
    ranges.sort_by_key(|(range, _)| range.start);
    let mut runs: Vec<Run> = Vec::new();
    for (old, align) in ranges {
        let align = if align.is_power_of_two() { align } else { 1 };
        match runs.last_mut().filter(|last| old.start < last.old.end) {
            Some(last) => {
                last.old.end = last.old.end.max(old.end);
                last.align = last.align.max(align);
            }
            None => runs.push(Run {
                new: old.start,
                old,
                align,
            }),
        }
    }
    let mut end = 0u64;
    for run in &mut runs {
        // Equal to the old offset modulo the alignment, and therefore never above it.
        run.new = end.saturating_add(run.old.start.wrapping_sub(end) & (run.align - 1));
        end = run.new.saturating_add(run.old.end - run.old.start);
    }
    runs
}

/// Returns the nonzero bytes that no header describes. They stay.
fn unknown(
    data: &[u8],
    stay: &[(Range<u64>, u64)],
    go: &[Range<u64>],
) -> Result<Vec<(Range<u64>, u64)>, Malformed> {
    let mut known: Vec<&Range<u64>> = stay
        .iter()
        .map(|(range, _)| range)
        .chain(go)
        .filter(|range| range.start < range.end)
        .collect();
    known.sort_by_key(|range| range.start);
    let size = data.len() as u64;
    let mut found = Vec::new();
    let mut look = |from: u64, to: u64| -> Result<(), Malformed> {
        let gap = slice(
            data,
            from,
            to.saturating_sub(from),
            "a segment past the end",
            from,
        )?;
        let filled = |byte: &u8| *byte != 0;
        if let (Some(first), Some(last)) =
            (gap.iter().position(filled), gap.iter().rposition(filled))
        {
            found.push((from + first as u64..from + last as u64 + 1, TABLE_ALIGN));
        }
        Ok(())
    };
    let mut end = 0;
    for range in known {
        if range.start > end {
            look(end, range.start)?;
        }
        end = end.max(range.end);
    }
    if end > size {
        return Err(Malformed::new("a segment past the end", size));
    }
    look(end, size)?;
    Ok(found)
}
