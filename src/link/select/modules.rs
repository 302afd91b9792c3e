//! Modules that register themselves (`registration::Modules`): decides which modules other device
//! links contain, and whether each image contains all modules. nvcc's registration counts the
//! modules, and never registers any if one is missing.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::ffi::OsStr;

use anyhow::{Result, bail};

use super::line_order::Taken;
use super::{DeviceJob, SelectOptions, Selection, symbols, undefined_symbols};
use crate::link::scan::{DeviceImage, Form, HostFacts};
use offload_formats::model::{Generation, OffloadKind, OffloadKinds, Origin, printable_name};
use offload_formats::nvcc::{self, DEVICE_RUNTIME};
use offload_formats::registration::Modules;
use offload_formats::registration::fatbin::{self, ModuleCalls};
use offload_formats::target::Target;

/// Returns the IDs of an image's modules.
fn ids_of<'i>(image: &'i DeviceImage<'_>) -> &'i [String] {
    image.modules.as_deref().unwrap_or_default()
}

/// Returns the modules of a device link with these inputs.
pub(super) fn of(inputs: &[&DeviceImage<'_>]) -> Modules {
    let mut ids: Vec<String> = Vec::new();
    let mut known = HashSet::new();
    for id in inputs.iter().flat_map(|input| ids_of(input)) {
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

/// Returns the generation of the image that contains the modules: the newest of the other CUDA and
/// HIP code.
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

/// Returns the functions for modules that the registration of this link defines, although members
/// of an archive define them, too: the archive contains its own device link. If modules of this link
/// may call device functions of the archive, its modules are linked again, as `nvcc` does.
/// `host_link` resolves the host link with these functions.
pub(super) fn linked_again(
    found: &[DeviceImage<'_>],
    facts: &[HostFacts<'_>],
    lazy: &[bool],
    options: &SelectOptions,
    host_link: &dyn Fn(&[String]) -> Taken,
) -> Vec<String> {
    if options.relocatable || found.iter().all(|image| image.modules.is_none()) {
        return Vec::new();
    }
    let mut definers: HashMap<&[u8], Vec<usize>> = HashMap::new();
    for (object, facts) in facts.iter().enumerate() {
        let names = facts.defined.iter().map(|symbol| symbol.name.as_ref());
        for name in names.filter(|name| name.starts_with(nvcc::REGISTER.as_bytes())) {
            definers.entry(name).or_default().push(object);
        }
    }
    if definers.is_empty() {
        return Vec::new();
    }
    let modules = found
        .iter()
        .filter(|image| image.modules.is_some() && image.kinds.contains(OffloadKind::Cuda));
    let (linked, new): (Vec<_>, Vec<_>) = modules.partition(|image| {
        let mut ids = ids_of(image).iter();
        ids.any(|id| definers.contains_key(register(id).as_bytes()))
    });
    let taken: HashSet<usize> = host_link(&[]).order.into_iter().collect();
    if !may_call(&new, &taken, &linked) {
        return Vec::new();
    }
    let is_in_members = |name: &&&[u8]| definers[**name].iter().all(|&object| lazy[object]);
    let mut names: BTreeSet<&[u8]> = definers.keys().filter(is_in_members).copied().collect();
    loop {
        let again: Vec<String> = names.iter().map(|name| printable_name(name)).collect();
        let taken: HashSet<usize> = host_link(&again).order.into_iter().collect();
        // The host link needs these members for something else, and they define the functions.
        let before = names.len();
        names.retain(|name| !definers[name].iter().any(|object| taken.contains(object)));
        if names.len() == before {
            return again;
        }
    }
}

/// Whether the images `new` may call device functions of the images `linked`. Images of the objects
/// `taken` are in the program; it may need others.
fn may_call(new: &[&DeviceImage<'_>], taken: &HashSet<usize>, linked: &[&DeviceImage<'_>]) -> bool {
    if linked.is_empty() {
        return false;
    }
    let all = new.iter().chain(linked);
    let machine_code = all.filter(|image| image.form == Form::Code);
    let in_machine_code: HashSet<usize> = machine_code.map(|image| image.input_object).collect();
    let is_hidden = |image: &&DeviceImage<'_>| match image.form {
        Form::Code => false,
        Form::Ptx => !in_machine_code.contains(&image.input_object),
        Form::LtoObject => true,
    };
    let mut in_program = new
        .iter()
        .filter(|image| taken.contains(&image.input_object));
    if in_program.any(is_hidden) {
        return true;
    }
    let mut open = undefined_symbols(new.iter().copied());
    open.retain(|name| !is_of_driver(name));
    let defines_some = |image: &&DeviceImage<'_>| {
        is_hidden(image)
            || symbols(image).is_ok_and(|table| {
                let mut names = table.defined.iter().map(|symbol| symbol.name.as_ref());
                names.any(|name: &[u8]| open.contains(name))
            })
    };
    !open.is_empty() && linked.iter().any(defines_some)
}

/// Returns, for each image, whether other device links have its modules: an object or archive
/// member defines the functions that their constructors call. A shared library with the same modules
/// has its own copy of their host code.
///
/// In a relocatable link, the link of the program will have the modules, and also other CUDA code,
/// which may call functions in them. The output keeps that code if no other code is registered.
pub(super) fn linked_elsewhere(
    found: &[DeviceImage<'_>],
    facts: &[HostFacts<'_>],
    taken: &Taken,
    options: &SelectOptions,
) -> Vec<bool> {
    if found.iter().all(|image| image.modules.is_none()) {
        return vec![false; found.len()];
    }
    let defined = defined(facts, taken);
    let is_cuda = |image: &DeviceImage<'_>| {
        let mut kinds = image.kinds.iter();
        kinds.all(|kind| kind == OffloadKind::Cuda)
    };
    let leaves_all = options.relocatable && found.iter().all(is_cuda);
    let is_elsewhere = |image: &DeviceImage<'_>| {
        let mut ids = ids_of(image).iter();
        match &image.modules {
            None => leaves_all,
            Some(_) => {
                options.relocatable || ids.any(|id| defined.contains(called(image, id).as_bytes()))
            }
        }
    };
    found.iter().map(is_elsewhere).collect()
}

/// Returns, for each module without code for `target` itself, the image that nvlink takes in its
/// place: a cubin for an earlier GPU of the same major version, else PTX for an earlier GPU, or
/// code for link-time optimization. `is_candidate`: whether an image may be linked.
pub(super) fn substitutes(
    found: &[DeviceImage<'_>],
    target: &Target,
    is_candidate: &dyn Fn(usize) -> bool,
) -> Vec<usize> {
    let Some(wanted) = SmNumber::of(&target.arch).filter(|_| target.is_nvptx()) else {
        return Vec::new();
    };
    /// The order in which substitutes are preferred.
    #[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
    enum Rank {
        Ptx(u32),
        Code(u32),
        Exact,
    }
    let mut best: BTreeMap<(usize, &str), (Rank, usize)> = BTreeMap::new();
    for (at, image) in found.iter().enumerate().filter(|(at, _)| is_candidate(*at)) {
        let Some(own) =
            SmNumber::of(&image.arch).filter(|_| image.kinds.contains(OffloadKind::Cuda))
        else {
            continue;
        };
        let is_earlier = !own.is_special && own.number <= wanted.number;
        let rank = if image.arch == target.arch && image.form != Form::Ptx {
            Rank::Exact
        } else if (is_earlier || image.arch == target.arch) && image.form != Form::Code {
            Rank::Ptx(own.number)
        } else if is_earlier && own.number / 10 == wanted.number / 10 {
            Rank::Code(own.number)
        } else {
            continue;
        };
        for id in ids_of(image) {
            let slot = (image.input_object, id.as_str());
            if best.get(&slot).is_none_or(|(known, _)| *known < rank) {
                best.insert(slot, (rank, at));
            }
        }
    }
    let substitutes = best.into_values().filter(|(rank, _)| *rank != Rank::Exact);
    substitutes.map(|(_, at)| at).collect()
}

/// The version of an NVIDIA GPU: `sm_90a` is 90, and special.
struct SmNumber {
    number: u32,
    /// Whether the code is for this GPU or its family alone.
    is_special: bool,
}

impl SmNumber {
    fn of(arch: &str) -> Option<SmNumber> {
        let name = arch.strip_prefix("sm_")?;
        let digits = name.trim_end_matches(|c: char| c.is_ascii_alphabetic());
        let number = digits.parse().ok()?;
        // A damaged file may claim many thousands of GPUs.
        (number < 1000).then_some(SmNumber {
            number,
            is_special: digits.len() != name.len(),
        })
    }
}

/// Returns `DeviceJob::is_open` for a device link with these inputs: whether they have code for
/// link-time optimization, and the output is a shared library or another object refers to their
/// host code.
pub(super) fn is_open(
    inputs: &[&DeviceImage<'_>],
    facts: &[HostFacts<'_>],
    taken: &Taken,
    options: &SelectOptions,
) -> bool {
    if inputs.iter().all(|image| image.form != Form::LtoObject) {
        return false;
    }
    // nvlink drops code of these objects alone.
    let own = inputs.iter().filter(|image| image.form == Form::LtoObject);
    let own: HashSet<usize> = own.map(|image| image.input_object).collect();
    let defined = own.iter().flat_map(|&object| &facts[object].defined);
    let names: HashSet<&[u8]> = defined.map(|symbol| symbol.name.as_ref()).collect();
    let others = taken.order.iter().filter(|object| !own.contains(object));
    let mut needs = others.flat_map(|&object| &facts[object].undefined);
    // The start-up files of every program call `main`.
    options.shared_output
        || needs.any(|need| *need.name != *b"main" && names.contains(need.name.as_ref()))
}

/// Adds to `members` the modules of `waiting` that may be needed for symbols that only nvlink can
/// read: those of PTX and of code for link-time optimization. nvlink takes all members of archives.
/// Returns the added images with their reasons.
pub(super) fn unreadable_pulls(
    found: &[DeviceImage<'_>],
    members: &mut BTreeSet<usize>,
    waiting: &[usize],
) -> BTreeMap<usize, String> {
    let is_unreadable = |at: &usize| found[*at].form != Form::Code;
    let needs_some = |members: &BTreeSet<usize>| {
        let open = undefined_symbols(members.iter().map(|&at| &found[at]));
        open.iter().any(|name| !is_of_driver(name))
    };
    let has_unreadable = members.iter().any(is_unreadable)
        || waiting.iter().any(is_unreadable) && needs_some(members);
    if !has_unreadable {
        return BTreeMap::new();
    }
    // nvlink itself adds the needed parts of the device runtime.
    let added = waiting.iter().copied();
    let new = added.filter(|&at| !is_of_device_runtime(&found[at]) && members.insert(at));
    let reason = "only nvlink can read the symbols that decide whether device code needs it";
    new.map(|at| (at, reason.to_owned())).collect()
}

/// Whether an image is of CUDA's device runtime.
fn is_of_device_runtime(image: &DeviceImage<'_>) -> bool {
    image.origin.file.file_name() == Some(OsStr::new(DEVICE_RUNTIME))
}

/// Returns the symbols of other device links that the objects of the host link define.
fn defined<'f>(facts: &'f [HostFacts<'_>], taken: &Taken) -> HashSet<&'f [u8]> {
    let objects = taken
        .order
        .iter()
        .flat_map(|&object| &facts[object].defined);
    let is_of_device_link = |name: &&[u8]| {
        let mut starts = [nvcc::REGISTER, fatbin::HIP_IMAGE].into_iter();
        starts.any(|start| name.starts_with(start.as_bytes()))
    };
    objects
        .map(|symbol| symbol.name.as_ref())
        .filter(is_of_device_link)
        .collect()
}

/// Returns the archive members with modules that only device code needs, each with a symbol for
/// which the host link must extract it.
pub(super) fn only_for_devices(
    jobs: &[DeviceJob<'_>],
    lazy: &[bool],
    taken: &Taken,
) -> BTreeSet<(usize, String)> {
    let is_left_out = |image: &&&DeviceImage<'_>| {
        lazy[image.input_object] && taken.pulled[image.input_object].is_none()
    };
    let images = jobs
        .iter()
        .flat_map(|job| job.inputs.iter().filter(is_left_out));
    let cuda = images.filter(|image| image.kinds.contains(OffloadKind::Cuda));
    let members = cuda.flat_map(|image| {
        let ids = ids_of(image).iter();
        ids.map(|id| (image.input_object, wrapper(id)))
    });
    members.collect()
}

/// Returns the undefined symbols of the host link that consist of `start` and an ID: each ID, with
/// the first object that needs the symbol.
fn open_calls(start: &str, facts: &[HostFacts<'_>], taken: &Taken) -> BTreeMap<String, usize> {
    let defined = defined(facts, taken);
    let mut calls = BTreeMap::new();
    for &object in &taken.order {
        for need in &facts[object].undefined {
            let id = need.name.strip_prefix(start.as_bytes());
            if let Some(id) = id.filter(|_| !defined.contains(need.name.as_ref())) {
                calls.entry(printable_name(id)).or_insert(object);
            }
        }
    }
    calls
}

/// Adds to each HIP image of the newest generation the units that the image lacks, for example
/// because their code is for another GPU. The host code of these units needs their symbols all the
/// same.
pub(super) fn add_units(jobs: &mut [DeviceJob<'_>], facts: &[HostFacts<'_>], taken: &Taken) {
    let is_hip = |job: &&mut DeviceJob<'_>| job.kinds.contains(OffloadKind::Hip);
    let newest = jobs
        .iter()
        .filter(|job| job.kinds.contains(OffloadKind::Hip))
        .map(|job| job.generation)
        .max();
    let calls = open_calls(fatbin::HIP_IMAGE, facts, taken);
    for job in jobs
        .iter_mut()
        .filter(is_hip)
        .filter(|job| Some(job.generation) == newest)
    {
        for id in calls.keys() {
            let id = id.strip_prefix('_').unwrap_or(id);
            if !job.modules.ids.iter().any(|own| own == id) {
                job.modules.alone &= !job.modules.ids.is_empty();
                job.modules.ids.push(id.to_owned());
            }
        }
    }
}

/// Checks that each image contains all modules whose constructors the program runs, and no others.
/// Drops images that lack a module, with a warning, if another image has all of them.
///
/// # Errors
/// No image has all modules, or a module would never be registered.
pub(super) fn check(
    selection: &mut Selection<'_>,
    found: &[DeviceImage<'_>],
    facts: &[HostFacts<'_>],
    origins: &[String],
    taken: &Taken,
    options: &SelectOptions,
) -> Result<()> {
    let is_of_nvcc = |image: &DeviceImage<'_>| {
        image.modules.is_some() && image.kinds.contains(OffloadKind::Cuda)
    };
    if options.relocatable || !found.iter().any(is_of_nvcc) {
        return Ok(());
    }
    let calls = open_calls(nvcc::REGISTER, facts, taken);
    let jobs = &mut selection.jobs;
    let is_cuda = |job: &&DeviceJob<'_>| job.kinds.contains(OffloadKind::Cuda);
    // The modules are in the images of one generation.
    let generation = jobs.iter().filter(is_cuda).map(|job| job.generation).max();
    if let (None, Some((id, object))) = (generation, calls.first_key_value()) {
        bail!("{}", only_ptx(id, &origins[*object], None));
    }
    let is_meant = |job: &DeviceJob<'_>| is_cuda(&job) && Some(job.generation) == generation;
    // The objects of clang, which have no modules.
    let meant = jobs.iter().filter(|job| is_meant(job));
    let of_clang: BTreeMap<usize, &DeviceImage<'_>> = meant
        .flat_map(|job| &job.inputs)
        .filter(|image| image.modules.is_none() && image.kinds.contains(OffloadKind::Cuda))
        .map(|image| (image.input_object, *image))
        .collect();
    let mut faults = Vec::new();
    for job in jobs.iter().filter(|job| is_meant(job)) {
        check_ids(job)?;
        let own: HashSet<&String> = job.modules.ids.iter().collect();
        let missing = calls.iter().find(|(id, _)| !own.contains(id));
        let missing = missing.map(|(id, object)| lacks(id, &origins[*object], job, found));
        let has_object = |object| job.inputs.iter().any(|image| image.input_object == object);
        let absent = of_clang.iter().find(|(object, _)| !has_object(**object));
        let absent = absent.map(|(_, image)| {
            format!(
                "{}: no code for {arch}, but objects of nvcc have some: compile it with --offload-arch={arch} as well",
                object_of(image),
                arch = job.target.arch
            )
        });
        faults.push(missing.or(absent));
        if let Some(id) = job.modules.ids.iter().find(|id| !calls.contains_key(*id)) {
            let image = job.inputs.iter().find(|image| has_module(image, id));
            bail!(
                "{}: no constructor calls `{}`, so the CUDA module {id} would never be registered",
                image.map_or_else(String::new, |image| object_of(image).to_string()),
                register(id)
            );
        }
    }
    let none_is_complete = faults.iter().all(Option::is_some);
    let mut faults = faults.into_iter();
    let mut warnings = Vec::new();
    let mut error = None;
    jobs.retain(|job| {
        let Some(fault) = faults
            .by_ref()
            .take(usize::from(is_meant(job)))
            .next()
            .flatten()
        else {
            return true;
        };
        if none_is_complete || job.kinds != OffloadKinds::default().with(OffloadKind::Cuda) {
            error.get_or_insert(fault);
        } else {
            warnings.push(format!("no image is linked for {}: {fault}", job.target));
        }
        false
    });
    selection.warnings.append(&mut warnings);
    match error {
        Some(error) => bail!("{error}"),
        None => Ok(()),
    }
}

/// Whether NVIDIA's driver provides the function `name` to device code.
fn is_of_driver(name: &[u8]) -> bool {
    [&b"vprintf"[..], b"malloc", b"free", b"__assertfail"].contains(&name)
}

/// Returns the symbols that no input of `job` defines, each with the object that needs it. Code for
/// link-time optimization has no symbols here.
pub(crate) fn undefined_device_symbols(job: &DeviceJob<'_>) -> Vec<(Vec<u8>, Origin)> {
    let mut open = undefined_symbols(job.inputs.iter().copied());
    open.retain(|name| !is_of_driver(name));
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

/// Fails if two objects have CUDA modules with the same ID.
fn check_ids(job: &DeviceJob<'_>) -> Result<()> {
    let mut known: HashMap<&str, &DeviceImage<'_>> = HashMap::new();
    for &image in &job.inputs {
        for id in ids_of(image) {
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
    let images = found
        .iter()
        .filter(|image| has_module(image, id) && image.form != Form::Ptx);
    let archs: BTreeSet<&str> = images.map(|image| image.arch.as_str()).collect();
    if archs.is_empty() {
        return only_ptx(id, origin, Some(&job.target.arch));
    }
    let archs: Vec<&str> = archs.into_iter().collect();
    let other = job.inputs.first().map(|image| object_of(image).to_string());
    format!(
        "{origin}: the CUDA module {id} has code for {} only, and {} has code for {arch}: compile both for the same architectures \
         (nvcc -gencode arch=compute_{number},code=sm_{number})",
        archs.join(", "),
        other.unwrap_or_default(),
        arch = job.target.arch,
        number = number(&job.target.arch),
    )
}

/// Returns the error about a module without machine code, for a link for `arch` if there is one.
fn only_ptx(id: &str, origin: &str, arch: Option<&str>) -> String {
    let example = arch.map_or("90", number);
    let why = match arch {
        Some(arch) => format!("no machine code, and its PTX is for later GPUs than {arch}"),
        None => "PTX but no machine code, so the GPU to link for is unknown".to_owned(),
    };
    format!(
        "{origin}: the CUDA module {id} has {why}: compile it with nvcc -gencode arch=compute_{example},code=sm_{example}"
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
    ids_of(image).iter().any(|own| own == id)
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
