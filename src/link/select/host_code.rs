//! Device code for the host's own CPU that calls plain functions of its archive: host code that was
//! compiled for no device, and consists of the same machine instructions.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::Result;

use super::{DeviceJob, symbols, undefined_symbols};
use crate::link::scan::{DeviceImage, HostFacts};
use crate::target::Target;

/// Returns the objects of `host_code` that define, directly or indirectly, the undefined symbols of
/// the images `inputs`. Device code has priority: an object that defines one of its symbols again
/// is not used, so that the device linker reports the missing symbol.
pub(super) fn pulls<'a>(
    inputs: &[&'a DeviceImage<'a>],
    host_code: &'a [DeviceImage<'a>],
    facts: &[HostFacts<'_>],
    target: &Target,
) -> Result<Vec<&'a DeviceImage<'a>>> {
    let candidates: Vec<&DeviceImage<'a>> = host_code
        .iter()
        .filter(|code| code.triple == target.triple || target.is_spelled(&code.triple))
        .collect();
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let mut offered: HashMap<&[u8], &'a DeviceImage<'a>> = HashMap::new();
    for code in candidates {
        for symbol in &facts[code.input_object].defined {
            offered.entry(&symbol.name).or_insert(code);
        }
    }
    let mut defined: HashSet<Cow<'_, [u8]>> = HashSet::new();
    let mut wanted: Vec<Cow<'_, [u8]>> = Vec::new();
    for &input in inputs {
        let table = symbols(input)?;
        wanted.extend(
            table
                .undefined
                .into_iter()
                .filter(|symbol| !symbol.weak)
                .map(|symbol| Cow::Owned(symbol.name.into_owned())),
        );
        defined.extend(
            table
                .defined
                .into_iter()
                .map(|symbol| Cow::Owned(symbol.name.into_owned())),
        );
    }
    let mut taken: BTreeMap<usize, &'a DeviceImage<'a>> = BTreeMap::new();
    while let Some(name) = wanted.pop() {
        let Some(&code) = offered
            .get(name.as_ref())
            .filter(|_| !defined.contains(&name))
        else {
            continue;
        };
        let facts = &facts[code.input_object];
        let twice = facts
            .defined
            .iter()
            .any(|symbol| !symbol.weak && defined.contains(&symbol.name));
        if twice || taken.contains_key(&code.input_object) {
            continue;
        }
        taken.insert(code.input_object, code);
        defined.extend(facts.defined.iter().map(|symbol| symbol.name.clone()));
        wanted.extend(
            facts
                .undefined
                .iter()
                .filter(|symbol| !symbol.weak)
                .map(|symbol| symbol.name.clone()),
        );
    }
    Ok(taken.into_values().collect())
}

/// A device symbol without a definition in its device link, and the host object that defines it.
pub(crate) struct OnTheHost {
    /// The symbol.
    pub symbol: Vec<u8>,
    /// The index of the object.
    pub object: usize,
}

/// Returns the undefined symbols of the inputs of `jobs` that a host object defines. Most often
/// they are functions outside of `declare target`.
pub(crate) fn undefined_but_on_the_host(
    jobs: &[DeviceJob<'_>],
    facts: &[HostFacts<'_>],
) -> Vec<OnTheHost> {
    let mut on_the_host: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (object, facts) in facts.iter().enumerate() {
        for symbol in &facts.defined {
            on_the_host.entry(&symbol.name).or_insert(object);
        }
    }
    let mut found: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for name in jobs.iter().flat_map(undefined_symbols) {
        if let Some(&object) = on_the_host.get(name.as_slice()) {
            found.insert(name, object);
        }
    }
    found
        .into_iter()
        .map(|(symbol, object)| OnTheHost { symbol, object })
        .collect()
}
