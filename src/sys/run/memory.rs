//! Whether a program has ended for want of memory.

use std::fmt;
use std::path::Path;
use std::process::ExitStatus;

use crate::error::StepFailed;
use crate::sys::jobs::memory::Machine;

/// A step that has ended for want of memory: the kernel has killed it, or it could not get any.
#[derive(Debug, Clone)]
pub(crate) struct OutOfMemory {
    /// The failure.
    pub(crate) failed: StepFailed,
    /// How it ended: `it was killed`.
    pub(crate) how: &'static str,
    /// The most resident memory that it had, in bytes.
    pub(crate) peak_memory: u64,
}

impl fmt::Display for OutOfMemory {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.failed.fmt(f)
    }
}

impl std::error::Error for OutOfMemory {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.failed)
    }
}

/// What compilers and linkers say when they cannot get memory: LLVM, the C++ library, GNU's tools, the system.
const SAID: [&str; 5] =
    ["out of memory", "std::bad_alloc", "memory exhausted", "Cannot allocate memory", "unable to execute command: Killed"];
/// What a shell ends with when its program was killed.
const KILLED_BELOW_A_SHELL: i32 = 128 + 9;
/// What clang ends with when a program that it has started was ended by a signal (-2).
const KILLED_BELOW_CLANG: i32 = 254;

/// How many processes of our control group the kernel has killed for want of memory so far.
pub(super) fn killed_by_kernel() -> u64 {
    Machine::below(Path::new("/")).killed()
}

/// How a program has ended, if that was for want of memory. `said`: its stderr as far as it is known. `kernel_killed`: while it ran,
/// the kernel has killed a process of its control group for want of memory. That may have been any other process, so it counts only
/// for an end that a killed process can have led to.
pub(in crate::sys) fn ended_for_it(status: ExitStatus, said: &[u8], kernel_killed: bool) -> Option<&'static str> {
    use std::os::unix::process::ExitStatusExt;
    const TAIL: usize = 64 << 10;
    let killed = status.signal() == Some(rustix::process::Signal::KILL.as_raw()) || status.code() == Some(KILLED_BELOW_A_SHELL);
    let by_a_signal = status.signal().is_some() || status.code() == Some(KILLED_BELOW_CLANG);
    if killed || kernel_killed && by_a_signal {
        return Some("it was killed, most probably for want of memory,");
    }
    let tail = String::from_utf8_lossy(&said[said.len().saturating_sub(TAIL)..]);
    SAID.iter().any(|text| tail.contains(text)).then_some("it ran out of memory")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn ends_for_want_of_memory_are_told_from_others() {
        let ended = |raw, said: &str| ended_for_it(ExitStatus::from_raw(raw), said.as_bytes(), false).is_some();
        assert!(ended(9, "") && ended(137 << 8, ""));
        assert!(ended(6, "LLVM ERROR: out of memory\nAllocation failed\n") && ended(1 << 8, "std::bad_alloc"));
        assert!(!ended(11, "") && !ended(1 << 8, "error: undefined symbol: memory") && !ended(15, ""));
        let while_one_was_killed = |raw| ended_for_it(ExitStatus::from_raw(raw), b"", true).is_some();
        assert!(while_one_was_killed(254 << 8) && while_one_was_killed(6));
        assert!(!while_one_was_killed(1 << 8), "an ordinary fault, whatever else was killed");
    }
}
