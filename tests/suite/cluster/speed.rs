//! The cost of a job: links through the launcher alternate with local links.

use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use super::fixture::{Lent, SRUN, on_cluster};
use super::program::{For, Program};
use crate::support::{Outcome, passed};

pub(super) fn trials() -> Vec<Trial> {
    vec![on_cluster("a_job_costs_little", overhead)]
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
