//! Creates a small stand-in for a shared library with only the sections that a linker reads: the
//! dynamic section, and the dynamic symbols with their versions and names. Other sections have
//! headers but no bytes, so that every symbol keeps its section. Programs can be linked against the
//! result but cannot run with it.

use object::elf::{self, FileHeader64};
use object::pod::bytes_of;
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, U16, U64};

/// Returns the stand-in for the library `data`. `None` if it is not a 64-bit ELF shared object, or
/// is damaged.
pub fn interface(data: &[u8]) -> Option<Vec<u8>> {
    let header = FileHeader64::<Endianness>::parse(data).ok()?;
    let endian = header.endian().ok()?;
    if header.e_type(endian) != elf::ET_DYN {
        return None;
    }
    let sections = header.section_headers(endian, data).ok()?;
    let names_at = header.section_strings_index(endian, data).ok()?;
    if names_at.0 >= sections.len() {
        return None;
    }
    let mut written = vec![0; size_of_val(header)];
    let mut headers = Vec::with_capacity(size_of_val(sections));
    for (index, section) in sections.iter().enumerate() {
        let mut section = *section;
        let offset = written.len() as u64;
        if index == names_at.0 || is_interface(&section, endian) {
            written.extend_from_slice(section.data(endian, data).ok()?);
            // Pad to the alignment of the next section.
            written.resize(written.len().next_multiple_of(16), 0);
            // In real libraries, no sections share bytes. A small file with shared bytes could need
            // terabytes of output.
            if written.len() > data.len() + 16 * sections.len() {
                return None;
            }
        } else if index != 0 {
            section.sh_type.set(endian, elf::SHT_NOBITS);
        }
        section.sh_offset = U64::new(endian, offset);
        headers.extend_from_slice(bytes_of(&section));
    }
    let mut header = *header;
    header.e_shoff = U64::new(endian, written.len() as u64);
    header.e_phoff = U64::new(endian, 0);
    header.e_phnum = U16::new(endian, 0);
    written
        .get_mut(..size_of_val(&header))?
        .copy_from_slice(bytes_of(&header));
    written.append(&mut headers);
    Some(written)
}

fn is_interface(section: &elf::SectionHeader64<Endianness>, endian: Endianness) -> bool {
    let kind = section.sh_type(endian);
    let dynamic = [
        elf::SHT_DYNAMIC,
        elf::SHT_DYNSYM,
        elf::SHT_GNU_VERDEF,
        elf::SHT_GNU_VERNEED,
        elf::SHT_GNU_VERSYM,
    ]
    .contains(&kind);
    dynamic || (kind == elf::SHT_STRTAB && section.sh_flags(endian).contains(elf::SHF_ALLOC))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The C library of this test program, as an example of a real library.
    fn library() -> Vec<u8> {
        let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
        let path = maps.lines().find_map(|line| {
            line.find('/')
                .map(|at| &line[at..])
                .filter(|path| path.contains("libc.so"))
        });
        std::fs::read(path.unwrap()).unwrap()
    }

    #[test]
    fn symbols_versions_and_needs_stay_and_code_goes() {
        let whole = library();
        let interface = interface(&whole).unwrap();
        assert!(interface.len() < whole.len() / 4);
        let sections = |data: &[u8]| -> Vec<(u32, u64, Vec<u8>)> {
            let header = FileHeader64::<Endianness>::parse(data).unwrap();
            let endian = header.endian().unwrap();
            let all = header.section_headers(endian, data).unwrap().iter();
            let kept = all.filter(|section| is_interface(section, endian));
            kept.map(|section| {
                (
                    section.sh_name.get(endian),
                    section.sh_addr.get(endian),
                    section.data(endian, data).unwrap().to_vec(),
                )
            })
            .collect()
        };
        assert!(!sections(&whole).is_empty());
        assert_eq!(sections(&whole), sections(&interface));
    }

    #[test]
    fn bytes_in_many_sections_are_not_copied_for_each() {
        let mut data = library();
        let header = *FileHeader64::<Endianness>::parse(&data[..]).unwrap();
        let endian = header.endian().unwrap();
        let (start, count) = (
            header.e_shoff(endian) as usize,
            header.e_shnum(endian) as usize,
        );
        let dynsym = (0..count)
            .map(|index| start + 64 * index)
            .find(|at| data[at + 4..at + 8] == [11, 0, 0, 0])
            .unwrap();
        let size = data.len() as u64;
        data[dynsym + 24..dynsym + 32].fill(0);
        data[dynsym + 32..dynsym + 40].copy_from_slice(&size.to_le_bytes());
        assert_eq!(interface(&data), None);
    }

    #[test]
    fn nothing_else_has_one() {
        assert_eq!(interface(b""), None);
        let whole = library();
        let mut without_sections = whole[..64].to_vec();
        without_sections[40..48].fill(0);
        without_sections[60..62].fill(0);
        assert_eq!(interface(&without_sections), None);
        for end in [10, 63, 64, 1000, whole.len() / 2] {
            assert_eq!(interface(&whole[..end]), None, "cut at {end}");
        }
    }
}
