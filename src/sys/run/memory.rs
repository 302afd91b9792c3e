//! Detects programs that ended because of missing memory.

use std::fmt;
use std::path::Path;
use std::process::ExitStatus;

use crate::error::StepFailed;
use crate::sys::jobs::memory::Machine;

/// A step that ended because of missing memory: the kernel killed it, or an allocation failed.
#[derive(Debug, Clone)]
pub(crate) struct OutOfMemory {
    pub(crate) failed: StepFailed,
    /// How the program ended: `was killed`.
    pub(crate) how: &'static str,
    /// Peak resident memory of the program, in bytes.
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

/// Messages of compilers and linkers when an allocation fails: LLVM, the C++ library, GNU's tools,
/// the system.
const OUT_OF_MEMORY_TEXTS: [&str; 5] = [
    "out of memory",
    "std::bad_alloc",
    "memory exhausted",
    "Cannot allocate memory",
    "unable to execute command: Killed",
];
/// Exit status of a shell whose program was killed.
const KILLED_BELOW_A_SHELL: i32 = 128 + 9;
/// Exit status of clang when a signal ended a program that it had started (-2).
const KILLED_BELOW_CLANG: i32 = 254;

/// Returns how many processes of our control group the kernel has killed so far because of missing
/// memory.
pub(super) fn killed_by_kernel() -> u64 {
    Machine::below(Path::new("/")).killed()
}

/// Returns how a program ended, if missing memory was the reason. `stderr`: the known part of its
/// stderr. `kernel_killed`: while the program ran, the kernel killed a process of its control group
/// because of missing memory. The killed process may be any other one, so `kernel_killed` counts
/// only if a killed process can explain how the program ended.
pub(in crate::sys) fn ended_for_it(
    status: ExitStatus,
    stderr: &[u8],
    kernel_killed: bool,
) -> Option<&'static str> {
    use std::os::unix::process::ExitStatusExt;
    const TAIL: usize = 64 << 10;
    let killed = status.signal() == Some(rustix::process::Signal::KILL.as_raw())
        || status.code() == Some(KILLED_BELOW_A_SHELL);
    let by_a_signal = status.signal().is_some() || status.code() == Some(KILLED_BELOW_CLANG);
    if killed || kernel_killed && by_a_signal {
        return Some("was killed (probably out of memory)");
    }
    let tail = String::from_utf8_lossy(&stderr[stderr.len().saturating_sub(TAIL)..]);
    OUT_OF_MEMORY_TEXTS
        .iter()
        .any(|text| tail.contains(text))
        .then_some("ran out of memory")
}

#[cfg(test)]
mod tests {
    use std::os::unix::process::ExitStatusExt;

    use super::*;

    #[test]
    fn detects_missing_memory() {
        let ended = |raw, stderr: &str| {
            ended_for_it(ExitStatus::from_raw(raw), stderr.as_bytes(), false).is_some()
        };
        assert!(ended(9, "") && ended(137 << 8, ""));
        assert!(
            ended(6, "LLVM ERROR: out of memory\nAllocation failed\n")
                && ended(1 << 8, "std::bad_alloc")
        );
        assert!(
            !ended(11, "") && !ended(1 << 8, "error: undefined symbol: memory") && !ended(15, "")
        );
        let while_one_was_killed =
            |raw| ended_for_it(ExitStatus::from_raw(raw), b"", true).is_some();
        assert!(while_one_was_killed(254 << 8) && while_one_was_killed(6));
        assert!(
            !while_one_was_killed(1 << 8),
            "an ordinary fault, whatever else was killed"
        );
    }
}
