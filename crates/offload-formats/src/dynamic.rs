//! Dynamic linking data of ELF programs and shared libraries: needed libraries, search paths,
//! soname, loader and exported symbols, for both classes and byte orders.
//!
//! Like loaders, the reader uses the program headers. It uses the section headers only if there is
//! no dynamic segment, or no hash table to count the symbols. The crate goblin parses the requested
//! tables. The crate object parses the hash tables, for which goblin has no reader without
//! `unsafe`.
//!
//! ```
//! let program = std::fs::read("/proc/self/exe")?;
//! let dynamic = offload_formats::dynamic::read(&program)?;
//! assert!(dynamic.needed.iter().any(|name| name.starts_with(b"libc.")));
//! assert!(dynamic.interpreter.is_some_and(|loader| loader.starts_with(b"/")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use goblin::container::Ctx;
use goblin::elf::dynamic::{self, Dyn};
use goblin::elf::program_header::{PT_DYNAMIC, PT_INTERP, PT_LOAD, ProgramHeader};
use goblin::elf::section_header::{self, SHT_DYNAMIC, SHT_DYNSYM, SectionHeader};
use goblin::elf::sym::{STB_LOCAL, Symtab};
use goblin::elf::{Elf as Goblin, Header};
use object::Endianness;
use object::elf::{FileHeader32, FileHeader64, Machine};
use object::read::elf::{FileHeader, GnuHashTable, HashTable};

use super::magic;
use crate::bytes::c_string;
use crate::error::Malformed;

#[cfg(test)]
mod tests;

/// The dynamic linking data of a program or shared library. Names and paths are as stored, without
/// the terminating zero.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Dynamic<'data> {
    /// The architecture.
    pub machine: Machine,
    /// Whether the file is 64-bit.
    pub is_64: bool,
    /// `DT_NEEDED`: the needed libraries, in order.
    pub needed: Vec<&'data [u8]>,
    /// `DT_RPATH`: colon-separated directories, which also apply to the dependencies of needed
    /// libraries.
    pub rpath: Vec<&'data [u8]>,
    /// `DT_RUNPATH`: colon-separated directories for the libraries that this file itself needs.
    pub runpath: Vec<&'data [u8]>,
    /// `DT_SONAME`: the name under which other files need this one.
    pub soname: Option<&'data [u8]>,
    /// `PT_INTERP`: the loader that the kernel starts. Static programs and most libraries have
    /// none.
    pub interpreter: Option<&'data [u8]>,
}

/// Reads the ELF file `data`. Without a dynamic section (an object, a static program), the result
/// is empty.
pub fn read(data: &[u8]) -> Result<Dynamic<'_>, Malformed> {
    Elf::parse(data)?.dynamic()
}

/// Reads `PT_INTERP` of the ELF file `data`: the loader that the kernel starts.
pub fn interpreter(data: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    Elf::parse(data)?.interpreter()
}

/// Whether the ELF file `data` exports the dynamic symbol `name`.
pub fn exports(data: &[u8], name: &[u8]) -> Result<bool, Malformed> {
    Elf::parse(data)?.exports(name)
}

/// The limit on the size of a dynamic section, so that memory use does not depend on values in the
/// file.
const MAX_DYNAMIC_SIZE: u64 = 16 << 20;

struct Elf<'data> {
    data: &'data [u8],
    header: Header,
    context: Ctx,
    segments: Vec<ProgramHeader>,
}

/// The dynamic section and its string table.
struct Table<'data> {
    entries: Vec<Dyn>,
    /// The offset of the entries, for messages.
    offset: u64,
    strings: &'data [u8],
}

impl<'data> Elf<'data> {
    fn parse(data: &'data [u8]) -> Result<Self, Malformed> {
        if !data.starts_with(&magic::ELF) {
            return Err(Malformed::new("not an ELF file", 0));
        }
        if !matches!(data.get(4), Some(1 | 2)) {
            return Err(Malformed::new("neither a 32-bit nor a 64-bit ELF file", 4));
        }
        let damaged = Malformed::new("ELF header damaged or past the end", 0);
        let header = Goblin::parse_header(data).map_err(|_| damaged)?;
        let endian = header
            .endianness()
            .map_err(|_| Malformed::new("unknown byte order", 5))?;
        let context = Ctx::new(header.container().map_err(|_| damaged)?, endian);
        let mut elf = Elf {
            data,
            header,
            context,
            segments: Vec::new(),
        };
        let count = usize::from(elf.header.e_phnum);
        if elf.header.e_phoff != 0 && count > 0 {
            let fault = Malformed::new("program headers past the end", elf.header.e_phoff);
            let is_known = usize::from(elf.header.e_phentsize) == ProgramHeader::size(context);
            let offset = usize::try_from(elf.header.e_phoff)
                .ok()
                .filter(|_| is_known)
                .ok_or(fault)?;
            elf.segments = ProgramHeader::parse(data, offset, count, context).map_err(|_| fault)?;
        }
        Ok(elf)
    }

    fn dynamic(&self) -> Result<Dynamic<'data>, Malformed> {
        let machine = Machine(self.header.e_machine);
        let mut found = Dynamic {
            machine,
            is_64: self.context.is_big(),
            interpreter: self.interpreter()?,
            ..Dynamic::default()
        };
        let Some(table) = self.table()? else {
            return Ok(found);
        };
        for (entry, index) in table.entries.iter().zip(0..) {
            let place = match entry.d_tag {
                dynamic::DT_NEEDED => &mut found.needed,
                dynamic::DT_RPATH => &mut found.rpath,
                dynamic::DT_RUNPATH => &mut found.runpath,
                dynamic::DT_SONAME => &mut Vec::new(),
                _ => continue,
            };
            let text = string(table.strings, entry.d_val).ok_or_else(|| {
                let at = table.offset + index * dynamic_entry_size(self.context);
                Malformed::new(
                    "a dynamic entry's string is past the end of the string table",
                    at,
                )
            })?;
            place.push(text);
            if entry.d_tag == dynamic::DT_SONAME {
                found.soname = Some(text);
            }
        }
        Ok(found)
    }

    fn interpreter(&self) -> Result<Option<&'data [u8]>, Malformed> {
        let Some(segment) = self
            .segments
            .iter()
            .find(|segment| segment.p_type == PT_INTERP)
        else {
            return Ok(None);
        };
        let fault = Malformed::new(
            "the loader's name has no terminating zero",
            segment.p_offset,
        );
        let name =
            part(self.data, segment.p_offset, segment.p_filesz).and_then(|bytes| string(bytes, 0));
        name.map(Some).ok_or(fault)
    }

    fn table(&self) -> Result<Option<Table<'data>>, Malformed> {
        if let Some(segment) = self
            .segments
            .iter()
            .find(|segment| segment.p_type == PT_DYNAMIC)
        {
            let fault = |what| Malformed::new(what, segment.p_offset);
            let entries = self
                .entries(segment)
                .ok_or(fault("dynamic segment past the end"))?;
            let mut table = Table {
                entries,
                offset: segment.p_offset,
                strings: &[],
            };
            if let (Some(address), Some(size)) = (
                value(&table, dynamic::DT_STRTAB),
                value(&table, dynamic::DT_STRSZ),
            ) {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                let strings = self.loaded_at(address).and_then(|rest| rest.get(..size));
                table.strings = strings.ok_or(fault("dynamic strings in no segment"))?;
            }
            return Ok(Some(table));
        }
        let sections = self.sections()?;
        let Some(section) = sections
            .iter()
            .find(|section| section.sh_type == SHT_DYNAMIC)
        else {
            return Ok(None);
        };
        let fault = |what| Malformed::new(what, self.header.e_shoff);
        let entries = self
            .entries(&segment_of(section))
            .ok_or(fault("dynamic section past the end"))?;
        let strings = sections.get(section.sh_link as usize);
        let strings =
            strings.and_then(|strings| part(self.data, strings.sh_offset, strings.sh_size));
        Ok(Some(Table {
            entries,
            offset: section.sh_offset,
            strings: strings.ok_or(fault("dynamic strings past the end"))?,
        }))
    }

    /// The entries of `segment` before the terminating one, or `None` if they are outside of the
    /// file.
    fn entries(&self, segment: &ProgramHeader) -> Option<Vec<Dyn>> {
        part(self.data, segment.p_offset, segment.p_filesz)?;
        let segment = ProgramHeader {
            p_filesz: segment.p_filesz.min(MAX_DYNAMIC_SIZE),
            ..segment.clone()
        };
        let read = dynamic::Dynamic::parse(self.data, &[segment], self.context).ok()??;
        Some(
            read.dyns
                .into_iter()
                .take_while(|entry| entry.d_tag != dynamic::DT_NULL)
                .collect(),
        )
    }

    /// The bytes that are loaded at `address`, up to the end of the segment in the file.
    fn loaded_at(&self, address: u64) -> Option<&'data [u8]> {
        self.segments
            .iter()
            .filter(|segment| segment.p_type == PT_LOAD)
            .find_map(|segment| {
                let within = address.checked_sub(segment.p_vaddr)?;
                let bytes = part(self.data, segment.p_offset, segment.p_filesz)?;
                bytes
                    .get(usize::try_from(within).ok()?..)
                    .filter(|rest| !rest.is_empty())
            })
    }

    /// The section headers, for files without a dynamic segment or without a hash table.
    fn sections(&self) -> Result<Vec<SectionHeader>, Malformed> {
        let fault = Malformed::new(
            "section headers damaged or past the end",
            self.header.e_shoff,
        );
        let is_known = self.header.e_shoff == 0
            || usize::from(self.header.e_shentsize) == SectionHeader::size(self.context);
        let offset = usize::try_from(self.header.e_shoff)
            .ok()
            .filter(|_| is_known)
            .ok_or(fault)?;
        SectionHeader::parse(self.data, offset, self.header.e_shnum.into(), self.context)
            .map_err(|_| fault)
    }

    fn exports(&self, name: &[u8]) -> Result<bool, Malformed> {
        let Some(table) = self.table()? else {
            return Ok(false);
        };
        let symbols = match value(&table, dynamic::DT_SYMTAB).filter(|_| !self.segments.is_empty())
        {
            Some(address) => self.symbols(&table, address)?,
            None => self.symbols_of_section()?,
        };
        let is_exported =
            |defined: u32, bind: u8| defined != section_header::SHN_UNDEF && bind != STB_LOCAL;
        Ok(symbols.iter().flat_map(Symtab::iter).any(|symbol| {
            let section = u32::try_from(symbol.st_shndx).unwrap_or(section_header::SHN_UNDEF);
            is_exported(section, symbol.st_bind())
                && string(table.strings, symbol.st_name as u64) == Some(name)
        }))
    }

    /// The dynamic symbols at `address`. Only the hash tables contain their number.
    fn symbols(
        &self,
        table: &Table<'data>,
        address: u64,
    ) -> Result<Option<Symtab<'data>>, Malformed> {
        let hash = |tag| value(table, tag).and_then(|address| self.loaded_at(address));
        let (gnu_hash, sysv_hash) = (hash(dynamic::DT_GNU_HASH), hash(dynamic::DT_HASH));
        let count = match self.context.is_big() {
            true => count_of::<FileHeader64<Endianness>>(self.context, gnu_hash, sysv_hash),
            false => count_of::<FileHeader32<Endianness>>(self.context, gnu_hash, sysv_hash),
        };
        let Some(count) = count else {
            return self.symbols_of_section();
        };
        let fault = Malformed::new("dynamic symbols in no segment", self.header.e_phoff);
        symbols_at(
            self.loaded_at(address).unwrap_or_default(),
            count as usize,
            self.context,
        )
        .ok_or(fault)
    }

    fn symbols_of_section(&self) -> Result<Option<Symtab<'data>>, Malformed> {
        let fault = Malformed::new("dynamic symbols past the end", self.header.e_shoff);
        let sections = self.sections().map_err(|_| fault)?;
        let Some(section) = sections
            .iter()
            .find(|section| section.sh_type == SHT_DYNSYM)
        else {
            return Ok(None);
        };
        let bytes = part(self.data, section.sh_offset, section.sh_size).ok_or(fault)?;
        symbols_at(
            bytes,
            bytes.len() / goblin::elf::Sym::size(self.context.container),
            self.context,
        )
        .ok_or(fault)
    }
}

/// The `count` symbols at the start of `bytes`, or `None` if there are fewer.
fn symbols_at(bytes: &[u8], count: usize, context: Ctx) -> Option<Option<Symtab<'_>>> {
    if count == 0 {
        return Some(None);
    }
    Symtab::parse(bytes, 0, count, context).ok().map(Some)
}

/// The number of symbols that a hash table covers.
fn count_of<H: FileHeader<Endian = Endianness>>(
    context: Ctx,
    gnu_hash: Option<&[u8]>,
    sysv_hash: Option<&[u8]>,
) -> Option<u32> {
    let endian = if context.is_little_endian() {
        Endianness::Little
    } else {
        Endianness::Big
    };
    let gnu_hash = gnu_hash.and_then(|bytes| {
        GnuHashTable::<H>::parse(endian, bytes)
            .ok()?
            .symbol_table_length(endian)
    });
    gnu_hash.or_else(|| {
        Some(
            HashTable::<H>::parse(endian, sysv_hash?)
                .ok()?
                .symbol_table_length(),
        )
    })
}

/// A section as a segment with the same range.
fn segment_of(section: &SectionHeader) -> ProgramHeader {
    ProgramHeader {
        p_type: PT_DYNAMIC,
        p_offset: section.sh_offset,
        p_filesz: section.sh_size,
        ..ProgramHeader::default()
    }
}

fn value(table: &Table<'_>, tag: u64) -> Option<u64> {
    table
        .entries
        .iter()
        .find(|entry| entry.d_tag == tag)
        .map(|entry| entry.d_val)
}

fn dynamic_entry_size(context: Ctx) -> u64 {
    if context.is_big() { 16 } else { 8 }
}

/// The `size` bytes at `offset`.
fn part(data: &[u8], offset: u64, size: u64) -> Option<&[u8]> {
    let start = usize::try_from(offset).ok()?;
    data.get(start..start.checked_add(usize::try_from(size).ok()?)?)
}

/// The string at offset `at` of a string table.
fn string(strings: &[u8], at: u64) -> Option<&[u8]> {
    c_string(strings.get(usize::try_from(at).ok()?..)?)
}
