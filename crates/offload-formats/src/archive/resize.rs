//! Replaces the contents of archive members and keeps everything else byte for byte: names, times,
//! owners, order and the symbols in the index. Only the members' offsets in the index change.
//! Supports GNU and BSD archives, but not thin ones, whose members are separate files.

use std::collections::HashMap;
use std::ops::Range;

use object::archive::Header;

use super::ArchiveFault;
use crate::bytes::slice;
use crate::compose::Part;
use crate::error::Malformed;
use crate::magic;

const HEADER: u64 = size_of::<Header>() as u64;
/// The largest size that fits into a header: 10 digits.
const MAX_SIZE: u64 = 9_999_999_999;

/// A header of the archive with its data.
struct Entry<'a> {
    header: &'a Header,
    at: u64,
    /// The contents, without a BSD name before them.
    contents: Range<u64>,
    /// The size in the header.
    stored: u64,
}

impl Entry<'_> {
    fn name(&self) -> &[u8] {
        self.header.name.trim_ascii_end()
    }

    fn is_bsd_index(&self, data: &[u8]) -> bool {
        let name = slice(
            data,
            self.at + HEADER,
            self.contents.start - self.at - HEADER,
            "",
            0,
        )
        .unwrap_or_default();
        self.name().starts_with(b"__.SYMDEF") || name.starts_with(b"__.SYMDEF")
    }
}

/// Returns the parts, in order, of the archive `data` with new contents for some members. `sizes`
/// has the offset of each member's old contents and its new size.
///
/// # Errors
/// The archive is damaged or has an unsupported format. A new size does not fit into a header, or
/// no member has contents at an offset.
pub fn plan(data: &[u8], sizes: &[(u64, u64)]) -> Result<Vec<Part>, ArchiveFault> {
    let fault = |fault: Malformed| ArchiveFault {
        member: None,
        what: fault.what.to_owned(),
        offset: fault.at,
    };
    if !data.starts_with(&magic::ARCHIVE) {
        return Err(fault(Malformed::new(
            "cannot change members of this kind of archive",
            0,
        )));
    }
    let entries = entries(data).map_err(fault)?;
    let new: HashMap<u64, (usize, u64)> = sizes
        .iter()
        .zip(0..)
        .map(|((offset, size), place)| (*offset, (place, *size)))
        .collect();
    if let Some((offset, _)) = sizes
        .iter()
        .find(|(offset, _)| !entries.iter().any(|entry| entry.contents.start == *offset))
    {
        return Err(fault(Malformed::new("no member begins here", *offset)));
    }
    let mut moved = HashMap::new();
    let mut at = magic::ARCHIVE.len() as u64;
    for entry in &entries {
        moved.insert(entry.at, at);
        let before = entry.contents.start - entry.at;
        let size = new
            .get(&entry.contents.start)
            .map_or(entry.contents.end - entry.contents.start, |(_, size)| *size);
        at = before
            .checked_add(size)
            .and_then(|size| at.checked_add(size)?.checked_next_multiple_of(2))
            .unwrap_or(u64::MAX);
    }
    let mut parts = vec![Part::Old(0..magic::ARCHIVE.len() as u64)];
    for (entry, index) in entries.iter().zip(0..) {
        let next = entries
            .get(index + 1)
            .map_or(data.len() as u64, |next: &Entry<'_>| next.at);
        match new.get(&entry.contents.start) {
            Some((place, size)) => member(data, entry, *place, *size, &mut parts).map_err(fault)?,
            None => match updated_index(data, entry, &moved).map_err(fault)? {
                Some(bytes) => {
                    parts.push(Part::Old(entry.at..entry.contents.start));
                    parts.push(Part::Bytes(bytes));
                    parts.push(Part::Old(entry.contents.end..next));
                }
                None => parts.push(Part::Old(entry.at..next)),
            },
        }
    }
    Ok(parts)
}

/// A member with new contents.
fn member(
    data: &[u8],
    entry: &Entry<'_>,
    place: usize,
    size: u64,
    parts: &mut Vec<Part>,
) -> Result<(), Malformed> {
    let name = entry.contents.start - entry.at - HEADER;
    let stored = size.saturating_add(name);
    if stored > MAX_SIZE {
        return Err(Malformed::new(
            "too large for a member of an archive",
            entry.at,
        ));
    }
    let mut header = slice(data, entry.at, HEADER, "header past the end", entry.at)?.to_vec();
    let field = 48..58;
    header.splice(field, format!("{stored:<10}").into_bytes());
    parts.push(Part::Bytes(header));
    parts.push(Part::Old(entry.at + HEADER..entry.contents.start));
    parts.push(Part::New(place));
    if !stored.is_multiple_of(2) {
        parts.push(Part::Bytes(b"\n".to_vec()));
    }
    Ok(())
}

/// The contents of a symbol index for members at their `moved` offsets. `None` for entries that are
/// not an index.
fn updated_index(
    data: &[u8],
    entry: &Entry<'_>,
    moved: &HashMap<u64, u64>,
) -> Result<Option<Vec<u8>>, Malformed> {
    let mut bytes = slice(
        data,
        entry.contents.start,
        entry.contents.end - entry.contents.start,
        "past the end",
        entry.at,
    )?
    .to_vec();
    let cut = Malformed::new("the symbol index is cut short", entry.at);
    let to = |old: u64| {
        moved.get(&old).copied().ok_or(Malformed::new(
            "the symbol index names an offset without a member",
            entry.at,
        ))
    };
    let too_far = Malformed::new(
        "the symbol index cannot hold offsets beyond 4 GiB",
        entry.at,
    );
    match entry.name() {
        b"/" if entry.at == magic::ARCHIVE.len() as u64 => {
            let count = u32::from_be_bytes(*bytes.first_chunk().ok_or(cut)?) as usize;
            let places = bytes
                .get_mut(4..)
                .and_then(|rest| rest.get_mut(..count.checked_mul(4)?))
                .ok_or(cut)?;
            for place in places.as_chunks_mut().0 {
                *place = u32::try_from(to(u32::from_be_bytes(*place).into())?)
                    .map_err(|_| too_far)?
                    .to_be_bytes();
            }
        }
        b"/SYM64/" => {
            let count = u64::from_be_bytes(*bytes.first_chunk().ok_or(cut)?);
            let length = usize::try_from(count.saturating_mul(8)).map_err(|_| cut)?;
            let places = bytes
                .get_mut(8..)
                .and_then(|rest| rest.get_mut(..length))
                .ok_or(cut)?;
            for place in places.as_chunks_mut().0 {
                *place = to(u64::from_be_bytes(*place))?.to_be_bytes();
            }
        }
        b"/" | b"/<ECSYMBOLS>/" => {
            return Err(Malformed::new(
                "cannot change members of a Windows library",
                entry.at,
            ));
        }
        _ if entry.is_bsd_index(data) => {
            let length = u32::from_le_bytes(*bytes.first_chunk().ok_or(cut)?) as usize;
            let records = bytes
                .get_mut(4..)
                .and_then(|rest| rest.get_mut(..length))
                .ok_or(cut)?;
            for record in records.as_chunks_mut::<8>().0 {
                let (_, place) = record.split_at_mut(4);
                let old = place.first_chunk().copied().map_or(0, u32::from_le_bytes);
                place.copy_from_slice(
                    &u32::try_from(to(old.into())?)
                        .map_err(|_| too_far)?
                        .to_le_bytes(),
                );
            }
        }
        _ => return Ok(None),
    }
    Ok(Some(bytes))
}

fn entries(data: &[u8]) -> Result<Vec<Entry<'_>>, Malformed> {
    let mut entries = Vec::new();
    let mut at = magic::ARCHIVE.len() as u64;
    while at < data.len() as u64 {
        let bytes = slice(data, at, HEADER, "header past the end", at)?;
        let (header, _) = object::pod::from_bytes::<Header>(bytes)
            .map_err(|()| Malformed::new("header past the end", at))?;
        let text = |field: &[u8]| {
            std::str::from_utf8(field.trim_ascii())
                .ok()?
                .parse::<u64>()
                .ok()
        };
        let bad = Malformed::new("a header with an invalid size", at);
        let stored = text(&header.size)
            .filter(|_| header.terminator == *b"`\n")
            .ok_or(bad)?;
        let name = header
            .name
            .strip_prefix(b"#1/")
            .and_then(text)
            .unwrap_or_default();
        let start = at + HEADER;
        let end = start
            .checked_add(stored)
            .filter(|end| *end <= data.len() as u64 && name <= stored);
        let end = end.ok_or(Malformed::new("a member past the end", at))?;
        entries.push(Entry {
            header,
            at,
            contents: start + name..end,
            stored,
        });
        at = end.next_multiple_of(2);
    }
    debug_assert!(
        entries
            .iter()
            .all(|entry| entry.stored >= entry.contents.end - entry.contents.start)
    );
    Ok(entries)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::archive::{MemberContents, NewMember, members, write};

    fn resized(data: &[u8], contents: &[(u64, &[u8])]) -> Result<Vec<u8>, ArchiveFault> {
        let sizes: Vec<(u64, u64)> = contents
            .iter()
            .map(|(offset, new)| (*offset, new.len() as u64))
            .collect();
        let mut file = Vec::new();
        for part in plan(data, &sizes)? {
            match part {
                Part::Old(range) => file.extend(&data[range.start as usize..range.end as usize]),
                Part::New(place) => file.extend(contents[place].1),
                Part::Bytes(bytes) => file.extend(bytes),
                Part::Zeros(count) => file.resize(file.len() + count as usize, 0),
            }
        }
        Ok(file)
    }

    fn archive(second: &[u8]) -> Vec<u8> {
        let object = |name: &str| {
            let mut object = object::write::Object::new(
                object::BinaryFormat::Elf,
                object::Architecture::X86_64,
                object::Endianness::Little,
            );
            let text = object.section_id(object::write::StandardSection::Text);
            let symbol = object::write::Symbol {
                name: name.as_bytes().to_vec(),
                value: 0,
                size: 1,
                kind: object::SymbolKind::Text,
                scope: object::SymbolScope::Linkage,
                weak: false,
                section: object::write::SymbolSection::Section(text),
                flags: object::SymbolFlags::None,
            };
            object.append_section_data(text, &[0xc3], 1);
            object.add_symbol(symbol);
            object.write().unwrap()
        };
        let member = |name: &str, bytes: Vec<u8>| NewMember {
            name: name.to_owned(),
            bytes: Box::new(bytes),
        };
        let last = object("last_one");
        let list = vec![
            member("first.o", object("first_one")),
            member("a-member-with-a-long-name.o", second.to_vec()),
            member("last.o", last),
        ];
        let mut out = std::io::Cursor::new(Vec::new());
        write(list, &mut out).unwrap();
        out.into_inner()
    }

    #[test]
    fn a_resized_archive_is_the_one_that_ar_would_have_made() {
        for (old, new) in [
            (&b"text"[..], &b"a longer text"[..]),
            (b"odd", b""),
            (b"", b"x"),
        ] {
            let before = archive(old);
            let second = members(&before).unwrap().nth(1).unwrap().unwrap();
            let MemberContents::Within { offset, .. } = second.contents else {
                panic!("thin")
            };
            assert_eq!(resized(&before, &[(offset, new)]).unwrap(), archive(new));
        }
    }

    #[test]
    fn damaged_archives_never_panic() {
        let data = archive(b"text");
        for at in 0..data.len() {
            for flip in [0xff, 1] {
                let mut data = data.clone();
                data[at] ^= flip;
                let Ok(mut found) = members(&data) else {
                    continue;
                };
                if let Some(Ok(member)) = found.nth(1)
                    && let MemberContents::Within { offset, .. } = member.contents
                {
                    let _ = resized(&data, &[(offset, b"new")]);
                }
            }
        }
    }
}
