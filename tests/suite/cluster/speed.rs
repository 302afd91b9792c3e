//! What a job costs: links by the launcher beside links here, in turns.

use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use super::fixture::{Lent, SRUN, on_cluster};
use super::program::{For, Program};
use crate::support::{Outcome, ensure, passed};

pub(super) fn trials() -> Vec<Trial> {
    vec![on_cluster("a_job_costs_little", overhead)]
}

const ROUNDS: usize = 15;
/// What a small link may take longer than here.
const MOST: Duration = Duration::from_millis(100);

fn overhead(lent: &mut Lent) -> Outcome {
    let work = lent.work();
    let program = Program::new(work.path().join("build"), For::Amd(&["gfx90a"]), "full")?;
    let once = |launcher: &str| -> Result<Duration, Failed> {
        let mut link = program.link(lent, &work, launcher, &[]);
        let since = Instant::now();
        program.linked(&work, &mut link)?;
        Ok(since.elapsed())
    };
    let mut over = Vec::new();
    // The first of each is not counted.
    for round in 0..=ROUNDS {
        let (here, there) = (once("")?, once(SRUN)?);
        if round > 0 {
            over.push(there.as_secs_f64() - here.as_secs_f64());
        }
    }
    over.sort_by(f64::total_cmp);
    let median = over[ROUNDS / 2];
    eprintln!("cluster: a small link through Slurm takes {:.0} ms longer than here", median * 1000.0);
    ensure(median <= MOST.as_secs_f64(), || format!("{over:.3?} s over a link here, of which the median is above {MOST:?}"))?;
    passed()
}
