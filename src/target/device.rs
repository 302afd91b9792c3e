//! Devices to run images on, and the rules for accepting an image: those of CPUs here, those of AMD
//! and NVIDIA in `amd` and `nvidia`. `tests/cases/check/rules.txt` lists the rules as cases, with the
//! documents that specify them.

mod amd;
mod names;
mod nvidia;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::fmt;

use super::Target;
use super::selector::is_triple;
use crate::error::Error;
use crate::formats::gpu::{AmdArch, TargetId};
use crate::formats::{gpu::Gpu, ptx};
use crate::model::{OffloadKind, printable};

/// A device, or all devices of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Device {
    /// An AMD GPU: the processor, and the features with a known setting.
    Amd {
        /// `gfx90a`.
        processor: String,
        /// `xnack`, `sramecc`.
        features: BTreeMap<String, bool>,
    },
    /// An NVIDIA GPU, by its compute capability.
    Nvidia {
        /// 12 in 12.0.
        major: u32,
        /// 0 in 12.0.
        minor: u32,
        /// The major version of the driver, if known.
        driver: Option<u32>,
    },
    /// An x86-64 CPU, by its instruction set level: 1 to 4.
    X86(u8),
    /// Another CPU, by the first component of its triple.
    Cpu(String),
}

/// The properties of an image that decide whether it runs on a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Code<'a> {
    /// The device according to its container, else to its own header.
    pub(crate) target: &'a Target,
    /// Its format, as in reports.
    pub(crate) format: &'a str,
    /// The data of its ELF header.
    pub(crate) gpu: Option<&'a Gpu>,
    /// `EI_ABIVERSION` of its ELF header.
    pub(crate) abi_version: Option<u8>,
    /// The header of PTX.
    pub(crate) ptx: Option<&'a ptx::Head>,
}

/// Whether a device accepts an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fit {
    /// Yes, with a rank and a description. A runtime loads the accepted image with the highest
    /// rank.
    Yes(u32, String),
    /// No, with the reason.
    No(String),
    /// The available data does not decide it, with the reason.
    Unknown(String),
}

/// A device on a command line: `[KIND:][TRIPLE:]ARCH[:FEATURES]`. The triple alone is sufficient
/// for a CPU.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The runtime; `None` for any.
    pub(crate) kind: Option<OffloadKind>,
    /// The device.
    pub(crate) device: Device,
    /// An explanation if the user named a product or a compute capability instead of an
    /// architecture: `compute capability 8.6 is sm_86`.
    pub(crate) by_name: Option<String>,
}

impl Wanted {
    /// Parses a device.
    ///
    /// # Errors
    /// [`Error::Usage`] if `text` is not a device.
    pub(crate) fn parse(text: &str) -> Result<Wanted, Error> {
        let named = |kind: &OffloadKind| {
            text.strip_prefix(kind.name())
                .and_then(|rest| rest.strip_prefix(':'))
        };
        let (kind, rest) = match OffloadKind::ALL
            .into_iter()
            .find_map(|kind| Some((kind, named(&kind)?)))
        {
            Some((kind, rest)) => (Some(kind), rest),
            None => (None, text),
        };
        // The architecture of a GPU implies its triple.
        let (first, after) = rest.split_once(':').unwrap_or((rest, ""));
        let target = Target::new(first, "");
        let is_gpu = target.is_amdgcn() || target.is_nvptx();
        let arch = if is_gpu && !after.is_empty() {
            after
        } else {
            rest
        };
        let meant = if Device::parse(arch).is_none() {
            names::architecture(arch)
        } else {
            None
        };
        let device = Device::parse(meant.as_deref().unwrap_or(arch)).ok_or_else(|| {
            Error::usage(format!(
                "invalid device `{}`; examples: gfx90a:xnack+, sm_90, 9.0, h100, x86-64-v3, aarch64-linux-gnu, native",
                printable(text)
            ))
        })?;
        let by_name = meant.map(|meant| {
            let what = if arch.contains('.') {
                "compute capability "
            } else {
                ""
            };
            format!("{what}{} is {meant}", printable(arch))
        });
        Ok(Wanted {
            kind,
            device,
            by_name,
        })
    }
}

impl Device {
    fn parse(text: &str) -> Option<Device> {
        if text.starts_with("gfx") {
            let known = TargetId::of_triple("amdgcn-amd-amdhsa", text);
            let id = known.or_else(|| TargetId::parse(text).filter(|id| id.features.is_empty()))?;
            AmdArch::of_processor(id.processor)?;
            let features = id
                .features
                .into_iter()
                .map(|(name, on)| (name.to_owned(), on))
                .collect();
            return Some(Device::Amd {
                processor: id.processor.to_owned(),
                features,
            });
        }
        if let Some(number) = text.strip_prefix("sm_") {
            let (major, minor) = nvidia::capability(number.trim_end_matches(['a', 'f']))?;
            return Some(Device::Nvidia {
                major,
                minor,
                driver: None,
            });
        }
        if let Some(level) = x86_level(text) {
            return Some(Device::X86(level));
        }
        let target = Target::new(text, "");
        match target.arch_name() {
            "x86_64" | "amd64" if text.contains('-') => Some(Device::X86(1)),
            name if text.contains('-') && is_triple(text) && target.is_cpu() => {
                Some(Device::Cpu(name.to_owned()))
            }
            _ => None,
        }
    }

    /// Whether `target` is for hardware of this vendor, or for an intermediate language that the
    /// vendor's runtime accepts.
    pub(crate) fn is_of_vendor(&self, target: &Target) -> bool {
        match self {
            Device::Amd { .. } => {
                target.is_amdgcn() || target.is_spirv() && target.triple.contains("-amd")
            }
            Device::Nvidia { .. } => target.is_nvptx(),
            Device::X86(_) => target.is_cpu() && is_x86(target),
            Device::Cpu(name) => target.is_cpu() && target.arch_name() == name,
        }
    }

    /// The runtimes that drive such devices.
    pub(crate) fn kinds(&self) -> &'static [OffloadKind] {
        match self {
            Device::Amd { .. } => &[OffloadKind::OpenMp, OffloadKind::Hip],
            Device::Nvidia { .. } => &[OffloadKind::OpenMp, OffloadKind::Cuda],
            Device::X86(_) | Device::Cpu(_) => &[OffloadKind::OpenMp],
        }
    }

    /// Decides whether the device's runtime accepts an image.
    pub(crate) fn takes(&self, code: &Code<'_>) -> Fit {
        if code.target.triple.is_empty() && code.gpu.is_none() {
            return Fit::Unknown("no target is recorded".to_owned());
        }
        if !self.is_of_vendor(code.target) {
            return Fit::No(format!("built for {}", code.target));
        }
        if !matches!(
            code.format,
            "elf" | "cubin" | "ptx" | "spirv" | "bitcode" | "pe" | "mach-o" | "object"
        ) {
            return Fit::Unknown(format!("unsupported image format: {}", code.format));
        }
        match self {
            Device::Amd {
                processor,
                features,
            } => amd::takes(processor, features, code),
            Device::Nvidia {
                major,
                minor,
                driver,
            } => nvidia::takes((*major, *minor), *driver, code),
            Device::X86(level) => x86_takes(*level, code),
            Device::Cpu(_) => cpu_takes(code),
        }
    }

    /// The distance between this device and the target of an image that it rejects; the nearest
    /// image has the smallest distance.
    pub(crate) fn distance(&self, target: &Target) -> u32 {
        const OTHER_VENDOR: u32 = u32::MAX;
        if !self.is_of_vendor(target) {
            return OTHER_VENDOR;
        }
        match self {
            Device::Amd { processor, .. } => {
                amd::distance(processor, &target.target_id().unwrap_or_default())
            }
            Device::Nvidia { major, minor, .. } => nvidia::distance((*major, *minor), &target.arch),
            Device::X86(level) => x86_level(&target.arch)
                .map_or(OTHER_VENDOR - 1, |other| u32::from(other.abs_diff(*level))),
            Device::Cpu(_) => 0,
        }
    }

    /// The compiler flag for an image that this device accepts, for code of `kind`.
    pub(crate) fn flag(&self, kind: OffloadKind) -> String {
        match (self, kind) {
            (Device::Nvidia { major, minor, .. }, OffloadKind::Cuda) => {
                format!(
                    "--offload-arch=sm_{major}{minor} or, for nvcc, -gencode arch=compute_{major}{minor},code=sm_{major}{minor}"
                )
            }
            (Device::Nvidia { .. } | Device::Amd { .. }, _) => format!("--offload-arch={self}"),
            (Device::X86(1), _) => "-fopenmp-targets=x86_64-pc-linux-gnu".to_owned(),
            (Device::X86(level), _) => format!(
                "-fopenmp-targets=x86_64-pc-linux-gnu, with -Xopenmp-target=x86_64-pc-linux-gnu -march=x86-64-v{level} at most"
            ),
            (Device::Cpu(name), _) => format!("-fopenmp-targets={name}-linux-gnu"),
        }
    }
}

impl fmt::Display for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Device::Amd {
                processor,
                features,
            } => {
                f.write_str(processor)?;
                features
                    .iter()
                    .try_for_each(|(name, on)| write!(f, ":{name}{}", if *on { '+' } else { '-' }))
            }
            Device::Nvidia { major, minor, .. } => write!(f, "sm_{major}{minor}"),
            Device::X86(1) => f.write_str("x86-64"),
            Device::X86(level) => write!(f, "x86-64-v{level}"),
            Device::Cpu(name) => f.write_str(&printable(name)),
        }
    }
}

/// Returns the level of an architecture: 3 for `x86-64-v3`.
fn x86_level(arch: &str) -> Option<u8> {
    match arch {
        "x86-64" | "x86_64" | "x86-64-v1" => Some(1),
        "x86-64-v2" => Some(2),
        "x86-64-v3" => Some(3),
        "x86-64-v4" => Some(4),
        _ => None,
    }
}

fn is_x86(target: &Target) -> bool {
    matches!(target.arch_name(), "x86_64" | "amd64")
}

/// Whether an x86-64 CPU of level `device` runs an image. libomptarget's host plugin accepts any
/// image for the host's machine and ignores its architecture (LLVM's offload/plugins-nextgen/host).
/// If the image uses instructions that the CPU lacks, the program crashes. The levels are those of
/// the x86-64 psABI.
fn x86_takes(device: u8, code: &Code<'_>) -> Fit {
    if code.format == "bitcode" {
        return Fit::Unknown("LLVM bitcode, not linked yet".to_owned());
    }
    match x86_level(&code.target.arch) {
        _ if code.target.arch.is_empty() => Fit::Yes(1, "code for x86-64".to_owned()),
        Some(needed) if needed <= device => {
            Fit::Yes(u32::from(needed), format!("code for x86-64-v{needed}"))
        }
        Some(needed) => Fit::No(format!("requires the instructions of x86-64-v{needed}")),
        None => Fit::Unknown(format!(
            "built for {}; unknown whether the CPU has all of its instructions",
            code.target.arch
        )),
    }
}

/// The same for another CPU.
fn cpu_takes(code: &Code<'_>) -> Fit {
    match code.target.arch.as_str() {
        _ if code.format == "bitcode" => Fit::Unknown("LLVM bitcode, not linked yet".to_owned()),
        "" => Fit::Yes(1, format!("code for {}", code.target.arch_name())),
        arch => Fit::Unknown(format!(
            "built for {arch}; unknown whether the CPU has all of its instructions"
        )),
    }
}
