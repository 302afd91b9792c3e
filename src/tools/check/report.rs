//! What [`check`](crate::check()) finds, as plain data with the names that `offld check --json`
//! writes (docs/reference/json.md).

use serde::Serialize;

use super::modules::Bare;
use crate::contents::units::Unit;
use crate::error::Error;
use crate::model::OffloadKind;
use crate::registration::read::Registered;
use crate::sys::shell;

/// The version of the report's form.
pub(crate) const SCHEMA: u32 = 1;

/// An answer. Of several the last one counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Answer {
    /// It is not what was asked about, and another file of the same wheel or folder is: it decides
    /// nothing.
    #[serde(rename = "not-applicable")]
    NotApplicable,
    /// It will run.
    Yes,
    /// It cannot be known.
    Unknown,
    /// It will not.
    No,
    /// A part could not be read.
    Unreadable,
}

impl Answer {
    /// The word for it: `not applicable`, `yes`, `unknown`, `no`, `unreadable`.
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
    /// The version of the JSON's form: 1.
    pub schema: u32,
    /// The program and version that wrote it.
    pub generator: String,
    /// The answer on all files.
    pub answer: Answer,
    /// The devices that were asked for; none where the question was what is registered.
    pub devices: Vec<String>,
    /// An answer for each file, and for each member of a zip file or tar archive with device code.
    pub files: Vec<FileCheck>,
}

impl Report {
    /// The report as JSON, as `offld check --json` prints it.
    ///
    /// # Errors
    /// None that are known: everything in it can be written as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        shell::json(self).map_err(Error::of)
    }
}

/// The answer on a file or a member of one that is packed.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct FileCheck {
    /// The file, as it was named.
    pub file: String,
    /// Its type, as `offld inspect` has it.
    #[serde(rename = "type")]
    pub kind: &'static str,
    /// The member of the zip file or tar archive; empty for a file.
    pub members: Vec<String>,
    /// The answer.
    pub answer: Answer,
    /// The images as runtimes see them together.
    pub units: Vec<UnitCheck>,
    /// What decides the answer, and notes.
    pub findings: Vec<Finding>,
    /// What could not be read.
    pub errors: Vec<String>,
    /// What is registered, with places in the file; in the JSON.
    pub(crate) registered: Vec<Registered>,
    /// What it is if it has nothing but images that stand by themselves.
    #[serde(skip)]
    pub(super) bare: Option<Bare>,
    /// Which of the devices that were asked for load something of it, or would have to.
    #[serde(skip)]
    pub(crate) used: Vec<bool>,
    /// The kinds of the file's registrations.
    #[serde(skip)]
    pub(crate) kinds: Vec<OffloadKind>,
}

/// Images that are registered together: a runtime takes one of them.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct UnitCheck {
    /// The members of archives that they are in, the outermost first.
    pub members: Vec<String>,
    /// `openmp`, `cuda`, `hip`, `sycl`; `module` for images that a program loads by itself.
    pub runtime: &'static str,
    /// Where they are.
    pub place: String,
    /// What the answer is based on: `entries`, the table of what the host registers; `images`, a
    /// comparison of the images with each other; `none`.
    pub basis: &'static str,
    /// How many kernels were looked for in each image.
    pub kernels: Option<usize>,
    /// The images' numbers in the file, as `offld inspect` counts them.
    pub images: Vec<usize>,
    /// Their devices, in the same order.
    pub targets: Vec<String>,
    /// The same in a word each, for people.
    #[serde(skip)]
    pub(crate) devices: Vec<String>,
    /// The answer.
    pub answer: Answer,
    /// What each of the devices that were asked for would load.
    pub loads: Vec<Load>,
}

/// What a device would load of a unit.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Load {
    /// The device.
    pub device: String,
    /// Whether it loads one.
    pub answer: Answer,
    /// The number of the image in the file.
    pub image: Option<usize>,
    /// Why it is this one, or why none; for the latter, the nearest and the option that would add
    /// one.
    pub text: String,
}

impl UnitCheck {
    /// Gives the answer that the loads give.
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

    /// Makes it unknown whether an image that is missing is needed, for the reason `why`.
    pub(super) fn doubt(&mut self, why: &str) {
        self.answer = Answer::Unknown;
        self.text = format!("{}; but {why}", self.text);
    }
}

/// Something that decides an answer, or a note (its answer is `yes`).
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Finding {
    /// What sort of finding: `missing-kernel`, …
    pub what: &'static str,
    /// What it makes of the answer.
    pub answer: Answer,
    /// The members of archives that it is in.
    pub members: Vec<String>,
    /// The runtime.
    pub runtime: Option<&'static str>,
    /// The number of the image in the file.
    pub image: Option<usize>,
    /// The kernel.
    pub kernel: Option<String>,
    /// The finding in words.
    pub text: String,
}

impl Finding {
    /// A finding about a file as a whole.
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

    /// The same about an image.
    pub(super) fn of_image(self, image: usize) -> Finding {
        Finding {
            image: Some(image),
            ..self
        }
    }

    /// The same about a unit.
    pub(super) fn of_unit(self, unit: &Unit<'_>) -> Finding {
        Finding {
            members: unit.members.to_vec(),
            runtime: Some(unit.kind.name()),
            ..self
        }
    }
}
