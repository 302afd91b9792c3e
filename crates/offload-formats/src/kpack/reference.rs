//! The reference of a program to its archives, and the registrations whose code they have.
//!
//! The section `.rocm_kpack_ref` (`.kpackrf` in programs for Windows) has a map of MessagePack:
//! `kernel_name`, the path of the program in its installation, and `kpack_search_paths`, paths of
//! archives, relative to the directory of the program. The structs that are passed to HIP's runtime
//! point to this map. Their magic number is `HIPK` instead of `HIPF`, and the pointer that is
//! otherwise unused has the number of the registration (ROCm/rocm-systems,
//! `shared/kpack/python/rocm_kpack/elf/kpack_transform.py`, `coff/kpack_transform.py`).

use object::{BinaryFormat, File, Object, ObjectSection};

use super::field;
use super::msgpack::{Values, Written};
use crate::bytes::{u32_at, u64_at};
use crate::error::Malformed;

/// The part of a search path that the loader replaces by the architecture of the device.
pub const PLACEHOLDER: &str = "@GFXARCH@";
/// The section with the reference in ELF files.
pub const REFERENCE_SECTION: &str = ".rocm_kpack_ref";
/// The section with the reference, in ELF files and in programs for Windows.
const SECTIONS: [&str; 2] = [REFERENCE_SECTION, ".kpackrf"];
/// The sections with the structs for HIP's runtime, in ELF files and in programs for Windows.
const WRAPPERS: [&str; 2] = [".hipFatBinSegment", ".hipFatB"];
/// The magic number of a struct whose code is in an archive.
pub const HIPK: u32 = u32::from_le_bytes(*b"HIPK");
/// The magic number of a struct that points to a bundle in the program.
const HIPF: u32 = u32::from_le_bytes(*b"FPIH");
/// `{i32 magic, i32 version, ptr data, ptr reserved}`.
const WRAPPER_SIZE: usize = 24;
/// The loader reads at most this many bytes of the map.
const LARGEST: usize = 64 << 10;

/// A program's reference to archives.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reference {
    /// The path of the program in its installation, under which archives list its code:
    /// `lib/librccl.so`.
    pub binary: String,
    /// The paths of archives, relative to the directory of the program. [`PLACEHOLDER`] stands for an
    /// architecture.
    pub search_paths: Vec<String>,
}

impl Reference {
    /// Reads the reference at the start of `data`. The loader ignores the bytes after it.
    ///
    /// # Errors
    /// The map is damaged or lacks a field.
    pub fn read(data: &[u8]) -> Result<Self, Malformed> {
        let mut values = Values::new(data.get(..LARGEST).unwrap_or(data), 0);
        let (mut binary, mut search_paths) = (None, Vec::new());
        for _ in 0..values.map("not a kpack reference")? {
            let (name, mut value) = field(&mut values)?;
            match name {
                Some("kernel_name") => binary = Some(value.text("kernel_name is not text")?),
                Some("kpack_search_paths") => {
                    for _ in 0..value.list("kpack_search_paths is not a list")? {
                        search_paths.push(value.text("a search path is not text")?.to_owned());
                    }
                }
                _ => {}
            }
        }
        let binary = binary.ok_or(Malformed::new("no kernel_name in the kpack reference", 0))?;
        if search_paths.is_empty() {
            return Err(Malformed::new("no search path in the kpack reference", 0));
        }
        Ok(Reference {
            binary: binary.to_owned(),
            search_paths,
        })
    }

    /// The bytes of the reference, equal to those of AMD's tool.
    pub fn write(&self) -> Vec<u8> {
        let mut bytes = Written::default();
        bytes.map(2);
        bytes.text("kpack_search_paths");
        bytes.list(self.search_paths.len());
        for path in &self.search_paths {
            bytes.text(path);
        }
        bytes.text("kernel_name");
        bytes.text(&self.binary);
        bytes.0
    }
}

/// A program whose device code is in archives.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Program {
    /// The reference.
    pub reference: Reference,
    /// The numbers of the registrations whose code is in archives, in the order of the structs.
    pub registrations: Vec<u32>,
    /// The number of registrations whose bundles are in the program.
    pub embedded: usize,
}

/// The reference and the registrations of the ELF file or Windows program `data`; none if it does
/// not refer to archives.
///
/// # Errors
/// The file or the reference is damaged.
pub fn program(data: &[u8]) -> Result<Option<Program>, Malformed> {
    let damaged = |_| Malformed::new("damaged section table", 0);
    let file = File::parse(data).map_err(damaged)?;
    if !matches!(file.format(), BinaryFormat::Elf | BinaryFormat::Pe) {
        return Ok(None);
    }
    let contents = |names: [&str; 2]| {
        let section = names.iter().find_map(|name| file.section_by_name(name));
        section.map(|section| {
            section.data().map_err(|_| {
                let at = section.file_range().map_or(0, |(start, _)| start);
                Malformed::new("section past the end", at)
            })
        })
    };
    let Some(reference) = contents(SECTIONS).transpose()? else {
        return Ok(None);
    };
    let reference = Reference::read(reference)?;
    let wrappers = contents(WRAPPERS).transpose()?.unwrap_or_default();
    let wrappers = wrappers.chunks_exact(WRAPPER_SIZE);
    let magic = |wrapper: &&[u8]| u32_at(wrapper, 0);
    let number = |wrapper: &[u8]| u64_at(wrapper, 16) as u32;
    Ok(Some(Program {
        reference,
        registrations: wrappers
            .clone()
            .filter(|one| magic(one) == HIPK)
            .map(number)
            .collect(),
        embedded: wrappers.filter(|one| magic(one) == HIPF).count(),
    }))
}
