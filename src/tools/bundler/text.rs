//! The code objects of text bundles, as ranges of the file.

use std::io::BufReader;

use anyhow::{Context, Result};

use super::container::BundleEntry;
use crate::error::Malformed;
use crate::formats::bundle::text;
use crate::io::file_slice::FileSlice;

/// The entries of the text bundle in `piece`, which belongs to the file `name`. `comment` is the
/// prefix of marker lines.
pub(super) fn entries(piece: &FileSlice, comment: &str, name: &str) -> Result<Vec<BundleEntry>> {
    let spans = text::scan(comment, BufReader::with_capacity(128 << 10, piece.reader()));
    let spans = spans
        .map_err(Malformed::or_io)
        .with_context(|| name.to_owned())?;
    let entry = |span: text::Span| {
        let part = piece
            .slice(span.start, span.size)
            .with_context(|| format!("'{name}' became shorter while it was read"))?;
        Ok(BundleEntry::new(span.id, part))
    };
    spans.into_iter().map(entry).collect()
}
