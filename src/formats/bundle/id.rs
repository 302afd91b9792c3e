//! Bundle IDs, `kind-triple-targetid`: parses them to the normalized spelling in which offld
//! compares and writes them, and checks which IDs can share a bundle.

use super::triple::standard;
use crate::formats::gpu::{AmdArch, canonical_target_id, is_processor};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// A bundle ID, split into its components.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub struct Id {
    /// `host`, `openmp`, `hip` or `hipv4`.
    pub kind: String,
    /// Four components. The fourth is empty for AMD's HSA: `amdgcn-amd-amdhsa-`.
    pub triple: String,
    /// The target ID or processor. Empty for any.
    pub target_id: String,
}

/// Reasons why IDs cannot share a bundle. The messages are LLVM's.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdFault {
    /// Two IDs are equal.
    Duplicate,
    /// Two IDs have the same processor, and only one of them specifies a feature.
    Conflict(String, String),
}

impl fmt::Display for IdFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdFault::Duplicate => f.write_str("Duplicate targets are not allowed"),
            IdFault::Conflict(first, second) => {
                write!(
                    f,
                    "Cannot bundle inputs with conflicting targets: '{first}' and '{second}'"
                )
            }
        }
    }
}

impl std::error::Error for IdFault {}

/// The ID of a code object of `kind` for `triple` and `target_id`, as bundles store it.
pub fn bundle_id(kind: &str, triple: &str, target_id: &str) -> String {
    Id::new(kind, triple, target_id).to_string()
}

impl Id {
    /// The ID of a code object. `triple` may lack components.
    pub fn new(kind: &str, triple: &str, target_id: &str) -> Self {
        let triple = standard(triple);
        let amd = AmdArch::of_triple(&triple).is_some() || triple.starts_with("r600-");
        let target_id = if amd {
            canonical_target_id(target_id)
        } else {
            target_id.to_owned()
        };
        Id {
            kind: kind.to_owned(),
            triple,
            target_id,
        }
    }

    /// Parses an ID in any form that an LLVM release writes or accepts: with or without environment
    /// and target ID, or with even fewer components. No target ID is lost, known or not.
    pub fn parse(text: &str) -> Self {
        let (kind, rest) = text.split_once('-').unwrap_or((text, ""));
        if let Some((triple, target_id)) = split_at_processor(rest) {
            return Id::new(kind, triple, target_id);
        }
        let mut parts = rest.splitn(5, '-');
        let triple: Vec<&str> = parts.by_ref().take(4).collect();
        // LLVM writes a dash after the triple. Scripts that add another dash still find the entry.
        let target_id = parts.next().unwrap_or_default();
        Id::new(
            kind,
            &triple.join("-"),
            if target_id.trim_matches('-').is_empty() {
                ""
            } else {
                target_id
            },
        )
    }

    /// The triple and target ID in a normalized form that is the same for all spellings of a
    /// device. AMD triples may contain the processor.
    pub(super) fn device(&self) -> (String, String) {
        let Some(named) = AmdArch::of_triple(&self.triple) else {
            return (self.triple.clone(), self.target_id.clone());
        };
        let rest = self.triple.split_once('-').map_or("", |(_, rest)| rest);
        let by_triple = self.target_id.is_empty() && !named.is_any();
        let target_id = if by_triple {
            named.device_name()
        } else {
            self.target_id.clone()
        };
        (format!("amdgcn-{rest}"), target_id)
    }

    /// Splits a target ID into the processor and the names of the specified features.
    fn parts(target_id: &str) -> (&str, BTreeSet<&str>) {
        let mut parts = target_id.split(':');
        let processor = parts.next().unwrap_or_default();
        (
            processor,
            parts
                .map(|feature| feature.trim_end_matches(['+', '-']))
                .collect(),
        )
    }

    /// Whether both IDs have the same kind and processor, so that a runtime chooses between them,
    /// but different sets of features. `hip` and `hipv4` are different kinds here, as in LLVM.
    pub(crate) fn is_in_conflict(&self, other: &Id) -> bool {
        let ((triple, id), (other_triple, other_id)) = (self.device(), other.device());
        let ((processor, features), (other_processor, other_features)) =
            (Id::parts(&id), Id::parts(&other_id));
        let same =
            self.kind == other.kind && triple == other_triple && processor == other_processor;
        same && !processor.is_empty() && features != other_features
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.kind, self.triple, self.target_id)
    }
}

/// Splits before a target ID that starts with a known processor. Both parts may contain dashes, so
/// the longest known name after at most four components of the triple wins.
fn split_at_processor(rest: &str) -> Option<(&str, &str)> {
    let dashes = rest.match_indices('-').take(4);
    dashes
        .map(|(at, _)| (&rest[..at], &rest[at + 1..]))
        .find(|(_, id)| is_processor(id.split(':').next().unwrap_or_default()))
}

/// Checks that these IDs can share a bundle: no two are equal, and the IDs of a processor specify
/// the same features. Otherwise, a runtime could not choose between them (docs/spec/containers.md
/// 3.5).
pub fn check(ids: &[Id]) -> Result<(), IdFault> {
    let mut sorted: Vec<&Id> = ids.iter().collect();
    sorted.sort();
    let mut seen = BTreeSet::new();
    if !sorted.iter().all(|id| seen.insert((&id.kind, id.device()))) {
        return Err(IdFault::Duplicate);
    }
    // IDs of a processor conflict if their features differ, so comparing each with the first one is
    // enough.
    let mut firsts: HashMap<(&str, String, String), (usize, &Id)> = HashMap::new();
    let mut conflicts: BTreeMap<usize, (&Id, &Id)> = BTreeMap::new();
    for (index, &id) in sorted.iter().enumerate() {
        let (triple, target_id) = id.device();
        let processor = Id::parts(&target_id).0.to_owned();
        let (at, first) = *firsts
            .entry((&id.kind, triple, processor))
            .or_insert((index, id));
        if first.is_in_conflict(id) {
            conflicts.entry(at).or_insert((first, id));
        }
    }
    match conflicts.into_values().next() {
        Some((first, second)) => Err(IdFault::Conflict(first.to_string(), second.to_string())),
        None => Ok(()),
    }
}
