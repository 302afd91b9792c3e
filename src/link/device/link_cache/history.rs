//! The history of device links on this machine: what the last links of an output were made from.
//! With it, a miss reports what has changed since the most similar link. `offld cache why` reads it.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::Path;

use serde::{Deserialize, Serialize};

use crate::build_log::{Change, ChangeKind, How, Outcome, changes_text};
use offld_system::store::{Cache, Key, KeyBuilder, Scope};
use offload_formats::stable_names::without_file_ids;

/// Number of links of an output and target that are remembered.
const REMEMBERED: usize = 4;

/// The parts of the key of a link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct KeyParts {
    /// The name and the digest of each device code, in order.
    pub(super) inputs: Vec<(String, String)>,
    /// The registered kernels and variables.
    pub(super) kernels: BTreeSet<String>,
    /// Whether OpenMP kernels have stable names.
    pub(super) stable_names: bool,
    /// The path and the digest of the linker and of each program that it runs.
    pub(super) linkers: Vec<(String, String)>,
    pub(super) arguments: Vec<String>,
    pub(super) variables: BTreeMap<String, String>,
    /// The digest of the key that signs the remote cache.
    pub(super) signing_key: Option<String>,
}

/// A link of the history.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PastLink {
    /// The time, in microseconds since 1970.
    pub(crate) time_us: u64,
    pub(crate) outcome: Outcome,
    /// The reason of a miss, or the reason why the link cannot be cached.
    pub(crate) why: String,
    /// The changes since the most similar earlier link.
    pub(crate) changes: Vec<Change>,
    /// The time since which the link hits after its miss, in microseconds since 1970. Repeated hits do
    /// not change it, because they are not recorded.
    pub(crate) hit_us: Option<u64>,
    /// None for a link that cannot be cached.
    parts: Option<KeyParts>,
}

/// The different links of an output for a target, the latest one first.
#[derive(Debug, Default, Serialize, Deserialize)]
pub(crate) struct History {
    pub(crate) links: Vec<PastLink>,
}

/// The place of a history.
#[derive(Debug, Clone)]
pub(super) struct Place {
    output: Vec<u8>,
    target: String,
}

impl Place {
    pub(super) fn of(output: &Path, target: &str) -> Place {
        Place {
            output: absolute(output),
            target: target.to_owned(),
        }
    }

    fn key(&self) -> Key {
        key("history 4", &self.output, &self.target)
    }

    /// The key of the record about the last link, [`last_record`].
    fn last_key(&self) -> Key {
        key("history last 2", &self.output, &self.target)
    }
}

fn absolute(output: &Path) -> Vec<u8> {
    let output = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
    output.into_os_string().into_encoded_bytes()
}

fn key(kind: &str, output: &[u8], target: &str) -> Key {
    let mut key = KeyBuilder::default();
    key.add(kind).add(output).add(target);
    key.key()
}

/// The histories of `output` on this machine, by target.
pub(crate) fn of_output(cache: &Cache, output: &Path) -> Vec<(String, History)> {
    let output = absolute(output);
    let targets = targets(cache, &output);
    let history = |target: String| {
        let place = Place {
            output: output.clone(),
            target,
        };
        let history = History::read(cache, &place)?;
        Some((place.target, history))
    };
    targets.into_iter().filter_map(history).collect()
}

fn targets(cache: &Cache, output: &[u8]) -> BTreeSet<String> {
    let record = cache.record(key("history targets 1", output, ""), Scope::Local);
    let targets = record.and_then(|bytes| serde_json::from_slice(&bytes).ok());
    targets.unwrap_or_default()
}

impl History {
    pub(super) fn read(cache: &Cache, place: &Place) -> Option<History> {
        serde_json::from_slice(&cache.record(place.key(), Scope::Local)?).ok()
    }

    /// The changes from the most similar link to `now`. `None` without an earlier link.
    pub(super) fn changes(&self, now: &KeyParts) -> Option<Vec<Change>> {
        let parts = self.links.iter().filter_map(|link| link.parts.as_ref());
        let changes = parts.map(|parts| parts.changes(now));
        // Of several with the fewest changes, `min_by_key` returns the first: the latest link.
        changes.min_by_key(Vec::len)
    }

    /// Adds `link` as the latest one, at the front. A hit of a link that missed before stays a miss
    /// with a later hit, so that its reason is not lost.
    fn add(&mut self, mut link: PastLink) {
        let is_same = |known: &PastLink| match &known.parts {
            Some(parts) => link.parts.as_ref() == Some(parts),
            None => link.parts.is_none() && known.why == link.why,
        };
        let known = self.links.iter().position(is_same);
        let known = known.map(|at| self.links.remove(at));
        if let Some(known) = known
            && link.outcome == Outcome::Hit
        {
            link = PastLink {
                hit_us: Some(link.time_us),
                ..known
            };
        }
        self.links.insert(0, link);
        self.links.truncate(REMEMBERED);
    }
}

/// The record about the last link: its outcome, and the key of its image or the reason why it cannot
/// be cached.
fn last_record(outcome: Outcome, identity: &[u8]) -> Vec<u8> {
    [outcome.name().as_bytes(), b" ", identity].concat()
}

/// Whether the last link at `place` had this outcome and identity. Links are often repeated, so a small
/// record answers this.
pub(super) fn is_last(cache: &Cache, place: &Place, outcome: Outcome, identity: &[u8]) -> bool {
    let last = cache.record(place.last_key(), Scope::Local);
    last.is_some_and(|last| last == last_record(outcome, identity))
}

/// Adds a link to the history at `place`. `identity`: the key of its image, or the reason why it
/// cannot be cached. Errors are ignored: the history only explains misses.
pub(super) fn add(cache: &Cache, place: &Place, link: PastLink, identity: &[u8]) {
    let last = last_record(link.outcome, identity);
    let _ = cache.put_record(place.last_key(), &last, Scope::Local);
    let mut history = History::read(cache, place).unwrap_or_default();
    history.add(link);
    if let Ok(record) = serde_json::to_vec(&history) {
        let _ = cache.put_record(place.key(), &record, Scope::Local);
    }
    let mut known = targets(cache, &place.output);
    if known.insert(place.target.clone())
        && let Ok(record) = serde_json::to_vec(&known)
    {
        let key = key("history targets 1", &place.output, "");
        let _ = cache.put_record(key, &record, Scope::Local);
    }
}

impl PastLink {
    pub(super) fn hit(time_us: u64, parts: KeyParts) -> PastLink {
        PastLink::new(Outcome::Hit, time_us, Miss::default(), Some(parts))
    }

    pub(super) fn miss(time_us: u64, parts: KeyParts, why: Miss) -> PastLink {
        PastLink::new(Outcome::Miss, time_us, why, Some(parts))
    }

    /// A link that cannot be cached, because of `why`.
    pub(super) fn uncached(time_us: u64, why: String) -> PastLink {
        PastLink::new(Outcome::Uncached, time_us, why.into(), None)
    }

    fn new(outcome: Outcome, time_us: u64, why: Miss, parts: Option<KeyParts>) -> PastLink {
        PastLink {
            time_us,
            outcome,
            why: why.text,
            changes: why.changes,
            hit_us: None,
            parts,
        }
    }
}

/// The reason of a miss.
#[derive(Debug, Clone, Default)]
pub(in crate::link::device) struct Miss {
    pub(in crate::link::device) text: String,
    pub(in crate::link::device) changes: Vec<Change>,
}

impl From<String> for Miss {
    fn from(text: String) -> Self {
        Miss {
            text,
            changes: Vec::new(),
        }
    }
}

impl Miss {
    /// The reason by the history: `changes` since the most similar link, if there is one.
    pub(super) fn since(changes: Option<Vec<Change>>) -> Miss {
        match changes {
            None => {
                Miss::from("no earlier link of this output is recorded on this machine".to_owned())
            }
            Some(changes) => Miss {
                text: changes_text(&changes),
                changes,
            },
        }
    }
}

impl KeyParts {
    /// The changes from these parts to `now`.
    fn changes(&self, now: &KeyParts) -> Vec<Change> {
        let mut all = Vec::new();
        if self.stable_names != now.stable_names {
            let how = if now.stable_names {
                How::Added
            } else {
                How::Removed
            };
            all.push(Change::new(ChangeKind::StableNames, "", how));
        }
        all.extend(moved_kernels(&self.kernels, &now.kernels));
        all.extend(of_inputs(&self.inputs, &now.inputs));
        all.extend(of_arguments(&self.arguments, &now.arguments));
        all.extend(of_variables(&self.variables, &now.variables));
        all.extend(by_name(ChangeKind::Linker, &self.linkers, &now.linkers));
        if self.signing_key != now.signing_key {
            all.push(Change::new(
                ChangeKind::SigningKey,
                "OFFLD_CACHE_KEY",
                How::Changed,
            ));
        }
        all
    }
}

/// OpenMP kernels that moved to another line.
fn moved_kernels(old: &BTreeSet<String>, new: &BTreeSet<String>) -> Vec<Change> {
    let split = |name: &str| -> Option<(String, String)> {
        // clang's numbers of the source file change without a change of the kernel.
        let name = String::from_utf8(without_file_ids(name.as_bytes())).ok()?;
        let (start, line) = name.rsplit_once("_l")?;
        line.parse::<u32>().ok()?;
        Some((start.to_owned(), line.to_owned()))
    };
    let mut gone: HashMap<String, Vec<String>> = HashMap::new();
    for (name, line) in old.difference(new).filter_map(|name| split(name)) {
        gone.entry(name).or_default().push(line);
    }
    let moved = |name: &String| {
        let (start, line) = split(name)?;
        let lines = gone.get_mut(&start)?;
        let old = (!lines.is_empty()).then(|| lines.remove(0))?;
        let shown = offload_formats::kernels::demangled(name);
        let function = shown
            .as_deref()
            .and_then(|shown| shown.split(", line").next());
        Some(Change {
            old: Some(old),
            new: Some(line),
            ..Change::new(ChangeKind::Kernel, function.unwrap_or(&start), How::Changed)
        })
    };
    new.difference(old).filter_map(moved).collect()
}

/// Changes of device code. Names are no part of the key, so inputs with the same contents are the
/// same.
fn of_inputs(old: &[(String, String)], new: &[(String, String)]) -> Vec<Change> {
    let mut left: HashMap<&str, usize> = HashMap::new();
    for (_, digest) in old {
        *left.entry(digest).or_default() += 1;
    }
    let mut added = Vec::new();
    for (name, digest) in new {
        match left.get_mut(digest.as_str()).filter(|count| **count > 0) {
            Some(count) => *count -= 1,
            None => added.push((name.clone(), digest.clone())),
        }
    }
    let mut removed = Vec::new();
    for (name, digest) in old.iter().rev() {
        if let Some(count) = left.get_mut(digest.as_str()).filter(|count| **count > 0) {
            *count -= 1;
            removed.push((name.clone(), digest.clone()));
        }
    }
    removed.reverse();
    let changes = by_name(ChangeKind::DeviceCode, &removed, &added);
    let digests = |inputs: &[(String, String)]| -> Vec<String> {
        inputs.iter().map(|(_, digest)| digest.clone()).collect()
    };
    if changes.is_empty() && digests(old) != digests(new) {
        return vec![Change::new(ChangeKind::DeviceCode, "", How::Reordered)];
    }
    changes
}

/// Changes of things with a name and a digest.
fn by_name(kind: ChangeKind, old: &[(String, String)], new: &[(String, String)]) -> Vec<Change> {
    let mut before: HashMap<&str, Vec<&str>> = HashMap::new();
    for (name, digest) in old {
        before.entry(name).or_default().push(digest);
    }
    let mut all = Vec::new();
    for (name, digest) in new {
        match before
            .get_mut(name.as_str())
            .filter(|digests| !digests.is_empty())
        {
            Some(digests) => {
                if digests.remove(0) != digest {
                    all.push(Change::new(kind, name, How::Changed));
                }
            }
            None => all.push(Change::new(kind, name, How::Added)),
        }
    }
    for (name, _) in old {
        if let Some(digests) = before
            .get_mut(name.as_str())
            .filter(|digests| !digests.is_empty())
        {
            digests.remove(0);
            all.push(Change::new(kind, name, How::Removed));
        }
    }
    all
}

fn of_arguments(old: &[String], new: &[String]) -> Vec<Change> {
    let pairs = |arguments: &[String]| -> Vec<(String, String)> {
        arguments
            .iter()
            .map(|argument| (argument.clone(), String::new()))
            .collect()
    };
    let changes = by_name(ChangeKind::Argument, &pairs(old), &pairs(new));
    if changes.is_empty() && old != new {
        return vec![Change::new(ChangeKind::Argument, "", How::Reordered)];
    }
    changes
}

fn of_variables(old: &BTreeMap<String, String>, new: &BTreeMap<String, String>) -> Vec<Change> {
    let names: BTreeSet<&String> = old.keys().chain(new.keys()).collect();
    let change = |name: &String| {
        let (before, now) = (old.get(name), new.get(name));
        let how = match (before, now) {
            (before, now) if before == now => return None,
            (None, _) => How::Added,
            (_, None) => How::Removed,
            _ => How::Changed,
        };
        Some(Change {
            old: before.cloned(),
            new: now.cloned(),
            ..Change::new(ChangeKind::Variable, name, how)
        })
    };
    names.into_iter().filter_map(change).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parts() -> KeyParts {
        let pair = |name: &str, digest: &str| (name.to_owned(), digest.to_owned());
        KeyParts {
            inputs: vec![pair("a.o", "1"), pair("b.o", "2")],
            kernels: BTreeSet::from(["__omp_offloading_0_d_main_l3".to_owned()]),
            stable_names: false,
            linkers: vec![pair("/bin/ld", "3")],
            arguments: vec!["-O2".to_owned(), "-lm".to_owned()],
            variables: BTreeMap::from([("LC_ALL".to_owned(), "C".to_owned())]),
            signing_key: None,
        }
    }

    fn past(parts: KeyParts) -> PastLink {
        PastLink::miss(0, parts, Miss::default())
    }

    fn text(old: Vec<KeyParts>, now: &KeyParts) -> String {
        let links = old.into_iter().map(past).collect();
        Miss::since(History { links }.changes(now)).text
    }

    #[test]
    fn changes_are_named_with_their_values() {
        let now = parts();
        assert_eq!(
            text(Vec::new(), &now),
            "no earlier link of this output is recorded on this machine"
        );
        assert_eq!(
            text(vec![now.clone()], &now),
            "the entry was evicted or removed"
        );
        let old = KeyParts {
            arguments: vec!["-O2".to_owned()],
            variables: BTreeMap::from([("LANG".to_owned(), "de".to_owned())]),
            ..now.clone()
        };
        assert_eq!(
            text(vec![old.clone()], &now),
            "the linker argument `-lm` was added, LANG is no longer set (it was `de`), LC_ALL was set to `C`"
        );
        let old = KeyParts {
            inputs: Vec::new(),
            ..old
        };
        assert!(text(vec![old], &now).ends_with("and 2 more"));
    }

    #[test]
    fn device_code_is_compared_by_contents() {
        let mut now = parts();
        now.inputs = now
            .inputs
            .into_iter()
            .map(|(name, digest)| (format!("dir/{name}"), digest))
            .collect();
        assert_eq!(
            text(vec![parts()], &now),
            "the entry was evicted or removed"
        );
        now.inputs.reverse();
        assert_eq!(
            text(vec![parts()], &now),
            "the order of the device code has changed"
        );
        let mut now = parts();
        now.inputs[1].1 = "9".to_owned();
        assert_eq!(
            text(vec![parts()], &now),
            "the device code of b.o has changed"
        );
        now.inputs[1].0 = "c.o".to_owned();
        assert_eq!(
            text(vec![parts()], &now),
            "the device code of c.o was added, the device code of b.o was removed"
        );
    }

    #[test]
    fn the_most_similar_link_is_compared() {
        let experiment = KeyParts {
            arguments: vec!["-O3".to_owned()],
            variables: BTreeMap::new(),
            ..parts()
        };
        let mut now = parts();
        now.inputs[0].1 = "8".to_owned();
        assert_eq!(
            text(vec![experiment, parts()], &now),
            "the device code of a.o has changed"
        );
    }

    #[test]
    fn a_hit_does_not_replace_the_reason_of_its_miss() {
        let miss = PastLink::miss(1, parts(), Miss::from("new".to_owned()));
        let uncached = PastLink::uncached(2, "a script".to_owned());
        let mut history = History::default();
        for link in [
            &miss,
            &uncached,
            &uncached,
            &PastLink::hit(3, parts()),
            &PastLink::hit(4, parts()),
        ] {
            history.add(link.clone());
        }
        let found = PastLink {
            hit_us: Some(4),
            ..miss.clone()
        };
        assert_eq!(history.links, [found, uncached]);
        // Another miss of the same link has another reason.
        history.add(miss.clone());
        assert_eq!(history.links[0], miss);
    }

    #[test]
    fn stable_names_are_named_before_the_code_that_they_change() {
        let now = KeyParts {
            stable_names: true,
            inputs: vec![
                ("a.o".to_owned(), "8".to_owned()),
                parts().inputs[1].clone(),
            ],
            ..parts()
        };
        assert_eq!(
            text(vec![parts()], &now),
            "the kernels now have stable names, the device code of a.o has changed"
        );
        assert!(text(vec![now], &parts()).starts_with("the kernels no longer have stable names, "));
    }

    #[test]
    fn kernels_that_moved_are_named() {
        let mut now = parts();
        now.inputs[0].1 = "8".to_owned();
        now.kernels = BTreeSet::from(["__omp_offloading_0_d_main_l4".to_owned()]);
        assert_eq!(
            text(vec![parts()], &now),
            "the kernel main has moved from line 3 to line 4, the device code of a.o has changed"
        );
    }
}
