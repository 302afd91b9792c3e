//! The one error type of the library's public functions, and how the errors that are handed on inside the crate become one.

use std::path::PathBuf;
use std::{fmt, io};

use super::{Malformed, StepFailed, chain, step_failed};

/// What went wrong. `Display` gives the whole message: what was done, with which file, member and section, and why it failed.
#[derive(Debug)]
#[non_exhaustive]
pub enum Error {
    /// Bytes that break a format.
    #[non_exhaustive]
    Malformed {
        /// Where the bytes are, as far as it is known: `libx.a(b.o): .llvm.offloading`; else empty.
        place: String,
        /// What is wrong with them, a lowercase fragment.
        what: String,
        /// How far into `place` the fault is, in bytes, where the reader of the format tells it.
        offset: Option<u64>,
    },
    /// A program that was run for a step ended with an error, or a signal ended the work.
    StepFailed(StepFailed),
    /// The system did not let a file be opened, read or written.
    #[non_exhaustive]
    Io {
        /// The file, where it is known apart from the message.
        path: Option<PathBuf>,
        /// The whole message.
        message: String,
        /// What the system said.
        error: io::Error,
    },
    /// A command line or a request that is wrong by itself, whatever is in the files.
    #[non_exhaustive]
    Usage {
        /// What is wrong with it.
        message: String,
    },
    /// Anything else: something that is not supported, or that is not there.
    #[non_exhaustive]
    Other {
        /// The message with its causes, outermost first.
        message: String,
    },
}

impl Error {
    /// A request that is wrong by itself.
    pub(crate) fn usage(message: impl Into<String>) -> Error {
        Error::Usage { message: message.into() }
    }

    /// An error of no kind of its own.
    pub(crate) fn other(message: impl Into<String>) -> Error {
        Error::Other { message: message.into() }
    }

    /// An error from inside the crate. What is typed among its causes stays so: the step that failed, the fault in the bytes, the
    /// system's error.
    pub(crate) fn of(error: anyhow::Error) -> Error {
        let message = chain(&error);
        let error = match error.downcast::<Error>() {
            Ok(own) => return own.with_message(message),
            Err(error) => error,
        };
        if let Some(step) = step_failed(&error) {
            return Error::StepFailed(StepFailed { report: message, status: step.status });
        }
        let as_fault = |cause: &(dyn std::error::Error + 'static)| {
            cause.downcast_ref::<Malformed>().copied().or(cause.downcast_ref().and_then(Malformed::of))
        };
        if let Some(fault) = error.chain().find_map(as_fault) {
            return Error::from(fault).with_message(message);
        }
        if let Some(what) = error.downcast_ref::<object::read::Error>() {
            return Error::Malformed { place: String::new(), what: what.to_string(), offset: None }.with_message(message);
        }
        let error = match error.downcast::<FileError>() {
            Ok(FileError { path, error }) => return Error::Io { path: Some(path), message, error },
            Err(error) => error,
        };
        match error.downcast::<io::Error>() {
            Ok(error) => Error::Io { path: None, message, error },
            Err(_) => Error::Other { message },
        }
    }

    /// An error of a reader of bytes: whatever is wrong, the bytes are.
    pub(crate) fn malformed(error: anyhow::Error) -> Error {
        match Error::of(error) {
            malformed @ Error::Malformed { .. } => malformed,
            other => Error::Malformed { place: String::new(), what: other.to_string(), offset: None },
        }
    }

    /// An error of a reader of command lines: what is not the system's doing is wrong with the line.
    pub(crate) fn in_line(error: anyhow::Error) -> Error {
        match Error::of(error) {
            Error::Other { message } => Error::Usage { message },
            other => other,
        }
    }

    /// The same error, seen from whoever has added to its message.
    fn with_message(self, message: String) -> Error {
        match self {
            Error::Malformed { place, what, offset } => {
                let end = shown(&what, offset);
                let place = message.strip_suffix(&end).map_or(place, |start| start.trim_end_matches(": ").to_owned());
                Error::Malformed { place, what, offset }
            }
            Error::StepFailed(step) => Error::StepFailed(StepFailed { report: message, ..step }),
            Error::Io { path, error, .. } => Error::Io { path, message, error },
            Error::Usage { .. } => Error::Usage { message },
            Error::Other { .. } => Error::Other { message },
        }
    }
}

/// What is wrong with bytes, and where in them.
fn shown(what: &str, offset: Option<u64>) -> String {
    offset.map_or_else(|| what.to_owned(), |offset| format!("+{offset:#x}: {what}"))
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Error::Malformed { place, what, offset } => {
                let between = if offset.is_none() && !place.is_empty() { ": " } else { "" };
                write!(f, "{place}{between}{}", shown(what, *offset))
            }
            Error::StepFailed(step) => step.fmt(f),
            Error::Io { message, .. } | Error::Usage { message } | Error::Other { message } => f.write_str(message),
        }
    }
}

// What caused an error is in its message, so there is no `source` to be told again.
impl std::error::Error for Error {}

impl From<Malformed> for Error {
    fn from(fault: Malformed) -> Self {
        Error::Malformed { place: String::new(), what: fault.what.to_owned(), offset: Some(fault.at) }
    }
}

impl From<io::Error> for Error {
    fn from(error: io::Error) -> Self {
        if let Some(fault) = Malformed::of(&error) {
            return fault.into();
        }
        match error.get_ref().and_then(|inner| inner.downcast_ref::<StepFailed>()) {
            Some(step) => Error::StepFailed(step.clone()),
            None => Error::Io { path: None, message: error.to_string(), error },
        }
    }
}

/// What the system said when a file was opened, read or written.
#[derive(Debug)]
pub(crate) struct FileError {
    path: PathBuf,
    error: io::Error,
}

impl FileError {
    /// `error` of the file at `path`.
    pub(crate) fn new(path: PathBuf, error: &io::Error) -> Self {
        let again = || io::Error::new(error.kind(), error.to_string());
        FileError { path, error: error.raw_os_error().map_or_else(again, io::Error::from_raw_os_error) }
    }
}

impl fmt::Display for FileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "'{}': {}", self.path.display(), super::strerror(&self.error))
    }
}

impl std::error::Error for FileError {}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::{Context, anyhow};
    use std::path::Path;

    fn told<T>(result: Result<T, impl Into<anyhow::Error>>) -> (String, Error) {
        let error = result.map_err(Into::into).err().expect("an error");
        (chain(&error), Error::of(error))
    }

    #[test]
    fn what_is_typed_inside_is_typed_outside_and_the_message_is_the_same() {
        let fault: Result<(), _> = Err(Malformed::new("size past the end", 32));
        let (message, error) = told(fault.context(".llvm.offloading").context("a.o"));
        assert_eq!(message, "a.o: .llvm.offloading+0x20: size past the end");
        assert_eq!(error.to_string(), message);
        assert!(matches!(error, Error::Malformed { place, offset: Some(32), .. } if place == "a.o: .llvm.offloading"));

        let step = StepFailed { report: "the host link failed".to_owned(), status: 3 };
        let (_, error) = told::<()>(Err(anyhow!(step).context("x")));
        assert!(matches!(error, Error::StepFailed(StepFailed { report, status: 3 }) if report == "x: the host link failed"));

        let missing = std::fs::read("/nonexistent/x").map_err(|error| FileError::new("/nonexistent/x".into(), &error));
        let (message, error) = told(missing);
        assert_eq!(message, "'/nonexistent/x': No such file or directory");
        let Error::Io { path, error, .. } = error else { panic!("{error:?}") };
        assert_eq!((path.as_deref(), error.kind()), (Some(Path::new("/nonexistent/x")), io::ErrorKind::NotFound));

        let (_, error) = told::<()>(Err(anyhow!("no").context("outer")));
        assert!(matches!(error, Error::Other { message } if message == "outer: no"));
    }

    #[test]
    fn an_error_of_the_library_survives_the_way_through_the_crate() {
        let reader: Result<(), Error> = Err(Malformed::new("cut short", 4).into());
        let (message, error) = told(reader.context("its kernels").context("a.o"));
        assert_eq!(message, "a.o: its kernels+0x4: cut short");
        assert_eq!(error.to_string(), message);
        let stopped: Error = io::Error::other(StepFailed { report: "stopped".to_owned(), status: 130 }).into();
        let error = anyhow::Error::from(stopped).context("x");
        assert_eq!(super::super::exit_status(&error), 130);
        let of_bytes = Error::malformed(anyhow!("an odd note").context("damaged"));
        assert!(matches!(of_bytes, Error::Malformed { what, offset: None, .. } if what == "damaged: an odd note"));
    }

    #[test]
    fn an_error_can_be_sent_to_another_thread() {
        fn sent<T: Send + Sync + std::error::Error + 'static>() {}
        sent::<Error>();
    }
}
