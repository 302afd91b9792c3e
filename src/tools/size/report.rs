//! What [`size`](crate::size()) counts, as plain data with the names that `offld size --json`
//! writes (docs/reference/json.md).

use serde::{Deserialize, Serialize};

use super::Sizes;
pub(crate) use super::budget::Outcome;
pub use super::duplicates::{Duplicates, NotCompressed, Repeated};
pub use super::items::Level;
pub use super::rows::Row;
pub use super::served::Served;
use crate::error::Error;
use crate::sys::shell;

/// The version of the report's form.
const SCHEMA: u32 = 1;

/// The report on all files.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The version of the JSON's form: 1.
    pub schema: u32,
    /// The program and version that wrote it.
    pub generator: String,
    /// The files.
    pub files: Vec<FileSize>,
    /// All bytes of them, and below it the rows of what was to be told apart.
    pub total: Row,
    /// The images.
    pub images: Vec<ImageSize>,
    /// What is there twice, and what could be smaller.
    pub duplicates: Duplicates,
    /// What came of limits.
    pub(crate) budgets: Vec<Outcome>,
}

/// A file whose bytes were counted.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileSize {
    /// The file, as it was named.
    pub file: String,
    /// Its type, as `offld inspect` calls it.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its size, if everything in it were inflated.
    pub inflated: u64,
    /// What could not be read of it.
    pub errors: Vec<String>,
}

/// The bytes of a device image.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ImageSize {
    /// The file that it is in, as it was named.
    pub input: String,
    /// Where in the file it is.
    pub place: String,
    /// The programming models it is for, with commas between them.
    pub kind: String,
    /// The triple.
    pub triple: String,
    /// The processor or target id.
    pub target: String,
    /// The architecture, as sizes call it.
    pub arch: String,
    /// The format by its bytes.
    pub format: String,
    /// How many bytes of the file it takes.
    pub file: u64,
    /// How many it has, inflated.
    pub inflated: u64,
}

impl Report {
    /// The report on `sizes`; `total` is the tree of their bytes that [`super::rows::tree`] makes.
    pub(crate) fn new(sizes: Sizes, total: Row, budgets: Vec<Outcome>) -> Report {
        let Sizes {
            files,
            images,
            duplicates,
            items: _,
        } = sizes;
        let generator = format!("offld {}", env!("CARGO_PKG_VERSION"));
        Report {
            schema: SCHEMA,
            generator,
            files,
            total,
            images,
            duplicates,
            budgets,
        }
    }

    /// The report as JSON, as `offld size --json` prints it.
    ///
    /// # Errors
    /// None that are known: everything in it can be written as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        shell::json(self).map_err(Error::of)
    }
}
