//! The options that say how device links are run by a launcher, on other machines (docs/cluster.md).

use std::ffi::{OsStr, OsString};

use anyhow::{Result, bail};

use super::Id;

/// What the command line says of the launcher; the environment may say it, too.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Launching {
    /// `--wrapper-launcher`, the last one: the launcher's words, not split yet. Empty: none.
    pub launcher: Option<OsString>,
    /// `--wrapper-launcher-wait`, the last one: for how many seconds a job may wait in the launcher's queue.
    pub wait: Option<u64>,
    /// `--wrapper-remote-jobs`, the last one: how many jobs the launcher runs at once.
    pub jobs: Option<usize>,
}

impl Launching {
    /// Takes the value of one of the options.
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

/// The value of `option`, which says for how many seconds a job may wait.
pub(crate) fn launcher_wait(option: &str, value: &OsStr) -> Result<u64> {
    positive(option, value, "a number of seconds")
}

/// The value of `option`, which says how many jobs the launcher runs at once.
pub(crate) fn remote_jobs(option: &str, value: &OsStr) -> Result<usize> {
    positive(option, value, "a positive number")
}

fn positive<N: std::str::FromStr + PartialOrd + From<u8>>(option: &str, value: &OsStr, expected: &str) -> Result<N> {
    match value.to_str().and_then(|text| text.parse().ok()) {
        Some(number) if number > N::from(0) => Ok(number),
        _ => bail!("{option}={}: expected {expected}", value.display()),
    }
}
