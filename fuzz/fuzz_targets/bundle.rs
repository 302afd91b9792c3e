//! Binary bundles and their ids: a bundle can be written again, and then reads the same.
#![no_main]

use libfuzzer_sys::fuzz_target;
use offload_formats::bundle::{self, Id, Source};

fuzz_target!(|data: &[u8]| {
    offld_fuzz::bounded(data.len(), || {
        let Ok(bundles) = bundle::read_all(data) else { return };
        for bundle in &bundles {
            assert!(bundle.at + bundle.size <= data.len() as u64);
            let ids: Vec<Id> = bundle.entries.iter().map(|entry| Id::parse(entry.id)).collect();
            for id in &ids {
                let written = id.to_string();
                assert!(bundle::bundle_id(&id.kind, &id.triple, &id.target_id).len() < 4 * written.len() + 64);
            }
            if ids.len() < 64 {
                let _ = bundle::check(&ids);
            }
        }
        if let [bundle] = &bundles[..] {
            let sources =
                bundle.entries.iter().map(|entry| Source { id: entry.id, size: entry.object.len() as u64, bytes: entry.object });
            // Objects may overlap in a read bundle, but not in a written one.
            let total: usize = bundle.entries.iter().map(|entry| entry.object.len()).sum();
            if total <= 2 * data.len() {
                let mut again = Vec::new();
                bundle::write(sources.collect(), 1, &mut again).unwrap();
                let reread = bundle::read_at(&again, 0).unwrap();
                let parts = |bundle: &bundle::Bundle<'_>| -> Vec<(String, Vec<u8>)> {
                    bundle.entries.iter().map(|entry| (entry.id.to_owned(), entry.object.to_vec())).collect()
                };
                assert_eq!(parts(&reread), parts(bundle));
            }
        }
    });
});
