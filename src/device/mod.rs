//! Links device images: one run of clang for each job, as many at a time as there are cores, the largest first. The results are
//! in the order of the jobs whatever the timing (idiom 5, fault F7).

mod clang;
mod given;
mod jobs;
mod libraries;
mod nvlink;

use std::cmp::Reverse;
use std::path::PathBuf;
use std::sync::atomic::{AtomicUsize, Ordering};

use anyhow::{Context, Result};
use rayon::prelude::*;

pub use given::given;
pub use libraries::{HostLibrary, added_libraries, host_libraries};

use crate::args::request::{Jobs, LinkRequest};
use crate::args::response::Style;
use crate::error::{self, StepFailed};
use crate::model::{Generation, ImageKind, OffloadKind, OffloadKinds};
use crate::progress::Progress;
use crate::run::Cmd;
use crate::select::DeviceJob;
use crate::session::Session;
use crate::shell::command_line;
use crate::target::Target;
use crate::toolchain::Compiler;
use crate::trace::span;

use jobs::Slots;

/// A linked image, in a file.
#[derive(Debug, Clone)]
pub struct Linked {
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
pub struct DeviceContext<'a> {
    /// The user's wishes.
    pub request: &'a LinkRequest,
    /// The compiler that links.
    pub compiler: &'a Compiler,
    /// The host's triple.
    pub host_triple: &'a str,
    /// The program of the host link: handed on to device links for the same kind of machine (fault F34).
    pub host_linker: &'a std::path::Path,
    /// Libraries of the host line that device code for CPUs may use.
    pub libraries: &'a [HostLibrary],
    /// File name of the link's output, the stem of temporary names.
    pub out_base: String,
}

/// Links every job's image.
pub fn link(jobs: &[DeviceJob<'_>], context: &DeviceContext<'_>, session: &Session) -> Result<Vec<Linked>> {
    let planned: Vec<Planned<'_>> = jobs.iter().map(|job| plan(job, context, session)).collect::<Result<_>>()?;
    let in_order = session.runner.in_order();
    let mut order: Vec<usize> = (0..planned.len()).collect();
    if !in_order {
        order.sort_by_key(|&at| Reverse(planned[at].job.inputs.iter().map(|input| input.bytes.len()).sum::<usize>()));
    }
    let slots = Slots::new(if in_order { Jobs::N(1) } else { context.request.jobs }, session);
    let progress = Progress::new(session.shell.is_terminal() && !context.request.dry_run);
    let pool = rayon::ThreadPoolBuilder::new()
        .num_threads(slots.threads)
        .build()
        .context("cannot start the threads for device links")?;
    let next = AtomicUsize::new(0);
    // Each turn takes the next job in order, whichever part of the range rayon gave it: the longest does start first.
    let turn = |_| {
        let at = order[next.fetch_add(1, Ordering::SeqCst)];
        (at, link_one(at, &planned[at], &slots, &progress, session))
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

/// A job with all its names chosen, so that the parallel part only writes and runs.
struct Planned<'a> {
    job: &'a DeviceJob<'a>,
    inputs: Vec<PathBuf>,
    cmd: Cmd,
    linked: Linked,
}

fn plan<'a>(job: &'a DeviceJob<'a>, context: &DeviceContext<'_>, session: &Session) -> Result<Planned<'a>> {
    let by_nvlink = nvlink::serves(&job.target, context);
    // nvlink tells by the name what is in a file.
    let ending = if by_nvlink { "cubin" } else { "o" };
    let mut inputs = Vec::with_capacity(job.inputs.len());
    for input in &job.inputs {
        let leaf = input.origin.leaf();
        let stem = leaf.rsplit_once('.').map_or(leaf.as_str(), |(stem, _)| stem);
        inputs.push(session.scratch.path(&format!("{stem}-{}-{}", input.triple, input.arch), ending)?);
    }
    let Target { arch, .. } = &job.target;
    let output = session.scratch.path(&format!("{}.{}.{arch}", context.out_base, job.target.arch_name()), "img")?;
    let (program, args) = if by_nvlink {
        nvlink::command(job, context, &inputs, &output)?
    } else {
        (context.compiler.path.clone(), clang::arguments(job, context, &inputs, &output)?)
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
    let linked =
        Linked { target: job.target.clone(), triple, generation: job.generation, kinds: job.kinds, image_kind, path: output };
    Ok(Planned { job, inputs, cmd, linked })
}

fn link_one(at: usize, planned: &Planned<'_>, slots: &Slots, progress: &Progress, session: &Session) -> Result<()> {
    let _slot = slots.take(session)?;
    session.signals.check()?;
    let lane = at + 1;
    let _job = session.trace.span(span::JOB, lane);
    for (input, path) in planned.job.inputs.iter().zip(&planned.inputs) {
        std::fs::write(path, &input.bytes).with_context(|| format!("cannot write the device object `{}`", path.display()))?;
    }
    progress.begin(at, &planned.cmd.step);
    let mut clang = session.trace.span(span::CLANG, lane);
    clang.tell("target", planned.job.target.to_string());
    clang.tell("command", command_line(&planned.cmd.program, &planned.cmd.args));
    let result = session.runner.run(&planned.cmd);
    progress.end(at);
    clang.tell_usage(result?);
    drop(clang);
    for path in &planned.inputs {
        session.scratch.discard(path);
    }
    Ok(())
}

/// The linked images of one kind, in order.
pub fn of_kind(linked: &[Linked], kind: OffloadKind) -> Vec<&Linked> {
    linked.iter().filter(|image| image.kinds.contains(kind)).collect()
}
