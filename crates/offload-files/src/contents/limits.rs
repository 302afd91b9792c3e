//! Limits of decompression: a small file must not fill the memory or the disk.

use std::io::{self, Read};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use offld_system::signals::Signals;

/// The default limit for each file, in bytes.
pub(crate) const MAX_UNPACKED: u64 = 64 << 30;
/// Decompressed bytes that each byte of the file allows. Deflate, the most common method, cannot
/// grow much further.
const GROWTH: u64 = 1000;
/// Smaller files count as files of this size, because a few bytes of zeros do no harm.
const LEAST_SIZE: u64 = 64 << 10;

/// The limit from the size of a file of `size` bytes.
fn growth(size: u64) -> u64 {
    size.max(LEAST_SIZE).saturating_mul(GROWTH)
}

/// The default limit for a file of `size` bytes.
pub fn most_unpacked(size: u64) -> u64 {
    growth(size).min(MAX_UNPACKED)
}

/// The remaining bytes of the limit of one file. Clones share them.
#[derive(Debug, Clone)]
pub(super) struct Allowance {
    left: Arc<AtomicU64>,
    limit: Limit,
    signals: Arc<Signals>,
}

/// The lower one of the two limits.
#[derive(Debug, Clone, Copy)]
enum Limit {
    Option(u64),
    Growth,
}

impl Allowance {
    /// Creates the allowance of a file of `size` bytes, with at most `max_unpacked` decompressed
    /// bytes.
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

    /// Takes `size` bytes from the allowance.
    ///
    /// # Errors
    /// Fewer bytes are left; none is taken then. The text names the limit.
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

    /// Returns a reader of `inner` that takes the bytes it reads from the allowance, and stops
    /// after a signal.
    pub(super) fn metered<R: Read>(&self, inner: R) -> Metered<R> {
        Metered {
            inner,
            allowance: self.clone(),
        }
    }
}

/// Reader of decompressed data within the allowance. Its error at the limit is [`TooMuch`].
#[derive(Debug)]
pub(super) struct Metered<R> {
    inner: R,
    allowance: Allowance,
}

/// The error of exceeding the limit.
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
            .map_err(|limit| io::Error::other(TooMuch(limit)))?;
        Ok(len)
    }
}
