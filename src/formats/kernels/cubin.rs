//! Kernels of NVIDIA GPUs, from a cubin. NVIDIA does not document the format; the source is the
//! output of `cuobjdump -res-usage` for cubins of CUDA 11 to 13.
//!
//! `.nv.info` has the registers and stack of every function, `.nv.info.<name>` the other resources
//! of a kernel. The size of `.nv.shared.<name>` is its shared memory. Before CUDA 12.8, the section
//! header of the code also has the registers.

use std::collections::HashMap;

use anyhow::{Result, anyhow};
use object::Endianness;
use object::elf;
use object::read::elf::{FileHeader, SectionHeader};

use super::{Image, Kernel};
use crate::formats::{u16_at, u32_at};

/// The bit of a symbol's `st_other` that distinguishes a kernel from a function that kernels call.
const STO_CUDA_ENTRY: u8 = 0x10;
/// Attributes of `.nv.info`.
const PARAMETERS_SIZE: u8 = 0x19;
const MAX_THREADS: u8 = 0x05;
const MIN_STACK_SIZE: u8 = 0x12;
const REGISTERS: u8 = 0x2f;
const UNKNOWN: u32 = u32::MAX;

pub(super) fn kernels<Elf: FileHeader<Endian = Endianness>>(
    elf: &Image<'_, Elf>,
) -> Result<Vec<Kernel>> {
    let sections = sections(elf)?;
    let all = attributes(
        sections.get(".nv.info").map_or(&[], |section| section.data),
        ".nv.info",
    )?;
    // Registers and stack are pairs of a symbol and a number. The stack size of a recursive kernel
    // is unknown.
    let pairs: HashMap<(u8, u32), u32> = all
        .iter()
        .rev()
        .map(|(attribute, value)| ((*attribute, u32_at(value, 0)), u32_at(value, 4)))
        .collect();
    let symbol_value = |attribute: u8, symbol: usize| {
        pairs
            .get(&(attribute, symbol as u32))
            .filter(|value| **value != UNKNOWN)
            .map(|value| u64::from(*value))
    };
    let mut kernels = Vec::new();
    for function in elf.functions_of_type(elf::SHT_SYMTAB, &[elf::STT_FUNC])? {
        if function.other & STO_CUDA_ENTRY == 0 {
            continue;
        }
        let section = |prefix: &str| sections.get(format!("{prefix}{}", function.name).as_str());
        let own = attributes(
            section(".nv.info.").map_or(&[], |section| section.data),
            ".nv.info",
        )?;
        let kernel_value = |attribute: u8| {
            own.iter()
                .find(|(own, _)| *own == attribute)
                .map(|(_, value)| *value)
        };
        let in_header = section(".text.")
            .map(|section| u64::from(section.info >> 24))
            .filter(|count| *count > 0);
        kernels.push(Kernel {
            name: function.name.to_owned(),
            code_size: Some(function.size),
            registers: symbol_value(REGISTERS, function.symbol).or(in_header),
            shared: Some(section(".nv.shared.").map_or(0, |section| section.size)),
            scratch: symbol_value(MIN_STACK_SIZE, function.symbol),
            arguments: kernel_value(PARAMETERS_SIZE).map(|value| u16_at(value, 0).into()),
            max_workgroup: kernel_value(MAX_THREADS).map(|size| {
                [0, 4, 8]
                    .map(|at| u64::from(u32_at(size, at)).max(1))
                    .iter()
                    .product()
            }),
            ..Kernel::default()
        });
    }
    Ok(kernels)
}

struct Section<'a> {
    data: &'a [u8],
    size: u64,
    info: u32,
}

fn sections<'a, Elf: FileHeader<Endian = Endianness>>(
    elf: &Image<'a, Elf>,
) -> Result<HashMap<&'a str, Section<'a>>> {
    let mut all = HashMap::new();
    for section in elf.sections.iter() {
        let Ok(name) = std::str::from_utf8(elf.sections.section_name(elf.endian, section)?) else {
            continue;
        };
        let data = if name.starts_with(".nv.info") {
            section.data(elf.endian, elf.data)?
        } else {
            &[]
        };
        let (size, info) = (
            section.sh_size(elf.endian).into(),
            section.sh_info(elf.endian),
        );
        all.insert(name, Section { data, size, info });
    }
    Ok(all)
}

/// Returns the attributes in `data`, the contents of `section`, with their values. `section` is
/// `.nv.info` or another one with this format. An attribute starts with the format of the value and
/// the attribute's number, one byte each. Then comes the value in two bytes, or its size in two
/// bytes followed by the value.
pub(in crate::formats) fn attributes<'a>(
    mut data: &'a [u8],
    section: &str,
) -> Result<Vec<(u8, &'a [u8])>> {
    const VALUE_FOLLOWS: u8 = 4;
    let damaged = || anyhow!("damaged section {section}");
    let mut all = Vec::new();
    while !data.is_empty() {
        let [format, attribute, short @ ..] = data.split_off(..4).ok_or_else(damaged)? else {
            return Err(damaged());
        };
        let value = if *format == VALUE_FOLLOWS {
            data.split_off(..usize::from(u16_at(short, 0)))
                .ok_or_else(damaged)?
        } else {
            short
        };
        all.push((*attribute, value));
    }
    Ok(all)
}
