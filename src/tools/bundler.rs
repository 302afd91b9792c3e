//! What clang-offload-bundler does: code objects of several targets in one file, out of it again, and what is in it
//! (docs/spec/containers.md 2). A request in, files out; all of them, or none.

mod archive;
pub mod container;
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
pub enum Task {
    /// Inputs into one output.
    Bundle,
    /// One input into outputs.
    Unbundle,
    /// Print the ids of the one input.
    List,
}

/// A run of the bundler.
#[derive(Debug, Clone)]
pub struct Request {
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
    /// What offsets in a binary bundle are multiples of.
    pub align: u32,
    /// How a bundle is compressed, if it is.
    pub compression: Option<compressed::Options>,
    /// Whether to tell of compressing and decompressing.
    pub verbose: bool,
    /// Show the commands of llvm-objcopy that LLVM's bundler would run, and do not do what they do.
    pub show_commands: bool,
    /// Whether a target without a code object gets an empty output.
    pub allow_missing: bool,
    /// Whether code objects of HIP serve OpenMP, and the other way round.
    pub hip_openmp_compatible: bool,
    /// Whether the code objects of an archive's members must fit together.
    pub check_input_archive: bool,
    /// Whether to tell of each comparison of a code object with a target.
    pub explain: bool,
}

/// Does what `request` asks for. Errors are in LLVM's words where it has some.
pub fn run(request: &Request, session: &Session) -> Result<()> {
    match request.task {
        Task::Bundle => pack::run(request, session),
        Task::Unbundle => unbundle::run(request, session),
        Task::List => list::run(request, session),
    }
}
