//! Compatibility of code objects with targets (docs/spec/containers.md 2.6, 3.6). A code object
//! that does not specify a feature runs with and without it. A target that does not specify a
//! feature cannot use a code object that does.

use std::collections::{BTreeSet, HashMap};
use std::fmt;

use super::id::{Id, SYSTEMS, VENDORS, format_of, standard};
use crate::gpu::{AmdArch, TargetId};

/// Whether a target can use a code object, and why.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Verdict {
    /// Both are the same.
    Exact,
    /// The kinds or triples differ.
    KindOrTriple,
    /// The processors differ, or one of the target IDs is invalid.
    Processor,
    /// The code object specifies more features than the target.
    MoreFeatures,
    /// The code object specifies a feature that the target does not specify.
    FixedForAny,
    /// The values of a feature differ.
    OtherValue,
    /// All features of the code object have the same value in the target.
    Compatible,
}

impl Verdict {
    /// Whether the target can use the code object.
    pub fn serves(self) -> bool {
        matches!(self, Verdict::Exact | Verdict::Compatible)
    }

    /// The line that `-debug-only=CodeObjectCompatibility` prints for this verdict.
    pub fn line(self, object: &Id, target: &Id) -> String {
        format!("{self} \t[CodeObject: {object}]\t:\t[Target: {target}]")
    }
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const NOT_MATCHING: &str = "Incompatible: Value of CodeObject's non-ANY feature is not matching with Target feature's";
        match self {
            Verdict::Exact => f.write_str("Compatible: Exact match:"),
            Verdict::KindOrTriple => f.write_str("Incompatible: Kind/Triple mismatch"),
            Verdict::Processor => f.write_str("Incompatible: Processor mismatch"),
            Verdict::MoreFeatures => {
                f.write_str("Incompatible: CodeObject has more features than target")
            }
            Verdict::FixedForAny => write!(f, "{NOT_MATCHING} ANY value"),
            Verdict::OtherValue => write!(f, "{NOT_MATCHING} non-ANY value"),
            Verdict::Compatible => f.write_str("Compatible: Target IDs are compatible"),
        }
    }
}

/// Decides whether `target` can use the code object `object`. With `hip_openmp`, the kinds HIP and
/// OpenMP are equal (`-hip-openmp-compatible`).
pub fn compatibility(object: &Id, target: &Id, hip_openmp: bool) -> Verdict {
    let triples = compatible_triples(&object.triple, &target.triple);
    let ((_, object_id), (_, target_id)) = (object.device(), target.device());
    let same_id = object_id == target_id;
    if object.kind == target.kind && triples && same_id {
        return Verdict::Exact;
    }
    if !triples || !compatible_kinds(&object.kind, &target.kind, hip_openmp) {
        return Verdict::KindOrTriple;
    }
    let parsed = [(object, &object_id), (target, &target_id)]
        .map(|(id, text)| TargetId::of_triple(&id.triple, text));
    match parsed {
        [Some(object), Some(target)] if object.processor == target.processor => {
            features(&object, &target)
        }
        // An unknown processor is only compatible with itself.
        _ if same_id && !object_id.is_empty() => Verdict::Compatible,
        _ => Verdict::Processor,
    }
}

fn features(object: &TargetId<'_>, target: &TargetId<'_>) -> Verdict {
    if object.features.len() > target.features.len() {
        return Verdict::MoreFeatures;
    }
    for (name, value) in &object.features {
        match target.features.get(name) {
            None => return Verdict::FixedForAny,
            Some(other) if other != value => return Verdict::OtherValue,
            Some(_) => {}
        }
    }
    Verdict::Compatible
}

fn compatible_kinds(object: &str, target: &str, hip_openmp: bool) -> bool {
    let hip = |kind: &str| matches!(kind, "hip" | "hipv4");
    let like_hip = |kind: &str| {
        kind.get(..3)
            .is_some_and(|start| start.eq_ignore_ascii_case("hip"))
    };
    let mixed = |one: &str, other: &str| one == "openmp" && like_hip(other);
    object == target
        || hip(object) && hip(target)
        || hip_openmp && (mixed(object, target) || mixed(target, object))
}

/// The code objects of a bundle or an archive, indexed by processor. There may be many thousands,
/// and a target is only compared with those of its processor.
#[derive(Debug)]
pub struct Objects<'i> {
    ids: Vec<&'i Id>,
    processors: HashMap<String, Vec<usize>>,
}

impl<'i> Objects<'i> {
    /// Indexes the code objects with these IDs, in order.
    pub fn new(ids: impl IntoIterator<Item = &'i Id>) -> Self {
        let ids: Vec<&Id> = ids.into_iter().collect();
        let mut processors: HashMap<String, Vec<usize>> = HashMap::new();
        for (index, id) in ids.iter().enumerate() {
            processors_of(id)
                .into_iter()
                .for_each(|name| processors.entry(name).or_default().push(index));
        }
        Objects { ids, processors }
    }

    /// The indices of the code objects that `target` can use, in order, each with its verdict.
    pub fn serving(&self, target: &Id, hip_openmp: bool) -> Vec<(usize, Verdict)> {
        let of_processor = processors_of(target)
            .into_iter()
            .filter_map(|name| self.processors.get(&name));
        let candidates: BTreeSet<usize> = of_processor.flatten().copied().collect();
        let verdict = |index: usize| {
            Some((
                index,
                compatibility(self.ids.get(index)?, target, hip_openmp),
            ))
        };
        let verdicts = candidates.into_iter().filter_map(verdict);
        verdicts.filter(|(_, verdict)| verdict.serves()).collect()
    }

    /// The index of the best code object for `target`: an exact match, else the one with the most
    /// features. Ties are broken by the same kind, then by the same triple, then by the order.
    pub fn best(&self, target: &Id, hip_openmp: bool) -> Option<usize> {
        let mut found = None;
        for (index, verdict) in self.serving(target, hip_openmp) {
            let Some(object) = self.ids.get(index) else {
                continue;
            };
            let fixed = object.target_id.matches(':').count();
            let rank = (
                verdict == Verdict::Exact,
                fixed,
                object.kind == target.kind,
                object.triple == target.triple,
            );
            if found.is_none_or(|(best, _)| rank > best) {
                found = Some((rank, index));
            }
        }
        found.map(|(_, index)| index)
    }
}

/// The processor, if it is known, and the whole target ID. Compatible IDs have at least one of them
/// in common.
fn processors_of(id: &Id) -> BTreeSet<String> {
    let (_, target_id) = id.device();
    let processor =
        TargetId::of_triple(&id.triple, &target_id).map(|parsed| parsed.processor.to_owned());
    processor.into_iter().chain([target_id]).collect()
}

// Triples as LLVM compares them: each component is one of the known names, or unknown. All unknown
// names are equal, and versions are ignored (docs/spec/containers.md 2.5).

/// Prefixes of environments. The first match counts, so longer ones precede their own prefixes.
#[rustfmt::skip]
const ENVIRONMENTS: &[&str] = &[
    "eabihf", "eabi", "gnuabin32", "gnuabi64", "gnueabihft64", "gnueabihf", "gnueabit64", "gnueabi", "gnuf32", "gnuf64", "gnusf",
    "gnux32", "gnu_ilp32", "code16", "gnut64", "gnu", "android", "muslabin32", "muslabi64", "musleabihf", "musleabi", "muslf32",
    "muslsf", "muslx32", "muslwali", "musl", "msvc", "itanium", "cygnus", "coreclr", "simulator", "macabi", "pixel", "vertex",
    "geometry", "hull", "domain", "compute", "library", "raygeneration", "intersection", "anyhit", "closesthit", "miss", "callable",
    "mesh", "amplification", "rootsignature", "opencl", "ohos", "pauthtest", "llvm", "mlibc", "mtia",
];

/// Names of the same architecture. The first one represents the others.
#[rustfmt::skip]
const SYNONYMS: &[&[&str]] = &[
    &["x86_64", "amd64", "x86_64h"],
    &["ppc", "powerpc", "powerpcspe", "ppc32"],
    &["ppcle", "powerpcle", "ppc32le"],
    &["ppc64", "powerpc64", "ppu"],
    &["ppc64le", "powerpc64le"],
    &["aarch64", "arm64", "arm64e", "arm64ec", "aarch64_lfi"],
    &["aarch64_32", "arm64_32"],
    &["mips", "mipseb", "mipsallegrex", "mipsisa32r6", "mipsr6"],
    &["mipsel", "mipsallegrexel"],
    &["mips64", "mips64eb", "mipsn32", "mipsisa64r6", "mips64r6"],
    &["mips64el", "mipsn32el"],
    &["s390x", "systemz"],
    &["sparcv9", "sparc64"],
    &["bpfel", "bpf"],
    &["kalimba", "kalimba3"],
    &["arm", "xscale"],
];

/// A triple, split into components.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Enumerated<'a> {
    arch: &'a str,
    subarch: &'a str,
    vendor: &'static str,
    system: &'static str,
    environment: &'static str,
    format: &'static str,
}

/// All unknown components are equal.
const UNKNOWN: &str = "unknown";

impl<'a> Enumerated<'a> {
    /// Parses a triple of four components.
    fn read(triple: &'a str) -> Self {
        let mut parts = triple.splitn(4, '-');
        let mut part = || parts.next().unwrap_or_default();
        let [arch, vendor, system, environment] = [part(), part(), part(), part()];
        let (arch, subarch) = architecture(arch);
        let vendor = VENDORS
            .into_iter()
            .find(|name| *name == vendor)
            .unwrap_or(UNKNOWN);
        let system = operating_system(system);
        let is_prefix = |name: &&&str| environment.starts_with(**name);
        let format = format_of(environment).unwrap_or_else(|| usual_format(arch, system));
        let environment = ENVIRONMENTS
            .iter()
            .find(is_prefix)
            .copied()
            .unwrap_or(UNKNOWN);
        Enumerated {
            arch,
            subarch,
            vendor,
            system,
            environment,
            format,
        }
    }

    /// Whether code for this triple also runs as code for `other`.
    fn fits(&self, other: &Enumerated<'_>) -> bool {
        let processor = match (AmdArch::parse(self.arch), AmdArch::parse(other.arch)) {
            (Some(own), Some(other)) => own.agrees(&other),
            _ => self.family() == other.family() && self.subarch == other.subarch,
        };
        let machine = processor && self.system == other.system;
        // C is usually compiled for `w64`, and Rust for `pc`.
        let vendor =
            self.vendor == other.vendor || self.system == "windows" && self.environment == "gnu";
        let rest = self.vendor == "apple"
            || self.environment == other.environment && self.format == other.format;
        machine && vendor && rest
    }

    /// ARM and Thumb are two modes of the same CPU.
    fn family(&self) -> &str {
        match self.arch {
            "thumb" => "arm",
            "thumbeb" => "armeb",
            arch => arch,
        }
    }
}

/// Whether code for the triple `object` is also code for `requested`. Both may have any form that
/// occurs in IDs.
pub fn compatible_triples(object: &str, requested: &str) -> bool {
    let (object, requested) = (standard(object), standard(requested));
    object == requested || Enumerated::read(&object).fits(&Enumerated::read(&requested))
}

/// The architecture and its version, if the version matters.
fn architecture(name: &str) -> (&str, &str) {
    if let Some(same) = SYNONYMS.iter().find(|same| same.contains(&name)) {
        let subarch = match name {
            "arm64e" | "arm64ec" | "aarch64_lfi" | "powerpcspe" => name,
            "xscale" => "v5te",
            _ if name.ends_with("r6") => "r6",
            _ => "",
        };
        return (same.first().copied().unwrap_or(name), subarch);
    }
    let x86 = name
        .strip_prefix('i')
        .and_then(|rest| rest.strip_suffix("86"))
        .is_some_and(|digit| digit.len() == 1);
    if x86 {
        return ("i386", "");
    }
    for family in ["armeb", "thumbeb", "arm", "thumb"] {
        if let Some(version) = name
            .strip_prefix(family)
            .filter(|version| version.is_empty() || version.starts_with('v'))
        {
            return (&name[..family.len()], arm_version(version));
        }
    }
    for family in ["spirv32", "spirv64", "spirv", "dxil"] {
        if let Some(version) = name.strip_prefix(family) {
            return (&name[..family.len()], version.trim_start_matches('v'));
        }
    }
    (name, "")
}

/// A version without a profile means the application profile.
fn arm_version(version: &str) -> &str {
    match version {
        "v4" => "",
        "v7a" | "v7r" => "v7",
        "v8a" => "v8",
        "v9a" => "v9",
        _ => version,
    }
}

fn operating_system(name: &str) -> &'static str {
    let is_prefix = |system: &&&str| name.starts_with(**system);
    match SYSTEMS.iter().find(is_prefix).copied() {
        Some("win32") => "windows",
        Some("visionos") => "xros",
        // The later versions are separate systems.
        Some("wasi") => ["wasip1", "wasip2", "wasip3"]
            .into_iter()
            .find(|later| name.starts_with(later))
            .unwrap_or("wasi"),
        Some(system) => system,
        None => UNKNOWN,
    }
}

/// The object format if the environment does not name one.
fn usual_format(arch: &str, system: &str) -> &'static str {
    match (arch, system) {
        ("wasm32" | "wasm64", _) => "wasm",
        ("spirv" | "spirv32" | "spirv64", _) => "spirv",
        ("s390x", "zos") => "goff",
        ("ppc" | "ppc64", "aix") => "xcoff",
        ("i386" | "x86_64" | "arm" | "thumb" | "aarch64" | "mipsel", "windows" | "uefi") => "coff",
        (
            _,
            "darwin" | "macos" | "ios" | "tvos" | "watchos" | "driverkit" | "xros" | "bridgeos",
        ) => "macho",
        _ => "elf",
    }
}
