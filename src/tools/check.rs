//! Whether what a file registers is there, and which of its images a runtime would load on a device. What is in a file is found by
//! [`crate::contents`], what it registers by [`crate::registration`]; `units` puts images together as runtimes see them, `kernels`
//! and `findings` look for what is wrong with them, `choose` for the image that a device takes; `report` is the result as data and
//! `text` as text.

mod choose;
mod findings;
mod kernels;
pub(crate) mod report;
pub(crate) mod text;
mod units;

use std::collections::BTreeMap;
use std::path::PathBuf;

use anyhow::Result;
use rayon::prelude::*;

use crate::contents::report::{FileReport, UNREADABLE};
use crate::contents::{Options, Reader, folders};
use crate::sys::progress::Meter;
use crate::sys::session::Session;
use crate::sys::threads;
use crate::target::device::Wanted;
use report::{Answer, FileCheck, Finding, Report, SCHEMA, UnitCheck};
use units::Unit;

/// What to check.
#[derive(Debug, Clone, Default)]
pub(crate) struct Request {
    /// Files and folders.
    pub files: Vec<PathBuf>,
    /// The devices that images are looked for; none to ask what is registered.
    pub asked: Vec<Asked>,
}

/// Devices that an image is looked for.
#[derive(Debug, Clone)]
pub(crate) struct Asked {
    /// As the user named them.
    pub text: String,
    /// Whether they are those of this machine; then one that runs a file is enough.
    pub native: bool,
    /// The devices.
    pub devices: Vec<Wanted>,
}

/// Checks the files. What is wrong with them is in the report; an error is a signal.
pub(crate) fn check(request: &Request, session: &Session) -> Result<Report> {
    let (paths, faults) = folders::expand(&request.files, session);
    let options = Options { kernels: true, registered: true, ..Options::default() };
    let meter = Meter::new(session.shell.is_terminal(), paths.iter().map(|found| found.size).sum());
    let reader = Reader::new(options, session).shown_by(&meter);
    let each = |found: &folders::Found| {
        let report = reader.one_of_many(&found.path);
        if found.is_wanted(&report) { file(&report, &request.asked) } else { Vec::new() }
    };
    let mut files: Vec<FileCheck> = threads::in_parallel(|| paths.par_iter().flat_map_iter(each).collect());
    files.extend(faults.into_iter().flat_map(|(path, error)| file(&reader.unreadable(&path, &error), &request.asked)));
    drop(meter);
    session.signals.check()?;
    let answer = files.iter().map(|file| file.answer).max().unwrap_or(Answer::No);
    let devices = request.asked.iter().map(|asked| asked.text.clone()).collect();
    Ok(Report { schema: SCHEMA, generator: format!("offld {}", env!("CARGO_PKG_VERSION")), answer, devices, files })
}

/// The answers on a file, or on each member of a zip file.
fn file(report: &FileReport, asked: &[Asked]) -> Vec<FileCheck> {
    // What is packed with others is a file by itself; the members of a static library are not.
    let is_packed = ["zip", "tar", "gzip", "xz", "bzip2", "zstd"].contains(&report.kind);
    let subject = |members: &[String]| if is_packed { members.get(..1).unwrap_or_default().to_vec() } else { Vec::new() };
    // Everything that has members, by the subject it belongs to; each subject has the lists of members that are in it.
    let images = report.images.iter().filter(|image| image.is_device()).map(|image| &image.members);
    let registered = report.registered.iter().map(|found| &found.members);
    let registrations = report.registrations.iter().map(|found| &found.members);
    let mut subjects: BTreeMap<Vec<String>, Vec<&[String]>> = BTreeMap::new();
    for members in images.chain(registered).chain(registrations) {
        let own = subjects.entry(subject(members)).or_default();
        if !own.contains(&members.as_slice()) {
            own.push(members);
        }
    }
    let mut errors: BTreeMap<Vec<String>, Vec<String>> = BTreeMap::new();
    for error in &report.errors {
        // Errors begin with their place: `FILE(MEMBER): …`.
        let of =
            |members: &&Vec<String>| members.first().is_some_and(|name| error.starts_with(&format!("{}({name})", report.file)));
        let members = subjects.keys().find(of).cloned().unwrap_or_default();
        errors.entry(members).or_default().push(error.clone());
    }
    for members in errors.keys() {
        subjects.entry(members.clone()).or_default();
    }
    if subjects.is_empty() {
        subjects.insert(Vec::new(), Vec::new());
    }
    let each = subjects.into_iter().map(|(members, within)| {
        let errors = errors.remove(&members).unwrap_or_default();
        one(report, members, &within, errors, asked)
    });
    each.collect()
}

/// The answer on one file, or one member of a zip file, with everything that is in it: `within` are the members it is made of.
fn one(report: &FileReport, members: Vec<String>, within: &[&[String]], errors: Vec<String>, asked: &[Asked]) -> FileCheck {
    let mut check = FileCheck {
        file: report.file.clone(),
        kind: report.kind,
        members,
        answer: Answer::Yes,
        units: Vec::new(),
        findings: Vec::new(),
        errors,
        registered: report.registered.iter().filter(|found| within.contains(&found.members.as_slice())).cloned().collect(),
    };
    let (mut is_empty, mut used) = (true, vec![false; asked.len()]);
    for members in within {
        let units = units::of(report, members);
        is_empty &= units.is_empty();
        if asked.is_empty() {
            registered(report, members, &units, &mut check);
        } else {
            choose::all(&units, asked, &mut used, &mut check);
        }
    }
    if check.errors.is_empty() && check.findings.is_empty() {
        if is_empty {
            check.findings.push(Finding::new("no-device-code", Answer::No, "there is no device code in it"));
        } else {
            choose::without_runtime(asked, &used, &mut check);
        }
    }
    let decided = check.findings.iter().map(|finding| finding.answer).chain(check.units.iter().map(|unit| unit.answer)).max();
    check.answer = match decided {
        _ if report.kind == UNREADABLE || !check.errors.is_empty() => Answer::Unreadable,
        decided => decided.unwrap_or(Answer::Yes),
    };
    check
}

/// Adds whether what is registered is there, for the units of one object or program.
fn registered(report: &FileReport, members: &[String], units: &[Unit<'_>], check: &mut FileCheck) {
    for unit in units {
        let (basis, findings) = kernels::compare(unit);
        let findings: Vec<Finding> = findings.into_iter().chain(findings::of_images(unit)).map(|one| one.of_unit(unit)).collect();
        check.units.push(UnitCheck {
            members: members.to_vec(),
            runtime: unit.kind.name(),
            place: unit.place.clone(),
            basis,
            kernels: kernels::count(unit),
            images: unit.images.iter().map(|image| image.index).collect(),
            targets: unit.images.iter().map(|image| units::name(image)).collect(),
            answer: findings.iter().map(|finding| finding.answer).max().unwrap_or(Answer::Yes),
            loads: Vec::new(),
        });
        check.findings.extend(findings);
    }
    check.findings.extend(kernels::in_no_container(members, units));
    check.findings.extend(findings::of_registrations(report, members, units));
}
