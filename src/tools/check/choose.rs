//! Which image a device would load of each unit, and which is the nearest where it would load none.

use super::Asked;
use super::findings;
use super::report::{Answer, FileCheck, Finding, Load, UnitCheck};
use crate::contents::report::Image;
use crate::contents::units::{Unit, name, target};
use crate::model::OffloadKind;
use crate::target::device::{Code, Device, Fit, Wanted};

/// Adds what each of the devices that were asked for loads of each unit that it can be asked about; those that load something, or
/// would have to, are marked in `used`, which is of the length of `asked`.
pub(super) fn all(units: &[Unit<'_>], asked: &[Asked], used: &mut [bool], check: &mut FileCheck) {
    for unit in units {
        let mut loads: Vec<Load> = Vec::new();
        for (asked, used) in asked.iter().zip(used.iter_mut()) {
            if let Some(load) = one(asked, unit, units) {
                *used = true;
                loads.push(load);
            }
        }
        if loads.is_empty() {
            continue;
        }
        check.units.push(UnitCheck {
            members: unit.members.to_vec(),
            runtime: unit.kind.name(),
            place: unit.place.clone(),
            basis: "images",
            kernels: None,
            images: unit.images.iter().map(|image| image.index).collect(),
            targets: unit.images.iter().map(|image| name(image)).collect(),
            answer: loads.iter().map(|load| load.answer).max().unwrap_or(Answer::Unknown),
            loads,
        });
    }
}

/// What is loaded of a unit: of several devices of this machine, by the one that has the best answer. None where the device is none
/// to ask about it.
fn one(asked: &Asked, unit: &Unit<'_>, units: &[Unit<'_>]) -> Option<Load> {
    let about = asked.devices.iter().filter(|wanted| is_about(wanted, unit, units));
    let best = about.map(|wanted| load(unit, wanted)).min_by_key(|load| load.answer);
    best.or_else(|| {
        let text = format!("this machine has no device for {}", unit.kind.title());
        asked.native.then(|| Load { device: "native".to_owned(), answer: Answer::No, image: None, text })
    })
}

/// Whether a device is asked about a unit: it is of a runtime that drives it, and OpenMP's, which drives all, has an image for the
/// vendor or is all that there is.
fn is_about(wanted: &Wanted, unit: &Unit<'_>, units: &[Unit<'_>]) -> bool {
    let drives = |unit: &Unit<'_>| wanted.device.kinds().contains(&unit.kind) && wanted.kind.is_none_or(|kind| kind == unit.kind);
    let others = || units.iter().any(|other| drives(other) && other.kind != OffloadKind::OpenMp);
    let has_vendor = || unit.images.iter().any(|image| wanted.device.is_of_vendor(&target(image)));
    drives(unit) && (unit.kind != OffloadKind::OpenMp || has_vendor() || !others())
}

/// What a device loads of a unit.
fn load(unit: &Unit<'_>, wanted: &Wanted) -> Load {
    let device = &wanted.device;
    let fits: Vec<(&Image, Fit)> = unit.images.iter().map(|image| (*image, takes(device, image))).collect();
    let taken = fits.iter().filter_map(|(image, fit)| match fit {
        Fit::Yes(rank, how) => Some((*rank, *image, how)),
        _ => None,
    });
    // libomptarget takes the first that fits, the other runtimes the best.
    let best = match unit.kind {
        OffloadKind::OpenMp => taken.min_by_key(|(_, image, _)| position(unit, image)),
        _ => taken.max_by_key(|(rank, image, _)| (*rank, std::cmp::Reverse(image.index))),
    };
    let load = |answer, image: Option<&Image>, text| Load {
        device: device.to_string(),
        answer,
        image: image.map(|image| image.index),
        text,
    };
    // What may come before the one that is known to fit.
    let open = fits.iter().find_map(|(image, fit)| match fit {
        Fit::Unknown(why) => Some((*image, why)),
        _ => None,
    });
    match (best, open) {
        (Some((_, image, how)), _) => load(Answer::Yes, Some(image), format!("{}: {how}", name(image))),
        (None, Some((image, why))) => load(Answer::Unknown, Some(image), format!("{}: {why}", name(image))),
        (None, None) => load(Answer::No, None, none(unit, device, &fits)),
    }
}

fn position(unit: &Unit<'_>, image: &Image) -> usize {
    unit.images.iter().position(|other| std::ptr::eq(*other, image)).unwrap_or(usize::MAX)
}

fn takes(device: &Device, image: &Image) -> Fit {
    // Runtimes go by the image's own header, too.
    if let Some(finding) = findings::disagrees(image).filter(|finding| finding.what != "wrong-feature") {
        return Fit::No(finding.text);
    }
    let target = target(image);
    let choice = &image.choice;
    device.takes(&Code {
        target: &target,
        format: image.format,
        gpu: choice.gpu.as_ref(),
        abi_version: choice.abi_version,
        ptx: choice.ptx.as_ref(),
    })
}

/// Why a device takes none of the images, which is the nearest, and what would add one.
fn none(unit: &Unit<'_>, device: &Device, fits: &[(&Image, Fit)]) -> String {
    let add = format!("{} adds one", device.flag(unit.kind));
    let near = fits.iter().filter(|(image, _)| device.is_of_vendor(&target(image)));
    match near.min_by_key(|(image, _)| device.distance(&target(image))) {
        Some((image, Fit::No(why) | Fit::Unknown(why) | Fit::Yes(_, why))) => {
            format!("no image; the nearest is {}: {why}; {add}", name(image))
        }
        None => format!("no image for such a device; {add}"),
    }
}

/// Adds each device for which a file with device code has nothing at all: neither an image nor a registration with a runtime that
/// drives it.
pub(super) fn without_runtime(asked: &[Asked], used: &[bool], check: &mut FileCheck) {
    let unused = asked.iter().zip(used).filter(|(_, used)| !**used).map(|(asked, _)| asked);
    for wanted in unused.flat_map(|asked| &asked.devices) {
        let Some(kind) = wanted.kind.or(wanted.device.kinds().first().copied()) else { continue };
        let text = format!(
            "no image for {}, and no registration with a runtime that drives it; {} adds one",
            wanted.device,
            wanted.device.flag(kind)
        );
        check.findings.push(Finding::new("no-image", Answer::No, text));
    }
}
