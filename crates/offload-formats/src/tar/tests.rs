//! Archives from the `tar` crate, truncated and modified, and archives with false claims.
//! `tests/suite/inspect/packages.rs` reads output of GNU tar and Python.

use std::io::Read;

use tar::{Builder, EntryType, Header};

use super::*;

fn header(kind: EntryType, size: u64) -> Header {
    let mut header = Header::new_gnu();
    header.set_entry_type(kind);
    header.set_size(size);
    header.set_mode(0o644);
    header
}

/// Two files, the first with a long name, and a link, a directory and a device between them.
fn archive() -> Vec<u8> {
    let mut out = Builder::new(Vec::new());
    let long = format!("{}/file", "folder/".repeat(30));
    out.append_data(&mut header(EntryType::Regular, 700), long, &[7; 700][..])
        .unwrap();
    out.append_link(
        &mut header(EntryType::Symlink, 0),
        "link",
        "../../etc/passwd",
    )
    .unwrap();
    out.append_data(&mut header(EntryType::Directory, 0), "folder/", &[][..])
        .unwrap();
    out.append_data(&mut header(EntryType::Char, 0), "device", &[][..])
        .unwrap();
    out.append_data(&mut header(EntryType::Regular, 5), "second", &b"plain"[..])
        .unwrap();
    out.into_inner().unwrap()
}

/// The name and contents of each file in `archive`, or its fault.
fn found(archive: &[u8]) -> Vec<Result<(String, Vec<u8>), String>> {
    let read = |tar: &mut TarReader<InMemory<'_>>| -> io::Result<Option<(String, Vec<u8>)>> {
        let Some(member) = tar.next_member()? else {
            return Ok(None);
        };
        let mut plain = Vec::new();
        tar.contents(&member)
            .take(1 << 20)
            .read_to_end(&mut plain)?;
        assert!(member.size <= member.plain_size && member.header < member.offset);
        assert!(
            plain.len() as u64 == member.plain_size.min(1 << 20),
            "{member:?}"
        );
        Ok(Some((member.shown_name(), plain)))
    };
    let mut tar = TarReader::new(InMemory::new(archive));
    let each = std::iter::from_fn(|| match read(&mut tar) {
        Ok(found) => found.map(Ok),
        Err(error) => Some(Err(fault_of(&error)
            .expect("only the archive can be wrong")
            .to_string())),
    });
    each.collect()
}

/// Recomputes the checksum of the header at `at`.
fn with_checksum(archive: &mut [u8], at: usize) {
    let mut header = Header::from_byte_slice(&archive[at..at + 512]).clone();
    header.set_cksum();
    archive[at..at + 512].copy_from_slice(header.as_bytes());
}

#[test]
fn files_are_found_and_other_entries_are_skipped() {
    let archive = archive();
    let all = found(&archive);
    let [Ok((first, contents)), Ok((second, plain))] = &all[..] else {
        panic!("{all:?}")
    };
    assert!(
        first.len() > 200 && first.ends_with("/file") && contents == &[7; 700],
        "{first}"
    );
    assert_eq!((second.as_str(), &plain[..]), ("second", &b"plain"[..]));
    // A stream gives the same result.
    let mut tar = TarReader::new(Streamed::new(&archive[..]));
    let mut names = Vec::new();
    while let Some(member) = tar.next_member().unwrap() {
        names.push(member.shown_name());
    }
    assert_eq!(names, [first.as_str(), second]);
    assert!(is_tar(&archive) && !is_tar(&archive[..511]) && !is_tar(&[0; 512]));
}

#[test]
fn a_damaged_header_ends_one_file_alone() {
    let mut archive = archive();
    let second = archive
        .windows(6)
        .rposition(|name| name == b"second")
        .unwrap();
    archive[512 * 3 + 2] ^= 1;
    let results = found(&archive[512 * 3..]);
    assert_eq!(results.len(), 2, "{results:?}");
    let expected = "the header does not match its checksum, at offset 0x0";
    assert_eq!(
        (
            results[0].as_ref().unwrap_err().as_str(),
            results[1].as_ref().unwrap().0.as_str()
        ),
        (expected, "second")
    );
    archive.truncate(second + 512 + 3);
    let results = found(&archive);
    assert_eq!(
        results.last().unwrap().as_ref().unwrap_err(),
        &format!(
            "the archive ends 2 bytes before the end of the member, at offset {:#x}",
            second + 515
        )
    );
    archive.truncate(second + 100);
    assert!(
        found(&archive)
            .last()
            .unwrap()
            .as_ref()
            .unwrap_err()
            .contains("the archive ends within a header")
    );
}

#[test]
fn false_claims_in_headers_take_no_memory() {
    let whole = archive();
    let claims: [(EntryType, &[u8], &str); 3] = [
        (
            EntryType::GNULongName,
            b"77777777777\0",
            "a long name of 8589934591 bytes",
        ),
        (
            EntryType::XHeader,
            b"77777777777\0",
            "a pax header of 8589934591 bytes",
        ),
        (
            EntryType::Regular,
            b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff",
            "the size is too large for a file",
        ),
    ];
    for (kind, size, expected) in claims {
        let mut archive = whole.clone();
        archive[156] = kind.as_byte();
        archive[124..136].copy_from_slice(size);
        with_checksum(&mut archive, 0);
        let results = found(&archive);
        assert!(
            results[0].as_ref().unwrap_err().contains(expected),
            "{results:?}"
        );
    }
    // A sparse file that is far larger than its stored contents.
    let mut archive = whole[whole.len() - 4 * 512..].to_vec();
    archive[156] = b'S';
    let header = archive[..512].to_vec();
    archive[386..410].copy_from_slice(b"00000001000\x0000000000005\0");
    archive[483..495].copy_from_slice(b"77777777777\0");
    with_checksum(&mut archive, 0);
    let results = found(&archive);
    let (_, plain) = results[0].as_ref().unwrap();
    assert_eq!(
        (plain.len(), &plain[510..518]),
        (1 << 20, &b"\0\0plain\0"[..])
    );
    // A sparse file with parts larger than the stored contents or beyond the file's end.
    for (map, size) in [
        (&b"00000001000\x0000000000006\0"[..], b"00000002000\0"),
        (b"00000001000\x0000000000005\0", b"00000001000\0"),
    ] {
        archive[..512].copy_from_slice(&header);
        archive[386..410].copy_from_slice(map);
        archive[483..495].copy_from_slice(size);
        with_checksum(&mut archive, 0);
        assert!(
            found(&archive)[0]
                .as_ref()
                .unwrap_err()
                .contains("does not fit the contents")
        );
    }
}

#[test]
fn pax_records_may_have_newlines_and_must_have_their_lengths() {
    let mut records = Records::default();
    records.read(b"12 path=a\nb\n13 size=12345\n").unwrap_err();
    records.read(b"12 path=a\nb\n14 size=12345\n").unwrap();
    assert_eq!(
        (records.name.as_deref(), records.size),
        (Some(&b"a\nb"[..]), Some(12345))
    );
    for wrong in [
        &b"5 a=b\n"[..],
        b"x a=b\n",
        b"6 a=b",
        b"7 a=b\n",
        b"99999999999999999999 a=b\n",
        b" a=b\n",
        b"5 ab\n",
        b"9 size=x\n",
        b"3",
    ] {
        assert!(
            Records::default().read(wrong).is_err(),
            "{}",
            String::from_utf8_lossy(wrong)
        );
    }
}

#[test]
fn changed_and_truncated_archives_do_not_panic() {
    let archive = archive();
    for len in 0..archive.len() {
        found(&archive[..len]);
    }
    for at in 0..archive.len() {
        let mut changed = archive.clone();
        changed[at] = changed[at].wrapping_add(0x81);
        found(&changed);
        // With a correct checksum, every byte of a header is used.
        let block = at / 512 * 512;
        if has_checksum(archive[block..].first_chunk().unwrap()) {
            with_checksum(&mut changed, block);
            found(&changed);
        }
    }
}
