//! Command lines with translation units in random containers, in random order.

use std::collections::BTreeSet;
use std::fmt;
use std::process::Command;

use libtest_mimic::Failed;

use super::pool::{Pool, SHARED, UNITS};
use super::{By, driver};
use crate::support::{OFFLOAD, Random, Work, llvm, run};

/// How the main function refers to the functions that it calls.
#[derive(Clone, Copy, PartialEq)]
enum Call {
    ByName,
    ByDefsym,
    ByScript,
    Wrapped,
}

/// The inputs and options of one link.
pub(super) struct Arrangement<'p> {
    pool: &'p Pool,
    linker: &'static str,
    roots: Vec<(usize, Call)>,
    main_has_region: bool,
    /// The members of each archive.
    archives: Vec<Vec<String>>,
    /// The objects of each plain `ld -r` link.
    merged: Vec<Vec<String>>,
    /// The translation unit of a `-r` link by the compiler driver, and that of a shared library.
    partial: Option<usize>,
    shared: Option<usize>,
    script: String,
    words: Vec<String>,
}

impl<'p> Arrangement<'p> {
    /// A random arrangement of translation units from `pool`.
    pub(super) fn new(pool: &'p Pool, linker: &'static str, random: &mut Random) -> Self {
        let call = |random: &mut Random| match random.below(10) {
            0 => Call::ByDefsym,
            1 => Call::ByScript,
            2 => Call::Wrapped,
            _ => Call::ByName,
        };
        let count = 1 + random.below(3);
        let mut roots: Vec<(usize, Call)> = (0..count)
            .map(|_| (random.below(UNITS), call(random)))
            .collect();
        roots.sort_by_key(|(unit, _)| *unit);
        roots.dedup_by_key(|(unit, _)| *unit);
        let mut arrangement = Arrangement {
            pool,
            linker,
            roots,
            main_has_region: random.chance(60),
            archives: vec![Vec::new(); 1 + random.below(3)],
            merged: Vec::new(),
            partial: random.chance(12).then(|| random.below(SHARED)),
            shared: None,
            script: String::new(),
            words: Vec::new(),
        };
        arrangement.shared = random
            .chance(15)
            .then(|| random.below(SHARED))
            .filter(|unit| Some(*unit) != arrangement.partial);
        arrangement.place(random);
        arrangement
    }

    fn needed(&self) -> BTreeSet<usize> {
        let mut needed = BTreeSet::new();
        let mut todo: Vec<usize> = self.roots.iter().map(|(unit, _)| *unit).collect();
        while let Some(unit) = todo.pop() {
            if needed.insert(unit) {
                todo.extend(&self.pool.units[unit].needs);
            }
        }
        needed
    }

    fn place(&mut self, random: &mut Random) {
        let needed = self.needed();
        let (mut items, mut lazy): (Vec<Vec<String>>, Vec<String>) = (Vec::new(), Vec::new());
        items.push(vec!["main.o".to_owned()]);
        let archives = self.archives.len();
        for unit in 0..UNITS {
            let name = |variant: bool| match &self.pool.variants[unit] {
                Some(other) if variant => format!("{}.o", other.name),
                _ => format!("u{unit}.o"),
            };
            let (first, second) = (
                random.chance(50),
                self.pool.variants[unit].is_some() && random.chance(50),
            );
            let object = name(first);
            let place = random.below(100);
            if !needed.contains(&unit) {
                // Members that no other object needs.
                if place < 25 {
                    self.archives[random.below(archives)].push(object);
                }
                continue;
            }
            match place {
                0..25 => items.push(vec![object]),
                25..35 if self.linker == "lld" => lazy.push(object),
                35..42 => match self.merged.last_mut() {
                    Some(merged) if merged.len() < 2 => merged.push(object),
                    _ => self.merged.push(vec![object]),
                },
                _ => self.archives[random.below(archives)].push(object),
            }
            if second {
                self.archives[random.below(archives)].push(name(!first));
            }
        }
        for (at, _) in self.merged.iter().enumerate() {
            items.push(vec![format!("m{at}.o")]);
        }
        if !lazy.is_empty() {
            items.push(
                [
                    vec!["-Wl,--start-lib".to_owned()],
                    lazy,
                    vec!["-Wl,--end-lib".to_owned()],
                ]
                .concat(),
            );
        }
        items.extend(self.partial.map(|_| vec!["p.o".to_owned()]));
        items.extend(
            self.shared
                .map(|_| vec!["libs.so".to_owned(), "-Wl,-rpath,$ORIGIN".to_owned()]),
        );
        for (unit, call) in &self.roots {
            match call {
                Call::ByDefsym => {
                    items.push(vec![format!("-Wl,--defsym=alias_{unit}=probe_{unit}")])
                }
                Call::ByScript if random.chance(50) => {
                    self.script += &format!("PROVIDE(alias_{unit} = probe_{unit});\n");
                }
                Call::ByScript => self.script += &format!("alias_{unit} = probe_{unit};\n"),
                Call::Wrapped => {
                    items.push(vec![format!("-Wl,--wrap=probe_{unit}")]);
                    self.archives[random.below(archives)].push(format!("w{unit}.o"));
                }
                Call::ByName => {}
            }
        }
        self.archives.retain(|members| !members.is_empty());
        self.words(items, random);
    }

    fn words(&mut self, mut items: Vec<Vec<String>>, random: &mut Random) {
        let names: Vec<String> = (0..self.archives.len())
            .map(|at| format!("libx{at}.a"))
            .collect();
        let mut again = Vec::new();
        let as_group = random.chance(40);
        if random.chance(15) && !names.is_empty() {
            self.script += &format!("GROUP({})\n", names.join(" "));
        } else if as_group && !names.is_empty() {
            items.push(
                [
                    vec!["-Wl,--start-group".to_owned()],
                    names,
                    vec!["-Wl,--end-group".to_owned()],
                ]
                .concat(),
            );
        } else {
            for name in names {
                match random.below(10) {
                    0 => items.push(vec![
                        "-Wl,--whole-archive".to_owned(),
                        name,
                        "-Wl,--no-whole-archive".to_owned(),
                    ]),
                    1..5 => {
                        again.push(name.clone());
                        items.push(vec![name]);
                    }
                    _ => items.push(vec![name]),
                }
            }
        }
        if random.chance(10) {
            self.script += &format!("EXTERN(probe_{})\n", random.below(UNITS));
        }
        if !self.script.is_empty() {
            let by_option = random.chance(50);
            if by_option && self.linker == "bfd" {
                // GNU ld keeps its own script because of INSERT.
                self.script += "SECTIONS {} INSERT AFTER .text;\n";
            }
            let name = if by_option { "-Wl,-T,s.ld" } else { "s.ld" };
            items.push(vec![name.to_owned()]);
        }
        // GNU ld usually needs the objects first.
        let (first, rest): (Vec<_>, Vec<_>) = random
            .shuffled(items)
            .into_iter()
            .partition(|item| item[0].ends_with(".o"));
        let mixed = random.chance(40);
        let all = [first, rest].concat();
        let all = if mixed { random.shuffled(all) } else { all };
        self.words = all.into_iter().flatten().chain(again).collect();
    }

    /// Whether the link has a linker script as input, which LLVM's wrapper does not read.
    pub(super) fn has_script(&self) -> bool {
        !self.script.is_empty()
    }

    /// Whether an input is the output of a `-r` link by the linker under test.
    pub(super) fn has_partial(&self) -> bool {
        self.partial.is_some()
    }

    /// Whether the main object has no device code.
    pub(super) fn main_is_plain(&self) -> bool {
        !self.main_has_region
    }

    fn main(&self) -> String {
        let mut text =
            "#include <stdio.h>\nvoid report(int unit, int device, int region, int host) {\n\
             \x20 printf(\"%d %d %d %d\\n\", unit, device, region, host); fflush(stdout);\n}\n"
                .to_owned();
        let extra = [self.partial, self.shared]
            .into_iter()
            .flatten()
            .map(|unit| (UNITS + unit, Call::ByName));
        let calls: Vec<(usize, Call)> = self.roots.iter().copied().chain(extra).collect();
        let name = |(unit, call): &(usize, Call)| match call {
            Call::ByDefsym | Call::ByScript => format!("alias_{unit}"),
            _ => format!("probe_{unit}"),
        };
        for call in &calls {
            text += &format!("void {}(void);\n", name(call));
        }
        text += "int main(void) {\n";
        if self.main_has_region {
            text += "  int x = 0;\n#pragma omp target map(from : x)\n  x = 5;\n  if (x != 5) return 3;\n";
        }
        for call in &calls {
            text += &format!("  {}();\n", name(call));
        }
        text + "  return 0;\n}\n"
    }

    /// Creates the inputs that do not depend on the linker under test.
    pub(super) fn prepare(&self, work: &Work) -> Result<(), Failed> {
        work.file("main.c", self.main());
        run(work
            .command(llvm("clang"))
            .args(OFFLOAD)
            .args(["-O1", "-fPIC", "-c", "main.c"]))?;
        for (unit, _) in self.roots.iter().filter(|(_, call)| *call == Call::Wrapped) {
            run(work.command(llvm("clang")).args(OFFLOAD).args([
                "-O1",
                "-fPIC",
                "-c",
                &format!("w{unit}.c"),
            ]))?;
        }
        for (at, members) in self.archives.iter().enumerate() {
            let name = format!("libx{at}.a");
            let _ = std::fs::remove_file(work.path().join(&name));
            work.run(
                llvm("llvm-ar"),
                [&["rcs".to_owned(), name], &members[..]].concat(),
            )?;
        }
        for (at, objects) in self.merged.iter().enumerate() {
            work.run(
                "ld",
                [
                    &["-r".to_owned(), "-o".to_owned(), format!("m{at}.o")],
                    &objects[..],
                ]
                .concat(),
            )?;
        }
        work.file("s.ld", &self.script);
        Ok(())
    }

    /// Creates the inputs that depend on `by`. Returns the command that links the program.
    pub(super) fn link(&self, work: &Work, by: By) -> Result<Command, Failed> {
        for (unit, mode, name) in [
            (self.partial, "-r", "p.o"),
            (self.shared, "-shared", "libs.so"),
        ] {
            let Some(unit) = unit else { continue };
            let mut part = if by == By::Plain && mode == "-r" {
                work.command("ld")
            } else {
                driver(work, by, self.linker)
            };
            run(part
                .args([mode, "-o", name])
                .arg(format!("s{}.o", UNITS + unit)))?;
        }
        let mut link = driver(work, by, self.linker);
        link.args(&self.words).args(["-o", "program"]);
        Ok(link)
    }
}

impl fmt::Display for Arrangement<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "with {}: {}", self.linker, self.words.join(" "))?;
        for (at, members) in self.archives.iter().enumerate() {
            writeln!(f, "  libx{at}.a: {}", members.join(" "))?;
        }
        for (at, objects) in self.merged.iter().enumerate() {
            writeln!(f, "  m{at}.o: {}", objects.join(" "))?;
        }
        write!(f, "  s.ld: {}", self.script.replace('\n', " "))
    }
}
