//! Tests of the fatbinary reader with the exact output of NVIDIA's tool and with damaged data. An
//! edited fatbinary equals one made from the same entries. The suite tests that NVIDIA's tools read
//! it.

use super::*;
use crate::compose::join;
use crate::reference::Outcome;

/// An entry in the form that `fatbinary` writes, with `name` after the header.
fn entry(kind: u16, arch: u32, flags: u64, name: &[u8], stored: &[u8], plain_size: u64) -> Vec<u8> {
    let mut extra = name.to_vec();
    extra.resize(extra.len().next_multiple_of(8), 0);
    let mut body = stored.to_vec();
    body.resize(body.len().next_multiple_of(8), 0);
    let packed = if plain_size > 0 {
        stored.len() as u32
    } else {
        0
    };
    let mut all = Vec::new();
    all.extend([kind, 0x101].map(u16::to_le_bytes).concat());
    all.extend((64 + extra.len() as u32).to_le_bytes());
    all.extend((body.len() as u64).to_le_bytes());
    all.extend([packed, 0].map(u32::to_le_bytes).concat());
    all.extend([8u16, 1].map(u16::to_le_bytes).concat());
    let name_at = if name.is_empty() { 0 } else { 64 };
    all.extend(
        [arch, name_at, name.len() as u32]
            .map(u32::to_le_bytes)
            .concat(),
    );
    all.extend([flags, 0, plain_size].map(u64::to_le_bytes).concat());
    [all, extra, body].concat()
}

fn fatbin(entries: &[Vec<u8>]) -> Vec<u8> {
    let entries = entries.concat();
    [
        &MAGIC[..],
        &[1, 0, 16, 0],
        &(entries.len() as u64).to_le_bytes(),
        &entries,
    ]
    .concat()
}

fn sample() -> Vec<u8> {
    fatbin(&[
        entry(2, 80, 0x11, b"", b"\x7fELF cubin", 0),
        entry(2, 90, 0x10_8011, b"some.cu", b"\x28\xb5\x2f\xfdzstd", 7000),
        entry(1, 100, 0x20_2013, b"", b"lz4", 99),
    ])
}

#[test]
fn entries_are_what_their_headers_say() {
    let data = sample();
    let all = read_all(&data).unwrap();
    let [fatbin] = &all[..] else {
        panic!("{all:?}")
    };
    assert_eq!(
        (fatbin.at, fatbin.size, fatbin.version),
        (0, data.len() as u64, 1)
    );
    let summary: Vec<_> = fatbin
        .entries
        .iter()
        .map(|entry| (entry.kind, entry.arch.as_str(), entry.method, entry.debug))
        .collect();
    let expected = [
        (Kind::Elf, "sm_80", None, false),
        (Kind::Elf, "sm_90a", Some(Method::Zstd), false),
        (Kind::Ptx, "sm_100f", Some(Method::Lz4), true),
    ];
    assert_eq!(summary, expected);
    let [plain, zstd, lz4] = &fatbin.entries[..] else {
        panic!("{fatbin:?}")
    };
    assert_eq!(
        (plain.stored, plain.plain_size, plain.at),
        (&b"\x7fELF cubin\0\0\0\0\0\0"[..], 16, 16 + 64)
    );
    assert_eq!(
        (zstd.stored, zstd.plain_size, zstd.name),
        (&b"\x28\xb5\x2f\xfdzstd"[..], 7000, &b"some.cu"[..])
    );
    assert_eq!((lz4.stored, lz4.plain_size), (&b"lz4"[..], 99));
    assert_eq!(&data[zstd.at as usize..][..8], zstd.stored);
}

#[test]
fn consecutive_fatbinaries_may_have_zeros_between_them() {
    let one = sample();
    let data = [&one[..], &[0; 24], &one, &[0; 5]].concat();
    let all = read_all(&data).unwrap();
    let places: Vec<u64> = all.iter().map(|fatbin| fatbin.at).collect();
    assert_eq!(places, [0, one.len() as u64 + 24]);
    assert_eq!(all[1].entries[0].at, one.len() as u64 + 24 + 80);
    assert_eq!(read_all(&[0; 8]).unwrap(), []);
    let fault = read_all(&[&one[..], b"junk"].concat()).unwrap_err();
    assert_eq!(fault, Malformed::new("not a fatbinary", one.len() as u64));
}

#[test]
fn no_prefix_and_no_changed_byte_breaks_the_reader() {
    let data = sample();
    for len in 1..data.len() {
        assert!(read_all(&data[..len]).is_err(), "cut at {len}");
    }
    for at in 0..data.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = data.clone();
            changed[at] = value;
            let _ = read_all(&changed);
        }
    }
}

/// A cubin with its section headers in front and a section that ends in zeros behind them, as those
/// for SGEMM in cuBLAS are.
#[test]
fn a_cubin_ends_behind_its_tables_and_its_sections() {
    let mut cubin = Vec::from(*b"\x7fELF\x02\x01\x01\x33\x07");
    cubin.resize(16, 0);
    cubin.extend([1u16, 190].map(u16::to_le_bytes).concat());
    cubin.extend(1u32.to_le_bytes());
    cubin.extend([0u64, 0, 64].map(u64::to_le_bytes).concat());
    cubin.extend(0x003c_0532_u32.to_le_bytes());
    cubin.extend([64u16, 56, 0, 64, 1, 0].map(u16::to_le_bytes).concat());
    // The section: 12 bytes behind its header.
    cubin.extend([1u32, 1].map(u32::to_le_bytes).concat());
    cubin.extend([0u64, 0, 128, 12].map(u64::to_le_bytes).concat());
    cubin.extend([0u32, 0].map(u32::to_le_bytes).concat());
    cubin.extend([4u64, 0].map(u64::to_le_bytes).concat());
    cubin.extend(*b"code\0\0\0\x01\0\0\0\0");
    let end = cubin.len() as u64;
    assert_eq!(end, 140);
    cubin.resize(144, 0);
    assert_eq!(
        unpadded(Kind::Elf, &cubin),
        end,
        "the padding to 8 bytes does not count"
    );
    assert_eq!(unpadded(Kind::Elf, &cubin[..end as usize]), end);
    // A section that is past the end does not make it longer.
    cubin[96] = 0xff;
    assert_eq!(unpadded(Kind::Elf, &cubin), 144);
}

type NewItem<'a> = Item<NewEntry<'a>, Code>;

fn new(old: &[u8], items: &[NewItem<'_>], contents: &[&[u8]]) -> Result<Vec<u8>, Malformed> {
    join(old, &compose(old, items)?, contents)
}

/// The entries of `sample`.
fn entries() -> [Vec<u8>; 3] {
    [
        entry(2, 80, 0x11, b"", b"\x7fELF cubin", 0),
        entry(2, 90, 0x10_8011, b"some.cu", b"\x28\xb5\x2f\xfdzstd", 7000),
        entry(1, 100, 0x20_2013, b"", b"lz4", 99),
    ]
}

#[test]
fn entries_can_go_and_change_places() -> Outcome {
    let (old, all) = (sample(), entries());
    for places in [&[][..], &[0], &[1], &[2], &[0, 2], &[2, 1, 0], &[0, 1, 2]] {
        let items: Vec<NewItem> = places.iter().map(|place| Item::Old(*place)).collect();
        let wanted: Vec<Vec<u8>> = places.iter().map(|place| all[*place].clone()).collect();
        assert_eq!(new(&old, &items, &[])?, fatbin(&wanted), "{places:?}");
    }
    assert_eq!(
        compose(&old, &[Item::Old(0), Item::Old(1), Item::Old(2)])?,
        [Part::Old(0..old.len() as u64)]
    );
    assert_eq!(
        new(&old, &[], &[])?,
        [&MAGIC[..], &[1, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0]].concat()
    );
    Ok(())
}

#[test]
fn data_around_the_entries_is_handled() -> Outcome {
    // A longer header than any tool writes, padding that is not zero, and another fatbinary after
    // it.
    let first = { entries()[0].clone() };
    let second = {
        let mut entry = entries()[1].clone();
        let last = entry.len() - 1;
        entry[last] = 0xee;
        entry
    };
    let head = |size: usize| {
        [
            &MAGIC[..],
            &[1, 0, 24, 0],
            &(size as u64).to_le_bytes(),
            b"whatever",
        ]
        .concat()
    };
    let data = [
        head(first.len() + second.len()),
        first,
        second.clone(),
        sample(),
    ]
    .concat();
    assert_eq!(
        new(&data, &[Item::Old(1)], &[])?,
        [head(second.len()), second].concat()
    );
    Ok(())
}

#[test]
fn code_can_be_replaced_and_recompressed() -> Outcome {
    let (old, all) = (sample(), entries());
    let other = Code {
        method: Some(Method::Zstd),
        stored: 9,
        plain_size: 5000,
    };
    let items = [
        Item::Changed {
            entry: 0,
            size: other,
        },
        Item::Changed {
            entry: 1,
            size: Code::plain(11),
        },
        Item::Old(2),
    ];
    let wanted = [
        entry(2, 80, 0x8011, b"", b"nine byte", 5000),
        entry(2, 90, 0x10_0011, b"some.cu", b"hello world", 0),
        all[2].clone(),
    ];
    assert_eq!(
        new(&old, &items, &[b"nine byte", b"hello world"])?,
        fatbin(&wanted)
    );
    let lz4 = Code {
        method: Some(Method::Lz4),
        stored: 4,
        plain_size: 3,
    };
    let wanted = entry(2, 90, 0x10_2011, b"some.cu", b"four", 3);
    assert_eq!(
        new(
            &old,
            &[Item::Changed {
                entry: 1,
                size: lz4
            }],
            &[b"four"]
        )?,
        fatbin(&[wanted])
    );
    Ok(())
}

#[test]
fn entries_come_from_other_fatbinaries() -> Outcome {
    let (old, all) = (fatbin(&entries()[..1]), entries());
    let other = sample();
    let from = &read_all(&other)?[0].entries[1];
    assert_eq!((from.header, from.header.len()), (&all[1][..72], 72));
    let code = Code {
        method: from.method,
        stored: from.stored.len() as u64,
        plain_size: from.plain_size,
    };
    let items = [
        Item::Old(0),
        Item::New(NewEntry {
            header: from.header,
            code,
        }),
    ];
    assert_eq!(new(&old, &items, &[from.stored])?, fatbin(&all[..2]));
    // The result has the requested properties.
    let merged = new(&old, &items, &[from.stored])?;
    let read = &read_all(&merged)?[0].entries[1];
    assert_eq!(
        (read.method, read.stored, read.plain_size, read.name),
        (from.method, from.stored, 7000, &b"some.cu"[..])
    );
    Ok(())
}

#[test]
fn invalid_requests_and_fatbinaries_are_errors() {
    let old = sample();
    let fault = |item: NewItem| compose(&old, &[item]).expect_err("an error").what;
    assert_eq!(fault(Item::Old(3)), "the fatbinary has no such entry");
    for header in [&[][..], &[0; 64], &entries()[1][..64]] {
        assert_eq!(
            fault(Item::New(NewEntry {
                header,
                code: Code::plain(1)
            })),
            "not a header of a fatbinary entry"
        );
    }
    assert_eq!(
        fault(Item::Changed {
            entry: 0,
            size: Code::plain(u64::MAX)
        }),
        TOO_LARGE.what
    );
    let huge = Code {
        method: Some(Method::Zstd),
        stored: 1 << 32,
        plain_size: 1 << 40,
    };
    assert_eq!(
        fault(Item::Changed {
            entry: 0,
            size: huge
        }),
        TOO_LARGE.what
    );
    let twice = [
        Item::Changed {
            entry: 0,
            size: Code::plain(u64::MAX - 200),
        },
        Item::Changed {
            entry: 0,
            size: Code::plain(300),
        },
    ];
    assert_eq!(compose(&old, &twice), Err(TOO_LARGE));
    assert!(
        compose(&old, &[Item::Old(0); 40])
            .is_err_and(|fault| fault.what == "the entries of the container overlap")
    );
}

#[test]
fn no_prefix_and_no_changed_byte_makes_it_panic() {
    let old = sample();
    let items = [
        Item::Old(2),
        Item::Changed {
            entry: 1,
            size: Code::plain(3),
        },
    ];
    for len in 0..old.len() {
        assert!(compose(&old[..len], &items).is_err(), "cut at {len}");
    }
    for at in 0..old.len() {
        for value in [0, 1, 0x7f, 0xff] {
            let mut changed = old.clone();
            changed[at] = value;
            if let Ok(parts) = compose(&changed, &items) {
                assert!(
                    join(&changed, &parts, &[b"new"])
                        .is_ok_and(|new| new.len() < 2 * old.len() && read_all(&new).is_ok())
                );
            }
        }
    }
}

#[test]
fn lz4_is_one_block() -> Outcome {
    let plain = b"some code, some more code, and some code again, some code".repeat(20);
    let packed = lz4(&plain);
    assert!(packed.len() < plain.len() / 4);
    assert_eq!(lz4_flex::block::decompress(&packed, plain.len())?, plain);
    Ok(())
}
