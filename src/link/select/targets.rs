//! Finds the images that may be linked into the image for a target, and the images that have a
//! better version. An object may contain many thousands of images, so neither search compares all
//! pairs.

use std::collections::{HashMap, HashSet};

use anyhow::Result;

use super::symbols;
use crate::link::scan::{DeviceImage, HostFacts};
use crate::model::OffloadKinds;
use crate::target::Target;

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
        for (_, images) in &by_kinds {
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
