//! Devices to run images on, also by product name, and the rules for accepting an image: those of
//! CPUs and AMD here, those of NVIDIA in `nvidia`. `tests/cases/check/rules.txt` lists the rules as
//! cases, with the documents that specify them.

mod nvidia;
#[cfg(test)]
mod tests;

pub use nvidia::first_driver as first_driver_for_ptx;

use std::collections::BTreeMap;
use std::fmt;

use super::Target;
use super::selector::is_triple;
use crate::error::Error;
use crate::gpu::{AmdArch, Gpu, TargetId, features_of};
use crate::model::{OffloadKind, printable};
use crate::ptx;

/// A device, or all devices of one kind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Device {
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
pub struct Code<'a> {
    /// The device according to its container, else to its own header.
    pub target: &'a Target,
    /// Its format, as in reports.
    pub format: &'a str,
    /// The data of its ELF header.
    pub gpu: Option<&'a Gpu>,
    /// `EI_ABIVERSION` of its ELF header.
    pub abi_version: Option<u8>,
    /// The header of PTX.
    pub ptx: Option<&'a ptx::Head>,
}

/// Whether a device accepts an image.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fit {
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
pub struct Wanted {
    /// The runtime; `None` for any.
    pub kind: Option<OffloadKind>,
    /// The device.
    pub device: Device,
    /// An explanation if the user named a product or a compute capability instead of an
    /// architecture: `compute capability 8.6 is sm_86`.
    pub by_name: Option<String>,
}

impl Wanted {
    /// Parses a device.
    ///
    /// # Errors
    /// [`Error::Usage`] if `text` is not a device.
    pub fn parse(text: &str) -> Result<Wanted, Error> {
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
            architecture_of_product(arch)
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
    /// The device with each combination of settings of the features whose setting is unknown.
    pub fn with_each_setting(&self) -> Vec<Device> {
        let Device::Amd {
            processor,
            features,
        } = self
        else {
            return vec![self.clone()];
        };
        let mut all = vec![features.clone()];
        for name in features_of(processor)
            .iter()
            .filter(|name| !features.contains_key(**name))
        {
            let with = |on: bool| {
                let mut settings = all.clone();
                for one in &mut settings {
                    one.insert((*name).to_owned(), on);
                }
                settings
            };
            all = [with(false), with(true)].concat();
        }
        let device = |features| Device::Amd {
            processor: processor.clone(),
            features,
        };
        all.into_iter().map(device).collect()
    }

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
    pub fn is_of_vendor(&self, target: &Target) -> bool {
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
    pub fn kinds(&self) -> &'static [OffloadKind] {
        match self {
            Device::Amd { .. } => &[OffloadKind::OpenMp, OffloadKind::Hip],
            Device::Nvidia { .. } => &[OffloadKind::OpenMp, OffloadKind::Cuda],
            Device::X86(_) | Device::Cpu(_) => &[OffloadKind::OpenMp],
        }
    }

    /// Decides whether the device's runtime accepts an image.
    pub fn takes(&self, code: &Code<'_>) -> Fit {
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
            } => amd_takes(processor, features, code),
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
    pub fn distance(&self, target: &Target) -> u32 {
        const OTHER_VENDOR: u32 = u32::MAX;
        if !self.is_of_vendor(target) {
            return OTHER_VENDOR;
        }
        match self {
            Device::Amd { processor, .. } => {
                amd_distance(processor, &target.target_id().unwrap_or_default())
            }
            Device::Nvidia { major, minor, .. } => nvidia::distance((*major, *minor), &target.arch),
            Device::X86(level) => x86_level(&target.arch)
                .map_or(OTHER_VENDOR - 1, |other| u32::from(other.abs_diff(*level))),
            Device::Cpu(_) => 0,
        }
    }

    /// The compiler flag for an image that this device accepts, for code of `kind`.
    pub fn flag(&self, kind: OffloadKind) -> String {
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

/// Like `x86_takes`, for another CPU.
fn cpu_takes(code: &Code<'_>) -> Fit {
    match code.target.arch.as_str() {
        _ if code.format == "bitcode" => Fit::Unknown("LLVM bitcode, not linked yet".to_owned()),
        "" => Fit::Yes(1, format!("code for {}", code.target.arch_name())),
        arch => Fit::Unknown(format!(
            "built for {arch}; unknown whether the CPU has all of its instructions"
        )),
    }
}

// AMD's rules (LLVM's "User Guide for AMDGPU Backend": Target ID, Generic Processors, Generic
// Processor Versioning, Code Object Metadata; ROCm's loader rejects all other images). The image
// must be for the processor or its family. The device must have each feature setting that the image
// requires. Code for families needs code object version 6.

/// `EI_ABIVERSION` of code object version 6, the first with generic processors.
const V6: u8 = 4;
/// `EI_ABIVERSION` of code object version 4, the first in which an unspecified feature means any
/// setting.
const V4: u8 = 2;
/// The generic processor version that contains all listed processors, for every family. If a
/// processor is added to a family later, it only runs code of the version that added it and of
/// newer ones.
const GENERIC_VERSION: u8 = 1;

/// Ranks of accepted images: code for the processor itself, plus 1 for each required feature; code
/// for its family; code that the runtime must compile first.
const OWN: u32 = 100;
const FAMILY: u32 = 50;
const COMPILED: u32 = 10;

fn amd_takes(processor: &str, features: &BTreeMap<String, bool>, code: &Code<'_>) -> Fit {
    if code.target.is_spirv() || code.format == "spirv" {
        return Fit::Yes(
            COMPILED,
            "SPIR-V, compiled by the runtime of ROCm 7 or later".to_owned(),
        );
    }
    if code.format == "bitcode" {
        return Fit::Unknown("LLVM bitcode, not linked yet".to_owned());
    }
    let id = code.target.target_id().unwrap_or_default();
    let header = code
        .gpu
        .map(|gpu| gpu.target_id())
        .filter(|id| !id.is_empty());
    let id = if id.is_empty() {
        header.as_deref().unwrap_or_default()
    } else {
        &id
    };
    let Some(image) = TargetId::parse(id) else {
        return Fit::Unknown("no processor is recorded".to_owned());
    };
    let is_own = image.processor == processor;
    let (Some(family), Some(device)) = (
        AmdArch::of_processor(image.processor),
        AmdArch::of_processor(processor),
    ) else {
        return Fit::Unknown(format!("unknown processor name {}", image.processor));
    };
    if !is_own && (family.is_strict() || device.is_strict()) && family.major() == device.major() {
        return Fit::Unknown(format!(
            "not documented whether {processor} runs code for {}",
            image.processor
        ));
    }
    if !is_own && !family.covers(&device) {
        return Fit::No(format!("built for {}", image.processor));
    }
    let mut own: BTreeMap<&str, bool> = image.features.clone();
    // Before version 4, a header has one bit for each feature, and none for "any".
    for (name, on) in code.gpu.iter().flat_map(|gpu| &gpu.features) {
        own.entry(name).or_insert(*on);
    }
    let mut open = Vec::new();
    for (name, on) in &own {
        match features.get(*name) {
            Some(set) if set == on => {}
            Some(set) => {
                let state = |on: bool| if on { "on" } else { "off" };
                return Fit::No(format!(
                    "built for {name} {}, but the device has {name} {}",
                    state(*on),
                    state(*set)
                ));
            }
            None => open.push(format!("{name}{}", if *on { '+' } else { '-' })),
        }
    }
    if !is_own && code.abi_version.is_some_and(|version| version < V6) {
        return Fit::No(format!(
            "{} needs code object version 6, but the image has an older one",
            image.processor
        ));
    }
    if !is_own
        && code
            .gpu
            .and_then(|gpu| gpu.generic_version)
            .is_some_and(|version| version < GENERIC_VERSION)
    {
        return Fit::No(format!(
            "built for a version of {} without {processor}",
            image.processor
        ));
    }
    if !open.is_empty() {
        return Fit::Unknown(format!(
            "requires {}: specify the device's setting ({processor}:{})",
            open.join(" and "),
            open.join(":")
        ));
    }
    if is_own {
        let how = if code.abi_version.is_some_and(|version| version < V4) {
            " in an old code object"
        } else {
            ""
        };
        return Fit::Yes(OWN + own.len() as u32, format!("code for {id}{how}"));
    }
    Fit::Yes(
        FAMILY,
        format!("code for {}, with ROCm 6.3 or later", image.processor),
    )
}

fn amd_distance(processor: &str, other: &str) -> u32 {
    let other = other.split(':').next().unwrap_or_default();
    let common = processor
        .bytes()
        .zip(other.bytes())
        .take_while(|(one, other)| one == other)
        .count() as u32;
    (processor.len().max(other.len()) as u32).saturating_sub(common)
}

// Product names of GPUs, and NVIDIA's compute capabilities.

/// Architectures and their products, for users who do not know the architecture: in lower case,
/// without spaces and dashes, without the names of the maker and the product family. Sources:
/// <https://developer.nvidia.com/cuda-gpus> and <https://developer.nvidia.com/cuda-legacy-gpus> for
/// NVIDIA, <https://rocm.docs.amd.com/en/latest/reference/gpu-arch-specs.html> for AMD.
const PRODUCTS: &[(&str, &[&str])] = &[
    ("sm_37", &["k80"]),
    ("sm_52", &["m40", "m60"]),
    ("sm_60", &["p100"]),
    (
        "sm_61",
        &["p4", "p40", "gtx1050", "gtx1060", "gtx1070", "gtx1080"],
    ),
    ("sm_70", &["v100", "titanv"]),
    ("sm_72", &["agxxavier", "xaviernx"]),
    (
        "sm_75",
        &[
            "t4", "gtx1650", "gtx1660", "rtx2060", "rtx2070", "rtx2080", "titanrtx",
        ],
    ),
    ("sm_80", &["a100", "a30"]),
    (
        "sm_86",
        &[
            "a2", "a10", "a16", "a40", "rtxa6000", "rtx3050", "rtx3060", "rtx3070", "rtx3080",
            "rtx3090",
        ],
    ),
    ("sm_87", &["agxorin", "orinnx", "orinnano"]),
    (
        "sm_89",
        &[
            "l4", "l40", "l40s", "rtx4050", "rtx4060", "rtx4070", "rtx4080", "rtx4090",
        ],
    ),
    ("sm_90", &["h100", "h200", "gh200"]),
    ("sm_100", &["b200", "gb200"]),
    ("sm_103", &["b300", "gb300"]),
    (
        "sm_120",
        &["rtx5050", "rtx5060", "rtx5070", "rtx5080", "rtx5090"],
    ),
    ("sm_121", &["gb10"]),
    ("gfx900", &["mi25", "vega56", "vega64"]),
    ("gfx906", &["mi50", "mi60", "vii"]),
    ("gfx908", &["mi100"]),
    ("gfx90a", &["mi210", "mi250", "mi250x"]),
    ("gfx942", &["mi300a", "mi300x", "mi325x"]),
    ("gfx950", &["mi350x", "mi355x"]),
    (
        "gfx1030",
        &["rx6800", "rx6800xt", "rx6900xt", "rx6950xt", "w6800"],
    ),
    (
        "gfx1100",
        &["rx7900xt", "rx7900xtx", "rx7900gre", "w7800", "w7900"],
    ),
    ("gfx1101", &["rx7700xt", "rx7800xt", "w7700"]),
    ("gfx1102", &["rx7600"]),
    ("gfx1200", &["rx9060xt"]),
    ("gfx1201", &["rx9070", "rx9070xt"]),
];

/// Prefixes for the maker and the product family, which do not affect the architecture.
const MAKERS: [&str; 8] = [
    "nvidia", "amd", "geforce", "tesla", "jetson", "radeon", "instinct", "pro",
];

/// Returns the architecture of `name`: a compute capability such as `8.6`, or a product such as
/// `rtx4090` or `MI300X`.
fn architecture_of_product(name: &str) -> Option<String> {
    if let Some((major, minor)) = name.split_once('.') {
        let is_number = |text: &str, most: usize| {
            (1..=most).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit())
        };
        return (is_number(major, 2) && is_number(minor, 1)).then(|| format!("sm_{major}{minor}"));
    }
    let mut product: String = name
        .chars()
        .filter(char::is_ascii_alphanumeric)
        .collect::<String>()
        .to_ascii_lowercase();
    while let Some(rest) = MAKERS.iter().find_map(|maker| product.strip_prefix(maker)) {
        product = rest.to_owned();
    }
    // `Ti` and `Super` variants have the architecture of the plain product.
    let plain = product.trim_end_matches("super").trim_end_matches("ti");
    let has = |products: &[&str]| {
        products.contains(&product.as_str()) || plain != product && products.contains(&plain)
    };
    PRODUCTS
        .iter()
        .find(|(_, products)| has(products))
        .map(|(architecture, _)| (*architecture).to_owned())
}
