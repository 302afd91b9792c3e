//! Producers of an image: the compilers and linkers named in bitcode (identification block), in ELF
//! files (`.comment`) and in cubins (a note of NVIDIA's tools).

use object::elf::NoteType;
use object::read::elf::{FileHeader, SectionHeader};
use object::{Endianness, FileKind, elf};

use super::elf::section;
use super::{bitcode, magic};
use crate::bytes::u32_at;
use crate::model::llvm_major;

/// The largest number of producers per image. A file has one for each compiler and linker.
const MAX_PRODUCERS: usize = 4;
const MAX_LENGTH: usize = 160;
/// The length of the part of a `.comment` section that is read.
const COMMENT: usize = 4096;
/// NVIDIA's note: section, owner and type. `cuobjdump -elf` shows its fields, which are offsets
/// into the strings after them.
const NVIDIA_SECTION: &[u8] = b".note.nv.tkinfo";
const NVIDIA_OWNER: &[u8] = b"NVIDIA Corp";
const NVIDIA_TOOL: NoteType = NoteType(2000);

/// The tools that made `image`, as they name themselves: `LLVM22.1.8`, `clang version 22.1.8`,
/// `Linker: LLD 22.1.8`. Empty if the image names none or is damaged.
pub fn producers(image: &[u8]) -> Vec<String> {
    let mut found = if magic::is_bitcode(image) {
        bitcode::producer(image).into_iter().collect()
    } else {
        nvidia_tool(image).map_or_else(|| comments(image), |tool| vec![tool])
    };
    found.truncate(MAX_PRODUCERS);
    found
        .into_iter()
        .map(|text| text.chars().take(MAX_LENGTH).collect())
        .collect()
}

/// The major LLVM version of the clang that made `image`.
pub fn llvm_release(image: &[u8]) -> Option<u32> {
    if magic::is_bitcode(image) {
        return bitcode::producer_major(image);
    }
    comments(image)
        .iter()
        .find_map(|text| llvm_major(text.split_once("clang version ")?.1))
}

/// The texts in the section `.comment` of an ELF file, without duplicates, the linker's last.
fn comments(image: &[u8]) -> Vec<String> {
    let Some(contents) = is_elf(image)
        .then(|| section(image, b".comment").ok().flatten())
        .flatten()
    else {
        return Vec::new();
    };
    let mut texts: Vec<String> = Vec::new();
    for text in contents
        .get(..COMMENT)
        .unwrap_or(contents)
        .split(|byte| *byte == 0)
        .filter(|text| !text.is_empty())
    {
        let text = String::from_utf8_lossy(text).into_owned();
        if !texts.contains(&text) {
            texts.push(text);
        }
    }
    // The order in the file depends on the linker.
    texts.sort_by_key(|text| text.starts_with("Linker: "));
    texts
}

fn is_elf(data: &[u8]) -> bool {
    matches!(FileKind::parse(data), Ok(FileKind::Elf32 | FileKind::Elf64))
}

/// The tool and version in a cubin: `ptxas: Cuda compilation tools, release 13.0, V13.0.48`.
fn nvidia_tool(image: &[u8]) -> Option<String> {
    match FileKind::parse(image).ok()? {
        FileKind::Elf64 => nvidia_tool_of::<elf::FileHeader64<Endianness>>(image),
        FileKind::Elf32 => nvidia_tool_of::<elf::FileHeader32<Endianness>>(image),
        _ => None,
    }
}

fn nvidia_tool_of<Elf: FileHeader<Endian = Endianness>>(image: &[u8]) -> Option<String> {
    let header = Elf::parse(image).ok()?;
    let endian = header.endian().ok()?;
    let (_, section) = header
        .sections(endian, image)
        .ok()?
        .section_by_name(endian, NVIDIA_SECTION)?;
    let mut notes = section.notes(endian, image).ok()??;
    while let Some(note) = notes.next().ok()? {
        if note.name() == NVIDIA_OWNER && note.n_type(endian) == NVIDIA_TOOL {
            return tool(note.desc());
        }
    }
    None
}

/// The note has a version and five offsets into the strings after it: file, tool, version, branch,
/// options.
fn tool(note: &[u8]) -> Option<String> {
    const HEADER: usize = 24;
    let (header, strings) = note.split_at_checked(HEADER)?;
    let string = |field: usize| {
        let offset = u32_at(header, 4 * field);
        let text = strings
            .get(offset as usize..)?
            .split(|byte| *byte == 0)
            .next()?;
        Some(String::from_utf8_lossy(text.get(..MAX_LENGTH).unwrap_or(text)).into_owned())
            .filter(|text| !text.is_empty())
    };
    Some(format!("{}: {}", string(2)?, string(3)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_note_of_nvidias_tools() {
        let strings =
            b"\0ptxas\0Cuda compilation tools, release 13.0, V13.0.48\0Build\0-arch sm_80\0";
        let offsets: Vec<u8> = [2u32, 0, 1, 7, 54, 60]
            .iter()
            .flat_map(|field| field.to_le_bytes())
            .collect();
        let note = [&offsets, &strings[..]].concat();
        assert_eq!(
            tool(&note).as_deref(),
            Some("ptxas: Cuda compilation tools, release 13.0, V13.0.48")
        );
        for len in 0..note.len() {
            let _ = tool(&note[..len]);
        }
        let past = [&[0xff; 24][..], &strings[..]].concat();
        assert_eq!(tool(&past), None);
    }

    #[test]
    fn other_data_names_no_producer() {
        for bytes in [&b""[..], b"\x7fELF", b"text", b"BC\xc0\xde"] {
            assert_eq!((producers(bytes), llvm_release(bytes)), (Vec::new(), None));
        }
    }
}
