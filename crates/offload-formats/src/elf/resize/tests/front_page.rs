//! Tests of programs with an added page at the start: all loaded contents keep their addresses, and
//! there is room for program headers.

use object::{Object as _, ObjectSection as _, ObjectSegment as _, elf};

use super::sample::{CLASSES, sample};
use super::{index_of, resized};
use crate::elf::raw::{FileHeader, ProgramHeader, Record as _};
use crate::elf::resize::{Part, with_front_page};

/// Returns the size of the added page, and the program with that page.
fn larger(data: &[u8]) -> Option<(u64, Vec<u8>)> {
    let (page, parts) = with_front_page(data).ok()??;
    let mut file = Vec::new();
    for part in parts {
        match part {
            Part::Old(range) => file.extend(&data[range.start as usize..range.end as usize]),
            Part::Bytes(bytes) => file.extend(bytes),
            other => panic!("{other:?}"),
        }
    }
    Some((page, file))
}

/// Returns the sample program as a static program.
fn fixed(is_64: bool, endian: object::Endianness) -> Vec<u8> {
    let mut data = sample(is_64, endian, true);
    let (class, head) = FileHeader::read(&data).unwrap();
    let segments =
        ProgramHeader::table(class, &data, head.phoff, head.phnum.into(), "cut").unwrap();
    let mut table = Vec::new();
    for mut segment in segments {
        if matches!(segment.kind, elf::PT_INTERP | elf::PT_DYNAMIC) {
            segment.kind = elf::PT_NULL;
        }
        segment.append(class, &mut table);
    }
    data[head.phoff as usize..][..table.len()].copy_from_slice(&table);
    data
}

#[test]
fn everything_stays_where_it_is_in_memory() {
    for (is_64, endian) in CLASSES {
        let data = fixed(is_64, endian);
        let (page, after) = larger(&data).unwrap();
        assert_eq!(after.len() as u64, data.len() as u64 + page);
        let (old, new) = (
            object::File::parse(&data[..]).unwrap(),
            object::File::parse(&after[..]).unwrap(),
        );
        let sections = |file: &object::File<'_>| -> Vec<(String, u64, Vec<u8>)> {
            let each = file.sections();
            each.map(|section| {
                (
                    section.name().unwrap().to_owned(),
                    section.address(),
                    section.data().unwrap().to_vec(),
                )
            })
            .collect()
        };
        assert_eq!(sections(&old), sections(&new));
        assert_eq!(old.entry(), new.entry());
        let loads = |file: &object::File<'_>| -> Vec<(u64, u64)> {
            file.segments()
                .map(|segment| (segment.address(), segment.address() + segment.size()))
                .collect()
        };
        let (before, now) = (loads(&old), loads(&new));
        assert_eq!(before[1..], now[1..]);
        assert_eq!((before[0].0 - page, before[0].1), now[0]);
        for (one, other) in old.segments().zip(new.segments()) {
            assert!(
                other.data().unwrap().ends_with(one.data().unwrap()),
                "the bytes at {:#x}",
                one.address()
            );
        }
        // The sections of the result can get new contents, as in any other program.
        let images = vec![7; 0x9000];
        resized(&after, &[(index_of(&after, "images"), &images)], &[]).unwrap();
    }
}

#[test]
fn other_files_get_none_and_damaged_ones_do_not_panic() {
    for (is_64, endian) in CLASSES {
        // Files with a dynamic section: a library and a program.
        assert!(larger(&sample(is_64, endian, false)).is_none());
        assert!(larger(&sample(is_64, endian, true)).is_none());
        let data = fixed(is_64, endian);
        for end in 0..data.len().min(0x400) {
            let _ = with_front_page(&data[..end]);
        }
        for at in 0..0x400 {
            let mut other = data.clone();
            other[at] ^= 0xff;
            let _ = with_front_page(&other);
        }
    }
}
