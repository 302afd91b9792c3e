//! Stable names in SPIR-V modules, and the ELF file around modules for Intel.
//!
//! Stable names go into the names of entry points, linked symbols and values, and into debug
//! strings.
//!
//! A module is a header of five words and instructions. The first word of an instruction has its
//! length in words and its opcode. Strings end with a zero and are padded to words.
//!
//! Source: SPIR-V specification 1.6, sections 2.2.1, 2.3 and 3.

use object::write::elf::{FileHeader, SectionHeader, Writer};
use object::{Endianness, elf};

use crate::error::Malformed;
use crate::gpu::EM_INTELGT;
use crate::stable_names::StableNames;

/// The first word of a module, in its byte order.
const MAGIC: u32 = 0x0723_0203;
const HEADER_WORDS: usize = 5;

const NAME: u32 = 5;
const MEMBER_NAME: u32 = 6;
const STRING: u32 = 7;
const ENTRY_POINT: u32 = 15;
const DECORATE: u32 = 71;
/// The decoration of symbols that are linked by name.
const LINKAGE: u32 = 41;

/// Returns `module` with the stable `names`; `None` if it has none of their IDs.
///
/// # Errors
/// The module is damaged, or of the other byte order.
pub fn rename(module: &[u8], names: &StableNames) -> Result<Option<Vec<u8>>, Malformed> {
    let words = words(module)?;
    let (mut new, mut is_changed) = (
        words.get(..HEADER_WORDS).unwrap_or_default().to_vec(),
        false,
    );
    each_instruction(&words, |first, instruction, at| {
        let Some(renamed) = with_names(instruction, names) else {
            new.extend_from_slice(instruction);
            return Ok(());
        };
        is_changed = true;
        let length = u16::try_from(renamed.len())
            .map_err(|_| Malformed::new("a SPIR-V name that is too long", at))?;
        new.push(u32::from(length) << 16 | first & 0xffff);
        new.extend(renamed.into_iter().skip(1));
        Ok(())
    })?;
    Ok(is_changed.then(|| new.into_iter().flat_map(u32::to_le_bytes).collect()))
}

/// Calls `add` for each name of an entry point, value or linked symbol of `module`.
///
/// # Errors
/// The module is damaged, or of the other byte order.
pub fn names(module: &[u8], add: &mut dyn FnMut(&[u8])) -> Result<(), Malformed> {
    each_instruction(&words(module)?, |_, instruction, _| {
        let start = place_of_text(instruction);
        if let Some(text) = start.and_then(|start| text_at(instruction, start)) {
            add(&text);
        }
        Ok(())
    })
}

/// Whether the bytes of `module` are those of its header and its instructions.
pub(crate) fn is_whole(module: &[u8]) -> bool {
    let each = |words: Vec<u32>| each_instruction(&words, |_, _, _| Ok(()));
    words(module).and_then(each).is_ok()
}

/// The words of `module`.
fn words(module: &[u8]) -> Result<Vec<u32>, Malformed> {
    let (words, rest) = module.as_chunks::<4>();
    let words: Vec<u32> = words.iter().map(|word| u32::from_le_bytes(*word)).collect();
    if words.first() != Some(&MAGIC) || !rest.is_empty() || words.len() < HEADER_WORDS {
        return Err(Malformed::new("not a SPIR-V module of this byte order", 0));
    }
    Ok(words)
}

/// Calls `go` for each instruction of a module: with its first word, all its words, and its offset
/// in bytes.
fn each_instruction(
    words: &[u32],
    mut go: impl FnMut(u32, &[u32], u64) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let mut left = words.get(HEADER_WORDS..).unwrap_or_default();
    while let Some(first) = left.first() {
        let at = (words.len() - left.len()) as u64 * 4;
        let length = (first >> 16) as usize;
        let split = left.split_at_checked(length).filter(|_| length > 0);
        let (instruction, after) = split.ok_or(Malformed::new(
            "a SPIR-V instruction of an invalid length",
            at,
        ))?;
        go(*first, instruction, at)?;
        left = after;
    }
    Ok(())
}

/// The instruction with stable names, whose first word still has the old length.
fn with_names(instruction: &[u32], names: &StableNames) -> Option<Vec<u32>> {
    let start = place_of_text(instruction)?;
    let text = text_at(instruction, start)?;
    let mut new = names.replaced(&text)?.bytes;
    new.resize((new.len() + 1).next_multiple_of(4), 0);
    let (chars, _) = new.as_chunks::<4>();
    let end = start + text.len() / 4 + 1;
    let before = instruction.get(..start)?.iter().copied();
    let after = instruction.get(end..)?.iter().copied();
    let text = chars.iter().map(|chars| u32::from_le_bytes(*chars));
    Some(before.chain(text).chain(after).collect())
}

/// The word at which the name in `instruction` begins.
fn place_of_text(instruction: &[u32]) -> Option<usize> {
    match (instruction.first()? & 0xffff, instruction.get(2)) {
        (NAME | STRING, _) => Some(2),
        (MEMBER_NAME | ENTRY_POINT, _) => Some(3),
        (DECORATE, Some(&LINKAGE)) => Some(3),
        _ => None,
    }
}

/// The text that begins at the word `start`, without its zero.
fn text_at(instruction: &[u32], start: usize) -> Option<Vec<u8>> {
    let words = instruction.get(start..)?;
    let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_le_bytes()).collect();
    let end = memchr::memchr(0, &bytes)?;
    bytes.get(..end).map(<[u8]>::to_vec)
}

// The ELF file that Intel's OpenMP runtime expects around SPIR-V.

const OWNER: &[u8] = b"INTELONEOMPOFFLOAD\0";

/// Returns the ELF file that Intel's OpenMP runtime expects around SPIR-V
/// (docs/spec/link-driver.md 6.4), without compile or link options. It has notes with the build
/// settings, then `spirv`, and no loaded data. The bytes equal those of LLVM.
///
/// ```
/// use offload_formats::gpu::Gpu;
/// use offload_formats::spirv::wrap_intel_spirv;
///
/// let file = wrap_intel_spirv(&0x0723_0203_u32.to_le_bytes());
/// assert_eq!(Gpu::of_elf(&file)?.ok_or("no GPU")?.triple, "spirv64-intel");
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
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
    use object::{Object, ObjectSection};

    use super::*;
    use crate::stable_names::Uses;

    fn instruction(code: u32, before: &[u32], text: &str, after: &[u32]) -> Vec<u32> {
        let mut bytes = text.as_bytes().to_vec();
        bytes.resize((bytes.len() + 1).next_multiple_of(4), 0);
        let chars = bytes
            .chunks(4)
            .map(|word| u32::from_le_bytes(word.try_into().unwrap()));
        let operands: Vec<u32> = before
            .iter()
            .copied()
            .chain(chars)
            .chain(after.iter().copied())
            .collect();
        let length = operands.len() as u32 + 1;
        std::iter::once(length << 16 | code)
            .chain(operands)
            .collect()
    }

    fn module(id: &str) -> Vec<u8> {
        let name = format!("__omp_offloading_{id}_main_l3");
        let words = [
            vec![MAGIC, 0x0001_0400, 0, 20, 0],
            instruction(17, &[6], "", &[]),
            instruction(ENTRY_POINT, &[6, 9], &name, &[3, 4]),
            instruction(NAME, &[9], &name, &[]),
            instruction(NAME, &[10], "other", &[]),
            instruction(DECORATE, &[9, LINKAGE], &name, &[0]),
            vec![4 << 16 | DECORATE, 9, 44, 8],
        ];
        words
            .concat()
            .into_iter()
            .flat_map(u32::to_le_bytes)
            .collect()
    }

    #[test]
    fn modules_of_two_places_become_equal() {
        let renamed = |id: &str| {
            let old = module(id);
            let mut uses = Uses::default();
            names(&old, &mut |name| uses.add(name)).unwrap();
            let stable = StableNames::choose(&uses, &Default::default());
            let new = rename(&old, &stable).unwrap().unwrap();
            assert_eq!(rename(&new, &stable), Ok(None));
            new
        };
        assert_eq!(renamed("fe00_9948e5"), renamed("2f_1a"));
        let mut found = 0;
        names(&renamed("2f_1a"), &mut |name| {
            found += usize::from(name.starts_with(b"__omp_offloading_0_"));
        })
        .unwrap();
        assert_eq!(found, 3);
    }

    #[test]
    fn damaged_modules_are_errors() {
        let good = module("fe00_9948e5");
        let mut uses = Uses::default();
        names(&good, &mut |name| uses.add(name)).unwrap();
        let stable = StableNames::choose(&uses, &Default::default());
        for size in (0..good.len()).step_by(4) {
            if let Ok(Some(new)) = rename(&good[..size], &stable) {
                assert!(new.len() <= size);
            }
        }
        let mut bad = good;
        bad[20..24].copy_from_slice(&17u32.to_le_bytes());
        assert!(rename(&bad, &stable).unwrap_err().at == 20);
    }

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
