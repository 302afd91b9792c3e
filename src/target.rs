//! Device targets: a triple and an architecture or AMDGPU target id. Decides which names are of one device, which image may be used
//! for which target, and defines the total order of images (ARCHITECTURE.md, "One total order of images"; target ids:
//! docs/spec/containers.md 3).

pub(crate) mod device;
mod selector;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::hash::{Hash, Hasher};

pub use selector::Selector;

use crate::formats::gpu::{AmdArch, TargetId};
use crate::model::printable;

/// The device that an image is for, as its image names it. `""` and `generic` are the same architecture, which means any. AMD's
/// devices have two names, `amdgcn-amd-amdhsa` with `gfx908` and, from LLVM 24 on, `amdgpu9.08-amd-amdhsa` with or without it: both
/// are equal here, and so is everything that is decided by comparing targets (docs/spec/containers.md 3.7).
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Target {
    /// The triple, without trailing dashes.
    pub triple: String,
    /// The architecture or target id; empty for any.
    pub arch: String,
}

impl Target {
    /// The target of an image stored with these strings.
    pub fn new(triple: &str, arch: &str) -> Self {
        let arch = if arch == "generic" { "" } else { arch };
        Target { triple: triple.trim_end_matches('-').to_owned(), arch: arch.to_owned() }
    }

    /// The first component of the triple as spelled: `x86_64`, `amdgcn`, `powerpc64le`.
    pub fn arch_name(&self) -> &str {
        self.triple.split('-').next().unwrap_or_default()
    }

    /// Whether this is an AMD GPU, under its old or its new name, whose architecture is a target id.
    pub fn is_amdgcn(&self) -> bool {
        AmdArch::of_triple(&self.triple).is_some()
    }

    /// Of an AMD GPU, what its triple and its target id say of the processor: the target id wins.
    pub fn amd_arch(&self) -> Option<AmdArch<'_>> {
        let named = AmdArch::of_triple(&self.triple)?;
        Some(AmdArch::of_processor(&self.arch).unwrap_or(named))
    }

    /// Whether the triple alone names an AMD processor or a family of them.
    pub fn triple_names_processor(&self) -> bool {
        AmdArch::of_triple(&self.triple).is_some_and(|named| !named.is_any())
    }

    /// Whether triple and target id can be of one device: not `amdgpu9.00-amd-amdhsa` with `gfx803`.
    pub fn is_consistent(&self) -> bool {
        match (AmdArch::of_triple(&self.triple), AmdArch::of_processor(&self.arch)) {
            (Some(named), Some(processor)) => named.agrees(&processor),
            _ => true,
        }
    }

    /// The target id, where there is none the processor that the triple names; none if it names a family without a processor.
    pub fn target_id(&self) -> Option<Cow<'_, str>> {
        match AmdArch::of_triple(&self.triple) {
            Some(named) if self.arch.is_empty() && !named.is_any() => named.processor().map(Cow::Owned),
            _ => Some(Cow::Borrowed(&self.arch)),
        }
    }

    /// The device under the name that is the same for all its names.
    pub fn device(&self) -> (Cow<'_, str>, Cow<'_, str>) {
        let Some(named) = AmdArch::of_triple(&self.triple) else {
            return (Cow::Borrowed(&self.triple), Cow::Borrowed(&self.arch));
        };
        let triple = match self.triple.split_once('-') {
            _ if self.arch_name() == "amdgcn" => Cow::Borrowed(self.triple.as_str()),
            Some((_, rest)) => Cow::Owned(format!("amdgcn-{rest}")),
            None => Cow::Borrowed("amdgcn"),
        };
        let by_triple = self.arch.is_empty() && !named.is_any();
        (triple, if by_triple { Cow::Owned(named.device_name()) } else { Cow::Borrowed(self.arch.as_str()) })
    }

    /// The same device under the name that says most, this one or that of `other`, an input for it: `amdgpu9.08` is preferred to
    /// `amdgpu9`, that to `amdgpu`, and that to `amdgcn`, since whatever reads the newer name reads the older one, too. Any order
    /// of inputs gives the same name.
    pub fn named_like(mut self, other: &Target) -> Target {
        if self.arch.is_empty() && *other == self {
            self.arch.clone_from(&other.arch);
        }
        let rank = |target: &Target| target.is_amdgcn().then(|| (target.arch_name().len(), target.arch_name().to_owned()));
        let named = Target { triple: other.triple.clone(), arch: self.arch.clone() };
        if rank(other) > rank(&self) && named.is_consistent() && named == self { named } else { self }
    }

    /// Whether this is an NVIDIA GPU.
    pub fn is_nvptx(&self) -> bool {
        self.arch_name().starts_with("nvptx")
    }

    /// Whether this is SPIR-V, of any vendor.
    pub fn is_spirv(&self) -> bool {
        self.arch_name().starts_with("spirv")
    }

    /// Whether this is a CPU, whose images are shared objects: any target that is neither a GPU nor an intermediate language
    /// (docs/spec/faults.md F35).
    pub fn is_cpu(&self) -> bool {
        const NOT_CPU: [&str; 9] = ["amdgcn", "amdgpu", "r600", "nvptx", "spir", "wasm", "dxil", "hsail", "amdil"];
        !self.triple.is_empty() && !NOT_CPU.iter().any(|prefix| self.arch_name().starts_with(prefix))
    }

    /// Whether this is SPIR-V for Intel's OpenMP runtime, which needs it in a container of its own (docs/spec/link-driver.md 6.4).
    pub fn is_intel_spirv(&self) -> bool {
        self.is_spirv() && self.triple.split('-').nth(1) == Some("intel")
    }

    /// Whether an image for `self` may be linked into the image for `request`: if the targets are equal, or `self` is less
    /// specific: for any architecture, for a family of AMD's processors, or with fewer features. Never the other way round, so that
    /// the result does not depend on the order of inputs (docs/spec/faults.md F15).
    pub fn serves(&self, request: &Target) -> bool {
        let ((triple, arch), (wanted_triple, wanted_arch)) = (self.device(), request.device());
        if triple != wanted_triple {
            return false;
        }
        if arch.is_empty() || arch == wanted_arch {
            return true;
        }
        if !self.is_amdgcn() {
            return false;
        }
        let (mine, wanted) = (TargetId::parse(&arch), TargetId::parse(&wanted_arch));
        let (Some(mine), Some(wanted)) = (mine, wanted) else { return false };
        let same_setting = |(name, on)| wanted.features.get(name) == Some(on);
        let covered = || match (AmdArch::of_processor(mine.processor), AmdArch::of_processor(wanted.processor)) {
            (Some(mine), Some(wanted)) => mine.covers(&wanted),
            _ => false,
        };
        (mine.processor == wanted.processor || covered()) && mine.features.iter().all(same_setting)
    }
}

/// Two names of one device are equal.
impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        self.device() == other.device()
    }
}

impl Eq for Target {}

impl Hash for Target {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.device().hash(state);
    }
}

/// Triple descending, then architecture descending: a runtime takes the first image that fits, so the most specific target id of
/// a processor must come before the plain one (docs/spec/faults.md F16). The name by which a device is called does not matter.
impl Ord for Target {
    fn cmp(&self, other: &Self) -> Ordering {
        let ((triple, arch), (other_triple, other_arch)) = (self.device(), other.device());
        other_triple.cmp(&triple).then_with(|| other_arch.cmp(&arch))
    }
}

impl PartialOrd for Target {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.triple))?;
        if self.arch.is_empty() { Ok(()) } else { write!(f, " ({})", printable(&self.arch)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn amd(arch: &str) -> Target {
        Target::new("amdgcn-amd-amdhsa", arch)
    }

    #[test]
    fn f15_generic_serves_specific_and_never_the_reverse() {
        for (provided, request, fits) in [
            ("generic", "gfx90a", true),
            ("gfx90a", "generic", false),
            ("gfx90a", "gfx90a:xnack+", true),
            ("gfx90a:xnack+", "gfx90a", false),
            ("gfx90a:xnack+", "gfx90a:xnack-", false),
            ("gfx90a:xnack+", "gfx90a:sramecc+:xnack+", true),
            ("gfx908", "gfx90a", false),
            ("gfx90a:xnack+:xnack-", "gfx90a:xnack+", false),
        ] {
            assert_eq!(amd(provided).serves(&amd(request)), fits, "{provided} for {request}");
        }
        assert!(!Target::new("nvptx64-nvidia-cuda", "sm_80").serves(&Target::new("nvptx64-nvidia-cuda", "sm_90")));
    }

    #[test]
    fn one_amd_device_under_all_its_names() {
        let names = [
            Target::new("amdgcn-amd-amdhsa", "gfx908"),
            Target::new("amdgpu-amd-amdhsa", "gfx908"),
            Target::new("amdgpu9.08-amd-amdhsa", "gfx908"),
            Target::new("amdgpu9.08-amd-amdhsa", "generic"),
            Target::new("amdgpu9.08-amd-amdhsa", ""),
        ];
        for one in &names {
            assert!(one.is_amdgcn() && !one.is_cpu() && one.is_consistent(), "{one}");
            for other in &names {
                assert!(one == other && one.serves(other) && one.cmp(other) == Ordering::Equal, "{one} and {other}");
                let named = one.clone().named_like(other);
                assert!(named == *one && named.named_like(one) == *other, "{one} and {other}");
            }
        }
        let same = |order: [usize; 3]| {
            let [first, second, third] = order.map(|at| &names[at]);
            first.clone().named_like(second).named_like(third).to_string()
        };
        for order in [[0, 1, 4], [0, 4, 1], [1, 0, 4], [1, 4, 0], [4, 0, 1], [4, 1, 0]] {
            assert_eq!(same(order), "amdgpu9.08-amd-amdhsa (gfx908)");
        }
        assert_ne!(Target::new("amdgpu9.08-amd-amdpal", ""), names[0]);
        assert!(!Target::new("amdgpu9.00-amd-amdhsa", "gfx803").is_consistent());
        assert_eq!(names[3].target_id().as_deref(), Some("gfx908"));
        assert_eq!(Target::new("amdgpu6-amd-amdhsa", "").target_id(), None);
    }

    #[test]
    fn a_family_of_amd_serves_its_processors_and_no_processor_another() {
        let of = |version: &str, arch: &str| Target::new(&format!("amdgpu{version}-amd-amdhsa"), arch);
        for (provided, request, fits) in [
            (of("9", ""), of("9.00", ""), true),
            (of("9", ""), amd("gfx906:xnack+"), true),
            (amd("gfx9-generic"), of("9.06", ""), true),
            (of("9", "gfx9-generic:xnack+"), amd("gfx906"), false),
            (of("9", ""), of("9.08", ""), false),
            (of("9.00", ""), of("9", ""), false),
            (of("9.00", ""), of("9.06", ""), false),
            (of("6", ""), amd("gfx601"), true),
            (of("", ""), of("9.06", ""), true),
            (of("9.06", ""), of("", ""), false),
        ] {
            assert_eq!(provided.serves(&request), fits, "{provided} for {request}");
        }
    }

    #[test]
    fn f16_one_total_order() {
        let mut targets = [amd("gfx908"), Target::new("x86_64-pc-linux-gnu", ""), amd("gfx90a"), amd("gfx90a:xnack+")];
        targets.sort();
        let shown: Vec<String> = targets.iter().map(Target::to_string).collect();
        assert_eq!(
            shown,
            [
                "x86_64-pc-linux-gnu",
                "amdgcn-amd-amdhsa (gfx90a:xnack+)",
                "amdgcn-amd-amdhsa (gfx90a)",
                "amdgcn-amd-amdhsa (gfx908)"
            ]
        );
    }

    #[test]
    fn f35_any_cpu_is_a_cpu() {
        for triple in ["riscv64-unknown-linux-gnu", "arm-linux-gnueabihf", "x86_64-pc-linux-gnu", "s390x-linux-gnu"] {
            assert!(Target::new(triple, "generic").is_cpu(), "{triple}");
        }
        for triple in ["amdgcn-amd-amdhsa", "nvptx64-nvidia-cuda", "spirv64-intel", ""] {
            assert!(!Target::new(triple, "").is_cpu(), "{triple}");
        }
    }
}
