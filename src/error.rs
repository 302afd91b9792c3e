//! How bad input and failed steps are told: [`Malformed`] for bytes that break a format, [`Error`] for what the library's functions
//! can meet, and the one place that turns a chain of causes into text. Formats do not know file names; whoever opened the file adds
//! its name ([`Origin`](crate::model::Origin)).

mod library;

use std::{fmt, io};

pub use library::Error;
pub(crate) use library::FileError;

/// Bytes that break a format: what is wrong, and how far into the data given to the reader.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub struct Malformed {
    /// What is wrong, a lowercase fragment: `size field past the end`.
    pub what: &'static str,
    /// Byte offset from the start of the data the reader was given.
    pub at: u64,
}

impl Malformed {
    /// A fault `what` found `at` bytes into the data.
    pub fn new(what: &'static str, at: u64) -> Self {
        Malformed { what, at }
    }

    /// The same fault seen from data in which the reader's data starts at `base`.
    pub fn shifted(self, base: u64) -> Self {
        Malformed { what: self.what, at: self.at.saturating_add(base) }
    }
}

impl Malformed {
    /// The fault that a reader of a stream tells as an error of reading (`io::Error::from`), if it is one.
    pub fn of(error: &io::Error) -> Option<Malformed> {
        error.get_ref()?.downcast_ref().copied()
    }

    /// An error of reading as the fault that it stands for, where it does.
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

/// A step that ends the whole program with a given exit status: a child's own status where a child failed,
/// 128+n where signal n ended it or us.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct StepFailed {
    /// The report: the step, its inputs, the command, the status.
    pub report: String,
    /// The exit status offld ends with.
    pub status: u8,
}

impl fmt::Display for StepFailed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.report)
    }
}

impl std::error::Error for StepFailed {}

/// An exit status that says all there is to say: nothing failed, or it has been told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Silent {
    /// The exit status offld ends with.
    pub(crate) status: u8,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit status {}", self.status)
    }
}

impl std::error::Error for Silent {}

/// The exit status an error asks for: that of the step that failed, else 1.
pub(crate) fn exit_status(error: &anyhow::Error) -> u8 {
    let of_step = step_failed(error).map(|step| step.status);
    of_step.or(error.downcast_ref::<Silent>().map(|silent| silent.status)).unwrap_or(1)
}

/// The step that failed, if that is the cause of `error`.
fn step_failed(error: &anyhow::Error) -> Option<&StepFailed> {
    error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(Error::StepFailed(step)) => Some(step),
        _ => cause.downcast_ref(),
    })
}

/// The text of an error as the system has it, without the number that Rust adds.
pub(crate) fn strerror(error: &io::Error) -> String {
    let text = error.to_string();
    text.split(" (os error").next().unwrap_or(&text).to_owned()
}

/// One line: the causes joined by `: `, outermost first, each said once. A `Malformed` is glued to its origin
/// (`a.o: .llvm.offloading+0x20: …`).
pub(crate) fn chain(error: &anyhow::Error) -> String {
    let mut text = String::new();
    for cause in error.chain() {
        let part = cause.to_string();
        if text.is_empty() {
            text = part;
        } else if part.starts_with('+') && (cause.is::<Malformed>() || cause.is::<Error>()) {
            text.push_str(&part);
        } else if !text.contains(&part) {
            text.push_str(": ");
            text.push_str(&part);
        }
    }
    text
}
