//! A note that records which offld and which device compiler linked the device code of a file: the
//! section `.note.offld` with both versions. The section is part of the program in memory, so that
//! `strip` keeps it.

use super::file::append_section;
use super::raw::{FileHeader, SectionHeader, append_note};
use crate::compose::Part;
use crate::error::Malformed;
use object::Endianness;
use object::elf;
use object::read::elf::{ProgramHeader, SectionHeader as _};

/// Name of the section.
pub const SECTION: &str = ".note.offld";
/// Owner of the notes, as tools show it.
const OWNER: &[u8] = b"offld";
/// Type of the note with the version of offld.
const VERSION: elf::NoteType = elf::NoteType(1);
/// Type of the note with the device compiler, which follows the note with the version.
const COMPILER: elf::NoteType = elf::NoteType(2);

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
pub fn add(data: &[u8], by: &LinkedBy) -> Result<Vec<Part>, Malformed> {
    let (class, _) = FileHeader::read(data)?;
    let owner = [OWNER, b"\0"].concat();
    let mut notes = Vec::new();
    append_note(class, &owner, VERSION, by.version.as_bytes(), &mut notes);
    if let Some(compiler) = &by.device_compiler {
        append_note(class, &owner, COMPILER, compiler.as_bytes(), &mut notes);
    }
    let header = SectionHeader {
        kind: elf::SHT_NOTE,
        flags: elf::SHF_ALLOC,
        align: 4,
        ..SectionHeader::default()
    };
    append_section(data, SECTION, header, &notes)
}

/// Returns the records in the notes of the ELF file `data`, without duplicates. A file that was
/// linked from several files has the notes of all of them.
pub fn read(data: &[u8]) -> Result<Vec<LinkedBy>, object::read::Error> {
    match object::FileKind::parse(data)? {
        object::FileKind::Elf32 => of::<elf::FileHeader32<Endianness>>(data),
        _ => of::<elf::FileHeader64<Endianness>>(data),
    }
}

fn of<Elf: object::read::elf::FileHeader<Endian = Endianness>>(
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
        .filter(|section| sections.section_name(endian, section) == Ok(SECTION.as_bytes()))
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
                _ if note.name() != OWNER => {}
                (VERSION, _) => of_section.push(LinkedBy {
                    version: text(),
                    device_compiler: None,
                }),
                (COMPILER, Some(last)) => last.device_compiler = Some(text()),
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compose::join;
    use object::write::Object;
    use object::{Architecture, BinaryFormat, Endianness, SectionKind};

    type Outcome = Result<(), Box<dyn std::error::Error>>;

    fn object(
        architecture: Architecture,
        endian: Endianness,
    ) -> Result<Vec<u8>, object::write::Error> {
        let mut object = Object::new(BinaryFormat::Elf, architecture, endian);
        let section = object.add_section(Vec::new(), b"code".to_vec(), SectionKind::ReadOnlyData);
        object.set_section_data(section, b"bytes".to_vec(), 1);
        object.write()
    }

    fn noted(data: &[u8], by: &LinkedBy) -> Result<Vec<u8>, Malformed> {
        join(data, &add(data, by)?, &[])
    }

    #[test]
    fn what_is_noted_is_read() -> Outcome {
        let hosts = [
            (Architecture::X86_64, Endianness::Little),
            (Architecture::I386, Endianness::Little),
            (Architecture::S390x, Endianness::Big),
        ];
        for (architecture, endian) in hosts {
            let plain = object(architecture, endian)?;
            assert_eq!(read(&plain)?, []);
            for compiler in [None, Some(22)] {
                let by = LinkedBy::this(compiler);
                let once = noted(&plain, &by)?;
                assert_eq!(read(&once)?, std::slice::from_ref(&by));
                assert_eq!(read(&noted(&once, &by)?)?, std::slice::from_ref(&by));
                let other = LinkedBy {
                    version: "0.1.0".to_owned(),
                    device_compiler: None,
                };
                assert_eq!(read(&noted(&once, &other)?)?, [by, other]);
            }
        }
        Ok(())
    }

    #[test]
    fn every_prefix_and_every_flip_is_survived() -> Outcome {
        let whole = noted(
            &object(Architecture::X86_64, Endianness::Little)?,
            &LinkedBy::this(Some(22)),
        )?;
        for len in 0..whole.len() {
            let _ = read(&whole[..len]);
        }
        for bit in 0..whole.len() * 8 {
            let mut bytes = whole.clone();
            bytes[bit / 8] ^= 1 << (bit % 8);
            let _ = read(&bytes);
        }
        Ok(())
    }
}
