//! Programs linked on the cluster equal those linked locally, for every kind of input, number of
//! jobs and location. Cache hits start no job. A job costs little: links through the launcher
//! alternate with local links.

use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use super::fixture::{Lent, SRUN, on_cluster};
use super::program::{For, Program, SIX};
use crate::support::{Outcome, ensure, expect_equal, expect_in, expect_not_in, passed};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        on_cluster("six_architectures_over_two_nodes", six),
        on_cluster("full_and_thin_with_any_number_of_jobs", jobs),
        on_cluster("by_ssh", by_ssh),
        on_cluster("odd_paths", odd_paths),
        on_cluster("a_second_build_submits_no_job", second_build),
        on_cluster("units_of_thinlto_over_two_nodes", units),
        on_cluster("a_job_costs_little", overhead),
    ]
}

const ONE: For = For::Amd(&["gfx90a"]);

/// Links locally, and then with the launcher for each of `lines`. All results must be equal.
/// Returns the messages of the last link.
fn same(
    lent: &Lent,
    code_for: For,
    lto: &'static str,
    launcher: &str,
    lines: &[&[&str]],
) -> Result<String, Failed> {
    let work = lent.work();
    let program = Program::new(work.path().join("build"), code_for, lto)?;
    let (_, right) = program.linked(&work, &mut program.link(lent, &work, "", &[]))?;
    let mut said = String::new();
    for line in lines {
        let made;
        (said, made) = program.linked(&work, &mut program.link(lent, &work, launcher, line))?;
        ensure(made == right, || {
            format!("another file than without {launcher} {line:?}\n{said}")
        })?;
        expect_not_in(&said, "warning:")?;
        expect_in(&said, ": running on ")?;
    }
    work.expect_no_temps()?;
    Ok(said)
}

fn six(lent: &mut Lent) -> Outcome {
    let before = lent.submitted()?;
    let messages = same(lent, For::Amd(&SIX), "full", SRUN, &[&[]])?;
    for node in ["node1", "node2"] {
        expect_in(&messages, &format!(": running on {node}\n"))?;
    }
    for arch in SIX {
        expect_in(&messages, &format!("-J offld-out-{arch} "))?;
    }
    expect_equal("jobs", "6", &(lent.submitted()? - before - 1).to_string())?;
    passed()
}

fn jobs(lent: &mut Lent) -> Outcome {
    let lines: [&[&str]; 3] = [
        &["--wrapper-jobs=1"],
        &["--wrapper-jobs=2"],
        &["--wrapper-jobs=8", "--wrapper-remote-jobs=1"],
    ];
    for lto in ["full", "thin"] {
        same(lent, For::Amd(&["gfx90a", "gfx1030"]), lto, SRUN, &lines)?;
        same(lent, For::Host, lto, SRUN, &lines)?;
    }
    passed()
}

fn by_ssh(lent: &mut Lent) -> Outcome {
    let ssh = lent.ssh();
    let messages = same(
        lent,
        For::Amd(&SIX),
        "full",
        &ssh,
        &[&["--wrapper-remote-jobs=2"], &[]],
    )?;
    expect_in(&messages, ": running on far\n")?;
    for lto in ["full", "thin"] {
        same(
            lent,
            For::Host,
            lto,
            &ssh,
            &[&["--wrapper-jobs=1"], &["--wrapper-jobs=8"]],
        )?;
    }
    same(lent, ONE, "thin", &ssh, &[&[]])?;
    passed()
}

fn odd_paths(lent: &mut Lent) -> Outcome {
    let work = lent.work();
    let names = [
        "two words",
        "it's",
        "say \"so\"",
        "$HOME and `id`",
        "back\\slash; true & * [a] ~ #",
    ];
    for launcher in [SRUN, &lent.ssh()] {
        for name in names {
            let program = Program::new(work.path().join(name), ONE, "thin")?;
            let (_, right) = program.linked(&work, &mut program.link(lent, &work, "", &[]))?;
            let (said, made) =
                program.linked(&work, &mut program.link(lent, &work, launcher, &[]))?;
            ensure(made == right, || format!("another file in {name}\n{said}"))?;
            expect_not_in(&said, "warning:")?;
            expect_in(&said, ": running on ")?;
        }
    }
    passed()
}

/// A build in another directory, with an empty local cache and the same shared cache.
fn second_build(lent: &mut Lent) -> Outcome {
    for launcher in [SRUN, &lent.ssh()] {
        for lto in ["full", "thin"] {
            let work = lent.work();
            let remote = format!("file://{}/remote", work.path().display());
            let build = |name: &str| {
                let program = Program::new(
                    work.path().join(name),
                    For::Amd(&["gfx90a", "gfx1030"]),
                    lto,
                )?;
                let mut link = program.link(lent, &work, launcher, &[]);
                link.env("OFFLD_CACHE", work.path().join(format!("cache-{name}")))
                    .env("OFFLD_CACHE_REMOTE", &remote);
                program.linked(&work, &mut link)
            };
            let before = lent.submitted()?;
            let (said, first) = build("first")?;
            expect_in(&said, ": running on ")?;
            expect_not_in(&said, "warning:")?;
            let between = lent.submitted()?;
            let (said, second) = build("second")?;
            let after = lent.submitted()?;
            ensure(first == second, || format!("another file\n{said}"))?;
            expect_not_in(&said, ": running on ")?;
            expect_equal(
                "jobs of the second build",
                "0",
                &(after - between - 1).to_string(),
            )?;
            ensure(
                launcher != SRUN || between - before > 2,
                || "no jobs of the first build",
            )?;
        }
    }
    passed()
}

/// Each translation unit of a ThinLTO link for one architecture is a job. The second link needs no
/// job. After a change, the affected units are jobs.
fn units(lent: &mut Lent) -> Outcome {
    for code_for in [ONE, For::Host] {
        let work = lent.work();
        let program = Program::new(work.path().join("build"), code_for, "thin")?;
        let (_, right) = program.linked(&work, &mut program.link(lent, &work, "", &[]))?;
        for (launcher, nodes) in [(SRUN, &["node1", "node2"][..]), (&lent.ssh(), &["far"])] {
            for jobs in ["1", "8"] {
                let cache = work.path().join(format!("cache-{}-{jobs}", nodes[0]));
                let remote_jobs = format!("--wrapper-remote-jobs={jobs}");
                let before = lent.submitted()?;
                let mut link = program.link(lent, &work, launcher, &[&remote_jobs]);
                let (said, made) = program.linked(&work, link.env("OFFLD_CACHE", &cache))?;
                ensure(made == right, || {
                    format!("another file with {remote_jobs}\n{said}")
                })?;
                expect_not_in(&said, "warning:")?;
                let launched = lent.submitted()? - before - 1;
                ensure(launcher != SRUN || launched == 3, || {
                    format!("{launched} jobs for 3 units\n{said}")
                })?;
                let (said, made) = program.linked(&work, link.env("OFFLD_CACHE", &cache))?;
                ensure(made == right, || {
                    format!("another file out of the cache\n{said}")
                })?;
            }
        }
        let before = lent.submitted()?;
        let mut link = program.link(lent, &work, SRUN, &[]);
        program.linked(
            &work,
            link.env("OFFLD_CACHE", work.path().join("cache-node1-8")),
        )?;
        expect_equal("jobs", "0", &(lent.submitted()? - before - 1).to_string())?;
    }
    passed()
}

const ROUNDS: usize = 15;
/// The maximum additional time of a small link through the launcher.
const MOST: Duration = Duration::from_millis(100);

fn overhead(lent: &mut Lent) -> Outcome {
    // Other load only makes links slower, so the best of three counts.
    let mut medians = Vec::new();
    for _ in 0..3 {
        let median = median_over(lent)?;
        medians.push(median);
        if median <= MOST.as_secs_f64() {
            eprintln!(
                "cluster: a small link through Slurm takes {:.0} ms longer than here",
                median * 1000.0
            );
            return passed();
        }
    }
    Err(format!(
        "medians of what a link takes longer than here: {medians:.3?} s, all above {MOST:?}"
    )
    .into())
}

/// The median over all rounds of the difference between both links, in seconds.
fn median_over(lent: &Lent) -> Result<f64, Failed> {
    let work = lent.work();
    let program = Program::new(work.path().join("build"), For::Amd(&["gfx90a"]), "full")?;
    let once = |launcher: &str| -> Result<f64, Failed> {
        let mut link = program.link(lent, &work, launcher, &[]);
        let since = Instant::now();
        program.linked(&work, &mut link)?;
        Ok(since.elapsed().as_secs_f64())
    };
    let mut over = Vec::new();
    // The first round is a warm-up.
    for round in 0..=ROUNDS {
        let (here, there) = (once("")?, once(SRUN)?);
        if round > 0 {
            over.push(there - here);
        }
    }
    over.sort_by(f64::total_cmp);
    Ok(over[ROUNDS / 2])
}
