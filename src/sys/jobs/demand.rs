//! What a device link needs to run, and why it may have to wait.

/// What a device link needs to run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Demand {
    /// How many threads it would like to use.
    pub(crate) threads: usize,
    /// How much memory it will take, in bytes.
    pub(crate) memory: u64,
    /// For how many threads that is enough.
    pub(crate) enough_for: usize,
    /// What each thread beyond these takes, in bytes.
    pub(crate) per_thread: u64,
    /// How much must be left besides, for links that are to begin before it.
    pub(crate) reserved: u64,
    /// Nothing may run beside it.
    pub(crate) alone: bool,
    /// No launcher may run it.
    pub(crate) here: bool,
}

impl Demand {
    /// One thread, with so many bytes of memory.
    pub(crate) fn one_thread(memory: u64) -> Demand {
        Demand { threads: 1, memory, enough_for: 1, per_thread: 0, reserved: 0, alone: false, here: false }
    }

    /// How much memory it takes with so many threads.
    pub(crate) fn memory_with(&self, threads: usize) -> u64 {
        let more = u64::try_from(threads.saturating_sub(self.enough_for)).unwrap_or(u64::MAX);
        self.memory.saturating_add(more.saturating_mul(self.per_thread))
    }

    /// How many threads it can have where so many bytes are left beyond what it needs.
    pub(super) fn threads_within(&self, left: u64) -> usize {
        let more = left.checked_div(self.per_thread).map_or(usize::MAX, |more| usize::try_from(more).unwrap_or(usize::MAX));
        self.enough_for.saturating_add(more)
    }

    /// How much memory must be free for it to begin.
    pub(super) fn needs(&self) -> u64 {
        self.memory.saturating_add(self.reserved)
    }
}

/// Why a device link may not run now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    /// All slots are taken.
    Slots,
    /// Not enough memory is free: so many bytes are, for it.
    Memory(u64),
    /// It has to run alone, or another does.
    Alone,
}
