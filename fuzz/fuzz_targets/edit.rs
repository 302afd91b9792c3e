//! The editor of finished files: eight bytes with the fates of the images, in order, and a file.
//! The new file has exactly the expected images.
#![no_main]

use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((fates, file)) = data.split_at_checked(8) else { return };
    let path = offld_fuzz::file("a", file);
    offld_fuzz::bounded(data.len(), || {
        if let Err(error) = offload_files::edit::trial::trial(&path, fates) {
            // An I/O error does not depend on the input. Any other error is a defect of the editor.
            assert!(error.is::<std::io::Error>(), "{error:#}");
        }
    });
});
