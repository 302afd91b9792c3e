//! Symbol resolution by the host symbol tables: which archive members the host link extracts, and
//! which device images other device code needs. `host_link` returns the members: `line_order`
//! decides for GNU ld, gold and ld.lld, and this file for other linkers and for COFF objects. Its
//! result does not depend on the order of objects and archives, and in doubt a member is extracted.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet, VecDeque};

use anyhow::Result;
use rayon::prelude::*;

use super::line_order::{self, Reading, Taken, names};
use super::{SelectOptions, symbols};
use crate::link::scan::{Definition, DeviceImage, HostFacts};
use offld_system::threads;
use offload_formats::model::printable_name;

/// Returns the objects of the host link, in the order in which the linker reads them. `defined`:
/// symbols that the registration objects define. The linker reads these objects first.
pub(super) fn host_link(
    facts: &[HostFacts<'_>],
    lazy: &[bool],
    origins: &[String],
    options: &SelectOptions,
    defined: &[String],
) -> Taken {
    match options.reading {
        Reading::AnyOrder => {
            let pulled = in_any_order(facts, lazy, origins, options, defined);
            let order = (0..facts.len())
                .filter(|&object| !lazy[object] || pulled[object].is_some())
                .collect();
            Taken { order, pulled }
        }
        _ if !lazy.contains(&true) => Taken {
            order: (0..facts.len()).collect(),
            pulled: vec![None; facts.len()],
        },
        _ => line_order::read(facts, lazy, origins, options, defined),
    }
}

/// Returns for each object why the host link extracts it; none if it is not lazy, or not extracted.
fn in_any_order(
    facts: &[HostFacts<'_>],
    lazy: &[bool],
    origins: &[String],
    options: &SelectOptions,
    defined: &[String],
) -> Vec<Option<String>> {
    let mut pulled = vec![None; facts.len()];
    if !lazy.contains(&true) {
        return pulled;
    }
    let all = facts.iter().flat_map(|facts| &facts.defined);
    let common = all
        .filter(|symbol| symbol.common && !options.keeps_common)
        .map(|symbol| symbol.name.as_ref())
        .collect();
    // If common symbols extract nothing, they define their names for the members after them.
    let mut defined_before: HashMap<&[u8], usize> = HashMap::new();
    for (input_object, facts) in facts.iter().enumerate() {
        let is_common = |symbol: &&Definition<'_>| symbol.common && options.keeps_common;
        if !lazy[input_object] {
            for symbol in facts.defined.iter().filter(is_common) {
                defined_before.entry(&symbol.name).or_insert(input_object);
            }
        }
    }
    let mut resolver = Resolver {
        common,
        strong: defined.iter().map(|name| name.as_bytes().into()).collect(),
        ..Resolver::default()
    };
    for (from, to) in &options.alternate_names {
        resolver.alternate(from.as_bytes(), to.as_bytes(), LINE);
    }
    for (input_object, facts) in facts.iter().enumerate() {
        if lazy[input_object] {
            resolver.offer(input_object, facts)
        } else {
            resolver.include(facts, &origins[input_object])
        }
    }
    for root in &options.roots {
        resolver.need(Cow::Borrowed(root.as_bytes()), LINE);
    }
    for library in &options.shared {
        library
            .needs
            .iter()
            .for_each(|symbol| resolver.need(Cow::Borrowed(symbol), &library.name));
    }
    for glob in &options.globs {
        let offered = resolver
            .offered
            .keys()
            .filter(|name| glob.matches(&String::from_utf8_lossy(name)));
        for name in offered.cloned().collect::<Vec<_>>() {
            resolver.need(name, LINE);
        }
    }
    while let Some(Wanted {
        name,
        by,
        is_common,
    }) = resolver.wanted.pop_front()
    {
        let offered = if is_common {
            &resolver.initialized
        } else {
            &resolver.offered
        };
        let input_object = offered.get(name.as_ref()).copied();
        if !is_common {
            for alias in aliases(&name, &options.wrapped) {
                resolver.need(Cow::Owned(alias), by);
            }
            for (to, by) in resolver
                .alternates
                .get(name.as_ref())
                .cloned()
                .unwrap_or_default()
            {
                resolver.need(Cow::Borrowed(to), by);
            }
        }
        let Some(input_object) = input_object.filter(|&input_object| {
            let is_defined = resolver.strong.contains(name.as_ref())
                || defined_before
                    .get(name.as_ref())
                    .is_some_and(|&object| object < input_object);
            pulled[input_object].is_none() && !is_defined
        }) else {
            continue;
        };
        pulled[input_object] = Some(pull_reason(&name, by));
        resolver.include(&facts[input_object], &origins[input_object]);
    }
    pulled
}

/// Returns the reason why the host link extracts an archive member, for reports.
pub(super) fn pull_reason(name: &[u8], by: &str) -> String {
    let name = printable_name(name);
    format!("the host link extracts the member for `{name}`, needed by {by}")
}

/// The origin of symbols that the command line requires, for reports.
pub(super) const LINE: &str = "the command line";

/// Returns the other names of a symbol. With `--wrap=s`, a reference to `s` means `__wrap_s`, and
/// one to `__real_s` means `s`.
pub(super) fn aliases(name: &[u8], wrapped: &[String]) -> Vec<Vec<u8>> {
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

/// The symbol that replaces another one, and the object or option that requests it.
type Alternate<'f> = (&'f [u8], &'f str);

/// A symbol that needs a definition, and the object or option that refers to it. A common symbol is
/// defined already, but linkers prefer a definition with a value.
struct Wanted<'f> {
    name: Cow<'f, [u8]>,
    by: &'f str,
    is_common: bool,
}

/// The state of the resolution: definitions in lazy objects, definitions in linked ones, and
/// unresolved symbols. Names are borrowed because large links have millions.
#[derive(Default)]
struct Resolver<'f> {
    /// Names that are common symbols in some object.
    common: HashSet<&'f [u8]>,
    /// The first lazy object that defines a symbol.
    offered: HashMap<Cow<'f, [u8]>, usize>,
    /// The first lazy object that defines, with a value, a symbol that is common elsewhere.
    initialized: HashMap<Cow<'f, [u8]>, usize>,
    /// Strong definitions in linked objects.
    strong: HashSet<Cow<'f, [u8]>>,
    /// The alternate names by symbol.
    alternates: HashMap<&'f [u8], Vec<Alternate<'f>>>,
    asked: HashSet<Cow<'f, [u8]>>,
    wanted: VecDeque<Wanted<'f>>,
}

impl<'f> Resolver<'f> {
    fn offer(&mut self, input_object: usize, facts: &'f HostFacts<'_>) {
        for symbol in &facts.defined {
            for name in names(&symbol.name) {
                if !symbol.common && self.common.contains(name.as_ref()) {
                    self.initialized.entry(name.clone()).or_insert(input_object);
                }
                self.offered.entry(name).or_insert(input_object);
            }
        }
    }

    fn include(&mut self, facts: &'f HostFacts<'_>, origin: &'f str) {
        self.strong.extend(
            facts
                .defined
                .iter()
                .filter(|symbol| !symbol.weak)
                .flat_map(|symbol| names(&symbol.name)),
        );
        let common = facts.defined.iter().filter(|symbol| symbol.common);
        self.wanted.extend(common.map(|symbol| Wanted {
            name: Cow::Borrowed(&symbol.name),
            by: origin,
            is_common: true,
        }));
        for symbol in facts.undefined.iter().filter(|symbol| !symbol.weak) {
            self.need(Cow::Borrowed(&symbol.name), origin);
        }
        for (from, to) in &facts.alternate_names {
            self.alternate(from, to, origin);
        }
    }

    fn need(&mut self, name: Cow<'f, [u8]>, by: &'f str) {
        if self.asked.insert(name.clone()) {
            self.wanted.push_back(Wanted {
                name,
                by,
                is_common: false,
            });
        }
    }

    /// Records that `to` replaces `from` if `from` is not defined. That is known only at the end,
    /// so each reference to `from` is also a reference to `to`.
    fn alternate(&mut self, from: &'f [u8], to: &'f [u8], by: &'f str) {
        self.alternates.entry(from).or_default().push((to, by));
        if self.asked.contains(from) {
            self.need(Cow::Borrowed(to), by);
        }
    }
}

/// Whether some of these images need a symbol that none of them defines.
fn has_open_symbols(tables: &BTreeMap<usize, HostFacts<'_>>) -> bool {
    let defined = tables.values().flat_map(|table| &table.defined);
    let defined: HashSet<&[u8]> = defined.map(|symbol| symbol.name.as_ref()).collect();
    let mut needs = tables.values().flat_map(|table| &table.undefined);
    needs.any(|need| !need.weak && !defined.contains(need.name.as_ref()))
}

/// Returns the symbols of the images `which`.
fn symbol_tables<'f>(
    found: &'f [DeviceImage<'_>],
    which: &[usize],
) -> Result<BTreeMap<usize, HostFacts<'f>>> {
    /// The least number of images for which threads are faster.
    const MANY: usize = 64;
    let table = |&at: &usize| Ok((at, symbols(&found[at])?));
    if which.len() < MANY {
        return which.iter().map(table).collect();
    }
    let tables: Vec<Result<(usize, HostFacts<'f>)>> =
        threads::in_parallel(|| which.par_iter().map(table).collect());
    tables.into_iter().collect()
}

/// Extends `members` (the images of a device link) with each image of `waiting` that defines a symbol
/// needed by a member, until nothing more is needed. Returns the added images with their reasons.
pub(super) fn device_pulls(
    found: &[DeviceImage<'_>],
    members: &mut BTreeSet<usize>,
    waiting: &[usize],
) -> Result<BTreeMap<usize, String>> {
    let mut tables = symbol_tables(found, &members.iter().copied().collect::<Vec<usize>>())?;
    if !has_open_symbols(&tables) {
        // Without this, large libraries would be decompressed.
        return Ok(BTreeMap::new());
    }
    tables.extend(symbol_tables(found, waiting)?);
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
            let Some(&provider) = offered.get(&symbol.name) else {
                continue;
            };
            if defined.contains(&symbol.name) || !members.insert(provider) {
                continue;
            }
            let name = printable_name(&symbol.name);
            taken.insert(
                provider,
                format!("{} needs the device symbol `{name}`", found[at].origin),
            );
            defined.extend(
                tables[&provider]
                    .defined
                    .iter()
                    .map(|symbol| symbol.name.clone()),
            );
            queue.push_back(provider);
        }
    }
    Ok(taken)
}
