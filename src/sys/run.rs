//! Runs other programs; no other file starts processes. A command is data (`Cmd`), which a runner runs (`Real`), prints (`Dry`), or
//! lets fail on purpose (in tests). Also the report of a step that failed.

#![expect(clippy::disallowed_types, reason = "this is the file that starts processes")]

mod captured;
mod dry;
mod launched;
mod memory;
mod probe;
mod report;

use std::ffi::OsString;
use std::fs::File;
use std::io::Write;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};

pub(crate) use captured::Said;
pub(crate) use dry::Dry;
pub(in crate::sys) use launched::{Guardian, LauncherProcess, start as start_launcher};
pub(crate) use memory::OutOfMemory;
pub(in crate::sys) use memory::ended_for_it as ended_for_memory;
pub(crate) use probe::Probe;
use report::cannot_start;
pub(crate) use report::no_answer;
pub(in crate::sys) use report::{failure_report, how_it_ended};

use crate::args::response::{self, Style};
use crate::sys::scratch::Scratch;
use crate::sys::service::{Process, Service};
use crate::sys::session;
use crate::sys::shell::{self, Shell};
use crate::sys::signals::Signals;
use crate::sys::threads;
use crate::sys::trace::Usage;

/// A program to run for one step of a link.
#[derive(Debug, Clone)]
pub struct Cmd {
    /// The name of the step, for error reports: `device link for amdgcn-amd-amdhsa (gfx90a)`.
    pub step: String,
    /// The program, as a path that is not searched for on `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub args: Vec<OsString>,
    /// The quoting that it expects in a response file, in case the arguments are too long for a command line.
    pub quoting: Style,
    /// The inputs of the step, for error reports: `a.o`, `libb.a(c.o)`.
    pub inputs: Vec<String>,
    /// A temporary file that the step must write: if it is empty or missing in the end, the step has failed even if the exit status
    /// is 0 (docs/spec/faults.md F27).
    pub output: Option<PathBuf>,
}

/// A program and its arguments that would do what this process does itself.
pub(crate) type Equivalent = (PathBuf, Vec<OsString>);

/// A linker process that has been started early and is waiting to read its arguments. Dropping it before they are sent kills it.
#[derive(Debug)]
pub struct PreloadedLinker {
    child: Option<Child>,
    program: PathBuf,
    signals: Arc<Signals>,
    /// Where its stdout goes, if it is captured.
    stdout: Option<File>,
}

impl Drop for PreloadedLinker {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Must happen before its stdin is closed: it would take that for a command line without inputs, and print an error.
            let _ = child.kill();
            let _ = self.signals.wait(&mut child);
        }
    }
}

/// Something that runs commands.
pub trait Run: Send + Sync {
    /// Runs `cmd` to its end and returns the resources that it used; an error unless its exit status is 0.
    fn run(&self, cmd: &Cmd) -> Result<Usage>;

    /// The same; also returns what it has said, which has been forwarded to the user as well. `running` is called while it runs.
    fn run_capturing(&self, cmd: &Cmd, running: &dyn Fn()) -> Result<(Usage, Said)> {
        running();
        self.run(cmd).map(|usage| (usage, Said::default()))
    }

    /// Starts the ld.lld at `program` early, so that it loads, which takes most of the time of a small link, while other work is
    /// done; it then waits for its remaining arguments. `args` must contain `-m`. `capture`: [`Run::run_preloaded`] returns what it
    /// says. None if that is not possible here: the linker is then started when it is needed.
    fn preload(&self, _program: &Path, _args: &[OsString], _capture: bool) -> Option<PreloadedLinker> {
        None
    }

    /// Like [`Run::run_capturing`], in the process that [`Run::preload`] started, if there is one. The stderr it returns is empty
    /// unless that process was started with `capture`.
    fn run_preloaded(&self, preloaded: Option<PreloadedLinker>, cmd: &Cmd, running: &dyn Fn()) -> Result<(Usage, Said)> {
        drop(preloaded);
        running();
        self.run(cmd).map(|usage| (usage, Said::default()))
    }

    /// Replaces this process by `cmd` where possible, else runs it like `run`. The caller must have nothing left to clean up.
    fn replace(&self, cmd: &Cmd) -> Result<()>;

    /// Whether [`Run::replace`] can replace this process: it belongs to nobody else, and commands are run.
    fn can_be_replaced(&self) -> bool {
        false
    }

    /// The path in `found`; in a dry run, the bare `name` if the program was not found.
    fn program(&self, found: Result<PathBuf>, _name: &str) -> Result<PathBuf> {
        found
    }

    /// Whether commands that could run in parallel must be run one at a time, in order, because the user sees that order.
    fn in_order(&self) -> bool {
        false
    }

    /// Starts the program of `cmd` as a service that answers requests. A dry run starts it, too, since its answers are no output
    /// files.
    fn serve(&self, cmd: &Cmd, signals: &Arc<Signals>) -> Result<Box<dyn Service>> {
        start_service(cmd, signals)
    }

    /// Shows commands of other tools that do what this process is about to do itself, marked as such. They are not run, and
    /// `commands` is called only where commands are shown.
    fn show_in_process(&self, _commands: &dyn Fn() -> Result<Vec<Equivalent>>) -> Result<()> {
        Ok(())
    }

    /// Lets `work` write a file; a dry run creates an empty one instead.
    fn make(&self, file: &Path, work: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        work(file)
    }

    /// Lets `work` edit a file that a command has written; a dry run does nothing.
    fn edit(&self, file: &Path, work: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        work(file)
    }
}

/// Runs commands.
pub(crate) struct Real {
    /// Where commands are printed if `verbose`.
    pub shell: Arc<Shell>,
    /// Print each command before it runs.
    pub verbose: bool,
    /// The process belongs to a caller of the library: never replace it by another program.
    pub embedded: bool,
    /// The folder for response files, and the `TMPDIR` of the children.
    pub scratch: Arc<Scratch>,
    /// Forwards signals to running children.
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

    /// Runs `cmd`; with `captured`, what it says is put there, besides being forwarded to our own streams.
    /// `running` is called while it runs.
    fn run_to_end(&self, cmd: &Cmd, captured: Option<&mut Said>, running: &dyn Fn()) -> Result<Usage> {
        // From here on there is a child that signals must reach, and perhaps a response file to remove.
        self.begin(cmd)?;
        let mut command = self.command(cmd)?;
        self.set_up(&mut command);
        let stdout = captured.is_some().then(|| self.capture(&mut command)).flatten();
        // Where it is not known what the program says, the kernel tells whether it has killed a process.
        let killed_before = captured.is_none().then(memory::killed_by_kernel);
        let child = spawn(&mut command, cmd, &self.signals)?;
        running();
        self.end(Running { child, stdout, killed_before }, cmd, captured)
    }

    fn begin(&self, cmd: &Cmd) -> Result<()> {
        self.signals.watch();
        self.signals.check()?;
        if let Some(output) = &cmd.output {
            // With --save-temps an output of an earlier link may exist, which must not be mistaken for this one's.
            let _ = std::fs::remove_file(output);
        }
        Ok(())
    }

    fn set_up(&self, command: &mut Command) {
        if let Some(folder) = self.scratch.folder() {
            // Tools put their temporary files into our folder, so that what they leave behind when they crash is removed with it.
            command.env("TMPDIR", folder);
        }
        command.env(session::OFFLD_WITHIN, "1");
        // In its own process group, so that a forwarded signal also reaches the processes that the child started.
        command.process_group(0);
    }

    /// Waits for the end of `running`.
    fn end(&self, running: Running, cmd: &Cmd, mut captured: Option<&mut Said>) -> Result<Usage> {
        let Running { mut child, stdout, killed_before } = running;
        if let (Some(captured), Some(stderr)) = (captured.as_deref_mut(), child.stderr.take()) {
            self.forward_stderr(stderr, child.id(), &mut captured.stderr);
        }
        let status = self.signals.wait(&mut child);
        if let Some(captured) = captured.as_deref_mut() {
            // Where it could not be captured, nothing is known of it.
            captured.printed = stdout.is_none_or(captured::forward_stdout);
        }
        self.signals.check()?;
        let (status, usage) = status.with_context(|| format!("cannot wait for `{}`", cmd.program.display()))?;
        if !status.success() {
            let failed = failure_report(cmd, status, None);
            let said = captured.as_deref().map_or(&[][..], |captured| &captured.stderr);
            let kernel_killed = killed_before.is_some_and(|before| memory::killed_by_kernel() > before);
            return Err(match memory::ended_for_it(status, said, kernel_killed) {
                Some(how) => OutOfMemory { failed, how, peak_memory: usage.peak_memory }.into(),
                None => failed.into(),
            });
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
}

/// A child that runs.
struct Running {
    child: Child,
    /// The file that its stdout goes to, if it is captured.
    stdout: Option<File>,
    /// How many processes the kernel had killed for want of memory before.
    killed_before: Option<u64>,
}

impl Run for Real {
    fn show_in_process(&self, commands: &dyn Fn() -> Result<Vec<Equivalent>>) -> Result<()> {
        if self.verbose {
            commands()?.iter().for_each(|(program, args)| self.shell.command_in_process(program, args));
        }
        Ok(())
    }

    fn run(&self, cmd: &Cmd) -> Result<Usage> {
        self.run_to_end(cmd, None, &|| ())
    }

    fn run_capturing(&self, cmd: &Cmd, running: &dyn Fn()) -> Result<(Usage, Said)> {
        let mut captured = Said::default();
        Ok((self.run_to_end(cmd, Some(&mut captured), running)?, captured))
    }

    fn preload(&self, program: &Path, args: &[OsString], capture: bool) -> Option<PreloadedLinker> {
        // ld.lld reads its remaining arguments from a response file that is a pipe, and so waits until we write them. It reads the
        // file only once if its command line has an `-m`.
        const ARGS_FILE: &str = "/dev/stdin";
        let possible = args.iter().any(|arg| arg == "-m") && Path::new(ARGS_FILE).exists();
        if !possible || threads::is_short() || self.signals.check().is_err() {
            return None;
        }
        self.signals.watch();
        // Makes the temporary folder exist, which `set_up` passes to the child as TMPDIR.
        self.scratch.path("offld.args", "txt").ok()?;
        let mut command = Command::new(program);
        command.args(args).arg(format!("@{ARGS_FILE}")).stdin(Stdio::piped());
        let stdout = capture.then(|| self.capture(&mut command)).flatten();
        self.set_up(&mut command);
        let child = command.spawn().ok()?;
        Some(PreloadedLinker { child: Some(child), program: program.to_owned(), signals: Arc::clone(&self.signals), stdout })
    }

    fn run_preloaded(&self, preloaded: Option<PreloadedLinker>, cmd: &Cmd, running: &dyn Fn()) -> Result<(Usage, Said)> {
        let mut captured = Said::default();
        let linker = preloaded.filter(|linker| linker.program == cmd.program);
        let Some((mut child, stdout)) = linker.and_then(|mut linker| Some((linker.child.take()?, linker.stdout.take()))) else {
            return self.run_to_end(cmd, None, running).map(|usage| (usage, captured));
        };
        if let Err(stopped) = self.begin(cmd) {
            drop(PreloadedLinker {
                child: Some(child),
                program: cmd.program.clone(),
                signals: Arc::clone(&self.signals),
                stdout,
            });
            return Err(stopped);
        }
        if self.verbose {
            self.shell.command(&cmd.program, &cmd.args);
        }
        if let Some(mut stdin) = child.stdin.take() {
            // If it has died already, its exit status tells.
            let _ = stdin.write_all(&response::spill(&cmd.args, cmd.quoting));
        }
        running();
        Ok((self.end(Running { child, stdout, killed_before: None }, cmd, Some(&mut captured))?, captured))
    }

    fn can_be_replaced(&self) -> bool {
        !self.embedded
    }

    fn replace(&self, cmd: &Cmd) -> Result<()> {
        if self.embedded || response::needs_spill(&cmd.args) {
            return self.run(cmd).map(drop);
        }
        let error = self.command(cmd)?.exec();
        Err(cannot_start(cmd, &error).into())
    }
}

/// The stdout of a tool that is run for information (`clang -dumpversion`), or none if it fails. Runs in a dry run, too.
pub(crate) fn stdout_of(program: &Path, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command.args(args).stdin(Stdio::null()).stderr(Stdio::null());
    let output = output(&mut command).ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Runs `command` to its end, also where it can be started only after others have ended.
fn output(command: &mut Command) -> std::io::Result<Output> {
    threads::retry(&Signals::default(), || command.output()).map_err(std::io::Error::other)?
}

/// Starts the program of `cmd` with pipes for its three streams, in a process group of its own.
fn start_service(cmd: &Cmd, signals: &Arc<Signals>) -> Result<Box<dyn Service>> {
    signals.watch();
    signals.check()?;
    let mut command = Command::new(&cmd.program);
    command.args(&cmd.args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let child = spawn(&mut command, cmd, signals)?;
    let process = Process::new(child, Arc::clone(signals)).map_err(|error| cannot_start(cmd, &error))?;
    Ok(Box::new(process))
}

/// Starts the program of `cmd` as `command` says.
fn spawn(command: &mut Command, cmd: &Cmd, signals: &Signals) -> Result<Child> {
    Ok(threads::retry(signals, || command.spawn())?.map_err(|error| cannot_start(cmd, &error))?)
}
