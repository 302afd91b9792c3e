//! Pruned HIP and CUDA programs register the same as a build that never had the other images. A
//! merge of builds for one architecture each registers the same as one build for all. The log of
//! the runtime stubs proves it.

use libtest_mimic::{Failed, Trial};

use super::stdout_of;
use crate::kinds::{Case, Wrapper};
use crate::support::{Outcome, Work, expect_equal, passed, run, test};

/// Cases of `tests/kinds`, each with the remaining and the removed architecture.
const CASES: [(&str, &str, &str); 8] = [
    ("hip-plain", "gfx90a", "gfx908"),
    ("hip-plain", "gfx908", "gfx90a"),
    ("hip-rdc", "gfx90a", "gfx908"),
    ("hip-compressed", "gfx908", "gfx90a"),
    ("hip-shared", "gfx90a", "gfx908"),
    ("cuda-plain", "sm_90", "sm_80"),
    ("cuda-rdc", "sm_80", "sm_90"),
    ("cuda-shared", "sm_90", "sm_80"),
];

pub(super) fn trials() -> Vec<Trial> {
    let name = |case: &str, keep: &str| {
        let start = if case.starts_with("cuda") {
            "releases::"
        } else {
            ""
        };
        format!("{start}edit::ledgers::{case}_pruned_to_{keep}")
    };
    let merged = |case: &str| {
        let start = if case.starts_with("cuda") {
            "releases::"
        } else {
            ""
        };
        format!("{start}edit::ledgers::{case}_merged")
    };
    let mut trials: Vec<Trial> = CASES
        .map(|(case, keep, gone)| test(name(case, keep), move || check(case, keep, gone)))
        .into();
    trials
        .extend(MERGED.map(|(case, archs)| test(merged(case), move || check_merged(case, archs))));
    trials
}

/// Cases of `tests/kinds`, each with its architectures.
const MERGED: [(&str, [&str; 2]); 7] = [
    ("hip-plain", AMD),
    ("hip-rdc", AMD),
    ("hip-compressed", AMD),
    ("hip-shared", AMD),
    ("cuda-plain", NVIDIA),
    ("cuda-rdc", NVIDIA),
    ("cuda-shared", NVIDIA),
];
const AMD: [&str; 2] = ["gfx90a", "gfx908"];
const NVIDIA: [&str; 2] = ["sm_80", "sm_90"];

/// The files of `case` in `folder` that may contain device code: those with the extension `end`, or
/// else programs and libraries.
fn files(folder: &Work, end: &str) -> Result<Vec<String>, Failed> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder.path())? {
        let name = entry?.file_name().to_string_lossy().into_owned();
        let is_linked = name == "program" || name.ends_with(".so");
        if if end.is_empty() {
            is_linked
        } else {
            name.ends_with(end)
        } {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

fn check_merged(name: &str, archs: [&str; 2]) -> Outcome {
    let case = Case::named(name, 22);
    let tools = match case.tools() {
        Ok(tools) => tools,
        Err(missing) => return missing,
    };
    // By default, clang derives this ID from the command line, which includes the architectures.
    let cuid = "-cuid=@name@";
    for wrapper in [Wrapper::Ours, Wrapper::Theirs] {
        let told = |what: &str, failed: Failed| {
            Failed::from(format!(
                "{wrapper:?}, {what}: {}",
                failed.message().unwrap_or_default()
            ))
        };
        let (all, one, other) = (Work::new(), Work::new(), Work::new());
        case.compile_with(&all, &tools, wrapper, &[cuid])?;
        case.link(&all, &tools, wrapper, &[])?;
        let expected = case.run(&all)?;
        for (work, gone) in [(&one, archs[1]), (&other, archs[0])] {
            case.compile_with(
                work,
                &tools,
                wrapper,
                &[cuid, &format!("--no-offload-arch={gone}")],
            )?;
            case.link(work, &tools, wrapper, &[])?;
        }
        // Linked files first, and then objects, from which the merged program is linked.
        for end in ["", ".o"] {
            let merged = Work::new();
            for file in files(&one, end)? {
                let path = |work: &Work| work.path().join(&file).display().to_string();
                let (first, second, out) = (path(&one), path(&other), path(&merged));
                if stdout_of(&one, ["inspect", "--summary", &first])?.contains(archs[0]) {
                    stdout_of(&merged, ["merge", "-o", &out, &first, &second])
                        .map_err(|failed| told(&file, failed))?;
                    if end.is_empty() {
                        run(merged.command("strip").arg(&out))?;
                    }
                } else {
                    std::fs::copy(&first, &out)?;
                }
            }
            if !end.is_empty() {
                case.link(&merged, &tools, wrapper, &[])?;
            }
            let (printed, ledger) = case.run(&merged)?;
            let what = if end.is_empty() {
                "linked files"
            } else {
                "objects"
            };
            expect_equal("stdout", &expected.0, &printed).map_err(|failed| told(what, failed))?;
            expect_equal("ledger", &expected.1, &ledger).map_err(|failed| told(what, failed))?;
        }
    }
    passed()
}

fn check(name: &str, keep: &str, gone: &str) -> Outcome {
    let case = Case::named(name, 22);
    let tools = match case.tools() {
        Ok(tools) => tools,
        Err(missing) => return missing,
    };
    for wrapper in [Wrapper::Ours, Wrapper::Theirs] {
        let (all, one) = (Work::new(), Work::new());
        case.compile(&all, &tools, wrapper)?;
        case.link(&all, &tools, wrapper, &[])?;
        case.compile_with(
            &one,
            &tools,
            wrapper,
            &[&format!("--no-offload-arch={gone}")],
        )?;
        case.link(&one, &tools, wrapper, &[])?;
        for file in ["program", "libshared.so", "libpart.so"]
            .iter()
            .filter(|file| all.path().join(file).exists())
        {
            let before = stdout_of(&all, ["inspect", "--summary", file])?;
            if before.contains(gone) {
                stdout_of(&all, ["prune", "--keep", keep, "--in-place", file])?;
                run(all.command("strip").arg(file))?;
            }
        }
        let (printed, ledger) = case.run(&all)?;
        let (printed_one, ledger_one) = case.run(&one)?;
        expect_equal(&format!("{wrapper:?}: stdout"), &printed_one, &printed)?;
        expect_equal(&format!("{wrapper:?}: ledger"), &ledger_one, &ledger)?;
    }
    passed()
}
