//! A remote cache for the link: records and blobs are read while the link waits, and written in the
//! background. One thread does all waiting for the network, and callers wait for that thread only
//! for a limited time. After a failure, the remote cache is not used for the rest of the process.

use std::fs::File;
use std::future::Future;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, Receiver, RecvTimeoutError, Sender};
use std::sync::{Arc, Mutex, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Result;
use tokio::runtime::Handle;

use super::frame::{Frame, LONGEST, PART, is_plausible};
use super::service::{Failure, Kind, Service};
use super::{RemoteSettings, WarnFn};
use crate::environment::OFFLD_CACHE_KEY;
use crate::store::digest::Namer;
use crate::store::{BlobName, Digest, Key, Naming};
use crate::threads::{self, lock};

/// Extra time that a caller waits beyond the time limit of a request, because the thread itself may
/// be delayed.
const GRACE: Duration = Duration::from_millis(200);

/// The thread and its limits. The first request starts the thread.
struct Engine {
    name: String,
    /// Whether objects must be signed.
    signed: bool,
    warn: WarnFn,
    each: Duration,
    whole: Duration,
    thread: OnceLock<Option<Handle>>,
    off: AtomicBool,
    no_writes: AtomicBool,
    warned_of_damage: AtomicBool,
    troubled: AtomicBool,
    waits: Mutex<Waits>,
}

/// See [`Engine::waiting`].
struct Waiting<'e>(&'e Engine);

impl Drop for Waiting<'_> {
    fn drop(&mut self) {
        self.0.stop_waiting();
    }
}

/// Time that the link has waited so far. Callers that wait at the same time count once.
struct Waits {
    waiting: usize,
    since: Instant,
    spent: Duration,
}

impl Engine {
    /// Creates an engine whose thread does not run yet.
    fn new(settings: &RemoteSettings, warn: WarnFn) -> Engine {
        Engine {
            name: settings.shown(),
            signed: settings.key.is_some(),
            warn,
            each: settings.each,
            whole: settings.whole,
            thread: OnceLock::new(),
            off: AtomicBool::new(false),
            no_writes: AtomicBool::new(settings.read_only),
            warned_of_damage: AtomicBool::new(false),
            troubled: AtomicBool::new(false),
            waits: Mutex::new(Waits {
                waiting: 0,
                since: Instant::now(),
                spent: Duration::ZERO,
            }),
        }
    }

    /// Whether the remote cache is still read.
    fn reads(&self) -> bool {
        !self.off.load(Ordering::SeqCst)
    }

    /// Whether the remote cache is still written.
    fn writes(&self) -> bool {
        self.reads() && !self.no_writes.load(Ordering::SeqCst)
    }

    /// Counts all time until the value is dropped as waiting: the link also waits while arrived
    /// data is decompressed and compared.
    fn waiting(&self) -> Waiting<'_> {
        self.start_waiting();
        Waiting(self)
    }

    /// Runs a request that the link waits for. Returns `None` if the remote cache does not have the
    /// object, or is no longer used. After a failure, it is no longer used.
    fn ask<T: Send + 'static>(
        &self,
        question: impl Future<Output = Result<T, Failure>> + Send + 'static,
    ) -> Option<T> {
        let left = self.start_waiting();
        let answer = if left.is_zero() {
            Err(self.late(self.whole))
        } else {
            self.run(question, left)
        };
        self.stop_waiting();
        match answer {
            Ok(answer) => Some(answer),
            Err(failure) => {
                if failure.kind != Kind::Missing {
                    self.switch_off(&failure.cause);
                }
                None
            }
        }
    }

    /// Runs a write, on a background thread. Returns whether it worked. After a failure, the remote
    /// cache is no longer written, and after a timeout it is not used at all.
    fn write(&self, work: impl Future<Output = Result<(), Failure>> + Send + 'static) -> bool {
        if !self.writes() {
            return false;
        }
        let Err(failure) = self.run(work, self.each) else {
            return true;
        };
        if failure.kind == Kind::Late {
            self.switch_off(&failure.cause);
        } else if self.reads() && !self.no_writes.swap(true, Ordering::SeqCst) {
            self.warn(&format!("is no longer written: {}", failure.cause));
        }
        false
    }

    /// Waits until the sender of `done` is dropped, `stop` returns true, or the link has used up
    /// its waiting time. Uploads that are unfinished by then are abandoned.
    fn wait_for_end(&self, done: &mpsc::Receiver<()>, stop: &dyn Fn() -> bool) {
        let left = self.start_waiting();
        let until = Instant::now() + left;
        while self.reads() && !stop() {
            let now = Instant::now();
            if now >= until {
                self.switch_off(&format!(
                    "uploads did not finish within {:?}; skipped",
                    self.whole
                ));
                break;
            }
            if done.recv_timeout(GRACE.min(until - now)) != Err(RecvTimeoutError::Timeout) {
                break;
            }
        }
        self.stop_waiting();
    }

    /// Warns, once in a process, that the object `name` is damaged, or lacks a valid signature.
    fn wrong(&self, name: &str) {
        if !self.warned_of_damage.swap(true, Ordering::SeqCst) {
            let unsigned = if self.signed {
                format!(", or data not signed with the key in {OFFLD_CACHE_KEY}")
            } else {
                String::new()
            };
            self.warn(&format!(
                "returned wrong or incomplete data for `{name}`{unsigned}; ignored"
            ));
        }
    }

    fn switch_off(&self, cause: &str) {
        if !self.off.swap(true, Ordering::SeqCst) {
            self.warn(&format!("is no longer used: {cause}"));
        }
    }

    fn warn(&self, what: &str) {
        self.troubled.store(true, Ordering::SeqCst);
        (self.warn)(&format!("the remote cache at {} {what}", self.name));
    }

    fn troubled(&self) -> bool {
        self.troubled.load(Ordering::SeqCst)
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
        left: Duration,
    ) -> Result<T, Failure> {
        let thread = self.thread.get_or_init(start_network).as_ref();
        let Some(thread) = thread.filter(|_| self.reads()) else {
            return Err(Failure {
                kind: Kind::Other,
                cause: "cannot start a thread".to_owned(),
            });
        };
        let limit = self.each.min(left);
        let (answer, answered) = mpsc::sync_channel(1);
        thread.spawn(async move {
            let _ = answer.send(tokio::time::timeout(limit, work).await);
        });
        match answered.recv_timeout(limit + GRACE) {
            Ok(Ok(result)) => result,
            _ => Err(self.late(if limit < self.each {
                self.whole
            } else {
                self.each
            })),
        }
    }

    fn late(&self, limit: Duration) -> Failure {
        let cause = if limit == self.each {
            format!("no full answer within {limit:?}")
        } else {
            format!("this link has waited {limit:?} in total")
        };
        Failure {
            kind: Kind::Late,
            cause,
        }
    }

    /// Starts to count waiting time. Returns how much longer the link may wait.
    fn start_waiting(&self) -> Duration {
        let mut waits = lock(&self.waits);
        let now = Instant::now();
        if waits.waiting == 0 {
            waits.since = now;
        }
        waits.waiting += 1;
        self.whole.saturating_sub(waits.spent + (now - waits.since))
    }

    fn stop_waiting(&self) {
        let mut waits = lock(&self.waits);
        waits.waiting -= 1;
        if waits.waiting == 0 {
            let waited = waits.since.elapsed();
            waits.spent += waited;
        }
    }
}

/// Starts a thread that runs the futures spawned on it, until the process ends. Returns `None` if
/// the thread cannot start, or if the limit on threads is near: the new thread starts more, to look
/// up host names.
fn start_network() -> Option<Handle> {
    if threads::is_short() {
        return None;
    }
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .ok()?;
    let handle = runtime.handle().clone();
    let run = move || runtime.block_on(std::future::pending::<()>());
    std::thread::Builder::new()
        .name("offld-remote".to_owned())
        .spawn(run)
        .ok()?;
    Some(handle)
}

/// The second level of a cache.
pub struct Remote {
    engine: Arc<Engine>,
    service: Arc<Service>,
    frame: Arc<Frame>,
    uploads: Uploads,
}

impl std::fmt::Debug for Remote {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Remote").finish_non_exhaustive()
    }
}

impl Remote {
    /// Creates a remote cache with these settings. It does not connect, and starts no thread,
    /// before the first request. Warnings go to `warn`, one for each kind of failure.
    ///
    /// # Errors
    /// The settings are invalid.
    pub fn open(settings: &RemoteSettings, warn: WarnFn) -> Result<Remote> {
        let service = Arc::new(Service::open(settings)?);
        let frame = Arc::new(Frame::new(settings.key.clone()));
        Ok(Remote {
            engine: Arc::new(Engine::new(settings, warn)),
            service,
            frame,
            uploads: Uploads::default(),
        })
    }

    /// Returns the record under `key`, or `None` if it is missing, damaged, or lacks a valid
    /// signature.
    pub fn record(&self, key: Key) -> Option<Vec<u8>> {
        let _waiting = self.engine.waiting();
        self.object(&self.frame.record_name(key))
            .map(|object| object.bytes)
    }

    /// Writes the blob `name` to the new file `to`. Returns whether it was found. An incomplete or
    /// damaged blob, or one without a valid signature, leaves no file. A blob of more than `limit`
    /// bytes is not fetched.
    pub(crate) fn fetch_blob(&self, name: Digest, to: &Path, limit: u64) -> bool {
        let _waiting = self.engine.waiting();
        let Some(first) = self
            .object(&self.frame.part_name(name, 0))
            .filter(|first| first.whole <= limit)
        else {
            return false;
        };
        let fetched = self.write_blob(name, first, to);
        if !matches!(fetched, Ok(true)) {
            let _ = std::fs::remove_file(to);
        }
        fetched.unwrap_or(false)
    }

    fn write_blob(&self, name: Digest, first: Object, to: &Path) -> io::Result<bool> {
        let mut file = File::create(to)?;
        let mut namer = Namer::new(Naming::Sure);
        let (mut written, mut arrived) = (0, 0);
        let (whole, size, mut part) = (first.whole, first.bytes.len(), first);
        for number in 1.. {
            written += part.bytes.len() as u64;
            arrived += part.arrived;
            if !is_plausible(written, arrived) {
                break;
            }
            namer.update(&part.bytes);
            file.write_all(&part.bytes)?;
            // A part that is shorter than the first must be the last one; otherwise the blob is
            // incomplete.
            if written >= whole || part.bytes.len() < size || size == 0 {
                break;
            }
            match self.object(&self.frame.part_name(name, number)) {
                Some(next) if next.whole == whole => part = next,
                _ => return Ok(false),
            }
        }
        let right = written == whole && namer.name() == BlobName::Sure(name);
        if !right {
            self.engine.wrong(&self.frame.part_name(name, 0));
        }
        Ok(right)
    }

    /// Sends a record in the background, replacing an existing one. A record that is too long for
    /// an object is not sent.
    pub(crate) fn put_record(&self, key: Key, bytes: &[u8]) {
        if bytes.len() <= PART {
            let name = self.frame.record_name(key);
            let object = self.frame.encode(&name, bytes.len() as u64, bytes);
            self.send(Job::Object(name, object));
        }
    }

    /// Sends the blob `name`, the contents of `file`, in the background. Until then, `file` must
    /// not be changed, but it may be removed.
    pub(crate) fn put_blob(&self, name: Digest, file: File) {
        self.send(Job::Blob(name, file));
    }

    fn send(&self, job: Job) {
        if self.engine.writes() {
            self.uploads
                .add(job, &self.engine, &self.service, &self.frame);
        }
    }

    /// Waits until everything is sent, the link has used up its waiting time, or `stop` returns
    /// true.
    pub(crate) fn finish(&self, stop: &dyn Fn() -> bool) {
        self.uploads.finish(&self.engine, stop);
    }

    /// Whether there was any warning so far.
    pub fn troubled(&self) -> bool {
        self.engine.troubled()
    }

    fn object(&self, name: &str) -> Option<Object> {
        if !self.engine.reads() {
            return None;
        }
        let (service, wanted) = (Arc::clone(&self.service), name.to_owned());
        let object = self
            .engine
            .ask(async move { service.read(&wanted, LONGEST).await })?;
        let decoded = self.frame.decode(name, &object);
        if decoded.is_none() {
            self.engine.wrong(name);
        }
        decoded.map(|(whole, bytes)| Object {
            whole,
            bytes,
            arrived: object.len() as u64,
        })
    }
}

struct Object {
    /// Size of the whole record or blob, as the object claims.
    whole: u64,
    bytes: Vec<u8>,
    /// Number of bytes that the network transferred for them.
    arrived: u64,
}

// Sends records and blobs to a remote cache, on a thread of its own, while the link continues.

enum Job {
    /// An encoded object: its name and its bytes.
    Object(String, Vec<u8>),
    /// A blob: its name and its contents.
    Blob(Digest, File),
}

#[derive(Default)]
struct Uploads(Mutex<Option<(Sender<Job>, Receiver<()>)>>);

impl Uploads {
    /// Appends `job` to the queue. The first job starts the thread.
    fn add(&self, job: Job, engine: &Arc<Engine>, service: &Arc<Service>, frame: &Arc<Frame>) {
        let mut queue = lock(&self.0);
        let (jobs, _) = queue.get_or_insert_with(|| {
            start_uploads(Arc::clone(engine), Arc::clone(service), Arc::clone(frame))
        });
        // An error means that the thread could not be started: then nothing is sent.
        let _ = jobs.send(job);
    }

    /// Waits until the queue is empty, for as long as `engine` allows.
    fn finish(&self, engine: &Engine, stop: &dyn Fn() -> bool) {
        let queue = lock(&self.0).take();
        if let Some((jobs, done)) = queue {
            drop(jobs);
            engine.wait_for_end(&done, stop);
        }
    }
}

fn start_uploads(
    engine: Arc<Engine>,
    service: Arc<Service>,
    frame: Arc<Frame>,
) -> (Sender<Job>, Receiver<()>) {
    let (jobs, waiting) = mpsc::channel::<Job>();
    let (done, end) = mpsc::channel::<()>();
    let run = move || {
        // Dropped when the thread ends: `finish` waits for that.
        let _done = done;
        for job in waiting {
            match job {
                Job::Object(name, object) => {
                    send(&engine, &service, name, object);
                }
                Job::Blob(name, file) => {
                    // If the file cannot be read, its first part is never sent, and readers begin
                    // with that part.
                    let _ = send_blob(&engine, &service, &frame, name, &file);
                }
            }
        }
    };
    let _ = std::thread::Builder::new()
        .name("offld-upload".to_owned())
        .spawn(run);
    (jobs, end)
}

/// Sends the first part last: if readers find it, all others exist.
fn send_blob(
    engine: &Arc<Engine>,
    service: &Arc<Service>,
    frame: &Frame,
    blob: Digest,
    file: &File,
) -> io::Result<()> {
    let whole = file.metadata()?.len();
    let most = service.part();
    let mut buffer = vec![0; usize::try_from(whole).unwrap_or(most).min(most)];
    let parts = whole.div_ceil(most as u64).max(1);
    for part in (1..parts).chain([0]) {
        if !engine.writes() {
            return Ok(());
        }
        let at = part * most as u64;
        let size = usize::try_from(whole - at).unwrap_or(most).min(most);
        let bytes = buffer.get_mut(..size).unwrap_or_default();
        file.read_exact_at(bytes, at)?;
        let name = frame.part_name(blob, part);
        let object = frame.encode(&name, whole, bytes);
        if !send(engine, service, name, object) {
            return Ok(());
        }
    }
    Ok(())
}

fn send(engine: &Arc<Engine>, service: &Arc<Service>, name: String, object: Vec<u8>) -> bool {
    let service = Arc::clone(service);
    engine.write(async move { service.write(&name, object).await })
}
