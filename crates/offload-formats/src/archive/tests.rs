//! The archive reader on output of `llvm-ar`, on archives in thin archives from GNU ar, and on
//! damaged archives. Byte comparison of written archives with `llvm-ar`.

use std::io::Cursor;
use std::process::Command;

use object::{BinaryFormat, SymbolScope};

use super::*;
use crate::reference::tools;

/// Name and contents of each member.
fn read(data: &[u8]) -> Result<Vec<(String, Vec<u8>)>, ArchiveFault> {
    let bytes = |member: &ArchiveMember<'_>| match member.contents {
        MemberContents::Within { offset, size } => {
            data[offset as usize..(offset + size) as usize].to_vec()
        }
        MemberContents::File => b"elsewhere".to_vec(),
        MemberContents::InArchive { header } => format!("at {header}").into_bytes(),
    };
    members(data)?
        .map(|member| member.map(|member| (member.shown_name(), bytes(&member))))
        .collect()
}

/// A header with its terminating characters.
fn header_of(name: &str, size: usize) -> Vec<u8> {
    format!("{name:<16}{:<12}{:<6}{:<6}{:<8}{size:<10}`\n", 0, 0, 0, 644).into_bytes()
}

fn archive(magic: [u8; 8], parts: &[(&str, &[u8])]) -> Vec<u8> {
    let mut data = magic.to_vec();
    for (name, bytes) in parts {
        data.extend(header_of(name, bytes.len()));
        data.extend_from_slice(bytes);
        data.resize(data.len().next_multiple_of(2), b'\n');
    }
    data
}

#[test]
fn every_kind_that_llvm_ar_writes_has_the_same_members() {
    let Some([tool]) = tools(["llvm-ar"]) else {
        return;
    };
    let dir = tempfile::tempdir().unwrap();
    let files = [
        ("a.o", &b"short"[..]),
        ("a-name-that-is-longer-than-fifteen.o", b"odd"),
        ("with space.o", b""),
    ];
    for (name, bytes) in files {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let whole: Vec<(String, Vec<u8>)> = files
        .iter()
        .map(|(name, bytes)| ((*name).to_owned(), bytes.to_vec()))
        .collect();
    let thin: Vec<(String, Vec<u8>)> = whole
        .iter()
        .map(|(name, _)| (name.clone(), b"elsewhere".to_vec()))
        .collect();
    for (operation, format, expected) in [
        ("rcD", "gnu", &whole),
        ("rcD", "bsd", &whole),
        ("rcD", "darwin", &whole),
        ("rcD", "coff", &whole),
        ("rcD", "bigarchive", &whole),
        ("rcDT", "gnu", &thin),
    ] {
        let out = dir.path().join(format!("{operation}-{format}.a"));
        let mut command = Command::new(&tool);
        command
            .current_dir(dir.path())
            .args([operation, &format!("--format={format}")])
            .arg(&out);
        assert!(
            command
                .args(files.map(|(name, _)| name))
                .status()
                .unwrap()
                .success()
        );
        let mut found = read(&std::fs::read(&out).unwrap()).unwrap();
        if format == "darwin" {
            // Darwin sizes include the padding to the next multiple of 8.
            found
                .iter_mut()
                .for_each(|(_, bytes)| bytes.truncate(bytes.trim_ascii_end().len()));
        }
        assert_eq!(&found, expected, "{operation} {format}");
    }
}

#[test]
fn a_64_bit_index_and_names_are_no_members() {
    let data = archive(
        numbers::ARCHIVE,
        &[
            ("/SYM64/", &[0; 8]),
            ("//", b"long-name.o/\n"),
            ("/0", b"long"),
            ("s.o/", b"short"),
        ],
    );
    assert_eq!(
        read(&data).unwrap(),
        [
            ("long-name.o".to_owned(), b"long".to_vec()),
            ("s.o".to_owned(), b"short".to_vec())
        ]
    );
}

#[test]
fn a_member_of_an_archive_in_a_thin_one_has_its_offset() {
    let data = [
        archive(
            numbers::THIN_ARCHIVE,
            &[("/", &[0; 4]), ("//", b"a.o/\nin.a/\n")],
        ),
        header_of("/0", 9),
    ]
    .concat();
    let nested = [&data[..], &header_of("/5:78", 9), &header_of("b.o/", 9)].concat();
    let expected = [
        ("a.o", "elsewhere"),
        ("in.a", "at 78"),
        ("b.o", "elsewhere"),
    ];
    assert_eq!(
        read(&nested).unwrap(),
        expected.map(|(name, bytes)| (name.to_owned(), bytes.as_bytes().to_vec()))
    );
    // A name that is not in the table.
    let fault = read(&[&data[..], &header_of("/99:78", 9)].concat()).unwrap_err();
    assert_eq!(fault.offset, data.len() as u64);
    // No table.
    let index = archive(numbers::THIN_ARCHIVE, &[("/", &[0; 4])]);
    let first = [&index[..], &header_of("/5:78", 9)].concat();
    assert_eq!(read(&first).unwrap_err().offset, index.len() as u64);
    let whole = archive(numbers::ARCHIVE, &[("a.o/", b"first"), ("b.o/", b"second")]);
    assert_eq!(member_at(&whole, 8 + 60 + 6).unwrap().unwrap().name, b"b.o");
    assert_eq!(member_at(&whole, 9).unwrap(), None);
}

#[test]
fn a_damaged_member_is_named_with_its_offset() {
    let data = archive(numbers::ARCHIVE, &[("a.o/", b"first"), ("b.o/", b"second")]);
    let second = 8 + 60 + 6;
    let fault = |data: &[u8]| read(data).unwrap_err();
    let cut = fault(&data[..data.len() - 1]);
    assert_eq!(
        cut.in_archive(&"x.a").to_string(),
        "x.a(b.o): past the end of the archive, at offset 0x86"
    );
    assert_eq!(fault(&data[..second + 59]).offset, second as u64);
    for damaged in [second + 48, second + 58] {
        let mut data = data.clone();
        data[damaged] = b'x';
        let fault = fault(&data);
        assert_eq!(
            (fault.member.as_deref(), fault.offset),
            (Some("b.o/"), second as u64)
        );
    }
    assert_eq!(fault(b"!<arch>").offset, 7);
    // Members before a damaged one are read.
    assert_eq!(
        members(&data[..data.len() - 1])
            .unwrap()
            .filter_map(Result::ok)
            .count(),
        1
    );
}

#[test]
fn random_input_does_not_panic() {
    let data = archive(
        numbers::ARCHIVE,
        &[
            ("/SYM64/", &[0; 8]),
            ("//", b"long-name.o/\n"),
            ("/0", b"long"),
            ("#1/4", b"name.."),
        ],
    );
    for len in 0..data.len() {
        read(&data[..len]).ok();
    }
    for at in 0..data.len() {
        for value in [0, b' ', b'9', b'/', 0xff] {
            let mut data = data.clone();
            data[at] = value;
            read(&data).ok();
        }
    }
}

#[test]
fn thin_members_are_next_to_the_archive_and_long_names_are_truncated() {
    let member = |name| ArchiveMember {
        name,
        contents: MemberContents::File,
    };
    assert_eq!(
        member(b"in/a.o").file(Path::new("lib/t.a")),
        Path::new("lib/in/a.o")
    );
    assert_eq!(
        member(b"/abs/a.o").file(Path::new("lib/t.a")),
        Path::new("/abs/a.o")
    );
    assert_eq!(
        member(&[b'a'; 513]).shown_name(),
        format!("{}…", "a".repeat(512))
    );
}

fn ours(members: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let members = members
        .iter()
        .map(|(name, bytes)| NewMember {
            name: (*name).into(),
            bytes: Box::new(bytes.clone()),
        })
        .collect();
    let mut out = Cursor::new(Vec::new());
    write(members, &mut out).unwrap();
    out.into_inner()
}

/// The output of `llvm-ar rcsD` for the same members. Each name must occur only once.
fn theirs(members: &[(&str, Vec<u8>)]) -> Option<Vec<u8>> {
    let [tool] = tools(["llvm-ar"])?;
    let dir = tempfile::tempdir().unwrap();
    for (name, bytes) in members {
        std::fs::write(dir.path().join(name), bytes).unwrap();
    }
    let mut command = Command::new(tool);
    command
        .current_dir(dir.path())
        .args(["rcsD", "--format=gnu", "out.a"])
        .args(members.iter().map(|(name, _)| name));
    assert!(command.status().unwrap().success());
    Some(std::fs::read(dir.path().join("out.a")).unwrap())
}

fn object(format: BinaryFormat, defined: &[&str], common: bool) -> Vec<u8> {
    use object::write::{Object, StandardSection, Symbol, SymbolSection};
    let mut made = Object::new(
        format,
        object::Architecture::X86_64,
        object::Endianness::Little,
    );
    let section = made.section_id(StandardSection::Text);
    let symbol = |name: &str, scope, section, weak| Symbol {
        name: name.as_bytes().to_vec(),
        value: 0,
        size: 1,
        kind: SymbolKind::Text,
        scope,
        weak,
        section,
        flags: object::SymbolFlags::None,
    };
    let text = SymbolSection::Section(section);
    for name in defined {
        made.add_symbol(symbol(name, SymbolScope::Linkage, text, false));
    }
    made.add_symbol(symbol("local", SymbolScope::Compilation, text, false));
    made.add_symbol(symbol(
        "missing",
        SymbolScope::Unknown,
        SymbolSection::Undefined,
        false,
    ));
    if format == BinaryFormat::Elf {
        made.add_symbol(symbol("weak", SymbolScope::Dynamic, text, true));
    }
    if common {
        let symbol = symbol(
            "common",
            SymbolScope::Linkage,
            SymbolSection::Undefined,
            false,
        );
        made.add_common_symbol(
            Symbol {
                kind: SymbolKind::Data,
                ..symbol
            },
            8,
            8,
        );
    }
    made.write().unwrap()
}

#[test]
fn the_bytes_are_those_of_llvm_ar() {
    let elf = object(BinaryFormat::Elf, &["one", "two"], false);
    let coff = object(BinaryFormat::Coff, &["three"], false);
    let text = b"nothing with symbols, and of odd length".to_vec();
    let cases: Vec<Vec<(&str, Vec<u8>)>> = vec![
        vec![],
        vec![("a.o", elf.clone())],
        vec![
            ("a.o", elf.clone()),
            ("b.o", coff.clone()),
            ("c.txt", text.clone()),
        ],
        vec![
            ("exactly-15-longs", elf.clone()),
            ("exactly-15-long", text.clone()),
            ("a-name-that-is-much-longer.o", coff),
        ],
        vec![("c.txt", text.clone())],
        vec![
            ("a-text-with-a-very-long-name.txt", text.clone()),
            ("empty", Vec::new()),
        ],
        vec![("no-symbols.o", object(BinaryFormat::Elf, &[], true))],
    ];
    for members in cases {
        let names: Vec<&str> = members.iter().map(|(name, _)| *name).collect();
        if let Some(theirs) = theirs(&members) {
            assert_eq!(ours(&members), theirs, "{names:?}");
        }
    }
}

#[test]
fn members_with_equal_names_are_all_written() {
    let archive = ours(&[
        ("same-name-and-a-long-one.o", b"first".to_vec()),
        ("same-name-and-a-long-one.o", b"second".to_vec()),
    ]);
    let file = object::read::archive::ArchiveFile::parse(&*archive).unwrap();
    let members: Vec<_> = file
        .members()
        .map(|member| member.unwrap().data(&*archive).unwrap())
        .collect();
    assert_eq!(members, [&b"first"[..], b"second"]);
}

#[test]
fn bitcode_is_in_the_index() {
    let bitcode = include_bytes!("../bitcode/tests/clang14-host.bc");
    let archive = ours(&[
        ("host.bc", bitcode.to_vec()),
        ("cut.bc", bitcode[..bitcode.len() / 2].to_vec()),
    ]);
    let file = object::read::archive::ArchiveFile::parse(&*archive).unwrap();
    let symbols: Vec<_> = file
        .symbols()
        .unwrap()
        .unwrap()
        .map(|symbol| symbol.unwrap().name().to_vec())
        .collect();
    let defined: Vec<_> = bitcode::symbols(bitcode)
        .unwrap()
        .defined
        .into_iter()
        .map(|symbol| symbol.name.into_owned())
        .collect();
    assert_eq!(symbols, defined);
    assert!(symbols.contains(&b"gv".to_vec()), "{symbols:?}");
}

/// `llvm-ar` rejects such a member. offld writes it as a member without symbols.
#[test]
fn a_damaged_object_is_a_member_without_symbols() {
    let elf = object(BinaryFormat::Elf, &["one"], false);
    let archive = ours(&[("damaged.o", elf[..elf.len() / 2].to_vec())]);
    assert!(archive.starts_with(b"!<arch>\ndamaged.o/"), "no index");
}
