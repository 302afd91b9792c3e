//! Selects the device images to link and groups them into device links: members of archives, grouping by target and LLVM release, and the
//! final order. Reads symbol tables through `scan`; does not decide how to link.

mod generation;
mod resolve;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use crate::link::scan::{self, DeviceImage, HostFacts};
use crate::model::{Generation, OffloadKind, OffloadKinds};
use crate::target::Target;

/// One device link: the images that are linked into one.
#[derive(Debug)]
pub(crate) struct DeviceJob<'a> {
    /// The target of the linked image.
    pub target: Target,
    /// The generation of the entry table that lists its kernels.
    pub generation: Generation,
    /// The runtimes it is registered with.
    pub kinds: OffloadKinds,
    /// Its inputs, in command-line order.
    pub inputs: Vec<&'a DeviceImage<'a>>,
}

/// The options that affect selection.
#[derive(Debug, Default, Clone)]
pub(crate) struct SelectOptions {
    /// Architectures whose archive members are taken in any case (`--should-extract=`), compared as text.
    pub should_extract: Vec<String>,
    /// Symbols that the command line requires (`-u`, `-e`, …).
    pub roots: Vec<String>,
    /// Undefined symbols of shared libraries among the inputs, by library: linkers search archives for those, too.
    pub shared: Vec<(String, Vec<Vec<u8>>)>,
    /// Symbols redirected with `--wrap`.
    pub wrapped: Vec<String>,
    /// Alternate names (`/alternatename:`): a symbol, and the one that it stands for if it is not defined.
    pub alternate_names: Vec<(String, String)>,
}

/// The jobs in their final order, and a line for each archive member with device code that says why it is linked or not.
#[derive(Debug)]
pub(crate) struct Selection<'a> {
    /// The device links.
    pub jobs: Vec<DeviceJob<'a>>,
    /// What `--wrapper-why` prints.
    pub why: Vec<String>,
}

/// Decides what is linked. `facts` are those of all objects, by index; `lazy` says which objects are archive members.
pub(crate) fn select<'a>(
    found: &'a [DeviceImage<'a>],
    facts: &[HostFacts<'_>],
    lazy: &[bool],
    origins: &[String],
    options: &SelectOptions,
) -> Result<Selection<'a>> {
    let pulled = resolve::host_pulls(facts, lazy, origins, options);
    let named = |image: &DeviceImage<'_>| options.should_extract.contains(&image.arch);
    let (active, waiting): (Vec<usize>, Vec<usize>) = (0..found.len())
        .partition(|&at| !lazy[found[at].input_object] || pulled[found[at].input_object].is_some() || named(&found[at]));
    let host = (0..facts.len())
        .filter(|&input_object| !lazy[input_object] || pulled[input_object].is_some())
        .filter_map(|input_object| facts[input_object].generation);
    let generations = generation::of_images(found, facts, &active, host)?;
    let mut groups: BTreeMap<(Target, Generation), BTreeSet<usize>> = BTreeMap::new();
    for &at in &active {
        for &generation in &generations.of(at) {
            groups.entry((Target::new(&found[at].triple, &found[at].arch), generation)).or_default();
        }
    }
    drop_served_generic(&mut groups);
    let mut device_pulled: BTreeMap<usize, String> = BTreeMap::new();
    for ((target, generation), members) in &mut groups {
        let fits = |at: &usize| {
            let image = &found[*at];
            Target::new(&image.triple, &image.arch).serves(target) && generations.of(*at).contains(generation)
        };
        members.extend(active.iter().copied().filter(fits));
        let waiting: Vec<usize> = waiting.iter().copied().filter(fits).collect();
        if !waiting.is_empty() {
            device_pulled.extend(resolve::device_pulls(found, members, &waiting)?);
        }
    }
    let jobs: Vec<DeviceJob<'a>> =
        groups.into_iter().map(|((target, generation), members)| job(found, target, generation, &members)).collect();
    for job in &jobs {
        check_kinds(job)?;
    }
    let why = found.iter().enumerate().filter(|(_, image)| lazy[image.input_object]);
    let why = why.map(|(at, image)| {
        let reason = match (&pulled[image.input_object], device_pulled.get(&at)) {
            (Some(reason), _) => format!("taken: {reason}"),
            (None, _) if named(image) => "taken: --should-extract names its target".to_owned(),
            (None, Some(reason)) => format!("taken: {reason}"),
            (None, None) => "not taken: neither the host link nor linked device code needs it".to_owned(),
        };
        format!("{}: {}: {reason}", origins[image.input_object], Target::new(&image.triple, &image.arch))
    });
    Ok(Selection { jobs, why: why.collect() })
}

fn job<'a>(found: &'a [DeviceImage<'a>], target: Target, generation: Generation, members: &BTreeSet<usize>) -> DeviceJob<'a> {
    let inputs: Vec<&DeviceImage<'a>> = members.iter().map(|&at| &found[at]).collect();
    let kinds = inputs.iter().fold(OffloadKinds::default(), |kinds, image| kinds.union(image.kinds));
    DeviceJob { target, generation, kinds, inputs }
}

/// Drops the job for a triple's generic image if there are jobs for specific architectures: generic inputs are linked into each of those,
/// whereas the generic image would lack the specific inputs.
fn drop_served_generic(groups: &mut BTreeMap<(Target, Generation), BTreeSet<usize>>) {
    let specific: BTreeSet<(String, Generation)> = groups
        .keys()
        .filter(|(target, _)| !target.arch.is_empty())
        .map(|(target, generation)| (target.triple.clone(), *generation))
        .collect();
    groups.retain(|(target, generation), _| !target.arch.is_empty() || !specific.contains(&(target.triple.clone(), *generation)));
}

fn check_kinds(job: &DeviceJob<'_>) -> Result<()> {
    if job.kinds.contains(OffloadKind::Sycl) && job.kinds.iter().count() > 1 {
        let names: Vec<String> = job.inputs.iter().map(|image| image.origin.to_string()).collect();
        bail!(
            "Linking images of SYCL offload kind with images of any other kind is not supported: {} is made of {}",
            job.target,
            names.join(", ")
        );
    }
    Ok(())
}

/// The symbols of an image, for `resolve`.
fn symbols<'f>(image: &'f DeviceImage<'_>) -> Result<HostFacts<'f>> {
    scan::device_symbols(image)
}

#[cfg(test)]
mod tests;
