//! Parts of the HTML pages of reports: their style, and a page with texts in its places.

use std::io::{self, Write};

use base64::prelude::{BASE64_STANDARD, Engine as _};
use sha2::{Digest, Sha256};

/// The style of all pages.
pub(crate) const STYLE: &str = include_str!("size/page/page.css");

/// Writes `page`, in which `value` writes the text in place of each `{{NAME}}`.
pub(crate) fn fill<W: Write>(
    out: &mut W,
    mut page: &str,
    mut value: impl FnMut(&mut W, &str) -> io::Result<()>,
) -> io::Result<()> {
    while let Some((before, rest)) = page.split_once("{{") {
        out.write_all(before.as_bytes())?;
        let (name, after) = rest
            .split_once("}}")
            .ok_or_else(|| io::Error::other("page.html: `{{` without `}}`"))?;
        page = after;
        value(out, name)?;
    }
    out.write_all(page.as_bytes())
}

/// The error for a name in a page that has no value.
pub(crate) fn unknown(name: &str) -> io::Error {
    io::Error::other(format!("page.html: unknown name `{name}`"))
}

/// The hash by which the content security policy identifies the style and the script.
pub(crate) fn hash(text: &str) -> String {
    BASE64_STANDARD.encode(Sha256::digest(text.as_bytes()))
}

/// Escapes a text, so that HTML treats it as text everywhere.
pub(crate) fn escaped(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\'' => out.push_str("&#39;"),
            // HTML has no NUL character.
            '\0' => out.push('\u{fffd}'),
            _ => out.push(c),
        }
    }
    out
}
