//! Errors: [`Malformed`] for bytes that break a format, [`Error`] for failures of the library's
//! functions, and `chain`, which formats a chain of causes. Formats do not know file names; the
//! code that opened the file adds its name ([`Origin`](crate::model::Origin)).

mod library;

use std::{fmt, io};

pub use library::Error;
pub(crate) use library::FileError;

/// A format error with its byte offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Malformed {
    /// The error as a lowercase fragment: `size field past the end`.
    pub what: &'static str,
    /// The offset in bytes from the start of the reader's data.
    pub at: u64,
}

impl Malformed {
    /// Creates the error `what` at byte offset `at`.
    pub fn new(what: &'static str, at: u64) -> Self {
        Malformed { what, at }
    }

    /// Returns the same error relative to outer data in which the reader's data starts at offset
    /// `base`.
    pub fn shifted(self, base: u64) -> Self {
        Malformed {
            what: self.what,
            at: self.at.saturating_add(base),
        }
    }

    /// Returns the format error that a stream reader wrapped into an I/O error with
    /// `io::Error::from`, if there is one.
    pub fn of(error: &io::Error) -> Option<Malformed> {
        error.get_ref()?.downcast_ref().copied()
    }

    /// Unwraps a format error from an I/O error, or passes the I/O error on.
    pub(crate) fn or_io(error: io::Error) -> anyhow::Error {
        Malformed::of(&error).map_or_else(|| error.into(), anyhow::Error::from)
    }
}

impl From<Malformed> for io::Error {
    fn from(fault: Malformed) -> Self {
        io::Error::other(fault)
    }
}

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "+{:#x}: {}", self.at, self.what)
    }
}

impl std::error::Error for Malformed {}

/// A step whose failure ends the whole program with a given exit status: the status of the failed
/// child process, or 128+n if signal n ended the child or offld.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepFailed {
    /// The message: the step, its inputs, the command, the status.
    pub report: String,
    /// The exit status of offld.
    pub status: u8,
    /// Lines below `report`, each after a line break: inputs, command, advice. Empty in errors of
    /// the library's functions, whose `report` contains them.
    pub(crate) details: String,
    /// Whether the program exited by itself, and so has printed its own message.
    pub(crate) has_exited: bool,
}

impl StepFailed {
    /// An error without details that is not about the exit of a program.
    pub(crate) fn new(report: impl Into<String>, status: u8) -> Self {
        StepFailed {
            report: report.into(),
            status,
            details: String::new(),
            has_exited: false,
        }
    }

    /// Returns the same error with more lines of details.
    pub(crate) fn with_details(&self, lines: &str) -> Self {
        StepFailed {
            details: format!("{}\n  {lines}", self.details),
            ..self.clone()
        }
    }

    /// Returns the failed step in an I/O error. A signal ends a write like this.
    pub(crate) fn of(error: &io::Error) -> Option<&StepFailed> {
        error.get_ref()?.downcast_ref()
    }
}

impl fmt::Display for StepFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", self.report, self.details)
    }
}

impl std::error::Error for StepFailed {}

/// An exit status without a message, because nothing failed or offld has already reported the
/// failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Silent {
    /// The exit status of offld.
    pub(crate) status: u8,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit status {}", self.status)
    }
}

impl std::error::Error for Silent {}

/// Returns the exit status for an error: that of the failed step, else 1.
pub(crate) fn exit_status(error: &anyhow::Error) -> u8 {
    let of_step = step_failed(error).map(|step| step.status);
    of_step
        .or(error.downcast_ref::<Silent>().map(|silent| silent.status))
        .unwrap_or(1)
}

/// Returns the failed step, if one caused `error`.
pub(crate) fn step_failed(error: &anyhow::Error) -> Option<&StepFailed> {
    error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(Error::StepFailed(step)) => Some(step),
        _ => cause.downcast_ref(),
    })
}

/// Returns the system's text for an error, without the number that Rust appends.
pub(crate) fn strerror(error: &io::Error) -> String {
    without_numbers(&error.to_string())
}

/// Removes the numbers of system errors, such as ` (os error 2)`, from `text`.
fn without_numbers(text: &str) -> String {
    const NUMBER: &str = " (os error ";
    let mut parts = text.split(NUMBER);
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        match part
            .split_once(')')
            .filter(|(number, _)| number.bytes().all(|byte| byte.is_ascii_digit()))
        {
            Some((_, rest)) => plain.push_str(rest),
            None => plain.extend([NUMBER, part]),
        }
    }
    plain
}

/// Formats an error as one line: the causes joined by `: `, outermost first, without repetitions. A
/// `Malformed` follows its origin without a separator (`a.o: .llvm.offloading+0x20: …`).
pub(crate) fn chain(error: &anyhow::Error) -> String {
    joined(error.chain())
}

/// Formats `causes` for [`chain`].
fn joined(causes: anyhow::Chain<'_>) -> String {
    let mut text = String::new();
    for cause in causes {
        let begins_with_offset = match cause.downcast_ref() {
            Some(Error::Malformed { place, offset, .. }) => place.is_empty() && offset.is_some(),
            _ => cause.is::<Malformed>(),
        };
        let part = without_numbers(&cause.to_string());
        if text.is_empty() {
            text = part;
        } else if begins_with_offset {
            text.push_str(&part);
        } else if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
    }
    text
}
