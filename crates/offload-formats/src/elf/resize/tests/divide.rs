//! Tests that divided sections of linked files stay at their addresses, and that each part has its
//! bytes, its address and its symbols.

use object::{Object as _, ObjectSection as _, ObjectSegment as _, ObjectSymbol as _};

use super::sample::{CLASSES, sample};
use super::{index_of, resized};
use crate::elf::resize::{Part, divide};

fn divided(data: &[u8], ranges: &[std::ops::Range<u64>]) -> Option<Vec<u8>> {
    let mut file = Vec::new();
    for part in divide(data, ranges, b"own").ok()? {
        match part {
            Part::Old(range) => file.extend(&data[range.start as usize..range.end as usize]),
            Part::Bytes(bytes) => file.extend(bytes),
            other => panic!("{other:?}"),
        }
    }
    Some(file)
}

/// Returns the file range of the middle of a sample's images.
fn middle(data: &[u8]) -> std::ops::Range<u64> {
    let file = object::File::parse(data).unwrap();
    let (start, size) = file
        .section_by_name("images")
        .unwrap()
        .file_range()
        .unwrap();
    start + 0x1000..start + size - 0x1000
}

#[test]
fn parts_have_sections_of_their_own() {
    for (is_64, endian, is_program) in CLASSES
        .into_iter()
        .flat_map(|(is_64, endian)| [false, true].map(|is| (is_64, endian, is)))
    {
        let data = sample(is_64, endian, is_program);
        let range = middle(&data);
        let after = divided(&data, std::slice::from_ref(&range)).unwrap();
        let (old, new) = (
            object::File::parse(&data[..]).unwrap(),
            object::File::parse(&after[..]).unwrap(),
        );
        let whole = old.section_by_name("images").unwrap();
        let part = new.section_by_name("own").unwrap();
        assert_eq!(part.address(), whole.address() + 0x1000);
        assert_eq!(
            part.file_range(),
            Some((range.start, range.end - range.start))
        );
        let parts = new
            .sections()
            .filter(|section| matches!(section.name(), Ok("images" | "own")));
        let together: Vec<u8> = parts
            .flat_map(|part| part.data().unwrap().to_vec())
            .collect();
        assert_eq!(together, whole.data().unwrap());
        let segments = |file: &object::File<'_>| -> Vec<(u64, Vec<u8>)> {
            file.segments()
                .map(|segment| {
                    (
                        segment.address(),
                        segment.data().unwrap()[0x400.min(segment.data().unwrap().len())..]
                            .to_vec(),
                    )
                })
                .collect()
        };
        assert_eq!(segments(&old), segments(&new));
        for (one, other) in old.symbols().zip(new.symbols()) {
            assert_eq!((one.name(), one.address()), (other.name(), other.address()));
            let section = other
                .section_index()
                .map(|index| new.section_by_index(index).unwrap());
            if let Some(section) = section.filter(|section| section.size() > 0) {
                let end = section.address() + section.size();
                assert!(
                    (section.address()..=end).contains(&other.address()),
                    "{:?}",
                    other.name()
                );
            }
        }
        // Removing the contents of the part changes no other section.
        let small = resized(&after, &[(index_of(&after, "own"), &[])], &[]).unwrap();
        assert!(small.len() + 0x2000 <= after.len());
    }
}

#[test]
fn what_cannot_be_divided_is_an_error_and_damage_is_no_panic() {
    let data = sample(true, object::Endianness::Little, true);
    let range = middle(&data);
    let beyond = range.start..range.end + 0x2000;
    assert!(divided(&data, std::slice::from_ref(&beyond)).is_none());
    assert!(divided(&data, &[range.clone(), range.clone()]).is_none());
    let header = 0..16;
    assert!(divided(&data, std::slice::from_ref(&header)).is_none());
    for end in (0..data.len()).step_by(97) {
        let _ = divide(&data[..end], std::slice::from_ref(&range), b"own");
    }
    let table = data.len() - 0x800;
    for at in (0..0x400).chain(table..data.len()) {
        let mut other = data.clone();
        other[at] ^= 0xff;
        let _ = divide(&other, std::slice::from_ref(&range), b"own");
    }
}
