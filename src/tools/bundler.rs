//! The tool clang-offload-bundler: bundles code objects of several targets into one file, unbundles
//! and lists them (docs/spec/containers.md 2). Either all outputs appear, or none.

mod archive;
pub(crate) mod container;
mod list;
mod object;
mod pack;
mod targets;
mod unbundle;
mod verbose;

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::formats::compressed;
use crate::sys::session::Session;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Bundle inputs into one output.
    Bundle,
    /// Unbundle one input into several outputs.
    Unbundle,
    /// Print the IDs in one input.
    List,
}

/// A run of the bundler.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    pub task: Task,
    /// The file type (`-type`), as given.
    pub file_type: OsString,
    /// The IDs, as given: one for each input when bundling, one for each output when unbundling.
    pub targets: Vec<OsString>,
    /// The inputs. `-` is stdin.
    pub inputs: Vec<PathBuf>,
    /// The outputs. `-` is stdout.
    pub outputs: Vec<PathBuf>,
    /// The alignment of code objects in a binary bundle, in bytes.
    pub align: u32,
    /// The compression of the bundle, if any.
    pub compression: Option<compressed::Options>,
    /// Whether to print sizes, hashes and speeds of compression and decompression.
    pub verbose: bool,
    /// Whether to print the llvm-objcopy commands that LLVM's bundler would run, and write nothing.
    pub show_commands: bool,
    /// Whether a target without a code object gets an empty output.
    pub allow_missing: bool,
    /// Whether HIP code objects are compatible with OpenMP targets and vice versa.
    pub hip_openmp_compatible: bool,
    /// Whether conflicting target IDs of code objects in an archive's members are an error.
    pub check_input_archive: bool,
    /// Whether to print each comparison of a code object with a target.
    pub explain: bool,
}

/// Executes `request`. Errors that LLVM's bundler also reports have its wording, because scripts
/// match it.
pub(crate) fn run(request: &Request, session: &Session) -> Result<()> {
    match request.task {
        Task::Bundle => pack::run(request, session),
        Task::Unbundle => unbundle::run(request, session),
        Task::List => list::run(request, session),
    }
}

/// The bundle format of a file type (docs/spec/containers.md 2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// A text bundle with this comment prefix.
    Text(&'static str),
    /// A binary bundle.
    Binary,
    /// Sections of an object if the reference input is one, otherwise a binary bundle.
    Object,
    /// An archive whose members are like `Object`.
    Archive,
}

/// The layout for `-type=name`.
fn layout(name: &OsStr) -> Result<Layout> {
    Ok(match name.to_str() {
        Some("i" | "ii" | "cui" | "hipi") => Layout::Text("//"),
        Some("d" | "s") => Layout::Text("#"),
        Some("ll") => Layout::Text(";"),
        Some("bc" | "gch" | "ast") => Layout::Binary,
        Some("o") => Layout::Object,
        Some("a") => Layout::Archive,
        _ => bail!("'{}': invalid file type specified", name.to_string_lossy()),
    })
}
