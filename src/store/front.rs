//! The cache as a link uses it: the store on this machine, behind it the one that is shared with others, if there is one, and what is
//! done beside the link.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use anyhow::Result;

use super::remote::WarnFn;
use super::{Digest, Event, Remote, RemoteSettings, Store};

/// A cache in use. What is not in the store is asked of the remote, and is in the store from then on; what is put goes to both, to the
/// remote beside the link.
pub struct Cache {
    store: Store,
    far: Option<RemoteSlot>,
    asked: Mutex<HashMap<Digest, Option<Vec<u8>>>>,
    shared: Mutex<HashSet<Digest>>,
    beside: Mutex<Vec<JoinHandle<()>>>,
}

/// The remote, opened when it is first needed: most links have nothing to ask it, and nothing to hear of it.
struct RemoteSlot {
    settings: RemoteSettings,
    tell: WarnFn,
    remote: OnceLock<Option<Remote>>,
}

impl Cache {
    /// One over `store` alone.
    pub fn new(store: Store) -> Self {
        Cache { store, far: None, asked: Mutex::default(), shared: Mutex::default(), beside: Mutex::default() }
    }

    /// The one below `root`, of at most `limit` bytes, and behind it the remote that the environment names, if it does. Trouble with
    /// that goes to `tell`.
    ///
    /// # Errors
    /// See [`Store::open`].
    pub fn open(root: &Path, limit: u64, tell: WarnFn) -> Result<Self> {
        let store = Store::open(root, limit)?;
        Ok(match RemoteSettings::from_environment() {
            Some(settings) => Cache::shared(store, settings, tell),
            None => Cache::new(store),
        })
    }

    /// One over `store` and the remote that `settings` name. Where that cannot be used, `tell` hears why when it is needed, and the
    /// store is used alone.
    pub fn shared(store: Store, settings: RemoteSettings, tell: WarnFn) -> Self {
        Cache { far: Some(RemoteSlot { settings, tell, remote: OnceLock::new() }), ..Cache::new(store) }
    }

    fn remote(&self) -> Option<&Remote> {
        let RemoteSlot { settings, tell, remote } = self.far.as_ref()?;
        let open = || {
            settings.doubt.iter().for_each(|doubt| tell(doubt));
            Remote::open(settings, WarnFn::clone(tell)).map_err(|error| tell(&format!("{error:#}"))).ok()
        };
        remote.get_or_init(open).as_ref()
    }

    /// The record under `key`: this machine's, else the one that is shared, which is this machine's from then on.
    pub fn record(&self, key: Digest) -> Option<Vec<u8>> {
        self.store.record(key).or_else(|| {
            let bytes = self.shared_record(key)?;
            // Where it is not kept, it is asked for again next time.
            let _ = self.store.put_record(key, &bytes);
            Some(bytes)
        })
    }

    /// The record under `key` that is shared, for whom this machine's is of no use. It is asked for once in a process.
    pub fn shared_record(&self, key: Digest) -> Option<Vec<u8>> {
        let remote = self.remote()?;
        if let Some(answer) = lock(&self.asked).get(&key) {
            return answer.clone();
        }
        let bytes = remote.record(key);
        if bytes.is_none() {
            self.store.count(Event::RemoteMiss);
        }
        lock(&self.asked).insert(key, bytes.clone());
        bytes
    }

    /// Keeps `bytes` under `key`, here and for others.
    ///
    /// # Errors
    /// Whatever the file system says. Others may have it all the same.
    pub fn put_record(&self, key: Digest, bytes: &[u8]) -> Result<()> {
        if let Some(remote) = self.remote() {
            remote.put_record(key, bytes);
        }
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

    /// Puts the blob `name` at `to`; see [`Store::fetch_blob`]. [`Cache::was_shared`] tells where it came from.
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn fetch_blob(&self, name: Digest, to: &Path) -> Result<bool> {
        if self.store.fetch_blob(name, to)? {
            return Ok(true);
        }
        if !self.remote().is_some_and(|remote| remote.fetch_blob(name, to)) {
            return Ok(false);
        }
        self.store.count(Event::RemoteHit);
        lock(&self.shared).insert(name);
        // Not kept: it is fetched again next time.
        let _ = self.store.put_blob(to, Some(name));
        Ok(true)
    }

    /// Whether the blob `name` came from the remote, in this process.
    pub fn was_shared(&self, name: Digest) -> bool {
        lock(&self.shared).contains(&name)
    }

    /// Keeps the contents of `file`, here and for others; see [`Store::put_blob`].
    ///
    /// # Errors
    /// Whatever the file system says. Then others do not have it, either.
    pub fn put_blob(&self, file: &Path, name: Option<Digest>) -> Result<Digest> {
        let name = self.store.put_blob(file, name)?;
        if let Some(remote) = self.remote() {
            remote.put_blob(name, File::open(file)?);
        }
        Ok(name)
    }

    /// Counts something.
    pub fn count(&self, event: Event) {
        self.store.count(event);
    }

    /// Does `work` beside the link; it is waited for at the link's end.
    pub fn later(&self, work: impl FnOnce() + Send + 'static) {
        let handle = std::thread::spawn(work);
        lock(&self.beside).push(handle);
    }

    /// Waits for what is done beside the link, and for the remote as long as that may take.
    pub fn finish(&self) {
        self.finish_unless(&|| false);
    }

    /// The same, but for a remote that would be waited for when `stop` says that the link is to end.
    pub fn finish_unless(&self, stop: &dyn Fn() -> bool) {
        let beside = std::mem::take(&mut *lock(&self.beside));
        for handle in beside {
            // One that panicked has kept nothing.
            let _ = handle.join();
        }
        if let Some(remote) = self.far.as_ref().and_then(|far| far.remote.get()?.as_ref()) {
            remote.finish(stop);
            if remote.troubled() {
                self.store.count(Event::RemoteFault);
            }
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
