//! Checks files against a policy, for continuous integration, and compares them with a baseline.
//! `policy` reads the policy, `files` measures the files that a rule applies to, `rules` compares
//! them with the rule, and `init` writes a policy for given files. `report` is the result, as data
//! and as text.

mod files;
pub mod init;
pub mod policy;
pub mod report;
mod rules;

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::contents::layout::Names;
use crate::diff;
use crate::diff::report::{Change, Fact, Kind};
use crate::size::{Counted, Sizes, measure_old};
use files::File;
use offld_system::session::Session;
use offload_formats::model::printable;
use policy::{Check, Growing, Growth, Limit, Policy, Rule};
pub use report::Report;
use report::{RuleReport, SCHEMA, Violation};
use rules::violation;

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
    violations.extend(of_growth(rule, &measured, baseline, request, session)?);
    let count = measured.iter().map(|file| file.subjects.len()).sum();
    Ok((count, violations, errors))
}

// Comparison of the files of a rule with a baseline: sizes, kernels that are gone, and the growth
// of registers and other facts about kernels.

/// The file in messages about all files of a rule.
const ALL: &str = "all files of the rule";

/// The earlier build.
struct Baseline {
    /// Files and directories.
    builds: Vec<PathBuf>,
    /// Lists of kernels that `offld diff --save` wrote.
    kernels: Vec<PathBuf>,
    /// Sizes that `offld size --save` wrote.
    sizes: Vec<PathBuf>,
}

impl Baseline {
    /// Finds out what the files at `paths` are.
    ///
    /// # Errors
    /// A file cannot be read.
    fn open(paths: &[PathBuf]) -> Result<Baseline> {
        let (mut builds, mut kernels, mut sizes) = (Vec::new(), Vec::new(), Vec::new());
        for path in paths {
            let context = || format!("the baseline `{}`", printable(&path.display().to_string()));
            std::fs::metadata(path).with_context(context)?;
            let list = if diff::is_saved(path).with_context(context)? {
                &mut kernels
            } else if crate::size::is_saved(path).with_context(context)? {
                &mut sizes
            } else {
                &mut builds
            };
            list.push(path.clone());
        }
        Ok(Baseline {
            builds,
            kernels,
            sizes,
        })
    }

    /// The only file with the baseline's kernels or sizes: a saved one, or else the build.
    fn only<'b>(&'b self, saved: &'b [PathBuf], command: &str) -> Result<&'b Path> {
        match (saved, self.builds.as_slice()) {
            ([one], _) | ([], [one]) => Ok(one),
            ([], []) => bail!(
                "no baseline for this rule: pass a build, or a file of offld {command} --save"
            ),
            _ => bail!("several baselines for offld {command}: pass a directory with all files"),
        }
    }
}

/// The violations of a rule by the growth since the baseline.
///
/// # Errors
/// The baseline cannot be read, or has no such files.
fn of_growth(
    rule: &Rule,
    files: &[File],
    baseline: &Baseline,
    request: &Request,
    session: &Session,
) -> Result<Vec<Violation>> {
    let mut all = Vec::new();
    if rule.compares_sizes() {
        let counted = Counted {
            names: Arc::new(Names::default()),
            max_unpacked: request.max_unpacked,
            selection: Arc::clone(&rule.selection),
            keep_empty: true,
        };
        let old = measure_old(baseline.only(&baseline.sizes, "size")?, &counted, session)?;
        for growth in &rule.max_growth {
            if let Growing::Bytes(quantity) = &growth.of
                && quantity.is_of_devices()
                && quantity.bytes(&old) == 0
                && files.iter().all(|file| quantity.bytes(&file.sizes) == 0)
            {
                bail!(
                    "`{}`: rule `{}`: max-growth.{}: no image matches `{quantity}`, and no number of `offld diff` has this name",
                    request.policy.file,
                    rule.name,
                    growth.key
                );
            }
            all.extend(of_sizes(rule, growth, files, &old));
        }
    }
    if rule.compares_kernels() {
        let compared = diff::Request {
            old: baseline.only(&baseline.kernels, "diff")?.to_owned(),
            new: files.iter().map(|file| file.path.clone()).collect(),
            selection: Arc::clone(&rule.selection),
            max_unpacked: request.max_unpacked,
            changed_code: false,
        };
        let report = diff::diff_any(&compared, session)?;
        for arch in &report.archs {
            if rule.has(Check::NoLostKernels) && arch.new_kernels == 0 && arch.old_kernels > 0 {
                let value = format!("no kernels for {}", arch.arch);
                let limit = format!("{} kernels, as in the baseline", arch.old_kernels);
                all.push(violation(
                    rule,
                    Check::NoLostKernels.name(),
                    ALL,
                    value,
                    limit,
                ));
            }
            for change in &arch.changes {
                all.extend(of_kernel(rule, change, &arch.arch));
            }
        }
    }
    Ok(all)
}

/// The violation by the sizes of all files.
fn of_sizes(rule: &Rule, growth: &Growth, files: &[File], old: &Sizes) -> Option<Violation> {
    let Growing::Bytes(quantity) = &growth.of else {
        return None;
    };
    let new: u64 = files.iter().map(|file| quantity.bytes(&file.sizes)).sum();
    let old = quantity.bytes(old);
    exceeds(old, new, growth.limit).then(|| {
        violation(
            rule,
            format!("max-growth.{}", growth.key),
            ALL,
            format!("{new} bytes, from {old} bytes"),
            format!("growth of {}", growth.limit),
        )
    })
}

/// The violations by a kernel that differs from the baseline.
fn of_kernel(rule: &Rule, change: &Change, arch: &str) -> Vec<Violation> {
    let of_kernel = |requirement: String, value: String, limit: String| Violation {
        kernel: Some(format!("{} ({arch})", change.kernel)),
        ..violation(rule, requirement, &change.place, value, limit)
    };
    if change.change == Kind::Gone {
        return rule
            .has(Check::NoLostKernels)
            .then(|| {
                let requirement = Check::NoLostKernels.name().to_owned();
                of_kernel(
                    requirement,
                    "no such kernel".to_owned(),
                    "the kernels of the baseline".to_owned(),
                )
            })
            .into_iter()
            .collect();
    }
    if change.change == Kind::New {
        return Vec::new();
    }
    let mut all = Vec::new();
    for growth in &rule.max_growth {
        let Growing::Facts(names) = &growth.of else {
            continue;
        };
        for Fact { fact, old, new } in &change.facts {
            if !names.contains(&fact.as_str()) {
                continue;
            }
            let (old, new) = (old.unwrap_or(0), new.unwrap_or(0));
            // Fewer waves or blocks at a time are worse.
            let (from, to, what) = if fact == "occupancy" {
                (new, old, "loss")
            } else {
                (old, new, "growth")
            };
            let limit = match growth.limit {
                // The share of a loss is that of the baseline.
                Limit::Percent(share) if fact == "occupancy" => {
                    Limit::Number((old as f64 * share / 100.0).floor() as u64)
                }
                limit => limit,
            };
            if exceeds(from, to, limit) {
                all.push(of_kernel(
                    format!("max-growth.{}", growth.key),
                    format!("{} {old} -> {new}", fact.replace('_', " ")),
                    format!("{what} of {}", growth.limit),
                ));
            }
        }
    }
    all
}

/// Whether the growth from `old` to `new` is more than `limit`. A share of nothing is nothing.
fn exceeds(old: u64, new: u64, limit: Limit) -> bool {
    let growth = new.saturating_sub(old);
    match limit {
        Limit::Number(limit) => growth > limit,
        Limit::Percent(share) => growth as f64 * 100.0 > share * old as f64,
    }
}
