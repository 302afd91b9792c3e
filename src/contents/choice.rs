//! What a runtime goes by when it chooses one of several images: what an image's own bytes say of the device, beside what its
//! container says; and the names that the runtime looks up in images that are no ELF files.

use anyhow::Result;

use crate::formats::elf::raw::FileHeader;
use crate::formats::gpu::Gpu;
use crate::formats::{bitcode, ptx};

/// What an image says of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    /// The GPU in its ELF header.
    pub(crate) gpu: Option<Gpu>,
    /// `EI_ABIVERSION` of its ELF header: of AMD's, the version of the code object less 2.
    pub(crate) abi_version: Option<u8>,
    /// The directives at the head of PTX.
    pub(crate) ptx: Option<ptx::Head>,
    /// How it is compressed in its fatbinary: `zstd`, `lz4`.
    pub(crate) compression: Option<&'static str>,
    /// The kernels of PTX, or every symbol that bitcode defines.
    pub(crate) names: Option<Vec<String>>,
}

/// What the image `data` says of itself; `format` is its format as reports have it.
pub(super) fn of(data: &[u8], format: &str) -> Result<Choice> {
    let mut choice = Choice::default();
    match format {
        "elf" | "cubin" => {
            choice.gpu = Gpu::of_elf(data)?;
            choice.abi_version = Some(FileHeader::read(data)?.1.ident.abi_version);
        }
        "ptx" => {
            choice.ptx = Some(ptx::head(data));
            choice.names = Some(ptx::kernels(data));
        }
        "bitcode" => {
            let defined = bitcode::symbols(data)?.defined;
            choice.names = Some(defined.into_iter().map(|symbol| String::from_utf8_lossy(&symbol.name).into_owned()).collect());
        }
        _ => {}
    }
    Ok(choice)
}
