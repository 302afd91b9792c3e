//! Assigns device links to the launcher if it works, else to this machine.
//!
//! A launched link uses no slot, jobserver token or memory of this machine.

use crate::args::request::Jobs;
use crate::sys::jobs::{Demand, JobSlot, JobSlots, Refusal};
use crate::sys::launcher::Launcher;
use crate::sys::session::Session;

/// Slots for the device links of one run.
pub(super) struct RunnerSlots<'p> {
    here: JobSlots,
    launched: Option<(&'p Launcher, JobSlots)>,
}

/// Permission to run one device link.
pub(super) enum RunnerSlot<'p> {
    /// Run on this machine.
    Here(JobSlot<'p>),
    /// Run through the launcher.
    Launched {
        launcher: &'p Launcher,
        _slot: JobSlot<'p>,
    },
}

impl<'p> RunnerSlots<'p> {
    /// Creates the slots of the launcher, if the session has one. `here`: the slots of this
    /// machine.
    pub(super) fn new(here: JobSlots, session: &'p Session) -> RunnerSlots<'p> {
        let launched = session
            .launcher
            .as_ref()
            .map(|launcher| (launcher, JobSlots::counting(launcher.jobs())));
        RunnerSlots { here, launched }
    }

    #[cfg(test)]
    pub(super) fn of_a_test(here: JobSlots) -> RunnerSlots<'static> {
        RunnerSlots {
            here,
            launched: None,
        }
    }

    /// The slots of this machine.
    pub(super) fn here(&self) -> &JobSlots {
        &self.here
    }

    /// Maximum number of device links that run at once.
    pub(super) fn limit(&self) -> usize {
        self.launched
            .iter()
            .map(|(_, slots)| slots.limit())
            .fold(self.here.limit(), usize::max)
    }

    /// Takes a slot for one of the expected device links, or returns the reason why none can run
    /// now.
    pub(super) fn try_take(&self, demand: &Demand) -> Result<RunnerSlot<'_>, Refusal> {
        let Some((launcher, slots)) = self.working().filter(|_| !demand.here) else {
            return self.here.try_take(demand).map(RunnerSlot::Here);
        };
        let slot = slots.try_take(demand)?;
        self.here.expect_one_less();
        Ok(RunnerSlot::Launched {
            launcher,
            _slot: slot,
        })
    }

    /// Waits until a device link may have finished.
    pub(super) fn pause(&self) {
        self.working()
            .map_or(&self.here, |(_, slots)| slots)
            .pause();
    }

    fn working(&self) -> Option<(&Launcher, &JobSlots)> {
        self.launched
            .as_ref()
            .filter(|(launcher, _)| launcher.is_available())
            .map(|(launcher, slots)| (*launcher, slots))
    }
}

impl RunnerSlot<'_> {
    /// Number of threads for a link that can use `wanted`.
    pub(super) fn granted(&self, wanted: usize, jobs: Jobs) -> usize {
        match self {
            RunnerSlot::Here(slot) => slot.granted(),
            RunnerSlot::Launched { launcher, .. } => launcher.threads(wanted, jobs),
        }
    }
}
