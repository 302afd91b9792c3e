//! Compatibility of code objects with targets (docs/spec/containers.md 2.6, 3.6). A code object
//! that does not specify a feature runs with and without it. A target that does not specify a
//! feature cannot use a code object that does.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use super::enumerated::compatible_triples;
use super::id::Id;
use crate::formats::gpu::TargetId;

/// Whether a target can use a code object, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Both are the same.
    Exact,
    /// The kinds or triples differ.
    KindOrTriple,
    /// The processors differ, or one of the target IDs is invalid.
    Processor,
    /// The code object specifies more features than the target.
    MoreFeatures,
    /// The code object specifies a feature that the target does not specify.
    FixedForAny,
    /// The values of a feature differ.
    OtherValue,
    /// All features of the code object have the same value in the target.
    Compatible,
}

impl Verdict {
    /// Whether the target can use the code object.
    pub fn serves(self) -> bool {
        matches!(self, Verdict::Exact | Verdict::Compatible)
    }

    /// The line that `-debug-only=CodeObjectCompatibility` prints for this verdict.
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
            Verdict::MoreFeatures => {
                f.write_str("Incompatible: CodeObject has more features than target")
            }
            Verdict::FixedForAny => write!(f, "{NOT_MATCHING} ANY value"),
            Verdict::OtherValue => write!(f, "{NOT_MATCHING} non-ANY value"),
            Verdict::Compatible => f.write_str("Compatible: Target IDs are compatible"),
        }
    }
}

/// Decides whether `target` can use the code object `object`. With `hip_openmp`, the kinds HIP and
/// OpenMP are equal (`-hip-openmp-compatible`).
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
    let parsed = [(object, &object_id), (target, &target_id)]
        .map(|(id, text)| TargetId::of_triple(&id.triple, text));
    match parsed {
        [Some(object), Some(target)] if object.processor == target.processor => {
            features(&object, &target)
        }
        // An unknown processor is only compatible with itself.
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
    let like_hip = |kind: &str| {
        kind.get(..3)
            .is_some_and(|start| start.eq_ignore_ascii_case("hip"))
    };
    let mixed = |one: &str, other: &str| one == "openmp" && like_hip(other);
    object == target
        || hip(object) && hip(target)
        || hip_openmp && (mixed(object, target) || mixed(target, object))
}

/// The code objects of a bundle or an archive, indexed by processor. There may be many thousands,
/// and a target is only compared with those of its processor.
#[derive(Debug)]
pub struct Objects<'i> {
    ids: Vec<&'i Id>,
    processors: HashMap<String, Vec<usize>>,
}

impl<'i> Objects<'i> {
    /// Indexes the code objects with these IDs, in order.
    pub fn new(ids: impl IntoIterator<Item = &'i Id>) -> Self {
        let ids: Vec<&Id> = ids.into_iter().collect();
        let mut processors: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, id) in ids.iter().enumerate() {
            processors_of(id)
                .into_iter()
                .for_each(|name| processors.entry(name).or_default().push(index));
        }
        Objects { ids, processors }
    }

    /// The indices of the code objects that `target` can use, in order, each with its verdict.
    pub fn serving(&self, target: &Id, hip_openmp: bool) -> Vec<(usize, Verdict)> {
        let of_processor = processors_of(target)
            .into_iter()
            .filter_map(|name| self.processors.get(&name));
        let candidates: BTreeSet<usize> = of_processor.flatten().copied().collect();
        let verdict = |index: usize| {
            Some((
                index,
                compatibility(self.ids.get(index)?, target, hip_openmp),
            ))
        };
        let verdicts = candidates.into_iter().filter_map(verdict);
        verdicts.filter(|(_, verdict)| verdict.serves()).collect()
    }

    /// The index of the best code object for `target`: an exact match, else the one with the most
    /// features. If several are equal, the same kind decides, then the same triple, then the order.
    pub fn best(&self, target: &Id, hip_openmp: bool) -> Option<usize> {
        let mut found = None;
        for (index, verdict) in self.serving(target, hip_openmp) {
            let Some(object) = self.ids.get(index) else {
                continue;
            };
            let fixed = object.target_id.matches(':').count();
            let rank = (
                verdict == Verdict::Exact,
                fixed,
                object.kind == target.kind,
                object.triple == target.triple,
            );
            if found.is_none_or(|(best, _)| rank > best) {
                found = Some((rank, index));
            }
        }
        found.map(|(_, index)| index)
    }
}

/// The processor, if it is known, and the whole target ID. Compatible IDs have at least one of them
/// in common.
fn processors_of(id: &Id) -> BTreeSet<String> {
    let (_, target_id) = id.device();
    let processor =
        TargetId::of_triple(&id.triple, &target_id).map(|parsed| parsed.processor.to_owned());
    processor.into_iter().chain([target_id]).collect()
}
