//! Which images an archive member may open. A runtime takes the image of a device as a whole: one that only some members have code
//! for would lack the kernels of the program's own objects, and the program would die of it (docs/spec/link-driver.md 3.5).

use std::collections::{BTreeMap, BTreeSet};

use crate::link::scan::DeviceImage;
use crate::model::{OffloadKind, OffloadKinds, Origin};
use crate::target::Target;

/// The targets of the regular inputs, the objects and whole archives that are linked in any case. For each kind: the lists of
/// targets that objects with code of that kind have, each list once.
#[derive(Default)]
pub(super) struct Coverage(BTreeMap<OffloadKind, BTreeSet<Vec<Target>>>);

impl Coverage {
    /// That of the images `regular`.
    pub(super) fn of<'f>(regular: impl Iterator<Item = &'f DeviceImage<'f>>) -> Coverage {
        let mut objects: BTreeMap<(OffloadKind, usize), Vec<Target>> = BTreeMap::new();
        for image in regular {
            for kind in image.kinds.iter() {
                objects.entry((kind, image.input_object)).or_default().push(Target::new(&image.triple, &image.arch));
            }
        }
        let mut coverage = Coverage::default();
        for ((kind, _), targets) in objects {
            coverage.0.entry(kind).or_default().insert(targets);
        }
        coverage
    }

    /// Whether a member's code of `kind` may be in an image for `target`: a regular input has code of that kind for this very
    /// target, so that there is such an image anyway; or all that have any code of that kind have some that serves it, so that the
    /// image is whole. The latter holds where no regular input has code of that kind.
    pub(super) fn has(&self, kind: OffloadKind, target: &Target) -> bool {
        let Some(objects) = self.0.get(&kind) else { return true };
        objects.iter().flatten().any(|own| own == target)
            || objects.iter().all(|targets| targets.iter().any(|own| own.serves(target)))
    }

    /// The kinds that an image for `target` is registered with because `image`, a member's, is linked into it; none if it must not
    /// be.
    pub(super) fn kinds(&self, image: &DeviceImage<'_>, target: &Target) -> Option<OffloadKinds> {
        let kinds = image.kinds.iter().filter(|kind| self.has(*kind, target)).fold(OffloadKinds::default(), OffloadKinds::with);
        (kinds != OffloadKinds::default() || image.kinds == kinds).then_some(kinds)
    }

    /// The targets that the regular inputs have code of `kind` for.
    fn targets(&self, kind: OffloadKind) -> BTreeSet<&Target> {
        self.0.get(&kind).into_iter().flatten().flatten().collect()
    }
}

/// A warning for each archive member whose kernels of some kind are in no image, because the program's own objects have no code for
/// the targets of the member's. `linked`: by image, the kinds that the images it is linked into are registered with; `is_pulled`:
/// whether the host link pulls an object, and the object has an entry table.
pub(super) fn left_out(
    found: &[DeviceImage<'_>],
    coverage: &Coverage,
    linked: &[Option<OffloadKinds>],
    is_pulled: &dyn Fn(usize) -> bool,
) -> Vec<String> {
    let mut members: BTreeMap<(usize, OffloadKind), Vec<usize>> = BTreeMap::new();
    for (at, image) in found.iter().enumerate().filter(|(_, image)| is_pulled(image.input_object)) {
        image.kinds.iter().for_each(|kind| members.entry((image.input_object, kind)).or_default().push(at));
    }
    members.retain(|(_, kind), images| !images.iter().any(|&at| linked[at].is_some_and(|kinds| kinds.contains(*kind))));
    let listed = |targets: BTreeSet<&Target>| targets.into_iter().map(Target::to_string).collect::<Vec<_>>().join(", ");
    let warning = |((_, kind), images): ((usize, OffloadKind), Vec<usize>)| {
        let member = Origin { section: None, ..found[*images.first()?].origin.clone() };
        let has: Vec<Target> = images.iter().map(|&at| Target::new(&found[at].triple, &found[at].arch)).collect();
        Some(format!(
            "the {kind} kernels of {member} are in no image: it has code for {}, and the program's own objects have {kind} code for {} only. \
             They cannot run on a device: compile both for the same targets (--offload-arch=)",
            listed(has.iter().collect()),
            listed(coverage.targets(kind)),
            kind = kind.title(),
        ))
    };
    members.into_iter().filter_map(warning).collect()
}
