//! The result of `offld::check` as plain data, with the names that `offld check --json` writes
//! (docs/reference/json.md), and as text: a line for each file, the reasons for its answer, and the
//! verdict on all files.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::fmt::Write as _;

use serde::Serialize;

use crate::contents::units::Unit;
use offld_system::shell;
use offld_system::terminal::{Colour, Style, wrapped};
use offload_formats::error::Error;
use offload_formats::model::{OffloadKind, printable};
use offload_formats::registration::read::Registered;

/// The version of the report's format.
pub(crate) const SCHEMA: u32 = 1;

/// An answer. The greatest of several answers counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Answer {
    /// The file is not for the requested devices, but another file of the same wheel or directory
    /// is. It does not influence the answer.
    #[serde(rename = "not-applicable")]
    NotApplicable,
    /// The file will run.
    Yes,
    /// The answer cannot be determined.
    Unknown,
    /// The file will not run.
    No,
    /// A part of the file could not be read.
    Unreadable,
}

impl Answer {
    /// The name of the answer: `not applicable`, `yes`, `unknown`, `no`, `unreadable`.
    pub fn name(self) -> &'static str {
        match self {
            Answer::NotApplicable => "not applicable",
            Answer::Yes => "yes",
            Answer::Unknown => "unknown",
            Answer::No => "no",
            Answer::Unreadable => "unreadable",
        }
    }
}

/// The report on all files.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The version of the JSON format: 1.
    pub schema: u32,
    /// The program and version that wrote it.
    pub generator: String,
    /// The answer on all files.
    pub answer: Answer,
    /// The requested devices; empty if the registrations were checked.
    pub devices: Vec<String>,
    /// An answer for each file, and for each member of a zip file or tar archive with device code.
    pub files: Vec<FileCheck>,
}

impl Report {
    /// The report as JSON, as `offld check --json` prints it.
    ///
    /// # Errors
    /// No errors are known: all data can be written as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        shell::json(self).map_err(Error::of)
    }
}

/// The category of a file that has only images that nothing registers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bare {
    /// Machine code, or code that a runtime compiles at load time.
    Modules,
    /// Bitcode and objects that compilers link into programs, and shaders: no offload runtime loads
    /// them.
    Libraries,
}

/// The answer on a file or on a member of a package.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct FileCheck {
    /// The file, as given by the caller.
    pub file: String,
    /// Its type, as in `offld inspect`.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The member of the zip file or tar archive; empty for a file.
    pub members: Vec<String>,
    /// The answer.
    pub answer: Answer,
    /// The images in the groups from which runtimes choose.
    pub units: Vec<UnitCheck>,
    /// The reasons for the answer, and notes.
    pub findings: Vec<Finding>,
    /// Errors of reading the file.
    pub errors: Vec<String>,
    /// The registrations, with their offsets in the file; part of the JSON.
    pub(crate) registered: Vec<Registered>,
    /// The category of a file with only images that nothing registers.
    #[serde(skip)]
    pub(super) bare: Option<Bare>,
    /// For each requested device, whether it loads an image from the file, or would have to.
    #[serde(skip)]
    pub(crate) used: Vec<bool>,
    /// The kinds of the file's registrations and modules.
    #[serde(skip)]
    pub(crate) kinds: Vec<OffloadKind>,
}

/// Images that are registered together: a runtime takes one of them.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct UnitCheck {
    /// The enclosing archive members, the outermost first.
    pub members: Vec<String>,
    /// `openmp`, `cuda`, `hip`, `sycl`; `module` for images that a program loads by itself.
    pub runtime: &'static str,
    /// The location of the images.
    pub place: String,
    /// The basis of the answer: `entries`, the table of registered entries; `images`, a comparison
    /// of the images with each other; `none`.
    pub basis: &'static str,
    /// The number of kernels that were looked for in each image.
    pub kernels: Option<usize>,
    /// The indices of the images in the file, as in `offld inspect`.
    pub images: Vec<usize>,
    /// The devices of the images, in the same order.
    pub targets: Vec<String>,
    /// Short names of the devices, for messages.
    #[serde(skip)]
    pub(crate) devices: Vec<String>,
    /// The answer.
    pub answer: Answer,
    /// The images that the requested devices would load.
    pub loads: Vec<Load>,
}

/// The image that a device would load from a unit.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Load {
    /// The device.
    pub device: String,
    /// Whether it loads an image.
    pub answer: Answer,
    /// The index of the image in the file.
    pub image: Option<usize>,
    /// The reason for this image, or for no image. In the latter case also the nearest image, and
    /// the option that would add one.
    pub text: String,
}

impl UnitCheck {
    /// Sets the answer of the unit from those of its loads.
    pub(super) fn conclude(&mut self) {
        self.answer = self
            .loads
            .iter()
            .map(|load| load.answer)
            .max()
            .unwrap_or(self.answer);
    }
}

impl Load {
    /// Whether there is no image for the device.
    pub(super) fn is_missing(&self) -> bool {
        self.answer == Answer::No && self.image.is_none()
    }

    /// Changes the answer to unknown, because the missing image may not be needed. `why` is the
    /// reason.
    pub(super) fn doubt(&mut self, why: &str) {
        self.answer = Answer::Unknown;
        self.text = format!("{}; but {why}", self.text);
    }
}

/// A reason for an answer, or a note (its answer is `yes`).
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// The type of the finding: `missing-kernel`, …
    pub what: &'static str,
    /// Its effect on the answer.
    pub answer: Answer,
    /// The enclosing archive members.
    pub members: Vec<String>,
    /// The runtime.
    pub runtime: Option<&'static str>,
    /// The index of the image in the file.
    pub image: Option<usize>,
    /// The kernel.
    pub kernel: Option<String>,
    /// The finding as text.
    pub text: String,
}

impl Finding {
    /// Creates a finding on a file as a whole.
    pub(super) fn new(what: &'static str, answer: Answer, text: impl Into<String>) -> Finding {
        let text = text.into();
        Finding {
            what,
            answer,
            members: Vec::new(),
            runtime: None,
            image: None,
            kernel: None,
            text,
        }
    }

    /// Sets the image of the finding.
    pub(super) fn of_image(self, image: usize) -> Finding {
        Finding {
            image: Some(image),
            ..self
        }
    }

    /// Sets the unit of the finding.
    pub(super) fn of_unit(self, unit: &Unit<'_>) -> Finding {
        Finding {
            members: unit.members.to_vec(),
            runtime: Some(unit.kind.name()),
            ..self
        }
    }
}

/// Limit of the findings of one type that are shown; JSON has them all.
const SHOWN: usize = 10;

/// The report as text.
pub fn text(report: &Report, style: Style) -> String {
    let mut out = String::new();
    for file in &report.files {
        file_text(&mut out, file, !report.devices.is_empty(), style);
    }
    let count = |answer: Answer| {
        report
            .files
            .iter()
            .filter(|file| file.answer == answer)
            .count()
    };
    let others = [
        Answer::Unreadable,
        Answer::No,
        Answer::Unknown,
        Answer::NotApplicable,
    ]
    .into_iter()
    .filter(|answer| count(*answer) > 0)
    .map(|answer| format!("{} {}", count(answer), answer.name()))
    .collect::<Vec<_>>();
    let files = report.files.len();
    let counts = match files {
        0 => " (no file with device code)".to_owned(),
        1 => String::new(),
        _ if others.is_empty() => String::new(),
        _ => format!(" ({} of {files} files)", others.join(", ")),
    };
    let _ = writeln!(out, "verdict: {}{counts}", answer(report.answer, style));
    wrapped(&out, style.width)
}

/// The name of an answer, in its colour.
fn answer(answer: Answer, style: Style) -> String {
    let colour = match answer {
        Answer::Yes => Colour::Good,
        Answer::Unknown | Answer::NotApplicable => Colour::Unsure,
        Answer::No | Answer::Unreadable => Colour::Bad,
    };
    style.paint(colour, answer.name())
}

fn file_text(out: &mut String, file: &FileCheck, asked: bool, style: Style) {
    let member = file
        .members
        .iter()
        .map(|member| format!("({})", printable(member)))
        .collect::<String>();
    let _ = writeln!(
        out,
        "{}{member}: {}",
        printable(&file.file),
        answer(file.answer, style)
    );
    let summary = if asked {
        loads(&file.units, style)
    } else {
        units(&file.units, style)
    };
    for line in summary {
        let _ = writeln!(out, "  {line}");
    }
    findings(out, file, style);
    for error in &file.errors {
        let _ = writeln!(
            out,
            "  {}: {}",
            answer(Answer::Unreadable, style),
            printable(error)
        );
    }
}

/// Appends the findings on a file, up to [`SHOWN`] of each type. Equal findings on several members
/// share a line.
fn findings(out: &mut String, file: &FileCheck, style: Style) {
    let mut shown: BTreeMap<(&str, Option<usize>), usize> = BTreeMap::new();
    let mut lines: Vec<(String, &Finding, usize)> = Vec::new();
    for finding in &file.findings {
        let text = line(finding, style);
        if let Some((.., times)) = lines.iter_mut().find(|(known, ..)| *known == text) {
            *times += 1;
            continue;
        }
        let count = shown.entry((finding.what, finding.image)).or_default();
        *count += 1;
        if *count <= SHOWN {
            lines.push((text, finding, 1));
        }
    }
    for (text, finding, times) in lines {
        let members = finding
            .members
            .get(file.members.len()..)
            .unwrap_or_default()
            .join(": ");
        let more = match times {
            1 if members.is_empty() => String::new(),
            1 => format!(" (in {})", printable(&members)),
            times => format!(" ({times} times)"),
        };
        let _ = writeln!(out, "  {text}{more}");
    }
    for ((what, image), count) in shown.into_iter().filter(|(_, count)| *count > SHOWN) {
        let image = image.map_or(String::new(), |image| format!(" of image {image}"));
        let _ = writeln!(
            out,
            "  {} {} more {what}{image}",
            style.ellipsis(),
            count - SHOWN
        );
    }
}

fn line(finding: &Finding, style: Style) -> String {
    let answer = if finding.answer == Answer::Yes {
        "note".to_owned()
    } else {
        answer(finding.answer, style)
    };
    let runtime = finding.runtime.map_or(String::new(), |runtime| {
        format!("{}: ", OffloadKind::title_of(runtime))
    });
    // The ellipsis occurs in advice such as -fopenmp-targets=….
    let text = if style.ascii {
        finding.text.replace('…', style.ellipsis())
    } else {
        finding.text.clone()
    };
    format!("{answer}: {runtime}{text}")
}

/// The units as lines. Units that differ only in their location share a line.
fn units(units: &[UnitCheck], style: Style) -> Vec<String> {
    let line = |unit: &UnitCheck| {
        let kernels = match unit.kernels {
            None => String::new(),
            Some(1) => "1 kernel".to_owned(),
            Some(count) => format!("{count} kernels"),
        };
        // With devices, the kernels are in the images: `1 kernel in 1 image: gfx90a`.
        let join = match (unit.kernels, unit.devices.len()) {
            (None, _) => "",
            (Some(_), 0) => ", ",
            (Some(_), _) => " in ",
        };
        let images = match unit.devices.len() {
            0 => "no image".to_owned(),
            1 => format!("1 image: {}", unit.devices[0]),
            count => format!("{count} images: {}", unit.devices.join(", ")),
        };
        format!(
            "{}: {} ({kernels}{join}{images}",
            OffloadKind::title_of(unit.runtime),
            answer(unit.answer, style)
        )
    };
    let lines = grouped(units.iter().map(|unit| (unit, line(unit))));
    lines
        .into_iter()
        .map(|(line, units)| format!("{line}{})", places(&units)))
        .collect()
}

/// The image that is loaded from each unit, as lines. Locations are shown if a device loads an
/// image from one unit and none from another.
fn loads(units: &[UnitCheck], style: Style) -> Vec<String> {
    let several = units.iter().any(|unit| unit.runtime != units[0].runtime);
    let each = units
        .iter()
        .flat_map(|unit| unit.loads.iter().map(move |load| (unit, load)));
    let mut firsts = HashMap::new();
    let mut differing = HashSet::new();
    for (unit, load) in each.clone() {
        let device = (load.device.as_str(), unit.runtime);
        if *firsts.entry(device).or_insert(load.answer) != load.answer {
            differing.insert(device);
        }
    }
    let lines = grouped(each.map(|(unit, load)| {
        let runtime = if several {
            format!("{}: ", OffloadKind::title_of(unit.runtime))
        } else {
            String::new()
        };
        let is_place_shown =
            load.answer != Answer::Yes && differing.contains(&(load.device.as_str(), unit.runtime));
        let begin = format!("{}: {}", load.device, answer(load.answer, style));
        (
            unit,
            (
                begin,
                is_place_shown,
                load.answer == Answer::Yes,
                format!("{runtime}{}", load.text),
            ),
        )
    }));
    let line = |((begin, is_place_shown, is_yes, text), units): (
        (String, bool, bool, String),
        Vec<&UnitCheck>,
    )| match units[..] {
        [first, ref more @ ..] if is_place_shown => {
            let more = if more.is_empty() {
                String::new()
            } else {
                format!(" and {} more", more.len())
            };
            format!("{begin} in {}{more}: {text}", printable(&first.place))
        }
        _ if is_yes => format!("{begin} ({text}{})", places(&units)),
        _ => format!("{begin}: {text}{}", places(&units)),
    };
    lines.into_iter().map(line).collect()
}

/// The number of containers or registrations of units with one runtime, if there are several.
fn places(units: &[&UnitCheck]) -> String {
    let things = match units.first().map_or("", |unit| unit.runtime) {
        "cuda" => "fatbinaries",
        "hip" => "bundles",
        "openmp" => "registrations",
        _ => "containers",
    };
    if units.len() > 1 {
        format!(", in {} {things}", units.len())
    } else {
        String::new()
    }
}

/// Removes duplicate lines; each line keeps the list of its units.
fn grouped<'u, Line: Clone + Ord>(
    lines: impl Iterator<Item = (&'u UnitCheck, Line)>,
) -> Vec<(Line, Vec<&'u UnitCheck>)> {
    let mut all: Vec<(Line, Vec<&UnitCheck>)> = Vec::new();
    let mut places: BTreeMap<Line, usize> = BTreeMap::new();
    for (unit, line) in lines {
        match places.get(&line).and_then(|at| all.get_mut(*at)) {
            Some((_, units)) => units.push(unit),
            None => {
                places.insert(line.clone(), all.len());
                all.push((line, vec![unit]));
            }
        }
    }
    all
}
