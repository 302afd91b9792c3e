//! Check of the device images in files: whether all registered kernels are there, and which image a
//! runtime would load on a device. [`crate::contents`] finds the images and groups them as runtimes
//! see them, and [`offload_formats::registration`] reads the registrations. `findings` looks for
//! errors, `modules` handles images that nothing registers, and `choose` selects the image for a
//! device. `report` is the result, as data and as text.

mod choose;
mod findings;
mod modules;
pub mod report;

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use rayon::prelude::*;

use crate::contents::folders;
use crate::contents::report::{FileReport, UNREADABLE};
use crate::contents::selection::Selection;
use crate::contents::units::{self, Content, Unit};
use crate::contents::{Options, Reader};
use offld_system::native::{self, Machine};
use offld_system::progress::Meter;
use offld_system::session::Session;
use offld_system::threads;
use offload_formats::error::Error;
use offload_formats::model::{OffloadKind, printable};
use offload_formats::target::device::{Device, Wanted};
use report::{Answer, FileCheck, Finding, Report, SCHEMA, UnitCheck};

/// The files and devices to check.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// Files and directories.
    pub files: Vec<PathBuf>,
    /// The devices to look for images for. If empty, the registrations are checked.
    pub asked: Vec<Asked>,
    /// The files and members to check.
    pub selection: Arc<Selection>,
}

/// Checks the files. Errors in the files are in the report. Fails after a signal.
pub fn check(request: &Request, session: &Session) -> Result<Report> {
    let (paths, faults) = folders::selected(&request.files, &request.selection, session);
    let selection = Arc::clone(&request.selection);
    let options = Options {
        kernels: true,
        registered: true,
        packs: true,
        selection,
        ..Options::default()
    };
    let meter = Meter::new(
        session.shell.is_terminal(),
        paths.iter().map(|found| found.size).sum(),
    );
    let reader = Reader::new(options, session).shown_by(&meter);
    let asked = &request.asked;
    let each = |found: &folders::Found| {
        let report = reader.one_of_many(&found.path);
        let checks = if found.is_wanted(&report) {
            file(&report, asked)
        } else {
            Vec::new()
        };
        let named = found.named;
        checks
            .into_iter()
            .map(move |check| (group(&check, named), check))
    };
    let mut grouped: Vec<(modules::Group, FileCheck)> =
        threads::in_parallel(|| paths.par_iter().flat_map_iter(each).collect());
    grouped.extend(
        faults
            .into_iter()
            .flat_map(|(path, error)| file(&reader.unreadable(&path, &error), asked))
            .map(|check| (None, check)),
    );
    let files = answered(grouped, asked);
    drop(meter);
    session.signals.check()?;
    let answer = files
        .iter()
        .map(|file| file.answer)
        .max()
        .unwrap_or(Answer::No);
    let devices = request
        .asked
        .iter()
        .map(|asked| asked.text.clone())
        .collect();
    Ok(Report {
        schema: SCHEMA,
        generator: format!("offld {}", env!("CARGO_PKG_VERSION")),
        answer,
        devices,
        files,
    })
}

/// Checks a file that the caller named and has read with [`Options::kernels`] and
/// [`Options::registered`].
pub(crate) fn of_report(report: &FileReport, asked: &[Asked]) -> Vec<FileCheck> {
    let checks = file(report, asked).into_iter();
    answered(
        checks.map(|check| (group(&check, true), check)).collect(),
        asked,
    )
}

/// Sets the answers on files, for which the other files of their groups count as well.
fn answered(mut grouped: Vec<(modules::Group, FileCheck)>, asked: &[Asked]) -> Vec<FileCheck> {
    let used = used_by_groups(asked, &grouped);
    for (group, check) in &mut grouped {
        let used = group
            .as_ref()
            .and_then(|group| used.get(group))
            .unwrap_or(&check.used)
            .clone();
        conclude(check, asked, &used);
    }
    modules::settle_groups(&mut grouped, asked);
    grouped.into_iter().map(|(_, check)| check).collect()
}

/// The group of a file: the members of its package, or all files that were found in directories.
fn group(check: &FileCheck, named: bool) -> modules::Group {
    if check.members.is_empty() {
        (!named).then(String::new)
    } else {
        Some(check.file.clone())
    }
}

/// Returns for each group which devices load an image from its files, or would have to. One file of
/// a group is enough for a device.
fn used_by_groups(
    asked: &[Asked],
    files: &[(modules::Group, FileCheck)],
) -> BTreeMap<String, Vec<bool>> {
    let mut groups: BTreeMap<String, Vec<bool>> = BTreeMap::new();
    for (group, file) in files {
        let Some(group) = group else { continue };
        let used = groups
            .entry(group.clone())
            .or_insert_with(|| vec![false; asked.len()]);
        used.iter_mut()
            .zip(&file.used)
            .for_each(|(used, loads)| *used |= loads);
    }
    groups
}

/// Sets the answer on a file. `used` marks the devices that some file of its group is for.
fn conclude(check: &mut FileCheck, asked: &[Asked], used: &[bool]) {
    if check.errors.is_empty() && check.findings.is_empty() {
        choose::without_runtime(asked, used, check);
    }
    let decided = check
        .findings
        .iter()
        .map(|finding| finding.answer)
        .chain(check.units.iter().map(|unit| unit.answer))
        .max();
    check.answer = match decided {
        _ if check.kind == UNREADABLE || !check.errors.is_empty() => Answer::Unreadable,
        decided => decided.unwrap_or(Answer::Yes),
    };
}

/// The answers on a file, or on each member of a package.
fn file(report: &FileReport, asked: &[Asked]) -> Vec<FileCheck> {
    // A member of a package counts as a file by itself, but a member of a static library does not.
    let is_packed = ["zip", "tar", "gzip", "xz", "bzip2", "zstd"].contains(&report.kind);
    let mut subjects: BTreeMap<&[String], Subject<'_>> = BTreeMap::new();
    for content in units::contents(report) {
        let members = if is_packed {
            content.members.get(..1).unwrap_or_default()
        } else {
            &[]
        };
        subjects.entry(members).or_default().contents.push(content);
    }
    let names: BTreeMap<&str, &[String]> = subjects
        .keys()
        .filter_map(|members| Some((members.first()?.as_str(), *members)))
        .collect();
    for error in &report.errors {
        let members = place_of_error(error, &report.file, &names).unwrap_or_default();
        subjects
            .entry(members)
            .or_default()
            .errors
            .push(error.clone());
    }
    if subjects.is_empty() {
        subjects.insert(&[], Subject::default());
    }
    subjects
        .into_iter()
        .map(|(members, subject)| check_subject(report, members, subject, asked))
        .collect()
}

/// The subject of an answer: a file, or a member of a package.
#[derive(Default)]
struct Subject<'f> {
    contents: Vec<Content<'f>>,
    errors: Vec<String>,
}

/// The member that an error belongs to. Errors begin with their location: `FILE(MEMBER): …`. A name
/// may have parentheses itself.
fn place_of_error<'f>(
    error: &str,
    file: &str,
    names: &BTreeMap<&str, &'f [String]>,
) -> Option<&'f [String]> {
    let place = error.strip_prefix(file)?.strip_prefix('(')?;
    place
        .match_indices(')')
        .find_map(|(end, _)| names.get(place.get(..end)?).copied())
}

/// The answer on one file, or one member of a package, with everything in it.
fn check_subject(
    report: &FileReport,
    members: &[String],
    subject: Subject<'_>,
    asked: &[Asked],
) -> FileCheck {
    let Subject { contents, errors } = subject;
    let mut check = FileCheck {
        file: report.file.clone(),
        kind: report.kind,
        members: members.to_vec(),
        answer: Answer::Yes,
        units: Vec::new(),
        findings: Vec::new(),
        errors,
        registered: contents
            .iter()
            .filter_map(|content| content.registered)
            .cloned()
            .collect(),
        bare: None,
        used: Vec::new(),
        kinds: Vec::new(),
    };
    let (mut is_empty, mut used) = (true, vec![false; asked.len()]);
    check
        .findings
        .extend(findings::of_packs(report, members, !asked.is_empty()));
    for content in &contents {
        if let Some(finding) = findings::packed_elsewhere(content) {
            check.findings.push(finding);
            is_empty = false;
            continue;
        }
        let units = units::of(content);
        is_empty &= units.is_empty();
        if asked.is_empty() {
            registered(report.kind, content, &units, &mut check);
        } else {
            choose::all(&units, asked, &mut used, &mut check);
        }
    }
    findings::without_consequences(&mut check.findings);
    choose::doubt_some(&mut check);
    check.bare = modules::add(
        units::modules(&contents),
        !is_empty,
        asked,
        &mut used,
        &mut check,
    );
    modules::add_in_data(&contents, asked, &mut used, &mut check);
    is_empty &= contents.iter().all(|content| content.in_data.is_empty());
    if check.errors.is_empty()
        && check.findings.is_empty()
        && is_empty
        && check.bare.is_none()
        && check.units.is_empty()
    {
        check
            .findings
            .push(Finding::new("no-device-code", Answer::No, "no device code"));
    }
    check.used = used;
    check
}

/// Adds the comparison of registrations and images for the units of one object or program.
fn registered(kind: &str, content: &Content<'_>, units: &[Unit<'_>], check: &mut FileCheck) {
    for unit in units {
        let (basis, findings) = findings::compare_kernels(unit);
        let findings: Vec<Finding> = findings
            .into_iter()
            .chain(findings::of_images(unit))
            .map(|one| one.of_unit(unit))
            .collect();
        check.units.push(UnitCheck {
            members: content.members.to_vec(),
            runtime: unit.kind.name(),
            place: unit.place.clone(),
            basis,
            kernels: findings::kernel_count(unit),
            images: unit.images.iter().map(|image| image.index).collect(),
            targets: unit.images.iter().map(|image| units::name(image)).collect(),
            devices: unit
                .images
                .iter()
                .map(|image| units::short_name(image))
                .collect(),
            answer: findings
                .iter()
                .map(|finding| finding.answer)
                .max()
                .unwrap_or(Answer::Yes),
            loads: Vec::new(),
        });
        check.findings.extend(findings);
    }
    check
        .findings
        .extend(findings::kernels_in_no_container(content.members, units));
    check
        .findings
        .extend(findings::of_registrations(kind, content, units));
}

/// Devices to look for images for.
#[derive(Debug, Clone)]
pub struct Asked {
    /// The name that the user passed.
    pub text: String,
    /// Whether the devices are those of this machine. In that case, one that runs the file is
    /// enough.
    pub native: bool,
    /// The devices.
    pub devices: Vec<Wanted>,
}

impl Asked {
    /// The devices that `text` names: `gfx90a:xnack+`, `cuda:sm_90`, `native`.
    ///
    /// # Errors
    /// `text` names no device, or a GPU of this machine although it has none.
    pub fn parse(text: &str) -> Result<Asked> {
        let native = match text.rsplit_once(':') {
            None if text == "native" => Some(None),
            Some((kind, "native")) => OffloadKind::ALL
                .into_iter()
                .find(|known| known.name() == kind)
                .map(Some),
            _ => None,
        };
        let devices = match native {
            Some(kind) => local_devices(kind, text)?,
            None => vec![Wanted::parse(text)?],
        };
        Ok(Asked {
            text: text.to_owned(),
            native: native.is_some(),
            devices,
        })
    }
}

/// The devices of this machine that `kind` drives. Fails if `kind` requires a GPU and there is
/// none.
fn local_devices(kind: Option<OffloadKind>, text: &str) -> Result<Vec<Wanted>> {
    let machine = Machine::read(&native::root())?;
    let mut all = Vec::new();
    for name in machine
        .amd
        .iter()
        .chain(&machine.nvidia)
        .chain([&machine.cpu])
    {
        let mut wanted = Wanted {
            kind,
            ..Wanted::parse(name)?
        };
        if let Device::Nvidia { driver, .. } = &mut wanted.device {
            *driver = machine.driver;
        }
        if kind.is_none_or(|kind| wanted.device.kinds().contains(&kind)) {
            all.push(wanted);
        }
    }
    if all.is_empty() {
        return Err(Error::usage(format!(
            "`{}`: no matching GPU on this machine",
            printable(text)
        ))
        .into());
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_put_to_the_member_that_they_name() {
        let members = ["a.so", "b(1).so"].map(|name| vec![name.to_owned()]);
        let names: BTreeMap<&str, &[String]> = members
            .iter()
            .map(|one| (one[0].as_str(), one.as_slice()))
            .collect();
        for (error, member) in [
            ("f.whl(a.so)+0x10: cut off", Some("a.so")),
            ("f.whl(b(1).so)(inner): cut off", Some("b(1).so")),
            ("f.whl(c.so): cut off (a.so)", None),
            ("f.whl: more (a.so)", None),
            ("other(a.so): cut off", None),
        ] {
            let found = place_of_error(error, "f.whl", &names).map(|members| members[0].as_str());
            assert_eq!(found, member, "{error}");
        }
    }
}
