//! How much may come out of what is compressed in a file: a small file could grow without end.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::sys::signals::Signals;

/// How much may come out of each file, if nothing else is said.
pub(crate) const MAX_UNPACKED: u64 = 64 << 30;
/// How much may come out for each byte of the file. Deflate, which most have, cannot grow much
/// further.
const GROWTH: u64 = 1000;
/// A file that is smaller than this counts as one of this size: a few bytes of zeros do no harm.
const LEAST_SIZE: u64 = 64 << 10;

/// How much may come out of a file of `size` bytes because of its size.
fn growth(size: u64) -> u64 {
    size.max(LEAST_SIZE).saturating_mul(GROWTH)
}

/// How much may come out of a file of `size` bytes, if nothing else is said.
#[cfg(feature = "capi")]
pub(crate) fn most_unpacked(size: u64) -> u64 {
    growth(size).min(MAX_UNPACKED)
}

/// What is left of that for one file; clones share it.
#[derive(Debug, Clone)]
pub(super) struct Allowance {
    left: Arc<AtomicU64>,
    limit: Limit,
    signals: Arc<Signals>,
}

/// Which of the two limits is the narrower one.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Option(u64),
    Growth,
}

impl Allowance {
    /// For a file of `size` bytes, of which no more than `max_unpacked` may come out.
    pub(super) fn new(size: u64, max_unpacked: u64, signals: &Arc<Signals>) -> Self {
        let growth = growth(size);
        let limit = if max_unpacked <= growth {
            Limit::Option(max_unpacked)
        } else {
            Limit::Growth
        };
        Allowance {
            left: Arc::new(AtomicU64::new(growth.min(max_unpacked))),
            limit,
            signals: Arc::clone(signals),
        }
    }

    /// Takes `size` bytes of it.
    ///
    /// # Errors
    /// There are not so many left; none is taken then. The text says which limit is meant.
    pub(super) fn take(&self, size: u64) -> Result<(), String> {
        let taken = self
            .left
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
                left.checked_sub(size)
            });
        taken.map(drop).map_err(|_| match self.limit {
            Limit::Option(most) => {
                format!("not unpacked: the file would unpack to more than the {most} bytes of --max-unpacked; raise that limit")
            }
            Limit::Growth => {
                format!("not unpacked: the file would unpack to more than {GROWTH} times its size")
            }
        })
    }

    /// A reader of `inner` that takes what it reads, and stops after a signal.
    pub(super) fn metered<R: Read>(&self, inner: R) -> Metered<R> {
        Metered {
            inner,
            allowance: self.clone(),
        }
    }
}

/// Reads what is unpacked as far as that is allowed. The error behind that is [`TooMuch`].
#[derive(Debug)]
pub(super) struct Metered<R> {
    inner: R,
    allowance: Allowance,
}

/// The error that more would come out than is allowed.
#[derive(Debug)]
pub(super) struct TooMuch(String);

impl std::fmt::Display for TooMuch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for TooMuch {}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        self.allowance.signals.check().map_err(io::Error::other)?;
        let len = self.inner.read(buffer)?;
        self.allowance
            .take(len as u64)
            .map_err(|told| io::Error::other(TooMuch(told)))?;
        Ok(len)
    }
}
