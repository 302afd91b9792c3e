//! The requirements of each kind of link, as a table, the missing ones, and their sources.

use super::{Kind, Link, Missing, Part, Source, Step};

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

// Sources of missing requirements: packages of Debian and PyPI, options, and others. The version
// in the names of LLVM packages is that of the installed clang.

/// The recommended LLVM version if no clang is installed.
pub(super) const RECOMMENDED: u32 = offload_formats::model::LLVM_MAJOR;

/// A requirement that can be missing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Thing {
    Clang,
    OffldLlvm,
    HostLinker,
    CLibrary,
    Omp,
    OmpTarget,
    /// The OpenMP device runtime for this triple.
    OmpDevice(&'static str),
    Lld,
    NvlinkWrapper,
    SyclLinker,
    CudaTools,
    CudaLibraries,
    Libdevice,
    CudaRuntime,
    RocmBitcode,
    HipRuntime,
    SyclRuntime,
    SyclHeaders,
}

fn debian(what: impl Into<String>) -> Source {
    Source {
        from: "debian",
        what: what.into(),
    }
}

fn pypi(what: &str) -> Source {
    Source {
        from: "pypi",
        what: what.into(),
    }
}

fn option(what: impl Into<String>) -> Source {
    Source {
        from: "option",
        what: what.into(),
    }
}

fn other(what: impl Into<String>) -> Source {
    Source {
        from: "other",
        what: what.into(),
    }
}

/// Returns the sources of `thing` for a clang of LLVM version `llvm`, or of the recommended
/// version.
pub(super) fn how_to_get(thing: Thing, llvm: Option<u32>) -> Vec<Source> {
    let release = llvm.unwrap_or(RECOMMENDED);
    match thing {
        Thing::Clang => vec![
            debian(format!("clang-{release} lld-{release}")),
            option("OFFLD_CLANG=/path/to/clang"),
        ],
        Thing::OffldLlvm => vec![
            other(
                "install offld and offld-llvm from the same build (`make install`, or the package offld)",
            ),
            option("OFFLD_LLVM=/path/to/offld-llvm"),
        ],
        Thing::HostLinker => vec![
            debian(format!("binutils, or lld-{release}")),
            option("OFFLD_LINKER=/path/to/linker"),
        ],
        Thing::CLibrary => vec![debian("gcc libc6-dev")],
        Thing::Omp => vec![debian(format!("libomp-{release}-dev"))],
        // LLVM 20 was the first version whose sources have libomptarget in a separate project.
        Thing::OmpTarget if release >= 22 => vec![debian(format!("liboffload-{release}-dev"))],
        Thing::OmpTarget if release >= 20 => vec![debian(format!(
            "liboffload-{release}-dev, or libomp-{release}-dev"
        ))],
        Thing::OmpTarget => vec![debian(format!("libomp-{release}-dev"))],
        Thing::OmpDevice(_) if release < 20 => vec![debian(format!("libomp-{release}-dev"))],
        Thing::OmpDevice(triple) => {
            let mut all = vec![other(format!(
                "not in Debian's packages of this LLVM version: build LLVM's runtimes for the GPU (-DLLVM_RUNTIME_TARGETS='default;{triple}' \
                 -DRUNTIMES_{triple}_LLVM_ENABLE_RUNTIMES=openmp)"
            ))];
            if triple.starts_with("amdgcn") {
                all.push(option(
                    "OFFLD_CLANG=/opt/rocm/llvm/bin/clang (ROCm's clang includes the runtime)",
                ));
            }
            all.push(debian(
                "clang-19 lld-19 libomp-19-dev (an earlier version that includes the runtime)",
            ));
            all
        }
        Thing::Lld => vec![debian(format!("lld-{release}"))],
        Thing::NvlinkWrapper | Thing::SyclLinker => vec![debian(format!("clang-tools-{release}"))],
        Thing::CudaTools => vec![
            pypi(
                "nvidia-cuda-nvcc (in the active environment, or pass its directory with --cuda-path=)",
            ),
            debian("nvidia-cuda-toolkit (non-free)"),
            option("--cuda-path=/usr/local/cuda"),
        ],
        Thing::Libdevice => {
            vec![
                pypi("nvidia-nvvm"),
                debian("nvidia-cuda-toolkit (non-free)"),
                option("--cuda-path=/usr/local/cuda"),
            ]
        }
        Thing::CudaLibraries => vec![
            pypi("nvidia-cuda-runtime nvidia-cuda-nvcc nvidia-nvvm nvidia-cuda-crt"),
            debian("nvidia-cuda-toolkit (non-free)"),
            option("--cuda-path=/usr/local/cuda"),
        ],
        Thing::CudaRuntime => {
            vec![
                pypi("nvidia-cuda-runtime (pass its directory with -L)"),
                debian("nvidia-cuda-dev (non-free)"),
                option("-L/usr/local/cuda/lib64"),
            ]
        }
        Thing::RocmBitcode => vec![
            debian(
                "rocm-device-libs, with --rocm-device-lib-path=/usr/lib/x86_64-linux-gnu/amdgcn/bitcode",
            ),
            option("--rocm-path=/opt/rocm"),
        ],
        Thing::HipRuntime => vec![debian("libamdhip64-dev"), option("--rocm-path=/opt/rocm")],
        Thing::SyclHeaders => vec![other(
            "install oneAPI's compiler, or build LLVM's libsycl from its sources",
        )],
        Thing::SyclRuntime => vec![
            pypi("intel-sycl-rt"),
            option("-L with the directory of libsycl.so"),
        ],
    }
}
