//! The hash of a compressed bundle's uncompressed data. For large data, a second thread computes
//! it, because hashing takes longer than decompression.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use md5::{Digest, Md5};

use crate::formats::u64_at;

/// The smallest data size for which a thread is started.
const THREAD_MIN: u64 = 4 << 20;
/// The size of the blocks passed to the thread, and the length of its queue.
const BLOCK: usize = 512 << 10;
const QUEUE: usize = 4;

/// Computes the hash of data that is passed in order.
pub(super) struct Hasher(Place);

enum Place {
    /// In the caller's thread.
    Caller(Md5),
    /// In a separate thread.
    Thread(Thread),
}

struct Thread {
    block: Vec<u8>,
    full: SyncSender<Vec<u8>>,
    /// Hashed blocks, for reuse.
    empty: Receiver<Vec<u8>>,
    thread: JoinHandle<Md5>,
}

impl Hasher {
    /// A hasher for about `size` bytes.
    pub(super) fn new(size: u64) -> Self {
        let alone = size < THREAD_MIN
            || std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
        let thread_hash = if alone { None } else { Thread::new() };
        Hasher(thread_hash.map_or_else(|| Place::Caller(Md5::new()), Place::Thread))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            Place::Caller(hash) => hash.update(bytes),
            Place::Thread(thread_hash) => thread_hash.update(bytes),
        }
    }

    /// Returns the hash as headers store it: the first 8 bytes of the MD5, as a little-endian
    /// number.
    pub(super) fn finish(self) -> std::io::Result<u64> {
        let hash = match self.0 {
            Place::Caller(hash) => hash,
            Place::Thread(thread_hash) => thread_hash.finish()?,
        };
        Ok(u64_at(&hash.finalize(), 0))
    }
}

impl Thread {
    /// `None` if no thread can be started.
    fn new() -> Option<Self> {
        let (full, filled) = sync_channel::<Vec<u8>>(QUEUE);
        let (emptied, empty) = sync_channel(QUEUE + 2);
        let work = move || {
            let mut hash = Md5::new();
            for mut block in filled {
                hash.update(&block);
                block.clear();
                // The receiver may have been dropped after an error.
                let _ = emptied.try_send(block);
            }
            hash
        };
        let thread = std::thread::Builder::new()
            .name("hash".to_owned())
            .spawn(work)
            .ok()?;
        Some(Thread {
            block: Vec::with_capacity(BLOCK),
            full,
            empty,
            thread,
        })
    }

    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK {
                let next = self
                    .empty
                    .try_recv()
                    .unwrap_or_else(|_| Vec::with_capacity(BLOCK));
                // Sending only fails if the thread has failed, which `finish` reports.
                let _ = self.full.send(std::mem::replace(&mut self.block, next));
            }
        }
    }

    fn finish(self) -> std::io::Result<Md5> {
        let _ = self.full.send(self.block);
        drop(self.full);
        self.thread
            .join()
            .map_err(|_| std::io::Error::other("the hashing thread failed"))
    }
}
