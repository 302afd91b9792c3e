//! What a dynamic loader or linker reads of an ELF program or shared library: the libraries that it needs, where these are looked
//! for, its own name, its loader, and the symbols that it exports. Of either class and byte order; found by the program headers, as
//! loaders do, or by the section headers in a file that has no segments.
//!
//! ```
//! let program = std::fs::read("/proc/self/exe")?;
//! let dynamic = offld::formats::dynamic::read(&program)?;
//! assert!(dynamic.needed.iter().any(|name| name.starts_with(b"libc.")));
//! assert!(dynamic.interpreter.is_some_and(|loader| loader.starts_with(b"/")));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use object::elf::{self, FileHeader32, FileHeader64, Machine};
use object::read::elf::{Dyn, FileHeader, GnuHashTable, HashTable, ProgramHeader, Sym};
use object::{Endianness, Pod};

use super::magic;
use crate::error::Malformed;

#[cfg(test)]
mod tests;

/// The entries of a program or shared library for its loader. Names and paths are as stored, without the zero at their end.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct Dynamic<'data> {
    /// The processor it is for.
    pub machine: Machine,
    /// Whether it is a 64-bit file.
    pub is_64: bool,
    /// `DT_NEEDED`: the libraries that it needs, in order.
    pub needed: Vec<&'data [u8]>,
    /// `DT_RPATH`: colon-separated folders, which also count for what the needed libraries need.
    pub rpath: Vec<&'data [u8]>,
    /// `DT_RUNPATH`: colon-separated folders for what this file itself needs.
    pub runpath: Vec<&'data [u8]>,
    /// `DT_SONAME`: the name by which others need it.
    pub soname: Option<&'data [u8]>,
    /// `PT_INTERP`: the loader that the kernel starts for it. A static program and most libraries have none.
    pub interpreter: Option<&'data [u8]>,
}

/// Reads the ELF file `data`. Without a dynamic section (an object, a static program) the result is empty.
pub fn read(data: &[u8]) -> Result<Dynamic<'_>, Malformed> {
    match class(data)? {
        Class::Is32 => Elf::<FileHeader32<Endianness>>::parse(data)?.dynamic(false),
        Class::Is64 => Elf::<FileHeader64<Endianness>>::parse(data)?.dynamic(true),
    }
}

/// `PT_INTERP` of the ELF file `data`: the loader that the kernel starts for it.
pub fn interpreter(data: &[u8]) -> Result<Option<&[u8]>, Malformed> {
    match class(data)? {
        Class::Is32 => Elf::<FileHeader32<Endianness>>::parse(data)?.interpreter(),
        Class::Is64 => Elf::<FileHeader64<Endianness>>::parse(data)?.interpreter(),
    }
}

/// Whether the ELF file `data` defines the dynamic symbol `name` for other files.
pub fn exports(data: &[u8], name: &[u8]) -> Result<bool, Malformed> {
    match class(data)? {
        Class::Is32 => Elf::<FileHeader32<Endianness>>::parse(data)?.exports(name),
        Class::Is64 => Elf::<FileHeader64<Endianness>>::parse(data)?.exports(name),
    }
}

enum Class {
    Is32,
    Is64,
}

fn class(data: &[u8]) -> Result<Class, Malformed> {
    if !data.starts_with(&magic::ELF) {
        return Err(Malformed::new("not an ELF file", 0));
    }
    match data.get(4) {
        Some(1) => Ok(Class::Is32),
        Some(2) => Ok(Class::Is64),
        _ => Err(Malformed::new("neither a 32-bit nor a 64-bit ELF file", 4)),
    }
}

struct Elf<'data, H: FileHeader> {
    data: &'data [u8],
    header: &'data H,
    endian: Endianness,
    segments: &'data [H::ProgramHeader],
}

/// The dynamic section, and the table that its strings are in.
struct Table<'data, H: FileHeader> {
    entries: &'data [H::Dyn],
    strings: &'data [u8],
}

impl<'data, H: FileHeader<Endian = Endianness>> Elf<'data, H> {
    fn parse(data: &'data [u8]) -> Result<Self, Malformed> {
        let header = H::parse(data).map_err(|_| Malformed::new("ELF header damaged or past the end", 0))?;
        let endian = header.endian().map_err(|_| Malformed::new("unknown byte order", 5))?;
        let segments = header
            .program_headers(endian, data)
            .map_err(|_| Malformed::new("program headers past the end", header.e_phoff(endian).into()))?;
        Ok(Elf { data, header, endian, segments })
    }

    fn dynamic(&self, is_64: bool) -> Result<Dynamic<'data>, Malformed> {
        let machine = self.header.e_machine(self.endian);
        let mut found = Dynamic { machine, is_64, interpreter: self.interpreter()?, ..Dynamic::default() };
        let Some(table) = self.table()? else { return Ok(found) };
        for entry in self.entries(&table) {
            let tag = entry.tag(self.endian);
            if ![elf::DT_NEEDED, elf::DT_RPATH, elf::DT_RUNPATH, elf::DT_SONAME].contains(&tag) {
                continue;
            }
            let at = entry.val(self.endian);
            let text = string(table.strings, at).ok_or_else(|| {
                let place = (std::ptr::from_ref(entry).addr() - self.data.as_ptr().addr()) as u64;
                Malformed::new("a dynamic entry's string is past the end of the string table", place)
            })?;
            match tag {
                elf::DT_NEEDED => found.needed.push(text),
                elf::DT_RPATH => found.rpath.push(text),
                elf::DT_RUNPATH => found.runpath.push(text),
                _ => found.soname = Some(text),
            }
        }
        Ok(found)
    }

    fn interpreter(&self) -> Result<Option<&'data [u8]>, Malformed> {
        let names = self.segments.iter().filter_map(|segment| {
            let fault = Malformed::new("the loader's name does not end in the file", segment.p_offset(self.endian).into());
            segment.interpreter(self.endian, self.data).map_err(|_| fault).transpose()
        });
        names.into_iter().next().transpose()
    }

    /// The entries up to the one that ends them.
    fn entries(&self, table: &Table<'data, H>) -> impl Iterator<Item = &'data H::Dyn> {
        let endian = self.endian;
        table.entries.iter().take_while(move |entry| entry.tag(endian) != elf::DT_NULL)
    }

    fn table(&self) -> Result<Option<Table<'data, H>>, Malformed> {
        for segment in self.segments {
            let fault = || Malformed::new("dynamic segment past the end", segment.p_offset(self.endian).into());
            let Some(entries) = segment.dynamic(self.endian, self.data).map_err(|_| fault())? else { continue };
            let mut table = Table { entries, strings: &[] };
            if let (Some(address), Some(size)) = (self.value(&table, elf::DT_STRTAB), self.value(&table, elf::DT_STRSZ)) {
                let size = usize::try_from(size).unwrap_or(usize::MAX);
                let strings = self.loaded_at(address).and_then(|rest| rest.get(..size));
                table.strings = strings.ok_or_else(|| Malformed::new("dynamic strings in no segment", fault().at))?;
            }
            return Ok(Some(table));
        }
        let fault = |what| Malformed::new(what, self.header.e_shoff(self.endian).into());
        let sections =
            self.header.sections(self.endian, self.data).map_err(|_| fault("section headers damaged or past the end"))?;
        let dynamic = sections.dynamic(self.endian, self.data).map_err(|_| fault("dynamic section past the end"))?;
        let Some((entries, strings)) = dynamic else { return Ok(None) };
        let strings = sections.section(strings).and_then(|section| {
            use object::read::elf::SectionHeader;
            section.data(self.endian, self.data)
        });
        Ok(Some(Table { entries, strings: strings.map_err(|_| fault("dynamic strings past the end"))? }))
    }

    fn value(&self, table: &Table<'data, H>, tag: elf::DynamicTag) -> Option<u64> {
        self.entries(table).find(|entry| entry.tag(self.endian) == tag).map(|entry| entry.val(self.endian))
    }

    /// The bytes that are loaded at `address`, to the end of their segment's part of the file.
    fn loaded_at(&self, address: u64) -> Option<&'data [u8]> {
        self.segments.iter().filter(|segment| segment.p_type(self.endian) == elf::PT_LOAD).find_map(|segment| {
            let within = address.checked_sub(segment.p_vaddr(self.endian).into())?;
            let bytes = segment.data(self.endian, self.data).ok()?;
            bytes.get(usize::try_from(within).ok()?..).filter(|rest| !rest.is_empty())
        })
    }

    fn exports(&self, name: &[u8]) -> Result<bool, Malformed> {
        let Some(table) = self.table()? else { return Ok(false) };
        let symbols = match self.value(&table, elf::DT_SYMTAB).filter(|_| !self.segments.is_empty()) {
            Some(address) => self.symbols(&table, address)?,
            None => self.symbols_of_section()?,
        };
        Ok(symbols.iter().any(|symbol| {
            let is_exported = symbol.st_shndx(self.endian) != elf::SHN_UNDEF && symbol.st_bind() != elf::STB_LOCAL;
            is_exported && string(table.strings, symbol.st_name(self.endian).into()) == Some(name)
        }))
    }

    /// The dynamic symbols at `address`. Their number is nowhere but in the hash tables by which loaders look them up.
    fn symbols(&self, table: &Table<'data, H>, address: u64) -> Result<&'data [H::Sym], Malformed> {
        let hash = |tag| self.value(table, tag).and_then(|address| self.loaded_at(address));
        let of_gnu = hash(elf::DT_GNU_HASH)
            .and_then(|bytes| GnuHashTable::<H>::parse(self.endian, bytes).ok()?.symbol_table_length(self.endian));
        let of_sysv = || Some(HashTable::<H>::parse(self.endian, hash(elf::DT_HASH)?).ok()?.symbol_table_length());
        let Some(count) = of_gnu.or_else(of_sysv) else { return self.symbols_of_section() };
        let bytes = self.loaded_at(address).unwrap_or_default();
        slice_of(bytes, count)
            .ok_or_else(|| Malformed::new("dynamic symbols in no segment", self.header.e_phoff(self.endian).into()))
    }

    fn symbols_of_section(&self) -> Result<&'data [H::Sym], Malformed> {
        let fault = |_| Malformed::new("dynamic symbols past the end", self.header.e_shoff(self.endian).into());
        let sections = self.header.sections(self.endian, self.data).map_err(fault)?;
        let table = sections.symbols(self.endian, self.data, elf::SHT_DYNSYM).map_err(fault)?;
        Ok(table.symbols())
    }
}

fn slice_of<T: Pod>(bytes: &[u8], count: u32) -> Option<&[T]> {
    Some(object::pod::slice_from_bytes(bytes, usize::try_from(count).ok()?).ok()?.0)
}

/// The string at `at` of a string table.
fn string(strings: &[u8], at: u64) -> Option<&[u8]> {
    let rest = strings.get(usize::try_from(at).ok()?..)?;
    rest.get(..memchr::memchr(0, rest)?)
}
