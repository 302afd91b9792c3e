//! Whether an image is what its container says: its own header names a processor and features, too.

use super::report::Image;
use super::units::MACHINES;
use crate::formats::gpu::{AmdArch, TargetId};
use crate::model::printable;
use crate::target::Target;

/// `EI_ABIVERSION` of AMD's code object version 4: from there on a header tells a feature that is any.
const AMD_V4: u8 = 2;
/// An image that is not what its container says.
#[derive(Debug)]
pub(crate) struct Disagreement {
    /// What is wrong, by the name that reports have for it: `wrong-triple`, `wrong-target`, `wrong-feature`.
    pub(crate) what: &'static str,
    /// The same for people.
    pub(crate) text: String,
}

/// How an image's own header is not of the device that its container says; none where both agree, or the header does not tell.
pub(crate) fn disagreement(image: &Image) -> Option<Disagreement> {
    let said = Target::new(&image.triple, &image.target);
    let what = |what, of: String| {
        let text = format!("image {} is said to be for {said}, and its own header is of {}", image.index, printable(&of));
        Some(Disagreement { what, text })
    };
    let Some(gpu) = &image.choice.gpu else {
        let machine = image.machine.as_deref()?;
        let names = MACHINES.iter().find(|(known, _)| *known == machine).map(|(_, names)| *names);
        let agrees = |names: &[&str]| names.iter().any(|name| said.arch_name().starts_with(name));
        return if said.triple.is_empty() || names.is_some_and(agrees) || names.is_none() && said.is_cpu() {
            None
        } else {
            what("wrong-triple", machine.to_owned())
        };
    };
    let own = Target::new(gpu.triple, &gpu.target_id());
    let same_vendor = said.triple.is_empty()
        || said.is_amdgcn() && own.is_amdgcn()
        || said.is_nvptx() && own.is_nvptx()
        || said.is_spirv() && own.is_spirv();
    if !same_vendor {
        return what("wrong-triple", own.to_string());
    }
    let id = said.target_id().unwrap_or_default();
    let (Some(wanted), false) = (TargetId::parse(&id), gpu.processor.is_empty()) else { return None };
    if own.is_nvptx() {
        // A cubin does not tell code for a family, and the fatbinary not always code for one processor.
        let number = |name: &str| name.trim_end_matches(['a', 'f']).to_owned();
        return if number(wanted.processor) == number(&gpu.processor) { None } else { what("wrong-target", own.to_string()) };
    }
    if AmdArch::of_processor(wanted.processor) != AmdArch::of_processor(&gpu.processor) {
        return what("wrong-target", own.to_string());
    }
    let any_is_told = image.choice.abi_version.is_some_and(|version| version >= AMD_V4);
    let differs = gpu.features.iter().any(|(name, on)| match wanted.features.get(name) {
        Some(said) => said != on,
        None => any_is_told,
    });
    if differs { what("wrong-feature", own.to_string()) } else { None }
}
