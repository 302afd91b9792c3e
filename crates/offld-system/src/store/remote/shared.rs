//! A remote cache for the link: records and blobs are read while the link waits, and written in the
//! background.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use anyhow::Result;

use super::engine::Engine;
use super::frame::{Frame, LONGEST, PART, is_plausible};
use super::service::Service;
use super::{RemoteSettings, WarnFn};
use crate::store::digest::Namer;
use crate::store::{BlobName, Digest, Key, Naming};
use crate::threads::lock;

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

pub(super) enum Job {
    /// An encoded object: its name and its bytes.
    Object(String, Vec<u8>),
    /// A blob: its name and its contents.
    Blob(Digest, File),
}

#[derive(Default)]
pub(super) struct Uploads(Mutex<Option<(Sender<Job>, Receiver<()>)>>);

impl Uploads {
    /// Appends `job` to the queue. The first job starts the thread.
    pub(super) fn add(
        &self,
        job: Job,
        engine: &Arc<Engine>,
        service: &Arc<Service>,
        frame: &Arc<Frame>,
    ) {
        let mut queue = lock(&self.0);
        let (jobs, _) = queue.get_or_insert_with(|| {
            start(Arc::clone(engine), Arc::clone(service), Arc::clone(frame))
        });
        // An error means that the thread could not be started: then nothing is sent.
        let _ = jobs.send(job);
    }

    /// Waits until the queue is empty, for as long as `engine` allows.
    pub(super) fn finish(&self, engine: &Engine, stop: &dyn Fn() -> bool) {
        let queue = lock(&self.0).take();
        if let Some((jobs, done)) = queue {
            drop(jobs);
            engine.wait_for_end(&done, stop);
        }
    }
}

fn start(
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
