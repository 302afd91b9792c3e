//! The parts of a relocatable ELF object that an edit looks at, for any class and byte order. Fields are taken and set through
//! `Class`, because a rewritten object must keep its own; a field outside what it is taken from reads as zero.

use crate::error::Malformed;
use crate::formats::slice;

pub(in crate::formats) const SHT_PROGBITS: u32 = 1;
pub(in crate::formats) const SHT_SYMTAB: u32 = 2;
pub(in crate::formats) const SHT_STRTAB: u32 = 3;
pub(in crate::formats) const SHT_RELA: u32 = 4;
pub(in crate::formats) const SHT_NOBITS: u32 = 8;
pub(in crate::formats) const SHT_REL: u32 = 9;
pub(in crate::formats) const SHT_GROUP: u32 = 17;
pub(in crate::formats) const SHT_SYMTAB_SHNDX: u32 = 18;
/// Relocations packed into differences (LLVM 20 on, experimental).
pub(in crate::formats) const SHT_CREL: u32 = 0x4000_0014;
/// Symbol indices as ULEB128: those whose address matters.
pub(in crate::formats) const SHT_LLVM_ADDRSIG: u32 = 0x6fff_4c03;
pub(in crate::formats) const SHF_ALLOC: u64 = 2;
pub(in crate::formats) const SHF_INFO_LINK: u64 = 0x40;
pub(in crate::formats) const SHN_LORESERVE: u64 = 0xff00;
pub(in crate::formats) const SHN_XINDEX: u64 = 0xffff;

const ET_REL: u64 = 1;
const EM_MIPS: u64 = 8;

/// How numbers stand in a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::formats) struct Class {
    /// 64-bit.
    pub is_64: bool,
    /// Big-endian.
    pub big: bool,
}

/// Where a field stands in its record: offset and length, by class.
pub(in crate::formats) struct Field {
    narrow: (usize, usize),
    is_64: (usize, usize),
}

const fn field(narrow: (usize, usize), is_64: (usize, usize)) -> Field {
    Field { narrow, is_64 }
}

const E_TYPE: Field = field((16, 2), (16, 2));
const E_MACHINE: Field = field((18, 2), (18, 2));
pub(in crate::formats) const E_SHOFF: Field = field((32, 4), (40, 8));
pub(in crate::formats) const E_PHOFF: Field = field((28, 4), (32, 8));
pub(in crate::formats) const E_EHSIZE: Field = field((40, 2), (52, 2));
pub(in crate::formats) const E_PHENTSIZE: Field = field((42, 2), (54, 2));
pub(in crate::formats) const E_PHNUM: Field = field((44, 2), (56, 2));
const E_SHENTSIZE: Field = field((46, 2), (58, 2));
pub(in crate::formats) const E_SHNUM: Field = field((48, 2), (60, 2));
pub(in crate::formats) const E_SHSTRNDX: Field = field((50, 2), (62, 2));

pub(in crate::formats) const P_OFFSET: Field = field((4, 4), (8, 8));
pub(in crate::formats) const P_FILESZ: Field = field((16, 4), (32, 8));

const SH_NAME: Field = field((0, 4), (0, 4));
const SH_TYPE: Field = field((4, 4), (4, 4));
const SH_FLAGS: Field = field((8, 4), (8, 8));
const SH_ADDR: Field = field((12, 4), (16, 8));
const SH_OFFSET: Field = field((16, 4), (24, 8));
const SH_SIZE: Field = field((20, 4), (32, 8));
const SH_LINK: Field = field((24, 4), (40, 4));
const SH_INFO: Field = field((28, 4), (44, 4));
const SH_ADDRALIGN: Field = field((32, 4), (48, 8));
const SH_ENTSIZE: Field = field((36, 4), (56, 8));

pub(in crate::formats) const ST_NAME: Field = field((0, 4), (0, 4));
pub(in crate::formats) const ST_INFO: Field = field((12, 1), (4, 1));
pub(in crate::formats) const ST_SHNDX: Field = field((14, 2), (6, 2));

impl Class {
    /// The `len` bytes at `at` as a number.
    pub fn number(self, bytes: &[u8], at: usize, len: usize) -> u64 {
        let bytes = at.checked_add(len).and_then(|end| bytes.get(at..end)).unwrap_or_default();
        let join = |value: u64, byte: &u8| value << 8 | u64::from(*byte);
        if self.big { bytes.iter().fold(0, join) } else { bytes.iter().rev().fold(0, join) }
    }

    /// Sets the `len` bytes at `at`.
    pub fn set_number(self, bytes: &mut [u8], at: usize, len: usize, value: u64) {
        let little = value.to_le_bytes();
        for (index, byte) in bytes.iter_mut().skip(at).take(len).enumerate() {
            *byte = little[if self.big { len - 1 - index } else { index }];
        }
    }

    pub fn get(self, record: &[u8], field: &Field) -> u64 {
        let (at, len) = if self.is_64 { field.is_64 } else { field.narrow };
        self.number(record, at, len)
    }

    /// Four bytes at most: indices, offsets into names.
    pub fn get32(self, record: &[u8], field: &Field) -> u32 {
        self.get(record, field) as u32
    }

    pub fn set(self, record: &mut [u8], field: &Field, value: u64) {
        let (at, len) = if self.is_64 { field.is_64 } else { field.narrow };
        self.set_number(record, at, len, value);
    }

    pub fn word(self, value: u32) -> [u8; 4] {
        if self.big { value.to_be_bytes() } else { value.to_le_bytes() }
    }

    pub fn header_size(self) -> usize {
        if self.is_64 { 64 } else { 52 }
    }

    pub fn section_header_size(self) -> usize {
        if self.is_64 { 64 } else { 40 }
    }

    pub fn program_header_size(self) -> usize {
        if self.is_64 { 56 } else { 32 }
    }

    pub fn symbol_size(self) -> usize {
        if self.is_64 { 24 } else { 16 }
    }
}

/// A section header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(in crate::formats) struct Header {
    pub name: u32,
    pub kind: u32,
    pub flags: u64,
    pub addr: u64,
    pub offset: u64,
    pub size: u64,
    pub link: u32,
    pub info: u32,
    pub align: u64,
    pub entsize: u64,
}

impl Header {
    fn read(class: Class, record: &[u8]) -> Self {
        Header {
            name: class.get32(record, &SH_NAME),
            kind: class.get32(record, &SH_TYPE),
            flags: class.get(record, &SH_FLAGS),
            addr: class.get(record, &SH_ADDR),
            offset: class.get(record, &SH_OFFSET),
            size: class.get(record, &SH_SIZE),
            link: class.get32(record, &SH_LINK),
            info: class.get32(record, &SH_INFO),
            align: class.get(record, &SH_ADDRALIGN),
            entsize: class.get(record, &SH_ENTSIZE),
        }
    }

    pub fn append(&self, class: Class, table: &mut Vec<u8>) {
        let mut record = [0; 64];
        class.set(&mut record, &SH_NAME, self.name.into());
        class.set(&mut record, &SH_TYPE, self.kind.into());
        class.set(&mut record, &SH_FLAGS, self.flags);
        class.set(&mut record, &SH_ADDR, self.addr);
        class.set(&mut record, &SH_OFFSET, self.offset);
        class.set(&mut record, &SH_SIZE, self.size);
        class.set(&mut record, &SH_LINK, self.link.into());
        class.set(&mut record, &SH_INFO, self.info.into());
        class.set(&mut record, &SH_ADDRALIGN, self.align);
        class.set(&mut record, &SH_ENTSIZE, self.entsize);
        table.extend(&record[..class.section_header_size()]);
    }

    pub fn is_relocations(&self) -> bool {
        matches!(self.kind, SHT_REL | SHT_RELA | SHT_CREL)
    }

    /// Whether `info` is the index of a section.
    pub fn info_is_section(&self) -> bool {
        self.is_relocations() || self.flags & SHF_INFO_LINK != 0
    }
}

/// A section: its header, name and bytes.
#[derive(Debug, Clone, Copy)]
pub(in crate::formats) struct Section<'a> {
    pub header: Header,
    pub name: &'a [u8],
    /// Empty for a section without bytes in the file.
    pub body: &'a [u8],
}

/// A relocatable object. Links between its sections lead to sections that are there.
#[derive(Debug)]
pub(in crate::formats) struct Object<'a> {
    pub class: Class,
    /// MIPS64, little-endian: relocations keep the symbol's index apart from the type.
    pub split_info: bool,
    /// The ELF header's bytes.
    pub head: &'a [u8],
    /// Index 0 is the null section.
    pub sections: Vec<Section<'a>>,
    /// The section of the section names.
    pub names: usize,
    /// The symbol table.
    pub symbols: Option<usize>,
    /// How large the file is.
    pub size: u64,
}

impl<'a> Object<'a> {
    /// Reads a relocatable object.
    pub fn parse(data: &'a [u8]) -> Result<Self, Malformed> {
        let (class, head) = class_and_head(data)?;
        if class.get(head, &E_TYPE) != ET_REL {
            return Err(Malformed::new("not a relocatable object", 16));
        }
        if class.get(head, &E_PHNUM) != 0 {
            return Err(Malformed::new("a relocatable object with program headers", 0));
        }
        Object::parse_any(data)
    }

    /// Reads an object, a library or a program.
    pub fn parse_any(data: &'a [u8]) -> Result<Self, Malformed> {
        let (class, head) = class_and_head(data)?;
        let headers = headers(data, class, head)?;
        let null = headers.first().ok_or(Malformed::new("no sections", 0))?;
        if null.kind != 0 {
            return Err(Malformed::new("the first section is not the null section", class.get(head, &E_SHOFF)));
        }
        let names = match class.get(head, &E_SHSTRNDX) {
            SHN_XINDEX => null.link as usize,
            index => index as usize,
        };
        let at = class.get(head, &E_SHOFF);
        let strings = headers.get(names).filter(|header| header.kind == SHT_STRTAB);
        let strings = body(data, strings.ok_or(Malformed::new("no section names", at))?, at)?;
        let mut sections = Vec::with_capacity(headers.len());
        let mut symbols = None;
        for (index, header) in headers.iter().enumerate() {
            let at = at + (index * class.section_header_size()) as u64;
            check_links(header, headers.len(), at)?;
            if header.kind == SHT_SYMTAB && symbols.replace(index).is_some() {
                return Err(Malformed::new("more than one symbol table", at));
            }
            // The null section's size may be the number of sections, not of bytes.
            let body = if index == 0 { &[][..] } else { body(data, header, at)? };
            sections.push(Section { header: *header, name: string(strings, header.name, at)?, body });
        }
        let split_info = class.is_64 && !class.big && class.get(head, &E_MACHINE) == EM_MIPS;
        Ok(Object { class, split_info, head, sections, names, symbols, size: data.len() as u64 })
    }

    /// That no bytes are in more than one section: each would be copied and written as often as it is lent, so that a small file
    /// could ask for terabytes.
    pub fn check_overlap(&self) -> Result<(), Malformed> {
        let lent: u64 = self.sections.iter().map(|section| section.body.len() as u64).sum();
        if lent > self.size {
            return Err(Malformed::new("sections overlap", self.class.get(self.head, &E_SHOFF)));
        }
        Ok(())
    }
}

fn class_and_head(data: &[u8]) -> Result<(Class, &[u8]), Malformed> {
    let ident = slice(data, 0, 16, "not an ELF file", 0)?;
    let class = match (ident.starts_with(b"\x7fELF"), ident[4], ident[5]) {
        (true, 1 | 2, 1 | 2) => Class { is_64: ident[4] == 2, big: ident[5] == 2 },
        _ => return Err(Malformed::new("not an ELF file", 0)),
    };
    Ok((class, slice(data, 0, class.header_size() as u64, "ELF header past the end", 0)?))
}

fn headers(data: &[u8], class: Class, head: &[u8]) -> Result<Vec<Header>, Malformed> {
    let at = class.get(head, &E_SHOFF);
    let size = class.section_header_size();
    if at == 0 {
        return Err(Malformed::new("no sections", 0));
    }
    if class.get(head, &E_SHENTSIZE) != size as u64 {
        return Err(Malformed::new("section headers of an unknown size", 0));
    }
    let first = Header::read(class, slice(data, at, size as u64, "section headers past the end", at)?);
    let count = match class.get(head, &E_SHNUM) {
        0 => first.size,
        count => count,
    };
    let table = slice(data, at, count.saturating_mul(size as u64), "section headers past the end", at)?;
    Ok(table.chunks_exact(size).map(|record| Header::read(class, record)).collect())
}

/// The fields of a section that is none mean nothing.
fn check_links(header: &Header, count: usize, at: u64) -> Result<(), Malformed> {
    if header.kind == 0 {
        return Ok(());
    }
    if header.link as usize >= count {
        return Err(Malformed::new("a section's link leads past the sections", at));
    }
    if header.info_is_section() && header.info as usize >= count {
        return Err(Malformed::new("a section's info leads past the sections", at));
    }
    Ok(())
}

fn body<'a>(data: &'a [u8], header: &Header, at: u64) -> Result<&'a [u8], Malformed> {
    match header.kind {
        SHT_NOBITS | 0 => Ok(&[]),
        _ => slice(data, header.offset, header.size, "section past the end", at),
    }
}

/// The string at `offset` of a string table; `at` is where the offset was read.
pub(in crate::formats) fn string(table: &[u8], offset: u32, at: u64) -> Result<&[u8], Malformed> {
    if offset == 0 && table.is_empty() {
        return Ok(&[]);
    }
    let tail = table.get(offset as usize..).ok_or(Malformed::new("name past the end", at))?;
    let len = tail.iter().position(|byte| *byte == 0).ok_or(Malformed::new("name without a terminating zero", at))?;
    Ok(&tail[..len])
}
