//! Comparison of an image with its label in the container: its own header names a processor and
//! features, too.

use super::report::Image;
use super::units::MACHINES;
use crate::formats::gpu::{AmdArch, TargetId};
use crate::model::printable;
use crate::target::Target;

/// `EI_ABIVERSION` of AMD's code object version 4. From this version on, a header can record that a
/// feature may have any setting.
const AMD_V4: u8 = 2;

/// ELF machines of code that Intel's compilers generate ahead of time, by the first component of
/// its triple (intel/llvm, sycl/doc/design/CompilerAndRuntimeDesign.md, "Ahead of time"). Machine 0
/// belongs to Intel's own ELF form of OpenCL binaries, which ocloc uses for its member `generic_ir`
/// (intel/compute-runtime, device_binary_format_ar.cpp).
const INTEL_AOT: [(&str, &[&str]); 6] = [
    ("spir64_gen", &["intelgt", NO_MACHINE]),
    ("spirv64_gen", &["intelgt", NO_MACHINE]),
    ("spir_gen", &["intelgt", NO_MACHINE]),
    ("spir64_x86_64", &["x86-64", NO_MACHINE]),
    ("spirv64_x86_64", &["x86-64", NO_MACHINE]),
    ("spir_x86_64", &["x86-64", "i386", NO_MACHINE]),
];
/// `EM_NONE`, as in reports.
const NO_MACHINE: &str = "0";

/// An image with a wrong label in its container.
#[derive(Debug)]
pub(crate) struct Disagreement {
    /// The error, by its name in reports: `wrong-triple`, `wrong-target`, `wrong-feature`.
    pub(crate) what: &'static str,
    /// The error as a message.
    pub(crate) text: String,
}

/// Whether Intel's compilers can make an ELF file for this machine for the target `label`.
fn fits_intel(label: &Target, machine: &str) -> bool {
    match INTEL_AOT
        .iter()
        .find(|(triple, _)| *triple == label.arch_name())
    {
        Some((_, machines)) => machines.contains(&machine),
        // Other targets get SPIR-V, which may be in an ELF file for Intel's GPUs. The forms of
        // further devices (FPGAs) are unknown.
        None => machine == "intelgt" || is_number(machine) || label.arch_name().ends_with("_fpga"),
    }
}

/// Whether a machine has no name in reports.
fn is_number(machine: &str) -> bool {
    machine.bytes().all(|byte| byte.is_ascii_digit())
}

/// The device in the header of an image, for messages.
fn device_in_header(image: &Image, machine: &str) -> String {
    match &image.choice.gpu {
        Some(gpu) => Target::new(gpu.triple, &gpu.target_id()).to_string(),
        None if is_number(machine) => format!("ELF machine {machine}"),
        None => machine.to_owned(),
    }
}

/// How the header of an image contradicts the device in its container; none if both agree, or if
/// the header names no device.
pub(crate) fn disagreement(image: &Image) -> Option<Disagreement> {
    let label = Target::new(&image.triple, &image.target);
    let disagree = |what, header: String| {
        let text = format!(
            "image {} is labelled as {label}, but its own header is for {}",
            image.index,
            printable(&header)
        );
        Some(Disagreement { what, text })
    };
    if label.arch_name().starts_with("spir") && !label.triple.contains("-amd") {
        let machine = image.machine.as_deref()?;
        return if fits_intel(&label, machine) {
            None
        } else {
            disagree("wrong-triple", device_in_header(image, machine))
        };
    }
    let Some(gpu) = &image.choice.gpu else {
        let machine = image.machine.as_deref()?;
        let names = MACHINES
            .iter()
            .find(|(known, _)| *known == machine)
            .map(|(_, names)| *names);
        let agrees = |names: &[&str]| names.iter().any(|name| label.arch_name().starts_with(name));
        return if label.triple.is_empty()
            || names.is_some_and(agrees)
            || names.is_none() && label.is_cpu()
        {
            None
        } else {
            disagree("wrong-triple", device_in_header(image, machine))
        };
    };
    let own = Target::new(gpu.triple, &gpu.target_id());
    let same_vendor = label.triple.is_empty()
        || label.is_amdgcn() && own.is_amdgcn()
        || label.is_nvptx() && own.is_nvptx()
        || label.is_spirv() && own.is_spirv();
    if !same_vendor {
        return disagree("wrong-triple", own.to_string());
    }
    let id = label.target_id().unwrap_or_default();
    let (Some(wanted), false) = (TargetId::parse(&id), gpu.processor.is_empty()) else {
        return None;
    };
    if own.is_nvptx() {
        // A cubin does not record whether its code is for a family, and the fatbinary does not
        // always record whether it is for one processor.
        let number = |name: &str| name.trim_end_matches(['a', 'f']).to_owned();
        return if number(wanted.processor) == number(&gpu.processor) {
            None
        } else {
            disagree("wrong-target", own.to_string())
        };
    }
    if AmdArch::of_processor(wanted.processor) != AmdArch::of_processor(&gpu.processor) {
        return disagree("wrong-target", own.to_string());
    }
    let distinguishes_any = image
        .choice
        .abi_version
        .is_some_and(|version| version >= AMD_V4);
    let differs = gpu
        .features
        .iter()
        .any(|(name, on)| match wanted.features.get(name) {
            Some(labelled) => labelled != on,
            None => distinguishes_any,
        });
    if differs {
        disagree("wrong-feature", own.to_string())
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_that_intel_compiles_ahead_of_time_is_what_its_triple_says() {
        for (triple, machine, fits) in [
            ("spir64_gen-unknown-unknown-unknown", "intelgt", true),
            ("spir64_gen-unknown-unknown-unknown", "0", true),
            ("spirv64_gen-unknown-unknown", "intelgt", true),
            ("spir64_x86_64-unknown-unknown", "x86-64", true),
            ("spir64_x86_64-unknown-unknown", "0", true),
            ("spir64-unknown-unknown", "intelgt", true),
            ("spir64_fpga-unknown-unknown", "62000", true),
            ("spirv64-intel", "intelgt", true),
            ("spir64_gen-unknown-unknown", "x86-64", false),
            ("spir64_x86_64-unknown-unknown", "intelgt", false),
            ("spirv64-intel", "x86-64", false),
            ("spir64-unknown-unknown", "cuda", false),
        ] {
            assert_eq!(
                fits_intel(&Target::new(triple, ""), machine),
                fits,
                "{triple} {machine}"
            );
        }
    }
}
