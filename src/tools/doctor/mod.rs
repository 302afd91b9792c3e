//! `offld doctor`: reports the requirements of links that this machine meets, the missing ones for
//! each kind of link, and how to install those. It only inspects the machine and changes nothing.

mod found;
mod needs;
#[cfg(test)]
mod tests;
pub(crate) mod text;

use std::path::PathBuf;

use serde::Serialize;

use crate::llvm::{Llvm, find_program};
use crate::toolchain;
use needs::Facts;
use offld_system::native::Machine;
use offld_system::session::Session;

/// The settings of an examination.
#[derive(Debug)]
pub(crate) struct Request {
    /// The directory below which the machine's devices are read.
    pub native_root: PathBuf,
}

/// Examines this machine, like a link in the same environment.
pub(crate) fn examine(request: &Request, session: &Session) -> Report {
    let chosen = chosen();
    let compilers = compilers(chosen.as_ref().ok());
    let folders = chosen
        .as_ref()
        .map(|own| found::search_folders(&own.path))
        .unwrap_or_default();
    let (linkers, tools) = (found::linkers(&folders), found::tools(&folders));
    let files = found::files(chosen.as_ref().ok(), &folders);
    let offld_llvm = offld_llvm(session);
    let compiler_error = chosen.as_ref().err().cloned();
    let complaints_of = |kind: Kind| {
        let all = chosen
            .as_ref()
            .map(|own| found::complaints(&own.path, kind))
            .unwrap_or_default();
        all.into_iter().map(move |text| (kind, text))
    };
    let links = needs::links(&Facts {
        llvm: chosen.as_ref().ok().and_then(|own| own.major),
        compiler_error: compiler_error.clone(),
        offld_llvm_error: offld_llvm.error.clone(),
        key_error: found::key_error(),
        has_linker: linkers.iter().any(|linker| linker.chosen),
        parts: tools.iter().chain(&files).cloned().collect(),
        complaints: Kind::ALL.into_iter().flat_map(complaints_of).collect(),
    });
    let cache = found::own_cache();
    Report {
        schema: SCHEMA,
        version: SCHEMA,
        generator: concat!("offld ", env!("CARGO_PKG_VERSION")).to_owned(),
        host_openmp: links
            .iter()
            .any(|link| link.kind == Kind::OpenMpHost && link.link),
        offld: Own {
            path: offld_system::run::own_executable().ok(),
            names: toolchain::folder_of_names(),
        },
        offld_llvm,
        compilers,
        compiler_error,
        linkers,
        tools,
        files,
        devices: devices(request),
        remote: found::shared_cache(&cache),
        cache,
        links,
    }
}

/// Returns the default compiler for device links, or the reason why none is usable. Links with
/// bitcode of another LLVM version may use another compiler.
fn chosen() -> Result<toolchain::Compiler, String> {
    let chosen = toolchain::device_compiler(None, None)
        .map_err(|error| offload_formats::error::chain(&error))?
        .compiler;
    let path = chosen.path.display();
    match chosen.major {
        None => Err(format!("`{path}` does not report its version")),
        Some(_) if found::first_line(&chosen.path).is_none() => {
            Err(format!("`{path}` does not run"))
        }
        Some(major) if major < needs::FIRST => Err(format!(
            "`{path}` is of LLVM {major}: LLVM {} or later is required",
            needs::FIRST
        )),
        Some(_) => Ok(chosen),
    }
}

/// Every installed clang, with a mark on the chosen one.
fn compilers(chosen: Option<&toolchain::Compiler>) -> Vec<Compiler> {
    let real = |path: &PathBuf| path.canonicalize().unwrap_or_else(|_| path.clone());
    let chosen_path = chosen.map(|own| real(&own.path));
    let mut paths = toolchain::installed_compilers();
    // `OFFLD_CLANG` may name a clang that the search does not find.
    if let Some(own) = chosen.filter(|own| !paths.iter().any(|path| real(path) == real(&own.path)))
    {
        paths.insert(0, own.path.clone());
    }
    let all = paths.into_iter().map(|path| Compiler {
        says: found::first_line(&path),
        llvm: toolchain::release_of(&path),
        chosen: chosen_path.as_ref() == Some(&real(&path)),
        path,
    });
    all.collect()
}

/// Finds `offld-llvm` and checks that it runs and is from the same build.
fn offld_llvm(session: &Session) -> OffldLlvm {
    let path = match find_program() {
        Ok(path) => path,
        Err(error) => {
            return OffldLlvm {
                error: Some(offload_formats::error::chain(&error)),
                ..OffldLlvm::default()
            };
        }
    };
    match Llvm::new(session).default_triple() {
        Ok(triple) => OffldLlvm {
            path: Some(path),
            host_triple: Some(triple),
            error: None,
        },
        Err(error) => OffldLlvm {
            path: Some(path),
            host_triple: None,
            error: Some(offload_formats::error::chain(&error)),
        },
    }
}

fn devices(request: &Request) -> Devices {
    match Machine::read(&request.native_root) {
        Ok(machine) => Devices {
            cpu: Some(machine.cpu),
            amd: machine.amd,
            nvidia: machine.nvidia,
            nvidia_driver: machine.driver,
            error: None,
        },
        Err(error) => Devices {
            error: Some(offload_formats::error::chain(&error)),
            ..Devices::default()
        },
    }
}

// The report of `offld doctor`, as plain data with the names of its JSON (docs/guides/doctor.md).

/// The version of the report's schema.
pub(crate) const SCHEMA: u32 = 1;

#[derive(Debug, Serialize)]
pub(crate) struct Report {
    /// [`SCHEMA`].
    pub schema: u32,
    /// The same number under its name up to offld 0.9.
    pub version: u32,
    /// The program and version that wrote the report.
    pub generator: String,
    /// Whether OpenMP programs for the CPU can be linked. It determines the exit status.
    pub host_openmp: bool,
    /// This program.
    pub offld: Own,
    /// The program that generates registration code.
    pub offld_llvm: OffldLlvm,
    /// Every installed clang; at most one is chosen.
    pub compilers: Vec<Compiler>,
    /// The reason why no clang is chosen.
    pub compiler_error: Option<String>,
    /// The installed host linkers; `ld.offld` runs the chosen one.
    pub linkers: Vec<Program>,
    /// The other programs that a link may run.
    pub tools: Vec<Part>,
    /// Libraries and headers in the search directories of the chosen clang.
    pub files: Vec<Part>,
    /// The devices of this machine.
    pub devices: Devices,
    /// The cache of device links.
    pub cache: Cache,
    /// The remote cache, if the environment names one.
    pub remote: Option<Remote>,
    /// The possible links, one row for each kind.
    pub links: Vec<Link>,
}

/// The locations of offld.
#[derive(Debug, Serialize)]
pub(crate) struct Own {
    /// The executable.
    pub path: Option<PathBuf>,
    /// The directory for clang's `-B`.
    pub names: Option<PathBuf>,
}

/// The state of `offld-llvm`.
#[derive(Debug, Default, Serialize)]
pub(crate) struct OffldLlvm {
    pub path: Option<PathBuf>,
    /// Its default triple. If this is present, the program runs and is from the same build.
    pub host_triple: Option<String>,
    /// The reason why it is unusable.
    pub error: Option<String>,
}

/// A clang.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Compiler {
    pub path: PathBuf,
    /// The first line of its version output; `None` if it does not run.
    pub says: Option<String>,
    /// Its LLVM version.
    pub llvm: Option<u32>,
    /// Whether device links run it by default.
    pub chosen: bool,
}

/// A host linker with its version.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Program {
    pub path: PathBuf,
    /// The first line of its version output; `None` if it does not run.
    pub says: Option<String>,
    /// Whether links use it by default.
    pub chosen: bool,
}

/// A program or file that some kind of link needs.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Part {
    pub name: &'static str,
    /// Its location; null if it is missing.
    pub path: Option<PathBuf>,
}

/// The devices of the machine that the system reports.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Devices {
    pub cpu: Option<String>,
    pub amd: Vec<String>,
    pub nvidia: Vec<String>,
    /// The major version of NVIDIA's driver.
    pub nvidia_driver: Option<u32>,
    /// The error if the devices could not be read.
    pub error: Option<String>,
}

/// The cache of device links.
#[derive(Debug, Default, Serialize)]
pub(crate) struct Cache {
    pub folder: Option<PathBuf>,
    /// The size limit in bytes.
    pub limit: Option<u64>,
    /// The current size in bytes.
    pub size: Option<u64>,
    pub images: Option<u64>,
    /// Whether this user can write to the cache.
    pub writable: bool,
    /// The reason why there is no cache, or why it is unusable.
    pub error: Option<String>,
}

#[derive(Debug, Serialize)]
pub(crate) struct Remote {
    /// Its URL, without user names and passwords.
    pub url: String,
    pub read_only: bool,
    /// Whether its entries are signed.
    pub signed: bool,
    /// Whether it answered.
    pub answers: bool,
    /// Its error messages, and errors in the settings.
    pub problems: Vec<String>,
}

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
    pub(crate) const ALL: [Kind; 6] = [
        Kind::OpenMpHost,
        Kind::OpenMpAmd,
        Kind::OpenMpNvidia,
        Kind::Hip,
        Kind::Cuda,
        Kind::Sycl,
    ];

    /// The name in the text.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Kind::OpenMpHost => "OpenMP for the CPU",
            Kind::OpenMpAmd => "OpenMP for AMD GPUs (amdgcn)",
            Kind::OpenMpNvidia => "OpenMP for NVIDIA GPUs (nvptx)",
            Kind::Hip => "HIP",
            Kind::Cuda => "CUDA",
            Kind::Sycl => "SYCL",
        }
    }
}

/// The possible steps of a kind of link.
#[derive(Debug, Serialize)]
pub(crate) struct Link {
    pub kind: Kind,
    /// Whether the link has all requirements.
    pub link: bool,
    /// Whether the compilation, which comes before the link, has all requirements.
    pub compile: bool,
    /// The missing requirements.
    pub missing: Vec<Missing>,
}

/// The step that has a requirement.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "lowercase")]
pub(crate) enum Step {
    /// The compilation.
    Compile,
    Link,
}

/// A missing requirement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Missing {
    /// The step that needs it.
    pub step: Step,
    /// Its name, or clang's error.
    pub what: String,
    /// Sources; any one of them is sufficient.
    pub get: Vec<Source>,
}

/// A source of a missing requirement.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Source {
    /// `debian`, `pypi`, `option`, or `other`.
    pub from: &'static str,
    /// The packages, the option, or instructions.
    pub what: String,
}
