//! Zip files that the tests make: intact, damaged, and with false claims.

use std::collections::HashSet;
use std::io::{Read, Write};

use super::*;
use crate::error::Malformed;

/// A member to write: name, contents, method.
struct New<'a> {
    name: &'a str,
    plain: &'a [u8],
    method: u16,
}

fn new<'a>(name: &'a str, plain: &'a [u8], method: u16) -> New<'a> {
    New {
        name,
        plain,
        method,
    }
}

fn packed(plain: &[u8], method: u16) -> Vec<u8> {
    match method {
        8 => {
            let mut encoder =
                flate2::write::DeflateEncoder::new(Vec::new(), flate2::Compression::best());
            encoder.write_all(plain).unwrap();
            encoder.finish().unwrap()
        }
        93 => zstd::bulk::compress(plain, 3).unwrap(),
        _ => plain.to_vec(),
    }
}

/// A minimal zip file of `members`.
fn zip(members: &[New<'_>]) -> Vec<u8> {
    let (mut file, mut directory) = (Vec::new(), Vec::new());
    for New {
        name,
        plain,
        method,
    } in members
    {
        let bytes = packed(plain, *method);
        let mut crc = flate2::Crc::new();
        crc.update(plain);
        let at = file.len() as u32;
        let mut common = [[20, 0, 0, 0], [method.to_le_bytes()[0], 0, 0, 0]].concat();
        common.extend([0; 2]);
        for field in [crc.sum(), bytes.len() as u32, plain.len() as u32] {
            common.extend(field.to_le_bytes());
        }
        common.extend((name.len() as u16).to_le_bytes());
        common.extend([0; 2]);
        file.extend([&b"PK\x03\x04"[..], &common, name.as_bytes(), &bytes].concat());
        directory.extend(
            [
                &b"PK\x01\x02\x14\0"[..],
                &common,
                &[0; 10],
                &at.to_le_bytes(),
                name.as_bytes(),
            ]
            .concat(),
        );
    }
    let (at, count) = (file.len() as u32, (members.len() as u16).to_le_bytes());
    let size = (directory.len() as u32).to_le_bytes();
    [
        &file,
        &directory,
        &b"PK\x05\x06\0\0\0\0"[..],
        &count,
        &count,
        &size,
        &at.to_le_bytes(),
        &[0; 2],
    ]
    .concat()
}

fn plain_of(data: &[u8], member: &ZipMember<'_>) -> Result<Vec<u8>, Option<Malformed>> {
    let bytes = &data[member.offset as usize..(member.offset + member.size) as usize];
    let mut plain = Vec::new();
    let read = ZipReader::new(member, bytes)
        .map_err(Some)?
        .read_to_end(&mut plain);
    read.map(|_| plain).map_err(|error| Malformed::of(&error))
}

fn read(data: &[u8]) -> Result<Vec<(String, Vec<u8>)>, String> {
    let zip = ZipFile::read(data).map_err(|fault| fault.to_string())?;
    let members = zip.members().map(|member| {
        let member = member.map_err(|fault| fault.to_string())?;
        let plain = plain_of(data, &member)
            .map_err(|fault| fault.map_or("not a fault".to_owned(), |fault| fault.to_string()))?;
        Ok((member.shown_name(), plain))
    });
    members.collect()
}

const LONG: [u8; 5000] = [7; 5000];

fn three() -> Vec<u8> {
    zip(&[
        new("a/stored", b"DEVICE-A", 0),
        new("b/", b"", 0),
        new("b/deflated", &LONG, 8),
        new("c", &LONG, 93),
    ])
}

#[test]
fn members_are_read_as_they_were_written() {
    let expected = vec![
        ("a/stored".to_owned(), b"DEVICE-A".to_vec()),
        ("b/deflated".to_owned(), LONG.to_vec()),
        ("c".to_owned(), LONG.to_vec()),
    ];
    assert_eq!(read(&three()), Ok(expected));
    let data = three();
    let zip = ZipFile::read(&data).unwrap();
    let first = zip.members().next().unwrap().unwrap();
    assert_eq!(
        (first.method, first.header, first.size, first.plain_size),
        (ZipMethod::Stored, 0, 8, 8)
    );
    assert_eq!(&data[first.offset as usize..][..8], b"DEVICE-A");
}

#[test]
fn no_prefix_is_whole() {
    let whole = three();
    for len in 0..whole.len() {
        assert!(read(&whole[..len]).is_err(), "{len}");
    }
}

#[test]
fn every_flipped_byte_returns() {
    let whole = three();
    for at in 0..whole.len() {
        for bits in [1, 0x80, 0xff] {
            let mut data = whole.clone();
            data[at] ^= bits;
            if let Ok(members) = read(&data) {
                assert!(
                    members.iter().all(|(_, plain)| plain.len() <= LONG.len()),
                    "{at}"
                );
            }
        }
    }
}

/// The only member's fault after `change`, which gets the file and the offset of its directory
/// entry.
fn fault_of(member: New<'_>, change: impl FnOnce(&mut Vec<u8>, usize)) -> String {
    let mut data = zip(&[member]);
    let entry = data
        .windows(4)
        .rposition(|bytes| bytes == b"PK\x01\x02")
        .unwrap();
    change(&mut data, entry);
    read(&data).unwrap_err()
}

#[test]
fn the_directory_is_compared_with_the_members() {
    let deflated = || new("k", &LONG, 8);
    assert!(fault_of(deflated(), |data, entry| data[entry + 8] |= 1).contains("encrypted"));
    assert!(fault_of(deflated(), |data, entry| data[entry + 10] = 14).contains("method 14 (LZMA)"));
    assert!(
        fault_of(deflated(), |data, entry| data[entry + 16] ^= 1)
            .contains("does not match its checksum")
    );
    assert!(
        fault_of(deflated(), |data, entry| data[entry + 24] ^= 1)
            .contains("less data than the directory states")
    );
    assert!(
        fault_of(deflated(), |data, entry| data[entry + 25] ^= 1)
            .contains("more data than the directory states")
    );
    assert!(
        fault_of(deflated(), |data, entry| data[entry + 27] = 0x7f)
            .contains("cannot decompress to the")
    );
    assert!(
        fault_of(deflated(), |data, entry| data[entry + 46] = b'j').contains("directory differ")
    );
    assert!(
        fault_of(deflated(), |data, entry| data[entry + 42] = 1).contains("no header of a member")
    );
    assert!(fault_of(deflated(), |data, entry| data[entry + 23] = 0x7f).contains("past the end"));
    assert!(
        fault_of(new("k", b"K", 0), |data, entry| data[entry + 24] = 2)
            .contains("cannot decompress to the 2")
    );
    assert!(fault_of(new("k", b"K", 0), |data, _| data[31] = b'J').contains("checksum"));
    let count = |data: &mut Vec<u8>, _| *data.iter_mut().rev().nth(11).unwrap() = 3;
    assert!(fault_of(new("k", b"K", 0), count).contains("has 1 entries, expected 3"));
}

#[test]
fn members_that_share_bytes_are_a_fault() {
    let mut data = zip(&[new("k", &LONG, 0), new("k", &LONG, 0), new("k", &LONG, 0)]);
    let entries: Vec<usize> = (0..data.len() - 4)
        .filter(|at| &data[*at..at + 4] == b"PK\x01\x02")
        .collect();
    entries
        .iter()
        .for_each(|entry| data[entry + 42..entry + 46].fill(0));
    // Contents up to the size of the file are not a fault.
    assert!(read(&data).is_ok());
    let first = zip(&[new("k", &LONG, 0)]);
    let entry = first
        .windows(4)
        .rposition(|bytes| bytes == b"PK\x01\x02")
        .unwrap();
    let (head, directory) = (&first[..entry], &first[entry..first.len() - 22]);
    let mut end = first[first.len() - 22..].to_vec();
    (end[8], end[10], end[12]) = (3, 3, 3 * directory.len() as u8);
    let shared = [head, directory, directory, directory, &end].concat();
    assert!(read(&shared).unwrap_err().contains("overlap other members"));
}

#[test]
fn names_that_lead_out_have_no_path() {
    let path = |name: &str| {
        let data = zip(&[new(name, b"", 0)]);
        let zip = ZipFile::read(&data).unwrap();
        let member = zip.members().next().unwrap().unwrap();
        (
            member.path().is_some(),
            member.name_fault().map(|fault| fault.to_string()),
        )
    };
    assert_eq!(path("a/b.so"), (true, None));
    assert!(!path("a/../b").0);
    assert!(path("/etc/passwd").1.unwrap().contains("leads out"));
    assert!(path("a\x1b[2J").1.unwrap().contains("control characters"));
}

#[test]
fn a_resized_zip_file_equals_a_packed_one() {
    let long = vec![7; 70_000];
    for (plain, method) in [(&b"other"[..], 0), (&long, 8), (b"", 8)] {
        let before = zip(&[
            new("a", b"first", 8),
            new("b/c", b"second one", 8),
            new("d", b"last", 0),
        ]);
        let second = ZipFile::read(&before)
            .unwrap()
            .members()
            .nth(1)
            .unwrap()
            .unwrap()
            .header;
        let bytes = packed(plain, method);
        let mut crc = flate2::Crc::new();
        crc.update(plain);
        let contents = resize::NewContents {
            header: second,
            method,
            crc: crc.sum(),
            packed: bytes.len() as u64,
            plain: plain.len() as u64,
        };
        let parts = resize::plan(&before, &[contents], &HashSet::new()).unwrap();
        let after = crate::compose::join(&before, &parts, &[&bytes]).unwrap();
        assert_eq!(
            after,
            zip(&[
                new("a", b"first", 8),
                new("b/c", plain, method),
                new("d", b"last", 0)
            ])
        );
    }
}

#[test]
fn damaged_zip_files_are_resized_without_a_panic() {
    let data = zip(&[new("a", b"first", 8), new("b/c", b"second one", 8)]);
    for at in 0..data.len() {
        for flip in [0xff, 1, 0x80] {
            let mut data = data.clone();
            data[at] ^= flip;
            let contents = resize::NewContents {
                header: 0,
                method: 0,
                crc: 1,
                packed: 3,
                plain: 3,
            };
            if let Ok(parts) = resize::plan(&data, &[contents], &HashSet::new()) {
                let _ = crate::compose::join(&data, &parts, &[b"new"]);
            }
        }
    }
}
