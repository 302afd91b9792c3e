//! Modules that register themselves (`registration::Modules`): which of them other device links have,
//! and whether each image contains all of them. nvcc's registration counts the modules, and never
//! registers any if one is missing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use anyhow::{Result, bail};

use super::line_order::Taken;
use super::{DeviceJob, SelectOptions, symbols, undefined_symbols};
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

/// Returns `DeviceJob::is_open` for a device link with these inputs: whether an object that is none of
/// them refers to a symbol of their host code.
pub(super) fn is_open(
    inputs: &[&DeviceImage<'_>],
    facts: &[HostFacts<'_>],
    taken: &Taken,
    options: &SelectOptions,
) -> bool {
    let is_lto =
        |image: &&DeviceImage<'_>| image.modules.is_some() && nvcc::is_lto_object(&image.bytes);
    if !inputs.iter().any(is_lto) {
        return false;
    }
    let own: HashSet<usize> = inputs.iter().map(|image| image.input_object).collect();
    let defined = own.iter().flat_map(|&object| &facts[object].defined);
    let names: HashSet<&[u8]> = defined.map(|symbol| symbol.name.as_ref()).collect();
    let others = taken.order.iter().filter(|object| !own.contains(object));
    let mut needs = others.flat_map(|&object| &facts[object].undefined);
    // The start-up files of every program call `main`.
    options.shared_output
        || needs.any(|need| *need.name != *b"main" && names.contains(need.name.as_ref()))
}

/// Adds to `members` the images of `waiting` with code for link-time optimization, if `members` has such
/// code. No public tool reads its symbols, so it may need any of them; `nvcc -dlink` takes all, too.
/// Returns the added images with their reasons.
pub(super) fn lto_pulls(
    found: &[DeviceImage<'_>],
    members: &mut BTreeSet<usize>,
    waiting: &[usize],
) -> BTreeMap<usize, String> {
    let is_lto = |at: &usize| {
        let image = &found[*at];
        image.modules.is_some() && nvcc::is_lto_object(&image.bytes)
    };
    if !members.iter().any(is_lto) {
        return BTreeMap::new();
    }
    let added: Vec<usize> = waiting.iter().copied().filter(is_lto).collect();
    let new = added.into_iter().filter(|at| members.insert(*at));
    let reason = "its code is for link-time optimization, whose symbols only nvlink can read";
    new.map(|at| (at, reason.to_owned())).collect()
}

/// Returns the symbols of other device links that the objects of the host link and its shared libraries
/// define.
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
    let is_of_device_link = |name: &&[u8]| {
        let starts = [nvcc::REGISTER, fatbin::HIP_IMAGE];
        starts
            .iter()
            .any(|start| name.starts_with(start.as_bytes()))
    };
    objects
        .map(|symbol| symbol.name.as_ref())
        .chain(libraries.map(Vec::as_slice))
        .filter(is_of_device_link)
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
    origins: &[String],
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
        check_ids(job)?;
        let own: HashSet<&String> = job.modules.ids.iter().collect();
        if let Some((id, object)) = calls.iter().find(|(id, _)| !own.contains(id)) {
            bail!("{}", lacks(id, &origins[*object], job, found));
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

/// The functions of NVIDIA's driver that device code calls.
const OF_THE_DRIVER: [&[u8]; 4] = [b"vprintf", b"malloc", b"free", b"__assertfail"];

/// Returns the symbols that no input of `job` defines, each with the object that needs it. Code for
/// link-time optimization has no symbols here.
pub(crate) fn undefined_device_symbols(job: &DeviceJob<'_>) -> Vec<(Vec<u8>, Origin)> {
    let mut open = undefined_symbols(job);
    open.retain(|name| !OF_THE_DRIVER.contains(&name.as_slice()));
    let mut found = Vec::new();
    for &image in &job.inputs {
        let Ok(table) = symbols(image) else { continue };
        let needs = table
            .undefined
            .iter()
            .filter(|need| open.remove(need.name.as_ref()));
        found.extend(needs.map(|need| (need.name.to_vec(), object_of(image))));
    }
    found
}

/// Fails if two objects have modules of one ID.
fn check_ids(job: &DeviceJob<'_>) -> Result<()> {
    let mut known: HashMap<&str, &DeviceImage<'_>> = HashMap::new();
    for &image in &job.inputs {
        for id in image.modules.iter().flatten() {
            let first = *known.entry(id).or_insert(image);
            if first.input_object != image.input_object && image.kinds.contains(OffloadKind::Cuda) {
                bail!(
                    "{} and {} have the same CUDA module, {id}: link only one of them, or compile one again from a source file with \
                     another name",
                    object_of(first),
                    object_of(image)
                );
            }
        }
    }
    Ok(())
}

/// Returns the error about the module `id` of the object `origin`, which the image of `job` lacks.
fn lacks(id: &str, origin: &str, job: &DeviceJob<'_>, found: &[DeviceImage<'_>]) -> String {
    let images = found.iter().filter(|image| has_module(image, id));
    let mut archs: Vec<&str> = images.map(|image| image.arch.as_str()).collect();
    archs.dedup();
    if archs.is_empty() {
        return format!(
            "{origin}: the CUDA module {id} has PTX but no machine code, and only machine code can be linked: compile it with nvcc \
             -gencode arch=compute_{number},code=sm_{number}",
            number = number(&job.target.arch),
        );
    }
    let other = job.inputs.first().map(|image| object_of(image).to_string());
    format!(
        "{origin}: the CUDA module {id} has code for {} only, and {} has code for {arch} as well: compile both for the same \
         architectures (nvcc -gencode arch=compute_{number},code=sm_{number})",
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
