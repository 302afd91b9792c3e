//! Kernels of AMD's GPUs, from the metadata note of code object version 3 and later (msgpack; LLVM's "AMDGPU Usage"). Version 2 has
//! symbols of a type of their own, and metadata as YAML, which is not read: of its kernels the names and sizes are told.

use std::collections::HashMap;

use anyhow::{Result, anyhow};
use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, ProgramHeader, SectionHeader};
use rmp::Marker;
use rmp::decode;

use super::{Image, Kernel};

const NT_AMDGPU_METADATA: elf::NoteType = elf::NoteType(32);
const OWNER: &[u8] = b"AMDGPU";
const SHORTEST: u64 = 64;
const STT_AMDGPU_HSA_KERNEL: elf::SymbolType = elf::SymbolType(10);

pub(super) fn kernels<Elf: FileHeader<Endian = Endianness>>(elf: &Image<'_, Elf>) -> Result<Vec<Kernel>> {
    let sizes = code_sizes(elf)?;
    let Some(metadata) = metadata(elf)? else {
        let own = sizes.into_iter().filter(|(_, function)| function.old_kernel);
        let mut kernels: Vec<Kernel> = own
            .map(|(name, function)| Kernel { name: name.to_owned(), code_size: Some(function.size), ..Kernel::default() })
            .collect();
        kernels.sort_by(|a, b| a.name.cmp(&b.name));
        return Ok(kernels);
    };
    let mut kernels = told(metadata).ok_or_else(|| anyhow!("the AMDGPU metadata note is damaged"))?;
    for kernel in &mut kernels {
        kernel.code_size = sizes.get(kernel.name.as_str()).map(|function| function.size);
    }
    Ok(kernels)
}

struct Code {
    size: u64,
    /// A kernel of code object version 2, which has no descriptor beside it.
    old_kernel: bool,
}

/// The functions of the image by name.
fn code_sizes<'a, Elf: FileHeader<Endian = Endianness>>(elf: &Image<'a, Elf>) -> Result<HashMap<&'a str, Code>> {
    let mut sizes = HashMap::new();
    for table in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
        for function in elf.functions_of_type(table, &[elf::STT_FUNC, STT_AMDGPU_HSA_KERNEL])? {
            sizes.insert(function.name, Code { size: function.size, old_kernel: function.kind == STT_AMDGPU_HSA_KERNEL });
        }
    }
    Ok(sizes)
}

/// The contents of the metadata note: in sections, or in segments where the sections are stripped.
fn metadata<'a, Elf: FileHeader<Endian = Endianness>>(elf: &Image<'a, Elf>) -> Result<Option<&'a [u8]>> {
    let mut places = Vec::new();
    for section in elf.sections.iter() {
        places.extend(section.notes(elf.endian, elf.data)?);
    }
    for segment in elf.header.program_headers(elf.endian, elf.data)? {
        places.extend(segment.notes(elf.endian, elf.data)?);
    }
    for mut notes in places {
        while let Some(note) = notes.next()? {
            if note.n_type(elf.endian) == NT_AMDGPU_METADATA && note.name() == OWNER {
                return Ok(Some(note.desc()));
            }
        }
    }
    Ok(None)
}

/// What the metadata tells of its kernels; none if it is damaged.
fn told(metadata: &[u8]) -> Option<Vec<Kernel>> {
    let mut rest = metadata;
    let mut kernels = Vec::new();
    for _ in 0..decode::read_map_len(&mut rest).ok()? {
        if text(&mut rest)? != "amdhsa.kernels" {
            skip(&mut rest)?;
            continue;
        }
        let count = decode::read_array_len(&mut rest).ok()?;
        // The names alone of what must be told of a kernel are longer.
        if u64::from(count) * SHORTEST > rest.len() as u64 {
            return None;
        }
        for _ in 0..count {
            kernels.push(kernel(&mut rest)?);
        }
    }
    Some(kernels)
}

fn kernel(rest: &mut &[u8]) -> Option<Kernel> {
    let mut kernel = Kernel::default();
    for _ in 0..decode::read_map_len(rest).ok()? {
        let field = match text(rest)? {
            ".name" => {
                kernel.name = text(rest)?.to_owned();
                continue;
            }
            ".vgpr_count" => &mut kernel.vgprs,
            ".agpr_count" => &mut kernel.agprs,
            ".sgpr_count" => &mut kernel.sgprs,
            ".vgpr_spill_count" => &mut kernel.spilled_vgprs,
            ".sgpr_spill_count" => &mut kernel.spilled_sgprs,
            ".group_segment_fixed_size" => &mut kernel.shared,
            ".private_segment_fixed_size" => &mut kernel.scratch,
            ".kernarg_segment_size" => &mut kernel.arguments,
            ".max_flat_workgroup_size" => &mut kernel.max_workgroup,
            _ => {
                skip(rest)?;
                continue;
            }
        };
        *field = Some(decode::read_int(rest).ok()?);
    }
    Some(kernel)
}

fn text<'a>(rest: &mut &'a [u8]) -> Option<&'a str> {
    let (text, after) = decode::read_str_from_slice(*rest).ok()?;
    *rest = after;
    Some(text)
}

/// Passes over one value, however deep; each value inside takes a byte at least, so this ends with the data.
fn skip(rest: &mut &[u8]) -> Option<()> {
    let mut values = 1u64;
    while values > 0 {
        values -= 1;
        let marker = decode::read_marker(rest).ok()?;
        let mut bytes = 0;
        match marker {
            Marker::FixMap(len) => values = values.checked_add(2 * u64::from(len))?,
            Marker::Map16 => values = values.checked_add(2 * big_endian(rest, 2)? as u64)?,
            Marker::Map32 => values = values.checked_add(2 * big_endian(rest, 4)? as u64)?,
            Marker::FixArray(len) => values = values.checked_add(len.into())?,
            Marker::Array16 => values = values.checked_add(big_endian(rest, 2)? as u64)?,
            Marker::Array32 => values = values.checked_add(big_endian(rest, 4)? as u64)?,
            Marker::FixStr(len) => bytes = usize::from(len),
            Marker::Str8 | Marker::Bin8 => bytes = big_endian(rest, 1)?,
            Marker::Str16 | Marker::Bin16 => bytes = big_endian(rest, 2)?,
            Marker::Str32 | Marker::Bin32 => bytes = big_endian(rest, 4)?,
            Marker::U8 | Marker::I8 => bytes = 1,
            Marker::U16 | Marker::I16 => bytes = 2,
            Marker::U32 | Marker::I32 | Marker::F32 => bytes = 4,
            Marker::U64 | Marker::I64 | Marker::F64 => bytes = 8,
            Marker::FixPos(_) | Marker::FixNeg(_) | Marker::Null | Marker::True | Marker::False => {}
            // Extensions: no metadata has them.
            _ => return None,
        }
        rest.split_off(..bytes)?;
    }
    Some(())
}

fn big_endian(rest: &mut &[u8], len: usize) -> Option<usize> {
    let bytes = rest.split_off(..len)?;
    Some(bytes.iter().fold(0, |value, byte| value << 8 | usize::from(*byte)))
}
