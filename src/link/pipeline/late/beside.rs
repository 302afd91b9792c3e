//! Runs two parts of a link in parallel; the failure of one ends the other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;

use anyhow::{Error, Result};

use crate::sys::session::Session;
use crate::sys::threads;

/// Returns the results of `one` and `other`. They run in parallel, or one after the other if no
/// thread can be started.
///
/// # Errors
/// The error of the part that failed first. Its failure ends every process of this link.
pub(in crate::link::pipeline) fn beside<A: Send, B>(
    session: &Session,
    one: impl FnOnce() -> Result<A> + Send,
    other: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    let failed = AtomicBool::new(false);
    let one = std::sync::Mutex::new(Some(one));
    let run_one = || {
        let work = one
            .lock()
            .unwrap_or_else(std::sync::PoisonError::into_inner)
            .take();
        work.map(|work| guarded(work, &failed, session))
    };
    let (first, second) = std::thread::scope(|scope| {
        let thread = if threads::is_short() {
            None
        } else {
            Builder::new().spawn_scoped(scope, run_one).ok()
        };
        let second = guarded(other, &failed, session);
        let first = match thread.map(std::thread::ScopedJoinHandle::join) {
            Some(Ok(first)) => first,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => None,
        };
        (first, second)
    });
    // If the thread could not be started, `one` has not been taken.
    let first = first.or_else(|| if second.is_ok() { run_one() } else { None });
    match (first, second) {
        (Some(Ok(one)), Ok(other)) => Ok((one, other)),
        (Some(Err(failure)), Ok(_)) | (Some(Ok(_)) | None, Err(failure)) => Err(failure.error),
        (Some(Err(one)), Err(other)) => Err(if one.is_first { one.error } else { other.error }),
        (None, Ok(_)) => unreachable!("the first part runs even without a thread"),
    }
}

struct Failure {
    error: Error,
    /// Whether this part failed first, and not as a consequence of the other's failure.
    is_first: bool,
}

fn guarded<R>(
    work: impl FnOnce() -> Result<R>,
    failed: &AtomicBool,
    session: &Session,
) -> Result<R, Failure> {
    work().map_err(|error| {
        let is_first = !failed.swap(true, Ordering::SeqCst);
        if is_first {
            session.signals.stop();
        }
        Failure { error, is_first }
    })
}
