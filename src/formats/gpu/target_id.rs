//! Target IDs: a processor and the features that its code requires, such as
//! `gfx90a:sramecc+:xnack-`.

use super::{AmdArch, amd};
use std::collections::BTreeMap;

/// The components of a target ID.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TargetId<'a> {
    /// The processor.
    pub processor: &'a str,
    /// The specified features, and whether they are on.
    pub features: BTreeMap<&'a str, bool>,
}

impl<'a> TargetId<'a> {
    /// Parses `text`. Unknown processors and features are accepted. `None` if there is no
    /// processor, or a feature lacks a name or a sign or occurs twice.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(':');
        let processor = parts.next().filter(|name| !name.is_empty())?;
        let mut features = BTreeMap::new();
        for feature in parts {
            let name = feature
                .strip_suffix(['+', '-'])
                .filter(|name| !name.is_empty())?;
            if features.insert(name, feature.ends_with('+')).is_some() {
                return None;
            }
        }
        Some(TargetId {
            processor,
            features,
        })
    }

    /// Parses the target ID `text` for `triple` and replaces a product name by the processor's
    /// name. `None` if it is invalid. For AMD, the processor must be known, match the triple and
    /// have all features. For others, there must be no feature.
    pub fn of_triple(triple: &str, text: &'a str) -> Option<Self> {
        let parsed = TargetId::parse(text)?;
        let (processor, known): (&str, &[&str]) = match AmdArch::of_triple(triple) {
            Some(arch) => {
                let known = amd::processor(parsed.processor)?;
                AmdArch::of_processor(known.name).filter(|named| arch.agrees(named))?;
                (known.name, known.features)
            }
            // Processors of r600 have no target IDs.
            None if triple.split('-').next() == Some("r600") => return None,
            None => (parsed.processor, &[]),
        };
        let all_known = parsed.features.keys().all(|name| known.contains(name));
        all_known.then_some(TargetId {
            processor,
            features: parsed.features,
        })
    }
}

/// Formats the ID as compilers do, with features in alphabetical order.
impl std::fmt::Display for TargetId<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.processor)?;
        self.features
            .iter()
            .try_for_each(|(name, on)| write!(f, ":{name}{}", if *on { '+' } else { '-' }))
    }
}

/// Normalizes an AMD target ID to the compilers' spelling: the processor's name instead of a
/// product name, and features in alphabetical order. Any other text is returned unchanged.
pub fn canonical_target_id(text: &str) -> String {
    let parsed = TargetId::parse(text)
        .and_then(|parsed| Some((amd::processor(parsed.processor)?, parsed.features)));
    parsed.map_or_else(
        || text.to_owned(),
        |(known, features)| {
            TargetId {
                processor: known.name,
                features,
            }
            .to_string()
        },
    )
}

/// Processors whose names follow no pattern.
const IRREGULAR_NAMES: [&str; 4] = ["amdgcnspirv", "generic", "bmg_g21", "graniterapids"];

/// Whether `name` is a processor and therefore not part of a triple. Unlisted names with a known
/// prefix count, so that IDs for future processors can be split.
pub fn is_processor(name: &str) -> bool {
    let consists_of = |rest: &str, more: &str| {
        !rest.is_empty()
            && rest
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    amd::processor(name).is_some()
        || IRREGULAR_NAMES.contains(&name)
        || name
            .strip_prefix("gfx")
            .is_some_and(|rest| consists_of(rest, "-"))
        || name
            .strip_prefix("sm_")
            .is_some_and(|rest| consists_of(rest, ""))
}
