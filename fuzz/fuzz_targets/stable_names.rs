//! Stable names of bitcode, ELF objects and SPIR-V: renaming once is enough, and changes names alone. Code from
//! another checkout gets the same bytes.
#![no_main]

use std::collections::BTreeSet;

use libfuzzer_sys::fuzz_target;
use offload_formats::bitcode;
use offload_formats::elf::rename as elf;
use offload_formats::error::Malformed;
use offload_formats::magic::{Magic, is_spirv, magic};
use offload_formats::spirv;
use offload_formats::stable_names::{FileId, StableNames, Uses};

/// The names in `data`.
fn names_of(data: &[u8]) -> Option<Vec<Vec<u8>>> {
    let mut names = Vec::new();
    let mut add = |name: &[u8]| names.push(name.to_vec());
    match magic(data) {
        Magic::Bitcode => bitcode::names_with_ids(data, &mut add).ok()?,
        Magic::Elf => elf::names_of_symbols(data, &mut add).ok()?,
        _ if is_spirv(data) => spirv::names(data, &mut add).ok()?,
        _ => return None,
    }
    Some(names)
}

fn rename(data: &[u8], names: &StableNames) -> Result<Option<Vec<u8>>, Malformed> {
    match magic(data) {
        Magic::Bitcode => bitcode::rename(data, names),
        Magic::Elf => elf::rename(data, names),
        _ => spirv::rename(data, names),
    }
}

/// The ID of the same source file in another checkout: each digit but 0 moves by `step`, so that IDs stay distinct
/// and keep their lengths.
fn moved(id: FileId, step: u32) -> String {
    let digit = |digit: char| match digit.to_digit(16) {
        None | Some(0) => digit,
        Some(value) => char::from_digit((value - 1 + step) % 15 + 1, 16).unwrap_or(digit),
    };
    id.to_string().chars().map(digit).collect()
}

/// The stable names for `data`.
fn stable_of(data: &[u8]) -> Option<StableNames> {
    let mut uses = Uses::default();
    names_of(data)?.iter().for_each(|name| uses.add(name));
    Some(StableNames::choose(&uses, &BTreeSet::new()))
}

fuzz_target!(|data: &[u8]| {
    offld_fuzz::bounded(data.len(), || {
        let Some(old) = names_of(data) else { return };
        let mut uses = Uses::default();
        old.iter().for_each(|name| uses.add(name));
        let stable = StableNames::choose(&uses, &BTreeSet::new());
        let _ = elf::in_place(data, &stable).map(|patches| {
            let ends = patches.iter().map(|patch| patch.offset + patch.bytes.len() as u64);
            assert!(ends.max().unwrap_or_default() <= data.len() as u64);
        });
        let Ok(Some(new)) = rename(data, &stable) else { return };
        // All IDs are replaced, so nothing is left to do.
        let again = rename(&new, &stable);
        assert!(matches!(again, Ok(None)), "{again:?}");
        let step = data.iter().fold(1, |sum, byte| (sum * 31 + u32::from(*byte)) % 14);
        let elsewhere: StableNames = uses.ids().map(|id| (id, moved(id, step + 1))).collect();
        // An ID that is the start of another one stays.
        let is_whole = uses.ids().all(|id| stable.get(id).is_some());
        if let (true, Ok(Some(copy))) = (is_whole, rename(data, &elsewhere)) {
            let own = stable_of(&copy).expect("the same form");
            assert!(matches!(rename(&copy, &own), Ok(Some(copy)) if copy == new));
        }
        if magic(&new) == Magic::Elf {
            let expected: BTreeSet<Vec<u8>> = old
                .into_iter()
                .map(|name| stable.replaced(&name).map_or(name, |new| new.bytes))
                .collect();
            let names: BTreeSet<Vec<u8>> = names_of(&new).expect("an object").into_iter().collect();
            assert_eq!(names, expected);
        }
    });
});
