//! The values of `--device-linker=` and `--device-compiler=`, which apply to one target or to all
//! (docs/spec/link-driver.md 2.2).

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use offload_formats::gpu::AmdArch;
use offload_formats::target::Target;

/// An argument for every device link, or `triple=argument` for one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TargetArg {
    /// The triple whose device links get the argument; `None` for all.
    triple: Option<OsString>,
    argument: OsString,
}

impl TargetArg {
    /// Splits the value after the option's `=` into the triple, if there is one, and the argument.
    pub fn new(value: &OsStr) -> Self {
        let bytes = value.as_bytes();
        let equals = bytes.iter().position(|byte| *byte == b'=');
        let (head, tail) = bytes.split_at(equals.unwrap_or(bytes.len()));
        let arch = head.split(|byte| *byte == b'-').next().unwrap_or_default();
        let names_triple = std::str::from_utf8(arch).is_ok_and(is_llvm_arch);
        let owned = |bytes: &[u8]| OsStr::from_bytes(bytes).to_owned();
        let (triple, argument) = match tail {
            _ if !names_triple => (None, value.to_owned()),
            [] | [_] => (None, owned(head)),
            [_, argument @ ..] => (Some(owned(head)), owned(argument)),
        };
        TargetArg { triple, argument }
    }

    /// Returns the argument that a device link for `triple` gets from this value, if any.
    pub fn for_triple(&self, triple: &str) -> Option<&OsStr> {
        self.for_target(&Target::new(triple, ""))
    }

    /// Returns the argument that a device link for `target` gets from this value, if any. Arguments
    /// for another spelling of a device's triple apply as well. For an AMD GPU, so do arguments for
    /// any of its names, for its family, and for all AMD GPUs, as in LLVM 24.
    pub fn for_target(&self, target: &Target) -> Option<&OsStr> {
        let applies = |triple: &OsString| {
            let is_name = |name: &str| is_amd_name(name, target) || target.is_spelled(name);
            *triple == *target.triple || triple.to_str().is_some_and(is_name)
        };
        let argument = self.argument.as_os_str();
        self.triple.as_ref().is_none_or(applies).then_some(argument)
    }

    /// The argument, independent of the device links that get it.
    pub fn argument(&self) -> &OsStr {
        &self.argument
    }
}

/// Whether `triple` can name the AMD GPU `target`: as that device, as its family, or as any device.
/// If the target is a family, the name of one of its devices counts, too.
fn is_amd_name(triple: &str, target: &Target) -> bool {
    let rest = |triple: &str| triple.split_once('-').map(|(_, rest)| rest.to_owned());
    match (AmdArch::of_triple(triple), target.amd_arch()) {
        (Some(named), Some(arch)) => named.agrees(&arch) && rest(triple) == rest(&target.triple),
        _ => false,
    }
}

/// Whether LLVM 22 reads `name` as the architecture of a triple, or LLVM 24 as that of an AMD GPU.
/// Only then does `name-…=value` apply to one target.
pub fn is_llvm_arch(name: &str) -> bool {
    #[rustfmt::skip]
    const PLAIN: &[&str] = &[
        "aarch64", "aarch64_32", "aarch64_be", "aarch64_lfi", "amd64", "amdgcn", "amdil", "amdil64", "arc", "arm64",
        "arm64_32", "arm64e", "arm64ec", "avr", "bpf", "bpfeb", "bpfel", "csky", "hexagon", "hsail", "hsail64", "kalimba",
        "kalimba3", "kalimba4", "kalimba5", "lanai", "loongarch32", "loongarch64", "m68k", "mips", "mips64", "mips64eb",
        "mips64el", "mips64r6", "mips64r6el", "mipsallegrex", "mipsallegrexel", "mipseb", "mipsel", "mipsisa32r6",
        "mipsisa32r6el", "mipsisa64r6", "mipsisa64r6el", "mipsn32", "mipsn32el", "mipsn32r6", "mipsn32r6el", "mipsr6",
        "mipsr6el", "msp430", "nvptx", "nvptx64", "powerpc", "powerpc64", "powerpc64le", "powerpcle", "powerpcspe",
        "ppc", "ppc32", "ppc32le", "ppc64", "ppc64le", "ppcle", "ppu", "r600", "renderscript32", "renderscript64",
        "riscv32", "riscv32be", "riscv64", "riscv64be", "s390x", "shave", "sparc", "sparc64", "sparcel", "sparcv9",
        "spir", "spir64", "systemz", "tce", "tcele", "ve", "wasm32", "wasm64", "x86_64", "x86_64h", "xcore", "xscale",
        "xscaleeb", "xtensa",
    ];
    #[rustfmt::skip]
    const ARM: &[&str] = &[
        "", "v4", "v4t", "v5", "v5t", "v5te", "v6", "v6k", "v6m", "v6t2", "v7", "v7a", "v7em", "v7k", "v7m", "v7r",
        "v7s", "v7ve", "v8", "v8.1a", "v8.1m.main", "v8.2a", "v8.3a", "v8.4a", "v8.5a", "v8.6a", "v8.7a", "v8.8a",
        "v8.9a", "v8a", "v8m.base", "v8m.main", "v8r", "v9", "v9.1a", "v9.2a", "v9.3a", "v9.4a", "v9.5a", "v9.6a", "v9a",
    ];
    let version = |prefix: &str, lowest: u8, highest: u8| {
        let minor = name.strip_prefix(prefix).map(str::as_bytes);
        matches!(minor, Some([digit]) if (b'0' + lowest..=b'0' + highest).contains(digit))
    };
    PLAIN.contains(&name)
        || AmdArch::parse(name).is_some()
        || matches!(name.as_bytes(), [b'i', b'3'..=b'9', b'8', b'6'])
        || ["armeb", "thumbeb", "arm", "thumb"].iter().any(|base| {
            name.strip_prefix(base)
                .is_some_and(|sub| ARM.contains(&sub))
        })
        || matches!(name, "dxil" | "spirv" | "spirv32" | "spirv64")
        || version("dxilv1.", 0, 9)
        || version("spirv1.", 5, 6)
        || version("spirv32v1.", 0, 6)
        || version("spirv64v1.", 0, 6)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(value: &str, triple: &str) -> Option<String> {
        let arg = TargetArg::new(value.as_ref());
        arg.for_triple(triple)
            .map(|text| text.to_string_lossy().into_owned())
    }

    #[test]
    fn a_value_reaches_every_target_or_the_one_it_names() {
        let amd = "amdgcn-amd-amdhsa";
        assert_eq!(given("foo=bar", amd).as_deref(), Some("foo=bar"));
        assert_eq!(given("-O3", amd).as_deref(), Some("-O3"));
        assert_eq!(given("", amd).as_deref(), Some(""));
        assert_eq!(
            given("-plugin-opt=x", amd).as_deref(),
            Some("-plugin-opt=x")
        );
        assert_eq!(given("amdgcn", amd).as_deref(), Some("amdgcn"));
        assert_eq!(
            given("amdgcn-amd-amdhsa=", amd).as_deref(),
            Some("amdgcn-amd-amdhsa")
        );
        assert_eq!(given("amdgcn-amd-amdhsa=k=v", amd).as_deref(), Some("k=v"));
        assert_eq!(given("nvptx64=c", "nvptx64-nvidia-cuda"), None);
        assert_eq!(given("nvptx64-nvidia-cuda=b", amd), None);
        assert_eq!(
            given("AMDGCN-amd-amdhsa=b", amd).as_deref(),
            Some("AMDGCN-amd-amdhsa=b")
        );
    }

    #[test]
    fn a_triple_has_several_spellings() {
        for spelled in [
            "x86_64-unknown-linux-gnu",
            "x86_64--linux-gnu",
            "x86_64-redhat-linux",
            "x86_64",
        ] {
            assert_eq!(
                given("x86_64-pc-linux-gnu=x", spelled).as_deref(),
                Some("x"),
                "{spelled}"
            );
        }
        assert_eq!(
            given("nvptx64-nvidia-cuda=x", "nvptx64").as_deref(),
            Some("x")
        );
        for other in [
            "x86_64-pc-linux-musl",
            "i686-pc-linux-gnu",
            "x86_64-pc-linux-gnux32",
            "x86_64-pc-windows-msvc",
        ] {
            assert_eq!(given("x86_64-pc-linux-gnu=x", other), None, "{other}");
        }
    }

    #[test]
    fn an_amd_gpu_has_several_names() {
        let reaches = |head: &str, triple: &str, arch: &str| {
            TargetArg::new(format!("{head}-amd-amdhsa=x").as_ref())
                .for_target(&Target::new(triple, arch))
                .is_some()
        };
        let (old, new, family) = (
            "amdgcn-amd-amdhsa",
            "amdgpu9.00-amd-amdhsa",
            "amdgpu9-amd-amdhsa",
        );
        for (head, to_old, to_new, to_family) in [
            ("amdgcn", true, true, true),
            ("amdgpu", true, true, true),
            ("amdgpu9.00", true, true, true),
            ("amdgpu9", true, true, true),
            ("amdgpu9.06", false, false, true),
            ("amdgpu10.3", false, false, false),
            ("r600", false, false, false),
        ] {
            assert_eq!(reaches(head, old, "gfx900"), to_old, "{head}");
            assert_eq!(
                reaches(head, new, "gfx900") && reaches(head, new, ""),
                to_new,
                "{head}"
            );
            assert_eq!(reaches(head, family, ""), to_family, "{head}");
        }
        assert!(!reaches("amdgcn", "amdgpu9.00-amd-amdpal", "gfx900"));
    }

    #[test]
    fn architectures_are_those_llvm_knows() {
        for known in [
            "i686",
            "x86_64h",
            "thumbv8m.main",
            "armv7a",
            "spirv64v1.6",
            "spirv1.5",
            "dxilv1.9",
            "ppc64le",
            "armeb",
            "amdgpu9.08",
        ] {
            assert!(is_llvm_arch(known), "{known}");
        }
        for unknown in [
            "amdgpux", "i286", "x86", "riscv", "spirv1.7", "spirv1.0", "le64", "native", "X86_64",
            "", " arm",
        ] {
            assert!(!is_llvm_arch(unknown), "{unknown}");
        }
    }
}
