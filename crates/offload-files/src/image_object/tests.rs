//! Image objects as `object` and the installed linkers read them.

use super::*;
use crate::reference;
use object::{Object, ObjectSection, ObjectSymbol};
use offld_system::io::outputs::GRAIN;
use offload_formats::model::{ImageKind, OffloadKind};
use offload_formats::offload_binary;
use offload_formats::registration::image_section;
use std::error::Error;
use std::path::Path;
use std::process::Command;

type Outcome = Result<(), Box<dyn Error>>;

const X86: &str = "x86_64-unknown-linux-gnu";
const HOSTS: &[&str] = &[
    X86,
    "i686-unknown-linux-gnu",
    "aarch64-unknown-linux-gnu",
    "powerpc64le-unknown-linux-gnu",
    "riscv64-unknown-linux-gnu",
    "s390x-unknown-linux-gnu",
    "loongarch64-unknown-linux-gnu",
    "x86_64-pc-windows-msvc",
    "i686-pc-windows-msvc",
    "aarch64-pc-windows-msvc",
];

fn host_object(triple: &str) -> HostObject<'_> {
    HostObject {
        triple,
        protection: 0,
    }
}

fn frame(size: u64) -> offload_binary::Frame {
    offload_binary::frame(
        ImageKind::Object,
        1,
        0,
        &[("triple", "t"), ("arch", "a")],
        size,
    )
}

fn streamed(dir: &Path, symbol: &str, bytes: &[u8]) -> std::io::Result<StreamedImage> {
    let body = dir.join(symbol);
    std::fs::write(&body, bytes)?;
    let frame = frame(bytes.len() as u64);
    let mut contents = Rope::default();
    contents.push_bytes(frame.head);
    contents.push_file(body, 0, frame.image_size);
    contents.pad_to(frame.total_size);
    Ok(StreamedImage::whole(symbol, contents))
}

fn object(
    dir: &Path,
    host: &str,
    relocatable: bool,
    images: &[StreamedImage],
) -> Result<Vec<u8>, Box<dyn Error>> {
    let path = dir.join("images.o");
    let mut file = File::options()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(&path)?;
    write(
        &mut file,
        host_object(host),
        image_section(OffloadKind::OpenMp, relocatable),
        images,
        0,
    )?;
    Ok(std::fs::read(path)?)
}

#[test]
fn every_host_reads_it_back() -> Outcome {
    let dir = tempfile::tempdir()?;
    let images = [
        streamed(dir.path(), "one", b"IMAGE-ONE")?,
        streamed(dir.path(), "a.longer.name", &[7; 70_000])?,
    ];
    for host in HOSTS {
        let bytes = object(dir.path(), host, false, &images)?;
        let file = object::File::parse(&bytes[..])?;
        let mut data = Vec::new();
        let prefix = if *host == "i686-pc-windows-msvc" {
            "_"
        } else {
            ""
        };
        for image in &images {
            let name = format!("{prefix}{}", image.symbols[0].name);
            let symbol = file
                .symbols()
                .find(|symbol| symbol.name() == Ok(&name))
                .ok_or(*host)?;
            let section = file.section_by_index(symbol.section_index().ok_or(*host)?)?;
            assert_eq!(
                (section.name()?, section.align(), symbol.is_global()),
                (".llvm.offloading", 8, true),
                "{host}"
            );
            let start = usize::try_from(symbol.address())?;
            data.extend(&section.data()?[start..][..usize::try_from(image.contents.size())?]);
        }
        let read = offload_binary::read_all(&data)?;
        assert_eq!(
            (read[0].image.as_ref(), read[1].image.as_ref()),
            (&b"IMAGE-ONE"[..], &[7; 70_000][..])
        );
        // A linker concatenates the sections, and there must be no bytes between them.
        let sizes = file
            .sections()
            .filter(|section| section.name() == Ok(".llvm.offloading"))
            .map(|section| section.size());
        assert_eq!(
            (read.len(), sizes.sum::<u64>()),
            (2, data.len() as u64),
            "{host}"
        );
    }
    Ok(())
}

#[test]
fn elf_headers_equal_those_of_llvm() -> Outcome {
    let dir = tempfile::tempdir()?;
    let images = [streamed(dir.path(), "one", b"IMAGE-ONE")?];
    for (relocatable, name, kind) in [
        (false, ".llvm.offloading", 0x6fff_4c0b),
        (true, ".llvm.offloading.relocatable", 1),
    ] {
        let bytes = object(dir.path(), X86, relocatable, &images)?;
        let file = object::read::elf::ElfFile64::<object::Endianness>::parse(&bytes[..])?;
        let section = file.section_by_name(name).ok_or(name)?;
        let header = section.elf_section_header();
        let endian = file.endian();
        assert_eq!(
            (header.sh_type.get(endian).0, header.sh_flags.get(endian).0),
            (kind, 2)
        );
        let symbol = file
            .symbols()
            .find(|symbol| symbol.name() == Ok("one"))
            .ok_or("no symbol")?;
        assert_eq!(symbol.elf_symbol().st_other.0, object::elf::STV_HIDDEN.0);
        assert!(file.section_by_name(".note.GNU-stack").is_some());
    }
    let flags = |host| -> Result<_, Box<dyn Error>> {
        let bytes = object(dir.path(), host, false, &images)?;
        let object::FileFlags::Elf { e_flags, .. } = object::File::parse(&bytes[..])?.flags()
        else {
            return Err("COFF".into());
        };
        Ok(e_flags.0)
    };
    assert_eq!(flags("riscv64-unknown-linux-gnu")?, 5);
    assert_eq!(flags("powerpc64le-unknown-linux-gnu")?, 2);
    assert_eq!(flags("loongarch64-unknown-linux-gnu")?, 0x43);
    Ok(())
}

/// Returns the protection that another reader finds in the object for `triple`, which is written
/// with `protection`.
fn protection_of(dir: &Path, triple: &str, protection: u32) -> Result<u32, Box<dyn Error>> {
    fn read<Elf: object::read::elf::FileHeader<Endian = object::Endianness>>(
        data: &[u8],
    ) -> Result<u32, Box<dyn Error>> {
        use object::read::elf::SectionHeader as _;
        let header = Elf::parse(data)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, data)?;
        let Some((_, section)) = sections.section_by_name(endian, b".note.gnu.property") else {
            return Ok(0);
        };
        let align: u64 = section.sh_addralign(endian).into();
        assert_eq!(
            (align, section.sh_flags(endian).0),
            (if header.is_class_64() { 8 } else { 4 }, 2)
        );
        let notes = section.notes(endian, data)?.ok_or("no notes")?;
        Ok(offload_formats::elf::notes::protection(
            header.e_machine(endian),
            endian,
            notes,
        ))
    }
    let images = [streamed(dir, "one", b"IMAGE-ONE")?];
    let path = dir.join("images.o");
    let host = HostObject { triple, protection };
    write(
        &mut File::create(&path)?,
        host,
        image_section(OffloadKind::OpenMp, false),
        &images,
        0,
    )?;
    let bytes = std::fs::read(path)?;
    match bytes[4] {
        1 => read::<object::elf::FileHeader32<object::Endianness>>(&bytes),
        _ => read::<object::elf::FileHeader64<object::Endianness>>(&bytes),
    }
}

#[test]
fn the_programs_control_flow_protection_is_not_lost() -> Outcome {
    let dir = tempfile::tempdir()?;
    let dir = dir.path();
    for (host, all) in [
        (X86, 3),
        ("i686-unknown-linux-gnu", 3),
        ("x86_64-linux-gnux32", 3),
        ("aarch64-unknown-linux-gnu", 7),
    ] {
        for protection in 0..=all {
            assert_eq!(protection_of(dir, host, protection)?, protection, "{host}");
        }
        assert_eq!(protection_of(dir, host, u32::MAX)?, all, "{host}");
    }
    assert_eq!(
        protection_of(dir, "riscv64-unknown-linux-gnu", u32::MAX)?,
        0
    );
    let images = [streamed(dir, "one", b"IMAGE-ONE")?];
    let windows = HostObject {
        triple: "x86_64-pc-windows-msvc",
        protection: 3,
    };
    write(
        &mut File::create(dir.join("images.o"))?,
        windows,
        image_section(OffloadKind::OpenMp, false),
        &images,
        0,
    )?;
    let Some([readelf]) = reference::tools(["readelf"]) else {
        return Ok(());
    };
    protection_of(dir, X86, 3)?;
    let shown = Command::new(readelf)
        .args(["-n"])
        .arg(dir.join("images.o"))
        .output()?;
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(
        shown.contains("Properties: x86 feature: IBT, SHSTK"),
        "{shown}"
    );
    Ok(())
}

#[test]
fn f33_large_images_are_marked_on_x86_64() -> Outcome {
    let dir = tempfile::tempdir()?;
    // A hole in the file needs no disk space.
    let mut contents = Rope::default();
    contents.pad_to(1 << 30);
    let image = StreamedImage::whole("large", contents);
    let path = dir.path().join("large.o");
    let small = StreamedImage::whole("small", Rope::default());
    for (host, flags, image, in_all) in [
        (X86, 0x1000_0002, &image, 0),
        ("aarch64-unknown-linux-gnu", 2, &image, 0),
        // The images of several objects add up.
        (X86, 2, &small, (1 << 30) - 1),
        (X86, 0x1000_0002, &small, 1 << 30),
    ] {
        let mut file = File::create(&path)?;
        write(
            &mut file,
            host_object(host),
            image_section(OffloadKind::OpenMp, false),
            std::slice::from_ref(image),
            in_all,
        )?;
        let cache = object::ReadCache::new(File::open(&path)?);
        let file = object::read::elf::ElfFile64::<object::Endianness, _>::parse(&cache)?;
        let section = file
            .section_by_name(".llvm.offloading")
            .ok_or("no section")?;
        assert_eq!(
            section.elf_section_header().sh_flags.get(file.endian()).0,
            flags,
            "{host}"
        );
        assert_eq!(section.size(), image.contents.size());
    }
    Ok(())
}

#[test]
fn each_kind_has_its_section() -> Outcome {
    let dir = tempfile::tempdir()?;
    let images = [
        streamed(dir.path(), "one", b"IMAGE-ONE")?,
        streamed(dir.path(), "two", b"IMAGE-TWO!")?,
    ];
    let path = dir.path().join("images.o");
    let kinds = [
        (OffloadKind::Cuda, ".nv_fatbin", 16),
        (OffloadKind::Hip, ".hip_fatbin", 4096),
        (OffloadKind::Sycl, ".sycl_offloading", 8),
    ];
    for host in HOSTS {
        for (kind, name, align) in kinds {
            write(
                &mut File::create(&path)?,
                host_object(host),
                image_section(kind, false),
                &images,
                0,
            )?;
            let bytes = std::fs::read(&path)?;
            let file = object::File::parse(&bytes[..])?;
            let section = file.section_by_name(name).ok_or(*host)?;
            assert_eq!(section.align(), align, "{host} {name}");
            if let object::SectionFlags::Elf { sh_flags, .. } = section.flags() {
                assert_eq!(
                    (sh_flags.0, section.kind()),
                    (2, object::SectionKind::ReadOnlyData),
                    "{host} {name}"
                );
            }
            let symbol = file
                .symbols()
                .find(|symbol| symbol.name().is_ok_and(|name| name.ends_with("two")))
                .ok_or(*host)?;
            let section = file.section_by_index(symbol.section_index().ok_or(*host)?)?;
            assert_eq!(
                (section.name()?, symbol.address() % align),
                (name, 0),
                "{host}"
            );
            let image = section
                .data()?
                .get(usize::try_from(symbol.address())?..)
                .ok_or(*host)?;
            assert_eq!(
                offload_binary::read_all(image)?[0].image.as_ref(),
                b"IMAGE-TWO!",
                "{host} {name}"
            );
        }
    }
    Ok(())
}

#[test]
fn images_are_at_the_offsets_that_are_copied_fastest() -> Outcome {
    let dir = tempfile::tempdir()?;
    let body = vec![7; 3 * usize::try_from(GRAIN)?];
    let images = [
        streamed(dir.path(), "one", &body)?,
        streamed(dir.path(), "two", &body[1..])?,
        streamed(dir.path(), "small", b"-")?,
    ];
    let bytes = object(dir.path(), X86, false, &images)?;
    let file = object::File::parse(&bytes[..])?;
    let sections = file
        .sections()
        .filter(|section| section.name() == Ok(".llvm.offloading"));
    let places = sections
        .map(|section| section.file_range().map_or(0, |(at, _)| at))
        .collect::<Vec<_>>();
    let head = images[0].contents.size() - body.len() as u64;
    assert_eq!(
        (
            places.len(),
            (places[0] + head) % GRAIN,
            (places[1] + head) % GRAIN
        ),
        (3, 0, 0)
    );
    assert!(places[2] < places[1] + 4 * GRAIN);
    Ok(())
}

#[test]
fn part_of_a_file_is_an_image_too() -> Outcome {
    let dir = tempfile::tempdir()?;
    let body = dir.path().join("body");
    std::fs::write(&body, b"....IMAGE....")?;
    let mut contents = Rope::default();
    contents.push_file(body, 4, 5);
    let part = StreamedImage::whole("part", contents);
    let bytes = object(dir.path(), X86, false, &[part])?;
    let file = object::File::parse(&bytes[..])?;
    assert_eq!(
        file.section_by_name(".llvm.offloading")
            .ok_or("no section")?
            .data()?,
        b"IMAGE"
    );
    Ok(())
}

#[test]
fn symbols_have_the_given_offsets() -> Outcome {
    let dir = tempfile::tempdir()?;
    let images = [
        ("one", &b"..IMAGE-ONE."[..], 2, 9),
        ("two", b".IMAGE.", 1, 5),
    ]
    .map(|(name, bytes, at, size)| {
        let symbol = |end: &str, at, size| ImageSymbol {
            name: format!("{name}{end}"),
            at,
            size,
        };
        Ok(StreamedImage {
            symbols: vec![symbol(".start", at, size), symbol(".end", at + size, 0)],
            ..streamed(dir.path(), name, bytes)?
        })
    });
    let images = images.into_iter().collect::<std::io::Result<Vec<_>>>()?;
    for host in HOSTS {
        let bytes = object(dir.path(), host, false, &images)?;
        let file = object::File::parse(&bytes[..])?;
        let symbol = |name: &str| {
            file.symbols()
                .find(|symbol| symbol.name().is_ok_and(|own| own.ends_with(name)))
                .ok_or(*host)
        };
        for image in &images {
            let [start, end] = image.symbols.as_slice() else {
                return Err("not two symbols".into());
            };
            let contents = image.contents.read()?;
            let expected = &contents[usize::try_from(start.at)?..usize::try_from(end.at)?];
            let (start, end) = (symbol(&start.name)?, symbol(&end.name)?);
            assert_eq!(start.section_index(), end.section_index(), "{host}");
            let data = file
                .section_by_index(start.section_index().ok_or(*host)?)?
                .data()?;
            let found =
                data.get(usize::try_from(start.address())?..usize::try_from(end.address())?);
            assert_eq!(found, Some(expected), "{host}");
            // COFF symbols have no sizes.
            let sizes = if host.contains("windows") {
                (0, 0)
            } else {
                (expected.len() as u64, 0)
            };
            assert_eq!((start.size(), end.size()), sizes, "{host}");
        }
    }
    Ok(())
}

#[test]
fn impossible_objects_are_errors() -> Outcome {
    let dir = tempfile::tempdir()?;
    let good = streamed(dir.path(), "one", b"IMAGE-ONE")?;
    let error = |host: &str, image: StreamedImage| match object(dir.path(), host, false, &[image]) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    let sized = |size: u64| {
        let mut contents = Rope::default();
        contents.push_file(dir.path().join("one"), 0, size);
        StreamedImage {
            contents,
            ..good.clone()
        }
    };
    assert!(error(X86, sized(12)).ends_with("one: 9 bytes, expected 12"));
    assert!(error(X86, sized(u64::MAX)).contains("`one` is too large"));
    assert!(error("arm64-apple-macosx", good.clone()).contains("Mach-O"));
    assert!(error("avr-none", good.clone()).contains("`avr-none`"));
    assert!(error("x86_64-pc-windows-msvc", sized(1 << 32)).contains("exceed the limit of COFF"));
    Ok(())
}

#[test]
fn linkers_link_it() -> Outcome {
    if cfg!(not(target_arch = "x86_64")) {
        eprintln!("skipped: what it makes runs on x86-64");
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let at = |name: &str| dir.path().join(name);
    let images = [
        streamed(dir.path(), "one", b"IMAGE-ONE")?,
        streamed(dir.path(), "two", b"IMAGE-TWO!")?,
    ];
    object(dir.path(), X86, false, &images)?;
    let head = frame(9).head.len();
    let source = format!(
        "#include <stdio.h>\nextern const char one[], two[];\n\
         int main(void) {{ printf(\"%.9s %.10s\", one + {head}, two + {head}); return 0; }}\n"
    );
    std::fs::write(at("main.c"), source)?;
    for linker in ["bfd", "lld", "gold", "mold"] {
        let Some([path]) = reference::tools([&format!("ld.{linker}")]) else {
            continue;
        };
        let mut cc = Command::new("cc");
        // LLVM's directory need not be in PATH.
        cc.arg("-B")
            .arg(path.parent().ok_or("a linker in no folder")?);
        cc.args([at("main.c"), at("images.o")])
            .arg(format!("-fuse-ld={linker}"))
            .arg("-o")
            .arg(at("program"));
        let output = cc.output()?;
        assert!(
            output.status.success(),
            "{linker}: {}",
            String::from_utf8_lossy(&output.stderr)
        );
        let output = Command::new(at("program")).output()?;
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            "IMAGE-ONE IMAGE-TWO!",
            "{linker}"
        );
        let program = std::fs::read(at("program"))?;
        let file = object::File::parse(&program[..])?;
        let section = file.section_by_name(".llvm.offloading").ok_or(linker)?;
        assert_eq!(
            offload_binary::read_all(section.data()?)?.len(),
            2,
            "{linker}"
        );
    }
    Ok(())
}
