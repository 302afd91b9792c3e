//! Messages on stderr: their format and their colours. Callers decide whether a message is printed.

use std::ffi::OsString;
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::Path;
use std::sync::{Mutex, OnceLock};

use anyhow::{Context, Result};
use serde::Serialize;

use super::posix_shell::command_line;
use super::terminal::{ColourChoice, Style};
use crate::threads::lock;
use offload_formats::model::{printable, printable_lines};

/// Prints messages, each beginning with the name of the tool.
pub struct Shell {
    name: String,
    /// Whether it writes to the process's stderr, which may have colours.
    is_stderr: bool,
    colour: OnceLock<ColourChoice>,
    terminal: bool,
    err: Mutex<Box<dyn Write + Send>>,
    sink: Option<MessageSink>,
}

/// Receives messages instead of stderr: the label (empty for [`Shell::line`]) and the text.
type MessageSink = Box<dyn Fn(&str, &str) + Send + Sync>;

impl std::fmt::Debug for Shell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Shell")
            .field("name", &self.name)
            .finish_non_exhaustive()
    }
}

impl Shell {
    /// A shell on the process's stderr. `name` begins every message (LLVM's tools print `argv[0]`
    /// as typed).
    pub fn stderr(name: &str) -> Self {
        let terminal = std::io::stderr().is_terminal();
        Shell {
            is_stderr: true,
            terminal,
            ..Shell::from_write(name, Box::new(std::io::stderr()))
        }
    }

    /// A shell that writes to `err`, without colour: for tests and library users.
    pub fn from_write(name: &str, err: Box<dyn Write + Send>) -> Self {
        let (name, colour) = (name.to_owned(), OnceLock::new());
        Shell {
            name,
            is_stderr: false,
            colour,
            terminal: false,
            err: Mutex::new(err),
            sink: None,
        }
    }

    /// Redirects our own messages to `sink`. Output of tools is still written.
    pub fn with_messages_to(self, sink: impl Fn(&str, &str) + Send + Sync + 'static) -> Self {
        Shell {
            sink: Some(Box::new(sink)),
            ..self
        }
    }

    /// The name that begins every message.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Sets, once, whether messages and reports have colours. Until then, that depends on the
    /// terminal.
    pub fn choose_colour(&self, choice: ColourChoice) {
        let _ = self.colour.set(choice);
    }

    fn colour_choice(&self) -> ColourChoice {
        self.colour.get().copied().unwrap_or_default()
    }

    /// Returns the style of text on stdout.
    pub fn stdout_style(&self) -> Style {
        Style::of_stdout(self.colour_choice())
    }

    /// Whether stderr is a terminal.
    pub fn is_terminal(&self) -> bool {
        self.terminal
    }

    /// Prints `name: error: text`.
    pub fn error(&self, text: &str) {
        self.labelled("error", "1;31", text);
    }

    /// Prints `name: warning: text`.
    pub fn warn(&self, text: &str) {
        self.labelled("warning", "1;35", text);
    }

    /// Prints `name: note: text`.
    pub fn note(&self, text: &str) {
        self.labelled("note", "1;36", text);
    }

    /// Prints output of a tool, unchanged and not necessarily UTF-8.
    pub fn bytes(&self, bytes: &[u8]) {
        let mut err = lock(&self.err);
        let _ = err.write_all(bytes);
    }

    /// Prints output of a tool, unchanged.
    pub fn text(&self, text: &str) {
        if !text.is_empty() {
            self.write(format_args!("{text}"));
        }
    }

    /// Prints a line of output that the user requested (`--wrapper-why`, printed modules), without
    /// a label.
    pub fn line(&self, text: &str) {
        if let Some(sink) = &self.sink {
            return sink("", text);
        }
        self.write(format_args!("{}\n", printable_lines(text)));
    }

    /// Prints a command that is about to run, or that would run. Format: one space, the program in
    /// double quotes as LLVM's wrapper prints it, then the arguments. All are quoted so that the
    /// line can be pasted into a shell (docs/spec/faults.md F11).
    pub fn command(&self, program: &Path, args: &[OsString]) {
        self.line(&format!(" {}", command_line(program, args)));
    }

    /// Prints the command with which another tool would do work that this process does itself. The
    /// format is that of [`Shell::command`], with a comment that marks it.
    pub fn command_in_process(&self, program: &Path, args: &[OsString]) {
        self.line(&format!(" {} # in process", command_line(program, args)));
    }

    fn labelled(&self, label: &str, colour: &str, text: &str) {
        if let Some(sink) = &self.sink {
            return sink(label, text);
        }
        let (name, text) = (printable(&self.name), printable_lines(text));
        if self.is_stderr && self.colour_choice().shows(self.terminal) {
            self.write(format_args!(
                "{name}: \x1b[{colour}m{label}:\x1b[0m {text}\n"
            ));
        } else {
            self.write(format_args!("{name}: {label}: {text}\n"));
        }
    }

    fn write(&self, text: std::fmt::Arguments<'_>) {
        let mut err = lock(&self.err);
        // A closed stderr must not make a link fail.
        let _ = err.write_fmt(text);
        let _ = err.flush();
    }
}

/// Writes a report to stdout.
///
/// # Errors
/// Writing fails. A closed pipe is not an error: its reader (`head`, for example) needs no more.
pub fn print(text: &str) -> Result<()> {
    let mut stdout = std::io::stdout();
    match stdout
        .write_all(text.as_bytes())
        .and_then(|()| stdout.flush())
    {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.context("cannot write to stdout"),
    }
}

/// A report as JSON.
pub fn json(report: &impl Serialize) -> Result<String> {
    let text = serde_json::to_string_pretty(report).context("cannot write the report as JSON")?;
    Ok(text + "\n")
}
