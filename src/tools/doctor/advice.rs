//! Sources of missing requirements: packages of Debian and PyPI, options, and others. The version
//! in the names of LLVM packages is that of the installed clang.

use super::report::Source;

/// The recommended LLVM version if no clang is installed.
pub(super) const RECOMMENDED: u32 = crate::model::LLVM_MAJOR;

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
