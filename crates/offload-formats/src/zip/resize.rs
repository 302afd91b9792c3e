//! Replaces or removes members of a zip file and keeps everything else byte for byte: names, times,
//! modes, comments, order. The layouts are those of PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.3.

use std::collections::{HashMap, HashSet};

use crate::bytes::{overwrite, slice, u16_at, u32_at, u64_at};
use crate::compose::{Part, PartList};
use crate::error::Malformed;

const LOCAL: [u8; 4] = *b"PK\x03\x04";
const CENTRAL: [u8; 4] = *b"PK\x01\x02";
const END: [u8; 4] = *b"PK\x05\x06";
const END_64: [u8; 4] = *b"PK\x06\x06";
const LOCATOR_64: [u8; 4] = *b"PK\x06\x07";
const LOCAL_SIZE: u64 = 30;
const CENTRAL_SIZE: u64 = 46;
const END_SIZE: u64 = 22;
/// The extra field with 64-bit numbers.
const ZIP64: u16 = 1;
/// The flag for a data descriptor: sizes and checksum after the contents.
const SIZES_FOLLOW: u16 = 8;

/// New contents of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct NewContents {
    /// The offset of the member's header in the old file.
    pub header: u64,
    /// The compression method: 0 for none, 8 for deflate.
    pub method: u16,
    /// The CRC-32 of the uncompressed contents.
    pub crc: u32,
    /// The stored size.
    pub packed: u64,
    /// The uncompressed size.
    pub plain: u64,
}

/// A member, according to the directory.
struct Entry {
    /// The offset and length of the directory entry.
    at: u64,
    len: u64,
    /// The offset of the member's header.
    header: u64,
    packed: u64,
}

/// The position of the directory and of the end records.
struct Directory {
    start: u64,
    size: u64,
    /// The distance between offsets in the file and actual positions, because a program may precede
    /// the first member.
    base: u64,
    end: u64,
    end_64: Option<u64>,
}

/// Returns the parts, in order, of the zip file `data` with `new` contents and without the members
/// whose headers are at the offsets `removed`.
///
/// # Errors
/// The file is damaged, no member has a header at an offset, or a value needs 64 bits but has a
/// smaller field.
pub fn plan(
    data: &[u8],
    new: &[NewContents],
    removed: &HashSet<u64>,
) -> Result<Vec<Part>, Malformed> {
    let directory = directory(data)?;
    let entries = entries(data, &directory)?;
    let by_header: HashMap<u64, usize> = new
        .iter()
        .zip(0..)
        .map(|(one, place)| (one.header, place))
        .collect();
    if let Some(lost) = new
        .iter()
        .find(|one| !entries.iter().any(|entry| entry.header == one.header))
    {
        return Err(Malformed::new("no member begins here", lost.header));
    }
    let mut order: Vec<&Entry> = entries.iter().collect();
    order.sort_by_key(|entry| entry.header);
    let mut out = PartList::default();
    let mut moved = HashMap::new();
    let mut at = 0;
    for (entry, index) in order.iter().zip(0..) {
        if entry.header < at {
            return Err(Malformed::new("members share their bytes", entry.header));
        }
        out.old(at..entry.header);
        moved.insert(entry.header, out.size);
        let next = order
            .get(index + 1)
            .map_or(directory.start, |next: &&Entry| next.header);
        if removed.contains(&entry.header) {
            at = next;
            continue;
        }
        at = match by_header
            .get(&entry.header)
            .and_then(|place| Some((*place, new.get(*place)?)))
        {
            Some((place, contents)) => member(data, entry, place, contents, next, &mut out)?,
            None => entry.header,
        };
    }
    out.old(at..directory.start);
    let start = out.size;
    for entry in entries
        .iter()
        .filter(|entry| !removed.contains(&entry.header))
    {
        let contents = by_header
            .get(&entry.header)
            .and_then(|place| new.get(*place));
        let header = moved.get(&entry.header).copied().unwrap_or(entry.header);
        let bytes = slice(
            data,
            entry.at,
            entry.len,
            "directory past the end",
            entry.at,
        )?
        .to_vec();
        out.bytes(central(bytes, entry.at, header - directory.base, contents)?);
    }
    let size = out.size - start;
    let lost = entries
        .iter()
        .filter(|entry| removed.contains(&entry.header))
        .count();
    if lost != removed.len() {
        return Err(Malformed::new(
            "a member to remove is missing",
            directory.start,
        ));
    }
    ends(data, &directory, (start, size), lost as u64, &mut out)?;
    Ok(out.parts)
}

/// Writes a member with new contents. Data between the old contents and `next` stays, except sizes
/// after the contents. Returns the end of the processed part of the old file.
fn member(
    data: &[u8],
    entry: &Entry,
    place: usize,
    new: &NewContents,
    next: u64,
    out: &mut PartList,
) -> Result<u64, Malformed> {
    let head = slice(
        data,
        entry.header,
        LOCAL_SIZE,
        "header past the end",
        entry.header,
    )?;
    let fault = |what| Malformed::new(what, entry.header);
    let (name, extra) = (u64::from(u16_at(head, 26)), u64::from(u16_at(head, 28)));
    let whole = LOCAL_SIZE + name + extra;
    let mut header = slice(
        data,
        entry.header,
        whole,
        "header past the end",
        entry.header,
    )?
    .to_vec();
    let flags = u16_at(&header, 6);
    overwrite(&mut header, 6, &(flags & !SIZES_FOLLOW).to_le_bytes());
    overwrite(&mut header, 8, &new.method.to_le_bytes());
    overwrite(&mut header, 14, &new.crc.to_le_bytes());
    let extra_at = (LOCAL_SIZE + name) as usize;
    sizes(&mut header, (18, 22), extra_at, new).ok_or(fault("no room for the new sizes"))?;
    out.bytes(header);
    out.contents(place, new.packed);
    let end = (entry.header + whole)
        .checked_add(entry.packed)
        .filter(|end| *end <= next)
        .ok_or(fault("contents past the next member"))?;
    Ok(if flags & SIZES_FOLLOW != 0 { next } else { end })
}

/// Returns a directory entry with the member's new offset and contents.
fn central(
    mut bytes: Vec<u8>,
    at: u64,
    header: u64,
    new: Option<&NewContents>,
) -> Result<Vec<u8>, Malformed> {
    let fault = |what| Malformed::new(what, at);
    let extra_at = CENTRAL_SIZE as usize + usize::from(u16_at(&bytes, 28));
    let extra_end = extra_at + usize::from(u16_at(&bytes, 30));
    // The 64-bit field contains, in this order, the values whose short fields are full.
    let (plain_full, packed_full) = (
        u32_at(&bytes, 24) == u32::MAX,
        u32_at(&bytes, 20) == u32::MAX,
    );
    if u32_at(&bytes, 42) == u32::MAX {
        let field = zip64(&bytes, extra_at, extra_end).ok_or(fault("no offset of the member"))?;
        overwrite(
            &mut bytes,
            field + 8 * (usize::from(plain_full) + usize::from(packed_full)),
            &header.to_le_bytes(),
        );
    } else {
        let short =
            u32::try_from(header).map_err(|_| fault("no room for the new offset of the member"))?;
        overwrite(&mut bytes, 42, &short.to_le_bytes());
    }
    if let Some(new) = new {
        let flags = u16_at(&bytes, 8);
        overwrite(&mut bytes, 8, &(flags & !SIZES_FOLLOW).to_le_bytes());
        overwrite(&mut bytes, 10, &new.method.to_le_bytes());
        overwrite(&mut bytes, 16, &new.crc.to_le_bytes());
        sizes(&mut bytes, (20, 24), extra_at, new).ok_or(fault("no room for the new sizes"))?;
    }
    Ok(bytes)
}

/// Stores the sizes of new contents in a header, in the short fields or in the 64-bit ones that
/// replace them.
fn sizes(
    header: &mut [u8],
    (packed_at, plain_at): (usize, usize),
    extra_at: usize,
    new: &NewContents,
) -> Option<()> {
    let (packed_full, plain_full) = (
        u32_at(header, packed_at) == u32::MAX,
        u32_at(header, plain_at) == u32::MAX,
    );
    let end = header.len();
    let field = zip64(header, extra_at, end);
    if plain_full {
        overwrite(header, field?, &new.plain.to_le_bytes());
    } else {
        overwrite(
            header,
            plain_at,
            &u32::try_from(new.plain)
                .ok()
                .filter(|size| *size < u32::MAX)?
                .to_le_bytes(),
        );
    }
    if packed_full {
        overwrite(
            header,
            field? + 8 * usize::from(plain_full),
            &new.packed.to_le_bytes(),
        );
    } else {
        overwrite(
            header,
            packed_at,
            &u32::try_from(new.packed)
                .ok()
                .filter(|size| *size < u32::MAX)?
                .to_le_bytes(),
        );
    }
    Some(())
}

/// The offset of the 64-bit numbers in the extra fields.
fn zip64(header: &[u8], mut at: usize, end: usize) -> Option<usize> {
    while at + 4 <= end.min(header.len()) {
        if u16_at(header, at) == ZIP64 {
            return Some(at + 4);
        }
        at += 4 + usize::from(u16_at(header, at + 2));
    }
    None
}

/// Writes the records after the directory, which now starts at `start`, has `size` bytes and `lost`
/// fewer members.
fn ends(
    data: &[u8],
    directory: &Directory,
    (start, size): (u64, u64),
    lost: u64,
    out: &mut PartList,
) -> Result<(), Malformed> {
    let mut rest = slice(
        data,
        directory.start + directory.size,
        (data.len() as u64).saturating_sub(directory.start + directory.size),
        "",
        0,
    )?
    .to_vec();
    let within = |at: u64| (at - directory.start - directory.size) as usize;
    let place = start - directory.base;
    if let Some(at) = directory.end_64 {
        for count in [within(at) + 24, within(at) + 32] {
            let left = rest
                .get(count..)
                .filter(|rest| rest.len() >= 8)
                .map_or(0, |rest| u64_at(rest, 0))
                .saturating_sub(lost);
            overwrite(&mut rest, count, &left.to_le_bytes());
        }
        overwrite(&mut rest, within(at) + 40, &size.to_le_bytes());
        overwrite(&mut rest, within(at) + 48, &place.to_le_bytes());
        let moved = (out.size + (at - directory.start - directory.size)) - directory.base;
        overwrite(
            &mut rest,
            within(directory.end) - 20 + 8,
            &moved.to_le_bytes(),
        );
    }
    let fault = Malformed::new("no room for the new offset of the directory", directory.end);
    let end = within(directory.end);
    for count in [end + 8, end + 10] {
        let old = u16_at(&rest, count);
        if old != u16::MAX || directory.end_64.is_none() {
            let left = u64::from(old).saturating_sub(lost);
            overwrite(
                &mut rest,
                count,
                &u16::try_from(left).unwrap_or_default().to_le_bytes(),
            );
        }
    }
    for (field, value) in [(12, size), (16, place)] {
        if u32_at(&rest, end + field) != u32::MAX || directory.end_64.is_none() {
            overwrite(
                &mut rest,
                end + field,
                &u32::try_from(value).map_err(|_| fault)?.to_le_bytes(),
            );
        }
    }
    out.bytes(rest);
    Ok(())
}

fn directory(data: &[u8]) -> Result<Directory, Malformed> {
    let size = data.len() as u64;
    let fault = |what| Malformed::new(what, size);
    let from = size.saturating_sub(END_SIZE + u64::from(u16::MAX));
    let tail = slice(data, from, size - from, "", 0)?;
    let is_end = |at: &usize| {
        let left = tail.len() - at;
        left >= END_SIZE as usize && usize::from(u16_at(tail, at + 20)) == left - END_SIZE as usize
    };
    let end = memchr::memmem::rfind_iter(tail, &END)
        .find(is_end)
        .ok_or(fault("a zip file without a directory"))?;
    let (mut count_size, mut start) = (
        u64::from(u32_at(tail, end + 12)),
        u64::from(u32_at(tail, end + 16)),
    );
    let end = from + end as u64;
    let locator = end
        .checked_sub(20)
        .filter(|at| slice(data, *at, 4, "", 0).is_ok_and(|magic| magic == LOCATOR_64));
    let mut end_64 = None;
    if let Some(at) = locator {
        let place = u64_at(slice(data, at, 20, "locator past the end", at)?, 8);
        // If a program precedes the first member, the offset counts from the end of that program.
        let found = [Some(place), at.checked_sub(56)].into_iter().flatten();
        let found = found
            .into_iter()
            .find(|at| slice(data, *at, 4, "", 0).is_ok_and(|magic| magic == END_64));
        let at = found.ok_or(fault("the 64-bit end record of the directory is missing"))?;
        let record = slice(data, at, 56, "directory past the end", at)?;
        (count_size, start) = (u64_at(record, 40), u64_at(record, 48));
        end_64 = Some(at);
    }
    let real = end_64
        .unwrap_or(end)
        .checked_sub(count_size)
        .ok_or(fault("the directory is larger than the file"))?;
    let base = real
        .checked_sub(start)
        .ok_or(fault("the directory is not at its stated offset"))?;
    Ok(Directory {
        start: real,
        size: count_size,
        base,
        end,
        end_64,
    })
}

fn entries(data: &[u8], directory: &Directory) -> Result<Vec<Entry>, Malformed> {
    let mut entries = Vec::new();
    let mut at = directory.start;
    let end = directory.start + directory.size;
    while at < end {
        let fixed = slice(data, at, CENTRAL_SIZE, "directory past the end", at)?;
        if !fixed.starts_with(&CENTRAL) {
            return Err(Malformed::new("not a directory entry", at));
        }
        let len = CENTRAL_SIZE
            + [28, 30, 32]
                .iter()
                .map(|field| u64::from(u16_at(fixed, *field)))
                .sum::<u64>();
        let bytes = slice(data, at, len, "directory past the end", at)?;
        let extra_at = CENTRAL_SIZE as usize + usize::from(u16_at(fixed, 28));
        let mut field = zip64(bytes, extra_at, extra_at + usize::from(u16_at(fixed, 30)));
        let mut wide = |short: u32| match (short, field) {
            (u32::MAX, Some(place)) => {
                field = Some(place + 8);
                u64_at(bytes, place)
            }
            (short, _) => short.into(),
        };
        let _plain = wide(u32_at(bytes, 24));
        let (packed, header) = (wide(u32_at(bytes, 20)), wide(u32_at(bytes, 42)));
        let header = header
            .checked_add(directory.base)
            .filter(|header| *header < directory.start);
        let header = header.ok_or(Malformed::new("a member past the directory", at))?;
        if !slice(data, header, 4, "header past the end", header)?.starts_with(&LOCAL) {
            return Err(Malformed::new("no member header", header));
        }
        entries.push(Entry {
            at,
            len,
            header,
            packed,
        });
        at += len;
    }
    Ok(entries)
}
