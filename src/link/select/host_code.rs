//! Device code for the host's own CPU that calls plain functions of its archive: host code that was compiled for no device, and is
//! the same machine code.

use std::borrow::Cow;
use std::collections::{BTreeMap, HashMap, HashSet};

use anyhow::Result;

use super::{DeviceJob, symbols};
use crate::link::scan::{DeviceImage, HostFacts};
use crate::target::Target;

/// Those of `host_code` that define, directly or indirectly, what the images `inputs` leave undefined. Device code goes first: a
/// member that defines a symbol of theirs once more is not taken, so that the device's linker reports what is missing.
pub(super) fn pulls<'a>(
    inputs: &[&'a DeviceImage<'a>],
    host_code: &'a [DeviceImage<'a>],
    facts: &[HostFacts<'_>],
    target: &Target,
) -> Result<Vec<&'a DeviceImage<'a>>> {
    let candidates: Vec<&DeviceImage<'a>> = host_code.iter().filter(|code| code.triple == target.triple).collect();
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
        wanted
            .extend(table.undefined.into_iter().filter(|symbol| !symbol.weak).map(|symbol| Cow::Owned(symbol.name.into_owned())));
        defined.extend(table.defined.into_iter().map(|symbol| Cow::Owned(symbol.name.into_owned())));
    }
    let mut taken: Vec<&'a DeviceImage<'a>> = Vec::new();
    while let Some(name) = wanted.pop() {
        let Some(&code) = offered.get(name.as_ref()).filter(|_| !defined.contains(&name)) else { continue };
        let facts = &facts[code.input_object];
        let twice = facts.defined.iter().any(|symbol| !symbol.weak && defined.contains(&symbol.name));
        if twice || taken.iter().any(|own| std::ptr::eq(*own, code)) {
            continue;
        }
        taken.push(code);
        defined.extend(facts.defined.iter().map(|symbol| symbol.name.clone()));
        wanted.extend(facts.undefined.iter().filter(|symbol| !symbol.weak).map(|symbol| symbol.name.clone()));
    }
    taken.sort_by_key(|code| code.input_object);
    Ok(taken)
}

/// A device symbol that nothing of a device link defines, and the host object that does.
pub(crate) struct OnTheHost {
    /// The symbol.
    pub symbol: Vec<u8>,
    /// The object's index.
    pub object: usize,
}

/// The symbols that the inputs of `jobs` leave undefined though a host object defines them: most often a function outside of
/// `declare target`.
pub(crate) fn undefined_but_on_the_host(jobs: &[DeviceJob<'_>], facts: &[HostFacts<'_>]) -> Vec<OnTheHost> {
    let mut on_the_host: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (object, facts) in facts.iter().enumerate() {
        for symbol in &facts.defined {
            on_the_host.entry(&symbol.name).or_insert(object);
        }
    }
    let mut found: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for job in jobs {
        // An image without a symbol table, or with a damaged one, has no symbols here: its linker has told of it.
        let tables: Vec<HostFacts<'_>> = job.inputs.iter().filter_map(|input| symbols(input).ok()).collect();
        let defined: HashSet<&[u8]> = tables.iter().flat_map(|table| &table.defined).map(|symbol| symbol.name.as_ref()).collect();
        for symbol in tables.iter().flat_map(|table| &table.undefined).filter(|symbol| !symbol.weak) {
            if let Some(&object) = on_the_host.get(symbol.name.as_ref()).filter(|_| !defined.contains(symbol.name.as_ref())) {
                found.insert(symbol.name.to_vec(), object);
            }
        }
    }
    found.into_iter().map(|(symbol, object)| OnTheHost { symbol, object }).collect()
}
