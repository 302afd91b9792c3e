//! One device link: looks up its image in the cache, or runs the link. An attempt to run it uses
//! the launcher, or this machine if the launcher fails.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::codegen_threads::CodegenThreads;
use super::costs::{Costs, Prediction};
use super::distribution::Distribution;
use super::link_cache::{DeviceCache, Keep, LinkFiles, LinkQuery, ResolvedLink};
use super::messages::{self, LogLine, ThinHint};
use super::schedule::{LookedUp, RunnerSlot, RunnerSlots, Work};
use super::{DeviceContext, Planned};
use crate::build_log::{Log, Outcome};
use offld_system::jobs::{Demand, Refusal};
use offld_system::launcher::{Launched, Ran, Request};
use offld_system::posix_shell::command_line;
use offld_system::progress::Progress;
use offld_system::run::{CapturedOutput, Cmd, PreloadedLinker};
use offld_system::session::Session;
use offld_system::signals::Usage;
use offld_system::trace::{Span, span};

/// The device links of one run.
pub(super) struct Links<'w> {
    pub(super) planned: &'w [Planned<'w>],
    pub(super) expected: Expected<'w>,
    pub(super) costs: &'w Costs,
    pub(super) places: &'w RunnerSlots<'w>,
    pub(super) progress: &'w Progress,
    pub(super) session: &'w Session,
    pub(super) context: &'w DeviceContext<'w>,
    pub(super) hint: &'w ThinHint,
    pub(super) log: Option<&'w Arc<Log>>,
    /// Whether to compile ThinLTO units as separate jobs if possible.
    pub(super) distributes: bool,
    /// The cache, or the reason why it is off.
    pub(super) cache: std::result::Result<&'w DeviceCache<'w>, &'w str>,
}

/// Predicted costs of the device links of one run. They are read on first use, because cache hits
/// do not need them.
pub(super) struct Expected<'w> {
    planned: &'w [Planned<'w>],
    costs: &'w Costs,
    each: OnceLock<Vec<Prediction>>,
}

impl<'w> Expected<'w> {
    pub(super) fn new(planned: &'w [Planned<'w>], costs: &'w Costs) -> Self {
        Expected {
            planned,
            costs,
            each: OnceLock::new(),
        }
    }

    pub(super) fn all(&self) -> &[Prediction] {
        self.each.get_or_init(|| {
            self.costs
                .predict(self.planned.iter().map(|planned| planned.job))
        })
    }

    pub(super) fn of(&self, at: usize) -> Prediction {
        self.all()[at]
    }
}

/// A link whose image is not cached, so that it has to run.
pub(super) struct Ready<'w> {
    /// The linker command, if it is known. Otherwise the compiler runs the linker.
    resolved: Option<ResolvedLink>,
    /// Set if the ThinLTO units are compiled as separate jobs.
    distribution: Option<Distribution>,
    threads: CodegenThreads,
    line: LogLine,
    trace: Span<'w>,
}

/// The last run of a link, which succeeded.
struct LinkRun {
    usage: Usage,
    /// Set if the result may be cached.
    keep: Option<Keep>,
    /// Number of threads that the link was granted.
    granted: usize,
    took: Duration,
    /// Time in the launcher's queue.
    queued: Duration,
    /// The machine that the launcher chose, or `None` for this machine.
    node: Option<String>,
}

impl<'w> Work for Links<'w> {
    type Ready = Ready<'w>;

    fn memory(&self, at: usize) -> u64 {
        self.expected.of(at).memory
    }

    fn look_up(&self, at: usize) -> Result<LookedUp<Ready<'w>>> {
        self.session.signals.check()?;
        let planned = &self.planned[at];
        let mut trace = self.session.trace.span(span::JOB, at + 1);
        messages::describe_in_trace(&mut trace, planned);
        let mut line = LogLine::begin(self.log, planned);
        let resolved = match self.cache {
            Err(why) => {
                line.outcome(Outcome::Uncached, why);
                trace.set_arg("cache", Outcome::Uncached.name());
                None
            }
            Ok(cache) => {
                let query = query(planned);
                let resolved = match query.args {
                    [] => Err("--no-lto compiles each input separately before the link".to_owned()),
                    _ => cache.resolve(&query),
                };
                match resolved {
                    Ok(mut resolved) => match cache.fetch(&resolved, &query) {
                        Ok(hit) => {
                            trace.set_arg("cache", Outcome::Hit.name());
                            line.hit(&hit, &planned.linked.path);
                            return Ok(LookedUp::Done);
                        }
                        Err(why) => {
                            trace.set_arg("cache", Outcome::Miss.name());
                            line.outcome(Outcome::Miss, &why.text);
                            line.changes(&why.changes);
                            resolved.miss = why;
                            Some(resolved)
                        }
                    },
                    Err(why) => {
                        trace.set_arg("cache", Outcome::Uncached.name());
                        cache.skip(&query, &why);
                        line.outcome(Outcome::Uncached, &why);
                        None
                    }
                }
            }
        };
        let threads = CodegenThreads::of(planned.job, self.context, &planned.cmd.args);
        let distribution = self.distribution(at, resolved.as_ref());
        let demand = match (&distribution, &self.session.launcher) {
            // Other machines compile the units, so the linker itself needs one thread.
            (Some(_), Some(launcher)) if launcher.is_available() => Demand {
                here: true,
                ..Demand::one_thread(self.expected.of(at).memory)
            },
            (Some(_), _) => Demand {
                here: true,
                ..demand(threads, self.expected.of(at))
            },
            (None, _) => demand(threads, self.expected.of(at)),
        };
        Ok(LookedUp::Ready(
            Ready {
                resolved,
                distribution,
                threads,
                line,
                trace,
            },
            demand,
        ))
    }

    fn waits(&self, at: usize, demand: &Demand, why: Refusal) {
        let step = &self.planned[at].cmd.step;
        let Some(waits) = messages::waits_for(demand, why) else {
            return;
        };
        self.progress
            .begin(at, &format!("{step} waits for {waits}"));
        if self.context.settings.run.verbose {
            self.session
                .shell
                .note(&format!("{step}: waits for {waits}"));
        }
    }

    fn run(&self, at: usize, ready: Ready<'w>, place: RunnerSlot<'_>) -> Result<()> {
        let Ready {
            resolved,
            distribution,
            threads,
            mut line,
            mut trace,
        } = ready;
        let planned = &self.planned[at];
        self.session
            .signals
            .check()
            .inspect_err(|error| line.failed(error))?;
        let attempt = Attempt::new(self, at, threads, place);
        trace.set_arg("threads", attempt.granted);
        line.runs();
        let linked = match self.run_once(at, resolved, distribution, attempt) {
            Err(error) => self.retry_if_killed(at, threads, error, &mut line),
            ran => ran,
        };
        let LinkRun {
            usage,
            keep,
            granted,
            took,
            queued,
            node,
        } = linked.inspect_err(|error| line.failed(error))?;
        let cost = messages::cost_of(took, usage);
        self.hint
            .after(planned.job, took, self.context, &self.session.shell);
        line.waited_again(queued);
        if let Some(node) = &node {
            trace.set_arg("node", node.clone());
            line.ran_on(node);
        }
        // A launcher cannot always measure the memory of a very short run. Zero bytes would spoil
        // the next prediction.
        if node.is_none() || usage.peak_memory > 0 {
            self.costs.note(planned.job, granted, cost);
        }
        line.ended(cost, &planned.linked.path);
        if let (Ok(cache), Some(keep)) = (self.cache, keep) {
            cache.keep(keep, cost, &planned.cmd.step, line);
        }
        Ok(())
    }
}

impl Links<'_> {
    /// Runs the link once and consumes its attempt.
    fn run_once(
        &self,
        at: usize,
        resolved: Option<ResolvedLink>,
        distribution: Option<Distribution>,
        mut attempt: Attempt<'_>,
    ) -> Result<LinkRun> {
        self.progress.begin(at, &self.planned[at].cmd.step);
        let ran = match (self.cache, resolved) {
            (Ok(cache), Some(resolved)) => {
                self.run_linker(at, cache, resolved, distribution, &mut attempt)
            }
            _ => self
                .run_compiler(at, &mut attempt)
                .map(|usage| (usage, None)),
        };
        self.progress.end(at);
        let took = attempt.took();
        ran.map(|(usage, keep)| LinkRun {
            usage,
            keep,
            granted: attempt.granted,
            took,
            queued: attempt.queued,
            node: attempt.node,
        })
    }

    /// Runs a link once more after `error`, if lack of memory killed it. The second attempt runs on
    /// this machine, with no other device link.
    fn retry_if_killed(
        &self,
        at: usize,
        threads: CodegenThreads,
        error: anyhow::Error,
        line: &mut LogLine,
    ) -> Result<LinkRun> {
        let planned = &self.planned[at];
        let step = &planned.cmd.step;
        let Some(killed) = messages::out_of_memory(&error) else {
            return Err(error);
        };
        self.session
            .shell
            .warn(&messages::tried_again(step, killed));
        let memory = self.expected.of(at).memory.max(killed.peak_memory);
        self.progress
            .begin(at, &format!("{step} waits until it can run alone"));
        let waits = Instant::now();
        let slot = self.places.here().take(
            &Demand {
                alone: true,
                ..Demand::one_thread(memory)
            },
            &self.session.signals,
        )?;
        // The recorded cost covers this attempt only: neither the killed one nor the wait.
        let attempt = Attempt::new(self, at, threads, RunnerSlot::Here(slot));
        line.waited_again(waits.elapsed());
        // The first attempt consumed the resolved link, so it is resolved again. The compiler's
        // answer is in memory by now.
        let resolved = self
            .cache
            .ok()
            .filter(|_| !planned.query.is_empty())
            .and_then(|cache| cache.resolve(&query(planned)).ok());
        let free = self.places.here().free_memory();
        let distribution = self.distribution(at, resolved.as_ref());
        match self.run_once(at, resolved, distribution, attempt) {
            Ok(ran) => Ok(ran),
            Err(error) => Err(match messages::out_of_memory(&error) {
                Some(killed) => messages::given_up(killed, free).into(),
                None => error,
            }),
        }
    }

    fn run_compiler(&self, at: usize, attempt: &mut Attempt<'_>) -> Result<Usage> {
        let Planned {
            job, inputs, cmd, ..
        } = &self.planned[at];
        let mut cmd = cmd.clone();
        // A printed command must be the same on every machine, and the number of threads differs.
        let settings = self.context.settings;
        if let Some(more) = attempt.argument().filter(|_| !settings.run.dry_run) {
            cmd.args.extend(["-Xlinker".into(), more]);
        }
        // A dry run does not read the inputs, and there may be many thousands.
        let are_read = !settings.run.dry_run || settings.run.save_temps;
        if are_read {
            inputs.write_for_compiler(job)?;
        }
        let mut clang = self.session.trace.span(span::CLANG, at + 1);
        clang.set_arg("target", job.target.to_string());
        clang.set_arg("command", command_line(&cmd.program, &cmd.args));
        // Compilers use colours only if stderr is a terminal. Without a terminal, stderr is
        // captured: it shows whether memory ran out.
        let run_context = RunContext {
            on_terminal: self.session.shell.is_terminal(),
            ..RunContext::default()
        };
        let usage = attempt.run(&cmd, run_context)?.usage;
        clang.record_usage(usage);
        drop(clang);
        if are_read {
            inputs.discard(self.session);
        }
        Ok(usage)
    }

    fn run_linker(
        &self,
        at: usize,
        cache: &DeviceCache<'_>,
        resolved: ResolvedLink,
        distribution: Option<Distribution>,
        attempt: &mut Attempt<'_>,
    ) -> Result<(Usage, Option<Keep>)> {
        let planned = &self.planned[at];
        // Distributed ThinLTO passes each unit as a file of its own.
        let archives = distribution.is_none() && resolved.takes_archives();
        let (mut args, files) = planned.inputs.write(planned.job, archives)?;
        args.extend(attempt.argument());
        let mut linker = self.session.trace.span(span::CLANG, at + 1);
        linker.set_arg("target", planned.job.target.to_string());
        let given = LinkFiles {
            args: &args,
            files: &files,
            dependencies: planned.dependencies.clone(),
            distribution,
        };
        let (usage, keep) = cache.link(resolved, &query(planned), given, attempt)?;
        linker.record_usage(usage);
        drop(linker);
        planned.inputs.discard(self.session);
        Ok((usage, Some(keep)))
    }

    /// Prepares the ThinLTO units to be compiled as separate jobs, if that is wanted and possible.
    fn distribution(&self, at: usize, resolved: Option<&ResolvedLink>) -> Option<Distribution> {
        let planned = &self.planned[at];
        let resolved = resolved.filter(|_| self.distributes)?;
        let found = Distribution::of(
            resolved,
            &query(planned),
            &planned.inputs.each,
            self.context,
            self.session,
        )?;
        let why_not = |why: &String| {
            if self.context.settings.run.verbose {
                let step = &planned.cmd.step;
                self.session.shell.note(&format!(
                    "{step}: ThinLTO units are compiled in the linker's own process: {why}"
                ));
            }
        };
        found.inspect_err(why_not).ok()
    }
}

/// Returns the resources for a link that can use `threads`.
pub(super) fn demand(threads: CodegenThreads, expected: Prediction) -> Demand {
    let Prediction {
        memory,
        enough_for,
        per_thread,
        ..
    } = expected;
    // If offld does not set the linker's thread count, the next run has as many threads as the
    // last, so `memory` covers them.
    let (enough_for, per_thread) = if threads.told {
        (enough_for, per_thread)
    } else {
        (usize::MAX, 0)
    };
    Demand {
        threads: threads.wanted,
        enough_for,
        per_thread,
        ..Demand::one_thread(memory)
    }
}

fn query<'q>(planned: &'q Planned<'_>) -> LinkQuery<'q> {
    let Planned {
        job,
        cmd,
        query,
        program,
        linked,
        ..
    } = planned;
    LinkQuery {
        job,
        cmd,
        args: query,
        image: &linked.path,
        program,
    }
}

// One attempt at a device link: runs its command through the launcher, or on this machine if the
// launcher fails.

/// One attempt at a device link.
pub(super) struct Attempt<'t> {
    links: &'t Links<'t>,
    at: usize,
    threads: CodegenThreads,
    place: RunnerSlot<'t>,
    /// Number of threads that the attempt was granted.
    pub(super) granted: usize,
    /// The start of the command, or its submission to the launcher.
    begun: Instant,
    /// Time in the launcher's queue.
    pub(super) queued: Duration,
    /// The machine that the launcher chose, or `None` for this machine.
    pub(super) node: Option<String>,
}

/// Settings for running a command.
#[derive(Default)]
pub(super) struct RunContext<'h> {
    /// A linker process that was started early.
    pub(super) preloaded: Option<PreloadedLinker>,
    /// Whether the command writes directly to the terminal instead of a pipe.
    pub(super) on_terminal: bool,
    /// Files that must be identical on the launcher's machine.
    pub(super) compare: &'h [PathBuf],
    /// The dependency file that the command writes.
    pub(super) dependencies: Option<&'h Path>,
}

/// The result of a command that succeeded.
pub(super) struct Completed {
    pub(super) usage: Usage,
    pub(super) said: CapturedOutput,
    /// Details of a run on another machine.
    pub(super) ran: Option<Box<Ran>>,
}

impl<'t> Attempt<'t> {
    pub(super) fn new(
        links: &'t Links<'t>,
        at: usize,
        threads: CodegenThreads,
        place: RunnerSlot<'t>,
    ) -> Attempt<'t> {
        let granted = place.granted(threads.wanted, links.context.settings.run.jobs);
        Attempt {
            links,
            at,
            threads,
            place,
            granted,
            begun: Instant::now(),
            queued: Duration::ZERO,
            node: None,
        }
    }

    /// Returns the linker argument for the number of threads. It does not affect the image.
    pub(super) fn argument(&self) -> Option<OsString> {
        self.threads.argument(self.granted)
    }

    pub(super) fn is_launched(&self) -> bool {
        matches!(self.place, RunnerSlot::Launched { .. })
    }

    /// Time since the command began, without the launcher's queue.
    pub(super) fn took(&self) -> Duration {
        self.begun.elapsed().saturating_sub(self.queued)
    }

    /// Runs `cmd` with the launcher if it works, else on this machine.
    pub(super) fn run(&mut self, cmd: &Cmd, run_context: RunContext<'_>) -> Result<Completed> {
        let (session, while_running) = (self.links.session, self.links.context.while_running);
        let mut cmd = cmd.clone();
        if let RunnerSlot::Launched { launcher, .. } = &self.place {
            let needs = demand(self.threads, self.links.expected.of(self.at));
            let request = Request {
                threads: self.granted,
                memory: needs.memory_with(self.granted),
                job: self.name(),
                compare: run_context.compare,
                dependencies: run_context.dependencies,
            };
            if let Launched::Ran(mut ran) = launcher.run(&cmd, &request, session, while_running)? {
                self.node = Some(ran.node.clone());
                self.queued = ran.queued;
                return Ok(Completed {
                    usage: ran.usage,
                    said: std::mem::take(&mut ran.said),
                    ran: Some(ran),
                });
            }
            let old_argument = self.argument();
            self.move_to_this_machine()?;
            if let (Some(old_argument), Some(now)) = (old_argument, self.argument()) {
                cmd.args
                    .iter_mut()
                    .filter(|arg| **arg == old_argument)
                    .for_each(|arg| arg.clone_from(&now));
            }
        }
        let runner = &session.runner;
        let (usage, said) = match run_context.preloaded {
            Some(preloaded) => runner.run_preloaded(Some(preloaded), &cmd, while_running)?,
            None if run_context.on_terminal => {
                while_running();
                (runner.run(&cmd)?, CapturedOutput::default())
            }
            None => runner.run_capturing(&cmd, while_running)?,
        };
        Ok(Completed {
            usage,
            said,
            ran: None,
        })
    }

    /// The job name for the launcher: `offld-OUTPUT-ARCH`.
    fn name(&self) -> String {
        let target = &self.links.planned[self.at].job.target;
        let device = if target.arch.is_empty() {
            target.arch_name()
        } else {
            &target.arch
        };
        format!("offld-{}-{device}", self.links.context.out_base)
    }

    /// Waits for a slot on this machine, after the launcher has failed.
    fn move_to_this_machine(&mut self) -> Result<()> {
        let Links {
            places,
            session,
            context,
            expected,
            ..
        } = self.links;
        let slot = places.here().take(
            &demand(self.threads, expected.of(self.at)),
            &session.signals,
        )?;
        self.place = RunnerSlot::Here(slot);
        self.granted = self
            .place
            .granted(self.threads.wanted, context.settings.run.jobs);
        self.begun = Instant::now();
        Ok(())
    }
}
