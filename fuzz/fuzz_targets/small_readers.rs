//! Small readers. The first byte selects one: bitcode (producer, images, symbols), linker
//! directives, a library's interface, SPIR-V for Intel's runtime, tables of external images, file
//! types by magic number.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offload_formats::bitcode;
use offload_formats::coff;
use offload_formats::elf::interface;
use offload_formats::external_images;
use offload_formats::spirv;
use offload_formats::magic;

fuzz_target!(|data: &[u8]| {
    let Some((which, data)) = data.split_first() else { return };
    offld_fuzz::bounded(data.len(), || match which % 6 {
        0 => {
            if let Some(name) = bitcode::producer(data) {
                // Each character takes at least one bit, and characters without bits are not more
                // than the bits.
                assert!(name.len() <= 16 * data.len());
            }
            bitcode::producer_major(data);
            let _ = bitcode::embedded_images(data);
            let _ = bitcode::symbols(data);
        }
        1 => drop(coff::directives(data)),
        2 => {
            if let Some(interface) = interface::interface(data) {
                assert!(interface::interface(&interface).is_some());
            }
        }
        3 => assert!(spirv::wrap_intel_spirv(data).len() > data.len()),
        4 => {
            for table in external_images::read_all(data).unwrap_or_default() {
                let bytes = table.write().expect("texts without zeros");
                assert_eq!(external_images::read_all(&bytes), Ok(vec![table]));
            }
        }
        _ => drop(magic::magic(data)),
    });
});
