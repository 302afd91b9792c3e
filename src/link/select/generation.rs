//! Generation of the entry table that each image belongs to, as read from the host object with the
//! image. Images in objects without entries belong to all generations of the link.

use std::collections::BTreeSet;

use anyhow::{Result, bail};

use crate::formats::offload_sections::entry_section;
use crate::link::scan::{DeviceImage, HostFacts};
use crate::model::{Generation, OffloadKind};

/// The generations of the images of one link.
pub(super) struct Generations {
    /// The generations of the entry tables of each image's object, usually one.
    each: Vec<Vec<Generation>>,
    all: Vec<Generation>,
}

impl Generations {
    /// Returns the generations that image `at` is registered with: those of its object, or all if
    /// its object has no entry table.
    pub(super) fn of(&self, at: usize) -> &[Generation] {
        if self.each[at].is_empty() {
            &self.all
        } else {
            &self.each[at]
        }
    }
}

/// Determines the generations of all images. `active`: the images that are always linked. `host`:
/// the generations of the host objects that are linked.
pub(super) fn of_images(
    found: &[DeviceImage<'_>],
    facts: &[HostFacts<'_>],
    active: &[usize],
    host: impl Iterator<Item = Generation>,
) -> Result<Generations> {
    let own = |image: &DeviceImage<'_>| match image.raw_section {
        true => vec![Generation::Llvm14],
        false => facts[image.input_object].generations().collect(),
    };
    let mut each: Vec<Vec<Generation>> = found.iter().map(own).collect();
    let mut all: Vec<Generation> = active
        .iter()
        .flat_map(|&at| each[at].iter().copied())
        .collect();
    all.sort();
    all.dedup();
    if all.contains(&Generation::Llvm15) && all.contains(&Generation::Llvm14) {
        // Both use one table with the same entries, so they are registered together, as in LLVM 15.
        let oldest = each
            .iter_mut()
            .flatten()
            .filter(|generation| **generation == Generation::Llvm14);
        oldest.for_each(|generation| *generation = Generation::Llvm15);
        all.retain(|generation| *generation != Generation::Llvm14);
    }
    check_tables(found, &each, active)?;
    if all.is_empty() {
        // The entries may be in objects without images.
        all = host.collect::<BTreeSet<_>>().into_iter().collect();
    }
    if all.is_empty() {
        all.push(Generation::Llvm21);
    }
    Ok(Generations { each, all })
}

/// Fails if entries of different sizes would be in one table. Before LLVM 21, each kind had its own
/// table, with the same name in releases whose entries differ.
fn check_tables(
    found: &[DeviceImage<'_>],
    each: &[Vec<Generation>],
    active: &[usize],
) -> Result<()> {
    for kind in OffloadKind::ALL {
        let first = |wide: bool| {
            let is_it = |at: usize| {
                each[at]
                    .iter()
                    .any(|own| *own != Generation::Llvm21 && own.wide_entries() == wide)
            };
            active
                .iter()
                .copied()
                .find(|&at| found[at].kinds.contains(kind) && is_it(at))
        };
        if let (Some(wide), Some(narrow)) = (first(true), first(false)) {
            bail!(
                "{} has entries of 56 bytes (LLVM 20) and {} entries of 32 bytes (LLVM 14 to 19) in one table, `{}`, which no \
                 runtime can read: compile both with the same LLVM",
                found[wide].origin,
                found[narrow].origin,
                entry_section(Generation::Llvm20, kind)
            );
        }
    }
    Ok(())
}
