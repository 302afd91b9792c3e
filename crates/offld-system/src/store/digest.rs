//! Digests, each meaning with a type of its own: [`Digest`] of contents, [`Key`] of a record, and
//! [`BlobName`] of a blob. Except for some names of blobs, they are BLAKE3, 256 bits. With a weaker
//! digest, a supplier of device code could make two files with the same digest. In an unshared
//! cache, blobs are named by XXH3, 128 bits, which detects accidental damage. That suffices: each
//! blob is read whole whenever it is used, and everybody who can write to the directory could store
//! any image anyway.

use std::fmt;
use std::io::{self, ErrorKind, Read, Write};

use rayon::prelude::*;
use xxhash_rust::xxh3::{Xxh3, xxh3_128};

/// BLAKE3 context of keys, so that no key equals the digest of any contents.
const KEYS: &str = "offld cache: keys of records 3";
/// Contents of at least this size, in bytes, are hashed by several threads.
const DIVIDED: usize = 1 << 20;

/// The BLAKE3 digest of some bytes.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Digest([u8; 32]);

impl Digest {
    /// Returns the digest of `bytes`.
    pub fn of(bytes: &[u8]) -> Self {
        Digest(blake3::hash(bytes).into())
    }

    /// The digest with these bytes, as returned by [`Digest::bytes`].
    pub fn from_bytes(bytes: [u8; 32]) -> Self {
        Digest(bytes)
    }

    /// Returns the digest of each of `contents`, computed by all threads. Call it within
    /// [`crate::threads::in_parallel`].
    pub fn of_all(contents: &[&[u8]]) -> Vec<Digest> {
        let of = |bytes: &&[u8]| match bytes.len() {
            DIVIDED.. => Digest(blake3::Hasher::new().update_rayon(bytes).finalize().into()),
            _ => Digest::of(bytes),
        };
        contents.par_iter().map(of).collect()
    }

    /// Returns the digest of all bytes that come from `from`.
    pub fn of_stream(from: &mut impl Read) -> io::Result<Digest> {
        let mut hash = blake3::Hasher::new();
        each_chunk(from, &mut |bytes| {
            hash.update(bytes);
            Ok(())
        })?;
        Ok(Digest(hash.finalize().into()))
    }

    /// Derives a digest from the secret `bytes`. It does not reveal them, and serves `purpose`
    /// alone.
    pub(crate) fn derived(purpose: &str, bytes: &[u8]) -> Self {
        Digest(blake3::derive_key(purpose, bytes))
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        &self.0
    }

    /// Compares in constant time, so that the duration does not reveal how many bytes are right.
    #[cfg(feature = "remote-cache")]
    pub(crate) fn is(&self, bytes: &[u8]) -> bool {
        bytes
            .try_into()
            .is_ok_and(|bytes: [u8; 32]| blake3::Hash::from_bytes(self.0) == bytes)
    }

    /// Parses the displayed form, 64 lowercase hexadecimal digits. Returns `None` for anything
    /// else.
    pub fn parse(text: &str) -> Option<Self> {
        let mut digest = Digest([0; 32]);
        if text.len() != 2 * digest.0.len() {
            return None;
        }
        for (byte, digits) in digest.0.iter_mut().zip(text.as_bytes().chunks_exact(2)) {
            let value = |digit: u8| match digit {
                b'0'..=b'9' => Some(digit - b'0'),
                b'a'..=b'f' => Some(digit - b'a' + 10),
                _ => None,
            };
            *byte = value(*digits.first()?)? << 4 | value(*digits.get(1)?)?;
        }
        Some(digest)
    }
}

impl fmt::Display for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Faster than `write!`: a history has hundreds of digests.
        const DIGITS: &[u8; 16] = b"0123456789abcdef";
        let digits = |byte: &u8| [byte >> 4, byte & 15].map(|digit| DIGITS[usize::from(digit)]);
        let text: Vec<u8> = self.0.iter().flat_map(digits).collect();
        f.write_str(std::str::from_utf8(&text).unwrap_or_default())
    }
}

impl fmt::Debug for Digest {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Digest({self})")
    }
}

/// The key of a record: a digest of everything that determines its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Key(Digest);

impl Key {
    /// The key with the single part `part`.
    pub fn of(part: impl AsRef<[u8]>) -> Self {
        KeyBuilder::default().add(part).key()
    }

    /// Returns the bytes.
    pub fn bytes(&self) -> &[u8; 32] {
        self.0.bytes()
    }

    /// Parses the displayed form. Returns `None` for anything else.
    pub fn parse(text: &str) -> Option<Self> {
        Digest::parse(text).map(Key)
    }
}

impl fmt::Display for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The digest that names a blob.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Naming {
    /// XXH3, for blobs that stay on this machine.
    Quick,
    /// BLAKE3, for shared blobs.
    Sure,
}

/// The name of a blob: a digest of its contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum BlobName {
    /// A name by [`Naming::Quick`].
    Quick(u128),
    /// A name by [`Naming::Sure`].
    Sure(Digest),
}

impl BlobName {
    /// Returns the name of the blob `bytes`.
    pub fn of(bytes: &[u8], naming: Naming) -> Self {
        match naming {
            Naming::Quick => BlobName::Quick(xxh3_128(bytes)),
            Naming::Sure => BlobName::Sure(Digest::of(bytes)),
        }
    }

    /// The kind of digest.
    pub fn naming(&self) -> Naming {
        match self {
            BlobName::Quick(_) => Naming::Quick,
            BlobName::Sure(_) => Naming::Sure,
        }
    }

    /// Parses the displayed form, 32 or 64 lowercase hexadecimal digits. Returns `None` for
    /// anything else.
    pub fn parse(text: &str) -> Option<Self> {
        if text.len() != 32 {
            return Digest::parse(text).map(BlobName::Sure);
        }
        let plain = text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte));
        if plain {
            u128::from_str_radix(text, 16).ok().map(BlobName::Quick)
        } else {
            None
        }
    }
}

impl fmt::Display for BlobName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BlobName::Quick(digest) => write!(f, "{digest:032x}"),
            BlobName::Sure(digest) => digest.fmt(f),
        }
    }
}

/// Computes the name of a blob as its bytes arrive.
pub(crate) struct Namer(State);

enum State {
    Quick(Box<Xxh3>),
    Sure(Box<blake3::Hasher>),
}

impl Namer {
    pub(crate) fn new(naming: Naming) -> Self {
        Namer(match naming {
            Naming::Quick => State::Quick(Box::default()),
            Naming::Sure => State::Sure(Box::default()),
        })
    }

    pub(crate) fn update(&mut self, bytes: &[u8]) {
        match &mut self.0 {
            State::Quick(hash) => hash.update(bytes),
            State::Sure(hash) => drop(hash.update(bytes)),
        }
    }

    /// The name of a blob of all bytes so far.
    pub(crate) fn name(&self) -> BlobName {
        match &self.0 {
            State::Quick(hash) => BlobName::Quick(hash.digest128()),
            State::Sure(hash) => BlobName::Sure(Digest(hash.finalize().into())),
        }
    }
}

/// Size of each read, in bytes: large enough that the system calls cost little, and small enough
/// for the CPU cache. With 256 KiB, reading a file from the page cache takes 1.5 times as long.
const CHUNK: usize = 64 << 10;

/// Copies all of `from` to `to`. Returns the name of the bytes as a blob.
pub(crate) fn copy(
    from: &mut impl Read,
    to: &mut impl Write,
    naming: Naming,
) -> io::Result<BlobName> {
    let mut namer = Namer::new(naming);
    each_chunk(from, &mut |bytes| {
        namer.update(bytes);
        to.write_all(bytes)
    })?;
    Ok(namer.name())
}

fn each_chunk(
    from: &mut impl Read,
    take: &mut dyn FnMut(&[u8]) -> io::Result<()>,
) -> io::Result<()> {
    let mut buffer = vec![0; CHUNK];
    loop {
        match from.read(&mut buffer) {
            Ok(0) => return Ok(()),
            Ok(read) => take(buffer.get(..read).unwrap_or_default())?,
            Err(error) if error.kind() == ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
}

/// Builds a key or a digest from several parts. The length of each part is hashed as well, so
/// different lists of parts differ even if their bytes are the same when joined.
#[derive(Debug)]
pub struct KeyBuilder {
    hash: blake3::Hasher,
    /// Parts that are not hashed yet. BLAKE3 is twice as fast if it gets small parts together.
    small: Vec<u8>,
}

impl Default for KeyBuilder {
    fn default() -> Self {
        KeyBuilder::of(blake3::Hasher::new_derive_key(KEYS))
    }
}

impl KeyBuilder {
    /// At most this many bytes are hashed together.
    const TOGETHER: usize = 32 << 10;

    fn of(hash: blake3::Hasher) -> Self {
        KeyBuilder {
            hash,
            small: Vec::new(),
        }
    }

    /// Builds a digest that only holders of `secret` can make.
    #[cfg(any(test, feature = "remote-cache"))]
    pub(crate) fn keyed(secret: &[u8; 32]) -> Self {
        KeyBuilder::of(blake3::Hasher::new_keyed(secret))
    }

    /// Adds a part.
    pub fn add(&mut self, part: impl AsRef<[u8]>) -> &mut Self {
        let part = part.as_ref();
        self.update(&(part.len() as u64).to_le_bytes());
        self.update(part);
        self
    }

    fn update(&mut self, bytes: &[u8]) {
        if self.small.len() + bytes.len() > Self::TOGETHER {
            self.hash.update(&self.small);
            self.small.clear();
        }
        if bytes.len() > Self::TOGETHER {
            self.hash.update(bytes);
        } else {
            self.small.extend(bytes);
        }
    }

    /// The key with all parts so far.
    pub fn key(&self) -> Key {
        Key(self.digest())
    }

    /// The digest of all parts so far.
    pub fn digest(&self) -> Digest {
        Digest(self.hash.clone().update(&self.small).finalize().into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_displayed_form_can_be_parsed() {
        let digest = Digest::of(b"image");
        assert_eq!(Digest::parse(&digest.to_string()), Some(digest));
        assert_eq!(Key::parse(&Key::of("x").to_string()), Some(Key::of("x")));
        for naming in [Naming::Quick, Naming::Sure] {
            let name = BlobName::of(b"image", naming);
            assert_eq!(BlobName::parse(&name.to_string()), Some(name));
            assert_eq!(name.naming(), naming);
        }
        for wrong in [
            "../../../../../../../../etc/passw".to_owned(),
            "F".repeat(32),
            "F".repeat(64),
            "é".repeat(32),
            "0".repeat(63),
        ] {
            assert_eq!(
                (BlobName::parse(&wrong), Digest::parse(&wrong)),
                (None, None),
                "{wrong}"
            );
        }
    }

    /// Digests from the test vectors of BLAKE3 and XXH3: later releases must find stored entries
    /// again.
    #[test]
    fn digests_match_published_test_vectors() {
        let empty = "af1349b9f5f9a1a6a0404dea36dcc9499bcb25c9adc112b7cc9a93cae41f3262";
        assert_eq!(Digest::of(b"").to_string(), empty);
        assert_eq!(BlobName::of(b"", Naming::Sure).to_string(), empty);
        assert_eq!(
            BlobName::of(b"", Naming::Quick).to_string(),
            "99aa06d3014798d86001c324468d497f"
        );
    }

    #[test]
    fn a_stream_has_the_digest_of_its_bytes() {
        for len in [0, 1, 1000, CHUNK, 3 * CHUNK + 17] {
            let bytes: Vec<u8> = (0..len).map(|at| (at * 7 % 251) as u8).collect();
            for naming in [Naming::Quick, Naming::Sure] {
                let mut copied = Vec::new();
                assert_eq!(
                    copy(&mut bytes.as_slice(), &mut copied, naming).unwrap(),
                    BlobName::of(&bytes, naming)
                );
                assert_eq!(copied, bytes);
            }
            assert_eq!(
                Digest::of_stream(&mut bytes.as_slice()).unwrap(),
                Digest::of(&bytes)
            );
        }
    }

    #[test]
    fn of_all_equals_the_digest_of_each() {
        let large: Vec<u8> = (0..3 * DIVIDED + 5)
            .map(|at| (at * 7 % 251) as u8)
            .collect();
        let all: Vec<&[u8]> = vec![b"", b"one", &large, &large[1..]];
        let each: Vec<Digest> = all.iter().map(|bytes| Digest::of(bytes)).collect();
        assert_eq!(crate::threads::in_parallel(|| Digest::of_all(&all)), each);
    }

    #[test]
    fn the_digest_of_parts_is_of_their_lengths_and_bytes() {
        let bytes: Vec<u8> = (0..3 * KeyBuilder::TOGETHER).map(|at| at as u8).collect();
        let sizes = [
            0,
            1,
            5000,
            KeyBuilder::TOGETHER,
            KeyBuilder::TOGETHER + 1,
            20_000,
            20_000,
            7,
        ];
        let (mut parts, mut joined) = (KeyBuilder::keyed(&[7; 32]), Vec::new());
        for size in sizes {
            let part = &bytes[..size];
            parts.add(part);
            joined.extend((size as u64).to_le_bytes());
            joined.extend(part);
            let digest = blake3::keyed_hash(&[7; 32], &joined);
            assert_eq!(parts.digest().bytes(), digest.as_bytes(), "{size}");
        }
    }

    #[test]
    fn the_same_bytes_in_other_parts_make_another_key() {
        let key = |parts: &[&str]| {
            let mut all = KeyBuilder::default();
            parts.iter().for_each(|part| {
                all.add(part);
            });
            all.key()
        };
        assert_ne!(key(&["ab", "c"]), key(&["a", "bc"]));
        assert_ne!(key(&["a", ""]), key(&["a"]));
    }

    #[test]
    fn another_secret_makes_another_digest() {
        let tag = |secret: u8| KeyBuilder::keyed(&[secret; 32]).add("name").digest();
        assert_eq!(tag(1), tag(1));
        assert_ne!(tag(1), tag(2));
        assert_ne!(tag(0), KeyBuilder::default().add("name").digest());
    }
}
