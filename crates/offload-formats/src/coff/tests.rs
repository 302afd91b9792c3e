//! Tests of linker directives, and of replaced section contents on objects from the `object` crate
//! and clang, which that crate reads.

use object::read::coff::{CoffFile, CoffHeader};
use object::write::{Object as Writer, Relocation, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, Object, ObjectSection, ObjectSymbol, SectionKind,
    SymbolFlags, SymbolKind, SymbolScope, pe,
};

use super::{Directives, directives, resize};
use crate::compose::join;
use crate::elf::resize::NewSize;

type Outcome = Result<(), Box<dyn std::error::Error>>;

/// An object with three sections, of which number 2 has no relocations.
fn object() -> Result<Vec<u8>, object::write::Error> {
    let mut writer = Writer::new(BinaryFormat::Coff, Architecture::X86_64, Endianness::Little);
    let text = writer.add_section(Vec::new(), b".text".to_vec(), SectionKind::Text);
    let fat = writer.add_section(Vec::new(), b".llvm.offloading".to_vec(), SectionKind::Data);
    let data = writer.add_section(Vec::new(), b".data".to_vec(), SectionKind::Data);
    writer.set_section_data(text, vec![0x90; 37], 16);
    writer.set_section_data(fat, vec![7; 1001], 8);
    writer.set_section_data(data, vec![3; 50], 8);
    writer.section_symbol(fat);
    // The last section has no bytes, like the `.llvm_addrsig` of clang.
    writer.add_section(Vec::new(), b".empty".to_vec(), SectionKind::Data);
    let mut symbol = |name: &str, section, value| {
        writer.add_symbol(Symbol {
            name: name.into(),
            value,
            size: 0,
            kind: SymbolKind::Data,
            scope: SymbolScope::Linkage,
            weak: false,
            section: SymbolSection::Section(section),
            flags: SymbolFlags::None,
        })
    };
    let target = symbol("a_name_that_is_longer_than_eight", data, 4);
    symbol("behind", fat, 900);
    for (section, offset) in [(text, 3), (data, 8)] {
        let flags = object::RelocationFlags::Coff {
            typ: pe::IMAGE_REL_AMD64_ADDR64,
        };
        writer.add_relocation(
            section,
            Relocation {
                offset,
                symbol: target,
                addend: 0,
                flags,
            },
        )?;
    }
    let mut object = writer.write()?;
    let symbols = *object[8..].first_chunk::<4>().unwrap();
    object[20 + 3 * 40 + 20..][..4].copy_from_slice(&symbols);
    Ok(object)
}

/// Everything that tools read from an object, except the contents of the section `but`.
fn seen<Coff: CoffHeader>(data: &[u8], but: usize) -> Result<Vec<String>, object::read::Error> {
    let file = CoffFile::<&[u8], Coff>::parse(data)?;
    let mut all = Vec::new();
    for section in file.sections() {
        let contents = if section.index().0 == but {
            &[]
        } else {
            section.data()?
        };
        let relocations: Vec<_> = section
            .relocations()
            .map(|(at, relocation)| (at, relocation.target(), relocation.flags()))
            .collect();
        all.push(format!(
            "{:?} {:?} {contents:?} {relocations:?}",
            section.name(),
            section.flags()
        ));
    }
    for symbol in file.symbols() {
        all.push(format!(
            "{:?} {:?} {:?}",
            symbol.name(),
            symbol.section_index(),
            symbol.kind()
        ));
    }
    Ok(all)
}

fn contents<Coff: CoffHeader>(data: &[u8], number: usize) -> Result<Vec<u8>, object::read::Error> {
    let file = CoffFile::<&[u8], Coff>::parse(data)?;
    Ok(file
        .section_by_index(object::SectionIndex(number))?
        .data()?
        .to_vec())
}

#[test]
fn sections_get_any_size() -> Outcome {
    let old = object()?;
    for size in [0, 1, 16, 999, 1001, 1002, 5000] {
        let parts = resize(
            &old,
            &[NewSize {
                section: 2,
                size,
                may_move: false,
            }],
        )?;
        let wanted = vec![9; size as usize];
        let new = join(&old, &parts, &[&wanted])?;
        assert_eq!(
            seen::<pe::ImageFileHeader>(&new, 2)?,
            seen::<pe::ImageFileHeader>(&old, 2)?,
            "{size}"
        );
        assert_eq!(contents::<pe::ImageFileHeader>(&new, 2)?, wanted);
        assert!(new.len() <= old.len() + size as usize + 16);
        let at = |object: &[u8], field: usize| {
            object[field..]
                .first_chunk()
                .map(|bytes| u32::from_le_bytes(*bytes))
        };
        assert_eq!(
            at(&new, 20 + 3 * 40 + 20),
            at(&new, 8),
            "where the section without bytes is"
        );
        let file = CoffFile::<&[u8], pe::ImageFileHeader>::parse(&new)?;
        let behind = file
            .symbols()
            .find(|symbol| symbol.name() == Ok("behind"))
            .ok_or("no symbol")?;
        assert_eq!(behind.address(), if size < 900 { 0 } else { 900 });
        // The reverse change.
        if size > 0 {
            let parts = resize(
                &new,
                &[NewSize {
                    section: 2,
                    size: 1001,
                    may_move: false,
                }],
            )?;
            let back = join(&new, &parts, &[&[7; 1001]])?;
            assert!(
                contents::<pe::ImageFileHeader>(&back, 2)?
                    == contents::<pe::ImageFileHeader>(&old, 2)?
            );
            assert!(back.len() <= old.len() + 2 * 16);
        }
    }
    Ok(())
}

#[test]
fn invalid_requests_are_errors() -> Outcome {
    let old = object()?;
    let fault = |sections: &[usize]| {
        let sizes: Vec<NewSize> = sections
            .iter()
            .map(|section| NewSize {
                section: *section,
                size: 5,
                may_move: false,
            })
            .collect();
        resize(&old, &sizes)
            .err()
            .map(|fault| fault.to_string())
            .unwrap_or_default()
    };
    assert!(fault(&[1]).contains("relocations"));
    assert!(fault(&[5]).contains("no such section"));
    assert!(fault(&[0]).contains("no such section"));
    assert!(fault(&[2, 2]).contains("twice"));
    let too_large = resize(
        &old,
        &[NewSize {
            section: 2,
            size: 1 << 32,
            may_move: false,
        }],
    )
    .err()
    .map(|fault| fault.to_string());
    assert!(
        too_large
            .unwrap_or_default()
            .contains("too large for a COFF object")
    );
    // A section that begins within the changed one.
    let mut shared = old.clone();
    let field = 20 + 2 * 40 + 20;
    let inside = u32::from_le_bytes(*old[20 + 40 + 20..].first_chunk().ok_or("short")?) + 8;
    shared[field..field + 4].copy_from_slice(&inside.to_le_bytes());
    assert!(
        resize(
            &shared,
            &[NewSize {
                section: 2,
                size: 5,
                may_move: false
            }]
        )
        .is_err_and(|fault| fault.to_string().contains("shares"))
    );
    Ok(())
}

#[test]
fn damaged_objects_do_not_panic() -> Outcome {
    let old = object()?;
    for end in 0..old.len() {
        let _ = resize(
            &old[..end],
            &[NewSize {
                section: 2,
                size: 5,
                may_move: false,
            }],
        );
    }
    for at in 0..old.len() {
        for flip in [1, 0x80, 0xff] {
            let mut wrong = old.clone();
            wrong[at] ^= flip;
            if let Ok(parts) = resize(
                &wrong,
                &[NewSize {
                    section: 2,
                    size: 5,
                    may_move: false,
                }],
            ) {
                join(&wrong, &parts, &[&[9; 5]])?;
            }
        }
    }
    Ok(())
}

#[test]
fn directives_are_read_as_linkers_do() {
    let text = b"\xef\xbb\xbf   /DEFAULTLIB:\"my lib.lib\" -defaultlib:uuid /EXPORT:f,DATA /include:_g \
                 /alternatename:__a=__b /FAILIFMISMATCH:\"x=1\" /nodefaultlib:libcmt /include\0 junk";
    let read = directives(text);
    assert_eq!(read.default_libraries, ["my lib.lib", "uuid"]);
    assert_eq!(read.without_libraries, ["libcmt"]);
    assert_eq!(read.include, ["_g"]);
    assert_eq!(read.alternate_names, [("__a".to_owned(), "__b".to_owned())]);
    assert_eq!(
        directives(b"\xff\xfe\"open /include:x"),
        Directives::default()
    );
}
