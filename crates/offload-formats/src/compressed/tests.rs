//! Round trips, exchange with LLVM's bundler in both directions, and errors for truncated, modified
//! and inconsistent data.

use super::*;
use crate::reference::{Outcome, run, tools};
use md5::{Digest, Md5};
use proptest::prelude::*;

const V2: Options = Options {
    version: Version::V2,
    method: Method::Zstd,
    level: 3,
    workers: 1,
};

/// Compressible text, then data that is not compressible.
fn plain() -> Vec<u8> {
    let mut data = b"__CLANG_OFFLOAD".repeat(20);
    let mut state = 1u32;
    data.extend(
        std::iter::repeat_with(|| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 24) as u8
        })
        .take(200),
    );
    data
}

fn hash(data: &[u8]) -> u64 {
    Md5::digest(data)
        .iter()
        .take(8)
        .rev()
        .fold(0, |number, byte| number << 8 | u64::from(*byte))
}

#[test]
fn large_data_is_hashed_in_a_thread() -> Outcome {
    let data: Vec<u8> = plain().into_iter().cycle().take((9 << 20) + 5).collect();
    for step in [1 << 10, 300_001, data.len()] {
        for size in [data.len(), 0] {
            let mut hasher = Hasher::new(size as u64);
            data.chunks(step).for_each(|bytes| hasher.update(bytes));
            assert_eq!(hasher.finish()?, hash(&data), "{step}");
        }
    }
    // As for small data, faults are detected at the end.
    let mut packed = compress(&data, Options::default())?;
    packed[24] ^= 1;
    assert!(
        read_at(&packed, 0)?
            .unpack()
            .is_err_and(|fault| fault.to_string().contains("does not match its hash"))
    );
    Ok(())
}

/// A bundle of any version and method, without offld's writer.
fn assembled(version: u16, zstd: bool, plain: &[u8]) -> std::io::Result<Vec<u8>> {
    let packed = if zstd {
        zstd::bulk::compress(plain, 3)?
    } else {
        let mut encoder =
            flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
        encoder.write_all(plain)?;
        encoder.finish()?
    };
    let mut data = MAGIC.to_vec();
    data.extend(version.to_le_bytes());
    data.extend(u16::from(zstd).to_le_bytes());
    match version {
        1 => data.extend((plain.len() as u32).to_le_bytes()),
        2 => [24 + packed.len(), plain.len()]
            .iter()
            .for_each(|size| data.extend((*size as u32).to_le_bytes())),
        _ => [32 + packed.len(), plain.len()]
            .iter()
            .for_each(|size| data.extend((*size as u64).to_le_bytes())),
    }
    data.extend(hash(plain).to_le_bytes());
    data.extend(packed);
    Ok(data)
}

/// One of each format that can be read, including those that offld writes.
fn samples() -> anyhow::Result<Vec<Vec<u8>>> {
    let plain = plain();
    let mut samples = vec![compress(&plain, Options::default())?, compress(&plain, V2)?];
    for version in 1..4 {
        for zstd in [false, true] {
            samples.push(assembled(version, zstd, &plain)?);
        }
    }
    Ok(samples)
}

fn unpack(data: &[u8]) -> Result<Vec<u8>, Malformed> {
    let read = read_at(data, 0)?;
    assert!(read.size <= data.len() as u64);
    read.unpack()
}

#[test]
fn ob_59_what_is_written_is_read_and_the_rest_too() -> Outcome {
    for data in samples()? {
        assert_eq!(unpack(&data)?, plain());
        let mut streamed = Vec::new();
        read_at(&data, 0)?.unpack_to(&mut streamed)?;
        assert_eq!(streamed, plain());
    }
    assert_eq!(unpack(&compress(b"", Options::default())?)?, b"");
    Ok(())
}

#[test]
fn ob_57_ob_59_the_header_is_llvms() -> Outcome {
    let data = compress(&plain(), Options::default())?;
    assert_eq!(&data[..8], b"CCOB\x03\0\x01\0");
    assert_eq!(data[8..16], (data.len() as u64).to_le_bytes());
    assert_eq!(data[16..24], (plain().len() as u64).to_le_bytes());
    assert_eq!(data[24..32], hash(&plain()).to_le_bytes());
    // As in LLVM, a single-segment frame that stores its size and has no checksum.
    assert_eq!(data[32..36], [0x28, 0xb5, 0x2f, 0xfd]);
    assert_eq!(data[36] & 0x24, 0x20);
    Ok(())
}

#[test]
fn a_cut_bundle_is_an_error() -> Outcome {
    for data in samples()? {
        for len in 0..data.len() {
            assert!(
                unpack(&data[..len]).is_err(),
                "version {} cut to {len}",
                data[4]
            );
            assert!(len == 0 || unpack_all(&data[..len]).is_err());
        }
    }
    Ok(())
}

#[test]
fn b11_a_flipped_byte_is_noticed() -> Outcome {
    for data in samples()? {
        for at in 0..data.len() {
            for flip in [1, 0x80, 0xff] {
                let mut flipped = data.clone();
                flipped[at] ^= flip;
                // A flip may not change the data (an unused bit of a stream), but it never gives
                // other data.
                if let Ok(seen) = unpack(&flipped) {
                    assert_eq!(seen, plain(), "version {} byte {at}", data[4]);
                }
            }
        }
    }
    let mut data = compress(&plain(), Options::default())?;
    data[24] ^= 1;
    assert_eq!(
        unpack(&data),
        Err(Malformed::new("the data does not match its hash", 32))
    );
    Ok(())
}

#[test]
fn b12_sizes_that_lie_are_told() -> Outcome {
    let data = compress(&plain(), Options::default())?;
    let size = data.len() as u64;
    let len = plain().len() as u64;
    for (at, value, fault) in [
        (8, size + 1, Malformed::new("size field past the end", 0)),
        (8, 31, Malformed::new("size field too small", 0)),
        (
            16,
            1 << 40,
            Malformed::new(
                "uncompressed size is more than the compressed data can hold",
                32,
            ),
        ),
        (
            16,
            len - 1,
            Malformed::new("more data than the header states", 32),
        ),
        (
            16,
            len + 1,
            Malformed::new("less data than the header states", 32),
        ),
    ] {
        let mut data = data.clone();
        data[at..at + 8].copy_from_slice(&u64::to_le_bytes(value));
        assert_eq!(unpack(&data), Err(fault));
    }
    let mut longer = data.clone();
    longer[8..16].copy_from_slice(&(size + 4).to_le_bytes());
    longer.extend([0; 4]);
    assert_eq!(
        unpack(&longer),
        Err(Malformed::new("bytes after the compressed data", 32))
    );
    for (at, fault) in [
        (4, "unsupported compressed bundle version"),
        (6, "unknown compression method"),
        (0, "not a compressed bundle"),
    ] {
        let mut data = data.clone();
        data[at] = 9;
        assert_eq!(unpack(&data), Err(Malformed::new(fault, 0)));
    }
    Ok(())
}

#[test]
fn b9_bundles_one_after_another_are_all_read() -> Outcome {
    let mut sources = vec![bundle::Source {
        id: "host-x86_64-unknown-linux-gnu-",
        size: 4,
        bytes: &b"host"[..],
    }];
    sources.push(bundle::Source {
        id: "hip-amdgcn-amd-amdhsa--gfx90a",
        size: 12,
        bytes: b"CCOBCCOBCCOB",
    });
    let mut plain = Vec::new();
    bundle::write(sources, 1, &mut plain)?;
    let mut all = Vec::new();
    for version in 1..4 {
        all.extend(assembled(version, version == 1, &plain)?);
        all.extend(assembled(version, version != 1, &plain)?);
        all.resize(all.len().next_multiple_of(4096), 0);
    }
    all.extend(&plain);
    all.extend(compress(&plain, Options::default())?);
    assert!(unpack_all(&all)?.iter().all(|seen| **seen == plain));
    assert_eq!(unpack_all(&all)?.len(), 8);
    all.push(b'x');
    assert_eq!(
        unpack_all(&all),
        Err(Malformed::new(
            "not an offload bundle",
            all.len() as u64 - 1
        ))
    );
    Ok(())
}

#[test]
fn the_number_of_workers_does_not_change_the_output() -> Outcome {
    let large = plain().repeat(20_000);
    for level in [3, 13] {
        let made = |workers| {
            compress(
                &large,
                Options {
                    workers,
                    level,
                    ..Options::default()
                },
            )
        };
        let one = made(1)?;
        assert!(one == made(2)? && one == made(5)?);
        assert!(unpack(&one)? == large && unpack(&made(0)?)? == large);
    }
    Ok(())
}

#[test]
fn a_source_must_have_its_announced_size() -> Outcome {
    let new = || Compressor::new(std::io::Cursor::new(Vec::new()), 3, V2);
    assert!(new()?.finish().is_err());
    assert!(new()?.write_all(b"four").is_err());
    let limit = Compressor::new(std::io::Cursor::new(Vec::new()), 1 << 32, V2)
        .err()
        .ok_or("a limit")?;
    assert_eq!(
        limit.to_string(),
        "Uncompressed size exceeds version 2 limit"
    );
    Ok(())
}

#[test]
fn a_header_is_written_where_it_belongs() -> Outcome {
    let mut out = std::io::Cursor::new(b"before".to_vec());
    out.set_position(6);
    let mut compressor = Compressor::new(out, plain().len() as u64, Options::default())?;
    std::io::copy(&mut plain().as_slice(), &mut compressor)?;
    let data = compressor.finish()?.into_inner();
    assert_eq!(
        data,
        [&b"before"[..], &compress(&plain(), Options::default())?].concat()
    );
    Ok(())
}

#[test]
fn llvms_bundler_reads_ours_and_we_its() -> Outcome {
    let Some([bundler]) = tools(["clang-offload-bundler"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let image = plain().repeat(9000);
    std::fs::write(folder.join("image"), &image)?;
    let bundle_with = |more: &[&str], output: &str| {
        let targets = "-targets=host-x86_64-unknown-linux-gnu-,hip-amdgcn-amd-amdhsa--gfx90a";
        let args = [
            "-type=o",
            "-bundle-align=4096",
            targets,
            "-input=/dev/null",
            "-input=image",
            "-output",
            output,
        ];
        run(&bundler, folder, args.iter().chain(more))?;
        Ok::<_, Box<dyn std::error::Error>>(std::fs::read(folder.join(output))?)
    };
    let plain = bundle_with(&[], "plain")?;
    for level in [
        "-compression-level=3",
        "-compression-level=19",
        "-compression-level=-5",
    ] {
        let theirs = bundle_with(&["-compress", level], "theirs")?;
        assert!(
            is_compressed(&theirs) && unpack_all(&theirs)? == [plain.as_slice()],
            "{level}"
        );
    }
    let zlib = Options {
        method: Method::Zlib,
        level: 9,
        ..Options::default()
    };
    let first = Options {
        version: Version::V1,
        ..Options::default()
    };
    for options in [
        Options::default(),
        V2,
        first,
        zlib,
        Options {
            level: 19,
            workers: 3,
            ..Options::default()
        },
    ] {
        std::fs::write(folder.join("ours"), compress(&plain, options)?)?;
        run(
            &bundler,
            folder,
            [
                "-type=o",
                "-unbundle",
                "-targets=hip-amdgcn-amd-amdhsa--gfx90a",
                "-input=ours",
                "-output=image.out",
            ],
        )?;
        assert!(
            std::fs::read(folder.join("image.out"))? == image,
            "{options:?}"
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn round_trip(data in prop::collection::vec(any::<u8>(), 0..3000), level in -7i32..25, version in 1u16..4, zlib in any::<bool>()) {
        let Some(known) = Version::of(version) else { panic!("version {version}") };
        let method = if zlib { Method::Zlib } else { Method::Zstd };
        let packed = compress(&data, Options { version: known, method, level, ..Options::default() }).map_err(|error| TestCaseError::fail(error.to_string()))?;
        prop_assert_eq!(unpack(&packed), Ok(data));
        let header = Header::read(&packed, 0)?;
        prop_assert_eq!((header.version, header.method), (version, method));
        prop_assert_eq!(&header.to_bytes()?[..], &packed[..header.size as usize]);
    }
}

#[test]
fn b12_small_data_may_not_set_aside_a_large_window() -> anyhow::Result<()> {
    let plain = b"small";
    // A frame without its size that is not a single segment. Its window is 2 to the power of 10
    // plus `log`.
    let with_window = |log: u8| -> anyhow::Result<Vec<u8>> {
        let frame = [
            &[
                0x28,
                0xb5,
                0x2f,
                0xfd,
                0,
                log << 3,
                (plain.len() << 3) as u8 | 1,
                0,
                0,
            ][..],
            plain,
        ]
        .concat();
        let mut data = assembled(3, true, plain)?[..32].to_vec();
        data[8..16].copy_from_slice(&(32 + frame.len() as u64).to_le_bytes());
        data.extend(frame);
        Ok(data)
    };
    let unpacked = |log| -> anyhow::Result<Vec<u8>> {
        let data = with_window(log)?;
        let mut out = Vec::new();
        Unpack::new(Header::read(&data, 0)?, &data[32..], 0)?.read_to_end(&mut out)?;
        Ok(out)
    };
    assert_eq!(unpacked(17)?, plain);
    for log in [18, 21] {
        assert_eq!(
            unpacked(log).unwrap_err().to_string(),
            "+0x20: cannot decompress"
        );
    }
    assert_eq!(
        [0, 1 << 20, 1 << 29, u64::MAX].map(window_log),
        [27, 27, 30, 31]
    );
    Ok(())
}
