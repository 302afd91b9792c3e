//! AMD's GPUs: the table of processors, with the number that an image's header has for each, the features that its target id may
//! fix, and the other names it goes by. (Source: LLVM's "User Guide for AMDGPU Backend", processors and ELF header.)

use super::Gpu;
use crate::formats::elf::raw::FileHeader;
use object::elf;
use std::collections::BTreeMap;

/// A processor.
pub(super) struct Processor {
    /// `EF_AMDGPU_MACH_AMDGCN_*` of an image for it.
    mach: u32,
    /// Its name, `gfx90a`.
    pub name: &'static str,
    /// The features that a target id for it may fix, in alphabetical order.
    pub features: &'static [&'static str],
    /// Product names, which compilers accept as well.
    other_names: &'static [&'static str],
}

const fn amd(
    mach: u32,
    name: &'static str,
    features: &'static [&'static str],
    other_names: &'static [&'static str],
) -> Processor {
    Processor { mach, name, features, other_names }
}

const NONE: &[&str] = &[];
const XNACK: &[&str] = &["xnack"];
const BOTH: &[&str] = &["sramecc", "xnack"];

const PROCESSORS: [Processor; 53] = [
    amd(0x20, "gfx600", NONE, &["tahiti"]),
    amd(0x21, "gfx601", NONE, &["pitcairn", "verde"]),
    amd(0x22, "gfx700", NONE, &["kaveri"]),
    amd(0x23, "gfx701", NONE, &["hawaii"]),
    amd(0x24, "gfx702", NONE, &[]),
    amd(0x25, "gfx703", NONE, &["kabini", "mullins"]),
    amd(0x26, "gfx704", NONE, &["bonaire"]),
    amd(0x28, "gfx801", XNACK, &["carrizo"]),
    amd(0x29, "gfx802", NONE, &["iceland", "tonga"]),
    amd(0x2a, "gfx803", NONE, &["fiji", "polaris10", "polaris11"]),
    amd(0x2b, "gfx810", XNACK, &["stoney"]),
    amd(0x2c, "gfx900", XNACK, &[]),
    amd(0x2d, "gfx902", XNACK, &[]),
    amd(0x2e, "gfx904", XNACK, &[]),
    amd(0x2f, "gfx906", BOTH, &[]),
    amd(0x30, "gfx908", BOTH, &[]),
    amd(0x31, "gfx909", XNACK, &[]),
    amd(0x32, "gfx90c", XNACK, &[]),
    amd(0x33, "gfx1010", XNACK, &[]),
    amd(0x34, "gfx1011", XNACK, &[]),
    amd(0x35, "gfx1012", XNACK, &[]),
    amd(0x36, "gfx1030", NONE, &[]),
    amd(0x37, "gfx1031", NONE, &[]),
    amd(0x38, "gfx1032", NONE, &[]),
    amd(0x39, "gfx1033", NONE, &[]),
    amd(0x3a, "gfx602", NONE, &["hainan", "oland"]),
    amd(0x3b, "gfx705", NONE, &[]),
    amd(0x3c, "gfx805", NONE, &["tongapro"]),
    amd(0x3d, "gfx1035", NONE, &[]),
    amd(0x3e, "gfx1034", NONE, &[]),
    amd(0x3f, "gfx90a", BOTH, &[]),
    amd(0x41, "gfx1100", NONE, &[]),
    amd(0x42, "gfx1013", XNACK, &[]),
    amd(0x43, "gfx1150", NONE, &[]),
    amd(0x44, "gfx1103", NONE, &[]),
    amd(0x45, "gfx1036", NONE, &[]),
    amd(0x46, "gfx1101", NONE, &[]),
    amd(0x47, "gfx1102", NONE, &[]),
    amd(0x48, "gfx1200", NONE, &[]),
    amd(0x49, "gfx1250", NONE, &[]),
    amd(0x4a, "gfx1151", NONE, &[]),
    amd(0x4c, "gfx942", BOTH, &[]),
    amd(0x4e, "gfx1201", NONE, &[]),
    amd(0x4f, "gfx950", BOTH, &[]),
    amd(0x51, "gfx9-generic", XNACK, &[]),
    amd(0x52, "gfx10-1-generic", XNACK, &[]),
    amd(0x53, "gfx10-3-generic", NONE, &[]),
    amd(0x54, "gfx11-generic", NONE, &[]),
    amd(0x55, "gfx1152", NONE, &[]),
    amd(0x58, "gfx1153", NONE, &[]),
    amd(0x59, "gfx12-generic", NONE, &[]),
    amd(0x5a, "gfx1251", NONE, &[]),
    amd(0x5f, "gfx9-4-generic", BOTH, &[]),
];

/// `EI_OSABI` of images for AMD's HSA.
const ELFOSABI_AMDGPU_HSA: elf::OsAbi = elf::OsAbi(64);
/// The bits of `e_flags` with the processor.
const EF_AMDGPU_MACH: u32 = 0xff;
/// Code object version 3: one bit for each feature, set if it is on.
const EF_AMDGPU_FEATURE_XNACK_V3: u32 = 0x100;
const EF_AMDGPU_FEATURE_SRAMECC_V3: u32 = 0x200;
/// Code object version 4 and later: the first of the two bits for each feature, and their values; the others mean "not supported"
/// and "any".
const EF_AMDGPU_FEATURE_XNACK_V4: u32 = 8;
const EF_AMDGPU_FEATURE_SRAMECC_V4: u32 = 10;
const OFF_V4: u32 = 2;
const ON_V4: u32 = 3;
/// Code object version 6 and later: the first bit of the version of a generic processor.
const EF_AMDGPU_GENERIC_VERSION: u32 = 24;
/// `EI_ABIVERSION` under HSA: code object version 2, 3, 4, 6.
const V2: u8 = 0;
const V3: u8 = 1;
const V6: u8 = 4;

/// The processor with this name or product name.
pub(super) fn processor(name: &str) -> Option<&'static Processor> {
    let by_other_name = || PROCESSORS.iter().find(|processor| processor.other_names.contains(&name));
    PROCESSORS.iter().find(|processor| processor.name == name).or_else(by_other_name)
}

/// The names of all processors.
#[cfg(test)]
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    PROCESSORS.iter().map(|processor| processor.name)
}

/// What the header of an image for AMD says. Of a processor that is not known, nothing but that it is AMD's.
pub(super) fn of_header(header: &FileHeader) -> Gpu {
    let flags = header.flags.0;
    let gpu = Gpu::of_triple("amdgcn-amd-amdhsa");
    let Some(processor) = PROCESSORS.iter().find(|processor| processor.mach == flags & EF_AMDGPU_MACH) else { return gpu };
    let version = flags >> EF_AMDGPU_GENERIC_VERSION;
    Gpu {
        processor: processor.name.to_owned(),
        features: features(header, processor),
        generic_version: Some(version as u8).filter(|version| header.ident.abi_version >= V6 && *version > 0),
        ..gpu
    }
}

/// The features that an image fixes. Version 2 has them in notes, which are not read.
fn features(header: &FileHeader, processor: &Processor) -> BTreeMap<&'static str, bool> {
    let (flags, hsa) = (header.flags.0, header.ident.os_abi == ELFOSABI_AMDGPU_HSA);
    let is_on = |name: &str| {
        let sramecc = name == "sramecc";
        match header.ident.abi_version {
            V2 if hsa => None,
            // What is neither for HSA nor of a later version has the bits of version 3.
            V2 | V3 => {
                let bit = if sramecc { EF_AMDGPU_FEATURE_SRAMECC_V3 } else { EF_AMDGPU_FEATURE_XNACK_V3 };
                Some(flags & bit != 0)
            }
            _ => match flags >> (if sramecc { EF_AMDGPU_FEATURE_SRAMECC_V4 } else { EF_AMDGPU_FEATURE_XNACK_V4 }) & 3 {
                OFF_V4 => Some(false),
                ON_V4 => Some(true),
                _ => None,
            },
        }
    };
    processor.features.iter().filter_map(|name| Some((*name, is_on(name)?))).collect()
}
