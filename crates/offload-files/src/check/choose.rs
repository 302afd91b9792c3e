//! Choice of the image that a device would load from each unit, and of the nearest image if it
//! would load none.

use std::collections::BTreeMap;

use super::report::{Answer, FileCheck, Finding, Load, UnitCheck};
use super::{Asked, findings};
use crate::contents::packs;
use crate::contents::report::Image;
use crate::contents::units::{Unit, name, short_name, target};
use offload_formats::kernels::shown_name;
use offload_formats::model::{OffloadKind, printable};
use offload_formats::offload_sections::CUDA_PRELINKED;
use offload_formats::target::device::{Code, Device, Fit, Wanted};

/// Adds the image that each requested device loads from each unit that is relevant to it. Devices
/// that load an image, or would have to, are marked in `used`, which has the length of `asked`.
pub(super) fn all(units: &[Unit<'_>], asked: &[Asked], used: &mut [bool], check: &mut FileCheck) {
    let is_prelinked = |unit: &Unit<'_>| {
        !unit.images.is_empty()
            && unit
                .images
                .iter()
                .all(|image| image.section.as_deref() == Some(CUDA_PRELINKED))
    };
    let (prelinked, mut linked): (Vec<&Unit<'_>>, Vec<&Unit<'_>>) =
        units.iter().partition(|unit| is_prelinked(unit));
    if !linked.iter().any(|unit| unit.kind == OffloadKind::Cuda) {
        linked = units.iter().collect();
    }
    check.kinds.extend(units.iter().map(|unit| unit.kind));
    for unit in linked {
        let mut loads: Vec<Load> = Vec::new();
        for (asked, used) in asked.iter().zip(used.iter_mut()) {
            if let Some(mut load) = best_load(asked, unit, units) {
                *used = true;
                // The user may name a device twice, as in `sm_90,h100`.
                if loads.iter().any(|known| known.device == load.device) {
                    continue;
                }
                if unit.kind == OffloadKind::Cuda && can_be_linked(asked, &load, &prelinked) {
                    load.doubt(
                        "the relocatable code in the file fits it, and the driver may link that",
                    );
                }
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
            devices: unit.images.iter().map(|image| short_name(image)).collect(),
            answer: loads
                .iter()
                .map(|load| load.answer)
                .max()
                .unwrap_or(Answer::Unknown),
            loads,
        });
    }
}

/// The image that a device loads from a unit. If the request names several devices of this machine,
/// the best answer counts. None if the unit is not relevant to the device.
fn best_load(asked: &Asked, unit: &Unit<'_>, units: &[Unit<'_>]) -> Option<Load> {
    let about = asked
        .devices
        .iter()
        .filter(|wanted| is_about(wanted, unit, units));
    about
        .map(|wanted| load(unit, wanted))
        .min_by_key(|load| load.answer)
}

/// Whether a unit is relevant to a device. Its runtime must drive the device. An OpenMP unit, whose
/// runtime drives all devices, must also have an image for the vendor or be the only kind of unit.
fn is_about(wanted: &Wanted, unit: &Unit<'_>, units: &[Unit<'_>]) -> bool {
    let drives = |unit: &Unit<'_>| {
        wanted.device.kinds().contains(&unit.kind)
            && wanted.kind.is_none_or(|kind| kind == unit.kind)
    };
    let others = || {
        units
            .iter()
            .any(|other| drives(other) && other.kind != OffloadKind::OpenMp)
    };
    let has_vendor = || {
        unit.images
            .iter()
            .any(|image| wanted.device.is_of_vendor(&target(image)))
    };
    drives(unit) && (unit.kind != OffloadKind::OpenMp || has_vendor() || !others())
}

/// The image that a device loads from a unit.
pub(super) fn load(unit: &Unit<'_>, wanted: &Wanted) -> Load {
    let device = &wanted.device;
    let load = load_of(unit, device);
    if load.answer == Answer::Unknown {
        of_each_setting(unit, device).unwrap_or(load)
    } else {
        load
    }
}

/// The answer for a device if its settings are unknown, and some image fits each of them, for
/// example `gfx90a:xnack+` or `gfx90a:xnack-`.
fn of_each_setting(unit: &Unit<'_>, device: &Device) -> Option<Load> {
    let settings = device.with_each_setting();
    let loads: Vec<Load> = settings
        .iter()
        .map(|device| load_of(unit, device))
        .collect();
    if loads.iter().any(|load| load.answer != Answer::Yes) {
        return None;
    }
    let is_loaded = |image: &&&Image| loads.iter().any(|load| load.image == Some(image.index));
    let images = unit.images.iter().filter(is_loaded);
    let names: Vec<String> = images.map(|image| short_name(image)).collect();
    Some(Load {
        device: device.to_string(),
        text: format!("code for {}", names.join(" and ")),
        ..loads.into_iter().next()?
    })
}

/// The image that a device with these settings loads from a unit.
fn load_of(unit: &Unit<'_>, device: &Device) -> Load {
    let fits: Vec<(&Image, Fit)> = unit
        .images
        .iter()
        .map(|image| (*image, takes(device, image)))
        .collect();
    let taken = fits.iter().filter_map(|(image, fit)| match fit {
        Fit::Yes(rank, how) => Some((*rank, *image, how)),
        _ => None,
    });
    // libomptarget takes the first image that fits, the other runtimes take the best.
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
    // An image without a certain answer may take precedence over the fitting one.
    let open = fits.iter().find_map(|(image, fit)| match fit {
        Fit::Unknown(why) => Some((*image, why)),
        _ => None,
    });
    let unsure = |image: &Image| findings::unknown_resources(image).map(|finding| finding.text);
    match (best, open) {
        (Some((_, image, _)), _) if unsure(image).is_some() => load(
            Answer::Unknown,
            Some(image),
            unsure(image).unwrap_or_default(),
        ),
        (Some((_, image, how)), _) => match findings::missing_kernels(unit, image).first() {
            Some(kernel) => load(
                Answer::No,
                Some(image),
                format!(
                    "{how}, but registered kernel `{}` is not in image {}",
                    shown_name(kernel),
                    image.index
                ),
            ),
            None => load(Answer::Yes, Some(image), how.clone()),
        },
        (None, Some((image, why))) => load(
            Answer::Unknown,
            Some(image),
            format!("image {} ({}): {why}", image.index, short_name(image)),
        ),
        (None, None) if is_void(unit) => {
            load(Answer::Yes, None, "the images have no code".to_owned())
        }
        (None, None) => load(Answer::No, None, no_image_text(unit, device, &fits)),
    }
}

/// Whether the images of a unit have no code and no data.
fn is_void(unit: &Unit<'_>) -> bool {
    !unit.images.is_empty() && unit.images.iter().all(|image| image.is_void)
}

/// Whether a driver could link the relocatable code of a program for a device that loads no linked
/// image.
fn can_be_linked(asked: &Asked, load: &Load, prelinked: &[&Unit<'_>]) -> bool {
    let fits = |wanted: &Wanted| {
        prelinked
            .iter()
            .all(|unit| self::load(unit, wanted).answer == Answer::Yes)
    };
    let mut devices = asked
        .devices
        .iter()
        .filter(|wanted| wanted.device.to_string() == load.device);
    load.is_missing() && !prelinked.is_empty() && devices.any(fits)
}

/// Changes the answer to unknown for a fatbinary without an image for a device, if other
/// fatbinaries of the file have one. A library may have kernels for each processor in separate
/// fatbinaries, and the CUDA runtime looks for an image only when a kernel is launched.
pub(super) fn doubt_some(check: &mut FileCheck) {
    let is_cuda = |unit: &&mut UnitCheck| unit.runtime == OffloadKind::Cuda.name();
    let mut fitting: BTreeMap<String, usize> = BTreeMap::new();
    for load in check
        .units
        .iter_mut()
        .filter(is_cuda)
        .flat_map(|unit| &unit.loads)
        .filter(|load| load.answer == Answer::Yes && load.image.is_some())
    {
        *fitting.entry(load.device.clone()).or_default() += 1;
    }
    for unit in check.units.iter_mut().filter(is_cuda) {
        for load in unit.loads.iter_mut().filter(|load| load.is_missing()) {
            match fitting.get(&load.device) {
                Some(1) => load.doubt(
                    "another fatbinary fits it, and which ones the program needs is unknown",
                ),
                Some(count) => load.doubt(&format!(
                    "{count} other fatbinaries fit it, and which ones the program needs is unknown"
                )),
                None => {}
            }
        }
        unit.conclude();
    }
}

fn position(unit: &Unit<'_>, image: &Image) -> usize {
    unit.images
        .iter()
        .position(|other| std::ptr::eq(*other, image))
        .unwrap_or(usize::MAX)
}

pub(super) fn takes(device: &Device, image: &Image) -> Fit {
    // Runtimes also check the image's own header.
    if let Some(finding) =
        findings::disagrees(image).filter(|finding| finding.what != "wrong-feature")
    {
        return Fit::No(finding.text);
    }
    let target = target(image);
    let choice = &image.choice;
    // Objects in a host object are linked with it.
    if choice.is_relocatable && image.section.is_none() {
        return Fit::Unknown("a relocatable object, which is not linked yet".to_owned());
    }
    device.takes(&Code {
        target: &target,
        format: image.format,
        gpu: choice.gpu.as_ref(),
        abi_version: choice.abi_version,
        ptx: choice.ptx.as_ref(),
    })
}

/// The reason why a device takes none of the images, the nearest image, and the option that would
/// add one.
fn no_image_text(unit: &Unit<'_>, device: &Device, fits: &[(&Image, Fit)]) -> String {
    let flag = device.flag(unit.kind);
    let add = if unit.images.iter().any(|image| packs::is_packed(image)) {
        format!("install a kpack archive for {device}, or compile with {flag}")
    } else {
        format!("add one with {flag}")
    };
    let near = fits
        .iter()
        .filter(|(image, _)| device.is_of_vendor(&target(image)));
    match near.min_by_key(|(image, _)| device.distance(&target(image))) {
        Some((image, Fit::No(why) | Fit::Unknown(why) | Fit::Yes(_, why))) => {
            // A different processor needs no further reason.
            let short = short_name(image);
            let why = if *why == format!("built for {short}") {
                String::new()
            } else {
                format!(" ({why})")
            };
            format!("the nearest image is for {short}{why}; {add}")
        }
        None => format!("no image; {add}"),
    }
}

/// Adds a finding for each device for which a file with device code has neither an image nor a
/// registration with a runtime that drives it. Devices marked in `elsewhere` do not count, because
/// another file of the same wheel or directory is for them. A file that is for none of the devices
/// is then not applicable.
pub(super) fn without_runtime(asked: &[Asked], elsewhere: &[bool], check: &mut FileCheck) {
    if !asked.is_empty() && check.units.is_empty() && elsewhere.iter().all(|used| *used) {
        let devices = asked
            .iter()
            .map(|asked| asked.text.as_str())
            .collect::<Vec<_>>()
            .join(", ");
        let text = format!(
            "no runtime that drives {} loads its images; the answers for other files decide",
            printable(&devices)
        );
        check
            .findings
            .push(Finding::new("not-applicable", Answer::NotApplicable, text));
        return;
    }
    let kinds = OffloadKind::ALL
        .into_iter()
        .filter(|kind| check.kinds.contains(kind));
    let runtimes = kinds
        .map(OffloadKind::title)
        .collect::<Vec<_>>()
        .join(" and ");
    let unused = asked
        .iter()
        .zip(elsewhere)
        .filter(|(_, used)| !**used)
        .map(|(asked, _)| asked);
    // The user chose no device, so an option that adds an image for one does not help.
    let (of_machine, named): (Vec<&Asked>, Vec<&Asked>) =
        unused.partition(|asked| asked.native && !runtimes.is_empty());
    if !of_machine.is_empty() {
        let text = format!("this machine has no device for {runtimes}");
        check
            .findings
            .push(Finding::new("no-image", Answer::No, text));
    }
    for wanted in named.into_iter().flat_map(|asked| &asked.devices) {
        // Most programs for a GPU use the programming model of its vendor.
        let kinds = wanted.device.kinds();
        let of_vendor = kinds.iter().find(|kind| **kind != OffloadKind::OpenMp);
        let Some(kind) = wanted.kind.or(of_vendor.or(kinds.first()).copied()) else {
            continue;
        };
        let (device, flag) = (&wanted.device, wanted.device.flag(kind));
        let text = if runtimes.is_empty() {
            format!("no image for {device}; add one with {flag}")
        } else {
            format!(
                "no image for {device}: the file has only {runtimes} code; build or install a version with {} code ({flag})",
                kind.title()
            )
        };
        check
            .findings
            .push(Finding::new("no-image", Answer::No, text));
    }
}
