//! Tests of the notes of images, which the crate `object` reads, and of `.note.offld`, for several
//! classes and byte orders.

use super::*;
use crate::compose::join;
use object::write::Object as Writer;
use object::{
    Architecture, BinaryFormat, Endian, Endianness, File, Object, ObjectSection, SectionKind,
};

fn applied(image: &[u8]) -> Vec<u8> {
    join(image, &add_wrapper_notes(image).unwrap(), &[]).unwrap()
}

fn image(architecture: Architecture, endian: Endianness) -> Vec<u8> {
    let mut object = Writer::new(BinaryFormat::Elf, architecture, endian);
    let text = object.section_id(object::write::StandardSection::Text);
    object.append_section_data(text, b"CODE", 4);
    object.write().unwrap()
}

/// Reads notes as the ELF specification defines them: type, owner and description.
fn notes(section: &[u8], endian: Endianness) -> Vec<(u32, Vec<u8>, Vec<u8>)> {
    let mut notes = Vec::new();
    let mut rest = section;
    while !rest.is_empty() {
        let word = |at: usize| endian.read_u32(<[u8; 4]>::try_from(&rest[at..at + 4]).unwrap());
        let (owner, text) = (word(0) as usize, word(4) as usize);
        let text_at = 12 + owner.next_multiple_of(4);
        notes.push((
            word(8),
            rest[12..12 + owner].to_vec(),
            rest[text_at..text_at + text].to_vec(),
        ));
        rest = &rest[text_at + text.next_multiple_of(4)..];
    }
    notes
}

#[test]
fn an_image_has_its_notes_and_all_it_had() {
    for (architecture, endian) in [
        (Architecture::X86_64, Endianness::Little),
        (Architecture::I386, Endianness::Little),
        (Architecture::S390x, Endianness::Big),
        (Architecture::PowerPc, Endianness::Big),
    ] {
        let plain = image(architecture, endian);
        let noted = applied(&plain);
        let file = File::parse(&*noted).unwrap();
        let section = file.section_by_name(WRAPPER_SECTION).unwrap();
        let read = notes(section.data().unwrap(), endian);
        let wanted = [(1, "1.0"), (2, "LLVM"), (3, LLVM_RELEASE)];
        assert_eq!(
            read,
            wanted.map(|(kind, text)| (kind, WRAPPER_OWNER.to_vec(), text.as_bytes().to_vec())),
            "{architecture:?}"
        );
        assert_eq!((section.align(), WRAPPER_OWNER.len()), (4, 15));
        assert!(matches!(
            section.flags(),
            object::SectionFlags::Elf {
                sh_type: elf::SHT_NOTE,
                ..
            }
        ));
        let before = File::parse(&*plain).unwrap();
        let all = |file: &File<'_>| {
            let sections = file
                .sections()
                .filter(|section| section.name() != Ok(".shstrtab"));
            sections
                .map(|section| {
                    (
                        section.name().unwrap().to_owned(),
                        section.data().unwrap().to_vec(),
                    )
                })
                .collect::<Vec<_>>()
        };
        let mut left = all(&file);
        assert_eq!(left.pop().unwrap().0, WRAPPER_SECTION);
        assert_eq!(left, all(&before), "{architecture:?}");
        assert_eq!(file.symbols().count(), before.symbols().count());
    }
}

#[test]
fn an_image_without_sections_gets_some() {
    let mut bare = image(Architecture::X86_64, Endianness::Little);
    bare[0x28..0x30].fill(0);
    bare[0x3c..0x40].fill(0);
    let noted = applied(&bare);
    let file = File::parse(&*noted).unwrap();
    assert_eq!(
        file.sections()
            .map(|section| section.name().unwrap().to_owned())
            .collect::<Vec<_>>(),
        [".shstrtab", WRAPPER_SECTION]
    );
}

#[test]
fn a_broken_image_is_an_error() {
    let whole = image(Architecture::X86_64, Endianness::Little);
    for cut in 0..whole.len() {
        // The section headers end the file, so every shorter file is damaged.
        assert!(add_wrapper_notes(&whole[..cut]).is_err(), "{cut}");
    }
    for at in 0..whole.len().min(64) {
        for value in [0, 1, 0x7f, 0xff] {
            let mut bad = whole.clone();
            bad[at] = value;
            let _ = add_wrapper_notes(&bad);
        }
    }
    assert_eq!(
        add_wrapper_notes(b"!<arch>\n        ").unwrap_err().what,
        "not an ELF file"
    );
}

type Outcome = Result<(), Box<dyn std::error::Error>>;

fn object(architecture: Architecture, endian: Endianness) -> Result<Vec<u8>, object::write::Error> {
    let mut object = Writer::new(BinaryFormat::Elf, architecture, endian);
    let section = object.add_section(Vec::new(), b"code".to_vec(), SectionKind::ReadOnlyData);
    object.set_section_data(section, b"bytes".to_vec(), 1);
    object.write()
}

fn noted(data: &[u8], by: &LinkedBy) -> Result<Vec<u8>, Malformed> {
    join(data, &add_link_notes(data, by)?, &[])
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
        assert_eq!(link_notes(&plain)?, []);
        for compiler in [None, Some(22)] {
            let by = LinkedBy::this(compiler);
            let once = noted(&plain, &by)?;
            assert_eq!(link_notes(&once)?, std::slice::from_ref(&by));
            assert_eq!(link_notes(&noted(&once, &by)?)?, std::slice::from_ref(&by));
            let other = LinkedBy {
                version: "0.1.0".to_owned(),
                device_compiler: None,
            };
            assert_eq!(link_notes(&noted(&once, &other)?)?, [by, other]);
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
        let _ = link_notes(&whole[..len]);
    }
    for bit in 0..whole.len() * 8 {
        let mut bytes = whole.clone();
        bytes[bit / 8] ^= 1 << (bit % 8);
        let _ = link_notes(&bytes);
    }
    Ok(())
}
