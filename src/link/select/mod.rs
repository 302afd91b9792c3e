//! Selects the device images to link and groups them into device links: members of archives, grouping by target and LLVM release, and the
//! final order. Reads symbol tables through `scan`; does not decide how to link.

mod generation;
mod resolve;

use std::collections::{BTreeMap, BTreeSet, HashSet};

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
    let targets: Vec<Target> = found.iter().map(|image| Target::new(&image.triple, &image.arch)).collect();
    check_targets(found, &targets)?;
    let better = better_images(found, &targets)?;
    let pulled = resolve::host_pulls(facts, lazy, origins, options);
    let names = |arch: &str| options.should_extract.iter().any(|wanted| wanted == arch);
    let named = |at: usize| names(&found[at].arch) || targets[at].target_id().is_some_and(|id| names(&id));
    let (active, waiting): (Vec<usize>, Vec<usize>) =
        (0..found.len()).partition(|&at| !lazy[found[at].input_object] || pulled[found[at].input_object].is_some() || named(at));
    let host = (0..facts.len())
        .filter(|&input_object| !lazy[input_object] || pulled[input_object].is_some())
        .filter_map(|input_object| facts[input_object].generation);
    let generations = generation::of_images(found, facts, &active, host)?;
    let mut groups: BTreeMap<(Target, Generation), BTreeSet<usize>> = BTreeMap::new();
    for &at in &active {
        for &generation in &generations.of(at) {
            groups.entry((targets[at].clone(), generation)).or_default();
        }
    }
    drop_served_generic(&mut groups);
    let mut device_pulled: BTreeMap<usize, String> = BTreeMap::new();
    for ((target, generation), members) in &mut groups {
        let fits = |at: &usize| {
            let outdone = || better[*at].iter().any(|&other| targets[other].serves(target));
            targets[*at].serves(target) && generations.of(*at).contains(generation) && !outdone()
        };
        members.extend(active.iter().copied().filter(fits));
        let waiting: Vec<usize> = waiting.iter().copied().filter(fits).collect();
        if !waiting.is_empty() {
            device_pulled.extend(resolve::device_pulls(found, members, &waiting)?);
        }
    }
    let of_group = |((target, generation), members): ((Target, Generation), BTreeSet<usize>)| {
        let target = members.iter().fold(target, |target, &at| target.named_like(&targets[at]));
        job(found, target, generation, &members)
    };
    let jobs: Vec<DeviceJob<'a>> = groups.into_iter().map(of_group).collect();
    for job in &jobs {
        check_kinds(job)?;
    }
    let why = found.iter().enumerate().filter(|(_, image)| lazy[image.input_object]);
    let why = why.map(|(at, image)| {
        let reason = match (&pulled[image.input_object], device_pulled.get(&at)) {
            (Some(reason), _) => format!("taken: {reason}"),
            (None, _) if named(at) => "taken: --should-extract names its target".to_owned(),
            (None, Some(reason)) => format!("taken: {reason}"),
            (None, None) => "not taken: neither the host link nor linked device code needs it".to_owned(),
        };
        format!("{}: {}: {reason}", origins[image.input_object], targets[at])
    });
    Ok(Selection { jobs, why: why.collect() })
}

fn job<'a>(found: &'a [DeviceImage<'a>], target: Target, generation: Generation, members: &BTreeSet<usize>) -> DeviceJob<'a> {
    let inputs: Vec<&DeviceImage<'a>> = members.iter().map(|&at| &found[at]).collect();
    let kinds = inputs.iter().fold(OffloadKinds::default(), |kinds, image| kinds.union(image.kinds));
    DeviceJob { target, generation, kinds, inputs }
}

/// An error if the triple of an image and its target id are of different devices.
fn check_targets(found: &[DeviceImage<'_>], targets: &[Target]) -> Result<()> {
    match found.iter().zip(targets).find(|(_, target)| !target.is_consistent()) {
        Some((image, target)) => {
            bail!(
                "{}: the device code is for {}, but its triple, `{}`, is not one of that processor",
                image.origin,
                target.arch,
                target.triple
            )
        }
        None => Ok(()),
    }
}

/// For each image, those of its object that are the same code for a more specific target: an object that was compiled for a family of
/// processors and for one of them would else be part of the image for that one twice. Objects that a relocatable link has merged hold
/// images of several sources, so the code is the same only if a symbol is.
fn better_images(found: &[DeviceImage<'_>], targets: &[Target]) -> Result<Vec<Vec<usize>>> {
    let mut better = vec![Vec::new(); found.len()];
    let mut start = 0;
    while start < found.len() {
        let of_object = found[start..].iter().take_while(|image| image.input_object == found[start].input_object).count();
        let object = start..start + of_object;
        start = object.end;
        for at in object.clone() {
            for other in object.clone() {
                let more_specific = targets[at] != targets[other] && targets[at].serves(&targets[other]);
                if more_specific && found[at].kinds == found[other].kinds && is_same_code(&found[at], &found[other])? {
                    better[at].push(other);
                }
            }
        }
    }
    Ok(better)
}

/// Whether both define a symbol that a program can have only once.
fn is_same_code(one: &DeviceImage<'_>, other: &DeviceImage<'_>) -> Result<bool> {
    let (one, other) = (symbols(one)?, symbols(other)?);
    let strong: HashSet<&[u8]> = one.defined.iter().filter(|symbol| !symbol.weak).map(|symbol| symbol.name.as_ref()).collect();
    Ok(other.defined.iter().any(|symbol| !symbol.weak && strong.contains(symbol.name.as_ref())))
}

/// Drops the job for a triple's generic image if there are jobs for specific architectures: generic inputs are linked into each of those,
/// whereas the generic image would lack the specific inputs.
fn drop_served_generic(groups: &mut BTreeMap<(Target, Generation), BTreeSet<usize>>) {
    let split = |(target, generation): &(Target, Generation)| {
        let (triple, arch) = target.device();
        ((triple.into_owned(), *generation), arch.is_empty())
    };
    let all = groups.keys().map(split);
    let specific: BTreeSet<(String, Generation)> = all.filter(|(_, generic)| !generic).map(|(triple, _)| triple).collect();
    groups.retain(|key, _| {
        let (triple, generic) = split(key);
        !generic || !specific.contains(&triple)
    });
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
