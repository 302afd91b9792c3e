//! The hash of a compressed bundle's plain data. For large data a second thread computes it, because it takes longer than
//! decompression.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use md5::{Digest, Md5};

/// The least data for which a thread is started.
const LARGE: u64 = 4 << 20;
/// The size of the blocks that the thread gets, and how many may wait for it.
const BLOCK: usize = 512 << 10;
const WAITING: usize = 4;

/// Computes the hash of data that is given in order.
pub(super) struct Hasher(How);

enum How {
    /// In the caller's thread.
    Here(Md5),
    /// In a thread of its own.
    Beside(Beside),
}

struct Beside {
    block: Vec<u8>,
    full: SyncSender<Vec<u8>>,
    /// Blocks that the thread has read, for reuse.
    empty: Receiver<Vec<u8>>,
    thread: JoinHandle<Md5>,
}

impl Hasher {
    /// A hasher for data of about this size.
    pub(super) fn new(size: u64) -> Self {
        let alone = size < LARGE || std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
        let beside = if alone { None } else { Beside::new() };
        Hasher(beside.map_or_else(|| How::Here(Md5::new()), How::Beside))
    }

    pub(super) fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            How::Here(hash) => hash.update(bytes),
            How::Beside(beside) => beside.update(bytes),
        }
    }

    /// The number that headers keep of an MD5: its first 8 bytes, little-endian.
    pub(super) fn finish(self) -> std::io::Result<u64> {
        let hash = match self.0 {
            How::Here(hash) => hash,
            How::Beside(beside) => beside.finish()?,
        };
        Ok(hash.finalize().iter().take(8).rev().fold(0, |number, byte| number << 8 | u64::from(*byte)))
    }
}

impl Beside {
    /// None if no thread can be started.
    fn new() -> Option<Self> {
        let (full, filled) = sync_channel::<Vec<u8>>(WAITING);
        let (emptied, empty) = sync_channel(WAITING + 2);
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
        let thread = std::thread::Builder::new().name("hash".to_owned()).spawn(work).ok()?;
        Some(Beside { block: Vec::with_capacity(BLOCK), full, empty, thread })
    }

    fn update(&mut self, mut bytes: &[u8]) {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(bytes.len().min(BLOCK - self.block.len()));
            self.block.extend_from_slice(now);
            bytes = later;
            if self.block.len() == BLOCK {
                let next = self.empty.try_recv().unwrap_or_else(|_| Vec::with_capacity(BLOCK));
                // Sending fails only if the thread has failed, which `finish` reports.
                let _ = self.full.send(std::mem::replace(&mut self.block, next));
            }
        }
    }

    fn finish(self) -> std::io::Result<Md5> {
        let _ = self.full.send(self.block);
        drop(self.full);
        self.thread.join().map_err(|_| std::io::Error::other("the thread that hashes has failed"))
    }
}
