//! Decides which images archive members may add. A runtime takes the image of a device as a whole.
//! An image with code from only some members would lack the kernels of the program's own objects,
//! and the program would fail (docs/spec/link-driver.md 3.5).

use std::collections::{BTreeMap, BTreeSet};

use crate::link::scan::DeviceImage;
use crate::model::{OffloadKind, OffloadKinds, Origin};
use crate::target::Target;

use super::targets::Servers;

/// The targets of the regular inputs: the objects and whole archives that are always linked. For
/// each kind, it has the target lists of all objects with code of that kind, each list once.
#[derive(Default)]
pub(super) struct Coverage(BTreeMap<OffloadKind, KindTargets>);

/// The targets of the objects with code of one kind.
#[derive(Default)]
struct KindTargets {
    lists: BTreeSet<Vec<Target>>,
    /// The same lists, for lookups.
    servers: Vec<Servers>,
}

impl Coverage {
    /// Returns the coverage of the images `regular`.
    pub(super) fn of<'f>(regular: impl Iterator<Item = &'f DeviceImage<'f>>) -> Coverage {
        let mut objects: BTreeMap<(OffloadKind, usize), Vec<Target>> = BTreeMap::new();
        for image in regular {
            for kind in image.kinds.iter() {
                objects
                    .entry((kind, image.input_object))
                    .or_default()
                    .push(Target::new(&image.triple, &image.arch));
            }
        }
        let mut coverage = Coverage::default();
        for ((kind, _), targets) in objects {
            coverage.0.entry(kind).or_default().lists.insert(targets);
        }
        for KindTargets { lists, servers } in coverage.0.values_mut() {
            servers.extend(
                lists
                    .iter()
                    .map(|targets| Servers::of(targets.iter().enumerate())),
            );
        }
        coverage
    }

    /// Whether a member's code of `kind` may be in an image for `target`. It may if a regular input
    /// has code of that kind for exactly this target, because the image exists anyway. It also may
    /// if every regular input with code of that kind has code that serves the target, because the
    /// image is complete. The second condition holds if no regular input has code of that kind.
    pub(super) fn has(&self, kind: OffloadKind, target: &Target) -> bool {
        let Some(KindTargets { servers, .. }) = self.0.get(&kind) else {
            return true;
        };
        servers.iter().any(|servers| servers.have(target))
            || servers.iter().all(|servers| servers.serve(target))
    }

    /// Returns the kinds that an image for `target` is registered with because `image`, a member's,
    /// is linked into it. Returns none if `image` must not be linked into it.
    pub(super) fn kinds(&self, image: &DeviceImage<'_>, target: &Target) -> Option<OffloadKinds> {
        let kinds = image
            .kinds
            .iter()
            .filter(|kind| self.has(*kind, target))
            .fold(OffloadKinds::default(), OffloadKinds::with);
        (kinds != OffloadKinds::default() || image.kinds == kinds).then_some(kinds)
    }

    /// Returns the targets for which the regular inputs have code of `kind`.
    fn targets(&self, kind: OffloadKind) -> BTreeSet<&Target> {
        self.0
            .get(&kind)
            .into_iter()
            .flat_map(|of_kind| of_kind.lists.iter().flatten())
            .collect()
    }
}

/// Returns a warning for each archive member whose kernels of some kind are in no image. The reason
/// is that the program's own objects have no code for the member's targets. `linked`: by image, the
/// kinds of the linked images that contain it. `is_pulled`: whether the host link extracts an
/// object that has an entry table.
pub(super) fn left_out(
    found: &[DeviceImage<'_>],
    coverage: &Coverage,
    linked: &[Option<OffloadKinds>],
    is_pulled: &dyn Fn(usize) -> bool,
) -> Vec<String> {
    let mut members: BTreeMap<(usize, OffloadKind), Vec<usize>> = BTreeMap::new();
    for (at, image) in found
        .iter()
        .enumerate()
        .filter(|(_, image)| is_pulled(image.input_object))
    {
        image.kinds.iter().for_each(|kind| {
            members
                .entry((image.input_object, kind))
                .or_default()
                .push(at)
        });
    }
    members.retain(|(_, kind), images| {
        !images
            .iter()
            .any(|&at| linked[at].is_some_and(|kinds| kinds.contains(*kind)))
    });
    let listed = |targets: BTreeSet<&Target>| {
        targets
            .into_iter()
            .map(Target::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let warning = |((_, kind), images): ((usize, OffloadKind), Vec<usize>)| {
        let member = Origin {
            section: None,
            ..found[*images.first()?].origin.clone()
        };
        let has: Vec<Target> = images
            .iter()
            .map(|&at| Target::new(&found[at].triple, &found[at].arch))
            .collect();
        Some(format!(
            "the {kind} kernels of {member} are in no image and cannot run on a device: the member has code for {}, and the \
             program's own objects have {kind} code for {} only. Compile both for the same targets (--offload-arch=)",
            listed(has.iter().collect()),
            listed(coverage.targets(kind)),
            kind = kind.title(),
        ))
    };
    members.into_iter().filter_map(warning).collect()
}
