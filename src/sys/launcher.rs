//! The launcher (`OFFLD_LAUNCHER`): a command of the user's, such as `srun -n1`, that runs jobs on other machines (docs/cluster.md). What
//! it is given to run is always `/bin/sh JOB/run`, with a folder JOB that both sides see. One that does not work is given up: the rest of
//! the link is done on this machine.

mod job;
mod outcome;
#[cfg(test)]
mod tests;
mod waiting;
mod words;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use anyhow::{Result, bail};

use crate::args::launching::{Launching, launcher_wait, remote_jobs};
use crate::args::request::Jobs;
use crate::sys::run::{self, Cmd, Guardian, OutOfMemory};
use crate::sys::session::{self, Session};
use crate::sys::threads;
use job::Job;
pub(crate) use outcome::Ran;

/// What each word may contain.
const THREADS: &str = "{threads}";
const MEMORY: &str = "{mem}";
const NAME: &str = "{job}";
/// How long a job may wait in the queue, in seconds, and how many run at once.
const WAIT: u64 = 600;
const JOBS: usize = 32;
/// What a job asks for at least, and in which steps, in bytes.
const LEAST_MEMORY: u64 = 256 << 20;
const STEP_OF_MEMORY: u64 = 64 << 20;
/// Programs that have their words read by a shell on the other side.
const READ_BY_A_SHELL: [&str; 3] = ["ssh", "rsh", "dbclient"];

/// A launcher, as one command of offld uses it.
#[derive(Debug)]
pub(crate) struct Launcher {
    /// The option or the variable that it is named by.
    named: &'static str,
    words: Vec<OsString>,
    wait: Duration,
    jobs: usize,
    verbose: bool,
    given_up: AtomicBool,
    told_of_files: AtomicBool,
}

/// Removes the temporary folder if offld is killed and cannot do it. Dropping it tells it that all is well.
pub(crate) struct FolderGuard {
    _guardian: Guardian,
}

impl FolderGuard {
    /// For the temporary folder of `session`, where another process launches jobs.
    pub(crate) fn start(session: &Session) -> Option<FolderGuard> {
        let folder = session.scratch.folder()?;
        Some(FolderGuard { _guardian: Guardian::start(&folder.join("no lease"), Some(&folder)) })
    }
}

/// What a job needs, and what is to be known of it.
#[derive(Debug, Clone)]
pub(crate) struct Request<'r> {
    /// How many threads it uses: [`Launcher::threads`].
    pub(crate) threads: usize,
    /// How much memory it will take, in bytes. It is given more.
    pub(crate) memory: u64,
    /// Its name for the launcher.
    pub(crate) job: String,
    /// Files that must be the same on both sides, or be missing on both, if the result is to be kept.
    pub(crate) compare: &'r [PathBuf],
    /// The dependency file that the command writes: what it lists is looked at as well.
    pub(crate) dependencies: Option<&'r Path>,
}

/// What became of a job.
#[derive(Debug)]
pub(crate) enum Launched {
    /// The command was run, and has ended well.
    Ran(Box<Ran>),
    /// The launcher cannot run it, which the user has been told. It has to be run here.
    Unavailable,
}

impl Launcher {
    /// The launcher that the command line (`asked`) or the environment names, if one does. `verbose`: what is run is shown.
    pub(crate) fn new(asked: &Launching, verbose: bool) -> Result<Option<Launcher>> {
        let (named, text) = match &asked.launcher {
            Some(text) => ("--wrapper-launcher", Some(text.clone())),
            None => (session::OFFLD_LAUNCHER, Session::env(session::OFFLD_LAUNCHER)),
        };
        let Some(text) = text else { return Ok(None) };
        let words = match words::split(&text) {
            Ok(words) if words.is_empty() => return Ok(None),
            Ok(words) => words,
            Err(wrong) => bail!("{named}={}: {wrong}", text.display()),
        };
        let of_environment = |name: &'static str| Session::env(name).map(|value| (name, value));
        let wait = match (asked.wait, of_environment(session::OFFLD_LAUNCHER_WAIT)) {
            (Some(wait), _) => wait,
            (None, Some((name, value))) => launcher_wait(name, &value)?,
            (None, None) => WAIT,
        };
        let jobs = match (asked.jobs, of_environment(session::OFFLD_REMOTE_JOBS)) {
            (Some(jobs), _) => jobs,
            (None, Some((name, value))) => remote_jobs(name, &value)?,
            (None, None) => JOBS,
        };
        let (given_up, told_of_files) = (AtomicBool::new(false), AtomicBool::new(false));
        Ok(Some(Launcher { named, words, wait: Duration::from_secs(wait), jobs, verbose, given_up, told_of_files }))
    }

    /// The folder for the temporary files of a link that writes `output`: one that the other machines see, too.
    pub(crate) fn temp_folder(output: &Path) -> PathBuf {
        if let Some(shared) = Session::env(session::OFFLD_SHARED_TMP) {
            return std::path::absolute(&shared).unwrap_or_else(|_| shared.into());
        }
        // Not beside `/dev/null`.
        let is_file = std::fs::metadata(output).map_or(true, |meta| meta.is_file());
        let folder = output.parent().filter(|folder| is_file && !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        std::path::absolute(folder).unwrap_or_else(|_| folder.to_owned())
    }

    /// How many jobs it runs at once.
    pub(crate) fn jobs(&self) -> usize {
        self.jobs
    }

    /// Whether it works, as far as is known.
    pub(crate) fn is_available(&self) -> bool {
        !self.given_up.load(Ordering::SeqCst)
    }

    /// It does not work, as another process has found out and told; returns whether that is new.
    pub(crate) fn is_given_up_now(&self) -> bool {
        !self.given_up.swap(true, Ordering::SeqCst)
    }

    /// How many threads a job gets that would like `wanted`: one, unless the launcher is told.
    pub(crate) fn threads(&self, wanted: usize, jobs: Jobs) -> usize {
        let most = if let Jobs::N(count) = jobs { count } else { threads::count() };
        if self.is_told(THREADS) { wanted.min(most).max(1) } else { 1 }
    }

    /// Runs `cmd` as a job. `running` is called while it runs.
    ///
    /// # Errors
    /// The command has failed on the other side; a signal has arrived.
    pub(crate) fn run(
        &self,
        cmd: &Cmd,
        request: &Request<'_>,
        session: &Session,
        running: &(dyn Fn() + Sync),
    ) -> Result<Launched> {
        let memory = asked_memory(request.memory);
        let error = match self.once(cmd, request, memory, session, running) {
            Err(error) => error,
            ended => return ended,
        };
        match error.downcast_ref::<OutOfMemory>() {
            Some(OutOfMemory { how, .. }) if self.is_told(MEMORY) => {
                let (asked, more) = (memory >> 20, memory >> 19);
                session.shell.warn(&format!("{}: {how} with {asked} MiB; it is launched once more, with {more} MiB", cmd.step));
                self.once(cmd, request, 2 * memory, session, &|| ())
            }
            _ => Err(error),
        }
    }

    /// That a file is not the same on both sides, which is said once.
    pub(crate) fn tell_of_file(&self, file: &Path, node: &str, step: &str, session: &Session) {
        if !self.told_of_files.swap(true, Ordering::SeqCst) {
            session.shell.warn(&format!(
                "{step}: not cached, because `{}` is not the same file on {node} as here, by size and time",
                file.display()
            ));
        }
    }

    fn once(
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
            // It must not be mistaken for what this job writes.
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
                return Ok(self.give_up(&cmd.step, &format!("`{}`: {error}", words[0].display()), session));
            }
        };
        guardian.guards(process.child.id());
        let shown = AtomicBool::new(false);
        let began = |node: &str| {
            if self.verbose && !shown.swap(true, Ordering::SeqCst) {
                session.shell.note(&format!("{}: runs on {node}", cmd.step));
            }
        };
        let ended = std::thread::scope(|scope| {
            // What is done meanwhile may take a while, and the lease must be renewed.
            if std::thread::Builder::new().spawn_scoped(scope, running).is_err() {
                running();
            }
            waiting::until_end(process, &mut job, self.wait, session, &began)
        });
        drop(guardian);
        session.signals.check()?;
        match outcome::of(cmd, &job, ended, session)? {
            Ok(ran) => {
                // A short job may have ended before it was seen to run.
                began(&ran.node);
                Ok(Launched::Ran(Box::new(ran)))
            }
            Err(why) => Ok(self.give_up(&cmd.step, &why, session)),
        }
    }

    /// Uses it no more, and says so once.
    fn give_up(&self, step: &str, why: &str, session: &Session) -> Launched {
        if !self.given_up.swap(true, Ordering::SeqCst) {
            let named = self.named;
            let told =
                format!("{step}: run on this machine, like all that has not begun yet, since {named} cannot run it: {why}");
            session.shell.warn(&told);
        } else if self.verbose {
            session.shell.note(&format!("{step}: run on this machine: {why}"));
        }
        Launched::Unavailable
    }

    fn is_told(&self, name: &str) -> bool {
        self.words.iter().any(|word| word.to_string_lossy().contains(name))
    }

    /// The words of the launcher with what it runs.
    fn words_for(&self, job: &Job, request: &Request<'_>, memory: u64) -> Vec<OsString> {
        let values =
            [(THREADS, request.threads.to_string()), (MEMORY, (memory >> 20).to_string()), (NAME, words::plain(&request.job))];
        let mut all: Vec<OsString> = self.words.iter().map(|word| words::filled(word, &values)).collect();
        let by_a_shell = self.words.iter().any(|word| is_read_by_a_shell(word));
        all.push("/bin/sh".into());
        all.push(words::for_program(&job.script(), by_a_shell));
        all
    }
}

fn is_read_by_a_shell(word: &OsStr) -> bool {
    Path::new(word).file_name().is_some_and(|name| READ_BY_A_SHELL.iter().any(|known| name == *known))
}

/// What a job asks for that will take so much.
fn asked_memory(memory: u64) -> u64 {
    memory.saturating_add(memory / 4).max(LEAST_MEMORY).div_ceil(STEP_OF_MEMORY) * STEP_OF_MEMORY
}
