//! Room for program headers in a static program at fixed addresses, of which little can move:
//! everything stays at its address and moves back in the file by a page, and the headers of file
//! and segments stand in that page, which the first segment begins with, below the address where it
//! began. Of programs with a dynamic section tables of the loader can move instead, and what
//! patchelf makes of those with a page in front does not run.

use object::elf;

use super::Part;
use super::linked::{Linked, PAGE};
use crate::error::Malformed;
use crate::formats::elf::edit::tables;
use crate::formats::elf::file::Object;
use crate::formats::elf::raw::{ProgramHeader, Record, SectionHeader};

/// What a segment may be aligned to, at most: so much is written to the file.
const LARGEST_PAGE: u64 = 1 << 16;
/// No process has memory below this address (`vm.mmap_min_addr`).
const LOWEST_ADDRESS: u64 = 1 << 16;

/// The parts of the program `data` with a page more in front, and how large that is; none where
/// there can be none: in a file that is no static program at fixed addresses, and where its first
/// segment begins too low, or is not the start of the file.
///
/// # Errors
/// The file is damaged.
pub(crate) fn with_front_page(data: &[u8]) -> Result<Option<(u64, Vec<Part>)>, Malformed> {
    let object = Object::parse_any(data)?;
    if object.head.kind != elf::ET_EXEC {
        return Ok(None);
    }
    let linked = Linked::read(&object, data)?;
    if linked
        .segments
        .iter()
        .any(|segment| matches!(segment.kind, elf::PT_DYNAMIC | elf::PT_INTERP))
    {
        return Ok(None);
    }
    let page = linked
        .loads()
        .map(|(_, load)| load.align.max(PAGE))
        .max()
        .unwrap_or(PAGE);
    let Some((first, load)) = linked.loads().next().map(|(first, load)| (first, *load)) else {
        return Ok(None);
    };
    let table_end = object
        .head
        .phoff
        .saturating_add(linked.segments.len() as u64 * u64::from(object.head.phentsize));
    let is_low = load.vaddr < page.saturating_add(LOWEST_ADDRESS);
    let is_usual = object.head.phoff >= u64::from(object.head.ehsize)
        && load.offset == 0
        && load.filesz >= table_end;
    if page > LARGEST_PAGE || table_end > page || !is_usual || is_low {
        return Ok(None);
    }
    let mut head = object.head;
    let mut segments = linked.segments.clone();
    for (index, segment) in segments.iter_mut().enumerate() {
        if index == first {
            (segment.filesz, segment.memsz) = (
                segment.filesz.saturating_add(page),
                segment.memsz.saturating_add(page),
            );
        }
        if index == first || segment.kind == elf::PT_PHDR && segment.offset == object.head.phoff {
            (segment.vaddr, segment.paddr) = (
                segment.vaddr.wrapping_sub(page),
                segment.paddr.wrapping_sub(page),
            );
        } else if segment.filesz > 0 || segment.offset > 0 {
            segment.offset = moved(segment.offset, page)?;
        }
    }
    let mut headers: Vec<SectionHeader> = object.headers().collect();
    for header in headers
        .iter_mut()
        .skip(1)
        .filter(|header| header.kind != elf::SHT_NULL)
    {
        header.offset = moved(header.offset, page)?;
    }
    let end = moved(object.size, page)?;
    if !object.class.is_64 && end > u64::from(u32::MAX) {
        return Ok(None);
    }
    let (at, count) = (head.shoff, headers.len() as u64);
    head.shoff = moved(at, page)?;
    let (mut front, table) = tables(object.class, head, headers, object.names as u32, head.shoff);
    front.resize(object.head.phoff as usize, 0);
    segments
        .iter()
        .for_each(|segment: &ProgramHeader| segment.append(object.class, &mut front));
    front.resize(page as usize, 0);
    let table_end =
        at.saturating_add(count.saturating_mul(SectionHeader::size(object.class) as u64));
    // What reads the headers at their old address finds the old ones there, and all that these say
    // is still so.
    let mut parts = vec![
        Part::Bytes(front),
        Part::Old(0..at),
        Part::Bytes(table),
        Part::Old(table_end..object.size),
    ];
    parts.retain(|part| !matches!(part, Part::Old(range) if range.is_empty()));
    Ok(Some((page, parts)))
}

fn moved(offset: u64, page: u64) -> Result<u64, Malformed> {
    offset
        .checked_add(page)
        .ok_or(Malformed::new("a range past the largest offset", offset))
}
