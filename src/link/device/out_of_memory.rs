//! Messages about device links and memory: waiting, retrying and giving up.

use crate::error::StepFailed;
use crate::sys::jobs::{Demand, Refusal};
use crate::sys::run::OutOfMemory;
use crate::sys::table::{Style, size};

/// Returns the details if `error` was caused by lack of memory.
pub(super) fn of(error: &anyhow::Error) -> Option<&OutOfMemory> {
    error.downcast_ref()
}

/// Describes the resource that a link waits for. `None` for a slot, which needs no message.
pub(super) fn waits_for(demand: &Demand, why: Refusal) -> Option<String> {
    match why {
        Refusal::Slots => None,
        Refusal::Memory(free) => Some(format!(
            "memory: about {} needed, {} free",
            show_size(demand.memory),
            show_size(free)
        )),
        Refusal::Alone => Some("a device link that runs alone".to_owned()),
    }
}

/// The warning that the link of `step` runs once more.
pub(super) fn tried_again(step: &str, killed: &OutOfMemory) -> String {
    let OutOfMemory {
        how, peak_memory, ..
    } = killed;
    format!(
        "{step}: {how} when it had {}; retrying with no other device link running",
        show_size(*peak_memory)
    )
}

/// The error of a link that fails even when it runs alone. `free`: free memory in bytes when it
/// began.
pub(super) fn given_up(killed: &OutOfMemory, free: Option<u64>) -> StepFailed {
    let OutOfMemory {
        failed,
        how,
        peak_memory,
    } = killed;
    let free = free
        .map(|free| format!(", with {} free", show_size(free)))
        .unwrap_or_default();
    failed.with_details(&format!(
        "memory: {how} when it had {}{free}, although no other device link ran\n  \
         remedy: more memory, or a higher limit of the control group or container; or less device code per link, with \
         -foffload-lto=thin or fewer architectures",
        show_size(*peak_memory)
    ))
}

fn show_size(bytes: u64) -> String {
    let text = size(bytes, Style::default());
    // Sizes below 1 KiB have no prefix.
    if text.ends_with(|last: char| last.is_ascii_digit()) {
        format!("{text}B")
    } else {
        format!("{text}iB")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_have_sizes() {
        let demand = Demand::one_thread(3 << 30);
        let text = waits_for(&demand, Refusal::Memory(1 << 30));
        assert_eq!(
            text.as_deref(),
            Some("memory: about 3.0GiB needed, 1.0GiB free")
        );
        let text = waits_for(&demand, Refusal::Memory(0));
        assert_eq!(
            text.as_deref(),
            Some("memory: about 3.0GiB needed, 0B free")
        );
        assert_eq!(waits_for(&demand, Refusal::Slots), None);
        let killed = OutOfMemory {
            failed: StepFailed::new("the link failed", 137),
            how: "was killed",
            peak_memory: 2 << 30,
        };
        let failed = given_up(&killed, Some(4 << 30));
        assert_eq!(failed.status, 137);
        assert!(failed.to_string().starts_with(
            "the link failed\n  memory: was killed when it had 2.0GiB, with 4.0GiB free"
        ));
    }
}
