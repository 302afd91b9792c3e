//! The turn of one device link: its commands run by the launcher, and where that does not work, on this machine.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::codegen_threads::CodegenThreads;
use super::places::Place;
use super::running::{Links, demand};
use crate::sys::launcher::{Launched, Ran, Request};
use crate::sys::run::{Cmd, PreloadedLinker, Said};
use crate::sys::trace::Usage;

/// The turn of one device link.
pub(super) struct Turn<'t> {
    links: &'t Links<'t>,
    at: usize,
    threads: CodegenThreads,
    place: Place<'t>,
    /// How many threads it was granted.
    pub(super) granted: usize,
    /// When its command began, or was given to the launcher.
    begun: Instant,
    /// How long the launcher had it in its queue.
    pub(super) queued: Duration,
    /// Where it has run, if not here.
    pub(super) node: Option<String>,
}

/// How a command is run.
#[derive(Default)]
pub(super) struct How<'h> {
    /// A process that is there already.
    pub(super) preloaded: Option<PreloadedLinker>,
    /// Whether it talks to the terminal itself.
    pub(super) on_terminal: bool,
    /// Files that must be the same on another machine.
    pub(super) compare: &'h [PathBuf],
    /// The dependency file that it writes.
    pub(super) dependencies: Option<&'h Path>,
}

/// A command that has ended well.
pub(super) struct Done {
    pub(super) usage: Usage,
    pub(super) said: Said,
    /// What is known of the run on another machine.
    pub(super) ran: Option<Box<Ran>>,
}

impl<'t> Turn<'t> {
    pub(super) fn new(links: &'t Links<'t>, at: usize, threads: CodegenThreads, place: Place<'t>) -> Turn<'t> {
        let granted = place.granted(threads.wanted, links.context.request.jobs);
        Turn { links, at, threads, place, granted, begun: Instant::now(), queued: Duration::ZERO, node: None }
    }

    /// An argument for the linker that says how many threads it has, and nothing of the image.
    pub(super) fn argument(&self) -> Option<OsString> {
        self.threads.argument(self.granted)
    }

    /// Whether the launcher runs it.
    pub(super) fn is_launched(&self) -> bool {
        matches!(self.place, Place::Launched { .. })
    }

    /// How long it has been running.
    pub(super) fn took(&self) -> Duration {
        self.begun.elapsed().saturating_sub(self.queued)
    }

    /// Runs `cmd`.
    pub(super) fn run(&mut self, cmd: &Cmd, how: How<'_>) -> Result<Done> {
        let (session, while_running) = (self.links.session, self.links.context.while_running);
        let mut cmd = cmd.clone();
        if let Place::Launched { launcher, .. } = &self.place {
            let needs = demand(self.threads, self.links.expected.of(self.at));
            let request = Request {
                threads: self.granted,
                memory: needs.memory_with(self.granted),
                job: self.name(),
                compare: how.compare,
                dependencies: how.dependencies,
            };
            if let Launched::Ran(mut ran) = launcher.run(&cmd, &request, session, while_running)? {
                self.node = Some(ran.node.clone());
                self.queued = ran.queued;
                return Ok(Done { usage: ran.usage, said: std::mem::take(&mut ran.said), ran: Some(ran) });
            }
            let told = self.argument();
            self.come_here()?;
            if let (Some(told), Some(now)) = (told, self.argument()) {
                cmd.args.iter_mut().filter(|arg| **arg == told).for_each(|arg| arg.clone_from(&now));
            }
        }
        let runner = &session.runner;
        let (usage, said) = match how.preloaded {
            Some(preloaded) => runner.run_preloaded(Some(preloaded), &cmd, while_running)?,
            None if how.on_terminal => {
                while_running();
                (runner.run(&cmd)?, Said::default())
            }
            None => runner.run_capturing(&cmd, while_running)?,
        };
        Ok(Done { usage, said, ran: None })
    }

    /// The job's name for the launcher.
    fn name(&self) -> String {
        let target = &self.links.planned[self.at].job.target;
        let device = if target.arch.is_empty() { target.arch_name() } else { &target.arch };
        format!("offld-{}-{device}", self.links.context.out_base)
    }

    /// Waits until it may run on this machine.
    fn come_here(&mut self) -> Result<()> {
        let Links { places, session, context, expected, .. } = self.links;
        let slot = places.here().take(&demand(self.threads, expected.of(self.at)), session)?;
        self.place = Place::Here(slot);
        self.granted = self.place.granted(self.threads.wanted, context.request.jobs);
        self.begun = Instant::now();
        Ok(())
    }
}
