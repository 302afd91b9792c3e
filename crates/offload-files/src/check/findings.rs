//! Errors of images and registrations: images that contradict their containers, two images for one
//! target, compression that is too new, runtimes that are missing or too old, tables that two
//! registrations share, and kernels that an image lacks.

use std::collections::{BTreeMap, BTreeSet};

use super::report::{Answer, Finding};
use crate::contents::report::{Fault, FileReport, Image, Step};
use crate::contents::units::{
    self, Content, LATER, NOT_REGISTERED, Unit, listed, name, names, target,
};
use offload_formats::kernels::shown_name;
use offload_formats::model::{OffloadKind, llvm_major, printable};
use offload_formats::registration::read::{Bounds, Registered};
use offload_formats::target::Target;

/// The HIP runtime of ROCm 7 is the first that reads version 3 of compressed bundles
/// (llvm/llvm-project#152600). No runtime reads version 1 (ROCm/clr#99).
const READS_BUNDLES_3: u32 = 7;
/// The OpenMP runtimes of LLVM 19 and earlier assume entries of 32 bytes, the size at that time.
const READS_WIDE_ENTRIES: u32 = 20;
const NARROW_ENTRY: u64 = 32;

/// The findings on the images of a unit.
pub(super) fn of_images(unit: &Unit<'_>) -> Vec<Finding> {
    let mut findings = of_each(unit);
    findings.extend(same_targets(unit));
    findings.extend(unit.images.iter().filter(|image| image.choice.compression == Some("zstd")).take(1).map(|image| {
        let text = "the fatbinary is compressed with zstd, which NVIDIA drivers read from version 550.54.14 on";
        Finding::new("compression", Answer::Yes, text).of_image(image.index)
    }));
    findings
}

/// The findings on each image by itself.
pub(super) fn of_each(unit: &Unit<'_>) -> Vec<Finding> {
    let disagreements = unit.images.iter().filter_map(|image| disagrees(image));
    disagreements
        .chain(
            unit.images
                .iter()
                .filter_map(|image| unknown_resources(image)),
        )
        .collect()
}

/// A finding if the device in an image's own header differs from that in its container.
pub(super) fn disagrees(image: &Image) -> Option<Finding> {
    let disagreement = units::disagreement(image)?;
    Some(Finding::new(disagreement.what, Answer::No, disagreement.text).of_image(image.index))
}

/// A finding if the AMD GPU code of an image was generated object by object.
pub(super) fn unknown_resources(image: &Image) -> Option<Finding> {
    let kernel = image.choice.open_kernel.as_ref()?;
    let text = format!(
        "kernel `{}` of image {} ({}) calls separately compiled functions, so it may get too few registers and too little \
         scratch memory; compile the device code with -foffload-lto",
        shown_name(kernel),
        image.index,
        name(image)
    );
    Some(Finding {
        kernel: Some(kernel.clone()),
        ..Finding::new("unknown-resources", Answer::Unknown, text).of_image(image.index)
    })
}

/// Findings on several images for one target: a runtime takes the first and never the others.
fn same_targets(unit: &Unit<'_>) -> Vec<Finding> {
    let mut seen: BTreeMap<(Target, &str), &Image> = BTreeMap::new();
    let mut findings = Vec::new();
    for image in &unit.images {
        let target = target(image);
        // Bitcode and objects of several sources still have to be linked into one image.
        if target.triple.is_empty()
            || !matches!(image.format, "elf" | "cubin" | "ptx")
            || unit.kind == OffloadKind::Sycl
        {
            continue;
        }
        match seen.get(&(target.clone(), image.format)) {
            Some(first) => {
                let same = image.sha256.is_some() && image.sha256 == first.sha256;
                let (answer, more) = if same {
                    (Answer::Yes, ", and both are equal")
                } else {
                    (Answer::No, "")
                };
                let text = format!(
                    "image {} is for {} like image {}{more}: a runtime always takes the first of both",
                    image.index,
                    name(image),
                    first.index
                );
                findings.push(Finding::new("same-target", answer, text).of_image(image.index));
            }
            None => drop(seen.insert((target, image.format), image)),
        }
    }
    findings
}

/// The findings on kpack archives, and on references to them, in the file or in the member of a
/// package (`members`). `asked`: for requested devices, the images decide.
pub(super) fn of_packs(report: &FileReport, members: &[String], asked: bool) -> Vec<Finding> {
    let own = report
        .faults
        .iter()
        .filter(|fault| fault.members.starts_with(members));
    let finding = |fault: &Fault| {
        let answer = match fault.what {
            "incomplete" | "not-listed" | "no-code" | "hides" if asked => Answer::Yes,
            // It depends on the version of ROCm.
            "hides" => Answer::Unknown,
            _ => Answer::No,
        };
        Finding {
            members: fault.members.clone(),
            runtime: Some(fault.runtime),
            ..Finding::new(fault.what, answer, fault.text.clone())
        }
    };
    own.map(finding).collect()
}

/// Removes the findings on units without an image if the files with the images are missing. Their
/// advice to link again is then wrong.
pub(super) fn without_consequences(findings: &mut Vec<Finding>) {
    let missing: Vec<(Vec<String>, Option<&str>)> = findings
        .iter()
        .filter(|finding| finding.what == "missing")
        .map(|finding| (finding.members.clone(), finding.runtime))
        .collect();
    findings.retain(|finding| {
        let is_of = |(members, runtime): &(Vec<String>, Option<&str>)| {
            *members == finding.members && *runtime == finding.runtime
        };
        finding.what != "no-image" || !missing.iter().any(is_of)
    });
}

/// A finding on a program in a package whose kpack archives are not in the package: others may have
/// them, as with wheels for single architectures.
pub(super) fn packed_elsewhere(content: &Content<'_>) -> Option<Finding> {
    let program = content
        .kpack
        .filter(|program| !program.members.is_empty())?;
    if content.has_images() || program.registrations.is_empty() {
        return None;
    }
    let text = format!(
        "the device code of {} is in kpack archives of another package ({}): install them together and check the directory",
        program.binary,
        program.search_paths.join(", ")
    );
    Some(Finding {
        members: content.members.to_vec(),
        runtime: Some(OffloadKind::Hip.name()),
        ..Finding::new("packed-elsewhere", Answer::Unknown, text)
    })
}

/// The findings on the registrations of one object or program. `kind` is the type of the file: the
/// object or program itself, or an archive that contains it.
pub(super) fn of_registrations(
    kind: &str,
    content: &Content<'_>,
    units: &[Unit<'_>],
) -> Vec<Finding> {
    let mut findings = runtimes(kind, content, units);
    findings.extend(content.registered.into_iter().flat_map(shared_tables));
    let linked = content.registered.is_some_and(|found| found.linked);
    for unit in units.iter().filter(|unit| {
        linked && unit.kind == OffloadKind::OpenMp && unit.place == units::NOT_REGISTERED
    }) {
        if unit.images.is_empty() {
            continue;
        }
        let text = "the program has OpenMP images, but no descriptor hands them to the runtime: the link made no registration";
        findings.push(Finding::new("not-registered", Answer::No, text).of_unit(unit));
    }
    findings
        .iter_mut()
        .for_each(|finding| finding.members = content.members.to_vec());
    findings
}

/// Findings on runtimes that are missing, or too old for the registered data.
fn runtimes(kind: &str, content: &Content<'_>, units: &[Unit<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for registration in content
        .registrations
        .iter()
        .filter(|found| found.found == "library")
    {
        let runtime = Some(registration.runtime);
        let finding = |what, answer, text| Finding {
            runtime,
            ..Finding::new(what, answer, text)
        };
        let Some(library) = registration.libraries.first() else {
            // A library may leave the choice of runtime to the program that loads it.
            let answer = if kind == "elf-executable" {
                Answer::No
            } else {
                Answer::Unknown
            };
            let text = format!(
                "none of the needed libraries defines `{}`",
                registration.symbol
            );
            findings.push(finding("missing-runtime", answer, text));
            continue;
        };
        if library.path.is_none() {
            let text = format!(
                "{}, which defines `{}`, is not on this machine",
                printable(&library.name),
                registration.symbol
            );
            findings.push(finding("runtime-not-here", Answer::Yes, text));
        }
        let release = library
            .name
            .split_once(".so.")
            .and_then(|(_, version)| llvm_major(version));
        let wide = content.registered.is_some_and(|found| {
            found
                .tables
                .iter()
                .any(|table| table.entry_size > Some(NARROW_ENTRY))
        });
        if registration.runtime == "openmp"
            && wide
            && release.is_some_and(|release| release < READS_WIDE_ENTRIES)
        {
            let text = format!(
                "{} cannot read the entry table, which has the layout of LLVM 20 or later",
                printable(&library.name)
            );
            findings.push(finding("old-runtime", Answer::No, text));
        }
        if registration.runtime == "hip" {
            for (version, image) in bundles(units) {
                let text = format!(
                    "{} cannot read version {version} of compressed bundles",
                    printable(&library.name)
                );
                if version == 1
                    || version >= 3 && release.is_some_and(|release| release < READS_BUNDLES_3)
                {
                    findings.push(finding("compression", Answer::No, text).of_image(image));
                }
            }
        }
    }
    findings
}

/// The versions of the compressed bundles, each with the index of an image in such a bundle.
fn bundles(units: &[Unit<'_>]) -> BTreeMap<u32, usize> {
    let images = units
        .iter()
        .filter(|unit| unit.kind == OffloadKind::Hip)
        .flat_map(|unit| &unit.images);
    let version = |step: &Step| match step {
        Step::Container {
            name: "compressed-bundle",
            version,
            ..
        } => *version,
        _ => None,
    };
    images
        .filter_map(|image| Some((image.path.iter().find_map(version)?, image.index)))
        .collect()
}

/// Findings on entry tables that two descriptors name: the runtime then looks for the kernels of
/// each in the images of both.
fn shared_tables(registered: &Registered) -> Vec<Finding> {
    let mut findings = Vec::new();
    for (index, descriptor) in registered.descriptors.iter().enumerate() {
        let is_empty = matches!(descriptor.entries, Bounds::Place { start, end } if start == end);
        let earlier = registered
            .descriptors
            .iter()
            .take(index)
            .find(|other| other.entries == descriptor.entries);
        if let Some(other) = earlier.filter(|_| !is_empty) {
            let text = format!(
                "descriptors at {:#x} and {:#x} share an entry table: the runtime looks for the kernels of both in the images of each",
                other.offset, descriptor.offset
            );
            findings.push(Finding {
                runtime: Some("openmp"),
                ..Finding::new("shared-table", Answer::No, text)
            });
        }
    }
    findings
}

// Check of kernels: whether every image has the kernels that the host registers. If no table lists
// these kernels, the images of a container are compared with each other.

/// The number of kernels to look for.
pub(super) fn kernel_count(unit: &Unit<'_>) -> Option<usize> {
    match &unit.kernels {
        Some(kernels) if !unit.shares_entries => Some(kernels.len()),
        _ => unit
            .images
            .iter()
            .map(|image| listed(image).map(|names| names.len()))
            .max()
            .flatten(),
    }
}

/// The findings on the kernels of a unit, and the basis of the answer.
pub(super) fn compare_kernels(unit: &Unit<'_>) -> (&'static str, Vec<Finding>) {
    match &unit.kernels {
        _ if unit.kind == OffloadKind::Sycl => {
            let text = "cannot verify SYCL kernels: the host looks them up by name at run time";
            (
                "none",
                vec![Finding::new("unknown-kernels", Answer::Unknown, text)],
            )
        }
        Some(kernels) if !unit.shares_entries => ("entries", with_entries(unit, kernels)),
        _ => ("images", with_each_other(unit)),
    }
}

fn with_entries(unit: &Unit<'_>, kernels: &[Option<&str>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if unit.images.is_empty() && !kernels.is_empty() {
        let count = if kernels.len() == 1 {
            "1 kernel".to_owned()
        } else {
            format!("{} kernels", kernels.len())
        };
        let text = match (unit.kind, unit.place.as_str()) {
            // No descriptor hands the table to the runtime.
            (OffloadKind::OpenMp, NOT_REGISTERED) => format!(
                "{count}, but the program was linked without device images: relink with -fopenmp-targets=… and -B DIR, or with \
                 --ld-path=DIR/ld.offld (create DIR with `offld links DIR`)"
            ),
            (OffloadKind::OpenMp, LATER) => {
                format!(
                    "{count} in the OpenMP table, but no device image: compile with -fopenmp-targets=… or --offload-arch=…"
                )
            }
            (kind, _) => format!(
                "{count} registered with {}, but no device image",
                kind.title()
            ),
        };
        findings.push(Finding::new("no-image", Answer::No, text));
        return findings;
    }
    let unnamed = kernels.iter().filter(|name| name.is_none()).count();
    if unnamed > 0 {
        let (name, kernels) = if unnamed == 1 {
            ("name", "kernel")
        } else {
            ("names", "kernels")
        };
        let text = format!("cannot read the {name} of {unnamed} registered {kernels}");
        findings.push(Finding::new("unknown-kernels", Answer::Unknown, text));
    }
    for image in &unit.images {
        match names(image) {
            Some(_) => {
                let missing = missing_kernels(unit, image).into_iter();
                findings.extend(missing.map(|kernel| {
                    missing_kernel(kernel, image, Answer::No, "is registered and not in")
                }));
            }
            None => findings.push(unknown_kernels(image)),
        }
    }
    findings
}

/// The kernels that the host registers and that `image` lacks. Empty if the table belongs to
/// several containers, or if kernels cannot be listed.
pub(super) fn missing_kernels<'f>(unit: &Unit<'f>, image: &Image) -> Vec<&'f str> {
    let kernels = unit
        .kernels
        .as_ref()
        .filter(|_| !unit.shares_entries && unit.kind != OffloadKind::Sycl);
    let (Some(kernels), Some(names)) = (kernels, names(image)) else {
        return Vec::new();
    };
    kernels
        .iter()
        .flatten()
        .copied()
        .filter(|kernel| !names.contains(kernel))
        .collect()
}

fn with_each_other(unit: &Unit<'_>) -> Vec<Finding> {
    let mut findings = Vec::new();
    let mut known: Vec<(&Image, BTreeSet<&str>)> = Vec::new();
    for image in &unit.images {
        match listed(image) {
            Some(names) => known.push((image, names)),
            None => findings.push(unknown_kernels(image)),
        }
    }
    if unit.images.len() < 2 {
        let text = "cannot verify the kernels: no table lists the registered ones, and there is no second image to compare";
        findings.push(Finding::new("unknown-kernels", Answer::Unknown, text));
    }
    let mut has: BTreeMap<&str, &Image> = BTreeMap::new();
    for (image, names) in &known {
        for name in names {
            has.entry(name).or_insert(image);
        }
    }
    for (image, names) in &known {
        for (kernel, other) in has.iter().filter(|(kernel, _)| !names.contains(**kernel)) {
            let text = format!("is in image {} ({}) and not in", other.index, name(other));
            // Code for one architecture may have kernels that the host never asks for.
            findings.push(missing_kernel(kernel, image, Answer::Unknown, &text));
        }
    }
    findings
}

fn missing_kernel(kernel: &str, image: &Image, answer: Answer, how: &str) -> Finding {
    let text = format!(
        "kernel `{}` {how} image {} ({})",
        shown_name(kernel),
        image.index,
        name(image)
    );
    Finding {
        kernel: Some(kernel.to_owned()),
        ..Finding::new("missing-kernel", answer, text).of_image(image.index)
    }
}

fn unknown_kernels(image: &Image) -> Finding {
    let text = format!(
        "cannot list the kernels of image {} ({}, {})",
        image.index,
        name(image),
        image.format
    );
    Finding::new("unknown-kernels", Answer::Unknown, text).of_image(image.index)
}

/// Findings on kernels that are registered from one table for several containers, and that no
/// container has.
pub(super) fn kernels_in_no_container(members: &[String], units: &[Unit<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for kind in [OffloadKind::Cuda, OffloadKind::Hip] {
        let own: Vec<&Unit<'_>> = units
            .iter()
            .filter(|unit| unit.kind == kind && unit.shares_entries)
            .collect();
        let Some(kernels) = own.first().and_then(|unit| unit.kernels.as_ref()) else {
            continue;
        };
        let images = own.iter().flat_map(|unit| &unit.images);
        let all: Vec<Option<BTreeSet<&str>>> = images.map(|image| names(image)).collect();
        if all.iter().any(Option::is_none) {
            continue;
        }
        for kernel in kernels
            .iter()
            .flatten()
            .filter(|kernel| !all.iter().flatten().any(|names| names.contains(**kernel)))
        {
            let text = format!(
                "kernel `{}` is registered with {}, but is in no image",
                shown_name(kernel),
                kind.title()
            );
            findings.push(Finding {
                members: members.to_vec(),
                runtime: Some(kind.name()),
                kernel: Some((*kernel).to_owned()),
                ..Finding::new("missing-kernel", Answer::No, text)
            });
        }
    }
    findings
}
