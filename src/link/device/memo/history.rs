//! Records what the cache key of a link was made of, part by part, so that after the next cache miss offld can report what has
//! changed.

use std::collections::BTreeMap;
use std::path::Path;

use crate::store::{Key, KeyBuilder};

/// How many changes are named; further ones are only counted.
const NAMED: usize = 3;

/// The parts of a cache key: the digest of each by its description, which messages name.
pub(super) type KeyParts = BTreeMap<String, String>;

/// The key of the record for the image for `target` in the program `output`.
pub(super) fn key(output: &Path, target: &str) -> Key {
    let output = std::path::absolute(output).unwrap_or_else(|_| output.to_owned());
    let mut key = KeyBuilder::default();
    key.add("last 1").add(output.as_os_str().as_encoded_bytes()).add(target);
    key.key()
}

/// A description of what differs between the last link and `now`.
pub(super) fn difference(last: Option<&KeyParts>, now: &KeyParts) -> String {
    let Some(last) = last else { return "it is linked here for the first time".to_owned() };
    let gone = last.keys().filter(|part| !now.contains_key(*part)).map(|part| format!("{part} is gone"));
    let changed = now.iter().filter_map(|(part, digest)| match last.get(part) {
        None => Some(format!("{part} is new")),
        Some(old) if old != digest => Some(format!("{part} has changed")),
        Some(_) => None,
    });
    let mut changes: Vec<String> = changed.chain(gone).collect();
    let more = changes.len().saturating_sub(NAMED);
    changes.truncate(NAMED);
    match (changes.is_empty(), more) {
        (true, _) => "it is not in the cache any more".to_owned(),
        (_, 0) => changes.join(", "),
        _ => format!("{} and {more} more", changes.join(", ")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_named() {
        let made =
            |parts: &[(&str, &str)]| -> KeyParts { parts.iter().map(|(a, b)| ((*a).to_owned(), (*b).to_owned())).collect() };
        let last = made(&[("a.o", "1"), ("b.o", "2"), ("the linker", "3")]);
        assert_eq!(difference(None, &last), "it is linked here for the first time");
        assert_eq!(difference(Some(&last), &last), "it is not in the cache any more");
        let now = made(&[("a.o", "1"), ("b.o", "x"), ("c.o", "y")]);
        assert_eq!(difference(Some(&last), &now), "b.o has changed, c.o is new, the linker is gone");
        let now = made(&[("a.o", "x"), ("b.o", "x"), ("the linker", "x"), ("n.o", "")]);
        assert_eq!(difference(Some(&last), &now), "a.o has changed, b.o has changed, n.o is new and 1 more");
    }
}
