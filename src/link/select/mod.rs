//! Selects the device images to link and groups them into device links: members of archives, grouping by target and LLVM release,
//! and the final order. Reads symbol tables through `scan`; does not decide how to link.

mod coverage;
mod generation;
mod host_code;
mod line_order;
mod resolve;

use std::collections::{BTreeMap, BTreeSet, HashSet};

use anyhow::{Result, bail};

use crate::link::scan::{self, DeviceImage, HostFacts};
use crate::model::{Generation, OffloadKind, OffloadKinds};
use crate::target::Target;
use coverage::Coverage;

pub(crate) use host_code::undefined_but_on_the_host;
pub(crate) use line_order::{Load, Reading};

/// One device link: the images that are linked into one.
#[derive(Debug)]
pub(crate) struct DeviceJob<'a> {
    /// The target of the linked image.
    pub target: Target,
    /// The generation of the entry table that lists its kernels.
    pub generation: Generation,
    /// The runtimes it is registered with.
    pub kinds: OffloadKinds,
    /// Its inputs, in the order in which the host linker reads the objects that they are in.
    pub inputs: Vec<&'a DeviceImage<'a>>,
}

/// The options that affect selection.
#[derive(Debug, Default, Clone)]
pub(crate) struct SelectOptions {
    /// Architectures whose archive members are taken in any case (`--should-extract=`), compared as text.
    pub should_extract: Vec<String>,
    /// Symbols that the command line and its scripts require (`-u`, `-e`, `EXTERN`, …).
    pub roots: Vec<String>,
    /// Those of them that ld.lld looks for after it has read all files.
    pub late_roots: Vec<String>,
    /// Patterns for symbols whose definitions are required (`--undefined-glob`).
    pub globs: Vec<glob::Pattern>,
    /// The symbols of the shared libraries among the inputs.
    pub shared: Vec<SharedLibrary>,
    /// How the host linker reads its line, and the files in the order in which it does.
    pub reading: Reading,
    /// The files of the line, in order.
    pub loads: Vec<Load>,
    /// Symbols redirected with `--wrap`.
    pub wrapped: Vec<String>,
    /// Alternate names (`/alternatename:`, `PROVIDE`): a symbol, and the one that it stands for if it is not defined.
    pub alternate_names: Vec<(String, String)>,
}

/// What a shared library has to do with archives: linkers search these for what it leaves undefined, and not for what it defines.
#[derive(Debug, Default, Clone)]
pub(crate) struct SharedLibrary {
    /// Its path.
    pub name: String,
    /// The symbols that it exports.
    pub defines: Vec<Vec<u8>>,
    /// The symbols that it leaves undefined.
    pub needs: Vec<Vec<u8>>,
}

/// The jobs in their final order, and a line for each archive member with device code that says why it is linked or not.
#[derive(Debug)]
pub(crate) struct Selection<'a> {
    /// The device links.
    pub jobs: Vec<DeviceJob<'a>>,
    /// What `--wrapper-why` prints.
    pub why: Vec<String>,
    /// What the user has to know of it.
    pub warnings: Vec<String>,
}

/// Decides what is linked. `host_code`: host objects that device code for a CPU may call (`scan::host_code`); `facts` are those of
/// all objects, by index; `lazy` says which objects are archive members.
pub(crate) fn select<'a>(
    found: &'a [DeviceImage<'a>],
    host_code: &'a [DeviceImage<'a>],
    facts: &[HostFacts<'_>],
    lazy: &[bool],
    origins: &[String],
    options: &SelectOptions,
) -> Result<Selection<'a>> {
    let targets: Vec<Target> = found.iter().map(|image| Target::new(&image.triple, &image.arch)).collect();
    check_targets(found, &targets)?;
    let better = better_images(found, &targets)?;
    let line_order::Taken { order, pulled } = resolve::host_link(facts, lazy, origins, options);
    // Members that only device code needs come last, in the order of the line.
    let mut ranks = vec![usize::MAX; facts.len()];
    order.iter().enumerate().for_each(|(rank, &object)| ranks[object] = rank);
    let entry = |(at, image): (usize, &DeviceImage<'_>)| entry(at, image, lazy, &pulled, options);
    let entries: Vec<Entry> = found.iter().enumerate().map(entry).collect();
    let coverage = Coverage::of(entries.iter().zip(found).filter(|(entry, _)| entry.how == How::Regular).map(|(_, image)| image));
    let active: Vec<usize> = entries.iter().filter(|entry| entry.how != How::Waiting).map(|entry| entry.at).collect();
    let host = (0..facts.len())
        .filter(|&input_object| !lazy[input_object] || pulled[input_object].is_some())
        .flat_map(|input_object| facts[input_object].generations());
    let generations = generation::of_images(found, facts, &active, host)?;

    // The kinds that an image is registered with because of the input `at`, if the input is linked into it; none if it is not.
    let joins = |at: usize, target: &Target| match entries[at].how {
        How::Waiting => None,
        How::Regular | How::Named => Some(found[at].kinds),
        How::Pulled => coverage.kinds(&found[at], target),
    };
    let mut groups: BTreeMap<(Target, Generation), BTreeSet<usize>> = BTreeMap::new();
    for &at in active.iter().filter(|&&at| joins(at, &targets[at]).is_some()) {
        for &generation in generations.of(at) {
            groups.entry((targets[at].clone(), generation)).or_default();
        }
    }
    drop_served_generic(&mut groups);
    let mut device_pulled: BTreeMap<usize, String> = BTreeMap::new();
    let mut jobs: Vec<DeviceJob<'a>> = Vec::new();
    // By image: the kinds that images it is linked into are registered with; none if it is linked into none.
    let mut linked: Vec<Option<OffloadKinds>> = vec![None; found.len()];
    for ((target, generation), mut members) in groups {
        let fits = |at: &usize| {
            let outdone = || better[*at].iter().any(|&other| targets[other].serves(&target));
            targets[*at].serves(&target) && generations.of(*at).contains(&generation) && !outdone()
        };
        members.extend(active.iter().copied().filter(|at| fits(at) && joins(*at, &target).is_some()));
        let kinds = members.iter().filter_map(|&at| joins(at, &target)).fold(OffloadKinds::default(), OffloadKinds::union);
        let waiting: Vec<usize> = (0..found.len()).filter(|at| fits(at) && joins(*at, &target).is_none()).collect();
        if !waiting.is_empty() {
            device_pulled.extend(resolve::device_pulls(found, &mut members, &waiting)?);
        }
        members.iter().for_each(|&at| linked[at] = Some(linked[at].unwrap_or_default().union(kinds)));
        let mut inputs: Vec<&DeviceImage<'a>> = members.iter().map(|&at| &found[at]).collect();
        inputs.sort_by_key(|image| ranks[image.input_object]);
        inputs.extend(host_code::pulls(&inputs, host_code, facts, &target)?);
        let target = members.iter().fold(target, |target, &at| target.named_like(&targets[at]));
        jobs.push(DeviceJob { target, generation, kinds, inputs });
    }
    for job in &jobs {
        check_kinds(job)?;
    }
    let members = found.iter().zip(&entries).filter(|(image, _)| lazy[image.input_object]);
    let why = members.map(|(image, entry)| {
        let reason = match (device_pulled.get(&entry.at), &pulled[image.input_object], linked[entry.at]) {
            (_, Some(reason), Some(_)) | (Some(reason), None, _) => format!("taken: {reason}"),
            (_, Some(_), None) => "not taken: the program's own objects have no code for this target".to_owned(),
            (None, None, Some(_)) => "taken: --should-extract names its target".to_owned(),
            (None, None, None) => "not taken: neither the host link nor linked device code needs it".to_owned(),
        };
        format!("{}: {}: {reason}", origins[image.input_object], entry.target)
    });
    let why = why.collect();
    let is_pulled = |input_object: usize| pulled[input_object].is_some() && facts[input_object].generation.is_some();
    let warnings = coverage::left_out(found, &coverage, &linked, &is_pulled);
    Ok(Selection { jobs, why, warnings })
}

/// How an image is part of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum How {
    /// It is in an object that is linked in any case.
    Regular,
    /// It is in an archive member, and `--should-extract` names its target.
    Named,
    /// It is in an archive member that the host link pulls.
    Pulled,
    /// It is in an archive member that the host link does not pull: linked if other device code needs it.
    Waiting,
}

/// An image and how it is part of the link.
struct Entry {
    /// Its index.
    at: usize,
    target: Target,
    how: How,
}

fn entry(at: usize, image: &DeviceImage<'_>, lazy: &[bool], pulled: &[Option<String>], options: &SelectOptions) -> Entry {
    let target = Target::new(&image.triple, &image.arch);
    let names = |arch: &str| options.should_extract.iter().any(|wanted| wanted == arch);
    let how = match image.input_object {
        object if !lazy[object] => How::Regular,
        _ if names(&image.arch) || target.target_id().is_some_and(|id| names(&id)) => How::Named,
        object if pulled[object].is_some() => How::Pulled,
        _ => How::Waiting,
    };
    Entry { at, target, how }
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

/// For each image, those of its object that are the same code for a more specific target: an object that was compiled for a family
/// of processors and for one of them would else be part of the image for that one twice. Objects that a relocatable link has merged
/// hold images of several sources, so the code is the same only if a symbol is.
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

/// Drops the job for a triple's generic image if there are jobs for specific architectures: generic inputs are linked into each of
/// those, whereas the generic image would lack the specific inputs.
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
mod line_tests;
#[cfg(test)]
mod tests;
