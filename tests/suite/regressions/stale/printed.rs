//! What a linker prints is printed by every link, and what it is to write is written.

use std::fs;

use libtest_mimic::{Failed, Trial};

use super::{BOTH, Hunt};
use crate::support::{Outcome, ensure, expect_in, missing, output, passed, shown, text, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for linker in BOTH {
        let name = |what: &str| format!("regressions::{what}::{}", linker.replace('.', "_"));
        trials.push(with_llvm(&name("g09m_symbols_that_are_traced"), move || printed(linker, TRACES, "definition of helper")));
        trials.push(with_llvm(&name("g09n_maps_and_other_tables"), move || printed(linker, TABLES, "helper")));
        trials.push(with_llvm(&name("g09o_files_beside_the_image"), move || written(linker)));
    }
    trials.push(with_llvm("regressions::g09p_why_something_is_live::ld_lld", || printed("ld.lld", LIVE, "live symbol")));
    trials
}

/// Options of the device's linker that have it print something to its stdout, and all forms of them.
const TRACES: &[&[&str]] = &[&["-y", "helper"], &["-yhelper"], &["--trace-symbol=helper"], &["--trace-symbol", "helper"]];
const TABLES: &[&[&str]] = &[&["--print-map"], &["-M"], &["--trace"], &["-t"], &["--cref"]];
const LIVE: &[&[&str]] = &[&["--gc-sections", "--why-live=helper"]];

fn printed(linker: &str, options: &[&[&str]], what: &str) -> Outcome {
    let Some(hunt) = Hunt::new(linker, &std::env::temp_dir())? else { return missing(linker) };
    hunt.archive(1, "lib/libhelper.a")?;
    hunt.rest();
    for words in options {
        // A table of its own goes with a map only.
        let words = if *words == ["--cref"] { &["-M", "--cref"][..] } else { words };
        let line: Vec<String> = words.iter().map(|word| format!("--device-linker={word}")).collect();
        let line: Vec<&str> = ["-Llib", "-lhelper"].into_iter().chain(line.iter().map(String::as_str)).collect();
        for _ in 0..2 {
            let mut command = hunt.command(&line);
            let ended = output(command.env("OFFLD_CACHE", hunt.at("cache")))?;
            ensure(ended.status.success(), || shown(&command, &ended))?;
            // GNU's linker traces symbols to its stderr.
            let said = text(&ended.stdout) + &text(if what.starts_with("definition") { &ended.stderr } else { b"" });
            expect_in(&said, what).map_err(|_| Failed::from(shown(&command, &ended)))?;
        }
    }
    passed()
}

fn written(linker: &str) -> Outcome {
    let Some(hunt) = Hunt::new(linker, &std::env::temp_dir())? else { return missing(linker) };
    hunt.archive(1, "lib/libhelper.a")?;
    hunt.rest();
    for (words, file) in [(&["-Map=map"][..], "map"), (&["-Map", "map"], "map"), (&["--dependency-file=deps.d"], "deps.d")] {
        let line: Vec<String> = words.iter().map(|word| format!("--device-linker={word}")).collect();
        let line: Vec<&str> = ["-Llib", "-lhelper"].into_iter().chain(line.iter().map(String::as_str)).collect();
        for _ in 0..2 {
            hunt.link(&line, &[], true)?;
            fs::remove_file(hunt.at(file)).map_err(|error| format!("{words:?}: {file}: {error}"))?;
        }
    }
    passed()
}
