//! Images that a runtime would choose instead of one another. An image is not linked if more
//! specific ones replace it. Code that runtimes cannot distinguish must be in one image.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, bail};

use super::targets::Servers;
use super::{Candidates, DeviceJob, Groups, SelectOptions, symbols, undefined_symbols};
use crate::link::scan::DeviceImage;
use crate::model::{Generation, OffloadKind, Origin};
use crate::target::Target;

/// Drops the images whose code is in more specific ones. Returns the warnings.
///
/// These images are dropped:
/// * An image for any architecture next to one for a specific architecture of its triple: it would
///   lack the specific inputs.
/// * An image for an architecture next to images for all settings of one of its features: no device
///   would load it.
/// * An image for an architecture if the user asks only for some settings of a feature
///   (`--should-extract`).
/// * An image for an architecture that would lack code which an image for one setting has, if HIP
///   registers both. A HIP bundle contains an architecture either with a feature or without it.
///
/// The image for a family of architectures stays: it serves architectures that have no image of
/// their own.
pub(super) fn drop_served(
    groups: &mut Groups,
    candidates: &Candidates<'_>,
    options: &SelectOptions,
) -> Vec<String> {
    let object_of = |&at: &usize| candidates.found[at].input_object;
    let mut warnings = Vec::new();
    let mut dropped = Vec::new();
    let all: Vec<(&(Target, Generation), &BTreeSet<usize>)> = groups.iter().collect();
    let served = served(&all);
    for (at, ((target, generation), members)) in all.iter().enumerate() {
        let others = || {
            served[at]
                .iter()
                .map(|&other| (&all[other].0.0, all[other].1))
        };
        if target.device().1.is_empty() {
            dropped.extend(others().next().map(|_| (target.clone(), *generation)));
            continue;
        }
        let settings: Vec<(&Target, &BTreeSet<usize>)> = others()
            .filter(|(other, _)| other.has_processor_of(target))
            .collect();
        if settings.is_empty() {
            continue;
        }
        let objects: BTreeSet<usize> = members.iter().map(object_of).collect();
        let is_hip = |target: &Target, members: &BTreeSet<usize>| {
            let kinds = candidates.kinds_of(target, members);
            kinds.contains(OffloadKind::Hip)
        };
        let in_conflict = settings.iter().find(|(other, own)| {
            is_hip(target, members)
                && is_hip(other, own)
                && own.iter().any(|at| !objects.contains(&object_of(at)))
        });
        let is_covered =
            target.is_covered_by(&settings.iter().map(|(other, _)| *other).collect::<Vec<_>>());
        let asks_for_others =
            || !options.ask_for(target) && settings.iter().any(|(other, _)| options.ask_for(other));
        if !is_covered && !asks_for_others() {
            let Some((other, _)) = in_conflict else {
                continue;
            };
            warnings.push(format!(
                "no image is linked for {target}: some device code exists for {other} only, and a HIP bundle cannot hold both. \
                 Devices with other settings get no image. Compile all objects for the same targets (--offload-arch=)"
            ));
        }
        dropped.push((target.clone(), *generation));
    }
    dropped.iter().for_each(|key| drop(groups.remove(key)));
    warnings
}

/// Returns, for each image, the other images of its generation that it serves.
fn served(all: &[(&(Target, Generation), &BTreeSet<usize>)]) -> Vec<Vec<usize>> {
    let servers = Servers::of(
        all.iter()
            .enumerate()
            .map(|(at, ((target, _), _))| (at, target)),
    );
    let mut served = vec![Vec::new(); all.len()];
    for (at, ((target, generation), _)) in all.iter().enumerate() {
        let others = servers
            .images_for(target)
            .into_iter()
            .filter(|&server| server != at && all[server].0.1 == *generation);
        others.for_each(|server| served[server].push(at));
    }
    served
}

/// Returns the origin of an image without the section.
fn file_origin(image: &DeviceImage<'_>) -> Origin {
    Origin {
        section: None,
        ..image.origin.clone()
    }
}

/// Fails if the code of a CPU image is for two platforms. libomptarget distinguishes CPU images
/// only by machine and takes the first, and code for one C library or operating system does not run
/// with another.
pub(super) fn check_platforms(job: &DeviceJob<'_>) -> Result<()> {
    if !job.target.is_cpu() {
        return Ok(());
    }
    let mut spellings: BTreeMap<&str, (&DeviceImage<'_>, Target)> = BTreeMap::new();
    for &input in &job.inputs {
        spellings
            .entry(&input.triple)
            .or_insert_with(|| (input, Target::new(&input.triple, "")));
    }
    let all: Vec<&(&DeviceImage<'_>, Target)> = spellings.values().collect();
    for (at, (one, target)) in all.iter().enumerate() {
        if let Some((other, other_target)) = all
            .iter()
            .skip(at + 1)
            .find(|(_, other)| !target.agrees_on_platform(other))
        {
            bail!(
                "{} has device code for {target} and {} for {other_target}: the OpenMP runtime loads one image for each kind of \
                 CPU, so both must be in one image, but code for different platforms cannot be linked. Compile both with the same \
                 -fopenmp-targets=",
                file_origin(one),
                file_origin(other)
            );
        }
    }
    Ok(())
}

/// Returns a warning for each object whose OpenMP kernels are only in an image that follows another
/// one for the same kind of CPU. The runtime ignores the architecture of a CPU image, and takes the
/// first.
pub(super) fn never_taken(jobs: &[DeviceJob<'_>]) -> Vec<String> {
    let mut first: BTreeMap<(String, Generation), &DeviceJob<'_>> = BTreeMap::new();
    let mut warnings: BTreeMap<usize, String> = BTreeMap::new();
    for job in jobs
        .iter()
        .filter(|job| job.target.is_cpu() && job.kinds.contains(OffloadKind::OpenMp))
    {
        let taken = *first
            .entry((job.target.device().0.into_owned(), job.generation))
            .or_insert(job);
        let in_taken: BTreeSet<usize> = taken
            .inputs
            .iter()
            .map(|input| input.input_object)
            .collect();
        let kernels = job
            .inputs
            .iter()
            .filter(|input| input.kinds.contains(OffloadKind::OpenMp));
        for input in kernels.filter(|input| !in_taken.contains(&input.input_object)) {
            warnings.entry(input.input_object).or_insert_with(|| {
                format!(
                    "the OpenMP kernels of {} cannot run on a device: they are in the image for {} only, and the OpenMP runtime \
                     loads the first image for this kind of CPU, which is for {}. Compile all objects with the same -march=",
                    file_origin(input),
                    job.target,
                    taken.target
                )
            });
        }
    }
    warnings.into_values().collect()
}

/// An undefined device symbol that an input defines for another target only.
pub(crate) struct ForAnotherTarget<'a> {
    /// The symbol.
    pub symbol: Vec<u8>,
    /// The image that defines it.
    pub image: &'a DeviceImage<'a>,
    /// The target of that image.
    pub has: Target,
    /// The target of the device link.
    pub wanted: Target,
}

/// Returns the undefined symbols of the inputs of `jobs` that another image of `found` defines for
/// a device of the same vendor. Among several definitions, one for the same architecture is
/// preferred.
pub(crate) fn undefined_but_for_another_target<'a>(
    jobs: &[DeviceJob<'_>],
    found: &'a [DeviceImage<'a>],
) -> Vec<ForAnotherTarget<'a>> {
    let mut all = Vec::new();
    for job in jobs {
        let mut open = undefined_symbols(job);
        let others = found
            .iter()
            .map(|image| (image, Target::new(&image.triple, &image.arch)));
        let mut others: Vec<(&DeviceImage<'_>, Target)> = others
            .filter(|(_, target)| {
                target.arch_name() == job.target.arch_name() && !target.serves(&job.target)
            })
            .collect();
        others.sort_by_key(|(_, target)| !target.has_processor_of(&job.target));
        for (image, has) in others {
            let Ok(table) = symbols(image) else { continue };
            for symbol in table
                .defined
                .iter()
                .filter(|symbol| open.remove(symbol.name.as_ref()))
            {
                let wanted = job.target.clone();
                all.push(ForAnotherTarget {
                    symbol: symbol.name.to_vec(),
                    image,
                    has: has.clone(),
                    wanted,
                });
            }
        }
    }
    all
}
