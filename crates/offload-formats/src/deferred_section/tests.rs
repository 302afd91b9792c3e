//! Errors. The tests of `wrapper` use objects from LLVM.

use super::*;
use object::Endianness;
use object::write::{Object as Writer, StandardSection};

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
