//! The cache as a link uses it: the store on this machine, behind it the remote that is shared with other machines, if there is
//! one, and background work that is finished before the process ends.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::JoinHandle;

use anyhow::Result;

use super::remote::WarnFn;
use super::settings::Setting;
use super::{BlobName, Digest, Event, Key, KeyBuilder, Naming, Remote, RemoteSettings, SecretKey, Store};
use crate::sys::clock::Clock;
use crate::sys::threads;

/// A cache in use. What the store does not have is fetched from the remote and kept in the store; what is put goes to both, to the
/// remote in the background.
pub struct Cache {
    store: Store,
    far: Option<RemoteSlot>,
    /// The fingerprint of the key that what is shared must be signed with; none where anything is taken.
    trust: Option<Digest>,
    asked: Mutex<HashMap<Key, Option<Vec<u8>>>>,
    shared: Mutex<HashSet<BlobName>>,
    beside: Mutex<Vec<JoinHandle<()>>>,
    waiting: Mutex<Vec<Work>>,
}

/// Work for which nothing waits.
type Work = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache").field("store", &self.store).finish_non_exhaustive()
    }
}

/// The remote, opened when it is first needed: most links find everything in the store and never need it.
struct RemoteSlot {
    settings: RemoteSettings,
    tell: WarnFn,
    remote: OnceLock<Option<Remote>>,
}

impl Cache {
    /// A cache without a remote.
    pub fn new(store: Store) -> Self {
        Cache {
            store,
            far: None,
            trust: None,
            asked: Mutex::default(),
            shared: Mutex::default(),
            beside: Mutex::default(),
            waiting: Mutex::default(),
        }
    }

    /// The cache below `root`, as `setting` asks for it, with the remote that the environment names, if it names one. What goes
    /// there is signed with `key`. Warnings about the remote go to `tell`.
    ///
    /// # Errors
    /// See [`Store::open`].
    pub(crate) fn open(setting: &Setting, root: &Path, key: Option<SecretKey>, tell: WarnFn) -> Result<Self> {
        let store = Store::of(setting, root)?;
        Ok(match (RemoteSettings::from_environment(), key) {
            (Some(settings), key) => Cache::shared(store, RemoteSettings { key, ..settings }, tell),
            (None, Some(key)) => Cache { trust: Some(key.fingerprint()), ..Cache::new(store.with_naming(Naming::Sure)) },
            (None, None) => Cache::new(store),
        })
    }

    /// A cache of `store` and the remote that `settings` name. A remote that cannot be used costs one call of `tell` when it is
    /// first needed; then the store is used alone.
    pub fn shared(store: Store, settings: RemoteSettings, tell: WarnFn) -> Self {
        let trust = settings.key.as_ref().map(SecretKey::fingerprint);
        let far = Some(RemoteSlot { settings, tell, remote: OnceLock::new() });
        Cache { far, trust, ..Cache::new(store.with_naming(Naming::Sure)) }
    }

    /// Whether a blob of this name may be used: where blobs are shared or there is a key, only one with a digest that nobody can make
    /// another file for.
    pub(crate) fn accepts(&self, name: BlobName) -> bool {
        name.naming() == Naming::Sure || self.store.naming() == Naming::Quick
    }

    /// Whether what is on the remote is signed with a key, and so can be trusted as far as those who have the key.
    pub(crate) fn is_signed(&self) -> bool {
        self.far.as_ref().is_some_and(|far| far.settings.key.is_some())
    }

    /// What the key of a record begins with that may come from a remote, or go there: `kind`, and the key that vouches for it. This
    /// machine's own folder is not signed, so what was taken from a remote while there was no key, or another one, must not be found
    /// under the same key later, nor be signed then.
    pub(crate) fn shared_key(&self, kind: &str) -> KeyBuilder {
        let mut key = KeyBuilder::default();
        key.add(kind).add(self.trust.as_ref().map_or(&[][..], |trust| trust.bytes().as_slice()));
        key
    }

    /// What tells the key from another that what is shared must be signed with; none without a key.
    pub(crate) fn trust(&self) -> Option<Digest> {
        self.trust
    }

    /// Whether nothing was ever kept on this machine: there is no folder yet.
    pub(crate) fn is_new(&self) -> bool {
        !self.store.root().exists()
    }

    /// What tells the time here.
    pub(crate) fn clock(&self) -> &dyn Clock {
        self.store.clock()
    }

    fn remote(&self) -> Option<&Remote> {
        let RemoteSlot { settings, tell, remote } = self.far.as_ref()?;
        let open = || {
            settings.doubt.iter().for_each(|doubt| tell(doubt));
            Remote::open(settings, WarnFn::clone(tell)).map_err(|error| tell(&format!("{error:#}"))).ok()
        };
        remote.get_or_init(open).as_ref()
    }

    /// The record under `key`: the store's, else the remote's, which is then kept in the store.
    pub fn record(&self, key: Key) -> Option<Vec<u8>> {
        self.store.record(key).or_else(|| {
            let bytes = self.shared_record(key)?;
            // Without it in the store, the next link fetches it again.
            let _ = self.store.put_record(key, &bytes);
            Some(bytes)
        })
    }

    /// The remote's record under `key`, for callers who cannot use what the store has. It is fetched once in a process.
    pub fn shared_record(&self, key: Key) -> Option<Vec<u8>> {
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

    /// Keeps `bytes` under `key`, in the store and on the remote.
    ///
    /// # Errors
    /// The store cannot be written. The remote may have the record all the same.
    pub fn put_record(&self, key: Key, bytes: &[u8]) -> Result<()> {
        if let Some(remote) = self.remote() {
            remote.put_record(key, bytes);
        }
        self.store.put_record(key, bytes)
    }

    /// The record under `key` from this machine's store only: for what holds for this machine's files only.
    pub fn own_record(&self, key: Key) -> Option<Vec<u8>> {
        self.store.record(key)
    }

    /// Keeps a record in this machine's store only. Where it cannot be kept, later lookups miss.
    pub fn put_own_record(&self, key: Key, bytes: &[u8]) {
        let _ = self.store.put_record(key, bytes);
    }

    /// The record under `key` of code that runs on this machine: the store's, or a signed one of the remote's.
    pub(crate) fn code(&self, key: Key) -> Option<Vec<u8>> {
        if self.is_signed() { self.record(key) } else { self.own_record(key) }
    }

    /// Keeps such a record, on the remote only where it is signed. Where it cannot be kept, later lookups miss.
    pub(crate) fn put_code(&self, key: Key, bytes: &[u8]) {
        let _ = if self.is_signed() { self.put_record(key, bytes) } else { self.store.put_record(key, bytes) };
    }

    /// Whether this process has fetched the record under `key` from the remote.
    pub(crate) fn was_shared_record(&self, key: Key) -> bool {
        lock(&self.asked).get(&key).is_some_and(Option::is_some)
    }

    /// Puts the blob `name` at `to`; returns whether it was found. See [`Store::fetch_blob`]; [`Cache::was_shared`] says where it
    /// came from.
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn fetch_blob(&self, name: BlobName, to: &Path) -> Result<bool> {
        if self.fetch_own_blob(name, to)? {
            return Ok(true);
        }
        let BlobName::Sure(digest) = name else { return Ok(false) };
        if !self.remote().is_some_and(|remote| remote.fetch_blob(digest, to, self.store.limit())) {
            return Ok(false);
        }
        self.store.count(Event::RemoteHit);
        lock(&self.shared).insert(name);
        // Without it in the store, the next link fetches it again.
        let _ = self.store.put_blob(to, Some(name));
        Ok(true)
    }

    /// Whether this process has fetched the blob `name` from the remote.
    pub fn was_shared(&self, name: BlobName) -> bool {
        lock(&self.shared).contains(&name)
    }

    /// Keeps the contents of `file`, in the store and on the remote; see [`Store::put_blob`].
    ///
    /// # Errors
    /// The store cannot be written. Then nothing goes to the remote either.
    pub fn put_blob(&self, file: &Path, name: Option<BlobName>) -> Result<BlobName> {
        let name = self.store.put_blob(file, name)?;
        if let (BlobName::Sure(digest), Some(remote)) = (name, self.remote()) {
            remote.put_blob(digest, File::open(file)?);
        }
        Ok(name)
    }

    /// Keeps the contents of `file` in this machine's store only.
    ///
    /// # Errors
    /// The store cannot be written.
    pub fn put_own_blob(&self, file: &Path) -> Result<BlobName> {
        self.store.put_blob(file, None)
    }

    /// Puts the blob `name` of this machine's store at `to`; returns whether it was found. See [`Store::fetch_blob`].
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn fetch_own_blob(&self, name: BlobName, to: &Path) -> Result<bool> {
        Ok(self.accepts(name) && self.store.fetch_blob(name, to)?)
    }

    /// Counts `event` in the statistics.
    pub fn count(&self, event: Event) {
        self.store.count(event);
    }

    /// Starts `work` on a thread of its own, for which [`Cache::finish`] waits; runs it at once where no thread can be started.
    pub fn later(&self, work: impl FnOnce() + Send + 'static) {
        let handle = threads::beside(work);
        lock(&self.beside).extend(handle);
    }

    /// Keeps `work` until [`Cache::do_waiting`] or [`Cache::finish`] is called: it would take processors from what a link waits for.
    pub fn wait_with(&self, work: impl FnOnce() + Send + 'static) {
        lock(&self.waiting).push(Box::new(work));
    }

    /// Starts what [`Cache::wait_with`] has kept, one after another on one thread.
    pub fn do_waiting(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        if !waiting.is_empty() {
            self.later(move || waiting.into_iter().for_each(|work| work()));
        }
    }

    /// Joins the background work, and waits until everything is sent to the remote, as long as its settings allow.
    pub fn finish(&self) {
        self.finish_unless(&|| false);
    }

    /// As [`Cache::finish`], but when `stop` returns true, begins nothing that waits, and does not wait for the remote any longer.
    pub fn finish_unless(&self, stop: &dyn Fn() -> bool) {
        if !stop() {
            self.do_waiting();
        }
        let beside = std::mem::take(&mut *lock(&self.beside));
        for handle in beside {
            // Where it panicked, nothing was kept, which is not the link's concern.
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn what_one_key_vouches_for_is_not_found_with_another_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let key_of = |secret: Option<u8>| {
            let key = secret.map(|secret| {
                let file = dir.path().join("key");
                let _ = std::fs::remove_file(&file);
                std::fs::write(&file, [secret; 32]).unwrap();
                std::fs::set_permissions(&file, std::os::unix::fs::PermissionsExt::from_mode(0o600)).unwrap();
                SecretKey::read(&file).unwrap()
            });
            let store = Store::open(&dir.path().join("cache"), 1 << 30).unwrap();
            let settings = RemoteSettings { key, ..RemoteSettings::new("file:///nowhere") };
            Cache::shared(store, settings, Arc::new(|_: &str| {})).shared_key("image").key()
        };
        let keys = [None, Some(1), Some(2)].map(key_of);
        assert!(keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2], "{keys:?}");
        assert_eq!(key_of(Some(1)), keys[1]);
        // What an unsigned remote gives is as good as what is made here, and found without it.
        let alone = Cache::new(Store::open(&dir.path().join("cache"), 1 << 30).unwrap());
        assert_eq!(alone.shared_key("image").key(), keys[0]);
    }

    #[test]
    fn what_waits_is_done_when_that_is_called_for_and_at_the_latest_in_the_end() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Cache::new(Store::open(&dir.path().join("cache"), 1 << 30).unwrap());
        let done = Arc::new(AtomicUsize::new(0));
        let wait = || {
            let done = Arc::clone(&done);
            cache.wait_with(move || {
                done.fetch_add(1, Ordering::SeqCst);
            });
        };
        wait();
        cache.finish_unless(&|| true);
        assert_eq!(done.load(Ordering::SeqCst), 0, "a signal has arrived");
        cache.do_waiting();
        wait();
        cache.finish();
        assert_eq!(done.load(Ordering::SeqCst), 2);
    }
}
