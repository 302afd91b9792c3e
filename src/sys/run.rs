//! Running other programs: the only file that starts processes. A command is data (`Cmd`); a runner runs it (`Real`), shows it
//! (`Dry`), or fails on purpose (in tests). Also the report of a step that failed, and what a signal does to running children.

#![expect(clippy::disallowed_types, reason = "this is the file that starts processes")]

use std::ffi::{OsStr, OsString};
use std::io::{ErrorKind, Read, Write};
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustix::process::Signal;

use crate::args::response::{self, Style};
use crate::error::StepFailed;
use crate::sys::scratch::Scratch;
use crate::sys::service::{Ended, Process, Service};
use crate::sys::shell::{self, Shell};
use crate::sys::signals::Signals;
use crate::sys::trace::Usage;

/// A program to run for one step of a link.
#[derive(Debug, Clone)]
pub struct Cmd {
    /// The step, for the report: `device link for amdgcn-amd-amdhsa (gfx90a)`.
    pub step: String,
    /// The program; run without a search of `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// How it reads a response file, should its arguments need one.
    pub quoting: Style,
    /// What the step is made of, for the report: `a.o`, `libb.a(c.o)`.
    pub inputs: Vec<String>,
    /// A temporary file the step must write: a step that ends well without it has failed (docs/spec/faults.md F27).
    pub output: Option<PathBuf>,
}

/// A linker that has been started and waits for its words. Dropped without having got any, it is gone.
#[derive(Debug)]
pub struct Waiting {
    child: Option<Child>,
    program: PathBuf,
    signals: Arc<Signals>,
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Before its pipe is closed, which it would take for a line without inputs, and complain.
            let _ = child.kill();
            let _ = self.signals.wait(&mut child);
        }
    }
}

/// Something that runs commands.
pub trait Run: Send + Sync {
    /// Runs `cmd` to its end; an error unless it ends with status 0. Returns what it used.
    fn run(&self, cmd: &Cmd) -> Result<Usage>;

    /// The same, and what it wrote to stderr, which has been passed on.
    fn run_heard(&self, cmd: &Cmd) -> Result<(Usage, Vec<u8>)> {
        self.run(cmd).map(|usage| (usage, Vec::new()))
    }

    /// Starts ld.lld at `program` ahead of its time: its loading, which is most of a small link, goes on beside other work, and then it
    /// waits for its words. `first` must have its `-m`. `heard`: for [`Run::run_waiting`] to tell what it says. None where it cannot be
    /// done: then it is started when it is needed.
    fn prepare(&self, _program: &Path, _first: &[OsString], _heard: bool) -> Option<Waiting> {
        None
    }

    /// The same as [`Run::run_heard`] by the process that waits, if there is one. Without `heard` at its start nothing is heard.
    fn run_waiting(&self, waiting: Option<Waiting>, cmd: &Cmd) -> Result<(Usage, Vec<u8>)> {
        drop(waiting);
        self.run(cmd).map(|usage| (usage, Vec::new()))
    }

    /// Runs `cmd` in place of this process where the system can; else like `run`. Nothing may be left to clean up.
    fn replace(&self, cmd: &Cmd) -> Result<()>;

    /// The program found for a job; where commands are only shown, one that is missing is shown by its bare name.
    fn program(&self, found: Result<PathBuf>, _name: &str) -> Result<PathBuf> {
        found
    }

    /// Whether commands that could run side by side are given one at a time, in order: where the order is seen.
    fn in_order(&self) -> bool {
        false
    }

    /// Starts the program of `cmd` to answer requests. Asked for real in a dry run, too: what it answers is not an output.
    fn serve(&self, cmd: &Cmd, signals: &Arc<Signals>) -> Result<Box<dyn Service>> {
        start_service(cmd, signals)
    }

    /// A file of our own: `work` writes it, unless commands are only shown, to whom an empty one is enough.
    fn make(&self, file: &Path, work: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        work(file)
    }

    /// A step of our own on a file that a command has written: done, unless commands are only shown.
    fn edit(&self, file: &Path, work: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        work(file)
    }
}

/// Runs for real.
pub(crate) struct Real {
    /// Where commands are shown when `verbose`.
    pub shell: Arc<Shell>,
    /// Show each command before it runs.
    pub verbose: bool,
    /// Where response files go.
    pub scratch: Arc<Scratch>,
    /// Who must hear of a child while it runs.
    pub signals: Arc<Signals>,
}

impl Real {
    fn command(&self, cmd: &Cmd) -> Result<Command> {
        if self.verbose {
            self.shell.command(&cmd.program, &cmd.args);
        }
        let mut command = Command::new(&cmd.program);
        if response::needs_spill(&cmd.args) {
            let file = self.scratch.path("offld.response", "txt")?;
            std::fs::write(&file, response::spill(&cmd.args, cmd.quoting))
                .with_context(|| format!("cannot write the response file `{}`", file.display()))?;
            let mut at_file = OsString::from("@");
            at_file.push(&file);
            command.arg(at_file);
        } else {
            command.args(&cmd.args);
        }
        Ok(command)
    }

    /// Runs `cmd`; with `heard`, that gets what it wrote to stderr, besides stderr itself.
    fn run_to_end(&self, cmd: &Cmd, heard: Option<&mut Vec<u8>>) -> Result<Usage> {
        // From here on there is a child to tell of signals, and perhaps a response file.
        self.begin(cmd)?;
        let mut command = self.command(cmd)?;
        self.set_up(&mut command);
        if heard.is_some() {
            command.stderr(Stdio::piped());
        }
        let child = command.spawn().map_err(|error| cannot_start(cmd, &error))?;
        self.signals.enter(child.id());
        self.end(child, cmd, heard)
    }

    fn begin(&self, cmd: &Cmd) -> Result<()> {
        self.signals.watch();
        self.signals.check()?;
        if let Some(output) = &cmd.output {
            // With --save-temps there may be one of an earlier link, which must not be taken for this one's.
            let _ = std::fs::remove_file(output);
        }
        Ok(())
    }

    fn set_up(&self, command: &mut Command) {
        if let Some(folder) = self.scratch.folder() {
            // A step works in our folder: what its tools leave behind, crashed and killed ones above all, goes with it.
            command.env("TMPDIR", folder);
        }
        // A group of its own, so that a signal reaches what the child started, too.
        command.process_group(0);
    }

    fn end(&self, mut child: Child, cmd: &Cmd, heard: Option<&mut Vec<u8>>) -> Result<Usage> {
        if let (Some(heard), Some(said)) = (heard, child.stderr.take()) {
            self.pass_on(said, heard);
        }
        let status = self.signals.wait(&mut child);
        self.signals.check()?;
        let (status, usage) = status.with_context(|| format!("cannot wait for `{}`", cmd.program.display()))?;
        if !status.success() {
            return Err(failed(cmd, status).into());
        }
        match &cmd.output {
            Some(output) if std::fs::metadata(output).map_or(0, |meta| meta.len()) == 0 => bail!(
                "{} failed: `{}` ended well but wrote nothing to its output\n  inputs: {}\n  command: {}",
                cmd.step,
                cmd.program.display(),
                cmd.inputs.join(", "),
                shell::command_line(&cmd.program, &cmd.args)
            ),
            _ => Ok(usage),
        }
    }

    /// What a child says, at the moment when it says it, and for us.
    fn pass_on(&self, mut said: impl Read, heard: &mut Vec<u8>) {
        let mut buffer = [0; 4096];
        loop {
            match said.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    heard.extend_from_slice(&buffer[..count]);
                    self.shell.bytes(&buffer[..count]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // Its end shows in its status.
                Err(_) => return,
            }
        }
    }
}

impl Run for Real {
    fn run(&self, cmd: &Cmd) -> Result<Usage> {
        self.run_to_end(cmd, None)
    }

    fn run_heard(&self, cmd: &Cmd) -> Result<(Usage, Vec<u8>)> {
        let mut heard = Vec::new();
        Ok((self.run_to_end(cmd, Some(&mut heard))?, heard))
    }

    fn prepare(&self, program: &Path, first: &[OsString], heard: bool) -> Option<Waiting> {
        // A response file that is a pipe: whoever reads it waits until it is written. It is read once where the line has an `-m`.
        const WORDS: &str = "/dev/stdin";
        if !first.iter().any(|word| word == "-m") || !Path::new(WORDS).exists() || self.signals.check().is_err() {
            return None;
        }
        self.signals.watch();
        // There is a folder of ours for it then.
        self.scratch.path("offld.words", "txt").ok()?;
        let mut command = Command::new(program);
        command.args(first).arg(format!("@{WORDS}")).stdin(Stdio::piped());
        if heard {
            command.stderr(Stdio::piped());
        }
        self.set_up(&mut command);
        let child = command.spawn().ok()?;
        self.signals.enter(child.id());
        Some(Waiting { child: Some(child), program: program.to_owned(), signals: Arc::clone(&self.signals) })
    }

    fn run_waiting(&self, waiting: Option<Waiting>, cmd: &Cmd) -> Result<(Usage, Vec<u8>)> {
        let mut heard = Vec::new();
        let child = waiting.filter(|waiting| waiting.program == cmd.program).and_then(|mut waiting| waiting.child.take());
        let Some(mut child) = child else {
            return self.run(cmd).map(|usage| (usage, heard));
        };
        if let Err(stopped) = self.begin(cmd) {
            drop(Waiting { child: Some(child), program: cmd.program.clone(), signals: Arc::clone(&self.signals) });
            return Err(stopped);
        }
        if self.verbose {
            self.shell.command(&cmd.program, &cmd.args);
        }
        if let Some(mut words) = child.stdin.take() {
            // If it is dead already, its status says so.
            let _ = words.write_all(&response::spill(&cmd.args, cmd.quoting));
        }
        Ok((self.end(child, cmd, Some(&mut heard))?, heard))
    }

    fn replace(&self, cmd: &Cmd) -> Result<()> {
        if response::needs_spill(&cmd.args) {
            return self.run(cmd).map(drop);
        }
        let error = self.command(cmd)?.exec();
        Err(cannot_start(cmd, &error).into())
    }
}

/// Shows commands and makes the empty files that later steps want to find.
pub(crate) struct Dry {
    /// Where commands are shown.
    pub shell: Arc<Shell>,
}

impl Run for Dry {
    fn run(&self, cmd: &Cmd) -> Result<Usage> {
        self.shell.command(&cmd.program, &cmd.args);
        if let Some(output) = &cmd.output {
            std::fs::write(output, b"").with_context(|| format!("cannot write `{}`", output.display()))?;
        }
        Ok(Usage::default())
    }

    fn replace(&self, cmd: &Cmd) -> Result<()> {
        self.run(cmd).map(drop)
    }

    fn program(&self, found: Result<PathBuf>, name: &str) -> Result<PathBuf> {
        Ok(found.unwrap_or_else(|_| name.into()))
    }

    fn in_order(&self) -> bool {
        true
    }

    fn make(&self, file: &Path, _work: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        std::fs::write(file, b"").with_context(|| format!("cannot write `{}`", file.display()))
    }

    fn edit(&self, _file: &Path, _work: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        Ok(())
    }
}

/// The stdout of a question to a tool (`clang -dumpversion`), or nothing when it cannot answer. Asked for real in a dry run, too.
pub(crate) fn answer(program: &Path, args: &[&str]) -> Option<String> {
    let output = Command::new(program).args(args).stdin(Stdio::null()).stderr(Stdio::null()).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// What a program answers to a question.
pub(crate) struct Answer {
    /// Whether it ended with status 0.
    pub success: bool,
    /// What it wrote to stderr.
    pub stderr: Vec<u8>,
}

/// Asks `program` something, with `variables` in its environment.
pub(crate) fn ask(program: &Path, args: &[OsString], variables: &[(&str, &str)]) -> std::io::Result<Answer> {
    let variables = variables.iter().copied();
    let output = Command::new(program).args(args).envs(variables).stdin(Stdio::null()).output()?;
    Ok(Answer { success: output.status.success(), stderr: output.stderr })
}

/// Starts the program of `cmd` with pipes for its three streams, in a process group of its own.
fn start_service(cmd: &Cmd, signals: &Arc<Signals>) -> Result<Box<dyn Service>> {
    signals.watch();
    signals.check()?;
    let mut command = Command::new(&cmd.program);
    command.args(&cmd.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = command.spawn().map_err(|error| cannot_start(cmd, &error))?;
    signals.enter(child.id());
    let process = Process::new(child, Arc::clone(signals)).map_err(|error| cannot_start(cmd, &error))?;
    Ok(Box::new(process))
}

/// The report of a service that gave no answer to what `cmd` is for.
pub(crate) fn no_answer(cmd: &Cmd, ended: &Ended) -> StepFailed {
    let name = cmd.program.file_name().unwrap_or(OsStr::new("")).to_string_lossy();
    let said = if ended.said.is_empty() { String::new() } else { format!("\n  it said: {}", ended.said) };
    StepFailed { report: format!("{} failed: '{name}' {}{}{said}", cmd.step, ended.how, details(cmd)), status: ended.status }
}

fn cannot_start(cmd: &Cmd, error: &std::io::Error) -> StepFailed {
    let report = format!("{} failed: cannot run `{}`: {error}{}", cmd.step, cmd.program.display(), details(cmd));
    StepFailed { report, status: 1 }
}

fn failed(cmd: &Cmd, status: ExitStatus) -> StepFailed {
    let (how, code) = how_it_ended(status);
    let name = cmd.program.file_name().unwrap_or(OsStr::new("")).to_string_lossy();
    StepFailed { report: format!("{} failed: '{name}' {how}{}", cmd.step, details(cmd)), status: code }
}

/// How a program ended, to follow its name, and the exit status that goes with it.
pub(super) fn how_it_ended(status: ExitStatus) -> (String, u8) {
    match (status.code(), status.signal()) {
        (Some(code), _) => (format!("exited with status {code}"), u8::try_from(code).unwrap_or(1)),
        (None, Some(signal)) => {
            // What a program gets that writes to its output as memory.
            let hint = if signal == Signal::BUS.as_raw() { " (SIGBUS: is the disk of its output full?)" } else { "" };
            (format!("was ended by signal {signal}{hint}"), u8::try_from(128 + signal).unwrap_or(1))
        }
        (None, None) => ("ended without a status".to_owned(), 1),
    }
}

fn details(cmd: &Cmd) -> String {
    let mut text = String::new();
    if !cmd.inputs.is_empty() {
        text.push_str(&format!("\n  inputs: {}", folded(&cmd.inputs)));
    }
    text.push_str(&format!("\n  command: {}", shell::command_line(&cmd.program, &cmd.args)));
    text
}

/// A long list of inputs is named by its first and counted.
fn folded(inputs: &[String]) -> String {
    const SHOWN: usize = 12;
    if inputs.len() <= SHOWN {
        return inputs.join(", ");
    }
    format!("{} and {} more", inputs[..SHOWN].join(", "), inputs.len() - SHOWN)
}
