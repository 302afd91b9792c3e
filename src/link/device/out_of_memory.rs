//! What is said of device links and memory: that one waits, is tried again, or cannot be linked.

use crate::error::StepFailed;
use crate::sys::jobs::{Demand, Refusal};
use crate::sys::run::OutOfMemory;
use crate::sys::table::{Style, size};

/// The end for want of memory that `error` tells of, if it does.
pub(super) fn of(error: &anyhow::Error) -> Option<&OutOfMemory> {
    error.downcast_ref()
}

/// What a link waits for; none where only others' turns end.
pub(super) fn waits_for(demand: &Demand, why: Refusal) -> Option<String> {
    match why {
        Refusal::Slots => None,
        Refusal::Memory(free) => Some(format!("memory: it takes about {}, and {} is free", shown(demand.memory), shown(free))),
        Refusal::Alone => Some("a device link that runs alone".to_owned()),
    }
}

/// That the link of `step` is run once more.
pub(super) fn tried_again(step: &str, killed: &OutOfMemory) -> String {
    let OutOfMemory { how, peak_memory, .. } = killed;
    format!("{step}: {how} when it had {}; it is tried again, with no device link beside it", shown(*peak_memory))
}

/// The error of a link for which there is not enough memory even alone. `free`: what was free for it when it began.
pub(super) fn given_up(killed: &OutOfMemory, free: Option<u64>) -> StepFailed {
    let OutOfMemory { failed, how, peak_memory } = killed;
    let free = free.map(|free| format!(", of {} that was free", shown(free))).unwrap_or_default();
    let report = format!(
        "{}\n  memory: {how} when it had {}{free}, although no other device link ran beside it\n  \
         what helps: more memory, or a higher limit of the control group or container; less device code in one link, by \
         -foffload-lto=thin or by linking for fewer architectures",
        failed.report,
        shown(*peak_memory)
    );
    StepFailed { report, status: failed.status }
}

fn shown(bytes: u64) -> String {
    let text = size(bytes, Style::default());
    // Below 1 KiB there is no prefix.
    if text.ends_with(|last: char| last.is_ascii_digit()) { format!("{text}B") } else { format!("{text}iB") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_has_the_amounts() {
        let demand = Demand::one_thread(3 << 30);
        let text = waits_for(&demand, Refusal::Memory(1 << 30));
        assert_eq!(text.as_deref(), Some("memory: it takes about 3.0GiB, and 1.0GiB is free"));
        let text = waits_for(&demand, Refusal::Memory(0));
        assert_eq!(text.as_deref(), Some("memory: it takes about 3.0GiB, and 0B is free"));
        assert_eq!(waits_for(&demand, Refusal::Slots), None);
        let failed = StepFailed { report: "the link failed".to_owned(), status: 137 };
        let killed = OutOfMemory { failed, how: "it was killed", peak_memory: 2 << 30 };
        let StepFailed { report, status } = given_up(&killed, Some(4 << 30));
        assert_eq!(status, 137);
        assert!(report.starts_with("the link failed\n  memory: it was killed when it had 2.0GiB, of 4.0GiB that was free"));
    }
}
