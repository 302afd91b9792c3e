//! Cubins. Each kernel and each function has a section of its own, `.text.<name>`, and everything
//! that it refers to outside of it has a relocation, which stays in linked cubins. NVIDIA documents
//! neither sections nor relocations; the source are cubins of CUDA 11 to 13.
//!
//! ```text
//! .text.<name>                         code
//! .rel.text.<name>, .rela.text.<name>  its references
//! .nv.constant2.<name> and others      constants of this kernel; number 0 has its arguments
//! .nv.global.init                      variables of all kernels, each a symbol
//! .nv.constant3, .nv.constant4         constants and addresses of variables, for all kernels
//! ```
//!
//! Instructions refer to constants by the number of their section and an offset. From compute
//! capability 7.0 on, instructions have 16 bytes, and the bits of these operands are known from
//! `nvdisasm`.

use std::collections::HashMap;

use anyhow::Result;
use object::read::elf::ElfFile64;
use object::{
    Endianness, Object, ObjectSection, ObjectSymbol, RelocationFlags, RelocationTarget,
    SectionFlags, SectionIndex, SymbolFlags, SymbolKind, SymbolSection, elf,
};

use super::{CodeDigest, Digests, Link, Map, Region, Target};
use crate::elf::raw::is_cuda_memory;
use crate::gpu::Gpu;
use crate::kernels::STO_CUDA_ENTRY;

const TEXT: &str = ".text.";
const CONSTANT: &str = ".nv.constant";
/// The constants with the arguments of a kernel, which have no contents.
const ARGUMENTS: &str = "0";

/// Sections of cubins have the address zero, so each gets addresses of its own.
fn base(section: SectionIndex) -> u64 {
    (section.0 as u64) << 40
}

pub(super) fn digests(file: &ElfFile64<'_, Endianness>) -> Result<HashMap<String, CodeDigest>> {
    let mut map = Map::default();
    // Whether a section in the map is code.
    let mut sections: HashMap<SectionIndex, bool> = HashMap::new();
    // The constants of each kernel, by number.
    let mut constants: HashMap<&str, Vec<(&str, u64)>> = HashMap::new();
    // The constants of all kernels, by number.
    let mut banks: HashMap<u128, u64> = HashMap::new();
    for section in file.sections() {
        let SectionFlags::Elf { sh_flags, .. } = section.flags() else {
            continue;
        };
        let Ok(name) = section.name() else { continue };
        if sh_flags.0 & elf::SHF_ALLOC.0 == 0 {
            continue;
        }
        let start = base(section.index());
        let is_code = name.starts_with(TEXT);
        sections.insert(section.index(), is_code);
        let kind = section.elf_section_header().sh_type.get(file.endian());
        let region = Region {
            // Relocatable cubins have sections of memory with offsets and sizes past the end.
            bytes: if is_cuda_memory(kind) {
                &[]
            } else {
                section.data()?
            },
            size: section.size(),
            is_code,
        };
        map.add_region(start, region);
        if is_code {
            // Calls within the section have no relocations, so all of it is one piece.
            map.add_symbol(start, section.size(), None);
        }
        let Some(number) = name.strip_prefix(CONSTANT) else {
            continue;
        };
        match number.split_once('.') {
            Some((ARGUMENTS, _)) => {}
            Some((number, kernel)) => constants.entry(kernel).or_default().push((number, start)),
            None => banks.extend(number.parse().map(|number: u128| (number, start))),
        }
    }
    let mut kernels: Vec<(&str, u64)> = Vec::new();
    for symbol in file.symbols() {
        let (SymbolSection::Section(section), Ok(name)) = (symbol.section(), symbol.name()) else {
            continue;
        };
        let is_kernel = matches!(symbol.flags(), SymbolFlags::Elf { st_other, .. } if st_other.0 & STO_CUDA_ENTRY != 0);
        match sections.get(&section) {
            Some(true) if is_kernel && symbol.kind() == SymbolKind::Text => {
                kernels.push((name, base(section)));
            }
            Some(false) if symbol.kind() != SymbolKind::Section => {
                let start = base(section) + symbol.address();
                map.add_symbol(start, symbol.size(), Some(name.as_bytes()));
            }
            _ => {}
        }
    }
    for section in file
        .sections()
        .filter(|section| sections.contains_key(&section.index()))
    {
        add_relocations(file, &section, &mut map);
    }
    if has_wide_instructions(file) && !banks.is_empty() {
        add_operands(&mut map, &banks);
    }
    let piece = |start| map.piece_from(start);
    let mut digests = Digests::new(&piece);
    let mut all = HashMap::new();
    for (name, start) in kernels {
        let mut own = constants.remove(name).unwrap_or_default();
        own.sort_unstable();
        let roots: Vec<u64> = std::iter::once(start)
            .chain(own.into_iter().map(|(_, start)| start))
            .collect();
        all.insert(name.to_owned(), map.digest(&mut digests, &roots));
    }
    Ok(all)
}

/// Adds the references of a section.
fn add_relocations<'a, 'f>(
    file: &'f ElfFile64<'a, Endianness>,
    section: &impl ObjectSection<'a>,
    map: &mut Map<'a>,
) {
    for (at, relocation) in section.relocations() {
        let (RelocationFlags::Elf { r_type }, RelocationTarget::Symbol(index)) =
            (relocation.flags(), relocation.target())
        else {
            continue;
        };
        let Ok(symbol) = file.symbol_by_index(index) else {
            continue;
        };
        let addend = relocation.addend();
        let to = match (symbol.section(), symbol.name_bytes()) {
            (SymbolSection::Section(section), _) => {
                let start = base(section) + symbol.address();
                Target::Address(start.wrapping_add_signed(addend))
            }
            (_, Ok(name)) => Target::Name(name, addend),
            _ => continue,
        };
        // Code has numbers other than addresses in the bits of the reference, too.
        let link = Link {
            hidden: 0,
            to,
            kind: r_type.0.into(),
        };
        map.add_link(base(section.index()) + at, link);
    }
}

/// Whether the instructions have 16 bytes.
fn has_wide_instructions(file: &ElfFile64<'_, Endianness>) -> bool {
    let Ok(Some(gpu)) = Gpu::of_elf(file.data()) else {
        return false;
    };
    let number = gpu.processor.trim_start_matches("sm_");
    let number = number.trim_end_matches(|c: char| c.is_ascii_alphabetic());
    number.parse::<u32>().is_ok_and(|number| number >= 70)
}

/// Adds the references to the constants `banks` in the operands of instructions. An operand with a
/// register can be any constant of its bank, because the code adds offsets to the register.
fn add_operands(map: &mut Map<'_>, banks: &HashMap<u128, u64>) {
    const SIZE: usize = 16;
    let mut found = Vec::new();
    for (start, region) in map.regions.iter().filter(|(_, region)| region.is_code) {
        for (at, instruction) in region.bytes.as_chunks::<SIZE>().0.iter().enumerate() {
            let operand = Operand::of(u128::from_le_bytes(*instruction));
            if let Some(operand) = operand
                && let Some(bank) = banks.get(&operand.bank)
            {
                found.push((start + (at * SIZE) as u64, *bank, operand));
            }
        }
    }
    for (at, bank, operand) in found {
        let (hidden, to) = if operand.has_register {
            (0, Target::Region(bank))
        } else {
            (SIZE as u64, Target::Address(bank + operand.offset))
        };
        let link = Link {
            hidden,
            to,
            kind: operand.rest,
        };
        map.add_link(at, link);
    }
}

/// An operand of an instruction: `c[bank][offset]`, or `c[bank][register + offset]`.
struct Operand {
    bank: u128,
    has_register: bool,
    offset: u64,
    /// The instruction without the offset.
    rest: u128,
}

impl Operand {
    /// The constant operand of an instruction.
    fn of(instruction: u128) -> Option<Operand> {
        /// The bits of the opcode that say which operand is a constant, and their values.
        const FORM: u128 = 9;
        const FORMS: [u128; 2] = [3, 5];
        /// `LDC`, which has an index register, and its variants for uniform registers, one of which
        /// has an offset with another bit.
        const LOAD: u128 = 0xb82;
        const LOAD_UNIFORM: [u128; 2] = [0xab9, 0x7ac];
        const LONG_OFFSET: u128 = 0x7ac;
        const REGISTER: u128 = 24;
        const NO_REGISTER: u128 = 0xff;
        const BANK: u128 = 54;
        const OFFSET: u128 = 38;
        let opcode = instruction & 0xfff;
        if !FORMS.contains(&(opcode >> FORM)) {
            return None;
        }
        let is_load = opcode == LOAD || LOAD_UNIFORM.contains(&opcode);
        let first = if opcode == LONG_OFFSET {
            OFFSET - 1
        } else {
            OFFSET
        };
        let mask = (1 << (BANK - first)) - 1;
        Some(Operand {
            bank: (instruction >> BANK) & 0x1f,
            has_register: is_load && (instruction >> REGISTER) & 0xff != NO_REGISTER,
            offset: ((instruction >> first) & mask) as u64,
            rest: instruction & !(mask << first),
        })
    }
}
