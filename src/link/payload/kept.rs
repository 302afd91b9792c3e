//! Fatbinaries in the cache. NVIDIA's `fatbinary` reads the images and nothing else, and asks for no variable (a test follows it,
//! `releases::nvidia`), so one is found by the contents of its images, what is said of them, and the identity of the tool.

use std::path::Path;
use std::sync::Arc;
use std::time::{Instant, SystemTime};

use anyhow::Result;

use crate::io::bytes::Bytes;
use crate::link::device::Tool;
use crate::store::{BlobName, Cache, Digest, Key, KeyBuilder};
use crate::sys::clock;
use crate::sys::run::Said;

/// A fatbinary that is looked for.
pub(super) struct Kept<'c> {
    cache: &'c Arc<Cache>,
    tool: Tool,
    /// A moment before the tool is run.
    begun: SystemTime,
    begun_monotonic: Instant,
    key: Key,
}

impl<'c> Kept<'c> {
    /// That of `images`, each with its file and what the tool is told of it, by the tool at `program` with the option `width`. None if
    /// it cannot be known which tool that is.
    pub(super) fn new(cache: &'c Arc<Cache>, program: &Path, width: &str, images: &[(&Path, String)]) -> Option<Self> {
        let (begun, begun_monotonic) = (cache.clock().now(), cache.clock().running());
        let tool = Tool::of(program, cache).ok()?;
        let mut key = KeyBuilder::default();
        key.add("fatbinary 1").add(tool.digest.to_string()).add(width);
        for (file, told) in images {
            key.add(told).add(Digest::of(Bytes::open(file).ok()?.as_slice()).to_string());
        }
        Some(Kept { cache, tool, begun, begun_monotonic, key: key.key() })
    }

    /// Puts it at `output`, if it is in the cache.
    pub(super) fn fetch(&self, output: &Path) -> Result<bool> {
        let name = self.cache.own_record(self.key).and_then(|name| BlobName::parse(std::str::from_utf8(&name).ok()?));
        name.map_or(Ok(false), |name| self.cache.fetch_own_blob(name, output))
    }

    /// Keeps the one that was made at `output`, when the tool has said `said`. What cannot be kept is made again, and so is what the
    /// tool had something to say of, because only then does it say it again.
    pub(super) fn put(self, output: &Path, said: &Said) {
        let unchanged = || {
            self.tool.verify_unchanged(self.begun)?;
            clock::check_not_set(self.cache.clock(), self.begun, self.begun_monotonic)
        };
        if said.stderr.is_empty()
            && !said.printed
            && unchanged().is_ok()
            && let Ok(name) = self.cache.put_own_blob(output)
        {
            self.cache.put_own_record(self.key, name.to_string().as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::formats::reference;
    use crate::store::Store;
    use crate::sys::clock::{Clock, TestClock};

    #[test]
    fn what_is_made_while_the_clock_is_set_is_not_kept() {
        let Some([program]) = reference::tools(["true"]) else { return };
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::stopped());
        let store = Store::with_clock(&dir.path().join("cache"), 1 << 30, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        let cache = Arc::new(Cache::new(store));
        clock.pass(Duration::from_secs(3600));
        let (image, made, found) = (dir.path().join("image"), dir.path().join("made"), dir.path().join("found"));
        for file in [&image, &made] {
            std::fs::write(file, "CUDA").unwrap();
        }
        let of = || Kept::new(&cache, &program, "-64", &[(&image, "sm=80".to_owned())]).unwrap();
        for (set_back, kept) in [(Duration::from_secs(60), false), (Duration::ZERO, true)] {
            let begun = of();
            clock.set(clock.now() - set_back);
            begun.put(&made, &Said::default());
            cache.finish();
            assert_eq!(of().fetch(&found).unwrap(), kept, "{set_back:?}");
        }
        assert_eq!(std::fs::read(&found).unwrap(), b"CUDA");
    }
}
