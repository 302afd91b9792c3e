//! `offld thinlto-distributor JOBS.json`: the program that ld.lld starts for the translation units
//! of a ThinLTO link.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use crate::args::request::{Jobs, Launching};
use crate::link::pipeline::{self, DistributorRequest};
use crate::sys::shell::Shell;

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "ld.lld (LLVM 22 and later) starts this command if its command line requests that, and adds JOBS.json. Device links request\n\
    it with --wrapper-distribute. For any other ThinLTO link, pass:\n\n  \
    ld.lld --thinlto-distributor=/usr/bin/offld --thinlto-distributor-arg=thinlto-distributor \\\n    \
    --thinlto-remote-compiler=/usr/bin/clang …\n\n\
    The cache is that of links in this environment (OFFLD_CACHE, OFFLD_CACHE_REMOTE).";

/// The options of `offld thinlto-distributor`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// The job description of ld.lld
    #[arg(value_name = "JOBS.json")]
    jobs_file: PathBuf,
    /// Run this many jobs at the same time [default: number of CPU cores, or as make's jobserver
    /// allows]
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..=4096))]
    jobs: Option<usize>,
    /// Set the cache directory, or turn the cache off (OFFLD_CACHE)
    #[arg(long, value_name = "DIR")]
    cache: Option<OsString>,
    /// Write the report as JSON to this file, for the device link that waits for the command
    #[arg(long, value_name = "FILE")]
    report: Option<PathBuf>,
    /// Exit when the device link that holds this named pipe has ended
    #[arg(long, value_name = "FILE", hide = true)]
    lifeline: Option<PathBuf>,
    /// Run jobs on other machines with this command (OFFLD_LAUNCHER)
    #[arg(long, value_name = "COMMAND")]
    launcher: Option<OsString>,
    /// Limit the time of a job in the launcher's queue, in seconds (OFFLD_LAUNCHER_WAIT) [default:
    /// 600]
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..))]
    launcher_wait: Option<u64>,
    /// Limit jobs that the launcher runs at the same time (OFFLD_REMOTE_JOBS) [default: 32]
    #[arg(long, value_name = "N", value_parser = clap::builder::RangedU64ValueParser::<usize>::new().range(1..))]
    remote_jobs: Option<usize>,
    /// Report each job
    #[arg(long)]
    verbose: bool,
}

pub(super) fn run(options: Options, shell: &Arc<Shell>) -> Result<()> {
    let Options {
        jobs_file,
        jobs,
        cache,
        report,
        lifeline,
        launcher,
        launcher_wait,
        remote_jobs,
        verbose,
    } = options;
    let jobs = jobs.map_or(Jobs::Auto, Jobs::N);
    let launching = Launching {
        launcher,
        wait: launcher_wait,
        jobs: remote_jobs,
    };
    pipeline::distribute(
        &DistributorRequest {
            jobs_file,
            jobs,
            cache,
            report,
            lifeline,
            launching,
            verbose,
        },
        shell,
    )
}
