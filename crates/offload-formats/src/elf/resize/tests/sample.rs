//! Small linked files of any class and byte order, laid out like those of linkers: a read-only
//! segment with images in the middle, code, and data followed by memory without bytes in the file.

use object::{Endianness, elf};

use crate::elf::raw::{
    Class, FileHeader, ProgramHeader, Record, SectionHeader, Symbol, append_note,
};

/// Size of the images in bytes: a few pages.
pub(super) const IMAGES: usize = 0x5123;
pub(super) const CLASSES: [(bool, Endianness); 4] = [
    (true, Endianness::Little),
    (true, Endianness::Big),
    (false, Endianness::Little),
    (false, Endianness::Big),
];

/// Input of the sample linker for one section.
struct Given {
    name: &'static str,
    kind: elf::SectionType,
    flags: elf::SectionFlags,
    body: Vec<u8>,
    align: u64,
    /// Whether the section starts a segment.
    begins: bool,
}

struct Sample {
    class: Class,
    out: Vec<u8>,
    headers: Vec<SectionHeader>,
    names: Vec<u8>,
}

/// A shared library, or a program at a fixed address, with the sections `first`, `images`, `last`,
/// `.text`, `.data` and `.bss`.
pub(super) fn sample(is_64: bool, endian: Endianness, is_program: bool) -> Vec<u8> {
    let class = Class { is_64, endian };
    build(class, is_program, sections(class), elf::PT_NULL)
}

/// The same file as GNU ld 2.41 and later lays it out: `images` is before `first`, right after the
/// notes. No program header is unused.
pub(super) fn sample_with_images_in_front(
    is_64: bool,
    endian: Endianness,
    is_program: bool,
) -> Vec<u8> {
    let class = Class { is_64, endian };
    let mut sections = sections(class);
    sections.swap(2, 3);
    build(class, is_program, sections, elf::PT_GNU_RELRO)
}

/// Builds a file with these sections, whose last program header has the type `last`.
fn build(class: Class, is_program: bool, sections: Vec<Given>, last: elf::ProgramType) -> Vec<u8> {
    let base = if is_program { 0x40_0000 } else { 0 };
    let mut sample = Sample {
        class,
        out: Vec::new(),
        headers: vec![SectionHeader::default()],
        names: vec![0],
    };
    let count = 8;
    sample.out.resize(
        FileHeader::size(class) + count * ProgramHeader::size(class),
        0,
    );
    let mut loads: Vec<ProgramHeader> = vec![segment(elf::PT_LOAD, elf::PF_R, 0, base, 0, 4096)];
    for given in sections {
        if given.begins {
            let flags = if given.flags.contains(elf::SHF_WRITE) {
                elf::PF_R | elf::PF_W
            } else {
                elf::PF_R | elf::PF_X
            };
            // The segment starts in the next page in memory, at the same offset within the page as
            // in the file.
            let shift = loads.last().map_or(0, |load| load.vaddr - load.offset) + 4096;
            loads.push(segment(
                elf::PT_LOAD,
                flags,
                sample.out.len() as u64,
                sample.out.len() as u64 + shift,
                0,
                4096,
            ));
        }
        let load = loads.last_mut().unwrap();
        let shift = load.vaddr - load.offset;
        let (is_loaded, has_bytes) = (
            given.flags.contains(elf::SHF_ALLOC),
            given.kind != elf::SHT_NOBITS,
        );
        let end = sample.add(given, shift);
        if is_loaded {
            load.memsz = end - load.vaddr;
        }
        if is_loaded && has_bytes {
            load.filesz = load.memsz;
        }
    }
    let mut segments = vec![
        sample.covering(elf::PT_INTERP, ".interp"),
        sample.covering(elf::PT_NOTE, ".note.gnu.build-id"),
    ];
    segments.extend(loads);
    segments.push(segment(
        elf::PT_GNU_STACK,
        elf::PF_R | elf::PF_W,
        0,
        0,
        0,
        16,
    ));
    segments.push(sample.covering(elf::PT_DYNAMIC, ".dynamic"));
    segments.push(if last == elf::PT_NULL {
        segment(last, elf::PF_R, 0, 0, 0, 0)
    } else {
        sample.covering(last, ".dynamic")
    });
    assert_eq!(segments.len(), count);
    sample.finish(is_program, &segments)
}

fn segment(
    kind: elf::ProgramType,
    flags: elf::ProgramFlags,
    offset: u64,
    vaddr: u64,
    filesz: u64,
    align: u64,
) -> ProgramHeader {
    ProgramHeader {
        kind,
        flags,
        offset,
        vaddr,
        paddr: vaddr,
        filesz,
        memsz: filesz,
        align,
    }
}

fn sections(class: Class) -> Vec<Given> {
    let (read, write) = (elf::SHF_ALLOC, elf::SHF_ALLOC | elf::SHF_WRITE);
    let given = |name, kind, flags, body: &[u8], align| Given {
        name,
        kind,
        flags,
        body: body.to_vec(),
        align,
        begins: false,
    };
    let mut note = Vec::new();
    append_note(
        class,
        b"GNU\0",
        elf::NT_GNU_BUILD_ID,
        &[0xab; 20],
        &mut note,
    );
    let images: Vec<u8> = (0..IMAGES).map(|at| (at % 251) as u8).collect();
    let text = given(
        ".text",
        elf::SHT_PROGBITS,
        read | elf::SHF_EXECINSTR,
        &[0x90; 900],
        16,
    );
    let dynamic = given(".dynamic", elf::SHT_DYNAMIC, write, &[0; 32], 8);
    vec![
        given(
            ".interp",
            elf::SHT_PROGBITS,
            read,
            b"/lib64/ld-linux-x86-64.so.2\0",
            1,
        ),
        given(".note.gnu.build-id", elf::SHT_NOTE, read, &note, 4),
        given("first", elf::SHT_PROGBITS, read, &[1; 777], 8),
        given("images", elf::SHT_PROGBITS, read, &images, 16),
        given("last", elf::SHT_PROGBITS, read, &[2; 333], 4),
        Given {
            begins: true,
            ..text
        },
        Given {
            begins: true,
            ..dynamic
        },
        given(".data", elf::SHT_PROGBITS, write, &[4; 555], 8),
        given(".bss", elf::SHT_NOBITS, write, &[0; 5000], 32),
        given(
            ".comment",
            elf::SHT_PROGBITS,
            elf::SectionFlags(0),
            b"a linker\0",
            1,
        ),
    ]
}

impl Sample {
    /// Appends a section whose address is its offset plus `shift`. Returns the end of its memory.
    fn add(&mut self, given: Given, shift: u64) -> u64 {
        let name = self.names.len() as u32;
        self.names.extend(given.name.bytes().chain([0]));
        let offset = (self.out.len() as u64).next_multiple_of(given.align);
        let is_loaded = given.flags.contains(elf::SHF_ALLOC);
        let size = given.body.len() as u64;
        if given.kind != elf::SHT_NOBITS {
            self.out.resize(offset as usize, 0);
            self.out.extend(&given.body);
        }
        let addr = if is_loaded { offset + shift } else { 0 };
        let (kind, flags) = (given.kind, given.flags);
        self.headers.push(SectionHeader {
            name,
            kind,
            flags,
            addr,
            offset,
            size,
            link: 0,
            info: 0,
            align: given.align,
            entsize: 0,
        });
        addr + size
    }

    fn named(&self, name: &str) -> (usize, SectionHeader) {
        let is_it = |header: &SectionHeader| {
            self.names[header.name as usize..].starts_with(format!("{name}\0").as_bytes())
        };
        let index = self.headers.iter().position(is_it).unwrap();
        (index, self.headers[index])
    }

    fn covering(&self, kind: elf::ProgramType, name: &str) -> ProgramHeader {
        let (_, header) = self.named(name);
        segment(
            kind,
            elf::PF_R,
            header.offset,
            header.addr,
            header.size,
            header.align,
        )
    }

    /// Adds symbols, names and headers.
    fn finish(mut self, is_program: bool, segments: &[ProgramHeader]) -> Vec<u8> {
        let class = self.class;
        let mut symbols = vec![0; Symbol::size(class)];
        let mut strings = vec![0];
        for (name, section, offset) in [
            ("in_first", "first", 8),
            ("start", "images", 0),
            ("within", "images", 0x5000),
            ("in_last", "last", 4),
            ("note", ".note.gnu.build-id", 0),
        ] {
            let (index, header) = self.named(section);
            let symbol = Symbol {
                name: strings.len() as u32,
                info: elf::STB_GLOBAL | elf::STT_OBJECT,
                other: elf::SymbolOther(0),
                shndx: elf::SymbolSection(index as u16),
                value: header.addr + offset,
                size: 4,
            };
            symbol.append(class, &mut symbols);
            strings.extend(name.bytes().chain([0]));
        }
        let unloaded = |name, kind, body| Given {
            name,
            kind,
            flags: elf::SectionFlags(0),
            body,
            align: 8,
            begins: false,
        };
        self.add(unloaded(".symtab", elf::SHT_SYMTAB, symbols), 0);
        self.add(unloaded(".strtab", elf::SHT_STRTAB, strings), 0);
        let count = self.headers.len() as u32;
        let table = &mut self.headers[count as usize - 2];
        (table.link, table.info, table.entsize) = (count - 1, 1, Symbol::size(class) as u64);
        let names = [&self.names[..], b".shstrtab\0"].concat();
        self.add(unloaded(".shstrtab", elf::SHT_STRTAB, names), 0);
        self.out.resize(self.out.len().next_multiple_of(8), 0);
        let ident = [
            0x7f,
            b'E',
            b'L',
            b'F',
            1 + u8::from(class.is_64),
            if class.endian == Endianness::Big {
                2
            } else {
                1
            },
            1,
        ];
        let shoff = self.out.len() as u64;
        self.headers
            .iter()
            .for_each(|header| header.append(class, &mut self.out));
        let mut front = ident.to_vec();
        front.resize(FileHeader::size(class), 0);
        let head = FileHeader {
            kind: if is_program {
                elf::ET_EXEC
            } else {
                elf::ET_DYN
            },
            machine: elf::EM_X86_64,
            version: 1,
            phoff: front.len() as u64,
            shoff,
            ehsize: front.len() as u16,
            phentsize: ProgramHeader::size(class) as u16,
            phnum: segments.len() as u16,
            shentsize: SectionHeader::size(class) as u16,
            shnum: count as u16 + 1,
            shstrndx: elf::SymbolSection(count as u16),
            ..FileHeader::of(class, &front).unwrap()
        };
        front = head.to_bytes(class);
        segments
            .iter()
            .for_each(|segment| segment.append(class, &mut front));
        self.out[..front.len()].copy_from_slice(&front);
        self.out
    }
}
