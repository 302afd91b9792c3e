//! 128-bit digests: names of blobs, keys of records. They protect against accidents, not against an attacker (XXH3 is no
//! cryptographic hash): whoever can write to a cache can put any image there anyway.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};

use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// The 128-bit XXH3 of some bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest(pub u128);

impl Digest {
    /// The digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Digest(xxh3_128(bytes))
    }

    /// Parses what [`Digest`] is displayed as, 32 lowercase hexadecimal digits; `None` for anything else.
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

/// How much is read at once: large enough that the system calls cost little, small enough for the processor's cache. With 256 KiB,
/// reading a file that the system has in memory takes half as long again.
const CHUNK: usize = 64 << 10;

/// Copies all of `from` to `to`; returns the digest of the bytes, and how many they were.
pub(crate) fn copy(from: &mut impl Read, to: &mut impl Write) -> io::Result<(Digest, u64)> {
    let mut buffer = vec![0; CHUNK];
    let (mut hash, mut len) = (Xxh3::new(), 0);
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok((Digest(hash.digest128()), len)),
            Ok(read) => {
                let bytes = buffer.get(..read).unwrap_or_default();
                hash.update(bytes);
                to.write_all(bytes)?;
                len += read as u64;
            }
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Makes a digest of several parts. The length of each is hashed as well, so that different lists of parts whose bytes are the same
/// when put together have different digests.
#[derive(Default)]
pub(crate) struct KeyBuilder(Xxh3);

impl KeyBuilder {
    /// Adds a part.
    pub(crate) fn add(&mut self, part: impl AsRef<[u8]>) -> &mut Self {
        let part = part.as_ref();
        self.0.update(&(part.len() as u64).to_le_bytes());
        self.0.update(part);
        self
    }

    /// The digest of all parts so far.
    pub(crate) fn digest(&self) -> Digest {
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
    fn a_stream_has_the_digest_of_its_bytes() {
        for len in [0, 1, 1000, CHUNK, 3 * CHUNK + 17] {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
            let mut copied = Vec::new();
            assert_eq!(copy(&mut bytes.as_slice(), &mut copied).unwrap(), (Digest::of(&bytes), len as u64));
            assert_eq!(copied, bytes);
        }
    }

    #[test]
    fn the_same_bytes_cut_otherwise_are_another_key() {
        let digest = |parts: &[&str]| {
            let mut all = KeyBuilder::default();
            parts.iter().for_each(|part| {
                all.add(part);
            });
            all.digest()
        };
        assert_ne!(digest(&["ab", "c"]), digest(&["a", "bc"]));
        assert_ne!(digest(&["a", ""]), digest(&["a"]));
    }
}
