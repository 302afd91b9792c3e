//! Device links on other machines, through real Slurm with two nodes and through real SSH, both on
//! this machine (`make test-cluster`). Whatever happens to a job, the image equals the locally
//! linked one, or there is exactly one error. Nothing is left on the nodes.

mod builds;
mod ends;
mod fixture;
mod held;
mod program;
mod trouble;

use libtest_mimic::Trial;

pub(crate) use fixture::stop;

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { builds trouble ends }
}
