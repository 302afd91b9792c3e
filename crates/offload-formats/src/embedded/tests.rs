//! Exactly the embedded files are found, whatever data surrounds them. Headers that lead to each
//! other do not take unlimited time.

use proptest::prelude::*;

use super::*;

/// A fatbinary with one entry of `code`.
fn fatbinary(kind: u16, arch: u32, code: &[u8]) -> Vec<u8> {
    let mut entry = [kind.to_le_bytes(), 0x101u16.to_le_bytes()].concat();
    entry.extend(64u32.to_le_bytes());
    entry.extend((code.len() as u64).to_le_bytes());
    entry.resize(28, 0);
    entry.extend(arch.to_le_bytes());
    entry.resize(40, 0);
    entry.extend(0x11u64.to_le_bytes());
    entry.resize(64, 0);
    entry.extend(code);
    [
        &fatbin::MAGIC[..],
        &1u16.to_le_bytes(),
        &16u16.to_le_bytes(),
        &(entry.len() as u64).to_le_bytes(),
        &entry,
    ]
    .concat()
}

fn bundle_of(id: &str, code: &[u8]) -> Vec<u8> {
    let at = (bundle::MAGIC.len() + 8 + 24 + id.len()) as u64;
    let numbers = [1, at, code.len() as u64, id.len() as u64]
        .map(u64::to_le_bytes)
        .concat();
    [bundle::MAGIC, &numbers, id.as_bytes(), code].concat()
}

fn compressed(plain: &[u8]) -> Vec<u8> {
    let packed = zstd::encode_all(plain, 3).unwrap();
    let header = compressed::Header {
        version: 3,
        method: compressed::Method::Zstd,
        total: Some(32 + packed.len() as u64),
        plain_size: plain.len() as u64,
        hash: 0,
        size: 32,
    };
    [header.to_bytes().unwrap(), packed].concat()
}

/// An ELF file without contents for an AMD GPU, or for the machine with this number.
fn elf(machine: u16) -> Vec<u8> {
    let mut header = b"\x7fELF\x02\x01\x01\x40\x04".to_vec();
    header.resize(16, 0);
    header.extend([3u16, machine].map(u16::to_le_bytes).concat());
    header.extend(1u32.to_le_bytes());
    header.extend([0u64, 0, 64].map(u64::to_le_bytes).concat());
    header.extend(0x54cu32.to_le_bytes());
    header.extend([64u16, 56, 0, 64, 2, 1].map(u16::to_le_bytes).concat());
    header.resize(64 + 64, 0);
    // The string table, which is empty.
    header.extend([0u32, 3].map(u32::to_le_bytes).concat());
    header.extend([0u64, 0, 64].map(u64::to_le_bytes).concat());
    header.resize(64 + 2 * 64, 0);
    header
}

fn each() -> Vec<Vec<u8>> {
    vec![
        fatbinary(1, 80, b".version 8.0"),
        fatbinary(8, 90, b"scrambled"),
        bundle_of("hipv4-amdgcn-amd-amdhsa--gfx90a", b"code"),
        compressed(&bundle_of("hipv4-amdgcn-amd-amdhsa--gfx90a", b"code")),
        elf(224),
    ]
}

#[test]
fn each_is_found_at_any_offset() {
    for one in each() {
        for before in [0, 1, 7, CHUNK - 3, CHUNK, 2 * CHUNK - one.len()] {
            let data = [&vec![b'x'; before][..], &one, b"behind it"].concat();
            let found = all(&data);
            assert_eq!(
                found,
                (
                    vec![Embedded {
                        offset: before as u64,
                        size: one.len() as u64
                    }],
                    true
                ),
                "{:?}",
                &one[..8]
            );
        }
    }
    let row = each().concat();
    let mut at = 0;
    for (found, one) in all(&row).0.iter().zip(each()) {
        assert_eq!(
            *found,
            Embedded {
                offset: at,
                size: one.len() as u64
            }
        );
        at += one.len() as u64;
    }
    assert_eq!(at, row.len() as u64);
}

#[test]
fn incomplete_data_is_not_found() {
    for one in each() {
        for len in 0..one.len() {
            assert_eq!(
                all(&one[..len]),
                (vec![], true),
                "{len} bytes of {:?}",
                &one[..8]
            );
        }
    }
    for other in [
        elf(62),
        fatbinary(1, 3, b"code"),
        fatbinary(1, 80, b""),
        bundle_of("text", b"code"),
    ] {
        assert_eq!(all(&other), (vec![], true), "{:?}", &other[..8]);
    }
    // As in libraries that read these formats.
    assert_eq!(
        all(b"\0__CLANG_OFFLOAD_BUNDLE__\0CCOB\0%s: not an offload bundle\0\x50\xed\x55\xba\0\0\0"),
        (vec![], true)
    );
}

/// Without a limit, each header would be followed through all later ones.
#[test]
fn headers_that_lead_to_each_other_end_the_search() {
    const MANY: usize = 200_000;
    let started = std::time::Instant::now();
    let entry = &fatbinary(1, 80, b"")[16..];
    let mut one = fatbinary(1, 80, b"");
    let mut data = Vec::new();
    for number in (1..=MANY as u64).rev() {
        one[8..16].copy_from_slice(&(number * 80 - 16 + 8).to_le_bytes());
        data.extend([&one[..16], &entry[..8], &16u64.to_le_bytes(), &entry[16..]].concat());
    }
    let (found, _) = all(&data);
    assert!(found.is_empty());
    assert!(
        started.elapsed() < std::time::Duration::from_secs(10),
        "{:?}",
        started.elapsed()
    );
}

proptest! {
    #[test]
    fn damaged_data_does_not_panic_or_exceed_its_end(at in 0usize..400, value: u8, cut in 0usize..400) {
        let mut data = each().concat();
        let length = data.len();
        data[at % length] = value;
        data.truncate(length - cut % length);
        for one in all(&data).0 {
            prop_assert!(one.offset + one.size <= data.len() as u64);
        }
    }
}
