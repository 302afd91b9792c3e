//! The layout of a relocatable object whose sections have other sizes: everything in its old order,
//! each section at its alignment.

use super::bytes::Bytes;
use super::{Part, Sizes, symbols};
use crate::error::Malformed;
use crate::formats::elf::edit::{file_align, tables};
use crate::formats::elf::file::Object;
use crate::formats::elf::raw::{FileHeader, Record, SectionHeader};
use crate::formats::range;

/// What has a place in the object.
struct Block {
    /// Its section; none for the table of sections.
    section: Option<usize>,
    /// Where it was.
    offset: u64,
    /// The bytes it had in the file.
    size: u64,
    align: u64,
}

/// The parts of the new object.
pub(super) fn lay_out(
    object: &Object<'_>,
    sizes: &Sizes,
    mut bytes: Bytes<'_>,
) -> Result<Vec<Part>, Malformed> {
    let mut headers: Vec<SectionHeader> = object.headers().collect();
    symbols::correct(object, sizes, &symbols::Renumbered::default(), &mut bytes)?;
    let head_size = FileHeader::size(object.class) as u64;
    let mut end = head_size;
    let mut old_end = head_size;
    let mut table_at = end;
    let mut body = Vec::new();
    for block in blocks(object) {
        let range = range(block.offset, block.size)?;
        if block.size > 0 {
            if range.start < old_end {
                return Err(Malformed::new("sections overlap", range.start));
            }
            old_end = range.end;
        }
        let new = block.section.and_then(|index| sizes.by_index.get(&index));
        let size = new.map_or(block.size, |(_, size)| *size);
        let start = if size > 0 {
            end.next_multiple_of(block.align)
        } else {
            end
        };
        if start > end {
            body.push(Part::Zeros(start - end));
        }
        match (block.section, new) {
            (None, _) => {
                table_at = start;
                // Filled in when all offsets are known.
                body.push(Part::Bytes(Vec::new()));
            }
            (_, Some((place, _))) => body.push(Part::New(*place)),
            _ => bytes.emit(range, &mut body),
        }
        if let Some(header) = block.section.and_then(|index| headers.get_mut(index)) {
            header.offset = start;
            if new.is_some() {
                header.size = size;
            }
        }
        end = start
            .checked_add(size)
            .ok_or(Malformed::new("new contents are too large", block.offset))?;
    }
    if !object.class.is_64 && end > u64::from(u32::MAX) {
        return Err(Malformed::new("too large for a 32-bit object", 0));
    }
    let (head, table) = tables(
        object.class,
        object.head,
        headers,
        object.names as u32,
        table_at,
    );
    if let Some(part) = body
        .iter_mut()
        .find(|part| **part == Part::Bytes(Vec::new()))
    {
        *part = Part::Bytes(table);
    }
    body.insert(0, Part::Bytes(head));
    Ok(body)
}

/// The sections and their table, in the order of the file. What has no bytes stands in front of
/// what begins where it does.
fn blocks(object: &Object<'_>) -> Vec<Block> {
    let table = (object.sections.len() * SectionHeader::size(object.class)) as u64;
    let align = object.class.address_size() as u64;
    let mut blocks = vec![Block {
        section: None,
        offset: object.head.shoff,
        size: table,
        align,
    }];
    for (index, section) in object.sections.iter().enumerate().skip(1) {
        let header = &section.header;
        let (size, align) = (section.body.len() as u64, file_align(header.align));
        blocks.push(Block {
            section: Some(index),
            offset: header.offset,
            size,
            align,
        });
    }
    blocks.sort_by_key(|block| (block.offset, block.size > 0));
    blocks
}
