//! Results of `offld::size` as plain data, with the names that `offld size --json` writes
//! (docs/reference/json.md).

use serde::{Deserialize, Serialize};

use super::Sizes;
pub(crate) use super::budget::Outcome;
pub use super::duplicates::{Duplicates, NotCompressed, Repeated, Served};
pub use super::items::Level;
pub use super::rows::Row;
use offld_system::shell;
use offload_formats::error::Error;
use offload_formats::model::OffloadKinds;
use offload_formats::target::{Selector, Target};

/// The version of the report's format.
const SCHEMA: u32 = 1;

/// The report on all files.
#[derive(Debug, Serialize)]
#[non_exhaustive]
pub struct Report {
    /// The version of the JSON format: 1.
    pub schema: u32,
    /// The program and version that wrote it.
    pub generator: String,
    /// The files.
    pub files: Vec<FileSize>,
    /// The total of all files, with the rows of the requested levels below it.
    pub total: Row,
    /// The images.
    pub images: Vec<ImageSize>,
    /// Repeated data, and data that could be smaller.
    pub duplicates: Duplicates,
    /// The results of the limits.
    pub budgets: Vec<Outcome>,
}

/// A file whose bytes were counted.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct FileSize {
    /// The file, as given by the caller.
    pub file: String,
    /// Its type, as in `offld inspect`.
    #[serde(rename = "type")]
    pub kind: String,
    /// Its size in bytes.
    pub size: u64,
    /// Its size after decompression of everything in it.
    pub inflated: u64,
    /// Errors of reading the file.
    pub errors: Vec<String>,
}

/// The bytes of a device image.
#[derive(Debug, Clone, Serialize, Deserialize)]
#[non_exhaustive]
pub struct ImageSize {
    /// The file that contains it, as given by the caller.
    pub input: String,
    /// The location in the file.
    pub place: String,
    /// The programming models it is for, with commas between them.
    pub kind: String,
    /// The triple.
    pub triple: String,
    /// The processor or target id.
    pub target: String,
    /// The architecture, by the name in size reports.
    pub arch: String,
    /// The format by its bytes.
    pub format: String,
    /// The number of bytes in the file.
    pub file: u64,
    /// The number of bytes after decompression.
    pub inflated: u64,
}

impl ImageSize {
    /// Whether `selector` selects the image.
    pub(crate) fn is_selected(&self, selector: &Selector) -> bool {
        let kinds = OffloadKinds::from_names(self.kind.split(','));
        // PTX for 9.0 is also selected by `compute_90`, its name in reports.
        [&self.target, &self.arch]
            .into_iter()
            .any(|name| selector.selects(kinds, &Target::new(&self.triple, name)))
    }
}

impl Report {
    /// Creates the report on `sizes`; `total` is the tree of their bytes, the result of
    /// [`super::rows::tree`].
    pub fn new(sizes: Sizes, total: Row, budgets: Vec<Outcome>) -> Report {
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
    /// No errors are known: all data can be written as JSON.
    pub fn to_json(&self) -> Result<String, Error> {
        shell::json(self).map_err(Error::of)
    }
}
