//! Which release's entry table each image belongs to (decision 5). Read off the host object that carries the image; an object
//! without entries of its own goes with the others.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::model::Generation;
use crate::scan::{Found, HostFacts};

/// The generations of the images of one link.
pub(super) struct Generations {
    each: Vec<Option<Generation>>,
    all: Vec<Generation>,
}

impl Generations {
    /// The registrations that image `at` takes part in: its own, or all of them when its object does not tell.
    pub(super) fn of(&self, at: usize) -> Vec<Generation> {
        match self.each[at] {
            Some(generation) => vec![generation],
            None => self.all.clone(),
        }
    }
}

/// Finds the generations of all images; `active` are the ones that are linked for sure, `host` those of all host objects that are.
pub(super) fn of_images(
    found: &[Found<'_>],
    facts: &[HostFacts<'_>],
    active: &[usize],
    host: impl Iterator<Item = Generation>,
) -> Result<Generations> {
    let own = |image: &Found<'_>| if image.raw_section { Some(Generation::Llvm14) } else { facts[image.leaf].generation };
    let mut each: Vec<Option<Generation>> = found.iter().map(own).collect();
    let mut all: Vec<Generation> = active.iter().filter_map(|&at| each[at]).collect();
    all.sort();
    all.dedup();
    if all.contains(&Generation::Llvm15) && all.contains(&Generation::Llvm14) {
        // One table with the same entries: one registration, in the later way.
        each.iter_mut()
            .filter(|generation| **generation == Some(Generation::Llvm14))
            .for_each(|generation| *generation = Some(Generation::Llvm15));
        all.retain(|generation| *generation != Generation::Llvm14);
    }
    if all.contains(&Generation::Llvm20) && all.first().is_some_and(|first| !first.wide_entries()) {
        let name = |wide: bool| {
            let of = active.iter().find(|&&at| {
                each[at].is_some_and(|generation| generation != Generation::Llvm21 && generation.wide_entries() == wide)
            });
            of.map_or_else(String::new, |&at| found[at].origin.to_string())
        };
        bail!(
            "{} has entries of 56 bytes (LLVM 20) and {} entries of 32 bytes (LLVM 14 to 19) in one table, `omp_offloading_entries`, which no \
             runtime can read: compile both with the same LLVM",
            name(true),
            name(false)
        );
    }
    if all.is_empty() {
        // The entries may be in other objects than the images.
        all = host.collect::<BTreeSet<_>>().into_iter().collect();
    }
    if all.is_empty() {
        all.push(Generation::Llvm21);
    }
    Ok(Generations { each, all })
}
