//! OffloadBinaries of every version, several in a row.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offload_formats::offload_binary;

fuzz_target!(|data: &[u8]| {
    offld_fuzz::bounded(data.len(), || {
        let Ok(images) = offload_binary::read_all(data) else { return };
        for image in &images {
            let (triple, arch) = (image.triple(), image.arch());
            let strings = [("triple", triple.as_ref()), ("arch", arch.as_ref())];
            // In the written version, a zero ends a value.
            if image.image.len() <= data.len() && strings.iter().all(|(_, value)| !value.contains('\0')) {
                let again = offload_binary::write(image.image_kind, image.offload_kind, image.flags, &strings, &image.image);
                let reread = offload_binary::read_all(&again).unwrap();
                assert_eq!(reread.len(), 1);
                assert_eq!((reread[0].triple(), reread[0].arch()), (triple.clone(), arch.clone()));
                assert!(reread[0].image == image.image && reread[0].offload_kind == image.offload_kind);
            }
        }
    });
});
