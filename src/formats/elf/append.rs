//! Adds a section to an ELF file of any type, even to one without sections. Appends the contents,
//! the section names and the section headers, and updates their offsets in the file header.
//!
//! This is not a policy of `edit::OutputFile`, because here every old byte keeps its offset,
//! including those of the old section names and section headers.

use super::file::SectionTable;
use super::raw::{FileHeader, Record, SectionHeader};
use crate::error::Malformed;
use crate::formats::compose::{Part, push_zeros};
use crate::formats::slice;
use object::elf;

/// Returns the parts of the ELF file `data` with one more section at the end of the section table.
/// `header` provides its type, flags and alignment, which is at most 8.
pub(crate) fn section(
    data: &[u8],
    name: &str,
    header: SectionHeader,
    contents: &[u8],
) -> Result<Vec<Part>, Malformed> {
    let (class, mut head) = FileHeader::read(data)?;
    let names_index = usize::from(head.shstrndx.0);
    let no_sections = head.shnum == 0;
    if no_sections != (head.shoff == 0)
        || head.shnum >= elf::SHN_LORESERVE - 2
        || names_index >= usize::from(head.shnum).max(1)
    {
        return Err(Malformed::new(
            "a section table that cannot be extended",
            head.shoff,
        ));
    }
    let mut headers = SectionTable::read_any_size(data, class, &head)?.headers;
    let mut names = match headers.get(names_index) {
        Some(names) => slice(
            data,
            names.offset,
            names.size,
            "section names past the end",
            head.shoff,
        )?
        .to_vec(),
        None => vec![0],
    };
    let mut tail = contents.to_vec();
    let tail_at = (data.len() as u64).next_multiple_of(8);
    let added = SectionHeader {
        name: names.len() as u32,
        offset: tail_at,
        size: tail.len() as u64,
        ..header
    };
    names.extend(name.bytes().chain([0]));
    let mut names_index = names_index;
    if no_sections {
        names_index = 1;
        let name = names.len() as u32;
        names.extend(b".shstrtab\0");
        headers.push(SectionHeader::default());
        headers.push(SectionHeader {
            name,
            kind: elf::SHT_STRTAB,
            align: 1,
            ..SectionHeader::default()
        });
    }
    if let Some(own) = headers.get_mut(names_index) {
        own.offset = tail_at + tail.len() as u64;
        own.size = names.len() as u64;
    }
    tail.extend(&names);
    headers.push(added);
    tail.resize(tail.len().next_multiple_of(8), 0);
    head.shoff = tail_at + tail.len() as u64;
    headers
        .iter()
        .for_each(|header| header.append(class, &mut tail));
    if !class.is_64 && tail_at + tail.len() as u64 > u32::MAX.into() {
        return Err(Malformed::new(
            "no room for another section within 4 GiB",
            tail_at,
        ));
    }
    head.shentsize = SectionHeader::size(class) as u16;
    // The check above keeps the count below the numbers with a special meaning.
    head.shnum = headers.len() as u16;
    head.shstrndx = elf::SymbolSection(names_index as u16);
    let head = head.to_bytes(class);
    let end = data.len() as u64;
    let rest = Part::Old(head.len() as u64..end);
    let mut parts = vec![Part::Bytes(head), rest];
    push_zeros(&mut parts, tail_at - end);
    parts.push(Part::Bytes(tail));
    Ok(parts)
}
