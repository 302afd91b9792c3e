//! Finds the kernels of two builds that correspond: by name, and for the rest by code, by names
//! without counters, or as the only instance of a template.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::LazyLock;

use regex::Regex;

use super::records::{FACTS, Record, Records};
use super::report::{ArchDiff, Change, Fact, Kind, Report, SCHEMA};

/// Compares two builds.
pub(super) fn compare(old: &Records, new: &Records) -> Report {
    let archs: BTreeSet<&str> = [old, new]
        .iter()
        .flat_map(|records| records.list.iter().map(|record| record.arch.as_str()))
        .collect();
    let of_arch = |records: &'_ Records, arch: &str| -> Vec<Record> {
        let own = records.list.iter().filter(|record| record.arch == arch);
        own.cloned().collect()
    };
    let archs = archs
        .into_iter()
        .map(|arch| of(arch, &of_arch(old, arch), &of_arch(new, arch)));
    Report {
        schema: SCHEMA,
        generator: format!("offld {}", env!("CARGO_PKG_VERSION")),
        archs: archs.collect(),
        old_files: old.files.clone(),
        new_files: new.files.clone(),
    }
}

/// Compares the kernels for one architecture.
fn of(arch: &str, old: &[Record], new: &[Record]) -> ArchDiff {
    let mut diff = ArchDiff {
        arch: arch.to_owned(),
        old_kernels: old.len() as u64,
        new_kernels: new.len() as u64,
        unchanged: 0,
        unknown: 0,
        changes: Vec::new(),
    };
    if old.is_empty() || new.is_empty() {
        return diff;
    }
    let mut named: BTreeMap<String, [Vec<&Record>; 2]> = BTreeMap::new();
    for (side, records) in [old, new].into_iter().enumerate() {
        for record in records {
            named.entry(record.key()).or_default()[side].push(record);
        }
    }
    let (mut gone, mut added) = (Vec::new(), Vec::new());
    for [olds, news] in named.into_values() {
        match (olds.is_empty(), news.is_empty()) {
            (false, false) => diff.compare_copies(&olds, &news),
            (_, true) => gone.extend(olds.first().copied()),
            (true, _) => added.extend(news.first().copied()),
        }
    }
    diff.match_renamed(&mut gone, &mut added);
    let only = |record: &Record, kind: Kind| Change {
        change: kind,
        kernel: record.shown(),
        mangled: record.name.clone(),
        old_name: None,
        place: record.place.clone(),
        code_changed: None,
        facts: match kind {
            Kind::Gone => facts(Some(record), None, false),
            _ => facts(None, Some(record), false),
        },
        code_diff: None,
        images: None,
    };
    diff.changes
        .extend(gone.into_iter().map(|record| only(record, Kind::Gone)));
    diff.changes
        .extend(added.into_iter().map(|record| only(record, Kind::New)));
    diff.changes.sort_by(|one, other| {
        (one.change, &one.kernel, &one.mangled).cmp(&(other.change, &other.kernel, &other.mangled))
    });
    diff
}

impl ArchDiff {
    /// Compares the copies of a kernel, which has the same name in both builds.
    fn compare_copies(&mut self, old: &[&Record], new: &[&Record]) {
        let same =
            |one: &Record, other: &Record| one.code == other.code && one.facts == other.facts;
        let without = |all: &[&Record], others: &[&Record]| -> Vec<usize> {
            let is_new = |at: &usize| !others.iter().any(|other| same(all[*at], other));
            (0..all.len()).filter(is_new).collect()
        };
        let (only_old, only_new) = (without(old, new), without(new, old));
        let (known, unknown): (Vec<&Record>, Vec<&Record>) = (0..new.len())
            .filter(|at| !only_new.contains(at))
            .filter_map(|at| new.get(at).copied())
            .partition(|record| record.code.is_some());
        self.unchanged += known.len() as u64;
        self.unknown += unknown.len() as u64;
        for pair in 0..only_old.len().max(only_new.len()) {
            // Variants that only one build has are compared in order. If one build has more of them,
            // the others are compared with the last one of the other build.
            let pick = |own: &[usize], all: &[&Record]| -> usize {
                own.get(pair)
                    .or(own.last())
                    .copied()
                    .unwrap_or(all.len() - 1)
            };
            let (before, after) = (old[pick(&only_old, old)], new[pick(&only_new, new)]);
            if same(before, after) {
                continue;
            }
            let change = change(before, after, Kind::Changed);
            if change.code_changed == Some(false) && change.facts.is_empty() {
                self.unchanged += 1;
            } else {
                self.changes.push(change);
            }
        }
    }

    /// Removes renamed kernels from both lists: first those with the same code, and then
    /// those with corresponding names.
    fn match_renamed<'r>(&mut self, gone: &mut Vec<&'r Record>, added: &mut Vec<&'r Record>) {
        let by_code = |record: &&Record| record.code.clone();
        let same_code = pairs(gone, added, &by_code, false);
        self.take(gone, added, &same_code);
        let names = |records: &[&Record]| -> Vec<String> {
            let name = |record: &&Record| match record.name.as_str() {
                "" => String::new(),
                _ => record.shown(),
            };
            records.iter().map(name).collect()
        };
        let renamed = renames(&names(gone), &names(added));
        self.take(gone, added, &renamed);
    }

    /// Moves pairs of renamed kernels from both lists to the changes.
    fn take<'r>(&mut self, gone: &mut Vec<&'r Record>, added: &mut Vec<&'r Record>, pairs: &Pairs) {
        for (old, new) in pairs {
            self.changes
                .push(change(gone[*old], added[*new], Kind::Renamed));
        }
        let olds = pairs.iter().map(|(old, _)| *old);
        let news = pairs.iter().map(|(_, new)| *new);
        for (list, taken) in [
            (gone, olds.collect::<BTreeSet<_>>()),
            (added, news.collect()),
        ] {
            let mut at = 0..;
            list.retain(|_| at.next().is_none_or(|at| !taken.contains(&at)));
        }
    }
}

/// Indices of kernels in two lists that correspond.
type Pairs = Vec<(usize, usize)>;

/// The pairs among kernels that only one of two builds has, by their names in the source: names that
/// differ in counters alone, and the only instance of a template. Kernels without names are not
/// paired. `offld size --diff` has the same pairs.
pub(crate) fn renames(gone: &[String], added: &[String]) -> Pairs {
    let by_name = |name: &String| (!name.is_empty()).then(|| without_counters(name));
    let by_template = |name: &String| Some(name.split_once('<')?.0.to_owned());
    let mut all = pairs(gone, added, &by_name, false);
    let rest = |list: &[String], taken: BTreeSet<usize>| -> Vec<(usize, String)> {
        let of = list.iter().cloned().enumerate();
        of.filter(|(at, _)| !taken.contains(at)).collect()
    };
    let gone = rest(gone, all.iter().map(|(old, _)| *old).collect());
    let added = rest(added, all.iter().map(|(_, new)| *new).collect());
    let by_template = |(_, name): &(usize, String)| by_template(name);
    let instances = pairs(&gone, &added, &by_template, true);
    all.extend(
        instances
            .into_iter()
            .map(|(old, new)| (gone[old].0, added[new].0)),
    );
    all
}

/// Pairs kernels with the same `key`, in their order. `alone`: only keys that exactly one kernel of
/// each build has.
fn pairs<T>(gone: &[T], added: &[T], key: &dyn Fn(&T) -> Option<String>, alone: bool) -> Pairs {
    let mut keys: BTreeMap<String, [Vec<usize>; 2]> = BTreeMap::new();
    for (side, kernels) in [gone, added].into_iter().enumerate() {
        for (at, kernel) in kernels.iter().enumerate() {
            if let Some(key) = key(kernel) {
                keys.entry(key).or_default()[side].push(at);
            }
        }
    }
    let is_sure = |[olds, news]: &[Vec<usize>; 2]| !alone || olds.len() == 1 && news.len() == 1;
    keys.into_values()
        .filter(is_sure)
        .flat_map(|[olds, news]| olds.into_iter().zip(news))
        .collect()
}

/// The change of a kernel that both builds have.
fn change(old: &Record, new: &Record, kind: Kind) -> Change {
    let code_changed = old
        .code
        .as_ref()
        .zip(new.code.as_ref())
        .map(|(old, new)| old != new);
    Change {
        change: kind,
        kernel: new.shown(),
        mangled: new.name.clone(),
        old_name: (kind == Kind::Renamed).then(|| old.shown()),
        place: new.place.clone(),
        code_changed,
        facts: facts(Some(old), Some(new), code_changed == Some(false)),
        code_diff: None,
        images: old.disassembled().zip(new.disassembled()),
    }
}

/// The facts that differ. `same_code`: without the size of the code, which then differs only by
/// alignment.
fn facts(old: Option<&Record>, new: Option<&Record>, same_code: bool) -> Vec<Fact> {
    let value = |record: Option<&Record>, fact: &str| record?.facts.get(fact).copied();
    let each = FACTS.iter().map(|&fact| Fact {
        fact: fact.to_owned(),
        old: value(old, fact),
        new: value(new, fact),
    });
    each.filter(|fact| fact.old != fact.new && !(same_code && fact.fact == "code_size"))
        .collect()
}

/// A name without counters that edits of other code change: the numbers of lambdas and of anonymous
/// types, and the lines of OpenMP regions.
fn without_counters(name: &str) -> String {
    static COUNTERS: LazyLock<Option<Regex>> = LazyLock::new(|| {
        Regex::new(r"#\d+|\$_\d+|, line \d+|'lambda\d*'|'unnamed\d*'|\.\d+$").ok()
    });
    match &*COUNTERS {
        Some(counters) => counters.replace_all(name, "#").into_owned(),
        None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(name: &str, code: &str, facts: &[(&str, u64)]) -> Record {
        Record {
            arch: "gfx90a".to_owned(),
            name: name.to_owned(),
            place: "a.o".to_owned(),
            code: Some(code.to_owned()),
            facts: facts
                .iter()
                .map(|(fact, value)| ((*fact).to_owned(), *value))
                .collect(),
            image: None,
        }
    }

    /// The changes, one per line.
    fn shown(old: &[Record], new: &[Record]) -> String {
        let diff = of("gfx90a", old, new);
        let changes = diff.changes.iter().map(|change| {
            let facts = change.facts.iter().map(|fact| {
                format!(" {} {:?} {:?}", fact.fact, fact.old, fact.new).replace("Some", "")
            });
            format!(
                "{} {}{}{}",
                change.change.name(),
                change.kernel,
                change
                    .old_name
                    .as_ref()
                    .map(|old| format!(" from {old}"))
                    .unwrap_or_default(),
                facts.collect::<String>()
            )
        });
        changes
            .chain([format!("{} unchanged", diff.unchanged)])
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn kernels_are_matched_by_name_and_the_rest_by_code() {
        let old = [
            record("_Z1av", "1", &[("vgprs", 8)]),
            record("_Z1bv", "2", &[("vgprs", 8)]),
            record("_Z1cv", "3", &[]),
            record("_Z1dv", "4", &[]),
        ];
        let new = [
            record("_Z1av", "1", &[("vgprs", 8)]),
            record("_Z1bv", "5", &[("vgprs", 9)]),
            record("_Z2c2v", "3", &[]),
            record("_Z1ev", "6", &[]),
        ];
        assert_eq!(
            shown(&old, &new),
            "new e()\ngone d()\nrenamed c2() from c()\nchanged b() vgprs (8) (9)\n1 unchanged"
        );
        assert_eq!(shown(&old, &old), "4 unchanged");
    }

    #[test]
    fn counters_and_the_only_instance_of_a_template_are_renames() {
        let old = [
            record("__omp_offloading_fd02_c0ffee_main_l3", "1", &[]),
            record("_Z1fI3oldEvv", "2", &[]),
            record("_Z1gIiEvv", "3", &[]),
            record("_Z1gIjEvv", "4", &[]),
        ];
        let new = [
            record("__omp_offloading_fe00_c0ffe0_main_l4", "7", &[]),
            record("_Z1fI3newEvv", "8", &[]),
            record("_Z1gIlEvv", "9", &[]),
            record("_Z1gImEvv", "10", &[]),
        ];
        assert_eq!(
            shown(&old, &new),
            "new void g<long>()\nnew void g<unsigned long>()\ngone void g<int>()\ngone void g<unsigned int>()\n\
             renamed main, line 4 from main, line 3\nrenamed void f<new>() from void f<old>()\n0 unchanged"
        );
    }

    #[test]
    fn code_that_cannot_be_compared_is_unknown() {
        let kernel = |size: u64| Record {
            code: None,
            ..record("_Z1av", "", &[("code_size", size)])
        };
        let diff = of("x86_64", &[kernel(8)], &[kernel(8)]);
        assert_eq!(
            (diff.unchanged, diff.unknown, diff.changes.len()),
            (0, 1, 0)
        );
        let diff = of("x86_64", &[kernel(8)], &[kernel(9)]);
        assert_eq!(
            (diff.unchanged, diff.unknown, diff.changes.len()),
            (0, 0, 1)
        );
    }

    #[test]
    fn places_of_source_files_and_numbers_of_copies_change_nothing() {
        let old = [record("__omp_offloading_fd02_c0ffee_main_l3", "1", &[])];
        let new = [
            record("__omp_offloading_fe00_c0ffe0_main_l3", "1", &[]),
            record("__omp_offloading_fe00_c0ffe0_main_l3", "1", &[]),
        ];
        assert_eq!(shown(&old, &new), "2 unchanged");
    }
}
