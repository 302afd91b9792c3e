//! Sends records and blobs to a remote cache, on a thread of its own, while the link continues.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex};

use super::engine::Engine;
use super::frame::Frame;
use super::service::Service;
use crate::store::Digest;
use crate::sys::threads::lock;

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
