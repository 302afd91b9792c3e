//! `--override-image=<kind>=<file>`: linked images that the user gives, in place of everything in the inputs
//! (docs/spec/link-driver.md 9.3). What an image is for is read off its ELF header, or off the OffloadBinary that it comes in.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use object::Endianness;
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::FileHeader;

use super::Linked;
use crate::formats::offload_binary;
use crate::io::bytes::Bytes;
use crate::model::{Generation, ImageKind, OffloadKind, OffloadKinds};
use crate::target::Target;

/// The images of the options, in order.
pub fn given(options: &[(String, std::path::PathBuf)]) -> Result<Vec<Linked>> {
    options
        .iter()
        .map(|(kind, file)| image(kind, file).with_context(|| format!("--override-image={kind}={}", file.display())))
        .collect()
}

fn image(kind: &str, file: &Path) -> Result<Linked> {
    let known = OffloadKind::ALL.into_iter().find(|known| known.name() == kind);
    let kind = known.ok_or_else(|| anyhow!("unknown kind `{kind}`: it is openmp, cuda, hip or sycl"))?;
    let bytes = Bytes::of(file)?;
    let (triple, arch) = match kind {
        OffloadKind::Sycl => packed_target(bytes.as_slice())
            .with_context(|| format!("`{}` is not what SYCL's device linker makes, an OffloadBinary", file.display()))?,
        _ => target(bytes.as_slice()).with_context(|| format!("`{}` is not an ELF image", file.display()))?,
    };
    Ok(Linked {
        target: Target::new(&triple, &arch),
        triple,
        generation: Generation::Llvm21,
        kinds: OffloadKinds::default().with(kind),
        image_kind: ImageKind::Object,
        path: file.to_path_buf(),
    })
}

/// Triple and architecture of the first image of a file of OffloadBinaries, in which SYCL's images come.
fn packed_target(data: &[u8]) -> Result<(String, String)> {
    let images = offload_binary::read_all(data)?;
    let first = images.first().context("it holds no image")?;
    Ok((first.triple().into_owned(), first.arch().into_owned()))
}

/// Triple and architecture by the ELF header, as LLVM spells them for such images.
fn target(data: &[u8]) -> Result<(String, String)> {
    let (machine, flags) = match data.get(4) {
        Some(1) => header::<FileHeader32<Endianness>>(data)?,
        _ => header::<FileHeader64<Endianness>>(data)?,
    };
    let named = |arch: &str| Ok((format!("{arch}--"), String::new()));
    match machine {
        elf::EM_AMDGPU => Ok(("amdgcn-amd-amdhsa".to_owned(), amd_processor(flags))),
        elf::EM_CUDA => Ok(("nvptx64-nvidia-cuda".to_owned(), format!("sm_{}", cuda_version(flags)))),
        elf::EM_X86_64 => named("x86_64"),
        elf::EM_386 => named("i386"),
        elf::EM_AARCH64 => named("aarch64"),
        elf::EM_PPC64 => named(if data.get(5) == Some(&1) { "powerpc64le" } else { "powerpc64" }),
        elf::EM_RISCV => named("riscv64"),
        elf::EM_S390 => named("s390x"),
        elf::EM_LOONGARCH => named("loongarch64"),
        other => bail!("no device has the ELF machine {}", other.0),
    }
}

fn header<Elf: FileHeader<Endian = Endianness>>(data: &[u8]) -> Result<(elf::Machine, u32)> {
    let header = Elf::parse(data)?;
    let endian = header.endian()?;
    Ok((header.e_machine(endian), header.e_flags(endian).0))
}

/// The SM version: in the lowest byte up to ABI 7, in the second from ABI 8 on.
fn cuda_version(flags: u32) -> u32 {
    let (old, new) = (flags & 0xff, (flags >> 8) & 0xff);
    if (20..=121).contains(&old) && old != 2 { old } else { new }
}

/// The processor of an AMD GPU image; empty when it names none that we know.
fn amd_processor(flags: u32) -> String {
    const MACH: u32 = 0xff;
    PROCESSORS.iter().find(|(mach, _)| *mach == flags & MACH).map_or_else(String::new, |(_, name)| (*name).to_owned())
}

/// `EF_AMDGPU_MACH_AMDGCN_*` (LLVM's AMDGPU usage document).
const PROCESSORS: [(u32, &str); 53] = [
    (0x20, "gfx600"),
    (0x21, "gfx601"),
    (0x22, "gfx700"),
    (0x23, "gfx701"),
    (0x24, "gfx702"),
    (0x25, "gfx703"),
    (0x26, "gfx704"),
    (0x28, "gfx801"),
    (0x29, "gfx802"),
    (0x2a, "gfx803"),
    (0x2b, "gfx810"),
    (0x2c, "gfx900"),
    (0x2d, "gfx902"),
    (0x2e, "gfx904"),
    (0x2f, "gfx906"),
    (0x30, "gfx908"),
    (0x31, "gfx909"),
    (0x32, "gfx90c"),
    (0x33, "gfx1010"),
    (0x34, "gfx1011"),
    (0x35, "gfx1012"),
    (0x36, "gfx1030"),
    (0x37, "gfx1031"),
    (0x38, "gfx1032"),
    (0x39, "gfx1033"),
    (0x3a, "gfx602"),
    (0x3b, "gfx705"),
    (0x3c, "gfx805"),
    (0x3d, "gfx1035"),
    (0x3e, "gfx1034"),
    (0x3f, "gfx90a"),
    (0x41, "gfx1100"),
    (0x42, "gfx1013"),
    (0x43, "gfx1150"),
    (0x44, "gfx1103"),
    (0x45, "gfx1036"),
    (0x46, "gfx1101"),
    (0x47, "gfx1102"),
    (0x48, "gfx1200"),
    (0x49, "gfx1250"),
    (0x4a, "gfx1151"),
    (0x4c, "gfx942"),
    (0x4e, "gfx1201"),
    (0x4f, "gfx950"),
    (0x51, "gfx9-generic"),
    (0x52, "gfx10-1-generic"),
    (0x53, "gfx10-3-generic"),
    (0x54, "gfx11-generic"),
    (0x55, "gfx1152"),
    (0x58, "gfx1153"),
    (0x59, "gfx12-generic"),
    (0x5a, "gfx1251"),
    (0x5f, "gfx9-4-generic"),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f12_an_unknown_kind_is_named_with_its_option() {
        let error = given(&[("foo".to_owned(), "a.o".into())]).unwrap_err();
        assert_eq!(crate::error::chain(&error), "--override-image=foo=a.o: unknown kind `foo`: it is openmp, cuda, hip or sycl");
    }

    #[test]
    fn targets_are_read_off_the_header() {
        let mut elf = vec![0u8; 64];
        elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        (elf[16], elf[18], elf[20]) = (3, 62, 1);
        assert_eq!(target(&elf).unwrap(), ("x86_64--".to_owned(), String::new()));
        (elf[18], elf[48]) = (224, 0x3f);
        assert_eq!(target(&elf).unwrap(), ("amdgcn-amd-amdhsa".to_owned(), "gfx90a".to_owned()));
        (elf[18], elf[48]) = (190, 80);
        assert_eq!(target(&elf).unwrap(), ("nvptx64-nvidia-cuda".to_owned(), "sm_80".to_owned()));
        assert!(target(b"BC\xc0\xde").is_err());
    }
}
