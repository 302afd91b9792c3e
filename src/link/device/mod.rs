//! Links device images: one run of clang for each job, in parallel, the largest first. The results are in the order of the jobs
//! whatever the timing (docs/spec/faults.md F7).

mod arg_list;
mod clang;
mod codegen_threads;
mod costs;
mod distribution;
mod distributor;
mod gpu_runtime;
mod inputs;
mod libraries;
mod log_line;
mod memo;
mod nvlink;
mod out_of_memory;
mod override_images;
mod partitions;
mod places;
mod remote_words;
mod running;
mod schedule;
mod thin_hint;
mod turn;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;

pub(crate) use distributor::{DistributorRequest, run as distribute};
pub(crate) use gpu_runtime::missing_runtime;
pub(crate) use libraries::{HostLibrary, added_libraries, host_libraries};
pub(crate) use memo::Tool;
pub(crate) use override_images::read as override_images;

use crate::args::request::{Jobs, LinkRequest, MemoryLimit};
use crate::args::response::Style;
use crate::args::values;
use crate::build_log::Log;
use crate::error::{self, StepFailed};
use crate::link::select::DeviceJob;
use crate::model::{Generation, ImageKind, OffloadKinds};
use crate::store::Cache;
use crate::sys::progress::Progress;
use crate::sys::run::Cmd;
use crate::sys::session::{self, Session};
use crate::sys::toolchain::Compiler;
use crate::target::Target;

use crate::sys::jobs::JobSlots;
use costs::Costs;
use inputs::Inputs;
use memo::DeviceCache;
use places::Places;
use running::{Expected, Links};
use thin_hint::ThinHint;

/// A linked image, in a file.
#[derive(Debug, Clone)]
pub(crate) struct Linked {
    /// What it runs on.
    pub target: Target,
    /// The triple exactly as the inputs spell it, for the image's header: where they spell it in several ways, as the link has it.
    pub triple: String,
    /// The generation of the entry table that lists its kernels.
    pub generation: Generation,
    /// The runtimes it is registered with.
    pub kinds: OffloadKinds,
    /// The format that the linker wrote.
    pub image_kind: ImageKind,
    /// The file.
    pub path: PathBuf,
}

/// What every device link of one run has in common.
pub(crate) struct DeviceContext<'a> {
    /// The user's options.
    pub request: &'a LinkRequest,
    /// The compiler that links.
    pub compiler: &'a Compiler,
    /// The host's triple.
    pub host_triple: &'a str,
    /// The program of the host link: handed on to device links for the same kind of machine (docs/spec/faults.md F34).
    pub host_linker: &'a std::path::Path,
    /// The arguments with which ld.lld can be started early, for the host's kind of machine.
    pub preload_args: Option<Vec<OsString>>,
    /// Libraries of the host link that device code for CPUs may use.
    pub libraries: &'a [HostLibrary],
    /// File name of the link's output, with which temporary names begin.
    pub out_base: String,
    /// The cache, or why there is none.
    pub cache: &'a std::result::Result<Arc<Cache>, String>,
    /// Called when a device link has begun to run, so that other work can be done meanwhile. May be called for each of them.
    pub while_running: &'a (dyn Fn() + Sync),
}

/// Links every job's image.
pub(crate) fn link(jobs: &[DeviceJob<'_>], context: &DeviceContext<'_>, session: &Session) -> Result<Vec<Linked>> {
    let planned: Vec<Planned<'_>> = jobs.iter().map(|job| plan(job, context, session)).collect::<Result<_>>()?;
    let in_order = session.runner.in_order();
    let memory = memory_limit(context.request.memory, session)?;
    let slots = JobSlots::new(if in_order { Jobs::N(1) } else { context.request.jobs }, memory, context.request.verbose, session);
    let places = Places::new(slots, session);
    let costs = Costs::new(context.cache.as_ref().ok(), planned.first().map_or(Path::new(""), |planned| &planned.program));
    let expected = Expected::new(&planned, &costs);
    let order = if in_order || planned.len() < 2 {
        (0..planned.len()).collect()
    } else {
        schedule::longest_first(&expected.all().iter().map(|expected| expected.time).collect::<Vec<f64>>())
    };
    let progress = Progress::new(session.shell.is_terminal() && !context.request.dry_run);
    let cache = cache(context, session);
    let distributes = distribution::is_wanted(context.request, session)?;
    let log = Log::from_environment(&session.shell).filter(|_| !context.request.dry_run);
    let hint = ThinHint::default();
    let links = Links {
        planned: &planned,
        expected,
        costs: &costs,
        places: &places,
        progress: &progress,
        session,
        context,
        hint: &hint,
        log: log.as_ref(),
        distributes,
        cache: cache.as_ref().map_err(String::as_str),
    };
    let done = schedule::run(&links, &order, &places, session);
    costs.keep();
    all_succeeded(done)?;
    Ok(planned.into_iter().map(|planned| planned.linked).collect())
}

/// How much memory device links may take, by the command line, else the environment.
fn memory_limit(given: Option<MemoryLimit>, session: &Session) -> Result<MemoryLimit> {
    if session.runner.in_order() {
        return Ok(MemoryLimit::Off);
    }
    match (given, Session::env(session::OFFLD_MEMORY)) {
        (Some(limit), _) => Ok(limit),
        (None, Some(value)) => values::memory_limit(session::OFFLD_MEMORY, &value),
        (None, None) => Ok(MemoryLimit::default()),
    }
}

/// After all jobs have been tried: the reports of those that failed, one after another, with the exit status of the first.
fn all_succeeded(results: Vec<Result<()>>) -> Result<()> {
    let mut failures: Vec<anyhow::Error> = results.into_iter().filter_map(Result::err).collect();
    if failures.len() < 2 {
        return failures.pop().map_or(Ok(()), Err);
    }
    let status = failures.first().map_or(1, error::exit_status);
    let mut reports: Vec<String> = failures.iter().map(error::chain).collect();
    // A signal ends all jobs with the same report.
    reports.dedup();
    Err(StepFailed { report: reports.join("\n"), status }.into())
}

/// The cache, unless commands are only printed, or must run because the user wants their temporary files. An error says why there
/// is none.
fn cache<'a>(context: &'a DeviceContext<'a>, session: &'a Session) -> std::result::Result<DeviceCache<'a>, String> {
    let request = context.request;
    let cache = match context.cache {
        _ if request.dry_run => return Err(String::new()),
        _ if request.save_temps => Err("with --save-temps they run to write their temporary files"),
        Ok(cache) => Ok(cache),
        Err(why) => Err(why.as_str()),
    };
    let cache = match cache {
        Ok(cache) => cache,
        Err(why) => {
            if request.verbose {
                session.shell.note(&format!("device links are not cached: {why}"));
            }
            return Err(why.to_owned());
        }
    };
    Ok(DeviceCache::new(cache, context, session))
}

/// A job whose file names are chosen. Names depend on the order in which they are requested, so that is done before the parallel
/// part.
struct Planned<'a> {
    job: &'a DeviceJob<'a>,
    inputs: Inputs,
    cmd: Cmd,
    /// The compiler's arguments with placeholders for files, which the cache queries it with; empty if the compiler does not link.
    query: Vec<OsString>,
    dependencies: PathBuf,
    program: PathBuf,
    linked: Linked,
}

fn plan<'a>(job: &'a DeviceJob<'a>, context: &DeviceContext<'_>, session: &Session) -> Result<Planned<'a>> {
    let by_nvlink = nvlink::serves(&job.target, context);
    // nvlink recognises files by their extension.
    let ending = if by_nvlink { "cubin" } else { "o" };
    let inputs = Inputs::named(job, ending, session)?;
    let Target { arch, .. } = &job.target;
    let output = session.scratch.path(&format!("{}.{}.{arch}", context.out_base, job.target.arch_name()), "img")?;
    let (program, args) = if by_nvlink {
        nvlink::command(job, context, &inputs.each, &output)?
    } else {
        (context.compiler.path.clone(), clang::arguments(job, context, &inputs.each, &output)?)
    };
    // A compiler that compiles before it links runs two programs; the cache is for links that one program does.
    let query = if clang::compiles_each(&job.target, context) || context.cache.is_err() {
        Vec::new()
    } else if by_nvlink {
        nvlink::command(job, context, &[memo::INPUT.into()], Path::new(memo::OUTPUT))?.1
    } else {
        clang::arguments(job, context, &[memo::INPUT.into()], Path::new(memo::OUTPUT))?
    };
    let step = format!("device link for {}", job.target);
    if let Some(Err(why)) = partitions::count(job, context)?.filter(|_| context.request.verbose) {
        session.shell.note(&format!("{step}: --wrapper-lto-partitions= is ignored: {why}"));
    }
    let cmd = Cmd {
        step,
        program,
        args,
        quoting: Style::Gnu,
        inputs: job.inputs.iter().map(|input| input.origin.to_string()).collect(),
        output: Some(output.clone()),
    };
    let image_kind = if context.request.embed_bitcode { ImageKind::Bitcode } else { ImageKind::Object };
    let spelled = job.inputs.iter().find(|input| input.triple.trim_end_matches('-') == job.target.triple);
    let triple = spelled.map_or_else(|| job.target.triple.clone(), |input| input.triple.clone());
    let dependencies = output.with_extension("d");
    let program = context.request.output.clone().unwrap_or_else(|| PathBuf::from(&context.out_base));
    let linked =
        Linked { target: job.target.clone(), triple, generation: job.generation, kinds: job.kinds, image_kind, path: output };
    Ok(Planned { job, inputs, cmd, query, dependencies, program, linked })
}
