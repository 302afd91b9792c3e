//! Names of processors as they stand in target ids (docs/spec/containers.md 3.1 to 3.3, B.2).

use std::collections::BTreeMap;

/// AMD's processors by the names in use.
#[rustfmt::skip]
const AMD: &[&str] = &[
    "gfx600", "gfx601", "gfx602", "gfx700", "gfx701", "gfx702", "gfx703", "gfx704", "gfx705", "gfx801", "gfx802", "gfx803", "gfx805",
    "gfx810", "gfx900", "gfx902", "gfx904", "gfx906", "gfx908", "gfx909", "gfx90a", "gfx90c", "gfx942", "gfx950", "gfx1010", "gfx1011",
    "gfx1012", "gfx1013", "gfx1030", "gfx1031", "gfx1032", "gfx1033", "gfx1034", "gfx1035", "gfx1036", "gfx1100", "gfx1101", "gfx1102",
    "gfx1103", "gfx1150", "gfx1151", "gfx1152", "gfx1153", "gfx1200", "gfx1201", "gfx1250", "gfx1251", "gfx9-generic", "gfx9-4-generic",
    "gfx10-1-generic", "gfx10-3-generic", "gfx11-generic", "gfx12-generic",
];

/// Other names of AMD's processors.
#[rustfmt::skip]
const AMD_OTHER: &[(&str, &str)] = &[
    ("tahiti", "gfx600"), ("pitcairn", "gfx601"), ("verde", "gfx601"), ("hainan", "gfx602"), ("oland", "gfx602"), ("kaveri", "gfx700"),
    ("hawaii", "gfx701"), ("kabini", "gfx703"), ("mullins", "gfx703"), ("bonaire", "gfx704"), ("carrizo", "gfx801"),
    ("iceland", "gfx802"), ("tonga", "gfx802"), ("fiji", "gfx803"), ("polaris10", "gfx803"), ("polaris11", "gfx803"),
    ("tongapro", "gfx805"), ("stoney", "gfx810"),
];

/// Processors without a pattern to know them by.
const OTHER: [&str; 4] = ["amdgcnspirv", "generic", "bmg_g21", "graniterapids"];

/// The name in use of an AMD processor that is known.
fn amd(name: &str) -> Option<&'static str> {
    let other = || AMD_OTHER.iter().find(|(other, _)| *other == name).map(|(_, known)| *known);
    AMD.iter().find(|known| **known == name).copied().or_else(other)
}

/// Whether `name` is that of a processor and cannot be an environment. New ones of the known makes count, so that the ids of
/// releases to come lose nothing.
pub(super) fn is_processor(name: &str) -> bool {
    let made_of =
        |rest: &str, more: &str| !rest.is_empty() && rest.chars().all(|c| c.is_ascii_alphanumeric() || more.contains(c));
    amd(name).is_some()
        || OTHER.contains(&name)
        || name.strip_prefix("gfx").is_some_and(|rest| made_of(rest, "-"))
        || name.strip_prefix("sm_").is_some_and(|rest| made_of(rest, ""))
}

/// An AMD target id as compilers spell it: the processor by the name in use, then its features in alphabetical order. What is
/// not a target id of a known processor stays as it is.
pub fn canonical_target_id(text: &str) -> String {
    let (processor, rest) = text.split_once(':').map_or((text, None), |(processor, rest)| (processor, Some(rest)));
    let Some(processor) = amd(processor) else { return text.to_owned() };
    let mut features = BTreeMap::new();
    for feature in rest.into_iter().flat_map(|rest| rest.split(':')) {
        let name = feature.strip_suffix(['+', '-']).filter(|name| !name.is_empty());
        match name {
            Some(name) if features.insert(name, feature).is_none() => {}
            _ => return text.to_owned(),
        }
    }
    let features: String = features.values().map(|feature| format!(":{feature}")).collect();
    format!("{processor}{features}")
}

/// A target id of a known processor, taken apart.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct TargetId<'a> {
    /// By the name in use.
    pub processor: &'a str,
    /// The features it fixes, and whether they are on.
    pub features: BTreeMap<&'a str, bool>,
}

/// Takes apart a target id for `triple`. None for one that means nothing: of AMD, without a known processor, or with a feature that
/// the processor does not have, or has twice, or without a sign; of others, any with a feature.
pub(super) fn parse_target_id<'a>(triple: &str, text: &'a str) -> Option<TargetId<'a>> {
    let mut parts = text.split(':');
    let name = parts.next().filter(|name| !name.is_empty())?;
    let (processor, known): (&str, &[&str]) = match triple.split('-').next() {
        Some("amdgcn") => amd(name).map(|processor| (processor, features(processor)))?,
        // Its processors have no target ids.
        Some("r600") => return None,
        _ => (name, &[]),
    };
    let mut features = BTreeMap::new();
    for feature in parts {
        let (name, on) = match feature.strip_suffix('+') {
            Some(name) => (name, true),
            None => (feature.strip_suffix('-')?, false),
        };
        if !known.contains(&name) || features.insert(name, on).is_some() {
            return None;
        }
    }
    Some(TargetId { processor, features })
}

/// The features that a target id may fix for an AMD processor, by its name in use (docs/spec/containers.md 3.2).
fn features(processor: &str) -> &'static [&'static str] {
    match processor {
        "gfx906" | "gfx908" | "gfx90a" | "gfx942" | "gfx950" | "gfx9-4-generic" => &["sramecc", "xnack"],
        "gfx801" | "gfx810" | "gfx900" | "gfx902" | "gfx904" | "gfx909" | "gfx90c" | "gfx1010" | "gfx1011" | "gfx1012"
        | "gfx1013" | "gfx9-generic" | "gfx10-1-generic" => &["xnack"],
        _ => &[],
    }
}
