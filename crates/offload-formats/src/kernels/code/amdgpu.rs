//! Linked code of AMD GPUs. Code gets the address of anything outside of itself by adding a constant
//! to the program counter, which linkers fill in, so such code has no relocations. The patterns are
//! those of LLVM's `SIInstrInfo::expandPostRAPseudo` (`SI_PC_ADD_REL_OFFSET`) and
//! `SIFrameLowering`; the encodings are in `SOPInstructions.td`.
//!
//! ```text
//! s_getpc_b64 s[N:N+1]                 the address of the next instruction
//! s_add_u32   sN,   sN,   LOW          constants of four bytes after each instruction
//! s_addc_u32  sN+1, sN+1, HIGH
//! s_add_nc_u64 s[N:N+1], s[N:N+1], C   gfx1250, with a constant of eight bytes
//! ```

use std::collections::HashMap;

use anyhow::Result;
use object::read::elf::ElfFile64;
use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, ObjectSymbolTable, RelocationFlags,
    RelocationTarget, SectionFlags, SymbolKind, elf,
};

use super::{CodeDigest, Digests, Link, Map, Region, Target};
use crate::bytes::{u32_at, u64_at};
use crate::gpu::Gpu;

/// The suffix of the names of kernel descriptors.
const DESCRIPTOR: &str = ".kd";
/// The size of a kernel descriptor, and the position in it of the distance to the kernel's code.
const DESCRIPTOR_SIZE: u64 = 64;
const ENTRY_AT: u64 = 16;

/// `s_code_end` and `s_nop 0`, which fill the space between functions.
const PADDING: [u32; 3] = [0xbf9f_0000, 0xbf80_0000, 0];

/// The kinds of references other than relocations.
const BY_COUNTER: u128 = 1 << 32;
const ENTRY: u128 = 2 << 32;

pub(super) fn digests(file: &ElfFile64<'_, Endianness>) -> Result<HashMap<String, CodeDigest>> {
    let mut map = Map::default();
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
            continue;
        };
        if sh_flags.0 & elf::SHF_ALLOC.0 == 0 {
            continue;
        }
        let is_code = sh_flags.0 & elf::SHF_EXECINSTR.0 != 0;
        let region = Region {
            bytes: section.data()?,
            size: section.size(),
            is_code,
        };
        map.add_region(section.address(), region);
    }
    let mut descriptors: Vec<(&str, u64)> = Vec::new();
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let Ok(name) = symbol.name() else { continue };
        if symbol.is_undefined() {
            continue;
        }
        let address = symbol.address();
        match symbol.kind() {
            SymbolKind::Text => {
                map.add_symbol(address, symbol.size(), None);
            }
            SymbolKind::Data | SymbolKind::Unknown => match name.strip_suffix(DESCRIPTOR) {
                Some(kernel) => {
                    map.add_symbol(address, DESCRIPTOR_SIZE, None);
                    descriptors.push((kernel, address));
                }
                None => map.add_symbol(address, symbol.size(), Some(name.as_bytes())),
            },
            _ => {}
        }
    }
    for &(_, address) in &descriptors {
        if let Some(distance) = map.number_at(address + ENTRY_AT) {
            let link = Link {
                hidden: 8,
                to: Target::Address(address.wrapping_add(distance)),
                kind: ENTRY,
            };
            map.add_link(address + ENTRY_AT, link);
        }
    }
    add_relocations(file, &mut map);
    add_references(file, &mut map);
    let piece = |start| map.piece_from(start);
    let mut digests = Digests::new(&piece);
    let kernels = descriptors
        .into_iter()
        .map(|(kernel, address)| (kernel.to_owned(), map.digest(&mut digests, &[address])));
    Ok(kernels.collect())
}

/// Adds the references of the dynamic relocations: addresses of functions and variables in data.
fn add_relocations<'a>(file: &ElfFile64<'a, Endianness>, map: &mut Map<'a>) {
    let Some(relocations) = file.dynamic_relocations() else {
        return;
    };
    for (at, relocation) in relocations {
        let RelocationFlags::Elf { r_type } = relocation.flags() else {
            continue;
        };
        let addend = relocation.addend();
        let to = match relocation.target() {
            RelocationTarget::Symbol(index) => {
                let Some(symbol) = file
                    .dynamic_symbol_table()
                    .and_then(|table| table.symbol_by_index(index).ok())
                else {
                    continue;
                };
                match symbol.name_bytes() {
                    Ok(name) if symbol.is_undefined() => Target::Name(name, addend),
                    _ => Target::Address(symbol.address().wrapping_add_signed(addend)),
                }
            }
            _ => Target::Address(addend as u64),
        };
        let link = Link {
            hidden: 8,
            to,
            kind: r_type.0.into(),
        };
        map.add_link(at, link);
    }
}

/// The length of `code` without the padding at its end.
pub(super) fn without_padding(code: &[u8]) -> usize {
    let words = code.rchunks_exact(4);
    let padding = words.take_while(|word| PADDING.contains(&u32_at(word, 0)));
    code.len() - 4 * padding.count()
}

/// Adds the references of code by the program counter.
fn add_references<'a>(file: &ElfFile64<'a, Endianness>, map: &mut Map<'a>) {
    let Ok(Some(gpu)) = Gpu::of_elf(file.data()) else {
        return;
    };
    let get_counter = get_counter(&gpu.processor);
    let mut found = Vec::new();
    for (start, region) in &map.regions {
        if !region.is_code {
            continue;
        }
        let code = region.bytes;
        for at in (0..code.len() & !3).step_by(4) {
            let word = u32_at(code, at);
            if word & 0xff80_ff00 == get_counter {
                let register = (word >> 16) & 0x7f;
                found.extend(reference(code, at + 4, register).map(|found| (*start, at, found)));
            }
        }
    }
    for (
        start,
        at,
        Reference {
            low,
            high,
            distance,
        },
    ) in found
    {
        let counter = start + at as u64 + 4;
        let to = counter.wrapping_add(distance);
        if map.region_of(to).is_none() {
            continue;
        }
        let link = |hidden, to| Link {
            hidden,
            to,
            kind: BY_COUNTER,
        };
        match high {
            None => map.add_link(start + low as u64, link(8, Target::Address(to))),
            Some(high) => {
                map.add_link(start + low as u64, link(4, Target::Address(to)));
                map.add_link(start + high as u64, link(4, Target::Rest));
            }
        }
    }
}

/// The encoding of `s_getpc_b64` without its register (format SOP1).
fn get_counter(processor: &str) -> u32 {
    const SOP1: u32 = 0xbe80_0000;
    let version = processor.strip_prefix("gfx").unwrap_or_default();
    let opcode: u32 = match version.as_bytes() {
        [b'1', b'0', _, _, ..] => 0x1f,
        [b'1', _, _, _, ..] => 0x47,
        [b'8' | b'9', ..] => 0x1c,
        _ => 0x1f,
    };
    SOP1 | opcode << 8
}

/// The constants that are added to the program counter: their positions, and the sum.
struct Reference {
    low: usize,
    /// None if one constant has all eight bytes.
    high: Option<usize>,
    distance: u64,
}

/// The reference by the counter in `register`, whose additions follow in `code` from `at` on.
fn reference(code: &[u8], at: usize, register: u32) -> Option<Reference> {
    /// How many words to search: the additions, and instructions for hazards between them.
    const WORDS: usize = 10;
    /// Instructions with two scalar operands (format SOP2), and the opcodes of additions.
    const SOP2: u32 = 0b10;
    const ADD_LOW: u32 = 0;
    const ADD_HIGH: u32 = 4;
    const ADD_WIDE: u32 = 0x53;
    /// The operands that stand for constants behind the instruction.
    const CONSTANT: u32 = 0xff;
    const WIDE_CONSTANT: u32 = 0xfe;
    let mut low = None;
    let mut at = at;
    let end = code.len().min(at + 4 * WORDS);
    while at + 8 <= end {
        let word = u32_at(code, at);
        let (opcode, result) = ((word >> 23) & 0x7f, (word >> 16) & 0x7f);
        let operands = [word & 0xff, (word >> 8) & 0xff];
        let adds = |register: u32, constant: u32| {
            word >> 30 == SOP2
                && result == register
                && (operands == [register, constant] || operands == [constant, register])
        };
        if opcode == ADD_WIDE && adds(register, WIDE_CONSTANT) && at + 12 <= code.len() {
            return Some(Reference {
                low: at + 4,
                high: None,
                distance: u64_at(code, at + 4),
            });
        }
        if opcode == ADD_LOW && adds(register, CONSTANT) {
            low = Some(at + 4);
            at += 8;
            continue;
        }
        if opcode == ADD_HIGH && adds(register + 1, CONSTANT) {
            let low = low?;
            let high = at + 4;
            return Some(Reference {
                low,
                high: Some(high),
                distance: u64::from(u32_at(code, low)) | u64::from(u32_at(code, high)) << 32,
            });
        }
        at += 4;
    }
    None
}
