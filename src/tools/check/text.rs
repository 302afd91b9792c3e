//! The report as text for people: a line for each file, below it what decides its answer, and the verdict on all.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::report::{Answer, FileCheck, Finding, Report, UnitCheck};
use crate::model::printable;

/// Of findings of one sort, as many are shown; JSON has them all.
const SHOWN: usize = 10;

/// The report as text.
pub(crate) fn text(report: &Report) -> String {
    let mut out = String::new();
    for file in &report.files {
        file_text(&mut out, file, !report.devices.is_empty());
    }
    let count = |answer: Answer| report.files.iter().filter(|file| file.answer == answer).count();
    let others = [Answer::Unreadable, Answer::No, Answer::Unknown]
        .into_iter()
        .filter(|answer| count(*answer) > 0)
        .map(|answer| format!("{} {}", count(answer), answer.name()))
        .collect::<Vec<_>>();
    let files = report.files.len();
    let of = if others.is_empty() || files < 2 { String::new() } else { format!(" ({} of {files} files)", others.join(", ")) };
    let _ = writeln!(out, "verdict: {}{of}", report.answer.name());
    out
}

fn file_text(out: &mut String, file: &FileCheck, asked: bool) {
    let member = file.members.iter().map(|member| format!("({})", printable(member))).collect::<String>();
    let _ = writeln!(out, "{}{member}: {}", printable(&file.file), file.answer.name());
    let summary = if asked { loads(&file.units) } else { units(&file.units) };
    for line in summary {
        let _ = writeln!(out, "  {line}");
    }
    let mut shown: BTreeMap<(&str, Option<usize>), usize> = BTreeMap::new();
    for finding in &file.findings {
        let count = shown.entry((finding.what, finding.image)).or_default();
        *count += 1;
        if *count <= SHOWN {
            let _ = writeln!(out, "  {}", line(finding, file));
        }
    }
    for ((what, image), count) in shown.into_iter().filter(|(_, count)| *count > SHOWN) {
        let image = image.map_or(String::new(), |image| format!(" of image {image}"));
        let _ = writeln!(out, "  … and {} more {what}{image}", count - SHOWN);
    }
    for error in &file.errors {
        let _ = writeln!(out, "  unreadable: {}", printable(error));
    }
}

fn line(finding: &Finding, file: &FileCheck) -> String {
    let answer = if finding.answer == Answer::Yes { "note" } else { finding.answer.name() };
    let members: Vec<_> =
        finding.members.iter().skip(file.members.len()).map(|member| format!("{}: ", printable(member))).collect();
    let runtime = finding.runtime.map_or(String::new(), |runtime| format!("{runtime}: "));
    format!("{answer}: {}{runtime}{}", members.concat(), finding.text)
}

/// The units in lines; those that differ in nothing but their place are in one.
fn units(units: &[UnitCheck]) -> Vec<String> {
    let line = |unit: &UnitCheck| {
        let kernels = unit.kernels.map_or("kernels".to_owned(), |count| match count {
            1 => "1 kernel".to_owned(),
            count => format!("{count} kernels"),
        });
        let images = match unit.targets.len() {
            0 => "no image".to_owned(),
            1 => format!("1 image: {}", unit.targets[0]),
            count => format!("{count} images: {}", unit.targets.join(", ")),
        };
        format!("{}: {} (by {}): {kernels}, {images}", unit.runtime, unit.answer.name(), unit.basis)
    };
    grouped(units.iter().map(line))
}

/// What is loaded of each unit, in lines.
fn loads(units: &[UnitCheck]) -> Vec<String> {
    let line = |unit: &UnitCheck| -> Vec<String> {
        let each =
            unit.loads.iter().map(|load| format!("{}: {}: {} ({})", load.device, load.answer.name(), load.text, unit.runtime));
        each.collect()
    };
    grouped(units.iter().flat_map(line))
}

/// Equal lines once, with their number.
fn grouped(lines: impl Iterator<Item = String>) -> Vec<String> {
    let mut all: Vec<(String, usize)> = Vec::new();
    let mut places: BTreeMap<String, usize> = BTreeMap::new();
    for line in lines {
        match places.get(&line).and_then(|at| all.get_mut(*at)) {
            Some((_, count)) => *count += 1,
            None => {
                places.insert(line.clone(), all.len());
                all.push((line, 1));
            }
        }
    }
    all.into_iter().map(|(line, count)| if count > 1 { format!("{line}, {count} times") } else { line }).collect()
}
