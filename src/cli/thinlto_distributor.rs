//! `offld thinlto-distributor JOBS.json`: what ld.lld starts for the units of a ThinLTO link.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use crate::args::request::{Jobs, Launching};
use crate::link::pipeline::{self, DistributorRequest};
use crate::sys::shell::Shell;

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "ld.lld (LLVM 22 and later) starts it where its line says so, and adds JOBS.json. Device links say so by themselves with\n\
    --wrapper-distribute. By hand, for any ThinLTO link:\n\n  \
    ld.lld --thinlto-distributor=/usr/bin/offld --thinlto-distributor-arg=thinlto-distributor \\\n    \
    --thinlto-remote-compiler=/usr/bin/clang …\n\n\
    The cache is where a link would have it (OFFLD_CACHE, OFFLD_CACHE_REMOTE).";

/// The options of `offld thinlto-distributor`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The file in which ld.lld describes the jobs
    #[arg(value_name = "JOBS.json")]
    jobs_file: PathBuf,
    /// Run this many at once; without it as many as there are processors, or as make's jobserver allows
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096))]
    jobs: Option<usize>,
    /// The folder of the cache, or off
    #[arg(long, value_name = "DIR")]
    cache: Option<OsString>,
    /// Write what there is to say to this file, as JSON, for the device link that waits for it
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// End when the device link that holds this named pipe has ended
    #[arg(long, value_name = "FILE", hide = true)]
    lifeline: Option<PathBuf>,
    /// Run jobs by this command, on other machines (OFFLD_LAUNCHER)
    #[arg(long, value_name = "COMMAND")]
    launcher: Option<OsString>,
    /// How many seconds a job may wait in the launcher's queue (OFFLD_LAUNCHER_WAIT)
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    launcher_wait: Option<u64>,
    /// How many jobs the launcher runs at once (OFFLD_REMOTE_JOBS)
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    remote_jobs: Option<usize>,
    /// Say what is done
    #[arg(long)]
    verbose: bool,
}

/// Runs `offld thinlto-distributor`.
pub(super) fn run(options: Options, shell: &Arc<Shell>) -> Result<()> {
    let Options { jobs_file, jobs, cache, report, lifeline, launcher, launcher_wait, remote_jobs, verbose } = options;
    let jobs = jobs.map_or(Jobs::Auto, Jobs::N);
    let launching = Launching { launcher, wait: launcher_wait, jobs: remote_jobs };
    pipeline::distribute(&DistributorRequest { jobs_file, jobs, cache, report, lifeline, launching, verbose }, shell)
}
