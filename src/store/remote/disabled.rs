//! The remote cache in a build without the feature `remote-cache`: opening one is an error that
//! names the feature.

use std::convert::Infallible;
use std::fs::File;
use std::path::Path;

use anyhow::{Result, bail};

use super::{RemoteSettings, WarnFn};
use crate::store::{Digest, Key};
use crate::sys::session::OFFLD_CACHE_REMOTE;

/// A remote cache. No value of this type exists in this build.
pub(crate) struct Remote(Infallible);

impl Remote {
    /// Always returns an error, which names the feature.
    pub(crate) fn open(_settings: &RemoteSettings, _warn: WarnFn) -> Result<Remote> {
        bail!(
            "{OFFLD_CACHE_REMOTE} is ignored: this offld was built without the feature `remote-cache`"
        );
    }

    /// Never called: no value of this type exists.
    pub(crate) fn record(&self, _key: Key) -> Option<Vec<u8>> {
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
    pub(crate) fn troubled(&self) -> bool {
        match self.0 {}
    }
}
