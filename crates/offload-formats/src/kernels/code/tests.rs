//! Digests of maps that differ in places, and in what runs.

use super::{CodeDigest, Digests, Link, Map, Region, Target};

/// A map with the pieces `parts`, in this order from `start` on: the name of a variable, contents,
/// and the indices of the parts that its last four bytes each refer to.
struct Part {
    name: Option<&'static str>,
    bytes: &'static [u8],
    to: &'static [usize],
}

const fn code(bytes: &'static [u8], to: &'static [usize]) -> Part {
    Part {
        name: None,
        bytes,
        to,
    }
}

const fn variable(name: &'static str, bytes: &'static [u8]) -> Part {
    Part {
        name: Some(name),
        bytes,
        to: &[],
    }
}

/// The digest of part 0 if the parts are at the addresses `places`.
fn digest(parts: &[Part], places: &[u64]) -> CodeDigest {
    let contents: Vec<Vec<u8>> = parts
        .iter()
        .map(|part| {
            let mut bytes = part.bytes.to_vec();
            for to in part.to {
                bytes.extend((places[*to] as u32).to_le_bytes());
            }
            bytes
        })
        .collect();
    let mut map = Map::default();
    for ((part, place), bytes) in parts.iter().zip(places).zip(&contents) {
        map.add_region(
            *place,
            Region {
                bytes,
                size: bytes.len() as u64,
                is_code: false,
            },
        );
        map.add_symbol(*place, bytes.len() as u64, part.name.map(str::as_bytes));
    }
    for (part, place) in parts.iter().zip(places) {
        for (at, to) in part.to.iter().enumerate() {
            let link = Link {
                hidden: 4,
                to: Target::Address(places[*to]),
                kind: 1,
            };
            map.add_link(place + part.bytes.len() as u64 + 4 * at as u64, link);
        }
    }
    Digests::new(&map).of(&[places[0]])
}

#[test]
fn places_do_not_matter() {
    let parts = [
        code(b"kernel", &[1, 2]),
        code(b"function", &[2]),
        variable("table", b"12"),
    ];
    let one = digest(&parts, &[0x1000, 0x2000, 0x3000]);
    assert_eq!(one, digest(&parts, &[0x9000, 0x100, 0x400]));
    let more = [
        code(b"kernel", &[1, 2]),
        code(b"function", &[2]),
        variable("table", b"12"),
        code(b"another kernel", &[1]),
    ];
    assert_eq!(one, digest(&more, &[0x9000, 0x100, 0x400, 0x200]));
}

#[test]
fn everything_that_a_kernel_reaches_matters() {
    let digest_of = |parts: &[Part]| digest(parts, &[0x1000, 0x2000, 0x3000]);
    let parts = |function: &'static [u8], data: &'static [u8], name: &'static str| {
        [
            code(b"kernel", &[1, 2]),
            code(function, &[2]),
            variable(name, data),
        ]
    };
    let one = digest_of(&parts(b"function", b"12", "table"));
    assert_ne!(one, digest_of(&parts(b"functioN", b"12", "table")));
    assert_ne!(one, digest_of(&parts(b"function", b"13", "table")));
    assert_ne!(one, digest_of(&parts(b"function", b"12", "other")));
    let swapped = [
        code(b"kernel", &[2, 1]),
        code(b"function", &[2]),
        variable("table", b"12"),
    ];
    assert_ne!(one, digest_of(&swapped));
}

#[test]
fn names_have_no_hashes() {
    let digest_of = |name| {
        digest(
            &[code(b"kernel", &[1]), variable(name, b"12")],
            &[0x1000, 0x2000],
        )
    };
    let one = digest_of("_ZL1x.static.0123abcd");
    assert_eq!(one, digest_of("_ZL1x.static.9"));
    assert_ne!(one, digest_of("_ZL1y.static.9"));
}

#[test]
fn functions_that_call_each_other_have_a_digest() {
    let parts = [
        code(b"kernel", &[1]),
        code(b"even", &[2]),
        code(b"odd", &[1]),
    ];
    let one = digest(&parts, &[0x1000, 0x2000, 0x3000]);
    assert_eq!(one, digest(&parts, &[0x1000, 0x3000, 0x2000]));
}

#[test]
fn addresses_at_the_end_are_no_overflow() {
    let bytes = [1, 2, 3, 4];
    let mut map = Map::default();
    map.add_region(
        u64::MAX - 3,
        Region {
            bytes: &bytes,
            size: u64::MAX,
            is_code: true,
        },
    );
    map.add_symbol(u64::MAX - 1, u64::MAX, None);
    map.add_link(
        u64::MAX - 2,
        Link {
            hidden: u64::MAX,
            to: Target::Address(u64::MAX),
            kind: 0,
        },
    );
    Digests::new(&map).of(&[u64::MAX - 3, u64::MAX, 0]);
}
