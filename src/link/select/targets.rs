//! Finds the images that may be linked into the image for a target, and the images that have a
//! better version. An object may contain many thousands of images, so neither search compares all
//! pairs. Also decides which images archive members may add, and which images others replace.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use anyhow::{Result, bail};

use super::{Candidates, DeviceJob, Groups, SelectOptions, symbols, undefined_symbols};
use crate::link::scan::{DeviceImage, HostFacts};
use offload_formats::model::{Generation, OffloadKind, OffloadKinds, Origin};
use offload_formats::target::Target;

/// Images indexed by the targets that they serve.
pub(super) struct Servers {
    /// Each target once, with its images in order.
    each: Vec<(Target, Vec<usize>)>,
    triples: HashMap<String, TripleTargets>,
}

/// The targets of one triple, as indices into [`Servers::each`].
#[derive(Default)]
struct TripleTargets {
    /// Targets that may serve several architectures: any architecture, or a family.
    wide: Vec<usize>,
    /// The other targets, by architecture and features.
    processors: HashMap<String, HashMap<Features, Vec<usize>>>,
}

/// The features of a target ID, in order.
type Features = Vec<(String, bool)>;

/// Limit on features for the subset lookup. A target ID with more features is compared with all
/// targets of its architecture.
const FEW_FEATURES: usize = 6;

impl Servers {
    /// Creates the index for images with these targets.
    pub(super) fn of<'t>(targets: impl Iterator<Item = (usize, &'t Target)>) -> Servers {
        let mut numbers: HashMap<&Target, usize> = HashMap::new();
        let mut servers = Servers {
            each: Vec::new(),
            triples: HashMap::new(),
        };
        for (at, target) in targets {
            let number = *numbers.entry(target).or_insert_with(|| {
                servers.add(target);
                servers.each.len() - 1
            });
            servers.each[number].1.push(at);
        }
        servers
    }

    fn add(&mut self, target: &Target) {
        let number = self.each.len();
        self.each.push((target.clone(), Vec::new()));
        let (triple, arch) = target.device();
        let of_triple = self.triples.entry(triple.into_owned()).or_default();
        if arch.is_empty() || arch.contains("-generic") {
            of_triple.wide.push(number);
        } else {
            let (processor, features) = target.processor_and_features();
            of_triple
                .processors
                .entry(processor)
                .or_default()
                .entry(features)
                .or_default()
                .push(number);
        }
    }

    /// Returns the targets that serve `target`, each with its images.
    fn targets_for(&self, target: &Target) -> impl Iterator<Item = &(Target, Vec<usize>)> {
        let (triple, _) = target.device();
        let of_triple = self.triples.get(&*triple);
        let (processor, features) = target.processor_and_features();
        let mut candidates: Vec<usize> = of_triple.map(|all| all.wide.clone()).unwrap_or_default();
        if let Some(of_processor) = of_triple.and_then(|all| all.processors.get(&processor)) {
            if features.len() > FEW_FEATURES {
                candidates.extend(of_processor.values().flatten());
            } else {
                // Targets with a subset of the features serve the target with all of them.
                let subset = |which: usize| -> Features {
                    features
                        .iter()
                        .enumerate()
                        .filter(|(at, _)| which >> at & 1 == 1)
                        .map(|(_, own)| own.clone())
                        .collect()
                };
                candidates.extend(
                    (0..1 << features.len())
                        .filter_map(|which| of_processor.get(&subset(which)))
                        .flatten(),
                );
            }
        }
        candidates
            .into_iter()
            .map(|number| &self.each[number])
            .filter(|(own, _)| own.serves(target))
    }

    /// Returns the images that serve `target`, in order.
    pub(super) fn images_for(&self, target: &Target) -> Vec<usize> {
        let mut images: Vec<usize> = self
            .targets_for(target)
            .flat_map(|(_, images)| images.iter().copied())
            .collect();
        images.sort_unstable();
        images
    }

    /// Whether one of the images serves `target`.
    pub(super) fn serve(&self, target: &Target) -> bool {
        self.targets_for(target).next().is_some()
    }

    /// Whether one of the images is for `target` itself.
    pub(super) fn have(&self, target: &Target) -> bool {
        self.targets_for(target).any(|(own, _)| own == target)
    }
}

/// Returns, for each image, the better images of the same object with the same code: one for each
/// more specific target, or an earlier one for the same target under another name. Otherwise an
/// image would contain an object twice, if that was compiled for a family of architectures and for
/// one of them, or for two spellings of a triple. Objects from a relocatable link contain images of
/// several sources. So the code counts as the same only if both images define the same strong
/// symbol.
pub(super) fn better_images(
    found: &[DeviceImage<'_>],
    targets: &[Target],
) -> Result<Vec<Vec<usize>>> {
    let mut better = vec![Vec::new(); found.len()];
    let mut start = 0;
    while start < found.len() {
        let of_object = found[start..]
            .iter()
            .take_while(|image| image.input_object == found[start].input_object)
            .count();
        let mut by_kinds: Vec<(OffloadKinds, Vec<usize>)> = Vec::new();
        for (at, image) in found.iter().enumerate().skip(start).take(of_object) {
            match by_kinds.iter_mut().find(|(kinds, _)| *kinds == image.kinds) {
                Some((_, images)) => images.push(at),
                None => by_kinds.push((image.kinds, vec![at])),
            }
        }
        start += of_object;
        for (_, images) in by_kinds.iter().filter(|(_, images)| images.len() > 1) {
            compare(images, found, targets, &mut better)?;
        }
    }
    Ok(better)
}

/// Adds to `better` the better images for each of `images`, which are from one object and have the
/// same kinds.
fn compare(
    images: &[usize],
    found: &[DeviceImage<'_>],
    targets: &[Target],
    better: &mut [Vec<usize>],
) -> Result<()> {
    let servers = Servers::of(images.iter().map(|&at| (at, &targets[at])));
    // The more specific targets of each target that serves them.
    let mut specific: HashMap<&Target, Vec<&Target>> = HashMap::new();
    for (target, _) in &servers.each {
        for (server, _) in servers
            .targets_for(target)
            .filter(|(server, _)| server != target)
        {
            specific.entry(server).or_default().push(target);
        }
    }
    let mut concerned: HashSet<&Target> = specific
        .iter()
        .flat_map(|(server, targets)| targets.iter().chain([server]))
        .copied()
        .collect();
    let is_spelled_twice = |images: &[usize]| {
        images
            .iter()
            .any(|&at| found[at].triple != found[images[0]].triple)
    };
    concerned.extend(
        servers
            .each
            .iter()
            .filter(|(_, images)| is_spelled_twice(images))
            .map(|(target, _)| target),
    );
    let concerned = images
        .iter()
        .filter(|&&at| concerned.contains(&targets[at]));
    let tables: Vec<(usize, HostFacts<'_>)> = concerned
        .map(|&at| Ok((at, symbols(&found[at])?)))
        .collect::<Result<_>>()?;
    // By target and symbol: for each spelling of the triple, the first image that defines the
    // symbol.
    let mut defines: HashMap<&Target, HashMap<&[u8], Vec<usize>>> = HashMap::new();
    for (at, table) in &tables {
        let of_target = defines.entry(&targets[*at]).or_default();
        for name in strong_names(table) {
            let firsts = of_target.entry(name).or_default();
            let is_new = firsts
                .iter()
                .all(|&first| found[first].triple != found[*at].triple);
            firsts.extend(is_new.then_some(*at));
        }
    }
    for (at, table) in &tables {
        let defined = |target: &Target, name: &[u8]| {
            defines
                .get(target)
                .and_then(|of_target| of_target.get(name))
        };
        for target in specific.get(&targets[*at]).into_iter().flatten() {
            better[*at].extend(strong_names(table).find_map(|name| defined(target, name)?.first()));
        }
        let is_first = |other: &&usize| **other < *at && found[**other].triple != found[*at].triple;
        better[*at].extend(
            strong_names(table)
                .find_map(|name| defined(&targets[*at], name)?.iter().find(is_first)),
        );
    }
    Ok(())
}

fn strong_names<'t>(table: &'t HostFacts<'_>) -> impl Iterator<Item = &'t [u8]> {
    table
        .defined
        .iter()
        .filter(|symbol| !symbol.weak)
        .map(|symbol| symbol.name.as_ref())
}

// Decides which images archive members may add. A runtime takes the image of a device as a whole.
// An image with code from only some members would lack the kernels of the program's own objects,
// and the program would fail (docs/spec/link-driver.md 3.5).

/// The targets of the regular inputs: the objects and whole archives that are always linked. For
/// each kind, it has the target lists of all objects with code of that kind, each list once.
#[derive(Default)]
pub(super) struct Coverage(BTreeMap<OffloadKind, KindTargets>);

/// The targets of the objects with code of one kind.
#[derive(Default)]
struct KindTargets {
    lists: BTreeSet<Vec<Target>>,
    /// The same lists, for lookups.
    servers: Vec<Servers>,
}

impl Coverage {
    /// Returns the coverage of the images `regular`.
    pub(super) fn of<'f>(regular: impl Iterator<Item = &'f DeviceImage<'f>>) -> Coverage {
        let mut objects: BTreeMap<(OffloadKind, usize), Vec<Target>> = BTreeMap::new();
        for image in regular {
            for kind in image.kinds.iter() {
                objects
                    .entry((kind, image.input_object))
                    .or_default()
                    .push(Target::new(&image.triple, &image.arch));
            }
        }
        let mut coverage = Coverage::default();
        for ((kind, _), targets) in objects {
            coverage.0.entry(kind).or_default().lists.insert(targets);
        }
        for KindTargets { lists, servers } in coverage.0.values_mut() {
            servers.extend(
                lists
                    .iter()
                    .map(|targets| Servers::of(targets.iter().enumerate())),
            );
        }
        coverage
    }

    /// Whether a member's code of `kind` may be in an image for `target`. It may if a regular input
    /// has code of that kind for exactly this target, because the image exists anyway. It also may
    /// if every regular input with code of that kind has code that serves the target, because the
    /// image is complete. The second condition holds if no regular input has code of that kind.
    pub(super) fn has(&self, kind: OffloadKind, target: &Target) -> bool {
        let Some(KindTargets { servers, .. }) = self.0.get(&kind) else {
            return true;
        };
        servers.iter().any(|servers| servers.have(target))
            || servers.iter().all(|servers| servers.serve(target))
    }

    /// Returns the kinds that an image for `target` is registered with because `image`, a member's,
    /// is linked into it. Returns none if `image` must not be linked into it.
    pub(super) fn kinds(&self, image: &DeviceImage<'_>, target: &Target) -> Option<OffloadKinds> {
        let kinds = image
            .kinds
            .iter()
            .filter(|kind| self.has(*kind, target))
            .fold(OffloadKinds::default(), OffloadKinds::with);
        (kinds != OffloadKinds::default() || image.kinds == kinds).then_some(kinds)
    }

    /// Returns the targets for which the regular inputs have code of `kind`.
    fn targets(&self, kind: OffloadKind) -> BTreeSet<&Target> {
        self.0
            .get(&kind)
            .into_iter()
            .flat_map(|of_kind| of_kind.lists.iter().flatten())
            .collect()
    }
}

/// Returns a warning for each archive member whose kernels of some kind are in no image. The reason
/// is that the program's own objects have no code for the member's targets. `linked`: by image, the
/// kinds of the linked images that contain it. `is_pulled`: whether the host link extracts an
/// object that has an entry table.
pub(super) fn left_out(
    found: &[DeviceImage<'_>],
    coverage: &Coverage,
    linked: &[Option<OffloadKinds>],
    is_pulled: &dyn Fn(usize) -> bool,
) -> Vec<String> {
    let mut members: BTreeMap<(usize, OffloadKind), Vec<usize>> = BTreeMap::new();
    for (at, image) in found
        .iter()
        .enumerate()
        .filter(|(_, image)| is_pulled(image.input_object))
    {
        image.kinds.iter().for_each(|kind| {
            members
                .entry((image.input_object, kind))
                .or_default()
                .push(at)
        });
    }
    members.retain(|(_, kind), images| {
        !images
            .iter()
            .any(|&at| linked[at].is_some_and(|kinds| kinds.contains(*kind)))
    });
    let listed = |targets: BTreeSet<&Target>| {
        targets
            .into_iter()
            .map(Target::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let warning = |((_, kind), images): ((usize, OffloadKind), Vec<usize>)| {
        let member = Origin {
            section: None,
            ..found[*images.first()?].origin.clone()
        };
        let has: Vec<Target> = images
            .iter()
            .map(|&at| Target::new(&found[at].triple, &found[at].arch))
            .collect();
        Some(format!(
            "the {kind} kernels of {member} are in no image and cannot run on a device: the member has code for {}, and the \
             program's own objects have {kind} code for {} only. Compile both for the same targets (--offload-arch=)",
            listed(has.iter().collect()),
            listed(coverage.targets(kind)),
            kind = kind.title(),
        ))
    };
    members.into_iter().filter_map(warning).collect()
}

// Images that a runtime would choose instead of one another. An image is not linked if more
// specific ones replace it. Code that runtimes cannot distinguish must be in one image.

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
    // Errors about modules name their architectures.
    for job in jobs.iter().filter(|job| job.modules.is_empty()) {
        let mut open = undefined_symbols(job.inputs.iter().copied());
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

#[cfg(test)]
mod tests {
    use super::*;

    /// The lookup finds the same images as a comparison of all pairs.
    #[test]
    fn servers_equal_a_comparison_of_all_pairs() {
        let archs = [
            "",
            "gfx90a",
            "gfx90a:xnack+",
            "gfx90a:sramecc+:xnack+",
            "gfx90a:xnack-",
            "gfx906",
            "gfx9-generic",
            "gfx9-generic:xnack+",
            "gfx9-0a-generic",
            "gfx9-4-generic",
            "gfx942",
            "gfx90a:",
            "gfx90a:a+:b+:c+:d+:e+:f+:g+",
            "gfx90a:a+:g+",
            "sm_90",
            "sm_90a",
        ];
        let triples = [
            "amdgcn-amd-amdhsa",
            "amdgpu-amd-amdhsa",
            "amdgpu9-amd-amdhsa",
            "amdgpu9.0a-amd-amdhsa",
            "nvptx64-nvidia-cuda",
            "x",
        ];
        let targets: Vec<Target> = triples
            .iter()
            .flat_map(|triple| archs.map(|arch| Target::new(triple, arch)))
            .collect();
        let servers = Servers::of(targets.iter().enumerate());
        for target in &targets {
            let expected: Vec<usize> = (0..targets.len())
                .filter(|at| targets[*at].serves(target))
                .collect();
            assert_eq!(servers.images_for(target), expected, "{target}");
            assert!(servers.have(target) && servers.serve(target));
        }
        assert!(
            !servers.serve(&Target::new("y", ""))
                && !servers.have(&Target::new("amdgcn-amd-amdhsa", "gfx906:xnack+"))
        );
    }
}
