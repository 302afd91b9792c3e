//! What a remote is sent, by a thread of its own while the link goes on.

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::sync::mpsc::{self, Receiver, Sender};
use std::sync::{Arc, Mutex, PoisonError};

use super::engine::Engine;
use super::frame;
use super::service::Service;
use super::shared::part_name;
use crate::store::Digest;

/// Something to send.
pub enum Job {
    /// An object as it is: its name and its bytes.
    Object(String, Vec<u8>),
    /// A blob: its name, and where it is.
    Blob(Digest, File),
}

/// What waits to be sent, in order.
#[derive(Default)]
pub struct Uploads(Mutex<Option<(Sender<Job>, Receiver<()>)>>);

impl Uploads {
    /// Puts `job` after what waits already. The first starts the thread.
    pub fn add(&self, job: Job, engine: &Arc<Engine>, service: &Arc<Service>) {
        let mut queue = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let (jobs, _) = queue.get_or_insert_with(|| start(Arc::clone(engine), Arc::clone(service)));
        // Without a thread nothing is sent.
        let _ = jobs.send(job);
    }

    /// Waits until all is sent, as long as `engine` lets a link wait.
    pub fn finish(&self, engine: &Engine, stop: &dyn Fn() -> bool) {
        let queue = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((jobs, done)) = queue {
            drop(jobs);
            engine.wait_for_end(&done, stop);
        }
    }
}

fn start(engine: Arc<Engine>, service: Arc<Service>) -> (Sender<Job>, Receiver<()>) {
    let (jobs, waiting) = mpsc::channel::<Job>();
    let (done, end) = mpsc::channel::<()>();
    let run = move || {
        // Gone with the thread, which is what the other end waits for.
        let _done = done;
        for job in waiting {
            match job {
                Job::Object(name, object) => {
                    send(&engine, &service, name, object);
                }
                Job::Blob(name, file) => {
                    // A file that cannot be read is not sent; its head is not there, and so nobody sees the rest.
                    let _ = send_blob(&engine, &service, name, &file);
                }
            }
        }
    };
    let _ = std::thread::Builder::new().name("offld-upload".to_owned()).spawn(run);
    (jobs, end)
}

/// The head goes last: where there is one, the rest has been there.
fn send_blob(engine: &Arc<Engine>, service: &Arc<Service>, blob: Digest, file: &File) -> io::Result<()> {
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
        let name = part_name(blob, part);
        let object = frame::encode(&name, whole, bytes);
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
