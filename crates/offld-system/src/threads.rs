//! Threads: one per core, if the limits on processes allow. Linux counts threads and processes
//! together (`ulimit -u`, `pids.max` of a control group). Compilers and linkers need some of them,
//! and cannot run with fewer. So near a limit, all work runs on the current thread. A thread that
//! cannot be started is never an error.

use std::io;
use std::os::fd::AsFd;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::thread::{Builder, JoinHandle};
use std::time::Duration;

use anyhow::Result;
use rayon::{ThreadPool, ThreadPoolBuilder};
use rustix::process::{Resource, getrlimit, getuid};

use crate::jobs::memory::{self, Group};
use crate::signals::Signals;

/// Processes and threads that the children of one link need at once: a compiler, its linker with a
/// few threads, the host linker and `offld-llvm`.
const FOR_CHILDREN: usize = 12;
/// A limit per user above this is ignored, because counting the processes of a user takes a while.
const IGNORED_LIMIT: u64 = 1024;

/// Set after a thread or process could not be started.
static SHORT: AtomicBool = AtomicBool::new(false);
/// The threads that [`in_parallel`] uses; unset before the first use.
static POOL: Mutex<Option<Pool>> = Mutex::new(None);

/// Threads of one process.
struct Pool {
    /// Id of the process that started the threads. A forked process, as of Python's
    /// `multiprocessing`, has the same memory but no such threads.
    process: u32,
    /// `None` if there is room for one thread only.
    threads: Option<Arc<ThreadPool>>,
}

/// Locks `mutex`, even if a thread has panicked while holding it: the panic is reported elsewhere.
pub fn lock<T: ?Sized>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work`, whose parallel iterators use all available threads.
pub fn in_parallel<R: Send>(work: impl FnOnce() -> R + Send) -> R {
    match threads_of_this_process() {
        Some(pool) => pool.install(work),
        None => alone(work),
    }
}

fn threads_of_this_process() -> Option<Arc<ThreadPool>> {
    let process = std::process::id();
    let mut pool = lock(&POOL);
    if pool.as_ref().is_some_and(|pool| pool.process != process) {
        // Dropping the pool would wait for threads that do not exist in this process.
        std::mem::forget(pool.take());
    }
    pool.get_or_insert_with(|| Pool {
        process,
        threads: start(count()).map(Arc::new),
    })
    .threads
    .clone()
}

/// Calls `task` with each number below `count`, in order, at most `most` at once; 0 means one per
/// available thread. The results are in no particular order. The calling thread takes part.
pub fn run_indexed<R: Send>(count: usize, most: usize, task: impl Fn(usize) -> R + Sync) -> Vec<R> {
    let threads = if most == 0 || is_short() {
        self::count()
    } else {
        most
    }
    .min(count);
    let next = AtomicUsize::new(0);
    let done = Mutex::new(Vec::with_capacity(count));
    let work = || {
        loop {
            let at = next.fetch_add(1, Ordering::SeqCst);
            if at >= count {
                return;
            }
            let result = task(at);
            lock(&done).push(result);
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads {
            if Builder::new().spawn_scoped(scope, work).is_err() {
                SHORT.store(true, Ordering::SeqCst);
                break;
            }
        }
        work();
    });
    done.into_inner().unwrap_or_else(PoisonError::into_inner)
}

/// Runs `work` on a new thread, or on this thread if none can be started.
pub(crate) fn beside(work: impl FnOnce() + Send + 'static) -> Option<JoinHandle<()>> {
    // `spawn` drops its closure if it fails, so the work is shared and can still be run here.
    let work = Arc::new(Mutex::new(Some(work)));
    let taken = Arc::clone(&work);
    let thread = if is_short() {
        None
    } else {
        Builder::new().spawn(move || run_once(&taken)).ok()
    };
    if thread.is_none() {
        run_once(&work);
    }
    thread
}

/// Runs `work`, which does not check for signals often enough, on a new thread, and returns its
/// result. A signal abandons that thread, which then ends with the process. If there is no such
/// thread, or signals are not caught, `work` runs on this thread.
///
/// # Errors
/// A signal has arrived.
pub fn unless_stopped<R: Send + 'static>(
    signals: &Signals,
    work: impl FnOnce() -> R + Send + 'static,
) -> Result<R> {
    // The pipe is closed when the work is done, or when it has panicked.
    let Some((done, open)) = signals
        .are_watched()
        .then(io::pipe)
        .and_then(io::Result::ok)
    else {
        return Ok(work());
    };
    let result = Arc::new(Mutex::new(None));
    let place = Arc::clone(&result);
    let thread = beside(move || {
        let _open = open;
        let value = work();
        *lock(&place) = Some(value);
    });
    signals.until_readable(done.as_fd())?;
    if let Some(Err(panic)) = thread.map(JoinHandle::join) {
        std::panic::resume_unwind(panic);
    }
    let result = lock(&result).take();
    Ok(result.unwrap_or_else(|| unreachable!("the work is done, and has not panicked")))
}

/// Runs `work`, unless it has run already.
fn run_once(work: &Mutex<Option<impl FnOnce()>>) {
    let work = lock(work).take();
    if let Some(work) = work {
        work();
    }
}

/// Number of useful threads: one per core that this process may use, fewer near a limit.
pub fn count() -> usize {
    static COUNT: OnceLock<usize> = OnceLock::new();
    if SHORT.load(Ordering::SeqCst) {
        return 1;
    }
    *COUNT.get_or_init(|| {
        let wanted = std::env::var("RAYON_NUM_THREADS")
            .ok()
            .and_then(|text| text.parse().ok())
            .filter(|count| *count > 0);
        // This takes a control group's CPU share into account as well.
        let cores = wanted.unwrap_or_else(|| {
            std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
        });
        cores
            .min(room().map_or(cores, |room| room.saturating_sub(FOR_CHILDREN) / 2))
            .max(1)
    })
}

/// Whether to avoid optional threads, and programs that are started before they are needed, because
/// a limit is near.
pub fn is_short() -> bool {
    SHORT.load(Ordering::SeqCst) || room().is_some_and(|room| room < FOR_CHILDREN + 4)
}

/// Number of threads that zstd may start. zstd fails if it cannot start them, so near a limit it
/// gets none.
pub fn for_compression() -> u32 {
    if is_short() {
        0
    } else {
        u32::try_from(count()).unwrap_or(1)
    }
}

/// Calls `start`. While the system refuses because there are too many processes, ends our own
/// threads, waits for other processes to end, and tries again.
pub(crate) fn retry<T>(
    signals: &Signals,
    mut start: impl FnMut() -> io::Result<T>,
) -> Result<io::Result<T>> {
    const FIRST: Duration = Duration::from_millis(5);
    const TRIES: u32 = 8;
    static HOPELESS: AtomicBool = AtomicBool::new(false);
    let mut pause = FIRST;
    for _ in 0..if HOPELESS.load(Ordering::SeqCst) {
        1
    } else {
        TRIES
    } {
        match start() {
            Err(error) if is_refused(&error) => {
                SHORT.store(true, Ordering::SeqCst);
                *lock(&POOL) = Some(Pool {
                    process: std::process::id(),
                    threads: None,
                });
            }
            result => return Ok(result),
        }
        signals.pause(pause)?;
        pause *= 2;
    }
    HOPELESS.store(true, Ordering::SeqCst);
    Ok(start())
}

/// Whether `error` means that there are too many processes and threads.
pub(crate) fn is_refused(error: &io::Error) -> bool {
    error.kind() == io::ErrorKind::WouldBlock
}

/// Starts a pool of `wanted` threads, or of fewer. Returns `None` for less than two.
fn start(wanted: usize) -> Option<ThreadPool> {
    let mut wanted = wanted;
    while wanted > 1 {
        let mut started = Vec::new();
        let spawn = |thread: rayon::ThreadBuilder| {
            Builder::new()
                .spawn(|| thread.run())
                .map(|handle| started.push(handle))
        };
        match ThreadPoolBuilder::new()
            .num_threads(wanted)
            .spawn_handler(spawn)
            .build()
        {
            Ok(pool) => return Some(pool),
            Err(_) => {
                SHORT.store(true, Ordering::SeqCst);
                // Children need room as well, so the next try does not use all of the available
                // room.
                wanted = started.len() / 2;
                // The threads end because there is no pool.
                for thread in started {
                    let _ = thread.join();
                }
            }
        }
    }
    None
}

/// Runs `work` on this thread alone, including its parallel iterators.
fn alone<R>(work: impl FnOnce() -> R) -> R {
    // Outside any pool, parallel iterators would start rayon's global pool, and panic if that
    // fails. An error means that this thread already belongs to a pool.
    if let Ok(pool) = ThreadPoolBuilder::new()
        .num_threads(1)
        .use_current_thread()
        .build()
    {
        // The thread stays in the pool.
        std::mem::forget(pool);
    }
    work()
}

/// Number of additional processes and threads that the limits allowed at the first call; `None` if
/// no limit is near.
fn room() -> Option<usize> {
    static ROOM: OnceLock<Option<usize>> = OnceLock::new();
    *ROOM.get_or_init(|| {
        [room_of_user(), room_of_group()]
            .into_iter()
            .flatten()
            .min()
    })
}

fn room_of_user() -> Option<usize> {
    let limit = getrlimit(Resource::Nproc)
        .current
        .filter(|limit| *limit <= IGNORED_LIMIT)?;
    let user = format!("Uid:\t{}\t", getuid().as_raw());
    let mut running = 0;
    for process in std::fs::read_dir("/proc").ok()?.flatten() {
        if process
            .file_name()
            .as_encoded_bytes()
            .first()
            .is_some_and(u8::is_ascii_digit)
        {
            // A process may end while this loop runs.
            let status = std::fs::read_to_string(process.path().join("status")).unwrap_or_default();
            if status.contains(&user) {
                let threads = status
                    .lines()
                    .find_map(|line| line.strip_prefix("Threads:")?.trim().parse::<usize>().ok());
                running += threads.unwrap_or(1);
            }
        }
    }
    Some(usize::try_from(limit).ok()?.saturating_sub(running))
}

/// The least room in this process's control group and its ancestors, of either version.
fn room_of_group() -> Option<usize> {
    memory::groups_of_this_process(Path::new("/"), "pids")
        .into_iter()
        .filter_map(|group| room_below(&group))
        .min()
}

fn room_below(group: &Group) -> Option<usize> {
    // `pids.max` may be `max` instead of a number.
    let number = |folder: &Path, name: &str| {
        std::fs::read_to_string(folder.join(name))
            .ok()?
            .trim()
            .parse::<usize>()
            .ok()
    };
    let room = |folder: &Path| {
        Some(number(folder, "pids.max")?.saturating_sub(number(folder, "pids.current")?))
    };
    group.with_those_around().filter_map(room).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_number_runs_once_with_any_number_of_threads() {
        for most in [0, 1, 2, 50] {
            let mut done = run_indexed(20, most, |at| at);
            done.sort_unstable();
            assert_eq!(done, (0..20).collect::<Vec<_>>(), "{most}");
        }
        assert!(run_indexed(0, 0, |at| at).is_empty());
    }

    #[test]
    fn parallel_iterators_run_on_one_thread_without_a_pool() {
        use rayon::prelude::*;
        // On a new thread, which stays without a pool.
        let sum = std::thread::spawn(|| {
            let here = std::thread::current().id();
            alone(|| {
                (0..1000)
                    .into_par_iter()
                    .map(|at| {
                        if std::thread::current().id() == here {
                            at
                        } else {
                            0
                        }
                    })
                    .sum::<u32>()
            })
        });
        assert_eq!(sum.join().unwrap(), 499_500);
    }

    #[test]
    fn the_room_is_the_least_of_all_enclosing_groups() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        std::fs::create_dir_all(&inner).unwrap();
        let below = |folder: &Path| {
            room_below(&Group {
                root: root.path().to_owned(),
                folder: folder.to_owned(),
                version: 2,
            })
        };
        assert_eq!(below(&inner), None);
        for (folder, max, current) in [("a", "40", "10"), ("a/b", "max", "5")] {
            std::fs::write(
                root.path().join(folder).join("pids.max"),
                format!("{max}\n"),
            )
            .unwrap();
            std::fs::write(
                root.path().join(folder).join("pids.current"),
                format!("{current}\n"),
            )
            .unwrap();
        }
        assert_eq!(below(&inner), Some(30));
        assert_eq!(below(&root.path().join("not/there")), None);
    }

    #[test]
    fn work_beside_is_done_with_or_without_a_thread() {
        let done = Arc::new(AtomicBool::new(false));
        let flag = Arc::clone(&done);
        let thread = beside(move || flag.store(true, Ordering::SeqCst));
        thread.map(JoinHandle::join);
        assert!(done.load(Ordering::SeqCst));
    }
}
