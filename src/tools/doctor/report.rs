//! What `offld doctor` finds, as plain data with the names that its JSON has (docs/doctor.md).

use std::path::PathBuf;

use serde::Serialize;

/// The version of the report's form.
pub(crate) const VERSION: u32 = 1;

/// The report.
#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// [`VERSION`].
    pub version: u32,
    /// The program and version that wrote it.
    pub generator: String,
    /// Whether OpenMP programs whose device is the processor can be linked: the exit status.
    pub host_openmp: bool,
    /// This program.
    pub offld: Own,
    /// The program that makes registration code.
    pub offld_llvm: OffldLlvm,
    /// Every clang that is found; at most one is chosen.
    pub compilers: Vec<Compiler>,
    /// Why no clang is chosen.
    pub compiler_error: Option<String>,
    /// The host linkers that are found; at most one is what `ld.offld` would run.
    pub linkers: Vec<Program>,
    /// The other programs that a link may run.
    pub tools: Vec<Part>,
    /// Libraries and headers, where the chosen clang looks for them.
    pub files: Vec<Part>,
    /// The devices of this machine.
    pub devices: Devices,
    /// The cache of device links.
    pub cache: Cache,
    /// The cache that machines share; none where the environment names none.
    pub remote: Option<Remote>,
    /// What can be linked, a row for each kind.
    pub links: Vec<Link>,
}

/// Where offld is.
#[derive(Debug, Serialize)]
pub(crate) struct Own {
    /// The executable.
    pub path: Option<PathBuf>,
    /// The folder for clang's `-B`.
    pub names: Option<PathBuf>,
}

/// What is known of `offld-llvm`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct OffldLlvm {
    /// Where it is.
    pub path: Option<PathBuf>,
    /// The triple that it makes code for where none is named: it runs, and is of the same build.
    pub host_triple: Option<String>,
    /// Why it cannot be used.
    pub error: Option<String>,
}

/// A clang.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Compiler {
    pub path: PathBuf,
    /// The first line of what it says of itself; none where it does not run.
    pub says: Option<String>,
    /// The release of LLVM that it is of.
    pub llvm: Option<u32>,
    /// Whether device links run it where nothing else is said.
    pub chosen: bool,
}

/// A program with its version.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Program {
    pub path: PathBuf,
    /// The first line of what it says of itself; none where it does not run.
    pub says: Option<String>,
    /// Whether it is the one that is used.
    pub chosen: bool,
}

/// A program or file that some kind of link needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Part {
    pub name: &'static str,
    /// Where it is; null: nowhere.
    pub path: Option<PathBuf>,
}

/// The devices of the machine, as far as the system tells.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Devices {
    pub cpu: Option<String>,
    pub amd: Vec<String>,
    pub nvidia: Vec<String>,
    /// The major version of NVIDIA's driver.
    pub nvidia_driver: Option<u32>,
    /// What could not be read.
    pub error: Option<String>,
}

/// The cache of device links.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Cache {
    pub folder: Option<PathBuf>,
    /// How many bytes it may hold.
    pub limit: Option<u64>,
    /// How many it holds.
    pub size: Option<u64>,
    pub images: Option<u64>,
    /// Whether this user can write there.
    pub writable: bool,
    /// Why there is no cache, or why it is of no use.
    pub error: Option<String>,
}

/// The cache that machines share.
#[derive(Debug, Serialize)]
pub(crate) struct Remote {
    /// Where it is, without names and passwords.
    pub url: String,
    pub read_only: bool,
    /// Whether what is there is signed.
    pub signed: bool,
    /// Whether it answered.
    pub answers: bool,
    /// What it said, or what is wrong with the settings.
    pub problems: Vec<String>,
}

/// A kind of link.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub(crate) enum Kind {
    #[serde(rename = "openmp-host")]
    OpenMpHost,
    #[serde(rename = "openmp-amdgcn")]
    OpenMpAmd,
    #[serde(rename = "openmp-nvptx")]
    OpenMpNvidia,
    #[serde(rename = "hip")]
    Hip,
    #[serde(rename = "cuda")]
    Cuda,
    #[serde(rename = "sycl")]
    Sycl,
}

impl Kind {
    /// All kinds, in the order of the report.
    pub(crate) const ALL: [Kind; 6] = [Kind::OpenMpHost, Kind::OpenMpAmd, Kind::OpenMpNvidia, Kind::Hip, Kind::Cuda, Kind::Sycl];

    /// Its name in the text.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::OpenMpHost => "OpenMP, the processor as device",
            Kind::OpenMpAmd => "OpenMP, AMD's GPUs (amdgcn)",
            Kind::OpenMpNvidia => "OpenMP, NVIDIA's GPUs (nvptx)",
            Kind::Hip => "HIP",
            Kind::Cuda => "CUDA",
            Kind::Sycl => "SYCL",
        }
    }
}

/// What can be done of a kind of link.
#[derive(Debug, Serialize)]
pub(crate) struct Link {
    pub kind: Kind,
    /// Whether nothing is missing that a link needs.
    pub link: bool,
    /// Whether nothing is missing that clang needs before that, to compile.
    pub compile: bool,
    /// What is missing.
    pub missing: Vec<Missing>,
}

/// Which step needs something.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    /// The compilation.
    Compile,
    /// The link.
    Link,
}

/// Something that is missing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Missing {
    /// The step that needs it.
    pub step: Step,
    /// What it is, or what clang says.
    pub what: String,
    /// How to get it: any one of these.
    pub get: Vec<Source>,
}

/// Where something can be had.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Source {
    /// `debian`, `pypi`, `option`, or `other`.
    pub from: &'static str,
    /// The packages, the option, or what to do.
    pub what: String,
}
