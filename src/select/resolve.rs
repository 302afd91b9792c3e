//! What symbol resolution takes out of archives: by the host link (from the host symbol tables), and by device code that needs
//! other device code. Independent of the order of objects and archives, and on the side of taking (decision 3).

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use anyhow::Result;

use super::{Wishes, symbols};
use crate::scan::{Found, HostFacts};

/// For each leaf that is lazy and that the host link takes: why.
pub(super) fn host_pulls(facts: &[HostFacts<'_>], lazy: &[bool], origins: &[String], wishes: &Wishes) -> Vec<Option<String>> {
    let mut pulled = vec![None; facts.len()];
    if !lazy.contains(&true) {
        return pulled;
    }
    let mut resolver = Resolver::default();
    for (from, to) in &wishes.alternate_names {
        resolver.alternate(from.as_bytes(), to.as_bytes(), None);
    }
    for (leaf, facts) in facts.iter().enumerate() {
        if lazy[leaf] { resolver.offer(leaf, facts) } else { resolver.include(facts, leaf) }
    }
    for root in &wishes.roots {
        resolver.need(root.as_bytes(), None);
    }
    while let Some((name, needed_by)) = resolver.wanted.pop_front() {
        for alias in aliases(&name, &wishes.wrapped) {
            resolver.need(&alias, needed_by);
        }
        for (to, by) in resolver.alternates.get(&name).cloned().unwrap_or_default() {
            resolver.need(&to, by);
        }
        let Some(&leaf) = resolver.offered.get(&name) else { continue };
        if resolver.strong.contains(&name) || pulled[leaf].is_some() {
            continue;
        }
        let by = needed_by.map_or("the command line", |leaf| origins[leaf].as_str());
        pulled[leaf] = Some(format!("the host link pulls it for `{}`, needed by {by}", String::from_utf8_lossy(&name)));
        resolver.include(&facts[leaf], leaf);
    }
    pulled
}

/// With `--wrap=s`, needing `s` means `__wrap_s`, and needing `__real_s` means `s`.
fn aliases(name: &[u8], wrapped: &[String]) -> Vec<Vec<u8>> {
    let mut also = Vec::new();
    for symbol in wrapped {
        if symbol.as_bytes() == name {
            also.push([b"__wrap_", name].concat());
        }
        if name.strip_prefix(b"__real_") == Some(symbol.as_bytes()) {
            also.push(symbol.clone().into_bytes());
        }
    }
    also
}

/// A symbol that another stands for, and the leaf that says so.
type Alternate = (Vec<u8>, Option<usize>);

/// Who offers what, what is defined, and what is still to be looked for.
#[derive(Default)]
struct Resolver {
    /// The first lazy leaf that defines a symbol.
    offered: HashMap<Vec<u8>, usize>,
    /// Strong definitions in what is linked.
    strong: HashSet<Vec<u8>>,
    /// What a symbol stands for as well, and who says so.
    alternates: HashMap<Vec<u8>, Vec<Alternate>>,
    asked: HashSet<Vec<u8>>,
    wanted: VecDeque<(Vec<u8>, Option<usize>)>,
}

impl Resolver {
    fn offer(&mut self, leaf: usize, facts: &HostFacts<'_>) {
        for symbol in &facts.defined {
            self.offered.entry(symbol.name.to_vec()).or_insert(leaf);
        }
    }

    fn include(&mut self, facts: &HostFacts<'_>, leaf: usize) {
        self.strong.extend(facts.defined.iter().filter(|symbol| !symbol.weak).map(|symbol| symbol.name.to_vec()));
        for symbol in facts.undefined.iter().filter(|symbol| !symbol.weak) {
            self.need(&symbol.name, Some(leaf));
        }
        for (from, to) in &facts.alternate_names {
            self.alternate(from, to, Some(leaf));
        }
    }

    fn need(&mut self, name: &[u8], by: Option<usize>) {
        if !self.asked.contains(name) {
            self.asked.insert(name.to_vec());
            self.wanted.push_back((name.to_vec(), by));
        }
    }

    /// Who needs `from` may come to need `to`: whether anybody defines `from` is known only at the end.
    fn alternate(&mut self, from: &[u8], to: &[u8], by: Option<usize>) {
        self.alternates.entry(from.to_vec()).or_default().push((to.to_vec(), by));
        if self.asked.contains(from) {
            self.need(to, by);
        }
    }
}

/// Adds to `members` those of `waiting` that define what the members leave undefined, again and again until nothing more is
/// needed. Returns the ones taken and why.
pub(super) fn device_pulls(
    found: &[Found<'_>],
    members: &mut BTreeSet<usize>,
    waiting: &[usize],
) -> Result<BTreeMap<usize, String>> {
    let mut tables: BTreeMap<usize, HostFacts<'_>> = BTreeMap::new();
    for &at in members.iter().chain(waiting) {
        tables.insert(at, symbols(&found[at])?);
    }
    let mut offered: HashMap<Cow<'_, [u8]>, usize> = HashMap::new();
    for &at in waiting {
        for symbol in &tables[&at].defined {
            offered.entry(symbol.name.clone()).or_insert(at);
        }
    }
    let mut defined: HashSet<Cow<'_, [u8]>> = HashSet::new();
    let mut queue: VecDeque<usize> = members.iter().copied().collect();
    for at in &queue {
        defined.extend(tables[at].defined.iter().map(|symbol| symbol.name.clone()));
    }
    let mut taken = BTreeMap::new();
    while let Some(at) = queue.pop_front() {
        for symbol in tables[&at].undefined.iter().filter(|symbol| !symbol.weak) {
            let Some(&provider) = offered.get(&symbol.name) else { continue };
            if defined.contains(&symbol.name) || !members.insert(provider) {
                continue;
            }
            let name = String::from_utf8_lossy(&symbol.name);
            taken.insert(provider, format!("it defines the device symbol `{name}`, which {} leaves undefined", found[at].origin));
            defined.extend(tables[&provider].defined.iter().map(|symbol| symbol.name.clone()));
            queue.push_back(provider);
        }
    }
    Ok(taken)
}
