//! Tests with objects.

use object::write::{Object, Relocation, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope, elf, pe,
};

use super::*;

#[test]
fn images_of_other_sizes_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for way in [
        &["-c"][..],
        &["-c", "-fPIC"],
        &["-c", "-ffunction-sections", "-fdata-sections"],
        &["-c", "-g", "-O0"],
    ] {
        let own = compiled(folder.path(), way);
        for change in ["-DSIZE=65", "-DSIZE=70003"] {
            let other = compiled(folder.path(), &both(way, &[change]));
            assert_eq!(differences(&own, &other), [""; 0], "{way:?} {change}");
        }
    }
}

#[test]
fn differences_are_named_by_section_and_symbol() {
    let folder = tempfile::tempdir().unwrap();
    let way = &["-c", "-fPIC"][..];
    let own = compiled(folder.path(), way);
    for (change, start) in [
        ("-DCONSTANT=1001", ".text: first"),
        ("-DCALLED=second", ".text: start"),
        ("-DINITIAL=8", ".data: initial+0x4: bytes differ"),
        ("-DTEXT=\"tixt\"", ".rodata.str1.1: "),
        ("-DROOM=200", ".bss: size is "),
        ("-DROOM=200", ".bss: room: the symbol differs"),
        ("-DMORE", ".text: more: is not in one"),
        (
            "-DTARGET=second",
            ".data.rel.local: functions+0x8: refers to `first` in one build, to `second` in the other",
        ),
        (
            "-DNAME=\"__omp_offloading_fe01_77_main_l10\"",
            "__omp_offloading_fe01_1a2b_main_l10: is in one, but other has",
        ),
    ] {
        let other = compiled(folder.path(), &both(way, &["-DSIZE=9000", change]));
        let found = differences(&own, &other);
        let start = start.replace(
            ".data.rel.local",
            &found_section(&found, ".data.rel", start),
        );
        expect(&own, &other, &start);
    }
}

/// The found section whose name begins with `like`: the names depend on the compiler.
fn found_section(found: &[String], like: &str, default: &str) -> String {
    let section = |difference: &String| {
        difference
            .split(": ")
            .next()
            .filter(|name| name.starts_with(like))
            .map(str::to_owned)
    };
    found
        .iter()
        .find_map(section)
        .unwrap_or_else(|| default.split(": ").next().unwrap_or_default().to_owned())
}

/// The contents of a test object: its sections, and its symbols by section and value, in this
/// order.
struct Parts {
    sections: Vec<(&'static str, Vec<u8>)>,
    symbols: Vec<(&'static str, usize, u64)>,
    /// The relocations of the first section: offset, symbol name, addend.
    relocations: Vec<(u64, &'static str, i64)>,
}

fn parts() -> Parts {
    Parts {
        sections: vec![
            (".text", vec![0x90; 32]),
            (".data", vec![1; 16]),
            (".text", vec![0xcc; 8]),
            (".comment", b"one".to_vec()),
        ],
        symbols: vec![
            ("main", 0, 0),
            ("value", 1, 8),
            ("other", 2, 0),
            ("__hip_cuid_1234", 1, 0),
        ],
        relocations: vec![(4, "value", -4), (12, "other", 0)],
    }
}

fn object(parts: &Parts) -> Vec<u8> {
    object_as(BinaryFormat::Elf, parts)
}

fn object_as(format: BinaryFormat, parts: &Parts) -> Vec<u8> {
    let mut object = Object::new(format, Architecture::X86_64, Endianness::Little);
    let each = |(name, contents): &(&str, Vec<u8>)| {
        let kind = if *name == ".text" {
            SectionKind::Text
        } else {
            SectionKind::Data
        };
        let section = object.add_section(Vec::new(), name.as_bytes().to_vec(), kind);
        object.set_section_data(section, contents.clone(), 4);
        section
    };
    let sections: Vec<_> = parts.sections.iter().map(each).collect();
    let mut symbols = Vec::new();
    for (name, section, value) in &parts.symbols {
        let symbol = object.add_symbol(Symbol {
            name: name.as_bytes().to_vec(),
            value: *value,
            size: 4,
            kind: SymbolKind::Data,
            scope: SymbolScope::Linkage,
            weak: false,
            section: SymbolSection::Section(sections[*section]),
            flags: SymbolFlags::None,
        });
        symbols.push((*name, symbol));
    }
    for (offset, name, addend) in &parts.relocations {
        let symbol = symbols.iter().find(|(known, _)| known == name).unwrap().1;
        let flags = match format {
            BinaryFormat::Coff => RelocationFlags::Coff {
                typ: pe::IMAGE_REL_AMD64_REL32,
            },
            _ => RelocationFlags::Elf {
                r_type: elf::R_X86_64_PC32,
            },
        };
        object
            .add_relocation(
                sections[0],
                Relocation {
                    offset: *offset,
                    symbol,
                    addend: *addend,
                    flags,
                },
            )
            .unwrap();
    }
    object.write().unwrap()
}

#[test]
fn symbols_count_by_name_and_not_by_number() {
    let own = object(&parts());
    let mut other = parts();
    other.symbols.reverse();
    other.relocations.reverse();
    other.sections[3].1 = b"two".to_vec();
    let other = object(&other);
    assert_ne!(own, other);
    assert_eq!(differences(&own, &other), [""; 0]);
}

#[test]
fn every_part_of_an_object_counts() {
    type Change = fn(&mut Parts);
    let changes: [(Change, &str); 9] = [
        (
            |parts| parts.sections[0].1[5] = 1,
            ".text: main+0x5: bytes differ",
        ),
        (
            |parts| parts.sections[2].1[5] = 1,
            ".text: other+0x5: bytes differ",
        ),
        (
            |parts| parts.sections[1].1.push(1),
            ".data: size is 16 bytes in one, but 17 in other",
        ),
        (
            |parts| parts.sections.push((".more", vec![1])),
            ".more: is not in one",
        ),
        (
            |parts| parts.symbols[1].2 = 4,
            ".data: value: the symbol differs",
        ),
        (
            |parts| parts.relocations[0].1 = "other",
            ".text: main+0x4: refers to `value` in one build, to `other` in the other",
        ),
        (
            |parts| parts.relocations[0].2 = 0,
            ".text: main+0x4: the relocations differ in place, type or addend",
        ),
        (
            |parts| parts.relocations.truncate(1),
            ".text: 2 relocations in one build, 1 in the other",
        ),
        (
            |parts| parts.symbols[3].0 = "__hip_cuid_99",
            "__hip_cuid_1234: is in one, but other has `__hip_cuid_99` instead (these names contain the translation unit's id",
        ),
    ];
    for (change, start) in changes {
        let mut other = parts();
        change(&mut other);
        expect(&object(&parts()), &object(&other), start);
    }
}

#[test]
fn every_part_of_an_object_for_windows_counts() {
    type Change = fn(&mut Parts);
    let changes: [(Change, &str); 9] = [
        (|parts| parts.sections[0].1[5] = 1, ".text: main+0x"),
        (
            |parts| parts.sections[2].1[5] = 1,
            ".text: other+0x5: bytes differ",
        ),
        (
            |parts| parts.sections[1].1.push(1),
            ".data: size is 16 bytes in one, but 17 in other",
        ),
        (
            |parts| parts.sections.push((".more", vec![1])),
            ".more: is not in one",
        ),
        (
            |parts| parts.symbols[1].2 = 4,
            ".data: value: the symbol differs",
        ),
        (
            |parts| parts.relocations[0].1 = "other",
            ".text: main+0x4: refers to `value` in one build, to `other` in the other",
        ),
        (
            |parts| parts.relocations[0].2 = 0,
            ".text: main+0x4: bytes differ",
        ),
        (
            |parts| parts.relocations.truncate(1),
            ".text: 2 relocations in one build, 1 in the other",
        ),
        (
            |parts| parts.symbols[3].0 = "__hip_cuid_99",
            "__hip_cuid_1234: is in one, but other has `__hip_cuid_99` instead (these names contain the translation unit's id",
        ),
    ];
    let own = object_as(BinaryFormat::Coff, &parts());
    for (change, start) in changes {
        let mut other = parts();
        change(&mut other);
        expect(&own, &object_as(BinaryFormat::Coff, &other), start);
    }
    let mut other = parts();
    other.symbols.reverse();
    other.sections.push((".llvm.offloading", vec![3; 100]));
    other.sections[3].1 = b"two".to_vec();
    let other = object_as(BinaryFormat::Coff, &other);
    assert_eq!(differences(&own, &other), [""; 0]);
    let expected = "the machine types of one and of other differ";
    let mut arm = own.clone();
    arm[..2].copy_from_slice(&pe::IMAGE_FILE_MACHINE_ARM64.0.to_le_bytes());
    expect(&own, &arm, expected);
    let compare = |damaged: &[u8]| {
        let _ = device_ranges(damaged);
        let one = HostHalf {
            name: "one",
            data: &own,
            device: &[],
        };
        let other = HostHalf {
            name: "other",
            data: damaged,
            device: &[],
        };
        let _ = compare_hosts(&one, &other);
        let _ = compare_hosts(&other, &one);
    };
    (0..own.len()).for_each(|len| compare(&own[..len]));
    for at in 0..own.len() {
        for flip in [1, 0x80, 0xff] {
            let mut damaged = own.clone();
            damaged[at] ^= flip;
            compare(&damaged);
        }
    }
}

#[test]
fn many_differences_are_counted() {
    let other = Parts {
        sections: (0..4).map(|_| (".data", vec![2])).collect(),
        symbols: Vec::new(),
        relocations: Vec::new(),
    };
    let mut many = parts();
    for number in 0..30 {
        many.sections.push((".more", vec![number]));
    }
    let found = differences(&object(&many), &object(&other));
    assert_eq!(found.len(), 21);
    assert!(
        found[20].starts_with("and ") && found[20].ends_with(" more differences"),
        "{found:?}"
    );
}
