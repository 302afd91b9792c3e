//! Bundle ids, `kind-triple-targetid`: what they mean, in the one spelling that ids are compared and written in; and which of them
//! may not stand in one bundle.

use super::triple::standard;
use crate::formats::gpu::{AmdArch, canonical_target_id, is_processor};
use std::collections::BTreeSet;
use std::fmt;

/// A bundle id.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Id {
    /// `host`, `openmp`, `hip`, `hipv4`.
    pub kind: String,
    /// Four components; the fourth is empty for AMD's HSA: `amdgcn-amd-amdhsa-`.
    pub triple: String,
    /// The target id or processor; empty for any.
    pub target_id: String,
}

/// Why ids cannot be in one bundle, in LLVM's words.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdFault {
    /// Two are the same.
    Duplicate,
    /// Two are for one processor, and one of them leaves a feature open that the other fixes.
    Conflict(String, String),
}

impl fmt::Display for IdFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdFault::Duplicate => f.write_str("Duplicate targets are not allowed"),
            IdFault::Conflict(first, second) => {
                write!(f, "Cannot bundle inputs with conflicting targets: '{first}' and '{second}'")
            }
        }
    }
}

impl std::error::Error for IdFault {}

/// The id of a code object of `kind` for `triple` and `target_id`, as it is written to bundles.
pub fn bundle_id(kind: &str, triple: &str, target_id: &str) -> String {
    Id::new(kind, triple, target_id).to_string()
}

impl Id {
    /// The id of a code object. `triple` may lack components.
    pub fn new(kind: &str, triple: &str, target_id: &str) -> Self {
        let triple = standard(triple);
        let amd = AmdArch::of_triple(&triple).is_some() || triple.starts_with("r600-");
        let target_id = if amd { canonical_target_id(target_id) } else { target_id.to_owned() };
        Id { kind: kind.to_owned(), triple, target_id }
    }

    /// Reads an id in any of the forms that releases of LLVM write or take: with or without the environment, with or without the
    /// target id, or with fewer components still. No target id is lost, known or not.
    pub fn parse(text: &str) -> Self {
        let (kind, rest) = text.split_once('-').unwrap_or((text, ""));
        if let Some((triple, target_id)) = split_at_processor(rest) {
            return Id::new(kind, triple, target_id);
        }
        let mut parts = rest.splitn(5, '-');
        let triple: Vec<&str> = parts.by_ref().take(4).collect();
        // LLVM writes a dash after the triple, and scripts that add one of their own still find the entry.
        let target_id = parts.next().unwrap_or_default();
        Id::new(kind, &triple.join("-"), if target_id.trim_matches('-').is_empty() { "" } else { target_id })
    }

    /// The triple and the target id under the name that all names of one device have in common: AMD's may say the processor in the
    /// triple.
    pub(super) fn device(&self) -> (String, String) {
        let Some(named) = AmdArch::of_triple(&self.triple) else { return (self.triple.clone(), self.target_id.clone()) };
        let rest = self.triple.split_once('-').map_or("", |(_, rest)| rest);
        let by_triple = self.target_id.is_empty() && !named.is_any();
        let target_id = if by_triple { named.device_name() } else { self.target_id.clone() };
        (format!("amdgcn-{rest}"), target_id)
    }

    /// Of a target id: the processor, and the names of the features it fixes.
    fn parts(target_id: &str) -> (&str, BTreeSet<&str>) {
        let mut parts = target_id.split(':');
        let processor = parts.next().unwrap_or_default();
        (processor, parts.map(|feature| feature.trim_end_matches(['+', '-'])).collect())
    }

    /// Whether both are of one kind and for one processor, so that a runtime chooses between them, and one fixes a feature that the
    /// other leaves open. `hip` and `hipv4` are two kinds here, as for LLVM.
    pub(crate) fn is_in_conflict(&self, other: &Id) -> bool {
        let ((triple, id), (other_triple, other_id)) = (self.device(), other.device());
        let ((processor, features), (other_processor, other_features)) = (Id::parts(&id), Id::parts(&other_id));
        let same = self.kind == other.kind && triple == other_triple && processor == other_processor;
        same && !processor.is_empty() && features != other_features
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.kind, self.triple, self.target_id)
    }
}

/// Splits before a target id that starts with the name of a processor; both may hold dashes, so the longest name that leaves a
/// triple of at most four components is taken.
fn split_at_processor(rest: &str) -> Option<(&str, &str)> {
    let dashes = rest.match_indices('-').take(4);
    dashes.map(|(at, _)| (&rest[..at], &rest[at + 1..])).find(|(_, id)| is_processor(id.split(':').next().unwrap_or_default()))
}

/// Whether these ids may stand in one bundle: no two are the same, and for one processor a feature is in all of its target ids or
/// in none (docs/spec/containers.md 3.5), because a runtime could not tell which of them to take.
pub fn check(ids: &[Id]) -> Result<(), IdFault> {
    let mut sorted: Vec<&Id> = ids.iter().collect();
    sorted.sort();
    let mut seen = BTreeSet::new();
    if !sorted.iter().all(|id| seen.insert((&id.kind, id.device()))) {
        return Err(IdFault::Duplicate);
    }
    for (index, first) in sorted.iter().enumerate() {
        let second = sorted.iter().skip(index + 1).find(|second| first.is_in_conflict(second));
        if let Some(second) = second {
            return Err(IdFault::Conflict(first.to_string(), second.to_string()));
        }
    }
    Ok(())
}
