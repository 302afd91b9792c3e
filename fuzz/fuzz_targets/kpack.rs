//! kpack archives and references: every range is in the archive, and an archive that lost entries has
//! the others unchanged.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offload_formats::compose::{Item, join};
use offload_formats::kpack::{self, Archive, Entry, Reference};

fn stored<'d>(data: &'d [u8], entry: &Entry<'_>) -> Option<&'d [u8]> {
    let range = entry.stored.clone().ok()?;
    Some(&data[range.start as usize..range.end as usize])
}

fuzz_target!(|data: &[u8]| {
    offld_fuzz::bounded(data.len(), || {
        let _ = kpack::program(data);
        if let Ok(reference) = Reference::read(data) {
            assert_eq!(Reference::read(&reference.write()), Ok(reference));
        }
        let Ok(old) = Archive::read(data) else { return };
        let codes: Vec<Option<&[u8]>> = old.entries.iter().map(|entry| stored(data, entry)).collect();
        // Every other entry.
        let kept: Vec<usize> = (0..old.entries.len()).step_by(2).collect();
        let items: Vec<Item<(), kpack::Code>> = kept.iter().map(|entry| Item::Old(*entry)).collect();
        let Ok(parts) = kpack::compose(data, &items) else { return };
        let bytes = join(data, &parts, &[]).expect("parts of the archive");
        let new = Archive::read(&bytes).expect("an archive");
        assert_eq!(new.entries.len(), kept.len());
        for entry in &new.entries {
            let same = kept.iter().any(|place| {
                let old = &old.entries[*place];
                (old.binary, old.arch, old.original_size) == (entry.binary, entry.arch, entry.original_size)
                    && codes[*place] == stored(&bytes, entry)
            });
            assert!(same, "{entry:?}");
        }
    });
});
