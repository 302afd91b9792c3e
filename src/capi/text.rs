//! Text that C reads: UTF-8 with its length, and a zero behind it.

use std::ffi::c_char;

/// Text: `size` bytes of UTF-8, and one zero byte behind them that is not counted, so that `data` is a C string as well. `data` is
/// never NULL; text that there is none of has the size 0. It belongs to the handle that it was asked of, and is valid until that is
/// freed. Names from damaged or hostile files may have zero bytes inside; what is no UTF-8 in a file is replaced by U+FFFD.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OffldString {
    /// The first byte.
    pub data: *const c_char,
    /// How many bytes there are, without the zero at the end.
    pub size: usize,
}

/// Text of ours, with the zero behind it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Text(Box<[u8]>);

impl<T: AsRef<str>> From<T> for Text {
    fn from(text: T) -> Self {
        let mut bytes = Vec::with_capacity(text.as_ref().len() + 1);
        bytes.extend(text.as_ref().as_bytes());
        bytes.push(0);
        Text(bytes.into_boxed_slice())
    }
}

impl Text {
    /// The same, or empty text for none.
    pub(super) fn of(text: Option<impl AsRef<str>>) -> Text {
        text.map_or_else(|| Text::from(""), Text::from)
    }

    /// Each of `all`.
    pub(super) fn all(all: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<Text> {
        all.into_iter().map(Text::from).collect()
    }

    /// The text without the zero.
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.split_last().map_or(&[], |(_, text)| text)
    }
}

/// What C gets of `text`: empty text where there is none.
pub(super) fn shown(text: Option<&Text>) -> OffldString {
    match text {
        Some(text) => OffldString { data: text.0.as_ptr().cast(), size: text.bytes().len() },
        None => constant("\0"),
    }
}

/// The text with number `index` of `all`; empty text where there are fewer.
pub(super) fn nth(all: Option<&Vec<Text>>, index: usize) -> OffldString {
    shown(all.and_then(|all| all.get(index)))
}

/// A constant that ends with a zero.
pub(super) fn constant(text: &'static str) -> OffldString {
    debug_assert!(text.ends_with('\0'));
    OffldString { data: text.as_ptr().cast(), size: text.len().saturating_sub(1) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_counted_without_the_zero_behind_it() {
        let text = Text::from("a\0ü");
        assert_eq!((text.bytes(), shown(Some(&text)).size), ("a\0ü".as_bytes(), 4));
        assert_eq!(text.0.last(), Some(&0));
        assert_eq!((shown(None).size, nth(Some(&vec![text]), 1).size, Text::of(None::<&str>).bytes()), (0, 0, &b""[..]));
    }
}
