//! The changes that made a device link miss the cache, for messages, the build log and `offld cache
//! why`.

use std::fmt;

use serde::{Deserialize, Serialize};

/// A difference between a link and an earlier link of the same output.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Change {
    pub kind: Kind,
    /// The thing that has changed: an object, a kernel, an argument, a variable, a program.
    pub name: String,
    pub change: How,
    /// The value before, if the kind has values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub old: Option<String>,
    /// The value now, if the kind has values.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub new: Option<String>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// Whether kernels have stable names. The device code changes with it.
    StableNames,
    /// A kernel that moved to another line.
    Kernel,
    /// The device code of an object.
    DeviceCode,
    /// An argument of the linker.
    Argument,
    /// An environment variable.
    Variable,
    /// The linker, or a program that it runs.
    Linker,
    /// The key that signs the remote cache.
    SigningKey,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum How {
    Added,
    Removed,
    Changed,
    /// The same things are in another order.
    Reordered,
}

impl Change {
    pub(crate) fn new(kind: Kind, name: impl Into<String>, change: How) -> Change {
        Change {
            kind,
            name: name.into(),
            change,
            old: None,
            new: None,
        }
    }
}

impl fmt::Display for Change {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Change {
            kind,
            name,
            change,
            old,
            new,
        } = self;
        let value = |value: &Option<String>| value.clone().unwrap_or_default();
        let (old, new) = (value(old), value(new));
        match (kind, change) {
            (Kind::StableNames, How::Removed) => {
                f.write_str("the kernels no longer have stable names")
            }
            (Kind::StableNames, _) => f.write_str("the kernels now have stable names"),
            (Kind::Kernel, _) => write!(
                f,
                "the kernel {name} has moved from line {old} to line {new}"
            ),
            (Kind::DeviceCode, How::Reordered) => {
                f.write_str("the order of the device code has changed")
            }
            (Kind::DeviceCode, How::Added) => write!(f, "the device code of {name} was added"),
            (Kind::DeviceCode, How::Removed) => write!(f, "the device code of {name} was removed"),
            (Kind::DeviceCode, How::Changed) => write!(f, "the device code of {name} has changed"),
            (Kind::Argument, How::Added) => write!(f, "the linker argument `{name}` was added"),
            (Kind::Argument, How::Removed) => write!(f, "the linker argument `{name}` was removed"),
            (Kind::Argument, _) => f.write_str("the order of the linker arguments has changed"),
            (Kind::Variable, How::Added) => write!(f, "{name} was set to `{new}`"),
            (Kind::Variable, How::Removed) => write!(f, "{name} is no longer set (it was `{old}`)"),
            (Kind::Variable, _) => write!(f, "{name} has changed from `{old}` to `{new}`"),
            (Kind::Linker, How::Added) => write!(f, "the linker {name} was added"),
            (Kind::Linker, How::Removed) => write!(f, "the linker {name} was removed"),
            (Kind::Linker, _) => write!(f, "the linker {name} has changed"),
            (Kind::SigningKey, _) => f.write_str("the signing key (OFFLD_CACHE_KEY) has changed"),
        }
    }
}

/// Number of changes in a message. The build log has all of them.
const MOST_IN_TEXT: usize = 3;

/// The message about `changes`: the first ones, and the number of the others.
pub(crate) fn text(changes: &[Change]) -> String {
    let shown: Vec<String> = changes
        .iter()
        .take(MOST_IN_TEXT)
        .map(Change::to_string)
        .collect();
    match changes.len().checked_sub(MOST_IN_TEXT) {
        _ if changes.is_empty() => "the entry was evicted or removed".to_owned(),
        None | Some(0) => shown.join(", "),
        Some(more) => format!("{} and {more} more", shown.join(", ")),
    }
}
