//! Records the parts of a link's cache key, so that the next cache miss can report what has
//! changed.

use std::collections::BTreeMap;
use std::path::Path;

use crate::store::{Key, KeyBuilder};

/// Maximum number of changes to name. Further ones are only counted.
const MAX_NAMED: usize = 3;

/// The parts of a cache key: digests by their description in messages.
pub(super) type KeyParts = BTreeMap<String, String>;

/// The key of the record for the `target` image of the program `output`.
pub(super) fn key(output: &Path, target: &str) -> Key {
    let output = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
    let mut key = KeyBuilder::default();
    key.add("last 2")
        .add(output.as_os_str().as_encoded_bytes())
        .add(target);
    key.key()
}

/// Describes the difference between the last link and `now`.
pub(super) fn difference(last: Option<&KeyParts>, now: &KeyParts) -> String {
    let Some(last) = last else {
        return "no earlier link of this output is recorded on this machine".to_owned();
    };
    let gone = last
        .keys()
        .filter(|part| !now.contains_key(*part))
        .map(|part| format!("{part} was removed"));
    let changed = now
        .iter()
        .filter_map(|(part, digest)| match last.get(part) {
            None => Some(format!("{part} was added")),
            Some(old) if old != digest => Some(format!("{part} has changed")),
            Some(_) => None,
        });
    let mut changes: Vec<String> = changed.chain(gone).collect();
    let more = changes.len().saturating_sub(MAX_NAMED);
    changes.truncate(MAX_NAMED);
    match (changes.is_empty(), more) {
        (true, _) => "the entry was evicted or removed".to_owned(),
        (_, 0) => changes.join(", "),
        _ => format!("{} and {more} more", changes.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_named() {
        let made = |parts: &[(&str, &str)]| -> KeyParts {
            parts
                .iter()
                .map(|(a, b)| ((*a).to_owned(), (*b).to_owned()))
                .collect()
        };
        let last = made(&[("a.o", "1"), ("b.o", "2"), ("the linker", "3")]);
        assert_eq!(
            difference(None, &last),
            "no earlier link of this output is recorded on this machine"
        );
        assert_eq!(
            difference(Some(&last), &last),
            "the entry was evicted or removed"
        );
        let now = made(&[("a.o", "1"), ("b.o", "x"), ("c.o", "y")]);
        assert_eq!(
            difference(Some(&last), &now),
            "b.o has changed, c.o was added, the linker was removed"
        );
        let now = made(&[("a.o", "x"), ("b.o", "x"), ("the linker", "x"), ("n.o", "")]);
        assert_eq!(
            difference(Some(&last), &now),
            "a.o has changed, b.o has changed, n.o was added and 1 more"
        );
    }
}
