//! Tests of the fatbinary reader with the exact output of NVIDIA's tool and with damaged data.

mod compose;

use super::*;

/// An entry in the form that `fatbinary` writes, with `name` after the header.
pub(super) fn entry(
    kind: u16,
    arch: u32,
    flags: u64,
    name: &[u8],
    stored: &[u8],
    plain_size: u64,
) -> Vec<u8> {
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

pub(super) fn fatbin(entries: &[Vec<u8>]) -> Vec<u8> {
    let entries = entries.concat();
    [
        &MAGIC[..],
        &[1, 0, 16, 0],
        &(entries.len() as u64).to_le_bytes(),
        &entries,
    ]
    .concat()
}

pub(super) fn sample() -> Vec<u8> {
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
