//! Byte comparison of archives with `llvm-ar`, and round trips through offld's reader.

use crate::archive::*;
use crate::reference::tools;
use object::{BinaryFormat, SymbolScope};
use std::io::Cursor;
use std::process::Command;

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
    let bitcode = include_bytes!("../../bitcode/tests/clang14-host.bc");
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
