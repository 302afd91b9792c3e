//! Output of the programs' libraries, truncated and modified. `tests/suite/inspect/packages.rs`
//! reads output of the programs.

use std::io::{Read, Write};

use super::*;

const PLAIN: &[u8] = b"what is in it, what is in it";

/// The same data in every format. The xz data was written by `xz`.
fn samples() -> [(Compression, Vec<u8>); 4] {
    let mut gzip = flate2::write::GzEncoder::new(Vec::new(), flate2::Compression::default());
    gzip.write_all(PLAIN).unwrap();
    let mut bzip2 = bzip2::write::BzEncoder::new(Vec::new(), bzip2::Compression::default());
    bzip2.write_all(PLAIN).unwrap();
    let mut zstd = zstd::Encoder::new(Vec::new(), 3).unwrap();
    zstd.include_checksum(true).unwrap();
    zstd.write_all(PLAIN).unwrap();
    let xz = XZ
        .split_whitespace()
        .map(|byte| u8::from_str_radix(byte, 16).unwrap())
        .collect();
    [
        (Compression::Gzip, gzip.finish().unwrap()),
        (Compression::Xz, xz),
        (Compression::Zstd, zstd.finish().unwrap()),
        (Compression::Bzip2, bzip2.finish().unwrap()),
    ]
}

const XZ: &str = "\
    fd 37 7a 58 5a 00 00 04 e6 d6 b4 46 02 00 21 01 16 00 00 00 74 2f e5 a3 e0 00 1b 00 14 5d 00 3b \
    9a 08 48 69 ea 3d 1f 9d 70 39 cf ca 03 48 9e c6 b3 c0 00 00 ea 9c 63 2c cb 86 8f 1c 00 01 30 1c \
    97 df c1 eb 1f b6 f3 7d 01 00 00 00 00 04 59 5a";

fn unpack(compression: Compression, packed: &[u8]) -> Result<Vec<u8>, Malformed> {
    let mut plain = Vec::new();
    let mut unpacked = Unpacked::new(compression, packed).unwrap();
    let first = unpacked.by_ref().take(1 << 20).read_to_end(&mut plain);
    let fault = |error: &io::Error| Malformed::of(error).expect("only the data can be wrong");
    // Every read after an error fails.
    assert_eq!(
        first.as_ref().err().map(fault),
        first
            .is_err()
            .then(|| fault(&unpacked.read(&mut [0]).unwrap_err()))
    );
    assert!(unpacked.taken() <= packed.len() as u64);
    first.map(|_| plain).map_err(|error| fault(&error))
}

#[test]
fn formats_are_detected_and_concatenated_files_are_read() {
    for (compression, packed) in samples() {
        assert_eq!(Compression::of(&packed), Some(compression));
        assert_eq!(unpack(compression, &packed).unwrap(), PLAIN);
        assert_eq!(
            unpack(compression, &[&packed[..], &packed].concat()).unwrap(),
            [PLAIN, PLAIN].concat(),
            "{compression:?}"
        );
    }
    assert_eq!(Compression::of(b"BZh91AY&SX"), None);
    assert_eq!(Compression::of(b"\x1f\x8b\x07"), None);
}

#[test]
fn skippable_zstd_frames() {
    let [_, _, (compression, packed), _] = samples();
    // The frame that pzstd writes before each of its frames, and an empty frame with the last of
    // the sixteen magic numbers.
    let (pzstd, empty) = (
        b"\x50\x2a\x4d\x18\x04\0\0\0\x33\0\0\0",
        b"\x5f\x2a\x4d\x18\0\0\0\0",
    );
    let skipped = [&pzstd[..], empty, &packed, pzstd, &packed, empty].concat();
    assert_eq!(Compression::of(&skipped), Some(compression));
    assert_eq!(
        unpack(compression, &skipped).unwrap(),
        [PLAIN, PLAIN].concat()
    );
    // LZ4 has the same frames.
    for other in [
        &pzstd[..],
        &[&pzstd[..], b"\x04\x22\x4d\x18"].concat(),
        &pzstd[..9],
        &[pzstd, &packed[..3]].concat(),
    ] {
        assert_eq!(Compression::of(other), None, "{other:x?}");
    }
}

#[test]
fn zeros_after_gzip_data_are_padding() {
    let [(compression, packed), ..] = samples();
    let zeros = [0; 300];
    assert_eq!(
        unpack(compression, &[&packed[..], &zeros].concat()).unwrap(),
        PLAIN
    );
    assert_eq!(
        unpack(compression, &[&packed[..], &zeros, &packed].concat()).unwrap(),
        [PLAIN, PLAIN].concat()
    );
    let fault = unpack(
        compression,
        &[&packed[..], &zeros, b"what is no file of gzip"].concat(),
    )
    .unwrap_err();
    assert_eq!(fault.what, "the compressed data is damaged");
}

#[test]
fn files_that_are_cut_or_changed() {
    for (compression, packed) in samples() {
        for len in 1..packed.len() {
            let fault = unpack(compression, &packed[..len]).unwrap_err();
            assert_eq!(
                fault.what, "the compressed data ends too early",
                "{compression:?}, {len} bytes"
            );
        }
        let mut found_by_checksum = 0;
        for at in 0..packed.len() {
            let mut changed = packed.clone();
            changed[at] = changed[at].wrapping_add(0x81);
            match unpack(compression, &changed) {
                Ok(plain) => assert_eq!(plain, PLAIN, "{compression:?}: byte {at} was believed"),
                Err(fault) => {
                    found_by_checksum +=
                        usize::from(fault.what == "the data does not match its checksum")
                }
            }
        }
        assert!(
            found_by_checksum > 0 || compression == Compression::Bzip2,
            "{compression:?}"
        );
    }
}

#[test]
fn a_window_that_needs_much_memory_is_refused() {
    // The header of a zstd frame with a window of 2 GiB, and a block of one byte.
    let zstd = b"\x28\xb5\x2f\xfd\x00\xa8\x01\x00\x00x";
    assert_eq!(
        unpack(Compression::Zstd, zstd).unwrap_err().what,
        "decompression needs more than 128 MiB of memory"
    );
}
