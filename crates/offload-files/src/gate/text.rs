//! The report as text: a line for each violation, for terminals or as Markdown.

use std::fmt::Write as _;

use super::report::{Report, Violation};
use offload_formats::model::printable;

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
