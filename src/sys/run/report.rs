//! Reports of failed steps.

use std::ffi::OsStr;
use std::os::unix::process::ExitStatusExt;
use std::process::ExitStatus;

use rustix::process::Signal;

use super::Cmd;
use crate::error::StepFailed;
use crate::sys::service::ServiceFailure;
use crate::sys::{shell, threads};

/// Report of a service that failed at the step of `cmd`.
pub(crate) fn no_answer(cmd: &Cmd, failure: &ServiceFailure) -> StepFailed {
    let name = cmd
        .program
        .file_name()
        .unwrap_or(OsStr::new(""))
        .to_string_lossy();
    let report = format!("{} failed: '{name}' {}", cmd.step, failure.what);
    let failed = StepFailed {
        details: details(cmd),
        ..StepFailed::new(report, failure.status)
    };
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
    StepFailed {
        details: details(cmd),
        ..StepFailed::new(report, 1)
    }
}

/// Report of a step whose program ended with `status`, on another machine if `node` names one.
pub(in crate::sys) fn failure_report(
    cmd: &Cmd,
    status: ExitStatus,
    node: Option<&str>,
) -> StepFailed {
    let (how, code) = how_it_ended(status);
    let name = cmd
        .program
        .file_name()
        .unwrap_or(OsStr::new(""))
        .to_string_lossy();
    let place = node.map(|node| format!(" on {node}")).unwrap_or_default();
    StepFailed {
        report: format!("{} failed: '{name}' {how}{place}", cmd.step),
        status: code,
        details: details(cmd),
        has_exited: status.code().is_some(),
    }
}

/// Returns how a program ended, worded to follow its name, and the exit status for offld.
pub(in crate::sys) fn how_it_ended(status: ExitStatus) -> (String, u8) {
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
        shell::command_line(&cmd.program, &cmd.args)
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
