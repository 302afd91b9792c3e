//! Finds and runs other programs; no other module starts processes. A command is data (`Cmd`). A
//! runner runs it (`Real`), prints it (`Dry`), or lets it fail (in tests). The report of a failed
//! step is built here, too.

#![expect(clippy::disallowed_types, reason = "this file starts processes")]

mod report;

pub use report::{OutOfMemory, no_answer};
pub(crate) use report::{ended_for_memory, failure_report, how_it_ended};

use std::ffi::OsString;
use std::fs::File;
use std::io::{self, ErrorKind, PipeReader, Read, Seek, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::MetadataExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStderr, Command, Output, Stdio};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rustix::fs::{MemfdFlags, memfd_create};

use crate::response::{self, Style};
use crate::scratch::Scratch;
use crate::service::{Process, Service};
use crate::shell::Shell;
use crate::signals::{Idle, Relay, Signals, Usage};
use crate::{environment, posix_shell, threads};
use report::{cannot_start, killed_by_kernel};

/// A program to run for one step of a link.
#[derive(Debug, Clone)]
pub struct Cmd {
    /// Name of the step, for error reports: `device link for amdgcn-amd-amdhsa (gfx90a)`.
    pub step: String,
    /// Path of the program; `PATH` is not searched.
    pub program: PathBuf,
    /// Arguments of the program.
    pub args: Vec<OsString>,
    /// Quoting that the program expects in a response file, used if the arguments are too long for
    /// a command line.
    pub quoting: Style,
    /// Inputs of the step, for error reports: `a.o`, `libb.a(c.o)`.
    pub inputs: Vec<String>,
    /// A temporary file that the step must write. If it is empty or missing after the run, the step
    /// has failed, even with exit status 0 (docs/spec/faults.md F27).
    pub output: Option<PathBuf>,
}

/// A program and arguments that would do the work that this process does itself.
pub type Equivalent = (PathBuf, Vec<OsString>);

/// A linker process that was started early and waits to read its arguments. If this value is
/// dropped before the arguments are sent, the process is killed.
#[derive(Debug)]
pub struct PreloadedLinker {
    child: Option<Child>,
    idle: Option<Idle>,
    program: PathBuf,
    signals: Arc<Signals>,
    /// The file that receives its stdout, if stdout is captured.
    stdout: Option<File>,
}

impl Drop for PreloadedLinker {
    fn drop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Kill it before its stdin is closed: the linker would read the closed stdin as
            // arguments without inputs, and print an error.
            let _ = child.kill();
            self.idle = None;
            let _ = self.signals.wait(&mut child);
        }
    }
}

/// Runs commands, or prints them.
pub trait Run: Send + Sync {
    /// Runs `cmd` to its end and returns its resource usage.
    ///
    /// # Errors
    /// The exit status is not 0, or a signal arrived.
    fn run(&self, cmd: &Cmd) -> Result<Usage>;

    /// Like [`Run::run`], and also returns the output of the program, which is still forwarded to
    /// the user. Calls `running` while the program runs.
    fn run_capturing(&self, cmd: &Cmd, running: &dyn Fn()) -> Result<(Usage, CapturedOutput)> {
        running();
        self.run(cmd)
            .map(|usage| (usage, CapturedOutput::default()))
    }

    /// Starts the ld.lld at `program` early, so that its loading overlaps with other work. Loading
    /// takes most of the time of a small link. The linker then waits for its remaining arguments.
    /// `args` must contain `-m`. With `capture`, [`Run::run_preloaded`] returns the output. Returns
    /// `None` if preloading is impossible here; the linker is then started when it is needed.
    fn preload(
        &self,
        _program: &Path,
        _args: &[OsString],
        _capture: bool,
    ) -> Option<PreloadedLinker> {
        None
    }

    /// Like [`Run::run_capturing`], in the process that [`Run::preload`] started, if there is one.
    /// The returned stderr is empty unless that process was started with `capture`.
    fn run_preloaded(
        &self,
        preloaded: Option<PreloadedLinker>,
        cmd: &Cmd,
        running: &dyn Fn(),
    ) -> Result<(Usage, CapturedOutput)> {
        drop(preloaded);
        running();
        self.run(cmd)
            .map(|usage| (usage, CapturedOutput::default()))
    }

    /// Replaces this process by `cmd` if possible; otherwise runs it like [`Run::run`]. The caller
    /// must have nothing left to clean up.
    fn replace(&self, cmd: &Cmd) -> Result<()>;

    /// Whether [`Run::replace`] can replace this process: the process does not belong to a caller
    /// of the library, and commands are run, not printed.
    fn can_be_replaced(&self) -> bool {
        false
    }

    /// Returns the path in `found`. In a dry run, returns the bare `name` if the program was not
    /// found.
    fn program(&self, found: Result<PathBuf>, _name: &str) -> Result<PathBuf> {
        found
    }

    /// Whether commands must run one at a time, in order, because the user sees that order.
    fn in_order(&self) -> bool {
        false
    }

    /// Starts the program of `cmd` as a service that answers requests. A dry run starts it, too,
    /// because later steps need its answers.
    fn serve(&self, cmd: &Cmd, signals: &Arc<Signals>) -> Result<Box<dyn Service>> {
        start_service(cmd, signals)
    }

    /// Prints commands with which other tools would do the work that this process does itself,
    /// marked `# in process`. They are not run. `commands` is called only if commands are printed.
    fn show_in_process(&self, _commands: &dyn Fn() -> Result<Vec<Equivalent>>) -> Result<()> {
        Ok(())
    }

    /// Lets `work` write a file. A dry run creates an empty file instead.
    fn make(&self, file: &Path, work: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        work(file)
    }

    /// Lets `work` edit a file that a command has written. A dry run does nothing.
    fn edit(&self, file: &Path, work: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        work(file)
    }
}

/// Runs commands.
pub(crate) struct Real {
    /// Receives the printed commands if `verbose` is set.
    pub shell: Arc<Shell>,
    /// Print each command before it runs.
    pub verbose: bool,
    /// The process belongs to a caller of the library, so it must never be replaced by another
    /// program.
    pub embedded: bool,
    /// Temporary directory for response files, and `TMPDIR` of the children.
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

    /// Runs `cmd`. With `captured`, stores the output there in addition to forwarding it to our own
    /// streams. Calls `running` while the program runs.
    fn run_to_end(
        &self,
        cmd: &Cmd,
        captured: Option<&mut CapturedOutput>,
        running: &dyn Fn(),
    ) -> Result<Usage> {
        // From here on, signals must reach the child, and a response file may have to be removed.
        self.begin(cmd)?;
        let mut command = self.command(cmd)?;
        self.set_up(&mut command);
        let stdout = captured
            .is_some()
            .then(|| self.capture(&mut command))
            .flatten();
        // If the output is not captured, only the kernel's count of killed processes shows whether
        // the program ran out of memory.
        let killed_before = captured.is_none().then(killed_by_kernel);
        let child = spawn(&mut command, cmd, &self.signals)?;
        running();
        self.end(
            Running {
                child,
                stdout,
                killed_before,
            },
            cmd,
            captured,
        )
    }

    fn begin(&self, cmd: &Cmd) -> Result<()> {
        self.signals.watch();
        self.signals.check()?;
        if let Some(output) = &cmd.output {
            // With --save-temps, an output of an earlier link may exist. It must not be mistaken
            // for this link's output.
            let _ = std::fs::remove_file(output);
        }
        Ok(())
    }

    fn set_up(&self, command: &mut Command) {
        if let Some(folder) = self.scratch.folder() {
            // Tools put their temporary files into our directory, so files that remain after a
            // crash are removed with it.
            command.env("TMPDIR", folder);
        }
        command.env(environment::OFFLD_WITHIN, "1");
        // In its own process group, so that a forwarded signal also reaches the processes that the
        // child started.
        command.process_group(0);
    }

    fn end(
        &self,
        running: Running,
        cmd: &Cmd,
        mut captured: Option<&mut CapturedOutput>,
    ) -> Result<Usage> {
        let Running {
            mut child,
            stdout,
            killed_before,
        } = running;
        if let (Some(captured), Some(stderr)) = (captured.as_deref_mut(), child.stderr.take()) {
            self.forward_stderr(stderr, child.id(), &mut captured.stderr);
        }
        let status = self.signals.wait(&mut child);
        if let Some(captured) = captured.as_deref_mut() {
            // If stdout could not be captured, assume that the program wrote to it.
            captured.printed = stdout.is_none_or(forward_stdout);
        }
        self.signals.check()?;
        let (status, usage) =
            status.with_context(|| format!("cannot wait for `{}`", cmd.program.display()))?;
        if !status.success() {
            let failed = failure_report(cmd, status, None);
            let stderr = captured
                .as_deref()
                .map_or(&[][..], |captured| &captured.stderr);
            let kernel_killed = killed_before.is_some_and(|before| killed_by_kernel() > before);
            return Err(match ended_for_memory(status, stderr, kernel_killed) {
                Some(how) => OutOfMemory {
                    failed,
                    how,
                    peak_memory: usage.peak_memory,
                }
                .into(),
                None => failed.into(),
            });
        }
        match &cmd.output {
            Some(output) if std::fs::metadata(output).map_or(0, |meta| meta.len()) == 0 => bail!(
                "{} failed: `{}` succeeded but wrote nothing to its output\n  inputs: {}\n  command: {}",
                cmd.step,
                cmd.program.display(),
                cmd.inputs.join(", "),
                posix_shell::command_line(&cmd.program, &cmd.args)
            ),
            _ => Ok(usage),
        }
    }
}

struct Running {
    child: Child,
    /// The file that receives its stdout, if stdout is captured.
    stdout: Option<File>,
    /// Number of processes that the kernel had killed because of missing memory before the child
    /// started.
    killed_before: Option<u64>,
}

impl Run for Real {
    fn show_in_process(&self, commands: &dyn Fn() -> Result<Vec<Equivalent>>) -> Result<()> {
        if self.verbose {
            commands()?
                .iter()
                .for_each(|(program, args)| self.shell.command_in_process(program, args));
        }
        Ok(())
    }

    fn run(&self, cmd: &Cmd) -> Result<Usage> {
        self.run_to_end(cmd, None, &|| ())
    }

    fn run_capturing(&self, cmd: &Cmd, running: &dyn Fn()) -> Result<(Usage, CapturedOutput)> {
        let mut captured = CapturedOutput::default();
        Ok((
            self.run_to_end(cmd, Some(&mut captured), running)?,
            captured,
        ))
    }

    fn preload(&self, program: &Path, args: &[OsString], capture: bool) -> Option<PreloadedLinker> {
        // ld.lld reads its remaining arguments from a response file. That file is a pipe, so ld.lld
        // waits until we write them. Without `-m` among the other arguments, ld.lld
        // reads the file twice, which a pipe does not allow.
        const ARGS_FILE: &str = "/dev/stdin";
        let possible = args.iter().any(|arg| arg == "-m") && Path::new(ARGS_FILE).exists();
        if !possible || threads::is_short() || self.signals.check().is_err() {
            return None;
        }
        self.signals.watch();
        // Creates the temporary directory, which `set_up` passes to the child as TMPDIR.
        self.scratch.path("offld.args", "txt").ok()?;
        let mut command = Command::new(program);
        command
            .args(args)
            .arg(format!("@{ARGS_FILE}"))
            .stdin(Stdio::piped());
        let stdout = capture.then(|| self.capture(&mut command)).flatten();
        self.set_up(&mut command);
        let child = command.spawn().ok()?;
        let (idle, signals) = (
            Some(self.signals.idle(child.id())),
            Arc::clone(&self.signals),
        );
        Some(PreloadedLinker {
            child: Some(child),
            idle,
            program: program.to_owned(),
            signals,
            stdout,
        })
    }

    fn run_preloaded(
        &self,
        preloaded: Option<PreloadedLinker>,
        cmd: &Cmd,
        running: &dyn Fn(),
    ) -> Result<(Usage, CapturedOutput)> {
        let mut captured = CapturedOutput::default();
        let linker = preloaded.filter(|linker| linker.program == cmd.program);
        let Some(mut linker) = linker else {
            return self
                .run_to_end(cmd, None, running)
                .map(|usage| (usage, captured));
        };
        self.begin(cmd)?;
        let (idle, stdout) = (linker.idle.take(), linker.stdout.take());
        let Some(mut child) = linker.child.take() else {
            return self
                .run_to_end(cmd, None, running)
                .map(|usage| (usage, captured));
        };
        if self.verbose {
            self.shell.command(&cmd.program, &cmd.args);
        }
        if let Some(mut stdin) = child.stdin.take() {
            // If the linker has died already, its exit status is reported below.
            let _ = stdin.write_all(&response::spill(&cmd.args, cmd.quoting));
        }
        running();
        drop(idle);
        Ok((
            self.end(
                Running {
                    child,
                    stdout,
                    killed_before: None,
                },
                cmd,
                Some(&mut captured),
            )?,
            captured,
        ))
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

/// Returns the trimmed stdout of a tool that is run for information (`clang -dumpversion`), or
/// `None` if the tool fails. Runs in a dry run, too.
pub fn stdout_of(program: &Path, args: &[&str]) -> Option<String> {
    let mut command = Command::new(program);
    command
        .args(args)
        .stdin(Stdio::null())
        .stderr(Stdio::null());
    let output = output(&mut command).ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}

/// Runs `command` to its end. If there are too many processes, waits for others to end first.
fn output(command: &mut Command) -> std::io::Result<Output> {
    threads::retry(&Signals::default(), || command.output()).map_err(std::io::Error::other)?
}

/// Starts the program of `cmd` with pipes for its three streams, in a process group of its own.
fn start_service(cmd: &Cmd, signals: &Arc<Signals>) -> Result<Box<dyn Service>> {
    signals.watch();
    signals.check()?;
    let mut command = Command::new(&cmd.program);
    command
        .args(&cmd.args)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0);
    let child = spawn(&mut command, cmd, signals)?;
    let process =
        Process::new(child, Arc::clone(signals)).map_err(|error| cannot_start(cmd, &error))?;
    Ok(Box::new(process))
}

fn spawn(command: &mut Command, cmd: &Cmd, signals: &Signals) -> Result<Child> {
    Ok(threads::retry(signals, || command.spawn())?.map_err(|error| cannot_start(cmd, &error))?)
}

/// Captured output of a program.
#[derive(Debug, Default)]
pub struct CapturedOutput {
    /// The complete stderr.
    pub stderr: Vec<u8>,
    /// Whether the program wrote anything to its stdout.
    pub printed: bool,
}

impl Real {
    /// Captures both streams of `command`. Its stderr goes through a pipe, so that it can be
    /// forwarded as it arrives. Its stdout is usually empty, so it goes to an unnamed file first.
    /// Returns `None` if no such file can be created. The child then inherits our stdout.
    fn capture(&self, command: &mut Command) -> Option<File> {
        command.stderr(Stdio::piped());
        let file = self
            .scratch
            .folder()
            .map_or_else(tempfile::tempfile, tempfile::tempfile_in)
            .ok()?;
        command.stdout(file.try_clone().ok()?);
        Some(file)
    }

    /// Forwards a child's stderr to the user as it arrives, and appends it to `captured`.
    fn forward_stderr(&self, mut stderr: ChildStderr, child: u32, captured: &mut Vec<u8>) {
        let mut buffer = [0; 4096];
        let mut relay = Relay::new(&self.signals, child);
        loop {
            relay.until_readable(stderr.as_fd());
            match stderr.read(&mut buffer) {
                Ok(0) => return,
                Ok(count) => {
                    captured.extend_from_slice(&buffer[..count]);
                    self.shell.bytes(&buffer[..count]);
                }
                Err(error) if error.kind() == ErrorKind::Interrupted => {}
                // `end` reports the child's exit status instead of this error.
                Err(_) => return,
            }
        }
    }
}

/// Copies the contents of `file`, a child's stdout, to our stdout. Returns whether there were any.
fn forward_stdout(mut file: File) -> bool {
    let copied = file
        .rewind()
        .and_then(|()| std::io::copy(&mut file, &mut std::io::stdout().lock()));
    // A failed copy means that there was output.
    copied.map_or(true, |count| count > 0)
}

/// Prints commands, and creates empty outputs so that later steps find them.
pub(crate) struct Dry {
    /// Receives the printed commands.
    pub shell: Arc<Shell>,
}

impl Run for Dry {
    fn run(&self, cmd: &Cmd) -> Result<Usage> {
        self.shell.command(&cmd.program, &cmd.args);
        if let Some(output) = &cmd.output {
            std::fs::write(output, b"")
                .with_context(|| format!("cannot write `{}`", output.display()))?;
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

    fn show_in_process(&self, commands: &dyn Fn() -> Result<Vec<Equivalent>>) -> Result<()> {
        commands()?
            .iter()
            .for_each(|(program, args)| self.shell.command_in_process(program, args));
        Ok(())
    }

    fn make(&self, file: &Path, _work: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        std::fs::write(file, b"").with_context(|| format!("cannot write `{}`", file.display()))
    }

    fn edit(&self, _file: &Path, _work: &dyn Fn(&Path) -> Result<()>) -> Result<()> {
        Ok(())
    }
}

/// A running program, and its stderr so far.
#[derive(Debug)]
pub struct Probe {
    child: Child,
    stderr: File,
}

/// The result of a program.
#[derive(Debug)]
pub struct ProbeOutput {
    /// Whether its exit status was 0.
    pub success: bool,
    /// Its stderr.
    pub stderr: Vec<u8>,
}

impl Probe {
    /// Starts `program`. If there are too many processes, waits for others to end first.
    ///
    /// # Errors
    /// The program cannot be started.
    pub fn start(program: &Path, args: &[OsString]) -> io::Result<Probe> {
        // Not a pipe: clang writes its answer one character at a time, and each character would
        // wake the reader of a pipe.
        let stderr = match memfd_create("stderr", MemfdFlags::CLOEXEC) {
            Ok(file) => File::from(file),
            Err(_) => tempfile::tempfile()?,
        };
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(stderr.try_clone()?);
        let child =
            threads::retry(&Signals::default(), || command.spawn()).map_err(io::Error::other)??;
        Ok(Probe { child, stderr })
    }

    /// Waits for the end of the program.
    ///
    /// # Errors
    /// The wait fails, or its stderr cannot be read.
    pub fn finish(mut self) -> io::Result<ProbeOutput> {
        let status = self.child.wait()?;
        let mut stderr = Vec::new();
        self.stderr.rewind()?;
        self.stderr.read_to_end(&mut stderr)?;
        Ok(ProbeOutput {
            success: status.success(),
            stderr,
        })
    }
}

/// Script of the guardian.
const GUARDIAN: &str = include_str!("launcher/guardian.sh");

/// A running launcher of a job, in a process group of its own.
pub(crate) struct LauncherProcess {
    pub(crate) child: Child,
    /// Output of the launcher, both streams together.
    pub(crate) output: PipeReader,
}

/// Starts the program `words`, found through `PATH`. The outer error is a signal, the inner error a
/// program that cannot be started.
pub(crate) fn start_launcher(
    words: &[OsString],
    signals: &Signals,
) -> Result<io::Result<LauncherProcess>> {
    let Some((program, args)) = words.split_first() else {
        return Ok(Err(io::ErrorKind::NotFound.into()));
    };
    threads::retry(signals, || {
        let (output, writer) = io::pipe()?;
        rustix::io::ioctl_fionbio(&output, true)?;
        let mut command = Command::new(program);
        command
            .args(args)
            .stdin(Stdio::null())
            .stdout(writer.try_clone()?)
            .stderr(writer)
            .process_group(0);
        Ok(LauncherProcess {
            child: command.spawn()?,
            output,
        })
    })
}

/// The guardian of one job: a small shell that ends the job and removes the temporary files if
/// offld was killed before it could do so. Dropping it ends it without any action.
#[derive(Debug)]
pub(crate) struct Guardian(Option<Child>);

impl Guardian {
    /// Starts the guardian of the job with this lease. `folder`: the temporary files, if they are
    /// to be removed. If no guardian can be started, the job ends as soon as its lease is no longer
    /// renewed.
    pub(crate) fn start(lease: &Path, folder: Option<&Path>) -> Guardian {
        let mut command = Command::new("/bin/sh");
        command
            .args(["-c", GUARDIAN, "sh"])
            .arg(lease)
            .args(folder)
            .current_dir("/")
            .process_group(0);
        Guardian(
            command
                .stdin(Stdio::piped())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .ok(),
        )
    }

    /// Sets the process group that the guardian ends.
    pub(crate) fn guards(&mut self, group: u32) {
        self.send(&format!("group {group}\n"));
    }

    fn send(&mut self, line: &str) {
        if let Some(stdin) = self.0.as_mut().and_then(|child| child.stdin.as_mut()) {
            // Without the guardian, the job still has its lease.
            let _ = stdin.write_all(line.as_bytes());
        }
    }
}

impl Drop for Guardian {
    fn drop(&mut self) {
        self.send("well\n");
        if let Some(child) = &mut self.0 {
            drop(child.stdin.take());
            let _ = child.wait();
        }
    }
}

/// Returns the path of the running executable. Without `/proc`, as in some build roots, that is the
/// program that the first word of the command line leads to. LLVM's tools find themselves likewise.
pub fn own_executable() -> io::Result<PathBuf> {
    std::env::current_exe().or_else(|error| {
        let called = std::env::args_os().next().unwrap_or_default();
        let found = which::which(called).map_err(|_| error)?;
        found.canonicalize()
    })
}

/// Returns the directory of the path that offld was called by, if the call contains a path, and the
/// directory of its executable.
pub fn our_folders() -> impl Iterator<Item = PathBuf> {
    let called = std::env::args_os()
        .next()
        .map(PathBuf::from)
        .filter(|name| name.parent().is_some_and(|dir| dir != Path::new("")));
    let ours = [called, own_executable().ok()];
    ours.into_iter()
        .flatten()
        .filter_map(|me| me.parent().map(Path::to_path_buf))
}

/// Returns the program `name` in the directory of the path that offld was called by, or in the
/// directory of its executable.
pub fn beside_us(name: &str) -> Option<PathBuf> {
    our_folders()
        .map(|folder| folder.join(name))
        .find(|path| path.is_file())
}

/// Returns the program `name` in offld's directory (LLVM's tools search there, too), else on
/// `PATH`, else the bare name.
pub fn beside_us_or_on_path(name: &str) -> PathBuf {
    beside_us(name)
        .or_else(|| which::which(name).ok())
        .unwrap_or_else(|| name.into())
}

/// Whether `path` is offld's own executable, through symlinks or hard links.
pub fn is_ourselves(path: &Path) -> bool {
    let same = |a: &Path, b: &Path| {
        let (a, b) = (std::fs::metadata(a).ok()?, std::fs::metadata(b).ok()?);
        Some((a.dev(), a.ino()) == (b.dev(), b.ino()))
    };
    own_executable().is_ok_and(|me| same(&me, path) == Some(true))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn captures_stderr_only() {
        let run = |script: &str| {
            Probe::start(Path::new("/bin/sh"), &["-c".into(), script.into()])
                .unwrap()
                .finish()
                .unwrap()
        };
        let ended_well = run("echo out; echo one >&2; echo two >&2");
        assert!(ended_well.success);
        assert_eq!(ended_well.stderr, b"one\ntwo\n");
        let failed = run("echo no >&2; exit 3");
        assert!(!failed.success);
        assert_eq!(failed.stderr, b"no\n");
        assert!(Probe::start(Path::new("/nowhere/clang"), &[]).is_err());
    }
}
