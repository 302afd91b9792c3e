//! Tests with code for other processors: generated programs of three sections, with instructions
//! that reach from one section to another.

use object::elf::{self, Machine};
use object::{Endian, Endianness};

use super::*;
use offload_formats::elf::raw::{Class, FileHeader, Record, SectionHeader};

const CLASS: Class = Class {
    is_64: true,
    endian: Endianness::Little,
};

/// A program for fixed addresses: code at the first address, and 64 bytes of data at the second.
fn program(machine: Machine, [code, data]: [u64; 2], words: &[u8]) -> Vec<u8> {
    let names = b"\0.text\0.data\0.shstrtab\0";
    let bytes = vec![0x5a_u8; 64];
    let head = FileHeader::size(CLASS) as u64;
    let ends = [
        head + words.len() as u64,
        head + (words.len() + bytes.len()) as u64,
    ];
    let section = |name, kind, flags, addr, offset, size| SectionHeader {
        name,
        kind,
        flags,
        addr,
        offset,
        size,
        ..SectionHeader::default()
    };
    let exec = elf::SHF_ALLOC | elf::SHF_EXECINSTR;
    let sections = [
        SectionHeader::default(),
        section(1, elf::SHT_PROGBITS, exec, code, head, words.len() as u64),
        section(
            7,
            elf::SHT_PROGBITS,
            elf::SHF_ALLOC | elf::SHF_WRITE,
            data,
            ends[0],
            64,
        ),
        section(
            13,
            elf::SHT_STRTAB,
            elf::SectionFlags(0),
            0,
            ends[1],
            names.len() as u64,
        ),
    ];
    let ident = elf::Ident {
        magic: elf::ELFMAG,
        class: elf::ELFCLASS64,
        data: elf::ELFDATA2LSB,
        version: elf::EV_CURRENT,
        os_abi: elf::ELFOSABI_NONE,
        abi_version: 0,
        padding: [0; 7],
    };
    let header = FileHeader {
        ident,
        kind: elf::ET_EXEC,
        machine,
        version: 1,
        entry: code,
        phoff: 0,
        shoff: ends[1] + names.len() as u64,
        flags: elf::FileFlags(0),
        ehsize: head as u16,
        phentsize: 0,
        phnum: 0,
        shentsize: SectionHeader::size(CLASS) as u16,
        shnum: sections.len() as u16,
        shstrndx: elf::SymbolSection(3),
    };
    let mut file = header.to_bytes(CLASS);
    file.extend([words, &bytes, names].concat());
    sections
        .iter()
        .for_each(|section| section.append(CLASS, &mut file));
    file
}

fn words(all: &[u32]) -> Vec<u8> {
    all.iter()
        .flat_map(|word| Endianness::Little.write_u32(*word))
        .collect()
}

/// Checks whether the comparison accepts the code of both programs as the same.
#[track_caller]
fn check(machine: Machine, one: ([u64; 2], &[u8]), other: ([u64; 2], &[u8]), is_same: bool) {
    let found = differences(
        &program(machine, one.0, one.1),
        &program(machine, other.0, other.1),
    );
    assert_eq!(found.is_empty(), is_same, "{found:?}");
}

/// `adrp` that loads the page of `to` into `register`, at the address `from`.
fn adrp(register: u32, from: u64, to: u64) -> u32 {
    let pages = ((to >> 12).wrapping_sub(from >> 12) & 0x1f_ffff) as u32;
    0x9000_0000 | (pages & 3) << 29 | (pages >> 2) << 5 | register
}

#[test]
fn pages_and_places_of_aarch64() {
    let near = [0x21_0000, 0x22_0010];
    let far = [0x21_0000, 0x51_0730];
    // adrp x0; add x0, x0, #place; adrp x1; ldr x2, [x1, #place]; ldr q3, [x1, #place]; ldrb w4,
    // [x1, #place]; ret
    let code = |[code, data]: [u64; 2], within: u64| {
        let at = data + within;
        let place = (at & 0xfff) as u32;
        words(&[
            adrp(0, code, at),
            0x9100_0000 | place << 10,
            adrp(1, code + 8, at),
            0xf940_0022 | (place >> 3) << 10,
            0x3dc0_0023 | (place >> 4) << 10,
            0x3940_0024 | place << 10,
            0xd65f_03c0,
        ])
    };
    check(
        elf::EM_AARCH64,
        (near, &code(near, 16)),
        (far, &code(far, 16)),
        true,
    );
    check(
        elf::EM_AARCH64,
        (near, &code(near, 16)),
        (far, &code(far, 32)),
        false,
    );
    // Another register.
    let mut other = code(far, 16);
    other[12] ^= 1;
    check(
        elf::EM_AARCH64,
        (near, &code(near, 16)),
        (far, &other),
        false,
    );
    // A page that no instruction uses is unexplained.
    let alone = |[code, data]: [u64; 2]| words(&[adrp(0, code, data), 0xd65f_03c0]);
    check(
        elf::EM_AARCH64,
        (near, &alone(near)),
        (far, &alone(far)),
        false,
    );
    check(
        elf::EM_AARCH64,
        (near, &code(near, 16)[..26]),
        (far, &code(far, 16)[..26]),
        true,
    );
}

#[test]
fn distances_of_aarch64() {
    let (near, far) = ([0x21_0000, 0x21_1000], [0x21_0000, 0x21_2000]);
    // The first word of the instruction, the shift of its distance, and the unit of the distance.
    for (base, shift, unit) in [
        (0x9400_0000_u32, 0, 4),
        (0x5400_0001, 5, 4),
        (0xb400_0003, 5, 4),
        (0x3600_0003, 5, 4),
        (0x5800_0003, 5, 4),
    ] {
        let code = |[code, data]: [u64; 2], within: u64| {
            words(&[base | (((data + within - code) / unit) as u32) << shift])
        };
        check(
            elf::EM_AARCH64,
            (near, &code(near, 8)),
            (far, &code(far, 8)),
            true,
        );
        check(
            elf::EM_AARCH64,
            (near, &code(near, 8)),
            (far, &code(far, 12)),
            false,
        );
        // Another register, condition or target.
        let mut changed = code(far, 8);
        changed[0] ^= 1;
        check(
            elf::EM_AARCH64,
            (near, &code(near, 8)),
            (far, &changed),
            false,
        );
    }
    let adr = |[code, data]: [u64; 2], within: u64| {
        let distance = (data + within - code) as u32;
        words(&[0x1000_0000 | (distance & 3) << 29 | (distance >> 2) << 5])
    };
    check(
        elf::EM_AARCH64,
        (near, &adr(near, 3)),
        (far, &adr(far, 3)),
        true,
    );
    check(
        elf::EM_AARCH64,
        (near, &adr(near, 3)),
        (far, &adr(far, 4)),
        false,
    );
}

#[test]
fn distances_and_addresses_of_x86_64() {
    let (near, far) = ([0x40_1000, 0x40_2000], [0x40_1000, 0x48_2000]);
    let distance = |before: &[u8], after: &[u8], [code, data]: [u64; 2], within: u64| {
        let end = code + (before.len() + 4 + after.len()) as u64;
        [
            before,
            &((data + within).wrapping_sub(end) as u32).to_le_bytes(),
            after,
            &[0xc3],
        ]
        .concat()
    };
    for (before, after) in [
        (&[0xe8][..], &[][..]),
        (&[0xe9], &[]),
        (&[0x0f, 0x84], &[]),
        (&[0x48, 0x8d, 0x05], &[]),
        (&[0x83, 0x3d], &[7]),
        (&[0xc7, 0x05], &[1, 2, 3, 4]),
        (&[0x66, 0xc7, 0x05], &[1, 2]),
    ] {
        let code = |places, within| distance(before, after, places, within);
        check(
            elf::EM_X86_64,
            (near, &code(near, 8)),
            (far, &code(far, 8)),
            true,
        );
        check(
            elf::EM_X86_64,
            (near, &code(near, 8)),
            (far, &code(far, 9)),
            false,
        );
        check(
            elf::EM_X86_64,
            (near, &code(near, 8)),
            (near, &code(near, 9)),
            false,
        );
    }
    // mov eax, constant: not a distance, whatever its value.
    let constant = |value: u32| [&[0xb8][..], &value.to_le_bytes(), &[0xc3]].concat();
    check(
        elf::EM_X86_64,
        (near, &constant(0x1000)),
        (far, &constant(0x8_1000)),
        false,
    );
    // mov eax or rax, address: 32 and 64 bits.
    check(
        elf::EM_X86_64,
        (near, &constant(0x40_2008)),
        (far, &constant(0x48_2008)),
        true,
    );
    check(
        elf::EM_X86_64,
        (near, &constant(0x40_2008)),
        (far, &constant(0x48_2009)),
        false,
    );
    let wide = |value: u64| [&[0x48, 0xb8][..], &value.to_le_bytes(), &[0xc3]].concat();
    check(
        elf::EM_X86_64,
        (near, &wide(0x40_2008)),
        (far, &wide(0x48_2008)),
        true,
    );
}

#[test]
fn code_of_other_processors_must_be_equal() {
    let (near, far) = ([0x40_1000, 0x40_2000], [0x40_1000, 0x48_2000]);
    check(
        elf::EM_RISCV,
        (near, &[1, 2, 3, 4]),
        (far, &[1, 2, 3, 4]),
        true,
    );
    let (one, other) = (
        program(elf::EM_RISCV, near, &[1, 2, 3, 4]),
        program(elf::EM_RISCV, far, &[1, 2, 3, 5]),
    );
    let expected = ".text: +0x3: the code differs; moved addresses are recognized only in x86-64 and AArch64 code";
    assert_eq!(differences(&one, &other), [expected]);
}
