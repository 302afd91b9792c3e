//! The launcher (`OFFLD_LAUNCHER`): a command of the user, such as `srun -n1`, that runs jobs on
//! other machines (docs/guides/cluster.md). It always runs `/bin/sh JOB/run`. JOB is a directory
//! that both machines see. If a launcher does not work, the rest of the link runs on this machine.

mod job;
mod outcome;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::environment::{Checked, Named};
use crate::jobs::Jobs;
use crate::posix_shell::{self, quoted_if_needed};
use crate::run::{self, Cmd, Guardian, OutOfMemory};
use crate::session::Session;
use crate::threads;
use job::Job;
pub use outcome::Ran;

/// The settings for the launcher of device links.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launching {
    /// The last `--wrapper-launcher`, or `OFFLD_LAUNCHER`: the launcher's command, unsplit. An
    /// empty command means no launcher.
    pub launcher: Option<Named>,
    /// The last `--wrapper-launcher-wait`, or `OFFLD_LAUNCHER_WAIT`: the maximum time of a job in
    /// the launcher's queue, in seconds.
    pub wait: Option<Checked<u64>>,
    /// The last `--wrapper-remote-jobs`, or `OFFLD_REMOTE_JOBS`: the number of jobs that the
    /// launcher runs at once.
    pub jobs: Option<Checked<usize>>,
    /// `OFFLD_SHARED_TMP`: the parent of the temporary directories of links with a launcher.
    pub shared_temp: Option<PathBuf>,
}

/// Placeholders that the launcher's arguments may contain.
const THREADS: &str = "{threads}";
const MEMORY: &str = "{mem}";
const NAME: &str = "{job}";
/// Default time that a job may wait in the queue, in seconds, and default number of jobs that run
/// at once.
const WAIT: u64 = 600;
const JOBS: usize = 32;
/// Memory requests of jobs are at least `LEAST_MEMORY`, and multiples of `STEP_OF_MEMORY`, in
/// bytes.
const LEAST_MEMORY: u64 = 256 << 20;
const STEP_OF_MEMORY: u64 = 64 << 20;
/// Programs that pass their arguments to a shell on the other machine.
const READ_BY_A_SHELL: [&str; 3] = ["ssh", "rsh", "dbclient"];

/// A launcher, as one command of offld uses it.
#[derive(Debug)]
pub struct Launcher {
    /// The option or environment variable that sets the launcher.
    named: &'static str,
    words: Vec<OsString>,
    wait: Duration,
    jobs: usize,
    shared_temp: Option<PathBuf>,
    verbose: bool,
    given_up: AtomicBool,
    warned_of_files: AtomicBool,
}

/// Removes the temporary directory if offld is killed before it can do so. Dropping it ends it
/// without any action.
#[derive(Debug)]
pub struct FolderGuard {
    _guardian: Guardian,
}

impl FolderGuard {
    /// Guards the temporary directory of `session`, in case another process launches jobs.
    pub fn start(session: &Session) -> Option<FolderGuard> {
        let folder = session.scratch.folder()?;
        Some(FolderGuard {
            _guardian: Guardian::start(&folder.join("no lease"), Some(&folder)),
        })
    }
}

/// A job for the launcher.
#[derive(Debug, Clone)]
pub struct Request<'r> {
    /// Number of threads that the job uses: [`Launcher::threads`].
    pub threads: usize,
    /// Memory that the job will use, in bytes. The launcher is asked for more.
    pub memory: u64,
    /// Name of the job for the launcher.
    pub job: String,
    /// Files that must be identical on both machines, or missing on both, for the result to be
    /// cached.
    pub compare: &'r [PathBuf],
    /// The dependency file that the command writes. The files that it lists are compared as well.
    pub dependencies: Option<&'r Path>,
}

/// The outcome of a job.
#[derive(Debug)]
pub enum Launched {
    /// The command ran and succeeded.
    Ran(Box<Ran>),
    /// The launcher cannot run the command, and the user was warned. The command must run on this
    /// machine.
    Unavailable,
}

impl Launcher {
    /// Returns the launcher that `settings` name, if any. With `verbose`, commands are printed.
    pub fn new(settings: &Launching, verbose: bool) -> Result<Option<Launcher>> {
        let Some(Named { value: text, by }) = &settings.launcher else {
            return Ok(None);
        };
        let words = match posix_shell::split(text) {
            Ok(words) if words.is_empty() => return Ok(None),
            Ok(words) => words,
            Err(wrong) => bail!("{by}={}: {wrong}", text.display()),
        };
        let wait = settings.wait.as_ref().map(Checked::get).transpose()?;
        let jobs = settings.jobs.as_ref().map(Checked::get).transpose()?;
        let (given_up, warned_of_files) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Some(Launcher {
            named: by,
            words,
            wait: Duration::from_secs(wait.unwrap_or(WAIT)),
            jobs: jobs.unwrap_or(JOBS),
            shared_temp: settings.shared_temp.clone(),
            verbose,
            given_up,
            warned_of_files,
        }))
    }

    /// Returns the parent of the temporary directory of a link that writes `output`: a directory
    /// that the other machines also see.
    pub fn temp_folder(&self, output: &Path) -> PathBuf {
        if let Some(shared) = &self.shared_temp {
            return std::path::absolute(shared).unwrap_or_else(|_| shared.clone());
        }
        // Next to the output, unless that is a device such as `/dev/null`.
        let is_file = std::fs::metadata(output).map_or(true, |meta| meta.is_file());
        let folder = output
            .parent()
            .filter(|folder| is_file && !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
    }

    /// Number of jobs that run at once.
    pub fn jobs(&self) -> usize {
        self.jobs
    }

    /// Whether the launcher works, as far as is known.
    pub fn is_available(&self) -> bool {
        !self.given_up.load(Ordering::SeqCst)
    }

    /// Marks the launcher as unavailable, after another process has reported that. Returns whether
    /// this is new.
    pub fn is_given_up_now(&self) -> bool {
        !self.given_up.swap(true, Ordering::SeqCst)
    }

    /// Number of threads for a job that would like `wanted`: one, unless the launcher's arguments
    /// contain `{threads}`.
    pub fn threads(&self, wanted: usize, jobs: Jobs) -> usize {
        let most = if let Jobs::N(count) = jobs {
            count
        } else {
            threads::count()
        };
        if self.mentions(THREADS) {
            wanted.min(most).max(1)
        } else {
            1
        }
    }

    /// Runs `cmd` as a job. Calls `running` while the command runs.
    ///
    /// # Errors
    /// The command failed on the other machine, or a signal arrived.
    pub fn run(
        &self,
        cmd: &Cmd,
        request: &Request<'_>,
        session: &Session,
        running: &(dyn Fn() + Sync),
    ) -> Result<Launched> {
        let memory = requested_memory(request.memory);
        let error = match self.run_once(cmd, request, memory, session, running) {
            Err(error) => error,
            ended => return ended,
        };
        match error.downcast_ref::<OutOfMemory>() {
            Some(OutOfMemory { how, .. }) if self.mentions(MEMORY) => {
                let (asked, more) = (memory >> 20, memory >> 19);
                session.shell.warn(&format!(
                    "{}: {how} with {asked} MiB; launching again with {more} MiB",
                    cmd.step
                ));
                self.run_once(cmd, request, 2 * memory, session, &|| ())
            }
            _ => Err(error),
        }
    }

    /// Warns, once, about a file that differs between the machines.
    pub fn tell_of_file(&self, file: &Path, node: &str, step: &str, session: &Session) {
        if !self.warned_of_files.swap(true, Ordering::SeqCst) {
            session.shell.warn(&format!(
                "{step}: not cached: `{}` differs in size or time between {node} and this machine",
                file.display()
            ));
        }
    }

    fn run_once(
        &self,
        cmd: &Cmd,
        request: &Request<'_>,
        memory: u64,
        session: &Session,
        running: &(dyn Fn() + Sync),
    ) -> Result<Launched> {
        session.signals.watch();
        session.signals.check()?;
        if let Some(output) = &cmd.output {
            // An output of an earlier link must not be mistaken for this job's output.
            let _ = std::fs::remove_file(output);
        }
        let mut job = Job::make(cmd, request, &session.scratch)?;
        let words = self.words_for(&job, request, memory);
        if self.verbose {
            session.shell.command(&cmd.program, &cmd.args);
            session.shell.command(Path::new(&words[0]), &words[1..]);
        }
        let mut guardian = Guardian::start(&job.lease(), session.scratch.folder().as_deref());
        let process = match run::start_launcher(&words, &session.signals)? {
            Ok(process) => process,
            Err(error) => {
                return Ok(self.give_up(
                    &cmd.step,
                    &format!("`{}`: {error}", words[0].display()),
                    session,
                ));
            }
        };
        guardian.guards(process.child.id());
        let printed = AtomicBool::new(false);
        let began = |node: &str| {
            if self.verbose && !printed.swap(true, Ordering::SeqCst) {
                session
                    .shell
                    .note(&format!("{}: running on {node}", cmd.step));
            }
        };
        let ended = std::thread::scope(|scope| {
            // `running` may take a while, and the lease must be renewed meanwhile.
            if std::thread::Builder::new()
                .spawn_scoped(scope, running)
                .is_err()
            {
                running();
            }
            outcome::until_end(process, &mut job, self.wait, session, &began)
        });
        drop(guardian);
        session.signals.check()?;
        match outcome::of(cmd, &job, ended, session)? {
            Ok(ran) => {
                // A short job may end before this process notices its start.
                began(&ran.node);
                Ok(Launched::Ran(Box::new(ran)))
            }
            Err(why) => Ok(self.give_up(&cmd.step, &why, session)),
        }
    }

    /// Stops using the launcher, and warns about it once.
    fn give_up(&self, step: &str, why: &str, session: &Session) -> Launched {
        if !self.given_up.swap(true, Ordering::SeqCst) {
            let named = self.named;
            let message = format!(
                "{step}: running this and all remaining jobs on this machine, because {named} cannot run them: {why}"
            );
            session.shell.warn(&message);
        } else if self.verbose {
            session
                .shell
                .note(&format!("{step}: running on this machine: {why}"));
        }
        Launched::Unavailable
    }

    fn mentions(&self, name: &str) -> bool {
        self.words
            .iter()
            .any(|word| word.to_string_lossy().contains(name))
    }

    /// Arguments of the launcher, followed by the command that it runs.
    fn words_for(&self, job: &Job, request: &Request<'_>, memory: u64) -> Vec<OsString> {
        let values = [
            (THREADS, request.threads.to_string()),
            (MEMORY, (memory >> 20).to_string()),
            (NAME, plain(&request.job)),
        ];
        let mut all: Vec<OsString> = self
            .words
            .iter()
            .map(|word| filled(word, &values))
            .collect();
        let by_a_shell = self.words.iter().any(|word| is_read_by_a_shell(word));
        all.push("/bin/sh".into());
        all.push(for_program(&job.script(), by_a_shell));
        all
    }
}

fn is_read_by_a_shell(word: &OsStr) -> bool {
    Path::new(word)
        .file_name()
        .is_some_and(|name| READ_BY_A_SHELL.iter().any(|known| name == *known))
}

/// Memory to request for a job that will use `memory` bytes.
fn requested_memory(memory: u64) -> u64 {
    memory
        .saturating_add(memory / 4)
        .max(LEAST_MEMORY)
        .div_ceil(STEP_OF_MEMORY)
        * STEP_OF_MEMORY
}

/// Replaces each placeholder in braces (`{mem}`) in `word` by its value. Other braces stay.
fn filled(word: &OsStr, values: &[(&str, String)]) -> OsString {
    let mut out = Vec::with_capacity(word.len());
    let mut rest = word.as_bytes();
    while let Some((first, after)) = rest.split_first() {
        let value = values
            .iter()
            .find_map(|(name, value)| Some((value, rest.strip_prefix(name.as_bytes())?)));
        if let Some((value, after)) = value {
            out.extend_from_slice(value.as_bytes());
            rest = after;
        } else {
            out.push(*first);
            rest = after;
        }
    }
    OsString::from_vec(out)
}

/// A path as a program gets it: quoted if the program passes its arguments to a shell.
fn for_program(path: &Path, by_a_shell: bool) -> OsString {
    if by_a_shell {
        OsString::from_vec(quoted_if_needed(path.as_os_str().as_bytes()))
    } else {
        path.into()
    }
}

/// `name` with every character except letters, digits and `._-` replaced by `-`, and cut to 128
/// characters.
fn plain(name: &str) -> String {
    name.chars()
        .map(|c| {
            if c.is_ascii_alphanumeric() || "._-".contains(c) {
                c
            } else {
                '-'
            }
        })
        .take(128)
        .collect()
}
