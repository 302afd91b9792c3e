//! The hash of a compressed bundle's plain data, computed beside whoever makes or takes the data: it takes longer than inflating.

use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use md5::{Digest, Md5};

/// Less is not worth a thread.
const LARGE: u64 = 4 << 20;
/// What is handed over at once, and how many of these may wait.
const BLOCK: usize = 512 << 10;
const WAITING: usize = 4;

/// Takes data in order, and then tells its hash.
pub(super) struct Hasher(How);

enum How {
    /// As it comes.
    Here(Md5),
    /// In a thread of its own.
    Beside(Beside),
}

struct Beside {
    block: Vec<u8>,
    full: SyncSender<Vec<u8>>,
    /// Blocks that have been read, to be filled again.
    empty: Receiver<Vec<u8>>,
    thread: JoinHandle<Md5>,
}

impl Hasher {
    /// For data of this size, as far as one knows.
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
    /// None where no thread can be had.
    fn new() -> Option<Self> {
        let (full, filled) = sync_channel::<Vec<u8>>(WAITING);
        let (emptied, empty) = sync_channel(WAITING + 2);
        let work = move || {
            let mut hash = Md5::new();
            for mut block in filled {
                hash.update(&block);
                block.clear();
                // Nobody may be there any more who wants it.
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
                // The thread takes all there is, until it has gone wrong: then `finish` says so.
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
