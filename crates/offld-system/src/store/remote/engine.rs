//! Prevents a remote cache from delaying a link. One thread does all waiting for the network, and
//! callers wait for that thread only for a limited time. After a failure, the remote cache is not
//! used for the rest of the process.

use std::future::Future;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{self, RecvTimeoutError};
use std::sync::{Mutex, OnceLock};
use std::time::{Duration, Instant};

use tokio::runtime::Handle;

use super::service::{Failure, Kind};
use super::{RemoteSettings, WarnFn};
use crate::environment::OFFLD_CACHE_KEY;
use crate::threads::{self, lock};

/// Extra time that a caller waits beyond the time limit of a request, because the thread itself may
/// be delayed.
const GRACE: Duration = Duration::from_millis(200);

/// The thread and its limits. The first request starts the thread.
pub(super) struct Engine {
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
pub(super) struct Waiting<'e>(&'e Engine);

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
    pub(super) fn new(settings: &RemoteSettings, warn: WarnFn) -> Engine {
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
    pub(super) fn reads(&self) -> bool {
        !self.off.load(Ordering::SeqCst)
    }

    /// Whether the remote cache is still written.
    pub(super) fn writes(&self) -> bool {
        self.reads() && !self.no_writes.load(Ordering::SeqCst)
    }

    /// Counts all time until the value is dropped as waiting: the link also waits while arrived
    /// data is decompressed and compared.
    pub(super) fn waiting(&self) -> Waiting<'_> {
        self.start_waiting();
        Waiting(self)
    }

    /// Runs a request that the link waits for. Returns `None` if the remote cache does not have the
    /// object, or is no longer used. After a failure, it is no longer used.
    pub(super) fn ask<T: Send + 'static>(
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
    pub(super) fn write(
        &self,
        work: impl Future<Output = Result<(), Failure>> + Send + 'static,
    ) -> bool {
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
    pub(super) fn wait_for_end(&self, done: &mpsc::Receiver<()>, stop: &dyn Fn() -> bool) {
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
    pub(super) fn wrong(&self, name: &str) {
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

    pub(super) fn troubled(&self) -> bool {
        self.troubled.load(Ordering::SeqCst)
    }

    fn run<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, Failure>> + Send + 'static,
        left: Duration,
    ) -> Result<T, Failure> {
        let thread = self.thread.get_or_init(start).as_ref();
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
fn start() -> Option<Handle> {
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
