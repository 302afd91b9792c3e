//! Target ids: a processor and the features that code for it fixes, `gfx90a:sramecc+:xnack-`.

use super::{AmdArch, amd};
use std::collections::BTreeMap;

/// The components of a target id.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TargetId<'a> {
    /// The processor.
    pub processor: &'a str,
    /// The features it fixes, and whether they are on.
    pub features: BTreeMap<&'a str, bool>,
}

impl<'a> TargetId<'a> {
    /// Parses `text`; processor and features need not be known ones. None if it is malformed: if there is no processor, or a
    /// feature has no name or no sign or is there twice.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(':');
        let processor = parts.next().filter(|name| !name.is_empty())?;
        let mut features = BTreeMap::new();
        for feature in parts {
            let name = feature.strip_suffix(['+', '-']).filter(|name| !name.is_empty())?;
            if features.insert(name, feature.ends_with('+')).is_some() {
                return None;
            }
        }
        Some(TargetId { processor, features })
    }

    /// Parses the target id `text` for `triple` and replaces a product name by the processor's name. None if it is invalid: for
    /// AMD, if the processor is unknown, not one of the triple's, or does not have a feature; for others, if there is any feature.
    pub fn of_triple(triple: &str, text: &'a str) -> Option<Self> {
        let parsed = TargetId::parse(text)?;
        let (processor, known): (&str, &[&str]) = match AmdArch::of_triple(triple) {
            Some(arch) => {
                let known = amd::processor(parsed.processor)?;
                AmdArch::of_processor(known.name).filter(|named| arch.agrees(named))?;
                (known.name, known.features)
            }
            // Processors of r600 have no target ids.
            None if triple.split('-').next() == Some("r600") => return None,
            None => (parsed.processor, &[]),
        };
        let all_known = parsed.features.keys().all(|name| known.contains(name));
        all_known.then_some(TargetId { processor, features: parsed.features })
    }
}

/// Writes the id as compilers do, with features in alphabetical order.
impl std::fmt::Display for TargetId<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.processor)?;
        self.features.iter().try_for_each(|(name, on)| write!(f, ":{name}{}", if *on { '+' } else { '-' }))
    }
}

/// An AMD target id as compilers spell it: the processor's name instead of a product name, then the features in alphabetical order.
/// A text that is not a target id of a known processor is returned unchanged.
pub fn canonical_target_id(text: &str) -> String {
    let parsed = TargetId::parse(text).and_then(|parsed| Some((amd::processor(parsed.processor)?, parsed.features)));
    parsed.map_or_else(|| text.to_owned(), |(known, features)| TargetId { processor: known.name, features }.to_string())
}

/// Processors whose names follow no pattern.
const OTHER: [&str; 4] = ["amdgcnspirv", "generic", "bmg_g21", "graniterapids"];

/// Whether `name` is a processor and so cannot be part of a triple. Names with a known prefix count even if they are not in the
/// table, so that ids for future processors can be split.
pub fn is_processor(name: &str) -> bool {
    let made_of =
        |rest: &str, more: &str| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
    amd::processor(name).is_some()
        || OTHER.contains(&name)
        || name.strip_prefix("gfx").is_some_and(|rest| made_of(rest, "-"))
        || name.strip_prefix("sm_").is_some_and(|rest| made_of(rest, ""))
}
