//! SIGINT, SIGTERM and SIGHUP: the running children are told, the stages stop at the next step, and everything is dropped on
//! the way out, so the temp folder goes as it does on any other path. A signal that was ignored when we started stays ignored.

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

/// What signals have come, and who is running.
#[derive(Debug, Default)]
pub struct Signals {
    came: AtomicI32,
    running: Mutex<HashSet<u32>>,
    watching: OnceLock<()>,
}

impl Signals {
    /// Starts to listen, once. Called before the first thing is made that would need cleaning up.
    pub fn watch(self: &Arc<Self>) {
        self.watching.get_or_init(|| {
            let ignored = ignored_signals();
            let wanted: Vec<i32> = [1, 2, 15].into_iter().filter(|signal| ignored & (1 << (signal - 1)) == 0).collect();
            if wanted.is_empty() {
                return;
            }
            let Ok(mut source) = signal_hook::iterator::Signals::new(wanted) else { return };
            let state = Arc::clone(self);
            std::thread::spawn(move || source.forever().for_each(|signal| state.arrived(signal)));
        });
    }

    /// An error when a signal came: the way out for every stage.
    pub fn check(&self) -> Result<()> {
        match self.came.load(Ordering::SeqCst) {
            0 => Ok(()),
            signal => {
                Err(StepFailed { report: format!("stopped by signal {signal}"), status: u8::try_from(128 + signal).unwrap_or(1) }
                    .into())
            }
        }
    }

    /// A child with a process group of its own runs from here on.
    pub fn enter(&self, pid: u32) {
        self.lock().insert(pid);
        let signal = self.came.load(Ordering::SeqCst);
        if signal != 0 {
            tell(pid, signal);
        }
    }

    /// Waits for a child and forgets it before its number can be used again.
    pub fn wait(&self, child: &mut Child) -> io::Result<(ExitStatus, Usage)> {
        if let Some(pid) = i32::try_from(child.id()).ok().and_then(Pid::from_raw) {
            // Leaves the child a zombie, so that its number is still its own when it is forgotten.
            let _ = rustix::io::retry_on_intr(|| {
                rustix::process::waitid(WaitId::Pid(pid), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT)
            });
        }
        self.lock().remove(&child.id());
        let used = child.wait4()?;
        Ok((used.status, Usage { peak_memory: used.rusage.maxrss, cpu: used.rusage.utime + used.rusage.stime }))
    }

    fn arrived(&self, signal: i32) {
        self.came.store(signal, Ordering::SeqCst);
        for pid in self.lock().iter() {
            tell(*pid, signal);
        }
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, HashSet<u32>> {
        self.running.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn tell(pid: u32, signal: i32) {
    if let (Some(pid), Some(signal)) = (i32::try_from(pid).ok().and_then(Pid::from_raw), Signal::from_named_raw(signal)) {
        // A child that is gone already needs no signal.
        let _ = rustix::process::kill_process_group(pid, signal);
    }
}

/// The mask of signals ignored at start (`nohup` ignores SIGHUP), bit n-1 for signal n.
fn ignored_signals() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0)
}
