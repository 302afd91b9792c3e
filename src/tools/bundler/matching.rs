//! Which code object each target gets (docs/spec/containers.md 2.6): the one with the same id, else, of the compatible ones, the
//! one with the most specific id. One code object may be written for several targets (docs/spec/faults.md B13, B14).

use super::Request;
use super::container::BundleEntry;
use crate::formats::bundle::{Id, best, compatibility};
use crate::sys::shell::Shell;

/// For each target, the entry it gets: of several that fit equally well, the first in the file.
pub(super) fn choose<'e>(
    entries: &'e [BundleEntry],
    targets: &[Id],
    request: &Request,
    shell: &Shell,
) -> Vec<Option<&'e BundleEntry>> {
    let ids: Vec<Id> = entries.iter().map(BundleEntry::parsed_id).collect();
    if request.explain {
        explain(&ids, targets, request, shell);
    }
    let one = |target| {
        let index = best(&ids, target, request.hip_openmp_compatible)?;
        let chosen = ids.get(index)?;
        // A linked program holds a bundle of each of its objects, so one id may be there several times.
        let others = ids.iter().filter(|id| *id == chosen).count().saturating_sub(1);
        if others > 0 {
            shell.warn(&format!("'{}' has {others} more code objects for {chosen}: the first is written", input(request)));
        }
        entries.get(index)
    };
    targets.iter().map(one).collect()
}

/// What `-debug-only=CodeObjectCompatibility` prints: every comparison.
pub(super) fn explain(objects: &[Id], targets: &[Id], request: &Request, shell: &Shell) {
    for object in objects {
        for target in targets {
            shell.line(&compatibility(object, target, request.hip_openmp_compatible).line(object, target));
        }
    }
}

fn input(request: &Request) -> String {
    request.inputs.first().map(|path| path.display().to_string()).unwrap_or_default()
}
