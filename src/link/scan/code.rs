//! The bytes of a device image. Compressed images are decompressed on first use, because most links
//! need few members of a large library.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::OnceLock;

use offload_formats::error::Malformed;
use offload_formats::fatbin::{Entry, Kind};

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

    /// The size of the decompressed bytes by the entry's header; 0 for bytes that are not compressed.
    pub(super) fn packed_size(&self) -> u64 {
        match self {
            Code::Plain(_) => 0,
            Code::Packed { entry, .. } => entry.plain_size,
        }
    }

    /// Decompresses the bytes, if they are compressed.
    ///
    /// # Errors
    /// They cannot be decompressed. Without this call, they are then empty.
    pub(crate) fn load(&self) -> Result<(), Malformed> {
        match self {
            Code::Plain(_) => Ok(()),
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
