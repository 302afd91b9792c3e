//! What a runtime goes by when it chooses one of several images: what an image's own bytes say of
//! the device, beside what its container says; and the names that the runtime looks up in images
//! that are no ELF files.

use anyhow::Result;

use crate::formats::elf::raw::FileHeader;
use crate::formats::gpu::Gpu;
use crate::formats::kernels::object_calls;
use crate::formats::{bitcode, ptx};

/// What an image says of itself.
#[derive(Debug, Clone, Default)]
pub(crate) struct Choice {
    /// The GPU in its ELF header.
    pub(crate) gpu: Option<Gpu>,
    /// `EI_ABIVERSION` of its ELF header: of AMD's, the version of the code object less 2.
    pub(crate) abi_version: Option<u8>,
    /// Whether it is an ELF object that has to be linked before it can be loaded.
    pub(crate) is_relocatable: bool,
    /// Whether it is SPIR-V for graphics, as Vulkan loads it, and no compute kernel of OpenCL or
    /// SYCL.
    pub(crate) is_shader: bool,
    /// The directives at the head of PTX.
    pub(crate) ptx: Option<ptx::Head>,
    /// A kernel whose register and scratch counts may be too small, because it was compiled without
    /// some functions that it calls.
    pub(crate) open_kernel: Option<String>,
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
            choice.open_kernel = object_calls::open_kernel(data);
            let header = FileHeader::read(data)?.1;
            choice.abi_version = Some(header.ident.abi_version);
            choice.is_relocatable = header.kind == object::elf::ET_REL;
        }
        "spirv" => choice.is_shader = is_shader(data),
        "ptx" => {
            choice.ptx = Some(ptx::head(data));
            choice.names = Some(ptx::kernels(data));
        }
        "bitcode" => {
            let defined = bitcode::symbols(data)?.defined;
            choice.names = Some(
                defined
                    .into_iter()
                    .map(|symbol| String::from_utf8_lossy(&symbol.name).into_owned())
                    .collect(),
            );
        }
        _ => {}
    }
    Ok(choice)
}

/// Whether the SPIR-V module `data` declares what shaders need and not what kernels need
/// (`OpCapability`, the first instructions; the SPIR-V specification, "Physical Layout" and
/// "Capability").
fn is_shader(data: &[u8]) -> bool {
    const HEADER: usize = 5;
    const OP_CAPABILITY: u32 = 2 << 16 | 17;
    const SHADER: u32 = 1;
    const KERNEL: u32 = 6;
    let read = if data.starts_with(&[7]) {
        u32::from_be_bytes
    } else {
        u32::from_le_bytes
    };
    let words = |at: usize| Some(read(*data.get(at * 4..)?.first_chunk()?));
    let declared = (HEADER..)
        .step_by(2)
        .map_while(|at| (words(at)? == OP_CAPABILITY).then(|| words(at + 1))?);
    let (mut shader, mut kernel) = (false, false);
    for capability in declared {
        shader |= capability == SHADER;
        kernel |= capability == KERNEL;
    }
    shader && !kernel
}
