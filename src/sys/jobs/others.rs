//! What other offld processes run and use: what they say of it in the table, and what the system says of them.

use std::collections::{BTreeMap, BTreeSet};

use super::memory::Machine;
use super::table::Share;

/// Another process of the table.
#[derive(Debug)]
pub(super) struct Other {
    /// Its number; none if it is in another container, where nothing more is known of it.
    pub(super) pid: Option<u32>,
    /// What it says that it has running.
    pub(super) share: Share,
}

/// What the system says of the processes of the table. That is read while the table is not locked, since it takes a while.
#[derive(Debug, Default)]
pub(super) struct Processes {
    /// Those that do nothing until somebody wakes them.
    at_rest: BTreeSet<u32>,
    /// How much memory the device links of each have by now, in bytes.
    have: BTreeMap<u32, u64>,
}

impl Processes {
    /// Looks which of `others` are stopped.
    pub(super) fn at_rest(others: &[Other], machine: &Machine) -> Processes {
        let run_something = others.iter().filter(|other| other.share != Share::default()).filter_map(|other| other.pid);
        Processes { at_rest: run_something.filter(|pid| machine.is_at_rest(*pid)).collect(), have: BTreeMap::new() }
    }

    /// Looks how much memory they have.
    pub(super) fn look_at_memory(&mut self, others: &[Other], machine: &Machine) {
        let with_memory = others.iter().filter(|other| other.share.memory > 0).filter_map(|other| other.pid);
        let have = |pid| Some((pid, machine.of_children(pid)?));
        self.have = with_memory.filter(|pid| !self.at_rest.contains(pid)).filter_map(have).collect();
    }

    /// What `others` have running together. Of one that was not looked at, none of its memory is there yet.
    pub(super) fn sum(&self, others: &[Other]) -> Share {
        let mut sum = Share::default();
        for Other { pid, share } in others {
            if pid.is_some_and(|pid| self.at_rest.contains(&pid)) {
                continue;
            }
            let has = pid.and_then(|pid| self.have.get(&pid)).copied().unwrap_or(0);
            sum.add(Share { to_come: share.memory.saturating_sub(has), ..*share });
        }
        sum
    }
}
