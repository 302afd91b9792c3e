//! Check of kernels: whether every image has the kernels that the host registers. If no table lists
//! these kernels, the images of a container are compared with each other.

use std::collections::{BTreeMap, BTreeSet};

use super::report::{Answer, Finding};
use crate::contents::report::Image;
use crate::contents::units::{LATER, NOT_REGISTERED, Unit, listed, name, names};
use crate::formats::kernels::shown_name;
use crate::model::OffloadKind;

/// The number of kernels to look for.
pub(super) fn count(unit: &Unit<'_>) -> Option<usize> {
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
pub(super) fn compare(unit: &Unit<'_>) -> (&'static str, Vec<Finding>) {
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
                 --ld-path=DIR/ld.offld (offld links DIR creates DIR)"
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
                let missing = missing(unit, image).into_iter();
                findings.extend(missing.map(|kernel| {
                    missing_kernel(kernel, image, Answer::No, "is registered and not in")
                }));
            }
            None => findings.push(unknown(image)),
        }
    }
    findings
}

/// The kernels that the host registers and that `image` lacks. Empty if the table belongs to
/// several containers, or if kernels cannot be listed.
pub(super) fn missing<'f>(unit: &Unit<'f>, image: &Image) -> Vec<&'f str> {
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
            None => findings.push(unknown(image)),
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

fn unknown(image: &Image) -> Finding {
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
pub(super) fn in_no_container(members: &[String], units: &[Unit<'_>]) -> Vec<Finding> {
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
