//! Bundle IDs, `kind-triple-targetid`: parses them to the normalized spelling in which offld
//! compares and writes them, and checks which IDs can share a bundle. Also normalizes the triples
//! in them.

use crate::gpu::{AmdArch, canonical_target_id, is_processor};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;

/// A bundle ID, split into its components.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Id {
    /// `host`, `openmp`, `hip` or `hipv4`.
    pub kind: String,
    /// Four components. The fourth is empty for AMD's HSA: `amdgcn-amd-amdhsa-`.
    pub triple: String,
    /// The target ID or processor. Empty for any.
    pub target_id: String,
}

/// Reasons why IDs cannot share a bundle. The messages are LLVM's.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum IdFault {
    /// Two IDs are equal.
    Duplicate,
    /// Two IDs have the same processor, and only one of them specifies a feature.
    Conflict(String, String),
}

impl fmt::Display for IdFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            IdFault::Duplicate => f.write_str("Duplicate targets are not allowed"),
            IdFault::Conflict(first, second) => {
                write!(
                    f,
                    "Cannot bundle inputs with conflicting targets: '{first}' and '{second}'"
                )
            }
        }
    }
}

impl std::error::Error for IdFault {}

/// The ID of a code object of `kind` for `triple` and `target_id`, as bundles store it.
pub fn bundle_id(kind: &str, triple: &str, target_id: &str) -> String {
    Id::new(kind, triple, target_id).to_string()
}

impl Id {
    /// The ID of a code object. `triple` may lack components.
    pub fn new(kind: &str, triple: &str, target_id: &str) -> Self {
        let triple = standard(triple);
        let amd = AmdArch::of_triple(&triple).is_some() || triple.starts_with("r600-");
        let target_id = if amd {
            canonical_target_id(target_id)
        } else {
            target_id.to_owned()
        };
        Id {
            kind: kind.to_owned(),
            triple,
            target_id,
        }
    }

    /// Parses an ID in any form that an LLVM release writes or accepts: with or without environment
    /// and target ID, or with even fewer components. No target ID is lost, known or not.
    pub fn parse(text: &str) -> Self {
        let (kind, rest) = text.split_once('-').unwrap_or((text, ""));
        if let Some((triple, target_id)) = split_at_processor(rest) {
            return Id::new(kind, triple, target_id);
        }
        let mut parts = rest.splitn(5, '-');
        let triple: Vec<&str> = parts.by_ref().take(4).collect();
        // LLVM writes a dash after the triple. Scripts that add another dash still find the entry.
        let target_id = parts.next().unwrap_or_default();
        Id::new(
            kind,
            &triple.join("-"),
            if target_id.trim_matches('-').is_empty() {
                ""
            } else {
                target_id
            },
        )
    }

    /// The triple and target ID in a normalized form that is the same for all spellings of a
    /// device. AMD triples may contain the processor.
    pub(super) fn device(&self) -> (String, String) {
        let Some(named) = AmdArch::of_triple(&self.triple) else {
            return (self.triple.clone(), self.target_id.clone());
        };
        let rest = self.triple.split_once('-').map_or("", |(_, rest)| rest);
        let by_triple = self.target_id.is_empty() && !named.is_any();
        let target_id = if by_triple {
            named.device_name()
        } else {
            self.target_id.clone()
        };
        (format!("amdgcn-{rest}"), target_id)
    }

    /// Splits a target ID into the processor and the names of the specified features.
    fn parts(target_id: &str) -> (&str, BTreeSet<&str>) {
        let mut parts = target_id.split(':');
        let processor = parts.next().unwrap_or_default();
        (
            processor,
            parts
                .map(|feature| feature.trim_end_matches(['+', '-']))
                .collect(),
        )
    }

    /// Whether both IDs have the same kind and processor, so that a runtime chooses between them,
    /// but different sets of features. `hip` and `hipv4` are different kinds here, as in LLVM.
    pub fn is_in_conflict(&self, other: &Id) -> bool {
        let ((triple, id), (other_triple, other_id)) = (self.device(), other.device());
        let ((processor, features), (other_processor, other_features)) =
            (Id::parts(&id), Id::parts(&other_id));
        let same =
            self.kind == other.kind && triple == other_triple && processor == other_processor;
        same && !processor.is_empty() && features != other_features
    }
}

impl fmt::Display for Id {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}-{}", self.kind, self.triple, self.target_id)
    }
}

/// Splits before a target ID that starts with a known processor. Both parts may contain dashes, so
/// the longest known name after at most four components of the triple wins.
fn split_at_processor(rest: &str) -> Option<(&str, &str)> {
    let dashes = rest.match_indices('-').take(4);
    dashes
        .map(|(at, _)| (&rest[..at], &rest[at + 1..]))
        .find(|(_, id)| is_processor(id.split(':').next().unwrap_or_default()))
}

/// Checks that these IDs can share a bundle: no two are equal, and the IDs of a processor specify
/// the same features. Otherwise, a runtime could not choose between them (docs/spec/containers.md
/// 3.5).
pub fn check(ids: &[Id]) -> Result<(), IdFault> {
    let mut sorted: Vec<&Id> = ids.iter().collect();
    sorted.sort();
    let mut seen = BTreeSet::new();
    if !sorted.iter().all(|id| seen.insert((&id.kind, id.device()))) {
        return Err(IdFault::Duplicate);
    }
    // IDs of a processor conflict if their features differ, so comparing each with the first one is
    // enough.
    let mut firsts: HashMap<(&str, String, String), (usize, &Id)> = HashMap::new();
    let mut conflicts: BTreeMap<usize, (&Id, &Id)> = BTreeMap::new();
    for (index, &id) in sorted.iter().enumerate() {
        let (triple, target_id) = id.device();
        let processor = Id::parts(&target_id).0.to_owned();
        let (at, first) = *firsts
            .entry((&id.kind, triple, processor))
            .or_insert((index, id));
        if first.is_in_conflict(id) {
            conflicts.entry(at).or_insert((first, id));
        }
    }
    match conflicts.into_values().next() {
        Some((first, second)) => Err(IdFault::Conflict(first.to_string(), second.to_string())),
        None => Ok(()),
    }
}

// Normalizes triples to the form in bundle IDs: each component at its own position, missing ones
// `unknown`. This is LLVM's normalizer for four components, with the names that LLVM 22 knows.

/// Vendors, by their full name.
pub(super) const VENDORS: [&str; 16] = [
    "amd", "apple", "csr", "fsl", "ibm", "img", "intel", "mesa", "meta", "mti", "nvidia", "oe",
    "pc", "scei", "sie", "suse",
];

/// Operating systems, by prefix: a version may follow.
#[rustfmt::skip]
pub(super) const SYSTEMS: &[&str] = &[
    "aix", "amdhsa", "amdpal", "bridgeos", "cheriotrtos", "cuda", "cygwin", "darwin", "dragonfly", "driverkit", "elfiamcu",
    "emscripten", "freebsd", "fuchsia", "haiku", "hermit", "hurd", "ios", "kfreebsd", "linux", "liteos", "lv2", "macos", "managarm",
    "mesa3d", "mingw", "msys", "netbsd", "nvcl", "openbsd", "ps4", "ps5", "rtems", "serenity", "shadermodel", "solaris", "tvos",
    "uefi", "visionos", "vulkan", "wasi", "watchos", "win32", "windows", "xros", "zos",
];

/// Environments, by prefix.
#[rustfmt::skip]
const ENVIRONMENTS: &[&str] = &[
    "amplification", "android", "anyhit", "callable", "closesthit", "code16", "compute", "coreclr", "cygnus", "domain", "eabi",
    "geometry", "gnu", "hull", "intersection", "itanium", "library", "llvm", "macabi", "mesh", "miss", "mlibc", "msvc", "mtia", "musl",
    "ohos", "opencl", "pauthtest", "pixel", "raygeneration", "rootsignature", "simulator", "vertex",
];

/// Object formats, by suffix. `xcoff` precedes `coff`.
const FORMATS: [&str; 7] = ["xcoff", "coff", "elf", "goff", "macho", "wasm", "spirv"];

/// Architectures, by their full name (docs/spec/containers.md B.1).
#[rustfmt::skip]
const ARCHITECTURES: &[&str] = &[
    "aarch64", "aarch64_be", "aarch64_32", "aarch64_lfi", "arm64", "arm64e", "arm64ec", "arm64_32", "arm", "armeb", "thumb", "thumbeb",
    "xscale", "amdgcn", "r600", "amdil", "amdil64", "arc", "avr", "bpf", "bpfel", "bpfeb", "csky", "dxil", "hexagon", "hsail", "hsail64",
    "x86_64", "x86_64h", "amd64", "kalimba", "kalimba3", "lanai", "loongarch32", "loongarch64", "m68k", "mips", "mipsel", "mipseb",
    "mips64", "mips64el", "mips64eb", "mipsisa32r6", "mipsisa64r6", "mipsn32", "mipsn32el", "mipsallegrex", "mipsallegrexel", "mipsr6",
    "mips64r6", "msp430", "nvptx", "nvptx64", "powerpc", "ppc", "ppc32", "powerpcle", "ppcle", "ppc32le", "powerpc64", "ppc64", "ppu",
    "powerpc64le", "ppc64le", "powerpcspe", "renderscript32", "renderscript64", "riscv32", "riscv64", "riscv32be", "riscv64be", "s390x",
    "systemz", "shave", "sparc", "sparcel", "sparcv9", "sparc64", "spir", "spir64", "spirv", "spirv1.5", "spirv1.6", "spirv32", "spirv64",
    "tce", "tcele", "ve", "wasm32", "wasm64", "xcore", "xtensa",
];

/// The valid versions after `arm` or `thumb`.
#[rustfmt::skip]
const ARM_VERSIONS: &[&str] = &[
    "v4", "v4t", "v5", "v5te", "v6", "v6k", "v6m", "v7", "v7a", "v7s", "v7k", "v7em", "v7m", "v7r", "v8", "v8a", "v8r", "v8m.base",
    "v8m.main", "v8.1m.main", "v9", "v9a",
];

/// Whether LLVM knows this architecture, the first component of a triple.
pub fn is_known_arch(name: &str) -> bool {
    let version = |prefix: &str| name.strip_prefix(prefix);
    let digit = |text: &str, allowed: std::ops::RangeInclusive<char>| {
        let mut chars = text.chars();
        chars.next().is_some_and(|first| allowed.contains(&first)) && chars.next().is_none()
    };
    ARCHITECTURES.contains(&name)
        || AmdArch::parse(name).is_some()
        || version("arm")
            .or(version("thumb"))
            .is_some_and(|version| ARM_VERSIONS.contains(&version))
        || version("i")
            .and_then(|rest| rest.strip_suffix("86"))
            .is_some_and(|rest| digit(rest, '3'..='9'))
        || version("dxilv1.").is_some_and(|minor| digit(minor, '0'..='9'))
        || version("spirv32v1.")
            .or(version("spirv64v1."))
            .is_some_and(|minor| digit(minor, '0'..='6'))
}

fn is_system(name: &str) -> bool {
    SYSTEMS.iter().any(|system| name.starts_with(system))
}

fn is_environment(name: &str) -> bool {
    ENVIRONMENTS
        .iter()
        .any(|environment| name.starts_with(environment))
}

pub(super) fn format_of(name: &str) -> Option<&'static str> {
    FORMATS.into_iter().find(|format| name.ends_with(format))
}

/// Whether `name` is valid at position `place` of a triple. With `in_place`, the component is
/// already there, and an object format does not count as an environment.
fn belongs(name: &str, place: usize, in_place: bool) -> bool {
    match place {
        0 => is_known_arch(name),
        1 => VENDORS.contains(&name),
        2 if in_place => {
            is_system(name)
                && !["cygwin", "msys", "mingw"]
                    .iter()
                    .any(|prefix| name.starts_with(prefix))
        }
        2 => is_system(name),
        _ => is_environment(name) || (!in_place && format_of(name).is_some()),
    }
}

/// The normalized triple of a bundle ID: four components, or three and an empty one for AMD's HSA.
pub(crate) fn standard(triple: &str) -> String {
    let mut given = triple.split('-');
    let parts = [(); 4].map(|()| given.next().unwrap_or_default());
    let mut place = 0..;
    let mut fixed = parts.map(|part| belongs(part, place.next().unwrap_or_default(), true));
    let mut parts = parts.to_vec();
    for place in 0..4 {
        if !is_fixed(&fixed, place) {
            let mut free = parts
                .iter()
                .enumerate()
                .filter(|(index, _)| !is_fixed(&fixed, *index));
            let found = free
                .find(|(_, part)| belongs(part, place, false))
                .map(|(index, _)| index);
            if let Some(index) = found {
                move_to(&mut parts, &fixed, index, place);
                fixed
                    .iter_mut()
                    .skip(place)
                    .take(1)
                    .for_each(|fixed| *fixed = true);
            }
        }
    }
    // `arm-none-eabi` lacks a system, not a vendor.
    if fixed == [true, false, false, true]
        && parts.get(1..3).is_some_and(|middle| middle == ["none", ""])
    {
        parts.swap(1, 2);
    }
    finish(&parts)
}

fn is_fixed(fixed: &[bool; 4], index: usize) -> bool {
    fixed.get(index) == Some(&true)
}

/// Moves the component at `from` to its position `to`. Displaced components move right, past those
/// at their final position, to the next empty one.
fn move_to<'a>(parts: &mut Vec<&'a str>, fixed: &[bool; 4], from: usize, to: usize) {
    let next_free = |mut index: usize| {
        while is_fixed(fixed, index) {
            index += 1;
        }
        index
    };
    let push = |parts: &mut Vec<&'a str>, mut at: usize, mut part: &'a str| {
        while let Some(here) = parts.get_mut(at) {
            std::mem::swap(&mut part, here);
            if part.is_empty() {
                return;
            }
            at = next_free(at + 1);
        }
        parts.push(part);
    };
    if from > to {
        let part = parts.get_mut(from).map(std::mem::take).unwrap_or_default();
        push(parts, to, part);
        return;
    }
    let mut at = from;
    while at < to {
        push(parts, at, "");
        at = next_free(at + 1);
    }
}

/// Joins the components, and replaces old names by the current ones.
fn finish(parts: &[&str]) -> String {
    let part = |place: usize| {
        parts
            .get(place)
            .copied()
            .filter(|part| !part.is_empty())
            .unwrap_or("unknown")
    };
    let [arch, vendor, mut system, given] = [part(0), part(1), part(2), part(3)];
    if system.starts_with("amdhsa") {
        return format!("{arch}-{vendor}-{system}-");
    }
    let mut environment = given.to_owned();
    if let Some(version) = given.strip_prefix("androideabi") {
        environment = format!("android{version}");
    }
    // SUSE's environment has always used hardware floating point.
    if vendor == "suse"
        && given.starts_with("gnueabi")
        && !given.starts_with("gnueabihf")
        && !given.starts_with("gnueabit64")
    {
        environment = "gnueabihf".to_owned();
    }
    if system.starts_with("windows") || system.starts_with("win32") {
        system = "windows";
        if !is_environment(given) {
            environment = format_of(given)
                .filter(|format| *format != "coff")
                .unwrap_or("msvc")
                .to_owned();
        }
    } else if system.starts_with("mingw") {
        (system, environment) = ("windows", "gnu".to_owned());
    } else if system.starts_with("cygwin") || system.starts_with("msys") {
        (system, environment) = ("windows", "cygnus".to_owned());
    }
    format!("{arch}-{vendor}-{system}-{environment}")
}
