//! Digests of maps that differ in places, and in what runs.

use object::read::elf::ElfFile64;
use object::write::{Object as Writer, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, Object as _, ObjectSection as _, SectionKind,
    SymbolFlags, SymbolKind, SymbolScope, elf,
};

use super::{CodeDigest, Digests, Link, Map, Region, Target, digests};
use crate::kernels::STO_CUDA_ENTRY;

/// A map with the pieces `parts`, in this order from `start` on: the name of a variable, contents,
/// and the indices of the parts that its last four bytes each refer to.
struct Part {
    name: Option<&'static str>,
    bytes: &'static [u8],
    to: &'static [usize],
}

const fn code(bytes: &'static [u8], to: &'static [usize]) -> Part {
    Part {
        name: None,
        bytes,
        to,
    }
}

const fn variable(name: &'static str, bytes: &'static [u8]) -> Part {
    Part {
        name: Some(name),
        bytes,
        to: &[],
    }
}

/// The digest of part 0 if the parts are at the addresses `places`.
fn digest(parts: &[Part], places: &[u64]) -> CodeDigest {
    let contents: Vec<Vec<u8>> = parts
        .iter()
        .map(|part| {
            let mut bytes = part.bytes.to_vec();
            for to in part.to {
                bytes.extend((places[*to] as u32).to_le_bytes());
            }
            bytes
        })
        .collect();
    let mut map = Map::default();
    for ((part, place), bytes) in parts.iter().zip(places).zip(&contents) {
        map.add_region(
            *place,
            Region {
                bytes,
                size: bytes.len() as u64,
                is_code: false,
            },
        );
        map.add_symbol(*place, bytes.len() as u64, part.name.map(str::as_bytes));
    }
    for (part, place) in parts.iter().zip(places) {
        for (at, to) in part.to.iter().enumerate() {
            let link = Link {
                hidden: 4,
                to: Target::Address(places[*to]),
                kind: 1,
            };
            map.add_link(place + part.bytes.len() as u64 + 4 * at as u64, link);
        }
    }
    map.digest(
        &mut Digests::new(&|start| map.piece_from(start)),
        &[places[0]],
    )
}

#[test]
fn places_do_not_matter() {
    let parts = [
        code(b"kernel", &[1, 2]),
        code(b"function", &[2]),
        variable("table", b"12"),
    ];
    let one = digest(&parts, &[0x1000, 0x2000, 0x3000]);
    assert_eq!(one, digest(&parts, &[0x9000, 0x100, 0x400]));
    let more = [
        code(b"kernel", &[1, 2]),
        code(b"function", &[2]),
        variable("table", b"12"),
        code(b"another kernel", &[1]),
    ];
    assert_eq!(one, digest(&more, &[0x9000, 0x100, 0x400, 0x200]));
}

#[test]
fn everything_that_a_kernel_reaches_matters() {
    let digest_of = |parts: &[Part]| digest(parts, &[0x1000, 0x2000, 0x3000]);
    let parts = |function: &'static [u8], data: &'static [u8], name: &'static str| {
        [
            code(b"kernel", &[1, 2]),
            code(function, &[2]),
            variable(name, data),
        ]
    };
    let one = digest_of(&parts(b"function", b"12", "table"));
    assert_ne!(one, digest_of(&parts(b"functioN", b"12", "table")));
    assert_ne!(one, digest_of(&parts(b"function", b"13", "table")));
    assert_ne!(one, digest_of(&parts(b"function", b"12", "other")));
    let swapped = [
        code(b"kernel", &[2, 1]),
        code(b"function", &[2]),
        variable("table", b"12"),
    ];
    assert_ne!(one, digest_of(&swapped));
}

#[test]
fn names_have_no_hashes() {
    let digest_of = |name| {
        digest(
            &[code(b"kernel", &[1]), variable(name, b"12")],
            &[0x1000, 0x2000],
        )
    };
    let one = digest_of("_ZL1x.static.0123abcd");
    assert_eq!(one, digest_of("_ZL1x.static.9"));
    assert_ne!(one, digest_of("_ZL1y.static.9"));
}

#[test]
fn functions_that_call_each_other_have_a_digest() {
    let parts = [
        code(b"kernel", &[1]),
        code(b"even", &[2]),
        code(b"odd", &[1]),
    ];
    let one = digest(&parts, &[0x1000, 0x2000, 0x3000]);
    assert_eq!(one, digest(&parts, &[0x1000, 0x3000, 0x2000]));
}

#[test]
fn addresses_at_the_end_are_no_overflow() {
    let bytes = [1, 2, 3, 4];
    let mut map = Map::default();
    map.add_region(
        u64::MAX - 3,
        Region {
            bytes: &bytes,
            size: u64::MAX,
            is_code: true,
        },
    );
    map.add_symbol(u64::MAX - 1, u64::MAX, None);
    map.add_link(
        u64::MAX - 2,
        Link {
            hidden: u64::MAX,
            to: Target::Address(u64::MAX),
            kind: 0,
        },
    );
    let roots = [u64::MAX - 3, u64::MAX, 0];
    map.digest(&mut Digests::new(&|start| map.piece_from(start)), &roots);
}

/// Two kernels that call a function, with labels for debuggers or without.
fn ptx(order: [usize; 2], debug: bool, constant: u32) -> String {
    let label = |name: &str| {
        if debug {
            format!("$L__{name}0:\n.loc 1 3 4\n")
        } else {
            String::new()
        }
    };
    let kernels = [
        format!(
            ".visible .entry a(.param .u64 a_param_0)\n{{\n{}ld.param.u64 %rd1, [a_param_0];\n$L__BB{}_1: // a loop\n\
             call.uni f, (%rd1);\nbra.uni $L__BB{}_1;\n}}\n",
            label("begin"),
            order[0],
            order[0]
        ),
        ".visible .entry b()\n{\ncall.uni f, (%rd1);\nld.global.u32 %r1, [table];\nret;\n}\n"
            .to_owned(),
    ];
    format!(
        ".version 8.7\n.target sm_90{}\n.address_size 64\n.global .align 4 .b8 table[4] = {{1, 2, 3, {constant}}};\n\
         .func f(.param .u64 x);\n{}{}.func f(.param .u64 x)\n{{\nadd.u32 %r1, %r1, {constant};\nret;\n}}\n{}",
        if debug { ", debug" } else { "" },
        kernels[order[0]],
        kernels[order[1]],
        if debug {
            ".file 1 \"a.cu\"\n.section .debug_info\n{\n.b32 5\n}\n"
        } else {
            ""
        }
    )
}

#[test]
fn order_and_debug_information_of_ptx_do_not_matter() {
    let digests = |text: String| super::digests(text.as_bytes()).unwrap();
    let one = digests(ptx([0, 1], false, 7));
    assert_eq!(one.len(), 2);
    assert_ne!(one["a"], one["b"]);
    assert_eq!(one, digests(ptx([1, 0], false, 7)));
    assert_eq!(one, digests(ptx([1, 0], true, 7)));
    let other = digests(ptx([0, 1], false, 8));
    assert!(one["a"] != other["a"] && one["b"] != other["b"]);
}

/// A cubin with the kernel `k`, and with shared memory of a type that has no bytes in the file.
#[test]
fn memory_of_relocatable_cubins_may_lie_past_the_end() -> Result<(), Box<dyn std::error::Error>> {
    let (code, shared) = (b"16 bytes of code".repeat(4), vec![0; 8]);
    let mut writer = Writer::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let text = writer.add_section(Vec::new(), b".text.k".to_vec(), SectionKind::Text);
    writer.set_section_data(text, code, 16);
    let memory = writer.add_section(Vec::new(), b".nv.shared.k".to_vec(), SectionKind::Data);
    writer.set_section_data(memory, shared, 8);
    writer.add_symbol(Symbol {
        name: b"k".to_vec(),
        value: 0,
        size: 64,
        kind: SymbolKind::Text,
        scope: SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(text),
        flags: SymbolFlags::Elf {
            st_info: elf::SymbolInfo(0x12),
            st_other: elf::SymbolOther(STO_CUDA_ENTRY),
        },
    });
    let mut cubin = writer.write()?;
    cubin[18..20].copy_from_slice(&elf::EM_CUDA.0.to_le_bytes());
    let file = ElfFile64::<Endianness>::parse(&*cubin)?;
    let section = file.section_by_name(".nv.shared.k").ok_or("no section")?;
    let table = usize::try_from(file.elf_header().e_shoff.get(Endianness::Little))?;
    let header = table + section.index().0 * 64;
    cubin[header + 4..][..4].copy_from_slice(&0x7000_000a_u32.to_le_bytes());
    cubin[header + 32..][..8].copy_from_slice(&0x1c_74dd_u64.to_le_bytes());
    assert!(digests(&cubin)?.contains_key("k"));
    // Other sections past the end are damage.
    cubin[header + 4..][..4].copy_from_slice(&elf::SHT_PROGBITS.0.to_le_bytes());
    assert!(digests(&cubin).is_err());
    Ok(())
}
