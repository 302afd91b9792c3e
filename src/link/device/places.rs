//! Where device links run: by the launcher, if there is one that works, else on this machine. What a launcher runs takes no slot, token
//! or memory of this machine.

use crate::args::request::Jobs;
use crate::sys::jobs::{Demand, JobSlot, JobSlots, Refusal};
use crate::sys::launcher::Launcher;
use crate::sys::session::Session;

/// The places for the device links of one run.
pub(super) struct Places<'p> {
    here: JobSlots,
    launched: Option<(&'p Launcher, JobSlots)>,
}

/// Permission to run one device link.
pub(super) enum Place<'p> {
    /// On this machine.
    Here(JobSlot<'p>),
    /// By the launcher.
    Launched { launcher: &'p Launcher, _slot: JobSlot<'p> },
}

impl<'p> Places<'p> {
    /// `here`: those of this machine.
    pub(super) fn new(here: JobSlots, session: &'p Session) -> Places<'p> {
        let launched = session.launcher.as_ref().map(|launcher| (launcher, JobSlots::counting(launcher.jobs())));
        Places { here, launched }
    }

    #[cfg(test)]
    pub(super) fn of_a_test(here: JobSlots) -> Places<'static> {
        Places { here, launched: None }
    }

    /// Those of this machine.
    pub(super) fn here(&self) -> &JobSlots {
        &self.here
    }

    /// How many device links may run at once.
    pub(super) fn limit(&self) -> usize {
        self.launched.iter().map(|(_, slots)| slots.limit()).fold(self.here.limit(), usize::max)
    }

    /// A place for one of the expected device links, if it may run now.
    pub(super) fn try_take(&self, demand: &Demand) -> Result<Place<'_>, Refusal> {
        let Some((launcher, slots)) = self.working().filter(|_| !demand.here) else {
            return self.here.try_take(demand).map(Place::Here);
        };
        let slot = slots.try_take(demand)?;
        self.here.expect_one_less();
        Ok(Place::Launched { launcher, _slot: slot })
    }

    /// Waits until a device link may have ended.
    pub(super) fn pause(&self) {
        self.working().map_or(&self.here, |(_, slots)| slots).pause();
    }

    fn working(&self) -> Option<(&Launcher, &JobSlots)> {
        self.launched.as_ref().filter(|(launcher, _)| launcher.is_available()).map(|(launcher, slots)| (*launcher, slots))
    }
}

impl Place<'_> {
    /// How many threads the link gets that would like `wanted`.
    pub(super) fn granted(&self, wanted: usize, jobs: Jobs) -> usize {
        match self {
            Place::Here(slot) => slot.granted(),
            Place::Launched { launcher, .. } => launcher.threads(wanted, jobs),
        }
    }
}
