//! Bitcode from clang 14 and 22, modules assembled for these tests (`tests/*.ll`), and damaged
//! ones, read without LLVM. The suite compares many more with LLVM's tools.

use std::sync::Arc;

use super::module::Layout;
use super::*;
use crate::bitstream::{self, Block, Item, Record, Stream, Tail};
use crate::compose::join;
use crate::error::Malformed;
use crate::model::Generation;

const IMAGES: &[u8] = include_bytes!("tests/images.bc");
const SYMBOLS: &[u8] = include_bytes!("tests/symbols.bc");
/// The second module has the table of virtual functions.
const SPLIT: &[u8] = include_bytes!("tests/split.bc");
const CLANG_14: &[u8] = include_bytes!("tests/clang14-host.bc");
const CLANG_22: &[u8] = include_bytes!("tests/clang22-omp-host.bc");

fn names<'s>(symbols: &'s [Symbol<'_>]) -> Vec<(&'s str, bool)> {
    symbols
        .iter()
        .map(|symbol| (std::str::from_utf8(&symbol.name).unwrap(), symbol.weak))
        .collect()
}

#[test]
fn images_are_those_that_the_module_lists() {
    let found = embedded_images(IMAGES).unwrap();
    let found: Vec<_> = found
        .iter()
        .map(|image| (&*image.section, &image.bytes[..]))
        .collect();
    let listed = [
        &b"one"[..],
        b"one",
        b"abc\0",
        b"a-c\0",
        b"a\xffc\0",
        b"\0\x01",
    ]
    .map(|bytes| (".llvm.offloading", bytes));
    assert_eq!(found[..6], listed);
    assert_eq!(
        found[6..],
        [(".llvm.offloading.nvptx64-nvidia-cuda.sm_70", &b"old"[..])]
    );
    assert_eq!(embedded_images(SYMBOLS), Ok(Vec::new()));
}

#[test]
fn symbols_are_those_of_the_object() {
    let symbols = symbols(SYMBOLS).unwrap();
    assert_eq!(symbols.triple, "x86_64-unknown-linux-gnu");
    let strong = |name| (name, false);
    let weak = |name| (name, true);
    let defined = [
        strong("f"),
        weak("inline"),
        weak("odr"),
        strong("global"),
        strong("hidden"),
        strong("protected"),
        weak("weak"),
    ];
    let more = [
        weak("common"),
        strong("raw"),
        strong("tls"),
        weak("alias"),
        strong("chosen"),
    ];
    let asm = [".globl", "from_asm", "jmp", "to_asm", "PLT"];
    assert_eq!(
        names(&symbols.defined),
        [&defined[..], &more, &asm.map(weak)].concat()
    );
    let undefined = [
        strong("g"),
        strong("missing"),
        weak("maybe"),
        strong("inlined"),
    ];
    assert_eq!(
        names(&symbols.undefined),
        [&undefined[..], &asm.map(strong)].concat()
    );
    let named = |wanted: fn(&Symbol<'_>) -> bool| -> Vec<_> {
        symbols
            .defined
            .iter()
            .filter(|symbol| wanted(symbol))
            .map(|symbol| &symbol.name[..])
            .collect()
    };
    assert_eq!(
        named(|symbol| symbol.hidden),
        [&b"inline"[..], b"hidden", b"chosen"]
    );
    assert_eq!(named(|symbol| symbol.common), [b"common"]);
    assert_eq!((symbols.entries, symbols.refers_to_bounds), (None, false));
}

#[test]
fn names_are_as_windows_has_them() {
    let symbols = symbols(include_bytes!("tests/mangled.bc")).unwrap();
    assert_eq!(names(&symbols.defined), [("_x", false), ("_raw", false)]);
}

#[test]
fn the_generation_follows_from_the_entries() {
    let entries = |bitcode| symbols(bitcode).unwrap().entries;
    assert_eq!(entries(CLANG_22), Some(Generation::Llvm21));
    assert_eq!(
        entries(include_bytes!("tests/entries-15.bc")),
        Some(Generation::Llvm15)
    );
    assert_eq!(
        entries(include_bytes!("tests/entries-15-i386.bc")),
        Some(Generation::Llvm15)
    );
    assert_eq!(
        entries(include_bytes!("tests/entries-20.bc")),
        Some(Generation::Llvm20)
    );
    assert_eq!(
        entries(include_bytes!("tests/entries-coff.bc")),
        Some(Generation::Llvm21)
    );
    assert!(!symbols(CLANG_22).unwrap().refers_to_bounds);
}

#[test]
fn modules_of_clang_14_are_read() {
    // Typed pointers. Assembled by llvm-as 14 from clang14-omp-host.ll, with an image in a named
    // section.
    let found = symbols(CLANG_14).unwrap();
    assert_eq!(
        (found.entries, producer_major(CLANG_14)),
        (Some(Generation::Llvm14), Some(14))
    );
    assert!(names(&found.undefined).contains(&("__tgt_target_mapper", false)));
    let images = embedded_images(CLANG_14).unwrap();
    let images: Vec<_> = images
        .iter()
        .map(|image| (&*image.section, &image.bytes[..]))
        .collect();
    assert_eq!(
        images,
        [(".llvm.offloading.x86_64-unknown-linux-gnu.", &b"RAW"[..])]
    );
}

#[test]
fn all_modules_of_a_file_are_read() {
    let found = symbols(SPLIT).unwrap();
    let defined = names(&found.defined);
    // The first module declares the table, the second one defines it.
    assert!(
        defined.contains(&("_ZTV1A", false)) && defined.contains(&("_ZN1A1fEv", false)),
        "{defined:?}"
    );
    assert_eq!(embedded_images(SPLIT), Ok(Vec::new()));
}

fn wrapped(bitcode: &[u8]) -> Vec<u8> {
    let mut wrapped = 0x0b17_c0deu32.to_le_bytes().to_vec();
    for field in [0, 20, bitcode.len() as u32, 7] {
        wrapped.extend(field.to_le_bytes());
    }
    wrapped.extend(bitcode);
    wrapped
}

#[test]
fn a_wrapped_module_is_read() {
    let mut wrapped = wrapped(SYMBOLS);
    wrapped.extend([0; 12]);
    assert_eq!(symbols(&wrapped), symbols(SYMBOLS));
    let at = |data: &[u8]| symbols(data).unwrap_err().at;
    assert_eq!(
        at(&wrapped[..100]),
        8,
        "the wrapper says how long the bitcode is"
    );
    wrapped[20] = 0;
    assert_eq!(at(&wrapped), 20, "offsets are those in the file");
}

/// The bytes of `stream`.
fn written(stream: &Stream) -> Vec<u8> {
    join(&[], &bitstream::write(stream).unwrap().parts, &[]).unwrap()
}

fn long(values: &[u64]) -> Item {
    Item::Record(Record {
        abbreviation: None,
        values: values.to_vec(),
        tail: Tail::None,
    })
}

fn block(id: u32, items: Vec<Item>) -> Item {
    Item::Block(Block {
        id,
        width: 3,
        items,
        inherited: 0,
        was_at: 0,
    })
}

fn text(code: u64, text: &str) -> Item {
    long(
        &[
            &[code],
            &text.bytes().map(u64::from).collect::<Vec<_>>()[..],
        ]
        .concat(),
    )
}

#[test]
fn what_later_releases_add_is_skipped() {
    for bitcode in [SYMBOLS, IMAGES] {
        let mut stream = bitstream::read(bitcode).unwrap();
        let later = || [long(&[99, 1, 2, 3]), block(77, vec![long(&[1, 2])])];
        for item in &mut stream.items {
            let Item::Block(module) = item else { continue };
            for item in &mut module.items {
                match item {
                    // Variables, functions, aliases, ifuncs.
                    Item::Record(Record {
                        abbreviation: None,
                        values,
                        ..
                    }) if matches!(values[0], 7 | 8 | 14 | 18) => {
                        values.extend([5, 6, 7, 8, 9, 10, 11, 12, 13, 14]);
                    }
                    // Constants, metadata, types.
                    Item::Block(inner) if [11, 15, 17].contains(&inner.id) => {
                        inner.items.extend(later())
                    }
                    _ => {}
                }
            }
            if module.id == 8 {
                module.items.splice(0..0, later());
                module.items.extend(later());
            }
        }
        stream.items.splice(1..1, [block(77, vec![])]);
        let later = written(&stream);
        assert!(later.len() > bitcode.len());
        assert_eq!(symbols(&later), symbols(bitcode));
        assert_eq!(embedded_images(&later), embedded_images(bitcode));
    }
    let next = written(&Stream {
        items: vec![block(8, vec![long(&[1, 3])])],
    });
    assert_eq!(
        symbols(&next).unwrap_err().what,
        "a module of a version later than LLVM 22"
    );
}

/// LLVM 3.6: names are in a separate table, types are those of pointers, and aliases have no value
/// type.
#[test]
fn old_modules_have_their_names_in_a_table() {
    let types = block(
        17,
        vec![
            long(&[1, 4]),
            long(&[7, 32]),
            long(&[8, 0, 0]),
            long(&[18, 0, 0, 0]),
            long(&[8, 2, 0]),
        ],
    );
    let records = [
        long(&[7, 1, 0, 6, 0, 0, 0]),
        long(&[7, 3, 1, 6, 1, 0, 1, 1]),
        long(&[8, 1, 0, 1, 7, 0, 0, 0, 0]),
        long(&[9, 1, 0, 4, 0]),
    ];
    let mut names = vec![
        text(1, "\0variable"),
        text(1, "\u{1}entry"),
        text(3, "\u{2}\0maybe"),
        text(1, "\u{3}alias"),
    ];
    names.push(long(&[1, 1 << 40, 120]));
    let triple = [text(2, "nvptx64"), text(5, "omp_offloading_entries")];
    let items = [
        vec![types],
        triple.into(),
        records.into(),
        vec![block(14, names)],
    ]
    .concat();
    let found = written(&Stream {
        items: vec![block(8, items)],
    });
    let found = symbols(&found).unwrap();
    assert_eq!(
        names_of(&found),
        ("variable entry alias".into(), "maybe".into())
    );
    assert_eq!(
        (found.triple.as_str(), found.entries),
        ("nvptx64", Some(Generation::Llvm15))
    );
}

/// The defined and the undefined symbols, weak ones last in each.
fn names_of(symbols: &ModuleSymbols<'_>) -> (String, String) {
    let joined = |symbols: &[Symbol<'_>]| {
        let mut all = names(symbols);
        all.sort_by_key(|(_, weak)| *weak);
        all.into_iter()
            .map(|(name, _)| name)
            .collect::<Vec<_>>()
            .join(" ")
    };
    (joined(&symbols.defined), joined(&symbols.undefined))
}

#[test]
fn truncated_modules_are_errors_with_offsets() {
    for whole in [SYMBOLS, IMAGES] {
        for len in 0..whole.len() {
            let cut = &whole[..len];
            producer(cut);
            // Up to eight bytes after the last block are padding.
            for fault in [symbols(cut).err(), embedded_images(cut).err()] {
                assert!(
                    fault.is_some_and(|fault| fault.at <= len as u64),
                    "{len} of {}: {fault:?}",
                    whole.len()
                );
            }
        }
    }
    assert_eq!(
        symbols(b"not bitcode at all.."),
        Err(Malformed::new("not a bitstream", 0))
    );
}

#[test]
fn damaged_bytes_do_not_panic() {
    let mut faults = 0;
    for whole in [SYMBOLS, IMAGES, &wrapped(SYMBOLS)] {
        for at in 0..whole.len() {
            for flip in [0x01, 0x80, 0xff] {
                let mut bytes = whole.to_vec();
                bytes[at] ^= flip;
                producer(&bytes);
                let fault = symbols(&bytes).err();
                let _ = embedded_images(&bytes);
                assert!(
                    fault.is_none_or(|fault| fault.at <= bytes.len() as u64),
                    "{fault:?}"
                );
                faults += usize::from(fault.is_some());
            }
        }
    }
    assert!(faults > 1000, "{faults}");
}

#[test]
fn small_files_cannot_request_much_memory() {
    let abbreviation = |operands: &[bitstream::Operand]| {
        Arc::new(bitstream::Abbreviation {
            operands: operands.to_vec(),
        })
    };
    // Hundreds of literals in each record of a few bits.
    let many = abbreviation(&[bitstream::Operand::Literal(99); 400]);
    let record = Item::Record(Record {
        abbreviation: Some((4, Arc::clone(&many))),
        values: vec![99; 400],
        tail: Tail::None,
    });
    let mut items = vec![Item::Abbreviation(many)];
    items.extend(vec![record; 4000]);
    let bytes = written(&Stream {
        items: vec![block(8, items)],
    });
    assert_eq!(
        symbols(&bytes).unwrap_err().what,
        "too many values of zero bits"
    );
    // One long name shared by many symbols.
    let globals = (0..1000).map(|_| long(&[7, 0, 4000, 0, 2, 0, 0, 0, 0]));
    let items = std::iter::once(long(&[1, 2])).chain(globals).collect();
    let blob = abbreviation(&[bitstream::Operand::Literal(1), bitstream::Operand::Blob]);
    let names = Record {
        abbreviation: Some((4, Arc::clone(&blob))),
        values: vec![1],
        tail: Tail::Blob(vec![b'x'; 4000]),
    };
    let table = block(23, vec![Item::Abbreviation(blob), Item::Record(names)]);
    let bytes = written(&Stream {
        items: vec![block(8, items), table],
    });
    assert_eq!(
        symbols(&bytes).unwrap_err().what,
        "symbols share their names"
    );
}

#[test]
fn arrays_without_bits_are_refused() {
    use bitstream::Operand::{Array, Fixed, Literal};
    // LLVM defines such arrays in modules without types, but must not use them then.
    let defined = Arc::new(bitstream::Abbreviation {
        operands: vec![Literal(99), Array, Fixed(0)],
    });
    let using = |values: &[u64]| Record {
        abbreviation: Some((4, Arc::clone(&defined))),
        values: values.to_vec(),
        tail: Tail::None,
    };
    let module = |record: Record| {
        written(&Stream {
            items: vec![block(
                8,
                vec![
                    Item::Abbreviation(Arc::clone(&defined)),
                    Item::Record(record),
                ],
            )],
        })
    };
    assert_eq!(symbols(&module(using(&[99]))), Ok(ModuleSymbols::default()));
    assert_eq!(
        symbols(&module(using(&[99, 0, 0]))).unwrap_err().what,
        "an array with elements of zero bits"
    );
}

/// The first 48 bytes of a file from clang 19.1.7: magic, identification block, start of the
/// module.
#[rustfmt::skip]
const CLANG_19: &[u8] = &[
    0x42, 0x43, 0xc0, 0xde, 0x35, 0x14, 0x00, 0x00, 0x05, 0x00, 0x00, 0x00, 0x62, 0x0c, 0x30, 0x24,
    0x4a, 0x59, 0xbe, 0x66, 0xdd, 0xfb, 0xb5, 0xbf, 0x0b, 0x51, 0x80, 0x4c, 0x01, 0x00, 0x00, 0x00,
    0x21, 0x0c, 0x00, 0x00, 0x99, 0x01, 0x00, 0x00, 0x0b, 0x02, 0x21, 0x00, 0x02, 0x00, 0x00, 0x00,
];

#[test]
fn reads_the_producer() {
    assert_eq!(producer(CLANG_19).as_deref(), Some("LLVM19.1.7"));
    assert_eq!(producer_major(CLANG_19), Some(19));
}

#[test]
fn reads_through_the_wrapper() {
    let mut wrapped = BITCODE_WRAPPER.to_vec();
    for field in [0, 20, CLANG_19.len() as u32, 7] {
        wrapped.extend(field.to_le_bytes());
    }
    wrapped.extend(CLANG_19);
    assert_eq!(producer_major(&wrapped), Some(19));
}

#[test]
fn survives_every_prefix_and_every_flip() {
    for len in 0..CLANG_19.len() {
        producer(&CLANG_19[..len]);
    }
    for bit in 0..CLANG_19.len() * 8 {
        let mut bytes = CLANG_19.to_vec();
        bytes[bit / 8] ^= 1 << (bit % 8);
        producer(&bytes);
    }
    assert_eq!(producer(b"\x7fELF"), None);
}

#[test]
fn sizes_are_those_of_the_target() {
    let x86_64 = Layout::read(
        b"e-m:e-p270:32:32-p271:32:32-p272:64:64-i64:64-i128:128-f80:128-n8:16:32:64-S128",
    );
    assert_eq!(
        (x86_64.pointer(0), x86_64.pointer(270), x86_64.pointer(3)),
        ((8, 8), (4, 4), (8, 8))
    );
    assert_eq!(
        (x86_64.integer(64), x86_64.integer(128), x86_64.integer(24)),
        ((8, 8), (16, 16), (4, 4))
    );
    let i386 = Layout::read(b"e-m:x-p:32:32-p270:32:32-i128:128-f64:32:64");
    assert_eq!(
        (i386.pointer(0), i386.integer(64), i386.prefix),
        ((4, 4), (8, 4), "_")
    );
    assert_eq!(Layout::read(b"").integer(64), (8, 4));
    assert_eq!(Layout::read(b"pe7:160:256:256:32").pointer(7), (20, 32));
    assert_eq!(
        Layout::read(b"p:x-i8-i:-p:::-i18446744073709551615:8").pointer(0),
        (8, 8)
    );
}
