//! Relocatable ELF objects: removes sections, renames sections and symbols. The result is an object
//! that can be edited again.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offload_formats::elf::edit::{self, Edit};

fuzz_target!(|data: &[u8]| {
    let Some((how, object)) = data.split_first() else { return };
    offld_fuzz::bounded(data.len(), || {
        let longer = |name: &[u8]| Some([name, b".x"].concat()).filter(|name| !name.contains(&0));
        let remove_fat = |section: edit::SectionView<'_>| edit::is_fat_section(section);
        let edit = match how % 4 {
            0 => Edit { remove: &remove_fat, ..Edit::default() },
            1 => Edit { rename_symbol: &|symbol| longer(symbol.name), ..Edit::default() },
            2 => Edit { rename_section: &|section| longer(section.name), ..Edit::default() },
            _ => Edit { remove: &|section| section.name.len() % 2 == 1, ..Edit::default() },
        };
        if let Ok(written) = edit::rewrite(object, &edit) {
            edit::plan(&written, &Edit::default()).unwrap();
        }
    });
});
