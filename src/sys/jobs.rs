//! How many device links run at once: all cores unless told otherwise, and never more than a jobserver grants. `make -j1` means one.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::Result;
use jobserver::Client;

use crate::args::request::Jobs;
use crate::sys::session::{self, Session};

/// The right to run device links.
pub(crate) struct Slots {
    /// How many threads may try; 0 for as many as there are cores.
    pub(crate) threads: usize,
    shared: Option<Shared>,
}

/// A jobserver, and the one token that this process has from the start.
struct Shared {
    client: Client,
    own_token_taken: AtomicBool,
}

/// A slot that is given back when dropped.
pub(crate) enum Slot<'s> {
    /// Nobody counts.
    Free,
    /// The process's own token.
    Own(&'s AtomicBool),
    /// A token of the jobserver, given back by its own `Drop`.
    Granted { _token: jobserver::Acquired },
}

impl Slots {
    /// What the line and the environment grant.
    pub(crate) fn new(jobs: Jobs, session: &Session) -> Self {
        let makeflags = Session::env(session::MAKEFLAGS);
        let one_at_a_time =
            makeflags.as_ref().is_some_and(|flags| flags.to_string_lossy().split_whitespace().any(|flag| flag == "-j1"));
        let under_make = std::env::var_os(session::MAKEFLAGS).is_some();
        let only = |threads| Slots { threads, shared: None };
        match jobs {
            Jobs::N(count) => only(count),
            _ if one_at_a_time => only(1),
            Jobs::Auto => from_environment().unwrap_or_else(|| only(0)),
            Jobs::Jobserver => from_environment().unwrap_or_else(|| {
                if under_make {
                    // Make without a jobserver for us runs one job at a time, or has not been told (`+`) that we take tokens.
                    return only(1);
                }
                session.shell.warn("--wrapper-jobs=jobserver: there is no jobserver in the environment; all cores are used");
                only(0)
            }),
        }
    }

    /// Waits for a slot. Ends with an error when a signal comes first.
    pub(crate) fn take(&self, session: &Session) -> Result<Slot<'_>> {
        const PAUSE: Duration = Duration::from_millis(5);
        let Some(shared) = &self.shared else { return Ok(Slot::Free) };
        loop {
            session.signals.check()?;
            // The own token may come back while others are awaited, so neither is waited for alone.
            if !shared.own_token_taken.swap(true, Ordering::SeqCst) {
                return Ok(Slot::Own(&shared.own_token_taken));
            }
            match shared.client.try_acquire() {
                Ok(Some(token)) => return Ok(Slot::Granted { _token: token }),
                Ok(None) | Err(_) => std::thread::sleep(PAUSE),
            }
        }
    }
}

impl Drop for Slot<'_> {
    fn drop(&mut self) {
        if let Slot::Own(taken) = self {
            taken.store(false, Ordering::SeqCst);
        }
    }
}

#[expect(
    unsafe_code,
    reason = "a jobserver is inherited as file numbers; checked to be pipes, and nothing here has opened any before"
)]
fn from_environment() -> Option<Slots> {
    // SAFETY: the numbers come from MAKEFLAGS of the make that started us and are checked to be open pipes.
    let client = unsafe { Client::from_env_ext(true) }.client.ok()?;
    Some(Slots { threads: 0, shared: Some(Shared { client, own_token_taken: AtomicBool::new(false) }) })
}
