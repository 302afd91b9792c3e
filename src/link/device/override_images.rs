//! `--override-image=<kind>=<file>`: uses the user's linked images instead of all device code in
//! the inputs (docs/spec/link-driver.md 9.3).
//!
//! The target is read from the ELF header, or from the OffloadBinary for SYCL.

use std::path::Path;

use anyhow::{Context, Result, anyhow, bail};
use object::Endianness;
use object::elf;

use super::Linked;
use crate::formats::elf::raw::FileHeader;
use crate::formats::gpu::Gpu;
use crate::formats::offload_binary;
use crate::io::bytes::Bytes;
use crate::model::{Generation, ImageKind, OffloadKind, OffloadKinds};
use crate::target::Target;

/// Reads the images of the options, in order.
pub(crate) fn read(options: &[(String, std::path::PathBuf)]) -> Result<Vec<Linked>> {
    options
        .iter()
        .map(|(kind, file)| {
            image(kind, file).with_context(|| format!("--override-image={kind}={}", file.display()))
        })
        .collect()
}

fn image(kind: &str, file: &Path) -> Result<Linked> {
    let found = OffloadKind::ALL
        .into_iter()
        .find(|known| known.name() == kind);
    let kind = found
        .ok_or_else(|| anyhow!("unknown kind `{kind}`: expected openmp, cuda, hip or sycl"))?;
    let bytes = Bytes::of(file)?;
    let (triple, arch) = match kind {
        OffloadKind::Sycl => packed_target(bytes.as_slice()).with_context(|| {
            format!(
                "`{}` is not an OffloadBinary, the output of SYCL's device linker",
                file.display()
            )
        })?,
        _ => target(bytes.as_slice())
            .with_context(|| format!("`{}` is not an ELF image", file.display()))?,
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

/// Returns triple and architecture of the first image in a file of OffloadBinaries, as written by
/// SYCL's device linker.
fn packed_target(data: &[u8]) -> Result<(String, String)> {
    let images = offload_binary::read_all(data)?;
    let first = images.first().context("the OffloadBinary has no image")?;
    Ok((first.triple().into_owned(), first.arch().into_owned()))
}

/// Returns triple and architecture from the ELF header, in LLVM's spelling for such images. AMD
/// architectures have no features.
fn target(data: &[u8]) -> Result<(String, String)> {
    let (class, header) = FileHeader::read(data)?;
    let named = |arch: &str| Ok((format!("{arch}--"), String::new()));
    match header.machine {
        elf::EM_AMDGPU | elf::EM_CUDA => {
            let gpu = Gpu::of_elf(data)?.context("the ELF header names no GPU")?;
            Ok((gpu.triple.to_owned(), gpu.processor))
        }
        elf::EM_X86_64 => named("x86_64"),
        elf::EM_386 => named("i386"),
        elf::EM_AARCH64 => named("aarch64"),
        elf::EM_PPC64 => named(if class.endian == Endianness::Little {
            "powerpc64le"
        } else {
            "powerpc64"
        }),
        elf::EM_RISCV => named("riscv64"),
        elf::EM_S390 => named("s390x"),
        elf::EM_LOONGARCH => named("loongarch64"),
        other => bail!("unsupported ELF machine {}", other.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f12_an_unknown_kind_is_named_with_its_option() {
        let error = read(&[("foo".to_owned(), "a.o".into())]).unwrap_err();
        assert_eq!(
            crate::error::chain(&error),
            "--override-image=foo=a.o: unknown kind `foo`: expected openmp, cuda, hip or sycl"
        );
    }

    #[test]
    fn targets_are_read_from_the_header() {
        let mut elf = vec![0u8; 64];
        elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        (elf[16], elf[18], elf[20]) = (3, 62, 1);
        assert_eq!(
            target(&elf).unwrap(),
            ("x86_64--".to_owned(), String::new())
        );
        (elf[18], elf[48]) = (224, 0x3f);
        assert_eq!(
            target(&elf).unwrap(),
            ("amdgcn-amd-amdhsa".to_owned(), "gfx90a".to_owned())
        );
        (elf[18], elf[48]) = (190, 80);
        assert_eq!(
            target(&elf).unwrap(),
            ("nvptx64-nvidia-cuda".to_owned(), "sm_80".to_owned())
        );
        // A cubin for a single architecture: sm_90a from CUDA 12.8, and its sm_100a.
        elf[8] = 7;
        elf[48..52].copy_from_slice(&[0x5a, 0x0d, 0x5a, 0x00]);
        assert_eq!(
            target(&elf).unwrap(),
            ("nvptx64-nvidia-cuda".to_owned(), "sm_90a".to_owned())
        );
        assert!(target(b"BC\xc0\xde").is_err());
    }
}
