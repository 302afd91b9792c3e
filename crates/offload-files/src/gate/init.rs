//! A policy for given files, as a start: the requirements that the files meet.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};
use glob::Pattern;

use super::files::{self, File, Subject};
use super::policy::{Check, Rule, VERSION, capability};
use super::rules;
use crate::contents::selection::Selection;
use offld_system::session::Session;
use offload_formats::target::Selector;

/// The checks that a policy of one build can contain.
const CHECKS: [Check; 6] = [
    Check::DeviceCode,
    Check::Registered,
    Check::Compressed,
    Check::NoDebugInfo,
    Check::NoDuplicates,
    Check::WheelTags,
];

/// What all files of one pattern have.
struct Common {
    checks: Vec<Check>,
    /// The architectures of the file, or of all members together.
    archs: BTreeSet<String>,
    /// The architectures of each member with device code, by the pattern of its name; empty for one
    /// member.
    members: BTreeMap<String, BTreeSet<String>>,
    ptx_floor: Option<(u32, u32)>,
    /// The size of the largest file in bytes.
    size: u64,
}

/// Returns the text of a policy that `paths` meet. `max_unpacked` limits decompressed data in bytes.
///
/// # Errors
/// A file cannot be read, no file has device code, or a signal arrived.
pub fn policy(paths: &[PathBuf], max_unpacked: u64, session: &Session) -> Result<String> {
    let any = Rule::for_checks(&[]);
    let (measured, errors) = files::measured(&any, paths, max_unpacked, session)?;
    if let Some(error) = errors.first() {
        bail!("{error}");
    }
    let mut rules: BTreeMap<String, Common> = BTreeMap::new();
    for file in measured
        .iter()
        .filter(|file| !file.subjects.iter().all(|one| one.images.is_empty()))
    {
        let own = Common::of(file, session)?;
        let pattern = pattern(&file.path);
        match rules.remove(&pattern) {
            Some(known) => rules.insert(pattern, known.and(own)),
            None => rules.insert(pattern, own),
        };
    }
    if rules.is_empty() {
        bail!("no device code in the files");
    }
    let mut text = format!(
        "# Written by `offld gate --init`. docs/reference/gate.md explains the keys.\nversion = {VERSION}\n"
    );
    for (pattern, common) in rules {
        common.write(&pattern, &mut text);
    }
    Ok(text)
}

impl Common {
    fn of(file: &File, session: &Session) -> Result<Common> {
        let mut checks = Vec::new();
        for check in CHECKS {
            let is_wheel = file.path.extension().is_some_and(|end| end == "whl");
            if check == Check::WheelTags && !is_wheel {
                continue;
            }
            if rules::of_file(&Rule::for_checks(&[check]), file, session)?.is_empty() {
                checks.push(check);
            }
        }
        let mut members: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
        for (member, subject) in files::members(&file.sizes) {
            if !subject.images.is_empty() {
                let name = Path::new(&*member).file_name().unwrap_or_default();
                let pattern = member_pattern(&name.to_string_lossy());
                // The rule applies to all members that the pattern matches.
                match members.entry(pattern) {
                    Entry::Vacant(own) => drop(own.insert(archs(&subject))),
                    Entry::Occupied(mut own) => {
                        own.get_mut().retain(|arch| archs(&subject).contains(arch));
                    }
                }
            }
        }
        if members.len() < 2 {
            members.clear();
        }
        let images = file.subjects.iter().flat_map(|subject| &subject.images);
        let ptx = images.filter(|image| image.format == "ptx");
        Ok(Common {
            checks,
            archs: file.subjects.iter().flat_map(archs).collect(),
            members,
            ptx_floor: ptx.filter_map(|image| capability(&image.arch)).min(),
            size: file.sizes.size(),
        })
    }

    /// What both have.
    fn and(self, other: Common) -> Common {
        let mut checks = self.checks;
        checks.retain(|check| other.checks.contains(check));
        let members = self.members.into_iter().filter_map(|(pattern, archs)| {
            let archs = &archs & other.members.get(&pattern)?;
            Some((pattern, archs))
        });
        Common {
            checks,
            archs: &self.archs & &other.archs,
            members: members.collect(),
            ptx_floor: self
                .ptx_floor
                .max(other.ptx_floor)
                .filter(|_| self.ptx_floor.is_some() && other.ptx_floor.is_some()),
            size: self.size.max(other.size),
        }
    }

    fn write(&self, pattern: &str, out: &mut String) {
        let list = |texts: &[&str]| {
            let texts: Vec<String> = texts.iter().map(|text| quoted(text)).collect();
            format!("[{}]", texts.join(", "))
        };
        let checks: Vec<&str> = self.checks.iter().map(|check| check.name()).collect();
        let archs =
            |archs: &BTreeSet<String>| list(&archs.iter().map(String::as_str).collect::<Vec<_>>());
        let _ = writeln!(out, "\n[[rule]]\nfiles = {}", quoted(pattern));
        if !checks.is_empty() {
            let _ = writeln!(out, "checks = {}", list(&checks));
        }
        if self.members.is_empty() && !self.archs.is_empty() {
            let _ = writeln!(out, "require = {}", archs(&self.archs));
        }
        if let Some((major, minor)) = self.ptx_floor {
            let _ = writeln!(out, "ptx-floor = \"compute_{major}{minor}\"");
        }
        let _ = writeln!(
            out,
            "max-size = {{ total = {} }}",
            quoted(&with_reserve(self.size))
        );
        let mut same: BTreeMap<&BTreeSet<String>, Vec<&str>> = BTreeMap::new();
        for (pattern, archs) in self.members.iter().filter(|(_, archs)| !archs.is_empty()) {
            same.entry(archs).or_default().push(pattern);
        }
        for (own, patterns) in same {
            let (patterns, own) = (list(&patterns), archs(own));
            let _ = writeln!(out, "\n[[rule]]\nfiles = {patterns}\nrequire = {own}");
        }
    }
}

/// The pattern of a file's name: for a wheel with any version and tags.
fn pattern(path: &Path) -> String {
    let name = path
        .file_name()
        .unwrap_or(path.as_os_str())
        .to_string_lossy();
    match name
        .strip_suffix(".whl")
        .and_then(|stem| stem.split_once('-'))
    {
        Some((distribution, _)) => format!("{}-*.whl", Pattern::escape(distribution)),
        None => Pattern::escape(&name),
    }
}

/// The pattern of a member's name: for a Python extension with any version of Python.
fn member_pattern(name: &str) -> String {
    match name.split_once(".cpython-") {
        Some((start, rest)) => {
            let end = rest.split_once('-').map_or(rest, |(_, end)| end);
            format!(
                "{}.cpython-*-{}",
                Pattern::escape(start),
                Pattern::escape(end)
            )
        }
        None => Pattern::escape(name),
    }
}

/// The architectures of a file or member, by names that select its images.
fn archs(subject: &Subject) -> BTreeSet<String> {
    let is_selected = |arch: &&str| {
        let selector: Option<Selector> = arch.parse().ok();
        selector.is_some_and(|selector| {
            let mut images = subject.images.iter();
            images.any(|image| image.is_selected(&selector))
        })
    };
    let archs = subject.archs_of(|_| true).into_iter().filter(is_selected);
    archs.map(str::to_owned).collect()
}

/// A size limit that is a tenth more than `size`: `850M`.
fn with_reserve(size: u64) -> String {
    let size = size.saturating_add(size / 10).max(1);
    match size.div_ceil(1 << 20) {
        megabytes @ 10.. => format!("{megabytes}M"),
        _ => format!("{}K", size.div_ceil(1 << 10)),
    }
}

/// A TOML string. JSON escapes are valid in TOML, except for DEL, which JSON does not escape.
fn quoted(text: &str) -> String {
    serde_json::Value::from(text)
        .to_string()
        .replace('\u{7f}', "\\u007f")
}

impl Rule {
    /// A rule for all files that requires `checks` alone.
    fn for_checks(checks: &[Check]) -> Rule {
        Rule {
            name: String::new(),
            selection: Arc::new(Selection::default()),
            has_pattern: false,
            checks: checks.to_vec(),
            require: Vec::new(),
            forbid: Vec::new(),
            only: Vec::new(),
            runs_on: Vec::new(),
            ptx_floor: None,
            max_driver: None,
            max_rocm: None,
            max_size: Vec::new(),
            max_growth: Vec::new(),
        }
    }
}
