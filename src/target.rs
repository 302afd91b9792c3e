//! Device targets: a triple and an architecture or AMDGPU target id. Decides which image may be used for which target, and defines
//! the total order of images (ARCHITECTURE.md, "One total order of images"; target ids: docs/spec/containers.md 3).

use std::cmp::Ordering;
use std::fmt;

use crate::formats::gpu::TargetId;

/// The device that an image is for. `""` and `generic` are the same architecture, which means any.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
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

    /// Whether this is an AMD GPU, whose architecture is a target id.
    pub fn is_amdgcn(&self) -> bool {
        self.arch_name() == "amdgcn"
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
        const NOT_CPU: [&str; 8] = ["amdgcn", "r600", "nvptx", "spir", "wasm", "dxil", "hsail", "amdil"];
        !self.triple.is_empty() && !NOT_CPU.iter().any(|prefix| self.arch_name().starts_with(prefix))
    }

    /// Whether this is SPIR-V for Intel's OpenMP runtime, which needs it in a container of its own (docs/spec/link-driver.md 6.4).
    pub fn is_intel_spirv(&self) -> bool {
        self.is_spirv() && self.triple.split('-').nth(1) == Some("intel")
    }

    /// Whether an image for `self` may be linked into the image for `request`: if the targets are equal, or `self` is less specific.
    /// Never the other way round, so that the result does not depend on the order of inputs (docs/spec/faults.md F15).
    pub fn serves(&self, request: &Target) -> bool {
        if self.triple != request.triple {
            return false;
        }
        if self.arch.is_empty() || self.arch == request.arch {
            return true;
        }
        if !self.is_amdgcn() {
            return false;
        }
        match (TargetId::parse(&self.arch), TargetId::parse(&request.arch)) {
            (Some(mine), Some(wanted)) => {
                let same_setting = |(name, on)| wanted.features.get(name) == Some(on);
                mine.processor == wanted.processor && mine.features.iter().all(same_setting)
            }
            _ => false,
        }
    }
}

/// Triple descending, then architecture descending: a runtime takes the first image that fits, so the most specific target id of
/// a processor must come before the plain one (docs/spec/faults.md F16).
impl Ord for Target {
    fn cmp(&self, other: &Self) -> Ordering {
        other.triple.cmp(&self.triple).then_with(|| other.arch.cmp(&self.arch))
    }
}

impl PartialOrd for Target {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl fmt::Display for Target {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.triple)?;
        if self.arch.is_empty() { Ok(()) } else { write!(f, " ({})", self.arch) }
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
