//! The bytes of a device image. Compressed images are decompressed on first use, because most links
//! need few members of a large library. Stable names are put in on first use, too, because the
//! bytes are not needed for an image that is in the cache.

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
    /// Bytes that are part of an input, or were made from one.
    Plain(Cow<'a, [u8]>),
    /// Bytes that are compressed in an entry of a fatbinary.
    Packed {
        entry: Box<Entry<'a>>,
        /// The offset of the fatbinary in the object, which is added to the offsets in errors.
        at: u64,
        /// The decompressed bytes, or the reason why there are none.
        plain: OnceLock<Result<Vec<u8>, Malformed>>,
    },
    /// Bytes that get stable names before the link.
    Renamed(Box<RenamedCode<'a>>),
}

/// Code that gets stable names before the link.
#[derive(Debug)]
pub(crate) struct RenamedCode<'a> {
    original: &'a Code<'a>,
    names: Arc<StableNames>,
    rename: Rename,
    /// The digest of the renamed bytes.
    digest: Digest,
    /// Whether the digest comes from the record of an earlier link, whose original may differ.
    is_recorded: bool,
    /// The renamed bytes, once they are needed.
    renamed: OnceLock<Vec<u8>>,
}

/// Returns code with stable names; none if it has no ID to replace.
pub(crate) type Rename = fn(&[u8], &StableNames) -> Result<Option<Vec<u8>>, Malformed>;

impl RenamedCode<'_> {
    /// The renamed bytes. They are empty if the original cannot be renamed any more, for example
    /// because the user has changed the mapped file.
    fn bytes(&self) -> &[u8] {
        let rename = || (self.rename)(self.original, &self.names);
        self.renamed
            .get_or_init(|| rename().ok().flatten().unwrap_or_default())
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

    /// The code `original`, which `rename` gives stable `names` before the link. `digest`: the
    /// digest of the result. `renamed`: the result, if it is known.
    pub(crate) fn renamed(
        original: &'a Code<'a>,
        names: &Arc<StableNames>,
        rename: Rename,
        digest: Digest,
        renamed: Option<Vec<u8>>,
    ) -> Self {
        Code::Renamed(Box::new(RenamedCode {
            original,
            names: Arc::clone(names),
            rename,
            digest,
            is_recorded: renamed.is_none(),
            renamed: renamed.map_or_else(OnceLock::new, OnceLock::from),
        }))
    }

    /// The bytes for the device linker, which have stable names. All other code reads the bytes of
    /// the input, so that a link whose image is cached renames nothing.
    pub(crate) fn to_link(&self) -> &[u8] {
        match self {
            Code::Renamed(code) => code.bytes(),
            code => code,
        }
    }

    /// The digest of the bytes for the device linker, if it is known.
    pub(crate) fn known_digest(&self) -> Option<&Digest> {
        match self {
            Code::Renamed(code) if code.is_recorded && code.renamed.get().is_some() => None,
            Code::Renamed(code) => Some(&code.digest),
            _ => None,
        }
    }

    /// The size of the decompressed bytes by the entry's header; 0 for bytes that are not
    /// compressed.
    pub(super) fn packed_size(&self) -> u64 {
        match self {
            Code::Plain(_) | Code::Renamed(_) => 0,
            Code::Packed { entry, .. } => entry.plain_size,
        }
    }

    /// Decompresses the bytes, if they are compressed.
    ///
    /// # Errors
    /// The bytes cannot be decompressed. Readers that do not call this function then get no bytes.
    pub(crate) fn load(&self) -> Result<(), Malformed> {
        match self {
            Code::Plain(_) | Code::Renamed(_) => Ok(()),
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
            Code::Renamed(code) => code.original,
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
