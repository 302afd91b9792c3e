//! Answers on images that no host code registers. Images in files of their own are modules, which a
//! program loads by file name, device libraries in bitcode, which compilers link, or shaders, which
//! Vulkan loads. Images in plain data are loaded by the program itself. offld cannot determine
//! which of these images a program needs. For this reason, one fitting module in a directory or
//! package is enough, a library next to programs does not influence the answer, and the answer on
//! data is `unknown`.

use std::collections::BTreeMap;

use super::choose::{self, load};
use super::report::{Answer, Bare, FileCheck, Finding, Load, UnitCheck};
use super::{Asked, findings};
use crate::contents::report::Image;
use crate::contents::units::{Content, Unit, name, short_name, target, unit_of_modules};
use offload_formats::target::device::{Fit, Wanted};

/// The name in reports for the runtime of modules and of images in plain data.
const MODULE: &str = "module";

/// Adds the answers on the images of a file that nothing registers. Returns the category of the
/// file if it has no other images. `has_units`: it has other images.
pub(super) fn add(
    images: Vec<&Image>,
    has_units: bool,
    asked: &[Asked],
    used: &mut [bool],
    check: &mut FileCheck,
) -> Option<Bare> {
    let is_one = |image: &&Image| {
        image.format == "bitcode" || image.choice.is_relocatable || image.choice.is_shader
    };
    let is_library = images.iter().all(is_one);
    let is_shader = images.iter().all(|image| image.choice.is_shader);
    if images.is_empty() || has_units && is_library {
        return None;
    }
    let members = check.members.clone();
    let unit = unit_of_modules(images, &members, "");
    let kinds = unit
        .images
        .iter()
        .map(|image| target(image).kind_of_modules());
    check.kinds.extend(kinds.flatten());
    let mut loads = Vec::new();
    for (asked, used) in asked.iter().zip(used) {
        let about = asked.devices.iter().filter(|wanted| is_for(wanted, &unit));
        if let Some(load) = about
            .map(|wanted| load(&unit, wanted))
            .min_by_key(|load| load.answer)
        {
            // Shaders do not count: the other files of the group must have code for the device.
            *used |= !is_shader;
            loads.push(load);
        }
    }
    let found = if asked.is_empty() {
        of_modules(&unit)
    } else {
        Vec::new()
    };
    let answers = found
        .iter()
        .map(|finding| finding.answer)
        .chain(loads.iter().map(|load| load.answer));
    if let Some(answer) = answers.max() {
        check.units.push(unit_check(&unit, answer, loads));
    }
    check.findings.extend(found);
    let bare = if is_library {
        Bare::Libraries
    } else {
        Bare::Modules
    };
    (!has_units).then_some(bare)
}

fn unit_check(unit: &Unit<'_>, answer: Answer, loads: Vec<Load>) -> UnitCheck {
    UnitCheck {
        members: unit.members.to_vec(),
        runtime: MODULE,
        place: unit.place.clone(),
        basis: if loads.is_empty() { "none" } else { "images" },
        kernels: findings::kernel_count(unit).filter(|_| loads.is_empty()),
        images: unit.images.iter().map(|image| image.index).collect(),
        targets: unit.images.iter().map(|image| name(image)).collect(),
        devices: unit.images.iter().map(|image| short_name(image)).collect(),
        answer,
        loads,
    }
}

fn of_modules(unit: &Unit<'_>) -> Vec<Finding> {
    let text = "no host code registers these images: a program loads them by file name, so the needed kernels are unknown";
    let one = |finding: Finding| Finding {
        runtime: Some(MODULE),
        members: unit.members.to_vec(),
        ..finding
    };
    findings::of_each(unit)
        .into_iter()
        .chain([Finding::new("not-registered", Answer::Unknown, text)])
        .map(one)
        .collect()
}

/// Adds the answers on the images in plain data. A registered container without code for a device
/// may be unused if the data has code for the device.
pub(super) fn add_in_data(
    contents: &[Content<'_>],
    asked: &[Asked],
    used: &mut [bool],
    check: &mut FileCheck,
) {
    let images: Vec<&Image> = contents
        .iter()
        .flat_map(|content| content.in_data.iter().copied())
        .collect();
    if images.is_empty() {
        return;
    }
    let members = check.members.clone();
    let unit = unit_of_modules(images, &members, "data");
    let mut loads = Vec::new();
    for (asked, used) in asked.iter().zip(used) {
        let Some(wanted) = asked.devices.iter().find(|wanted| is_for(wanted, &unit)) else {
            continue;
        };
        *used = true;
        let fitting = unit
            .images
            .iter()
            .filter(|image| matches!(choose::takes(&wanted.device, image), Fit::Yes(..)))
            .count();
        let text = format!(
            "{} in data sections, which the program loads itself; {fitting} fit the device, but the needed ones are unknown",
            images_of(unit.images.len())
        );
        let device = wanted.device.to_string();
        if fitting > 0 {
            let why = format!(
                "{} in data sections, which the program loads itself, fit the device",
                images_of(fitting)
            );
            for unit in &mut check.units {
                let loads = unit
                    .loads
                    .iter_mut()
                    .filter(|load| load.device == device && load.is_missing());
                loads.for_each(|load| load.doubt(&why));
                unit.conclude();
            }
        }
        loads.push(Load {
            device,
            answer: Answer::Unknown,
            image: None,
            text,
        });
    }
    if asked.is_empty() {
        let images = images_of(unit.images.len());
        let text = format!(
            "the program itself loads {images} in data sections: the needed kernels are unknown"
        );
        let finding = Finding::new("not-registered", Answer::Unknown, text);
        check.findings.push(Finding {
            runtime: Some(MODULE),
            members: unit.members.to_vec(),
            ..finding
        });
    }
    if asked.is_empty() || !loads.is_empty() {
        check.units.push(unit_check(&unit, Answer::Unknown, loads));
    }
}

fn images_of(count: usize) -> String {
    if count == 1 {
        "1 image".to_owned()
    } else {
        format!("{count} images")
    }
}

/// Whether images of a unit are for hardware of this vendor, or do not name their hardware.
fn is_for(wanted: &Wanted, unit: &Unit<'_>) -> bool {
    let mut targets = unit.images.iter().map(|image| target(image));
    targets.any(|target| target.triple.is_empty() || wanted.device.is_of_vendor(&target))
}

/// The group of a file: a package, or the inspected directories.
pub(super) type Group = Option<String>;

/// Decides which files with only modules and libraries influence the answer, in view of the other
/// files of their group.
pub(super) fn settle_groups(files: &mut [(Group, FileCheck)], asked: &[Asked]) {
    let mut groups: BTreeMap<String, Vec<usize>> = BTreeMap::new();
    for (place, (group, _)) in files.iter().enumerate() {
        if let Some(group) = group {
            groups.entry(group.clone()).or_default().push(place);
        }
    }
    for places in groups.into_values().filter(|places| places.len() > 1) {
        let neighbours = Neighbours::new(places.iter().map(|place| &files[*place].1));
        for place in places {
            neighbours.decide(&mut files[place].1, asked);
        }
    }
}

/// The contents of the files of a group.
#[derive(Default)]
struct Neighbours {
    /// Whether a file has registered images.
    programs: bool,
    /// Whether a file has modules.
    modules: bool,
    /// The devices that load a module, or may load one.
    loaded: Vec<String>,
    /// The devices that the programs have images for, or may have.
    driven: Vec<String>,
}

impl Neighbours {
    fn new<'f>(files: impl Iterator<Item = &'f FileCheck>) -> Neighbours {
        let mut neighbours = Neighbours::default();
        for file in files {
            let loads = file
                .units
                .iter()
                .flat_map(|unit| &unit.loads)
                .filter(|load| load.answer < Answer::No);
            let devices = loads.map(|load| load.device.clone());
            match file.bare {
                Some(Bare::Modules) => {
                    neighbours.modules = true;
                    neighbours.loaded.extend(devices);
                }
                Some(Bare::Libraries) => {}
                None => {
                    neighbours.programs |= !file.units.is_empty();
                    neighbours.driven.extend(devices);
                }
            }
        }
        neighbours.loaded.sort();
        neighbours.loaded.dedup();
        neighbours
    }

    /// Weakens the answers on a file of modules or libraries that does not matter in this group.
    fn decide(&self, file: &mut FileCheck, asked: &[Asked]) {
        let Some(bare) = file.bare.filter(|_| file.errors.is_empty()) else {
            return;
        };
        let is_secondary = match bare {
            Bare::Libraries => self.programs || self.modules,
            Bare::Modules => self.programs,
        };
        // Modules for another vendor (no units) do not matter if other files serve all devices.
        let has = |device: &String| self.loaded.contains(device) || self.driven.contains(device);
        let is_elsewhere = |asked: &Asked| {
            asked
                .devices
                .iter()
                .any(|wanted| has(&wanted.device.to_string()))
        };
        if file.units.is_empty() && !asked.is_empty() && asked.iter().all(is_elsewhere) {
            file.answer = Answer::NotApplicable;
            file.findings
                .iter_mut()
                .for_each(|finding| finding.answer = finding.answer.min(Answer::Yes));
            return;
        }
        for unit in &mut file.units {
            for load in &mut unit.loads {
                load.answer = match load.answer {
                    _ if bare == Bare::Libraries && is_secondary => Answer::NotApplicable,
                    Answer::No if self.loaded.contains(&load.device) => Answer::NotApplicable,
                    Answer::No if self.driven.contains(&load.device) => Answer::Unknown,
                    answer => answer,
                };
            }
            let answers = unit.loads.iter().map(|load| load.answer);
            unit.answer = answers.max().unwrap_or(if is_secondary {
                Answer::NotApplicable
            } else {
                unit.answer
            });
        }
        if is_secondary {
            file.findings
                .iter_mut()
                .for_each(|finding| finding.answer = finding.answer.min(Answer::Yes));
        }
        let decided = file.units.iter().map(|unit| unit.answer).max();
        file.answer = decided.unwrap_or(file.answer);
    }
}
