//! Tests that an edit changes nothing else, with objects of each class and byte order. The crate
//! `object` reads them for the comparison.

pub(in crate::elf) mod digest;
mod linked;

use super::*;
use crate::elf::SHT_LLVM_OFFLOADING;
use crate::offload_sections;
use crate::reference::Outcome;
use digest::{digest, retained};
use object::write::{
    Comdat, Object as Writer, Relocation, StandardSegment, Symbol, SymbolId, SymbolSection,
};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionFlags, SectionKind,
    SymbolFlags, SymbolKind, SymbolScope, elf,
};

const IMAGE: &[u8] = b"A DEVICE IMAGE THAT MUST NOT STAY";
pub(in crate::elf) const SHAPES: [(Architecture, Endianness); 7] = [
    (Architecture::X86_64, Endianness::Little),
    (Architecture::I386, Endianness::Little),
    (Architecture::Aarch64, Endianness::Big),
    (Architecture::PowerPc, Endianness::Big),
    (Architecture::Mips64, Endianness::Little),
    (Architecture::Mips64, Endianness::Big),
    (Architecture::Arm, Endianness::Little),
];

/// A fat object like the output of `ld -r`: the device section is between other sections and has a
/// section symbol.
pub(in crate::elf) fn sample(architecture: Architecture, endian: Endianness) -> Vec<u8> {
    let mut object = Writer::new(BinaryFormat::Elf, architecture, endian);
    let text = object.add_section(vec![], b".text".to_vec(), SectionKind::Text);
    object.append_section_data(text, &[0x90; 33], 16);
    let fat = object.add_section(vec![], b".llvm.offloading".to_vec(), SectionKind::Other);
    object.section_mut(fat).flags = SectionFlags::Elf {
        sh_type: SHT_LLVM_OFFLOADING,
        sh_flags: elf::SHF_EXCLUDE,
    };
    object.append_section_data(fat, IMAGE, 8);
    object.section_symbol(fat);
    let table = object.add_section(vec![], b"llvm_offload_entries".to_vec(), SectionKind::Data);
    object.append_section_data(table, &[7; 112], 8);
    let comdat = object.add_section(
        object.segment_name(StandardSegment::Text).to_vec(),
        b".text.f".to_vec(),
        SectionKind::Text,
    );
    object.append_section_data(comdat, &[0xc3; 5], 4);
    let bss = object.add_section(vec![], b".bss".to_vec(), SectionKind::UninitializedData);
    object.append_section_bss(bss, 100, 32);
    let data = symbol(
        &mut object,
        "data",
        SymbolSection::Section(bss),
        SymbolKind::Data,
        true,
    );
    let f = symbol(
        &mut object,
        "f",
        SymbolSection::Section(comdat),
        SymbolKind::Text,
        false,
    );
    object.add_comdat(Comdat {
        kind: object::ComdatKind::Any,
        symbol: f,
        sections: vec![comdat],
    });
    let text_symbol = object.section_symbol(text);
    let start = symbol(
        &mut object,
        "__start_llvm_offload_entries",
        SymbolSection::Undefined,
        SymbolKind::Unknown,
        false,
    );
    let stop = symbol(
        &mut object,
        "__stop_llvm_offload_entries",
        SymbolSection::Undefined,
        SymbolKind::Unknown,
        false,
    );
    let old = symbol(
        &mut object,
        "__start_omp_offloading_entries",
        SymbolSection::Undefined,
        SymbolKind::Unknown,
        false,
    );
    symbol(
        &mut object,
        "an_absolute",
        SymbolSection::Absolute,
        SymbolKind::Data,
        false,
    );
    for (section, offset, target) in [
        (text, 0, start),
        (text, 4, stop),
        (text, 8, data),
        (table, 16, f),
        (table, 24, text_symbol),
        (comdat, 0, old),
    ] {
        relocate(&mut object, section, offset, target);
    }
    object.write().expect("an object")
}

fn symbol(
    object: &mut Writer<'_>,
    name: &str,
    section: SymbolSection,
    kind: SymbolKind,
    local: bool,
) -> SymbolId {
    let scope = match (local, section) {
        (true, _) => SymbolScope::Compilation,
        (_, SymbolSection::Undefined) => SymbolScope::Unknown,
        _ => SymbolScope::Linkage,
    };
    object.add_symbol(Symbol {
        name: name.into(),
        value: 0,
        size: 4,
        kind,
        scope,
        weak: false,
        section,
        flags: SymbolFlags::None,
    })
}

fn relocate(
    object: &mut Writer<'_>,
    section: object::write::SectionId,
    offset: u64,
    symbol: SymbolId,
) {
    let flags = RelocationFlags::Elf {
        r_type: elf::RelocationType(2),
    };
    object
        .add_relocation(
            section,
            Relocation {
                offset,
                symbol,
                addend: 0,
                flags,
            },
        )
        .expect("a relocation");
}

fn renamed(data: &[u8]) -> anyhow::Result<Vec<u8>> {
    Ok(join(data, &rename_entry_tables(data, "c0ffee")?, &[])?)
}

/// Returns `digest(before)` with the expected changes of the edit.
fn expected(before: &[u8]) -> Vec<String> {
    let lines = digest(before)
        .into_iter()
        .filter(|line| !line.contains(" .llvm.offloading"));
    let renamed = lines.map(|line| {
        line.replace("_offload_entries", "_offload_entries_c0ffee")
            .replace("_offloading_entries", "_offloading_entries_c0ffee")
    });
    renamed.map(|line| retained(line, "c0ffee")).collect()
}

fn contains(data: &[u8], part: &[u8]) -> bool {
    data.windows(part.len()).any(|window| window == part)
}

#[test]
fn every_class_and_byte_order_keeps_all_else() -> Outcome {
    for (architecture, endian) in SHAPES {
        let before = sample(architecture, endian);
        let after = renamed(&before)?;
        assert_eq!(
            digest(&after),
            expected(&before),
            "{architecture:?} {endian:?}"
        );
        assert!(!contains(&after, IMAGE));
        // A second edit changes nothing.
        assert_eq!(renamed(&after)?, after);
    }
    Ok(())
}

#[test]
fn nothing_to_change_is_the_same_bytes() -> Outcome {
    let data = sample(Architecture::X86_64, Endianness::Little);
    assert_eq!(rewrite(&data, &Edit::default())?, data);
    Ok(())
}

#[test]
fn a_section_that_is_needed_stays() {
    let data = sample(Architecture::X86_64, Endianness::Little);
    let table = "cannot remove a section with symbols, strings or a group";
    for (name, what) in [
        (&b".bss"[..], "a relocation refers to a removed section"),
        (b".text", "a relocation refers to a removed section"),
        (b".symtab", table),
        (b".strtab", table),
    ] {
        let fault = rewrite(
            &data,
            &Edit {
                remove: &|section| section.name == name,
                ..Edit::default()
            },
        )
        .map_err(|fault| fault.what);
        assert_eq!(fault, Err(what));
    }
}

#[test]
fn an_emptied_group_goes_and_its_relocations_too() -> Outcome {
    let data = sample(Architecture::I386, Endianness::Little);
    let edit = Edit {
        remove: &|section| matches!(section.name, b".text.f" | b"llvm_offload_entries"),
        ..Edit::default()
    };
    let after = digest(&rewrite(&data, &edit)?);
    let gone = |line: &String| {
        ![
            "section .text.f ",
            "in .text.f",
            "section llvm_off",
            "in llvm_off",
            "group",
            ".rel.text.f",
            ".relllvm_off",
        ]
        .iter()
        .any(|part| line.contains(part))
    };
    assert_eq!(
        after,
        digest(&data).into_iter().filter(gone).collect::<Vec<_>>()
    );
    Ok(())
}

#[test]
fn more_sections_than_16_bits_count() -> Outcome {
    let mut object = Writer::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let mut last = None;
    let fat = object.add_section(vec![], b".llvm.offloading".to_vec(), SectionKind::Other);
    object.append_section_data(fat, IMAGE, 8);
    object.section_symbol(fat);
    for number in 0..0xff80u32 {
        let section = object.add_section(
            vec![],
            format!(".text.{number}").into_bytes(),
            SectionKind::Text,
        );
        object.append_section_data(section, &number.to_le_bytes(), 1);
        last = Some(section);
        if number % 0x1000 == 0 || number > 0xff00 - 40 {
            symbol(
                &mut object,
                &format!("s{number}"),
                SymbolSection::Section(section),
                SymbolKind::Text,
                false,
            );
        }
    }
    let section = last.ok_or("a section")?;
    let target = symbol(
        &mut object,
        "target",
        SymbolSection::Section(section),
        SymbolKind::Text,
        false,
    );
    relocate(&mut object, section, 0, target);
    let before = object.write()?;
    assert_eq!(digest(&renamed(&before)?), expected(&before));
    // Removes enough sections for the numbers to fit into the fields again.
    let edit = Edit {
        remove: &|section| section.name.starts_with(b".text.1") && section.name.len() == 11,
        ..Edit::default()
    };
    let few = rewrite(&before, &edit).map_err(|fault| fault.to_string())?;
    let gone = |line: &String| {
        !["section .text.1", "in .text.1"].iter().any(|part| {
            line.split(part)
                .nth(1)
                .is_some_and(|rest| rest.find(' ').unwrap_or(rest.len()) == 4)
        })
    };
    assert_eq!(
        digest(&few),
        digest(&before).into_iter().filter(gone).collect::<Vec<_>>()
    );
    Ok(())
}

#[test]
fn a_cut_object_is_an_error() {
    for (architecture, endian) in SHAPES {
        let data = sample(architecture, endian);
        let edit = Edit {
            remove: &is_fat_section,
            ..Edit::default()
        };
        for len in 0..data.len() {
            assert!(
                rewrite(&data[..len], &edit).is_err(),
                "{architecture:?} cut to {len}"
            );
        }
    }
}

#[test]
fn a_flipped_byte_never_panics() {
    for (architecture, endian) in &SHAPES[..4] {
        let data = sample(*architecture, *endian);
        for at in 0..data.len() {
            for flip in [0xff, 1, 0x80] {
                let mut data = data.clone();
                data[at] ^= flip;
                if let Ok(after) = renamed(&data) {
                    assert!(
                        after.len() < 4 * data.len() + 0x10_000,
                        "byte {at} made it {} bytes",
                        after.len()
                    );
                }
            }
        }
    }
}

#[test]
fn what_a_relocatable_link_has_linked_is_told_from_what_it_keeps() {
    let is = |name: &str, kind| {
        is_fat_section(SectionView {
            index: 1,
            name: name.as_bytes(),
            kind,
            flags: elf::SectionFlags(0),
        })
    };
    assert!(
        is(".llvm.offloading", SHT_LLVM_OFFLOADING)
            && is(".llvm.offloading", elf::SHT_PROGBITS)
            && is("whatever", SHT_LLVM_OFFLOADING)
    );
    assert!(is(
        ".llvm.offloading.amdgcn-amd-amdhsa.gfx90a",
        elf::SHT_PROGBITS
    ));
    assert!(
        !is(".llvm.offloading.relocatable", SHT_LLVM_OFFLOADING)
            && !is(".llvm.offloading.relocatable", elf::SHT_PROGBITS)
    );
    assert!(!is(".text", elf::SHT_PROGBITS) && !is(".llvm.offloadings", elf::SHT_PROGBITS));
}

#[test]
fn linkers_keep_the_tables_of_every_release() -> Outcome {
    for (architecture, endian) in SHAPES {
        for table in offload_sections::entry_tables() {
            let mut object = Writer::new(BinaryFormat::Elf, architecture, endian);
            for name in [table.name, ".data.other", "my_entries"] {
                let section =
                    object.add_section(vec![], name.as_bytes().to_vec(), SectionKind::Data);
                object.append_section_data(section, &[7; 32], 8);
            }
            let before = object.write()?;
            assert_eq!(before[7], elf::ELFOSABI_NONE.0);
            let after = renamed(&before)?;
            assert_eq!(after[7], elf::ELFOSABI_GNU.0, "the flag is GNU's");
            let retained: Vec<String> = digest(&after)
                .into_iter()
                .filter(|line| {
                    line.starts_with("section ") && line.split(' ').nth(3) == Some("0x200003")
                })
                .filter_map(|line| line.split(' ').nth(1).map(str::to_owned))
                .collect();
            assert_eq!(
                retained,
                [format!("{}_c0ffee", table.name)],
                "{architecture:?} {endian:?}"
            );
        }
    }
    // Without an entry table, the header does not change.
    let mut object = Writer::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    object.add_section(vec![], b".data.other".to_vec(), SectionKind::Data);
    let before = object.write()?;
    assert_eq!(renamed(&before)?, before);
    Ok(())
}

#[test]
fn the_tag_is_llvms() {
    assert_eq!(entry_table_tag(b""), "4b2008fd98c1dd4");
}

#[test]
fn a_tag_keeps_names_c_identifiers() {
    let data = sample(Architecture::X86_64, Endianness::Little);
    for tag in ["", "a-b", "a.b", "a\0b"] {
        assert!(rename_entry_tables(&data, tag).is_err());
    }
}

/// Returns the offset of the header of section `index` in a little-endian 64-bit object.
fn header_at(data: &[u8], index: usize) -> usize {
    u64::from_le_bytes(data[40..48].try_into().unwrap()) as usize + 64 * index
}

#[test]
fn a_section_that_is_none_may_say_anything() -> Outcome {
    let mut data = sample(Architecture::X86_64, Endianness::Little);
    let at = header_at(&data, 1);
    data[at + 4..at + 64].fill(0xee);
    data[at + 4..at + 8].fill(0);
    // The header refers to no bytes of the file.
    let edit = Edit {
        rename_section: &|section| (section.name == b".bss").then(|| b".bss2".to_vec()),
        ..Edit::default()
    };
    let after = rewrite(&data, &edit)?;
    assert_eq!(rewrite(&after, &Edit::default())?, after);
    Ok(())
}

#[test]
fn the_first_section_is_none() {
    let mut data = sample(Architecture::X86_64, Endianness::Little);
    let at = header_at(&data, 0);
    data[at + 4] = 3;
    assert_eq!(
        plan(&data, &Edit::default()).unwrap_err().what,
        "the first section is not the null section"
    );
}

#[test]
fn bytes_that_an_unused_header_leads_to_are_not_lost_without_a_word() {
    let mut data = sample(Architecture::X86_64, Endianness::Little);
    let at = header_at(&data, 2);
    data[at + 4..at + 8].fill(0);
    let what = "a section of type NULL has bytes";
    assert_eq!(
        plan(&data, &Edit::default()).unwrap_err(),
        Malformed::new(what, at as u64)
    );
    data[at + 32..at + 40].fill(0);
    assert!(plan(&data, &Edit::default()).is_ok());
}

#[test]
fn symbols_have_their_names_in_a_string_table() {
    let mut data = sample(Architecture::X86_64, Endianness::Little);
    let symbols = (1..)
        .find(|index| data[header_at(&data, *index) + 4] == 2)
        .unwrap();
    let at = header_at(&data, symbols);
    data[at + 40] = symbols as u8;
    assert_eq!(
        plan(&data, &Edit::default()).unwrap_err().what,
        "no string table for the names of symbols"
    );
}

#[test]
fn bytes_in_two_sections_are_not_copied_twice() {
    let mut data = sample(Architecture::X86_64, Endianness::Little);
    let (first, second) = (header_at(&data, 1), header_at(&data, 3));
    // The third section covers the whole file.
    data[second + 24..second + 32].fill(0);
    let size = data.len() as u64;
    data[second + 32..second + 40].copy_from_slice(&size.to_le_bytes());
    let remove = Edit {
        remove: &is_fat_section,
        ..Edit::default()
    };
    let rename = Edit {
        rename_section: &|section| Some([section.name, b"2"].concat()),
        ..Edit::default()
    };
    for edit in [remove, rename] {
        assert_eq!(plan(&data, &edit).unwrap_err().what, "sections overlap");
    }
    assert_ne!(first, second);
}
