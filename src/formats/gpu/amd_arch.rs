//! AMD architectures in triples: `amdgcn`, and `amdgpu`, which LLVM 23 treats as equal. Since LLVM
//! 24, `amdgpu` may have the version of a processor: `amdgpu9.08` is gfx908, and `amdgpu9` is the
//! whole family of gfx9-generic. (Source: LLVM's "User Guide for AMDGPU Backend", subarchitecture
//! compatibility.)

use std::borrow::Cow;

use super::amd_processors::{FAMILIES, PROCESSORS};

/// The first component of an AMD GPU's triple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AmdArch<'a> {
    /// The version after `amdgpu`, in its main spelling. Empty if the component does not name a
    /// processor.
    version: Cow<'a, str>,
}

/// The suffix of the version of a processor's first revision, if that needs separate code
/// (llvm/llvm-project#218543).
const STRICT: &str = "s";

/// Alternative spellings of major versions.
const OTHER_SPELLINGS: [(&str, &str); 2] = [("9.5", "9.4"), ("10", "10.1")];

impl<'a> AmdArch<'a> {
    /// Parses `amdgcn`, `amdgpu`, `amdgpuN`, `amdgpuN.M` or `amdgpuN.MM`. `None` for other text.
    /// Unknown versions are accepted.
    pub fn parse(name: &'a str) -> Option<Self> {
        if name == "amdgcn" {
            return Some(AmdArch {
                version: Cow::Borrowed(""),
            });
        }
        let version = name.strip_prefix("amdgpu")?;
        let (major, minor) = version
            .split_once('.')
            .map_or((version, None), |(major, minor)| (major, Some(minor)));
        let hexadecimal = |c: u8| c.is_ascii_digit() || (b'a'..=b'f').contains(&c);
        // gfx1250-strict is `amdgpu12.50s`.
        let is_minor = |minor: &str| {
            let digits = minor
                .strip_suffix(STRICT)
                .filter(|digits| digits.len() == 2)
                .unwrap_or(minor);
            matches!(digits.len(), 1 | 2) && digits.bytes().all(hexadecimal)
        };
        let well_formed = major.bytes().all(|c| c.is_ascii_digit())
            && (version.is_empty() || !major.is_empty())
            && minor.is_none_or(is_minor);
        well_formed.then(|| AmdArch {
            version: Cow::Borrowed(main_spelling(version)),
        })
    }

    /// The architecture of `triple`, or `None` if that is not for an AMD GPU.
    pub fn of_triple(triple: &'a str) -> Option<Self> {
        AmdArch::parse(triple.split('-').next().unwrap_or_default())
    }

    /// The architecture of the processor in a target ID: `amdgpu9.0a` for `gfx90a:xnack+`,
    /// `amdgpu9.4` for `gfx9-4-generic`. `None` for names of another form.
    pub fn of_processor(target_id: &str) -> Option<AmdArch<'static>> {
        let number = target_id
            .split(':')
            .next()
            .unwrap_or_default()
            .strip_prefix("gfx")?;
        let version = match number.strip_suffix("-generic") {
            Some(family) => family.replace('-', "."),
            None => {
                let (number, strict) = number
                    .strip_suffix("-strict")
                    .map_or((number, ""), |number| (number, STRICT));
                let (major, minor) = number.split_at_checked(number.len().checked_sub(2)?)?;
                format!("{major}.{minor}{strict}")
            }
        };
        let found =
            AmdArch::parse(&format!("amdgpu{version}")).map(|found| found.version.into_owned());
        found
            .filter(|version| !version.is_empty())
            .map(|version| AmdArch {
                version: Cow::Owned(version),
            })
    }

    /// Whether the architecture names no processor: `amdgcn` and `amdgpu`.
    pub fn is_any(&self) -> bool {
        self.version.is_empty()
    }

    /// Whether the architecture is a family of processors.
    fn is_major(&self) -> bool {
        let minor = self.version.split_once('.').map_or("", |(_, minor)| minor);
        !self.is_any() && minor.len() < 2
    }

    /// The processor's name, such as `gfx908` or `gfx9-generic`. `None` if the architecture names
    /// no processor, or a major version without a generic processor.
    pub fn processor(&self) -> Option<String> {
        if self.is_any() {
            return None;
        }
        if self.is_major() {
            return FAMILIES
                .iter()
                .find(|(major, _)| *major == self.version)
                .and_then(|(_, name)| name.map(str::to_owned));
        }
        let number = self.version.replace('.', "");
        Some(
            match number.strip_suffix(STRICT).filter(|_| self.is_strict()) {
                Some(number) => format!("gfx{number}-strict"),
                None => format!("gfx{number}"),
            },
        )
    }

    /// Whether this is a revision of a processor that needs separate code: gfx1250-strict is the
    /// first revision of gfx1250.
    pub(crate) fn is_strict(&self) -> bool {
        self.version
            .split_once('.')
            .is_some_and(|(_, minor)| minor.len() > 2 && minor.ends_with(STRICT))
    }

    /// The generation: 9 for gfx90a and gfx9-4-generic. Empty if the architecture names no
    /// processor.
    pub(crate) fn major(&self) -> &str {
        self.version.split('.').next().unwrap_or_default()
    }

    /// A unique name, even for architectures without a processor: `gfx6-generic`.
    pub(crate) fn device_name(&self) -> String {
        self.processor()
            .unwrap_or_else(|| format!("gfx{}-generic", self.version.replace('.', "-")))
    }

    /// Whether code for this architecture is also code for `other`: this one names no processor,
    /// the same one, or the family of `other`.
    pub fn covers(&self, other: &AmdArch<'_>) -> bool {
        let is_named = |name: &str| other.processor().is_some_and(|processor| processor == name);
        let family = || {
            PROCESSORS
                .iter()
                .find(|row| is_named(row.name))
                .map(|row| row.family)
        };
        self.is_any()
            || self.version == other.version
            || (self.is_major() && family() == Some(&*self.version))
    }

    /// Whether both may name the same device, as LLVM compares triples: one covers the other. Two
    /// different processors never agree.
    pub fn agrees(&self, other: &AmdArch<'_>) -> bool {
        self.covers(other) || other.covers(self)
    }
}

fn main_spelling(version: &str) -> &str {
    OTHER_SPELLINGS
        .iter()
        .find(|(other, _)| *other == version)
        .map_or(version, |(_, main)| *main)
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
            ("amdgpu12.50s", Some("gfx1250-strict")),
            ("amdgpu14.20", Some("gfx1420")),
        ] {
            assert_eq!(arch(name).processor().as_deref(), processor, "{name}");
            if let Some(processor) = processor {
                assert_eq!(AmdArch::of_processor(processor), Some(arch(name)), "{name}");
            }
        }
        for other in [
            "",
            "amdgc",
            "amdgcn9",
            "amdgpux",
            "amdgpu9.",
            "amdgpu.08",
            "amdgpu9.080",
            "amdgpu9.0A",
            "AMDGPU",
            "r600",
        ] {
            assert_eq!(AmdArch::parse(other), None, "{other}");
        }
        for other in ["", "gfx", "gfx9", "sm_90", "amdgcnspirv", "fiji", "gfx9-é"] {
            assert_eq!(AmdArch::of_processor(other), None, "{other}");
        }
        assert_eq!(
            AmdArch::of_processor("gfx90a:sramecc+:xnack-"),
            Some(arch("amdgpu9.0a"))
        );
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
            ("amdgpu11", "amdgpu11.54", true),
            ("amdgpu11", "amdgpu11.70", false),
            ("amdgpu11.7", "amdgpu11.72", true),
            ("amdgpu12.5", "amdgpu12.51", true),
            ("amdgpu12.5", "amdgpu12.50s", false),
            ("amdgpu12.50", "amdgpu12.50s", false),
            ("amdgpu13", "amdgpu13.10", true),
        ] {
            assert_eq!(arch(one).covers(&arch(other)), covers, "{one} for {other}");
        }
        assert!(
            arch("amdgpu9.00").agrees(&arch("amdgpu9"))
                && !arch("amdgpu9.00").agrees(&arch("amdgpu9.06"))
        );
    }
}
