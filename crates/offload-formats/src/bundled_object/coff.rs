//! Adds and removes sections of COFF objects, with the layout of llvm-objcopy. The contents and
//! relocations of each section follow without gaps, then new tables of symbols and long names. An
//! object with too many sections for the small format becomes a big object.

use super::{NewSection, Strings, section_name};
use crate::bytes::{self, c_string, slice};
use crate::coff::{Header, RELOCATION_SIZE, SECTION_SIZE};
use crate::compose::{Part, PartList};
use crate::error::Malformed;

mod symbols;

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
    symbols::remove_sections(&mut object, remove)?;
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
    let symbols = symbols::table(object, strings, big)?;
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
    match symbols::relocations(object, relocations)? {
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
