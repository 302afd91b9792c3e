//! Tests with images that no available compiler writes: images with more sections than a header can
//! count, and images that would take too much time or memory.

use std::sync::Arc;

use object::Endianness;

use super::*;
use offload_formats::elf::raw::Class;

const CLASS: Class = Class {
    is_64: true,
    endian: Endianness::Little,
};
const HEADER_SIZE: u64 = 64;
const LABEL: Label = Label {
    part: Part::Other,
    kind: Name::NONE,
    section: Name::NONE,
    kernel: Name::NONE,
    unit: Name::NONE,
    member: Name::NONE,
    container: Name::NONE,
    image: super::super::ImageIndex::NONE,
};

/// A section of `size` bytes at offset `at` of the contents.
fn section(kind: abi::SectionType, name: u32, at: u64, size: u64, link: u32) -> SectionHeader {
    let entsize = if kind == abi::SHT_SYMTAB { 24 } else { 0 };
    let flags = abi::SectionFlags(0);
    SectionHeader {
        name,
        kind,
        flags,
        addr: 0,
        offset: HEADER_SIZE + at,
        size,
        link,
        info: 0,
        align: 1,
        entsize,
    }
}

/// A function in the section with this index.
fn function(name: u32, shndx: abi::SymbolSection, size: u64) -> Symbol {
    Symbol {
        name,
        info: abi::SymbolInfo::new(abi::STB_GLOBAL, abi::STT_FUNC),
        other: Default::default(),
        shndx,
        value: 0,
        size,
    }
}

/// An image with these contents and sections. The section at `names` has the section names.
fn image(contents: &[u8], sections: &[SectionHeader], names: usize) -> Vec<u8> {
    let mut first = section(abi::SHT_NULL, 0, 0, 0, 0);
    let few = sections.len() + 1 < usize::from(abi::SHN_LORESERVE);
    if !few {
        (first.size, first.link) = (sections.len() as u64 + 1, names as u32);
    }
    let mut image = b"\x7fELF\x02\x01\x01".to_vec();
    image.resize(16, 0);
    image.extend([2_u16, 190].map(u16::to_le_bytes).concat());
    image.extend(1_u32.to_le_bytes());
    image.extend(
        [0, 0, HEADER_SIZE + contents.len() as u64]
            .map(u64::to_le_bytes)
            .concat(),
    );
    image.extend(0_u32.to_le_bytes());
    let (count, names) = if few {
        (sections.len() as u16 + 1, names as u16)
    } else {
        (0, abi::SHN_XINDEX.0)
    };
    image.extend([64, 56, 0, 64, count, names].map(u16::to_le_bytes).concat());
    image.extend(contents);
    [&[first], sections]
        .concat()
        .iter()
        .for_each(|section| section.append(CLASS, &mut image));
    image
}

fn read_image(image: &[u8]) -> Result<(Contents, Arc<Names>), Malformed> {
    let names = Arc::<Names>::default();
    Ok((read(image, LABEL, &names, true)?, names))
}

#[test]
fn images_of_more_sections_than_a_header_counts_are_read() {
    const LAST: u32 = 70_000;
    let strings = b"\0.text.k\0.shstrtab\0";
    let (symbols_at, indices_at, code_at) = (64, 64 + 48, 128);
    let mut contents = strings.to_vec();
    contents.resize(symbols_at, 0);
    // `k` is in the last section but one. The section index of the other function is a reserved
    // one.
    function(7, abi::SHN_XINDEX, 8).append(CLASS, &mut contents);
    function(0, abi::SHN_ABS, 0).append(CLASS, &mut contents);
    contents.extend([LAST - 1, 0].map(u32::to_le_bytes).concat());
    contents.resize(code_at, 0);
    contents.extend([0; 16]);
    let mut sections = vec![section(abi::SHT_PROGBITS, 0, 0, 0, 0); LAST as usize - 4];
    sections.push(section(abi::SHT_SYMTAB, 0, symbols_at as u64, 48, LAST));
    sections.push(section(
        abi::SHT_SYMTAB_SHNDX,
        0,
        indices_at as u64,
        8,
        LAST - 3,
    ));
    sections.push(section(abi::SHT_PROGBITS, 1, code_at as u64, 8, 0));
    sections.push(section(abi::SHT_STRTAB, 9, 0, strings.len() as u64, 0));
    let (found, names) = read_image(&image(&contents, &sections, LAST as usize)).unwrap();
    let [code] = &found.functions[..] else {
        panic!("{:?}", found.functions)
    };
    assert_eq!(
        (&*names.text(code.name), code.offset, code.size),
        ("k", HEADER_SIZE + code_at as u64, 8)
    );
    // `k` gets the name of its section and its own name in the string table.
    let of_names = found.claims.iter().filter(|claim| {
        claim.to.kernel == code.name && claim.end <= HEADER_SIZE + strings.len() as u64
    });
    let mut of_names: Vec<(u64, u64)> = of_names
        .map(|claim| (claim.start - HEADER_SIZE, claim.end - HEADER_SIZE))
        .collect();
    of_names.sort();
    assert_eq!(of_names, [(1, 9), (7, 9)]);
}

#[test]
fn call_frames_of_cubins_are_not_debug_information() {
    let strings = b"\0.debug_frame\0.nv.merc.debug_frame\0.debug_line\0.shstrtab\0";
    let mut contents = strings.to_vec();
    contents.resize(256, 0);
    let data = |name: u32, at: u64| section(abi::SHT_PROGBITS, name, at, 8, 0);
    let sections = [
        data(1, 128),
        data(14, 136),
        data(35, 144),
        section(abi::SHT_STRTAB, 47, 0, strings.len() as u64, 0),
    ];
    let cubin = image(&contents, &sections, 4);
    let mut amd = cubin.clone();
    amd[18..20].copy_from_slice(&abi::EM_AMDGPU.0.to_le_bytes());
    for (image, frames) in [(&cubin, Part::Attributes), (&amd, Part::Debug)] {
        let (found, _) = read_image(image).unwrap();
        let part_at = |at: u64| {
            let mut claims = found.claims.iter();
            let claim = claims.find(|claim| claim.start == HEADER_SIZE + at);
            claim.map(|claim| claim.to.part)
        };
        assert_eq!(part_at(128), Some(frames));
        assert_eq!(part_at(144), Some(Part::Debug));
    }
    let (found, _) = read_image(&cubin).unwrap();
    let mut claims = found.claims.iter();
    let merc = claims.find(|claim| claim.start == HEADER_SIZE + 136);
    assert_eq!(merc.map(|claim| claim.to.part), Some(Part::Attributes));
}

#[test]
fn what_shares_its_bytes_is_no_image() {
    let mut long = vec![b'a'; 100_000];
    long.push(0);
    let strings = section(abi::SHT_STRTAB, 0, 0, long.len() as u64, 0);
    let code = section(abi::SHT_PROGBITS, 99_990, 0, 90_000, 0);
    let with_symbols = |count: u32, size: u64| {
        let mut contents = long.clone();
        (0..count).for_each(|name| {
            function(
                if size > 0 { 99_990 } else { name },
                abi::SymbolSection(2),
                size,
            )
            .append(CLASS, &mut contents)
        });
        (
            contents,
            section(
                abi::SHT_SYMTAB,
                99_990,
                long.len() as u64,
                24 * u64::from(count),
                1,
            ),
        )
    };
    let error = |image: &[u8]| read_image(image).map(drop).unwrap_err().what;
    let names: Vec<SectionHeader> = (0..20)
        .map(|name| section(abi::SHT_PROGBITS, name, 0, 1, 0))
        .collect();
    assert_eq!(
        error(&image(&long, &[vec![strings], names].concat(), 1)),
        "section names overlap"
    );
    let (contents, table) = with_symbols(20, 0);
    let expected = "symbol tables or symbol names overlap";
    assert_eq!(
        error(&image(&contents, &[strings, code, table], 1)),
        expected
    );
    let (contents, table) = with_symbols(4, 1);
    assert!(read_image(&image(&contents, &[strings, code, table], 1)).is_ok());
    assert_eq!(
        error(&image(
            &contents,
            &[vec![strings, code], vec![table; 20]].concat(),
            1
        )),
        expected
    );
    let (contents, table) = with_symbols(20, 90_000);
    assert_eq!(
        error(&image(&contents, &[strings, code, table], 1)),
        "functions overlap"
    );
}

#[test]
fn nvidias_names_tell_their_file() {
    let text = b"\0_Zx_INTERNAL_9bf1d7ca_9_curand_cu_7a7eb9d1\0_GLOBAL__N__57686b55_4_a_cu_45d778d9\0\
        __nv_static_25__45ddc4bb_4_b_cu_848acf13__Z1kPf\0_INTERNAL_9bf1d7ca_9_curand_cu_7a7eb9d1\0_INTERNAL_zz_4_a_cu\0_INTERNAL_9bf1d7ca_99_a";
    let found: Vec<String> = units_of_symbols(text)
        .into_iter()
        .map(|unit| String::from_utf8(unit).unwrap())
        .collect();
    assert_eq!(found, ["a.cu", "b.cu", "curand.cu"]);
}

#[test]
fn names_that_no_file_has_are_no_units() {
    let name = |length: usize| format!("_INTERNAL_9bf1d7ca_{length}_{}", "a".repeat(length));
    assert_eq!(units_of_symbols(name(255).as_bytes()).len(), 1);
    assert_eq!(units_of_symbols(name(256).as_bytes()).len(), 0);
}

#[test]
fn symbols_for_files_are_units_if_they_are_sources() {
    assert_eq!(unit_of_file_symbol(b"saxpy.hip"), Some(&b"saxpy.hip"[..]));
    assert_eq!(unit_of_file_symbol(b"lto.tmp"), None);
    assert_eq!(unit_of_file_symbol(b"crt0"), None);
}
