//! The differences between offld's dry run and LLVM's: each edits LLVM's commands, and has a
//! reason. Fault numbers are those of docs/spec/faults.md.

use std::collections::HashSet;

use super::shown::Shown;
use crate::kit::AMD;

/// A difference.
pub(super) struct Rule {
    /// How offld's commands differ.
    pub what: &'static str,
    /// The reason.
    pub why: &'static str,
    /// Removes the difference from LLVM's commands.
    pub apply: fn(&mut Shown),
}

pub(super) const RUNTIME: Rule = Rule {
    what: "no libomptarget in device links",
    why: "fault F34: the offload runtime serves the host side",
    apply: |shown| cpu_links(shown, |args| args.retain(|word| word != "-lomptarget")),
};

pub(super) const LOADER: Rule = Rule {
    what: "the operand of -dynamic-linker is no input",
    why: "faults F5 and F34",
    apply: |shown| {
        cpu_links(shown, |args| {
            args.retain(|word| !word.contains("/ld-linux"))
        })
    },
};

pub(super) const PLUGIN: Rule = Rule {
    what: "the operand of -plugin is no input",
    why: "faults F5 and F34",
    apply: |shown| {
        cpu_links(shown, |args| {
            args.retain(|word| !word.ends_with("/LLVMgold.so"))
        })
    },
};

pub(super) const PLAIN_WORDS: Rule = Rule {
    what: "options of ld.lld's code generator do not reach GNU ld, which generates no code here",
    why: "llvm/llvm-project#100780: GNU ld takes `-mllvm` for an emulation",
    apply: |shown| {
        cpu_links(shown, |args| {
            let mut rest: Vec<String> = Vec::new();
            let mut all = args.drain(..);
            while let Some(word) = all.next() {
                match (word.as_str(), all.as_slice()) {
                    ("-Xlinker", [next, ..]) if next == "-mllvm" => {
                        all.by_ref().take(3).for_each(drop);
                    }
                    ("-Xlinker", [next, ..])
                        if next.starts_with("-mllvm=") || next.starts_with("--plugin-opt=") =>
                    {
                        all.next();
                    }
                    _ => rest.push(word),
                }
            }
            drop(all);
            *args = rest;
        });
    },
};

pub(super) const AS_NEEDED: Rule = Rule {
    what: "libraries of the host line under --as-needed, each once, after all folders; -rpath in the compiler driver's form",
    why: "fault F34: a device image needs what its code needs",
    apply: |shown| cpu_links(shown, as_needed),
};

pub(super) const STATIC: Rule = Rule {
    what: "-Bstatic holds in device links for the libraries it holds for in the host link",
    why: "fault F18",
    apply: |shown| {
        let host = shown.host.clone();
        cpu_links(shown, |args| keep_static(args, &host));
    },
};

pub(super) const LINKER: Rule = Rule {
    what: "the host linker links for the host as device, too",
    why: "fault F34",
    apply: |shown| {
        let option = format!("--ld-path={}", shown.host[0]);
        cpu_links(shown, |args| {
            args.insert(after_shared(args), option.clone())
        });
    },
};

pub(super) const SYSROOT: Rule = Rule {
    what: "--sysroot holds for the host as device, too",
    why: "fault F34",
    apply: |shown| {
        let sysroot = shown
            .host
            .iter()
            .find(|word| word.starts_with("--sysroot="))
            .cloned();
        cpu_links(shown, |args| {
            let at = after_shared(args);
            args.splice(at..at, sysroot.clone());
        });
    },
};

pub(super) const ARCHIVE: Rule = Rule {
    what: "an archive whose device code is linked is no library of the device link",
    why: "fault F34: its host code must not stand in for device code",
    apply: |shown| {
        cpu_links(shown, |args| {
            args.retain(|word| word != "-lq" && !word.ends_with("libq.a"))
        })
    },
};

pub(super) const WHOLE: Rule = Rule {
    what: "--whole-archive does not hold for libraries of a device link",
    why: "fault F34: what is needed of the host's libraries is linked, and all of an archive with device code is an input already",
    apply: |shown| {
        cpu_links(shown, |args| {
            args.retain(|word| !word.ends_with("whole-archive"))
        })
    },
};

pub(super) const ONCE: Rule = Rule {
    what: "a library counts once",
    why: "fault F13",
    apply: |shown| {
        let mut seen = HashSet::new();
        for args in &mut shown.device {
            args.retain(|word| !is_input(word) || seen.insert(word.clone()));
        }
    },
};

pub(super) const MEMBER: Rule = Rule {
    what: "a member that nothing needs is not linked",
    why: "fault F14",
    apply: |shown| {
        for args in &mut shown.device {
            args.retain(|word| !word.starts_with("TEMP/unused-"));
        }
    },
};

pub(super) const ORDER: Rule = Rule {
    what: "images in the order of their targets, triple and architecture descending",
    why: "fault F16: the order of inputs has no say in what a runtime finds first",
    apply: |shown| {
        shown
            .device
            .sort_by_key(|args| std::cmp::Reverse((option(args, "--target="), option(args, "-m"))));
    },
};

pub(super) const GENERIC: Rule = Rule {
    what: "generic code is in every image for its triple, and in none of its own",
    why: "fault F15",
    apply: |shown| {
        let generic = format!("TEMP/generic-{AMD}-generic.o");
        shown
            .device
            .retain(|args| args.iter().any(|word| word.starts_with("-mcpu=")));
        let first = shown.host.iter().position(|word| word == "generic.o")
            < shown.host.iter().position(|word| word == "amd-p.o");
        for args in &mut shown.device {
            args.retain(|word| *word != generic);
            let at = args
                .iter()
                .position(|word| is_input(word))
                .unwrap_or(args.len());
            args.insert(if first { at } else { at + 1 }, generic.clone());
        }
    },
};

pub(super) const LAST_OUTPUT: Rule = Rule {
    what: "the wrapper object is linked once, after the last output",
    why: "fault F2",
    apply: |shown| {
        let first = shown
            .host
            .iter()
            .position(|word| word.ends_with(".image.wrapper.o"));
        drop(first.map(|at| shown.host.remove(at)));
    },
};

pub(super) const UNDEFINED: Rule = Rule {
    what: "device code of a relocatable link may leave symbols undefined",
    why: "the line names no libraries, so C++ that needs its run-time library would not link",
    apply: |shown| {
        cpu_links(shown, |args| {
            args.retain(|word| word != "-Wl,--no-undefined")
        })
    },
};

/// Changes the device links for CPUs.
fn cpu_links(shown: &mut Shown, change: impl Fn(&mut Vec<String>)) {
    shown
        .device
        .iter_mut()
        .filter(|args| args.iter().any(|word| word == "-shared"))
        .for_each(change);
}

fn after_shared(args: &[String]) -> usize {
    args.iter()
        .position(|word| word == "-shared")
        .map_or(args.len(), |at| at + 1)
}

fn is_input(word: &str) -> bool {
    word.starts_with("TEMP/") && word.ends_with(".o")
}

/// The value of the first option with this prefix.
fn option(args: &[String], start: &str) -> String {
    args.iter()
        .find_map(|word| word.strip_prefix(start))
        .unwrap_or_default()
        .to_owned()
}

fn as_needed(args: &mut Vec<String>) {
    let start = after_shared(args);
    let (mut folders, mut run_paths, mut libraries) = (Vec::new(), Vec::new(), Vec::new());
    let mut at = start;
    while let Some(word) = args.get(at) {
        match word.as_str() {
            "-rpath" => {
                at += 1;
                run_paths.extend(["-Xlinker", "-rpath", "-Xlinker", &args[at]].map(str::to_owned));
            }
            word if word.starts_with("-L") => folders.push(word.to_owned()),
            word if word.starts_with("-l") || !word.starts_with('-') => {
                if !libraries.iter().any(|library| library == word) {
                    libraries.push(word.to_owned());
                }
            }
            _ => break,
        }
        at += 1;
    }
    if !libraries.is_empty() {
        libraries.insert(0, "-Wl,--as-needed".to_owned());
        libraries.push("-Wl,--no-as-needed".to_owned());
    }
    args.splice(start..at, [folders, run_paths, libraries].concat());
}

fn keep_static(args: &mut Vec<String>, host: &[String]) {
    let mut held: HashSet<&str> = HashSet::new();
    let mut holds = false;
    for word in host {
        match word.as_str() {
            "-Bstatic" => holds = true,
            "-Bdynamic" => holds = false,
            library if holds && library.starts_with("-l") => drop(held.insert(library)),
            _ => {}
        }
    }
    let mut out = Vec::new();
    let mut is_static = false;
    for word in args.drain(..) {
        if held.contains(word.as_str()) != is_static {
            is_static = !is_static;
            out.push(
                if is_static {
                    "-Wl,-Bstatic"
                } else {
                    "-Wl,-Bdynamic"
                }
                .to_owned(),
            );
        }
        out.push(word);
    }
    *args = out;
}
