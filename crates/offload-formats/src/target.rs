//! Device targets: a triple and an architecture or AMDGPU target id. Decides which names denote the
//! same device and which image may be used for which target, and defines the total order of images
//! (docs/dev/decisions/0010-one-order-of-images.md; target ids: docs/spec/containers.md 3).

pub mod device;
mod selector;

use std::borrow::Cow;
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::hash::{Hash, Hasher};

pub use selector::Selector;

use crate::bundle::standard_triple;
use crate::gpu::{AmdArch, TargetId};
use crate::model::{OffloadKind, printable};

/// The device that an image is for, as the image names it. `""` and `generic` are the same
/// architecture and mean any.
///
/// Targets that name one device are equal, and so is everything decided by comparing targets
/// (docs/spec/containers.md 3.7). AMD devices have two names: `amdgcn-amd-amdhsa` with `gfx908`
/// and, from LLVM 24 on, `amdgpu9.08-amd-amdhsa` with or without `gfx908`. Triples that a runtime
/// cannot distinguish are equal as well (`device_triple`).
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
        Target {
            triple: triple.trim_end_matches('-').to_owned(),
            arch: arch.to_owned(),
        }
    }

    /// The first component of the triple as spelled: `x86_64`, `amdgcn`, `powerpc64le`.
    pub fn arch_name(&self) -> &str {
        self.triple.split('-').next().unwrap_or_default()
    }

    /// Whether this is an AMD GPU, under its old or its new name, whose architecture is a target
    /// id.
    pub fn is_amdgcn(&self) -> bool {
        AmdArch::of_triple(&self.triple).is_some()
    }

    /// The architecture that the triple and the target id of an AMD GPU name; if they disagree, the
    /// target id wins.
    pub fn amd_arch(&self) -> Option<AmdArch<'_>> {
        let named = AmdArch::of_triple(&self.triple)?;
        Some(AmdArch::of_processor(&self.arch).unwrap_or(named))
    }

    /// Whether the triple alone names an AMD processor or a family of them.
    pub fn triple_names_processor(&self) -> bool {
        AmdArch::of_triple(&self.triple).is_some_and(|named| !named.is_any())
    }

    /// Whether triple and target id can name one device: false for `amdgpu9.00-amd-amdhsa` with
    /// `gfx803`.
    pub fn is_consistent(&self) -> bool {
        match (
            AmdArch::of_triple(&self.triple),
            AmdArch::of_processor(&self.arch),
        ) {
            (Some(named), Some(processor)) => named.agrees(&processor),
            _ => true,
        }
    }

    /// The target id. If the target has none, the processor that the triple names, or `None` if the
    /// triple names a family.
    pub fn target_id(&self) -> Option<Cow<'_, str>> {
        match AmdArch::of_triple(&self.triple) {
            Some(named) if self.arch.is_empty() && !named.is_any() => {
                named.processor().map(Cow::Owned)
            }
            _ => Some(Cow::Borrowed(&self.arch)),
        }
    }

    /// The triple and the architecture in the one spelling that all names of the device share.
    pub fn device(&self) -> (Cow<'_, str>, Cow<'_, str>) {
        let triple = device_triple(&self.triple, self.is_cpu());
        let Some(named) = AmdArch::of_triple(&self.triple) else {
            return (triple, Cow::Borrowed(&self.arch));
        };
        let by_triple = self.arch.is_empty() && !named.is_any();
        (
            triple,
            if by_triple {
                Cow::Owned(named.device_name())
            } else {
                Cow::Borrowed(self.arch.as_str())
            },
        )
    }

    /// Returns the same device under the more specific name, of `self` and of `other`, an input for
    /// this device. The order is `amdgpu9.08`, `amdgpu9`, `amdgpu`, `amdgcn`, because every reader
    /// of a newer name also reads the older ones. A triple with an operating system wins over one
    /// without. If the names are equally specific, `self` wins.
    pub fn named_like(mut self, other: &Target) -> Target {
        if self.arch.is_empty() && *other == self {
            self.arch.clone_from(&other.arch);
        }
        if other.triple == self.triple {
            return self;
        }
        let amd_name = |target: &Target| {
            target
                .is_amdgcn()
                .then(|| (target.arch_name().len(), target.arch_name().to_owned()))
        };
        let rank = |target: &Target| (amd_name(target), target.platform().is_some());
        let named = Target {
            triple: other.triple.clone(),
            arch: self.arch.clone(),
        };
        if rank(other) > rank(&self) && named.is_consistent() && named == self {
            named
        } else {
            self
        }
    }

    /// The operating system and the environment in the triple, without their versions: `linux` and
    /// `gnu`. `None` if the triple names no operating system.
    pub fn platform(&self) -> Option<(String, String)> {
        let triple = standard_triple(&self.triple);
        let mut parts = triple
            .split('-')
            .skip(2)
            .map(|part| part.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.'));
        let system = parts
            .next()
            .filter(|system| !matches!(*system, "" | "unknown"))?;
        Some((
            system.to_owned(),
            parts.next().unwrap_or_default().to_owned(),
        ))
    }

    /// Whether both can be code for one platform. A triple without an operating system or an
    /// environment fits every platform.
    pub fn agrees_on_platform(&self, other: &Target) -> bool {
        let (Some((system, environment)), Some((other_system, other_environment))) =
            (self.platform(), other.platform())
        else {
            return true;
        };
        let is_open = |environment: &str| matches!(environment, "" | "unknown");
        system == other_system
            && (environment == other_environment
                || is_open(&environment)
                || is_open(&other_environment))
    }

    /// Whether `triple` names an operating system and is a spelling of this device's triple.
    pub fn is_spelled(&self, triple: &str) -> bool {
        let named = Target::new(triple, "");
        let same_name = AmdArch::of_triple(&named.triple) == AmdArch::of_triple(&self.triple);
        named.platform().is_some()
            && same_name
            && named.device().0 == Target::new(&self.triple, "").device().0
            && self.agrees_on_platform(&named)
    }

    /// Whether this is an NVIDIA GPU.
    pub fn is_nvptx(&self) -> bool {
        self.arch_name().starts_with("nvptx")
    }

    /// The kind of the runtime that loads modules for this target. Modules are files of device code
    /// that programs load by name, so no registration gives them a kind.
    pub fn kind_of_modules(&self) -> Option<OffloadKind> {
        if self.is_nvptx() {
            Some(OffloadKind::Cuda)
        } else {
            self.is_amdgcn().then_some(OffloadKind::Hip)
        }
    }

    /// Whether this is SPIR-V, of any vendor.
    pub fn is_spirv(&self) -> bool {
        self.arch_name().starts_with("spirv")
    }

    /// Whether this is a CPU, whose images are shared objects: any target that is neither a GPU nor
    /// an intermediate language (docs/spec/faults.md F35).
    pub fn is_cpu(&self) -> bool {
        const NOT_CPU: [&str; 9] = [
            "amdgcn", "amdgpu", "r600", "nvptx", "spir", "wasm", "dxil", "hsail", "amdil",
        ];
        let name = self.arch_name();
        !self.triple.is_empty() && !NOT_CPU.iter().any(|prefix| name.starts_with(prefix))
    }

    /// Whether this is SPIR-V for Intel's OpenMP runtime, which needs it in a container of its own
    /// (docs/spec/link-driver.md 6.4).
    pub fn is_intel_spirv(&self) -> bool {
        self.is_spirv() && self.triple.split('-').nth(1) == Some("intel")
    }

    /// Whether both name the same AMD processor, with any features.
    pub fn has_processor_of(&self, other: &Target) -> bool {
        let processor = |target: &Target| target.device().1.split(':').next().map(str::to_owned);
        self.is_amdgcn() && other.is_amdgcn() && processor(self) == processor(other)
    }

    /// Whether the targets in `others` together serve every device that `self` serves: the same
    /// processor, with both settings of a feature that `self` leaves open.
    pub fn is_covered_by(&self, others: &[&Target]) -> bool {
        fn covers(fixed: &BTreeMap<&str, bool>, all: &[BTreeMap<&str, bool>]) -> bool {
            let is_within = |own: &BTreeMap<&str, bool>| {
                own.iter().all(|(name, on)| fixed.get(name) == Some(on))
            };
            let with = |name, on| {
                fixed
                    .iter()
                    .map(|(name, on)| (*name, *on))
                    .chain([(name, on)])
                    .collect()
            };
            let mut open = all
                .iter()
                .flat_map(BTreeMap::keys)
                .filter(|name| !fixed.contains_key(*name));
            all.iter().any(is_within)
                || open
                    .any(|name| covers(&with(*name, true), all) && covers(&with(*name, false), all))
        }
        let ids: Vec<_> = others
            .iter()
            .filter(|other| other.has_processor_of(self))
            .map(|other| other.device().1)
            .collect();
        let all: Vec<BTreeMap<&str, bool>> = ids
            .iter()
            .filter_map(|id| TargetId::parse(id))
            .map(|id| id.features)
            .collect();
        // AMD processors have two such features. Each name that an input claims doubles the work,
        // so their number is limited.
        let names: BTreeSet<&str> = all.iter().flat_map(BTreeMap::keys).copied().collect();
        let own = self.device().1;
        names.len() <= 4 && TargetId::parse(&own).is_some_and(|own| covers(&own.features, &all))
    }

    /// The processor in the target id, under its one spelling, and the features that the target id
    /// fixes, in order.
    pub fn processor_and_features(&self) -> (String, Vec<(String, bool)>) {
        let (_, arch) = self.device();
        let (processor, features) = match TargetId::parse(&arch) {
            Some(id) => (
                id.processor,
                id.features
                    .into_iter()
                    .map(|(name, on)| (name.to_owned(), on))
                    .collect(),
            ),
            None => (&*arch, Vec::new()),
        };
        let named = AmdArch::of_processor(processor).map(|named| named.device_name());
        (named.unwrap_or_else(|| processor.to_owned()), features)
    }

    /// Whether an image for `self` may be linked into the image for `request`. The targets must be
    /// equal, or `self` must be less specific: for any architecture, for a family of AMD
    /// processors, or with fewer features. The reverse is never allowed, so that the result does
    /// not depend on the order of inputs (docs/spec/faults.md F15).
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
        let (Some(mine), Some(wanted)) = (mine, wanted) else {
            return false;
        };
        let same_setting = |(name, on)| wanted.features.get(name) == Some(on);
        let covered = || match (
            AmdArch::of_processor(mine.processor),
            AmdArch::of_processor(wanted.processor),
        ) {
            (Some(mine), Some(wanted)) => mine.covers(&wanted),
            _ => false,
        };
        (mine.processor == wanted.processor || covered()) && mine.features.iter().all(same_setting)
    }
}

/// Returns the part of a triple by which runtimes distinguish devices. libomptarget checks the
/// object format, the machine and the word size of a CPU image (LLVM's
/// offload/plugins-nextgen/host), so the rest of a CPU triple is ignored. A missing vendor or
/// operating system of a GPU gets clang's default for `-fopenmp-targets=`.
fn device_triple(triple: &str, is_cpu: bool) -> Cow<'_, str> {
    let (arch, rest) = triple.split_once('-').unwrap_or((triple, ""));
    let is_open = |part: &str| matches!(part, "" | "unknown");
    let mut parts = rest.split('-');
    let (vendor, system) = (
        parts.next().unwrap_or_default(),
        parts.next().unwrap_or_default(),
    );
    let usual = |own: &str, starts: &str| {
        (is_open(vendor) || vendor == own) && (is_open(system) || system.starts_with(starts))
    };
    if is_cpu {
        return cpu_triple(arch, rest);
    }
    match arch {
        "nvptx64" if usual("nvidia", "cuda") => Cow::Borrowed("nvptx64-nvidia-cuda"),
        "nvptx" if usual("nvidia", "cuda") => Cow::Borrowed("nvptx-nvidia-cuda"),
        _ if AmdArch::parse(arch).is_none() => {
            match triple.splitn(4, '-').collect::<Vec<_>>()[..] {
                [_, vendor, system] if !vendor.is_empty() && !system.is_empty() => {
                    Cow::Borrowed(triple)
                }
                _ => {
                    let part =
                        |part: &str| if part.is_empty() { "unknown" } else { part }.to_owned();
                    let environment = rest
                        .splitn(3, '-')
                        .nth(2)
                        .unwrap_or_default()
                        .trim_matches('-');
                    let mut all = vec![arch.to_owned(), part(vendor), part(system)];
                    if !is_open(environment) {
                        all.push(environment.to_owned());
                    }
                    Cow::Owned(all.join("-"))
                }
            }
        }
        _ if usual("amd", "amdhsa") => Cow::Borrowed("amdgcn-amd-amdhsa"),
        "amdgcn" => Cow::Borrowed(triple),
        _ => Cow::Owned(format!("amdgcn-{rest}")),
    }
}

/// Returns the machine of a CPU, with the parts of its triple that determine the format of its
/// images.
fn cpu_triple<'t>(arch: &'t str, rest: &str) -> Cow<'t, str> {
    const OTHER_FORMATS: [&str; 10] = [
        "windows", "win32", "mingw", "cygwin", "uefi", "macos", "darwin", "ios", "aix", "zos",
    ];
    let machine = match arch {
        "amd64" => "x86_64",
        "arm64" => "aarch64",
        "ppc64" => "powerpc64",
        "ppc64le" => "powerpc64le",
        "systemz" => "s390x",
        "i386" | "i486" | "i586" | "i786" | "i886" | "i986" => "i686",
        other => other,
    };
    let narrow = rest
        .split('-')
        .any(|part| part.ends_with("x32") || part.ends_with("ilp32"));
    let format = rest.split('-').find_map(|part| {
        OTHER_FORMATS
            .into_iter()
            .find(|system| part.starts_with(system))
    });
    match format {
        None if narrow => Cow::Owned(format!("{machine}-ilp32")),
        None => Cow::Borrowed(machine),
        Some(system) => Cow::Owned(format!("{machine}-{system}")),
    }
}

/// Names of one device are equal.
impl PartialEq for Target {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Target {}

impl Hash for Target {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.device().hash(state);
    }
}

/// Triple descending, then architecture descending. A runtime takes the first image that fits, so
/// the most specific target id of a processor must come before the plain one (docs/spec/faults.md
/// F16). All names of one device compare equal.
impl Ord for Target {
    fn cmp(&self, other: &Self) -> Ordering {
        // Most targets of a link have one spelling.
        if self.triple == other.triple && self.arch == other.arch {
            return Ordering::Equal;
        }
        let ((triple, arch), (other_triple, other_arch)) = (self.device(), other.device());
        other_triple
            .cmp(&triple)
            .then_with(|| other_arch.cmp(&arch))
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
        if self.arch.is_empty() {
            Ok(())
        } else {
            write!(f, " ({})", printable(&self.arch))
        }
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
            assert_eq!(
                amd(provided).serves(&amd(request)),
                fits,
                "{provided} for {request}"
            );
        }
        assert!(
            !Target::new("nvptx64-nvidia-cuda", "sm_80")
                .serves(&Target::new("nvptx64-nvidia-cuda", "sm_90"))
        );
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
            assert!(
                one.is_amdgcn() && !one.is_cpu() && one.is_consistent(),
                "{one}"
            );
            for other in &names {
                assert!(
                    one == other && one.serves(other) && one.cmp(other) == Ordering::Equal,
                    "{one} and {other}"
                );
                let named = one.clone().named_like(other);
                assert!(
                    named == *one && named.named_like(one) == *other,
                    "{one} and {other}"
                );
            }
        }
        let same = |order: [usize; 3]| {
            let [first, second, third] = order.map(|at| &names[at]);
            first
                .clone()
                .named_like(second)
                .named_like(third)
                .to_string()
        };
        for order in [
            [0, 1, 4],
            [0, 4, 1],
            [1, 0, 4],
            [1, 4, 0],
            [4, 0, 1],
            [4, 1, 0],
        ] {
            assert_eq!(same(order), "amdgpu9.08-amd-amdhsa (gfx908)");
        }
        assert_ne!(Target::new("amdgpu9.08-amd-amdpal", ""), names[0]);
        assert!(!Target::new("amdgpu9.00-amd-amdhsa", "gfx803").is_consistent());
        assert_eq!(names[3].target_id().as_deref(), Some("gfx908"));
        assert_eq!(Target::new("amdgpu6-amd-amdhsa", "").target_id(), None);
    }

    #[test]
    fn spellings_of_a_triple_name_one_device() {
        for (names, device) in [
            (
                &[
                    "x86_64-pc-linux-gnu",
                    "x86_64-unknown-linux-gnu",
                    "x86_64-redhat-linux",
                    "x86_64--linux-gnu",
                    "x86_64-linux-gnu",
                    "x86_64",
                    "amd64-linux-musl",
                    "x86_64-unknown-freebsd14",
                ][..],
                "x86_64",
            ),
            (
                &[
                    "aarch64-linux-gnu",
                    "aarch64-unknown-linux-gnu",
                    "arm64-suse-linux",
                    "aarch64-linux-android30",
                ],
                "aarch64",
            ),
            (
                &["x86_64-pc-linux-gnux32", "x86_64-linux-muslx32"],
                "x86_64-ilp32",
            ),
            (
                &["x86_64-pc-windows-msvc", "x86_64-w64-windows-gnu"],
                "x86_64-windows",
            ),
            (&["i686-pc-linux-gnu", "i386-linux-gnu"], "i686"),
            (
                &[
                    "nvptx64",
                    "nvptx64-nvidia-cuda",
                    "nvptx64--",
                    "nvptx64-unknown-unknown",
                    "nvptx64-nvidia-cuda-unknown",
                ],
                "nvptx64-nvidia-cuda",
            ),
            (
                &[
                    "amdgcn",
                    "amdgcn-amd-amdhsa",
                    "amdgcn-amd-amdhsa-unknown",
                    "amdgcn--amdhsa",
                    "amdgpu-amd-amdhsa--",
                ],
                "amdgcn-amd-amdhsa",
            ),
            (
                &[
                    "spirv64-intel",
                    "spirv64-intel-unknown",
                    "spirv64-intel-unknown-unknown",
                    "spirv64-intel--",
                ],
                "spirv64-intel-unknown",
            ),
            (
                &["spirv64", "spirv64-unknown-unknown", "spirv64--"],
                "spirv64-unknown-unknown",
            ),
            (
                &["spirv64-unknown-vulkan1.3", "spirv64--vulkan1.3"],
                "spirv64-unknown-vulkan1.3",
            ),
            (&["amdgcn-amd-amdpal"], "amdgcn-amd-amdpal"),
            (&["nvptx64-nvidia-nvcl"], "nvptx64-nvidia-nvcl"),
        ] {
            for name in names {
                assert_eq!(Target::new(name, "").device().0, device, "{name}");
            }
        }
        let target = |triple: &str| Target::new(triple, "");
        assert_eq!(
            target("x86_64")
                .named_like(&target("x86_64-pc-linux-gnu"))
                .triple,
            "x86_64-pc-linux-gnu"
        );
        assert_eq!(
            target("x86_64-pc-linux-gnu")
                .named_like(&target("x86_64"))
                .triple,
            "x86_64-pc-linux-gnu"
        );
        assert_eq!(
            target("x86_64-redhat-linux")
                .named_like(&target("x86_64-pc-linux-gnu"))
                .triple,
            "x86_64-redhat-linux"
        );
        let platform = |triple: &str| {
            target(triple)
                .platform()
                .map(|(system, environment)| format!("{system} {environment}"))
        };
        assert_eq!(
            platform("aarch64-linux-android30").as_deref(),
            Some("linux android")
        );
        assert_eq!(
            platform("x86_64-redhat-linux").as_deref(),
            Some("linux unknown")
        );
        assert_eq!(platform("x86_64"), None);
    }

    #[test]
    fn an_amd_family_serves_its_processors_and_a_processor_only_itself() {
        let amdgpu =
            |version: &str, arch: &str| Target::new(&format!("amdgpu{version}-amd-amdhsa"), arch);
        for (provided, request, fits) in [
            (amdgpu("9", ""), amdgpu("9.00", ""), true),
            (amdgpu("9", ""), amd("gfx906:xnack+"), true),
            (amd("gfx9-generic"), amdgpu("9.06", ""), true),
            (amdgpu("9", "gfx9-generic:xnack+"), amd("gfx906"), false),
            (amdgpu("9", ""), amdgpu("9.08", ""), false),
            (amdgpu("9.00", ""), amdgpu("9", ""), false),
            (amdgpu("9.00", ""), amdgpu("9.06", ""), false),
            (amdgpu("6", ""), amd("gfx601"), true),
            (amdgpu("", ""), amdgpu("9.06", ""), true),
            (amdgpu("9.06", ""), amdgpu("", ""), false),
        ] {
            assert_eq!(provided.serves(&request), fits, "{provided} for {request}");
        }
    }

    #[test]
    fn both_settings_of_a_feature_cover_every_device() {
        for (own, others, covered) in [
            ("gfx90a", &["gfx90a:xnack+", "gfx90a:xnack-"][..], true),
            ("gfx90a", &["gfx90a:xnack+"], false),
            ("gfx90a", &["gfx90a:xnack+", "gfx908:xnack-"], false),
            (
                "gfx90a",
                &["gfx90a:sramecc+:xnack+", "gfx90a:xnack-"],
                false,
            ),
            (
                "gfx90a",
                &[
                    "gfx90a:sramecc+:xnack+",
                    "gfx90a:sramecc-:xnack+",
                    "gfx90a:xnack-",
                ],
                true,
            ),
            (
                "gfx90a:sramecc+",
                &["gfx90a:sramecc+:xnack+", "gfx90a:sramecc+:xnack-"],
                true,
            ),
            ("gfx9-generic", &["gfx906", "gfx900"], false),
            ("gfx90a", &[], false),
        ] {
            let others: Vec<Target> = others.iter().map(|other| amd(other)).collect();
            assert_eq!(
                amd(own).is_covered_by(&others.iter().collect::<Vec<_>>()),
                covered,
                "{own} by {others:?}"
            );
        }
    }

    #[test]
    fn f16_one_total_order() {
        let mut targets = [
            amd("gfx908"),
            Target::new("x86_64-pc-linux-gnu", ""),
            amd("gfx90a"),
            amd("gfx90a:xnack+"),
        ];
        targets.sort();
        let names: Vec<String> = targets.iter().map(Target::to_string).collect();
        assert_eq!(
            names,
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
        for triple in [
            "riscv64-unknown-linux-gnu",
            "arm-linux-gnueabihf",
            "x86_64-pc-linux-gnu",
            "s390x-linux-gnu",
        ] {
            assert!(Target::new(triple, "generic").is_cpu(), "{triple}");
        }
        for triple in [
            "amdgcn-amd-amdhsa",
            "nvptx64-nvidia-cuda",
            "spirv64-intel",
            "",
        ] {
            assert!(!Target::new(triple, "").is_cpu(), "{triple}");
        }
    }
}
