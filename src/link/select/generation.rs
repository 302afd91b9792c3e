//! Which release's entry table each image belongs to. Read off the host object that carries the image; an object
//! without entries of its own goes with the others.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::link::scan::{DeviceImage, HostFacts};
use crate::model::{Generation, OffloadKind};

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
    found: &[DeviceImage<'_>],
    facts: &[HostFacts<'_>],
    active: &[usize],
    host: impl Iterator<Item = Generation>,
) -> Result<Generations> {
    let own =
        |image: &DeviceImage<'_>| if image.raw_section { Some(Generation::Llvm14) } else { facts[image.input_object].generation };
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
    check_tables(found, &each, active)?;
    if all.is_empty() {
        // The entries may be in other objects than the images.
        all = host.collect::<BTreeSet<_>>().into_iter().collect();
    }
    if all.is_empty() {
        all.push(Generation::Llvm21);
    }
    Ok(Generations { each, all })
}

/// An error when entries of both sizes of the old tables are in one: each kind had a table of its own before LLVM 21.
fn check_tables(found: &[DeviceImage<'_>], each: &[Option<Generation>], active: &[usize]) -> Result<()> {
    for kind in OffloadKind::ALL {
        let first = |wide: bool| {
            let is_it = |at: usize| each[at].is_some_and(|own| own != Generation::Llvm21 && own.wide_entries() == wide);
            active.iter().copied().find(|&at| found[at].kinds.contains(kind) && is_it(at))
        };
        if let (Some(wide), Some(narrow)) = (first(true), first(false)) {
            bail!(
                "{} has entries of 56 bytes (LLVM 20) and {} entries of 32 bytes (LLVM 14 to 19) in one table, `{}`, which no \
                 runtime can read: compile both with the same LLVM",
                found[wide].origin,
                found[narrow].origin,
                Generation::Llvm20.entry_section(kind)
            );
        }
    }
    Ok(())
}
