//! Errors: [`Malformed`] for bytes that break a format, [`Error`] for failures of the library's
//! functions, and `chain`, which formats a chain of causes. Formats do not know file names; the
//! code that opened the file adds its name ([`Origin`](crate::model::Origin)).

use std::path::PathBuf;
use std::{fmt, io};

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
    pub fn or_io(error: io::Error) -> anyhow::Error {
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
    pub has_exited: bool,
}

impl StepFailed {
    /// An error without details that is not about the exit of a program.
    pub fn new(report: impl Into<String>, status: u8) -> Self {
        StepFailed {
            report: report.into(),
            status,
            details: String::new(),
            has_exited: false,
        }
    }

    /// An error about a program. `details`: lines below the report, each after a line break.
    /// `has_exited`: whether the program exited by itself, and so has printed its own message.
    pub fn of_program(
        report: impl Into<String>,
        status: u8,
        details: String,
        has_exited: bool,
    ) -> Self {
        StepFailed {
            report: report.into(),
            status,
            details,
            has_exited,
        }
    }

    /// Returns the same error with more lines of details.
    pub fn with_details(&self, lines: &str) -> Self {
        StepFailed {
            details: format!("{}\n  {lines}", self.details),
            ..self.clone()
        }
    }

    /// Returns the failed step that an I/O error wraps. A write that a signal stops fails with such
    /// an error.
    pub fn of(error: &io::Error) -> Option<&StepFailed> {
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
pub struct Silent {
    /// The exit status of offld.
    pub status: u8,
}

impl fmt::Display for Silent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "exit status {}", self.status)
    }
}

impl std::error::Error for Silent {}

/// Returns the exit status for an error: that of the failed step or of [`Silent`], else 1.
pub fn exit_status(error: &anyhow::Error) -> u8 {
    let of_step = step_failed(error).map(|step| step.status);
    of_step
        .or(error.downcast_ref::<Silent>().map(|silent| silent.status))
        .unwrap_or(1)
}

/// Returns the failed step, if one caused `error`.
pub fn step_failed(error: &anyhow::Error) -> Option<&StepFailed> {
    error.chain().find_map(|cause| match cause.downcast_ref() {
        Some(Error::StepFailed(step)) => Some(step),
        _ => cause.downcast_ref(),
    })
}

/// Returns the system's text for an error, without the number that Rust appends.
pub fn strerror(error: &io::Error) -> String {
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
pub fn chain(error: &anyhow::Error) -> String {
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

// The error type of the library's public functions, and the conversion of internal errors into it.

/// An error of the library. `Display` prints the whole message: the operation, the file, member and
/// section, and the cause.
#[derive(Debug)]
pub enum Error {
    /// Bytes that break a format.
    #[non_exhaustive]
    Malformed {
        /// The location of the bytes, as far as it is known: `libx.a(b.o): .llvm.offloading`; else
        /// empty.
        place: String,
        /// The error as a lowercase fragment.
        what: String,
        /// The offset of the error in `place`, in bytes, if the format's reader reports it.
        offset: Option<u64>,
    },
    /// A program that a step ran has failed, or a signal ended the step.
    StepFailed(StepFailed),
    /// The system could not open, read or write a file.
    #[non_exhaustive]
    Io {
        /// The file, if it is known separately from the message.
        path: Option<PathBuf>,
        /// The whole message.
        message: String,
        /// The system's error.
        error: io::Error,
    },
    /// An invalid command line or request, independent of the contents of files.
    #[non_exhaustive]
    Usage {
        /// The message.
        message: String,
    },
    /// Any other error: something is unsupported or missing.
    #[non_exhaustive]
    Other {
        /// The message with its causes, outermost first.
        message: String,
    },
}

impl Error {
    /// An invalid request.
    pub fn usage(message: impl Into<String>) -> Error {
        Error::Usage {
            message: message.into(),
        }
    }

    /// An error without a more specific variant.
    pub(crate) fn other(message: impl Into<String>) -> Error {
        Error::Other {
            message: message.into(),
        }
    }

    /// Converts an internal error. A typed cause determines the variant: a failed step, a format
    /// error, or a system error.
    pub fn of(error: anyhow::Error) -> Error {
        let message = chain(&error);
        let mut contexts = error.chain();
        contexts.next_back();
        let contexts = joined(contexts);
        let error = match error.downcast::<Error>() {
            Ok(own) => return own.within(contexts, message),
            Err(error) => error,
        };
        if let Some(step) = step_failed(&error) {
            return Error::StepFailed(StepFailed::new(message, step.status));
        }
        let as_fault = |cause: &(dyn std::error::Error + 'static)| {
            cause
                .downcast_ref::<Malformed>()
                .copied()
                .or(cause.downcast_ref().and_then(Malformed::of))
        };
        if let Some(fault) = error.chain().find_map(as_fault) {
            return Error::from(fault).within(contexts, message);
        }
        if let Some(what) = error.downcast_ref::<object::read::Error>() {
            return Error::Malformed {
                place: contexts,
                what: what.to_string(),
                offset: None,
            };
        }
        let error = match error.downcast::<FileError>() {
            Ok(FileError { path, error }) => {
                return Error::Io {
                    path: Some(path),
                    message,
                    error,
                };
            }
            Err(error) => error,
        };
        match error.downcast::<io::Error>() {
            Ok(error) => Error::Io {
                path: None,
                message,
                error,
            },
            Err(_) => Error::Other { message },
        }
    }

    /// Converts the error of a format's reader. The bytes are to blame, so the result is always
    /// `Malformed`.
    pub(crate) fn malformed(error: anyhow::Error) -> Error {
        match Error::of(error) {
            malformed @ Error::Malformed { .. } => malformed,
            other => Error::Malformed {
                place: String::new(),
                what: other.to_string(),
                offset: None,
            },
        }
    }

    /// Converts the error of a command-line parser. Unless a more specific variant applies, the
    /// command line is invalid.
    pub fn in_line(error: anyhow::Error) -> Error {
        match Error::of(error) {
            Error::Other { message } => Error::Usage { message },
            other => other,
        }
    }

    /// Adds the contexts of callers to the error. `message`: the whole message, contexts included.
    fn within(self, mut contexts: String, message: String) -> Error {
        match self {
            Error::Malformed {
                place,
                what,
                offset,
            } => {
                if !contexts.is_empty() && !place.is_empty() {
                    contexts.push_str(": ");
                }
                Error::Malformed {
                    place: contexts + &place,
                    what,
                    offset,
                }
            }
            Error::StepFailed(step) => Error::StepFailed(StepFailed::new(message, step.status)),
            Error::Io { path, error, .. } => Error::Io {
                path,
                message,
                error,
            },
            Error::Usage { .. } => Error::Usage { message },
            Error::Other { .. } => Error::Other { message },
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Malformed {
                place,
                what,
                offset,
            } => match offset {
                Some(offset) => write!(f, "{place}+{offset:#x}: {what}"),
                None if place.is_empty() => f.write_str(what),
                None => write!(f, "{place}: {what}"),
            },
            Error::StepFailed(step) => step.fmt(f),
            Error::Io { message, .. } | Error::Usage { message } | Error::Other { message } => {
                f.write_str(message)
            }
        }
    }
}

// The message already contains the causes. `source` would repeat them.
impl std::error::Error for Error {}

impl From<Malformed> for Error {
    fn from(fault: Malformed) -> Self {
        Error::Malformed {
            place: String::new(),
            what: fault.what.to_owned(),
            offset: Some(fault.at),
        }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        if let Some(fault) = Malformed::of(&error) {
            return fault.into();
        }
        match StepFailed::of(&error) {
            Some(step) => Error::StepFailed(StepFailed::new(step.to_string(), step.status)),
            None => Error::Io {
                path: None,
                message: error.to_string(),
                error,
            },
        }
    }
}

/// The system's error for opening, reading or writing a file.
#[derive(Debug)]
pub struct FileError {
    path: PathBuf,
    error: io::Error,
}

impl FileError {
    /// Attaches `path` to a copy of `error`.
    pub fn new(path: PathBuf, error: &io::Error) -> Self {
        let copy = || io::Error::new(error.kind(), error.to_string());
        FileError {
            path,
            error: error
                .raw_os_error()
                .map_or_else(copy, io::Error::from_raw_os_error),
        }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}': {}", self.path.display(), strerror(&self.error))
    }
}

impl std::error::Error for FileError {}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};
    use std::path::Path;

    fn converted<T>(result: Result<T, impl Into<anyhow::Error>>) -> (String, Error) {
        let error = result.map_err(Into::into).err().expect("an error");
        (chain(&error), Error::of(error))
    }

    #[test]
    fn typed_causes_determine_the_variant_and_messages_are_unchanged() {
        let fault: Result<(), _> = Err(Malformed::new("size past the end", 32));
        let (message, error) = converted(fault.context(".llvm.offloading").context("a.o"));
        assert_eq!(message, "a.o: .llvm.offloading+0x20: size past the end");
        assert_eq!(error.to_string(), message);
        assert!(
            matches!(error, Error::Malformed { place, offset: Some(32), .. } if place == "a.o: .llvm.offloading")
        );

        let step = StepFailed::new("the host link failed", 3).with_details("inputs: a.o");
        let (_, error) = converted::<()>(Err(anyhow!(step).context("x")));
        assert!(
            matches!(error, Error::StepFailed(StepFailed { report, status: 3, .. }) if report == "x: the host link failed\n  inputs: a.o")
        );

        let missing = std::fs::read("/nonexistent/x")
            .map_err(|error| FileError::new("/nonexistent/x".into(), &error));
        let (message, error) = converted(missing);
        assert_eq!(message, "'/nonexistent/x': No such file or directory");
        let Error::Io { path, error, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!(
            (path.as_deref(), error.kind()),
            (Some(Path::new("/nonexistent/x")), io::ErrorKind::NotFound)
        );

        let (_, error) = converted::<()>(Err(anyhow!("no").context("outer")));
        assert!(matches!(error, Error::Other { message } if message == "outer: no"));
    }

    #[test]
    fn library_errors_survive_added_context() {
        let reader: Result<(), Error> = Err(Malformed::new("cut short", 4).into());
        let (message, error) = converted(reader.context("its kernels").context("a.o"));
        assert_eq!(message, "a.o: its kernels+0x4: cut short");
        assert_eq!(error.to_string(), message);
        let stopped: Error = io::Error::other(StepFailed::new("stopped", 130)).into();
        let error = anyhow::Error::from(stopped).context("x");
        assert_eq!(exit_status(&error), 130);
        let of_bytes = Error::malformed(anyhow!("an odd note").context("damaged"));
        assert!(
            matches!(of_bytes, Error::Malformed { what, offset: None, .. } if what == "damaged: an odd note")
        );
    }

    #[test]
    fn messages_of_the_system_lose_their_numbers() {
        assert_eq!(
            without_numbers("a: No such file (os error 2): b"),
            "a: No such file: b"
        );
        assert_eq!(without_numbers("a (os error x) b"), "a (os error x) b");
    }

    #[test]
    fn an_error_can_be_sent_to_another_thread() {
        fn sent<T: Send + Sync + std::error::Error + 'static>() {}
        sent::<Error>();
    }
}
