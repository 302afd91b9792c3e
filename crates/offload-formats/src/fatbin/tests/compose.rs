//! An edited fatbinary equals one made from the same entries. The suite tests that NVIDIA's tools
//! read it.

use crate::compose::join;
use crate::fatbin::tests::{entry, fatbin, sample};
use crate::fatbin::*;
use crate::reference::Outcome;

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
