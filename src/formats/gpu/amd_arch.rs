//! AMD's architectures as triples name them: `amdgcn`; `amdgpu`, which LLVM 23 reads as the same; and, since LLVM 24, `amdgpu` with
//! the version of the processors, `amdgpu9.08` for gfx908 and `amdgpu9` for all of its family that gfx9-generic stands for.
//! (Source: LLVM's "User Guide for AMDGPU Backend", subarchitecture compatibility.)

use std::borrow::Cow;

/// The first component of an AMD GPU's triple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmdArch<'a> {
    /// The version after `amdgpu`, in its main spelling; empty if the component names no processor.
    version: Cow<'a, str>,
}

/// A major version, the generic processor that it stands for if there is one, and the minor versions that it covers. A minor
/// version that is in no row is a family of its own: gfx810, gfx908 and gfx90a have instructions that no generic processor has.
type Family = (&'static str, Option<&'static str>, &'static [&'static str]);

#[rustfmt::skip]
const FAMILIES: [Family; 12] = [
    ("6", None, &["6.00", "6.01", "6.02"]),
    ("7", None, &["7.00", "7.01", "7.02", "7.03", "7.04", "7.05"]),
    ("8", None, &["8.01", "8.02", "8.03", "8.05"]),
    ("9", Some("gfx9-generic"), &["9.00", "9.02", "9.04", "9.06", "9.09", "9.0c"]),
    ("9.4", Some("gfx9-4-generic"), &["9.42", "9.50"]),
    ("10.1", Some("gfx10-1-generic"), &["10.10", "10.11", "10.12", "10.13"]),
    ("10.3", Some("gfx10-3-generic"), &["10.30", "10.31", "10.32", "10.33", "10.34", "10.35", "10.36"]),
    ("11", Some("gfx11-generic"), &["11.00", "11.01", "11.02", "11.03", "11.50", "11.51", "11.52", "11.53", "11.54"]),
    ("11.7", Some("gfx11-7-generic"), &["11.70", "11.71", "11.72"]),
    ("12", Some("gfx12-generic"), &["12.00", "12.01"]),
    ("12.5", Some("gfx12-5-generic"), &["12.50", "12.51"]),
    ("13", Some("gfx13-generic"), &["13.10"]),
];

/// Other spellings of major versions.
const OTHER_SPELLINGS: [(&str, &str); 2] = [("9.5", "9.4"), ("10", "10.1")];

impl<'a> AmdArch<'a> {
    /// Reads `amdgcn`, `amdgpu`, `amdgpuN`, `amdgpuN.M` or `amdgpuN.MM`; none for anything else. The version need not be a known
    /// one.
    pub fn parse(name: &'a str) -> Option<Self> {
        if name == "amdgcn" {
            return Some(AmdArch { version: Cow::Borrowed("") });
        }
        let version = name.strip_prefix("amdgpu")?;
        let (major, minor) = version.split_once('.').map_or((version, None), |(major, minor)| (major, Some(minor)));
        let hexadecimal = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        let well_formed = major.bytes().all(|c| c.is_ascii_digit())
            && (version.is_empty() || !major.is_empty())
            && minor.is_none_or(|minor| matches!(minor.len(), 1 | 2) && minor.bytes().all(hexadecimal));
        well_formed.then(|| AmdArch { version: Cow::Borrowed(main_spelling(version)) })
    }

    /// The architecture of the first component of `triple`, if that is for an AMD GPU.
    pub fn of_triple(triple: &'a str) -> Option<Self> {
        AmdArch::parse(triple.split('-').next().unwrap_or_default())
    }

    /// The architecture of the processor in a target id: `amdgpu9.0a` for `gfx90a:xnack+`, `amdgpu9.4` for `gfx9-4-generic`. None
    /// for names of another form.
    pub fn of_processor(target_id: &str) -> Option<AmdArch<'static>> {
        let number = target_id.split(':').next().unwrap_or_default().strip_prefix("gfx")?;
        let version = match number.strip_suffix("-generic") {
            Some(family) => family.replace('-', "."),
            None => {
                let (major, minor) = number.split_at_checked(number.len().checked_sub(2)?)?;
                format!("{major}.{minor}")
            }
        };
        let found = AmdArch::parse(&format!("amdgpu{version}")).map(|found| found.version.into_owned());
        found.filter(|version| !version.is_empty()).map(|version| AmdArch { version: Cow::Owned(version) })
    }

    /// Whether it names no processor: `amdgcn` and `amdgpu`.
    pub fn is_any(&self) -> bool {
        self.version.is_empty()
    }

    /// Whether it names a family of processors.
    fn is_major(&self) -> bool {
        let minor = self.version.split_once('.').map_or("", |(_, minor)| minor);
        !self.is_any() && minor.len() < 2
    }

    /// The processor that it stands for, `gfx908` or `gfx9-generic`. None if it stands for none, and for the major versions that
    /// have no generic processor.
    pub fn processor(&self) -> Option<String> {
        if self.is_any() {
            return None;
        }
        if self.is_major() {
            return FAMILIES.iter().find(|(major, ..)| *major == self.version).and_then(|(_, name, _)| name.map(str::to_owned));
        }
        Some(format!("gfx{}", self.version.replace('.', "")))
    }

    /// The number of its generation: 9 for gfx90a and gfx9-4-generic. Empty if it names no processor.
    pub(crate) fn major(&self) -> &str {
        self.version.split('.').next().unwrap_or_default()
    }

    /// A name for what it stands for that differs from all others, also where there is no processor: `gfx6-generic`.
    pub(crate) fn device_name(&self) -> String {
        self.processor().unwrap_or_else(|| format!("gfx{}-generic", self.version.replace('.', "-")))
    }

    /// Whether code for this architecture is code for `other`, too: if it names no processor, the same one, or the family of the
    /// other.
    pub fn covers(&self, other: &AmdArch<'_>) -> bool {
        let family_of = |minor: &str| FAMILIES.iter().find(|(.., minors)| minors.contains(&minor)).map(|(major, ..)| *major);
        self.is_any() || self.version == other.version || (self.is_major() && family_of(&other.version) == Some(&*self.version))
    }

    /// Whether both may name one device, as LLVM compares triples: if one covers the other. Two processors never agree.
    pub fn agrees(&self, other: &AmdArch<'_>) -> bool {
        self.covers(other) || other.covers(self)
    }
}

fn main_spelling(version: &str) -> &str {
    OTHER_SPELLINGS.iter().find(|(other, _)| *other == version).map_or(version, |(_, main)| *main)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arch(name: &str) -> AmdArch<'_> {
        AmdArch::parse(name).unwrap()
    }

    #[test]
    fn names_and_processors() {
        for (name, processor) in [
            ("amdgcn", None),
            ("amdgpu", None),
            ("amdgpu6", None),
            ("amdgpu9", Some("gfx9-generic")),
            ("amdgpu9.4", Some("gfx9-4-generic")),
            ("amdgpu9.5", Some("gfx9-4-generic")),
            ("amdgpu10", Some("gfx10-1-generic")),
            ("amdgpu9.08", Some("gfx908")),
            ("amdgpu9.0a", Some("gfx90a")),
            ("amdgpu12.50", Some("gfx1250")),
            ("amdgpu14.20", Some("gfx1420")),
        ] {
            assert_eq!(arch(name).processor().as_deref(), processor, "{name}");
            if let Some(processor) = processor {
                assert_eq!(AmdArch::of_processor(processor), Some(arch(name)), "{name}");
            }
        }
        for other in ["", "amdgc", "amdgcn9", "amdgpux", "amdgpu9.", "amdgpu.08", "amdgpu9.080", "amdgpu9.0A", "AMDGPU", "r600"] {
            assert_eq!(AmdArch::parse(other), None, "{other}");
        }
        for other in ["", "gfx", "gfx9", "sm_90", "amdgcnspirv", "fiji", "gfx9-é"] {
            assert_eq!(AmdArch::of_processor(other), None, "{other}");
        }
        assert_eq!(AmdArch::of_processor("gfx90a:sramecc+:xnack-"), Some(arch("amdgpu9.0a")));
    }

    #[test]
    fn a_major_version_covers_its_minor_ones_and_no_minor_one_another() {
        for (one, other, covers) in [
            ("amdgcn", "amdgpu9.08", true),
            ("amdgpu9.08", "amdgcn", false),
            ("amdgpu", "amdgcn", true),
            ("amdgpu9", "amdgpu9.00", true),
            ("amdgpu9.00", "amdgpu9", false),
            ("amdgpu9.00", "amdgpu9.06", false),
            ("amdgpu9", "amdgpu9.08", false),
            ("amdgpu9", "amdgpu9.0a", false),
            ("amdgpu9", "amdgpu9.42", false),
            ("amdgpu9.4", "amdgpu9.50", true),
            ("amdgpu8", "amdgpu8.10", false),
            ("amdgpu6", "amdgpu6.01", true),
            ("amdgpu14", "amdgpu14.20", false),
        ] {
            assert_eq!(arch(one).covers(&arch(other)), covers, "{one} for {other}");
        }
        assert!(arch("amdgpu9.00").agrees(&arch("amdgpu9")) && !arch("amdgpu9.00").agrees(&arch("amdgpu9.06")));
    }
}
