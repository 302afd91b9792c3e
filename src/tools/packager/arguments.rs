//! `--image=<key>=<value>,…`: what an image is packed with, or, when extracting, what it must match.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::model::OffloadKind;

/// The keys and values of one `--image`, in the order of their first appearance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageArguments {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl ImageArguments {
    /// These keys and values, each key once.
    pub(crate) fn new<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        ImageArguments { pairs: pairs.map(|(key, value)| (key.to_vec(), value.to_vec())).collect() }
    }

    /// Splits at commas, and each part at its first `=`; a part without one has an empty value. A key that is repeated gets the
    /// values joined by commas. An empty text is one empty key.
    pub(crate) fn parse(text: &OsStr) -> Self {
        let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for part in text.as_bytes().split(|byte| *byte == b',') {
            let mut halves = part.splitn(2, |byte| *byte == b'=');
            let (key, value) = (halves.next().unwrap_or_default(), halves.next().unwrap_or_default());
            match pairs.iter_mut().find(|(known, _)| known == key) {
                Some((_, values)) => {
                    values.push(b',');
                    values.extend(value);
                }
                None => pairs.push((key.to_vec(), value.to_vec())),
            }
        }
        ImageArguments { pairs }
    }

    /// The value of `key`.
    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        self.pairs.iter().find(|(known, _)| known == key.as_bytes()).map(|(_, value)| value.as_slice())
    }

    /// The value of `file`, as it was typed.
    pub(crate) fn file(&self) -> Option<OsString> {
        self.get("file").map(|name| OsString::from_vec(name.to_vec()))
    }

    /// What is stored with an image as strings: everything but `file` and `kind`.
    pub(crate) fn strings(&self) -> Vec<(&[u8], &[u8])> {
        let pairs = self.pairs.iter().map(|(key, value)| (key.as_slice(), value.as_slice()));
        pairs.filter(|(key, _)| *key != b"file" && *key != b"kind").collect()
    }

    /// The number of the offload kind that `kind` names; 0 without one.
    pub(crate) fn kind(&self) -> u16 {
        self.get("kind").map_or(0, kind_number)
    }

    /// The argument for messages: as it was typed, but with repeated keys joined.
    pub(crate) fn shown(&self) -> String {
        let pair = |(key, value): &(Vec<u8>, Vec<u8>)| {
            let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
            if value.is_empty() { key.into_owned() } else { format!("{key}={value}") }
        };
        self.pairs.iter().map(pair).collect::<Vec<_>>().join(",")
    }
}

/// The number of the offload kind `name`, 0 for an unknown one.
pub(crate) fn kind_number(name: &[u8]) -> u16 {
    OffloadKind::ALL.into_iter().find(|kind| kind.name().as_bytes() == name).map_or(0, |kind| kind as u16)
}
