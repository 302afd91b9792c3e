//! Rules for CPUs. libomptarget's host plugin accepts any image for the host's machine and ignores
//! its architecture (LLVM's offload/plugins-nextgen/host). If the image uses instructions that the
//! CPU lacks, the program crashes. The x86-64 levels are those of the x86-64 psABI.

use super::{Code, Fit};
use crate::target::Target;

/// Returns the level of an architecture: 3 for `x86-64-v3`.
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
        return Fit::Unknown("LLVM bitcode, not linked yet".to_owned());
    }
    match level(&code.target.arch) {
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

pub(super) fn takes_other(code: &Code<'_>) -> Fit {
    match code.target.arch.as_str() {
        _ if code.format == "bitcode" => Fit::Unknown("LLVM bitcode, not linked yet".to_owned()),
        "" => Fit::Yes(1, format!("code for {}", code.target.arch_name())),
        arch => Fit::Unknown(format!(
            "built for {arch}; unknown whether the CPU has all of its instructions"
        )),
    }
}
