//! Which code objects of a bundle can be used for which targets (docs/spec/containers.md 2.6, 3.6). A code object that leaves a
//! feature open runs with and without it. For a target that leaves a feature open, no code object that fixes it can be used.

use std::fmt;

use super::enumerated::compatible_triples;
use super::id::Id;
use crate::formats::gpu::TargetId;

/// Whether a code object can be used for a target, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// It is for this very target.
    Exact,
    /// It is for another kind or triple.
    KindOrTriple,
    /// It is for another processor, or one of the two target ids is invalid.
    Processor,
    /// It fixes more features than the target.
    MoreFeatures,
    /// It fixes a feature that the target leaves open.
    FixedForAny,
    /// It fixes a feature the other way round.
    OtherValue,
    /// The target fixes all its features in the same way.
    Compatible,
}

impl Verdict {
    /// Whether the code object can be used for the target.
    pub fn serves(self) -> bool {
        matches!(self, Verdict::Exact | Verdict::Compatible)
    }

    /// The line that `-debug-only=CodeObjectCompatibility` prints of it.
    pub fn line(self, object: &Id, target: &Id) -> String {
        format!("{self} \t[CodeObject: {object}]\t:\t[Target: {target}]")
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NOT_MATCHING: &str = "Incompatible: Value of CodeObject's non-ANY feature is not matching with Target feature's";
        match self {
            Verdict::Exact => f.write_str("Compatible: Exact match:"),
            Verdict::KindOrTriple => f.write_str("Incompatible: Kind/Triple mismatch"),
            Verdict::Processor => f.write_str("Incompatible: Processor mismatch"),
            Verdict::MoreFeatures => f.write_str("Incompatible: CodeObject has more features than target"),
            Verdict::FixedForAny => write!(f, "{NOT_MATCHING} ANY value"),
            Verdict::OtherValue => write!(f, "{NOT_MATCHING} non-ANY value"),
            Verdict::Compatible => f.write_str("Compatible: Target IDs are compatible"),
        }
    }
}

/// Whether the code object `object` can be used for `target`. With `hip_openmp`, the kinds HIP and OpenMP count as the same
/// (`-hip-openmp-compatible`).
pub fn compatibility(object: &Id, target: &Id, hip_openmp: bool) -> Verdict {
    let triples = compatible_triples(&object.triple, &target.triple);
    let ((_, object_id), (_, target_id)) = (object.device(), target.device());
    let same_id = object_id == target_id;
    if object.kind == target.kind && triples && same_id {
        return Verdict::Exact;
    }
    if !triples || !compatible_kinds(&object.kind, &target.kind, hip_openmp) {
        return Verdict::KindOrTriple;
    }
    let parsed = [(object, &object_id), (target, &target_id)].map(|(id, text)| TargetId::of_triple(&id.triple, text));
    match parsed {
        [Some(object), Some(target)] if object.processor == target.processor => features(&object, &target),
        // An unknown processor is compatible with itself only.
        _ if same_id && !object_id.is_empty() => Verdict::Compatible,
        _ => Verdict::Processor,
    }
}

fn features(object: &TargetId<'_>, target: &TargetId<'_>) -> Verdict {
    if object.features.len() > target.features.len() {
        return Verdict::MoreFeatures;
    }
    for (name, value) in &object.features {
        match target.features.get(name) {
            None => return Verdict::FixedForAny,
            Some(other) if other != value => return Verdict::OtherValue,
            Some(_) => {}
        }
    }
    Verdict::Compatible
}

fn compatible_kinds(object: &str, target: &str, hip_openmp: bool) -> bool {
    let hip = |kind: &str| matches!(kind, "hip" | "hipv4");
    let like_hip = |kind: &str| kind.get(..3).is_some_and(|start| start.eq_ignore_ascii_case("hip"));
    let mixed = |one: &str, other: &str| one == "openmp" && like_hip(other);
    object == target || hip(object) && hip(target) || hip_openmp && (mixed(object, target) || mixed(target, object))
}

/// The index of the best of `objects` for `target`: the exact match, else the one that fixes the most features, else the one of the
/// target's own kind, else the first.
pub fn best<'i>(objects: impl IntoIterator<Item = &'i Id>, target: &Id, hip_openmp: bool) -> Option<usize> {
    let mut found = None;
    for (index, object) in objects.into_iter().enumerate() {
        let verdict = compatibility(object, target, hip_openmp);
        if !verdict.serves() {
            continue;
        }
        let fixed = object.target_id.matches(':').count();
        let rank = (verdict == Verdict::Exact, fixed, object.kind == target.kind, object.triple == target.triple);
        if found.is_none_or(|(best, _)| rank > best) {
            found = Some((rank, index));
        }
    }
    found.map(|(_, index)| index)
}
