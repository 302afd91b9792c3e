//! The second level of the cache in a build without it: opening one says so, and there is nothing to ask.

use std::convert::Infallible;
use std::fs::File;
use std::path::Path;

use anyhow::{Result, bail};

use super::{RemoteSettings, WarnFn};
use crate::store::Digest;
use crate::sys::session::OFFLD_CACHE_REMOTE;

/// A remote that there cannot be.
pub struct Remote(Infallible);

impl Remote {
    /// Fails: this takes the feature.
    pub fn open(_settings: &RemoteSettings, _tell: WarnFn) -> Result<Remote> {
        bail!("{OFFLD_CACHE_REMOTE} is set, but this offld was built without the feature `remote-cache`: nothing is shared");
    }

    /// Nothing.
    pub fn record(&self, _key: Digest) -> Option<Vec<u8>> {
        match self.0 {}
    }

    /// Nothing.
    pub fn fetch_blob(&self, _name: Digest, _to: &Path) -> bool {
        match self.0 {}
    }

    /// Nothing.
    pub fn put_record(&self, _key: Digest, _bytes: &[u8]) {
        match self.0 {}
    }

    /// Nothing.
    pub fn put_blob(&self, _name: Digest, _file: File) {
        match self.0 {}
    }

    /// Nothing.
    pub fn finish(&self, _stop: &dyn Fn() -> bool) {
        match self.0 {}
    }

    /// Nothing.
    pub fn troubled(&self) -> bool {
        match self.0 {}
    }
}
