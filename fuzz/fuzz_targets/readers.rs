//! Readers of single formats, one a call; the first byte says which: text bundles, the header of a bundle as a stream, compressed
//! bundles as a stream, packed OffloadBinaries as a stream, fatbinaries, fat objects, the kernels of device images.
#![no_main]

use std::io::{self, Write};

use libfuzzer_sys::fuzz_target;
use offld::formats::bundle::{self, text};
use offld::formats::compressed::{Header, Unpack};
use offld::formats::offload_binary::Packed;
use offld::formats::{fat_object, fatbin, kernels};

fuzz_target!(|data: &[u8]| {
    let Some((which, data)) = data.split_first() else { return };
    let size = data.len() as u64;
    offld_fuzz::bounded(data.len(), || match which % 8 {
        0 => {
            let Ok(spans) = text::scan("//", data) else { return };
            let mut end = 0;
            for span in &spans {
                assert!(span.start >= end && span.start + span.size <= size);
                end = span.start + span.size;
            }
            // What is put into a bundle comes out of it, unless it looks like a part of one.
            if !data.windows(5).any(|part| part == b"__STA" || part == b"__END") {
                let bundle = [text::start_marker("//", "host-x").as_bytes(), data, text::end_marker("//", "host-x").as_bytes()].concat();
                let spans = text::scan("//", &bundle[..]).unwrap();
                assert_eq!((spans.len(), spans[0].size), (1, size));
            }
        }
        1 => {
            let Ok(head) = bundle::read_head(data, size) else { return };
            assert!(head.size <= size);
            assert!(head.slots.iter().all(|slot| slot.size == 0 || slot.offset + slot.size <= head.size));
        }
        2 => {
            let Ok(header) = Header::read(data, 0) else { return };
            let mut count = Count(0);
            let Ok(mut plain) = Unpack::new(header, &data[header.size as usize..], 0) else { return };
            if io::copy(&mut plain, &mut count).is_ok() {
                assert_eq!(count.0, header.plain_size);
            }
        }
        3 => {
            let Ok(Some(packed)) = Packed::of(data) else { return };
            assert!(packed.size() <= size);
            let _ = packed.inflate(&mut Count(0));
        }
        4 => {
            let Ok(all) = fatbin::read_all(data) else { return };
            let mut end = 0;
            for fatbin in &all {
                assert!(fatbin.at >= end && fatbin.at + fatbin.size <= size);
                end = fatbin.at + fatbin.size;
                for entry in &fatbin.entries {
                    assert!(fatbin::unpadded(entry.kind, entry.stored) <= entry.stored.len() as u64);
                }
            }
        }
        5 => drop(fat_object::sections(data)),
        _ => drop(kernels::read(data)),
    });
});

/// How much was written.
struct Count(u64);

impl Write for Count {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
