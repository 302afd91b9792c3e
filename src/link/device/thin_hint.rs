//! Says once in a link that its device code took long to link, and what the same would have cost with ThinLTO: whoever waits for full
//! LTO after each change of one file may not know that there is a choice. Only the compiler can make it: bitcode for full LTO cannot
//! be turned into ThinLTO's afterwards.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use super::DeviceContext;
use crate::formats::{bitcode, magic};
use crate::link::select::DeviceJob;
use crate::sys::shell::Shell;
use crate::sys::toolchain;

/// How long a link takes of which everybody is told.
const LONG: Duration = Duration::from_secs(60);
/// The same where the user wants to know what is done.
const LONG_IF_VERBOSE: Duration = Duration::from_secs(3);
/// What a link takes in which one of many units has changed, as a part of the whole (docs/build-loop.md), where no unit is larger.
const SHARE: f64 = 1.0 / 9.0;

/// Whether the hint was given.
#[derive(Debug, Default)]
pub(super) struct ThinHint(AtomicBool);

impl ThinHint {
    /// Gives the hint if the link of `job` has taken long enough, `took`, and if nobody has got it yet.
    pub(super) fn after(&self, job: &DeviceJob<'_>, took: Duration, context: &DeviceContext<'_>, shell: &Shell) {
        let long = if context.request.verbose { LONG_IF_VERBOSE } else { LONG };
        if took < long || !links_bitcode(job, context) {
            return;
        }
        let Some(relink) = relink(took, &full_units(job)) else { return };
        if !self.0.swap(true, Ordering::Relaxed) {
            shell.note(&format!(
                "the device link for {} took {} with full LTO; had its objects been compiled with -foffload-lto=thin, the next one \
                 would generate code for changed objects only: about {} for one of them (docs/build-loop.md)",
                job.target,
                seconds(took),
                seconds(relink)
            ));
        }
    }
}

/// Whether a linker that keeps ThinLTO's units generates the code.
fn links_bitcode(job: &DeviceJob<'_>, context: &DeviceContext<'_>) -> bool {
    let request = context.request;
    let by_lld = job.target.is_amdgcn() || job.target.is_cpu() && toolchain::is_ld_lld(context.host_linker);
    by_lld && !request.no_lto && !request.embed_bitcode
}

/// The sizes of the inputs that are optimized as one module.
fn full_units(job: &DeviceJob<'_>) -> Vec<usize> {
    let full = |bytes: &[u8]| magic::is_bitcode(bytes) && !bitcode::is_thin(bytes).unwrap_or(true);
    job.inputs.iter().filter(|input| full(&input.bytes)).map(|input| input.bytes.len()).collect()
}

/// About how long the next link would take if the largest of its units had changed; none for a program of one unit.
fn relink(took: Duration, units: &[usize]) -> Option<Duration> {
    let largest = units.iter().max().filter(|_| units.len() > 1)?;
    let share = *largest as f64 / units.iter().sum::<usize>().max(1) as f64;
    Some(took.mul_f64(share.max(SHARE)))
}

fn seconds(time: Duration) -> String {
    format!("{:.0} s", time.as_secs_f64().max(1.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_unit_counts_and_one_alone_gains_nothing() {
        let minute = Duration::from_secs(90);
        assert_eq!(relink(minute, &[7]), None);
        assert_eq!(relink(minute, &[]), None);
        assert_eq!(relink(minute, &[1; 100]), Some(Duration::from_secs(10)));
        assert_eq!(relink(minute, &[1, 1, 2]), Some(Duration::from_secs(45)));
        assert_eq!(seconds(Duration::from_millis(200)), "1 s");
    }
}
