//! Tables of NVIDIA's processors and the versions of PTX.

/// The exceptions of a processor. Machine code for a processor without a row follows the rules of
/// "Binary Compatibility".
pub(super) struct Processor {
    /// The major and minor compute capability.
    pub capability: (u32, u32),
    /// The group of processors with compatible machine code.
    pub system: System,
    /// The first processor of its family. Code for a family (`f`) runs on the processor that it
    /// names and on later members.
    pub family: Option<(u32, u32)>,
}

/// Groups of processors with compatible machine code.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum System {
    /// Discrete GPUs.
    Discrete,
    /// Tegra: machine code for one processor runs only on that processor.
    Tegra,
    /// Not documented.
    Unknown,
}

use System::{Discrete, Tegra, Unknown};

const fn row(capability: (u32, u32), system: System, family: Option<(u32, u32)>) -> Processor {
    Processor {
        capability,
        system,
        family,
    }
}

/// Sources: NVIDIA, CUDA C++ Programming Guide, "Compute Capabilities" (which processors are Tegra)
/// and "Family-Specific Features" (families), and `ptxas --help` (which processor assembles PTX of
/// which family). Rows with another source name it.
#[rustfmt::skip]
pub(super) const PROCESSORS: [Processor; 13] = [
    row((3, 2), Tegra, None),
    row((5, 3), Tegra, None),
    row((6, 2), Tegra, None),
    row((7, 2), Tegra, None),
    row((8, 7), Tegra, None),
    row((8, 8), Unknown, None), // Source: ptxas of CUDA 13.0.
    row((10, 0), Discrete, Some((10, 0))),
    row((10, 1), Tegra, None), // The name of 11.0 before CUDA 13.0.
    row((10, 3), Discrete, Some((10, 0))),
    row((10, 7), Discrete, Some((10, 0))), // Sources: ptxas of CUDA 13.4; NVIDIA/TensorRT-LLM#18758.
    row((11, 0), Tegra, Some((11, 0))),
    row((12, 0), Discrete, Some((12, 0))),
    row((12, 1), Discrete, Some((12, 0))),
];

/// Versions of PTX, each with the first driver that knows it, if known: the driver of the CUDA
/// release that introduced the version.
///
/// Sources: NVIDIA, PTX ISA, "Release Notes" (the CUDA release), and CUDA Toolkit Release Notes,
/// "CUDA Toolkit and Corresponding Driver Versions". Rows with another source name it.
#[rustfmt::skip]
pub(super) const PTX_VERSIONS: [((u32, u32), Option<u32>); 30] = [
    ((6, 0), Some(384)),
    ((6, 1), Some(387)),
    ((6, 2), Some(396)),
    ((6, 3), Some(410)),
    ((6, 4), Some(418)),
    ((6, 5), Some(440)),
    ((7, 0), Some(450)),
    ((7, 1), Some(455)),
    ((7, 2), Some(460)),
    ((7, 3), Some(465)),
    ((7, 4), Some(470)),
    ((7, 5), Some(495)),
    ((7, 6), Some(510)),
    ((7, 7), Some(515)),
    ((7, 8), Some(520)),
    ((8, 0), Some(525)),
    ((8, 1), Some(530)),
    ((8, 2), Some(535)),
    ((8, 3), Some(545)),
    ((8, 4), Some(550)),
    ((8, 5), Some(555)),
    ((8, 6), Some(565)),
    ((8, 7), Some(570)),
    ((8, 8), Some(575)),
    ((9, 0), Some(580)),
    ((9, 1), Some(590)),
    ((9, 2), Some(595)),
    ((9, 3), Some(610)), // Source: the driver in the installer of CUDA 13.3.0.
    ((9, 4), Some(615)), // Source: NVIDIA, CUTLASS 4.8 release notes, for CUDA 13.4.
    ((9, 5), None), // Source: ptxas --list-version of CUDA 13.5.
];
