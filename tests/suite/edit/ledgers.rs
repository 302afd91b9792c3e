//! Pruned programs of HIP and CUDA register what a build registers that never had the other images: the runtime stubs' ledgers say so.

use libtest_mimic::Trial;

use super::said;
use crate::kinds::{Case, Wrapper};
use crate::support::{Outcome, Work, expect_equal, passed, run, test};

/// Cases of `tests/kinds`, the architecture that stays, and the one that goes.
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
        let start = if case.starts_with("cuda") { "releases::" } else { "" };
        format!("{start}edit::ledgers::{case}_pruned_to_{keep}")
    };
    CASES.map(|(case, keep, gone)| test(name(case, keep), move || check(case, keep, gone))).into()
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
        case.compile_with(&one, &tools, wrapper, &[&format!("--no-offload-arch={gone}")])?;
        case.link(&one, &tools, wrapper, &[])?;
        for file in ["program", "libshared.so", "libpart.so"].iter().filter(|file| all.path().join(file).exists()) {
            let before = said(&all, ["inspect", "--summary", file])?;
            if before.contains(gone) {
                said(&all, ["prune", "--keep", keep, "--in-place", file])?;
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
