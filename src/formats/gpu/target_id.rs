//! Target ids: a processor and the features that code for it fixes, `gfx90a:sramecc+:xnack-`.

use super::amd;
use std::collections::BTreeMap;

/// A target id, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetId<'a> {
    /// The processor.
    pub processor: &'a str,
    /// The features it fixes, and whether they are on.
    pub features: BTreeMap<&'a str, bool>,
}

impl<'a> TargetId<'a> {
    /// Takes `text` apart, whatever the processor and its features are. None where it is malformed: without a processor, or with a
    /// feature that has no name or no sign, or stands there twice.
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

    /// Takes apart the target id `text` for `triple`, with the processor by the name in use. None for one that means nothing: of AMD,
    /// without a processor that is known, or with a feature that it does not have; of others, any with a feature.
    pub fn of_triple(triple: &str, text: &'a str) -> Option<Self> {
        let parsed = TargetId::parse(text)?;
        let (processor, known): (&str, &[&str]) = match triple.split('-').next() {
            Some("amdgcn") => amd::processor(parsed.processor).map(|known| (known.name, known.features))?,
            // Its processors have no target ids.
            Some("r600") => return None,
            _ => (parsed.processor, &[]),
        };
        let all_known = parsed.features.keys().all(|name| known.contains(name));
        all_known.then_some(TargetId { processor, features: parsed.features })
    }
}

/// As compilers spell it: features in alphabetical order.
impl std::fmt::Display for TargetId<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.processor)?;
        self.features.iter().try_for_each(|(name, on)| write!(f, ":{name}{}", if *on { '+' } else { '-' }))
    }
}

/// An AMD target id as compilers spell it: the processor by the name in use, then its features in alphabetical order. What is
/// not a target id of a known processor stays as it is.
pub fn canonical_target_id(text: &str) -> String {
    let parsed = TargetId::parse(text).and_then(|parsed| Some((amd::processor(parsed.processor)?, parsed.features)));
    parsed.map_or_else(|| text.to_owned(), |(known, features)| TargetId { processor: known.name, features }.to_string())
}

/// Processors without a pattern to know them by.
const OTHER: [&str; 4] = ["amdgcnspirv", "generic", "bmg_g21", "graniterapids"];

/// Whether `name` is that of a processor and cannot be a part of a triple. New ones of the known makes count, so that the ids of
/// releases to come lose nothing.
pub fn is_processor(name: &str) -> bool {
    let made_of =
        |rest: &str, more: &str| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
    amd::processor(name).is_some()
        || OTHER.contains(&name)
        || name.strip_prefix("gfx").is_some_and(|rest| made_of(rest, "-"))
        || name.strip_prefix("sm_").is_some_and(|rest| made_of(rest, ""))
}
