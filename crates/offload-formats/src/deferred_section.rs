//! Gives a section its contents after its object was written. The object is first written with a
//! `.bss` section, which has no bytes in the file. Then the section gets contents, which follow the
//! object's own bytes in the file. Symbols and relocations stay unchanged. Because one section
//! header changes in place and nothing moves, this is not an edit of `elf::edit`.
//!
//! On ELF, the section's name starts with `.bss`, because that gives it the type without contents.
//! The final name is the rest of the same string. COFF has one `.bss` section, which is renamed.
//! (Sources: the ELF gABI, Microsoft's PE format.)
//!
//! ```
//! use object::write::Object;
//! use object::{Architecture, BinaryFormat, Endianness, SectionKind};
//! use offload_formats::deferred_section::{Wanted, make_room};
//!
//! let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
//! let section = object.add_section(Vec::new(), b".bss.images".to_vec(), SectionKind::UninitializedData);
//! object.append_section_bss(section, 4, 1);
//! let room = make_room(object.write()?, Wanted { name: ".images", prefix: ".bss", listed: false })?;
//! // The four bytes of the section follow the object in its file.
//! assert_eq!((room.at, room.size), (room.object.len() as u64, 4));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::coff;
use super::elf::image_section;
use super::elf::raw::{FileHeader, Record, SectionHeader};
use crate::bytes::{slice, u32_at};
use crate::error::Malformed;

use object::pe;
use object::{
    Architecture, BinaryFormat, File, Object, ObjectSection, ObjectSymbol, SectionKind, SymbolKind,
};

/// From this size on, a section is marked as large.
const LARGE: u64 = 1 << 30;

/// An object with space for a section's contents.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Room {
    /// The new start of the file. The section's contents follow.
    pub object: Vec<u8>,
    /// The offset of the section in the file, after padding zeros.
    pub at: u64,
    /// The size of the section.
    pub size: u64,
    /// The offsets of the variables in the section, in order.
    pub variables: Vec<u64>,
}

/// The section that gets contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Wanted<'a> {
    /// The final name.
    pub name: &'a str,
    /// The prefix of the current name on ELF, the whole current name on COFF.
    pub prefix: &'a str,
    /// Whether tools find device images in the section: on ELF, it gets the section type for them.
    pub listed: bool,
}

/// Makes space for the contents of the section `wanted` of `object`.
pub fn make_room(mut object: Vec<u8>, wanted: Wanted<'_>) -> Result<Room, Malformed> {
    let file = File::parse(&*object).map_err(|_| Malformed::new("not an object", 0))?;
    let coff = match file.format() {
        BinaryFormat::Elf => false,
        BinaryFormat::Coff => true,
        _ => return Err(Malformed::new("not an ELF or COFF object", 0)),
    };
    let full_name = [wanted.prefix, if coff { "" } else { wanted.name }].concat();
    let section = file
        .section_by_name(&full_name)
        .filter(|section| section.kind() == SectionKind::UninitializedData);
    let section = section.ok_or(Malformed::new("no section with deferred contents", 0))?;
    // Some ELF hosts mark data with untyped symbols. COFF on ARM has one mark per mebibyte.
    let is_variable = |symbol: &object::Symbol<'_, '_>| match symbol.kind() {
        SymbolKind::Data => true,
        kind => coff && kind != SymbolKind::Section,
    };
    let is_mark = |symbol: &object::Symbol<'_, '_>| {
        coff && symbol
            .name_bytes()
            .is_ok_and(|name| name.starts_with(b"$L"))
    };
    let is_own_variable = |symbol: &object::Symbol<'_, '_>| {
        symbol.section_index() == Some(section.index()) && is_variable(symbol) && !is_mark(symbol)
    };
    let mut variables: Vec<u64> = file
        .symbols()
        .filter(is_own_variable)
        .map(|symbol| symbol.address())
        .collect();
    variables.sort_unstable();
    let (size, index, align) = (section.size(), section.index().0, section.align().max(1));
    let is_64 = file.is_64();
    let large = file.architecture() == Architecture::X86_64 && size >= LARGE;
    if coff {
        rename_in_coff(&mut object, index, wanted.name)?;
    }
    let at = (object.len() as u64).checked_next_multiple_of(align);
    let limit = match (coff, is_64) {
        // Linkers read COFF offsets as signed numbers.
        (true, _) => i32::MAX as u64,
        (false, true) => i64::MAX as u64,
        (false, false) => u32::MAX.into(),
    };
    let at = at.filter(|at| at.checked_add(size).is_some_and(|end| end <= limit));
    let at = at.ok_or(Malformed::new(
        "contents too large for an object of this host",
        object.len() as u64,
    ))?;
    if coff {
        set_in_coff(&mut object, index, at)?;
    } else {
        set_in_elf(&mut object, index, wanted, large, at)?;
    }
    Ok(Room {
        object,
        at,
        size,
        variables,
    })
}

/// Sets name, type, flags and offset of the section with this index.
fn set_in_elf(
    object: &mut [u8],
    index: usize,
    wanted: Wanted<'_>,
    large: bool,
    at: u64,
) -> Result<(), Malformed> {
    let (class, head) = FileHeader::read(object)?;
    let row = head.section_header_at(class, index);
    let mut header = SectionHeader::at(class, object, row, "section header past the end")?;
    let name = header.name.checked_add(wanted.prefix.len() as u32);
    header.name = name.ok_or(Malformed::new("a section's name past the end", row))?;
    (header.kind, header.flags) = image_section(wanted.listed, large);
    header.offset = at;
    put(object, row, &header.to_bytes(class))
}

/// Renames the section with this index, counted from 1, and its symbol. The name is appended to the
/// object, whose string table is last.
fn rename_in_coff(object: &mut Vec<u8>, index: usize, name: &str) -> Result<(), Malformed> {
    let number =
        |object: &[u8], at, size| crate::bytes::number(object, at, size, "header past the end");
    let header = coff::Header::read(object)?;
    let strings_at = header.strings_at();
    let offset = number(object, strings_at, 4)?;
    if header.big || strings_at + offset != object.len() as u64 || offset > 9_999_999 {
        return Err(Malformed::new(
            "a string table that cannot be extended",
            strings_at,
        ));
    }
    object.extend(name.bytes().chain([0]));
    put(
        object,
        strings_at,
        &(offset as u32 + name.len() as u32 + 1).to_le_bytes(),
    )?;
    let mut text = format!("/{offset}").into_bytes();
    text.resize(8, 0);
    put(object, header.section_at(index as u64 - 1), &text)?;
    let mut at = header.symbols_at;
    while at < strings_at {
        let more = number(object, at + 17, 1)?;
        // The first symbol of a section with auxiliary records is the section symbol.
        if number(object, at + 12, 2)? == index as u64 && more > 0 {
            return put(
                object,
                at,
                &[[0; 4], (offset as u32).to_le_bytes()].concat(),
            );
        }
        at += header.symbol_size() * (1 + more);
    }
    Ok(())
}

/// Gives the section with this index, counted from 1, read-only contents.
fn set_in_coff(object: &mut [u8], index: usize, at: u64) -> Result<(), Malformed> {
    let row = coff::Header::read(object)?.section_at(index as u64 - 1);
    let flags = u32_at(
        slice(object, row + 36, 4, "section header past the end", row)?,
        0,
    );
    let other_flags = flags & !(pe::IMAGE_SCN_CNT_UNINITIALIZED_DATA.0 | pe::IMAGE_SCN_MEM_WRITE.0);
    put(object, row + 20, &(at as u32).to_le_bytes())?;
    put(
        object,
        row + 36,
        &(other_flags | pe::IMAGE_SCN_CNT_INITIALIZED_DATA.0).to_le_bytes(),
    )
}

fn put(object: &mut [u8], at: u64, bytes: &[u8]) -> Result<(), Malformed> {
    let fault = Malformed::new("section header past the end", at);
    let start = usize::try_from(at).map_err(|_| fault)?;
    let place = start
        .checked_add(bytes.len())
        .and_then(|end| object.get_mut(start..end))
        .ok_or(fault)?;
    place.copy_from_slice(bytes);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::elf::SHT_LLVM_OFFLOADING;
    use object::write::{Object as Writer, StandardSection};
    use object::{Endianness, elf};

    const WANTED: Wanted<'_> = Wanted {
        name: ".images",
        prefix: ".bss",
        listed: true,
    };

    fn object(format: BinaryFormat, architecture: Architecture, name: &str, size: u64) -> Vec<u8> {
        let mut object = Writer::new(format, architecture, Endianness::Little);
        object.section_id(StandardSection::Text);
        let section = object.add_section(
            Vec::new(),
            name.as_bytes().to_vec(),
            SectionKind::UninitializedData,
        );
        for (symbol, value) in [(b"one", 0), (b"two", 16)] {
            object.add_symbol(object::write::Symbol {
                name: symbol.to_vec(),
                value,
                size: 3,
                kind: SymbolKind::Data,
                scope: object::SymbolScope::Compilation,
                weak: false,
                section: object::write::SymbolSection::Section(section),
                flags: object::SymbolFlags::None,
            });
        }
        object.append_section_bss(section, size, 16);
        object.write().unwrap()
    }

    #[test]
    fn the_section_gets_its_name_and_its_contents() {
        for (format, architecture, name) in [
            (BinaryFormat::Elf, Architecture::X86_64, ".bss.images"),
            (BinaryFormat::Elf, Architecture::I386, ".bss.images"),
            (BinaryFormat::Coff, Architecture::X86_64, ".bss"),
        ] {
            let room = make_room(object(format, architecture, name, 19), WANTED).unwrap();
            assert_eq!((room.size, &room.variables[..]), (19, &[0, 16][..]));
            let mut whole = room.object;
            whole.resize(room.at as usize, 0);
            whole.extend(b"ONE-------------TWO");
            let file = File::parse(&*whole).unwrap();
            let section = file.section_by_name(".images").unwrap();
            assert_eq!(
                section.data().unwrap(),
                b"ONE-------------TWO",
                "{format:?}"
            );
            assert!(file.section_by_name(".bss.images").is_none());
            match section.flags() {
                object::SectionFlags::Elf { sh_flags, sh_type } => {
                    assert_eq!((sh_flags, sh_type), (elf::SHF_ALLOC, SHT_LLVM_OFFLOADING))
                }
                object::SectionFlags::Coff { characteristics } => {
                    assert!(characteristics.contains(pe::IMAGE_SCN_CNT_INITIALIZED_DATA));
                    assert!(!characteristics.contains(pe::IMAGE_SCN_MEM_WRITE));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[test]
    fn f33_a_gigabyte_is_large_on_x86_64() {
        let room = make_room(
            object(
                BinaryFormat::Elf,
                Architecture::X86_64,
                ".bss.images",
                1 << 30,
            ),
            WANTED,
        )
        .unwrap();
        let file = File::parse(&*room.object);
        // The contents are still missing, but the header is there.
        let section = file.as_ref().unwrap().section_by_name(".images").unwrap();
        assert!(
            matches!(section.flags(), object::SectionFlags::Elf { sh_flags, .. } if sh_flags.0 == 0x1000_0002)
        );
    }

    #[test]
    fn invalid_objects_are_errors() {
        let fault = |object: Vec<u8>| make_room(object, WANTED).unwrap_err().what;
        assert_eq!(fault(b"text".to_vec()), "not an object");
        assert_eq!(
            fault(object(
                BinaryFormat::Elf,
                Architecture::X86_64,
                ".bss.other",
                1
            )),
            "no section with deferred contents"
        );
        let too_much = "contents too large for an object of this host";
        assert_eq!(
            fault(object(
                BinaryFormat::Elf,
                Architecture::I386,
                ".bss.images",
                u32::MAX.into()
            )),
            too_much
        );
        assert_eq!(
            fault(object(
                BinaryFormat::Coff,
                Architecture::X86_64,
                ".bss",
                1 << 31
            )),
            too_much
        );
    }
}
