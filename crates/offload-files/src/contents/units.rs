//! Groups of images from which a runtime chooses one: the images of one OpenMP descriptor, or of
//! one container that CUDA or HIP gets. An object registers nothing yet, so its images of one kind
//! form a group. Also compares an image with its label in the container.

use std::borrow::Cow;
use std::collections::{BTreeSet, HashMap};
use std::fmt;

use super::report::{EXTERNAL_IMAGES, FileReport, Image, PackReference, Registration, Step};
use super::{external, packs};
use offload_formats::gpu::{AmdArch, TargetId};
use offload_formats::model::{OffloadKind, printable};
use offload_formats::offload_sections::START_PREFIX;
use offload_formats::registration::read::{Bounds, Descriptor, Entry, Registered, Table};
use offload_formats::target::Target;

/// The first components of CPU triples, by the name of the ELF machine in reports.
pub(super) const MACHINES: [(&str, &[&str]); 8] = [
    ("x86-64", &["x86_64", "amd64"]),
    ("i386", &["i386", "i486", "i586", "i686"]),
    ("aarch64", &["aarch64", "arm64"]),
    ("arm", &["arm", "thumb"]),
    ("powerpc64", &["powerpc64", "ppc64"]),
    ("riscv", &["riscv"]),
    ("s390x", &["s390x", "systemz"]),
    ("loongarch", &["loongarch"]),
];

/// The location of images in a program that no descriptor lists.
pub(crate) const NOT_REGISTERED: &str = "not registered";
/// The location of images in an object.
pub(crate) const LATER: &str = "registered by a later link";

/// Images of which a runtime loads one.
#[derive(Debug)]
pub(crate) struct Unit<'f> {
    /// The runtime.
    pub(crate) kind: OffloadKind,
    /// The enclosing archive members.
    pub(crate) members: &'f [String],
    /// The location of the images, for messages.
    pub(crate) place: String,
    /// The images, in the runtime's order.
    pub(crate) images: Vec<&'f Image>,
    /// The names of the kernels that the host registers with the images; none if there is no table.
    /// A name is none if the table's pointer to it cannot be followed.
    pub(crate) kernels: Option<Vec<Option<&'f str>>>,
    /// Whether the table belongs to several containers.
    pub(crate) shares_entries: bool,
}

/// The target of an image. CPU images of older releases have no container, so only their machine is
/// known.
pub(crate) fn target(image: &Image) -> Target {
    let of_machine = || {
        MACHINES
            .iter()
            .find(|(machine, _)| image.machine.as_deref() == Some(machine))
    };
    match of_machine().filter(|_| image.triple.is_empty()) {
        Some((_, names)) => Target::new(names[0], ""),
        None => Target::new(&image.triple, &image.target),
    }
}

/// The target and format of an image, for messages.
pub(crate) fn name(image: &Image) -> String {
    let target = target(image);
    let format = match image.format {
        "ptx" => ", PTX",
        "bitcode" => ", bitcode",
        "spirv" => ", SPIR-V",
        _ => "",
    };
    if target.triple.is_empty() {
        format!("unknown device{format}")
    } else {
        format!("{target}{format}")
    }
}

/// A short name for the target of an image: its processor, or else the first component of its
/// triple.
pub(crate) fn short_name(image: &Image) -> String {
    let target = target(image);
    let device = match target.arch.as_str() {
        "" if target.triple.is_empty() => "unknown device".to_owned(),
        "" => target
            .target_id()
            .filter(|id| !id.is_empty())
            .map_or_else(|| target.arch_name().to_owned(), Cow::into_owned),
        arch => arch.to_owned(),
    };
    let device = printable(&device).into_owned();
    match image.format {
        "ptx" => format!("PTX {device}"),
        "bitcode" => format!("{device} bitcode"),
        _ => device,
    }
}

/// The kernels of an image, or all symbols that it defines; none if its format does not list them.
pub(crate) fn names(image: &Image) -> Option<BTreeSet<&str>> {
    if let Some(names) = &image.choice.names {
        return Some(names.iter().map(String::as_str).collect());
    }
    // No reader exists for the kernels of Intel images, including ELF files in Intel's OpenCL form,
    // which name no machine.
    if matches!(image.machine.as_deref(), Some("intelgt" | "0")) {
        return None;
    }
    image
        .kernels
        .as_ref()
        .map(|kernels| kernels.iter().map(|kernel| kernel.name.as_str()).collect())
}

/// The kernels of an image, if it lists them. Bitcode lists every symbol instead.
pub(crate) fn listed(image: &Image) -> Option<BTreeSet<&str>> {
    names(image).filter(|_| image.format != "bitcode")
}

/// The contents of one object or program: a file by itself, or a member of an archive.
#[derive(Debug)]
pub(crate) struct Content<'f> {
    /// The enclosing archive members, the outermost first.
    pub(crate) members: &'f [String],
    /// The device images with a section, symbol or registration.
    images: Vec<&'f Image>,
    /// The images in plain data, which the program loads by itself.
    pub(crate) in_data: Vec<&'f Image>,
    /// The entries and images that its host code registers.
    pub(crate) registered: Option<&'f Registered>,
    /// The runtimes that it calls.
    pub(crate) registrations: Vec<&'f Registration>,
    /// Its reference to kpack archives.
    pub(crate) kpack: Option<&'f PackReference>,
}

impl Content<'_> {
    /// Whether there are device images.
    pub(crate) fn has_images(&self) -> bool {
        !self.images.is_empty() || !self.in_data.is_empty()
    }
}

/// The contents of a file, for each object or program in it.
pub(crate) fn contents(report: &FileReport) -> Vec<Content<'_>> {
    let mut all = Contents::default();
    // The code objects of an archive belong to the program that refers to them.
    let programs = report.kpack.iter();
    let programs: HashMap<&str, &PackReference> =
        programs.map(|one| (one.binary.as_str(), one)).collect();
    for image in report.images.iter().filter(|image| image.is_device()) {
        let key = image.id.as_deref().filter(|_| packs::is_packed(image));
        let content = match key.and_then(|key| programs.get(packs::split_key(key).0)) {
            Some(program) => all.content(&program.members, &program.numbers),
            None => all.content(&image.members, &image.numbers),
        };
        if image.in_data {
            content.in_data.push(image)
        } else {
            content.images.push(image)
        }
    }
    for found in &report.kpack {
        all.content(&found.members, &found.numbers).kpack = Some(found);
    }
    for found in &report.registered {
        all.content(&found.members, &found.numbers).registered = Some(found);
    }
    for found in &report.registrations {
        all.content(&found.members, &found.numbers)
            .registrations
            .push(found);
    }
    all.list
}

#[derive(Default)]
struct Contents<'f> {
    list: Vec<Content<'f>>,
    /// Indices of `list` by the names and indices of the enclosing members. Members may have the
    /// same name.
    places: HashMap<(&'f [String], &'f [usize]), usize>,
}

impl<'f> Contents<'f> {
    fn content(&mut self, members: &'f [String], numbers: &'f [usize]) -> &mut Content<'f> {
        let place = *self
            .places
            .entry((members, numbers))
            .or_insert(self.list.len());
        if place == self.list.len() {
            let (images, in_data, registrations) = (Vec::new(), Vec::new(), Vec::new());
            self.list.push(Content {
                members,
                images,
                in_data,
                registered: None,
                registrations,
                kpack: None,
            });
        }
        &mut self.list[place]
    }
}

/// The units of one object or program.
pub(crate) fn of<'f>(content: &Content<'f>) -> Vec<Unit<'f>> {
    let Content {
        members,
        images,
        registered,
        kpack,
        ..
    } = content;
    let mut units = Vec::new();
    for kind in OffloadKind::ALL {
        let own: Vec<&Image> = images
            .iter()
            .copied()
            .filter(|image| image.kinds.iter().any(|name| name == kind.name()))
            .filter(|image| kpack.is_some() || !packs::is_packed(image))
            .collect();
        let parts = Parts {
            kind,
            members,
            registered: *registered,
            kpack: *kpack,
            own,
        };
        match kind {
            OffloadKind::OpenMp => parts.openmp(&mut units),
            _ => parts.containers(&mut units),
        }
    }
    units
}

/// Images that stand alone: no container names their runtime, and no host code registers them.
/// These are modules, which a program loads by file name (`cuModuleLoad`, `hipModuleLoad`), and
/// libraries that compilers link. Archives without the program that refers to them count as well.
pub(crate) fn modules<'f>(contents: &[Content<'f>]) -> Vec<&'f Image> {
    let is_loose = |image: &&Image| {
        packs::is_packed(image)
            || !OffloadKind::ALL
                .iter()
                .any(|kind| image.kinds.iter().any(|name| name == kind.name()))
    };
    let is_file = |content: &&Content<'_>| {
        content.registered.is_none() && content.registrations.is_empty() && content.kpack.is_none()
    };
    contents
        .iter()
        .filter(is_file)
        .flat_map(|content| content.images.iter().copied().filter(is_loose))
        .collect()
}

/// One unit of modules from which a program loads the one that fits. `members` are the archive
/// members that contain them all.
pub(crate) fn unit_of_modules<'f>(
    images: Vec<&'f Image>,
    members: &'f [String],
    place: &str,
) -> Unit<'f> {
    let kind = match images.first().map(|image| target(image)) {
        Some(target) if target.is_cpu() => OffloadKind::OpenMp,
        target => target
            .and_then(|target| target.kind_of_modules())
            .unwrap_or(OffloadKind::Hip),
    };
    Unit {
        kind,
        members,
        place: place.to_owned(),
        images,
        kernels: None,
        shares_entries: false,
    }
}

/// The parts of the units of one kind.
struct Parts<'f> {
    kind: OffloadKind,
    members: &'f [String],
    registered: Option<&'f Registered>,
    kpack: Option<&'f PackReference>,
    own: Vec<&'f Image>,
}

impl<'f> Parts<'f> {
    /// The kernels of this kind in `tables`; none if there is no table, or if one cannot be read.
    fn kernels<'t>(
        &self,
        tables: impl Iterator<Item = &'f Table> + 't,
    ) -> Option<Vec<Option<&'f str>>> {
        let tables: Vec<&Table> = tables.collect();
        if tables.is_empty() || tables.iter().any(|table| table.entry_size.is_none()) {
            return None;
        }
        let own =
            |entry: &&Entry| entry.kinds.is_empty() || entry.kinds.contains(&self.kind.name());
        let is_kernel = |entry: &&Entry| {
            entry.is_kernel() && !(self.kind == OffloadKind::OpenMp && entry.is_requirement())
        };
        let kernels = tables
            .iter()
            .flat_map(|table| &table.entries)
            .filter(own)
            .filter(is_kernel);
        Some(kernels.map(|entry| entry.name.as_deref()).collect())
    }

    fn tables(&self) -> &'f [Table] {
        self.registered.map_or(&[], |found| &found.tables)
    }

    fn unit(
        &self,
        place: String,
        images: Vec<&'f Image>,
        kernels: Option<Vec<Option<&'f str>>>,
    ) -> Unit<'f> {
        Unit {
            kind: self.kind,
            members: self.members,
            place,
            images,
            kernels,
            shares_entries: false,
        }
    }

    /// Adds a unit for each descriptor, and one for images that no descriptor lists.
    fn openmp(self, units: &mut Vec<Unit<'f>>) {
        let descriptors = self.registered.map_or(&[][..], |found| &found.descriptors);
        let mut left = self.own.clone();
        for descriptor in descriptors {
            let base = self.registered.and_then(|found| found.base);
            let images = descriptor.images.iter().filter_map(|row| {
                // A descriptor may point to the OffloadBinary that contains an image (LLVM 15 and
                // 16). Decompressed images have no offset in the file, but they have the same
                // order.
                let at = left.iter().position(|image| match (base, image.offset) {
                    (Some(base), Some(offset)) => {
                        (base + row.start..base + row.end).contains(&offset)
                    }
                    _ => image.size <= row.end - row.start,
                });
                at.map(|at| left.remove(at))
            });
            let images: Vec<&Image> = images.collect();
            let kernels = match &descriptor.entries {
                Bounds::Place { start, end } if start == end => Some(Vec::new()),
                bounds => self.kernels(
                    self.tables()
                        .iter()
                        .filter(|table| is_between(table, bounds)),
                ),
            };
            units.push(self.unit(place(descriptor), images, kernels));
        }
        let (in_files, left): (Vec<&Image>, Vec<&Image>) = left
            .into_iter()
            .partition(|image| external::is_external(image));
        let are_in_files = !in_files.is_empty();
        if are_in_files {
            // The program fills in the descriptor when it starts.
            units.retain(|unit| !unit.images.is_empty());
            let kernels = self.kernels(self.tables().iter());
            units.push(self.unit(EXTERNAL_IMAGES.to_owned(), in_files, kernels));
        }
        let linked = self.registered.is_some_and(|found| found.linked);
        let kernels = if descriptors.is_empty() {
            self.kernels(self.tables().iter())
        } else {
            None
        };
        let wants = kernels.as_ref().is_some_and(|kernels| !kernels.is_empty());
        // Inputs of a link may remain in its output (LLVM 14). In that case the descriptors list
        // the registered images.
        let is_input = linked && !descriptors.is_empty();
        if wants && !are_in_files || !left.is_empty() && !is_input {
            let place = if linked { NOT_REGISTERED } else { LATER };
            units.push(self.unit(place.to_owned(), left, kernels));
        }
    }

    /// Adds a unit for each container.
    fn containers(self, units: &mut Vec<Unit<'f>>) {
        let mut groups: Vec<(Group<'f>, Vec<&'f Image>)> = Vec::new();
        let mut places: HashMap<Group<'f>, usize> = HashMap::new();
        let of_images = self.own.iter().map(|image| (group(image), Some(*image)));
        // The program may register code that is in no archive.
        let registered = self.kpack.filter(|_| self.kind == OffloadKind::Hip);
        let without = registered.into_iter().flat_map(|program| {
            let numbers = program.registrations.iter();
            numbers.map(|number| (Group::Packed(&program.binary, Some(*number)), None))
        });
        for (key, image) in of_images.chain(without) {
            let place = *places.entry(key.clone()).or_insert(groups.len());
            if place == groups.len() {
                groups.push((key, Vec::new()));
            }
            if let Some((_, images)) = groups.get_mut(place) {
                images.extend(image);
            }
        }
        let kernels = self
            .kernels(self.tables().iter())
            .filter(|kernels| !kernels.is_empty());
        let single = groups.len() < 2;
        if groups.is_empty() && kernels.is_some() {
            groups.push((Group::Container(Vec::new()), Vec::new()));
        }
        for (group, images) in groups {
            let place = group.to_string();
            let mut unit = self.unit(place, images, kernels.clone());
            unit.shares_entries = !single;
            units.push(unit);
        }
    }
}

/// Whether a table is the one that a descriptor names.
fn is_between(table: &Table, bounds: &Bounds) -> bool {
    match bounds {
        Bounds::Place { start, end } => table.offset >= *start && table.offset < *end,
        Bounds::Symbols { start, .. } => start.strip_prefix(START_PREFIX) == Some(&table.section),
        Bounds::Nowhere { .. } => false,
    }
}

fn place(descriptor: &Descriptor) -> String {
    format!("descriptor at {:#x}", descriptor.offset)
}

/// What a runtime gets at once.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
enum Group<'f> {
    /// A container, with the path to it.
    Container(Vec<Step>),
    /// The code objects in kpack archives for one registration of a program.
    Packed(&'f str, Option<u32>),
}

impl fmt::Display for Group<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Group::Container(path) => {
                f.write_str(&path.iter().map(step_name).collect::<Vec<_>>().join(": "))
            }
            Group::Packed(binary, Some(number)) => write!(f, "{binary}#{number}"),
            Group::Packed(binary, None) => f.write_str(binary),
        }
    }
}

fn group(image: &Image) -> Group<'_> {
    match image.id.as_deref().filter(|_| packs::is_packed(image)) {
        Some(key) => {
            let (binary, number) = packs::split_key(key);
            Group::Packed(binary, number)
        }
        None => Group::Container(container(&image.path)),
    }
}

/// The container that a runtime gets: the outermost one. The OffloadBinaries of an object hold one
/// image each and form one unit.
fn container(path: &[Step]) -> Vec<Step> {
    let at = path
        .iter()
        .position(|step| matches!(step, Step::Container { .. }));
    match at.and_then(|at| Some((at, path.get(at)?))) {
        Some((
            _,
            Step::Container {
                name: "offload-binary",
                ..
            },
        ))
        | None => Vec::new(),
        Some((at, _)) => path
            .iter()
            .take(at + 1)
            .filter(|step| !matches!(step, Step::Member { .. }))
            .cloned()
            .collect(),
    }
}

fn step_name(step: &Step) -> String {
    match step {
        Step::Member { name, .. } | Step::Section { name, .. } | Step::Symbol { name, .. } => {
            name.clone()
        }
        Step::Container {
            name: EXTERNAL_IMAGES,
            ..
        } => EXTERNAL_IMAGES.to_owned(),
        Step::Container { name, within, .. } => format!("{name} at {within:#x}"),
        Step::File { name, .. } => name.clone(),
        Step::Compressed { .. } => "decompressed".to_owned(),
    }
}

// Comparison of an image with its label in the container: its own header names a processor and
// features, too.

/// `EI_ABIVERSION` of AMD's code object version 4. From this version on, a header can record that a
/// feature may have any setting.
const AMD_V4: u8 = 2;

/// ELF machines of code that Intel's compilers generate ahead of time, by the first component of
/// its triple (intel/llvm, sycl/doc/design/CompilerAndRuntimeDesign.md, "Ahead of time"). Machine 0
/// belongs to Intel's own ELF form of OpenCL binaries, which ocloc uses for its member `generic_ir`
/// (intel/compute-runtime, device_binary_format_ar.cpp).
const INTEL_AOT: [(&str, &[&str]); 6] = [
    ("spir64_gen", &["intelgt", NO_MACHINE]),
    ("spirv64_gen", &["intelgt", NO_MACHINE]),
    ("spir_gen", &["intelgt", NO_MACHINE]),
    ("spir64_x86_64", &["x86-64", NO_MACHINE]),
    ("spirv64_x86_64", &["x86-64", NO_MACHINE]),
    ("spir_x86_64", &["x86-64", "i386", NO_MACHINE]),
];
/// `EM_NONE`, as in reports.
const NO_MACHINE: &str = "0";

/// An image with a wrong label in its container.
#[derive(Debug)]
pub(crate) struct Disagreement {
    /// The error, by its name in reports: `wrong-triple`, `wrong-target`, `wrong-feature`.
    pub(crate) what: &'static str,
    /// The error as a message.
    pub(crate) text: String,
}

/// Whether Intel's compilers can make an ELF file for this machine for the target `label`.
fn fits_intel(label: &Target, machine: &str) -> bool {
    match INTEL_AOT
        .iter()
        .find(|(triple, _)| *triple == label.arch_name())
    {
        Some((_, machines)) => machines.contains(&machine),
        // Other targets get SPIR-V, which may be in an ELF file for Intel's GPUs. The forms of
        // further devices (FPGAs) are unknown.
        None => machine == "intelgt" || is_number(machine) || label.arch_name().ends_with("_fpga"),
    }
}

/// Whether a machine has no name in reports.
fn is_number(machine: &str) -> bool {
    machine.bytes().all(|byte| byte.is_ascii_digit())
}

/// The device in the header of an image, for messages.
fn device_in_header(image: &Image, machine: &str) -> String {
    match &image.choice.gpu {
        Some(gpu) => Target::new(gpu.triple, &gpu.target_id()).to_string(),
        None if is_number(machine) => format!("ELF machine {machine}"),
        None => machine.to_owned(),
    }
}

/// How the header of an image contradicts the device in its container; none if both agree, or if
/// the header names no device.
pub(crate) fn disagreement(image: &Image) -> Option<Disagreement> {
    let label = Target::new(&image.triple, &image.target);
    let disagree = |what, header: String| {
        let text = format!(
            "image {} is labelled as {label}, but its own header is for {}",
            image.index,
            printable(&header)
        );
        Some(Disagreement { what, text })
    };
    if label.arch_name().starts_with("spir") && !label.triple.contains("-amd") {
        let machine = image.machine.as_deref()?;
        return if fits_intel(&label, machine) {
            None
        } else {
            disagree("wrong-triple", device_in_header(image, machine))
        };
    }
    let Some(gpu) = &image.choice.gpu else {
        let machine = image.machine.as_deref()?;
        let names = MACHINES
            .iter()
            .find(|(known, _)| *known == machine)
            .map(|(_, names)| *names);
        let agrees = |names: &[&str]| names.iter().any(|name| label.arch_name().starts_with(name));
        return if label.triple.is_empty()
            || names.is_some_and(agrees)
            || names.is_none() && label.is_cpu()
        {
            None
        } else {
            disagree("wrong-triple", device_in_header(image, machine))
        };
    };
    let own = Target::new(gpu.triple, &gpu.target_id());
    let same_vendor = label.triple.is_empty()
        || label.is_amdgcn() && own.is_amdgcn()
        || label.is_nvptx() && own.is_nvptx()
        || label.is_spirv() && own.is_spirv();
    if !same_vendor {
        return disagree("wrong-triple", own.to_string());
    }
    let id = label.target_id().unwrap_or_default();
    let (Some(wanted), false) = (TargetId::parse(&id), gpu.processor.is_empty()) else {
        return None;
    };
    if own.is_nvptx() {
        // A cubin does not record whether its code is for a family, and the fatbinary does not
        // always record whether it is for one processor.
        let number = |name: &str| name.trim_end_matches(['a', 'f']).to_owned();
        return if number(wanted.processor) == number(&gpu.processor) {
            None
        } else {
            disagree("wrong-target", own.to_string())
        };
    }
    if AmdArch::of_processor(wanted.processor) != AmdArch::of_processor(&gpu.processor) {
        return disagree("wrong-target", own.to_string());
    }
    let distinguishes_any = image
        .choice
        .abi_version
        .is_some_and(|version| version >= AMD_V4);
    let differs = gpu
        .features
        .iter()
        .any(|(name, on)| match wanted.features.get(name) {
            Some(labelled) => labelled != on,
            None => distinguishes_any,
        });
    if differs {
        disagree("wrong-feature", own.to_string())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_intel_compiles_ahead_of_time_is_what_its_triple_says() {
        for (triple, machine, fits) in [
            ("spir64_gen-unknown-unknown-unknown", "intelgt", true),
            ("spir64_gen-unknown-unknown-unknown", "0", true),
            ("spirv64_gen-unknown-unknown", "intelgt", true),
            ("spir64_x86_64-unknown-unknown", "x86-64", true),
            ("spir64_x86_64-unknown-unknown", "0", true),
            ("spir64-unknown-unknown", "intelgt", true),
            ("spir64_fpga-unknown-unknown", "62000", true),
            ("spirv64-intel", "intelgt", true),
            ("spir64_gen-unknown-unknown", "x86-64", false),
            ("spir64_x86_64-unknown-unknown", "intelgt", false),
            ("spirv64-intel", "x86-64", false),
            ("spir64-unknown-unknown", "cuda", false),
        ] {
            assert_eq!(
                fits_intel(&Target::new(triple, ""), machine),
                fits,
                "{triple} {machine}"
            );
        }
    }
}
