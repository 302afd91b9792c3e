//! CPUs' rules: libomptarget's plugin for the host takes any image for the host's machine and does not look at its architecture
//! (LLVM's offload/plugins-nextgen/host); an image with instructions that the processor lacks then dies of them. The levels of
//! x86-64 are those of the x86-64 psABI.

use super::{Code, Fit};
use crate::target::Target;

/// The level that an architecture names: of `x86-64-v3`, 3.
pub(super) fn level(arch: &str) -> Option<u8> {
    match arch {
        "x86-64" | "x86_64" | "x86-64-v1" => Some(1),
        "x86-64-v2" => Some(2),
        "x86-64-v3" => Some(3),
        "x86-64-v4" => Some(4),
        _ => None,
    }
}

pub(super) fn is_x86(target: &Target) -> bool {
    matches!(target.arch_name(), "x86_64" | "amd64")
}

pub(super) fn takes(device: u8, code: &Code<'_>) -> Fit {
    if code.format == "bitcode" {
        return Fit::Unknown("it is LLVM bitcode, which is not linked yet".to_owned());
    }
    match level(&code.target.arch) {
        _ if code.target.arch.is_empty() => Fit::Yes(1, "code for every such processor".to_owned()),
        Some(needed) if needed <= device => Fit::Yes(u32::from(needed), format!("code for x86-64-v{needed}")),
        Some(needed) => Fit::No(format!("it needs the instructions of x86-64-v{needed}")),
        None => Fit::Unknown(format!("it is for {}, and which of its instructions there are is not known", code.target.arch)),
    }
}

pub(super) fn takes_other(code: &Code<'_>) -> Fit {
    match code.target.arch.as_str() {
        _ if code.format == "bitcode" => Fit::Unknown("it is LLVM bitcode, which is not linked yet".to_owned()),
        "" => Fit::Yes(1, "code for every such processor".to_owned()),
        arch => Fit::Unknown(format!("it is for {arch}, and which of its instructions there are is not known")),
    }
}
