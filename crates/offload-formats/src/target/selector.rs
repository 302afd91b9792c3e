//! Device patterns, which select images in every command: `[kind:][triple:]arch[:features]`.
//!
//! ```
//! use offload_formats::model::{OffloadKind, OffloadKinds};
//! use offload_formats::target::{Selector, Target};
//!
//! let selector: Selector = "hip:gfx90*".parse()?;
//! let hip = OffloadKinds::default().with(OffloadKind::Hip);
//! assert!(selector.selects(hip, &Target::new("amdgcn-amd-amdhsa", "gfx90a:xnack+")));
//! assert!(!selector.selects(hip, &Target::new("amdgcn-amd-amdhsa", "gfx1100")));
//! # Ok::<(), offload_formats::error::Error>(())
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::str::FromStr;

use glob::Pattern;

use super::Target;
use crate::error::Error;
use crate::gpu::TargetId;
use crate::model::{OffloadKind, OffloadKinds, printable};

/// The first components of triples. Text that starts with one of them and a dash is a triple, not
/// an architecture.
const TRIPLES: [&str; 25] = [
    "aarch64",
    "amdgcn",
    "amdgpu",
    "amdil",
    "arm",
    "dxil",
    "hexagon",
    "hsail",
    "i386",
    "i486",
    "i586",
    "i686",
    "loongarch",
    "mips",
    "nvptx",
    "powerpc",
    "ppc",
    "r600",
    "riscv",
    "s390x",
    "sparc",
    "spir",
    "thumb",
    "wasm",
    "x86_64",
];

/// A device pattern. Each missing part means any; names may contain `*`, `?` and `[…]`.
///
/// * The kind is `openmp`, `cuda`, `hip` or `sycl`.
/// * The triple is in any of its spellings (`x86_64-pc-linux-gnu` is also
///   `x86_64-unknown-linux-gnu`), or its first component alone (`amdgcn`). It matches both names of
///   an AMD GPU.
/// * An architecture without features matches it with any features: `gfx90a` also selects
///   `gfx90a:xnack+`. With features, the image must require them: `gfx90a:xnack+` selects
///   `gfx90a:sramecc-:xnack+`, but not `gfx90a`.
/// * `cpu` is any CPU, and `native` the devices of this machine ([`Selector::with_native`]).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Selector {
    text: String,
    kind: Option<OffloadKind>,
    triple: Option<Pattern>,
    device: Device,
}

/// The part of a [`Selector`] after the triple.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Device {
    Any,
    Cpu,
    Native,
    /// The devices of one machine, in place of [`Device::Native`].
    OneOf(Vec<Target>),
    Arch(Pattern, BTreeMap<String, bool>),
}

impl Selector {
    /// Whether the pattern selects an image for `target` that is registered with `kinds`. `native`
    /// selects nothing before [`Selector::with_native`]. Without kinds, the image is a module
    /// ([`Target::kind_of_modules`]).
    pub fn selects(&self, kinds: OffloadKinds, target: &Target) -> bool {
        let is_module = kinds.iter().next().is_none();
        let is_of =
            |kind| kinds.contains(kind) || is_module && target.kind_of_modules() == Some(kind);
        self.kind.is_none_or(is_of) && self.selects_triple(target) && self.selects_device(target)
    }

    /// The kind in the pattern; `None` for any.
    pub fn kind(&self) -> Option<OffloadKind> {
        self.kind
    }

    /// Whether the pattern is `native`, for the devices of this machine.
    pub fn is_native(&self) -> bool {
        self.device == Device::Native
    }

    /// Returns the same pattern, in which `native` selects images that run on one of `devices`.
    #[must_use]
    pub fn with_native(mut self, devices: &[Target]) -> Selector {
        if self.is_native() {
            self.device = Device::OneOf(devices.to_vec());
        }
        self
    }

    fn selects_triple(&self, target: &Target) -> bool {
        let Some(pattern) = &self.triple else {
            return true;
        };
        let (device, _) = target.device();
        let is_spelled =
            || !pattern.as_str().contains(['*', '?', '[']) && target.is_spelled(pattern.as_str());
        let matches = [target.triple.as_str(), &device].into_iter().any(|triple| {
            let first = triple.split('-').next().unwrap_or_default();
            pattern.matches(triple) || pattern.matches(first)
        });
        matches || is_spelled()
    }

    fn selects_device(&self, target: &Target) -> bool {
        match &self.device {
            Device::Any => true,
            Device::Native => false,
            Device::Cpu => target.is_cpu(),
            Device::OneOf(devices) => devices.iter().any(|device| target.serves(device)),
            Device::Arch(pattern, wanted) => {
                let id = target.target_id().unwrap_or_default();
                let parsed = TargetId::parse(&id);
                let (processor, features) =
                    parsed.map_or((&*id, BTreeMap::new()), |id| (id.processor, id.features));
                let processor = if processor.is_empty() {
                    "generic"
                } else {
                    processor
                };
                pattern.matches(processor)
                    && wanted
                        .iter()
                        .all(|(name, on)| features.get(name.as_str()) == Some(on))
            }
        }
    }
}

impl FromStr for Selector {
    type Err = Error;

    /// # Errors
    /// [`Error::Usage`] with the reason if `text` is not a device pattern.
    fn from_str(text: &str) -> Result<Self, Error> {
        let wrong = |what: &str| {
            Error::usage(format!(
                "invalid device pattern `{}`: {what}",
                printable(text)
            ))
        };
        let pattern = |part: &str| Pattern::new(part).map_err(|error| wrong(error.msg));
        let mut parts = text.split(':').peekable();
        if text.split(':').any(str::is_empty) {
            return Err(wrong(
                "empty part; expected [KIND:][TRIPLE:]ARCH[:FEATURES]",
            ));
        }
        let kind = parts.peek().and_then(|first| {
            OffloadKind::ALL
                .into_iter()
                .find(|kind| kind.name() == *first)
        });
        if kind.is_some() {
            parts.next();
        }
        let triple = parts
            .next_if(|part| is_triple(part))
            .map(pattern)
            .transpose()?;
        let device = match parts.next() {
            None => Device::Any,
            Some("cpu") => Device::Cpu,
            Some("native") => Device::Native,
            Some(part) if is_feature(part) => {
                return Err(wrong("features must follow an architecture"));
            }
            Some(arch) => {
                let mut features = BTreeMap::new();
                for part in parts.by_ref() {
                    let name = part
                        .strip_suffix(['+', '-'])
                        .filter(|name| !name.is_empty());
                    let name = name.ok_or_else(|| {
                        wrong("features must end in + or -, and nothing may follow them")
                    })?;
                    if features
                        .insert(name.to_owned(), part.ends_with('+'))
                        .is_some()
                    {
                        return Err(wrong("duplicate feature"));
                    }
                }
                Device::Arch(pattern(arch)?, features)
            }
        };
        if parts.next().is_some() {
            return Err(wrong("`cpu` and `native` take no features"));
        }
        Ok(Selector {
            text: text.to_owned(),
            kind,
            triple,
            device,
        })
    }
}

/// Prints the text that the pattern was parsed from.
impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&printable(&self.text))
    }
}

/// Whether a part is a triple, or the first component of one: `x86_64-pc-linux-gnu`, `amdgcn`,
/// `*-linux-gnu`; not `x86-64-v3`.
pub(super) fn is_triple(part: &str) -> bool {
    let (first, rest) = part
        .split_once('-')
        .map_or((part, None), |(first, rest)| (first, Some(rest)));
    let is_pattern = first.contains(['*', '?', '[']) && rest.is_some_and(|rest| !rest.is_empty());
    // Without a dash, at most five characters may follow the known prefix, as in `spirv64` and
    // `riscv64gc`. The triples of SYCL code that is compiled ahead of time continue after an
    // underscore: `spir64_gen`, `spirv64_x86_64`.
    let is_long = |name: &str, end: &str| name == "spir" && end.contains('_');
    let is_known = |name: &str, end: &str| rest.is_some() || end.len() <= 5 || is_long(name, end);
    is_pattern
        || TRIPLES.iter().any(|name| {
            first
                .strip_prefix(name)
                .is_some_and(|end| is_known(name, end))
        })
}

fn is_feature(part: &str) -> bool {
    part.ends_with(['+', '-'])
}

#[cfg(test)]
mod tests {
    use super::*;

    const AMD: &str = "amdgcn-amd-amdhsa";
    const NVIDIA: &str = "nvptx64-nvidia-cuda";
    const HOST: &str = "x86_64-pc-linux-gnu";

    fn selects(selector: &str, kind: OffloadKind, triple: &str, arch: &str) -> bool {
        let selector: Selector = selector.parse().unwrap();
        selector.selects(
            OffloadKinds::default().with(kind),
            &Target::new(triple, arch),
        )
    }

    #[test]
    fn modules_belong_to_the_runtime_of_their_vendor() {
        let selects = |selector: &str, triple: &str, arch: &str| {
            let selector: Selector = selector.parse().unwrap();
            selector.selects(OffloadKinds::default(), &Target::new(triple, arch))
        };
        assert!(selects("cuda:sm_90", NVIDIA, "sm_90"));
        assert!(selects("hip:*", AMD, "gfx90a"));
        for selector in ["hip:*", "openmp:*", "sycl:*"] {
            assert!(!selects(selector, NVIDIA, "sm_90"));
        }
        assert!(!selects("cuda:*", AMD, "gfx90a"));
        assert!(!selects("hip:*", HOST, ""));
    }

    #[test]
    fn devices_are_selected_by_any_of_their_parts() {
        use OffloadKind::{Cuda, Hip, OpenMp, Sycl};
        for (selector, kind, triple, arch, expected) in [
            ("gfx90a", Hip, AMD, "gfx90a", true),
            ("gfx90a", Hip, AMD, "gfx90a:xnack+", true),
            ("gfx90a", Hip, AMD, "gfx908", false),
            ("gfx90a:xnack+", Hip, AMD, "gfx90a:sramecc-:xnack+", true),
            ("gfx90a:xnack+", Hip, AMD, "gfx90a:xnack-", false),
            ("gfx90a:xnack+", Hip, AMD, "gfx90a", false),
            ("gfx9*", OpenMp, AMD, "gfx942", true),
            ("gfx9*:xnack-", OpenMp, AMD, "gfx942:xnack-", true),
            ("gfx1[01]*", OpenMp, AMD, "gfx1030", true),
            ("gfx1[01]*", OpenMp, AMD, "gfx1201", false),
            ("hip:gfx90a", OpenMp, AMD, "gfx90a", false),
            ("hip:gfx90a", Hip, AMD, "gfx90a", true),
            ("hip:*", Hip, AMD, "gfx90a", true),
            ("hip", Hip, AMD, "gfx90a", true),
            ("hip", OpenMp, AMD, "gfx90a", false),
            // Both names of one device, and device families.
            ("gfx908", OpenMp, "amdgpu9.08-amd-amdhsa", "", true),
            ("amdgcn:gfx908", OpenMp, "amdgpu9.08-amd-amdhsa", "", true),
            (
                "amdgcn-amd-amdhsa:gfx908",
                OpenMp,
                "amdgpu9.08-amd-amdhsa",
                "gfx908",
                true,
            ),
            (
                "amdgpu9.08-amd-amdhsa",
                OpenMp,
                "amdgpu9.08-amd-amdhsa",
                "",
                true,
            ),
            // An image for a family is not for one of its processors alone. `native` selects it.
            ("gfx908", OpenMp, "amdgpu9-amd-amdhsa", "", false),
            ("sm_90", Cuda, NVIDIA, "sm_90", true),
            ("sm_90", Cuda, NVIDIA, "sm_90a", false),
            ("sm_90*", Cuda, NVIDIA, "sm_90a", true),
            ("nvptx64", Cuda, NVIDIA, "sm_90", true),
            (
                "openmp:nvptx64-nvidia-cuda:sm_8?",
                OpenMp,
                NVIDIA,
                "sm_86",
                true,
            ),
            ("cpu", OpenMp, HOST, "", true),
            ("cpu", OpenMp, AMD, "gfx90a", false),
            ("openmp:cpu", Sycl, HOST, "", false),
            ("x86_64-pc-linux-gnu", OpenMp, HOST, "", true),
            ("x86_64", OpenMp, HOST, "skylake", true),
            ("*-linux-gnu", OpenMp, HOST, "", true),
            ("*-linux-gnu", OpenMp, AMD, "", false),
            ("x86-64-v3", OpenMp, HOST, "x86-64-v3", true),
            ("x86-64-v*", OpenMp, HOST, "x86-64-v4", true),
            ("x86-64-v3", OpenMp, HOST, "", false),
            ("generic", OpenMp, HOST, "", true),
            ("sycl:spirv64", Sycl, "spirv64-unknown-unknown", "", true),
            (
                "spir64_gen",
                Sycl,
                "spir64_gen-unknown-unknown-unknown",
                "",
                true,
            ),
            (
                "spir64_gen",
                Sycl,
                "spir64_gen-unknown-unknown-unknown",
                "12.60.7",
                true,
            ),
            (
                "spir64_gen:12.60.7",
                Sycl,
                "spir64_gen-unknown-unknown-unknown",
                "12.60.7",
                true,
            ),
            (
                "sycl:spir64_x86_64",
                Sycl,
                "spir64_gen-unknown-unknown",
                "",
                false,
            ),
            ("spir64", Sycl, "spir64_gen-unknown-unknown", "", false),
            ("spirv64-intel", OpenMp, "spirv64-intel", "", true),
            ("*", OpenMp, "", "", true),
            ("native", OpenMp, HOST, "", false),
        ] {
            assert_eq!(
                selects(selector, kind, triple, arch),
                expected,
                "{selector}: {kind:?} {triple} {arch}"
            );
        }
    }

    #[test]
    fn native_selects_images_for_the_devices_of_a_machine() {
        let selector: Selector = "hip:native".parse().unwrap();
        assert!(selector.is_native());
        let selector = selector.with_native(&[Target::new(AMD, "gfx90a:sramecc+:xnack-")]);
        let hip = OffloadKinds::default().with(OffloadKind::Hip);
        for (arch, expected) in [
            ("gfx90a", true),
            ("gfx90a:xnack-", true),
            ("gfx90a:xnack+", false),
            ("gfx908", false),
        ] {
            assert_eq!(
                selector.selects(hip, &Target::new(AMD, arch)),
                expected,
                "{arch}"
            );
        }
        let openmp = OffloadKinds::default().with(OffloadKind::OpenMp);
        assert!(!selector.selects(openmp, &Target::new(AMD, "gfx90a")));
    }

    #[test]
    fn native_selects_families_of_the_devices() {
        let selector: Selector = "native".parse().unwrap();
        let family = Target::new("amdgpu9-amd-amdhsa", "");
        for (arch, expected) in [("gfx906", true), ("gfx1100", false)] {
            let selector = selector.clone().with_native(&[Target::new(AMD, arch)]);
            assert_eq!(
                selector.selects(OffloadKinds::default(), &family),
                expected,
                "{arch}"
            );
        }
    }

    #[test]
    fn invalid_selectors_have_errors_with_the_reason() {
        for (text, why) in [
            ("", "empty part"),
            ("gfx90a:", "empty part"),
            ("hip::gfx90a", "empty part"),
            ("xnack+", "must follow an architecture"),
            ("gfx90a:xnack", "must end in + or -"),
            ("gfx90a:xnack+:xnack-", "duplicate feature"),
            ("gfx90a:hip", "must end in + or -"),
            ("cpu:xnack+", "take no features"),
            ("gfx9[0", "range"),
        ] {
            let error = text.parse::<Selector>().unwrap_err().to_string();
            assert!(
                error.contains(why) && error.contains(&format!("`{text}`")),
                "{text}: {error}"
            );
        }
        assert_eq!(
            "hip:gfx9*".parse::<Selector>().unwrap().to_string(),
            "hip:gfx9*"
        );
    }
}
