//! Devices that images are to run on, and the rules by which each vendor's runtime takes an image for one: `amd`, `nvidia` and `cpu`
//! have a vendor's each. `tests/cases/check/rules.txt` has them as cases, with the documents that say so.

mod amd;
mod cpu;
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
    /// AMD's: the processor, and the features of which it is known whether they are on.
    Amd {
        /// `gfx90a`.
        processor: String,
        /// `xnack`, `sramecc`.
        features: BTreeMap<String, bool>,
    },
    /// NVIDIA's, by its compute capability.
    Nvidia {
        /// Of 12.0, the 12.
        major: u32,
        /// Of 12.0, the 0.
        minor: u32,
        /// The major version of its driver, where that is known.
        driver: Option<u32>,
    },
    /// An x86-64 processor, by the level of its instructions: 1 to 4.
    X86(u8),
    /// Another CPU, by the first component of its triple.
    Cpu(String),
}

/// What decides whether an image runs on a device.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Code<'a> {
    /// The device that its container, else its own header, says it is for.
    pub(crate) target: &'a Target,
    /// Its format, as reports have it.
    pub(crate) format: &'a str,
    /// What its ELF header says.
    pub(crate) gpu: Option<&'a Gpu>,
    /// `EI_ABIVERSION` of its ELF header.
    pub(crate) abi_version: Option<u8>,
    /// The head of PTX.
    pub(crate) ptx: Option<&'a ptx::Head>,
}

/// Whether a device takes an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Fit {
    /// It does: of several the one with the highest rank; and how.
    Yes(u32, String),
    /// It does not, and why.
    No(String),
    /// What is known does not decide it, and why.
    Unknown(String),
}

/// A device as a command line names it: `[KIND:][TRIPLE:]ARCH[:FEATURES]`, with a CPU also by its triple alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Wanted {
    /// The runtime that is meant; none for any.
    pub(crate) kind: Option<OffloadKind>,
    /// The device.
    pub(crate) device: Device,
}

impl Wanted {
    /// Reads a device.
    ///
    /// # Errors
    /// [`Error::Usage`] says what is wrong with `text`.
    pub(crate) fn parse(text: &str) -> Result<Wanted, Error> {
        let named = |kind: &OffloadKind| text.strip_prefix(kind.name()).and_then(|rest| rest.strip_prefix(':'));
        let (kind, rest) = match OffloadKind::ALL.into_iter().find_map(|kind| Some((kind, named(&kind)?))) {
            Some((kind, rest)) => (Some(kind), rest),
            None => (None, text),
        };
        // A GPU's triple says nothing that its architecture does not say.
        let (first, after) = rest.split_once(':').unwrap_or((rest, ""));
        let target = Target::new(first, "");
        let of_gpu = target.is_amdgcn() || target.is_nvptx();
        let arch = if of_gpu && !after.is_empty() { after } else { rest };
        let device = Device::parse(arch).ok_or_else(|| {
            Error::usage(format!(
                "`{}` is no device; examples are gfx90a:xnack+, sm_90, x86-64-v3, aarch64-linux-gnu, native",
                printable(text)
            ))
        })?;
        Ok(Wanted { kind, device })
    }
}

impl Device {
    fn parse(text: &str) -> Option<Device> {
        if text.starts_with("gfx") {
            let known = TargetId::of_triple("amdgcn-amd-amdhsa", text);
            let id = known.or_else(|| TargetId::parse(text).filter(|id| id.features.is_empty()))?;
            AmdArch::of_processor(id.processor)?;
            let features = id.features.into_iter().map(|(name, on)| (name.to_owned(), on)).collect();
            return Some(Device::Amd { processor: id.processor.to_owned(), features });
        }
        if let Some(number) = text.strip_prefix("sm_") {
            let (major, minor) = nvidia::capability(number.trim_end_matches(['a', 'f']))?;
            return Some(Device::Nvidia { major, minor, driver: None });
        }
        if let Some(level) = cpu::level(text) {
            return Some(Device::X86(level));
        }
        let target = Target::new(text, "");
        match target.arch_name() {
            "x86_64" | "amd64" if text.contains('-') => Some(Device::X86(1)),
            name if text.contains('-') && is_triple(text) && target.is_cpu() => Some(Device::Cpu(name.to_owned())),
            _ => None,
        }
    }

    /// Whether `target` is for hardware of this vendor, or for an intermediate language that its runtime takes.
    pub(crate) fn is_of_vendor(&self, target: &Target) -> bool {
        match self {
            Device::Amd { .. } => target.is_amdgcn() || target.is_spirv() && target.triple.contains("-amd"),
            Device::Nvidia { .. } => target.is_nvptx(),
            Device::X86(_) => target.is_cpu() && cpu::is_x86(target),
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

    /// Whether its runtime takes an image.
    pub(crate) fn takes(&self, code: &Code<'_>) -> Fit {
        if !self.is_of_vendor(code.target) {
            return Fit::No(format!("it is for {}", code.target));
        }
        if !matches!(code.format, "elf" | "cubin" | "ptx" | "spirv" | "bitcode" | "pe" | "mach-o" | "object") {
            return Fit::Unknown(format!("its format is {}", code.format));
        }
        match self {
            Device::Amd { processor, features } => amd::takes(processor, features, code),
            Device::Nvidia { major, minor, driver } => nvidia::takes((*major, *minor), *driver, code),
            Device::X86(level) => cpu::takes(*level, code),
            Device::Cpu(_) => cpu::takes_other(code),
        }
    }

    /// How far the device is from the one of an image that it does not take, to tell the nearest of several: less is nearer.
    pub(crate) fn distance(&self, target: &Target) -> u32 {
        const ELSEWHERE: u32 = u32::MAX;
        if !self.is_of_vendor(target) {
            return ELSEWHERE;
        }
        match self {
            Device::Amd { processor, .. } => amd::distance(processor, &target.target_id().unwrap_or_default()),
            Device::Nvidia { major, minor, .. } => nvidia::distance((*major, *minor), &target.arch),
            Device::X86(level) => cpu::level(&target.arch).map_or(ELSEWHERE - 1, |other| u32::from(other.abs_diff(*level))),
            Device::Cpu(_) => 0,
        }
    }

    /// What a compiler has to be told for an image that this device takes, for code of `kind`.
    pub(crate) fn flag(&self, kind: OffloadKind) -> String {
        match (self, kind) {
            (Device::Nvidia { major, minor, .. }, OffloadKind::Cuda) => {
                format!("--offload-arch=sm_{major}{minor} (nvcc: -gencode arch=compute_{major}{minor},code=sm_{major}{minor})")
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
            Device::Amd { processor, features } => {
                f.write_str(processor)?;
                features.iter().try_for_each(|(name, on)| write!(f, ":{name}{}", if *on { '+' } else { '-' }))
            }
            Device::Nvidia { major, minor, .. } => write!(f, "sm_{major}{minor}"),
            Device::X86(1) => f.write_str("x86-64"),
            Device::X86(level) => write!(f, "x86-64-v{level}"),
            Device::Cpu(name) => f.write_str(&printable(name)),
        }
    }
}
