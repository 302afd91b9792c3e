//! A device image at the end of the way: what it is, its hash, its kernels.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use object::elf::{self, FileHeader32, FileHeader64};
use object::read::elf::FileHeader;
use object::{Endianness, FileKind};

use super::bytes_of;
use super::report::Image;
use super::walk::{Cursor, Walk};
use super::what::{What, what};
use crate::formats::kernels;
use crate::model::ImageKind;

/// What is known of an image from what it is in.
#[derive(Debug, Clone, Default)]
pub(super) struct ImageMetadata {
    pub(super) kinds: Vec<String>,
    pub(super) triple: String,
    pub(super) target: String,
    pub(super) id: Option<String>,
    pub(super) stored_as: Option<ImageKind>,
    pub(super) flags: Option<u32>,
    pub(super) strings: BTreeMap<String, String>,
    pub(super) compressed_size: Option<u64>,
}

/// Adds the image at `cursor`.
pub(super) fn add(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    let data = cursor.piece.bytes();
    let (format, elf) = format(data);
    let mut image = unread(walk.images.len(), cursor, format, cursor.piece.size());
    image.offset = cursor.piece.file_offset(0);
    if let Some(elf) = elf {
        image.machine = Some(elf.machine_name());
        if image.triple.is_empty() {
            image.triple = elf.triple().to_owned();
        }
        if image.target.is_empty() {
            image.target = elf.target();
        }
    }
    if !walk.request.headers_only {
        image.sha256 = Some(bytes_of::sha256(&cursor.piece).with_context(|| cursor.place.to_string())?);
    }
    if walk.request.extract.is_some() {
        image.piece = Some(cursor.piece.clone());
    }
    // The image is there, whatever its kernels are.
    if walk.request.kernels && matches!(format, "elf" | "cubin") {
        match kernels::read(data).with_context(|| format!("{}: its kernels", cursor.place)) {
            Ok(kernels) => image.kernels = Some(kernels),
            Err(error) => walk.note(&error),
        }
    }
    walk.images.push(image);
    Ok(())
}

/// An image of `size` bytes that are not looked at.
pub(super) fn unread(index: usize, cursor: &Cursor, format: &'static str, size: u64) -> Image {
    let facts = cursor.facts.clone();
    Image {
        index,
        path: cursor.place.steps.clone(),
        members: cursor.place.members(),
        section: cursor.place.section().map(str::to_owned),
        container: cursor.place.container(),
        id: facts.id,
        offset: None,
        kinds: facts.kinds,
        triple: facts.triple,
        target: facts.target,
        stored_as: facts.stored_as.map(stored_name),
        format,
        machine: None,
        size,
        compressed_size: facts.compressed_size,
        sha256: None,
        flags: facts.flags,
        strings: facts.strings,
        kernels: None,
        extracted: None,
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

/// What an image is by its bytes, and the header of an ELF file.
fn format(data: &[u8]) -> (&'static str, Option<Elf>) {
    let format = match what(data, false) {
        What::Object(FileKind::Elf32 | FileKind::Elf64) => {
            let elf = Elf::read(data);
            return (if elf.as_ref().is_some_and(|elf| elf.machine == elf::EM_CUDA) { "cubin" } else { "elf" }, elf);
        }
        What::Object(FileKind::Pe32 | FileKind::Pe64) => "pe",
        What::Object(FileKind::MachO32 | FileKind::MachO64) => "mach-o",
        What::Object(_) => "object",
        What::Bitcode => "bitcode",
        What::Spirv => "spirv",
        What::Ptx => "ptx",
        What::Archive => "archive",
        What::Containers | What::TextBundle(_) => "container",
        What::Empty => "empty",
        What::Unknown => "unknown",
    };
    (format, None)
}

/// Whether an ELF file is for a device, and for nothing else.
pub(super) fn is_device(data: &[u8]) -> bool {
    Elf::read(data).is_some_and(|elf| elf.machine == elf::EM_AMDGPU || elf.machine == elf::EM_CUDA || elf.machine == EM_INTELGT)
}

/// Intel's graphics.
const EM_INTELGT: elf::Machine = elf::Machine(205);

/// What the header of an ELF file says.
struct Elf {
    machine: elf::Machine,
    abi_version: u8,
    flags: u32,
    is_64: bool,
}

impl Elf {
    fn read(data: &[u8]) -> Option<Elf> {
        fn of<H: FileHeader<Endian = Endianness>>(data: &[u8]) -> Option<Elf> {
            let header = H::parse(data).ok()?;
            let endian = header.endian().ok()?;
            Some(Elf {
                machine: header.e_machine(endian),
                abi_version: header.e_ident().abi_version,
                flags: header.e_flags(endian).0,
                is_64: header.is_class_64(),
            })
        }
        match FileKind::parse(data).ok()? {
            FileKind::Elf32 => of::<FileHeader32<Endianness>>(data),
            FileKind::Elf64 => of::<FileHeader64<Endianness>>(data),
            _ => None,
        }
    }

    fn machine_name(&self) -> String {
        let name = match self.machine {
            elf::EM_AMDGPU => "amdgpu",
            elf::EM_CUDA => "cuda",
            EM_INTELGT => "intelgt",
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

    /// The triple of a GPU that only this machine number has.
    fn triple(&self) -> &'static str {
        match self.machine {
            elf::EM_AMDGPU => "amdgcn-amd-amdhsa",
            elf::EM_CUDA if self.is_64 => "nvptx64-nvidia-cuda",
            elf::EM_CUDA => "nvptx-nvidia-cuda",
            EM_INTELGT => "spirv64-intel",
            _ => "",
        }
    }

    /// NVIDIA's GPU, which the flags name: until ABI 7 in the lowest byte, since then in the next.
    fn target(&self) -> String {
        if self.machine != elf::EM_CUDA {
            return String::new();
        }
        let (sm, exact) = match self.abi_version {
            0..8 => (self.flags & 0xff, self.flags & 0x800 != 0),
            _ => (self.flags >> 8 & 0xff, self.flags & 0x8 != 0),
        };
        format!("sm_{sm}{}", if exact { "a" } else { "" })
    }
}
