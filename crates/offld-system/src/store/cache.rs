//! The cache as a link uses it: the store on this machine, the remote cache behind it, and
//! background work that is finished before the process ends.

use std::collections::{HashMap, HashSet};
use std::fs::File;
use std::path::Path;
use std::sync::{Arc, Mutex, OnceLock};
use std::thread::JoinHandle;

use anyhow::Result;

use super::remote::WarnFn;
use super::settings;
use super::{
    BlobName, Digest, Event, Key, KeyBuilder, Naming, Remote, RemoteSettings, SecretKey, Store,
};
use crate::clock::Clock;
use crate::environment::Named;
use crate::shell::Shell;
use crate::threads::{self, lock};

/// A cache in use. Entries missing from the store are fetched from the remote cache and stored. New
/// entries go to both, to the remote cache in the background.
pub struct Cache {
    store: Store,
    remote_slot: Option<RemoteSlot>,
    /// Fingerprint of the key that shared entries must be signed with. `None` if unsigned entries
    /// are accepted.
    trust: Option<Digest>,
    fetched_records: Mutex<HashMap<Key, Option<Vec<u8>>>>,
    fetched_blobs: Mutex<HashSet<BlobName>>,
    background: Mutex<Vec<JoinHandle<()>>>,
    waiting: Mutex<Vec<Work>>,
}

/// Where an entry comes from, and where it goes to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Scope {
    /// This machine's store: entries that are valid for this machine's files only.
    Local,
    /// Only the remote cache. Reads its record of a key for which the store may have a different
    /// record.
    Remote,
    /// The store, then the remote cache.
    Shared,
    /// Code that runs on this machine: `Shared` if entries on the remote cache are signed with a
    /// key, so that they are as trustworthy as the holders of the key; else `Local`.
    Code,
}

/// Whether a link uses the cache.
#[derive(Debug)]
pub enum Caching {
    /// The link uses this cache.
    On(Arc<Cache>),
    /// The link uses none.
    Off(Reason),
}

/// Why a link does not use the cache.
#[derive(Debug)]
pub enum Reason {
    /// The user turned it off, or it cannot be opened.
    Unavailable(String),
    /// A setting is invalid.
    InvalidSetting(String),
    /// The user's key cannot be used.
    InvalidKey(String),
}

impl Caching {
    /// Opens the cache that `folder` and the environment select ([`settings::resolve`]), with the
    /// remote cache that the environment names, if any. Warnings about the remote cache go to
    /// `shell`.
    pub fn open(folder: Option<Named>, shell: &Arc<Shell>) -> Caching {
        let setting = settings::resolve(folder);
        let Some(root) = &setting.root else {
            let why = setting.why_off.unwrap_or_default();
            return Caching::Off(if setting.is_wrong {
                Reason::InvalidSetting(why)
            } else {
                Reason::Unavailable(why)
            });
        };
        let key = match SecretKey::of_environment() {
            Ok(key) => key,
            Err(error) => return Caching::Off(Reason::InvalidKey(format!("{error:#}"))),
        };
        let store = match Store::of(&setting, root) {
            Ok(store) => store,
            Err(error) => return Caching::Off(Reason::Unavailable(format!("{error:#}"))),
        };
        let shell = Arc::clone(shell);
        let warn = move |warning: &str| shell.warn(warning);
        Caching::On(Arc::new(match (RemoteSettings::from_environment(), key) {
            (Some(settings), key) => {
                Cache::shared(store, RemoteSettings { key, ..settings }, Arc::new(warn))
            }
            (None, Some(key)) => Cache {
                trust: Some(key.fingerprint()),
                ..Cache::new(store.with_naming(Naming::Sure))
            },
            (None, None) => Cache::new(store),
        }))
    }

    /// Returns the cache, or the reason for not using one.
    pub fn cache(&self) -> std::result::Result<&Arc<Cache>, &str> {
        match self {
            Caching::On(cache) => Ok(cache),
            Caching::Off(
                Reason::Unavailable(why) | Reason::InvalidSetting(why) | Reason::InvalidKey(why),
            ) => Err(why),
        }
    }
}

/// Work that no other work waits for.
type Work = Box<dyn FnOnce() + Send>;

impl std::fmt::Debug for Cache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Cache")
            .field("store", &self.store)
            .finish_non_exhaustive()
    }
}

/// The remote cache, opened when it is first needed: most links find everything in the store and
/// never need it.
struct RemoteSlot {
    settings: RemoteSettings,
    warn: WarnFn,
    remote: OnceLock<Option<Remote>>,
}

impl Cache {
    /// A cache without a remote cache.
    pub fn new(store: Store) -> Self {
        Cache {
            store,
            remote_slot: None,
            trust: None,
            fetched_records: Mutex::default(),
            fetched_blobs: Mutex::default(),
            background: Mutex::default(),
            waiting: Mutex::default(),
        }
    }

    /// A cache of `store` and the remote cache that `settings` name. An unusable remote cache costs
    /// one call of `warn` when it is first needed. After that, the store is used alone.
    pub fn shared(store: Store, settings: RemoteSettings, warn: WarnFn) -> Self {
        let trust = settings.key.as_ref().map(SecretKey::fingerprint);
        let remote_slot = Some(RemoteSlot {
            settings,
            warn,
            remote: OnceLock::new(),
        });
        Cache {
            remote_slot,
            trust,
            ..Cache::new(store.with_naming(Naming::Sure))
        }
    }

    /// Whether a blob with this name may be used. If blobs are shared or there is a key, the digest
    /// must be collision-resistant.
    pub fn accepts(&self, name: BlobName) -> bool {
        name.naming() == Naming::Sure || self.store.naming() == Naming::Quick
    }

    /// Whether entries on the remote cache are signed with a key, so that they are as trustworthy
    /// as the holders of the key.
    pub fn is_signed(&self) -> bool {
        self.remote_slot
            .as_ref()
            .is_some_and(|remote_slot| remote_slot.settings.key.is_some())
    }

    /// Begins the key of a record that may come from a remote cache or go there: `kind`, and the
    /// fingerprint of the signing key. Entries in this machine's store have no signature. Without
    /// the fingerprint, a lookup would also find entries that were fetched without a signing key, or
    /// with another one. Writing their record to the remote cache again would then sign them.
    pub fn shared_key(&self, kind: &str) -> KeyBuilder {
        let mut key = KeyBuilder::default();
        key.add(kind).add(
            self.trust
                .as_ref()
                .map_or(&[][..], |trust| trust.bytes().as_slice()),
        );
        key
    }

    /// Fingerprint of the key that shared entries must be signed with; `None` without a key.
    pub fn trust(&self) -> Option<Digest> {
        self.trust
    }

    /// Whether the cache was never used on this machine: its directory does not exist.
    pub fn is_new(&self) -> bool {
        !self.store.root().exists()
    }

    /// The clock that decides about ages.
    pub fn clock(&self) -> &dyn Clock {
        self.store.clock()
    }

    fn remote(&self) -> Option<&Remote> {
        let RemoteSlot {
            settings,
            warn,
            remote,
        } = self.remote_slot.as_ref()?;
        let open = || {
            settings.doubt.iter().for_each(|doubt| warn(doubt));
            Remote::open(settings, WarnFn::clone(warn))
                .map_err(|error| warn(&format!("{error:#}")))
                .ok()
        };
        remote.get_or_init(open).as_ref()
    }

    /// Whether entries of `scope` are in the store, and whether they are on the remote cache.
    fn parts(&self, scope: Scope) -> (bool, bool) {
        match scope {
            Scope::Local => (true, false),
            Scope::Remote => (false, true),
            Scope::Shared => (true, true),
            Scope::Code => (true, self.is_signed()),
        }
    }

    /// Returns the record under `key` in `scope`. A record from the remote cache is then stored.
    pub fn record(&self, key: Key, scope: Scope) -> Option<Vec<u8>> {
        let (in_store, in_remote) = self.parts(scope);
        let stored = in_store.then(|| self.store.record(key)).flatten();
        if stored.is_some() || !in_remote {
            return stored;
        }
        let bytes = self.remote_record(key)?;
        if in_store {
            // If it cannot be stored, the next link fetches it again.
            let _ = self.store.put_record(key, &bytes);
        }
        Some(bytes)
    }

    /// Returns the remote cache's record under `key`. It is fetched once in a process.
    fn remote_record(&self, key: Key) -> Option<Vec<u8>> {
        let remote = self.remote()?;
        if let Some(answer) = lock(&self.fetched_records).get(&key) {
            return answer.clone();
        }
        let bytes = remote.record(key);
        if bytes.is_none() {
            self.store.count(Event::RemoteMiss);
        }
        lock(&self.fetched_records).insert(key, bytes.clone());
        bytes
    }

    /// Puts `bytes` under `key` into `scope`.
    ///
    /// # Errors
    /// The store cannot be written; then later lookups miss. The remote cache may have the record
    /// all the same.
    pub fn put_record(&self, key: Key, bytes: &[u8], scope: Scope) -> Result<()> {
        let (in_store, in_remote) = self.parts(scope);
        if in_remote && let Some(remote) = self.remote() {
            remote.put_record(key, bytes);
        }
        if in_store {
            self.store.put_record(key, bytes)
        } else {
            Ok(())
        }
    }

    /// Whether this process has fetched the record under `key` from the remote cache.
    pub fn was_shared_record(&self, key: Key) -> bool {
        lock(&self.fetched_records)
            .get(&key)
            .is_some_and(Option::is_some)
    }

    /// Writes the blob `name` in `scope` to `to`. Returns whether it was found. See
    /// [`Store::fetch_blob`]; [`Cache::was_shared`] tells whether it came from the remote cache. A
    /// blob from the remote cache is then stored.
    ///
    /// # Errors
    /// `to` cannot be written.
    pub fn fetch_blob(&self, name: BlobName, to: &Path, scope: Scope) -> Result<bool> {
        let (in_store, in_remote) = self.parts(scope);
        if in_store && self.accepts(name) && self.store.fetch_blob(name, to)? {
            return Ok(true);
        }
        let (true, BlobName::Sure(digest)) = (in_remote, name) else {
            return Ok(false);
        };
        if !self
            .remote()
            .is_some_and(|remote| remote.fetch_blob(digest, to, self.store.limit()))
        {
            return Ok(false);
        }
        self.store.count(Event::RemoteHit);
        lock(&self.fetched_blobs).insert(name);
        if in_store {
            // If it cannot be stored, the next link fetches it again.
            let _ = self.store.put_blob(to, Some(name));
        }
        Ok(true)
    }

    /// Whether this process has fetched the blob `name` from the remote cache.
    pub fn was_shared(&self, name: BlobName) -> bool {
        lock(&self.fetched_blobs).contains(&name)
    }

    /// Puts the contents of `file` into the store, and on the remote cache if `scope` includes it;
    /// see [`Store::put_blob`].
    ///
    /// # Errors
    /// The store cannot be written. Then nothing goes to the remote cache either.
    pub fn put_blob(&self, file: &Path, scope: Scope) -> Result<BlobName> {
        let name = self.store.put_blob(file, None)?;
        if self.parts(scope).1
            && let (BlobName::Sure(digest), Some(remote)) = (name, self.remote())
        {
            remote.put_blob(digest, File::open(file)?);
        }
        Ok(name)
    }

    /// Counts `event` in the statistics.
    pub fn count(&self, event: Event) {
        self.store.count(event);
    }

    /// Starts `work` on a thread of its own, for which [`Cache::finish`] waits. If no thread can be
    /// started, runs it at once. Its result is ignored: what is not stored is computed again.
    pub fn later<T>(&self, work: impl FnOnce() -> T + Send + 'static) {
        let handle = threads::beside(move || drop(work()));
        lock(&self.background).extend(handle);
    }

    /// Defers `work` until [`Cache::do_waiting`] or [`Cache::finish`]: it would take CPU time from
    /// work that the link waits for.
    pub fn wait_with(&self, work: impl FnOnce() + Send + 'static) {
        lock(&self.waiting).push(Box::new(work));
    }

    /// Starts the work that [`Cache::wait_with`] has deferred, one after another on one thread.
    pub fn do_waiting(&self) {
        let waiting = std::mem::take(&mut *lock(&self.waiting));
        if !waiting.is_empty() {
            self.later(move || waiting.into_iter().for_each(|work| work()));
        }
    }

    fn next_background(&self) -> Option<JoinHandle<()>> {
        lock(&self.background).pop()
    }

    /// Joins the background work, and waits until everything is sent to the remote cache, for as
    /// long as its settings allow.
    pub fn finish(&self) {
        self.finish_unless(&|| false);
    }

    /// Like [`Cache::finish`]. When `stop` returns true, starts no deferred work, and no longer
    /// waits for the remote cache.
    pub fn finish_unless(&self, stop: &dyn Fn() -> bool) {
        if !stop() {
            self.do_waiting();
        }
        // Background work may start more background work.
        while let Some(handle) = self.next_background() {
            // If it panicked, nothing was cached, which does not affect the link.
            let _ = handle.join();
        }
        if let Some(remote) = self
            .remote_slot
            .as_ref()
            .and_then(|remote_slot| remote_slot.remote.get()?.as_ref())
        {
            remote.finish(stop);
            if remote.troubled() {
                self.store.count(Event::RemoteFault);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use super::*;

    #[test]
    fn entries_of_one_signing_key_are_not_found_with_another_or_none() {
        let dir = tempfile::tempdir().unwrap();
        let key_of = |secret: Option<u8>| {
            let key = secret.map(|secret| {
                let file = dir.path().join("key");
                let _ = std::fs::remove_file(&file);
                std::fs::write(&file, [secret; 32]).unwrap();
                std::fs::set_permissions(
                    &file,
                    std::os::unix::fs::PermissionsExt::from_mode(0o600),
                )
                .unwrap();
                SecretKey::read(&file).unwrap()
            });
            let store = Store::open(&dir.path().join("cache"), 1 << 30).unwrap();
            let settings = RemoteSettings {
                key,
                ..RemoteSettings::new("file:///nowhere")
            };
            Cache::shared(store, settings, Arc::new(|_: &str| {}))
                .shared_key("image")
                .key()
        };
        let keys = [None, Some(1), Some(2)].map(key_of);
        assert!(
            keys[0] != keys[1] && keys[0] != keys[2] && keys[1] != keys[2],
            "{keys:?}"
        );
        assert_eq!(key_of(Some(1)), keys[1]);
        // Entries of an unsigned remote cache are as good as local ones, and are found without it.
        let alone = Cache::new(Store::open(&dir.path().join("cache"), 1 << 30).unwrap());
        assert_eq!(alone.shared_key("image").key(), keys[0]);
    }

    #[test]
    fn deferred_work_runs_on_request_and_at_the_end_at_the_latest() {
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

    #[test]
    fn work_started_by_background_work_is_joined_as_well() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::new(
            Store::open(&dir.path().join("cache"), 1 << 30).unwrap(),
        ));
        let done = Arc::new(AtomicUsize::new(0));
        let (inner, counted) = (Arc::clone(&cache), Arc::clone(&done));
        cache.later(move || {
            let started = Arc::clone(&counted);
            inner.later(move || {
                std::thread::sleep(std::time::Duration::from_millis(300));
                started.fetch_add(1, Ordering::SeqCst);
            });
        });
        cache.finish();
        assert_eq!(done.load(Ordering::SeqCst), 1);
    }
}
