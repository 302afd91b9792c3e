//! The cache as a link uses it: the store on this machine, and what is done beside the link.

use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::thread::JoinHandle;

use anyhow::Result;

use super::{Digest, Event, Store};

/// A cache in use.
pub struct Cache {
    store: Store,
    beside: Mutex<Vec<JoinHandle<()>>>,
}

impl Cache {
    /// One over `store`.
    pub fn new(store: Store) -> Self {
        Cache { store, beside: Mutex::default() }
    }

    /// The record under `key`: this machine's.
    pub fn record(&self, key: Digest) -> Option<Vec<u8>> {
        self.store.record(key)
    }

    /// Keeps `bytes` under `key`.
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn put_record(&self, key: Digest, bytes: &[u8]) -> Result<()> {
        self.store.put_record(key, bytes)
    }

    /// A record that is of this machine only: of its files, by their stamps.
    pub fn own_record(&self, key: Digest) -> Option<Vec<u8>> {
        self.store.record(key)
    }

    /// Keeps a record that is of this machine only. Where it cannot be kept, it is asked for in vain later.
    pub fn put_own_record(&self, key: Digest, bytes: &[u8]) {
        let _ = self.store.put_record(key, bytes);
    }

    /// Puts the blob `name` at `to`; see [`Store::fetch_blob`].
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn fetch_blob(&self, name: Digest, to: &Path) -> Result<bool> {
        self.store.fetch_blob(name, to)
    }

    /// Keeps the contents of `file`; see [`Store::put_blob`].
    ///
    /// # Errors
    /// Whatever the file system says.
    pub fn put_blob(&self, file: &Path, name: Option<Digest>) -> Result<Digest> {
        self.store.put_blob(file, name)
    }

    /// Counts something.
    pub fn count(&self, event: Event) {
        self.store.count(event);
    }

    /// Does `work` beside the link; it is waited for at the link's end.
    pub fn later(&self, work: impl FnOnce() + Send + 'static) {
        let handle = std::thread::spawn(work);
        self.beside.lock().unwrap_or_else(PoisonError::into_inner).push(handle);
    }

    /// Waits for what is done beside the link.
    pub fn finish(&self) {
        let beside = std::mem::take(&mut *self.beside.lock().unwrap_or_else(PoisonError::into_inner));
        for handle in beside {
            // One that panicked has kept nothing.
            let _ = handle.join();
        }
    }
}
