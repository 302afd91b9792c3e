//! Notes in ELF files: `.note.offld`, which records which offld and which device compiler linked
//! the device code of a file; the GNU property of control-flow protection (`.note.gnu.property`);
//! and the notes that clang-offload-wrapper adds to images (`.note.openmp`).

#[cfg(test)]
mod tests;

use object::read::elf::{NoteIterator, ProgramHeader, SectionHeader as _};
use object::{Endianness, elf};

use super::file::append_section;
use super::raw::{Class, FileHeader, SectionHeader, append_note};
use crate::compose::Part;
use crate::error::Malformed;
use crate::model::LLVM_RELEASE;

// Which offld and which device compiler linked the device code of a file.

/// Name of the section with the versions of offld and of the device compiler. It is part of the
/// program in memory, so that `strip` keeps it.
pub const LINK_SECTION: &str = ".note.offld";
/// Owner of its notes, as tools show it.
const LINK_OWNER: &[u8] = b"offld";
/// Type of the note with the version of offld.
const LINK_VERSION: elf::NoteType = elf::NoteType(1);
/// Type of the note with the device compiler, which follows the note with the version.
const LINK_COMPILER: elf::NoteType = elf::NoteType(2);

/// The offld and the device compiler that linked the device code of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct LinkedBy {
    /// Version of offld.
    pub version: String,
    /// Device compiler and its version, such as `clang 22`. `None` if unknown.
    pub device_compiler: Option<String>,
}

impl LinkedBy {
    /// This version of offld, with clang of the major version `compiler`.
    pub fn this(compiler: Option<u32>) -> LinkedBy {
        let device_compiler = compiler.map(|major| format!("clang {major}"));
        LinkedBy {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            device_compiler,
        }
    }
}

/// Returns the parts of the ELF object `data` with notes for `by`.
pub fn add_link_notes(data: &[u8], by: &LinkedBy) -> Result<Vec<Part>, Malformed> {
    let (class, _) = FileHeader::read(data)?;
    let owner = [LINK_OWNER, b"\0"].concat();
    let mut notes = Vec::new();
    append_note(
        class,
        &owner,
        LINK_VERSION,
        by.version.as_bytes(),
        &mut notes,
    );
    if let Some(compiler) = &by.device_compiler {
        append_note(
            class,
            &owner,
            LINK_COMPILER,
            compiler.as_bytes(),
            &mut notes,
        );
    }
    let header = SectionHeader {
        kind: elf::SHT_NOTE,
        flags: elf::SHF_ALLOC,
        align: 4,
        ..SectionHeader::default()
    };
    append_section(data, LINK_SECTION, header, &notes)
}

/// Returns the records in the notes of the ELF file `data`, without duplicates. A file that was
/// linked from several files has the notes of all of them.
pub fn link_notes(data: &[u8]) -> Result<Vec<LinkedBy>, object::read::Error> {
    match object::FileKind::parse(data)? {
        object::FileKind::Elf32 => link_notes_of::<elf::FileHeader32<Endianness>>(data),
        _ => link_notes_of::<elf::FileHeader64<Endianness>>(data),
    }
}

fn link_notes_of<Elf: object::read::elf::FileHeader<Endian = Endianness>>(
    data: &[u8],
) -> object::read::Result<Vec<LinkedBy>> {
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    let sections = header.sections(endian, data)?;
    // Bytes that several sections share count once for each section, which limits the result for a
    // small file.
    let mut left = data.len() as u64;
    let mut found: Vec<LinkedBy> = Vec::new();
    let mut places = Vec::new();
    for section in sections
        .iter()
        .filter(|section| sections.section_name(endian, section) == Ok(LINK_SECTION.as_bytes()))
    {
        left = left.saturating_sub(section.sh_size(endian).into());
        places.extend(section.notes(endian, data)?.filter(|_| left > 0));
    }
    if sections.is_empty() {
        for segment in header.program_headers(endian, data)? {
            left = left.saturating_sub(segment.p_filesz(endian).into());
            places.extend(segment.notes(endian, data)?.filter(|_| left > 0));
        }
    }
    for mut notes in places {
        let mut of_section: Vec<LinkedBy> = Vec::new();
        while let Some(note) = notes.next()? {
            let text = || String::from_utf8_lossy(note.desc()).into_owned();
            match (note.n_type(endian), of_section.last_mut()) {
                _ if note.name() != LINK_OWNER => {}
                (LINK_VERSION, _) => of_section.push(LinkedBy {
                    version: text(),
                    device_compiler: None,
                }),
                (LINK_COMPILER, Some(last)) => last.device_compiler = Some(text()),
                _ => {}
            }
        }
        of_section.dedup();
        found.extend(of_section);
    }
    let mut seen = std::collections::HashSet::new();
    found.retain(|by| seen.insert((by.version.clone(), by.device_compiler.clone())));
    Ok(found)
}

// Control-flow protection: the property of x86 and AArch64.

/// Name of the section with the kinds of control-flow protection that an object supports. Linkers
/// keep only the kinds that all objects of a program support. An object without the property
/// therefore takes it from the whole program.
pub const PROPERTY_SECTION: &[u8] = b".note.gnu.property";
/// Indirect branch tracking and shadow stacks of x86.
pub const X86_PROTECTION: u32 =
    elf::GNU_PROPERTY_X86_FEATURE_1_IBT | elf::GNU_PROPERTY_X86_FEATURE_1_SHSTK;
/// Branch target identification, pointer authentication and guarded control stacks of AArch64.
pub const AARCH64_PROTECTION: u32 =
    elf::GNU_PROPERTY_AARCH64_FEATURE_1_BTI | elf::GNU_PROPERTY_AARCH64_FEATURE_1_PAC | AARCH64_GCS;
/// Guarded control stacks of AArch64.
pub const AARCH64_GCS: u32 = 1 << 2;

/// Returns the property type for a machine, and the bits that registration code can have. `None`
/// for other machines. RISC-V has such a property, too, but support in LLVM 22 is experimental.
fn property_of(machine: elf::Machine) -> Option<(elf::GnuPropertyType, u32)> {
    match machine {
        elf::EM_X86_64 | elf::EM_386 => Some((elf::GNU_PROPERTY_X86_FEATURE_1_AND, X86_PROTECTION)),
        elf::EM_AARCH64 => Some((elf::GNU_PROPERTY_AARCH64_FEATURE_1_AND, AARCH64_PROTECTION)),
        _ => None,
    }
}

/// Returns the features in the notes of a section. Reading stops at a malformed note.
pub fn protection<Elf>(
    machine: elf::Machine,
    endian: Endianness,
    mut notes: NoteIterator<'_, Elf>,
) -> u32
where
    Elf: object::read::elf::FileHeader<Endian = Endianness>,
{
    let Some((kind, known)) = property_of(machine) else {
        return 0;
    };
    let mut features = 0;
    while let Ok(Some(note)) = notes.next() {
        let Some(mut properties) = note.gnu_properties(endian) else {
            continue;
        };
        while let Ok(Some(property)) = properties.next() {
            if property.pr_type() == kind {
                features |= property.data_u32(endian).unwrap_or(0);
            }
        }
    }
    features & known
}

/// Returns the contents of the section for an object of `machine` that supports `features`. `None`
/// if it supports none.
pub fn property_note(class: Class, machine: elf::Machine, features: u32) -> Option<Vec<u8>> {
    let (kind, known) = property_of(machine)?;
    let features = features & known;
    if features == 0 {
        return None;
    }
    let mut property: Vec<u8> = [kind.0, size_of::<u32>() as u32, features]
        .into_iter()
        .flat_map(|word| class.word_bytes(word))
        .collect();
    property.resize(property.len().next_multiple_of(class.address_size()), 0);
    let mut section = Vec::new();
    append_note(
        class,
        b"GNU\0",
        elf::NT_GNU_PROPERTY_TYPE_0,
        &property,
        &mut section,
    );
    Some(section)
}

// Notes that clang-offload-wrapper adds to images.

/// Name of the section that clang-offload-wrapper adds to ELF images (docs/spec/containers.md 5.1).
pub const WRAPPER_SECTION: &str = ".note.openmp";
/// Owner of its notes.
const WRAPPER_OWNER: &[u8] = b"LLVMOMPOFFLOAD\0";
/// Texts of its notes, whose types count from 1: version of the notes, producer, producer's
/// version.
const WRAPPER_NOTES: [&str; 3] = ["1.0", "LLVM", LLVM_RELEASE];

/// Returns the parts of the ELF file `image` with the notes.
pub fn add_wrapper_notes(image: &[u8]) -> Result<Vec<Part>, Malformed> {
    let (class, _) = FileHeader::read(image)?;
    let mut notes = Vec::new();
    for (text, kind) in WRAPPER_NOTES.iter().zip(1..) {
        append_note(
            class,
            WRAPPER_OWNER,
            elf::NoteType(kind),
            text.as_bytes(),
            &mut notes,
        );
    }
    let header = SectionHeader {
        kind: elf::SHT_NOTE,
        align: 4,
        ..SectionHeader::default()
    };
    append_section(image, WRAPPER_SECTION, header, &notes)
}
