//! The requirements of each kind of link, as a table, and the missing ones.

use super::advice::{Thing, how_to_get};
use super::report::{Kind, Link, Missing, Part, Step};

/// The first LLVM version whose compilers write fat objects that offld reads.
pub(super) const FIRST: u32 = 14;
/// The first version with OpenMP's device runtime as a library for the link. Before, the compiler
/// adds it as bitcode.
const DEVICE_LIBRARY: u32 = 22;
/// The first version that links for NVIDIA GPUs with `clang-nvlink-wrapper`.
const NVLINK_WRAPPER: u32 = 19;
/// The first version with a linker for SYCL.
const SYCL_LINKER: u32 = 20;

/// Names of programs and files in the report.
pub(super) const LLD: &str = "ld.lld";
pub(super) const NVLINK_WRAPPER_NAME: &str = "clang-nvlink-wrapper";
pub(super) const SYCL_LINKER_NAME: &str = "clang-sycl-linker";
pub(super) const AMD_DEVICE_RUNTIME: &str = "device runtime for amdgcn";
pub(super) const NVIDIA_DEVICE_RUNTIME: &str = "device runtime for nvptx";
pub(super) const SYCL_HEADER: &str = "sycl/sycl.hpp";
pub(super) const LIBGCC: &str = "libgcc.a";

/// The state of the machine.
#[derive(Debug, Default)]
pub(super) struct Facts {
    /// The LLVM version of the chosen clang; `None` without a clang that runs.
    pub llvm: Option<u32>,
    /// The reason why no clang is usable.
    pub compiler_error: Option<String>,
    /// The reason why `offld-llvm` is unusable.
    pub offld_llvm_error: Option<String>,
    /// The reason why every link with device code fails: an unusable key of the cache.
    pub key_error: Option<String>,
    /// Whether there is a host linker.
    pub has_linker: bool,
    /// Tools and files.
    pub parts: Vec<Part>,
    /// The errors of clang for code of each kind.
    pub complaints: Vec<(Kind, String)>,
}

impl Facts {
    fn has(&self, name: &str) -> bool {
        self.parts
            .iter()
            .any(|part| part.name == name && part.path.is_some())
    }

    fn is_at_least(&self, release: u32) -> bool {
        self.llvm.is_some_and(|llvm| llvm >= release)
    }
}

/// A requirement of some kinds of links, with its name in the report.
struct Need {
    name: &'static str,
    thing: Thing,
    step: Step,
    kinds: &'static [Kind],
    /// The first LLVM version with this requirement.
    since: u32,
}

const EVERY: &[Kind] = &Kind::ALL;
const OPENMP: &[Kind] = &[Kind::OpenMpHost, Kind::OpenMpAmd, Kind::OpenMpNvidia];
const AMD: &[Kind] = &[Kind::OpenMpAmd, Kind::Hip];
const NVIDIA: &[Kind] = &[Kind::OpenMpNvidia, Kind::Cuda];

const fn link(name: &'static str, thing: Thing, kinds: &'static [Kind], since: u32) -> Need {
    Need {
        name,
        thing,
        step: Step::Link,
        kinds,
        since,
    }
}

/// All requirements except those of [`common`] and [`device_runtime`].
const NEEDS: [Need; 16] = [
    link("crt1.o", Thing::CLibrary, EVERY, FIRST),
    link("libc.so", Thing::CLibrary, EVERY, FIRST),
    link(LIBGCC, Thing::CLibrary, EVERY, FIRST),
    Need {
        name: "omp.h",
        thing: Thing::Omp,
        step: Step::Compile,
        kinds: OPENMP,
        since: FIRST,
    },
    link("libomp.so", Thing::Omp, OPENMP, FIRST),
    link("libomptarget.so", Thing::OmpTarget, OPENMP, FIRST),
    link(LLD, Thing::Lld, AMD, FIRST),
    link("libamdhip64.so", Thing::HipRuntime, &[Kind::Hip], FIRST),
    link("ptxas", Thing::CudaTools, NVIDIA, FIRST),
    link("nvlink", Thing::CudaTools, NVIDIA, FIRST),
    link("fatbinary", Thing::CudaTools, &[Kind::Cuda], FIRST),
    link(
        NVLINK_WRAPPER_NAME,
        Thing::NvlinkWrapper,
        NVIDIA,
        NVLINK_WRAPPER,
    ),
    link("libcudart.so", Thing::CudaRuntime, &[Kind::Cuda], FIRST),
    link(
        SYCL_LINKER_NAME,
        Thing::SyclLinker,
        &[Kind::Sycl],
        SYCL_LINKER,
    ),
    Need {
        name: SYCL_HEADER,
        thing: Thing::SyclHeaders,
        step: Step::Compile,
        kinds: &[Kind::Sycl],
        since: SYCL_LINKER,
    },
    link("libsycl.so", Thing::SyclRuntime, &[Kind::Sycl], SYCL_LINKER),
];

/// The names of the required programs and files in the table.
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    NEEDS.iter().map(|need| need.name)
}

/// Determines which links are possible, with one row for each kind.
pub(super) fn links(facts: &Facts) -> Vec<Link> {
    Kind::ALL
        .into_iter()
        .map(|kind| link_of_kind(kind, facts))
        .collect()
}

fn link_of_kind(kind: Kind, facts: &Facts) -> Link {
    let mut missing = common(facts);
    // The requirements depend on the version of clang.
    if facts.compiler_error.is_none() {
        let needed = NEEDS
            .iter()
            .filter(|need| need.kinds.contains(&kind) && facts.is_at_least(need.since));
        missing.extend(
            needed
                .filter(|need| !facts.has(need.name))
                .map(|need| Missing {
                    step: need.step,
                    what: need.name.to_owned(),
                    get: how_to_get(need.thing, facts.llvm),
                }),
        );
        if kind == Kind::Sycl && !facts.is_at_least(SYCL_LINKER) {
            let what = format!("clang of LLVM {SYCL_LINKER} or later, with a linker for SYCL");
            missing.push(Missing {
                step: Step::Link,
                what,
                get: how_to_get(Thing::Clang, None),
            });
        }
        let runtime = device_runtime(kind, facts);
        let lacks_runtime = runtime.is_some();
        missing.extend(runtime);
        missing.extend(
            complaints(kind, facts)
                .filter(|own| !lacks_runtime || !own.what.contains("libomptarget")),
        );
    }
    let nothing = |step| !missing.iter().any(|own| own.step == step);
    let has_compiler = facts.compiler_error.is_none();
    Link {
        kind,
        link: nothing(Step::Link),
        compile: has_compiler && nothing(Step::Compile),
        missing,
    }
}

/// The missing requirements that all links share.
fn common(facts: &Facts) -> Vec<Missing> {
    let mut missing = Vec::new();
    let mut need = |what: &str, thing| {
        missing.push(Missing {
            step: Step::Link,
            what: what.to_owned(),
            get: how_to_get(thing, facts.llvm),
        });
    };
    if let Some(error) = &facts.compiler_error {
        need(&format!("clang: {error}"), Thing::Clang);
    }
    if let Some(error) = &facts.offld_llvm_error {
        need(&format!("offld-llvm: {error}"), Thing::OffldLlvm);
    }
    if !facts.has_linker {
        need("a host linker (ld.lld or ld)", Thing::HostLinker);
    }
    if let Some(error) = &facts.key_error {
        missing.push(Missing {
            step: Step::Link,
            what: error.clone(),
            get: Vec::new(),
        });
    }
    missing
}

/// OpenMP's device runtime, if it is required and missing.
fn device_runtime(kind: Kind, facts: &Facts) -> Option<Missing> {
    let (name, bitcode, triple) = match kind {
        Kind::OpenMpAmd => (
            AMD_DEVICE_RUNTIME,
            "libomptarget-amdgpu",
            "amdgcn-amd-amdhsa",
        ),
        Kind::OpenMpNvidia => (
            NVIDIA_DEVICE_RUNTIME,
            "libomptarget-nvptx",
            "nvptx64-nvidia-cuda",
        ),
        _ => return None,
    };
    if facts.has(name) {
        return None;
    }
    let (step, what) = if facts.is_at_least(DEVICE_LIBRARY) {
        (
            Step::Link,
            format!("libompdevice.a for {triple}, the OpenMP device runtime"),
        )
    } else {
        (
            Step::Compile,
            format!("{bitcode}*.bc, the OpenMP device runtime"),
        )
    };
    Some(Missing {
        step,
        what,
        get: how_to_get(Thing::OmpDevice(triple), facts.llvm),
    })
}

/// The errors that clang reports for code of this kind, as missing requirements of the compilation.
fn complaints(kind: Kind, facts: &Facts) -> impl Iterator<Item = Missing> + '_ {
    const MEANINGS: [(&str, Thing); 6] = [
        ("ROCm device library", Thing::RocmBitcode),
        ("HIP runtime", Thing::HipRuntime),
        ("libdevice", Thing::Libdevice),
        ("CUDA installation", Thing::CudaLibraries),
        (
            "libomptarget-nvptx",
            Thing::OmpDevice("nvptx64-nvidia-cuda"),
        ),
        ("libomptarget", Thing::OmpDevice("amdgcn-amd-amdhsa")),
    ];
    let own = facts.complaints.iter().filter(move |(own, _)| *own == kind);
    own.map(|(_, text)| {
        let thing = MEANINGS
            .iter()
            .find(|(part, _)| text.contains(part))
            .map(|(_, thing)| *thing);
        let get = thing.map_or_else(Vec::new, |thing| how_to_get(thing, facts.llvm));
        Missing {
            step: Step::Compile,
            what: format!("clang reports: {text}"),
            get,
        }
    })
}
