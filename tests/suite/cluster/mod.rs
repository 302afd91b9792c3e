//! Device links on other machines: through Slurm with two nodes and through SSH, both for real on this machine (`make test-cluster`).
//! Whatever becomes of a job, the image is the one that is made here, or there is one error; and nothing is left on the nodes.

mod builds;
mod ends;
mod fixture;
mod held;
mod program;
mod speed;
mod trouble;

use libtest_mimic::Trial;

pub(crate) use fixture::stop;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = builds::trials();
    trials.extend(trouble::trials());
    trials.extend(ends::trials());
    trials.extend(speed::trials());
    trials
}
