//! Tests that new section sizes change nothing else, with objects of each class and byte order. The
//! crate `object` reads them for the comparison.

mod divide;
mod front_page;
mod linked;
mod linkers;
mod sample;

use object::{Object as _, ObjectSection as _};

use super::super::edit::tests::{SHAPES, digest::digest, sample};
use super::*;
use crate::reference::Outcome;

/// Returns the new file.
pub(super) fn resized(
    data: &[u8],
    contents: &[(usize, &[u8])],
    patches: &[Patch],
) -> Result<Vec<u8>, Malformed> {
    with_pointers(data, contents, patches, &[])
}

/// Returns the new file, with an array of pointers.
pub(super) fn with_pointers(
    data: &[u8],
    contents: &[(usize, &[u8])],
    patches: &[Patch],
    pointers: &[u64],
) -> Result<Vec<u8>, Malformed> {
    let sizes: Vec<NewSize> = contents
        .iter()
        .map(|(section, new)| NewSize {
            section: *section,
            size: new.len() as u64,
            may_move: false,
        })
        .collect();
    let contents: Vec<&[u8]> = contents.iter().map(|(_, new)| *new).collect();
    planned(data, &sizes, &contents, patches, pointers)
}

/// Returns the file that `plan` describes.
pub(super) fn planned(
    data: &[u8],
    sizes: &[NewSize],
    contents: &[&[u8]],
    patches: &[Patch],
    pointers: &[u64],
) -> Result<Vec<u8>, Malformed> {
    let mut file = Vec::new();
    for part in plan(data, sizes, patches, pointers)? {
        match part {
            Part::Old(range) => file.extend(&data[range.start as usize..range.end as usize]),
            Part::New(place) => file.extend(contents[place]),
            Part::Bytes(bytes) => file.extend(bytes),
            Part::Zeros(count) => file.resize(file.len() + count as usize, 0),
        }
    }
    Ok(file)
}

/// Returns the addresses of new contents.
pub(super) fn addresses(data: &[u8], sizes: &[NewSize]) -> Result<Vec<u64>, Malformed> {
    super::addresses(data, sizes, 0).map(|(addresses, _)| addresses)
}

/// Returns the index of the section with this name.
pub(super) fn index_of(data: &[u8], name: &str) -> usize {
    let file = object::File::parse(data).expect("an ELF file");
    file.section_by_name(name).expect("the section").index().0
}

fn images(data: &[u8]) -> usize {
    index_of(data, ".llvm.offloading")
}

fn contents(data: &[u8], name: &str) -> Vec<u8> {
    let file = object::File::parse(data).expect("an ELF file");
    file.section_by_name(name)
        .expect("the section")
        .data()
        .expect("its bytes")
        .to_vec()
}

#[test]
fn sections_of_objects_get_any_size() -> Outcome {
    for (architecture, endian) in SHAPES {
        let before = sample(architecture, endian);
        let others = |data: &[u8]| -> Vec<String> {
            digest(data)
                .into_iter()
                .filter(|line| !line.starts_with("section .llvm.offloading"))
                .collect()
        };
        for new in [&b""[..], b"new", &[7; 10_000]] {
            let after = resized(&before, &[(images(&before), new)], &[])?;
            assert_eq!(contents(&after, ".llvm.offloading"), new);
            assert_eq!(
                others(&after),
                others(&before),
                "{architecture:?} {endian:?} {}",
                new.len()
            );
            let file = object::File::parse(&*after)?;
            for section in file.sections() {
                if let Some((offset, size)) = section.file_range().filter(|(_, size)| *size > 0) {
                    assert_eq!(
                        offset % section.align().max(1),
                        0,
                        "{:?} at {offset}, {size} bytes",
                        section.name()
                    );
                }
            }
        }
        let size = contents(&before, ".llvm.offloading").len();
        let same = resized(&before, &[(images(&before), &vec![1; size])], &[])?;
        let back = resized(
            &same,
            &[(images(&same), &contents(&before, ".llvm.offloading"))],
            &[],
        )?;
        assert_eq!(digest(&back), digest(&before));
        assert!(
            back.len() <= before.len(),
            "{} bytes were {}",
            back.len(),
            before.len()
        );
    }
    Ok(())
}

#[test]
fn patches_are_made_where_their_bytes_are_now() -> Outcome {
    let (architecture, endian) = SHAPES[0];
    let before = sample(architecture, endian);
    let (at, size) = object::File::parse(&*before)?
        .section_by_name("llvm_offload_entries")
        .ok_or("entries")?
        .file_range()
        .ok_or("bytes")?;
    let patches = [
        (3, vec![1, 2, 3, 4]),
        (5, vec![9]),
        (2, vec![8, 8]),
        (20, vec![6]),
    ];
    let patches = patches.map(|(within, bytes)| Patch {
        offset: at + within,
        bytes,
    });
    let after = resized(&before, &[(images(&before), &[0; 999])], &patches)?;
    let mut expected = vec![7; size as usize];
    expected[2..7].copy_from_slice(&[8, 8, 2, 9, 4]);
    expected[20] = 6;
    assert_eq!(contents(&after, "llvm_offload_entries"), expected);
    Ok(())
}

#[test]
fn what_cannot_be_changed_is_an_error() {
    let (architecture, endian) = SHAPES[0];
    let data = sample(architecture, endian);
    let images = images(&data);
    let what = |contents: &[(usize, &[u8])], patch: Option<u64>| {
        let patches: Vec<Patch> = patch
            .map(|offset| Patch {
                offset,
                bytes: vec![0; 2],
            })
            .into_iter()
            .collect();
        resized(&data, contents, &patches)
            .map(drop)
            .unwrap_err()
            .what
    };
    let at = object::File::parse(&*data)
        .unwrap()
        .section_by_index(object::SectionIndex(images))
        .unwrap()
        .file_range()
        .unwrap()
        .0;
    assert_eq!(
        what(&[(0, b"")], None),
        "cannot add contents to a section without bytes in the file"
    );
    assert_eq!(
        what(&[(index_of(&data, ".bss"), b"")], None),
        "cannot add contents to a section without bytes in the file"
    );
    assert_eq!(what(&[(9999, b"")], None), "no such section");
    assert_eq!(
        what(&[(images, b""), (images, b"")], None),
        "new contents for the same section twice"
    );
    assert_eq!(
        what(&[(images, b"")], Some(at)),
        "patched bytes are in a section with new contents"
    );
    assert_eq!(
        what(&[(images, b"")], Some(0)),
        "patched bytes are in the headers of the file"
    );
    assert_eq!(
        what(&[(images, b"")], Some(data.len() as u64 - 1)),
        "patched bytes are in the headers of the file"
    );
    assert_eq!(
        what(&[], Some(data.len() as u64)),
        "patched bytes are past the end"
    );
}

#[test]
fn damaged_objects_never_panic() {
    for (architecture, endian) in &SHAPES[..4] {
        let data = sample(*architecture, *endian);
        let images = images(&data);
        for at in 0..data.len() {
            for flip in [0xff, 1, 0x80] {
                let mut data = data.clone();
                data[at] ^= flip;
                if let Ok(after) = resized(&data, &[(images, b"new")], &[]) {
                    assert!(
                        after.len() < 2 * data.len() + 0x10_000,
                        "byte {at} made it {} bytes",
                        after.len()
                    );
                }
            }
        }
    }
}
