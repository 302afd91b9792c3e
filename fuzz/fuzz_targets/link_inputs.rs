//! A link input of any format: archive, linker script, ELF or COFF object, shared library,
//! OffloadBinary. As in a link, the target opens it, expands archives and scripts, scans for device
//! images, and reads their symbols.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offld::args::settings::{InputName, InputSpec};
use offld::programs::inputs;
use offld::programs::inputs::search::{Naming, Search};
use offld::programs::inputs::scan;

fuzz_target!(|data: &[u8]| {
    let path = offld_fuzz::file("input", data);
    offld_fuzz::bounded(data.len(), || {
        let folder = offld_fuzz::folder();
        let spec = InputSpec::requested(InputName::File(path));
        let search = Search::new(&[folder.to_path_buf()], Some(folder), Naming::Unix, "none");
        let Ok(inputs) = inputs::open(&[spec], &search, &mut |_, _| {}) else {
            return;
        };
        if let Ok(found) = scan::scan(&inputs) {
            for image in found.iter().take(16) {
                let _ = scan::device_symbols(image);
            }
        }
        scan::has_images(&inputs);
        let _ = scan::host_facts(&inputs, true);
        scan::shared_symbols(&inputs);
        scan::default_libraries(&inputs);
    });
});
