//! Archives as AMD's writer makes them, edits, and damaged archives.

use super::*;
use crate::compose::{Item, join};

/// The table of contents of AMD's fixture `test_noop.kpack` (ROCm/rocm-systems,
/// `shared/kpack/runtime/tests/generate_test_data.py`), as Python's msgpack writes it.
const TABLE: &[u8] = b"\x87\xaeformat_version\x01\xaagroup_name\xa4test\xafgfx_arch_family\xa7gfx900X\
\xaagfx_arches\x92\xa6gfx900\xa6gfx906\xa3toc\x82\
\xb0lib/libtest.so#0\x82\xa6gfx900\x83\xa4type\xa5hsaco\xa7ordinal\x00\xadoriginal_sizew\
\xa6gfx906\x83\xa4type\xa5hsaco\xa7ordinal\x01\xadoriginal_size\xcc\xdb\
\xadbin/testapp#0\x81\xa6gfx900\x83\xa4type\xa5hsaco\xa7ordinal\x02\xadoriginal_size\xcc\xa8\
\xb2compression_scheme\xa4none\xa5blobs\x93\x82\xa6offset@\xa4sizew\x82\xa6offset\xcc\xb7\xa4size\xcc\xdb\
\x82\xa6offset\xcd\x01\x92\xa4size\xcc\xa8";

const ENTRIES: [NewEntry<'static>; 3] = [
    NewEntry {
        binary: "lib/libtest.so#0",
        arch: "gfx900",
        code: 0,
    },
    NewEntry {
        binary: "lib/libtest.so#0",
        arch: "gfx906",
        code: 1,
    },
    NewEntry {
        binary: "bin/testapp#0",
        arch: "gfx900",
        code: 2,
    },
];

fn codes() -> [Vec<u8>; 3] {
    let code = |start: &[u8], fill: u8, count: usize| [start, &vec![fill; count]].concat();
    [
        code(b"KERNEL1_GFX900_DATA", 0, 100),
        code(b"KERNEL2_GFX906_DATA", 0, 200),
        code(b"KERNEL3_APP_GFX900", 0xff, 150),
    ]
}

/// An archive with the code objects of AMD's fixtures.
fn made(scheme: Scheme) -> Vec<u8> {
    let codes = codes();
    let stored = codes.each_ref().map(|code| match scheme {
        Scheme::None => code.clone(),
        Scheme::ZstdPerKernel => zstd::bulk::compress(code, LEVEL).unwrap(),
    });
    let sizes: Vec<Code> = stored
        .iter()
        .zip(&codes)
        .map(|(stored, code)| Code {
            stored: stored.len() as u64,
            original_size: code.len() as u64,
        })
        .collect();
    let head = Head {
        group: "test",
        family: "gfx900X",
        scheme,
    };
    let parts = create(&head, &ENTRIES, &sizes).unwrap();
    join(&[], &parts, &stored.each_ref().map(Vec::as_slice)).unwrap()
}

/// The code of an entry.
fn code(data: &[u8], archive: &Archive<'_>, entry: usize) -> Vec<u8> {
    let range = archive.entries[entry].stored.clone().unwrap();
    let stored = &data[range.start as usize..range.end as usize];
    match archive.scheme {
        Scheme::None => stored.to_vec(),
        Scheme::ZstdPerKernel => zstd::bulk::decompress(stored, 1 << 20).unwrap(),
    }
}

#[test]
fn the_fixture_of_amd_is_read_and_written() {
    let data = [
        &b"KPAK\x01\0\0\0\x3a\x02\0\0\0\0\0\0"[..],
        &[0; 48],
        &codes().concat(),
        TABLE,
    ]
    .concat();
    assert_eq!(made(Scheme::None), data);
    let archive = Archive::read(&data).unwrap();
    assert_eq!((archive.group, archive.family), ("test", "gfx900X"));
    assert_eq!(archive.architectures, ["gfx900", "gfx906"]);
    let keys: Vec<_> = archive
        .entries
        .iter()
        .map(|entry| (entry.binary, entry.arch, entry.original_size))
        .collect();
    assert_eq!(
        keys,
        [
            ("lib/libtest.so#0", "gfx900", Some(119)),
            ("lib/libtest.so#0", "gfx906", Some(219)),
            ("bin/testapp#0", "gfx900", Some(168)),
        ]
    );
    assert_eq!([0, 1, 2].map(|entry| code(&data, &archive, entry)), codes());
}

#[test]
fn frames_are_found_by_their_number() {
    let data = made(Scheme::ZstdPerKernel);
    let archive = Archive::read(&data).unwrap();
    assert_eq!(archive.scheme, Scheme::ZstdPerKernel);
    assert_eq!([0, 1, 2].map(|entry| code(&data, &archive, entry)), codes());
}

#[test]
fn entries_with_equal_code_share_it() {
    let head = Head {
        group: "",
        family: "gfx9",
        scheme: Scheme::None,
    };
    let entries = ["a#0", "b#0"].map(|binary| NewEntry {
        binary,
        arch: "gfx90a",
        code: 0,
    });
    let parts = create(
        &head,
        &entries,
        &[Code {
            stored: 4,
            original_size: 4,
        }],
    )
    .unwrap();
    let data = join(&[], &parts, &[b"code"]).unwrap();
    let archive = Archive::read(&data).unwrap();
    assert_eq!(archive.entries[0].stored, archive.entries[1].stored);
    // Both still share it when a third entry goes.
    let parts = compose(&data, &[Item::Old(1), Item::Old(0)]).unwrap();
    let swapped = join(&data, &parts, &[]).unwrap();
    let archive = Archive::read(&swapped).unwrap();
    assert_eq!(
        [0, 1].map(|entry| archive.entries[entry].binary),
        ["b#0", "a#0"]
    );
    assert_eq!(archive.entries[0].stored, archive.entries[1].stored);
}

#[test]
fn entries_are_removed_and_replaced() {
    for scheme in [Scheme::None, Scheme::ZstdPerKernel] {
        let data = made(scheme);
        let other = match scheme {
            Scheme::None => b"other".to_vec(),
            Scheme::ZstdPerKernel => zstd::bulk::compress(b"other", LEVEL).unwrap(),
        };
        let size = Code {
            stored: other.len() as u64,
            original_size: 5,
        };
        let parts = compose(&data, &[Item::Old(0), Item::Changed { entry: 2, size }]).unwrap();
        let new = join(&data, &parts, &[&other]).unwrap();
        let archive = Archive::read(&new).unwrap();
        assert_eq!(
            archive.architectures,
            ["gfx900"],
            "gfx906 has no code any more"
        );
        assert_eq!(archive.group, "test");
        assert_eq!(code(&new, &archive, 0), codes()[0]);
        assert_eq!(code(&new, &archive, 1), b"other");
        assert_eq!(archive.entries[1].original_size, Some(5));
        let all = [0, 1, 2].map(Item::Old);
        let parts = compose(&data, &all).unwrap();
        assert_eq!(join(&data, &parts, &[]).unwrap(), data, "nothing changes");
    }
}

/// Fields that AMD's tools may add stay when entries go.
#[test]
fn unknown_fields_stay() {
    let table = b"\x86\xa3toc\x82\xa1a\x81\xa6gfx900\x83\xa7ordinal\x00\xa8metadata\x81\xa1x\x92\x01\xc0\xa4type\xa5hsaco\
\xa1b\x81\xa6gfx906\x81\xa7ordinal\x01\xa5later\x82\xa1y\xc3\xa1z\xc7\x03\x01abc\xa5blobs\x92\
\x82\xa6offset@\xa4size\x01\x82\xa6offsetA\xa4size\x01\xaagfx_arches\x92\xa6gfx900\xa6gfx906\
\xaagroup_name\xa1g\xb2compression_scheme\xa4none";
    let data = [
        &b"KPAK\x01\0\0\0\x42\0\0\0\0\0\0\0"[..],
        &[0; 48],
        b"AB",
        table,
    ]
    .concat();
    let parts = compose(&data, &[Item::Old(0)]).unwrap();
    let new = join(&data, &parts, &[]).unwrap();
    let expected = b"\x86\xa3toc\x81\xa1a\x81\xa6gfx900\x83\xa7ordinal\x00\xa8metadata\x81\xa1x\x92\x01\xc0\xa4type\xa5hsaco\
\xa5later\x82\xa1y\xc3\xa1z\xc7\x03\x01abc\xa5blobs\x91\x82\xa6offset@\xa4size\x01\xaagfx_arches\x91\xa6gfx900\
\xaagroup_name\xa1g\xb2compression_scheme\xa4none";
    assert_eq!(&new[64..], [b"A", &expected[..]].concat());
}

#[test]
fn damage_is_found() {
    let whole = made(Scheme::None);
    let changed = |at: usize, byte: u8| {
        let mut data = whole.clone();
        data[at] = byte;
        data
    };
    let zstd = made(Scheme::ZstdPerKernel);
    let fault = |data: &[u8]| Archive::read(data).unwrap_err().to_string();
    assert_eq!(fault(b"KPAK"), "+0x4: truncated kpack header");
    assert_eq!(fault(&changed(4, 2)), "+0x4: unknown version of kpack");
    assert_eq!(
        fault(&[&whole[..8], &[0; 8], &whole[16..]].concat()),
        "+0x8: no table of contents: the file is incomplete"
    );
    assert_eq!(fault(&whole[..100]), "+0x8: table of contents past the end");
    assert_eq!(
        fault(&whole[..whole.len() - 1]),
        "+0x385: damaged MessagePack"
    );
    let at = zstd
        .windows(15)
        .position(|text| text == b"zstd-per-kernel")
        .unwrap();
    let mut unknown = zstd.clone();
    unknown[at] = b'Z';
    assert!(fault(&unknown).ends_with("unknown compression scheme"));
    // A damaged frame hides itself and those after it.
    let archive = Archive::read(&zstd).unwrap();
    let second = archive.entries[1].stored.clone().unwrap().start as usize;
    let mut damaged = zstd.clone();
    damaged[second - 1] = 0xff;
    let archive = Archive::read(&damaged).unwrap();
    let states: Vec<bool> = archive
        .entries
        .iter()
        .map(|entry| entry.stored.is_ok())
        .collect();
    assert_eq!(states, [true, false, false]);
}

#[test]
fn references_are_read_as_the_loader_does() {
    let reference = Reference {
        binary: "lib/libtest.so".to_owned(),
        search_paths: vec!["../.kpack/test_@GFXARCH@.kpack".to_owned()],
    };
    let bytes = reference.write();
    assert_eq!(bytes, b"\x82\xb2kpack_search_paths\x91\xbe../.kpack/test_@GFXARCH@.kpack\xabkernel_name\xaelib/libtest.so");
    // Whatever follows in the section is ignored.
    assert_eq!(
        Reference::read(&[&bytes[..], &[0xc1; 9]].concat()),
        Ok(reference)
    );
    let fault = |data: &[u8]| Reference::read(data).unwrap_err().to_string();
    assert_eq!(fault(b""), "+0x0: not a kpack reference");
    assert_eq!(
        fault(b"\x80"),
        "+0x0: no kernel_name in the kpack reference"
    );
    assert_eq!(
        fault(b"\x81\xabkernel_name\xa1x"),
        "+0x0: no search path in the kpack reference"
    );
}

/// Lists and maps may claim any number of elements.
#[test]
fn claims_take_no_memory() {
    for table in [
        &b"\x81\xa5later\xdf\xff\xff\xff\xff"[..],
        b"\x81\xaagfx_arches\xdd\xff\xff\xff\xff",
        b"\xdf\xff\xff\xff\xff",
    ] {
        let data = [&b"KPAK\x01\0\0\0\x40\0\0\0\0\0\0\0"[..], &[0; 48], table].concat();
        assert!(Archive::read(&data).is_err());
    }
    // Lists in lists need no stack.
    let deep = [
        &b"KPAK\x01\0\0\0\x40\0\0\0\0\0\0\0"[..],
        &[0; 48],
        b"\x81\xa5later",
        &[0x91; 1 << 20],
        b"\xc0",
    ]
    .concat();
    assert_eq!(
        Archive::read(&deep).map(|archive| archive.entries.len()),
        Ok(0)
    );
}

#[test]
fn fields_that_occur_twice_are_refused() {
    let mut archive = made(Scheme::None);
    let mut rename = |old: &[u8; 10]| {
        let at = archive.windows(10).position(|bytes| bytes == old);
        let at = at.unwrap();
        archive[at..at + 10].copy_from_slice(b"other_name");
        Archive::read(&archive).map(|archive| archive.entries.len())
    };
    // Readers ignore the field.
    assert_eq!(rename(b"group_name"), Ok(3));
    let twice = rename(b"gfx_arches").unwrap_err();
    assert_eq!(twice.what, "a field occurs twice");
}
