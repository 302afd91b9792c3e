//! Compares stripped images with those of LLVM's objcopy, and checks that all other contents stay.
//! Tests with NVIDIA's tools are in the test suite.

use std::path::Path;

use object::read::elf::{ElfFile32, ElfFile64, FileHeader, ProgramHeader as _};
use object::write::{Object as Writer, Relocation, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, File, Object as _, ObjectSection as _,
    ObjectSymbol as _, SectionKind,
};

use super::*;
use crate::compose::join;
use crate::reference::{Outcome, run, tools};

const KERNELS: &str = "
__attribute__((noinline)) float helper(float x) { return x * x + 1.0f; }
__constant int table[4] = {1, 2, 3, 4};
__kernel void add(__global float *p, int n) { p[0] = helper(p[1]) + n + table[n]; }
__kernel void mul(__global float *p, __local float *l) { l[0] = p[2]; p[0] = helper(p[1]) * l[0]; }
";
const LIBRARY: &str = "
extern int other(int);
int counter, table[3] = {1, 2, 3};
static int inner(int x) { return other(x) + table[x]; }
int (*entry)(int) = inner;
int outer(int x) { return counter += entry(x); }
";

fn stripped(data: &[u8]) -> Result<Vec<u8>, Malformed> {
    join(data, &strip_debug(data)?, &[])
}

/// Returns the segments: their headers without the offset, and their bytes.
fn segments(data: &[u8]) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    fn of<Elf: FileHeader<Endian = Endianness>>(
        headers: &[Elf::ProgramHeader],
        endian: Endianness,
        data: &[u8],
    ) -> Vec<String> {
        let told = |segment: &Elf::ProgramHeader| {
            let place: [u64; 5] = [
                segment.p_vaddr(endian).into(),
                segment.p_paddr(endian).into(),
                segment.p_filesz(endian).into(),
                segment.p_memsz(endian).into(),
                segment.p_align(endian).into(),
            ];
            // A segment can contain the file header and the program headers, in which offsets have
            // changed.
            let body = segment
                .data(endian, data)
                .map(|body| body.get(0x400..).unwrap_or_default().to_vec());
            format!(
                "{:?} {:?} {place:?} {body:?}",
                segment.p_type(endian),
                segment.p_flags(endian)
            )
        };
        headers.iter().map(told).collect()
    }
    Ok(match File::parse(data)? {
        File::Elf32(_) => {
            let file = ElfFile32::<Endianness>::parse(data)?;
            of::<object::elf::FileHeader32<Endianness>>(
                file.elf_program_headers(),
                file.endian(),
                data,
            )
        }
        _ => {
            let file = ElfFile64::<Endianness>::parse(data)?;
            of::<object::elf::FileHeader64<Endianness>>(
                file.elf_program_headers(),
                file.endian(),
                data,
            )
        }
    })
}

/// Returns the sections with their contents, and the symbols, as the crate `object` reads them.
/// Omits tables of names and symbols, because their order depends on the tool.
fn contents(data: &[u8]) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let file = File::parse(data)?;
    let mut all = Vec::new();
    for section in file.sections() {
        let name = section.name()?;
        if name == ".strtab" || name == ".shstrtab" || name == ".symtab" {
            continue;
        }
        all.push(format!(
            "{name} {:#x} {} {:?} {:?}",
            section.address(),
            section.size(),
            section.flags(),
            section.data()?
        ));
    }
    for symbol in file.symbols().chain(file.dynamic_symbols()) {
        let section = symbol
            .section_index()
            .and_then(|index| file.section_by_index(index).ok());
        let section = section.and_then(|section| section.name().ok().map(str::to_owned));
        all.push(format!(
            "{} {:#x} {} {:?} {section:?}",
            symbol.name()?,
            symbol.address(),
            symbol.size(),
            symbol.flags()
        ));
    }
    Ok(all)
}

/// Links images with the linkers for their targets. Returns their file names.
fn images(folder: &Path) -> Result<Vec<String>, Box<dyn std::error::Error>> {
    let Some([clang]) = tools(["clang"]) else {
        return Ok(Vec::new());
    };
    std::fs::write(folder.join("k.cl"), KERNELS)?;
    std::fs::write(folder.join("l.c"), LIBRARY)?;
    let mut made = Vec::new();
    for arch in ["gfx90a", "gfx1100"] {
        let flags = [
            "-x",
            "cl",
            "-cl-std=CL2.0",
            "--target=amdgcn-amd-amdhsa",
            "-nogpulib",
            "-g",
            "-O1",
            "k.cl",
        ];
        run(
            &clang,
            folder,
            flags
                .into_iter()
                .chain([&*format!("-mcpu={arch}"), "-o", arch]),
        )?;
        made.push(arch.to_owned());
    }
    for target in ["x86_64", "i386", "aarch64_be", "powerpc"] {
        for (name, linker) in [("lld", "-fuse-ld=lld"), ("gdb-index", "-Wl,--gdb-index")] {
            let output = format!("{target}-{name}");
            let flags = [
                "-shared",
                "-fPIC",
                "-nostdlib",
                "-g",
                "-ggnu-pubnames",
                "-fuse-ld=lld",
                linker,
                "l.c",
            ];
            run(
                &clang,
                folder,
                flags
                    .into_iter()
                    .chain([&*format!("--target={target}-linux-gnu"), "-o", &output]),
            )?;
            made.push(output);
        }
    }
    Ok(made)
}

#[test]
fn it_is_what_llvm_objcopy_leaves() -> Outcome {
    let Some([objcopy, readelf]) = tools(["llvm-objcopy", "llvm-readelf"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    for name in images(folder)? {
        let old = std::fs::read(folder.join(&name))?;
        let new = stripped(&old)?;
        std::fs::write(folder.join("ours"), &new)?;
        run(&objcopy, folder, ["--strip-debug", &name, "theirs"])?;
        let theirs = std::fs::read(folder.join("theirs"))?;
        assert_eq!(segments(&new)?, segments(&old)?, "{name}");
        let (mut ours, mut wanted) = (contents(&new)?, contents(&theirs)?);
        // llvm-objcopy also drops symbols that name source files. For ARM, it drops the symbols
        // that mark the contents of debug sections as data. In such files, offld empties the debug
        // sections but keeps their headers and these symbols.
        let emptied = name.starts_with("aarch64");
        let counts = |line: &String| {
            let is_debug = [".debug_", ".gdb_index", "$"]
                .iter()
                .any(|start| line.starts_with(start));
            !(line.starts_with("l.c ") || line.starts_with("k.cl ") || emptied && is_debug)
        };
        ours.retain(counts);
        wanted.retain(counts);
        assert_eq!(ours, wanted, "{name}");
        assert!(
            new.len() <= theirs.len() + 1200,
            "{name}: {} bytes, {} by objcopy",
            new.len(),
            theirs.len()
        );
        let notes = |file: &str| run(&readelf, folder, ["--notes", "--dynamic", "--relocs", file]);
        let text = |bytes: Vec<u8>| {
            String::from_utf8_lossy(&bytes)
                .lines()
                .skip(2)
                .collect::<Vec<_>>()
                .join("\n")
        };
        assert_eq!(text(notes("ours")?), text(notes(&name)?), "{name}");
        // A second run finds nothing to strip.
        assert_eq!(
            strip_debug(&new)?,
            [Part::Old(0..new.len() as u64)],
            "{name}"
        );
    }
    Ok(())
}

#[test]
fn programs_run_as_before() -> Outcome {
    let Some([cc, readelf]) = tools(["cc", "readelf"]) else {
        return Ok(());
    };
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    std::fs::write(folder.join("l.c"), LIBRARY)?;
    std::fs::write(
        folder.join("m.c"),
        "int outer(int); int other(int x) { return x * 10; }\nint main(void) { return outer(2) != 23; }",
    )?;
    // Debian 13 has gold in a separate package.
    let gold = which::which("ld.gold")
        .is_ok()
        .then_some(&["-fuse-ld=gold"][..]);
    for flags in [&["-pie"][..], &["-no-pie", "-static"], &["-gz"]]
        .into_iter()
        .chain(gold)
    {
        let files = ["-g", "-O1", "m.c", "l.c", "-o", "program"];
        run(&cc, folder, files.iter().chain(flags))?;
        let program = folder.join("program");
        let old = std::fs::read(&program)?;
        let new = stripped(&old)?;
        assert!(new.len() < old.len() - 500, "{flags:?}");
        std::fs::write(&program, &new)?;
        run(&program, folder, [""; 0])?;
        run(&readelf, folder, ["-aW", "program"])?;
    }
    Ok(())
}

/// An object with debug information, relocations for it, and a section symbol of it, for the
/// machine with this number.
fn object(machine: u16) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut writer = Writer::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let mut sections = Vec::new();
    for (name, kind) in [
        (".text.k", SectionKind::Text),
        (".debug_frame", SectionKind::Debug),
        (".debug_line", SectionKind::Debug),
        (".nv_debug_ptx_txt", SectionKind::Debug),
        (".nv.merc.debug_line", SectionKind::Debug),
        (".nv.info", SectionKind::Other),
    ] {
        let section = writer.add_section(Vec::new(), name.into(), kind);
        writer.set_section_data(section, name.as_bytes().repeat(20), 4);
        sections.push(section);
    }
    let symbol = writer.section_symbol(sections[2]);
    let kernel = writer.add_symbol(object::write::Symbol {
        name: b"k".to_vec(),
        value: 0,
        size: 4,
        kind: object::SymbolKind::Text,
        scope: object::SymbolScope::Dynamic,
        weak: false,
        section: SymbolSection::Section(sections[0]),
        flags: object::SymbolFlags::None,
    });
    for (section, symbol) in [(sections[2], kernel), (sections[0], symbol)] {
        let flags = object::RelocationFlags::Elf {
            r_type: object::elf::R_X86_64_64,
        };
        writer.add_relocation(
            section,
            Relocation {
                offset: 0,
                symbol,
                addend: 0,
                flags,
            },
        )?;
    }
    let mut data = writer.write()?;
    data[18..20].copy_from_slice(&machine.to_le_bytes());
    Ok(data)
}

#[test]
fn nvidias_numbers_stay_and_its_frames() -> Outcome {
    let old = object(elf::EM_CUDA.0)?;
    let new = stripped(&old)?;
    let parse = |data: &[u8]| -> Result<Vec<(String, u64)>, object::read::Error> {
        let file = ElfFile64::<Endianness>::parse(data)?;
        file.sections()
            .map(|section| Ok((section.name()?.to_owned(), section.size())))
            .collect()
    };
    let (before, after) = (parse(&old)?, parse(&new)?);
    let gone = [
        ".debug_line",
        ".rela.debug_line",
        ".nv_debug_ptx_txt",
        ".nv.merc.debug_line",
    ];
    assert_eq!(before.len(), after.len());
    for ((name, size), (same, now)) in before.iter().zip(&after) {
        assert_eq!(
            (name, *now),
            (
                same,
                if gone.contains(&name.as_str()) {
                    0
                } else {
                    *size
                }
            )
        );
    }
    let [one, other] = [
        ElfFile64::<Endianness>::parse(&*old)?,
        ElfFile64::<Endianness>::parse(&*new)?,
    ];
    for name in [
        ".text.k",
        ".debug_frame",
        ".nv.info",
        ".rela.text.k",
        ".symtab",
    ] {
        let body = |file: &ElfFile64<Endianness>| {
            file.section_by_name(name)
                .and_then(|section| section.data().ok().map(<[u8]>::to_vec))
        };
        assert!(body(&one).is_some() && body(&one) == body(&other), "{name}");
    }
    // For other machines, `.debug_frame` is removed, and NVIDIA's names have no meaning. Objects
    // keep the headers of removed sections.
    let x86 = parse(&stripped(&object(elf::EM_X86_64.0)?)?)?;
    let mut empty: Vec<&str> = x86
        .iter()
        .filter(|(_, size)| *size == 0)
        .map(|(name, _)| name.as_str())
        .collect();
    empty.sort_unstable();
    assert_eq!(
        empty,
        [
            ".debug_frame",
            ".debug_line",
            ".nv_debug_ptx_txt",
            ".rela.debug_line"
        ]
    );
    Ok(())
}

/// NVIDIA's shared memory sections have their own type and a size, but no bytes. An example is
/// `.nv_debug.shared` in relocatable code.
#[test]
fn memory_that_is_set_aside_has_no_bytes() -> Outcome {
    let mut old = object(elf::EM_CUDA.0)?;
    let file = ElfFile64::<Endianness>::parse(&*old)?;
    let index = file
        .section_by_name(".nv_debug_ptx_txt")
        .ok_or("no section")?
        .index()
        .0;
    let header = usize::try_from(file.elf_header().e_shoff.get(Endianness::Little))? + index * 64;
    old[header + 4..][..4].copy_from_slice(&0x7000_000a_u32.to_le_bytes());
    old[header + 32..][..8].copy_from_slice(&0x1a_015d_u64.to_le_bytes());
    let new = stripped(&old)?;
    let file = ElfFile64::<Endianness>::parse(&*new)?;
    assert_eq!(
        file.section_by_name(".nv_debug_ptx_txt")
            .map(|section| section.size()),
        Some(0x1a_015d)
    );
    assert_eq!(
        file.section_by_name(".debug_line")
            .map(|section| section.size()),
        Some(0)
    );
    // For other machines, a section of this type has bytes.
    old[18..20].copy_from_slice(&elf::EM_X86_64.0.to_le_bytes());
    assert!(stripped(&old).is_err());
    Ok(())
}

#[test]
fn what_is_not_known_stays() -> Outcome {
    // Bytes after the tables that no header describes.
    let mut old = object(elf::EM_CUDA.0)?;
    old.extend([0; 11]);
    old.extend(b"a signature");
    let new = stripped(&old)?;
    assert!(new.ends_with(b"a signature") && new.len() < old.len());
    // A debug section that shares bytes with the text stays.
    let mut shared = object(elf::EM_X86_64.0)?;
    let file = ElfFile64::<Endianness>::parse(&*shared)?;
    let text = file
        .section_by_name(".text.k")
        .and_then(|section| section.file_range())
        .ok_or("no text")?;
    let line = file
        .section_by_name(".debug_line")
        .ok_or("no line")?
        .index()
        .0;
    let shoff = u64::from_le_bytes(*shared[40..].first_chunk().ok_or("short")?) as usize;
    shared[shoff + 64 * line + 24..][..8].copy_from_slice(&text.0.to_le_bytes());
    let new = stripped(&shared)?;
    let file = ElfFile64::<Endianness>::parse(&*new)?;
    assert!(
        file.section_by_name(".debug_line")
            .is_some_and(|section| section.size() > 0)
    );
    // The debug section that overlaps it also stays, but no other one does.
    assert!(
        file.section_by_name(".debug_frame")
            .is_some_and(|section| section.size() > 0)
    );
    assert!(
        file.section_by_name(".nv_debug_ptx_txt")
            .is_some_and(|section| section.size() == 0)
    );
    Ok(())
}

#[test]
fn damaged_images_do_not_panic() -> Outcome {
    let folder = tempfile::tempdir()?;
    let mut samples = vec![object(elf::EM_CUDA.0)?, object(elf::EM_X86_64.0)?];
    for name in images(folder.path())?.iter().step_by(3) {
        samples.push(std::fs::read(folder.path().join(name))?);
    }
    for data in samples {
        let table = ElfFile64::<Endianness>::parse(&*data).map_or(0x34, |file| {
            file.elf_header().e_shoff.get(Endianness::Little) as usize
        });
        let table = if table < data.len() { table } else { 0x40 };
        for at in (0..0x240.min(data.len())).chain(table..data.len().min(table + 64 * 24)) {
            for flip in [1, 0x80, 0xff] {
                let mut bad = data.clone();
                bad[at] ^= flip;
                if let Ok(parts) = strip_debug(&bad) {
                    assert!(join(&bad, &parts, &[])?.len() <= data.len() + 8, "{at}");
                }
            }
        }
        for len in (0..data.len()).step_by(37) {
            if let Ok(parts) = strip_debug(&data[..len]) {
                assert!(join(&data[..len], &parts, &[])?.len() <= len);
            }
        }
    }
    Ok(())
}
