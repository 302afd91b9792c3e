//! The reader on real programs and libraries, compared with `object`, and on linker output for
//! other architectures.

use object::elf;
use object::read::elf::{Dyn as _, ProgramHeader as _};

use super::*;
use crate::elf::interface::interface;
use crate::reference::{run, tools};

/// This program and its loaded libraries.
fn real_files() -> Vec<Vec<u8>> {
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    // Executable mappings. Concurrent tests map other files to read them.
    let executable = maps.lines().filter(|line| {
        line.split_ascii_whitespace()
            .nth(1)
            .is_some_and(|rights| rights.contains('x'))
    });
    let paths: std::collections::BTreeSet<&str> = executable
        .filter_map(|line| line.split_ascii_whitespace().nth(5))
        .filter(|path| path.starts_with('/'))
        .collect();
    let files: Vec<Vec<u8>> = paths
        .iter()
        .filter_map(|path| std::fs::read(path).ok())
        .collect();
    files
        .into_iter()
        .filter(|file| file.starts_with(&magic::ELF))
        .collect()
}

/// Without section headers, like some distributed programs.
fn without_sections(mut file: Vec<u8>) -> Vec<u8> {
    file[0x28..0x30].fill(0);
    file[0x3c..0x40].fill(0);
    file
}

/// The entries of this kind that `object` reads from a dynamic section, as text.
fn of_object(file: &[u8], tag: elf::DynamicTag) -> Vec<&[u8]> {
    let header = FileHeader64::<Endianness>::parse(file).unwrap();
    let endian = header.endian().unwrap();
    let sections = header.sections(endian, file).unwrap();
    let Some((entries, link)) = sections.dynamic(endian, file).unwrap() else {
        return Vec::new();
    };
    let strings = sections.strings(endian, file, link).unwrap();
    let own = entries.iter().filter(|entry| entry.tag(endian) == tag);
    own.map(|entry| entry.string(endian, strings).unwrap())
        .collect()
}

#[test]
fn the_result_equals_that_of_object() {
    let files = real_files();
    assert!(files.len() > 1);
    for file in files {
        let ours = read(&file).unwrap();
        assert_eq!(ours.needed, of_object(&file, elf::DT_NEEDED));
        assert_eq!(ours.rpath, of_object(&file, elf::DT_RPATH));
        assert_eq!(ours.runpath, of_object(&file, elf::DT_RUNPATH));
        assert_eq!(ours.soname, of_object(&file, elf::DT_SONAME).pop());
        let header = FileHeader64::<Endianness>::parse(&file[..]).unwrap();
        let endian = header.endian().unwrap();
        let loader = header.program_headers(endian, &file[..]).unwrap().iter();
        let loader = loader
            .filter_map(|segment| segment.interpreter(endian, &file[..]).unwrap())
            .next();
        assert_eq!(ours.interpreter, loader);
        assert_eq!((ours.machine, ours.is_64), (header.e_machine(endian), true));
        assert_eq!(read(&without_sections(file.clone())).unwrap(), ours);
    }
}

#[test]
fn exported_symbols_are_found_and_imported_ones_are_not() {
    let is_libc = |file: &&Vec<u8>| {
        read(file)
            .unwrap()
            .soname
            .is_some_and(|name| name.starts_with(b"libc.so"))
    };
    let files = real_files();
    let libc = files
        .iter()
        .find(is_libc)
        .expect("tests are linked with libc");
    for file in [libc.clone(), without_sections(libc.clone())] {
        assert_eq!(exports(&file, b"printf"), Ok(true));
        assert_eq!(exports(&file, b"no_such_function"), Ok(false));
    }
    // This program imports it.
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(exports(&own, b"__libc_start_main"), Ok(false));
}

#[test]
fn a_file_without_segments_is_read_by_its_sections() {
    for file in real_files() {
        let Some(stub) = interface(&file) else {
            continue;
        };
        let (stub, whole) = (read(&stub).unwrap(), read(&file).unwrap());
        assert_eq!(
            Dynamic {
                interpreter: whole.interpreter,
                ..stub
            },
            whole
        );
    }
}

#[test]
fn every_class_and_byte_order_is_read() {
    let Some([clang, lld]) = tools(["clang", "ld.lld"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    std::fs::write(dir.path().join("a.c"), "int own(void) { return 1; }").unwrap();
    for (triple, is_64) in [
        ("i686-linux-gnu", false),
        ("powerpc-linux-gnu", false),
        ("s390x-linux-gnu", true),
    ] {
        run(
            &clang,
            dir.path(),
            [
                "-c",
                "-fPIC",
                "-o",
                "a.o",
                "a.c",
                &format!("--target={triple}"),
            ],
        )
        .unwrap();
        run(
            &lld,
            dir.path(),
            [
                "-shared",
                "-soname",
                "libneeded.so.1",
                "-o",
                "libneeded.so",
                "a.o",
            ],
        )
        .unwrap();
        for (option, is_new) in [("--disable-new-dtags", false), ("--enable-new-dtags", true)] {
            for style in ["--hash-style=gnu", "--hash-style=sysv"] {
                let words = [
                    "-shared",
                    "-soname",
                    "libown.so",
                    "-rpath",
                    "/one:$ORIGIN/two",
                    option,
                    style,
                ];
                let words: Vec<&str> = words
                    .into_iter()
                    .chain(["a.o", "libneeded.so", "-o", "libown.so"])
                    .collect();
                run(&lld, dir.path(), words).unwrap();
                let file = std::fs::read(dir.path().join("libown.so")).unwrap();
                let found = read(&file).unwrap();
                assert_eq!(
                    (found.soname, found.is_64),
                    (Some(&b"libown.so"[..]), is_64)
                );
                assert_eq!(found.needed, [b"libneeded.so.1"]);
                let (with, without) = if is_new {
                    (found.runpath, found.rpath)
                } else {
                    (found.rpath, found.runpath)
                };
                assert_eq!((with, without), (vec![&b"/one:$ORIGIN/two"[..]], vec![]));
                assert_eq!(exports(&file, b"own"), Ok(true), "{triple} {style}");
            }
        }
    }
}

#[test]
fn faults_have_offsets() {
    assert_eq!(read(b"text"), Err(Malformed::new("not an ELF file", 0)));
    assert_eq!(
        read(b"\x7fELF\x03"),
        Err(Malformed::new("neither a 32-bit nor a 64-bit ELF file", 4))
    );
    assert_eq!(
        read(b"\x7fELF\x02\x01"),
        Err(Malformed::new("ELF header damaged or past the end", 0))
    );
    let own = std::fs::read(std::env::current_exe().unwrap()).unwrap();
    assert_eq!(
        read(&own[..64]),
        Err(Malformed::new("program headers past the end", 64))
    );
    for len in (0..own.len()).step_by(own.len() / 50 + 1) {
        let _ = (read(&own[..len]), exports(&own[..len], b"main"));
    }
}

#[test]
fn damaged_headers_and_dynamic_sections_do_not_panic() {
    let smallest = real_files().into_iter().min_by_key(Vec::len).unwrap();
    let header = FileHeader64::<Endianness>::parse(&smallest[..]).unwrap();
    let endian = header.endian().unwrap();
    let segments = header.program_headers(endian, &smallest[..]).unwrap();
    let dynamic = segments
        .iter()
        .find(|segment| segment.p_type(endian) == elf::PT_DYNAMIC)
        .unwrap()
        .file_range(endian);
    let places =
        (0..64 + 56 * segments.len()).chain(dynamic.0 as usize..(dynamic.0 + dynamic.1) as usize);
    for at in places {
        for value in [0, 0x7f, 0xff] {
            let mut damaged = smallest.clone();
            damaged[at] = value;
            let _ = (read(&damaged), exports(&damaged, b"main"));
        }
    }
}
