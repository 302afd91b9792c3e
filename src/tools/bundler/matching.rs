//! Selects a code object for each target (docs/spec/containers.md 2.6): the one with the same ID,
//! otherwise the compatible one with the most specific ID. A code object may be written for several
//! targets (docs/spec/faults.md B13, B14).

use std::collections::HashMap;

use super::Request;
use super::container::BundleEntry;
use crate::formats::bundle::{Id, Objects, compatibility};
use crate::sys::shell::Shell;

/// Selects an entry for each target. If several fit equally well, the first one in the file wins.
pub(super) fn choose<'e>(
    entries: &'e [BundleEntry],
    targets: &[Id],
    request: &Request,
    shell: &Shell,
) -> Vec<Option<&'e BundleEntry>> {
    let ids: Vec<Id> = entries.iter().map(BundleEntry::parsed_id).collect();
    if request.explain {
        explain(ids.iter(), targets, request, shell);
    }
    let mut counts: HashMap<&Id, usize> = HashMap::new();
    ids.iter()
        .for_each(|id| *counts.entry(id).or_default() += 1);
    let objects = Objects::new(&ids);
    let choose_one = |target| {
        let index = objects.best(target, request.hip_openmp_compatible)?;
        let chosen = ids.get(index)?;
        // A linked program contains the bundles of all its objects, so an ID may occur several
        // times.
        let others = counts.get(chosen).map_or(0, |count| count - 1);
        if others > 0 {
            shell.warn(&format!(
                "'{}' has {others} more code objects for {chosen}: the first is written",
                input(request)
            ));
        }
        entries.get(index)
    };
    targets.iter().map(choose_one).collect()
}

/// Prints every comparison, as `-debug-only=CodeObjectCompatibility` does.
pub(super) fn explain<'i>(
    objects: impl Iterator<Item = &'i Id>,
    targets: &[Id],
    request: &Request,
    shell: &Shell,
) {
    for object in objects {
        for target in targets {
            shell.line(
                &compatibility(object, target, request.hip_openmp_compatible).line(object, target),
            );
        }
    }
}

fn input(request: &Request) -> String {
    request
        .inputs
        .first()
        .map(|path| path.display().to_string())
        .unwrap_or_default()
}
