//! The remote: the second level of the cache, shared between machines, on Redis, S3, WebDAV or in a folder. This file has its
//! settings (`OFFLD_CACHE_REMOTE` and its companions); the modules below do the work.
//!
//! Data from a remote is checked: every object carries a digest, keyed where there is a key, and a blob's name is the digest of its
//! contents. A remote that is slow or down costs one bounded wait and one warning, and is then not used for the rest of the process. It never makes a link
//! fail.
//!
//! Without the feature `remote-cache`, `disabled.rs` has the same functions, and opening a remote is an error that names the
//! feature.

#[cfg(not(feature = "remote-cache"))]
mod disabled;
#[cfg(feature = "remote-cache")]
mod engine;
#[cfg(feature = "remote-cache")]
mod frame;
#[cfg(feature = "remote-cache")]
mod service;
#[cfg(feature = "remote-cache")]
mod shared;
#[cfg(test)]
mod tests;
#[cfg(feature = "remote-cache")]
mod upload;

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

#[cfg(not(feature = "remote-cache"))]
pub(crate) use disabled::Remote;
#[cfg(feature = "remote-cache")]
pub(crate) use shared::Remote;

use super::SecretKey;
use crate::sys::session::{OFFLD_CACHE_REMOTE, OFFLD_CACHE_REMOTE_READONLY, OFFLD_CACHE_REMOTE_TIMEOUT, Session};

/// Where warnings go.
pub(crate) type WarnFn = Arc<dyn Fn(&str) + Send + Sync>;

/// What URLs of remotes begin with.
const SCHEMES: [&str; 6] = ["redis", "rediss", "s3", "http", "https", "file"];
/// The time limit of one request, unless the user sets another.
const EACH: Duration = Duration::from_secs(2);
/// The time that a link may wait in all, as a multiple of that of one request.
const WHOLE: u32 = 5;
/// The largest time limit, in seconds: a day, which can be added to any time without overflow.
const LONGEST: f64 = 86_400.0;

/// The settings of a remote.
#[derive(Debug, Clone)]
pub struct RemoteSettings {
    /// `redis://…`, `s3://…`, `http(s)://…` or `file://…`. It may hold credentials, so it must not be shown: see
    /// [`RemoteSettings::shown`].
    pub url: OsString,
    /// Whether the remote is read only, and never written.
    pub read_only: bool,
    /// The time limit of one request.
    pub each: Duration,
    /// The time limit of all waiting of a link.
    pub whole: Duration,
    /// What objects there are signed with; without one they carry plain digests.
    pub key: Option<SecretKey>,
    /// A warning about a setting that was not understood and is ignored, to be shown when the remote is opened.
    pub doubt: Option<String>,
}

impl RemoteSettings {
    /// The settings for a remote at `url`, otherwise the default ones.
    pub fn new(url: impl Into<OsString>) -> Self {
        RemoteSettings { url: url.into(), read_only: false, each: EACH, whole: EACH * WHOLE, key: None, doubt: None }
    }

    /// The settings in the environment but for the key; `None` where it names no remote.
    pub fn from_environment() -> Option<Self> {
        let mut settings = RemoteSettings::new(Session::env(OFFLD_CACHE_REMOTE)?);
        let mut doubts = Vec::new();
        if let Some(value) = Session::env(OFFLD_CACHE_REMOTE_READONLY) {
            // Whoever sets it to something does not want this machine's results on the remote.
            settings.read_only = value != "0";
            if value != "0" && value != "1" {
                doubts.push(format!("{OFFLD_CACHE_REMOTE_READONLY} is neither 0 nor 1: `{}`; taking 1", value.to_string_lossy()));
            }
        }
        if let Some(value) = Session::env(OFFLD_CACHE_REMOTE_TIMEOUT) {
            match seconds(&value) {
                Some(each) => (settings.each, settings.whole) = (each, each * WHOLE),
                None => {
                    let (value, taken) = (value.to_string_lossy(), EACH.as_secs());
                    doubts
                        .push(format!("{OFFLD_CACHE_REMOTE_TIMEOUT} is no number of seconds above 0: `{value}`; taking {taken}"));
                }
            }
        }
        settings.doubt = (!doubts.is_empty()).then(|| doubts.join("; "));
        Some(settings)
    }

    /// The URL without credentials, for messages.
    pub fn shown(&self) -> String {
        shown(&self.url)
    }
}

/// The URL of the remote that the environment names, without credentials; `None` where it names none that this build can reach.
pub(crate) fn shown_of_environment() -> Option<String> {
    let url = Session::env(OFFLD_CACHE_REMOTE).filter(|_| cfg!(feature = "remote-cache"))?;
    let scheme = url.to_str()?.split_once("://")?.0.to_ascii_lowercase();
    SCHEMES.contains(&scheme.as_str()).then(|| shown(&url))
}

fn seconds(text: &OsStr) -> Option<Duration> {
    let seconds: f64 = text.to_str()?.trim().parse().ok()?;
    (seconds > 0.0 && seconds <= LONGEST).then(|| Duration::from_secs_f64(seconds))
}

/// `url` without what may be secret: everything before the last `@`, which could be a name or a password, and every option that is
/// not known to be harmless. It must work for broken URLs as well, such as one whose password has a `/` that should have been
/// `%2F`.
fn shown(url: &OsStr) -> String {
    let text = url.to_string_lossy();
    let Some((scheme, rest)) = text.split_once("://") else {
        // It is not a URL, so it may be anything, a password too.
        return "an address that is no URL".to_owned();
    };
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let (place, options) = place.split_once('?').unwrap_or((place, ""));
    let place = place.split('#').next().unwrap_or_default();
    let harmless = |option: &&str| ["prefix=", "region=", "endpoint="].iter().any(|known| option.starts_with(known));
    let options: Vec<&str> = options.split('&').filter(harmless).collect();
    let mark = if options.is_empty() { "" } else { "?" };
    format!("{scheme}://{place}{mark}{}", options.join("&"))
}
