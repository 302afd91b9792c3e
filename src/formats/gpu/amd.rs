//! AMD GPUs in the ELF headers of images (source: LLVM's "User Guide for AMDGPU Backend", ELF
//! header). `amd_processors` lists the processors.

use super::Gpu;
use super::amd_processors::{PROCESSORS, Processor};
use crate::formats::elf::raw::FileHeader;
use object::elf;
use std::collections::BTreeMap;

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

/// The processor with this name or product name.
pub(super) fn processor(name: &str) -> Option<&'static Processor> {
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
pub(super) fn all() -> impl Iterator<Item = &'static str> {
    PROCESSORS.iter().map(|processor| processor.name)
}

/// The GPU according to the header of an AMD image. For an unknown processor, only the triple is
/// set.
pub(super) fn of_header(header: &FileHeader) -> Gpu {
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
        features: features(header, processor),
        generic_version: Some(version as u8)
            .filter(|version| header.ident.abi_version >= V6 && *version > 0),
        ..gpu
    }
}

/// The features that an image requires. Version 2 stores them in notes, which are not read.
fn features(header: &FileHeader, processor: &Processor) -> BTreeMap<&'static str, bool> {
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
