//! Adds and removes sections of COFF objects, with the layout of llvm-objcopy. The contents and
//! relocations of each section follow without gaps, then new tables of symbols and long names. An
//! object with too many sections for the small format becomes a big object.

use std::collections::BTreeSet;

use super::{NewSection, Strings, section_name};
use crate::bytes::{self, c_string, little_endian, overwrite, slice, u16_at};
use crate::coff::{Header, RELOCATION_SIZE, SECTION_SIZE};
use crate::compose::{Part, PartList};
use crate::error::Malformed;

/// IMAGE_SCN_MEM_READ and IMAGE_SCN_LNK_REMOVE: the linker omits the section.
const LINKER_REMOVES: u32 = 0x4000_0800;
const MORE_RELOCATIONS: u32 = 0x0100_0000;
/// The largest number of sections in a small object.
const MOST_SECTIONS: usize = 65279;
/// The class ID in a big object's header, after machine and time.
const BIG_CLASS: [u8; 16] = [
    0xc7, 0xa1, 0xba, 0xd1, 0xee, 0xba, 0xa9, 0x4b, 0xaf, 0x20, 0xfa, 0xf6, 0x6a, 0xa4, 0xdc, 0xb8,
];
const TOO_LARGE: Malformed = Malformed {
    what: "too large for a COFF object, which has at most 4 GiB",
    at: 0,
};

/// Returns the object `data` without the sections for which `remove` is true, and with `new` as its
/// last sections.
pub(super) fn rewrite(
    data: &[u8],
    remove: &dyn Fn(&[u8]) -> bool,
    new: &[NewSection<'_>],
) -> Result<Vec<Part>, Malformed> {
    let mut object = Object::parse(data)?;
    remove_sections(&mut object, remove)?;
    let names: Vec<Vec<u8>> = new.iter().map(|section| section_name(section.id)).collect();
    add(&mut object, new, &names)?;
    let mut strings = Strings::new(4);
    strings.add(
        object
            .sections
            .iter()
            .map(|section| section.name)
            .filter(|name| is_long(name)),
    );
    strings.add(
        object
            .symbols
            .iter()
            .map(|symbol| symbol.name)
            .filter(|name| is_long(name)),
    );
    lay_out(&object, &strings)
}

/// Whether a name does not fit into its field.
fn is_long(name: &[u8]) -> bool {
    name.len() > 8
}

fn add<'a>(
    object: &mut Object<'a>,
    new: &[NewSection<'_>],
    names: &'a [Vec<u8>],
) -> Result<(), Malformed> {
    for (index, (section, name)) in new.iter().zip(names).enumerate() {
        let size = u32::try_from(section.size).map_err(|_| TOO_LARGE)?;
        // Addresses have no meaning in objects. llvm-objcopy continues after the last section's
        // address.
        let address = object
            .sections
            .last()
            .map_or(0, |last| last.address.wrapping_add(last.virtual_size));
        object.sections.push(Section {
            name,
            virtual_size: size,
            address,
            raw_size: size,
            characteristics: LINKER_REMOVES,
            body: Body::New(index),
            checksum: None,
            relocations: Relocations::default(),
        });
    }
    Ok(())
}

/// The name field of a section: a short name itself, or the offset of a long one.
fn name_field(name: &[u8], offset: u64) -> Result<[u8; 8], Malformed> {
    const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let mut field = [0; 8];
    let mut put = |bytes: &[u8]| {
        field
            .iter_mut()
            .zip(bytes)
            .for_each(|(to, from)| *to = *from)
    };
    if !is_long(name) {
        put(name);
    } else if offset <= 9_999_999 {
        put(format!("/{offset}").as_bytes());
    } else if offset < 1 << 36 {
        let digits = (0..6)
            .rev()
            .filter_map(|place| DIGITS.get((offset >> (6 * place) & 63) as usize).copied());
        put(&[b'/', b'/'].into_iter().chain(digits).collect::<Vec<u8>>());
    } else {
        return Err(TOO_LARGE);
    }
    Ok(field)
}

/// Assigns an offset to every section and lists the parts to write.
fn lay_out(object: &Object<'_>, strings: &Strings<'_>) -> Result<Vec<Part>, Malformed> {
    let big = object.sections.len() > MOST_SECTIONS;
    let head_size: u64 = if big { 56 } else { 20 };
    let mut end = head_size + SECTION_SIZE * object.sections.len() as u64;
    let mut headers = Vec::new();
    for section in &object.sections {
        let count = section.relocations.count;
        let many = count >= 0xffff;
        let raw_at = if section.raw_size > 0 { end } else { 0 };
        end += u64::from(section.raw_size);
        let relocations_at = if count > 0 { end } else { 0 };
        end += RELOCATION_SIZE * (u64::from(count) + u64::from(many));
        u32::try_from(end).map_err(|_| TOO_LARGE)?;
        headers.extend(name_field(section.name, strings.offset(section.name))?);
        let characteristics = section.characteristics | if many { MORE_RELOCATIONS } else { 0 };
        let fields = [
            section.virtual_size,
            section.address,
            section.raw_size,
            raw_at as u32,
            relocations_at as u32,
            0,
        ];
        fields
            .iter()
            .for_each(|field| headers.extend(field.to_le_bytes()));
        // The largest number that fits, and no line numbers.
        headers.extend((count.min(0xffff) as u16).to_le_bytes());
        headers.extend([0, 0]);
        headers.extend(characteristics.to_le_bytes());
    }
    let table_at = u32::try_from(end).map_err(|_| TOO_LARGE)?;
    let symbols = symbol_table(object, strings, big)?;
    let mut out = PartList::default();
    out.bytes(head(object, big, table_at, symbols.count)?);
    out.bytes(headers);
    for section in &object.sections {
        write_section(object, section, &mut out)?;
    }
    let size = u32::try_from(strings.size()).map_err(|_| TOO_LARGE)?;
    out.bytes(symbols.bytes);
    out.bytes(strings.bytes(&size.to_le_bytes()));
    Ok(out.parts)
}

fn head(object: &Object<'_>, big: bool, table_at: u32, symbols: u32) -> Result<Vec<u8>, Malformed> {
    let mut head = Vec::new();
    let count = object.sections.len() as u32;
    if big {
        head.extend([0, 0, 0xff, 0xff, 2, 0]);
        head.extend(object.machine.to_le_bytes());
        head.extend(object.time.to_le_bytes());
        head.extend(BIG_CLASS);
        head.extend([0; 16]);
        head.extend(count.to_le_bytes());
        head.extend(table_at.to_le_bytes());
        head.extend(symbols.to_le_bytes());
    } else {
        head.extend(object.machine.to_le_bytes());
        head.extend((count as u16).to_le_bytes());
        head.extend(object.time.to_le_bytes());
        head.extend(table_at.to_le_bytes());
        head.extend(symbols.to_le_bytes());
        // No optional header.
        head.extend([0, 0]);
        head.extend(object.characteristics.to_le_bytes());
    }
    Ok(head)
}

fn write_section(
    object: &Object<'_>,
    section: &Section<'_>,
    out: &mut PartList,
) -> Result<(), Malformed> {
    let size = u64::from(section.raw_size);
    match &section.body {
        Body::Lent(at) => out.old(*at..*at + size),
        Body::Made(bytes) => out.bytes(bytes.clone()),
        Body::New(index) => out.contents(*index, size),
        // The section had no bytes in the file but gets some here.
        Body::None => out.pad_to(out.size + size),
    }
    let relocations = &section.relocations;
    if relocations.count >= 0xffff {
        let mut first = (relocations.count + 1).to_le_bytes().to_vec();
        first.resize(RELOCATION_SIZE as usize, 0);
        out.bytes(first);
    }
    match renumbered_relocations(object, relocations)? {
        Some(bytes) => out.bytes(bytes),
        None if relocations.count > 0 => {
            out.old(relocations.at..relocations.at + RELOCATION_SIZE * u64::from(relocations.count))
        }
        None => {}
    }
    Ok(())
}

// Reads the parts of a COFF object that rewriting needs.

/// A COFF object, small or big.
struct Object<'a> {
    pub data: &'a [u8],
    pub machine: u16,
    pub time: u32,
    pub characteristics: u16,
    pub big: bool,
    pub sections: Vec<Section<'a>>,
    pub symbols: Vec<Symbol<'a>>,
    /// The new number of each old section, or `None` for a removed one. Numbers start at 1.
    pub numbers: Vec<Option<u32>>,
    /// The new index of each old record of the symbol table, or `None` for a removed one. Only set
    /// if an index has changed.
    pub indices: Option<Vec<Option<u32>>>,
}

struct Section<'a> {
    pub name: &'a [u8],
    pub virtual_size: u32,
    pub address: u32,
    pub raw_size: u32,
    pub characteristics: u32,
    pub body: Body,
    /// The checksum of the contents, if they are new.
    pub checksum: Option<u32>,
    pub relocations: Relocations,
}

impl Section<'_> {
    /// The number of bytes from the old file, including relocations.
    fn size_in_file(&self) -> u64 {
        let raw = if matches!(self.body, Body::Lent(_)) {
            self.raw_size
        } else {
            0
        };
        u64::from(raw) + RELOCATION_SIZE * u64::from(self.relocations.count)
    }
}

/// The contents of a section.
#[derive(Clone)]
enum Body {
    /// The bytes at this offset in the file.
    Lent(u64),
    Made(Vec<u8>),
    New(usize),
    /// The section has a size but no bytes.
    None,
}

/// The relocations of a section: the offset of the first one, and their number.
#[derive(Clone, Copy, Default)]
struct Relocations {
    pub at: u64,
    pub count: u32,
}

/// A symbol with its auxiliary records.
struct Symbol<'a> {
    pub name: &'a [u8],
    pub value: u32,
    /// The number of the symbol's section, starting at 1. 0 or negative for none.
    pub section: i32,
    pub kind: u16,
    pub class: u8,
    /// The auxiliary records, each as long as a symbol.
    pub aux: &'a [u8],
}

fn number(data: &[u8], at: u64, size: u64, what: &'static str) -> Result<u32, Malformed> {
    bytes::number(data, at, size, what).map(|value| value as u32)
}

/// The table of long names, which starts with its size.
fn strings<'a>(head: &Header, data: &'a [u8]) -> Result<&'a [u8], Malformed> {
    let at = head.strings_at();
    if head.symbols_at == 0 || at >= data.len() as u64 {
        return Ok(&[]);
    }
    let size = number(data, at, 4, "string table past the end")?;
    slice(data, at, size.into(), "string table past the end", at)
}

impl<'a> Object<'a> {
    fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let head = Header::read(data)?;
        let strings = strings(&head, data)?;
        let table = slice(
            data,
            head.sections_at,
            u64::from(head.sections) * SECTION_SIZE,
            "section headers past the end",
            0,
        )?;
        let mut sections = Vec::with_capacity(head.sections as usize);
        for (index, record) in table.chunks_exact(SECTION_SIZE as usize).enumerate() {
            let at = head.sections_at + SECTION_SIZE * index as u64;
            sections.push(section(data, record, strings, at)?);
        }
        let size_in_file: u64 = sections.iter().map(Section::size_in_file).sum();
        if size_in_file > data.len() as u64 {
            // Bytes shared by several sections would be written once for each, so that a small file
            // could need a very large output.
            return Err(Malformed::new("sections overlap", head.sections_at));
        }
        let symbols = read_symbols(data, &head, strings)?;
        let numbers = (1..=head.sections).map(Some).collect();
        let Header {
            machine,
            time,
            characteristics,
            big,
            ..
        } = head;
        Ok(Object {
            data,
            machine,
            time,
            characteristics,
            big,
            sections,
            symbols,
            numbers,
            indices: None,
        })
    }

    /// The size of a symbol's record in the file.
    fn symbol_size(&self) -> usize {
        if self.big { 20 } else { 18 }
    }
}

fn section<'a>(
    data: &'a [u8],
    record: &'a [u8],
    strings: &'a [u8],
    at: u64,
) -> Result<Section<'a>, Malformed> {
    let field = |offset, len| number(record, offset, len, "section header past the end");
    let (raw_size, raw_at) = (field(16, 4)?, u64::from(field(20, 4)?));
    let characteristics = field(36, 4)?;
    let body = match (raw_at, raw_size) {
        (0, _) | (_, 0) => Body::None,
        _ => {
            slice(data, raw_at, raw_size.into(), "section past the end", at)?;
            Body::Lent(raw_at)
        }
    };
    let mut relocations = Relocations {
        at: field(24, 4)?.into(),
        count: field(32, 2)?,
    };
    if characteristics & MORE_RELOCATIONS != 0 && relocations.count == 0xffff {
        // If the count does not fit into the field, it is in the first relocation record, and
        // includes that record.
        let count = number(data, relocations.at, 4, "relocations past the end")?;
        relocations = Relocations {
            at: relocations.at + RELOCATION_SIZE,
            count: count.saturating_sub(1),
        };
    }
    slice(
        data,
        relocations.at,
        RELOCATION_SIZE * u64::from(relocations.count),
        "relocations past the end",
        at,
    )?;
    Ok(Section {
        name: stored_section_name(record, strings, at)?,
        virtual_size: field(8, 4)?,
        address: field(12, 4)?,
        raw_size,
        characteristics: characteristics & !MORE_RELOCATIONS,
        body,
        checksum: None,
        relocations,
    })
}

/// The name up to its first zero.
fn short(name: &[u8]) -> &[u8] {
    name.split(|byte| *byte == 0).next().unwrap_or_default()
}

fn long(strings: &[u8], offset: u64, at: u64) -> Result<&[u8], Malformed> {
    let fault = Malformed::new("name past the end", at);
    let tail = usize::try_from(offset)
        .ok()
        .and_then(|offset| strings.get(offset..))
        .filter(|_| offset >= 4)
        .ok_or(fault)?;
    c_string(tail).ok_or(fault)
}

/// The name of a section. The field contains it, or its offset in the string table: `/123` in
/// decimal, `//AAAAAA` in base 64.
fn stored_section_name<'a>(
    record: &'a [u8],
    strings: &'a [u8],
    at: u64,
) -> Result<&'a [u8], Malformed> {
    let name = short(record.get(..8).unwrap_or_default());
    let fault = Malformed::new("a section's name is outside the string table", at);
    let offset = match name {
        [b'/', b'/', digits @ ..] => digits.iter().try_fold(0u64, |value, digit| {
            let digit = match digit {
                b'A'..=b'Z' => digit - b'A',
                b'a'..=b'z' => digit - b'a' + 26,
                b'0'..=b'9' => digit - b'0' + 52,
                b'+' => 62,
                b'/' => 63,
                _ => return None,
            };
            Some(value * 64 + u64::from(digit))
        }),
        [b'/', digits @ ..] => std::str::from_utf8(digits)
            .ok()
            .and_then(|digits| digits.parse().ok()),
        _ => return Ok(name),
    };
    long(strings, offset.ok_or(fault)?, at)
}

fn read_symbols<'a>(
    data: &'a [u8],
    head: &Header,
    strings: &'a [u8],
) -> Result<Vec<Symbol<'a>>, Malformed> {
    let size = head.symbol_size();
    let table = slice(
        data,
        head.symbols_at,
        size * u64::from(head.symbols),
        "symbols past the end",
        0,
    )?;
    let mut found = Vec::new();
    let mut records = table.chunks_exact(size as usize);
    let mut index = 0;
    while let Some(record) = records.next() {
        let at = head.symbols_at + index * size;
        let field = |offset, len| number(record, offset, len, "symbol past the end");
        let name = match (field(0, 4)?, field(4, 4)?) {
            (0, 0) => &[][..],
            (0, offset) => long(strings, offset.into(), at)?,
            _ => short(record.get(..8).unwrap_or_default()),
        };
        let (section, rest) = if head.big {
            (field(12, 4)? as i32, 16)
        } else {
            (small_section(field(12, 2)?), 14)
        };
        let (kind, class, count) = (
            field(rest, 2)? as u16,
            field(rest + 2, 1)? as u8,
            u64::from(field(rest + 3, 1)?),
        );
        if section > 0 && section as u32 > head.sections {
            return Err(Malformed::new("a symbol names a missing section", at));
        }
        let aux = slice(
            table,
            (index + 1) * size,
            count * size,
            "symbols past the end",
            at,
        )?;
        found.push(Symbol {
            name,
            value: field(8, 4)?,
            section,
            kind,
            class,
            aux,
        });
        index += 1 + count;
        if count > 0 {
            records.nth(count as usize - 1);
        }
    }
    Ok(found)
}

/// The section number in a small object. Numbers above the largest section number are negative.
fn small_section(number: u32) -> i32 {
    if number as usize <= MOST_SECTIONS {
        number as i32
    } else {
        i32::from(number as u16 as i16)
    }
}

// The symbols of a rewritten object: removes those of removed sections, and updates symbol indices
// and section numbers.

/// The size of the contents of an auxiliary record, also in big objects.
const AUX_SIZE: usize = 18;
/// Storage classes.
const STATIC: u8 = 3;
const FILE: u8 = 103;
const WEAK_EXTERNAL: u8 = 105;
const EXTERNAL: u8 = 2;
/// The COMDAT selection of a section that is linked only if its associated section is.
const ASSOCIATIVE: u8 = 5;
/// Sections whose contents are lists of symbol indices.
const INDEX_SECTIONS: [&[u8]; 4] = [b".gljmp$y", b".giats$y", b".gfids$y", b".gehcont$y"];

/// The new symbol table.
struct SymbolTable {
    bytes: Vec<u8>,
    /// The number of records.
    count: u32,
}

impl Symbol<'_> {
    fn aux_count(&self, size: usize) -> usize {
        self.aux.len() / size
    }

    /// For a section symbol: the number of the associated section, and the COMDAT selection.
    fn section_definition(&self, big: bool) -> Option<(u32, u8)> {
        // Section symbols are static. Other symbols with such a record are functions.
        let defines = self.class == STATIC && !self.aux.is_empty() && self.section > 0;
        let half = |at: usize| u32::from(u16_at(self.aux, at));
        let high = if big { half(16) } else { 0 };
        let selection = *self.aux.get(14).filter(|_| defines)?;
        Some((high << 16 | half(12), selection))
    }

    /// Whether the auxiliary record has the index of a fallback symbol for an undefined one.
    fn is_weak(&self) -> bool {
        self.class == WEAK_EXTERNAL
            || self.class == EXTERNAL && self.section == 0 && self.value == 0
    }
}

/// Removes the sections for which `remove` is true, their associated sections, and the symbols of
/// both.
fn remove_sections(
    object: &mut Object<'_>,
    remove: &dyn Fn(&[u8]) -> bool,
) -> Result<(), Malformed> {
    let big = object.big;
    let mut removed: BTreeSet<u32> = BTreeSet::new();
    let mut next: BTreeSet<u32> = (1..)
        .zip(&object.sections)
        .filter(|(_, section)| remove(section.name))
        .map(|(number, _)| number)
        .collect();
    if next.is_empty() {
        return Ok(());
    }
    while !next.is_empty() {
        removed.append(&mut next);
        for symbol in &object.symbols {
            if let Some((with, ASSOCIATIVE)) = symbol.section_definition(big)
                && removed.contains(&with)
                && !removed.contains(&(symbol.section as u32))
            {
                next.insert(symbol.section as u32);
            }
        }
    }
    let mut numbers = 1..;
    object
        .numbers
        .iter_mut()
        .zip(1..)
        .for_each(|(new, number)| {
            *new = if removed.contains(&number) {
                None
            } else {
                numbers.next()
            }
        });
    let mut number = 0;
    object.sections.retain(|_| {
        number += 1;
        !removed.contains(&number)
    });
    let size = object.symbol_size();
    let mut indices = Vec::new();
    let mut index = 0;
    for symbol in &object.symbols {
        let records = 1 + symbol.aux_count(size) as u32;
        let stays = symbol.section <= 0 || !removed.contains(&(symbol.section as u32));
        for record in 0..records {
            indices.push(stays.then_some(index + record));
        }
        index += if stays { records } else { 0 };
    }
    object
        .symbols
        .retain(|symbol| symbol.section <= 0 || !removed.contains(&(symbol.section as u32)));
    if indices.contains(&None) {
        renumber_lists(object, &indices)?;
        object.indices = Some(indices);
    }
    Ok(())
}

/// Updates the indices in sections that list symbols.
fn renumber_lists(object: &mut Object<'_>, indices: &[Option<u32>]) -> Result<(), Malformed> {
    for section in object
        .sections
        .iter_mut()
        .filter(|section| INDEX_SECTIONS.contains(&section.name))
    {
        let Body::Lent(at) = section.body else {
            continue;
        };
        let mut bytes = slice(
            object.data,
            at,
            section.raw_size.into(),
            "section past the end",
            at,
        )?
        .to_vec();
        for (place, field) in bytes.chunks_exact_mut(4).enumerate() {
            put_index(indices, field, at + 4 * place as u64)?;
        }
        section.checksum = Some(checksum(&bytes));
        section.body = Body::Made(bytes);
    }
    Ok(())
}

/// The checksum in a section symbol: a CRC-32 without the inversions at its start and end.
fn checksum(bytes: &[u8]) -> u32 {
    const POLYNOMIAL: u32 = 0xedb8_8320;
    let bit = |sum: u32| {
        if sum & 1 == 0 {
            sum >> 1
        } else {
            sum >> 1 ^ POLYNOMIAL
        }
    };
    bytes.iter().fold(0, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte), |sum, _| bit(sum))
    })
}

/// Replaces an index into the symbol table by the new one.
fn put_index(indices: &[Option<u32>], field: &mut [u8], at: u64) -> Result<(), Malformed> {
    let new = indices
        .get(little_endian(field) as usize)
        .ok_or(Malformed::new("an index past the symbols", at))?;
    let new = new.ok_or(Malformed::new(
        "a symbol of a removed section is still used",
        at,
    ))?;
    field
        .iter_mut()
        .zip(new.to_le_bytes())
        .for_each(|(to, from)| *to = from);
    Ok(())
}

/// The relocations of a section with new symbol indices, or `None` if no index has changed.
fn renumbered_relocations(
    object: &Object<'_>,
    relocations: &Relocations,
) -> Result<Option<Vec<u8>>, Malformed> {
    let Some(indices) = object.indices.as_ref().filter(|_| relocations.count > 0) else {
        return Ok(None);
    };
    let size = RELOCATION_SIZE * u64::from(relocations.count);
    let mut bytes = slice(
        object.data,
        relocations.at,
        size,
        "relocations past the end",
        relocations.at,
    )?
    .to_vec();
    for (index, record) in bytes.chunks_exact_mut(RELOCATION_SIZE as usize).enumerate() {
        let at = relocations.at + RELOCATION_SIZE * index as u64;
        let symbol = record
            .get_mut(4..8)
            .ok_or(Malformed::new("relocations past the end", at))?;
        put_index(indices, symbol, at)?;
    }
    Ok(Some(bytes))
}

/// The symbol table of the new object. `big`: whether the new object is a big object; the old one
/// may be of either format.
fn symbol_table(
    object: &Object<'_>,
    strings: &Strings<'_>,
    big: bool,
) -> Result<SymbolTable, Malformed> {
    let old_size = object.symbol_size();
    let size = if big { 20 } else { 18 };
    let mut bytes = Vec::new();
    for symbol in &object.symbols {
        let section = match u32::try_from(symbol.section).unwrap_or(0) {
            0 => symbol.section as u32,
            number => new_section(object, number)?,
        };
        if is_long(symbol.name) {
            let offset = u32::try_from(strings.offset(symbol.name)).map_err(|_| TOO_LARGE)?;
            bytes.extend([0; 4]);
            bytes.extend(offset.to_le_bytes());
        } else {
            bytes.extend(symbol.name);
            bytes.resize(bytes.len() + 8 - symbol.name.len(), 0);
        }
        bytes.extend(symbol.value.to_le_bytes());
        bytes.extend(section.to_le_bytes().iter().take(if big { 4 } else { 2 }));
        bytes.extend(symbol.kind.to_le_bytes());
        bytes.push(symbol.class);
        let aux = aux(object, symbol, section, old_size, size)?;
        bytes.push((aux.len() / size) as u8);
        bytes.extend(aux);
    }
    let count = u32::try_from(bytes.len() / size).map_err(|_| TOO_LARGE)?;
    Ok(SymbolTable { bytes, count })
}

fn new_section(object: &Object<'_>, number: u32) -> Result<u32, Malformed> {
    let new = object.numbers.get(number as usize - 1).copied().flatten();
    new.ok_or(Malformed::new("a removed section is still used", 0))
}

/// The auxiliary records of a symbol, padded to `size` bytes each.
fn aux(
    object: &Object<'_>,
    symbol: &Symbol<'_>,
    section: u32,
    old_size: usize,
    size: usize,
) -> Result<Vec<u8>, Malformed> {
    if symbol.class == FILE {
        // The records together hold one long text.
        let text = symbol
            .aux
            .iter()
            .rposition(|byte| *byte != 0)
            .map_or(0, |last| last + 1);
        let mut records = symbol.aux.get(..text).unwrap_or_default().to_vec();
        let len = if text == 0 {
            symbol.aux_count(old_size) * size
        } else {
            text.next_multiple_of(size)
        };
        records.resize(len, 0);
        return Ok(records);
    }
    let mut records: Vec<u8> = Vec::new();
    for record in symbol.aux.chunks_exact(old_size) {
        let start = records.len();
        records.extend_from_slice(record.get(..AUX_SIZE).unwrap_or_default());
        records.resize(start + size, 0);
    }
    let one = symbol.aux_count(old_size) == 1;
    if one && symbol.class == STATIC && symbol.section > 0 {
        // The section that a COMDAT is associated with, or the symbol's own.
        let with = match symbol.section_definition(object.big) {
            Some((with, ASSOCIATIVE)) if with > 0 => new_section(object, with)?,
            _ => section,
        };
        let [low, high] = [with as u16, (with >> 16) as u16];
        let changed = section
            .checked_sub(1)
            .and_then(|index| object.sections.get(index as usize)?.checksum);
        let changed = changed.filter(|_| symbol.value == 0).map(u32::to_le_bytes);
        for (at, bytes) in [
            (12, &low.to_le_bytes()[..]),
            (16, &high.to_le_bytes()),
            (8, changed.as_ref().map_or(&[], |sum| sum)),
        ] {
            overwrite(&mut records, at, bytes);
        }
    }
    if let Some(indices) = object.indices.as_ref().filter(|_| one && symbol.is_weak()) {
        let field = records
            .get_mut(..4)
            .ok_or(Malformed::new("a symbol's record is cut short", 0))?;
        put_index(indices, field, 0)?;
    }
    Ok(records)
}
