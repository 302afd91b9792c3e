//! Comparison of one file with the requirements of a rule. For wheels, one requirement compares
//! their tags with their contents.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::str::FromStr;

use anyhow::{Context, Result};
use serde::Deserialize;

use super::files::{File, Subject};
use super::policy::{Check, Limit, Rule, capability};
use super::report::Violation;
use crate::check::report::{Answer, FileCheck, Finding};
use crate::check::{self, Asked};
use crate::contents::report::{FileReport, Image, Step};
use crate::edit::files::wheel::{self, FileName};
use offld_system::io::file_slice::{FileSlice, start_of_zip_member};
use offld_system::session::Session;
use offload_formats::elf::raw::FileHeader;
use offload_formats::error;
use offload_formats::gpu::is_gpu;
use offload_formats::model::printable;
use offload_formats::target::{Selector, device};
use offload_formats::zip::ZipMember;

/// Images of this total size in bytes, or more, must be compressed.
const LEAST_COMPRESSED: u64 = 64 << 10;

/// A violation of `rule`. The caller sets the kernel.
pub(super) fn violation(
    rule: &Rule,
    requirement: impl Into<String>,
    file: &str,
    value: impl Into<String>,
    limit: impl Into<String>,
) -> Violation {
    Violation {
        rule: rule.name.clone(),
        requirement: requirement.into(),
        file: file.to_owned(),
        kernel: None,
        value: value.into(),
        limit: limit.into(),
    }
}

/// The violations of `rule` by one file, except those that compare with a baseline.
///
/// # Errors
/// A signal arrived.
pub(super) fn of_file(rule: &Rule, file: &File, session: &Session) -> Result<Vec<Violation>> {
    session.signals.check()?;
    let mut all = Vec::new();
    for subject in &file.subjects {
        of_subject(rule, subject, &mut all);
    }
    let name = printable(&file.path.display().to_string()).into_owned();
    of_sizes(rule, file, &name, &mut all);
    if rule.has(Check::Registered) {
        all.extend(checked(rule, file.contents(rule, session), None));
    }
    for asked in &rule.runs_on {
        all.extend(checked(rule, file.contents(rule, session), Some(asked)));
    }
    if rule.has(Check::Compressed) || rule.max_driver.is_some() || rule.max_rocm.is_some() {
        of_containers(rule, file.contents(rule, session), &mut all);
    }
    if rule.has(Check::WheelTags) {
        all.extend(wheel_violations(rule, file, &name));
    }
    Ok(all)
}

/// The violations by the images of a file or member.
fn of_subject(rule: &Rule, subject: &Subject, all: &mut Vec<Violation>) {
    let Subject {
        name,
        images,
        debug,
    } = subject;
    let has = || match subject.archs_of(|_| true).as_slice() {
        [] => "no device code".to_owned(),
        archs => archs.join(", "),
    };
    let mut add = |requirement: &str, value: String, limit: String| {
        all.push(violation(rule, requirement, name, value, limit));
    };
    if rule.has(Check::DeviceCode) && images.is_empty() {
        add(
            Check::DeviceCode.name(),
            has(),
            "some device code".to_owned(),
        );
    }
    for selector in &rule.require {
        if !images.iter().any(|image| image.is_selected(selector)) {
            add("require", has(), selector.to_string());
        }
    }
    for selector in &rule.forbid {
        let selected = subject.archs_of(|image| image.is_selected(selector));
        if !selected.is_empty() {
            add("forbid", selected.join(", "), selector.to_string());
        }
    }
    if !rule.only.is_empty() {
        let others =
            subject.archs_of(|image| !rule.only.iter().any(|selector| image.is_selected(selector)));
        if !others.is_empty() {
            let only: Vec<String> = rule.only.iter().map(ToString::to_string).collect();
            add("only", others.join(", "), only.join(", "));
        }
    }
    if let Some(floor) = rule.ptx_floor {
        // PTX for one processor or family (`compute_90a`) runs on no later one.
        let ptx = subject.archs_of(|image| image.format == "ptx");
        if !ptx
            .iter()
            .any(|arch| capability(arch).is_some_and(|own| own <= floor))
        {
            let value = match ptx.as_slice() {
                [] => "no PTX".to_owned(),
                ptx => ptx.join(", "),
            };
            add(
                "ptx-floor",
                value,
                format!("compute_{}{}", floor.0, floor.1),
            );
        }
    }
    if rule.has(Check::NoDebugInfo) && *debug > 0 {
        add(
            Check::NoDebugInfo.name(),
            format!("{debug} bytes of debug information"),
            "none".to_owned(),
        );
    }
}

/// The violations by the sizes of a file, or of the selected members together.
fn of_sizes(rule: &Rule, file: &File, name: &str, all: &mut Vec<Violation>) {
    for (quantity, limit) in &rule.max_size {
        let Limit::Number(limit) = limit else {
            continue;
        };
        let size = quantity.bytes(&file.sizes);
        if size > *limit {
            let requirement = format!("max-size.{quantity}");
            all.push(violation(
                rule,
                requirement,
                name,
                format!("{size} bytes"),
                format!("{limit} bytes"),
            ));
        }
    }
    if rule.has(Check::NoDuplicates) {
        for one in &file.sizes.duplicates.images {
            let value = format!(
                "{} copies of an image for {} in {}",
                one.copies,
                one.arch,
                one.places.join(", ")
            );
            all.push(violation(
                rule,
                Check::NoDuplicates.name(),
                name,
                value,
                "1 copy",
            ));
        }
    }
}

/// The violations that `offld check` finds: in the registrations, or for a device.
fn checked(rule: &Rule, report: &FileReport, asked: Option<&Asked>) -> Vec<Violation> {
    let mut all = Vec::new();
    for checked in &check::of_report(report, asked.map_or(&[], std::slice::from_ref)) {
        let name = place(checked);
        // Another check, `device-code`, is for files without code. A library may leave the runtime
        // to the program that loads it, so an unknown runtime is no violation.
        let finding = |finding: &&Finding| match finding.answer {
            Answer::No => finding.what != "no-device-code",
            Answer::Unknown => finding.what != "missing-runtime",
            _ => false,
        };
        for finding in checked.findings.iter().filter(finding) {
            let requirement = asked.map_or(Check::Registered.name(), |_| "runs-on");
            let limit = asked.map_or("complete registrations", |asked| &asked.text);
            all.push(Violation {
                kernel: finding.kernel.clone(),
                ..violation(rule, requirement, &name, &finding.text, limit)
            });
        }
        let Some(asked) = asked else { continue };
        for load in checked.units.iter().flat_map(|unit| &unit.loads) {
            if matches!(load.answer, Answer::No | Answer::Unknown) {
                all.push(violation(rule, "runs-on", &name, &load.text, &asked.text));
            }
        }
    }
    all.dedup();
    all
}

/// `x.whl(lib/a.so)`.
fn place(checked: &FileCheck) -> String {
    let file = printable(&checked.file);
    match checked.members.first() {
        Some(member) => format!("{file}({})", printable(member)),
        None => file.into_owned(),
    }
}

/// The violations by images that are not compressed, or that need a later driver of NVIDIA or a
/// later ROCm.
fn of_containers(rule: &Rule, report: &FileReport, all: &mut Vec<Violation>) {
    let file = printable(&report.file).into_owned();
    let mut seen = Vec::new();
    let mut plain: BTreeMap<(String, &str), u64> = BTreeMap::new();
    for image in report.images.iter().filter(|image| image.is_device()) {
        let name = match image.members.first() {
            Some(member) => format!("{file}({})", printable(member)),
            None => file.clone(),
        };
        if let Some(container) = uncompressed_in(image) {
            *plain.entry((name.clone(), container)).or_default() += image.size;
        }
        if let Some(limit) = rule.max_driver
            && let Some((driver, why)) = needed_driver(image)
            && driver.is_none_or(|driver| driver > limit)
        {
            let driver = driver.map_or("a later driver".to_owned(), |driver| {
                format!("driver {driver}")
            });
            let value = format!("{why} needs {driver}");
            seen.push(violation(
                rule,
                "max-driver",
                &name,
                value,
                limit.to_string(),
            ));
        }
        if let Some((major, minor)) = rule.max_rocm
            && let Some((needed, why)) = needed_rocm(image)
            && needed > (major, minor)
        {
            let value = format!("{why} needs ROCm {}.{}", needed.0, needed.1);
            seen.push(violation(
                rule,
                "max-rocm",
                &name,
                value,
                format!("{major}.{minor}"),
            ));
        }
    }
    for ((name, container), size) in plain {
        if rule.has(Check::Compressed) && size >= LEAST_COMPRESSED {
            let value = format!("{size} bytes of images in {container} are not compressed");
            seen.push(violation(
                rule,
                Check::Compressed.name(),
                &name,
                value,
                "compression",
            ));
        }
    }
    seen.sort_by(|one, other| (&one.file, &one.value).cmp(&(&other.file, &other.value)));
    seen.dedup();
    all.extend(seen);
}

/// The container of an image, if it could be compressed and is not. The compression of a wheel does
/// not count, because it does not make the installed files smaller.
fn uncompressed_in(image: &Image) -> Option<&'static str> {
    let is_plain = match image.container? {
        "bundle" => !image.path.iter().any(|step| {
            matches!(
                step,
                Step::Container {
                    compression: Some(_),
                    ..
                }
            )
        }),
        "fatbinary" => image.choice.compression.is_none(),
        _ => false,
    };
    image.container.filter(|_| is_plain)
}

/// The version of NVIDIA's driver that an image needs, with the reason. The version is `None` if no
/// driver in the table reads the image's version of PTX.
fn needed_driver(image: &Image) -> Option<(Option<u32>, String)> {
    // R550 is the first driver that reads zstd in fatbinaries.
    const READS_ZSTD: u32 = 550;
    let ptx = image.choice.ptx.as_ref().and_then(|head| head.version);
    let of_ptx = ptx.map(|version| {
        (
            device::first_driver_for_ptx(version),
            format!("PTX {}.{}", version.0, version.1),
        )
    });
    let of_zstd = (image.choice.compression == Some("zstd")).then(|| {
        (
            Some(READS_ZSTD),
            "a fatbinary compressed with zstd".to_owned(),
        )
    });
    // A driver that the table lacks counts as later than all others.
    let key = |found: &(Option<u32>, String)| found.0.unwrap_or(u32::MAX);
    of_ptx.into_iter().chain(of_zstd).max_by_key(key)
}

/// The ROCm that an image needs, with the reason; none if all releases that matter load it.
fn needed_rocm(image: &Image) -> Option<((u32, u32), String)> {
    let is_v3 = |step: &Step| {
        matches!(
            step,
            Step::Container {
                name: "compressed-bundle",
                version: Some(3..),
                ..
            }
        )
    };
    if image.path.iter().any(is_v3) {
        return Some(((7, 0), "version 3 of compressed bundles".to_owned()));
    }
    if image.format == "spirv" && image.triple.contains("-amd") {
        return Some(((7, 0), "SPIR-V for AMD GPUs".to_owned()));
    }
    image
        .target
        .contains("-generic")
        .then(|| ((6, 3), format!("code for {}", image.target)))
}

// The tags of a wheel: the file name, the `WHEEL` file (PEP 427), the machines of its host code,
// and the properties of its variant (PEP 825).

/// The size of the largest ELF file header.
const ELF_START: u64 = 64;
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
fn wheel_violations(rule: &Rule, file: &File, name: &str) -> Vec<Violation> {
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
    Ok(FileHeader::read(&start)
        .ok()
        .map(|(_, header)| header.machine)
        .filter(|machine| !is_gpu(*machine))
        .map(|machine| machine.0))
}
