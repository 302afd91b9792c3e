//! Links device images: one run of clang for each job, as many at a time as there are cores, the largest first. The results are
//! in the order of the jobs whatever the timing (docs/spec/faults.md F7).

mod arg_list;
mod clang;
mod inputs;
mod libraries;
mod memo;
mod nvlink;
mod override_images;

use std::cmp::Reverse;
use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use rayon::prelude::*;

pub(crate) use libraries::{HostLibrary, added_libraries, host_libraries};
pub(crate) use memo::Tool;
pub(crate) use override_images::given;

use crate::args::request::{Jobs, LinkRequest};
use crate::args::response::Style;
use crate::error::{self, StepFailed};
use crate::link::select::DeviceJob;
use crate::model::{Generation, ImageKind, OffloadKind, OffloadKinds};
use crate::store::Cache;
use crate::sys::progress::Progress;
use crate::sys::run::Cmd;
use crate::sys::session::Session;
use crate::sys::shell::command_line;
use crate::sys::toolchain::Compiler;
use crate::sys::trace::span;
use crate::target::Target;

use crate::sys::jobs::JobSlots;
use inputs::Inputs;
use memo::{DeviceCache, LinkQuery, ResolvedLink};

/// A linked image, in a file.
#[derive(Debug, Clone)]
pub(crate) struct Linked {
    /// What it runs on.
    pub target: Target,
    /// The triple exactly as the inputs spell it, for the image's header.
    pub triple: String,
    /// Which entry table its kernels are looked up through.
    pub generation: Generation,
    /// The runtimes it is registered with.
    pub kinds: OffloadKinds,
    /// What the linker made.
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
    /// The words that ld.lld can be started with ahead of its time, for the host's kind of machine.
    pub preload_args: Option<Vec<OsString>>,
    /// Libraries of the host line that device code for CPUs may use.
    pub libraries: &'a [HostLibrary],
    /// File name of the link's output, the stem of temporary names.
    pub out_base: String,
    /// Where images are kept, or why they are not.
    pub cache: &'a std::result::Result<Arc<Cache>, String>,
    /// Called when a device link is about to be run: what is to be done beside it can begin.
    pub on_first_job: &'a (dyn Fn() + Sync),
}

/// Links every job's image.
pub(crate) fn link(jobs: &[DeviceJob<'_>], context: &DeviceContext<'_>, session: &Session) -> Result<Vec<Linked>> {
    let planned: Vec<Planned<'_>> = jobs.iter().map(|job| plan(job, context, session)).collect::<Result<_>>()?;
    let in_order = session.runner.in_order();
    let mut order: Vec<usize> = (0..planned.len()).collect();
    if !in_order {
        order.sort_by_key(|&at| Reverse(planned[at].job.inputs.iter().map(|input| input.bytes.len()).sum::<usize>()));
    }
    let slots = JobSlots::new(if in_order { Jobs::N(1) } else { context.request.jobs }, session);
    let progress = Progress::new(session.shell.is_terminal() && !context.request.dry_run);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(slots.threads)
        .build()
        .context("cannot start the threads for device links")?;
    let cache = cache(context, session);
    let next = AtomicUsize::new(0);
    // Each turn takes the next job in order, whichever part of the range rayon gave it: the longest does start first.
    let turn = |_| {
        let at = order[next.fetch_add(1, Ordering::SeqCst)];
        (
            at,
            Work { at, planned: &planned[at], slots: &slots, progress: &progress, on_first_job: context.on_first_job, session }
                .link(cache.as_ref()),
        )
    };
    let mut done: Vec<(usize, Result<()>)> =
        pool.install(|| (0..order.len()).into_par_iter().with_max_len(1).map(turn).collect());
    done.sort_by_key(|(at, _)| *at);
    all_succeeded(done.into_iter().map(|(_, result)| result).collect())?;
    Ok(planned.into_iter().map(|planned| planned.linked).collect())
}

/// Every job has been tried. The reports of all that failed, one after another; the exit status is that of the first.
fn all_succeeded(results: Vec<Result<()>>) -> Result<()> {
    let mut failures: Vec<anyhow::Error> = results.into_iter().filter_map(Result::err).collect();
    if failures.len() < 2 {
        return failures.pop().map_or(Ok(()), Err);
    }
    let status = failures.first().map_or(1, error::exit_status);
    let mut reports: Vec<String> = failures.iter().map(error::chain).collect();
    // A signal ends all jobs with the same words.
    reports.dedup();
    Err(StepFailed { report: reports.join("\n"), status }.into())
}

/// The cache, where commands are run at all and leave nothing else behind.
fn cache<'a>(context: &'a DeviceContext<'a>, session: &'a Session) -> Option<DeviceCache<'a>> {
    let request = context.request;
    let cache = match context.cache {
        _ if request.dry_run => return None,
        _ if request.save_temps => Err("the files of --save-temps are made by doing them"),
        Ok(cache) => Ok(cache),
        Err(why) => Err(why.as_str()),
    };
    let cache = match cache {
        Ok(cache) => cache,
        Err(why) => {
            if request.verbose {
                session.shell.note(&format!("device links are not cached: {why}"));
            }
            return None;
        }
    };
    Some(DeviceCache::new(cache, context, session))
}

/// A job with all its names chosen, so that the parallel part only writes and runs.
struct Planned<'a> {
    job: &'a DeviceJob<'a>,
    inputs: Inputs,
    cmd: Cmd,
    /// The compiler's arguments with stand-ins for files, by which the cache asks; none when it is no compiler that links.
    query: Vec<OsString>,
    dependencies: PathBuf,
    program: PathBuf,
    linked: Linked,
}

fn plan<'a>(job: &'a DeviceJob<'a>, context: &DeviceContext<'_>, session: &Session) -> Result<Planned<'a>> {
    let by_nvlink = nvlink::serves(&job.target, context);
    // nvlink tells by the name what is in a file.
    let ending = if by_nvlink { "cubin" } else { "o" };
    let inputs = Inputs::named(job, ending, session)?;
    let Target { arch, .. } = &job.target;
    let output = session.scratch.path(&format!("{}.{}.{arch}", context.out_base, job.target.arch_name()), "img")?;
    let (program, args) = if by_nvlink {
        nvlink::command(job, context, &inputs.each, &output)?
    } else {
        (context.compiler.path.clone(), clang::arguments(job, context, &inputs.each, &output)?)
    };
    let query = if by_nvlink || context.cache.is_err() {
        Vec::new()
    } else {
        clang::arguments(job, context, &[memo::INPUT.into()], Path::new(memo::OUTPUT))?
    };
    let cmd = Cmd {
        step: format!("device link for {}", job.target),
        program,
        args,
        quoting: Style::Gnu,
        inputs: job.inputs.iter().map(|input| input.origin.to_string()).collect(),
        output: Some(output.clone()),
    };
    let image_kind = if context.request.embed_bitcode { ImageKind::Bitcode } else { ImageKind::Object };
    let triple = job.inputs.first().map_or_else(|| job.target.triple.clone(), |input| input.triple.clone());
    let dependencies = output.with_extension("d");
    let program = context.request.output.clone().unwrap_or_else(|| PathBuf::from(&context.out_base));
    let linked =
        Linked { target: job.target.clone(), triple, generation: job.generation, kinds: job.kinds, image_kind, path: output };
    Ok(Planned { job, inputs, cmd, query, dependencies, program, linked })
}

/// A job when it is its turn.
struct Work<'w> {
    at: usize,
    planned: &'w Planned<'w>,
    slots: &'w JobSlots,
    progress: &'w Progress,
    on_first_job: &'w (dyn Fn() + Sync),
    session: &'w Session,
}

impl Work<'_> {
    fn link(&self, cache: Option<&DeviceCache<'_>>) -> Result<()> {
        self.session.signals.check()?;
        let _job = self.session.trace.span(span::JOB, self.at + 1);
        let known = match cache {
            None => None,
            Some(_) if self.planned.query.is_empty() => None,
            Some(cache) => {
                let query = self.query();
                match cache.resolve(&query) {
                    Ok(known) if cache.fetch(&known, &query)?.is_ok() => return Ok(()),
                    Ok(known) => Some((cache, known)),
                    Err(why) => {
                        cache.skip(&self.planned.cmd.step, &why);
                        None
                    }
                }
            }
        };
        // A link that was found has taken no slot: nothing is run for it.
        let _slot = self.slots.take(self.session)?;
        (self.on_first_job)();
        self.session.signals.check()?;
        self.progress.begin(self.at, &self.planned.cmd.step);
        let linked = match known {
            Some((cache, known)) => self.by_linker(cache, known),
            None => self.by_compiler(),
        };
        self.progress.end(self.at);
        linked
    }

    fn query(&self) -> LinkQuery<'_> {
        let Planned { job, cmd, query, program, linked, .. } = self.planned;
        LinkQuery { job, cmd, args: query, image: &linked.path, program }
    }

    fn by_compiler(&self) -> Result<()> {
        let Planned { job, inputs, cmd, .. } = self.planned;
        inputs.write_each(job)?;
        let mut clang = self.session.trace.span(span::CLANG, self.at + 1);
        clang.set_arg("target", job.target.to_string());
        clang.set_arg("command", command_line(&cmd.program, &cmd.args));
        clang.record_usage(self.session.runner.run(cmd)?);
        drop(clang);
        inputs.discard(self.session);
        Ok(())
    }

    fn by_linker(&self, cache: &DeviceCache<'_>, known: ResolvedLink) -> Result<()> {
        let Planned { job, inputs, dependencies, .. } = self.planned;
        let (words, files) = inputs.write(job, known.takes_archives())?;
        let mut linker = self.session.trace.span(span::CLANG, self.at + 1);
        linker.set_arg("target", job.target.to_string());
        linker.record_usage(cache.link(known, &self.query(), &words, &files, dependencies.clone())?);
        drop(linker);
        inputs.discard(self.session);
        Ok(())
    }
}

/// The linked images of one kind, in order.
pub(crate) fn of_kind(linked: &[Linked], kind: OffloadKind) -> Vec<&Linked> {
    linked.iter().filter(|image| image.kinds.contains(kind)).collect()
}
