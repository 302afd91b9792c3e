//! Gives an object's section contents after the object was made: the section was made without any (`.bss`), so the object is
//! small, and now becomes one whose bytes follow the object's own in the file. Symbols and relocations stay as they are.
//!
//! On ELF the section's name starts with `.bss`, which is what makes it one without contents; the rest is the name it gets: the
//! same string, entered later. (Sources: the ELF gABI, Microsoft's PE format.)

#[cfg(test)]
mod tests;

use super::slice;
use crate::error::Malformed;
use object::{
    Architecture, BinaryFormat, Endian, Endianness, File, Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind,
};
use object::{elf, pe};

/// `SHT_LLVM_OFFLOADING`.
const SHT_LLVM_OFFLOADING: u32 = 0x6fff_4c0b;
/// `SHF_X86_64_LARGE`: may be placed beyond what 32-bit displacements reach, so that the rest of the program stays within.
const SHF_X86_64_LARGE: u64 = 0x1000_0000;
/// Sections of this size are large.
const LARGE: u64 = 1 << 30;

/// An object in which a section has room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Room {
    /// The object as it starts now; what follows is the section.
    pub object: Vec<u8>,
    /// Where the section is in the file, with zeros before it.
    pub at: u64,
    /// How long it is.
    pub size: u64,
    /// Where in it its variables start, in order.
    pub variables: Vec<u64>,
}

/// Which section gets contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// Its name in the end.
    pub name: &'a str,
    /// What its name starts with until then, on ELF.
    pub prefix: &'a str,
    /// Whether device images are looked for in it: ELF has a type for that.
    pub listed: bool,
}

/// Makes room for the section `wanted` of `object`.
pub fn make_room(mut object: Vec<u8>, wanted: Wanted<'_>) -> Result<Room, Malformed> {
    let file = File::parse(&*object).map_err(|_| Malformed::new("not an object", 0))?;
    let coff = match file.format() {
        BinaryFormat::Elf => false,
        BinaryFormat::Coff => true,
        _ => return Err(Malformed::new("an object of a kind that no host has", 0)),
    };
    let full_name = [if coff { "" } else { wanted.prefix }, wanted.name].concat();
    let section = file.section_by_name(&full_name).filter(|section| section.kind() == SectionKind::UninitializedData);
    let section = section.ok_or(Malformed::new("no section that waits for contents", 0))?;
    let of_it =
        |symbol: &object::Symbol<'_, '_>| symbol.section_index() == Some(section.index()) && symbol.kind() != SymbolKind::Section;
    let mut variables: Vec<u64> = file.symbols().filter(of_it).map(|symbol| symbol.address()).collect();
    variables.sort_unstable();
    let (size, index) = (section.size(), section.index().0);
    let at = (object.len() as u64).checked_next_multiple_of(section.align().max(1));
    // Linkers take COFF's offsets for signed.
    let most = if coff {
        i32::MAX as u64
    } else if file.is_64() {
        i64::MAX as u64
    } else {
        u32::MAX.into()
    };
    let at = at.filter(|at| at.checked_add(size).is_some_and(|end| end <= most));
    let at = at.ok_or(Malformed::new("more than an object of this host can hold", object.len() as u64))?;
    if coff {
        in_coff(&mut object, index, at)?;
    } else {
        let large = file.architecture() == Architecture::X86_64 && size >= LARGE;
        let flags = u64::from(elf::SHF_ALLOC.0) | if large { SHF_X86_64_LARGE } else { 0 };
        let header = Header { is_64: file.is_64(), endian: file.endianness() };
        header.give(&mut object, index, wanted, flags, at)?;
    }
    Ok(Room { object, at, size, variables })
}

/// What the numbers in an ELF object look like.
#[derive(Clone, Copy)]
struct Header {
    is_64: bool,
    endian: Endianness,
}

impl Header {
    /// Gives the section with this index its name, type, flags and place.
    fn give(self, object: &mut [u8], index: usize, wanted: Wanted<'_>, flags: u64, at: u64) -> Result<(), Malformed> {
        let (table_at, row_size, place_at) = if self.is_64 { (0x28, 64, 24) } else { (0x20, 40, 16) };
        let row = self.word_at(object, table_at)?.saturating_add(index as u64 * row_size);
        let name = slice(object, row, 4, "section header past the end", row)?;
        let name = self.endian.read_u32(<[u8; 4]>::try_from(name).unwrap_or_default()) + wanted.prefix.len() as u32;
        let kind = if wanted.listed { SHT_LLVM_OFFLOADING } else { elf::SHT_PROGBITS.0 };
        let mut start = [self.endian.write_u32(name), self.endian.write_u32(kind)].concat();
        start.extend(self.word(flags));
        put(object, row, &start)?;
        put(object, row + place_at, &self.word(at))
    }

    fn word(self, value: u64) -> Vec<u8> {
        if self.is_64 { self.endian.write_u64(value).to_vec() } else { self.endian.write_u32(value as u32).to_vec() }
    }

    fn word_at(self, object: &[u8], at: u64) -> Result<u64, Malformed> {
        let bytes = slice(object, at, if self.is_64 { 8 } else { 4 }, "header past the end", at)?;
        Ok(match bytes.try_into() {
            Ok(bytes) => self.endian.read_u64(bytes),
            Err(_) => self.endian.read_u32(bytes.try_into().unwrap_or_default()).into(),
        })
    }
}

/// Gives the section with this index, counted from 1, contents that are only read.
fn in_coff(object: &mut [u8], index: usize, at: u64) -> Result<(), Malformed> {
    const HEADER: u64 = 20;
    const ROW: u64 = 40;
    // Objects have no optional header.
    let row = HEADER + ROW * (index as u64).saturating_sub(1);
    let flags = slice(object, row + 36, 4, "section header past the end", row)?;
    let flags = u32::from_le_bytes(flags.try_into().unwrap_or_default());
    let kept = flags & !(pe::IMAGE_SCN_CNT_UNINITIALIZED_DATA.0 | pe::IMAGE_SCN_MEM_WRITE.0);
    put(object, row + 20, &(at as u32).to_le_bytes())?;
    put(object, row + 36, &(kept | pe::IMAGE_SCN_CNT_INITIALIZED_DATA.0).to_le_bytes())
}

fn put(object: &mut [u8], at: u64, bytes: &[u8]) -> Result<(), Malformed> {
    let fault = Malformed::new("section header past the end", at);
    let start = usize::try_from(at).map_err(|_| fault)?;
    let place = start.checked_add(bytes.len()).and_then(|end| object.get_mut(start..end)).ok_or(fault)?;
    place.copy_from_slice(bytes);
    Ok(())
}
