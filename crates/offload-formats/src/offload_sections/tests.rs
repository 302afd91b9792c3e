//! Sections of objects that the tests make. The suite tests those of compilers.

use super::*;
use object::write::Object;
use object::{Architecture, BinaryFormat, Endianness, SectionFlags, SectionKind};

/// An object with these sections. On ELF, `typed` ones have LLVM's section type.
fn object_of(format: BinaryFormat, sections: &[(&str, bool, &[u8])]) -> Vec<u8> {
    let mut made = Object::new(format, Architecture::X86_64, Endianness::Little);
    for (name, typed, contents) in sections {
        let id = made.add_section(
            Vec::new(),
            name.as_bytes().to_vec(),
            SectionKind::ReadOnlyData,
        );
        made.append_section_data(id, contents, 8);
        if *typed {
            made.section_mut(id).flags = SectionFlags::Elf {
                sh_type: SHT_LLVM_OFFLOADING,
                sh_flags: elf::SHF_EXCLUDE,
            };
        }
    }
    made.write().unwrap()
}

fn found(data: &[u8]) -> Vec<(String, &[u8])> {
    let sections = sections(data).unwrap();
    let contents = |section: &FatSection| &data[section.offset as usize..][..section.size as usize];
    sections
        .iter()
        .map(|section| (section.name.clone(), contents(section)))
        .collect()
}

const MAGIC: &[u8] = b"\x10\xff\x10\xad";

#[test]
fn od_05_od_06_od_14_sections_by_type_name_and_contents() {
    let elf = object_of(
        BinaryFormat::Elf,
        &[
            (".any", true, b"by type"),
            (
                ".llvm.offloading.amdgcn-amd-amdhsa.gfx90a.k",
                false,
                b"of LLVM 14",
            ),
            (".llvm.offloading", false, b"lost its type"),
            (".llvm.offloading", false, MAGIC),
            (".data", false, MAGIC),
        ],
    );
    let expected: [(String, &[u8]); 3] = [
        (".any".into(), b"by type"),
        (
            ".llvm.offloading.amdgcn-amd-amdhsa.gfx90a.k".into(),
            b"of LLVM 14",
        ),
        (".llvm.offloading".into(), MAGIC),
    ];
    assert_eq!(found(&elf), expected);
    let coff = object_of(
        BinaryFormat::Coff,
        &[
            (".llvm.offloading", false, b"coff"),
            (".data", false, MAGIC),
        ],
    );
    assert_eq!(
        found(&coff),
        [(".llvm.offloading".to_owned(), &b"coff"[..])]
    );
    assert_eq!(found(b"text"), []);
}

#[test]
fn every_prefix_and_every_flip_returns() {
    for format in [BinaryFormat::Elf, BinaryFormat::Coff] {
        let data = object_of(format, &[(".llvm.offloading.a-b-c.d", false, b"image")]);
        for at in 0..data.len() {
            let _any = sections(&data[..at]);
            for flip in [1, 0x80, 0xff] {
                let mut bad = data.clone();
                bad[at] ^= flip;
                let _any = sections(&bad);
            }
        }
    }
}

#[test]
fn names_of_llvm_14() {
    assert_eq!(
        named(".llvm.offloading.amdgcn-amd-amdhsa.gfx90a"),
        Some(("amdgcn-amd-amdhsa", "gfx90a"))
    );
    assert_eq!(
        named(".llvm.offloading.x86_64-pc-linux-gnu..file.with.dots"),
        Some(("x86_64-pc-linux-gnu", ""))
    );
    assert_eq!(
        (
            named(".llvm.offloading.relocatable"),
            named(".llvm.offloading"),
            named(".llvm.offloadingx.a-b.c")
        ),
        (None, None, None)
    );
}

#[test]
fn sections_may_not_share_bytes_or_have_endless_names() {
    let mut shared = object_of(
        BinaryFormat::Coff,
        &[
            (".llvm.offloading", false, &[7; 500]),
            (".llvm.offloading", false, &[8; 500]),
        ],
    );
    assert_eq!(sections(&shared).unwrap().len(), 2);
    // The sizes in the section headers, which follow the file header.
    for header in 0..2 {
        shared[20 + 40 * header + 16..][..4].copy_from_slice(&900u32.to_le_bytes());
    }
    assert!(sections(&shared).is_err());
    let long = format!(".llvm.offloading.a-b.{}", "c".repeat(5000));
    assert!(sections(&object_of(BinaryFormat::Elf, &[(&long, false, b"x")])).is_err());
}

#[test]
fn names_may_be_longer_or_cut_off() {
    let name = |name: &str, cut| known(name.as_bytes(), cut).map(|row| row.name);
    assert_eq!(name(".hip_fatbin.x", false), Some(HIP_BUNDLES));
    assert_eq!(name(".hip_fat", false), None);
    for row in &SECTIONS {
        let cut = &row.name[..PE_NAME];
        let found = known(cut.as_bytes(), true).map(|row| (row.contents, row.kind));
        assert_eq!(found, Some((row.contents, row.kind)), "{cut}");
    }
    assert_eq!(name(".hip_fa", true), None);
}

#[test]
fn entries_of_each_kind_and_generation() {
    for kind in OffloadKind::ALL {
        assert_eq!(entry_section(Generation::Llvm21, kind), ENTRIES);
    }
    let old = OffloadKind::ALL.map(|kind| entry_section(Generation::Llvm14, kind));
    assert!(old.contains(&"omp_offloading_entries") && old.contains(&"hip_offloading_entries"));
    assert_eq!(
        entry_section(Generation::Llvm20, OffloadKind::Sycl),
        ENTRIES
    );
    assert!(COFF_ENTRIES.starts_with(ENTRIES));
    assert!(is_start_of_entries(b"__start_cuda_offloading_entries"));
    assert!(!is_start_of_entries(b"__start_llvm_offload_entries_1f"));
}
