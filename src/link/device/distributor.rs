//! `offld thinlto-distributor`: compiles the units of a ThinLTO link, from the list of jobs that
//! ld.lld writes (LLVM's DTLTO).
//!
//! A unit whose object is in the local or remote cache is not compiled. The others compile in
//! parallel, and their objects are cached.
//!
//! ld.lld starts this program and waits for it. A device link or the user names it in the linker's
//! arguments. Messages go to stderr. If a device link waits, they go to a report ([`Report`])
//! instead, because that link caches its linker's stderr.

mod keys;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::distribution::Report;
use super::link_cache::{Tool, environment_digest};
use super::messages;
use super::schedule::{self, LookedUp, Work};
use super::schedule::{RunnerSlot, RunnerSlots};
use crate::args::settings::{LinkSettings, MemoryLimit, RunOptions};
use keys::{BackendJob, JobsFile, UnitKeys};
use offld_system::clock::{self, Clock, Moment, SystemClock};
use offld_system::jobs::{Demand, JobSlots, Refusal};
use offld_system::launcher::{Launched, Launcher, Ran, Request};
use offld_system::response::Style;
use offld_system::run::{CapturedOutput, Cmd};
use offld_system::scratch;
use offld_system::session::{Session, SessionOptions};
use offld_system::shell::Shell;
use offld_system::signals::Usage;
use offld_system::store::{BlobName, Cache, Caching, Key, Scope};
use offld_system::threads::lock;
use offld_system::{environment, signals};
use offload_formats::error;

/// Arguments of `offld thinlto-distributor`.
#[derive(Debug)]
pub(crate) struct DistributorRequest {
    /// The file in which ld.lld describes the jobs.
    pub(crate) jobs_file: PathBuf,
    /// The report file. Without it, messages are printed immediately.
    pub(crate) report: Option<PathBuf>,
    /// The lifeline of the waiting device link. When that link exits, the jobs end, and its
    /// temporary directory is removed.
    pub(crate) lifeline: Option<PathBuf>,
    /// The settings of a link, as far as they apply: number of jobs, memory, cache, launcher, and
    /// whether to report each step.
    pub(crate) settings: LinkSettings,
}

/// The cache record of a unit's object.
#[derive(Debug, Serialize, Deserialize)]
struct UnitRecord {
    /// The object's name in the cache.
    object: String,
    /// The compiler's messages, which a cache hit prints again.
    stderr: String,
}

/// The units of one link.
struct Units<'u> {
    program: PathBuf,
    file: &'u JobsFile,
    keys: Option<&'u UnitKeys>,
    caching: Caching,
    places: &'u RunnerSlots<'u>,
    session: &'u Session,
    collector: &'u SharedReport,
    /// The start time, before any file was read.
    begun: Moment,
    run: &'u RunOptions,
}

/// Compiles the jobs in `request`, or takes their objects from the cache. Messages go to `shell`
/// unless there is a report file.
///
/// # Errors
/// Fails if the jobs cannot be read, or if one of them fails. With a report file, the error is in
/// the report and only the exit status is returned.
pub(crate) fn run(request: &DistributorRequest, shell: &Arc<Shell>) -> Result<()> {
    signals::end_with_parent();
    let orphaned = watch_lifeline(request.lifeline.as_deref());
    let collector = Arc::new(SharedReport::default());
    let shell = request.report.as_ref().map_or_else(
        || Arc::clone(shell),
        |_| Arc::new(collector.shell(shell.name())),
    );
    let done = compile_all(request, &shell, &collector);
    if let Some(folder) = request
        .lifeline
        .as_deref()
        .and_then(Path::parent)
        .filter(|_| orphaned.load(Ordering::SeqCst))
    {
        // The owner of the directory has exited and cannot remove it.
        let _ = std::fs::remove_dir_all(folder);
    }
    let Some(report) = &request.report else {
        return done;
    };
    let failed = done.err();
    collector.write(report, failed.as_ref())?;
    failed.map_or(Ok(()), |failed| {
        Err(error::Silent {
            status: error::exit_status(&failed),
        }
        .into())
    })
}

/// Ends this process when the device link with this lifeline exits. The returned flag is set first.
fn watch_lifeline(lifeline: Option<&Path>) -> Arc<AtomicBool> {
    let orphaned = Arc::new(AtomicBool::new(false));
    if let Some(path) = lifeline {
        let noted = Arc::clone(&orphaned);
        // If this fails, the jobs run to their end even if the device link exits.
        let _ = signals::end_with_lifeline(path, move || noted.store(true, Ordering::SeqCst));
    }
    orphaned
}

fn compile_all(
    request: &DistributorRequest,
    shell: &Arc<Shell>,
    collector: &SharedReport,
) -> Result<()> {
    let file = JobsFile::read(&request.jobs_file)?;
    let LinkSettings { cache, run, .. } = &request.settings;
    let launcher = Launcher::new(&run.launching, run.verbose)?;
    // A device link that waits for this process has already reserved the memory and set up the
    // temporary directory.
    let within = environment::get(environment::OFFLD_WITHIN).is_some();
    let temp_folder = launcher
        .as_ref()
        .filter(|_| !within)
        .map(|launcher| launcher.temp_folder(file.linker_output()));
    let options = SessionOptions {
        verbose: run.verbose,
        temp_folder,
        ..SessionOptions::default()
    };
    let session = &Session {
        launcher,
        ..Session::new(Arc::clone(shell), options)
    };
    let program = PathBuf::from(file.program()?);
    let caching = Caching::open(cache.folder.clone(), &session.shell);
    let begun = caching
        .cache()
        .map_or_else(|_| SystemClock.moment(), |cache| cache.clock().moment());
    let keys = caching.cache().map_err(str::to_owned).and_then(|cache| {
        let tool = Tool::of(&program, cache)?;
        Ok(UnitKeys::new(tool, environment_digest(), &file))
    });
    let memory = if within {
        MemoryLimit::Off
    } else {
        run.memory.get()?
    };
    let slots = JobSlots::new(
        run.jobs,
        memory,
        session.runner.in_order(),
        run.verbose,
        &session.shell,
    );
    let places = RunnerSlots::new(slots, session);
    let order = schedule::longest_first(
        &file
            .jobs
            .iter()
            .map(|job| job.size() as f64)
            .collect::<Vec<f64>>(),
    );
    let units = Units {
        program,
        file: &file,
        keys: keys.as_ref().ok(),
        caching,
        places: &places,
        session,
        collector,
        begun,
        run,
    };
    if let Err(why) = &keys {
        units.note(|| format!("ThinLTO units are not cached: {why}"));
    }
    let done = schedule::run(&units, &order, &places, session);
    if let Ok(cache) = units.caching.cache() {
        cache.finish_unless(&|| session.signals.check_received().is_err());
    }
    let count = collector.done(places.here().limit());
    if request.report.is_none() {
        units.note(|| count.clone());
    }
    super::all_succeeded(done)
}

impl Work for Units<'_> {
    /// The unit's key, if it can be cached.
    type Ready = Option<Key>;

    fn memory(&self, at: usize) -> u64 {
        self.file.jobs[at].memory()
    }

    fn look_up(&self, at: usize) -> Result<LookedUp<Option<Key>>> {
        self.session.signals.check()?;
        let job = &self.file.jobs[at];
        let key = match self.key(job) {
            Err(why) => {
                self.note(|| format!("{}: not cached: {why}", step(job)));
                None
            }
            Ok(key) => key,
        };
        if let Some(key) = key
            && self.fetch(key, job)
        {
            return Ok(LookedUp::Done);
        }
        Ok(LookedUp::Ready(key, Demand::one_thread(job.memory())))
    }

    fn waits(&self, at: usize, demand: &Demand, why: Refusal) {
        if let Some(waits) = messages::waits_for(demand, why) {
            self.note(|| format!("{}: waits for {waits}", step(&self.file.jobs[at])));
        }
    }

    fn run(&self, at: usize, key: Option<Key>, place: RunnerSlot<'_>) -> Result<()> {
        let job = &self.file.jobs[at];
        let cmd = self.cmd(job);
        let Compiled { usage, said, ran } = match self.compile(job, &cmd, place) {
            Err(error) => self.retry_if_killed(job, &cmd, error)?,
            Ok(compiled) => compiled,
        };
        self.collector.compiled(usage, ran.is_none());
        if let Some(ran) = ran
            && let Some(why) = self.reason_not_to_cache(job, &ran)
        {
            self.collector.not_kept(&why);
            self.note(|| format!("{}: not cached: {why}", step(job)));
            return Ok(());
        }
        if let (Some(key), Ok(cache), Some(keys)) = (key, self.caching.cache(), self.keys) {
            let unit = FinishedUnit {
                key,
                job: job.clone(),
                said,
                keys: keys.clone(),
                begun: self.begun,
            };
            let (own, shell, verbose) = (
                Arc::clone(cache),
                Arc::clone(&self.session.shell),
                self.run.verbose,
            );
            cache.later(move || match unit.keep(&own) {
                Err(why) if verbose => {
                    shell.note(&format!("{}: not cached: {why}", step(&unit.job)))
                }
                _ => {}
            });
        }
        Ok(())
    }
}

impl Units<'_> {
    /// Runs one job with the launcher if it works, else on this machine.
    fn compile<'p>(
        &'p self,
        job: &BackendJob,
        cmd: &Cmd,
        mut place: RunnerSlot<'p>,
    ) -> Result<Compiled> {
        self.session.signals.check()?;
        if let RunnerSlot::Launched { launcher, .. } = &place {
            let request = Request {
                threads: place.granted(1, self.run.jobs),
                memory: job.memory(),
                job: format!("offld-{}", job.name()),
                compare: &self.files_to_compare(job),
                dependencies: None,
            };
            if let Launched::Ran(mut ran) = launcher.run(cmd, &request, self.session, &|| ())? {
                return Ok(Compiled {
                    usage: ran.usage,
                    said: std::mem::take(&mut ran.said),
                    ran: Some(ran),
                });
            }
            self.collector.given_up();
            place = RunnerSlot::Here(
                self.places
                    .here()
                    .take(&Demand::one_thread(job.memory()), &self.session.signals)?,
            );
        }
        let (usage, said) = self.session.runner.run_capturing(cmd, &|| ())?;
        drop(place);
        Ok(Compiled {
            usage,
            said,
            ran: None,
        })
    }

    /// Runs a job once more after `error`, if lack of memory killed it. The second attempt runs on
    /// this machine, with no other job.
    fn retry_if_killed(
        &self,
        job: &BackendJob,
        cmd: &Cmd,
        error: anyhow::Error,
    ) -> Result<Compiled> {
        let Some(killed) = messages::out_of_memory(&error) else {
            return Err(error);
        };
        self.session
            .shell
            .warn(&messages::tried_again(&cmd.step, killed));
        let demand = Demand {
            alone: true,
            ..Demand::one_thread(job.memory().max(killed.peak_memory))
        };
        let slot = self.places.here().take(&demand, &self.session.signals)?;
        let free = self.places.here().free_memory();
        self.compile(job, cmd, RunnerSlot::Here(slot)).map_err(
            |error| match messages::out_of_memory(&error) {
                Some(killed) => messages::given_up(killed, free).into(),
                None => error,
            },
        )
    }

    /// Files that must be identical on another machine: the compiler's files, and all inputs that
    /// are not temporary.
    fn files_to_compare(&self, job: &BackendJob) -> Vec<PathBuf> {
        let temporary = scratch::temp_folder();
        let read = job
            .inputs
            .iter()
            .map(PathBuf::from)
            .filter(|file| !file.starts_with(&temporary));
        self.keys
            .into_iter()
            .flat_map(UnitKeys::tool_files)
            .chain(read)
            .collect()
    }

    /// Returns the reason not to cache an object from another machine, if its files differ from
    /// those here.
    fn reason_not_to_cache(&self, job: &BackendJob, ran: &Ran) -> Option<String> {
        let files_to_compare = self.files_to_compare(job);
        let file = ran.differing(files_to_compare.iter().map(PathBuf::as_path))?;
        if let Some(launcher) = &self.session.launcher {
            launcher.tell_of_file(file, &ran.node, &step(job), self.session);
        }
        Some(format!(
            "`{}` differs between {} and this machine",
            file.display(),
            ran.node
        ))
    }

    fn cmd(&self, job: &BackendJob) -> Cmd {
        Cmd {
            step: step(job),
            program: self.program.clone(),
            args: self.file.words(job).map(OsString::from).collect(),
            quoting: Style::Gnu,
            inputs: job.inputs.iter().take(1).cloned().collect(),
            output: job.output().map(PathBuf::from),
        }
    }

    /// Returns the key of a job's object, `None` if caching is off, or an error if this job cannot
    /// be cached.
    fn key(&self, job: &BackendJob) -> std::result::Result<Option<Key>, String> {
        match (self.keys, self.caching.cache()) {
            (Some(keys), Ok(cache)) => keys
                .of(job, self.file, cache.shared_key(keys::KIND))
                .map(Some),
            _ => Ok(None),
        }
    }

    /// Copies the cached object for `key` to the job's output path. Returns false on a miss.
    fn fetch(&self, key: Key, job: &BackendJob) -> bool {
        let (Ok(cache), Some(output)) = (self.caching.cache(), job.output()) else {
            return false;
        };
        let found = |bytes: Vec<u8>| {
            let record: UnitRecord = serde_json::from_slice(&bytes).ok()?;
            let object = BlobName::parse(&record.object).filter(|object| cache.accepts(*object))?;
            cache
                .fetch_blob(object, Path::new(output), Scope::Shared)
                .ok()
                .filter(|found| *found)?;
            Some((record, cache.was_shared(object)))
        };
        // If the local record's object was evicted, the remote cache may have both a record and an
        // object.
        let found_here = cache.record(key, Scope::Local).and_then(found);
        let Some((record, shared)) =
            found_here.or_else(|| cache.record(key, Scope::Shared).and_then(found))
        else {
            return false;
        };
        self.collector.found(shared);
        let stderr = record
            .stderr
            .chars()
            .filter(|c| !c.is_control() || matches!(c, '\n' | '\t'))
            .collect::<String>();
        self.session.shell.text(&stderr);
        true
    }

    fn note(&self, text: impl Fn() -> String) {
        if self.run.verbose {
            self.session.shell.note(&text());
        }
    }
}

/// The result of a job that succeeded.
struct Compiled {
    usage: Usage,
    said: CapturedOutput,
    /// Details of a run on another machine.
    ran: Option<Box<Ran>>,
}

/// The name of a job in messages.
fn step(job: &BackendJob) -> String {
    format!(
        "ThinLTO code generation for `{}`",
        job.inputs.first().map_or("", String::as_str)
    )
}

/// A compiled unit that can be cached.
struct FinishedUnit {
    key: Key,
    job: BackendJob,
    said: CapturedOutput,
    keys: UnitKeys,
    begun: Moment,
}

impl FinishedUnit {
    /// Stores the object in the cache, or returns the reason why it cannot.
    fn keep(&self, cache: &Arc<Cache>) -> std::result::Result<(), String> {
        if self.said.printed {
            return Err(
                "the compiler wrote to stdout, which must be repeated on every link".to_owned(),
            );
        }
        let stderr = String::from_utf8(self.said.stderr.clone())
            .map_err(|_| "the compiler's messages are not in UTF-8")?;
        if self
            .job
            .inputs
            .iter()
            .chain(&self.job.outputs)
            .any(|file| stderr.contains(file.as_str()))
        {
            return Err("the compiler's messages name a temporary file".to_owned());
        }
        self.keys
            .verify_unchanged(&self.job, self.begun.time_of_day)?;
        clock::check_not_set(cache.clock(), self.begun)?;
        let output = self.job.output().ok_or("the job has no output")?;
        let text_of = |error: anyhow::Error| format!("{error:#}");
        let object = cache
            .put_blob(Path::new(output), Scope::Shared)
            .map_err(text_of)?
            .to_string();
        let record = serde_json::to_vec(&UnitRecord { object, stderr })
            .map_err(|error| error.to_string())?;
        cache
            .put_record(self.key, &record, Scope::Shared)
            .with_context(|| "cannot write the cache record")
            .map_err(text_of)
    }
}

// The report for the waiting device link, while it is collected.

/// A report that is being collected.
#[derive(Debug, Default)]
struct SharedReport(Mutex<Report>);

impl SharedReport {
    /// Creates a shell called `name` whose messages go to the report. Only the compilers' own
    /// output is printed.
    fn shell(self: &Arc<Self>, name: &str) -> Shell {
        let told = Arc::clone(self);
        Shell::stderr(name).with_messages_to(move |label, text| {
            told.report()
                .messages
                .push((label.to_owned(), text.to_owned()))
        })
    }

    /// Counts a cache hit. `shared`: it came from the remote cache.
    fn found(&self, shared: bool) {
        let mut report = self.report();
        report.found += 1;
        report.shared += usize::from(shared);
    }

    /// Counts a compiled unit. `here`: on this machine.
    fn compiled(&self, usage: Usage, here: bool) {
        let mut report = self.report();
        report.compiled += 1;
        report.here += usize::from(here);
        if here {
            report.memory = report.memory.max(usage.peak_memory);
        }
    }

    /// Records that the launcher has failed. The last warning is the message about that.
    fn given_up(&self) {
        let mut report = self.report();
        if report.given_up.is_none() {
            let warned = report
                .messages
                .iter()
                .rev()
                .find(|(label, _)| label == "warning")
                .map(|(_, text)| text.clone());
            report.given_up = warned;
        }
    }

    /// Records that an object was compiled with files that differ from those of this machine.
    fn not_kept(&self, why: &str) {
        self.report().not_kept.get_or_insert_with(|| why.to_owned());
    }

    /// Completes the memory estimate for at most `at_once` parallel jobs. Returns the message with
    /// the counts.
    fn done(&self, at_once: usize) -> String {
        let mut report = self.report();
        report.memory = report
            .memory
            .saturating_mul(at_once.min(report.here) as u64);
        report.count()
    }

    fn write(&self, path: &Path, failed: Option<&anyhow::Error>) -> Result<()> {
        let mut report = self.report().clone();
        report.failed = failed.map(|failed| (error::chain(failed), error::exit_status(failed)));
        let bytes = serde_json::to_vec(&report)?;
        std::fs::write(path, bytes)
            .with_context(|| format!("cannot write the report `{}`", path.display()))
    }

    fn report(&self) -> MutexGuard<'_, Report> {
        lock(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_is_read_back() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("report");
        assert_eq!(Report::read(&path), None);
        let told = Arc::new(SharedReport::default());
        let shell = told.shell("offld");
        told.found(true);
        told.found(false);
        for peak_memory in [10, 30, 20] {
            told.compiled(
                Usage {
                    peak_memory,
                    ..Usage::default()
                },
                peak_memory < 30,
            );
        }
        shell.note("n");
        shell.warn("w");
        shell.line("l");
        let message = told.done(2);
        assert_eq!(
            message,
            "ThinLTO: 2 units found in the cache (1 of them in the remote cache), 3 compiled"
        );
        let failed = error::StepFailed::new("why", 7).into();
        told.write(&path, Some(&failed)).unwrap();
        let report = Report::read(&path).unwrap();
        assert_eq!(
            (report.found, report.shared, report.compiled, report.memory),
            (2, 1, 3, 40)
        );
        let messages = [("note", "n"), ("warning", "w"), ("", "l")]
            .map(|(label, text)| (label.to_owned(), text.to_owned()));
        assert_eq!(report.messages, messages);
        assert_eq!(report.failed, Some(("why".to_owned(), 7)));
        assert!(told.write(&dir.path().join("none/report"), None).is_err());
    }
}
