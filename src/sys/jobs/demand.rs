//! Resources that a device link needs, and reasons to make it wait.

/// Resources that a device link needs.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    /// Number of threads that the link would like to use.
    pub(crate) threads: usize,
    /// Peak memory of the link with `enough_for` threads, in bytes.
    pub(crate) memory: u64,
    /// Number of threads that `memory` is enough for.
    pub(crate) enough_for: usize,
    /// Memory of each further thread, in bytes.
    pub(crate) per_thread: u64,
    /// Memory that must remain free for links that are to start before this one, in bytes.
    pub(crate) reserved: u64,
    pub(crate) alone: bool,
    /// Whether the link must run on this machine, without a launcher.
    pub(crate) here: bool,
}

impl Demand {
    /// A link with one thread and `memory` bytes.
    pub(crate) fn one_thread(memory: u64) -> Demand {
        Demand {
            threads: 1,
            memory,
            enough_for: 1,
            per_thread: 0,
            reserved: 0,
            alone: false,
            here: false,
        }
    }

    /// Peak memory of the link with `threads` threads, in bytes.
    pub(crate) fn memory_with(&self, threads: usize) -> u64 {
        let more = u64::try_from(threads.saturating_sub(self.enough_for)).unwrap_or(u64::MAX);
        self.memory
            .saturating_add(more.saturating_mul(self.per_thread))
    }

    /// Number of threads that the link can use if `left` bytes remain beyond its needs.
    pub(super) fn threads_within(&self, left: u64) -> usize {
        let more = left
            .checked_div(self.per_thread)
            .map_or(usize::MAX, |more| {
                usize::try_from(more).unwrap_or(usize::MAX)
            });
        self.enough_for.saturating_add(more)
    }

    /// Memory that must be free for the link to start, in bytes.
    pub(super) fn needs(&self) -> u64 {
        self.memory.saturating_add(self.reserved)
    }
}

/// Reason why a device link may not run now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    Slots,
    /// Not enough memory is free. The value is the memory available to the link, in bytes.
    Memory(u64),
    /// The link must run alone, or another link does.
    Alone,
}
