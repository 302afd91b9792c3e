//! Hosts that registration code can be generated for: the architectures in their triples, and the
//! features and ABI of their objects.

use anyhow::{Result, bail};

use crate::elf::notes;
use crate::model::ObjectFormat;

/// A family of hosts that share a back end of LLVM.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Family {
    /// 32-bit and 64-bit x86.
    X86,
    /// 64-bit Arm.
    AArch64,
    /// 32-bit and 64-bit PowerPC.
    PowerPc,
    /// 32-bit and 64-bit RISC-V.
    RiscV,
    /// IBM Z.
    SystemZ,
    /// 32-bit and 64-bit LoongArch.
    LoongArch,
}

/// The architectures of each family: the first components of triples, as LLVM 22 reads them
/// (`Triple::parseArch`).
pub const FAMILIES: [(Family, &[&str]); 6] = [
    (
        Family::X86,
        &[
            "x86_64", "amd64", "x86_64h", "i386", "i486", "i586", "i686", "i786", "i886", "i986",
        ],
    ),
    (
        Family::AArch64,
        &[
            "aarch64",
            "arm64",
            "aarch64_be",
            "arm64e",
            "arm64ec",
            "aarch64_32",
            "arm64_32",
        ],
    ),
    (
        Family::PowerPc,
        &[
            "powerpc64le",
            "ppc64le",
            "powerpc64",
            "ppc64",
            "ppu",
            "powerpc",
            "powerpcspe",
            "ppc",
            "ppc32",
            "powerpcle",
            "ppcle",
            "ppc32le",
        ],
    ),
    (Family::RiscV, &["riscv64", "riscv32"]),
    (Family::SystemZ, &["s390x", "systemz"]),
    (Family::LoongArch, &["loongarch64", "loongarch32"]),
];

/// Returns the family of the host `triple`, if registration code can be generated for it.
pub fn family(triple: &str) -> Option<Family> {
    let arch = triple.split('-').next().unwrap_or_default();
    FAMILIES
        .iter()
        .find(|(_, names)| names.contains(&arch))
        .map(|(family, _)| *family)
}

/// Returns the target features and the ABI of the host. Linkers reject objects that differ in
/// these, but the triple does not contain them, so these are the ones of Linux distributions. The
/// ABI is given only if the triple allows several.
pub fn features_and_abi(triple: &str) -> (&'static str, Option<&'static str>) {
    match triple.split('-').next().unwrap_or_default() {
        "riscv64" => ("+m,+a,+f,+d,+c", Some("lp64d")),
        "riscv32" => ("+m,+a,+f,+d,+c", Some("ilp32d")),
        "loongarch64" => ("+f,+d", Some("lp64d")),
        "powerpc64le" | "ppc64le" => ("", Some("elfv2")),
        _ => ("", None),
    }
}

/// Returns all control-flow protection that registration code for the host `triple` can have
/// (`elf::notes`). CPUs without the protection ignore its instructions. Old 32-bit x86
/// CPUs reject them, so these hosts get none.
pub fn whole_protection(triple: &str) -> u32 {
    match family(triple) {
        _ if ObjectFormat::of(triple) != ObjectFormat::Elf => 0,
        Some(Family::X86) if matches!(triple.split('-').next(), Some("x86_64" | "amd64")) => {
            notes::X86_PROTECTION
        }
        Some(Family::AArch64) => notes::AARCH64_PROTECTION,
        _ => 0,
    }
}

/// Fails if no registration code can be generated for the host `triple`, with LLVM's message if
/// LLVM has one.
pub fn check(triple: &str) -> Result<()> {
    if family(triple).is_none() {
        bail!("No available targets are compatible with triple \"{triple}\"");
    }
    if ObjectFormat::of(triple) == ObjectFormat::MachO {
        bail!("Mach-O objects of the host `{triple}` cannot hold offload entries");
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_names_count() {
        assert_eq!(family("x86_64-unknown-linux-gnu"), Some(Family::X86));
        assert_eq!(family("ppc64le-linux"), Some(Family::PowerPc));
        for triple in [
            "",
            "x86",
            "riscv",
            "amdgcn-amd-amdhsa",
            "x86_65-linux",
            "bogus",
        ] {
            assert_eq!(family(triple), None, "{triple}");
        }
    }

    #[test]
    fn mach_o_hosts_are_refused() {
        assert!(check("x86_64-unknown-linux-gnu").is_ok());
        assert!(check("x86_64-pc-windows-msvc").is_ok());
        assert!(
            check("arm64-apple-macosx14")
                .unwrap_err()
                .to_string()
                .contains("Mach-O objects")
        );
        assert!(
            check("wasm32-unknown-unknown")
                .unwrap_err()
                .to_string()
                .contains("No available targets")
        );
    }
}
