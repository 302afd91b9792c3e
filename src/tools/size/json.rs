//! The report of `offld size --json` (docs/size.md).

use serde::Serialize;

use super::budget::Outcome;
use super::rows::Row;
use super::{Duplicates, FileSize, ImageSize, Sizes};

/// The version of the report's form.
const SCHEMA: u32 = 1;

/// The report.
#[derive(Debug, Serialize)]
pub(crate) struct Report<'s> {
    schema: u32,
    generator: String,
    files: &'s [FileSize],
    total: &'s Row,
    images: &'s [ImageSize],
    duplicates: &'s Duplicates,
    budgets: &'s [Outcome],
}

/// The report as text; `tree` is what [`super::rows::tree`] made.
///
/// # Errors
/// None that are known: everything in it can be written as JSON.
pub(crate) fn text(sizes: &Sizes, tree: &Row, budgets: &[Outcome]) -> serde_json::Result<String> {
    let Sizes { files, images, duplicates, .. } = sizes;
    let generator = format!("offld {}", env!("CARGO_PKG_VERSION"));
    let mut text =
        serde_json::to_string_pretty(&Report { schema: SCHEMA, generator, files, total: tree, images, duplicates, budgets })?;
    text.push('\n');
    Ok(text)
}
