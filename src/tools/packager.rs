//! The tool llvm-offload-binary (clang-offload-packager): packs device images into OffloadBinaries,
//! and extracts them from any supported file (docs/spec/containers.md 4). Images are copied from
//! file to file, so that memory use does not depend on their size.

mod extract;
mod pack;
mod read;
#[cfg(test)]
mod tests;

pub(crate) use extract::{Extract, extract};
#[cfg(feature = "capi")]
pub(crate) use pack::pack_to;
pub(crate) use pack::{Format, Pack, pack};
#[cfg(feature = "capi")]
pub(crate) use read::{Image as StoredImage, unpack};

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

use crate::model::OffloadKind;

/// The keys and values of `--image=<key>=<value>,…` in the order of first occurrence: the properties
/// of an image to pack, or the filter for images to extract.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ImageArguments {
    pairs: Vec<(Vec<u8>, Vec<u8>)>,
}

impl ImageArguments {
    /// Arguments with these pairs. Each key must occur only once.
    pub(crate) fn new<'a>(pairs: impl Iterator<Item = (&'a [u8], &'a [u8])>) -> Self {
        ImageArguments {
            pairs: pairs
                .map(|(key, value)| (key.to_vec(), value.to_vec()))
                .collect(),
        }
    }

    /// Splits at commas, and each part at its first `=`. A part without `=` has an empty value. The
    /// values of a repeated key are joined by commas. An empty text is one empty key.
    pub(crate) fn parse(text: &OsStr) -> Self {
        let mut pairs: Vec<(Vec<u8>, Vec<u8>)> = Vec::new();
        for part in text.as_bytes().split(|byte| *byte == b',') {
            let mut halves = part.splitn(2, |byte| *byte == b'=');
            let (key, value) = (
                halves.next().unwrap_or_default(),
                halves.next().unwrap_or_default(),
            );
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

    pub(crate) fn get(&self, key: &str) -> Option<&[u8]> {
        self.pairs
            .iter()
            .find(|(known, _)| known == key.as_bytes())
            .map(|(_, value)| value.as_slice())
    }

    /// The value of `file`, as given.
    pub(crate) fn file(&self) -> Option<OsString> {
        self.get("file")
            .map(|name| OsString::from_vec(name.to_vec()))
    }

    /// The strings to store with an image: all pairs except `file` and `kind`.
    pub(crate) fn strings(&self) -> Vec<(&[u8], &[u8])> {
        let pairs = self
            .pairs
            .iter()
            .map(|(key, value)| (key.as_slice(), value.as_slice()));
        pairs
            .filter(|(key, _)| *key != b"file" && *key != b"kind")
            .collect()
    }

    /// The number of the offload kind in `kind`, or 0 if there is none.
    pub(crate) fn kind(&self) -> u16 {
        self.get("kind").map_or(0, kind_number)
    }

    /// The argument for messages: as given, but with repeated keys joined.
    pub(crate) fn shown(&self) -> String {
        let pair = |(key, value): &(Vec<u8>, Vec<u8>)| {
            let (key, value) = (String::from_utf8_lossy(key), String::from_utf8_lossy(value));
            if value.is_empty() {
                key.into_owned()
            } else {
                format!("{key}={value}")
            }
        };
        self.pairs.iter().map(pair).collect::<Vec<_>>().join(",")
    }
}

/// The number of the offload kind `name`, or 0 for an unknown kind.
pub(crate) fn kind_number(name: &[u8]) -> u16 {
    OffloadKind::ALL
        .into_iter()
        .find(|kind| kind.name().as_bytes() == name)
        .map_or(0, |kind| kind as u16)
}
