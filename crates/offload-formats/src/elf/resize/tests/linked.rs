//! Tests that new section sizes change nothing else in linked files of each class and byte order,
//! in the file and in memory. The crate `object` reads them for the comparison.

use std::collections::BTreeMap;

use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _, SectionKind};

use super::sample::{CLASSES, IMAGES, sample, sample_with_images_in_front};
use super::{addresses, index_of, planned, resized, with_pointers};
use crate::elf::resize::{NewSize, Patch, addresses as with_addresses};
use crate::reference::Outcome;

/// Returns the samples, each with a description.
fn samples() -> impl Iterator<Item = (String, Vec<u8>)> {
    let each = CLASSES
        .into_iter()
        .flat_map(|(is_64, endian)| [false, true].map(|is_program| (is_64, endian, is_program)));
    each.map(|shape| (format!("{shape:?}"), sample(shape.0, shape.1, shape.2)))
}

/// Returns `size` bytes of images that start with the old ones, as far as these reach.
fn images(size: usize) -> Vec<u8> {
    (0..size).map(|at| (at % 251) as u8).collect()
}

fn with_images(data: &[u8], size: usize) -> Vec<u8> {
    let after = resized(data, &[(index_of(data, "images"), &images(size))], &[])
        .unwrap_or_else(|fault| panic!("{fault}"));
    check(data, &after, size);
    after
}

/// Returns the bytes from address `addr` on in memory, according to the segments of the file.
fn in_memory(file: &object::File<'_>, addr: u64, size: u64) -> Option<Vec<u8>> {
    let segment = file
        .segments()
        .find(|segment| (segment.address()..segment.address() + segment.size()).contains(&addr))?;
    let mut bytes = segment.data().ok()?.to_vec();
    bytes.resize(segment.size() as usize, 0);
    let start = (addr - segment.address()) as usize;
    bytes.get(start..start + size as usize).map(<[u8]>::to_vec)
}

/// Compares `after`, whose images have `size` bytes, with `before`.
fn check(before: &[u8], after: &[u8], size: usize) {
    let (old, new) = (
        object::File::parse(before).unwrap(),
        object::File::parse(after).unwrap(),
    );
    let sections = |file: &object::File<'_>| -> BTreeMap<String, Vec<u8>> {
        file.sections()
            .map(|section| {
                (
                    section.name().unwrap().to_owned(),
                    section.data().unwrap().to_vec(),
                )
            })
            .collect()
    };
    let (mut expected, mut found) = (sections(&old), sections(&new));
    expected.insert("images".into(), images(size));
    // The values and sections of symbols are compared below.
    for sections in [&mut expected, &mut found] {
        sections.remove(".symtab");
    }
    assert_eq!(found, expected);
    let mut last = 0;
    for section in new.sections().filter(|section| section.address() > 0) {
        let name = section.name().unwrap();
        assert!(section.address() >= last, "{name} is out of order");
        assert_eq!(section.address() % section.align(), 0, "{name}");
        last = section.address();
        let may_move = [".interp", ".note.gnu.build-id", "images"].contains(&name);
        assert!(
            may_move || section.address() == old.section_by_name(name).unwrap().address(),
            "{name} has moved"
        );
        let bytes = match section.kind() {
            SectionKind::UninitializedData => vec![0; section.size() as usize],
            _ => section.data().unwrap().to_vec(),
        };
        if !bytes.is_empty() {
            assert_eq!(
                in_memory(&new, section.address(), section.size()),
                Some(bytes),
                "{name}"
            );
        }
    }
    let mut end = 0;
    for segment in new.segments() {
        let (offset, _) = segment.file_range();
        assert_eq!(offset % 4096, segment.address() % 4096);
        assert!(segment.address() / 4096 >= end, "segments share a page");
        end = (segment.address() + segment.size()).div_ceil(4096);
    }
    for symbol in new
        .symbols()
        .filter(|symbol| symbol.section_index().is_some())
    {
        let of_section = |file: &object::File<'_>, symbol: &object::Symbol<'_, '_>| {
            let section = file
                .section_by_index(symbol.section_index().unwrap())
                .unwrap();
            (
                section.name().unwrap().to_owned(),
                symbol.address() - section.address(),
                symbol.size(),
            )
        };
        let was = old.symbol_by_name(symbol.name().unwrap()).unwrap();
        let (section, within, length) = of_section(&old, &was);
        let fits = section != "images" || within + length <= size as u64;
        let gone = within >= size as u64;
        let expected = match (fits, gone) {
            (true, _) => (section, within, length),
            (false, true) => (section, 0, 0),
            (false, false) => (section, within, size as u64 - within),
        };
        assert_eq!(of_section(&new, &symbol), expected, "{:?}", symbol.name());
    }
}

#[test]
fn bytes_are_taken_out_of_the_middle_of_a_segment() {
    for (shape, before) in samples() {
        for size in [
            0,
            1,
            100,
            0x1000,
            0x3000,
            IMAGES - 0x1100,
            IMAGES - 1,
            IMAGES,
        ] {
            let after = with_images(&before, size);
            assert_eq!(
                before.len() - after.len(),
                (IMAGES - size) / 4096 * 4096,
                "{shape}, {size} bytes"
            );
            let address = addresses(
                &before,
                &[NewSize {
                    section: index_of(&before, "images"),
                    size: size as u64,
                    may_move: false,
                }],
            );
            let file = object::File::parse(&*before).unwrap();
            assert_eq!(
                address,
                Ok(vec![file.section_by_name("images").unwrap().address()])
            );
        }
    }
}

#[test]
fn contents_that_do_not_fit_are_the_last_segment() -> Outcome {
    for (shape, before) in samples() {
        let section = index_of(&before, "images");
        let address = addresses(
            &before,
            &[NewSize {
                section,
                size: 0x9000,
                may_move: false,
            }],
        )?;
        let after = with_images(&before, 0x9000);
        let file = object::File::parse(&*after)?;
        let images = file.section_by_name("images").ok_or("images")?;
        assert_eq!(address, [images.address()], "{shape}");
        let top = file
            .sections()
            .map(|section| section.address() + section.size())
            .max();
        assert_eq!(top, Some(images.address() + 0x9000));
        assert!(
            after.len() < before.len() + 0x9000 - IMAGES / 4096 * 4096 + 2 * 4096,
            "{shape}: {}",
            after.len()
        );
        // From now on, the section grows and shrinks in place.
        let mut now = after;
        for size in [0x100, 0x20_000, 0, 0x6000] {
            let section = index_of(&now, "images");
            assert_eq!(
                addresses(
                    &now,
                    &[NewSize {
                        section,
                        size,
                        may_move: false
                    }]
                )?,
                address,
                "{shape}"
            );
            now = with_images(&now, size as usize);
        }
    }
    Ok(())
}

#[test]
fn images_in_front_grow() -> Outcome {
    for (is_64, endian) in CLASSES {
        for is_program in [false, true] {
            let mut now = sample_with_images_in_front(is_64, endian, is_program);
            let first = object::File::parse(&*now)?
                .section_by_name("first")
                .map(|section| section.address());
            for size in [0x9000, 0x20_000, 3, 0x9000] {
                now = with_images(&now, size);
                let file = object::File::parse(&*now)?;
                assert_eq!(
                    file.section_by_name("first")
                        .map(|section| section.address()),
                    first
                );
            }
        }
    }
    Ok(())
}

#[test]
fn what_was_cut_grows_again() {
    for (_, before) in samples() {
        let mut now = before.clone();
        for size in [100, IMAGES, 0, 0x8000, 7, IMAGES] {
            now = with_images(&now, size);
        }
        assert!(now.len() < before.len() + 0x3000);
    }
}

#[test]
fn several_sections_change_at_once() -> Outcome {
    for (shape, before) in samples() {
        let find = |name| index_of(&before, name);
        let (images, last) = (
            (find("images"), vec![9; 50]),
            (find("last"), vec![8; 0x2000]),
        );
        let comment = (find(".comment"), vec![7; 5000]);
        let at = object::File::parse(&*before)?
            .section_by_name(".data")
            .and_then(|data| data.file_range())
            .ok_or("data")?
            .0;
        let contents = [&images, &last, &comment].map(|(section, bytes)| (*section, &bytes[..]));
        let after = resized(
            &before,
            &contents,
            &[Patch {
                offset: at + 1,
                bytes: vec![5; 3],
            }],
        )?;
        let file = object::File::parse(&*after)?;
        for (name, bytes) in [
            ("images", images.1),
            ("last", last.1),
            (".comment", comment.1),
        ] {
            assert_eq!(
                file.section_by_name(name).ok_or(name)?.data()?,
                bytes,
                "{shape}"
            );
        }
        assert_eq!(
            file.section_by_name(".data").ok_or("data")?.data()?[..5],
            [4, 5, 5, 5, 4]
        );
    }
    Ok(())
}

#[test]
fn what_cannot_be_changed_is_an_error() {
    let data = sample(true, object::Endianness::Little, false);
    let what = |data: &[u8], name: &str, size: usize| {
        resized(data, &[(index_of(data, name), &vec![0; size])], &[])
            .map(drop)
            .unwrap_err()
            .what
    };
    assert_eq!(
        what(&data, ".interp", 3),
        "the section to resize is in a segment that must not change"
    );
    assert_eq!(
        what(&data, ".bss", 3),
        "cannot add contents to a section without bytes in the file"
    );
    let mut core = data.clone();
    core[16] = 4;
    assert_eq!(
        what(&core, "images", 3),
        "not an object, a program or a shared library"
    );
    let mut many = data.clone();
    many[56..58].fill(0xff);
    assert_eq!(
        what(&many, "images", 3),
        "more segments than the file header can count"
    );
    // The byte after the program headers belongs to a section that cannot move, so that only the
    // unused program header is available.
    let mut full = data;
    let interp = 64 + 8;
    full[interp - 8] = 0x42;
    assert_eq!(
        what(&full, "images", 0x9000),
        "no room for another program header"
    );
}

#[test]
fn damaged_files_never_panic() {
    for (is_64, endian) in CLASSES {
        let data = sample(is_64, endian, false);
        let (images, last) = (index_of(&data, "images"), index_of(&data, "last"));
        let heads = 0..1000;
        let tables = data.len() - 1800..data.len();
        for at in heads.chain(tables) {
            for flip in [0xff, 1, 0x80] {
                let mut data = data.clone();
                data[at] ^= flip;
                for size in [3, 0x7000] {
                    let pointers = if size > 3 && flip == 1 {
                        &[5, 6][..]
                    } else {
                        &[]
                    };
                    if let Ok(after) = with_pointers(
                        &data,
                        &[(images, &vec![0; size]), (last, b"new")],
                        &[],
                        pointers,
                    ) {
                        assert!(
                            after.len() < 2 * data.len() + 0x8000 + (1 << 24),
                            "byte {at} made it {} bytes",
                            after.len()
                        );
                    }
                }
            }
        }
        for size in (0..data.len()).step_by(7) {
            assert!(
                resized(&data[..size], &[(images, b"new")], &[]).is_err(),
                "cut to {size} bytes"
            );
        }
    }
}

#[test]
fn pointers_are_added_to_programs_at_fixed_addresses() -> Outcome {
    for (is_64, endian) in CLASSES {
        let before = sample(is_64, endian, true);
        let section = index_of(&before, "images");
        for size in [100, 0x9000] {
            let (images_at, array_at) = with_addresses(
                &before,
                &[NewSize {
                    section,
                    size: size as u64,
                    may_move: false,
                }],
                9,
            )?;
            let pointers: Vec<u64> = (0..9).map(|at| images_at[0] + at).collect();
            let after = with_pointers(&before, &[(section, &images(size))], &[], &pointers)?;
            let file = object::File::parse(&*after)?;
            let array = file
                .section_by_name(".data.rel.pointers")
                .ok_or("the array")?;
            let width = if is_64 { 8 } else { 4 };
            let expected = pointers.iter().flat_map(|pointer| {
                let bytes = pointer.to_le_bytes();
                let bytes: Vec<u8> = bytes[..width].to_vec();
                if endian == object::Endianness::Big {
                    bytes.into_iter().rev().collect()
                } else {
                    bytes
                }
            });
            let expected: Vec<u8> = expected.collect();
            assert_eq!((array.address(), array.data()?), (array_at, &expected[..]));
            assert_eq!(
                in_memory(&file, array_at, expected.len() as u64),
                Some(expected)
            );
            let new = file.section_by_name("images").ok_or("images")?;
            assert_eq!(
                (new.address(), new.data()?),
                (images_at[0], &images(size)[..])
            );
            assert_eq!(
                file.sections().count(),
                object::File::parse(&*before)?.sections().count() + 1
            );
        }
    }
    Ok(())
}

#[test]
fn pointers_that_cannot_be_relocated_are_an_error() {
    let what = |data: &[u8]| {
        with_pointers(data, &[], &[], &[1])
            .map(drop)
            .unwrap_err()
            .what
    };
    let data = sample(true, object::Endianness::Little, false);
    assert_eq!(
        what(&data),
        "no room in the dynamic section for a table of relocations"
    );
    let mut other = data.clone();
    // The machine is EM_386.
    other[18] = 3;
    assert_eq!(
        what(&other),
        "cannot add pointers to position-independent files for this processor"
    );
}

#[test]
fn contents_that_may_move_leave_room_behind_the_program_headers() -> Outcome {
    for (shape, before) in samples() {
        let section = index_of(&before, "images");
        let file = object::File::parse(&*before)?;
        let old = file.section_by_name("images").ok_or("images")?.address();
        // The program headers are near the start of the first segment, which starts the file.
        let first = file.segments().next().ok_or("segments")?.address();
        for (size, moves) in [
            (100, true),
            (0x4000, true),
            (IMAGES - 1, false),
            (IMAGES, false),
            (0, false),
        ] {
            let new = [NewSize {
                section,
                size: size as u64,
                may_move: true,
            }];
            let after = planned(&before, &new, &[&images(size)], &[], &[])?;
            check(&before, &after, size);
            let parsed = object::File::parse(&*after)?;
            let at = parsed.section_by_name("images").ok_or("images")?.address();
            assert_eq!(with_addresses(&before, &new, 0)?.0, [at], "{shape}");
            let entry = if parsed.is_64() { 56 } else { 32 };
            // Other tools move no section of a program at fixed addresses if another section
            // precedes the images.
            let is_fixed = parsed.kind() == object::ObjectKind::Executable;
            let moves = moves && !is_fixed && old - first < 64 + 24 * entry;
            assert_eq!(at > old, moves, "{shape}, {size} bytes at {at:#x}");
            assert!(
                !moves || at - first >= 64 + 24 * entry,
                "{shape}, {size} bytes at {at:#x}"
            );
        }
    }
    Ok(())
}
