//! Builder for the arguments of commands that link device code.

use std::ffi::{OsStr, OsString};
use std::path::Path;

/// The arguments so far, in order.
#[derive(Default)]
pub(super) struct ArgList(Vec<OsString>);

impl ArgList {
    pub(super) fn arg(&mut self, arg: impl Into<OsString>) -> &mut Self {
        self.0.push(arg.into());
        self
    }

    pub(super) fn path(&mut self, path: &Path) -> &mut Self {
        self.arg(path.as_os_str())
    }

    /// Adds `prefix` and `value` as one argument.
    pub(super) fn joined(&mut self, prefix: &str, value: &OsStr) -> &mut Self {
        let mut joined = OsString::from(prefix);
        joined.push(value);
        self.arg(joined)
    }

    pub(super) fn finish(self) -> Vec<OsString> {
        self.0
    }
}
