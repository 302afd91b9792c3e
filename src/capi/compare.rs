//! Comparison of the kernels of two builds, and checks of files against a policy.

#![expect(
    unsafe_code,
    reason = "exported C symbols and pointers from the caller"
)]

use std::ffi::c_char;
use std::path::PathBuf;

use super::given;
use super::package::OffldBuffer;
use super::report::OffldOptions;
use super::status::{OffldError, OffldStatus, OffldString, Text, made, needed, nth, shown};
use crate::facade::{self, DiffOptions, GateOptions};
use offload_files::diff::report::{Change, Report as DiffReport};
use offload_files::gate::report::{Report as GateReport, Violation};

/// The kernels that differ between two builds. A report never changes, so any number of threads may
/// read it at the same time. Everything obtained from it is valid until `offld_diff_free`.
#[derive(Debug)]
pub struct OffldDiff {
    report: DiffReport,
    changes: Vec<OffldChange>,
}

/// A kernel that differs between two builds.
#[derive(Debug)]
pub struct OffldChange {
    arch: Text,
    change: Text,
    kernel: Text,
    mangled: Text,
    old_name: Text,
    place: Text,
    facts: Vec<(Text, u64, u64)>,
}

impl OffldChange {
    fn new(arch: &str, change: &Change) -> OffldChange {
        let number = |number: Option<u64>| number.unwrap_or(u64::MAX);
        OffldChange {
            arch: Text::from(arch),
            change: Text::from(change.change.name()),
            kernel: Text::from(&change.kernel),
            mangled: Text::from(&change.mangled),
            old_name: Text::from(change.old_name.as_deref().unwrap_or_default()),
            place: Text::from(&change.place),
            facts: change
                .facts
                .iter()
                .map(|fact| (Text::from(&fact.fact), number(fact.old), number(fact.new)))
                .collect(),
        }
    }
}

/// Compares the kernels of the builds at `old` and `new`, as `offld diff` does: files, directories,
/// or lists that `offld diff --save` wrote. Of the options, only the limit for decompressed data
/// counts. The call fails if a build cannot be opened, is damaged, or has no device code.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_diff_open(
    old: *const c_char,
    new: *const c_char,
    options: Option<&OffldOptions>,
    diff: *mut *mut OffldDiff,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let open = || {
        // SAFETY: the caller guarantees it.
        let (old, new) = unsafe { (given::path(old)?, given::path(new)?) };
        let options = DiffOptions::default().with_max_unpacked(max_unpacked(options));
        let report = facade::diff(old, new, &options)?;
        let changes = report.archs.iter().flat_map(|arch| {
            let of_arch = |change| OffldChange::new(&arch.arch, change);
            arch.changes.iter().map(of_arch)
        });
        Ok(OffldDiff {
            changes: changes.collect(),
            report,
        })
    };
    // SAFETY: the caller guarantees it.
    unsafe { made(diff, error, open) }
}

fn max_unpacked(options: Option<&OffldOptions>) -> Option<u64> {
    options.and_then(|OffldOptions(options)| options.max_unpacked)
}

/// Returns whether a kernel differs, an architecture is new or gone, or some code could not be
/// compared. False for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_diff_differs(diff: Option<&OffldDiff>) -> bool {
    diff.is_some_and(|diff| diff.report.differs())
}

/// Returns the number of kernels that differ, without those of new and gone architectures. 0 for
/// NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_diff_change_count(diff: Option<&OffldDiff>) -> usize {
    diff.map_or(0, |diff| diff.changes.len())
}

/// Returns the kernel with this index; NULL if `index` is out of range, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_diff_change(
    diff: Option<&OffldDiff>,
    index: usize,
) -> Option<&OffldChange> {
    diff?.changes.get(index)
}

/// Writes the report as JSON, in the format of `offld diff --json` (docs/reference/json.md). The
/// caller frees the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_diff_json(
    diff: Option<&OffldDiff>,
    json: *mut *mut OffldBuffer,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let write = || {
        let text = needed(diff, "the report")?.report.to_json()?;
        Ok(OffldBuffer::new(text.into_bytes()))
    };
    // SAFETY: the caller guarantees it.
    unsafe { made(json, error, write) }
}

/// Frees a report and everything that belongs to it. Does nothing for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_diff_free(diff: Option<Box<OffldDiff>>) {
    drop(diff);
}

/// Returns the architecture of the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn offld_change_arch(change: Option<&OffldChange>) -> OffldString {
    shown(change.map(|change| &change.arch))
}

/// Returns how the kernel differs: `new`, `gone`, `renamed` or `changed`.
#[unsafe(no_mangle)]
pub extern "C" fn offld_change_kind(change: Option<&OffldChange>) -> OffldString {
    shown(change.map(|change| &change.change))
}

/// Returns the kernel's name in the source, or else that in the image.
#[unsafe(no_mangle)]
pub extern "C" fn offld_change_kernel(change: Option<&OffldChange>) -> OffldString {
    shown(change.map(|change| &change.kernel))
}

/// Returns the kernel's name in the image.
#[unsafe(no_mangle)]
pub extern "C" fn offld_change_mangled(change: Option<&OffldChange>) -> OffldString {
    shown(change.map(|change| &change.mangled))
}

/// Returns the earlier name of a renamed kernel; empty for the others.
#[unsafe(no_mangle)]
pub extern "C" fn offld_change_old_name(change: Option<&OffldChange>) -> OffldString {
    shown(change.map(|change| &change.old_name))
}

/// Returns the file or member with the kernel.
#[unsafe(no_mangle)]
pub extern "C" fn offld_change_place(change: Option<&OffldChange>) -> OffldString {
    shown(change.map(|change| &change.place))
}

/// Returns how many numbers about the kernel differ. 0 for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_change_fact_count(change: Option<&OffldChange>) -> usize {
    change.map_or(0, |change| change.facts.len())
}

/// Returns the name of the number with this index: `registers`, `occupancy`, …; empty if `index` is
/// out of range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_change_fact_name(
    change: Option<&OffldChange>,
    index: usize,
) -> OffldString {
    let fact = change.and_then(|change| change.facts.get(index));
    shown(fact.map(|(name, ..)| name))
}

/// Returns the number with this index in the earlier build; `OFFLD_NONE` if that has no such number.
#[unsafe(no_mangle)]
pub extern "C" fn offld_change_fact_old(change: Option<&OffldChange>, index: usize) -> u64 {
    let fact = change.and_then(|change| change.facts.get(index));
    fact.map_or(u64::MAX, |(_, old, _)| *old)
}

/// Returns the number with this index in the later build; `OFFLD_NONE` if that has no such number.
#[unsafe(no_mangle)]
pub extern "C" fn offld_change_fact_new(change: Option<&OffldChange>, index: usize) -> u64 {
    let fact = change.and_then(|change| change.facts.get(index));
    fact.map_or(u64::MAX, |(.., new)| *new)
}

/// The comparison of files with a policy. A report never changes, so any number of threads may read
/// it at the same time. Everything obtained from it is valid until `offld_gate_free`.
#[derive(Debug)]
pub struct OffldGate {
    report: GateReport,
    violations: Vec<OffldViolation>,
    errors: Vec<Text>,
}

/// A requirement of a policy that a file does not meet.
#[derive(Debug)]
pub struct OffldViolation {
    rule: Text,
    requirement: Text,
    file: Text,
    kernel: Text,
    value: Text,
    limit: Text,
}

impl OffldViolation {
    fn new(violation: &Violation) -> OffldViolation {
        OffldViolation {
            rule: Text::from(&violation.rule),
            requirement: Text::from(&violation.requirement),
            file: Text::from(&violation.file),
            kernel: Text::from(violation.kernel.as_deref().unwrap_or_default()),
            value: Text::from(&violation.value),
            limit: Text::from(&violation.limit),
        }
    }
}

/// Checks files and directories against the policy in the file at `policy`, as `offld gate` does:
/// the `file_count` paths at `files`. `baseline` are the `baseline_count` paths of an earlier build,
/// for policies that compare. Of the options, only the limit for decompressed data counts.
///
/// Errors of reading files are in the report. The call fails if a file cannot be opened, the policy
/// is invalid, or a rule applies to no file.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_gate_open(
    policy: *const c_char,
    files: *const *const c_char,
    file_count: usize,
    baseline: *const *const c_char,
    baseline_count: usize,
    options: Option<&OffldOptions>,
    gate: *mut *mut OffldGate,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let open = || {
        // SAFETY: the caller guarantees it.
        let (policy, files, baseline) = unsafe {
            (
                given::path(policy)?,
                given::paths(files, file_count)?,
                given::paths(baseline, baseline_count)?,
            )
        };
        let baseline: Vec<PathBuf> = baseline.into_iter().map(PathBuf::from).collect();
        let options = GateOptions::default()
            .with_baseline(baseline)
            .with_max_unpacked(max_unpacked(options));
        let report = facade::gate(policy, &files, &options)?;
        Ok(OffldGate {
            violations: report.violations.iter().map(OffldViolation::new).collect(),
            errors: Text::all(&report.errors),
            report,
        })
    };
    // SAFETY: the caller guarantees it.
    unsafe { made(gate, error, open) }
}

/// Returns the number of violations: 0 if the files meet the policy, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_gate_violation_count(gate: Option<&OffldGate>) -> usize {
    gate.map_or(0, |gate| gate.violations.len())
}

/// Returns the violation with this index; NULL if `index` is out of range, and for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_gate_violation(
    gate: Option<&OffldGate>,
    index: usize,
) -> Option<&OffldViolation> {
    gate?.violations.get(index)
}

/// Returns the number of errors of reading files: 0 if all files could be read, and for NULL. A file
/// that could not be read may hide a violation.
#[unsafe(no_mangle)]
pub extern "C" fn offld_gate_error_count(gate: Option<&OffldGate>) -> usize {
    gate.map_or(0, |gate| gate.errors.len())
}

/// Returns the error with this index, with its location; empty if `index` is out of range.
#[unsafe(no_mangle)]
pub extern "C" fn offld_gate_error(gate: Option<&OffldGate>, index: usize) -> OffldString {
    nth(gate.map(|gate| &gate.errors), index)
}

/// Writes the report as JSON, in the format of `offld gate --json` (docs/reference/json.md). The
/// caller frees the buffer.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn offld_gate_json(
    gate: Option<&OffldGate>,
    json: *mut *mut OffldBuffer,
    error: *mut *mut OffldError,
) -> OffldStatus {
    let write = || {
        let text = needed(gate, "the report")?.report.to_json()?;
        Ok(OffldBuffer::new(text.into_bytes()))
    };
    // SAFETY: the caller guarantees it.
    unsafe { made(json, error, write) }
}

/// Frees a report and everything that belongs to it. Does nothing for NULL.
#[unsafe(no_mangle)]
pub extern "C" fn offld_gate_free(gate: Option<Box<OffldGate>>) {
    drop(gate);
}

/// Returns the name of the rule, or else its patterns of files.
#[unsafe(no_mangle)]
pub extern "C" fn offld_violation_rule(violation: Option<&OffldViolation>) -> OffldString {
    shown(violation.map(|violation| &violation.rule))
}

/// Returns the key of the requirement in the policy: `require`, `max-size.total`, …
#[unsafe(no_mangle)]
pub extern "C" fn offld_violation_requirement(violation: Option<&OffldViolation>) -> OffldString {
    shown(violation.map(|violation| &violation.requirement))
}

/// Returns the file, with the member of a wheel, zip file or tar archive in parentheses.
#[unsafe(no_mangle)]
pub extern "C" fn offld_violation_file(violation: Option<&OffldViolation>) -> OffldString {
    shown(violation.map(|violation| &violation.file))
}

/// Returns the kernel; empty for requirements on files.
#[unsafe(no_mangle)]
pub extern "C" fn offld_violation_kernel(violation: Option<&OffldViolation>) -> OffldString {
    shown(violation.map(|violation| &violation.kernel))
}

/// Returns what the file has.
#[unsafe(no_mangle)]
pub extern "C" fn offld_violation_value(violation: Option<&OffldViolation>) -> OffldString {
    shown(violation.map(|violation| &violation.value))
}

/// Returns what the policy requires.
#[unsafe(no_mangle)]
pub extern "C" fn offld_violation_limit(violation: Option<&OffldViolation>) -> OffldString {
    shown(violation.map(|violation| &violation.limit))
}
