//! Results of `offld::diff` as plain data, with the names that `offld diff --json` writes
//! (docs/reference/json.md).

use serde::Serialize;

use super::records::Disassembled;
use offld_system::shell;
use offload_formats::error::Error;

/// The version of the report's format.
pub(super) const SCHEMA: u32 = 1;

/// The comparison of two builds.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The version of the JSON format: 1.
    pub schema: u32,
    /// The program and version that wrote it.
    pub generator: String,
    /// The files of the earlier build.
    pub old_files: Vec<String>,
    /// The files of the later build.
    pub new_files: Vec<String>,
    /// The architectures of both builds.
    pub archs: Vec<ArchDiff>,
}

/// The comparison of the kernels for one architecture.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct ArchDiff {
    /// The architecture.
    pub arch: String,
    /// The number of kernels of the earlier build. 0: the architecture is new.
    pub old_kernels: u64,
    /// The number of kernels of the later build. 0: the architecture is gone.
    pub new_kernels: u64,
    /// The number of kernels that are the same in both builds.
    pub unchanged: u64,
    /// The number of kernels with equal facts whose code cannot be compared.
    pub unknown: u64,
    /// The kernels that differ. Empty if the architecture is new or gone.
    pub changes: Vec<Change>,
}

/// A kernel that differs.
#[derive(Debug, Clone, Serialize)]
#[non_exhaustive]
pub struct Change {
    /// How it differs.
    pub change: Kind,
    /// The name in the source, or else the name in the image. For a kernel that is gone, the earlier
    /// name.
    pub kernel: String,
    /// The name in the image.
    pub mangled: String,
    /// The earlier name of a renamed kernel.
    pub old_name: Option<String>,
    /// The file or member with the kernel.
    pub place: String,
    /// Whether the code differs. None if that is unknown, or the kernel is in one build only.
    pub code_changed: Option<bool>,
    /// The facts that differ. For a kernel in one build only, all facts.
    pub facts: Vec<Fact>,
    /// The instructions that differ, as a unified diff, if requested.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub code_diff: Option<String>,
    /// The old and the new kernel, to disassemble them.
    #[serde(skip)]
    pub(super) images: Option<(Disassembled, Disassembled)>,
}

/// How a kernel differs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Kind {
    /// Only the later build has it.
    New,
    /// Only the earlier build has it.
    Gone,
    /// Both builds have it, with different names.
    Renamed,
    /// The code or the use of resources differs.
    Changed,
}

impl Kind {
    /// The name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Kind::New => "new",
            Kind::Gone => "gone",
            Kind::Renamed => "renamed",
            Kind::Changed => "changed",
        }
    }
}

/// A number about a kernel, such as its registers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Fact {
    /// The name, as in reports of `offld inspect`, or `occupancy`.
    pub fact: String,
    /// The number in the earlier build.
    pub old: Option<u64>,
    /// The number in the later build.
    pub new: Option<u64>,
}

impl Report {
    /// Whether a kernel differs, or may differ because its code cannot be compared.
    pub fn differs(&self) -> bool {
        self.archs.iter().any(|arch| {
            !arch.changes.is_empty()
                || arch.unknown > 0
                || arch.old_kernels == 0
                || arch.new_kernels == 0
        })
    }

    /// The report as JSON, as `offld diff --json` prints it.
    ///
    /// # Errors
    /// No errors are known: all data can be written as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        shell::json(self).map_err(Error::of)
    }
}
