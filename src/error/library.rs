//! The error type of the library's public functions, and the conversion of internal errors into it.

use std::path::PathBuf;
use std::{fmt, io};

use super::{Malformed, StepFailed, chain, joined, step_failed};

/// An error of the library. `Display` prints the whole message: the operation, the file, member and
/// section, and the cause.
#[derive(Debug)]
#[non_exhaustive]
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
    pub(crate) fn usage(message: impl Into<String>) -> Error {
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
    pub(crate) fn of(error: anyhow::Error) -> Error {
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
    pub(crate) fn in_line(error: anyhow::Error) -> Error {
        match Error::of(error) {
            Error::Other { message } => Error::Usage { message },
            other => other,
        }
    }

    /// Returns the same error with the contexts of callers. `message`: both together.
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
pub(crate) struct FileError {
    path: PathBuf,
    error: io::Error,
}

impl FileError {
    /// Attaches `path` to a copy of `error`.
    pub(crate) fn new(path: PathBuf, error: &io::Error) -> Self {
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
        write!(
            f,
            "'{}': {}",
            self.path.display(),
            super::strerror(&self.error)
        )
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
        assert_eq!(super::super::exit_status(&error), 130);
        let of_bytes = Error::malformed(anyhow!("an odd note").context("damaged"));
        assert!(
            matches!(of_bytes, Error::Malformed { what, offset: None, .. } if what == "damaged: an odd note")
        );
    }

    #[test]
    fn an_error_can_be_sent_to_another_thread() {
        fn sent<T: Send + Sync + std::error::Error + 'static>() {}
        sent::<Error>();
    }
}
