//! Decides when a device link may run. A link needs a slot: one per core by default, and never more
//! than make's jobserver allows; `make -j1` means one. A link also needs memory: its peak must be
//! free, in addition to the memory that running links will still allocate. All offld processes of a
//! user count together (`table`). A link may always run if no other link runs or has precedence.

pub(crate) mod memory;
mod table;
#[cfg(test)]
mod tests;

use std::io::{self, ErrorKind};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Result;
use jobserver::{Acquired, Client};
use memory::Machine;
use table::{Processes, Share, Table};

use crate::environment;
use crate::shell::Shell;
use crate::signals::Signals;
use crate::threads::{self, lock};

/// The number of device links that run at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Jobs {
    /// The number of cores.
    #[default]
    Auto,
    /// `--wrapper-jobs=N`.
    N(usize),
    /// `--wrapper-jobs=jobserver`: the number that make's jobserver, found through the environment,
    /// allows.
    Jobserver,
}

/// The memory limit for all device links together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum MemoryLimit {
    /// The free memory.
    #[default]
    Free,
    /// A number of bytes, and never more than the free memory.
    Bytes(u64),
    /// No limit.
    Off,
}

/// Time between two checks whether other processes have made room: `PAUSE` at first,
/// `LONGEST_PAUSE` after a long wait. In between, it is the time waited so far divided by
/// `PAUSES_OF_A_WAIT`.
const PAUSE: Duration = Duration::from_millis(10);
const LONGEST_PAUSE: Duration = Duration::from_millis(100);
const PAUSES_OF_A_WAIT: u32 = 16;
/// Memory that stays free in addition to that of device links, in bytes: for offld itself,
/// `offld-llvm` and the host linker.
const SPARE: u64 = 16 << 20;

/// Hands out permission to run device links.
#[derive(Debug)]
pub struct JobSlots {
    /// Number of device links that may run at once. `None` means one per CPU. The CPUs are counted
    /// only when the limit is needed, because that reads files of `/proc` and `/sys`, and most
    /// links have no device code.
    limit: Option<usize>,
    jobserver: Option<Jobserver>,
    memory: MemoryLimit,
    /// `None` if nothing is run.
    machine: Option<Machine>,
    table: OnceLock<Option<Table>>,
    state: Mutex<State>,
    ended: Condvar,
    /// Receives a note if the shared job table is unavailable.
    notes: Option<Arc<Shell>>,
}

/// Device links of this process, and their resources.
#[derive(Debug, Default)]
struct State {
    own: Share,
    /// Number of announced links that have no slot yet.
    expected: usize,
    /// Number of links that wait until they can run alone.
    wait_alone: usize,
    /// Time, memory (in bytes) and reason of the last refusal. Until a link ends here or some time
    /// has passed, links that need as much memory would be refused as well.
    refused: Option<(Instant, u64, Refusal)>,
    /// Since when other processes have kept the table locked, if they do.
    table_busy_since: Option<Instant>,
    /// Since when a refused link has been waiting, if one is.
    waits_since: Option<Instant>,
}

impl State {
    /// Whether to keep waiting for a table that other processes have locked. If many links compete
    /// for the table, none may start unregistered. A table that is locked for longer is useless: a
    /// stopped process may hold the lock forever.
    fn waits_for_table(&mut self) -> bool {
        const LONGEST: Duration = Duration::from_secs(5);
        self.table_busy_since
            .get_or_insert_with(Instant::now)
            .elapsed()
            < LONGEST
    }

    /// Time until the next check of other processes.
    fn pause(&self) -> Duration {
        let waited = self
            .waits_since
            .map_or(Duration::ZERO, |since| since.elapsed());
        (waited / PAUSES_OF_A_WAIT).clamp(PAUSE, LONGEST_PAUSE)
    }

    /// The share that other processes see.
    fn published(&self) -> Share {
        Share {
            alone: self.own.alone || self.wait_alone > 0,
            ..self.own
        }
    }
}

/// Permission to run one device link with [`JobSlot::granted`] threads. Dropping it gives it back.
#[derive(Debug)]
pub struct JobSlot<'s> {
    slots: &'s JobSlots,
    /// Jobserver tokens, one per thread, if there is a jobserver.
    _tokens: Vec<Token<'s>>,
    share: Share,
}

/// Whether make's jobserver counts the jobs of this process.
pub fn are_counted(jobs: Jobs) -> bool {
    let flags = || {
        environment::get(environment::MAKEFLAGS)
            .is_some_and(|flags| flags.to_string_lossy().contains("--jobserver"))
    };
    !matches!(jobs, Jobs::N(_)) && flags()
}

impl JobSlots {
    /// Creates the slots for `--wrapper-jobs=` (`jobs`), `--wrapper-memory=` (`memory`) and
    /// `MAKEFLAGS`. `dry`: commands are only printed. With `verbose`, prints a note if other
    /// processes cannot be seen.
    pub fn new(
        jobs: Jobs,
        memory: MemoryLimit,
        dry: bool,
        verbose: bool,
        shell: &Arc<Shell>,
    ) -> Self {
        let (limit, jobserver) = limit(jobs, shell);
        let root = environment::get(environment::OFFLD_MEMORY_ROOT)
            .map_or_else(|| PathBuf::from("/"), PathBuf::from);
        let machine = (!dry).then(|| Machine::below(&root));
        let notes = verbose.then(|| Arc::clone(shell));
        JobSlots {
            limit,
            jobserver,
            memory,
            machine,
            notes,
            ..Self::without_limits()
        }
    }

    /// Returns slots for tests: on a machine without memory figures, and without other processes.
    pub fn of_a_test(limit: usize, memory: MemoryLimit) -> JobSlots {
        let nowhere = Machine::below(std::path::Path::new("/nowhere"));
        JobSlots {
            limit: Some(limit),
            memory,
            machine: Some(nowhere),
            ..JobSlots::without_limits()
        }
        .without_table()
    }

    /// Ignores other processes.
    fn without_table(self) -> Self {
        self.table.get_or_init(|| None);
        self
    }

    /// Creates `limit` slots for jobs that use no resources of this machine.
    pub fn counting(limit: usize) -> Self {
        JobSlots {
            limit: Some(limit),
            ..Self::without_limits()
        }
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

    /// Number of device links that may run at once.
    pub fn limit(&self) -> usize {
        self.limit.unwrap_or_else(threads::count)
    }

    /// Announces `count` device links. Extra threads of other links do not delay them.
    pub fn expect(&self, count: usize) {
        self.state().expected += count;
    }

    /// Withdraws the announcement of one link, which needs no slot.
    pub fn expect_one_less(&self) {
        let mut state = self.state();
        state.expected = state.expected.saturating_sub(1);
    }

    /// Returns a slot for one of the announced device links, if it may run now. It gets extra
    /// threads only if no other link could use them: they never delay the start of another link.
    pub fn try_take(&self, demand: &Demand) -> std::result::Result<JobSlot<'_>, Refusal> {
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

    /// Waits for a slot for a device link that was not announced.
    ///
    /// # Errors
    /// A signal arrives, or another step fails.
    pub fn take(&self, demand: &Demand, signals: &Signals) -> Result<JobSlot<'_>> {
        self.state().wait_alone += usize::from(demand.alone);
        let taken = loop {
            if let Err(stopped) = signals.check() {
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

    /// Returns the free memory in bytes, if the machine has figures.
    pub fn free_memory(&self) -> Option<u64> {
        self.machine.as_ref()?.free()
    }

    /// Waits until a device link of this process ends, or for a short time in which another process
    /// may have ended one.
    pub fn pause(&self) {
        let state = self.state();
        let pause = state.pause();
        drop(self.ended.wait_timeout(state, pause));
    }

    fn admit(
        &self,
        demand: &Demand,
        state: &mut State,
    ) -> std::result::Result<JobSlot<'_>, Refusal> {
        if state.own.alone
            || (state.wait_alone > 0 && !demand.alone)
            || (demand.alone && state.own.jobs > 0)
        {
            return Err(Refusal::Alone);
        }
        if state.own.jobs >= self.limit() {
            return Err(Refusal::Slots);
        }
        // Every refusal below drops the tokens: a link never holds jobserver tokens while it waits
        // for memory.
        let mut tokens = Vec::new();
        if let Some(jobserver) = &self.jobserver {
            tokens.push(jobserver.token().ok_or(Refusal::Slots)?);
        }
        let Some(machine) = &self.machine else {
            return Ok(self.slot(demand, tokens, 0, state));
        };
        let table = self.table.get_or_init(|| self.open_table()).as_ref();
        // The system is queried while the table is unlocked, because that takes a while. Links that
        // other processes begin meanwhile count as if none of their memory were allocated yet.
        let mut processes = Processes::default();
        if let Some(others) = self.read(table, Table::others, state)? {
            processes = Processes::at_rest(&others, machine);
            self.may_start(demand, state, &processes.sum(&others))
                .or_else(|refusal| refused(table, demand, state, refusal))?;
            processes.look_at_memory(&others, machine);
        }
        let measured = self.measure(state, machine);
        let locked = self.read(table, Table::lock, state)?;
        let others = locked
            .as_ref()
            .map(|locked| processes.sum(&locked.others()))
            .unwrap_or_default();
        let left = self
            .may_start(demand, state, &others)
            .and_then(|()| self.fits(demand, state, &others, &measured));
        let left = match left {
            Ok(left) => left,
            Err(refusal) => {
                drop(locked);
                return refused(table, demand, state, refusal);
            }
        };
        let extra = self
            .more_threads(demand, state, others.threads)
            .min(demand.threads_within(left).saturating_sub(1));
        let extra = match &self.jobserver {
            None => extra,
            Some(jobserver) => {
                tokens.extend((0..extra).map_while(|_| jobserver.token()));
                tokens.len() - 1
            }
        };
        let slot = self.slot(demand, tokens, extra, state);
        if let Some(locked) = locked {
            let _ = locked.set_own(&state.published());
        }
        Ok(slot)
    }

    /// Reads the table with `read`. Returns `None` if there is no table, or it cannot be read.
    fn read<'t, T>(
        &self,
        table: Option<&'t Table>,
        read: fn(&'t Table) -> io::Result<T>,
        state: &mut State,
    ) -> std::result::Result<Option<T>, Refusal> {
        let found = match table.map(read) {
            Some(Err(error))
                if error.kind() == ErrorKind::WouldBlock && state.waits_for_table() =>
            {
                return Err(Refusal::Slots);
            }
            found => found.and_then(Result::ok),
        };
        state.table_busy_since = None;
        Ok(found)
    }

    /// Number of threads in addition to the first. It is limited by the unused slots of this
    /// process, and by the CPUs that no process uses.
    fn more_threads(&self, demand: &Demand, state: &State, other_threads: usize) -> usize {
        let taken = state.own.threads + state.expected;
        let free = self.limit().saturating_sub(taken).min(
            self.limit()
                .max(threads::count())
                .saturating_sub(taken + other_threads),
        );
        free.min(demand.threads.saturating_sub(1))
    }

    fn slot<'s>(
        &'s self,
        demand: &Demand,
        tokens: Vec<Token<'s>>,
        extra: usize,
        state: &mut State,
    ) -> JobSlot<'s> {
        let memory = demand.memory_with(1 + extra);
        let share = Share {
            jobs: 1,
            threads: 1 + extra,
            memory,
            to_come: 0,
            alone: demand.alone,
        };
        state.own.add(share);
        state.expected = state.expected.saturating_sub(1);
        JobSlot {
            slots: self,
            _tokens: tokens,
            share,
        }
    }

    /// Whether the running links permit this one to start, regardless of memory.
    fn may_start(
        &self,
        demand: &Demand,
        state: &State,
        others: &Share,
    ) -> std::result::Result<(), Refusal> {
        if is_first(demand, state, others) {
            return Ok(());
        }
        if others.alone || demand.alone {
            return Err(Refusal::Alone);
        }
        let is_full = self.jobserver.is_none()
            && state.own.jobs + others.jobs >= self.limit().max(threads::count());
        if is_full { Err(Refusal::Slots) } else { Ok(()) }
    }

    /// Measures the memory in use by our links, and then the free memory. Memory that is allocated
    /// between the two counts as used twice. In the other order, it would count both as free and as
    /// allocated.
    fn measure(&self, state: &State, machine: &Machine) -> Measured {
        let memory_counts = self.memory != MemoryLimit::Off;
        let in_use = if memory_counts && state.own.jobs > 0 {
            machine.of_children(std::process::id()).unwrap_or(0)
        } else {
            0
        };
        Measured {
            in_use,
            free: machine.free().filter(|_| memory_counts),
        }
    }

    /// Returns the memory that is left beyond the needs of `demand`, in bytes.
    ///
    /// # Errors
    /// The memory does not suffice.
    fn fits(
        &self,
        demand: &Demand,
        state: &State,
        others: &Share,
        measured: &Measured,
    ) -> std::result::Result<u64, Refusal> {
        let reserved = state.own.memory.saturating_add(others.memory);
        let of_limit = match self.memory {
            MemoryLimit::Bytes(limit) => limit.saturating_sub(reserved),
            _ => u64::MAX,
        };
        // Part of the reserved memory is in use already.
        let to_come = state
            .own
            .memory
            .saturating_sub(measured.in_use)
            .saturating_add(others.to_come);
        let of_free = measured.free.map_or(u64::MAX, |free| {
            free.saturating_sub(SPARE).saturating_sub(to_come)
        });
        let free = of_limit.min(of_free);
        let fits = demand.needs() <= free || is_first(demand, state, others);
        if fits {
            Ok(free.saturating_sub(demand.needs()))
        } else {
            Err(Refusal::Memory(free))
        }
    }

    fn open_table(&self) -> Option<Table> {
        if environment::get(environment::OFFLD_WITHIN).is_some() {
            return None;
        }
        let table = Table::open();
        if let (Err(why), Some(notes)) = (&table, &self.notes) {
            notes.note(&format!(
                "cannot count the device links of other processes: {why}"
            ));
        }
        table.ok()
    }

    fn state(&self) -> MutexGuard<'_, State> {
        lock(&self.state)
    }
}

/// Memory figures of the system when a link is about to start.
#[derive(Debug)]
struct Measured {
    /// Memory in use by the links of this process, in bytes.
    in_use: u64,
    /// Memory that can still be allocated, in bytes. `None` if it is unknown or does not count.
    free: Option<u64>,
}

/// Whether the link would run alone and may use all memory.
fn is_first(demand: &Demand, state: &State, others: &Share) -> bool {
    state.own.jobs + others.jobs == 0 && demand.reserved == 0 && (!others.alone || demand.alone)
}

/// Passes on `refusal`. If the link must run alone, this is published first, so that other
/// processes start no further links.
fn refused<T>(
    table: Option<&Table>,
    demand: &Demand,
    state: &State,
    refusal: Refusal,
) -> std::result::Result<T, Refusal> {
    if let Some(Ok(locked)) = table.filter(|_| demand.alone).map(Table::lock) {
        let _ = locked.set_own(&state.published());
    }
    Err(refusal)
}

/// Number of device links that may run at once (`None`: one per CPU), and the jobserver, if there
/// is one.
fn limit(jobs: Jobs, shell: &Shell) -> (Option<usize>, Option<Jobserver>) {
    let makeflags = environment::get(environment::MAKEFLAGS);
    let one_at_a_time = makeflags.as_ref().is_some_and(|flags| {
        flags
            .to_string_lossy()
            .split_whitespace()
            .any(|flag| flag == "-j1")
    });
    let under_make = std::env::var_os(environment::MAKEFLAGS).is_some();
    let by_jobserver = || Jobserver::from_environment().map(|jobserver| (None, Some(jobserver)));
    match jobs {
        Jobs::N(count) => (Some(count), None),
        _ if one_at_a_time => (Some(1), None),
        Jobs::Auto => by_jobserver().unwrap_or_default(),
        Jobs::Jobserver => by_jobserver().unwrap_or_else(|| {
            if under_make {
                // Either make runs one job at a time, or the recipe lacks the `+` that passes the
                // jobserver to us.
                return (Some(1), None);
            }
            shell
                .warn("--wrapper-jobs=jobserver: no jobserver in the environment; using all cores");
            (None, None)
        }),
    }
}

impl JobSlot<'_> {
    /// Number of threads that the job may use, at least one.
    pub fn granted(&self) -> usize {
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
            // If this write fails, other processes see slightly too high numbers until this process
            // ends.
            let _ = locked.set_own(&state.published());
        }
        drop(state);
        self.slots.ended.notify_all();
    }
}

/// Resources that a device link needs.
#[derive(Debug, Clone, Copy)]
pub struct Demand {
    /// Number of threads that the link would like to use.
    pub threads: usize,
    /// Peak memory of the link with `enough_for` threads, in bytes.
    pub memory: u64,
    /// Number of threads that `memory` is enough for.
    pub enough_for: usize,
    /// Memory of each further thread, in bytes.
    pub per_thread: u64,
    /// Memory that must remain free for links that are to start before this one, in bytes.
    pub reserved: u64,
    /// Whether no other link may run at the same time.
    pub alone: bool,
    /// Whether the link must run on this machine, without a launcher.
    pub here: bool,
}

impl Demand {
    /// A link with one thread and `memory` bytes.
    pub fn one_thread(memory: u64) -> Demand {
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
    pub fn memory_with(&self, threads: usize) -> u64 {
        let more = u64::try_from(threads.saturating_sub(self.enough_for)).unwrap_or(u64::MAX);
        self.memory
            .saturating_add(more.saturating_mul(self.per_thread))
    }

    /// Number of threads that the link can use if `left` bytes remain beyond its needs.
    fn threads_within(&self, left: u64) -> usize {
        let more = left
            .checked_div(self.per_thread)
            .map_or(usize::MAX, |more| {
                usize::try_from(more).unwrap_or(usize::MAX)
            });
        self.enough_for.saturating_add(more)
    }

    /// Memory that must be free for the link to start, in bytes.
    fn needs(&self) -> u64 {
        self.memory.saturating_add(self.reserved)
    }
}

/// Reason why a device link may not run now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// All slots are taken.
    Slots,
    /// Not enough memory is free. The value is the memory available to the link, in bytes.
    Memory(u64),
    /// The link must run alone, or another link does.
    Alone,
}

/// Make's jobserver, and the one token that every process has from the start.
#[derive(Debug)]
struct Jobserver {
    client: Client,
    own_token_taken: AtomicBool,
}

/// A token of the jobserver. Dropping it gives it back.
#[derive(Debug)]
enum Token<'s> {
    /// The implicit token of this process.
    Own(&'s AtomicBool),
    /// A token from the jobserver, given back by its own `Drop`.
    Granted { _token: Acquired },
}

impl Jobserver {
    /// Returns the jobserver that the environment names.
    #[expect(
        unsafe_code,
        reason = "a jobserver is inherited as file descriptors; they are checked to be pipes, and this process has opened none before"
    )]
    fn from_environment() -> Option<Jobserver> {
        // SAFETY: the descriptors come from MAKEFLAGS of the make that started us and are checked
        // to be open pipes.
        let client = unsafe { Client::from_env_ext(true) }.client.ok()?;
        Some(Jobserver {
            client,
            own_token_taken: AtomicBool::new(false),
        })
    }

    /// Returns a token, if one is free.
    fn token(&self) -> Option<Token<'_>> {
        if !self.own_token_taken.swap(true, Ordering::SeqCst) {
            return Some(Token::Own(&self.own_token_taken));
        }
        self.client
            .try_acquire()
            .ok()
            .flatten()
            .map(|token| Token::Granted { _token: token })
    }
}

impl Drop for Token<'_> {
    fn drop(&mut self) {
        if let Token::Own(taken) = self {
            taken.store(false, Ordering::SeqCst);
        }
    }
}
