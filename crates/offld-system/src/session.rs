//! The [`Session`]: the objects that a process uses to affect its environment. These objects run
//! commands, manage temporary files, print messages, handle signals and record the time trace.
//! `cli/` creates one session and passes it to every stage of a link.

use std::path::PathBuf;
use std::sync::Arc;

use crate::launcher::Launcher;
use crate::run::{Dry, Real, Run};
use crate::scratch::{Scratch, temp_folder};
use crate::shell::Shell;
use crate::signals::Signals;
use crate::trace::Trace;

/// The objects that one process uses to affect its environment.
pub struct Session {
    /// Prints messages.
    pub shell: Arc<Shell>,
    /// Runs other programs.
    pub runner: Box<dyn Run>,
    /// Names temporary files.
    pub scratch: Arc<Scratch>,
    /// Handles signals.
    pub signals: Arc<Signals>,
    /// The time trace. Records nothing unless the user requested a time trace.
    pub trace: Trace,
    /// Runs device links on other machines. `None`: all links run on this machine.
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
    /// Whether to print commands instead of running them.
    pub dry_run: bool,
    /// Whether to print each command before running it.
    pub verbose: bool,
    /// Whether to leave temporary files in the directory `kept_in`.
    pub save_temps: bool,
    /// Directory for temporary files if `save_temps` is set. An empty path means the current
    /// directory.
    pub kept_in: PathBuf,
    /// Output file of the time trace. `None`: no time trace is recorded.
    pub time_trace: Option<PathBuf>,
    /// Length of the shortest span in the time trace, in microseconds. Shorter spans are omitted.
    pub time_trace_granularity: u32,
    /// Whether offld is a library in another program's process. In such a process, offld installs
    /// no signal handlers and never replaces the process with another program.
    pub embedded: bool,
    /// Directory for temporary files if `save_temps` is not set. `None`: the system's directory.
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

    /// Creates a session with default options, for commands without session options.
    pub fn of(shell: &Arc<Shell>) -> Self {
        Session::new(Arc::clone(shell), SessionOptions::default())
    }

    /// If there is a temporary directory, prints a note that the printed commands refer to removed
    /// temporary files.
    pub fn tell_of_removed_files(&self) {
        if let Some(folder) = self.scratch.folder() {
            let folder = folder.display();
            self.shell.note(&format!(
                "these commands cannot be run: the files in `{folder}` are removed; pass --save-temps to save them"
            ));
        }
    }
}
