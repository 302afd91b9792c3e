//! Results of `offld::gate` as plain data, with the names that `offld gate --json` writes
//! (docs/reference/json.md).

use serde::Serialize;

use offld_system::shell;
use offload_formats::error::Error;

/// The version of the report's format.
pub(super) const SCHEMA: u32 = 1;

/// The comparison of files with a policy.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The version of the JSON format: 1.
    pub schema: u32,
    /// The program and version that wrote it.
    pub generator: String,
    /// The file with the policy.
    pub policy: String,
    /// The rules, in the order of the policy.
    pub rules: Vec<RuleReport>,
    /// The violations, in the order of rules and files.
    pub violations: Vec<Violation>,
    /// Errors of reading files.
    pub errors: Vec<String>,
}

/// The use of a rule.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct RuleReport {
    /// The name of the rule, or else its patterns.
    pub rule: String,
    /// The number of files and members that it applies to.
    pub files: usize,
    /// The number of its violations.
    pub violations: usize,
}

/// A requirement that a file does not meet.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[non_exhaustive]
pub struct Violation {
    /// The name of the rule, or else its patterns.
    pub rule: String,
    /// The key of the requirement in the policy: `require`, `max-size.total`.
    pub requirement: String,
    /// The file, with the member of a wheel, zip file or tar archive in parentheses.
    pub file: String,
    /// The kernel, for requirements on kernels.
    pub kernel: Option<String>,
    /// What the file has.
    pub value: String,
    /// The limit, or the missing or forbidden thing.
    pub limit: String,
}

impl Report {
    /// Whether all files meet the policy.
    pub fn passes(&self) -> bool {
        self.violations.is_empty()
    }

    /// The report as JSON, as `offld gate --json` prints it.
    ///
    /// # Errors
    /// No errors are known: all data can be written as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        shell::json(self).map_err(Error::of)
    }
}
