//! Kernels of AMD GPUs, from the metadata note of code object version 3 and later (msgpack; LLVM's
//! "AMDGPU Usage").
//!
//! Version 2 has a separate symbol type and YAML metadata, which is not read. For its kernels, only
//! names and sizes are reported.

use std::collections::{HashMap, HashSet};

use anyhow::{Context, Result, anyhow, bail};
use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, NoteIterator, ProgramHeader, SectionHeader};
use serde::de::{DeserializeSeed, Deserializer, Error, IgnoredAny, MapAccess, SeqAccess, Visitor};

use super::{Image, Kernel};

const NT_AMDGPU_METADATA: elf::NoteType = elf::NoteType(32);
const OWNER: &[u8] = b"AMDGPU";
/// The least size of a kernel's metadata: the names of the required entries take more.
const MIN_METADATA: usize = 64;
/// The nesting limit of metadata. The deepest part, the attributes of arguments, is at depth 5.
const MAX_DEPTH: usize = 32;
const STT_AMDGPU_HSA_KERNEL: elf::SymbolType = elf::SymbolType(10);

pub(super) fn kernels<Elf: FileHeader<Endian = Endianness>>(
    elf: &Image<'_, Elf>,
) -> Result<Vec<Kernel>> {
    let sizes = code_sizes(elf)?;
    let notes = metadata(elf)?;
    if notes.is_empty() {
        let own = sizes
            .into_iter()
            .filter(|(_, function)| function.old_kernel);
        let mut kernels: Vec<Kernel> = own
            .map(|(name, function)| Kernel {
                name: name.to_owned(),
                code_size: Some(function.size),
                ..Kernel::default()
            })
            .collect();
        kernels.sort_by(|a, b| a.name.cmp(&b.name));
        return Ok(kernels);
    }
    let mut kernels = Vec::new();
    for note in notes {
        kernels.extend(parse(note).context("the AMDGPU metadata note is damaged")?);
    }
    for kernel in &mut kernels {
        kernel.code_size = sizes
            .get(kernel.name.as_str())
            .map(|function| function.size);
    }
    Ok(kernels)
}

struct Code {
    size: u64,
    /// Whether the symbol's type is that of a kernel of code object version 2.
    old_kernel: bool,
}

/// The functions of the image, by name.
fn code_sizes<'a, Elf: FileHeader<Endian = Endianness>>(
    elf: &Image<'a, Elf>,
) -> Result<HashMap<&'a str, Code>> {
    let mut sizes = HashMap::new();
    for table in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
        for function in elf.functions_of_type(table, &[elf::STT_FUNC, STT_AMDGPU_HSA_KERNEL])? {
            sizes.insert(
                function.name,
                Code {
                    size: function.size,
                    old_kernel: function.kind == STT_AMDGPU_HSA_KERNEL,
                },
            );
        }
    }
    Ok(sizes)
}

/// The contents of the metadata notes, from sections, or from segments if the sections are
/// stripped. Code generation in parts (`--lto-partitions`, clang's default for HIP) gives one note
/// per part, with its kernels.
fn metadata<'a, Elf: FileHeader<Endian = Endianness>>(
    elf: &Image<'a, Elf>,
) -> Result<Vec<&'a [u8]>> {
    // Notes are padded to four bytes, even if the section is aligned to eight (code object version
    // 1, as in ROCr's own kernels). The default, zero, makes the iterator use four.
    let padded = |bytes| NoteIterator::new(elf.endian, Elf::Word::default(), bytes);
    let mut in_sections = Vec::new();
    for section in elf
        .sections
        .iter()
        .filter(|section| section.sh_type(elf.endian) == elf::SHT_NOTE)
    {
        in_sections.push(padded(section.data(elf.endian, elf.data)?)?);
    }
    let found = metadata_notes(elf, in_sections)?;
    if !found.is_empty() {
        return Ok(found);
    }
    let mut in_segments = Vec::new();
    for segment in elf
        .header
        .program_headers(elf.endian, elf.data)?
        .iter()
        .filter(|one| one.p_type(elf.endian) == elf::PT_NOTE)
    {
        let bytes = segment
            .data(elf.endian, elf.data)
            .map_err(|()| anyhow!("a segment of notes is past the end"))?;
        in_segments.push(padded(bytes)?);
    }
    metadata_notes(elf, in_segments)
}

/// The metadata notes among these notes, without duplicates from sections and segments that share
/// bytes.
fn metadata_notes<'a, Elf: FileHeader<Endian = Endianness>>(
    elf: &Image<'a, Elf>,
    note_lists: Vec<NoteIterator<'a, Elf>>,
) -> Result<Vec<&'a [u8]>> {
    /// The size of a note's header, and thus the least size of a note.
    const NOTE_HEADER: usize = 12;
    let (mut found, mut seen) = (Vec::new(), HashSet::new());
    let (mut count, mut total) = (0, 0);
    for mut notes in note_lists {
        while let Some(note) = notes.next()? {
            count += 1;
            if note.n_type(elf.endian) == NT_AMDGPU_METADATA
                && note.name() == OWNER
                && seen.insert(note.desc().as_ptr())
            {
                total += note.desc().len();
                found.push(note.desc());
            }
            if total > elf.data.len() || count > elf.data.len() / NOTE_HEADER {
                bail!("notes share their bytes");
            }
        }
    }
    Ok(found)
}

/// The kernels in the metadata.
fn parse(metadata: &[u8]) -> Result<Vec<Kernel>, rmp_serde::decode::Error> {
    let mut reader = rmp_serde::Deserializer::from_read_ref(metadata);
    reader.set_max_depth(MAX_DEPTH);
    CodeObject {
        max_kernels: metadata.len() / MIN_METADATA,
    }
    .deserialize(&mut reader)
}

/// The entries of a kernel's metadata that are read. Integers may have any width.
#[derive(serde::Deserialize)]
struct Metadata<'a> {
    #[serde(rename = ".name")]
    name: &'a str,
    #[serde(rename = ".vgpr_count")]
    vgprs: Option<u64>,
    #[serde(rename = ".agpr_count")]
    agprs: Option<u64>,
    #[serde(rename = ".sgpr_count")]
    sgprs: Option<u64>,
    #[serde(rename = ".vgpr_spill_count")]
    spilled_vgprs: Option<u64>,
    #[serde(rename = ".sgpr_spill_count")]
    spilled_sgprs: Option<u64>,
    #[serde(rename = ".group_segment_fixed_size")]
    shared: Option<u64>,
    #[serde(rename = ".private_segment_fixed_size")]
    scratch: Option<u64>,
    #[serde(rename = ".kernarg_segment_size")]
    arguments: Option<u64>,
    #[serde(rename = ".max_flat_workgroup_size")]
    max_workgroup: Option<u64>,
    #[serde(rename = ".wavefront_size")]
    wave_size: Option<u64>,
    #[serde(rename = ".workgroup_processor_mode")]
    workgroup_processor_mode: Option<u64>,
}

impl From<Metadata<'_>> for Kernel {
    fn from(metadata: Metadata<'_>) -> Self {
        Kernel {
            name: metadata.name.to_owned(),
            vgprs: metadata.vgprs,
            agprs: metadata.agprs,
            sgprs: metadata.sgprs,
            spilled_vgprs: metadata.spilled_vgprs,
            spilled_sgprs: metadata.spilled_sgprs,
            shared: metadata.shared,
            scratch: metadata.scratch,
            arguments: metadata.arguments,
            max_workgroup: metadata.max_workgroup,
            wave_size: metadata.wave_size,
            workgroup_processor_mode: metadata.workgroup_processor_mode,
            ..Kernel::default()
        }
    }
}

/// Reads the note's map, which contains the list of kernels. `max_kernels` is the number of kernels
/// that fit into the note. A damaged note that claims more is rejected before memory is allocated.
struct CodeObject {
    max_kernels: usize,
}

impl<'de> DeserializeSeed<'de> for CodeObject {
    type Value = Vec<Kernel>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Vec<Kernel>, D::Error> {
        reader.deserialize_map(self)
    }
}

impl<'de> Visitor<'de> for CodeObject {
    type Value = Vec<Kernel>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("the metadata of a code object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Vec<Kernel>, A::Error> {
        let mut kernels = Vec::new();
        while let Some(key) = map.next_key::<&str>()? {
            if key == "amdhsa.kernels" {
                kernels = map.next_value_seed(Kernels {
                    max_kernels: self.max_kernels,
                })?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(kernels)
    }
}

struct Kernels {
    max_kernels: usize,
}

impl<'de> DeserializeSeed<'de> for Kernels {
    type Value = Vec<Kernel>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Vec<Kernel>, D::Error> {
        reader.deserialize_seq(self)
    }
}

impl<'de> Visitor<'de> for Kernels {
    type Value = Vec<Kernel>;

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a list of kernels")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Vec<Kernel>, A::Error> {
        let mut kernels = Vec::new();
        while let Some(kernel) = list.next_element::<Metadata<'de>>()? {
            if kernels.len() == self.max_kernels {
                return Err(A::Error::custom(
                    "more kernels than its bytes have room for",
                ));
            }
            kernels.push(kernel.into());
        }
        Ok(kernels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A msgpack string of at most 31 bytes.
    fn text(text: &str) -> Vec<u8> {
        [&[0xa0 | text.len() as u8], text.as_bytes()].concat()
    }

    fn note(kernels: &[u8]) -> Vec<u8> {
        [
            vec![0x82],
            text("amdhsa.version"),
            vec![0x92, 1, 2],
            text("amdhsa.kernels"),
            kernels.to_vec(),
        ]
        .concat()
    }

    #[test]
    fn integers_of_any_width_and_unknown_entries_are_read() {
        let kernel = [
            vec![0x91, 0x84],
            text(".name"),
            text("kernel_of_a_name_that_is_long"),
            text(".vgpr_count"),
            vec![0xcd, 1, 0],
            text(".args"),
            vec![0x91, 0x81, 0xa1, b'x', 0xc7, 1, 5, 0],
            text(".kernarg_segment_size"),
            vec![0xd3, 0, 0, 0, 0, 0, 0, 0, 9],
        ];
        let kernels = parse(&note(&kernel.concat())).unwrap();
        let expected = Kernel {
            name: "kernel_of_a_name_that_is_long".to_owned(),
            vgprs: Some(256),
            arguments: Some(9),
            ..Kernel::default()
        };
        assert_eq!(kernels, [expected]);
        let whole = note(&kernel.concat());
        for len in 0..whole.len() {
            assert!(parse(&whole[..len]).is_err(), "{len}");
        }
    }

    #[test]
    fn a_note_that_asks_for_more_than_it_has_is_an_error() {
        // Lists within lists, deeper than any stack.
        let deep = [vec![0x82], text("x"), vec![0x91; 1 << 20]].concat();
        assert!(parse(&deep).is_err());
        // A claim of four billion kernels without any data.
        assert!(parse(&note(&[0xdd, 0xff, 0xff, 0xff, 0xff])).is_err());
        // Kernels with only an empty name.
        let short = [
            &[0xdc, 0x10, 0][..],
            &[&[0x81], &*text(".name"), &[0xa0]].concat().repeat(4096),
        ]
        .concat();
        let error = parse(&note(&short)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "more kernels than its bytes have room for"
        );
    }
}
