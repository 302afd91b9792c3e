//! Writes the ELF file that Intel's OpenMP runtime expects around SPIR-V (docs/spec/link-driver.md
//! 6.4). It has notes with the build settings, then the SPIR-V, and no loaded data. The bytes equal
//! those of LLVM.
//!
//! ```
//! use offload_formats::gpu::Gpu;
//! use offload_formats::intel_spirv::wrap_intel_spirv;
//!
//! let file = wrap_intel_spirv(&0x0723_0203_u32.to_le_bytes());
//! assert_eq!(Gpu::of_elf(&file)?.ok_or("no GPU")?.triple, "spirv64-intel");
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

use super::gpu::EM_INTELGT;
use object::Endianness;
use object::elf;
use object::write::elf::{FileHeader, SectionHeader, Writer};

const OWNER: &[u8] = b"INTELONEOMPOFFLOAD\0";

/// Returns an ELF file with `spirv`, without compile or link options.
pub fn wrap_intel_spirv(spirv: &[u8]) -> Vec<u8> {
    let mut file = Vec::with_capacity(spirv.len() + 1024);
    // Writing only fails for string tables above 4 GiB, and the names are constants.
    let _always = write(&mut file, spirv);
    file
}

fn write(file: &mut Vec<u8>, spirv: &[u8]) -> object::write::Result<()> {
    let notes = notes();
    let mut elf = Writer::new(Endianness::Little, true, file);
    elf.reserve_file_header();
    let notes_at = elf.reserve(notes.len() as u64, 1);
    let spirv_at = elf.reserve(spirv.len() as u64, 1);
    let notes_name = elf.add_section_name(b".note.inteloneompoffload");
    let spirv_name = elf.add_section_name(b"__openmp_offload_spirv_0");
    elf.reserve_section_index();
    elf.reserve_section_index();
    elf.require_strtab();
    elf.reserve_strtab_section_index();
    elf.reserve_shstrtab_section_index();
    elf.reserve_strtab()?;
    elf.reserve_shstrtab()?;
    elf.reserve_section_headers();

    elf.write_file_header(&FileHeader {
        e_type: elf::ET_DYN,
        e_machine: EM_INTELGT,
        ..FileHeader::default()
    })?;
    elf.write(&notes);
    elf.write(spirv);
    elf.write_strtab();
    elf.write_shstrtab();
    elf.write_null_section_header();
    let sections = [
        (notes_name, elf::SHT_NOTE, notes_at, notes.len()),
        (spirv_name, elf::SHT_PROGBITS, spirv_at, spirv.len()),
    ];
    for (name, sh_type, sh_offset, size) in sections {
        let sh_name = elf.section_name_offset(Some(name));
        elf.write_section_header(&SectionHeader {
            sh_name,
            sh_type,
            sh_offset,
            sh_size: size as u64,
            ..SectionHeader::default()
        });
    }
    elf.write_strtab_section_header();
    elf.write_shstrtab_section_header();
    Ok(())
}

/// The notes: the version, then the format of image 0 (1 is SPIR-V) and its options (none), then
/// the number of images.
fn notes() -> Vec<u8> {
    let mut notes = Vec::new();
    for (kind, text) in [(1u32, &b"1.0"[..]), (3, b"0\x001\0\0"), (2, b"1")] {
        for field in [OWNER.len() as u32, text.len() as u32, kind] {
            notes.extend(field.to_le_bytes());
        }
        for bytes in [OWNER, text] {
            notes.extend(bytes);
            notes.resize(notes.len().next_multiple_of(4), 0);
        }
    }
    notes
}

#[cfg(test)]
mod tests {
    use super::wrap_intel_spirv;
    use object::{Object, ObjectSection};

    #[test]
    fn holds_the_spirv_and_the_notes() -> Result<(), Box<dyn std::error::Error>> {
        let bytes = wrap_intel_spirv(b"DEVICE-IMAGE");
        let file = object::File::parse(&bytes[..])?;
        let spirv = file
            .section_by_name("__openmp_offload_spirv_0")
            .ok_or("no SPIR-V")?;
        assert_eq!(spirv.data()?, b"DEVICE-IMAGE");
        let notes = file
            .section_by_name(".note.inteloneompoffload")
            .ok_or("no notes")?;
        assert_eq!(notes.data()?.len(), 0x70);
        assert_eq!(u16::from_le_bytes([bytes[18], bytes[19]]), 205);
        Ok(())
    }
}
