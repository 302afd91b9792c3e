//! Tests with inputs that no available tool writes (OffloadBinaries of versions 2 and 3, compressed
//! bundles of version 1), with damaged files, and at the limit of nesting.

use std::io::Write;
use std::sync::Arc;

use super::report::Step;
use super::*;
use offld_system::session::SessionOptions;
use offld_system::shell::Shell;
use offload_formats::{bundle, fatbin, offload_binary};

fn report_on(bytes: &[u8], options: Options) -> FileReport {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, bytes).unwrap();
    let shell = Arc::new(Shell::from_write("test", Box::new(std::io::sink())));
    let session = Session::new(shell, SessionOptions::default());
    Reader::new(options, &session).open(&path).unwrap()
}

fn of(bytes: &[u8]) -> FileReport {
    report_on(
        bytes,
        Options {
            kernels: true,
            ..Options::default()
        },
    )
}

/// `kind triple target size` of each image.
fn images(file: &FileReport) -> Vec<String> {
    let line = |image: &report::Image| {
        format!(
            "{} {} {} {}",
            image.kinds.join("+"),
            image.triple,
            image.target,
            image.size
        )
    };
    file.images.iter().map(line).collect()
}

fn words(values: &[u64]) -> Vec<u8> {
    values
        .iter()
        .flat_map(|value| value.to_le_bytes())
        .collect()
}

/// An uncompressed binary of version 2 or 3, with images for the AMD GPUs of these names; `header`
/// is the size of its header.
fn several(version: u32, header: u64, images: &[(&str, &[u8])]) -> Vec<u8> {
    let count = images.len() as u64;
    let strings_at = header + 40 * count;
    let table_at = strings_at + 48 * count;
    let mut table = b"triple\0amdgcn-amd-amdhsa\0arch\0".to_vec();
    let (mut entries, mut strings, mut bytes) = (Vec::new(), Vec::new(), Vec::new());
    let names: usize = images.iter().map(|(name, _)| name.len() + 1).sum();
    let images_at = (table_at + (table.len() + names) as u64).next_multiple_of(8);
    for (index, (name, image)) in images.iter().enumerate() {
        strings.extend(words(&[
            table_at,
            table_at + 7,
            17,
            table_at + 25,
            table_at + table.len() as u64,
            name.len() as u64,
        ]));
        table.extend([name.as_bytes(), b"\0"].concat());
        entries.extend([1, 0, 4, 0, 0, 0, 0, 0]);
        let at = images_at + bytes.len() as u64;
        entries.extend(words(&[
            strings_at + 48 * index as u64,
            2,
            at,
            image.len() as u64,
        ]));
        bytes.extend_from_slice(image);
    }
    let mut all = [
        &offload_binary::MAGIC[..],
        &version.to_le_bytes(),
        &words(&[0, header, count]),
    ]
    .concat();
    all.resize(header as usize, 0);
    all.extend([entries, strings, table].concat());
    all.resize(images_at as usize, 0);
    all.extend(bytes);
    all.resize(all.len().next_multiple_of(8), 0);
    let size = all.len() as u64;
    all[8..16].copy_from_slice(&size.to_le_bytes());
    all
}

fn zlib(bytes: &[u8]) -> Vec<u8> {
    let mut encoder = flate2::write::ZlibEncoder::new(Vec::new(), flate2::Compression::default());
    encoder.write_all(bytes).unwrap();
    encoder.finish().unwrap()
}

/// A binary of version 3 whose entries are compressed.
fn packed(plain: &[u8], compress: impl Fn(&[u8]) -> Vec<u8>) -> Vec<u8> {
    let mut all = [&plain[..40], &compress(&plain[40..])].concat();
    let size = all.len() as u64;
    all[8..16].copy_from_slice(&size.to_le_bytes());
    all[32..40].copy_from_slice(&(plain.len() as u64).to_le_bytes());
    all
}

fn zstd(bytes: &[u8]) -> Vec<u8> {
    zstd::encode_all(bytes, 3).unwrap()
}

const TWO: [(&str, &[u8]); 2] = [("gfx906", b"SIX"), ("gfx90a:xnack-", b"NINETY")];
const EXPECTED: [&str; 2] = [
    "hip amdgcn-amd-amdhsa gfx906 3",
    "hip amdgcn-amd-amdhsa gfx90a:xnack- 6",
];

#[test]
fn offload_binaries_of_every_version() {
    let plain = several(3, 40, &TWO);
    let all = [
        ("2", several(2, 32, &TWO)),
        ("3", plain.clone()),
        ("zstd", packed(&plain, zstd)),
        ("zlib", packed(&plain, zlib)),
    ];
    for (name, bytes) in &all {
        // The second binary starts at the next multiple of 8, and the padding is not a binary.
        let mut row = bytes.clone();
        row.resize(row.len().next_multiple_of(8), 0);
        row.extend(bytes);
        let file = of(&row);
        assert_eq!(file.errors, [""; 0], "{name}");
        assert_eq!(images(&file), [EXPECTED, EXPECTED].concat(), "{name}");
        let Some(Step::Container {
            compression,
            plain_size,
            version,
            ..
        }) = file.images[0].path.first()
        else {
            panic!("{name}")
        };
        let is_packed = *compression == Some(*name);
        assert_eq!(
            (is_packed, plain_size.is_some()),
            (*name == "zstd" || *name == "zlib", is_packed),
            "{name}"
        );
        assert_eq!(*version, Some(if *name == "2" { 2 } else { 3 }));
        assert_eq!(
            file.images[1].compressed_size,
            is_packed.then_some(bytes.len() as u64),
            "{name}"
        );
        assert_eq!(file.images[1].offset.is_none(), is_packed, "{name}");
        // `echo -n NINETY | sha256sum`
        assert!(
            file.images[1]
                .sha256
                .as_deref()
                .unwrap()
                .starts_with("2db05b79e5"),
            "{name}: {:?}",
            file.images[1].sha256
        );
    }
}

fn bundle_of(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut header = [bundle::MAGIC, &words(&[entries.len() as u64])].concat();
    let mut at = (header.len() + entries.iter().map(|(id, _)| 24 + id.len()).sum::<usize>()) as u64;
    for (id, bytes) in entries {
        header.extend(
            [
                words(&[at, bytes.len() as u64, id.len() as u64]),
                id.as_bytes().to_vec(),
            ]
            .concat(),
        );
        at += bytes.len() as u64;
    }
    entries
        .iter()
        .fold(header, |all, (_, bytes)| [&all[..], bytes].concat())
}

/// Version 1: `CCOB`, version, method, uncompressed size, hash.
fn compressed_1(plain: &[u8], method: u16, packed: &[u8]) -> Vec<u8> {
    use md5::Digest;
    let hash = md5::Md5::digest(plain);
    [
        b"CCOB",
        &1u16.to_le_bytes()[..],
        &method.to_le_bytes(),
        &(plain.len() as u32).to_le_bytes(),
        &hash[..8],
        packed,
    ]
    .concat()
}

#[test]
fn compressed_bundles_of_version_1_in_a_row() {
    let plain = bundle_of(&[
        ("host-x86_64-unknown-linux-gnu-", b""),
        ("hip-amdgcn-amd-amdhsa--gfx906", b"SIX"),
    ]);
    let [with_zlib, with_zstd] = [
        compressed_1(&plain, 0, &zlib(&plain)),
        compressed_1(&plain, 1, &zstd(&plain)),
    ];
    let file = of(&[&with_zlib[..], &with_zstd, &[0; 9], &plain].concat());
    assert_eq!(file.errors, [""; 0]);
    let one = [
        "host x86_64-unknown-linux-gnu  0",
        "hip amdgcn-amd-amdhsa gfx906 3",
    ]
    .map(str::to_owned);
    assert_eq!(images(&file), [one.clone(), one.clone(), one].concat());
    let mut wrong = with_zstd.clone();
    wrong[12] ^= 1;
    let file = of(&[wrong, with_zlib].concat());
    assert_eq!(
        file.images.len(),
        4,
        "its entries are listed, and the one behind it is there"
    );
    assert!(
        file.errors[0]
            .ends_with("file: compressed-bundle at 0x0+0x14: the data does not match its hash"),
        "{:?}",
        file.errors
    );
}

#[test]
fn nothing_is_followed_without_end() {
    let mut bytes = bundle_of(&[("hip-amdgcn-amd-amdhsa--gfx906", b"CORE")]);
    for _ in 0..10 {
        bytes = bundle_of(&[("hip-amdgcn-amd-amdhsa--gfx906", &bytes)]);
    }
    assert_eq!(images(&of(&bytes)), ["hip amdgcn-amd-amdhsa gfx906 4"]);
    for _ in 0..10 {
        bytes = bundle_of(&[("hip-amdgcn-amd-amdhsa--gfx906", &bytes)]);
    }
    let file = of(&bytes);
    assert!(
        file.images.is_empty() && file.errors[0].ends_with("nested more than 16 deep"),
        "{:?}",
        file.errors
    );
}

#[test]
fn a_size_that_lies_is_an_error_and_costs_nothing() {
    let plain = several(3, 40, &TWO);
    let mut binary = packed(&plain, zstd);
    binary[32..40].copy_from_slice(&(1u64 << 50).to_le_bytes());
    assert!(
        of(&binary).errors[0]
            .contains("uncompressed size is more than the compressed data can hold")
    );
    binary[32..40].copy_from_slice(&(plain.len() as u64 + 1).to_le_bytes());
    assert!(of(&binary).errors[0].contains("size does not match the data"));
    let bundle = bundle_of(&[("hip-amdgcn-amd-amdhsa--gfx906", b"SIX")]);
    let mut lying = compressed_1(&bundle, 1, &zstd(&bundle));
    lying[8..12].fill(0xff);
    assert!(
        of(&lying).errors[0].contains("uncompressed size is more than"),
        "{:?}",
        of(&lying).errors
    );
}

/// A fatbinary with a cubin for sm_90 in an LZ4 block, whose header says `plain_size` bytes.
fn with_lz4(stored: &[u8], plain_size: u64) -> Vec<u8> {
    let mut entry = [0; 64];
    entry[0] = 2;
    entry[4] = 64;
    entry[8..16].copy_from_slice(&(stored.len() as u64).to_le_bytes());
    entry[16..20].copy_from_slice(&(stored.len() as u32).to_le_bytes());
    entry[28] = 90;
    entry[40..48].copy_from_slice(&0x2001_u64.to_le_bytes());
    entry[56..].copy_from_slice(&plain_size.to_le_bytes());
    let size = (entry.len() + stored.len()) as u64;
    [
        &fatbin::MAGIC[..],
        &1u16.to_le_bytes(),
        &16u16.to_le_bytes(),
        &size.to_le_bytes(),
        &entry,
        stored,
    ]
    .concat()
}

#[test]
fn what_takes_too_much_memory_to_inflate_is_an_image_all_the_same() {
    const PLAIN: u64 = 70 << 20;
    let stored = vec![0; 300_000];
    let bytes = with_lz4(&stored, PLAIN);
    assert_eq!(
        images(&of(&bytes)),
        [format!(" nvptx64-nvidia-cuda sm_90 {PLAIN}")]
    );
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("file");
    std::fs::write(&path, &bytes).unwrap();
    let shell = Arc::new(Shell::from_write("test", Box::new(std::io::sink())));
    let session = Session::new(shell, SessionOptions::default());
    let options = Options {
        sizes: Some(Arc::default()),
        ..Options::default()
    };
    let (footprint, _, errors) = Reader::new(options, &session).footprint(&path).unwrap();
    assert_eq!(
        (footprint.size, footprint.images.len(), errors.len()),
        (bytes.len() as u64, 1, 0)
    );
    let of_image: Vec<(u64, u64)> = footprint
        .leaves
        .iter()
        .filter(|leaf| leaf.label.image.place() == Some(0))
        .map(|leaf| (leaf.file, leaf.inflated))
        .collect();
    assert_eq!(of_image, [(stored.len() as u64, PLAIN)]);
    // A size that LZ4 data of this length cannot hold.
    let lie = with_lz4(&stored, 1 << 50);
    assert!(
        of(&lie).errors[0].contains("uncompressed size is more than the compressed data can hold"),
        "{:?}",
        of(&lie).errors
    );
}

#[test]
fn no_changed_byte_and_no_prefix_breaks_it() {
    let plain = several(3, 40, &TWO);
    let bundle = bundle_of(&[
        ("hip-amdgcn-amd-amdhsa--gfx906", b"SIX"),
        ("host-x86_64", &[0]),
    ]);
    let text = bundle::text::start_marker("//", "hip-amdgcn-amd-amdhsa--gfx906")
        + "x"
        + &bundle::text::end_marker("//", "x");
    let samples = [
        packed(&plain, zlib),
        several(2, 32, &TWO),
        compressed_1(&bundle, 0, &zlib(&bundle)),
        text.into_bytes(),
        bundle,
    ];
    for sample in &samples {
        assert!(!of(sample).images.is_empty());
        for len in (1..sample.len()).step_by(3) {
            of(&sample[..len]);
        }
        for at in 0..sample.len() {
            let mut changed = sample.clone();
            changed[at] = changed[at].wrapping_add(0x81);
            of(&changed);
        }
    }
}

/// An object for x86-64 with `count` symbols that all have the one name in its string table.
fn object_of_one_name(count: usize, name: &str) -> Vec<u8> {
    const HEADER: u64 = 64;
    let strings = [b"\0", name.as_bytes(), b"\0"].concat();
    // Offsets in the table: of the name, and of its last byte, which is the name of the sections.
    let last = name.len() as u32;
    let strings_at = HEADER + 24 * (1 + count as u64);
    let sections_at = strings_at + strings.len() as u64;
    let symbol = |name: u32| [&name.to_le_bytes()[..], &[0; 4], &words(&[0, 0])].concat();
    let section = |name: u32, kind: u32, offset: u64, size: u64, link: u32, entry: u64| {
        let numbers = [name.to_le_bytes(), kind.to_le_bytes()].concat();
        [
            numbers,
            words(&[0, 0, offset, size]),
            [link.to_le_bytes(), [0; 4]].concat(),
            words(&[1, entry]),
        ]
        .concat()
    };
    let mut bytes = b"\x7fELF\x02\x01\x01".to_vec();
    bytes.resize(16, 0);
    bytes.extend([1, 0, 62, 0, 1, 0, 0, 0]);
    bytes.extend(words(&[0, 0, sections_at]));
    bytes.extend([0, 0, 0, 0, 64, 0, 0, 0, 0, 0, 64, 0, 3, 0, 2, 0]);
    bytes.extend([vec![0; 24], symbol(1).repeat(count), strings.clone()].concat());
    bytes.extend(section(0, 0, 0, 0, 0, 0));
    bytes.extend(section(last, 2, HEADER, 24 * (1 + count as u64), 2, 24));
    bytes.extend(section(last, 3, strings_at, strings.len() as u64, 0, 0));
    bytes
}

/// Name lookups in a large object of this kind took minutes.
#[test]
fn names_of_symbols_that_share_their_bytes_are_an_error() {
    let name = "_ZTS".repeat(5000);
    assert_eq!(of(&object_of_one_name(4, &name)).errors, [""; 0]);
    let errors = of(&object_of_one_name(20, &name)).errors;
    assert!(
        errors.len() == 1 && errors[0].ends_with("symbol names overlap"),
        "{errors:?}"
    );
}

/// A fatbinary of entries: kind, processor, flags, stored bytes, uncompressed size.
fn fatbinary(entries: &[(u16, u32, u64, &[u8], u64)]) -> Vec<u8> {
    let mut all = Vec::new();
    for (kind, arch, flags, stored, plain) in entries {
        let mut header = [kind.to_le_bytes(), 0x101u16.to_le_bytes()].concat();
        let padded = stored.len().next_multiple_of(8);
        header.extend(
            [
                &64u32.to_le_bytes()[..],
                &(padded as u64).to_le_bytes(),
                &(stored.len() as u32).to_le_bytes(),
            ]
            .concat(),
        );
        header.resize(28, 0);
        header.extend(arch.to_le_bytes());
        header.resize(40, 0);
        header.extend(words(&[*flags, 0, *plain]));
        header.extend_from_slice(stored);
        header.resize(64 + padded, 0);
        all.extend(header);
    }
    let size = (all.len() as u64).to_le_bytes();
    [
        &fatbin::MAGIC[..],
        &1u16.to_le_bytes(),
        &16u16.to_le_bytes(),
        &size,
        &all,
    ]
    .concat()
}

const PTX: &[u8] = b".version 8.0\n.target sm_90\n.address_size 64\n\0";

#[test]
fn an_image_that_cannot_be_inflated_is_an_image_and_hides_no_other() {
    let plain = (1, 90, 0x11, PTX, 0);
    // `nvcc -gencode arch=compute_90,code=lto_90` writes such flags; it scrambles the bytes.
    let lto_ir = fatbinary(&[(8, 90, 0x18011, b"scrambled", 1000), plain]);
    let file = report_on(
        &lto_ir,
        Options {
            keep_bytes: true,
            ..Options::default()
        },
    );
    assert_eq!(file.errors, [""; 0]);
    assert_eq!(
        images(&file),
        [
            " nvptx64-nvidia-cuda sm_90 1000",
            " nvptx64-nvidia-cuda sm_90 44"
        ]
    );
    assert_eq!(
        (file.images[0].format, file.images[0].compressed_size),
        ("lto-ir", Some(9))
    );
    assert_eq!(file.images[0].bytes().unwrap(), b"scrambled");
    // `echo -n scrambled | sha256sum`
    assert!(
        file.images[0]
            .sha256
            .as_deref()
            .unwrap()
            .starts_with("010eace7dc"),
        "{:?}",
        file.images[0].sha256
    );
    for (damaged, fault) in [
        (
            (2, 80, 0x8011, &b"no frame of zstd"[..], 1000),
            "cannot decompress",
        ),
        ((1, 80, 0x2011, b"\xff", 9), "cannot decompress"),
    ] {
        let file = of(&fatbinary(&[damaged, plain]));
        assert_eq!(
            (file.images.len(), file.images[1].format),
            (2, "ptx"),
            "{fault}"
        );
        assert!(file.errors[0].ends_with(fault), "{:?}", file.errors);
        assert!(file.images[0].sha256.is_some());
    }
}

#[test]
fn what_is_damaged_hides_nothing_around_it() {
    let whole = fatbinary(&[(1, 90, 0x11, PTX, 0)]);
    // An entry that ends past the end of the file, after a complete entry.
    let mut cut = fatbinary(&[(1, 80, 0x11, PTX, 0), (1, 90, 0x11, PTX, 0)]);
    let second = 16 + 64 + PTX.len().next_multiple_of(8);
    cut[second + 8] = 0xff;
    let file = of(&cut);
    assert_eq!(
        (file.images.len(), file.errors.len()),
        (1, 1),
        "{:?}",
        file.errors
    );
    // A container with an implausible size, before a complete one.
    let mut lost = whole.clone();
    lost[8..16].fill(0xff);
    let file = of(&[lost, whole].concat());
    assert_eq!(
        (file.images.len(), file.errors.len()),
        (1, 1),
        "{:?}",
        file.errors
    );
    // A compressed bundle with damage after its own header.
    let code: Vec<u8> = (0u32..300_000)
        .map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8)
        .collect();
    let plain = bundle_of(&[
        ("host-x86_64-unknown-linux-gnu-", b""),
        ("hip-amdgcn-amd-amdhsa--gfx906", &code),
    ]);
    let packed = zlib(&plain);
    let mut bundle = [
        &b"CCOB\x03\0\0\0"[..],
        &words(&[32 + packed.len() as u64, plain.len() as u64, 0]),
        &packed,
    ]
    .concat();
    let end = bundle.len() - 50;
    bundle[end..].fill(0xff);
    let file = of(&bundle);
    assert_eq!(
        (file.images.len(), file.errors.len()),
        (2, 1),
        "{:?}",
        file.errors
    );
}

#[test]
fn ptx_names_its_processor() {
    let file = of(&PTX[..PTX.len() - 1]);
    assert_eq!(images(&file), [" nvptx64-nvidia-cuda sm_90 44"]);
    // As in GCC's archives for nvptx-none.
    let file = of(b"// BEGIN PREAMBLE\n\t.version\t6.0\n\t.target\tsm_35\n\t.address_size 64\n// END PREAMBLE\n");
    assert_eq!(images(&file)[0].split(' ').nth(2), Some("sm_35"));
}
