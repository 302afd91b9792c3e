//! A remote cache for the link: records and blobs are read while the link waits, and written in the
//! background. Also the names and format of its objects.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use anyhow::Result;

use super::engine::Engine;
use super::service::Service;
use super::{RemoteSettings, WarnFn};
use crate::store::digest::Namer;
use crate::store::{BlobName, Digest, Key, KeyBuilder, Naming, SecretKey};
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

// Names and format of the objects on a remote cache. An object is a header and a body, which is
// compressed if that makes it smaller.
//
// A record is the object `r/<key>`. A blob is the objects `b/<name>`, `b/<name>.1`, `b/<name>.2`…
// If there is a key, they are in `signed`: `signed/r/<key>`. So users with and without a key can
// share one remote cache without replacing each other's objects.
//
// ```text
// 0 "offld-r2"
// 8 compression of the body: 0 none, 1 zstd
// 9 the size of the whole record or blob, 8 bytes, little endian
// 17 BLAKE3 of the name and of all other bytes of the object, keyed if there is a key
// 49 the body
// ```
//
// The objects of a blob all have as many bytes as the first, except the last, and at most
// [`PART`]. So memory does not grow with blobs, and no service's limit on the size of objects is
// exceeded. The name is that of the key or blob and contains the number of the part: no object can
// replace another. The digest is checked before the body is decompressed.

/// Maximum number of bytes of a record or blob in one object.
pub(super) const PART: usize = 4 << 20;
/// Size of the largest object, in bytes: bodies that would not shrink are stored uncompressed.
pub(super) const LONGEST: usize = HEAD + PART;

const MAGIC: &[u8; 8] = b"offld-r2";
/// Offsets of the digest and of the body.
const DIGEST: usize = 17;
const HEAD: usize = 49;
const PLAIN: u8 = 0;
const ZSTD: u8 = 1;
/// Compression level of zstd: at this one it is faster than networks.
const LEVEL: i32 = 1;

/// Maximum ratio of contents to received bytes, not counting one part. Bodies that would shrink
/// further are sent uncompressed.
const MAX_EXPANSION: u64 = 64;

/// Whether a blob may have `written` bytes so far if `arrived` bytes came over the network. This
/// prevents a small object from filling the disk.
fn is_plausible(written: u64, arrived: u64) -> bool {
    written
        <= arrived
            .saturating_mul(MAX_EXPANSION)
            .saturating_add(PART as u64)
}

/// Names and encodes objects, with or without signatures.
#[derive(Debug)]
pub(super) struct Frame {
    key: Option<SecretKey>,
}

impl Frame {
    /// For objects that are signed with `key`, if there is one.
    pub(super) fn new(key: Option<SecretKey>) -> Frame {
        Frame { key }
    }

    /// The name of the object of a record.
    pub(super) fn record_name(&self, key: Key) -> String {
        format!("{}r/{key}", self.folder())
    }

    /// The name of an object of a blob. The name of the first one, without a number, represents the
    /// blob.
    pub(super) fn part_name(&self, blob: Digest, part: u64) -> String {
        let folder = self.folder();
        if part == 0 {
            format!("{folder}b/{blob}")
        } else {
            format!("{folder}b/{blob}.{part}")
        }
    }

    fn folder(&self) -> &'static str {
        if self.key.is_some() { "signed/" } else { "" }
    }

    /// Encodes the object `name` for `bytes`, a part of a record or blob of `whole` bytes.
    pub(super) fn encode(&self, name: &str, whole: u64, bytes: &[u8]) -> Vec<u8> {
        let worth = |packed: &Vec<u8>| {
            packed.len() < bytes.len()
                && (packed.len() as u64) * MAX_EXPANSION >= bytes.len() as u64
        };
        let packed = zstd::bulk::compress(bytes, LEVEL).ok().filter(worth);
        packed.map_or_else(
            || self.object(name, PLAIN, whole, bytes),
            |packed| self.packed(name, whole, &packed),
        )
    }

    /// Encodes a part that is compressed already.
    pub(super) fn packed(&self, name: &str, whole: u64, body: &[u8]) -> Vec<u8> {
        self.object(name, ZSTD, whole, body)
    }

    fn object(&self, name: &str, packing: u8, whole: u64, body: &[u8]) -> Vec<u8> {
        let mut object = Vec::with_capacity(HEAD + body.len());
        object.extend_from_slice(MAGIC);
        object.push(packing);
        object.extend_from_slice(&whole.to_le_bytes());
        let digest = self.digest(name, &object, body);
        object.extend_from_slice(digest.bytes());
        object.extend_from_slice(body);
        object
    }

    /// Decodes an object that was fetched as `name`: the size of the whole record or blob, and the
    /// bytes of this object. Returns `None` if it is damaged, or not signed with the key.
    pub(super) fn decode(&self, name: &str, object: &[u8]) -> Option<(u64, Vec<u8>)> {
        let (head, body) = object.split_at_checked(HEAD)?;
        let (before, digest) = head.split_at_checked(DIGEST)?;
        if !head.starts_with(MAGIC) || !self.digest(name, before, body).is(digest) {
            return None;
        }
        let whole = u64::from_le_bytes(head.get(9..DIGEST)?.try_into().ok()?);
        let bytes = match *head.get(8)? {
            PLAIN => body.to_vec(),
            // Never more than a part, whatever size the data claims.
            ZSTD => zstd::bulk::decompress(body, PART).ok()?,
            _ => return None,
        };
        Some((whole, bytes))
    }

    fn digest(&self, name: &str, head: &[u8], body: &[u8]) -> Digest {
        let mut parts = self
            .key
            .as_ref()
            .map_or_else(KeyBuilder::default, SecretKey::builder);
        parts.add(name).add(head).add(body).digest()
    }
}
