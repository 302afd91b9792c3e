//! Reads the parts of a COFF object that rewriting needs.

use crate::error::Malformed;
use crate::formats::coff::{Header, RELOCATION_SIZE, SECTION_SIZE};
use crate::formats::{self, c_string, slice};

const MORE_RELOCATIONS: u32 = 0x0100_0000;

/// A COFF object, small or big.
pub(super) struct Object<'a> {
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

pub(super) struct Section<'a> {
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
pub(super) enum Body {
    /// The bytes at this offset in the file.
    Lent(u64),
    Made(Vec<u8>),
    New(usize),
    /// The section has a size but no bytes.
    None,
}

/// The relocations of a section: the offset of the first one, and their number.
#[derive(Clone, Copy, Default)]
pub(super) struct Relocations {
    pub at: u64,
    pub count: u32,
}

/// A symbol with its auxiliary records.
pub(super) struct Symbol<'a> {
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
    formats::number(data, at, size, what).map(|value| value as u32)
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
    pub(super) fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
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
        let symbols = symbols(data, &head, strings)?;
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
    pub(super) fn symbol_size(&self) -> usize {
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
        // If the count does not fit into the field, the first relocation has it, including itself.
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
        name: section_name(record, strings, at)?,
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
fn section_name<'a>(record: &'a [u8], strings: &'a [u8], at: u64) -> Result<&'a [u8], Malformed> {
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

fn symbols<'a>(
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

/// The section number in a small object. Numbers above that of the largest section are negative.
fn small_section(number: u32) -> i32 {
    if number as usize <= super::MOST_SECTIONS {
        number as i32
    } else {
        i32::from(number as u16 as i16)
    }
}
