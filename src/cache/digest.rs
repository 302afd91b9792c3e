//! 128 bits that stand for bytes: names of blobs, keys of records. Not against an adversary: whoever can write to a cache can put
//! any image there anyway. Against chance, 128 bits are far more than enough.

use std::fmt;

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// The 128-bit XXH3 of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u128);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Digest(xxh3_128(bytes))
    }

    /// Of 32 hexadecimal digits, as [`Digest`] is shown; none of anything else.
    pub fn parse(text: &str) -> Option<Self> {
        let plain = text.len() == 32 && text.bytes().all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if plain { u128::from_str_radix(text, 16).ok().map(Digest) } else { None }
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

/// A digest of several parts, in the making. Each part is told apart from the next by its length, so that no two lists of parts
/// run together into the same bytes.
#[derive(Default)]
pub struct Parts(Xxh3);

impl Parts {
    /// Adds a part.
    pub fn add(&mut self, part: impl AsRef<[u8]>) -> &mut Self {
        let part = part.as_ref();
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    /// The digest of all parts so far.
    pub fn digest(&self) -> Digest {
        Digest(self.0.digest128())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shown_and_parsed() {
        let digest = Digest::of(b"image");
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        assert_eq!(Digest::parse("../../../../../../../../etc/passw"), None);
        assert_eq!(Digest::parse(&"F".repeat(32)), None);
    }

    #[test]
    fn parts_do_not_run_together() {
        let digest = |parts: &[&str]| {
            let mut all = Parts::default();
            parts.iter().for_each(|part| {
                all.add(part);
            });
            all.digest()
        };
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_ne!(digest(&["a", ""]), digest(&["a"]));
    }
}
