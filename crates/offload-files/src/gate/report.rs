//! The result of `offld::gate` as plain data, with the names that `offld gate --json` writes
//! (docs/reference/json.md), and as text: a line for each violation, for terminals or as Markdown.

use std::fmt::Write as _;

use serde::Serialize;

use offld_system::shell;
use offload_formats::error::Error;
use offload_formats::model::printable;

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

/// Returns the violations, each on one line, and a summary.
pub fn text(report: &Report) -> String {
    let mut out = String::new();
    for one in &report.violations {
        let _ = writeln!(out, "{}", line(one));
    }
    let _ = writeln!(out, "{}", summary(report));
    out
}

/// Returns the report as Markdown, for comments and job summaries.
pub fn markdown(report: &Report) -> String {
    let mut out = format!("**{}**\n", summary(report));
    if report.passes() {
        return out;
    }
    out.push_str(
        "\n| Rule | Requirement | File | Kernel | Value | Limit |\n|---|---|---|---|---|---|\n",
    );
    for one in &report.violations {
        let kernel = one.kernel.as_deref().unwrap_or_default();
        let cells = [
            &one.rule,
            &one.requirement,
            &one.file,
            kernel,
            &one.value,
            &one.limit,
        ];
        let cells = cells.map(|cell| printable(cell).replace('|', "\\|"));
        let _ = writeln!(out, "| {} |", cells.join(" | "));
    }
    out
}

/// `x.whl: require: sm_80, compute_80 (policy: sm_90) [rule *.whl]`.
fn line(one: &Violation) -> String {
    let kernel = one
        .kernel
        .as_ref()
        .map(|kernel| format!("kernel {kernel}: "));
    let text = format!(
        "{}: {}: {}{} (policy: {}) [rule {}]",
        one.file,
        one.requirement,
        kernel.unwrap_or_default(),
        one.value,
        one.limit,
        one.rule
    );
    printable(&text).into_owned()
}

/// `2 violations of policy.toml in 3 files`.
fn summary(report: &Report) -> String {
    let count = |number: usize, what: &str| match number {
        1 => format!("1 {what}"),
        number => format!("{number} {what}s"),
    };
    let (rules, violations) = (report.rules.len(), report.violations.len());
    match violations {
        0 => format!("{}: {} met", report.policy, count(rules, "rule")),
        _ => format!("{}: {}", report.policy, count(violations, "violation")),
    }
}
