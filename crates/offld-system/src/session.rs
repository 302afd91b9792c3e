//! The [`Session`]: the objects through which a link affects the outside (command runner, temporary
//! directory, messages, signals, time trace). It is created once in `cli/` and passed to every
//! stage.

use std::path::PathBuf;
use std::sync::Arc;

use crate::launcher::Launcher;
use crate::run::{Dry, Real, Run};
use crate::scratch::{Scratch, temp_folder};
use crate::shell::Shell;
use crate::signals::Signals;
use crate::trace::Trace;

/// The objects through which one process affects the outside.
pub struct Session {
    /// Prints messages.
    pub shell: Arc<Shell>,
    /// Runs other programs.
    pub runner: Box<dyn Run>,
    /// Names temporary files.
    pub scratch: Arc<Scratch>,
    /// Handles signals.
    pub signals: Arc<Signals>,
    /// The time trace, which records nothing unless one was requested.
    pub trace: Trace,
    /// Runs device links on other machines, if one is set.
    pub launcher: Option<Launcher>,
}

impl std::fmt::Debug for Session {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Session")
            .field("scratch", &self.scratch)
            .finish_non_exhaustive()
    }
}

/// Options of a session.
#[derive(Debug, Clone, Default)]
pub struct SessionOptions {
    /// Print commands instead of running them.
    pub dry_run: bool,
    /// Print commands before running them.
    pub verbose: bool,
    /// Leave temporary files in `kept_in`.
    pub save_temps: bool,
    /// Directory for temporary files that stay; an empty path is the current directory.
    pub kept_in: PathBuf,
    /// File for a time trace.
    pub time_trace: Option<PathBuf>,
    /// Shortest span of a trace, in microseconds.
    pub time_trace_granularity: u32,
    /// The process belongs to a caller of the library: it gets no signal handlers, and is not
    /// replaced by another program.
    pub embedded: bool,
    /// Directory for temporary files, if it is not the system's.
    pub temp_folder: Option<PathBuf>,
}

impl Session {
    /// Creates the session of this process.
    pub fn new(shell: Arc<Shell>, options: SessionOptions) -> Self {
        let temporary = || options.temp_folder.clone().unwrap_or_else(temp_folder);
        let folder = if options.save_temps {
            options.kept_in.clone()
        } else {
            temporary()
        };
        let scratch = Arc::new(Scratch::new(folder, options.save_temps));
        let signals = Arc::new(Signals::default());
        if options.embedded {
            signals.leave_alone();
        }
        let runner: Box<dyn Run> = if options.dry_run {
            Box::new(Dry {
                shell: Arc::clone(&shell),
            })
        } else {
            let (shell, scratch, signals) = (
                Arc::clone(&shell),
                Arc::clone(&scratch),
                Arc::clone(&signals),
            );
            Box::new(Real {
                shell,
                verbose: options.verbose,
                embedded: options.embedded,
                scratch,
                signals,
            })
        };
        let trace = Trace::new(
            options.time_trace,
            options.time_trace_granularity,
            shell.name(),
        );
        Session {
            shell,
            runner,
            scratch,
            signals,
            trace,
            launcher: None,
        }
    }

    /// Creates a session with default options, for commands that have no session options.
    pub fn of(shell: &Arc<Shell>) -> Self {
        Session::new(Arc::clone(shell), SessionOptions::default())
    }

    /// Prints a note that the temporary files in the printed commands are gone.
    pub fn tell_of_removed_files(&self) {
        if let Some(folder) = self.scratch.folder() {
            let folder = folder.display();
            self.shell.note(&format!(
                "these commands cannot be run: the files in `{folder}` are removed; pass --save-temps to save them"
            ));
        }
    }
}
