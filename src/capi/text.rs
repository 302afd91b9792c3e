//! Text for C: UTF-8 with its length and a terminating zero byte.

use std::ffi::c_char;

/// Text: `size` bytes of UTF-8, followed by one zero byte that is not counted, so that `data` is a
/// C string as well. `data` is never NULL; missing text has the size 0. Text belongs to the handle
/// that it was obtained from, and is valid until that handle is freed. Names from damaged or
/// hostile files may contain zero bytes. Invalid UTF-8 in a file is replaced by U+FFFD.
#[repr(C)]
#[derive(Debug, Clone, Copy)]
pub struct OffldString {
    /// The first byte.
    pub data: *const c_char,
    /// The number of bytes, without the zero byte at the end.
    pub size: usize,
}

/// Owned text with a terminating zero byte.
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
    /// Converts text; `None` becomes empty text.
    pub(super) fn of(text: Option<impl AsRef<str>>) -> Text {
        text.map_or_else(|| Text::from(""), Text::from)
    }

    /// Converts each text of `all`.
    pub(super) fn all(all: impl IntoIterator<Item = impl AsRef<str>>) -> Vec<Text> {
        all.into_iter().map(Text::from).collect()
    }

    /// The text without the zero byte.
    pub(super) fn bytes(&self) -> &[u8] {
        self.0.split_last().map_or(&[], |(_, text)| text)
    }
}

/// Returns `text` for C; empty text for `None`.
pub(super) fn shown(text: Option<&Text>) -> OffldString {
    match text {
        Some(text) => OffldString {
            data: text.0.as_ptr().cast(),
            size: text.bytes().len(),
        },
        None => constant("\0"),
    }
}

/// Returns the text with this index in `all` for C; empty text if `index` is out of range.
pub(super) fn nth(all: Option<&Vec<Text>>, index: usize) -> OffldString {
    shown(all.and_then(|all| all.get(index)))
}

/// Returns a constant, which must end with a zero byte.
pub(super) fn constant(text: &'static str) -> OffldString {
    debug_assert!(text.ends_with('\0'));
    OffldString {
        data: text.as_ptr().cast(),
        size: text.len().saturating_sub(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_size_excludes_the_zero_byte() {
        let text = Text::from("a\0ü");
        assert_eq!(
            (text.bytes(), shown(Some(&text)).size),
            ("a\0ü".as_bytes(), 4)
        );
        assert_eq!(text.0.last(), Some(&0));
        assert_eq!(
            (
                shown(None).size,
                nth(Some(&vec![text]), 1).size,
                Text::of(None::<&str>).bytes()
            ),
            (0, 0, &b""[..])
        );
    }
}
