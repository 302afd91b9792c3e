//! A cached link, a change of a file that it read or would have read, and a second link: its result
//! must equal that of a link without the cache.

use std::fs;

use libtest_mimic::{Failed, Trial};

use super::Site;
use crate::support::{Outcome, ensure, expect_equal, expect_in, missing, passed, test};

/// A change that could make a cached image stale.
struct Scenario {
    name: &'static str,
    /// Whether the program is bitcode, for which ptxas runs.
    bitcode: bool,
    /// The arguments after the program's first object, before the change and after it.
    line: &'static [&'static str],
    after: &'static [&'static str],
    before: fn(&Site) -> Result<(), Failed>,
    change: fn(&Site) -> Result<(), Failed>,
}

const TOOLKIT: &str = "--cuda-path=toolkit";
const PLAIN: &[&str] = &[TOOLKIT, "b.o"];
const LIBRARY: &[&str] = &[
    TOOLKIT,
    "--device-linker=-Lfirst",
    "--device-linker=-Lsecond",
    "--device-linker=-lb",
];

fn nothing(_: &Site) -> Result<(), Failed> {
    Ok(())
}

fn copy(site: &Site, from: &str, to: &str) -> Result<(), Failed> {
    let to = site.work.path().join(to);
    fs::create_dir_all(to.parent().ok_or("no folder")?)?;
    fs::copy(site.work.path().join(from), to)?;
    Ok(())
}

/// Scenarios for `clang-nvlink-wrapper`.
const BY_WRAPPER: &[Scenario] = &[
    Scenario {
        name: "ptxas_is_replaced",
        bitcode: true,
        line: PLAIN,
        after: PLAIN,
        before: nothing,
        change: |site| site.replace("toolkit/bin/ptxas", "-lineinfo", ""),
    },
    Scenario {
        name: "nvlink_is_replaced",
        bitcode: false,
        line: PLAIN,
        after: PLAIN,
        before: nothing,
        change: |site| site.replace("toolkit/bin/nvlink", "", "replaced"),
    },
    Scenario {
        name: "another_toolkit",
        bitcode: false,
        line: PLAIN,
        after: &["--cuda-path=other", "b.o"],
        before: nothing,
        change: |site| {
            site.toolkit("other")?;
            site.replace("other/bin/nvlink", "", "other")
        },
    },
    Scenario {
        name: "a_library_changes",
        bitcode: false,
        line: LIBRARY,
        after: LIBRARY,
        before: |site| copy(site, "libb1.a", "second/libb.a"),
        change: |site| copy(site, "libb2.a", "second/libb.a"),
    },
    Scenario {
        name: "a_library_appears_in_a_folder_that_comes_first",
        bitcode: true,
        line: LIBRARY,
        after: LIBRARY,
        before: |site| copy(site, "libb1.a", "second/libb.a"),
        change: |site| copy(site, "libb2.a", "first/libb.a"),
    },
    Scenario {
        name: "a_file_that_the_line_names_changes",
        bitcode: false,
        line: &[TOOLKIT, "--device-linker=named.a"],
        after: &[TOOLKIT, "--device-linker=named.a"],
        before: |site| copy(site, "libb1.a", "named.a"),
        change: |site| copy(site, "libb2.a", "named.a"),
    },
    Scenario {
        name: "the_device_code_changes",
        bitcode: true,
        line: PLAIN,
        after: PLAIN,
        before: nothing,
        change: |site| copy(site, "b2.o", "b.o"),
    },
];

/// Scenarios for `nvlink` alone, with a compiler of LLVM 15.
const BY_NVLINK: &[&str] = &[
    "nvlink_is_replaced",
    "another_toolkit",
    "the_device_code_changes",
];

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for major in [19, 22] {
        for scenario in BY_WRAPPER {
            trials.push(test(
                format!("releases::nvidia::{}::{major}", scenario.name),
                move || expect_not_stale(scenario, major, scenario.bitcode),
            ));
        }
    }
    for scenario in BY_WRAPPER
        .iter()
        .filter(|scenario| BY_NVLINK.contains(&scenario.name))
    {
        trials.push(test(
            format!("releases::nvidia::{}::15", scenario.name),
            move || expect_not_stale(scenario, 15, false),
        ));
    }
    trials.push(test(
        "releases::nvidia::the_toolkit_of_the_compiler_changes::22",
        toolkit_changes,
    ));
    trials.push(test(
        "releases::nvidia::a_hit_starts_nothing::22",
        starts_nothing,
    ));
    trials.push(test(
        "releases::nvidia::what_cannot_be_known_is_not_cached::22",
        uncached,
    ));
    trials.push(test(
        "releases::nvidia::names_that_the_compiler_makes_up_are_not_cached::16",
        generated_names,
    ));
    trials
}

fn expect_not_stale(scenario: &Scenario, major: u32, bitcode: bool) -> Outcome {
    let site = match Site::new(major, bitcode) {
        Ok(site) => site,
        Err(outcome) => return outcome,
    };
    (scenario.before)(&site)?;
    let (first, (outcome, why)) = site.link(scenario.line, &[], true)?;
    expect_equal(
        "the first link",
        "miss: no earlier link of this output is recorded on this machine",
        &format!("{outcome}: {why}"),
    )?;
    let (again, (outcome, why)) = site.link(scenario.line, &[], true)?;
    expect_equal("the second link", "hit: ", &format!("{outcome}: {why}"))?;
    ensure(again == first, || "what was found is not what was kept")?;
    (scenario.change)(&site)?;
    let (after, (outcome, why)) = site.link(scenario.after, &[], true)?;
    let (right, _) = site.link(scenario.after, &[], false)?;
    ensure(
        right != first,
        || "the change changes nothing: this scenario could not fail",
    )?;
    ensure(after == right, || {
        format!("a stale image: {outcome}: {why}")
    })?;
    expect_equal("the link after the change", "miss", &outcome)?;
    let (once_more, (outcome, _)) = site.link(scenario.after, &[], true)?;
    expect_equal("the link after that", "hit", &outcome)?;
    ensure(once_more == right, || "what was found is not what was kept")?;
    passed()
}

/// clang chooses code generator options by the version of the toolkit, so offld asks clang again
/// after a change.
fn toolkit_changes() -> Outcome {
    let site = match Site::new(22, true) {
        Ok(site) => site,
        Err(outcome) => return outcome,
    };
    site.link(PLAIN, &[], true)?;
    expect_equal("nothing changed", "hit", &site.link(PLAIN, &[], true)?.1.0)?;
    site.work
        .file("toolkit/include/cuda.h", "#define CUDA_VERSION 12040\n");
    let (image, (outcome, why)) = site.link(PLAIN, &[], true)?;
    expect_equal("another release", "miss", &outcome)?;
    expect_in(&why, "the linker argument `")?;
    ensure(image == site.link(PLAIN, &[], false)?.0, || "a stale image")?;
    // The device library is linked when a source is compiled. A different one only makes offld ask
    // clang, whose answer is the same.
    site.work
        .file("toolkit/nvvm/libdevice/libdevice.10.bc", "BC2");
    let (again, (outcome, _)) = site.link(PLAIN, &[], true)?;
    expect_equal("another device library", "hit", &outcome)?;
    ensure(again == site.link(PLAIN, &[], false)?.0, || "a stale image")?;
    passed()
}

/// A cache hit starts no other program: neither clang's commands nor `fatbinary`, whose result is
/// cached too.
fn starts_nothing() -> Outcome {
    let Ok(strace) = which::which("strace") else {
        return missing("strace");
    };
    let site = match Site::new(22, false) {
        Ok(site) => site,
        Err(outcome) => return outcome,
    };
    site.link(PLAIN, &[], true)?;
    let (cached, _) = site.link(PLAIN, &[], true)?;
    let mut traced = site.work.command(strace);
    traced.args(["-f", "-e", "trace=execve", "-o", "trace"]);
    let (found, (outcome, _)) = site.link_through(traced, PLAIN, &[], true)?;
    expect_equal("outcome", "hit", &outcome)?;
    ensure(found == cached, || "what was found is not what was kept")?;
    let trace = fs::read_to_string(site.work.path().join("trace"))?;
    let started = trace
        .lines()
        .filter(|line| line.contains("execve(") && !line.contains("= -1"))
        .count();
    expect_equal(
        "programs that were started, the wrapper itself included",
        "1",
        &started.to_string(),
    )?;

    site.replace("toolkit/bin/fatbinary", "", "replaced")?;
    let (after, (outcome, _)) = site.link(PLAIN, &[], true)?;
    expect_equal("outcome", "hit", &outcome)?;
    ensure(
        after != cached,
        || "the change changes nothing: this test could not fail",
    )?;
    ensure(
        after == site.link(PLAIN, &[], false)?.0,
        || "a stale fat binary",
    )?;
    passed()
}

fn uncached() -> Outcome {
    let site = match Site::new(22, false) {
        Ok(site) => site,
        Err(outcome) => return outcome,
    };
    let bin = site.real.join("bin").display().to_string();
    let path = format!("{bin}:/usr/bin:/bin");
    let folder = site.work.path().display().to_string();
    for (args, environment, says) in [
        (
            PLAIN,
            ("LIBRARY_PATH", folder.as_str()),
            "LIBRARY_PATH is set",
        ),
        (
            &["b.o"],
            ("PATH", path.as_str()),
            "--cuda-path= is missing, so the directory of NVIDIA's tools is unknown",
        ),
        (
            &[TOOLKIT, "b.o", "--device-compiler=-g"],
            ("X", ""),
            "the cache does not support the linker argument `-g`",
        ),
        (
            &[TOOLKIT, "b.o", "--device-linker=-v"],
            ("X", ""),
            "the cache does not support the linker argument `-v`",
        ),
    ] {
        for _ in 0..2 {
            let (_, (outcome, why)) = site.link(args, &[environment], true)?;
            expect_equal("outcome", "uncached", &outcome)?;
            expect_in(&why, says)?;
        }
    }
    // offld cannot know which programs a script runs.
    let _ = fs::remove_file(site.work.path().join("toolkit/bin/nvlink"));
    site.work.tool(
        "toolkit/bin/nvlink",
        &format!("#!/bin/sh\nexec {bin}/nvlink \"$@\"\n"),
    );
    let (_, (outcome, why)) = site.link(PLAIN, &[], true)?;
    expect_equal("outcome", "uncached", &outcome)?;
    expect_in(&why, "toolkit/bin/nvlink is a script")?;
    passed()
}

fn generated_names() -> Outcome {
    let site = match Site::new(16, false) {
        Ok(site) => site,
        Err(outcome) => return outcome,
    };
    let path = format!("{}:/usr/bin:/bin", site.real.join("bin").display());
    let (_, (outcome, why)) = site.link(PLAIN, &[("PATH", &path)], true)?;
    expect_equal(
        "outcome",
        "uncached: clang 16 passes NVIDIA's linker temporary files with random names",
        &format!("{outcome}: {why}"),
    )?;
    passed()
}
