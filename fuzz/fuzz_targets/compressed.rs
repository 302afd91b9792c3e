//! Compressed bundles, several in a row: first the headers alone, then all data as a stream.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offload_formats::compressed;

fuzz_target!(|data: &[u8]| {
    offld_fuzz::bounded(data.len(), || {
        let mut at = 0;
        while at < data.len() {
            let Ok(read) = compressed::read_at(data, at as u64) else { break };
            assert!(read.size >= 20 && read.at + read.size <= data.len() as u64);
            let mut count = Count(0);
            if read.unpack_to(&mut count).is_ok() {
                assert_eq!(count.0, read.plain_size);
            }
            at += read.size as usize;
        }
    });
});

/// A writer that counts bytes.
struct Count(u64);

impl std::io::Write for Count {
    fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
        self.0 += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}
