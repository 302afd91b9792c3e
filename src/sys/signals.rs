//! SIGINT, SIGTERM and SIGHUP are forwarded to the running children, and the stages then return an error at their next step, so that
//! the temporary folder is removed as on any other error. A signal that was ignored when offld started (`nohup`) stays ignored.

use std::collections::HashSet;
use std::io;
use std::process::{Child, ExitStatus};
use std::sync::atomic::{AtomicI32, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

use anyhow::Result;
use rustix::process::{Pid, Signal, WaitId, WaitIdOptions};
use wait4::Wait4;

use crate::error::StepFailed;
use crate::sys::trace::Usage;

/// The last signal received, and the children that are running.
#[derive(Debug, Default)]
pub struct Signals {
    received: AtomicI32,
    running: Mutex<HashSet<u32>>,
    watching: OnceLock<()>,
}

impl Signals {
    /// Installs the signal handlers, once. To be called before anything is created that must be cleaned up.
    pub fn watch(self: &Arc<Self>) {
        self.watching.get_or_init(|| {
            let ignored = ignored_signals();
            let wanted: Vec<i32> = [1, 2, 15].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0).collect();
            if wanted.is_empty() {
                return;
            }
            let Ok(mut source) = signal_hook::iterator::Signals::new(wanted) else { return };
            let state = Arc::clone(self);
            std::thread::spawn(move || source.forever().for_each(|signal| state.on_signal(signal)));
        });
    }

    /// Never installs a handler from here on: the process belongs to a caller of the library, and so do its signals.
    pub fn leave_alone(&self) {
        self.watching.get_or_init(|| ());
    }

    /// An error if a signal has been received; every stage calls this to stop early.
    pub fn check(&self) -> Result<()> {
        match self.received.load(Ordering::SeqCst) {
            0 => Ok(()),
            signal => {
                Err(StepFailed { report: format!("stopped by signal {signal}"), status: u8::try_from(128 + signal).unwrap_or(1) }
                    .into())
            }
        }
    }

    /// Registers a running child, which leads its own process group, so that signals are forwarded to it.
    pub fn register(&self, pid: u32) {
        self.lock().insert(pid);
        let signal = self.received.load(Ordering::SeqCst);
        if signal != 0 {
            forward(pid, signal);
        }
    }

    /// Waits for a child, and unregisters it before the system can reuse its process id.
    pub fn wait(&self, child: &mut Child) -> io::Result<(ExitStatus, Usage)> {
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            // NOWAIT leaves the child a zombie, so that its process id is still its own when it is unregistered.
            let _ = rustix::io::retry_on_intr(|| {
                rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            });
        }
        self.lock().remove(&child.id());
        let used = child.wait4()?;
        Ok((used.status, Usage { peak_memory: used.rusage.maxrss, cpu: used.rusage.utime + used.rusage.stime }))
    }

    fn on_signal(&self, signal: i32) {
        self.received.store(signal, Ordering::SeqCst);
        for pid in self.lock().iter() {
            forward(*pid, signal);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<u32>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn forward(pid: u32, signal: i32) {
    if let (Some(pid), Some(signal)) = (i32::try_from(pid).ok().and_then(Pid::from_raw), Signal::from_named_raw(signal)) {
        // This fails if the child has ended already, which is fine.
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

/// The mask of signals that were ignored at start (`nohup` ignores SIGHUP), with bit n-1 for signal n.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
