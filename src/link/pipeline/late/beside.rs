//! Two parts of a link at the same time, of which one that fails ends the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;

use anyhow::{Error, Result};

use crate::sys::session::Session;
use crate::sys::threads;

/// What `one` and `other` give, which run at the same time, or one after the other where there is no thread for that.
///
/// # Errors
/// That of the part which failed first. Everything else that runs for this link is ended then.
pub(in crate::link::pipeline) fn beside<A: Send, B>(
    session: &Session,
    one: impl FnOnce() -> Result<A> + Send,
    other: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    let failed = AtomicBool::new(false);
    let one = std::sync::Mutex::new(Some(one));
    let run_one = || {
        let work = one.lock().unwrap_or_else(std::sync::PoisonError::into_inner).take();
        work.map(|work| guarded(work, &failed, session))
    };
    let (first, second) = std::thread::scope(|scope| {
        let thread = if threads::is_short() { None } else { Builder::new().spawn_scoped(scope, run_one).ok() };
        let second = guarded(other, &failed, session);
        let first = match thread.map(std::thread::ScopedJoinHandle::join) {
            Some(Ok(first)) => first,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => None,
        };
        (first, second)
    });
    // Where it could not be started, it has not been taken.
    let first = first.or_else(|| if second.is_ok() { run_one() } else { None });
    match (first, second) {
        (Some(Ok(one)), Ok(other)) => Ok((one, other)),
        (Some(Err(failure)), Ok(_)) | (Some(Ok(_)) | None, Err(failure)) => Err(failure.error),
        (Some(Err(one)), Err(other)) => Err(if one.is_first { one.error } else { other.error }),
        (None, Ok(_)) => unreachable!("what was not taken has been run"),
    }
}

struct Failure {
    error: Error,
    /// Whether it was the first, and not a consequence of the other.
    is_first: bool,
}

fn guarded<R>(work: impl FnOnce() -> Result<R>, failed: &AtomicBool, session: &Session) -> Result<R, Failure> {
    work().map_err(|error| {
        let is_first = !failed.swap(true, Ordering::SeqCst);
        if is_first {
            session.signals.stop();
        }
        Failure { error, is_first }
    })
}
