//! Modules that register themselves (`registration::Modules`): which of them other device links have,
//! and whether each image contains all of them. nvcc's registration counts the modules, and never
//! registers any if one is missing.

use std::collections::{BTreeMap, BTreeSet, HashSet};

use anyhow::{Result, bail};

use super::line_order::Taken;
use super::{DeviceJob, SelectOptions};
use crate::link::scan::{DeviceImage, HostFacts};
use offload_formats::model::{Generation, OffloadKind, Origin, printable_name};
use offload_formats::nvcc;
use offload_formats::registration::Modules;
use offload_formats::registration::fatbin::{self, ModuleCalls};

/// Returns the modules of a device link with these inputs.
pub(super) fn of(inputs: &[&DeviceImage<'_>]) -> Modules {
    let mut ids: Vec<String> = Vec::new();
    let mut known = HashSet::new();
    for id in inputs
        .iter()
        .filter_map(|input| input.modules.as_ref())
        .flatten()
    {
        if known.insert(id) {
            ids.push(id.clone());
        }
    }
    let has_table = |input: &&DeviceImage<'_>| {
        let kinds = [OffloadKind::Cuda, OffloadKind::Hip];
        input.modules.is_none() && kinds.iter().any(|kind| input.kinds.contains(*kind))
    };
    Modules {
        alone: !ids.is_empty() && !inputs.iter().any(has_table),
        ids,
    }
}

/// Returns the generation of the image that contains the modules: the newest of the other CUDA and HIP
/// code.
pub(super) fn generation(
    found: &[DeviceImage<'_>],
    each: &[Vec<Generation>],
    active: &[usize],
) -> Generation {
    let has_table = |&&at: &&usize| {
        let image = &found[at];
        image.modules.is_none()
            && (image.kinds.contains(OffloadKind::Cuda) || image.kinds.contains(OffloadKind::Hip))
    };
    let others = active.iter().filter(has_table);
    others
        .flat_map(|&at| each[at].iter().copied())
        .max()
        .unwrap_or(Generation::Llvm21)
}

/// Returns, for each image, whether other device links have its modules: an input defines the functions
/// that their constructors call. In a relocatable link, the link of the program will have them.
pub(super) fn linked_elsewhere(
    found: &[DeviceImage<'_>],
    facts: &[HostFacts<'_>],
    taken: &Taken,
    options: &SelectOptions,
) -> Vec<bool> {
    if found.iter().all(|image| image.modules.is_none()) {
        return vec![false; found.len()];
    }
    let defined = defined(facts, taken, options);
    let is_elsewhere = |image: &DeviceImage<'_>| {
        let is_defined = |id: &String| defined.contains(called(image, id).as_bytes());
        let modules = image.modules.as_ref();
        modules.is_some_and(|modules| options.relocatable || modules.iter().any(is_defined))
    };
    found.iter().map(is_elsewhere).collect()
}

/// Returns the symbols that the objects of the host link and its shared libraries define.
fn defined<'f>(
    facts: &'f [HostFacts<'_>],
    taken: &Taken,
    options: &'f SelectOptions,
) -> HashSet<&'f [u8]> {
    let objects = taken
        .order
        .iter()
        .flat_map(|&object| &facts[object].defined);
    let libraries = options.shared.iter().flat_map(|library| &library.defines);
    objects
        .map(|symbol| symbol.name.as_ref())
        .chain(libraries.map(Vec::as_slice))
        .collect()
}

/// Returns the symbols for which the host link must extract modules that only device code needs.
pub(super) fn only_for_devices(
    jobs: &[DeviceJob<'_>],
    lazy: &[bool],
    taken: &Taken,
) -> Vec<String> {
    let is_left_out = |image: &&&DeviceImage<'_>| {
        lazy[image.input_object] && taken.pulled[image.input_object].is_none()
    };
    let images = jobs
        .iter()
        .flat_map(|job| job.inputs.iter().filter(is_left_out));
    let cuda = images.filter(|image| image.kinds.contains(OffloadKind::Cuda));
    let symbols = cuda
        .filter_map(|image| image.modules.as_ref())
        .flatten()
        .map(|id| wrapper(id));
    symbols.collect::<BTreeSet<String>>().into_iter().collect()
}

/// Checks that each image contains all modules whose constructors the program runs, and no others.
pub(super) fn check(
    jobs: &[DeviceJob<'_>],
    found: &[DeviceImage<'_>],
    facts: &[HostFacts<'_>],
    taken: &Taken,
    options: &SelectOptions,
) -> Result<()> {
    if options.relocatable || jobs.iter().all(|job| job.modules.is_empty()) {
        return Ok(());
    }
    let defined = defined(facts, taken, options);
    let waiting = |&object: &usize| {
        let names = facts[object]
            .undefined
            .iter()
            .map(|need| need.name.as_ref());
        let calls = names.filter(|name| !defined.contains(name));
        let ids = calls.filter_map(|name| name.strip_prefix(nvcc::REGISTER.as_bytes()));
        ids.map(move |id| (printable_name(id), object))
            .collect::<Vec<_>>()
    };
    let calls: BTreeMap<String, usize> = taken.order.iter().flat_map(waiting).collect();
    let is_cuda = |job: &&DeviceJob<'_>| job.kinds.contains(OffloadKind::Cuda);
    for job in jobs.iter().filter(is_cuda) {
        let own: HashSet<&String> = job.modules.ids.iter().collect();
        if let Some((id, _)) = calls.iter().find(|(id, _)| !own.contains(id)) {
            bail!("{}", lacks(id, job, found));
        }
        if let Some(id) = job.modules.ids.iter().find(|id| !calls.contains_key(*id)) {
            let image = job.inputs.iter().find(|image| has_module(image, id));
            bail!(
                "{}: no constructor calls `{}`, so the CUDA module {id} would never be registered",
                image.map_or_else(String::new, |image| object_of(image).to_string()),
                register(id)
            );
        }
    }
    Ok(())
}

/// Returns the error about the module `id`, which the image of `job` lacks.
fn lacks(id: &str, job: &DeviceJob<'_>, found: &[DeviceImage<'_>]) -> String {
    let mut images = found.iter().filter(|image| has_module(image, id));
    let Some(first) = images.next() else {
        return format!(
            "the CUDA module {id} has no code that can be linked, only PTX: compile it with machine code for {arch} (nvcc -gencode \
             arch=compute_{number},code=sm_{number})",
            arch = job.target.arch,
            number = number(&job.target.arch),
        );
    };
    let mut archs: Vec<&str> = std::iter::once(first)
        .chain(images)
        .map(|image| image.arch.as_str())
        .collect();
    archs.dedup();
    let other = job.inputs.first().map(|image| object_of(image).to_string());
    format!(
        "{}: the CUDA module {id} has code for {} only, and {} has code for {arch} as well: compile both for the same \
         architectures (nvcc -gencode arch=compute_{number},code=sm_{number})",
        object_of(first),
        archs.join(", "),
        other.unwrap_or_default(),
        arch = job.target.arch,
        number = number(&job.target.arch),
    )
}

/// The part of an architecture's name after `sm_`.
fn number(arch: &str) -> &str {
    arch.strip_prefix("sm_").unwrap_or(arch)
}

/// The object of an image.
fn object_of(image: &DeviceImage<'_>) -> Origin {
    Origin {
        section: None,
        ..image.origin.clone()
    }
}

/// Whether `id` is a module of an image.
fn has_module(image: &DeviceImage<'_>, id: &str) -> bool {
    let mut modules = image.modules.iter().flatten();
    modules.any(|own| own == id)
}

/// The symbol that a device link defines for the module `id` of an image.
fn called(image: &DeviceImage<'_>, id: &str) -> String {
    if image.kinds.contains(OffloadKind::Cuda) {
        register(id)
    } else {
        ModuleCalls::symbol(fatbin::HIP_IMAGE, id)
    }
}

/// The function that the constructor of a CUDA module calls.
fn register(id: &str) -> String {
    format!("{}{id}", nvcc::REGISTER)
}

/// The symbol of a module that the registration code refers to.
fn wrapper(id: &str) -> String {
    format!("{}{id}", nvcc::WRAPPER)
}
