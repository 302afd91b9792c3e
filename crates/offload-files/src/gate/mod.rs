//! Check of files against a policy, for continuous integration. `policy` reads the policy, `files`
//! measures the files that a rule applies to, `rules` compares them with the rule, `growth` compares
//! them with a baseline, and `init` writes a policy for given files. `report` is the result, as data and as text.

mod files;
mod growth;
pub mod init;
pub mod policy;
pub mod report;
mod rules;

use std::path::PathBuf;

use anyhow::{Result, bail};

use growth::Baseline;
use offld_system::session::Session;
use offload_formats::model::printable;
use policy::{Policy, Rule};
pub use report::Report;
use report::{RuleReport, SCHEMA, Violation};

/// The files to check, and the policy.
#[derive(Debug)]
pub struct Request {
    /// The policy.
    pub policy: Policy,
    /// Files and directories.
    pub files: Vec<PathBuf>,
    /// An earlier build, or what `offld diff --save` and `offld size --save` wrote of it.
    pub baseline: Vec<PathBuf>,
    /// Whether rules, their patterns and their limits may apply to nothing, because `files` are only
    /// some of a build.
    pub allow_unused: bool,
    /// Limit of the decompressed data of a file, in bytes.
    pub max_unpacked: u64,
}

/// Checks files against a policy.
///
/// # Errors
/// A rule applies to no file, and `request.allow_unused` is false; a rule needs a baseline that is
/// missing or cannot be read; or a signal arrived. Errors of reading `request.files` are in the report.
pub fn gate(request: &Request, session: &Session) -> Result<Report> {
    let policy = &request.policy;
    if policy.needs_baseline() && request.baseline.is_empty() {
        let rule = policy.rules.iter().find(|rule| rule.needs_baseline());
        let rule = rule.map_or("", |rule| &rule.name);
        bail!(
            "`{}`: rule `{rule}` compares with a baseline: pass it with --baseline",
            policy.file
        );
    }
    let baseline = Baseline::open(&request.baseline)?;
    let mut report = Report {
        schema: SCHEMA,
        generator: format!("offld {}", env!("CARGO_PKG_VERSION")),
        policy: policy.file.clone(),
        rules: Vec::new(),
        violations: Vec::new(),
        errors: Vec::new(),
    };
    for rule in &policy.rules {
        let (files, violations, errors) = of_rule(rule, &baseline, request, session)?;
        if files == 0 && errors.is_empty() && !request.allow_unused {
            bail!("`{}`: rule `{}` applies to no file", policy.file, rule.name);
        }
        if let Some(pattern) = unmatched(rule).filter(|_| !request.allow_unused) {
            bail!(
                "`{}`: rule `{}`: no file or member matches `{}`",
                policy.file,
                rule.name,
                printable(&pattern)
            );
        }
        report.rules.push(RuleReport {
            rule: rule.name.clone(),
            files,
            violations: violations.len(),
        });
        report.violations.extend(violations);
        for error in errors {
            if !report.errors.contains(&error) {
                report.errors.push(error);
            }
        }
    }
    Ok(report)
}

/// A pattern of the rule that matched nothing.
fn unmatched(rule: &Rule) -> Option<String> {
    let selection = &rule.selection;
    let mut patterns = selection
        .unmatched_only()
        .chain(selection.unmatched_exclude());
    patterns.next().map(str::to_owned)
}

/// Returns how many files and members a rule applies to, its violations, and errors of reading.
fn of_rule(
    rule: &Rule,
    baseline: &Baseline,
    request: &Request,
    session: &Session,
) -> Result<(usize, Vec<Violation>, Vec<String>)> {
    let (measured, errors) = files::measured(rule, &request.files, request.max_unpacked, session)?;
    if measured.is_empty() && request.allow_unused {
        return Ok((0, Vec::new(), errors));
    }
    // A misspelled device would never exceed its limit.
    for (quantity, _) in &rule.max_size {
        let is_there = measured.iter().any(|file| quantity.bytes(&file.sizes) > 0);
        if quantity.is_of_devices() && !is_there && !measured.is_empty() && !request.allow_unused {
            bail!(
                "`{}`: rule `{}`: max-size.{quantity}: no image matches `{quantity}`",
                request.policy.file,
                rule.name
            );
        }
    }
    let mut violations = Vec::new();
    for file in &measured {
        violations.extend(rules::of_file(rule, file, session)?);
    }
    violations.extend(growth::of_rule(
        rule, &measured, baseline, request, session,
    )?);
    let count = measured.iter().map(|file| file.subjects.len()).sum();
    Ok((count, violations, errors))
}
