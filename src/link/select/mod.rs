//! Selects the device images to link and groups them into device links: chooses archive members,
//! groups by target and LLVM release, and determines the final order. Reads symbol tables through
//! `scan`. The device stage decides how to link.

mod line_order;
mod modules;
mod resolve;
mod targets;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};

use anyhow::{Result, bail};

use crate::link::scan::{self, DeviceImage, Form, HostFacts};
use offload_formats::model::{Generation, OffloadKind, OffloadKinds};
use offload_formats::offload_sections::entry_section;
use offload_formats::registration::Modules;
use offload_formats::target::Target;
use targets::{Coverage, Servers, better_images};

pub(crate) use line_order::{Load, Reading};
pub(crate) use modules::undefined_device_symbols;
pub(crate) use targets::{ForAnotherTarget, undefined_but_for_another_target};

/// One device link: the images that become one linked image.
#[derive(Debug)]
pub(crate) struct DeviceJob<'a> {
    /// The target of the linked image.
    pub target: Target,
    /// The generation of the entry table that lists its kernels.
    pub generation: Generation,
    /// The runtimes that the image is registered with.
    pub kinds: OffloadKinds,
    /// The modules among the inputs that register themselves.
    pub modules: Modules,
    /// Whether the inputs have nvcc's code for link-time optimization, and its kernels and variables
    /// may be used outside of their own objects: by other host objects, or by users of a shared
    /// library. If so, the device linker must not drop those that their own objects do not use.
    pub is_open: bool,
    /// Whether OpenMP kernels in the inputs have stable names. Kernels are renamed after selection,
    /// so it is false until then.
    pub stable_names: bool,
    /// The inputs, in the order in which the host linker reads their objects.
    pub inputs: Vec<&'a DeviceImage<'a>>,
    /// The names of kernels and variables that host code registers with the image. They are filled
    /// in after selection.
    pub registered: BTreeSet<String>,
}

/// The options that affect selection.
#[derive(Debug, Default, Clone)]
pub(crate) struct SelectOptions {
    /// Architectures whose archive members are always extracted (`--should-extract=`), compared as
    /// text.
    pub should_extract: Vec<String>,
    /// Symbols that the command line and its scripts require before any file is read (`-u`,
    /// `EXTERN`, …).
    pub roots: Vec<String>,
    /// The symbols that ld.lld needs after it has read all files. Empty for other linkers.
    pub late_roots: Vec<String>,
    /// Patterns for symbols whose definitions are required (`--undefined-glob`).
    pub globs: Vec<glob::Pattern>,
    /// The symbols of the shared libraries among the inputs.
    pub shared: Vec<SharedLibrary>,
    /// The way in which the host linker reads its command line.
    pub reading: Reading,
    /// Whether a common symbol extracts no archive member that defines it with a value.
    pub keeps_common: bool,
    /// The files of the command line, in reading order.
    pub loads: Vec<Load>,
    /// Archive members that are read as objects, before all other files.
    pub extracted: Vec<usize>,
    /// Whether the output is a shared library, whose symbols other programs use.
    pub shared_output: bool,
    /// Whether the output is relocatable. If so, a later link, which knows all modules, links those
    /// that register themselves.
    pub relocatable: bool,
    /// Symbols redirected with `--wrap`.
    pub wrapped: Vec<String>,
    /// Alternate names (`/alternatename:`, and `PROVIDE` in scripts of ld.lld): a symbol, and the
    /// one that replaces it if no file defines it.
    pub alternate_names: Vec<(String, String)>,
}

impl SelectOptions {
    /// Whether `--should-extract` names `target`.
    fn ask_for(&self, target: &Target) -> bool {
        let id = target.target_id();
        id.is_some_and(|id| self.should_extract.iter().any(|wanted| *wanted == id))
    }
}

/// The symbols of a shared library. Linkers search archives for its undefined symbols, and not for
/// symbols that it defines.
#[derive(Debug, Default, Clone)]
pub(crate) struct SharedLibrary {
    /// The path of the library.
    pub name: String,
    /// The symbols that it exports.
    pub defines: Vec<Vec<u8>>,
    /// The symbols that it leaves undefined.
    pub needs: Vec<Vec<u8>>,
}

/// The jobs in their final order, and the messages about the selection.
#[derive(Debug)]
pub(crate) struct Selection<'a> {
    /// The device links.
    pub jobs: Vec<DeviceJob<'a>>,
    /// The lines of `--wrapper-why`: for each archive member with device code, the reason why it is
    /// linked or not.
    pub why: Vec<String>,
    /// The warnings for the user.
    pub warnings: Vec<String>,
    /// The archive members that the host link must get as objects, by the index of the object. Only
    /// device code needs them. The registration refers to a symbol of each, but a shared library
    /// also defines that symbol, so a linker would not extract the member.
    pub extracted: Vec<usize>,
}

/// Selects the device links. `host_code`: host objects that device code for a CPU may call
/// (`scan::host_code`). `facts`: the facts of all objects, by index. `lazy`: whether an object is
/// an archive member, by index.
pub(crate) fn select<'a>(
    found: &'a [DeviceImage<'a>],
    host_code: &'a [DeviceImage<'a>],
    facts: &[HostFacts<'_>],
    lazy: &[bool],
    origins: &[String],
    options: &SelectOptions,
) -> Result<Selection<'a>> {
    let (mut options, mut lazy) = (Cow::Borrowed(options), Cow::Borrowed(lazy));
    let mut reasons = BTreeMap::new();
    loop {
        let (mut selection, taken) = select_once(
            found,
            host_code,
            facts,
            &lazy,
            origins,
            &options,
            &mut reasons,
        )?;
        // The registration code refers to the modules that it registers, so the host link extracts
        // them. They may need more modules.
        let needed = modules::only_for_devices(&selection.jobs, &lazy, &taken);
        let (extracted, mut more): (Vec<_>, Vec<_>) =
            needed.into_iter().partition(|(_, symbol)| {
                let mut libraries = options.shared.iter().flat_map(|library| &library.defines);
                libraries.any(|defined| defined == symbol.as_bytes())
            });
        more.retain(|(_, symbol)| {
            !options.roots.contains(symbol) && !options.late_roots.contains(symbol)
        });
        if extracted.is_empty() && more.is_empty() {
            modules::check(&mut selection, found, facts, origins, &taken, &options)?;
            selection.extracted.clone_from(&options.extracted);
            return Ok(selection);
        }
        let options = options.to_mut();
        for (object, _) in extracted {
            if std::mem::replace(&mut lazy.to_mut()[object], false) {
                options.extracted.push(object);
            }
        }
        options
            .roots
            .extend(more.into_iter().map(|(_, symbol)| symbol));
    }
}

/// Selects the device links. Returns them with the objects of the host link. Adds to
/// `device_pulled` the reason for each image that only device code needs.
fn select_once<'a>(
    found: &'a [DeviceImage<'a>],
    host_code: &'a [DeviceImage<'a>],
    facts: &[HostFacts<'_>],
    lazy: &[bool],
    origins: &[String],
    options: &SelectOptions,
    device_pulled: &mut BTreeMap<usize, String>,
) -> Result<(Selection<'a>, line_order::Taken)> {
    let host_link = |defined: &[String]| resolve::host_link(facts, lazy, origins, options, defined);
    let again = modules::linked_again(found, facts, lazy, options, &host_link);
    let taken = host_link(&again);
    let line_order::Taken { order, pulled } = &taken;
    let linked_elsewhere = modules::linked_elsewhere(found, facts, &taken, options);
    let candidates = Candidates::new(found, facts, lazy, pulled, &linked_elsewhere, options)?;
    let mut groups = candidates.groups();
    let mut warnings = targets::drop_served(&mut groups, &candidates, options);

    // Members that only device code needs come last, in command-line order.
    let mut ranks = vec![usize::MAX; facts.len()];
    order
        .iter()
        .enumerate()
        .for_each(|(rank, &object)| ranks[object] = rank);
    let mut jobs: Vec<DeviceJob<'a>> = Vec::new();
    // By image: the kinds of the linked images that contain it; none if no linked image does.
    let mut linked: Vec<Option<OffloadKinds>> = vec![None; found.len()];
    for ((target, generation), mut members) in groups {
        let kinds = candidates.kinds_of(&target, &members);
        let mut waiting = candidates.fitting(&target, generation);
        waiting.retain(|&at| candidates.kinds_from(at, &target).is_none());
        if kinds.contains(OffloadKind::Cuda) {
            for at in candidates.substitutes(&target, generation, &linked_elsewhere) {
                let object = found[at].input_object;
                if lazy[object] && pulled[object].is_none() {
                    waiting.push(at);
                } else {
                    members.insert(at);
                }
            }
        }
        if !waiting.is_empty() {
            device_pulled.extend(resolve::device_pulls(found, &mut members, &waiting)?);
            device_pulled.extend(modules::unreadable_pulls(found, &mut members, &waiting));
        }
        members
            .iter()
            .for_each(|&at| linked[at] = Some(linked[at].unwrap_or_default().union(kinds)));
        let mut inputs: Vec<&DeviceImage<'a>> = members.iter().map(|&at| &found[at]).collect();
        inputs.sort_by_key(|image| ranks[image.input_object]);
        inputs.extend(host_code_pulls(&inputs, host_code, facts, &target)?);
        for input in &inputs {
            input.load()?;
        }
        let target = members.iter().fold(target, |target, &at| {
            target.named_like(&candidates.targets[at])
        });
        jobs.push(DeviceJob {
            target,
            generation,
            kinds,
            modules: modules::of(&inputs),
            is_open: modules::is_open(&inputs, facts, &taken, options),
            stable_names: false,
            inputs,
            registered: BTreeSet::new(),
        });
    }
    modules::add_units(&mut jobs, facts, &taken);
    for job in &jobs {
        check_kinds(job)?;
        targets::check_platforms(job)?;
    }
    let is_member = |object: usize| lazy[object] || options.extracted.contains(&object);
    let members = (0..found.len())
        .filter(|&at| is_member(found[at].input_object) && found[at].form != Form::Ptx);
    let why = members.map(|at| {
        let object = found[at].input_object;
        let by_device = device_pulled.get(&at);
        // `device_pulled` has members that the host link did not extract in an earlier round of
        // `select`. If the host link extracts one in this round, device code is the reason.
        let by_host = pulled[object].as_ref().filter(|_| by_device.is_none());
        let reason = why(by_device, by_host, linked[at].is_some());
        format!("{}: {}: {reason}", origins[object], candidates.targets[at])
    });
    let why = why.collect();
    let of_hip = found
        .iter()
        .filter(|image| image.modules.is_some() && image.kinds.contains(OffloadKind::Hip));
    let of_hip: HashSet<usize> = of_hip.map(|image| image.input_object).collect();
    let is_pulled = |object: usize| {
        pulled[object].is_some() && (facts[object].generation.is_some() || of_hip.contains(&object))
    };
    warnings.extend(targets::left_out(
        found,
        &candidates.coverage,
        &linked,
        &is_pulled,
    ));
    warnings.extend(targets::never_taken(&jobs));
    let selection = Selection {
        jobs,
        why,
        warnings,
        extracted: Vec::new(),
    };
    Ok((selection, taken))
}

/// The device links: for each target and generation, the indices of the images to link.
type Groups = BTreeMap<(Target, Generation), BTreeSet<usize>>;

/// The images of the inputs, with the facts that decide which device links take them.
struct Candidates<'a> {
    found: &'a [DeviceImage<'a>],
    /// The target of each image.
    targets: Vec<Target>,
    /// For each image, the images that replace it in device links for targets that they serve.
    better: Vec<Vec<usize>>,
    memberships: Vec<Membership>,
    coverage: Coverage,
    generations: Generations,
    servers: Servers,
}

impl<'a> Candidates<'a> {
    /// `pulled`: by object, the reason why the host link extracts it. `linked_elsewhere`: by image,
    /// whether another device link has its code.
    fn new(
        found: &'a [DeviceImage<'a>],
        facts: &[HostFacts<'_>],
        lazy: &[bool],
        pulled: &[Option<String>],
        linked_elsewhere: &[bool],
        options: &SelectOptions,
    ) -> Result<Self> {
        let targets: Vec<Target> = found
            .iter()
            .map(|image| Target::new(&image.triple, &image.arch))
            .collect();
        check_targets(found, &targets)?;
        let better = better_images(found, &targets)?;
        let memberships: Vec<Membership> = found
            .iter()
            .zip(&targets)
            .zip(linked_elsewhere)
            .map(|((image, target), elsewhere)| {
                if *elsewhere || image.form == Form::Ptx {
                    Membership::Elsewhere
                } else {
                    membership(image, target, lazy, pulled, options)
                }
            })
            .collect();
        let coverage = Coverage::of(
            found
                .iter()
                .zip(&memberships)
                .filter(|(_, membership)| **membership == Membership::Regular)
                .map(|(image, _)| image),
        );
        let active: Vec<usize> = (0..found.len())
            .filter(|&at| !matches!(memberships[at], Membership::Waiting | Membership::Elsewhere))
            .collect();
        let host = (0..facts.len())
            .filter(|&input_object| !lazy[input_object] || pulled[input_object].is_some())
            .flat_map(|input_object| facts[input_object].generations());
        let generations = generations_of(found, facts, &active, host)?;
        Ok(Candidates {
            servers: Servers::of(targets.iter().enumerate()),
            found,
            targets,
            better,
            memberships,
            coverage,
            generations,
        })
    }

    /// Groups the images that are linked whether or not other device code needs them.
    fn groups(&self) -> Groups {
        let mut groups = Groups::new();
        for (at, target) in self.targets.iter().enumerate() {
            if self.kinds_from(at, target).is_some() {
                for &generation in self.generations.of(at) {
                    groups.entry((target.clone(), generation)).or_default();
                }
            }
        }
        for ((target, generation), members) in &mut groups {
            let mut fitting = self.fitting(target, *generation);
            fitting.retain(|&at| self.kinds_from(at, target).is_some());
            members.extend(fitting);
        }
        groups
    }

    /// Returns the images that can be linked into the image for `target`.
    fn fitting(&self, target: &Target, generation: Generation) -> Vec<usize> {
        let is_replaced = |at: usize| {
            let mut better = self.better[at].iter();
            better.any(|&other| self.targets[other].serves(target))
        };
        let mut images = self.servers.images_for(target);
        images.retain(|&at| {
            self.memberships[at] != Membership::Elsewhere
                && self.generations.of(at).contains(&generation)
                && !is_replaced(at)
        });
        images
    }

    /// Returns the images to link in place of nvcc modules that have no code for `target`.
    fn substitutes(
        &self,
        target: &Target,
        generation: Generation,
        linked_elsewhere: &[bool],
    ) -> Vec<usize> {
        modules::substitutes(self.found, target, &|at| {
            !linked_elsewhere[at] && self.generations.of(at).contains(&generation)
        })
    }

    /// Returns the kinds that the image `at` adds to the registration of the image for `target`, or
    /// `None` if `at` is not linked into it.
    fn kinds_from(&self, at: usize, target: &Target) -> Option<OffloadKinds> {
        let image = &self.found[at];
        match self.memberships[at] {
            Membership::Waiting | Membership::Elsewhere => None,
            Membership::Regular | Membership::Named => Some(image.kinds),
            Membership::Pulled => self.coverage.kinds(image, target),
        }
    }

    /// Returns the kinds of the image for `target` that is linked from `members`.
    fn kinds_of(&self, target: &Target, members: &BTreeSet<usize>) -> OffloadKinds {
        members
            .iter()
            .filter_map(|&at| self.kinds_from(at, target))
            .fold(OffloadKinds::default(), OffloadKinds::union)
    }
}

/// Returns the reason why the device code of an archive member is linked or not. `by_device` and
/// `by_host` are the reasons for which device code and the host link extract it. `linked`: whether
/// it is in an image.
fn why(by_device: Option<&String>, by_host: Option<&String>, linked: bool) -> String {
    match (by_device, by_host, linked) {
        (_, Some(reason), true) | (Some(reason), None, _) => format!("taken: {reason}"),
        (_, Some(_), false) => {
            "not taken: the program's own objects have no code for this target".to_owned()
        }
        (None, None, true) => "taken: --should-extract names its target".to_owned(),
        (None, None, false) => {
            "not taken: neither the host link nor linked device code needs the member".to_owned()
        }
    }
}

/// The reason why an image is part of the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Membership {
    /// It is in an object that is always linked.
    Regular,
    /// It is in an archive member, and `--should-extract` names its target.
    Named,
    /// It is in an archive member that the host link extracts.
    Pulled,
    /// It is in an archive member that the host link does not extract. It is linked if other device
    /// code needs it.
    Waiting,
    /// It is not linked like others: another device link has linked it or will, or it is PTX, which is
    /// linked only as a substitute for missing code.
    Elsewhere,
}

fn membership(
    image: &DeviceImage<'_>,
    target: &Target,
    lazy: &[bool],
    pulled: &[Option<String>],
    options: &SelectOptions,
) -> Membership {
    match image.input_object {
        object if !lazy[object] => Membership::Regular,
        _ if options.should_extract.contains(&image.arch) || options.ask_for(target) => {
            Membership::Named
        }
        object if pulled[object].is_some() => Membership::Pulled,
        _ => Membership::Waiting,
    }
}

/// Fails if an image's triple and its target ID are for different devices.
fn check_targets(found: &[DeviceImage<'_>], targets: &[Target]) -> Result<()> {
    match found
        .iter()
        .zip(targets)
        .find(|(_, target)| !target.is_consistent())
    {
        Some((image, target)) => {
            bail!(
                "{}: the architecture {} of the device code does not match its triple `{}`",
                image.origin,
                target.arch,
                target.triple
            )
        }
        None => Ok(()),
    }
}

fn check_kinds(job: &DeviceJob<'_>) -> Result<()> {
    if job.kinds.contains(OffloadKind::Sycl) && job.kinds.iter().count() > 1 {
        let names: Vec<String> = job
            .inputs
            .iter()
            .map(|image| image.origin.to_string())
            .collect();
        bail!(
            "Linking images of SYCL offload kind with images of any other kind is not supported: {} is made of {}",
            job.target,
            names.join(", ")
        );
    }
    Ok(())
}

/// Returns the symbols of an image, for `resolve`.
fn symbols<'f>(image: &'f DeviceImage<'_>) -> Result<HostFacts<'f>> {
    scan::device_symbols(image)
}

/// Returns the symbols that `inputs` of a device link need and no input defines. An image with a
/// damaged symbol table, or without one, has no symbols here: its linker has reported that.
fn undefined_symbols<'i, 'a: 'i>(
    inputs: impl IntoIterator<Item = &'i DeviceImage<'a>>,
) -> BTreeSet<Vec<u8>> {
    let tables: Vec<HostFacts<'_>> = inputs
        .into_iter()
        .filter_map(|input| symbols(input).ok())
        .collect();
    let defined: HashSet<&[u8]> = tables
        .iter()
        .flat_map(|table| &table.defined)
        .map(|symbol| symbol.name.as_ref())
        .collect();
    tables
        .iter()
        .flat_map(|table| &table.undefined)
        .filter(|symbol| !symbol.weak && !defined.contains(symbol.name.as_ref()))
        .map(|symbol| symbol.name.to_vec())
        .collect()
}

// Generation of the entry table that each image belongs to, as read from the host object with the
// image. Images in objects without entries belong to all generations of the link.

/// The generations of the images of one link.
struct Generations {
    /// The generations of the entry tables of each image's object, usually one.
    each: Vec<Vec<Generation>>,
    all: Vec<Generation>,
}

impl Generations {
    /// Returns the generations that image `at` is registered with: those of its object, or all if
    /// its object has no entry table.
    fn of(&self, at: usize) -> &[Generation] {
        if self.each[at].is_empty() {
            &self.all
        } else {
            &self.each[at]
        }
    }
}

/// Determines the generations of all images. `active`: the images in objects of the host link, and
/// those that `--should-extract` names. `host`: the generations of the host objects that are linked.
fn generations_of(
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
        .filter(|&&at| found[at].modules.is_none())
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
    check_entry_tables(found, &each, active)?;
    if all.is_empty() {
        // The entries may be in objects without images.
        all = host.collect::<BTreeSet<_>>().into_iter().collect();
    }
    if all.is_empty() {
        all.push(Generation::Llvm21);
    }
    // Modules register themselves. They are linked into the image of the newest entry table of CUDA
    // or HIP code.
    let newest = modules::generation(found, &each, active);
    for (image, own) in found.iter().zip(&mut each) {
        if image.modules.is_some() {
            *own = vec![newest];
        }
    }
    Ok(Generations { each, all })
}

/// Fails if entries of different sizes would be in one table. Before LLVM 21, each kind had a table
/// of its own. Its name is the same in LLVM 20 as before, although the entries have another size.
fn check_entry_tables(
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

// Device code for the host's own CPU may call host functions in archives. Such functions were
// compiled only as host code, but for the same instruction set.

/// Returns the objects of `host_code` that define, directly or indirectly, the undefined symbols of
/// the images `inputs`. Device code has priority: an object that also defines a symbol of device
/// code is not used. The device linker then reports undefined symbols.
fn host_code_pulls<'a>(
    inputs: &[&'a DeviceImage<'a>],
    host_code: &'a [DeviceImage<'a>],
    facts: &[HostFacts<'_>],
    target: &Target,
) -> Result<Vec<&'a DeviceImage<'a>>> {
    let candidates: Vec<&DeviceImage<'a>> = host_code
        .iter()
        .filter(|code| code.triple == target.triple || target.is_spelled(&code.triple))
        .collect();
    if candidates.is_empty() {
        return Ok(Vec::new());
    }
    let mut offered: HashMap<&[u8], &'a DeviceImage<'a>> = HashMap::new();
    for code in candidates {
        for symbol in &facts[code.input_object].defined {
            offered.entry(&symbol.name).or_insert(code);
        }
    }
    let mut defined: HashSet<Cow<'_, [u8]>> = HashSet::new();
    let mut wanted: Vec<Cow<'_, [u8]>> = Vec::new();
    for &input in inputs {
        let table = symbols(input)?;
        wanted.extend(
            table
                .undefined
                .into_iter()
                .filter(|symbol| !symbol.weak)
                .map(|symbol| Cow::Owned(symbol.name.into_owned())),
        );
        defined.extend(
            table
                .defined
                .into_iter()
                .map(|symbol| Cow::Owned(symbol.name.into_owned())),
        );
    }
    let mut taken: BTreeMap<usize, &'a DeviceImage<'a>> = BTreeMap::new();
    while let Some(name) = wanted.pop() {
        let Some(&code) = offered
            .get(name.as_ref())
            .filter(|_| !defined.contains(&name))
        else {
            continue;
        };
        let facts = &facts[code.input_object];
        let twice = facts
            .defined
            .iter()
            .any(|symbol| !symbol.weak && defined.contains(&symbol.name));
        if twice || taken.contains_key(&code.input_object) {
            continue;
        }
        taken.insert(code.input_object, code);
        defined.extend(facts.defined.iter().map(|symbol| symbol.name.clone()));
        wanted.extend(
            facts
                .undefined
                .iter()
                .filter(|symbol| !symbol.weak)
                .map(|symbol| symbol.name.clone()),
        );
    }
    Ok(taken.into_values().collect())
}

/// A device symbol without a definition in its device link, and the host object that defines it.
pub(crate) struct OnTheHost {
    /// The symbol.
    pub symbol: Vec<u8>,
    /// The index of the object.
    pub object: usize,
}

/// Returns the undefined symbols of the inputs of `jobs` that a host object defines. Most often
/// they are functions outside of `declare target`.
pub(crate) fn undefined_but_on_the_host(
    jobs: &[DeviceJob<'_>],
    facts: &[HostFacts<'_>],
) -> Vec<OnTheHost> {
    // In objects of nvcc, host symbols can have the names of device symbols.
    let jobs = jobs.iter().filter(|job| job.modules.is_empty());
    let mut on_the_host: BTreeMap<&[u8], usize> = BTreeMap::new();
    for (object, facts) in facts.iter().enumerate() {
        for symbol in &facts.defined {
            on_the_host.entry(&symbol.name).or_insert(object);
        }
    }
    let mut found: BTreeMap<Vec<u8>, usize> = BTreeMap::new();
    for name in jobs.flat_map(|job| undefined_symbols(job.inputs.iter().copied())) {
        if let Some(&object) = on_the_host.get(name.as_slice()) {
            found.insert(name, object);
        }
    }
    found
        .into_iter()
        .map(|(symbol, object)| OnTheHost { symbol, object })
        .collect()
}

#[cfg(test)]
mod line_tests;
#[cfg(test)]
mod tests;
