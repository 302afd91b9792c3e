//! The bytes of a device image. Compressed images are decompressed on first use, because most links
//! need few members of a large library. Names are replaced on first use, too, because no link needs
//! the bytes of an image that is in the cache.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::{Arc, OnceLock};

use offld_system::store::Digest;
use offload_formats::error::Malformed;
use offload_formats::fatbin::{Entry, Kind};
use offload_formats::stable_names::StableNames;

/// The bytes of a device image.
#[derive(Debug)]
pub(crate) enum Code<'a> {
    /// They are part of an input, or were made from it.
    Plain(Cow<'a, [u8]>),
    /// They are compressed in an entry of a fatbinary.
    Packed {
        /// The entry.
        entry: Box<Entry<'a>>,
        /// The place of the fatbinary in the object, to which the places in errors are added.
        at: u64,
        /// The decompressed bytes, or the reason why there are none.
        plain: OnceLock<Result<Vec<u8>, Malformed>>,
    },
    /// They are made from other code.
    Later(Box<LaterCode<'a>>),
}

/// Code with stable names, which is known to exist.
#[derive(Debug)]
pub(crate) struct LaterCode<'a> {
    original: &'a [u8],
    names: Arc<StableNames>,
    make: Rename,
    /// The digest of the code.
    digest: Digest,
    made: OnceLock<Option<Vec<u8>>>,
}

/// Returns code with stable names; none if it has no ID to replace.
pub(crate) type Rename = fn(&[u8], &StableNames) -> Result<Option<Vec<u8>>, Malformed>;

impl LaterCode<'_> {
    /// The code. It is empty if the original has changed since its digest was computed, as the link
    /// then fails anyway.
    fn bytes(&self) -> &[u8] {
        let make = || (self.make)(self.original, &self.names).ok().flatten();
        self.made.get_or_init(make).as_deref().unwrap_or_default()
    }
}

impl<'a> Code<'a> {
    /// The code in `entry` of the fatbinary at `at` in its object.
    pub(super) fn of_entry(entry: &Entry<'a>, at: u64) -> Self {
        if entry.method.is_none() {
            return Code::from(without_padding(entry.kind, entry.stored));
        }
        Code::Packed {
            entry: Box::new(entry.clone()),
            at,
            plain: OnceLock::new(),
        }
    }

    /// The code `original` with stable `names`, which `make` puts in on first use. `digest`: the
    /// digest of the result.
    pub(crate) fn renamed_later(
        original: &'a Code<'a>,
        names: &Arc<StableNames>,
        digest: Digest,
        make: Rename,
    ) -> Self {
        Code::Later(Box::new(LaterCode {
            original,
            names: Arc::clone(names),
            make,
            digest,
            made: OnceLock::new(),
        }))
    }

    /// The digest of the bytes, if it is known without them.
    pub(crate) fn known_digest(&self) -> Option<&Digest> {
        match self {
            Code::Later(code) if code.made.get().is_none() => Some(&code.digest),
            _ => None,
        }
    }

    /// The size of the decompressed bytes by the entry's header; 0 for bytes that are not compressed.
    pub(super) fn packed_size(&self) -> u64 {
        match self {
            Code::Plain(_) | Code::Later(_) => 0,
            Code::Packed { entry, .. } => entry.plain_size,
        }
    }

    /// Decompresses the bytes, if they are compressed.
    ///
    /// # Errors
    /// They cannot be decompressed. Without this call, they are then empty.
    pub(crate) fn load(&self) -> Result<(), Malformed> {
        match self {
            Code::Plain(_) | Code::Later(_) => Ok(()),
            Code::Packed { entry, at, plain } => {
                let unpacked = || {
                    let mut bytes = entry.plain()?.into_owned();
                    bytes.truncate(without_padding(entry.kind, &bytes).len());
                    Ok(bytes)
                };
                let plain = plain.get_or_init(unpacked);
                plain.as_ref().map(drop).map_err(|fault| fault.shifted(*at))
            }
        }
    }

    /// Returns the bytes as a copy that borrows nothing.
    pub(super) fn into_owned(self) -> Code<'static> {
        Code::Plain(Cow::Owned(self.to_vec()))
    }
}

/// Returns code without the zeros that end and pad PTX in a fatbinary.
fn without_padding(kind: Kind, code: &[u8]) -> &[u8] {
    match kind {
        Kind::Ptx => {
            let end = code.iter().rposition(|byte| *byte != 0);
            &code[..end.map_or(0, |last| last + 1)]
        }
        _ => code,
    }
}

impl Deref for Code<'_> {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        match self {
            Code::Plain(bytes) => bytes,
            Code::Later(code) => code.bytes(),
            Code::Packed { plain, .. } => match (self.load(), plain.get()) {
                (Ok(()), Some(Ok(bytes))) => bytes,
                _ => &[],
            },
        }
    }
}

impl<'a> From<Cow<'a, [u8]>> for Code<'a> {
    fn from(bytes: Cow<'a, [u8]>) -> Self {
        Code::Plain(bytes)
    }
}

impl<'a> From<&'a [u8]> for Code<'a> {
    fn from(bytes: &'a [u8]) -> Self {
        Code::Plain(Cow::Borrowed(bytes))
    }
}
