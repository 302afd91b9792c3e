//! AMD's rules (LLVM's "User Guide for AMDGPU Backend": Target ID, Generic Processors, Generic
//! Processor Versioning, Code Object Metadata; ROCm's loader rejects all other images). The image
//! must be for the processor or its family. The device must have each feature setting that the
//! image requires. Code for families needs code object version 6.

use std::collections::BTreeMap;

use super::{Code, Fit};
use crate::formats::gpu::{AmdArch, TargetId};

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

pub(super) fn takes(processor: &str, features: &BTreeMap<String, bool>, code: &Code<'_>) -> Fit {
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

pub(super) fn distance(processor: &str, other: &str) -> u32 {
    let other = other.split(':').next().unwrap_or_default();
    let common = processor
        .bytes()
        .zip(other.bytes())
        .take_while(|(one, other)| one == other)
        .count() as u32;
    (processor.len().max(other.len()) as u32).saturating_sub(common)
}
