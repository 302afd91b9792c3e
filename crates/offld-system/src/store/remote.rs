//! The remote cache: the second level of the cache. Several machines share a remote cache on Redis,
//! S3 or WebDAV, or in a directory. This file has the settings of the remote cache, from
//! `OFFLD_CACHE_REMOTE` and related environment variables. The submodules read and write the remote
//! cache.
//!
//! Data from a remote cache is verified. Every object carries a digest, which depends on the secret
//! key if there is one. The name of a blob is the digest of the blob's contents.
//!
//! A slow or unreachable remote cache never makes a link fail. Such a cache causes one wait of
//! limited length and one warning. The process then stops using the cache.
//!
//! Without the feature `remote-cache`, the module `disabled` provides the same functions. In such a
//! build, opening a remote cache fails with an error that names the feature.

#[cfg(feature = "remote-cache")]
mod frame;
#[cfg(feature = "remote-cache")]
mod redis;
#[cfg(feature = "remote-cache")]
mod service;
#[cfg(feature = "remote-cache")]
mod shared;
#[cfg(test)]
mod tests;

use std::ffi::{OsStr, OsString};
use std::sync::Arc;
use std::time::Duration;

use super::SecretKey;
use crate::environment::{
    self, OFFLD_CACHE_REMOTE, OFFLD_CACHE_REMOTE_READONLY, OFFLD_CACHE_REMOTE_TIMEOUT,
};
#[cfg(not(feature = "remote-cache"))]
pub use disabled::Remote;
#[cfg(feature = "remote-cache")]
pub use shared::Remote;

/// A function that receives warnings.
pub(crate) type WarnFn = Arc<dyn Fn(&str) + Send + Sync>;

/// Supported URL schemes.
const SCHEMES: [&str; 6] = ["redis", "rediss", "s3", "http", "https", "file"];
/// Default time limit for one request.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(2);
/// Limit of a link's total waiting time, as a multiple of the time limit for one request.
const TOTAL_FACTOR: u32 = 5;
/// Largest time limit for one request, in seconds: one day. The sum of this limit and any time does
/// not overflow.
const LONGEST_TIMEOUT: f64 = 86_400.0;

/// Settings of a remote cache.
#[derive(Debug, Clone)]
pub struct RemoteSettings {
    /// `redis://…`, `rediss://…`, `s3://…`, `http(s)://…` or `file://…`. The URL may contain
    /// credentials, so print [`RemoteSettings::shown`] instead of the URL.
    pub url: OsString,
    /// Whether offld only reads the remote cache and never writes to it.
    pub read_only: bool,
    /// Time limit for one request.
    pub each: Duration,
    /// Limit of a link's total waiting time.
    pub whole: Duration,
    /// Key that signs the objects. Without a key, the objects carry unkeyed digests.
    pub key: Option<SecretKey>,
    /// Warning about invalid settings, for which offld uses other values. The warning is printed
    /// when the remote cache is opened.
    pub doubt: Option<String>,
}

impl RemoteSettings {
    /// Returns the default settings for a remote cache at `url`.
    pub fn new(url: impl Into<OsString>) -> Self {
        RemoteSettings {
            url: url.into(),
            read_only: false,
            each: REQUEST_TIMEOUT,
            whole: REQUEST_TIMEOUT * TOTAL_FACTOR,
            key: None,
            doubt: None,
        }
    }

    /// Reads all settings except the key from the environment. Returns `None` if
    /// `OFFLD_CACHE_REMOTE` is not set.
    pub fn from_environment() -> Option<Self> {
        let mut settings = RemoteSettings::new(environment::get(OFFLD_CACHE_REMOTE)?);
        let mut doubts = Vec::new();
        if let Some(value) = environment::get(OFFLD_CACHE_REMOTE_READONLY) {
            // An invalid value makes the remote cache read-only, like 1. The user probably wants to
            // keep this machine's results out of the remote cache.
            settings.read_only = value != "0";
            if value != "0" && value != "1" {
                doubts.push(format!(
                    "invalid {OFFLD_CACHE_REMOTE_READONLY} `{}`: expected 0 or 1; using 1",
                    value.to_string_lossy()
                ));
            }
        }
        if let Some(value) = environment::get(OFFLD_CACHE_REMOTE_TIMEOUT) {
            match seconds(&value) {
                Some(each) => (settings.each, settings.whole) = (each, each * TOTAL_FACTOR),
                None => {
                    let (value, taken) = (value.to_string_lossy(), REQUEST_TIMEOUT.as_secs());
                    doubts
                        .push(format!("invalid {OFFLD_CACHE_REMOTE_TIMEOUT} `{value}`: expected seconds above 0; using {taken}"));
                }
            }
        }
        settings.doubt = (!doubts.is_empty()).then(|| doubts.join("; "));
        Some(settings)
    }

    /// Returns the URL without credentials, for messages.
    pub fn shown(&self) -> String {
        shown(&self.url)
    }
}

/// Returns the URL in `OFFLD_CACHE_REMOTE` without credentials. Returns `None` if the variable is
/// not set, or if this build does not support the URL.
pub fn shown_of_environment() -> Option<String> {
    let url = environment::get(OFFLD_CACHE_REMOTE).filter(|_| cfg!(feature = "remote-cache"))?;
    let scheme = url.to_str()?.split_once("://")?.0.to_ascii_lowercase();
    SCHEMES.contains(&scheme.as_str()).then(|| shown(&url))
}

fn seconds(text: &OsStr) -> Option<Duration> {
    let seconds: f64 = text.to_str()?.trim().parse().ok()?;
    (seconds > 0.0 && seconds <= LONGEST_TIMEOUT).then(|| Duration::from_secs_f64(seconds))
}

/// Removes possible secrets from `url`. Keeps the scheme, but removes the text between the scheme
/// and the last `@`. Also removes every option that is not known to be harmless. Malformed URLs
/// must not reveal secrets either, for example if a password has a `/` instead of `%2F`.
fn shown(url: &OsStr) -> String {
    let text = url.to_string_lossy();
    let Some((scheme, rest)) = text.split_once("://") else {
        // Text without a scheme may be anything, even a password, so it is not shown.
        return "an address that is not a URL".to_owned();
    };
    let place = rest.rsplit_once('@').map_or(rest, |(_, place)| place);
    let (place, options) = place.split_once('?').unwrap_or((place, ""));
    let place = place.split('#').next().unwrap_or_default();
    let harmless = |option: &&str| {
        ["prefix=", "region=", "endpoint="]
            .iter()
            .any(|known| option.starts_with(known))
    };
    let options: Vec<&str> = options.split('&').filter(harmless).collect();
    let mark = if options.is_empty() { "" } else { "?" };
    format!("{scheme}://{place}{mark}{}", options.join("&"))
}

#[cfg(not(feature = "remote-cache"))]
mod disabled {
    //! The remote cache in a build without the feature `remote-cache`. Opening a remote cache fails
    //! with an error that names the feature.

    use std::convert::Infallible;
    use std::fs::File;
    use std::path::Path;

    use anyhow::{Result, bail};

    use super::{RemoteSettings, WarnFn};
    use crate::environment::OFFLD_CACHE_REMOTE;
    use crate::store::{Digest, Key};

    /// A remote cache. No value of this type exists in this build.
    #[derive(Debug)]
    pub struct Remote(Infallible);

    impl Remote {
        /// Always returns an error that names the feature.
        pub fn open(_settings: &RemoteSettings, _warn: WarnFn) -> Result<Remote> {
            bail!(
                "{OFFLD_CACHE_REMOTE} is ignored: this offld was built without the feature `remote-cache`"
            );
        }

        /// Never called: no value of this type exists.
        pub fn record(&self, _key: Key) -> Option<Vec<u8>> {
            match self.0 {}
        }

        /// Never called: no value of this type exists.
        pub(crate) fn fetch_blob(&self, _name: Digest, _to: &Path, _limit: u64) -> bool {
            match self.0 {}
        }

        /// Never called: no value of this type exists.
        pub(crate) fn put_record(&self, _key: Key, _bytes: &[u8]) {
            match self.0 {}
        }

        /// Never called: no value of this type exists.
        pub(crate) fn put_blob(&self, _name: Digest, _file: File) {
            match self.0 {}
        }

        /// Never called: no value of this type exists.
        pub(crate) fn finish(&self, _stop: &dyn Fn() -> bool) {
            match self.0 {}
        }

        /// Never called: no value of this type exists.
        pub fn troubled(&self) -> bool {
            match self.0 {}
        }
    }
}
