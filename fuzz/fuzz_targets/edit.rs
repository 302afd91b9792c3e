//! The engine that changes finished files: eight bytes that say what becomes of the images, in turn, and a file. What comes out has the
//! images that it should have, and no others.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((fates, file)) = data.split_at_checked(8) else { return };
    let path = offld_fuzz::file("a", file);
    offld_fuzz::bounded(data.len(), || {
        if let Err(error) = offld::programs::edit::trial(&path, fates) {
            // A file of the fuzzer's own, which is there whatever the input is.
            assert!(error.is::<std::io::Error>(), "{error:#}");
        }
    });
});
