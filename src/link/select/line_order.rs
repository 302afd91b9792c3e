//! Order in which a linker reads the objects of a command line. The order decides which archive
//! members the linker extracts, and which of several weak definitions it uses. GNU ld and gold read
//! the command line once, and search each archive for the symbols that are undefined at that point.
//! ld.lld remembers every archive that it has passed, and extracts a member at the first reference.
//! The device links use the same members in the same order, so that they choose the same
//! definitions.

use std::borrow::Cow;
use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ops::Range;

use super::resolve::{LINE, aliases, pull_reason};
use super::{SelectOptions, SharedLibrary};
use crate::link::scan::HostFacts;

/// The way in which the host linker reads its command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) enum Reading {
    /// GNU ld and gold: one file after the other.
    InTurn,
    /// ld.lld: members are remembered until something needs them.
    Remembering,
    /// Any other linker: members are extracted whatever their position, and the files count in
    /// command-line order.
    #[default]
    AnyOrder,
}

/// A file that the linker reads. The command line may name a library several times.
#[derive(Debug, Clone, Default)]
pub(crate) struct Load {
    /// The objects of the file.
    pub objects: Range<usize>,
    /// The symbols that a linker script or `--defsym` needs, for which GNU ld searches the archives
    /// after it.
    pub needs: Vec<String>,
    /// Symbols of PROVIDE in a linker script, each with a symbol in its expression. GNU ld needs the
    /// latter if the former is undefined at this point.
    pub provided: Vec<(String, String)>,
    /// The index of a shared library in [`SelectOptions::shared`].
    pub library: Option<usize>,
    /// `--as-needed` is in effect.
    pub as_needed: bool,
    /// The group of the file. GNU ld reads the files of a group repeatedly, until they add nothing.
    pub group: Option<usize>,
}

/// The objects in the host link.
pub(super) struct Taken {
    /// The objects in the order in which the linker reads them.
    pub order: Vec<usize>,
    /// For each archive member, the reason why it is extracted; none for other objects.
    pub pulled: Vec<Option<String>>,
}

/// Returns the objects of a linker that reads the command line in the order `options.reading`,
/// which is not `AnyOrder`. `defined`: symbols that are defined before any file is read.
pub(super) fn read(
    facts: &[HostFacts<'_>],
    lazy: &[bool],
    origins: &[String],
    options: &SelectOptions,
    defined: &[String],
) -> Taken {
    let mut line = Line {
        facts,
        lazy,
        origins,
        options,
        in_turn: options.reading == Reading::InTurn,
        symbols: defined
            .iter()
            .map(|name| (name.as_bytes().into(), Symbol::Defined))
            .collect(),
        taken: Taken {
            order: Vec::new(),
            pulled: vec![None; facts.len()],
        },
        read: vec![false; facts.len()],
        changed: false,
    };
    for &object in &options.extracted {
        line.take(object);
    }
    for root in &options.roots {
        line.refer(root.as_bytes(), false, Referrer::Line);
    }
    let mut rest: &[Load] = &options.loads;
    while let Some(first) = rest.first() {
        let of_group = |load: &&Load| first.group.is_some() && load.group == first.group;
        let (group, after) = rest.split_at(rest.iter().take_while(of_group).count().max(1));
        rest = after;
        loop {
            line.changed = false;
            for load in group {
                line.load(load);
            }
            if !line.in_turn || group.len() == 1 || !line.changed {
                break;
            }
        }
    }
    line.finish();
    line.taken
}

/// The origin of a reference to a symbol.
#[derive(Clone, Copy)]
enum Referrer {
    Line,
    Object(usize),
    Library(usize),
}

/// The state of a symbol.
#[derive(Clone, Copy)]
enum Symbol {
    Undefined(Referrer),
    /// Only weak references, which extract no member.
    WeakUndefined,
    /// A member that the linker has passed defines the symbol.
    Lazy(usize),
    Common,
    Defined,
}

struct Line<'f> {
    facts: &'f [HostFacts<'f>],
    lazy: &'f [bool],
    origins: &'f [String],
    options: &'f SelectOptions,
    in_turn: bool,
    /// Large libraries have many symbols, which the standard hasher takes long to hash.
    symbols: HashMap<Cow<'f, [u8]>, Symbol, foldhash::fast::RandomState>,
    taken: Taken,
    /// Whether an object is part of the link, by its index.
    read: Vec<bool>,
    /// Whether a member was extracted, or a new symbol is undefined or common. GNU ld then reads
    /// the group again.
    changed: bool,
}

impl<'f> Line<'f> {
    fn load(&mut self, load: &'f Load) {
        let in_turn = self.in_turn;
        for need in load.needs.iter().filter(|_| in_turn) {
            self.refer(need.as_bytes(), false, Referrer::Line);
        }
        for (from, to) in load.provided.iter().filter(|_| in_turn) {
            self.refer_to_provided(from, to);
        }
        if let Some(library) = load.library {
            return self.library(library, load.as_needed);
        }
        if self.in_turn {
            return self.in_turn(load.objects.clone());
        }
        for object in load
            .objects
            .clone()
            .filter(|&object| !self.read[object])
            .collect::<Vec<_>>()
        {
            if self.lazy[object] {
                self.remember(object)
            } else {
                self.take(object)
            }
        }
    }

    /// Reads a file like GNU ld: goes through the members of an archive until a pass extracts none.
    fn in_turn(&mut self, objects: Range<usize>) {
        loop {
            let mut again = false;
            for object in objects.clone() {
                if self.read[object] {
                    continue;
                }
                if !self.lazy[object] {
                    self.take(object);
                } else if let Some((name, by)) = self.wanted_of(object) {
                    self.pull(object, &name, by);
                    again = true;
                }
            }
            if !again {
                return;
            }
        }
    }

    /// Returns the first symbol for which the member `object` would be extracted now.
    fn wanted_of(&self, object: usize) -> Option<(Cow<'f, [u8]>, Referrer)> {
        self.facts[object].defined.iter().find_map(|symbol| {
            names(&symbol.name)
                .into_iter()
                .find_map(|name| match self.symbols.get(&name) {
                    Some(Symbol::Undefined(by)) => Some((name, *by)),
                    Some(Symbol::Common) if !symbol.common && !self.options.keeps_common => {
                        Some((name, Referrer::Line))
                    }
                    _ => None,
                })
        })
    }

    /// Reads the member `object` like ld.lld: extracts it if it is needed, or remembers its
    /// symbols.
    fn remember(&mut self, object: usize) {
        if let Some((name, by)) = self.wanted_of(object) {
            return self.pull(object, &name, by);
        }
        for name in self.facts[object]
            .defined
            .iter()
            .flat_map(|symbol| names(&symbol.name))
        {
            let symbol = self.symbols.entry(name).or_insert(Symbol::Lazy(object));
            if matches!(symbol, Symbol::WeakUndefined) {
                *symbol = Symbol::Lazy(object);
            }
        }
    }

    fn pull(&mut self, object: usize, name: &[u8], by: Referrer) {
        let by = match by {
            Referrer::Line => LINE,
            Referrer::Object(object) => &self.origins[object],
            Referrer::Library(library) => &self.options.shared[library].name,
        };
        self.explain(object, name, by);
        self.take(object);
    }

    /// Makes `object` part of the link. With ld.lld, also adds the passed members that it needs,
    /// and the members that those need. As in ld.lld, an object's definitions count before its
    /// references.
    fn take(&mut self, object: usize) {
        let mut taking = vec![(object, 0)];
        self.define(object);
        while let Some((object, at)) = taking.pop() {
            let facts: &'f HostFacts<'f> = &self.facts[object];
            let Some(need) = facts.undefined.get(at) else {
                continue;
            };
            taking.push((object, at + 1));
            for name in self.referred(&need.name) {
                if let Some(member) = self.note(name.clone(), need.weak, Referrer::Object(object)) {
                    self.explain(member, &name, &self.origins[object]);
                    self.define(member);
                    taking.push((member, 0));
                }
            }
        }
    }

    /// Refers to `to` if `from` is undefined: a script provides `from` with an expression of `to`.
    fn refer_to_provided(&mut self, from: &'f str, to: &'f str) {
        if matches!(
            self.symbols.get(from.as_bytes()),
            Some(Symbol::Undefined(_) | Symbol::WeakUndefined)
        ) {
            self.refer(to.as_bytes(), false, Referrer::Line);
        }
    }

    fn explain(&mut self, member: usize, name: &[u8], by: &str) {
        self.taken.pulled[member] = Some(pull_reason(name, by));
        self.changed = true;
    }

    fn define(&mut self, object: usize) {
        self.read[object] = true;
        self.taken.order.push(object);
        let facts: &'f HostFacts<'f> = &self.facts[object];
        for symbol in &facts.defined {
            for name in names(&symbol.name) {
                let known = self.symbols.get(&name);
                if !symbol.common {
                    self.symbols.insert(name, Symbol::Defined);
                } else if !matches!(known, Some(Symbol::Defined)) {
                    self.changed |= !matches!(known, Some(Symbol::Common));
                    self.symbols.insert(name, Symbol::Common);
                }
            }
        }
    }

    /// Returns the symbols that a reference to `name` means. GNU ld replaces the name by those of
    /// `--wrap`; ld.lld adds them at the end.
    fn referred(&self, name: &'f [u8]) -> Vec<Cow<'f, [u8]>> {
        let plain = Cow::Borrowed(name);
        if !self.in_turn {
            return vec![plain];
        }
        let others: Vec<Cow<'f, [u8]>> = aliases(name, &self.options.wrapped)
            .into_iter()
            .map(Cow::Owned)
            .collect();
        if others.is_empty() {
            vec![plain]
        } else {
            others
        }
    }

    /// Records a reference, and extracts the remembered member that defines the symbol, if any.
    fn refer(&mut self, name: &'f [u8], weak: bool, by: Referrer) {
        if let Some(member) = self.note(Cow::Borrowed(name), weak, by) {
            self.pull(member, name, by);
        }
    }

    /// Records a reference. Returns the remembered member that must now be extracted, if any.
    fn note(&mut self, name: Cow<'f, [u8]>, weak: bool, by: Referrer) -> Option<usize> {
        let new = if weak {
            Symbol::WeakUndefined
        } else {
            Symbol::Undefined(by)
        };
        match self.symbols.entry(name) {
            Entry::Vacant(free) => {
                free.insert(new);
                self.changed |= !weak;
            }
            Entry::Occupied(mut known) => match *known.get() {
                Symbol::Lazy(member) if !weak && !self.read[member] => return Some(member),
                Symbol::WeakUndefined if !weak => {
                    known.insert(new);
                    self.changed = true;
                }
                _ => {}
            },
        }
        None
    }

    fn library(&mut self, library: usize, as_needed: bool) {
        let options: &'f SelectOptions = self.options;
        let SharedLibrary { defines, needs, .. } = &options.shared[library];
        let is_wanted = |name: &Vec<u8>| {
            matches!(
                self.symbols.get(name.as_slice()),
                Some(Symbol::Undefined(_))
            )
        };
        if self.in_turn && as_needed && !defines.iter().any(is_wanted) {
            // GNU ld forgets a library that nothing has needed so far.
            return;
        }
        for name in defines {
            let symbol = self
                .symbols
                .entry(Cow::Borrowed(name))
                .or_insert(Symbol::Defined);
            if !matches!(symbol, Symbol::Common) {
                *symbol = Symbol::Defined;
            }
        }
        for name in needs {
            self.refer(name, false, Referrer::Library(library));
        }
    }

    /// Adds the references that ld.lld resolves after it has read all files. GNU ld has no such
    /// step: it knows the symbols of `-e` and `-u` from the beginning.
    fn finish(&mut self) {
        let options: &'f SelectOptions = self.options;
        if self.in_turn {
            return;
        }
        for root in &options.late_roots {
            self.refer(root.as_bytes(), false, Referrer::Line);
        }
        for glob in &options.globs {
            let is_lazy = |(name, symbol): (&Cow<'f, [u8]>, &Symbol)| match symbol {
                Symbol::Lazy(member) if glob.matches(&String::from_utf8_lossy(name)) => {
                    Some((*member, name.to_vec()))
                }
                _ => None,
            };
            let mut members: Vec<(usize, Vec<u8>)> =
                self.symbols.iter().filter_map(is_lazy).collect();
            members.sort();
            for (member, name) in members {
                if !self.read[member] {
                    self.pull(member, &name, Referrer::Line);
                }
            }
        }
        // A needed symbol also needs its alternate, which may have an alternate itself.
        for _ in 0..=options.alternate_names.len() {
            for (from, to) in &options.alternate_names {
                self.refer_to_provided(from, to);
            }
        }
        for symbol in &options.wrapped {
            let known = |name: &[u8]| self.symbols.contains_key(name);
            let real = known([b"__real_", symbol.as_bytes()].concat().as_slice());
            if known(symbol.as_bytes()) {
                let wrap = [b"__wrap_", symbol.as_bytes()].concat();
                if let Some(member) = self.note(Cow::Owned(wrap.clone()), false, Referrer::Line) {
                    self.pull(member, &wrap, Referrer::Line);
                }
            }
            if real {
                self.refer(symbol.as_bytes(), false, Referrer::Line);
            }
        }
    }
}

/// Returns the names that a definition matches. A default version, `f@@V`, matches `f` and `f@V`.
pub(super) fn names<'n>(name: &'n [u8]) -> Vec<Cow<'n, [u8]>> {
    match name.windows(2).position(|two| two == b"@@") {
        Some(at) => vec![
            Cow::Borrowed(&name[..at]),
            Cow::Owned([&name[..at], &name[at + 1..]].concat()),
        ],
        None => vec![Cow::Borrowed(name)],
    }
}
