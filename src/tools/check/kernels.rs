//! Whether the kernels that the host registers are in every image, and where no table tells which these are, whether the images of
//! a container have the same ones.

use std::collections::{BTreeMap, BTreeSet};

use super::report::{Answer, Finding};
use crate::contents::report::Image;
use crate::contents::units::{Unit, listed, name, names};
use crate::model::{OffloadKind, printable};

/// How many kernels are looked for.
pub(super) fn count(unit: &Unit<'_>) -> Option<usize> {
    match &unit.kernels {
        Some(kernels) if !unit.shares_entries => Some(kernels.len()),
        _ => unit.images.iter().map(|image| listed(image).map(|names| names.len())).max().flatten(),
    }
}

/// What is wrong with the kernels of a unit, and what the answer is based on.
pub(super) fn compare(unit: &Unit<'_>) -> (&'static str, Vec<Finding>) {
    match &unit.kernels {
        _ if unit.kind == OffloadKind::Sycl => {
            let text = "SYCL's images each have some of the kernels, and the host asks for them by name: nothing tells which there must be";
            ("none", vec![Finding::new("unknown-kernels", Answer::Unknown, text)])
        }
        Some(kernels) if !unit.shares_entries => ("entries", with_entries(unit, kernels)),
        _ => ("images", with_each_other(unit)),
    }
}

fn with_entries(unit: &Unit<'_>, kernels: &[Option<&str>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    if unit.images.is_empty() && !kernels.is_empty() {
        let (are, them) = if kernels.len() == 1 { ("kernel is", "it") } else { ("kernels are", "them") };
        let text = format!("{} {are} registered with {}, and there is no image for {them}", kernels.len(), unit.kind.title());
        findings.push(Finding::new("no-image", Answer::No, text));
        return findings;
    }
    let unnamed = kernels.iter().filter(|name| name.is_none()).count();
    if unnamed > 0 {
        let (name, kernels) = if unnamed == 1 { ("name", "kernel") } else { ("names", "kernels") };
        let text = format!("the {name} of {unnamed} registered {kernels} cannot be read");
        findings.push(Finding::new("unknown-kernels", Answer::Unknown, text));
    }
    for image in &unit.images {
        match names(image) {
            Some(names) => {
                let missing = kernels.iter().flatten().filter(|kernel| !names.contains(**kernel));
                findings.extend(missing.map(|kernel| missing_kernel(kernel, image, Answer::No, "is registered and not in")));
            }
            None => findings.push(unknown(image)),
        }
    }
    findings
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
        let text = "the host registers its kernels by code, and with one image there is nothing to compare it with";
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
    let text = format!("kernel `{}` {how} image {} ({})", printable(kernel), image.index, name(image));
    Finding { kernel: Some(kernel.to_owned()), ..Finding::new("missing-kernel", answer, text).of_image(image.index) }
}

fn unknown(image: &Image) -> Finding {
    let text = format!("the kernels of image {} ({}, {}) cannot be listed", image.index, name(image), image.format);
    Finding::new("unknown-kernels", Answer::Unknown, text).of_image(image.index)
}

/// Kernels that are registered from one table for several containers, and that are in none of them.
pub(super) fn in_no_container(members: &[String], units: &[Unit<'_>]) -> Vec<Finding> {
    let mut findings = Vec::new();
    for kind in [OffloadKind::Cuda, OffloadKind::Hip] {
        let own: Vec<&Unit<'_>> = units.iter().filter(|unit| unit.kind == kind && unit.shares_entries).collect();
        let Some(kernels) = own.first().and_then(|unit| unit.kernels.as_ref()) else { continue };
        let images = own.iter().flat_map(|unit| &unit.images);
        let all: Vec<Option<BTreeSet<&str>>> = images.map(|image| names(image)).collect();
        if all.iter().any(Option::is_none) {
            continue;
        }
        for kernel in kernels.iter().flatten().filter(|kernel| !all.iter().flatten().any(|names| names.contains(**kernel))) {
            let text = format!("kernel `{}` is registered with {} and in no image", printable(kernel), kind.title());
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
