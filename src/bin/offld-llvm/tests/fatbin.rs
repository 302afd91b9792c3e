//! CUDA and HIP: compares printed modules with LLVM's, compiles modules for every host, and runs
//! programs that register themselves with a runtime that prints its calls.
//!
//! Differences from LLVM's text, by the function that applies them:
//!
//! * `aligned`: the file's alignment is explicit. For HIP it is a page, because the runtime maps
//!   the contents. For CUDA it is the alignment that the code generator gives all but the smallest
//!   files.
//! * `uncalled`: unused functions are not declared, because a linker that compiles the bitcode
//!   would look for them.
//! * `laid_out`: LLVM's wrapper creates its module without a data layout. So it assumes that 64-bit
//!   integers are aligned to 4, that pointers are aligned to 8, and that `size_t` has 64 bits.
//! * `respelt`: the zero before a field's index has 32 bits in all generations. In LLVM 19 it has
//!   64 bits.

use super::image_section as section_header;
use super::*;
use offld_system::io::rope::Rope;
use offload_files::image_object::{self, StreamedImage};
use offload_formats::registration;
use std::fs::File;
use std::path::Path;

const I686: &str = "i686-unknown-linux-gnu";
const MSVC: &str = "x86_64-pc-windows-msvc";
const GENERATIONS: [Generation; 3] = [Generation::Llvm15, Generation::Llvm20, Generation::Llvm21];

fn inline(bytes: &[u8]) -> ImagePlace {
    ImagePlace::Inline(bytes.to_vec())
}

fn fatbin(kind: OffloadKind, place: ImagePlace) -> Images {
    if kind == OffloadKind::Cuda {
        Images::Cuda(place)
    } else {
        Images::Hip(place)
    }
}

fn aligned(text: &str) -> String {
    let sections = [
        ("section \".hip_fatbin\"", 4096),
        ("section \".nv_fatbin\"", 16),
    ];
    sections
        .iter()
        .fold(text.to_owned(), |text, (section, align)| {
            text.replace(section, &format!("{section}, align {align}"))
        })
}

fn uncalled(text: &str) -> String {
    let mut gone = vec![
        "declare void @__cudaRegisterSurface(ptr, ptr, ptr, ptr, i32, i32)\n\n",
        "declare void @__cudaRegisterTexture(ptr, ptr, ptr, ptr, i32, i32, i32)\n\n",
    ];
    if text.contains("@__hip") {
        gone.push("declare void @__cudaRegisterFatBinaryEnd(ptr)\n\n");
    }
    gone.iter()
        .fold(text.to_owned(), |text, line| text.replace(line, ""))
}

fn laid_out(text: &str) -> String {
    if !text.contains(I686) {
        return text
            .lines()
            .map(|line| if line.contains("load i64") { line.replace("align 4", "align 8") } else { line.into() } + "\n")
            .collect();
    }
    let line = |line: &str| match line {
        _ if line.contains(" ptr, ptr ") || line.starts_with("  store ptr") => {
            line.replace("align 8", "align 4")
        }
        _ if line.contains("Register") => line
            .replace("i64 %size", "i32 %size.host")
            .replace("i64", "i32"),
        "  %normalized = lshr i32 %12, 5" => {
            format!("{line}\n  %size.host = trunc i64 %size to i32")
        }
        _ => line
            .replace("icmp eq i64 %size,", "icmp eq i32 %size.host,")
            .replace("ptr %entry1, i64 1", "ptr %entry1, i32 1"),
    };
    text.lines().map(|each| line(each) + "\n").collect()
}

fn changed(text: String) -> String {
    laid_out(&uncalled(&aligned(&elided(&text))))
}

/// Returns the reference with the zeros that its file omits from the bundle.
fn elided(text: &str) -> String {
    const MARK: &str = "<...zeros elided...>";
    let Some(line) = text.lines().find(|line| line.contains(MARK)) else {
        return text.to_owned();
    };
    let size: usize = line
        .split(['[', ' '])
        .find_map(|word| word.parse().ok())
        .unwrap_or_default();
    let bytes = line.split('"').nth(1).unwrap_or_default().replace(MARK, "");
    text.replace(MARK, &"\\00".repeat(size - unescape(&bytes).len()))
}

/// Returns the file in a reference.
fn file_of(reference: &str) -> Vec<u8> {
    let text = elided(reference);
    let line = text
        .lines()
        .find(|line| line.starts_with("@.fatbin_image ="))
        .unwrap_or_default();
    unescape(line.split('"').nth(1).unwrap_or_default())
}

#[test]
fn prints_what_llvm_22_prints() -> Outcome {
    let hip = file_of(&reference(&format!("amd_hip.{X86}"))?);
    assert_eq!(hip.len(), 4108);
    for host in [X86, I686, MSVC] {
        let plan = plan_of(host, Generation::Llvm21, Images::Hip(inline(&hip)));
        assert_prints(&plan, &format!("amd_hip.{host}"), changed)?;
    }
    let relocatable = Plan {
        relocatable: true,
        ..plan_of(X86, Generation::Llvm21, Images::Hip(inline(&hip)))
    };
    assert_prints(&relocatable, &format!("hip-relocatable.{X86}"), changed)?;
    for host in [X86, MSVC] {
        let plan = plan_of(host, Generation::Llvm21, Images::Cuda(inline(b"FATBINARY")));
        assert_prints(&plan, &format!("cuda.{host}"), changed)?;
    }
    for (kind, host, suffix) in [
        (OffloadKind::Cuda, "x86_64-pc-linux-gnu", "cuda"),
        (OffloadKind::Hip, "x86_64-pc-linux-gnu", "hip"),
        (OffloadKind::Hip, MSVC, "hip-coff"),
    ] {
        let plan = plan_of(host, Generation::Llvm21, fatbin(kind, inline(b"IMAGE-ONE")));
        assert_prints(&plan, &format!("llvm-offload-wrapper-22-{suffix}"), changed)?;
    }
    Ok(())
}

#[test]
fn prints_a_module_for_each_kind_as_llvm_22_does() -> Outcome {
    let text = reference(&format!("openmp+hip+cuda.{X86}"))?;
    let wanted: Vec<String> = text
        .split_inclusive("; ModuleID")
        .map(str::to_owned)
        .collect();
    let images = [
        Images::OpenMp(vec![image("amdgcn-amd-amdhsa", "gfx908", b"DEVICE-IMAGE")]),
        Images::Hip(inline(&file_of(&text))),
        Images::Cuda(inline(b"FATBINARY")),
    ];
    for (images, wanted) in images.into_iter().zip(&wanted[1..]) {
        // The text before the first line break is the rest of the module's name.
        let (_, wanted) = wanted.split_once('\n').ok_or("one line")?;
        let printed = print_module(&plan_of(X86, Generation::Llvm21, images))?;
        assert_eq!(
            comparable(&printed),
            comparable(&changed(wanted.trim_end_matches("; ModuleID").to_owned()))
        );
    }
    Ok(())
}

#[test]
fn prints_what_llvm_19_prints() -> Outcome {
    let respelt =
        |text: String| changed(text).replace("ptr %entry1, i64 0, i32", "ptr %entry1, i32 0, i32");
    let cuda = plan_of(X86, Generation::Llvm15, Images::Cuda(inline(b"")));
    assert_prints(&cuda, "llvm19-cuda", respelt)?;
    // HIP's text is CUDA's with other names, without one call, and with two more calls.
    let hip = |text: String| {
        let text = text.replace("  call void @__cudaRegisterFatBinaryEnd(ptr %0)\n", "");
        let text = text
            .replace("declare void @__cudaRegisterFatBinaryEnd(ptr)\n\n", "")
            .replace("cuda", "hip");
        let text = text
            .replace("nvFatBin", "hipFatBin")
            .replace("nv_fatbin", "hip_fatbin")
            .replace("1180844977", "1212764230");
        let first = "ptr %0, ptr %addr, ptr %name, ptr %name, i32 %textype";
        let call = |text: String, name: &str, last: &str| {
            let label = format!("sw.{}:", name.to_lowercase());
            let line = text
                .lines()
                .find(|line| line.starts_with(&label))
                .unwrap_or_default()
                .to_owned();
            text.replace(
                &line,
                &format!("{line}\n  call void @__hipRegister{name}({first}, {last})"),
            )
        };
        let text = call(text, "Surface", "i32 %extern");
        respelt(call(text, "Texture", "i32 %normalized, i32 %extern"))
    };
    assert_prints(
        &plan_of(X86, Generation::Llvm15, Images::Hip(inline(b""))),
        "llvm19-cuda",
        hip,
    )
}

#[test]
fn f19_the_tables_of_llvm_20_hold_one_kind() -> Outcome {
    for (kind, table) in [
        (OffloadKind::Cuda, "cuda_offloading_entries"),
        (OffloadKind::Hip, "hip_offloading_entries"),
    ] {
        let text = print_module(&plan_of(
            X86,
            Generation::Llvm20,
            fatbin(kind, inline(b"X")),
        ))?;
        assert!(
            text.contains(&format!("section \"{table}\", align 1")),
            "{text}"
        );
        assert!(
            text.contains("RegisterManagedVar(ptr %0, ptr %aux_addr, ")
                && !text.contains("if.kind"),
            "{text}"
        );
    }
    Ok(())
}

#[test]
fn compiles_for_every_host() -> Outcome {
    let windows = [MSVC, "i686-pc-windows-msvc", "aarch64-pc-windows-msvc"];
    for host in HOSTS.iter().map(|(host, ..)| *host).chain(windows) {
        for generation in GENERATIONS {
            for kind in [OffloadKind::Cuda, OffloadKind::Hip] {
                let bytes = compile(&plan_of(host, generation, fatbin(kind, inline(&[7; 100]))))?;
                let file = object::File::parse(&bytes[..])?;
                let (image, wrapper, align) = match kind {
                    OffloadKind::Cuda => (".nv_fatbin", ".nvFatBinSegment", 16),
                    _ => (".hip_fatbin", ".hipFatBinSegment", 4096),
                };
                let section = file.section_by_name(image).ok_or(host)?;
                assert_eq!(
                    (section.align(), section.data()?),
                    (align, &[7; 100][..]),
                    "{host} {kind:?}"
                );
                assert_eq!(
                    file.section_by_name(wrapper).map(|section| section.align()),
                    Some(8),
                    "{host} {kind:?}"
                );
                let start = if windows.contains(&host) {
                    ".CRT$XCA00101"
                } else {
                    ".init_array.101"
                };
                assert!(file.section_by_name(start).is_some(), "{host} {kind:?}");
                if !windows.contains(&host) {
                    assert_eq!(section_header(&bytes, image)?, Some((1, 2)), "{host}");
                }
                let undefined: Vec<_> = file
                    .symbols()
                    .filter(|s| s.is_undefined())
                    .flat_map(|s| s.name())
                    .collect();
                let other = if kind == OffloadKind::Cuda {
                    "__hip"
                } else {
                    "__cuda"
                };
                assert!(
                    !undefined.iter().any(|name| name.contains(other)),
                    "{host}: {undefined:?}"
                );
                assert!(
                    undefined.iter().any(|name| name.ends_with("RegisterVar")),
                    "{host}: {undefined:?}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn the_program_registers_its_entries() -> Outcome {
    if cfg!(not(target_arch = "x86_64")) {
        eprintln!("skipped: what it makes runs on x86-64");
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    for kind in [OffloadKind::Cuda, OffloadKind::Hip] {
        for generation in GENERATIONS {
            assert_eq!(
                program_output(dir.path(), kind, generation, false)?,
                wanted(kind, generation),
                "{kind:?} {generation:?}"
            );
        }
        let separate = program_output(dir.path(), kind, Generation::Llvm21, true)?;
        assert_eq!(
            separate,
            wanted(kind, Generation::Llvm21),
            "{kind:?}, image apart"
        );
    }
    Ok(())
}

/// Returns the output of a program whose table has one entry of each sort, and for LLVM 21 one of
/// another kind.
fn wanted(kind: OffloadKind, generation: Generation) -> String {
    let hip = kind == OffloadKind::Hip;
    let mut lines = vec![if hip {
        "binary 48495046 1 THE-FILE at 0"
    } else {
        "binary 466243b1 1 THE-FILE at 0"
    }];
    lines.extend([
        "function kernel addr",
        "var variable addr extern 0 size 4 constant 0",
        "var fixed addr extern 1 size 8 constant 1",
    ]);
    if generation.wide_entries() {
        lines.push("managed managed aux addr size 4 align 16");
    }
    if hip {
        lines.extend([
            "surface surface addr type 2 extern 1",
            "texture texture addr type 3 normalized 1 extern 0",
        ]);
    } else {
        lines.push("end");
    }
    lines.extend(["main", "unregister"]);
    lines.join("\n") + "\n"
}

fn program_output(
    dir: &Path,
    kind: OffloadKind,
    generation: Generation,
    separate: bool,
) -> Result<String, Box<dyn Error>> {
    let at = |name: &str| dir.join(name);
    std::fs::write(at("rt.c"), include_str!("fatbin.c"))?;
    std::fs::write(at("image"), b"THE-FILE")?;
    let symbol = ".offld.test.image".to_owned();
    let place = if separate {
        ImagePlace::Between {
            start: symbol.clone(),
            stop: format!("{symbol}.end"),
        }
    } else {
        inline(b"THE-FILE")
    };
    std::fs::write(
        at("wrapper.o"),
        compile(&plan_of(X86, generation, fatbin(kind, place)))?,
    )?;
    let mut cc = Command::new("cc");
    cc.args([at("rt.c"), at("wrapper.o")])
        .arg("-o")
        .arg(at("program"));
    cc.arg(format!("-DTABLE=\"{}\"", entry_section(generation, kind)));
    cc.arg(if kind == OffloadKind::Hip {
        "-DHIP"
    } else {
        "-DCUDA"
    });
    if generation.wide_entries() {
        // LLVM 20 had another number for HIP.
        let number = if generation == Generation::Llvm20 && kind == OffloadKind::Hip {
            3
        } else {
            kind as u16
        };
        cc.arg(format!("-DKIND={number}"));
    }
    if generation == Generation::Llvm21 {
        cc.arg("-DMIXED");
    }
    if separate {
        let image = StreamedImage::whole(symbol, Rope::of_file(at("image"))?);
        let host = image_object::HostObject {
            triple: X86,
            protection: 0,
        };
        image_object::write(
            &mut File::create(at("image.o"))?,
            host,
            registration::image_section(kind, false),
            &[image],
            0,
        )?;
        cc.arg(at("image.o"));
    }
    let output = cc.output()?;
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    Ok(String::from_utf8(
        Command::new(at("program")).output()?.stdout,
    )?)
}
