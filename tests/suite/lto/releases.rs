//! ThinLTO with the linkers of earlier releases: offld passes only options that they know, and
//! their units are cached as well.

use libtest_mimic::Trial;

use super::{COUNT, Units};
use crate::support::{Outcome, Release, ensure, expect_in, expect_not_in, missing, passed, test};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials: Vec<Trial> = [15, 16, 19]
        .map(|major| {
            test(format!("releases::lto::units_of_{major}"), move || {
                release_links(major)
            })
        })
        .into();
    trials.push(test("releases::lto::full_bitcode_in_spite_of_thin", of_14));
    trials
}

/// The compiler of LLVM 14 writes bitcode for full LTO even if ThinLTO is requested. offld goes by
/// the bitcode.
fn of_14() -> Outcome {
    let Some(release) = Release::of(14) else {
        return missing("LLVM 14 (make setup-releases)");
    };
    let units = Units::with_release(release, "thin")?;
    let right = units.right(&[])?;
    for _ in 0..2 {
        let (said, made) = units.linked(&units.cache(), &[])?;
        expect_not_in(&said, "--thinlto-")?;
        ensure(made == right, || {
            format!("another library than without the cache\n{said}")
        })?;
    }
    passed()
}

fn release_links(major: u32) -> Outcome {
    let Some(release) = Release::of(major) else {
        return missing(format!("LLVM {major} (make setup-releases)"));
    };
    let units = Units::with_release(release, "thin")?;
    units.expect(0, COUNT, &[])?;
    units.compile(0, 2)?;
    units.expect(COUNT - 1, 1, &[])?;
    let right = units.right(&[])?;
    for jobs in ["1", "8"] {
        let (said, made) = units.linked(
            &units.work.path().join(format!("cache.{jobs}")),
            &[&format!("--wrapper-jobs={jobs}")],
        )?;
        ensure(made == right, || {
            format!("another library with {jobs} jobs\n{said}")
        })?;
        expect_in(&said, "--thinlto-jobs=")?;
    }
    passed()
}
