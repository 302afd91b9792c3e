//! `offld thinlto-distributor`: compiles the units of a ThinLTO link, which ld.lld hands over as a list of jobs (LLVM's DTLTO). A unit
//! whose object is in the cache, on this machine or on another, is not compiled; the others are, in parallel, and their objects are kept.
//!
//! ld.lld starts this program, which a device link or the user has named on its line, and waits for it. What it has to say goes to stderr,
//! or, where a device link waits for it, into a report (`report`): that link keeps what its linker says for later links.

mod jobs_file;
mod keys;
mod report;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Instant, SystemTime};

use anyhow::{Context, Result};
use serde::{Deserialize, Serialize};

use super::memo::{Tool, of_environment};
use super::out_of_memory;
use super::places::{Place, Places};
use super::schedule::{self, LookedUp, Work};
use crate::args::request::{Jobs, Launching, MemoryLimit};
use crate::args::response::Style;
use crate::error;
use crate::store::settings;
use crate::store::{BlobName, Cache, Key, SecretKey};
use crate::sys::clock;
use crate::sys::jobs::{Demand, JobSlots, Refusal};
use crate::sys::launcher::{Launched, Launcher, Ran, Request};
use crate::sys::lifeline;
use crate::sys::run::{Cmd, Said};
use crate::sys::session::{self, Session, SessionOptions};
use crate::sys::shell::Shell;
use crate::sys::signals;
use crate::sys::trace::Usage;
use jobs_file::{BackendJob, JobsFile};
use keys::UnitKeys;
pub(super) use report::Report;
use report::Told;

/// What `offld thinlto-distributor` is asked for.
#[derive(Debug)]
pub(crate) struct DistributorRequest {
    /// The file in which ld.lld describes the jobs.
    pub(crate) jobs_file: PathBuf,
    /// How many run at once.
    pub(crate) jobs: Jobs,
    /// The folder of the cache, or off, as `--wrapper-cache=` has it.
    pub(crate) cache: Option<OsString>,
    /// The file for the report; without it everything is said at once.
    pub(crate) report: Option<PathBuf>,
    /// The lifeline of the device link that waits for it: when it ends, so do the jobs, and its temporary folder goes.
    pub(crate) lifeline: Option<PathBuf>,
    /// What runs jobs on other machines.
    pub(crate) launching: Launching,
    /// Whether it is said what was done.
    pub(crate) verbose: bool,
}

/// What is known of a unit's object.
#[derive(Debug, Serialize, Deserialize)]
struct KeptUnit {
    /// The object's name in the cache.
    object: String,
    /// What the compiler said, to be said again.
    stderr: String,
}

/// The units of one link.
struct Units<'u> {
    program: PathBuf,
    file: &'u JobsFile,
    keys: Option<&'u UnitKeys>,
    cache: std::result::Result<Arc<Cache>, String>,
    places: &'u Places<'u>,
    session: &'u Session,
    told: &'u Told,
    /// When this was begun, by both clocks, before any file was read.
    begun: (SystemTime, Instant),
    request: &'u DistributorRequest,
}

/// Compiles what `request` names, or finds it. Messages go to `shell`, unless a report is asked for.
///
/// # Errors
/// The jobs cannot be read, or one of them has failed. With a report, the error is in it, and only the exit status is left to tell.
pub(crate) fn run(request: &DistributorRequest, shell: &Arc<Shell>) -> Result<()> {
    signals::end_with_parent();
    let orphaned = follow(request.lifeline.as_deref());
    let told = Arc::new(Told::default());
    let shell = request.report.as_ref().map_or_else(|| Arc::clone(shell), |_| Arc::new(told.shell(shell.name())));
    let done = compile_all(request, &shell, &told);
    if let Some(folder) = request.lifeline.as_deref().and_then(Path::parent).filter(|_| orphaned.load(Ordering::SeqCst)) {
        // Its owner cannot remove it any more.
        let _ = std::fs::remove_dir_all(folder);
    }
    let Some(report) = &request.report else { return done };
    let failed = done.err();
    told.write(report, failed.as_ref())?;
    failed.map_or(Ok(()), |failed| Err(error::Silent { status: error::exit_status(&failed) }.into()))
}

/// Ends this process when the device link whose lifeline this is has ended. Returns where that will be noted.
fn follow(lifeline: Option<&Path>) -> Arc<AtomicBool> {
    let orphaned = Arc::new(AtomicBool::new(false));
    if let Some(path) = lifeline {
        let noted = Arc::clone(&orphaned);
        // Without it, the jobs end when they are done.
        let _ = lifeline::end_with(path, move || noted.store(true, Ordering::SeqCst));
    }
    orphaned
}

fn compile_all(request: &DistributorRequest, shell: &Arc<Shell>, told: &Told) -> Result<()> {
    let file = JobsFile::read(&request.jobs_file)?;
    let launcher = Launcher::new(&request.launching, request.verbose)?;
    // What a device link waits for has its files and its memory by that link.
    let within = Session::env(session::OFFLD_WITHIN).is_some();
    let temp_folder = launcher.as_ref().filter(|_| !within).map(|_| Launcher::temp_folder(file.linker_output()));
    let options = SessionOptions { verbose: request.verbose, temp_folder, ..SessionOptions::default() };
    let session = &Session { launcher, ..Session::new(Arc::clone(shell), options) };
    let program = PathBuf::from(file.program()?);
    let cache = open_cache(request, &session.shell);
    let begun = match &cache {
        Ok(cache) => (cache.clock().now(), cache.clock().running()),
        Err(_) => (SystemTime::now(), Instant::now()),
    };
    let keys = cache.as_ref().map_err(Clone::clone).and_then(|cache| {
        let tool = Tool::of(&program, cache)?;
        Ok(UnitKeys::new(tool, of_environment(), &file))
    });
    let memory = if within { MemoryLimit::Off } else { super::memory_limit(None, session)? };
    let slots = JobSlots::new(request.jobs, memory, request.verbose, session);
    let places = Places::new(slots, session);
    let order = schedule::longest_first(&file.jobs.iter().map(|job| job.size() as f64).collect::<Vec<f64>>());
    let units = Units { program, file: &file, keys: keys.as_ref().ok(), cache, places: &places, session, told, begun, request };
    if let Err(why) = &keys {
        units.note(|| format!("ThinLTO's units are not cached: {why}"));
    }
    let done = schedule::run(&units, &order, &places, session);
    if let Ok(cache) = &units.cache {
        cache.finish_unless(&|| session.signals.check_received().is_err());
    }
    let count = told.done(places.here().limit());
    if request.report.is_none() {
        units.note(|| count.clone());
    }
    super::all_succeeded(done)
}

/// The cache that the options and the environment select, or why there is none.
fn open_cache(request: &DistributorRequest, shell: &Arc<Shell>) -> std::result::Result<Arc<Cache>, String> {
    let setting = settings::resolve(request.cache.as_deref());
    let root = setting.root.as_deref().ok_or_else(|| setting.why_off.clone().unwrap_or_default())?;
    let key = SecretKey::of_environment().map_err(|error| format!("{error:#}"))?;
    let shell = Arc::clone(shell);
    let cache = Cache::open(&setting, root, key, Arc::new(move |warning| shell.warn(warning)));
    cache.map(Arc::new).map_err(|error| format!("{error:#}"))
}

impl Work for Units<'_> {
    /// The key of the unit, if it has one.
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
        if let Some(waits) = out_of_memory::waits_for(demand, why) {
            self.note(|| format!("{}: waits for {waits}", step(&self.file.jobs[at])));
        }
    }

    fn run(&self, at: usize, key: Option<Key>, place: Place<'_>) -> Result<()> {
        let job = &self.file.jobs[at];
        let cmd = self.cmd(job);
        let Compiled { usage, said, ran } = match self.compile(job, &cmd, place) {
            Err(error) => self.again_if_killed(job, &cmd, error)?,
            Ok(compiled) => compiled,
        };
        self.told.compiled(usage, ran.is_none());
        if let Some(ran) = ran
            && let Some(why) = self.differs(job, &ran)
        {
            self.told.not_kept(&why);
            self.note(|| format!("{}: not cached: {why}", step(job)));
            return Ok(());
        }
        if let (Some(key), Ok(cache), Some(keys)) = (key, &self.cache, self.keys) {
            let unit = FinishedUnit { key, job: job.clone(), said, keys: keys.clone(), begun: self.begun };
            let (own, shell, verbose) = (Arc::clone(cache), Arc::clone(&self.session.shell), self.request.verbose);
            cache.later(move || match unit.keep(&own) {
                Err(why) if verbose => shell.note(&format!("{}: not cached: {why}", step(&unit.job))),
                _ => {}
            });
        }
        Ok(())
    }
}

impl Units<'_> {
    /// Runs one job to its end: by the launcher, else on this machine. All jobs are run here.
    fn compile<'p>(&'p self, job: &BackendJob, cmd: &Cmd, mut place: Place<'p>) -> Result<Compiled> {
        self.session.signals.check()?;
        if let Place::Launched { launcher, .. } = &place {
            let request = Request {
                threads: place.granted(1, self.request.jobs),
                memory: job.memory(),
                job: format!("offld-{}", job.name()),
                compare: &self.compared(job),
                dependencies: None,
            };
            if let Launched::Ran(mut ran) = launcher.run(cmd, &request, self.session, &|| ())? {
                return Ok(Compiled { usage: ran.usage, said: std::mem::take(&mut ran.said), ran: Some(ran) });
            }
            self.told.given_up();
            place = Place::Here(self.places.here().take(&Demand::one_thread(job.memory()), self.session)?);
        }
        let (usage, said) = self.session.runner.run_capturing(cmd, &|| ())?;
        drop(place);
        Ok(Compiled { usage, said, ran: None })
    }

    /// After a job has failed with `error`: where it was killed for want of memory, it is run once more, here, with none beside it.
    fn again_if_killed(&self, job: &BackendJob, cmd: &Cmd, error: anyhow::Error) -> Result<Compiled> {
        let Some(killed) = out_of_memory::of(&error) else { return Err(error) };
        self.session.shell.warn(&out_of_memory::tried_again(&cmd.step, killed));
        let demand = Demand { alone: true, ..Demand::one_thread(job.memory().max(killed.peak_memory)) };
        let slot = self.places.here().take(&demand, self.session)?;
        let free = self.places.here().free_memory();
        self.compile(job, cmd, Place::Here(slot)).map_err(|error| match out_of_memory::of(&error) {
            Some(killed) => out_of_memory::given_up(killed, free).into(),
            None => error,
        })
    }

    /// Files that must be the same on another machine: the compiler's, and what is read besides temporary files.
    fn compared(&self, job: &BackendJob) -> Vec<PathBuf> {
        let temporary = session::temp_folder();
        let read = job.inputs.iter().map(PathBuf::from).filter(|file| !file.starts_with(&temporary));
        self.keys.into_iter().flat_map(UnitKeys::tool_files).chain(read).collect()
    }

    /// Why an object that was made elsewhere may not be kept, if it may not.
    fn differs(&self, job: &BackendJob, ran: &Ran) -> Option<String> {
        let compared = self.compared(job);
        let file = ran.differing(compared.iter().map(PathBuf::as_path))?;
        if let Some(launcher) = &self.session.launcher {
            launcher.tell_of_file(file, &ran.node, &step(job), self.session);
        }
        Some(format!("`{}` is not the same file on {} as here", file.display(), ran.node))
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

    /// The key of a job's object; none where nothing is cached, an error where this one cannot be.
    fn key(&self, job: &BackendJob) -> std::result::Result<Option<Key>, String> {
        match (self.keys, &self.cache) {
            (Some(keys), Ok(cache)) => keys.of(job, self.file, cache.shared_key(keys::KIND)).map(Some),
            _ => Ok(None),
        }
    }

    /// Puts the object under `key` at its place; returns whether it was found.
    fn fetch(&self, key: Key, job: &BackendJob) -> bool {
        let (Ok(cache), Some(output)) = (&self.cache, job.output()) else { return false };
        let found = |bytes: Vec<u8>| {
            let kept: KeptUnit = serde_json::from_slice(&bytes).ok()?;
            let object = BlobName::parse(&kept.object).filter(|object| cache.accepts(*object))?;
            cache.fetch_blob(object, Path::new(output)).ok().filter(|found| *found)?;
            Some((kept, cache.was_shared(object)))
        };
        // Where the object of this machine's record is gone, another may have both.
        let found_here = cache.own_record(key).and_then(found);
        let Some((kept, shared)) = found_here.or_else(|| cache.record(key).and_then(found)) else { return false };
        self.told.found(shared);
        let stderr = kept.stderr.chars().filter(|c| !c.is_control() || matches!(c, '\n' | '\t')).collect::<String>();
        self.session.shell.text(&stderr);
        true
    }

    fn note(&self, text: impl Fn() -> String) {
        if self.request.verbose {
            self.session.shell.note(&text());
        }
    }
}

/// A job that has ended well.
struct Compiled {
    usage: Usage,
    said: Said,
    /// What is known of the run on another machine.
    ran: Option<Box<Ran>>,
}

/// The name of a job's step.
fn step(job: &BackendJob) -> String {
    format!("ThinLTO's code generation for `{}`", job.inputs.first().map_or("", String::as_str))
}

/// A unit that was compiled.
struct FinishedUnit {
    key: Key,
    job: BackendJob,
    said: Said,
    keys: UnitKeys,
    begun: (SystemTime, Instant),
}

impl FinishedUnit {
    /// Keeps its object, or says why it cannot be kept.
    fn keep(&self, cache: &Arc<Cache>) -> std::result::Result<(), String> {
        if self.said.printed {
            return Err("the compiler has printed something, which is to be printed each time".to_owned());
        }
        let stderr = String::from_utf8(self.said.stderr.clone()).map_err(|_| "the compiler's messages are not in UTF-8")?;
        if self.job.inputs.iter().chain(&self.job.outputs).any(|file| stderr.contains(file.as_str())) {
            return Err("the compiler's messages name a temporary file".to_owned());
        }
        self.keys.verify_unchanged(&self.job, self.begun.0)?;
        clock::check_not_set(cache.clock(), self.begun.0, self.begun.1)?;
        let output = self.job.output().ok_or("it has no output")?;
        let text_of = |error: anyhow::Error| format!("{error:#}");
        let object = cache.put_blob(Path::new(output), None).map_err(text_of)?.to_string();
        let kept = serde_json::to_vec(&KeptUnit { object, stderr }).map_err(|error| error.to_string())?;
        cache.put_record(self.key, &kept).with_context(|| "its record").map_err(text_of)
    }
}
