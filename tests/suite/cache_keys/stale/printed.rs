//! Linker output is printed by every link, and requested output files are written by every link.

use std::fs;

use libtest_mimic::{Failed, Trial};

use super::{BOTH, Hunt};
use crate::support::{
    Outcome, ensure, expect_in, missing, output, passed, run, shown, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for linker in BOTH {
        let name = |what: &str| format!("cache_keys::stale::{what}::{}", linker.replace('.', "_"));
        trials.push(with_llvm(&name("symbols_that_are_traced"), move || {
            printed(linker, TRACES, "definition of helper")
        }));
        trials.push(with_llvm(&name("maps_and_other_tables"), move || {
            printed(linker, TABLES, "helper")
        }));
        trials.push(with_llvm(&name("files_beside_the_image"), move || {
            written(linker)
        }));
    }
    trials.push(with_llvm(
        "cache_keys::stale::abbreviations_of_what_traces_symbols::ld_bfd",
        || printed("ld.bfd", ABBREVIATED_TRACES, "definition of helper"),
    ));
    trials.push(with_llvm(
        "cache_keys::stale::why_something_is_live::ld_lld",
        || printed("ld.lld", LIVE, "live symbol"),
    ));
    trials.push(with_llvm(
        "cache_keys::stale::reports_of_the_compiler",
        reported,
    ));
    trials
}

/// Options with which the device linker prints to its standard output, in all forms.
const TRACES: &[&[&str]] = &[
    &["-y", "helper"],
    &["-yhelper"],
    &["--trace-symbol=helper"],
    &["--trace-symbol", "helper"],
];
const ABBREVIATED_TRACES: &[&[&str]] = &[
    &["--trace-s=helper"],
    &["--trace-s", "helper"],
    &["-trace-sy=helper"],
];
const TABLES: &[&[&str]] = &[
    &["--print-map"],
    &["-M"],
    &["--trace"],
    &["-t"],
    &["--cref"],
];
const LIVE: &[&[&str]] = &[&["--gc-sections", "--why-live=helper"]];

fn printed(linker: &str, options: &[&[&str]], what: &str) -> Outcome {
    let Some(hunt) = Hunt::new(linker, &std::env::temp_dir())? else {
        return missing(linker);
    };
    hunt.archive(1, "lib/libhelper.a")?;
    hunt.rest();
    for words in options {
        // `--cref` has no effect without a map.
        let words = if *words == ["--cref"] {
            &["-M", "--cref"][..]
        } else {
            words
        };
        let line: Vec<String> = words
            .iter()
            .map(|word| format!("--device-linker={word}"))
            .collect();
        let line: Vec<&str> = ["-Llib", "-lhelper"]
            .into_iter()
            .chain(line.iter().map(String::as_str))
            .collect();
        for _ in 0..2 {
            let mut command = hunt.command(&line);
            let ended = output(command.env("OFFLD_CACHE", hunt.at("cache")))?;
            ensure(ended.status.success(), || shown(&command, &ended))?;
            // GNU ld prints traced symbols to standard error.
            let stderr = text(&ended.stdout)
                + &text(if what.starts_with("definition") {
                    &ended.stderr
                } else {
                    b""
                });
            expect_in(&stderr, what).map_err(|_| Failed::from(shown(&command, &ended)))?;
        }
    }
    passed()
}

fn written(linker: &str) -> Outcome {
    let Some(hunt) = Hunt::new(linker, &std::env::temp_dir())? else {
        return missing(linker);
    };
    hunt.archive(1, "lib/libhelper.a")?;
    hunt.rest();
    let whole = [
        (&["-Map=map"][..], "map"),
        (&["-Map", "map"], "map"),
        (&["--dependency-file=deps.d"], "deps.d"),
    ];
    // GNU ld accepts abbreviated option names.
    let abbreviated: &[(&[&str], &str)] = &[
        (&["--Ma=map"], "map"),
        (&["-Ma=map"], "map"),
        (&["--Ma", "map"], "map"),
        (&["--out-imp=import"], "import"),
        (&["--out-imp", "import"], "import"),
        (&["--dependency-f=deps.d"], "deps.d"),
    ];
    let abbreviated = if linker == "ld.bfd" { abbreviated } else { &[] };
    for (words, file) in whole.iter().chain(abbreviated) {
        let line: Vec<String> = words
            .iter()
            .map(|word| format!("--device-linker={word}"))
            .collect();
        let line: Vec<&str> = ["-Llib", "-lhelper"]
            .into_iter()
            .chain(line.iter().map(String::as_str))
            .collect();
        for _ in 0..2 {
            hunt.link(&line, &[], true)?;
            fs::remove_file(hunt.at(file))
                .map_err(|error| format!("{words:?}: {file}: {error}"))?;
        }
    }
    passed()
}

/// clang writes about each command that it runs. A hit runs none, so such links are not cached.
fn reported() -> Outcome {
    let Some(hunt) = Hunt::new("ld.lld", &std::env::temp_dir())? else {
        return missing("ld.lld");
    };
    hunt.archive(1, "lib/libhelper.a")?;
    hunt.rest();
    let library = ["-Llib", "-lhelper"];
    for (option, environment) in [
        (Some("--device-compiler=-fproc-stat-report=report"), &[][..]),
        (
            None,
            &[
                ("CC_PRINT_PROC_STAT", "1"),
                ("CC_PRINT_PROC_STAT_FILE", "report"),
            ],
        ),
        (
            None,
            &[
                ("CC_PRINT_OPTIONS", "1"),
                ("CC_PRINT_OPTIONS_FILE", "report"),
            ],
        ),
    ] {
        let line: Vec<&str> = library.into_iter().chain(option).collect();
        for _ in 0..2 {
            let mut command = hunt.command(&line);
            command.env("OFFLD_CACHE", hunt.at("cache"));
            run(command.envs(environment.iter().copied()))?;
            fs::remove_file(hunt.at("report"))
                .map_err(|error| format!("{option:?}, {environment:?}: {error}"))?;
        }
    }
    passed()
}
