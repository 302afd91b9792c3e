//! What clang-offload-bundler does: puts code objects of several targets into one file, takes them out again, and lists them
//! (docs/spec/containers.md 2). All outputs appear, or none.

mod archive;
pub(crate) mod container;
mod input;
mod kinds;
mod list;
mod matching;
mod object;
mod pack;
mod targets;
mod text;
mod unbundle;
mod verbose;

use std::ffi::OsString;
use std::path::PathBuf;

use anyhow::Result;

use crate::formats::compressed;
use crate::sys::session::Session;

/// What to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Task {
    /// Inputs into one output.
    Bundle,
    /// One input into outputs.
    Unbundle,
    /// Print the ids of the one input.
    List,
}

/// A run of the bundler.
#[derive(Debug, Clone)]
pub(crate) struct Request {
    /// What to do.
    pub task: Task,
    /// What the files are (`-type`), as given.
    pub file_type: OsString,
    /// The ids, as given; one for each input when bundling, for each output when unbundling.
    pub targets: Vec<OsString>,
    /// The inputs; `-` is stdin.
    pub inputs: Vec<PathBuf>,
    /// The outputs; `-` is stdout.
    pub outputs: Vec<PathBuf>,
    /// The alignment of code objects in a binary bundle, in bytes.
    pub align: u32,
    /// How a bundle is compressed, if it is.
    pub compression: Option<compressed::Options>,
    /// Whether to print sizes, hashes and speeds of what is compressed and decompressed.
    pub verbose: bool,
    /// Print the llvm-objcopy commands that LLVM's bundler would run, and write nothing.
    pub show_commands: bool,
    /// Whether a target without a code object gets an empty output.
    pub allow_missing: bool,
    /// Whether a code object for HIP is compatible with a target for OpenMP, and the other way round.
    pub hip_openmp_compatible: bool,
    /// Whether it is an error when code objects of an archive's members have conflicting target ids.
    pub check_input_archive: bool,
    /// Whether to print each comparison of a code object with a target.
    pub explain: bool,
}

/// Does what `request` asks for. Errors that LLVM's bundler has too are worded as it words them: scripts look for them.
pub(crate) fn run(request: &Request, session: &Session) -> Result<()> {
    match request.task {
        Task::Bundle => pack::run(request, session),
        Task::Unbundle => unbundle::run(request, session),
        Task::List => list::run(request, session),
    }
}
