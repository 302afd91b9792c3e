//! Comparison of the tags of a wheel with its contents: the file name, the `WHEEL` file (PEP 427),
//! the machines of its host code, and the properties of its variant (PEP 825).

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::files::File;
use super::policy::{Check, Rule};
use super::report::Violation;
use super::rules::violation;
use crate::edit::files::wheel::{self, FileName};
use offld_system::io::file_slice::{FileSlice, start_of_zip_member};
use offload_formats::error;
use offload_formats::model::printable;
use offload_formats::target::Selector;
use offload_formats::zip::ZipMember;

/// The bytes of an ELF file up to its machine.
const ELF_START: u64 = 20;
/// The machines of device code in ELF files: AMD GPUs, NVIDIA GPUs, Intel GPUs.
const DEVICES: [u16; 3] = [224, 190, 205];
/// The machines of host code, each with the ends of platform tags that it belongs to.
const MACHINES: [(u16, &str, &[&str]); 8] = [
    (3, "i686", &["_i686", "_i386"]),
    (62, "x86_64", &["_x86_64"]),
    (40, "armv7l", &["_armv7l", "_armv6l"]),
    (183, "aarch64", &["_aarch64"]),
    (21, "ppc64le", &["_ppc64le", "_ppc64"]),
    (22, "s390x", &["_s390x"]),
    (243, "riscv64", &["_riscv64"]),
    (258, "loongarch64", &["_loongarch64"]),
];

/// `variant.json` in the metadata of a wheel: properties by label, provider and feature.
#[derive(Deserialize)]
struct Variants {
    variants: BTreeMap<String, BTreeMap<String, BTreeMap<String, Vec<String>>>>,
}

/// The violations by a wheel. Other files have none, and a wheel that cannot be read has one.
pub(super) fn violations(rule: &Rule, file: &File, name: &str) -> Vec<Violation> {
    let Some(own) = file.path.file_name().and_then(|own| own.to_str()) else {
        return Vec::new();
    };
    if !own.ends_with(".whl") {
        return Vec::new();
    }
    let violation =
        |value: String, limit: String| violation(rule, Check::WheelTags.name(), name, value, limit);
    let Some(parsed) = FileName::parse(own) else {
        let limit = "NAME-VERSION-PYTHON-ABI-PLATFORM.whl".to_owned();
        return vec![violation(
            format!("the file name {}", printable(own)),
            limit,
        )];
    };
    let found = Found::read(&file.path)
        .and_then(|found| found.compared(&parsed, file))
        .unwrap_or_else(|error| vec![(error::chain(&error), "a readable wheel".to_owned())]);
    found
        .into_iter()
        .map(|(value, limit)| violation(value, limit))
        .collect()
}

/// The contents of a wheel that its tags describe.
#[derive(Default)]
struct Found {
    /// The `Tag` lines of `WHEEL`.
    tags: BTreeSet<String>,
    /// The first host program or library of each machine, by its ELF number.
    hosts: BTreeMap<u16, String>,
    variants: Option<Variants>,
}

impl Found {
    fn read(path: &Path) -> Result<Found> {
        let piece = FileSlice::open(path)?;
        let zip = wheel::opened(path, &piece)?;
        let mut found = Found::default();
        for member in wheel::members(path, &zip)? {
            let shown = member.shown_name();
            if wheel::is_metadata(member.name, "WHEEL") {
                let text = wheel::text(&piece, &member)?;
                let tags = text.lines().filter_map(|line| line.strip_prefix("Tag:"));
                found.tags = tags.map(|tag| tag.trim().to_owned()).collect();
            } else if wheel::is_metadata(member.name, "variant.json") {
                let text = wheel::text(&piece, &member)?;
                let variants = serde_json::from_str(&text);
                found.variants = Some(variants.with_context(|| shown.clone())?);
            } else if let Some(machine) = host_machine(&piece, &member)? {
                found.hosts.entry(machine).or_insert(shown);
            }
        }
        Ok(found)
    }

    /// The contradictions: the actual contents of the wheel, each with the expected ones.
    fn compared(&self, name: &FileName<'_>, file: &File) -> Result<Vec<(String, String)>> {
        let mut all = Vec::new();
        let (claimed, tags) = (name.all(), &self.tags);
        if claimed != *tags {
            let listed = |tags: &BTreeSet<String>| {
                let tags: Vec<&str> = tags.iter().map(String::as_str).collect();
                printable(&tags.join(", ")).into_owned()
            };
            let value = match listed(tags) {
                none if none.is_empty() => "no Tag in WHEEL".to_owned(),
                tags => format!("Tag {tags} in WHEEL"),
            };
            all.push((value, format!("{}, as in the file name", listed(&claimed))));
        }
        all.extend(self.foreign_hosts(name.tags[2]));
        if let Some(label) = name.label {
            let known = self
                .variants
                .as_ref()
                .and_then(|variants| variants.variants.get(label));
            match known {
                Some(properties) => all.extend(unmet(label, properties, file)),
                None => all.push((
                    "no such label in variant.json".to_owned(),
                    format!("the label {}", printable(label)),
                )),
            }
        }
        Ok(all)
    }

    /// Host code for machines that the platform tags do not name.
    fn foreign_hosts(&self, platforms: &str) -> Vec<(String, String)> {
        let is_of = |machine: u16| {
            let ends = MACHINES.iter().find(|(number, ..)| *number == machine);
            let ends = ends.map_or(&[][..], |(.., ends)| *ends);
            let mut platforms = platforms.split('.');
            platforms.any(|platform| ends.iter().any(|end| platform.ends_with(end)))
        };
        let foreign = self.hosts.iter().filter(|(machine, _)| !is_of(**machine));
        let text = |(machine, member): (&u16, &String)| {
            let known = MACHINES.iter().find(|(number, ..)| number == machine);
            let machine = known.map_or(format!("ELF machine {machine}"), |(_, name, _)| {
                (*name).to_owned()
            });
            (
                format!("{member} is for {machine}"),
                format!("the platform {}", printable(platforms)),
            )
        };
        foreign.map(text).collect()
    }
}

/// The properties of a variant that no image of the wheel has.
fn unmet(
    label: &str,
    properties: &BTreeMap<String, BTreeMap<String, Vec<String>>>,
    file: &File,
) -> Vec<(String, String)> {
    let archs = || {
        let subjects = file.subjects.iter();
        let archs: BTreeSet<&str> = subjects.flat_map(|one| one.archs_of(|_| true)).collect();
        if archs.is_empty() {
            "no device code".to_owned()
        } else {
            Vec::from_iter(archs).join(", ")
        }
    };
    let mut all = Vec::new();
    for (provider, feature, value) in properties.iter().flat_map(|(provider, features)| {
        features.iter().flat_map(move |(feature, values)| {
            values.iter().map(move |value| (provider, feature, value))
        })
    }) {
        let needed: Vec<String> = match (provider.as_str(), feature.as_str()) {
            ("nvidia", "sm_arch") => match value.split_once('_') {
                Some((arch, "real")) => vec![format!("sm_{arch}")],
                Some((arch, "virtual")) => vec![format!("compute_{arch}")],
                _ => vec![format!("sm_{value}"), format!("compute_{value}")],
            },
            ("amd", "gfx_arch") => vec![value.clone()],
            _ => continue,
        };
        for arch in needed {
            let is_there = Selector::from_str(&arch).is_ok_and(|selector| {
                let mut images = file.subjects.iter().flat_map(|one| &one.images);
                images.any(|image| image.is_selected(&selector) && image.arch.starts_with(&arch))
            });
            if !is_there {
                let claim = format!("{provider} :: {feature} :: {value} of the variant {label}");
                all.push((archs(), format!("{arch}, by {}", printable(&claim))));
            }
        }
    }
    all
}

/// The machine of a member that is a program or library for hosts.
fn host_machine(wheel: &FileSlice, member: &ZipMember<'_>) -> Result<Option<u16>> {
    let start = start_of_zip_member(wheel, member, ELF_START)?;
    let Some(&[low, high]) = start.get(18..20).and_then(|bytes| bytes.first_chunk()) else {
        return Ok(None);
    };
    let machine = match start.get(..6) {
        Some(b"\x7fELF\x01\x01" | b"\x7fELF\x02\x01") => u16::from_le_bytes([low, high]),
        Some(b"\x7fELF\x01\x02" | b"\x7fELF\x02\x02") => u16::from_be_bytes([low, high]),
        _ => return Ok(None),
    };
    Ok(Some(machine).filter(|machine| !DEVICES.contains(machine)))
}
