//! A remote cache for the link: records and blobs are read while the link waits, and written in the
//! background.

use std::fs::File;
use std::io::{self, Write};
use std::path::Path;
use std::sync::Arc;

use anyhow::Result;

use super::engine::Engine;
use super::frame::{self, Frame, LONGEST, PART};
use super::service::Service;
use super::upload::{Job, Uploads};
use super::{RemoteSettings, WarnFn};
use crate::store::digest::Namer;
use crate::store::{BlobName, Digest, Key, Naming};

/// The second level of a cache.
pub(crate) struct Remote {
    engine: Arc<Engine>,
    service: Arc<Service>,
    frame: Arc<Frame>,
    uploads: Uploads,
}

impl Remote {
    /// Creates a remote cache with these settings. It does not connect, and starts no thread,
    /// before the first request. Warnings go to `warn`, one for each kind of failure.
    ///
    /// # Errors
    /// The settings are invalid.
    pub(crate) fn open(settings: &RemoteSettings, warn: WarnFn) -> Result<Remote> {
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
    pub(crate) fn record(&self, key: Key) -> Option<Vec<u8>> {
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
            if !frame::is_plausible(written, arrived) {
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
    pub(crate) fn troubled(&self) -> bool {
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
