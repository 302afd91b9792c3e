//! Results of `offld::check` as plain data, with the names that `offld check --json`
//! writes (docs/reference/json.md).

use serde::Serialize;

use crate::contents::units::Unit;
use offld_system::shell;
use offload_formats::error::Error;
use offload_formats::model::OffloadKind;
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
