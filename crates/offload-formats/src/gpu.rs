//! GPUs and their spellings: processors and features, their form in target IDs, and their encoding
//! in the ELF headers of images.
//!
//! ```
//! use offload_formats::gpu::TargetId;
//!
//! let id = TargetId::parse("gfx90a:sramecc+:xnack-").ok_or("malformed")?;
//! assert_eq!((id.processor, id.features["xnack"]), ("gfx90a", false));
//! assert!(TargetId::parse("gfx90a:xnack").is_none());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod tests;

use std::borrow::Cow;
use std::collections::BTreeMap;

use anyhow::Result;
use object::elf;

use crate::elf::raw::{Class, FileHeader};
use crate::elf::section;
use crate::error::Error;
use crate::kernels::cubin_attributes;

/// Intel GPUs (`EM_INTELGT`).
pub const EM_INTELGT: elf::Machine = elf::Machine(205);

/// The GPU of an image, according to its ELF header.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Gpu {
    /// The triple in LLVM's spelling for such images.
    pub triple: &'static str,
    /// The processor: `gfx90a`, `sm_90a`. Empty if the header has no known processor.
    pub processor: String,
    /// AMD: the features that the code requires, and whether they are on.
    pub features: BTreeMap<&'static str, bool>,
    /// AMD: the version of a generic processor (since code object version 6).
    pub generic_version: Option<u8>,
}

impl Gpu {
    fn of_triple(triple: &'static str) -> Self {
        Gpu {
            triple,
            processor: String::new(),
            features: BTreeMap::new(),
            generic_version: None,
        }
    }

    /// The GPU of the ELF file `image`, or `None` if it is not for a GPU. Fails if `image` is not
    /// an ELF file or if a section that names the processor is damaged.
    pub fn of_elf(image: &[u8]) -> Result<Option<Self>, Error> {
        let (class, header) = FileHeader::read(image)?;
        Ok(Some(match header.machine {
            elf::EM_AMDGPU => of_amd_header(&header),
            elf::EM_CUDA => of_cubin_header(image, class, &header).map_err(Error::malformed)?,
            EM_INTELGT => Gpu::of_triple("spirv64-intel"),
            _ => return Ok(None),
        }))
    }

    /// The processor with its features: `gfx90a:xnack+`.
    pub fn target_id(&self) -> String {
        TargetId {
            processor: &self.processor,
            features: self.features.clone(),
        }
        .to_string()
    }
}

/// Whether ELF files for this machine are always for a GPU.
pub fn is_gpu(machine: elf::Machine) -> bool {
    matches!(machine, elf::EM_AMDGPU | elf::EM_CUDA | EM_INTELGT)
}

// Target IDs: a processor and the features that its code requires, such as
// `gfx90a:sramecc+:xnack-`.

/// The components of a target ID.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct TargetId<'a> {
    /// The processor.
    pub processor: &'a str,
    /// The specified features, and whether they are on.
    pub features: BTreeMap<&'a str, bool>,
}

impl<'a> TargetId<'a> {
    /// Parses `text`. Unknown processors and features are accepted. `None` if there is no
    /// processor, or a feature lacks a name or a sign or occurs twice.
    pub fn parse(text: &'a str) -> Option<Self> {
        let mut parts = text.split(':');
        let processor = parts.next().filter(|name| !name.is_empty())?;
        let mut features = BTreeMap::new();
        for feature in parts {
            let name = feature
                .strip_suffix(['+', '-'])
                .filter(|name| !name.is_empty())?;
            if features.insert(name, feature.ends_with('+')).is_some() {
                return None;
            }
        }
        Some(TargetId {
            processor,
            features,
        })
    }

    /// Parses the target ID `text` for `triple` and replaces a product name by the processor's
    /// name. `None` if it is invalid. For AMD, the processor must be known, match the triple and
    /// have all features. For others, there must be no feature.
    pub fn of_triple(triple: &str, text: &'a str) -> Option<Self> {
        let parsed = TargetId::parse(text)?;
        let (processor, known): (&str, &[&str]) = match AmdArch::of_triple(triple) {
            Some(arch) => {
                let known = amd_processor(parsed.processor)?;
                AmdArch::of_processor(known.name).filter(|named| arch.agrees(named))?;
                (known.name, known.features)
            }
            // Processors of r600 have no target IDs.
            None if triple.split('-').next() == Some("r600") => return None,
            None => (parsed.processor, &[]),
        };
        let all_known = parsed.features.keys().all(|name| known.contains(name));
        all_known.then_some(TargetId {
            processor,
            features: parsed.features,
        })
    }
}

/// Formats the ID as compilers do, with features in alphabetical order.
impl std::fmt::Display for TargetId<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.processor)?;
        self.features
            .iter()
            .try_for_each(|(name, on)| write!(f, ":{name}{}", if *on { '+' } else { '-' }))
    }
}

/// Normalizes an AMD target ID to the compilers' spelling: the processor's name instead of a
/// product name, and features in alphabetical order. Any other text is returned unchanged.
pub fn canonical_target_id(text: &str) -> String {
    let parsed = TargetId::parse(text)
        .and_then(|parsed| Some((amd_processor(parsed.processor)?, parsed.features)));
    parsed.map_or_else(
        || text.to_owned(),
        |(known, features)| {
            TargetId {
                processor: known.name,
                features,
            }
            .to_string()
        },
    )
}

/// Processors whose names follow no pattern.
const IRREGULAR_NAMES: [&str; 4] = ["amdgcnspirv", "generic", "bmg_g21", "graniterapids"];

/// Whether `name` is a processor and therefore not part of a triple. Unlisted names with a known
/// prefix count, so that IDs for future processors can be split.
pub fn is_processor(name: &str) -> bool {
    let consists_of = |rest: &str, more: &str| {
        !rest.is_empty()
            && rest
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || more.contains(c))
    };
    amd_processor(name).is_some()
        || IRREGULAR_NAMES.contains(&name)
        || name
            .strip_prefix("gfx")
            .is_some_and(|rest| consists_of(rest, "-"))
        || name
            .strip_prefix("sm_")
            .is_some_and(|rest| consists_of(rest, ""))
}

// AMD architectures in triples: `amdgcn`, and `amdgpu`, which LLVM 23 treats as equal. Since LLVM
// 24, `amdgpu` may have the version of a processor: `amdgpu9.08` is gfx908, and `amdgpu9` is the
// whole family of gfx9-generic. (Source: LLVM's "User Guide for AMDGPU Backend", subarchitecture
// compatibility.)

/// The first component of an AMD GPU's triple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmdArch<'a> {
    /// The version after `amdgpu`, in its main spelling. Empty if the component does not name a
    /// processor.
    version: Cow<'a, str>,
}

/// The suffix of the version of a processor's first revision, if that needs separate code
/// (llvm/llvm-project#218543).
const STRICT: &str = "s";

/// Alternative spellings of major versions.
const OTHER_SPELLINGS: [(&str, &str); 2] = [("9.5", "9.4"), ("10", "10.1")];

impl<'a> AmdArch<'a> {
    /// Parses `amdgcn`, `amdgpu`, `amdgpuN`, `amdgpuN.M` or `amdgpuN.MM`. `None` for other text.
    /// Unknown versions are accepted.
    pub fn parse(name: &'a str) -> Option<Self> {
        if name == "amdgcn" {
            return Some(AmdArch {
                version: Cow::Borrowed(""),
            });
        }
        let version = name.strip_prefix("amdgpu")?;
        let (major, minor) = version
            .split_once('.')
            .map_or((version, None), |(major, minor)| (major, Some(minor)));
        let hexadecimal = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        // gfx1250-strict is `amdgpu12.50s`.
        let is_minor = |minor: &str| {
            let digits = minor
                .strip_suffix(STRICT)
                .filter(|digits| digits.len() == 2)
                .unwrap_or(minor);
            matches!(digits.len(), 1 | 2) && digits.bytes().all(hexadecimal)
        };
        let well_formed = major.bytes().all(|c| c.is_ascii_digit())
            && (version.is_empty() || !major.is_empty())
            && minor.is_none_or(is_minor);
        well_formed.then(|| AmdArch {
            version: Cow::Borrowed(main_spelling(version)),
        })
    }

    /// The architecture of `triple`, or `None` if the triple is not for an AMD GPU.
    pub fn of_triple(triple: &'a str) -> Option<Self> {
        AmdArch::parse(triple.split('-').next().unwrap_or_default())
    }

    /// The architecture of the processor in a target ID: `amdgpu9.0a` for `gfx90a:xnack+`,
    /// `amdgpu9.4` for `gfx9-4-generic`. `None` for names of another form.
    pub fn of_processor(target_id: &str) -> Option<AmdArch<'static>> {
        let number = target_id
            .split(':')
            .next()
            .unwrap_or_default()
            .strip_prefix("gfx")?;
        let version = match number.strip_suffix("-generic") {
            Some(family) => family.replace('-', "."),
            None => {
                let (number, strict) = number
                    .strip_suffix("-strict")
                    .map_or((number, ""), |number| (number, STRICT));
                let (major, minor) = number.split_at_checked(number.len().checked_sub(2)?)?;
                format!("{major}.{minor}{strict}")
            }
        };
        let found =
            AmdArch::parse(&format!("amdgpu{version}")).map(|found| found.version.into_owned());
        found
            .filter(|version| !version.is_empty())
            .map(|version| AmdArch {
                version: Cow::Owned(version),
            })
    }

    /// Whether the architecture names no processor: `amdgcn` and `amdgpu`.
    pub fn is_any(&self) -> bool {
        self.version.is_empty()
    }

    /// Whether the architecture is a family of processors.
    fn is_major(&self) -> bool {
        let minor = self.version.split_once('.').map_or("", |(_, minor)| minor);
        !self.is_any() && minor.len() < 2
    }

    /// The processor's name, such as `gfx908` or `gfx9-generic`. `None` if the architecture names
    /// no processor, or a major version without a generic processor.
    pub fn processor(&self) -> Option<String> {
        if self.is_any() {
            return None;
        }
        if self.is_major() {
            return FAMILIES
                .iter()
                .find(|(major, _)| *major == self.version)
                .and_then(|(_, name)| name.map(str::to_owned));
        }
        let number = self.version.replace('.', "");
        Some(
            match number.strip_suffix(STRICT).filter(|_| self.is_strict()) {
                Some(number) => format!("gfx{number}-strict"),
                None => format!("gfx{number}"),
            },
        )
    }

    /// Whether this is a revision of a processor that needs separate code: gfx1250-strict is the
    /// first revision of gfx1250.
    pub(crate) fn is_strict(&self) -> bool {
        self.version
            .split_once('.')
            .is_some_and(|(_, minor)| minor.len() > 2 && minor.ends_with(STRICT))
    }

    /// The generation: 9 for gfx90a and gfx9-4-generic. Empty if the architecture names no
    /// processor.
    pub(crate) fn major(&self) -> &str {
        self.version.split('.').next().unwrap_or_default()
    }

    /// A unique name, even for architectures without a processor: `gfx6-generic`.
    pub(crate) fn device_name(&self) -> String {
        self.processor()
            .unwrap_or_else(|| format!("gfx{}-generic", self.version.replace('.', "-")))
    }

    /// Whether code for this architecture is also code for `other`: this one names no processor,
    /// the same one, or the family of `other`.
    pub fn covers(&self, other: &AmdArch<'_>) -> bool {
        let is_named = |name: &str| other.processor().is_some_and(|processor| processor == name);
        let family = || {
            PROCESSORS
                .iter()
                .find(|row| is_named(row.name))
                .map(|row| row.family)
        };
        self.is_any()
            || self.version == other.version
            || (self.is_major() && family() == Some(&*self.version))
    }

    /// Whether both may name the same device, as LLVM compares triples: one covers the other. Two
    /// different processors never agree.
    pub fn agrees(&self, other: &AmdArch<'_>) -> bool {
        self.covers(other) || other.covers(self)
    }
}

fn main_spelling(version: &str) -> &str {
    OTHER_SPELLINGS
        .iter()
        .find(|(other, _)| *other == version)
        .map_or(version, |(_, main)| *main)
}

// AMD GPUs in the ELF headers of images (source: LLVM's "User Guide for AMDGPU Backend", ELF
// header). `PROCESSORS` lists the processors.

/// `EI_OSABI` of images for AMD's HSA.
const ELFOSABI_AMDGPU_HSA: elf::OsAbi = elf::OsAbi(64);
/// The processor bits of `e_flags`.
const EF_AMDGPU_MACH: u32 = 0xff;
/// Code object version 3: one bit per feature, set if the feature is on.
const EF_AMDGPU_FEATURE_XNACK_V3: u32 = 0x100;
const EF_AMDGPU_FEATURE_SRAMECC_V3: u32 = 0x200;
/// Code object version 4 and later: the lowest of two bits per feature, and their values. The other
/// values mean "not supported" and "any".
const EF_AMDGPU_FEATURE_XNACK_V4: u32 = 8;
const EF_AMDGPU_FEATURE_SRAMECC_V4: u32 = 10;
const OFF_V4: u32 = 2;
const ON_V4: u32 = 3;
/// Code object version 6 and later: the lowest bit of a generic processor's version.
const EF_AMDGPU_GENERIC_VERSION: u32 = 24;
/// The `EI_ABIVERSION` values of code object versions 2, 3 and 6 with HSA.
const V2: u8 = 0;
const V3: u8 = 1;
const V6: u8 = 4;

/// The features that target IDs of `processor` may specify, in alphabetical order.
pub(crate) fn features_of(processor: &str) -> &'static [&'static str] {
    amd_processor(processor).map_or(&[], |processor| processor.features)
}

/// The processor with this name or product name.
fn amd_processor(name: &str) -> Option<&'static Processor> {
    let by_other_name = || {
        PROCESSORS
            .iter()
            .find(|processor| processor.other_names.contains(&name))
    };
    PROCESSORS
        .iter()
        .find(|processor| processor.name == name)
        .or_else(by_other_name)
}

#[cfg(test)]
fn all_amd_processors() -> impl Iterator<Item = &'static str> {
    PROCESSORS.iter().map(|processor| processor.name)
}

/// The GPU according to the header of an AMD image. For an unknown processor, only the triple is
/// set.
fn of_amd_header(header: &FileHeader) -> Gpu {
    let flags = header.flags.0;
    let gpu = Gpu::of_triple("amdgcn-amd-amdhsa");
    let Some(processor) = PROCESSORS
        .iter()
        .find(|processor| processor.mach == flags & EF_AMDGPU_MACH)
    else {
        return gpu;
    };
    let version = flags >> EF_AMDGPU_GENERIC_VERSION;
    Gpu {
        processor: processor.name.to_owned(),
        features: amd_features(header, processor),
        generic_version: Some(version as u8)
            .filter(|version| header.ident.abi_version >= V6 && *version > 0),
        ..gpu
    }
}

/// The features that an image requires. Version 2 stores them in notes, which are not read.
fn amd_features(header: &FileHeader, processor: &Processor) -> BTreeMap<&'static str, bool> {
    let (flags, hsa) = (header.flags.0, header.ident.os_abi == ELFOSABI_AMDGPU_HSA);
    let is_on = |name: &str| {
        let sramecc = name == "sramecc";
        match header.ident.abi_version {
            V2 if hsa => None,
            // Images that are neither for HSA nor of a later version use the bits of version 3.
            V2 | V3 => {
                let bit = if sramecc {
                    EF_AMDGPU_FEATURE_SRAMECC_V3
                } else {
                    EF_AMDGPU_FEATURE_XNACK_V3
                };
                Some(flags & bit != 0)
            }
            _ => match flags
                >> (if sramecc {
                    EF_AMDGPU_FEATURE_SRAMECC_V4
                } else {
                    EF_AMDGPU_FEATURE_XNACK_V4
                })
                & 3
            {
                OFF_V4 => Some(false),
                ON_V4 => Some(true),
                _ => None,
            },
        }
    };
    processor
        .features
        .iter()
        .filter_map(|name| Some((*name, is_on(name)?)))
        .collect()
}

/// A processor of AMD: its number in image headers, its family, the features that its target ID may
/// specify, and its product names.
struct Processor {
    /// `EF_AMDGPU_MACH_AMDGCN_*` of images.
    mach: u32,
    /// The name: `gfx90a`.
    name: &'static str,
    /// The major version of the family, as in [`FAMILIES`]. Empty if there is none.
    family: &'static str,
    /// The features that target IDs may specify, in alphabetical order.
    features: &'static [&'static str],
    /// Product names, which compilers accept too.
    other_names: &'static [&'static str],
}

const fn amd(
    mach: u32,
    name: &'static str,
    family: &'static str,
    features: &'static [&'static str],
    other_names: &'static [&'static str],
) -> Processor {
    Processor {
        mach,
        name,
        family,
        features,
        other_names,
    }
}

const NONE: &[&str] = &[];
const XNACK: &[&str] = &["xnack"];
const BOTH: &[&str] = &["sramecc", "xnack"];

/// AMD's processors.
///
/// Sources: LLVM 22's "User Guide for AMDGPU Backend" (processors, generic processors, ELF header)
/// for rows marked LLVM 22. The other rows name the LLVM change, and their numbers are in
/// `llvm/include/llvm/BinaryFormat/ELF.h`.
#[rustfmt::skip]
const PROCESSORS: [Processor; 62] = [
    amd(0x20, "gfx600", "6", NONE, &["tahiti"]), // LLVM 22
    amd(0x21, "gfx601", "6", NONE, &["pitcairn", "verde"]), // LLVM 22
    amd(0x22, "gfx700", "7", NONE, &["kaveri"]), // LLVM 22
    amd(0x23, "gfx701", "7", NONE, &["hawaii"]), // LLVM 22
    amd(0x24, "gfx702", "7", NONE, &[]), // LLVM 22
    amd(0x25, "gfx703", "7", NONE, &["kabini", "mullins"]), // LLVM 22
    amd(0x26, "gfx704", "7", NONE, &["bonaire"]), // LLVM 22
    amd(0x28, "gfx801", "8", XNACK, &["carrizo"]), // LLVM 22
    amd(0x29, "gfx802", "8", NONE, &["iceland", "tonga"]), // LLVM 22
    amd(0x2a, "gfx803", "8", NONE, &["fiji", "polaris10", "polaris11"]), // LLVM 22
    amd(0x2b, "gfx810", "", XNACK, &["stoney"]), // LLVM 22
    amd(0x2c, "gfx900", "9", XNACK, &[]), // LLVM 22
    amd(0x2d, "gfx902", "9", XNACK, &[]), // LLVM 22
    amd(0x2e, "gfx904", "9", XNACK, &[]), // LLVM 22
    amd(0x2f, "gfx906", "9", BOTH, &[]), // LLVM 22
    amd(0x30, "gfx908", "", BOTH, &[]), // LLVM 22
    amd(0x31, "gfx909", "9", XNACK, &[]), // LLVM 22
    amd(0x32, "gfx90c", "9", XNACK, &[]), // LLVM 22
    amd(0x33, "gfx1010", "10.1", XNACK, &[]), // LLVM 22
    amd(0x34, "gfx1011", "10.1", XNACK, &[]), // LLVM 22
    amd(0x35, "gfx1012", "10.1", XNACK, &[]), // LLVM 22
    amd(0x36, "gfx1030", "10.3", NONE, &[]), // LLVM 22
    amd(0x37, "gfx1031", "10.3", NONE, &[]), // LLVM 22
    amd(0x38, "gfx1032", "10.3", NONE, &[]), // LLVM 22
    amd(0x39, "gfx1033", "10.3", NONE, &[]), // LLVM 22
    amd(0x3a, "gfx602", "6", NONE, &["hainan", "oland"]), // LLVM 22
    amd(0x3b, "gfx705", "7", NONE, &[]), // LLVM 22
    amd(0x3c, "gfx805", "8", NONE, &["tongapro"]), // LLVM 22
    amd(0x3d, "gfx1035", "10.3", NONE, &[]), // LLVM 22
    amd(0x3e, "gfx1034", "10.3", NONE, &[]), // LLVM 22
    amd(0x3f, "gfx90a", "", BOTH, &[]), // LLVM 22
    amd(0x41, "gfx1100", "11", NONE, &[]), // LLVM 22
    amd(0x42, "gfx1013", "10.1", XNACK, &[]), // LLVM 22
    amd(0x43, "gfx1150", "11", NONE, &[]), // LLVM 22
    amd(0x44, "gfx1103", "11", NONE, &[]), // LLVM 22
    amd(0x45, "gfx1036", "10.3", NONE, &[]), // LLVM 22
    amd(0x46, "gfx1101", "11", NONE, &[]), // LLVM 22
    amd(0x47, "gfx1102", "11", NONE, &[]), // LLVM 22
    amd(0x48, "gfx1200", "12", NONE, &[]), // LLVM 22
    amd(0x49, "gfx1250", "12.5", NONE, &[]), // LLVM 22
    amd(0x4a, "gfx1151", "11", NONE, &[]), // LLVM 22
    amd(0x4c, "gfx942", "9.4", BOTH, &[]), // LLVM 22
    amd(0x4e, "gfx1201", "12", NONE, &[]), // LLVM 22
    amd(0x4f, "gfx950", "9.4", BOTH, &[]), // LLVM 22
    amd(0x50, "gfx1310", "13", NONE, &[]), // llvm/llvm-project#177355
    amd(0x51, "gfx9-generic", "", XNACK, &[]), // LLVM 22
    amd(0x52, "gfx10-1-generic", "", XNACK, &[]), // LLVM 22
    amd(0x53, "gfx10-3-generic", "", NONE, &[]), // LLVM 22
    amd(0x54, "gfx11-generic", "", NONE, &[]), // LLVM 22
    amd(0x55, "gfx1152", "11", NONE, &[]), // LLVM 22
    amd(0x57, "gfx1154", "11", NONE, &[]), // llvm/llvm-project#204816
    amd(0x58, "gfx1153", "11", NONE, &[]), // LLVM 22
    amd(0x59, "gfx12-generic", "", NONE, &[]), // LLVM 22
    amd(0x5a, "gfx1251", "12.5", NONE, &[]), // LLVM 22
    amd(0x5b, "gfx12-5-generic", "", NONE, &[]), // llvm/llvm-project#183381
    amd(0x5c, "gfx1172", "11.7", NONE, &[]), // llvm/llvm-project#187735
    amd(0x5d, "gfx1170", "11.7", NONE, &[]), // llvm/llvm-project#180185
    amd(0x5e, "gfx1171", "11.7", NONE, &[]), // llvm/llvm-project#187735
    amd(0x5f, "gfx9-4-generic", "", BOTH, &[]), // LLVM 22
    amd(0x62, "gfx11-7-generic", "", NONE, &[]), // llvm/llvm-project#205363
    amd(0x63, "gfx13-generic", "", NONE, &[]), // llvm/llvm-project#205363
    amd(0xeb, "gfx1250-strict", "", NONE, &[]), // llvm/llvm-project#218543
];

/// The major versions of AMD's processors, each with the generic processor that covers it, if there
/// is one. Processors without a family have instructions that no generic processor has (gfx810,
/// gfx908, gfx90a).
const FAMILIES: [(&str, Option<&str>); 12] = [
    ("6", None),
    ("7", None),
    ("8", None),
    ("9", Some("gfx9-generic")),
    ("9.4", Some("gfx9-4-generic")),
    ("10.1", Some("gfx10-1-generic")),
    ("10.3", Some("gfx10-3-generic")),
    ("11", Some("gfx11-generic")),
    ("11.7", Some("gfx11-7-generic")),
    ("12", Some("gfx12-generic")),
    ("12.5", Some("gfx12-5-generic")),
    ("13", Some("gfx13-generic")),
];

// NVIDIA GPUs in cubins. NVIDIA does not document the format; the source is the output of
// `cuobjdump -elf` for cubins of CUDA 11 to 13.
//
// A letter after the number means code for that processor only, not for later ones (`sm_90a`).
// Cubins do not mark code for a family (`sm_100f`), so it is reported as `sm_100`, as in cuobjdump.

/// The first ABI version with another layout of `e_flags` (CUDA 12.8 for `sm_100`, CUDA 13 for
/// all).
const SECOND_LAYOUT: u8 = 8;
/// The flag for code that runs on one processor only, in the first and in the second layout.
const ACCELERATORS_V1: u32 = 0x800;
const ACCELERATORS: u32 = 0x8;
/// The first processor with code that runs on no other processor (`sm_90a`).
const FIRST_EXACT: u32 = 90;
/// CUDA 13 no longer sets `ACCELERATORS`. Instead, this section has this attribute with the value
/// 1.
const COMPATIBILITY: &[u8] = b".nv.compat";
const ACCELERATOR_TARGET: u8 = 9;

/// The GPU according to the header of the cubin `image`.
fn of_cubin_header(image: &[u8], class: Class, header: &FileHeader) -> Result<Gpu> {
    let flags = header.flags.0;
    let (number, exact) = if header.ident.abi_version < SECOND_LAYOUT {
        (flags & 0xff, flags & ACCELERATORS_V1 != 0)
    } else {
        (
            flags >> 8 & 0xff,
            flags & ACCELERATORS != 0 || has_attribute(image)?,
        )
    };
    // Some cubins for earlier processors have the flag, too: those for SGEMM in cuBLAS.
    let exact = exact && number >= FIRST_EXACT;
    let triple = if class.is_64 {
        "nvptx64-nvidia-cuda"
    } else {
        "nvptx-nvidia-cuda"
    };
    let letter = if exact { "a" } else { "" };
    Ok(Gpu {
        processor: format!("sm_{number}{letter}"),
        ..Gpu::of_triple(triple)
    })
}

fn has_attribute(image: &[u8]) -> Result<bool> {
    let Some(contents) = section(image, COMPATIBILITY)? else {
        return Ok(false);
    };
    let all = cubin_attributes(contents, ".nv.compat")?;
    Ok(all
        .iter()
        .any(|(attribute, value)| *attribute == ACCELERATOR_TARGET && value.first() == Some(&1)))
}
