//! Device code for the host's own CPU that calls plain functions of its archive: host code that was compiled for no device, and is the same machine code.

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};

use anyhow::Result;

use super::symbols;
use crate::link::scan::{DeviceImage, HostFacts};
use crate::target::Target;

/// Those of `host_code` that define, directly or indirectly, what the images `inputs` leave undefined. Device code goes first: a member that
/// defines a symbol of theirs once more is not taken, so that the device's linker reports what is missing.
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
