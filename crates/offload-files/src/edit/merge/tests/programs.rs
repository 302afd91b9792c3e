//! Tests with programs and shared libraries.

use super::*;
use object::elf;
use offload_formats::elf::raw::{FileHeader, Record, SectionHeader};

/// Link modes: libraries, with and without symbols, fixed and position-independent, packed
/// relocations, and with all startup code of a C program.
const WAYS: [&[&str]; 7] = [
    &["-shared", "-fPIC"],
    &["-shared", "-fPIC", "-s", "-Wl,-z,noseparate-code"],
    &["-no-pie", "-fno-pie", "-nostdlib", "-Wl,-e,start"],
    &["-no-pie", "-fno-pie", "-DWHOLE"],
    &["-pie", "-fPIE", "-DWHOLE", "-s"],
    &["-pie", "-fPIE", "-DWHOLE", "-Wl,-z,now", "-O0"],
    &["-static-pie", "-fPIE", "-DWHOLE"],
];

#[test]
fn images_of_other_sizes_move_everything_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for way in WAYS {
        let small = compiled(folder.path(), &both(way, &["-DSIZE=64"]));
        for size in ["-DSIZE=65", "-DSIZE=70003", "-DSIZE=3000001"] {
            let large = compiled(folder.path(), &both(way, &[size]));
            assert_eq!(differences(&small, &large), [""; 0], "{way:?} {size}");
        }
    }
}

#[test]
fn more_images_have_more_rows_and_change_nothing() {
    let folder = tempfile::tempdir().unwrap();
    for way in WAYS {
        for rows in ["-DCONST=const", "-DCONST="] {
            let one = compiled(folder.path(), &both(way, &[rows]));
            let three = compiled(
                folder.path(),
                &both(way, &[rows, "-DROWS=3", "-DSIZE=5000"]),
            );
            assert_eq!(differences(&one, &three), [""; 0], "{way:?} {rows}");
        }
    }
}

#[test]
fn differences_are_named_by_section_and_symbol() {
    let folder = tempfile::tempdir().unwrap();
    for way in [WAYS[0], WAYS[2], WAYS[3]] {
        let own = compiled(folder.path(), way);
        for (change, start) in [
            ("-DCONSTANT=1001", ".text: first"),
            ("-DCALLED=second", ".text: "),
            ("-DINITIAL=8", ".data: initial"),
            ("-DTEXT=\"tixt\"", ".rodata: "),
            ("-DROOM=200", ".bss: size is "),
            ("-DMORE", ".text: size is "),
        ] {
            let other = compiled(folder.path(), &both(way, &["-DSIZE=9000", change]));
            expect(&own, &other, start);
        }
        // A pointer to another function is one relocation, or one word.
        let other = compiled(
            folder.path(),
            &both(way, &["-DSIZE=9000", "-DTARGET=second"]),
        );
        let start = if way.contains(&"-shared") {
            ".rela.dyn: the relocations of"
        } else {
            ".data: functions+0x8"
        };
        expect(&own, &other, start);
        let library = compiled(
            folder.path(),
            &both(way, &["-DSIZE=9000", "-Wl,-z,execstack"]),
        );
        expect(
            &own,
            &library,
            "the stack permissions of one and of other differ",
        );
    }
}

#[test]
fn file_types_are_distinguished() {
    let folder = tempfile::tempdir().unwrap();
    let [library, fixed] = [WAYS[0], WAYS[3]].map(|way| compiled(folder.path(), way));
    expect(
        &library,
        &fixed,
        "the types (object, program at fixed addresses, position-independent) of one and of other differ",
    );
    let mut other = library.clone();
    other[18..20].copy_from_slice(&elf::EM_AARCH64.0.to_le_bytes());
    expect(
        &library,
        &other,
        "the machine types of one and of other differ",
    );
}

#[test]
fn names_with_a_path_are_refused_with_the_remedy() {
    let folder = tempfile::tempdir().unwrap();
    for way in WAYS {
        let own = compiled(folder.path(), way);
        for name in [
            "__omp_offloading_fe01_1a2c_main_l10",
            "__omp_offloading_fe01_1a2b3c_main_l10",
        ] {
            let other = compiled(folder.path(), &both(way, &[&format!("-DNAME=\"{name}\"")]));
            let found = differences(&own, &other);
            let expected = format!(
                "__omp_offloading_fe01_1a2b_main_l10: is in one, but other has `{name}` instead (OpenMP names kernels"
            );
            assert!(
                found.len() == 1 && found[0].starts_with(&expected),
                "{way:?} {found:?}"
            );
        }
    }
}

#[test]
fn an_older_table_of_entries_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let own = compiled(folder.path(), WAYS[0]);
    let older = super::SOURCE
        .replace("unsigned long reserved; unsigned short version, kind; unsigned flags; void *address; const char *name; unsigned long size, data; void *aux;", "void *address; const char *name; unsigned long size; int flags, reserved;")
        .replace("{ 0, 1, 1, 0, &kernel, NAME, 0, 0, 0 }, { 0, 1, 1, 0, &variable, \"the_variable\", 4, 7, 0 }", "{ &kernel, NAME, 0, 0, 0 }, { &variable, \"the_variable\", 4, 0, 0 }")
        .replace("llvm_offload_entries", "omp_offloading_entries");
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("host.c"), older).unwrap();
    let other = compiled(folder.path(), WAYS[0]);
    let found = differences(&own, &other);
    let expected = "older entry table: one has `llvm_offload_entries` with entries of 56 bytes, as in LLVM 21 and later; \
                    other has `omp_offloading_entries` with entries of 32 bytes, as in LLVM 14 to 19 \
                    (compile every build with the same LLVM version)";
    assert_eq!(found, [expected]);
}

/// The loaded ranges of a file that belong to the host, by section.
fn host_parts(data: &[u8]) -> Vec<(String, Range<u64>)> {
    let device = device_ranges(data).unwrap();
    let file = HostFile::read(data).unwrap();
    let host = |section: &&Section<'_>| {
        let has_bytes = !section.header.is_empty_in_file();
        has_bytes
            && !is_left_out(section, false)
            && !host_file::is_device(section)
            && section.header.kind != elf::SHT_DYNAMIC
    };
    let each = |section: &Section<'_>| {
        let (name, start) = (section.printable_name(), section.header.offset);
        let mut at = start;
        let mut parts = Vec::new();
        for part in host_file::within(&device, start, section.header.size) {
            parts.push((name.clone(), at..start + part.start));
            at = start + part.end;
        }
        parts.push((name, at..start + section.header.size));
        parts
    };
    file.sections.iter().filter(host).flat_map(each).collect()
}

#[test]
fn no_changed_bit_of_the_host_is_missed() {
    let folder = tempfile::tempdir().unwrap();
    for way in &WAYS[..3] {
        let own = compiled(folder.path(), way);
        let mut other = compiled(folder.path(), &both(way, &["-DSIZE=70003"]));
        let (device, other_device) = (device_ranges(&own).unwrap(), device_ranges(&other).unwrap());
        // Relocations of device code are in the host's tables.
        let parts = host_parts(&other)
            .into_iter()
            .filter(|(section, _)| !section.starts_with(".rel"));
        for (section, part) in parts {
            // Every third byte, so that each byte of a field is changed at some location.
            for at in part.clone().step_by(3) {
                let bit = 1 << (at % 8);
                other[at as usize] ^= bit;
                let one = HostHalf {
                    name: "one",
                    data: &own,
                    device: &device,
                };
                let found = compare_hosts(
                    &one,
                    &HostHalf {
                        name: "other",
                        data: &other,
                        device: &other_device,
                    },
                );
                assert!(
                    !matches!(&found, Ok(found) if found.is_empty()),
                    "{way:?}: {section}+{:#x}, bit {bit:#x}",
                    at - part.start
                );
                other[at as usize] ^= bit;
            }
        }
    }
}

#[test]
fn no_damage_ends_the_comparison() {
    let folder = tempfile::tempdir().unwrap();
    for way in [&["-c"][..], WAYS[1], WAYS[2]] {
        let whole = compiled(folder.path(), way);
        let device = device_ranges(&whole).unwrap();
        let compare = |damaged: &[u8]| {
            let _ = device_ranges(damaged);
            let one = HostHalf {
                name: "one",
                data: &whole,
                device: &device,
            };
            let other = HostHalf {
                name: "other",
                data: damaged,
                device: &device,
            };
            let _ = compare_hosts(&one, &other);
            let _ = compare_hosts(&other, &one);
        };
        for len in (0..whole.len()).step_by(13) {
            compare(&whole[..len]);
        }
        let (_, header) = FileHeader::read(&whole).unwrap();
        for at in (0..whole.len()).filter(|at| *at < 1024 || *at >= header.shoff as usize) {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                compare(&damaged);
            }
        }
    }
}

#[test]
fn excluded_sections_do_not_count() {
    let folder = tempfile::tempdir().unwrap();
    let way = &["-shared", "-fPIC", "-g"];
    let own = compiled(folder.path(), &both(way, &["-Wl,--build-id=0x0102"]));
    let other = compiled(
        folder.path(),
        &both(
            way,
            &["-Wl,--build-id=0x0304", "-fdebug-prefix-map=/=/elsewhere/"],
        ),
    );
    assert_ne!(own, other);
    assert_eq!(differences(&own, &other), [""; 0]);
    let stripped = compiled(
        folder.path(),
        &["-shared", "-fPIC", "-s", "-Wl,--build-id=0x0102"],
    );
    assert_eq!(differences(&own, &stripped), [""; 0]);
}

#[test]
fn a_program_without_section_headers_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let own = compiled(folder.path(), WAYS[0]);
    let (class, header) = FileHeader::read(&own).unwrap();
    let mut without = own.clone();
    let none = FileHeader {
        shoff: 0,
        shnum: 0,
        ..header
    };
    let head = none.to_bytes(class);
    without[..head.len()].copy_from_slice(&head);
    let half = HostHalf {
        name: "bare",
        data: &without,
        device: &[],
    };
    let error = compare_hosts(&half, &half).unwrap_err();
    assert_eq!(
        format!("{error:#}"),
        "bare: no section headers, which a merge needs to compare sections"
    );
    let mut overlapping = own.clone();
    let sections =
        SectionHeader::table(class, &own, header.shoff, header.shnum.into(), "").unwrap();
    for (index, section) in sections
        .iter()
        .enumerate()
        .filter(|(_, section)| section.kind == elf::SHT_PROGBITS)
    {
        let all = SectionHeader {
            offset: 0,
            size: own.len() as u64,
            ..*section
        };
        let at = header.shoff as usize + index * SectionHeader::size(class);
        overlapping[at..at + SectionHeader::size(class)].copy_from_slice(&all.to_bytes(class));
    }
    let half = HostHalf {
        name: "folded",
        data: &overlapping,
        device: &[],
    };
    assert!(format!("{:#}", compare_hosts(&half, &half).unwrap_err()).starts_with("folded: +"));
}
