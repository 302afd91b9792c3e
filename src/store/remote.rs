//! The second level of the cache, shared between machines: Redis, S3, WebDAV or a folder. This file is what it is asked for by
//! (`OFFLD_CACHE_REMOTE` and its friends); the work is done in the files below it.
//!
//! What is there is never trusted: every object carries a digest, and a blob is its name's. What is slow or dead costs one bounded
//! wait and one warning, and is then left alone for the rest of the process. No trouble with it is ever an error for a link.
//!
//! Without the feature `remote-cache` the twin `disabled.rs` has the same functions, and opening says what is missing.

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
pub use disabled::Remote;
#[cfg(feature = "remote-cache")]
pub use shared::Remote;

use crate::sys::session::{OFFLD_CACHE_REMOTE, OFFLD_CACHE_REMOTE_READONLY, OFFLD_CACHE_REMOTE_TIMEOUT, Session};

/// Where warnings go.
pub type WarnFn = Arc<dyn Fn(&str) + Send + Sync>;

/// How long one question may take, unless the user says so.
const EACH: Duration = Duration::from_secs(2);
/// How many such questions a link may wait for in all.
const WHOLE: u32 = 5;
/// Nobody means more than a day, and clocks can add it.
const LONGEST: f64 = 86_400.0;

/// What is asked for.
#[derive(Clone)]
pub struct RemoteSettings {
    /// `redis://…`, `s3://…`, `http(s)://…` or `file://…`, credentials and all: not to be shown.
    pub url: OsString,
    /// Nothing is written.
    pub read_only: bool,
    /// The longest that one question may take.
    pub each: Duration,
    /// The longest that a link waits in all.
    pub whole: Duration,
    /// What is wrong with what was asked for and can be done without; for whoever opens it.
    pub doubt: Option<String>,
}

impl RemoteSettings {
    /// The settings for a remote at `url`, with nothing else said.
    pub fn new(url: impl Into<OsString>) -> Self {
        RemoteSettings { url: url.into(), read_only: false, each: EACH, whole: EACH * WHOLE, doubt: None }
    }

    /// What the environment asks for; none where it names no remote.
    pub fn from_environment() -> Option<Self> {
        let mut settings = RemoteSettings::new(Session::env(OFFLD_CACHE_REMOTE)?);
        settings.read_only = Session::env(OFFLD_CACHE_REMOTE_READONLY).is_some_and(|value| value == "1");
        if let Some(value) = Session::env(OFFLD_CACHE_REMOTE_TIMEOUT) {
            match seconds(&value) {
                Some(each) => (settings.each, settings.whole) = (each, each * WHOLE),
                None => {
                    let (value, taken) = (value.to_string_lossy(), EACH.as_secs());
                    let told = format!("{OFFLD_CACHE_REMOTE_TIMEOUT} is no number of seconds above 0: `{value}`; taking {taken}");
                    settings.doubt = Some(told);
                }
            }
        }
        Some(settings)
    }

    /// Where it is, without credentials.
    pub fn shown(&self) -> String {
        shown(&self.url)
    }
}

/// Where this process would share its cache, without credentials; none where it would not.
pub fn shown_of_environment() -> Option<String> {
    Session::env(OFFLD_CACHE_REMOTE).map(|url| shown(&url))
}

fn seconds(text: &OsStr) -> Option<Duration> {
    let seconds: f64 = text.to_str()?.trim().parse().ok()?;
    (seconds > 0.0 && seconds <= LONGEST).then(|| Duration::from_secs_f64(seconds))
}

/// `url` without what nobody else should read: everything before the last `@` that could be a name or a password, and every option
/// that is not known to be harmless. Broken URLs, too: who forgot to write `/` as `%2F` has a password all the same.
fn shown(url: &OsStr) -> String {
    let text = url.to_string_lossy();
    let Some((scheme, rest)) = text.split_once("://") else {
        // Not a URL at all, and so perhaps a password.
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
