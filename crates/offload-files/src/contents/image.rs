//! Description of a device image: its format, device, hash and kernels.

use std::collections::BTreeSet;

use anyhow::{Context, Result};
use object::{FileKind, Object as _, ObjectSection as _, SectionFlags, elf};

use super::bytes_of;
use super::report::{Choice, Image};
use super::tree::NodeKind;
use super::walk::{Cursor, Walk};
use offload_formats::elf::raw::FileHeader;
use offload_formats::gpu::{self, AmdArch, Gpu};
use offload_formats::kernels::{code, object_calls};
use offload_formats::magic::{ByteKind, byte_kind};
use offload_formats::model::ImageKind;
use offload_formats::{bitcode, kernels, producer, ptx};

/// Adds the image at `cursor`, which embeds no other image.
pub(super) fn add_leaf(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    walk.node(NodeKind::Image, &cursor.piece, |walk| {
        add(walk, cursor).map(drop)
    })
}

/// Adds the image at `cursor` to the report. Returns the cursor for the images that it embeds.
pub(super) fn add(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<Cursor> {
    let data = cursor.piece.bytes();
    let (format, machine) = format(data);
    let mut image = unread(walk.images.len(), cursor, format, cursor.piece.size());
    image.offset = cursor.piece.file_offset(0);
    if let Some(machine) = machine {
        image.machine = Some(machine_name(machine));
        // Containers take precedence over the image's own header.
        if image.triple.is_empty() || image.target.is_empty() {
            name_gpu(walk, cursor, &mut image);
        }
    }
    image.is_void = format == "cubin" && is_void(data);
    if format == "ptx" && image.target.is_empty() {
        name_ptx(data, &mut image);
    }
    if image.target.is_empty() {
        // AMD's newer triples contain the processor.
        image.target = AmdArch::of_triple(&image.triple)
            .and_then(|arch| arch.processor())
            .unwrap_or_default();
    }
    if walk.layout.is_some() {
        let inner = walk.sized_image(cursor, &image);
        walk.images.push(image);
        return Ok(inner);
    }
    image.producers = producer::producers(data);
    if walk.options.registered {
        match choice_of(data, format).with_context(|| cursor.place.to_string()) {
            Ok(choice) => {
                image.choice = Choice {
                    compression: cursor.facts.compression,
                    ..choice
                }
            }
            Err(error) => walk.note(&error),
        }
    }
    // The image is listed even if its kernels cannot be read.
    if walk.options.kernels && matches!(format, "elf" | "cubin") {
        match kernels::read(data).with_context(|| format!("{}: kernel list", cursor.place)) {
            Ok(kernels) => image.kernels = Some(kernels),
            Err(error) => walk.note(&error),
        }
    }
    if walk.options.code && matches!(format, "elf" | "cubin" | "ptx" | "spirv") {
        match code::digests(data).with_context(|| format!("{}: kernel code", cursor.place)) {
            Ok(codes) => image.codes = Some(codes),
            Err(error) => walk.note(&error),
        }
    }
    // The digests of the code replace that of the image.
    let has_codes = image.codes.as_ref().is_some_and(|codes| !codes.is_empty());
    add_bytes(walk, cursor, !has_codes, &mut image)?;
    walk.images.push(image);
    Ok(cursor.clone())
}

/// The kernels of the image `data`, or every symbol that bitcode defines; none if its format does
/// not list them. The image is read without its container.
///
/// # Errors
/// The list in the image is damaged.
pub(crate) fn kernel_names(data: &[u8]) -> Result<Option<BTreeSet<String>>> {
    let (format, machine) = format(data);
    Ok(match format {
        "elf" | "cubin" if !matches!(machine, Some(gpu::EM_INTELGT | elf::EM_NONE)) => Some(
            kernels::read(data)?
                .into_iter()
                .map(|kernel| kernel.name)
                .collect(),
        ),
        _ => choice_of(data, format)?
            .names
            .map(|names| names.into_iter().collect()),
    })
}

/// Fills in triple and target from the image's own ELF header, if they are still unknown.
fn name_gpu(walk: &mut Walk<'_>, cursor: &Cursor, image: &mut Image) {
    match Gpu::of_elf(cursor.piece.bytes()).with_context(|| format!("{}: ELF header", cursor.place))
    {
        Ok(Some(gpu)) => {
            if image.triple.is_empty() {
                image.triple = gpu.triple.to_owned();
            }
            if image.target.is_empty() {
                image.target = gpu.target_id();
            }
        }
        Ok(None) => {}
        Err(error) => walk.note(&error),
    }
}

/// Fills in triple and target from the head of PTX, if they are still unknown.
fn name_ptx(data: &[u8], image: &mut Image) {
    let head = ptx::head(data);
    if image.triple.is_empty() {
        let triple = if head.address_size == Some(64) {
            "nvptx64-nvidia-cuda"
        } else {
            "nvptx-nvidia-cuda"
        };
        triple.clone_into(&mut image.triple);
    }
    image.target = head.target.unwrap_or_default();
}

/// Adds the image at `cursor` whose stored bytes cannot be decoded: they are compressed, encrypted
/// or damaged. `plain_size` is its uncompressed size. The stored bytes are hashed and extracted.
pub(super) fn add_stored(
    walk: &mut Walk<'_>,
    cursor: &Cursor,
    format: &'static str,
    plain_size: u64,
) -> Result<()> {
    let mut image = unread(walk.images.len(), cursor, format, plain_size);
    image.offset = cursor.piece.file_offset(0);
    if walk.layout.is_some() {
        walk.unread_image(cursor, &image);
    } else {
        add_bytes(walk, cursor, true, &mut image)?;
    }
    walk.push_image(image, &cursor.piece);
    Ok(())
}

/// Adds the hash (`with_hash`) and the bytes of the image at `cursor`, if they are requested.
fn add_bytes(walk: &Walk<'_>, cursor: &Cursor, with_hash: bool, image: &mut Image) -> Result<()> {
    let place = || cursor.place.to_string();
    if with_hash && !walk.options.headers_only {
        image.sha256 = Some(bytes_of::sha256(&cursor.piece).with_context(place)?);
    }
    if walk.options.keep_bytes {
        image.piece = Some(walk.image_bytes(&cursor.piece).with_context(place)?);
    }
    Ok(())
}

/// An image of `size` bytes, described by its metadata alone.
pub(super) fn unread(index: usize, cursor: &Cursor, format: &'static str, size: u64) -> Image {
    let facts = cursor.facts.clone();
    Image {
        index,
        path: cursor.place.steps.clone(),
        members: cursor.place.members(),
        numbers: cursor.numbers.clone(),
        section: cursor.place.section().map(str::to_owned),
        container: cursor.place.container(),
        id: facts.id,
        offset: None,
        kinds: facts.kinds,
        triple: facts.triple,
        target: facts.target,
        producers: Vec::new(),
        stored_as: facts.stored_as.map(stored_name),
        format,
        machine: None,
        size,
        compressed_size: facts.compressed_size,
        sha256: None,
        flags: facts.flags,
        strings: facts.strings,
        kernels: None,
        codes: None,
        extracted: None,
        in_data: facts.in_data,
        is_void: false,
        choice: Choice::default(),
        piece: None,
    }
}

fn stored_name(kind: ImageKind) -> String {
    match kind {
        ImageKind::None => "none".to_owned(),
        ImageKind::Object => "object".to_owned(),
        ImageKind::Bitcode => "bitcode".to_owned(),
        ImageKind::Cubin => "cubin".to_owned(),
        ImageKind::Fatbinary => "fatbinary".to_owned(),
        ImageKind::Ptx => "ptx".to_owned(),
        ImageKind::Spirv => "spirv".to_owned(),
        ImageKind::Other(raw) => raw.to_string(),
    }
}

/// The format of an image by its bytes, and the machine of an ELF file.
fn format(data: &[u8]) -> (&'static str, Option<elf::Machine>) {
    match byte_kind(data, false) {
        ByteKind::Object(FileKind::Elf32 | FileKind::Elf64) => {
            let machine = elf_machine(data);
            let is_cubin = machine == Some(elf::EM_CUDA);
            (if is_cubin { "cubin" } else { "elf" }, machine)
        }
        ByteKind::Container(_) | ByteKind::TextBundle(_) => ("container", None),
        kind => (kind.name(), None),
    }
}

/// Whether an ELF file is for a machine that is only a device (a GPU).
pub(super) fn is_device(data: &[u8]) -> bool {
    elf_machine(data).is_some_and(gpu::is_gpu)
}

/// The machine that an ELF file is for.
fn elf_machine(data: &[u8]) -> Option<elf::Machine> {
    FileHeader::read(data)
        .ok()
        .map(|(_, header)| header.machine)
}

fn machine_name(machine: elf::Machine) -> String {
    let name = match machine {
        elf::EM_AMDGPU => "amdgpu",
        elf::EM_CUDA => "cuda",
        gpu::EM_INTELGT => "intelgt",
        elf::EM_X86_64 => "x86-64",
        elf::EM_386 => "i386",
        elf::EM_AARCH64 => "aarch64",
        elf::EM_ARM => "arm",
        elf::EM_PPC64 => "powerpc64",
        elf::EM_RISCV => "riscv",
        elf::EM_S390 => "s390x",
        elf::EM_LOONGARCH => "loongarch",
        elf::Machine(other) => return other.to_string(),
    };
    name.to_owned()
}

/// Reads the properties in [`Choice`] from the image `data`; `format` is its format in reports.
fn choice_of(data: &[u8], format: &str) -> Result<Choice> {
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

/// Whether the cubin `data` has no code and no data: no section that a GPU has in its memory.
fn is_void(data: &[u8]) -> bool {
    let Ok(file) = object::File::parse(data) else {
        return false;
    };
    let in_memory = |flags: SectionFlags| match flags {
        SectionFlags::Elf { sh_flags, .. } => sh_flags.contains(elf::SHF_ALLOC),
        _ => true,
    };
    !file.sections().any(|section| in_memory(section.flags()))
}

/// Whether the SPIR-V module `data` declares the capability of shaders and not that of kernels
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
    let word = |at: usize| Some(read(*data.get(at * 4..)?.first_chunk()?));
    let declared = (HEADER..)
        .step_by(2)
        .map_while(|at| (word(at)? == OP_CAPABILITY).then(|| word(at + 1))?);
    let (mut shader, mut kernel) = (false, false);
    for capability in declared {
        shader |= capability == SHADER;
        kernel |= capability == KERNEL;
    }
    shader && !kernel
}
