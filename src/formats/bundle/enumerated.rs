//! Triples as LLVM compares them: each component is one of the known names, or unknown. All unknown
//! names are equal, and versions are ignored (docs/spec/containers.md 2.5).

use crate::formats::gpu::AmdArch;

use super::triple::{SYSTEMS, VENDORS, format_of, standard};

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
pub(super) struct Enumerated<'a> {
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
