//! One attempt at a device link: runs its command through the launcher, or on this machine if the
//! launcher fails.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::codegen_threads::CodegenThreads;
use super::running::{Links, demand};
use super::schedule::RunnerSlot;
use crate::sys::launcher::{Launched, Ran, Request};
use crate::sys::run::{CapturedOutput, Cmd, PreloadedLinker};
use crate::sys::trace::Usage;

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
        let slot = places
            .here()
            .take(&demand(self.threads, expected.of(self.at)), session)?;
        self.place = RunnerSlot::Here(slot);
        self.granted = self
            .place
            .granted(self.threads.wanted, context.settings.run.jobs);
        self.begun = Instant::now();
        Ok(())
    }
}
