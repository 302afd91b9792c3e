//! Reports of failed steps. Detects programs that ended because of missing memory.

use std::ffi::OsStr;
use std::fmt;
use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use rustix::process::Signal;

use super::Cmd;
use crate::jobs::memory::Machine;
use crate::service::ServiceFailure;
use crate::{posix_shell, threads};
use offload_formats::error::StepFailed;

/// Report of a service that failed at the step of `cmd`.
pub fn no_answer(cmd: &Cmd, failure: &ServiceFailure) -> StepFailed {
    let name = cmd
        .program
        .file_name()
        .unwrap_or(OsStr::new(""))
        .to_string_lossy();
    let report = format!("{} failed: '{name}' {}", cmd.step, failure.what);
    let failed = StepFailed::of_program(report, failure.status, details(cmd), false);
    if failure.stderr_tail.is_empty() {
        failed
    } else {
        failed.with_details(&format!("stderr: {}", failure.stderr_tail))
    }
}

/// Report of a step whose program could not be started.
pub(super) fn cannot_start(cmd: &Cmd, error: &std::io::Error) -> StepFailed {
    let hint = if threads::is_refused(error) {
        ": too many processes are running (see `ulimit -u`, or the container's limit)"
    } else {
        ""
    };
    let report = format!(
        "{} failed: cannot run `{}`: {error}{hint}",
        cmd.step,
        cmd.program.display()
    );
    StepFailed::of_program(report, 1, details(cmd), false)
}

/// Report of a step whose program ended with `status`, on another machine if `node` names one.
pub(crate) fn failure_report(cmd: &Cmd, status: ExitStatus, node: Option<&str>) -> StepFailed {
    let (how, code) = how_it_ended(status);
    let name = cmd
        .program
        .file_name()
        .unwrap_or(OsStr::new(""))
        .to_string_lossy();
    let place = node.map(|node| format!(" on {node}")).unwrap_or_default();
    let report = format!("{} failed: '{name}' {how}{place}", cmd.step);
    StepFailed::of_program(report, code, details(cmd), status.code().is_some())
}

/// Returns how a program ended, worded to follow its name, and the exit status for offld.
pub(crate) fn how_it_ended(status: ExitStatus) -> (String, u8) {
    match (status.code(), status.signal()) {
        (Some(code), _) => (
            format!("exited with status {code}"),
            u8::try_from(code).unwrap_or(1),
        ),
        (None, Some(signal)) => {
            // Linkers map their output into memory, and writing to it when the disk is full raises
            // SIGBUS.
            let hint = if signal == Signal::BUS.as_raw() {
                " (SIGBUS: is the disk of its output full?)"
            } else {
                ""
            };
            (
                format!("was ended by signal {signal}{hint}"),
                u8::try_from(128 + signal).unwrap_or(1),
            )
        }
        (None, None) => ("ended without a status".to_owned(), 1),
    }
}

fn details(cmd: &Cmd) -> String {
    let mut text = String::new();
    if !cmd.inputs.is_empty() {
        text.push_str(&format!("\n  inputs: {}", abbreviated(&cmd.inputs)));
    }
    text.push_str(&format!(
        "\n  command: {}",
        posix_shell::command_line(&cmd.program, &cmd.args)
    ));
    text
}

/// The first inputs by name, and the number of the others.
fn abbreviated(inputs: &[String]) -> String {
    const SHOWN: usize = 12;
    if inputs.len() <= SHOWN {
        return inputs.join(", ");
    }
    format!(
        "{} and {} more",
        inputs[..SHOWN].join(", "),
        inputs.len() - SHOWN
    )
}

/// A step that ended because of missing memory: the kernel killed it, or an allocation failed.
#[derive(Debug, Clone)]
pub struct OutOfMemory {
    /// The error for the user.
    pub failed: StepFailed,
    /// How the program ended: `was killed`.
    pub how: &'static str,
    /// Peak resident memory of the program, in bytes.
    pub peak_memory: u64,
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
pub(crate) fn ended_for_memory(
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
    use super::*;

    #[test]
    fn detects_missing_memory() {
        let ended = |raw, stderr: &str| {
            ended_for_memory(ExitStatus::from_raw(raw), stderr.as_bytes(), false).is_some()
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
            |raw| ended_for_memory(ExitStatus::from_raw(raw), b"", true).is_some();
        assert!(while_one_was_killed(254 << 8) && while_one_was_killed(6));
        assert!(
            !while_one_was_killed(1 << 8),
            "an ordinary fault, whatever else was killed"
        );
    }
}
