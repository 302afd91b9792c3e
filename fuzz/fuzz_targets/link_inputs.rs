//! A link input of any format: archive, linker script, ELF or COFF object, shared library,
//! OffloadBinary. As in a link, the target opens it, expands archives and scripts, scans for device
//! images, and reads their symbols.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let path = offld_fuzz::file("input", data);
    offld_fuzz::bounded(data.len(), || offld::read_input(path, offld_fuzz::folder()));
});
