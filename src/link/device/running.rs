//! One device link: whether its image is in the cache, and its run.

use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::codegen_threads::CodegenThreads;
use super::costs::{Costs, Prediction};
use super::distribution::Distribution;
use super::log_line::{self, LogLine};
use super::memo::{DeviceCache, Keep, LinkFiles, LinkQuery, ResolvedLink};
use super::out_of_memory;
use super::places::{Place, Places};
use super::schedule::{LookedUp, Work};
use super::thin_hint::ThinHint;
use super::turn::{How, Turn};
use super::{DeviceContext, Planned};
use crate::build_log::{Log, Outcome};
use crate::sys::jobs::{Demand, Refusal};
use crate::sys::progress::Progress;
use crate::sys::session::Session;
use crate::sys::shell::command_line;
use crate::sys::trace::{Span, Usage, span};

/// The device links of one run.
pub(super) struct Links<'w> {
    pub(super) planned: &'w [Planned<'w>],
    /// What each will probably cost.
    pub(super) expected: Expected<'w>,
    pub(super) costs: &'w Costs,
    pub(super) places: &'w Places<'w>,
    pub(super) progress: &'w Progress,
    pub(super) session: &'w Session,
    pub(super) context: &'w DeviceContext<'w>,
    pub(super) hint: &'w ThinHint,
    pub(super) log: Option<&'w Arc<Log>>,
    /// Whether ThinLTO's units are compiled one by one, where that can be done.
    pub(super) distributes: bool,
    /// The cache, or why there is none.
    pub(super) cache: std::result::Result<&'w DeviceCache<'w>, &'w str>,
}

/// What the device links of one run will probably cost. That is looked up where it is asked for first: a link whose image is in the
/// cache does not ask.
pub(super) struct Expected<'w> {
    planned: &'w [Planned<'w>],
    costs: &'w Costs,
    each: OnceLock<Vec<Prediction>>,
}

impl<'w> Expected<'w> {
    pub(super) fn new(planned: &'w [Planned<'w>], costs: &'w Costs) -> Self {
        Expected { planned, costs, each: OnceLock::new() }
    }

    /// What each of them costs.
    pub(super) fn all(&self) -> &[Prediction] {
        self.each.get_or_init(|| self.costs.predict(self.planned.iter().map(|planned| planned.job)))
    }

    pub(super) fn of(&self, at: usize) -> Prediction {
        self.all()[at]
    }
}

/// A link that has to be run.
pub(super) struct Ready<'w> {
    /// How the linker is run itself, if that is known; else the compiler is.
    resolved: Option<ResolvedLink>,
    /// How its units are compiled one by one, if they are.
    distribution: Option<Distribution>,
    threads: CodegenThreads,
    line: LogLine,
    trace: Span<'w>,
}

/// The last run of a link, which has not failed.
struct Ran {
    usage: Usage,
    /// For one that may be kept.
    keep: Option<Keep>,
    /// How many threads it was granted.
    granted: usize,
    took: Duration,
    /// How long it was in the launcher's queue.
    queued: Duration,
    /// Where it has run, if not here.
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
        let trace = self.session.trace.span(span::JOB, at + 1);
        let mut line = LogLine::begin(self.log, planned);
        let resolved = match self.cache {
            Err(why) => {
                line.outcome(Outcome::Uncached, why);
                None
            }
            Ok(cache) => {
                let query = query(planned);
                let resolved = match query.args {
                    [] => Err("each of its inputs is compiled by itself before they are linked".to_owned()),
                    _ => cache.resolve(&query),
                };
                match resolved {
                    Ok(resolved) => match cache.fetch(&resolved, &query)? {
                        Ok(hit) => {
                            line.hit(&hit, &planned.linked.path);
                            return Ok(LookedUp::Done);
                        }
                        Err(why) => {
                            line.outcome(Outcome::Miss, &why);
                            Some(resolved)
                        }
                    },
                    Err(why) => {
                        cache.skip(&planned.cmd.step, &why);
                        line.outcome(Outcome::Uncached, &why);
                        None
                    }
                }
            }
        };
        let threads = CodegenThreads::of(planned.job, self.context, &planned.cmd.args);
        let distribution = self.distribution(at, resolved.as_ref());
        let demand = match (&distribution, &self.session.launcher) {
            // Its units are what other machines do.
            (Some(_), Some(launcher)) if launcher.is_available() => {
                Demand { here: true, ..Demand::one_thread(self.expected.of(at).memory) }
            }
            (Some(_), _) => Demand { here: true, ..demand(threads, self.expected.of(at)) },
            (None, _) => demand(threads, self.expected.of(at)),
        };
        Ok(LookedUp::Ready(Ready { resolved, distribution, threads, line, trace }, demand))
    }

    fn waits(&self, at: usize, demand: &Demand, why: Refusal) {
        let step = &self.planned[at].cmd.step;
        let Some(waits) = out_of_memory::waits_for(demand, why) else { return };
        self.progress.begin(at, &format!("{step} waits for {waits}"));
        if self.context.request.verbose {
            self.session.shell.note(&format!("{step}: waits for {waits}"));
        }
    }

    fn run(&self, at: usize, ready: Ready<'w>, place: Place<'_>) -> Result<()> {
        let Ready { resolved, distribution, threads, mut line, mut trace } = ready;
        let planned = &self.planned[at];
        self.session.signals.check().inspect_err(|error| line.failed(error))?;
        let turn = Turn::new(self, at, threads, place);
        trace.set_arg("threads", turn.granted);
        line.runs();
        let linked = match self.once(at, resolved, distribution, turn) {
            Err(error) => self.again_if_killed(at, threads, error, &mut line),
            ran => ran,
        };
        let Ran { usage, keep, granted, took, queued, node } = linked.inspect_err(|error| line.failed(error))?;
        let cost = log_line::cost(took, usage);
        self.hint.after(planned.job, took, self.context, &self.session.shell);
        line.waited_again(queued);
        if let Some(node) = &node {
            trace.set_arg("node", node.clone());
            line.ran_on(node);
        }
        // Of one that was over in a moment elsewhere, it may not be known.
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
    /// Runs the link in its turn, which ends with it.
    fn once(
        &self,
        at: usize,
        resolved: Option<ResolvedLink>,
        distribution: Option<Distribution>,
        mut turn: Turn<'_>,
    ) -> Result<Ran> {
        self.progress.begin(at, &self.planned[at].cmd.step);
        let ran = match (self.cache, resolved) {
            (Ok(cache), Some(resolved)) => self.run_linker(at, cache, (resolved, distribution), &mut turn),
            _ => self.run_compiler(at, &mut turn).map(|usage| (usage, None)),
        };
        self.progress.end(at);
        let took = turn.took();
        ran.map(|(usage, keep)| Ran { usage, keep, granted: turn.granted, took, queued: turn.queued, node: turn.node })
    }

    /// After a link has failed with `error`: where it was killed for want of memory, it is run once more on this machine, with no
    /// device link beside it.
    fn again_if_killed(&self, at: usize, threads: CodegenThreads, error: anyhow::Error, line: &mut LogLine) -> Result<Ran> {
        let planned = &self.planned[at];
        let step = &planned.cmd.step;
        let Some(killed) = out_of_memory::of(&error) else { return Err(error) };
        self.session.shell.warn(&out_of_memory::tried_again(step, killed));
        let memory = self.expected.of(at).memory.max(killed.peak_memory);
        self.progress.begin(at, &format!("{step} waits until it can run alone"));
        let waits = Instant::now();
        let slot = self.places.here().take(&Demand { alone: true, ..Demand::one_thread(memory) }, self.session)?;
        // What the link costs is what this run does: neither the one that was killed nor the wait.
        let turn = Turn::new(self, at, threads, Place::Here(slot));
        line.waited_again(waits.elapsed());
        // Asked again, since what was known of it has gone into the first run. The answer is there.
        let resolved =
            self.cache.ok().filter(|_| !planned.query.is_empty()).and_then(|cache| cache.resolve(&query(planned)).ok());
        let free = self.places.here().free_memory();
        let distribution = self.distribution(at, resolved.as_ref());
        match self.once(at, resolved, distribution, turn) {
            Ok(ran) => Ok(ran),
            Err(error) => Err(match out_of_memory::of(&error) {
                Some(killed) => out_of_memory::given_up(killed, free).into(),
                None => error,
            }),
        }
    }

    fn run_compiler(&self, at: usize, turn: &mut Turn<'_>) -> Result<Usage> {
        let Planned { job, inputs, cmd, .. } = &self.planned[at];
        let mut cmd = cmd.clone();
        // What is only shown is the same on every machine.
        if let Some(more) = turn.argument().filter(|_| !self.context.request.dry_run) {
            cmd.args.extend(["-Xlinker".into(), more]);
        }
        inputs.write_each(job)?;
        let mut clang = self.session.trace.span(span::CLANG, at + 1);
        clang.set_arg("target", job.target.to_string());
        clang.set_arg("command", command_line(&cmd.program, &cmd.args));
        // Compilers colour what goes to a terminal only. Else, what it says tells whether it ran out of memory.
        let how = How { on_terminal: self.session.shell.is_terminal(), ..How::default() };
        let usage = turn.run(&cmd, how)?.usage;
        clang.record_usage(usage);
        drop(clang);
        inputs.discard(self.session);
        Ok(usage)
    }

    fn run_linker(
        &self,
        at: usize,
        cache: &DeviceCache<'_>,
        (resolved, distribution): (ResolvedLink, Option<Distribution>),
        turn: &mut Turn<'_>,
    ) -> Result<(Usage, Option<Keep>)> {
        let planned = &self.planned[at];
        // Units are handed over as files.
        let archives = distribution.is_none() && resolved.takes_archives();
        let (mut args, files) = planned.inputs.write(planned.job, archives)?;
        args.extend(turn.argument());
        let mut linker = self.session.trace.span(span::CLANG, at + 1);
        linker.set_arg("target", planned.job.target.to_string());
        let given = LinkFiles { args: &args, files: &files, dependencies: planned.dependencies.clone(), distribution };
        let (usage, keep) = cache.link(resolved, &query(planned), given, turn)?;
        linker.record_usage(usage);
        drop(linker);
        planned.inputs.discard(self.session);
        Ok((usage, Some(keep)))
    }

    /// How the units of the link are compiled one by one, if that is wanted and can be done.
    fn distribution(&self, at: usize, resolved: Option<&ResolvedLink>) -> Option<Distribution> {
        let planned = &self.planned[at];
        let resolved = resolved.filter(|_| self.distributes)?;
        let found = Distribution::of(resolved, &query(planned), &planned.inputs.each, self.context, self.session)?;
        let why_not = |why: &String| {
            if self.context.request.verbose {
                let step = &planned.cmd.step;
                self.session.shell.note(&format!("{step}: ThinLTO's units are compiled in the linker's own process: {why}"));
            }
        };
        found.inspect_err(why_not).ok()
    }
}

/// What a link needs that would like these threads.
pub(super) fn demand(threads: CodegenThreads, expected: Prediction) -> Demand {
    let Prediction { memory, enough_for, per_thread, .. } = expected;
    // Where the linker is not told how many threads it gets, it had as many the last time as it will have.
    let (enough_for, per_thread) = if threads.told { (enough_for, per_thread) } else { (usize::MAX, 0) };
    Demand { threads: threads.wanted, enough_for, per_thread, ..Demand::one_thread(memory) }
}

fn query<'q>(planned: &'q Planned<'_>) -> LinkQuery<'q> {
    let Planned { job, cmd, query, program, linked, .. } = planned;
    LinkQuery { job, cmd, args: query, image: &linked.path, program }
}
