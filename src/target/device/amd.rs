//! AMD's rules (LLVM's "User Guide for AMDGPU Backend": Target ID, Generic Processors, Generic Processor Versioning, Code Object
//! Metadata; ROCm's loader refuses what is not in them): the processor is the image's own or of its family, each feature that the
//! image fixes is set so on the device, and families have code object version 6.

use std::collections::BTreeMap;

use super::{Code, Fit};
use crate::formats::gpu::{AmdArch, TargetId};

/// `EI_ABIVERSION` of code object version 6, the first that has generic processors.
const V6: u8 = 4;
/// `EI_ABIVERSION` of code object version 4, the first in which a feature that is not named is any.
const V4: u8 = 2;
/// The version of each generic processor that the listed ones are in: all of them, so far. A processor that comes into a family
/// later runs code of that and later versions only.
const GENERIC_VERSION: u8 = 1;

/// What is taken rather: the same processor, with as many features as are named; a family; what has to be compiled first.
const OWN: u32 = 100;
const FAMILY: u32 = 50;
const COMPILED: u32 = 10;

pub(super) fn takes(processor: &str, features: &BTreeMap<String, bool>, code: &Code<'_>) -> Fit {
    if code.target.is_spirv() || code.format == "spirv" {
        return Fit::Yes(COMPILED, "SPIR-V, which the runtime compiles when it is loaded (ROCm 7 or later)".to_owned());
    }
    if code.format == "bitcode" {
        return Fit::Unknown("it is LLVM bitcode, which is not linked yet".to_owned());
    }
    let id = code.target.target_id().unwrap_or_default();
    let header = code.gpu.map(|gpu| gpu.target_id()).filter(|id| !id.is_empty());
    let id = if id.is_empty() { header.as_deref().unwrap_or_default() } else { &id };
    let Some(image) = TargetId::parse(id) else { return Fit::Unknown("it does not say for which processor it is".to_owned()) };
    let is_own = image.processor == processor;
    let (Some(family), Some(device)) = (AmdArch::of_processor(image.processor), AmdArch::of_processor(processor)) else {
        return Fit::Unknown(format!("{} is no name of a known form", image.processor));
    };
    if !is_own && !family.covers(&device) {
        return Fit::No(format!("it is for {}", image.processor));
    }
    let mut own: BTreeMap<&str, bool> = image.features.clone();
    // Before version 4, a header has a bit for each feature, and none for "any".
    for (name, on) in code.gpu.iter().flat_map(|gpu| &gpu.features) {
        own.entry(name).or_insert(*on);
    }
    let mut open = Vec::new();
    for (name, on) in &own {
        match features.get(*name) {
            Some(set) if set == on => {}
            Some(set) => {
                let state = |on: bool| if on { "on" } else { "off" };
                return Fit::No(format!("it is for {name} {}, and that is {}", state(*on), state(*set)));
            }
            None => open.push(format!("{name}{}", if *on { '+' } else { '-' })),
        }
    }
    if !is_own && code.abi_version.is_some_and(|version| version < V6) {
        return Fit::No(format!("{} needs code object version 6, and it has an older one", image.processor));
    }
    if !is_own && code.gpu.and_then(|gpu| gpu.generic_version).is_some_and(|version| version < GENERIC_VERSION) {
        return Fit::No(format!("it is of a version of {} that does not have {processor} yet", image.processor));
    }
    if !open.is_empty() {
        return Fit::Unknown(format!(
            "it runs only with {}: say which the device has ({processor}:{})",
            open.join(" and "),
            open.join(":")
        ));
    }
    if is_own {
        let how = if code.abi_version.is_some_and(|version| version < V4) {
            "the same processor, as an old code object"
        } else {
            "the same processor"
        };
        return Fit::Yes(OWN + own.len() as u32, how.to_owned());
    }
    Fit::Yes(FAMILY, format!("{} covers it (ROCm 6.3 or later)", image.processor))
}

pub(super) fn distance(processor: &str, other: &str) -> u32 {
    let other = other.split(':').next().unwrap_or_default();
    let common = processor.bytes().zip(other.bytes()).take_while(|(one, other)| one == other).count() as u32;
    (processor.len().max(other.len()) as u32).saturating_sub(common)
}
