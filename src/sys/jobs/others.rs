//! Device links of other offld processes: their entries in the table, and figures of the system.

use std::collections::{BTreeMap, BTreeSet};

use super::memory::Machine;
use super::table::Share;

#[derive(Debug)]
pub(super) struct Other {
    /// Its process id. `None` if it runs in another container, where nothing more is known about
    /// it.
    pub(super) pid: Option<u32>,
    /// The share that it reports.
    pub(super) share: Share,
}

/// Figures of the system about processes in the table. They are read while the table is unlocked,
/// because that takes a while.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Ids of stopped processes.
    at_rest: BTreeSet<u32>,
    /// Memory in use by the device links of each process, in bytes.
    have: BTreeMap<u32, u64>,
}

impl Processes {
    pub(super) fn at_rest(others: &[Other], machine: &Machine) -> Processes {
        let run_something = others
            .iter()
            .filter(|other| other.share != Share::default())
            .filter_map(|other| other.pid);
        Processes {
            at_rest: run_something
                .filter(|pid| machine.is_at_rest(*pid))
                .collect(),
            have: BTreeMap::new(),
        }
    }

    /// Measures the memory of the processes that are not stopped.
    pub(super) fn look_at_memory(&mut self, others: &[Other], machine: &Machine) {
        let with_memory = others
            .iter()
            .filter(|other| other.share.memory > 0)
            .filter_map(|other| other.pid);
        let have = |pid| Some((pid, machine.of_children(pid)?));
        self.have = with_memory
            .filter(|pid| !self.at_rest.contains(pid))
            .filter_map(have)
            .collect();
    }

    /// Sums the shares of `others` that are not stopped. For a process that was not measured, all
    /// of its memory counts as still to come.
    pub(super) fn sum(&self, others: &[Other]) -> Share {
        let mut sum = Share::default();
        for Other { pid, share } in others {
            if pid.is_some_and(|pid| self.at_rest.contains(&pid)) {
                continue;
            }
            let has = pid
                .and_then(|pid| self.have.get(&pid))
                .copied()
                .unwrap_or(0);
            sum.add(Share {
                to_come: share.memory.saturating_sub(has),
                ..*share
            });
        }
        sum
    }
}
