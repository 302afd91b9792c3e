//! Round trips, and errors with offsets for truncated, modified and inconsistent data. These tests
//! have their own writer for versions 2 and 3 (`samples`).

use super::samples::{compress, write_shared};
use super::*;
use crate::model::OffloadKind;
use proptest::prelude::*;

const STRINGS: &[(&str, &str)] = &[("triple", "amdgcn-amd-amdhsa"), ("arch", "gfx90a")];

fn sample() -> Vec<u8> {
    write(ImageKind::Object, 1, 0, STRINGS, b"IMG!")
}

#[test]
fn bytes_are_those_of_llvm() {
    // The output of llvm-offload-binary 22 for these strings, except for its order of the two.
    let binary = sample();
    let table = b"\0arch\0triple\0amdgcn-amd-amdhsa\0gfx90a\0";
    assert_eq!(&binary[104..104 + table.len()], table);
    assert_eq!(binary.len(), 0x98);
    assert_eq!(&binary[0x90..], b"IMG!\0\0\0\0");
}

#[test]
fn a_string_that_ends_another_shares_its_tail() -> Result<(), Malformed> {
    let strings = [("triple", "a-triple"), ("", "triple"), ("e", "")];
    let binary = write(ImageKind::None, 0, 0, &strings, b"");
    let table = b"\0a-triple\0";
    assert_eq!(&binary[120..120 + table.len()], table);
    let images = read_all(&binary)?;
    let read: Vec<_> = images[0]
        .strings
        .iter()
        .map(|(k, v)| (k.as_ref(), v.as_ref()))
        .collect();
    assert_eq!(read, strings.map(|(k, v)| (k.as_bytes(), v.as_bytes())));
    Ok(())
}

#[test]
fn every_prefix_is_an_error_but_at_a_boundary() {
    let mut data = sample();
    let boundary = data.len();
    data.extend(write_shared(
        2,
        &[(0, STRINGS, b"one"), (0, STRINGS, b"two")],
    ));
    for len in 1..data.len() {
        assert_eq!(read_all(&data[..len]).is_ok(), len == boundary, "{len}");
    }
    assert_eq!(read_all(&data).map(|images| images.len()), Ok(3));
}

#[test]
fn every_flip_returns() -> std::io::Result<()> {
    let plain = write_shared(3, &[(0, STRINGS, b"one"), (1, STRINGS, b"")]);
    for data in [
        sample(),
        compress(&plain, true)?,
        compress(&plain, false)?,
        plain,
    ] {
        for at in 0..data.len() {
            for flip in [1, 0x80, 0xff] {
                let mut bad = data.clone();
                bad[at] ^= flip;
                let _any = read_all(&bad);
            }
        }
    }
    Ok(())
}

#[test]
fn f10_f24_faults_say_what_and_where() {
    let fault = |at: usize, value: u64| {
        let mut bad = write(ImageKind::Object, 1, 0, &[], b"");
        let base = bad.len();
        bad.extend(sample());
        bad[base + at..base + at + 8].copy_from_slice(&value.to_le_bytes());
        read_all(&bad)
            .map(|_| ())
            .map_err(|fault| (fault.what, fault.at - base as u64))
    };
    assert_eq!(fault(8, 0x1000), Err(("size field past the end", 0)));
    assert_eq!(fault(8, u64::MAX), Err(("size field past the end", 0)));
    assert_eq!(fault(8, 8), Err(("size field too small", 0)));
    assert_eq!(fault(16, u64::MAX - 8), Err(("entry past the end", 0)));
    assert_eq!(fault(40, 1 << 40), Err(("string table past the end", 32)));
    assert_eq!(
        fault(48, 1 << 60),
        Err(("number of strings past the end", 32))
    );
    assert_eq!(fault(56, 1 << 40), Err(("image offset past the end", 32)));
    assert_eq!(fault(64, 1 << 40), Err(("image size past the end", 32)));
    assert_eq!(fault(72, 1 << 40), Err(("string past the end", 72)));
    assert_eq!(fault(64, 4), Ok(()));
    let mut last = sample();
    last[0x90..].fill(b'x');
    last[80] = 0x90;
    assert_eq!(
        read_all(&last),
        Err(Malformed::new("string without a terminating zero", 72))
    );
    last.push(b'j');
    last[80] = 0;
    assert_eq!(
        read_all(&last),
        Err(Malformed::new("not an offload binary", 0x98))
    );
}

#[test]
fn f24_a_wrong_uncompressed_size_takes_no_memory() -> std::io::Result<()> {
    let good = compress(&write_shared(3, &[(0, STRINGS, &[7; 5000])]), true)?;
    for lie in [1u64, 41, 5000, 1 << 42, u64::MAX] {
        let mut bad = good.clone();
        bad[32..40].copy_from_slice(&lie.to_le_bytes());
        assert!(read_all(&bad).is_err(), "{lie}");
    }
    Ok(())
}

#[test]
fn strings_that_images_share_do_not_multiply() {
    let (entries, pairs) = (4000u64, 4000u64);
    let strings_at = HEADER_SIZE + entries * ENTRY_SIZE;
    let size = strings_at + pairs * 24;
    let mut data = MAGIC.to_vec();
    data.extend(2u32.to_le_bytes());
    [size, HEADER_SIZE, entries]
        .iter()
        .for_each(|field| data.extend(field.to_le_bytes()));
    for _ in 0..entries {
        [0, strings_at, pairs, size, 0]
            .iter()
            .for_each(|field| data.extend(field.to_le_bytes()));
    }
    data.resize(size as usize, 0);
    assert_eq!(
        read_all(&data).unwrap_err().what,
        "more strings than the binary can hold"
    );
    // A few are allowed.
    data[48..56].copy_from_slice(&3u64.to_le_bytes());
    data[24..32].copy_from_slice(&1u64.to_le_bytes());
    assert_eq!(
        read_all(&data)
            .unwrap()
            .first()
            .map(|image| image.strings.len()),
        Some(3)
    );
}

#[test]
fn reads_versions_2_and_3() -> std::io::Result<()> {
    let images = [
        (0, STRINGS, &b"one"[..]),
        (1, &[("triple", "spirv64"), ("x", "a\0b")], b"ignored"),
        (0, &[], b""),
    ];
    let v3 = write_shared(3, &images);
    for (compressed, data) in [
        (false, write_shared(2, &images)),
        (false, v3.clone()),
        (true, compress(&v3, true)?),
        (true, compress(&v3, false)?),
    ] {
        // The next binary starts at the next multiple of 8.
        let mut twice = data.clone();
        twice.resize(twice.len().next_multiple_of(8), 0);
        twice.extend(&data);
        let read = read_all(&twice).map_err(std::io::Error::other)?;
        assert_eq!(read.len(), 6);
        assert_eq!(
            (read[0].triple().as_ref(), read[0].arch().as_ref()),
            ("amdgcn-amd-amdhsa", "gfx90a")
        );
        assert_eq!(read[3].image.as_ref(), b"one");
        assert_eq!(
            (read[1].image.as_ref(), read[1].get("x")),
            (&b""[..], Some(&b"a\0b"[..]))
        );
        assert_eq!(read[3].at == 0, compressed);
        if !compressed {
            assert_eq!(&twice[read[3].at as usize..][..3], b"one");
        }
    }
    Ok(())
}

/// Kind, strings, contents.
type SharedImage<'a> = (u16, &'a [(&'a str, &'a [u8])], &'a [u8]);

/// A version 2 binary of entries and their images.
fn shared(images: &[SharedImage]) -> Vec<u8> {
    let entries: Vec<Entry<'_>> = images
        .iter()
        .map(|(kind, strings, image)| Entry {
            image_kind: ImageKind::Object,
            offload_kind: *kind,
            flags: 0,
            strings: strings
                .iter()
                .map(|(key, value)| (key.as_bytes(), *value))
                .collect(),
            image_size: image.len() as u64,
        })
        .collect();
    let frame = shared_frame(&entries);
    let mut binary = frame.head;
    images
        .iter()
        .for_each(|(_, _, image)| binary.extend(*image));
    binary.resize(frame.total_size as usize, 0);
    binary
}

#[test]
fn version_2_is_what_llvm_23_lays_out() -> Result<(), Malformed> {
    let images: [SharedImage; 3] = [
        (1, &[("triple", b"t"), ("x", b"a\0b")], b"odd"),
        (4, &[("arch", b""), ("triple", b"t")], b""),
        (2, &[], b"last"),
    ];
    let binary = shared(&images);
    // Version, size, offset and number of entries.
    assert_eq!(
        (u32_at(&binary, 4), u64_at(&binary, 8)),
        (2, binary.len() as u64)
    );
    assert_eq!((u64_at(&binary, 16), u64_at(&binary, 24)), (32, 3));
    let read = read_all(&binary)?;
    for (read, (kind, strings, image)) in read.iter().zip(images) {
        assert_eq!((read.offload_kind, read.image.as_ref()), (kind, image));
        let pairs: Vec<_> = read
            .strings
            .iter()
            .map(|(key, value)| (key.as_ref(), value.as_ref()))
            .collect();
        assert_eq!(
            pairs,
            strings
                .iter()
                .map(|(key, value)| (key.as_bytes(), *value))
                .collect::<Vec<_>>()
        );
    }
    // Images follow each other without gaps.
    assert_eq!(read[2].at, read[0].at + 3);
    for len in 1..binary.len() {
        assert!(read_all(&binary[..len]).is_err(), "{len}");
    }
    Ok(())
}

#[test]
fn images_begin_where_the_writer_wants_them() -> Result<(), Malformed> {
    let entry = |size| Entry {
        image_kind: ImageKind::Object,
        offload_kind: 1,
        flags: 0,
        strings: Vec::new(),
        image_size: size,
    };
    let place = |number: usize, free: u64| {
        if number == 1 {
            free.next_multiple_of(4096) + 5
        } else {
            0
        }
    };
    let frame = spaced_frame(&[entry(3), entry(4), entry(3)], place);
    let (head, places) = (frame.head.len(), &frame.places);
    // An offset that is already in use is replaced by the first free one.
    assert_eq!(places, &[head as u64, 4101, 4105]);
    let mut binary = frame.head;
    binary.extend(b"one");
    binary.resize(4101, 0);
    binary.extend(b"twoothree");
    binary.resize(frame.total_size as usize, 0);
    let read = read_all(&binary)?;
    assert_eq!(
        read.iter()
            .map(|image| image.image.as_ref())
            .collect::<Vec<_>>(),
        [&b"one"[..], b"twoo", b"thr"]
    );
    Ok(())
}

#[test]
fn p1_p6_bounds_are_checked_and_zeros_are_padding() {
    // The fields that LLVM 22 does not check: number of strings, offsets of keys, size of the
    // image.
    for (at, value) in [
        (48, u64::MAX),
        (48, 1 << 20),
        (64, 1 << 63),
        (64, u64::MAX),
        (72, u64::MAX),
        (80, 1 << 40),
        (8, 1 << 63),
    ] {
        let mut bad = sample();
        bad[at..at + 8].copy_from_slice(&value.to_le_bytes());
        assert!(read_all(&bad).is_err(), "{at} {value}");
    }
    for zeros in 0..40 {
        let padded = [sample(), vec![0; zeros], sample(), vec![0; zeros]].concat();
        assert_eq!(
            read_all(&padded).map(|images| images.len()),
            Ok(2),
            "{zeros}"
        );
        let junk = [sample(), vec![0; zeros], b"j".to_vec()].concat();
        assert_eq!(
            read_all(&junk),
            Err(Malformed::new(
                "not an offload binary",
                (sample().len() + zeros) as u64
            ))
        );
    }
}

#[test]
fn the_extent_ends_before_other_data() {
    let one = sample();
    let with = |tail: &[u8]| extent(&[&one, tail].concat());
    let len = one.len() as u64;
    assert_eq!(
        (
            extent(&[]),
            extent(b"junk"),
            with(b""),
            with(b"junk"),
            with(&[0; 9])
        ),
        (0, 0, len, len, len)
    );
    assert_eq!(
        (with(&one), with(&one[..20]), with(&one[..60])),
        (2 * len, len, len)
    );
    assert_eq!(
        with(&[&[0; 16][..], &one, b"\0\0junk"].concat()),
        2 * len + 16
    );
}

#[test]
fn a_compressed_binary_streams_its_plain_form() -> std::io::Result<()> {
    let images = [(0, STRINGS, &[7; 300_000][..]), (0, STRINGS, b"two")];
    let plain = write_shared(3, &images);
    assert!(Packed::of(&plain).is_ok_and(|packed| packed.is_none()));
    assert!(Packed::of(b"other").is_err());
    for zstd in [true, false] {
        let data = [compress(&plain, zstd)?, b"what follows".to_vec()].concat();
        let packed = Packed::of(&data)
            .ok()
            .flatten()
            .ok_or(std::io::ErrorKind::NotFound)?;
        let mut out = Vec::new();
        packed.inflate(&mut out)?;
        assert_eq!(
            (packed.size(), out),
            (data.len() as u64 - 12, plain.clone())
        );
    }
    Ok(())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn round_trip(
        kind in 0u16..9, offload in any::<u16>(), flags in any::<u32>(),
        strings in prop::collection::vec(("[a-c-]{0,4}", "[a-c-]{0,6}"), 0..6),
        image in prop::collection::vec(any::<u8>(), 0..64),
    ) {
        let strings: Vec<(&str, &str)> = strings.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
        let binary = write(ImageKind::from_raw(kind), offload, flags, &strings, &image);
        let frame = frame(ImageKind::from_raw(kind), offload, flags, &strings, image.len() as u64);
        prop_assert_eq!(&binary[..frame.head.len()], &frame.head[..]);
        prop_assert_eq!(binary.len() as u64, frame.total_size);
        let read = read_all(&binary).map_err(|fault| TestCaseError::fail(fault.to_string()))?;
        prop_assert_eq!(read.len(), 1);
        let read = &read[0];
        prop_assert_eq!((read.image_kind.raw(), read.offload_kind, read.flags), (kind, offload, flags));
        prop_assert_eq!((read.image.as_ref(), read.at), (&image[..], frame.image_offset));
        let pairs: Vec<_> = read.strings.iter().map(|(key, value)| (key.as_ref(), value.as_ref())).collect();
        prop_assert_eq!(pairs, strings.iter().map(|(key, value)| (key.as_bytes(), value.as_bytes())).collect::<Vec<_>>());
    }

    #[test]
    fn any_bytes_return(tail in prop::collection::vec(any::<u8>(), 0..200), version in 0u32..5) {
        let mut data = MAGIC.to_vec();
        data.extend(version.to_le_bytes());
        data.extend(tail);
        let _any = read_all(&data);
    }
}

fn binary(strings: &[(&str, &str)], kind: u16, image: &[u8]) -> Vec<u8> {
    write(ImageKind::Object, kind, 0, strings, image)
}

#[test]
fn inner_images_take_the_place_of_their_binary() {
    let named = |triple| binary(&[("triple", triple)], 0, triple.as_bytes());
    let inner = [named("a"), binary(&[], OffloadKind::Hip as u16, b"b")].concat();
    let outer = [
        binary(
            &[("triple", "t"), ("arch", "x")],
            OffloadKind::Cuda as u16,
            &inner,
        ),
        named("c"),
    ]
    .concat();
    let found = read_nested(&outer).unwrap();
    let description =
        |image: &Image<'_>| format!("{} {} {}", image.triple(), image.arch(), image.offload_kind);
    assert_eq!(
        found.iter().map(description).collect::<Vec<_>>(),
        ["a x 2", "t x 4", "c  0"]
    );
    for image in &found {
        let at = image.at as usize;
        assert_eq!(
            outer[at..at + image.image.len()],
            *image.image,
            "the place of {}",
            description(image)
        );
    }
}

#[test]
fn faults_have_the_offset_in_the_outer_data() {
    let mut inner = binary(&[("triple", "t")], 4, b"image");
    // The image size field of the entry.
    inner[32 + 32..32 + 40].copy_from_slice(&(1u64 << 40).to_le_bytes());
    let fault = read_all(&inner).unwrap_err();
    let outer = binary(&[("triple", "t")], 4, &inner);
    let at = read_all(&outer).unwrap()[0].at;
    assert_eq!(read_nested(&outer), Err(fault.shifted(at)));
    // Truncated at every byte.
    let inner = binary(&[("triple", "t")], 4, b"image");
    for len in 4..inner.len() {
        assert!(
            read_nested(&binary(&[], 4, &inner[..len])).is_err(),
            "{len}"
        );
    }
}

#[test]
fn endless_nesting_is_an_error() {
    let mut deep = b"image".to_vec();
    for _ in 0..=MAX_NESTING {
        deep = binary(&[], 4, &deep);
    }
    assert_eq!(read_nested(&deep).unwrap()[0].image.as_ref(), b"image");
    let fault = read_nested(&binary(&[], 4, &deep)).unwrap_err();
    assert_eq!(fault.what, "offload binaries nested too deeply");
}

#[test]
fn inner_binaries_of_a_compressed_one() {
    let inner = binary(&[("triple", "t")], 4, b"image");
    let plain = write_shared(3, &[(0, &[("arch", "x")], &inner)]);
    let packed = compress(&plain, true).unwrap();
    let found = read_nested(&packed).unwrap();
    assert_eq!(
        (
            found.len(),
            &*found[0].triple(),
            &*found[0].image,
            found[0].at
        ),
        (1, "t", &b"image"[..], 0)
    );
}
