//! An argument list under construction, for the commands that link device code.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The arguments so far, in order.
#[derive(Default)]
pub(super) struct Args(Vec<OsString>);

impl Args {
    /// Adds an argument.
    pub(super) fn word(&mut self, word: impl Into<OsString>) -> &mut Self {
        self.0.push(word.into());
        self
    }

    /// Adds a path as an argument.
    pub(super) fn path(&mut self, path: &Path) -> &mut Self {
        self.word(path.as_os_str())
    }

    /// Adds `prefix` and `value` as one argument.
    pub(super) fn joined(&mut self, prefix: &str, value: &OsStr) -> &mut Self {
        let mut word = OsString::from(prefix);
        word.push(value);
        self.word(word)
    }

    /// The finished list.
    pub(super) fn words(self) -> Vec<OsString> {
        self.0
    }
}
