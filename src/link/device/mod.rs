//! Device links: runs one link per image, in parallel and longest first.
//!
//! The linker is clang or nvlink. The results are in the order of the jobs, independent of timing
//! (docs/spec/faults.md F7).

mod attempt;
mod clang;
mod codegen_threads;
mod costs;
mod distribution;
mod distributor;
mod gpu_runtime;
mod inputs;
mod libraries;
mod link_cache;
mod log_line;
mod messages;
mod nvlink;
mod object_calls;
mod other_linkers;
mod override_images;
mod partitions;
mod remote_compiler;
mod running;
mod schedule;

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;

pub(crate) use distributor::{DistributorRequest, run as distribute};
pub(crate) use gpu_runtime::missing_runtime;
pub(crate) use libraries::{
    HostLibrary, added_libraries, host_libraries, leave_symbols_open, linker_finds,
};
pub(crate) use link_cache::Tool;
pub(crate) use nvlink::required_symbols;
pub(crate) use override_images::read as override_images;

use crate::args::response::Style;
use crate::args::settings::{Jobs, LinkSettings, MemoryLimit};
use crate::build_log::Log;
use crate::error::{self, StepFailed};
use crate::link::select::DeviceJob;
use crate::model::{Generation, ImageKind, OffloadKinds};
use crate::store::Caching;
use crate::sys::progress::Progress;
use crate::sys::run::Cmd;
use crate::sys::session::Session;
use crate::sys::toolchain::Compiler;
use crate::target::Target;

use crate::sys::jobs::JobSlots;
use costs::Costs;
use inputs::Inputs;
use link_cache::DeviceCache;
use messages::ThinHint;
use partitions::Partitions;
use running::{Expected, Links};
use schedule::RunnerSlots;

/// A linked image in a file.
#[derive(Debug, Clone)]
pub(crate) struct Linked {
    /// The target that the image runs on.
    pub target: Target,
    /// The triple for the image's header: that of the first input whose triple matches up to
    /// trailing dashes, else the target's.
    pub triple: String,
    /// The generation of the entry table that lists the image's kernels.
    pub generation: Generation,
    /// The runtimes that the image is registered with.
    pub kinds: OffloadKinds,
    /// The format that the linker wrote.
    pub image_kind: ImageKind,
    pub path: PathBuf,
}

/// Settings and services that all device links of one run share.
pub(crate) struct DeviceContext<'a> {
    pub settings: &'a LinkSettings,
    /// The compiler that runs the device links.
    pub compiler: &'a Compiler,
    pub host_triple: &'a str,
    /// The linker of the host link. Device links for the host's architecture use it as well
    /// (docs/spec/faults.md F34).
    pub host_linker: &'a std::path::Path,
    /// Arguments to preload ld.lld for the host's architecture, if it can be preloaded.
    pub preload_args: Option<Vec<OsString>>,
    /// Libraries of the host link that device code for CPUs may use.
    pub libraries: &'a [HostLibrary],
    /// File name of the link's output. Temporary file names begin with it.
    pub out_base: String,
    pub caching: &'a Caching,
    /// Called once a device link is running, so that the caller can do other work meanwhile. Each
    /// device link may call it.
    pub while_running: &'a (dyn Fn() + Sync),
}

/// Links the images of all jobs.
pub(crate) fn link(
    jobs: &[DeviceJob<'_>],
    context: &DeviceContext<'_>,
    session: &Session,
) -> Result<Vec<Linked>> {
    object_calls::warn(jobs, context, &session.shell);
    let planned: Vec<Planned<'_>> = jobs
        .iter()
        .map(|job| plan(job, context, session))
        .collect::<Result<_>>()?;
    let in_order = session.runner.in_order();
    let run = &context.settings.run;
    let (jobs_at_once, memory) = if in_order {
        (Jobs::N(1), MemoryLimit::Off)
    } else {
        (run.jobs, run.memory.get()?)
    };
    let slots = JobSlots::new(jobs_at_once, memory, run.verbose, session);
    let places = RunnerSlots::new(slots, session);
    let costs = Costs::new(
        context.caching.cache().ok(),
        planned
            .first()
            .map_or(Path::new(""), |planned| &planned.program),
    );
    let expected = Expected::new(&planned, &costs);
    let order = if in_order || planned.len() < 2 {
        (0..planned.len()).collect()
    } else {
        schedule::longest_first(
            &expected
                .all()
                .iter()
                .map(|expected| expected.time)
                .collect::<Vec<f64>>(),
        )
    };
    let progress = Progress::new(session.shell.is_terminal() && !run.dry_run);
    let cache = cache(context, session);
    let distributes = distribution::is_wanted(context.settings, session)?;
    let log = context.settings.cache.log.as_ref().filter(|_| !run.dry_run);
    let log = log.map(|path| Arc::new(Log::new(path.clone(), Arc::clone(&session.shell))));
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

/// Merges the errors of all jobs into one, with the exit status of the first failure. Every job has
/// been tried by then.
fn all_succeeded(results: Vec<Result<()>>) -> Result<()> {
    let mut failures: Vec<anyhow::Error> = results.into_iter().filter_map(Result::err).collect();
    if failures.len() < 2 {
        return failures.pop().map_or(Ok(()), Err);
    }
    let status = failures.first().map_or(1, error::exit_status);
    let mut reports: Vec<String> = failures.iter().map(error::chain).collect();
    // A signal ends all jobs with the same report.
    reports.dedup();
    Err(StepFailed::new(reports.join("\n"), status).into())
}

/// Opens the cache for device links, or returns the reason why it is off.
///
/// A dry run gives an empty reason. With `--save-temps` every command must run, because the user
/// wants its temporary files.
fn cache<'a>(
    context: &'a DeviceContext<'a>,
    session: &'a Session,
) -> std::result::Result<DeviceCache<'a>, String> {
    let settings = context.settings;
    let cache = match context.caching.cache() {
        _ if settings.run.dry_run => return Err(String::new()),
        _ if settings.run.save_temps => Err("--save-temps needs the temporary files of every link"),
        cache => cache,
    };
    match cache {
        Ok(cache) => Ok(DeviceCache::new(cache, context, session)),
        Err(why) => {
            if settings.run.verbose {
                session
                    .shell
                    .note(&format!("device links are not cached: {why}"));
            }
            Err(why.to_owned())
        }
    }
}

/// A job with its file names. The names depend on the order of requests, so they are chosen before
/// the parallel part begins.
struct Planned<'a> {
    job: &'a DeviceJob<'a>,
    inputs: Inputs,
    cmd: Cmd,
    /// The compiler's arguments with placeholders for files, for the cache's query. Empty if the
    /// job cannot be cached.
    query: Vec<OsString>,
    dependencies: PathBuf,
    program: PathBuf,
    linked: Linked,
}

fn plan<'a>(
    job: &'a DeviceJob<'a>,
    context: &DeviceContext<'_>,
    session: &Session,
) -> Result<Planned<'a>> {
    let by_nvlink = nvlink::serves(&job.target, context);
    // nvlink recognises file types by the extension.
    let ending = if by_nvlink { "cubin" } else { "o" };
    let packs = job.target.is_nvptx() && nvlink::is_wrapped(context);
    let inputs = Inputs::named(job, ending, packs, session)?;
    let words = inputs.words();
    let Target { arch, .. } = &job.target;
    let output = session.scratch.path(
        &format!("{}.{}.{arch}", context.out_base, job.target.arch_name()),
        "img",
    )?;
    let partitions = Partitions::of(job, context)?;
    let command = |inputs: &[OsString], output: &Path| {
        if by_nvlink {
            return nvlink::command(job, context, inputs, output);
        }
        let mut args = clang::arguments(job, context, inputs, output)?;
        args.extend(partitions.argument());
        Ok((context.compiler.path.clone(), args))
    };
    let (program, args) = command(&words, &output)?;
    // The cache supports links by a single program. A compiler that compiles before it links runs
    // two.
    let query = if clang::compiles_each(&job.target, context) || context.caching.cache().is_err() {
        Vec::new()
    } else {
        command(&[link_cache::INPUT.into()], Path::new(link_cache::OUTPUT))?.1
    };
    let step = format!("device link for {}", job.target);
    if let Partitions::Ignored(why) = &partitions
        && context.settings.run.verbose
    {
        session.shell.note(&format!(
            "{step}: --wrapper-lto-partitions= is ignored: {why}"
        ));
    }
    let cmd = Cmd {
        step,
        program,
        args,
        quoting: Style::Gnu,
        inputs: job
            .inputs
            .iter()
            .map(|input| input.origin.to_string())
            .collect(),
        output: Some(output.clone()),
    };
    let image_kind = if context.settings.device.embed_bitcode {
        ImageKind::Bitcode
    } else {
        ImageKind::Object
    };
    let spelled = job
        .inputs
        .iter()
        .find(|input| input.triple.trim_end_matches('-') == job.target.triple);
    let triple = spelled.map_or_else(|| job.target.triple.clone(), |input| input.triple.clone());
    let dependencies = output.with_extension("d");
    let program = context
        .settings
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(&context.out_base));
    let linked = Linked {
        target: job.target.clone(),
        triple,
        generation: job.generation,
        kinds: job.kinds,
        image_kind,
        path: output,
    };
    Ok(Planned {
        job,
        inputs,
        cmd,
        query,
        dependencies,
        program,
        linked,
    })
}
