//! The small readers, one a call; the first byte says which: bitcode's producer, linker directives, a library's interface, SPIR-V for
//! Intel's runtime, what a file is by its first bytes.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offld::formats::bitcode_ident;
use offld::formats::coff::drectve;
use offld::formats::elf::interface;
use offld::formats::intel_spirv;
use offld::formats::magic;

fuzz_target!(|data: &[u8]| {
    let Some((which, data)) = data.split_first() else { return };
    offld_fuzz::bounded(data.len(), || match which % 5 {
        0 => {
            if let Some(name) = bitcode_ident::producer(data) {
                // A literal of an abbreviation takes no bits, but there are not many.
                assert!(name.len() <= 8192);
            }
            bitcode_ident::producer_major(data);
        }
        1 => drop(drectve::read(data)),
        2 => {
            if let Some(interface) = interface::interface(data) {
                assert!(interface::interface(&interface).is_some());
            }
        }
        3 => assert!(intel_spirv::wrap_intel_spirv(data).len() > data.len()),
        _ => drop(magic::magic(data)),
    });
});
