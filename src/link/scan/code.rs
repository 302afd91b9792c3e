//! The bytes of a device image. Those of a compressed image are decompressed when they are first
//! needed: most members of a large library are not.

use std::borrow::Cow;
use std::ops::Deref;
use std::sync::OnceLock;

use offload_formats::error::Malformed;
use offload_formats::fatbin::Entry;

/// The bytes of a device image.
#[derive(Debug)]
pub(crate) enum Code<'a> {
    /// They are part of an input, or were made from it.
    Plain(Cow<'a, [u8]>),
    /// They are compressed in an entry of a fatbinary.
    Packed {
        /// The entry.
        entry: Box<Entry<'a>>,
        /// The decompressed bytes, or the reason why there are none.
        plain: OnceLock<Result<Vec<u8>, Malformed>>,
    },
}

impl<'a> Code<'a> {
    /// The code in `entry`.
    pub(super) fn of_entry(entry: &Entry<'a>) -> Self {
        if entry.method.is_none() {
            return Code::from(entry.stored);
        }
        Code::Packed {
            entry: Box::new(entry.clone()),
            plain: OnceLock::new(),
        }
    }

    /// Decompresses the bytes, if they are compressed.
    ///
    /// # Errors
    /// They cannot be decompressed. Without this call, they are then empty.
    pub(crate) fn load(&self) -> Result<(), Malformed> {
        match self {
            Code::Plain(_) => Ok(()),
            Code::Packed { entry, plain } => {
                let plain = plain.get_or_init(|| entry.plain().map(Cow::into_owned));
                plain.as_ref().map(drop).map_err(|fault| *fault)
            }
        }
    }

    /// Returns the bytes as a copy that borrows nothing.
    pub(super) fn into_owned(self) -> Code<'static> {
        Code::Plain(Cow::Owned(self.to_vec()))
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
