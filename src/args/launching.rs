//! Options for a launcher that runs device links on other machines (docs/guides/cluster.md).

use std::ffi::{OsStr, OsString};

use anyhow::{Result, bail};

use super::Id;

/// The launcher options on the command line; the environment can set them, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launching {
    /// `--wrapper-launcher`, the last one: the launcher's command, unsplit. An empty one means no
    /// launcher.
    pub launcher: Option<OsString>,
    /// `--wrapper-launcher-wait`, the last one: the maximum time of a job in the launcher's queue,
    /// in seconds.
    pub wait: Option<u64>,
    /// `--wrapper-remote-jobs`, the last one: the number of jobs that the launcher runs at once.
    pub jobs: Option<usize>,
}

impl Launching {
    /// Sets one of the options.
    pub(super) fn set(&mut self, id: Id, value: &OsStr) -> Result<()> {
        match id {
            Id::Launcher => self.launcher = Some(value.to_owned()),
            Id::LauncherWait => self.wait = Some(launcher_wait("--wrapper-launcher-wait", value)?),
            Id::RemoteJobs => self.jobs = Some(remote_jobs("--wrapper-remote-jobs", value)?),
            _ => {}
        }
        Ok(())
    }
}

/// Parses the maximum queue time of a job in the value of `option`, in seconds.
pub(crate) fn launcher_wait(option: &str, value: &OsStr) -> Result<u64> {
    positive(option, value, "a number of seconds")
}

/// Parses the number of jobs that the launcher runs at once in the value of `option`.
pub(crate) fn remote_jobs(option: &str, value: &OsStr) -> Result<usize> {
    positive(option, value, "a positive number")
}

fn positive<N: std::str::FromStr + PartialOrd + From<u8>>(
    option: &str,
    value: &OsStr,
    expected: &str,
) -> Result<N> {
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(number) if number > N::from(0) => Ok(number),
        _ => bail!("{option}={}: expected {expected}", value.display()),
    }
}
