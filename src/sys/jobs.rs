//! How many device links run at once: one per core by default, and never more than make's jobserver allows. `make -j1` means one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use jobserver::Client;

use crate::args::request::Jobs;
use crate::sys::session::{self, Session};

/// The limit on device links that run at once.
pub(crate) struct JobSlots {
    /// The number of threads that run device links; 0 for one per core.
    pub(crate) threads: usize,
    shared: Option<Shared>,
}

/// Make's jobserver, and the one token that every process has from the start.
struct Shared {
    client: Client,
    own_token_taken: AtomicBool,
}

/// Permission to run one device link; dropping it gives it back.
pub(crate) enum JobSlot<'s> {
    /// There is no jobserver.
    Free,
    /// The process's own token.
    Own(&'s AtomicBool),
    /// A token of the jobserver, given back by its own `Drop`.
    Granted { _token: jobserver::Acquired },
}

/// Whether make counts what this process runs, with its jobserver.
pub(crate) fn are_counted(jobs: Jobs) -> bool {
    let flags = || Session::env(session::MAKEFLAGS).is_some_and(|flags| flags.to_string_lossy().contains("--jobserver"));
    !matches!(jobs, Jobs::N(_)) && flags()
}

impl JobSlots {
    /// The limit that `--wrapper-jobs=` (`jobs`) and `MAKEFLAGS` set.
    pub(crate) fn new(jobs: Jobs, session: &Session) -> Self {
        let makeflags = Session::env(session::MAKEFLAGS);
        let one_at_a_time =
            makeflags.as_ref().is_some_and(|flags| flags.to_string_lossy().split_whitespace().any(|flag| flag == "-j1"));
        let under_make = std::env::var_os(session::MAKEFLAGS).is_some();
        let only = |threads| JobSlots { threads, shared: None };
        match jobs {
            Jobs::N(count) => only(count),
            _ if one_at_a_time => only(1),
            Jobs::Auto => from_environment().unwrap_or_else(|| only(0)),
            Jobs::Jobserver => from_environment().unwrap_or_else(|| {
                if under_make {
                    // Either make runs one job at a time, or the recipe lacks the `+` that passes the jobserver on to us.
                    return only(1);
                }
                session.shell.warn("--wrapper-jobs=jobserver: there is no jobserver in the environment; all cores are used");
                only(0)
            }),
        }
    }

    /// Waits for a slot; an error if a signal arrives first.
    pub(crate) fn take(&self, session: &Session) -> Result<JobSlot<'_>> {
        const PAUSE: Duration = Duration::from_millis(5);
        let Some(shared) = &self.shared else { return Ok(JobSlot::Free) };
        loop {
            session.signals.check()?;
            // Either our own token or one of the jobserver may become free first, so both are polled.
            if !shared.own_token_taken.swap(true, Ordering::SeqCst) {
                return Ok(JobSlot::Own(&shared.own_token_taken));
            }
            match shared.client.try_acquire() {
                Ok(Some(token)) => return Ok(JobSlot::Granted { _token: token }),
                Ok(None) | Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

impl Drop for JobSlot<'_> {
    fn drop(&mut self) {
        if let JobSlot::Own(taken) = self {
            taken.store(false, Ordering::SeqCst);
        }
    }
}

#[expect(
    unsafe_code,
    reason = "a jobserver is inherited as file descriptors; they are checked to be pipes, and nothing here has opened any before"
)]
fn from_environment() -> Option<JobSlots> {
    // SAFETY: the descriptors come from MAKEFLAGS of the make that started us and are checked to be open pipes.
    let client = unsafe { Client::from_env_ext(true) }.client.ok()?;
    Some(JobSlots { threads: 0, shared: Some(Shared { client, own_token_taken: AtomicBool::new(false) }) })
}
