//! When a device link may run. It needs a slot: one per core by default, and never more than make's jobserver allows; `make -j1` means
//! one. And it needs memory: what it will take at most must be free besides what those that run will still take. All offld processes
//! of a user count together (`table`). A link beside which nothing runs always may.

mod demand;
mod jobserver;
pub(crate) mod memory;
mod others;
mod table;

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::args::request::{Jobs, MemoryLimit};
use crate::sys::session::{self, Session};
use crate::sys::shell::Shell;
use crate::sys::threads;
pub(crate) use demand::{Demand, Refusal};
use jobserver::{Jobserver, Token};
use memory::Machine;
use others::Processes;
use table::{Share, Table};

/// How often to look whether other processes have made room: at first, and after a long wait. In between it is a part of the wait.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
const PAUSES_OF_A_WAIT: u32 = 16;
/// Kept free besides what device links need: for offld itself, `offld-llvm` and the host linker.
const SPARE: u64 = 16 << 20;

/// Hands out permission to run device links.
#[derive(Debug)]
pub(crate) struct JobSlots {
    /// How many device links may run at once; none: one for each processor, which are counted when that is asked for first. Counting
    /// them means reading files of `/proc` and `/sys`, and most links have no device code.
    limit: Option<usize>,
    jobserver: Option<Jobserver>,
    memory: MemoryLimit,
    /// None where nothing is run.
    machine: Option<Machine>,
    table: OnceLock<Option<Table>>,
    state: Mutex<State>,
    ended: Condvar,
    /// Where it is said that there is no table.
    notes: Option<Arc<Shell>>,
}

/// What device links of this link run and use.
#[derive(Debug, Default)]
struct State {
    own: Share,
    /// How many may still come.
    expected: usize,
    /// How many wait until they can run alone.
    wait_alone: usize,
    /// When a link that needs so much was last refused. Until something ends here or some time has passed, the others that need as
    /// much would be, too.
    refused: Option<(Instant, u64, Refusal)>,
    /// Since when other processes have kept the table to themselves, if they do.
    table_busy_since: Option<Instant>,
    /// Since when something waits that could not begin.
    waits_since: Option<Instant>,
}

impl State {
    /// Whether a table that others keep to themselves is still waited for: where many links compete for it, none may begin unseen. One
    /// that is kept for longer than that is of no use, and a stopped process may keep it for ever.
    fn waits_for_table(&mut self) -> bool {
        const LONGEST: Duration = Duration::from_secs(5);
        self.table_busy_since.get_or_insert_with(Instant::now).elapsed() < LONGEST
    }

    /// How long to wait until other processes are looked at again.
    fn pause(&self) -> Duration {
        let waited = self.waits_since.map_or(Duration::ZERO, |since| since.elapsed());
        (waited / PAUSES_OF_A_WAIT).clamp(PAUSE, LONGEST_PAUSE)
    }

    /// What other processes are to see.
    fn shown(&self) -> Share {
        Share { alone: self.own.alone || self.wait_alone > 0, ..self.own }
    }
}

/// Permission to run one device link with [`JobSlot::granted`] threads; dropping it gives it back.
#[derive(Debug)]
pub(crate) struct JobSlot<'s> {
    slots: &'s JobSlots,
    /// By which a jobserver counts its threads.
    _tokens: Vec<Token<'s>>,
    share: Share,
}

/// Whether make counts what this process runs, with its jobserver.
pub(crate) fn are_counted(jobs: Jobs) -> bool {
    let flags = || Session::env(session::MAKEFLAGS).is_some_and(|flags| flags.to_string_lossy().contains("--jobserver"));
    !matches!(jobs, Jobs::N(_)) && flags()
}

impl JobSlots {
    /// As `--wrapper-jobs=` (`jobs`), `--wrapper-memory=` (`memory`) and `MAKEFLAGS` say. `verbose`: it is said where other processes
    /// cannot be seen.
    pub(crate) fn new(jobs: Jobs, memory: MemoryLimit, verbose: bool, session: &Session) -> Self {
        let (limit, jobserver) = limit(jobs, session);
        let root = Session::env(session::OFFLD_MEMORY_ROOT).map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let machine = (!session.runner.in_order()).then(|| Machine::below(&root));
        let notes = verbose.then(|| Arc::clone(&session.shell));
        JobSlots { limit, jobserver, memory, machine, notes, ..Self::without_limits() }
    }

    /// So many at once, of what takes nothing of this machine.
    pub(crate) fn counting(limit: usize) -> Self {
        JobSlots { limit: Some(limit), ..Self::without_limits() }
    }

    fn without_limits() -> Self {
        JobSlots {
            limit: Some(1),
            jobserver: None,
            memory: MemoryLimit::Free,
            machine: None,
            table: OnceLock::new(),
            state: Mutex::default(),
            ended: Condvar::new(),
            notes: None,
        }
    }

    /// How many device links may run at once.
    pub(crate) fn limit(&self) -> usize {
        self.limit.unwrap_or_else(threads::count)
    }

    /// Says that `count` device links may come: none of them is kept waiting by more threads for another.
    pub(crate) fn expect(&self, count: usize) {
        self.state().expected += count;
    }

    /// Says that one of the expected ones needs no slot.
    pub(crate) fn expect_one_less(&self) {
        let mut state = self.state();
        state.expected = state.expected.saturating_sub(1);
    }

    /// A slot for one of the expected device links, if it may run now. Of the threads that it would like it gets one, and of the
    /// others those that nobody else could use: more threads never delay the start of another link.
    pub(crate) fn try_take(&self, demand: &Demand) -> std::result::Result<JobSlot<'_>, Refusal> {
        let mut state = self.state();
        if let Some((when, memory, refusal)) = state.refused
            && (demand.needs() >= memory || !matches!(refusal, Refusal::Memory(_)))
            && when.elapsed() < state.pause() / 2
        {
            return Err(refusal);
        }
        let admitted = self.admit(demand, &mut state);
        match admitted {
            Err(refusal) => {
                let now = Instant::now();
                state.refused = Some((now, demand.needs(), refusal));
                state.waits_since.get_or_insert(now);
            }
            Ok(_) => state.waits_since = None,
        }
        admitted
    }

    /// Waits for a slot for a device link that is not among the expected ones. An error if a signal arrives first.
    pub(crate) fn take(&self, demand: &Demand, session: &Session) -> Result<JobSlot<'_>> {
        self.state().wait_alone += usize::from(demand.alone);
        let taken = loop {
            if let Err(stopped) = session.signals.check() {
                break Err(stopped);
            }
            self.state().expected += 1;
            match self.try_take(demand) {
                Ok(slot) => break Ok(slot),
                Err(_) => self.expect_one_less(),
            }
            self.pause();
        };
        self.state().wait_alone -= usize::from(demand.alone);
        taken
    }

    /// How much memory is free, in bytes.
    pub(crate) fn free_memory(&self) -> Option<u64> {
        self.machine.as_ref()?.free()
    }

    /// Waits until a device link has ended here, or for a moment in which one may have ended elsewhere.
    pub(crate) fn pause(&self) {
        let state = self.state();
        let pause = state.pause();
        drop(self.ended.wait_timeout(state, pause));
    }

    fn admit(&self, demand: &Demand, state: &mut State) -> std::result::Result<JobSlot<'_>, Refusal> {
        if state.own.alone || (state.wait_alone > 0 && !demand.alone) || (demand.alone && state.own.jobs > 0) {
            return Err(Refusal::Alone);
        }
        if state.own.jobs >= self.limit() {
            return Err(Refusal::Slots);
        }
        // Given back at once where memory is lacking: that is never waited for with another's token in the hand.
        let mut tokens = Vec::new();
        if let Some(jobserver) = &self.jobserver {
            tokens.push(jobserver.token().ok_or(Refusal::Slots)?);
        }
        let Some(machine) = &self.machine else { return Ok(self.slot(demand, tokens, 0, state)) };
        let table = self.table.get_or_init(|| self.open_table()).as_ref();
        // The system is asked while the table is not locked. What the others have begun meanwhile counts as if it had no memory yet.
        let mut processes = Processes::default();
        if let Some(others) = self.read(table, Table::others, state)? {
            processes = Processes::at_rest(&others, machine);
            self.has_turn(demand, state, &processes.sum(&others)).or_else(|refusal| refused(table, demand, state, refusal))?;
            processes.look_at_memory(&others, machine);
        }
        let measured = self.measure(state, machine);
        let locked = self.read(table, Table::lock, state)?;
        let others = locked.as_ref().map(|locked| processes.sum(&locked.others())).unwrap_or_default();
        let left = self.has_turn(demand, state, &others).and_then(|()| self.fits(demand, state, &others, &measured));
        let left = match left {
            Ok(left) => left,
            Err(refusal) => {
                drop(locked);
                return refused(table, demand, state, refusal);
            }
        };
        let extra = self.more_threads(demand, state, others.threads).min(demand.threads_within(left).saturating_sub(1));
        let extra = match &self.jobserver {
            None => extra,
            Some(jobserver) => {
                tokens.extend((0..extra).map_while(|_| jobserver.token()));
                tokens.len() - 1
            }
        };
        let slot = self.slot(demand, tokens, extra, state);
        if let Some(locked) = locked {
            let _ = locked.set_own(&state.shown());
        }
        Ok(slot)
    }

    /// What `read` finds in the table; none where there is no table, or it cannot be read.
    fn read<'t, T>(
        &self,
        table: Option<&'t Table>,
        read: fn(&'t Table) -> io::Result<T>,
        state: &mut State,
    ) -> std::result::Result<Option<T>, Refusal> {
        let found = match table.map(read) {
            Some(Err(error)) if error.kind() == ErrorKind::WouldBlock && state.waits_for_table() => return Err(Refusal::Slots),
            found => found.and_then(Result::ok),
        };
        state.table_busy_since = None;
        Ok(found)
    }

    /// How many threads more than one it can have: of the limit those that are not taken here, and of the processors those that nobody
    /// has taken.
    fn more_threads(&self, demand: &Demand, state: &State, of_others: usize) -> usize {
        let taken = state.own.threads + state.expected;
        let free = self.limit().saturating_sub(taken).min(self.limit().max(threads::count()).saturating_sub(taken + of_others));
        free.min(demand.threads.saturating_sub(1))
    }

    fn slot<'s>(&'s self, demand: &Demand, tokens: Vec<Token<'s>>, extra: usize, state: &mut State) -> JobSlot<'s> {
        let memory = demand.memory_with(1 + extra);
        let share = Share { jobs: 1, threads: 1 + extra, memory, to_come: 0, alone: demand.alone };
        state.own.add(share);
        state.expected = state.expected.saturating_sub(1);
        JobSlot { slots: self, _tokens: tokens, share }
    }

    /// Whether what runs lets it begin, whatever memory there is.
    fn has_turn(&self, demand: &Demand, state: &State, others: &Share) -> std::result::Result<(), Refusal> {
        if is_first(demand, state, others) {
            return Ok(());
        }
        if others.alone || demand.alone {
            return Err(Refusal::Alone);
        }
        let is_full = self.jobserver.is_none() && state.own.jobs + others.jobs >= self.limit().max(threads::count());
        if is_full { Err(Refusal::Slots) } else { Ok(()) }
    }

    /// How much memory is free, and how much is in use here. The latter is looked at first: what is taken between the two then counts
    /// twice, and not as free and as taken.
    fn measure(&self, state: &State, machine: &Machine) -> Measured {
        let is_asked = self.memory != MemoryLimit::Off;
        let in_use = if is_asked && state.own.jobs > 0 { machine.of_children(std::process::id()).unwrap_or(0) } else { 0 };
        Measured { in_use, free: machine.free().filter(|_| is_asked) }
    }

    /// How much memory is left beyond what `demand` needs.
    fn fits(&self, demand: &Demand, state: &State, others: &Share, measured: &Measured) -> std::result::Result<u64, Refusal> {
        let reserved = state.own.memory.saturating_add(others.memory);
        let of_limit = match self.memory {
            MemoryLimit::Bytes(limit) => limit.saturating_sub(reserved),
            _ => u64::MAX,
        };
        // Part of what is reserved is in use already.
        let to_come = state.own.memory.saturating_sub(measured.in_use).saturating_add(others.to_come);
        let of_free = measured.free.map_or(u64::MAX, |free| free.saturating_sub(SPARE).saturating_sub(to_come));
        let free = of_limit.min(of_free);
        let fits = demand.needs() <= free || is_first(demand, state, others);
        if fits { Ok(free.saturating_sub(demand.needs())) } else { Err(Refusal::Memory(free)) }
    }

    fn open_table(&self) -> Option<Table> {
        if Session::env(session::OFFLD_WITHIN).is_some() {
            return None;
        }
        let table = Table::open();
        if let (Err(why), Some(notes)) = (&table, &self.notes) {
            notes.note(&format!("device links of other processes are not counted: {why}"));
        }
        table.ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What the system says of memory when a link is to begin.
#[derive(Debug)]
struct Measured {
    /// What the links that run here have, in bytes.
    in_use: u64,
    /// What may still be used, in bytes; none where it is not known or does not count.
    free: Option<u64>,
}

/// Whether it would be alone, and may have all memory.
fn is_first(demand: &Demand, state: &State, others: &Share) -> bool {
    state.own.jobs + others.jobs == 0 && demand.reserved == 0 && (!others.alone || demand.alone)
}

/// One that waits to be alone lets others begin nothing more.
fn refused<T>(table: Option<&Table>, demand: &Demand, state: &State, refusal: Refusal) -> std::result::Result<T, Refusal> {
    if let Some(Ok(locked)) = table.filter(|_| demand.alone).map(Table::lock) {
        let _ = locked.set_own(&state.shown());
    }
    Err(refusal)
}

/// How many device links may run at once (none: one for each processor), and the jobserver that counts them, if one does.
fn limit(jobs: Jobs, session: &Session) -> (Option<usize>, Option<Jobserver>) {
    let makeflags = Session::env(session::MAKEFLAGS);
    let one_at_a_time =
        makeflags.as_ref().is_some_and(|flags| flags.to_string_lossy().split_whitespace().any(|flag| flag == "-j1"));
    let under_make = std::env::var_os(session::MAKEFLAGS).is_some();
    let by_jobserver = || Jobserver::from_environment().map(|jobserver| (None, Some(jobserver)));
    match jobs {
        Jobs::N(count) => (Some(count), None),
        _ if one_at_a_time => (Some(1), None),
        Jobs::Auto => by_jobserver().unwrap_or_default(),
        Jobs::Jobserver => by_jobserver().unwrap_or_else(|| {
            if under_make {
                // Either make runs one job at a time, or the recipe lacks the `+` that passes the jobserver on to us.
                return (Some(1), None);
            }
            session.shell.warn("--wrapper-jobs=jobserver: there is no jobserver in the environment; all cores are used");
            (None, None)
        }),
    }
}

impl JobSlot<'_> {
    /// How many threads the job may use, at least one.
    pub(crate) fn granted(&self) -> usize {
        self.share.threads
    }
}

impl Drop for JobSlot<'_> {
    fn drop(&mut self) {
        let mut state = self.slots.state();
        state.own.take_away(self.share);
        state.refused = None;
        if let Some(table) = self.slots.table.get().and_then(Option::as_ref)
            && let Ok(locked) = table.lock()
        {
            // Where this cannot be written, others see a little more running than does, until this process ends.
            let _ = locked.set_own(&state.shown());
        }
        drop(state);
        self.slots.ended.notify_all();
    }
}

#[cfg(test)]
mod tests;
