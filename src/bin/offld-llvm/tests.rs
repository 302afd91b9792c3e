//! Compares printed modules with those of LLVM 22, 19 and 15 (`tests/reference-ir`), and compiles
//! modules for every host.

use crate::Host;
use crate::emit::{compile, print_module};
use object::read::elf::{FileHeader, SectionHeader};
use object::{Object, ObjectSection, ObjectSymbol};
use offld::BUILD;
use offload_formats::model::{Generation, ImageKind, OffloadKind};
use offload_formats::offload_sections::entry_section;
use offload_formats::registration::host::FAMILIES;
use offload_formats::registration::openmp::{self, inline_image};
use offload_formats::registration::protocol::{Answer, Form, Request};
use offload_formats::registration::{ImagePlace, Images, Modules, Plan, PlannedImage};
use offload_formats::{offload_binary, spirv::wrap_intel_spirv};
use std::error::Error;
use std::process::Command;

mod fatbin;
mod sycl;

type Outcome = Result<(), Box<dyn Error>>;

const X86: &str = "x86_64-unknown-linux-gnu";
/// Hosts, with their bits, byte order, and the ELF header flags that linkers compare.
const HOSTS: &[(&str, bool, bool, u32)] = &[
    (X86, true, true, 0),
    ("i686-unknown-linux-gnu", false, true, 0),
    ("aarch64-unknown-linux-gnu", true, true, 0),
    ("powerpc64le-unknown-linux-gnu", true, true, 2),
    ("riscv64-unknown-linux-gnu", true, true, 5),
    ("s390x-unknown-linux-gnu", true, false, 0),
    ("loongarch64-unknown-linux-gnu", true, true, 0x43),
];

fn binary(kind: ImageKind, strings: &[(&str, &str)], image: &[u8]) -> PlannedImage {
    inline_image(offload_binary::write(kind, 1, 0, strings, image), None).unwrap()
}

fn image(triple: &str, arch: &str, image: &[u8]) -> PlannedImage {
    binary(
        ImageKind::Object,
        &[("triple", triple), ("arch", arch)],
        image,
    )
}

fn plan(host: &str, generation: Generation, images: Vec<PlannedImage>) -> Plan {
    plan_of(host, generation, Images::OpenMp(images))
}

fn plan_of(host: &str, generation: Generation, images: Images) -> Plan {
    Plan {
        host_triple: host.to_owned(),
        generation,
        images,
        relocatable: false,
        protection: 0,
        modules: Modules::default(),
    }
}

fn reference(name: &str) -> std::io::Result<String> {
    std::fs::read_to_string(format!(
        "{}/tests/reference-ir/{name}.ll",
        env!("CARGO_MANIFEST_DIR")
    ))
}

/// Returns the text to compare: without comments, and without the data layout, which LLVM's wrapper
/// omits.
fn comparable(module: &str) -> String {
    let skipped = ["; ", "target datalayout"];
    let lines = module
        .lines()
        .filter(|line| !skipped.iter().any(|start| line.starts_with(start)));
    lines.collect::<Vec<_>>().join("\n").trim().to_owned()
}

#[track_caller]
fn assert_prints(plan: &Plan, reference_name: &str, change: impl Fn(String) -> String) -> Outcome {
    let printed = print_module(plan)?;
    let wanted = change(reference(reference_name)?);
    assert_eq!(
        comparable(&printed),
        comparable(&wanted),
        "{reference_name}"
    );
    assert!(
        printed.contains("\ntarget datalayout = "),
        "{reference_name}"
    );
    Ok(())
}

fn same(text: String) -> String {
    text
}

#[test]
fn prints_what_llvm_22_prints() -> Outcome {
    let device = || image(X86, "", b"DEVICE-IMAGE");
    for host in [X86, "i686-unknown-linux-gnu", "x86_64-pc-windows-msvc"] {
        assert_prints(
            &plan(host, Generation::Llvm21, vec![device()]),
            &format!("x86_omp.{host}"),
            same,
        )?;
    }
    let relocatable = Plan {
        relocatable: true,
        ..plan(X86, Generation::Llvm21, vec![device()])
    };
    assert_prints(&relocatable, &format!("openmp-relocatable.{X86}"), same)?;
    let three = vec![
        device(),
        image("nvptx64-nvidia-cuda", "sm_70", b"DEVICE-IMAGE"),
        image("amdgcn-amd-amdhsa", "gfx908", b"DEVICE-IMAGE"),
    ];
    assert_prints(
        &plan(X86, Generation::Llvm21, three),
        &format!("openmp-2arch.{X86}"),
        same,
    )?;
    let strings = [("triple", "amdgcn-amd-amdhsa"), ("arch", "gfx908")];
    let bitcode = vec![binary(ImageKind::Bitcode, &strings, b"DEVICE-IMAGE")];
    assert_prints(
        &plan(X86, Generation::Llvm21, bitcode),
        &format!("openmp-embed-bitcode.{X86}"),
        same,
    )?;
    let intel = vec![image(
        "spirv64-intel",
        "",
        &wrap_intel_spirv(b"DEVICE-IMAGE"),
    )];
    assert_prints(
        &plan(X86, Generation::Llvm21, intel),
        &format!("openmp-spirv64-intel.{X86}"),
        same,
    )
}

#[test]
fn prints_an_overriding_image_as_llvm_22_does() -> Outcome {
    let name = format!("openmp-override.{X86}");
    // The image in the reference is an object from clang, so the test takes it from there.
    let text = reference(&name)?;
    let line = text
        .lines()
        .find(|line| line.starts_with("@.omp_offloading.device_image ="))
        .ok_or("no image")?;
    let bytes = unescape(line.split('"').nth(1).ok_or("no bytes")?);
    let read = offload_binary::read_all(&bytes)?;
    let image = binary(
        ImageKind::Object,
        &[("triple", &read[0].triple())],
        &read[0].image,
    );
    assert_eq!(image.place, ImagePlace::Inline(bytes.clone()));
    assert_prints(&plan(X86, Generation::Llvm21, vec![image]), &name, same)
}

#[test]
fn prints_what_llvm_offload_wrapper_22_prints() -> Outcome {
    let host = "x86_64-pc-linux-gnu";
    let raw = |bytes: &[u8]| inline_image(bytes.to_vec(), None).unwrap();
    for (host, suffix) in [
        (host, ""),
        ("x86_64-pc-windows-msvc", "-coff"),
        ("i386-pc-linux-gnu", "-i386"),
    ] {
        let one = plan(host, Generation::Llvm21, vec![raw(b"IMAGE-ONE")]);
        assert_prints(
            &one,
            &format!("llvm-offload-wrapper-22-openmp{suffix}"),
            same,
        )?;
    }
    let two = plan(
        host,
        Generation::Llvm21,
        vec![raw(b"IMAGE-ONE"), raw(b"IMAGE-TWO!")],
    );
    assert_prints(&two, "llvm-offload-wrapper-22-openmp-2images", same)?;
    let binaries = vec![
        inline_image(
            offload_binary::write(ImageKind::None, 0, 0, &[("triple", "t")], b"noext"),
            None,
        )?,
        binary(ImageKind::Object, &[("triple", "t"), ("arch", "a")], b"IMG"),
    ];
    let text = print_module(&plan(host, Generation::Llvm21, binaries))?;
    let rows = |text: &str| {
        text.lines()
            .find(|line| line.contains(".device_images ="))
            .map(str::to_owned)
    };
    assert_eq!(
        rows(&text),
        rows(&reference("llvm-offload-wrapper-22-openmp-offloadbinary")?)
    );
    Ok(())
}

#[test]
fn f20_prints_what_older_wrappers_print() -> Outcome {
    let x86 = vec![image(X86, "generic", b"")];
    assert_prints(
        &plan(X86, Generation::Llvm15, x86.clone()),
        "llvm19-x86_omp",
        same,
    )?;
    let amd = vec![image("amdgcn-amd-amdhsa", "gfx908", b"")];
    assert_prints(&plan(X86, Generation::Llvm15, amd), "llvm19-amd_omp", same)?;
    // LLVM 20 has the sections of LLVM 19, and the entries of LLVM 21 with an alignment of 1.
    let wide = |text: String| {
        text.replace(
            "{ ptr, ptr, i64, i32, i32 }",
            "{ i64, i16, i16, i32, ptr, ptr, i64, i64, ptr }",
        )
        .replace(
            "section \"omp_offloading_entries\"",
            "section \"omp_offloading_entries\", align 1",
        )
    };
    assert_prints(&plan(X86, Generation::Llvm20, x86), "llvm19-x86_omp", wide)
}

#[test]
fn prints_what_the_wrapper_of_llvm_14_is_documented_to() -> Outcome {
    let host = "x86_64-pc-linux-gnu";
    let images = |archs: [Option<&str>; 2]| {
        let bytes = [&b"IMAGE-ONE"[..], b"IMAGE-TWO!"];
        bytes
            .iter()
            .zip(archs)
            .map(|(bytes, arch)| inline_image(bytes.to_vec(), arch.map(str::to_owned)).unwrap())
            .collect()
    };
    // A program may contain several modules, so a global symbol of each module must be weak.
    let weak = |text: String| {
        text.replace(
            "@__dummy.omp_offloading.entry = hidden",
            "@__dummy.omp_offloading.entry = weak hidden",
        )
    };
    assert_prints(
        &plan(host, Generation::Llvm14, images([None; 2])),
        "clang-offload-wrapper-15",
        weak,
    )?;
    // The target IDs must not be mergeable.
    let unmergeable = |text: String| {
        let line = |line: &str| {
            if line.starts_with("@__offload_arch") {
                line.replace("unnamed_addr ", "")
            } else {
                line.into()
            }
        };
        weak(text.lines().map(line).collect::<Vec<String>>().join("\n"))
    };
    let infos = plan(
        host,
        Generation::Llvm14,
        images([Some("gfx906"), Some("gfx90a")]),
    );
    assert_prints(&infos, "doc-wrapper-target", unmergeable)
}

#[test]
fn f31_the_size_in_narrow_entries_is_the_hosts() -> Outcome {
    let text = print_module(&plan(
        "i686-unknown-linux-gnu",
        Generation::Llvm15,
        vec![image(X86, "", b"X")],
    ))?;
    assert!(
        text.contains("%struct.__tgt_offload_entry = type { ptr, ptr, i32, i32, i32 }"),
        "{text}"
    );
    Ok(())
}

#[test]
fn compiles_for_every_elf_host() -> Outcome {
    for (host, is_64, little, flags) in HOSTS {
        for generation in [
            Generation::Llvm14,
            Generation::Llvm15,
            Generation::Llvm20,
            Generation::Llvm21,
        ] {
            let bytes = compile(&plan(
                host,
                generation,
                vec![image(X86, "", b"DEVICE-IMAGE")],
            ))?;
            let file = object::File::parse(&bytes[..])?;
            assert_eq!(
                (file.is_64(), file.is_little_endian()),
                (*is_64, *little),
                "{host}"
            );
            let object::FileFlags::Elf { e_flags, .. } = file.flags() else {
                return Err("not ELF".into());
            };
            assert_eq!(e_flags.0, *flags, "{host}");
            let oldest = generation == Generation::Llvm14;
            let priority = if oldest {
                ".init_array.1"
            } else {
                ".init_array.101"
            };
            let table = entry_section(generation, OffloadKind::OpenMp);
            for section in [".text.startup", priority, table] {
                assert!(
                    file.section_by_name(section).is_some(),
                    "{host} {generation:?}: {section}"
                );
            }
            assert_eq!(file.section_by_name(".fini_array.1").is_some(), oldest);
            let undefined: Vec<_> = file
                .symbols()
                .filter(|symbol| symbol.is_undefined())
                .flat_map(|s| s.name())
                .collect();
            for name in [
                "__tgt_register_lib",
                "__tgt_unregister_lib",
                &format!("__start_{table}"),
                &format!("__stop_{table}"),
            ] {
                assert!(undefined.contains(&name), "{host} {generation:?}: {name}");
            }
            assert_eq!(undefined.contains(&"atexit"), !oldest);
            assert_eq!(
                image_section(&bytes, ".llvm.offloading")?,
                (!oldest).then_some((0x6fff_4c0b, 2)),
                "{host}"
            );
        }
    }
    Ok(())
}

/// Checks the module's flags, the object's property, and the first instruction of each function.
#[test]
fn registration_code_has_the_programs_control_flow_protection() -> Outcome {
    let (bti, gcs) = ("branch-target-enforcement", "guarded-control-stack");
    let cases: [(&str, u32, &[&str]); 5] = [
        (X86, 1, &["!{i32 8, !\"cf-protection-branch\", i32 1}"]),
        (
            X86,
            3,
            &[
                "!{i32 8, !\"cf-protection-return\", i32 1}",
                "!{i32 8, !\"cf-protection-branch\", i32 1}",
            ],
        ),
        (
            "i686-unknown-linux-gnu",
            3,
            &["!{i32 8, !\"cf-protection-branch\", i32 1}"],
        ),
        (
            "aarch64-unknown-linux-gnu",
            1,
            &[&format!("!\"{bti}\", i32 2")],
        ),
        (
            "aarch64-unknown-linux-gnu",
            7,
            &[
                &format!("\"{gcs}\""),
                "\"sign-return-address\"=\"non-leaf\"",
                "\"sign-return-address-key\"=\"a_key\"",
            ],
        ),
    ];
    for (host, protection, expected) in cases {
        for images in [
            Images::OpenMp(vec![image(X86, "", b"X")]),
            Images::Hip(ImagePlace::Inline(b"X".to_vec())),
        ] {
            let kind = images.kind();
            let plain = plan_of(host, Generation::Llvm21, images);
            let protected = Plan {
                protection,
                ..plain.clone()
            };
            let (before, text) = (print_module(&plain)?, print_module(&protected)?);
            for part in expected {
                assert!(
                    text.contains(part) && !before.contains(part),
                    "{host} {kind:?}: {part}: {text}"
                );
            }
            let bytes = compile(&protected)?;
            let file = object::File::parse(&bytes[..])?;
            let note = file.section_by_name(".note.gnu.property").ok_or(host)?;
            assert_eq!(
                note.data()?[24..28],
                protection.to_le_bytes(),
                "{host} {kind:?}"
            );
            let bytes = compile(&plain)?;
            assert!(
                object::File::parse(&bytes[..])?
                    .section_by_name(".note.gnu.property")
                    .is_none(),
                "{host}"
            );
            // Each function that is called through a pointer begins with the instruction that
            // allows it.
            let starts: &[u8] = match host.split('-').next() {
                Some("x86_64") => b"\xf3\x0f\x1e\xfa",
                Some("i686") => b"\xf3\x0f\x1e\xfb",
                _ if protection == 1 => b"\x5f\x24\x03\xd5",
                // `paciasp` allows it as well.
                _ => b"\x3f\x23\x03\xd5",
            };
            let code = file.section_by_name(".text.startup").ok_or(host)?;
            let functions = file
                .symbols()
                .filter(|symbol| symbol.section_index() == Some(code.index()) && symbol.size() > 0);
            let mut count = 0;
            // A function that is only called directly needs no such instruction.
            for function in functions
                .filter(|function| !function.name().is_ok_and(|name| name.contains("globals")))
            {
                let at = usize::try_from(function.address())?;
                let is_leaf = !host.starts_with("x86")
                    && protection == 7
                    && !code.data()?[at..].starts_with(starts);
                let start = if is_leaf {
                    &b"\x5f\x24\x03\xd5"[..]
                } else {
                    starts
                };
                assert!(
                    code.data()?[at..].starts_with(start),
                    "{host} {kind:?}: {:?}",
                    function.name()
                );
                count += 1;
            }
            assert!(count >= 2, "{host} {kind:?}: {count} functions");
        }
    }
    Ok(())
}

#[test]
fn f17_a_relocatable_links_images_are_no_sections_of_images() -> Outcome {
    for (host, ..) in HOSTS {
        let plan = Plan {
            relocatable: true,
            ..plan(
                host,
                Generation::Llvm21,
                vec![image(X86, "", b"DEVICE-IMAGE")],
            )
        };
        let bytes = compile(&plan)?;
        assert_eq!(
            image_section(&bytes, ".llvm.offloading.relocatable")?,
            Some((1, 2)),
            "{host}"
        );
        assert_eq!(image_section(&bytes, ".llvm.offloading")?, None);
    }
    Ok(())
}

/// Returns type and flags of an ELF section.
fn image_section(bytes: &[u8], wanted: &str) -> Result<Option<(u32, u64)>, Box<dyn Error>> {
    fn find<Elf: FileHeader>(
        bytes: &[u8],
        wanted: &str,
    ) -> Result<Option<(u32, u64)>, Box<dyn Error>> {
        let header = Elf::parse(bytes)?;
        let endian = header.endian()?;
        let sections = header.sections(endian, bytes)?;
        let found = sections.section_by_name(endian, wanted.as_bytes());
        Ok(found.map(|(_, section)| (section.sh_type(endian).0, section.sh_flags(endian).0)))
    }
    match bytes.get(4) {
        Some(1) => find::<object::elf::FileHeader32<object::Endianness>>(bytes, wanted),
        _ => find::<object::elf::FileHeader64<object::Endianness>>(bytes, wanted),
    }
}

#[test]
fn compiles_for_windows() -> Outcome {
    for host in [
        "x86_64-pc-windows-msvc",
        "i686-pc-windows-msvc",
        "aarch64-pc-windows-msvc",
        "x86_64-w64-mingw32",
    ] {
        let bytes = compile(&plan(
            host,
            Generation::Llvm21,
            vec![image(X86, "", b"DEVICE-IMAGE")],
        ))?;
        let file = object::File::parse(&bytes[..])?;
        assert_eq!(file.format(), object::BinaryFormat::Coff);
        let ctors = if host.ends_with("mingw32") {
            ".ctors.65434"
        } else {
            ".CRT$XCA00101"
        };
        for section in [
            "llvm_offload_entries$OA",
            "llvm_offload_entries$OZ",
            ".llvm.offloading",
            ctors,
        ] {
            let names: Vec<_> = file
                .sections()
                .flat_map(|section| section.name().map(str::to_owned))
                .collect();
            assert!(
                file.section_by_name(section).is_some(),
                "{host}: {section} {names:?}"
            );
        }
        // The linker uses one definition of each bound. A section of one byte makes the table exist
        // even if it has no entries.
        for bound in ["start", "stop"] {
            let name = format!(
                "{}__{bound}_llvm_offload_entries",
                if host.starts_with("i686") { "_" } else { "" }
            );
            let symbol = file
                .symbols()
                .find(|symbol| symbol.name() == Ok(&name))
                .ok_or(host)?;
            assert!(
                symbol.is_global() && !symbol.is_weak() && symbol.is_definition(),
                "{host}: {name}"
            );
            let section = file.section_by_index(symbol.section_index().ok_or(host)?)?;
            let object::SectionFlags::Coff { characteristics } = section.flags() else {
                return Err(host.into());
            };
            assert!(
                characteristics.contains(object::pe::IMAGE_SCN_LNK_COMDAT),
                "{host}: {name}"
            );
        }
        let keeper = file
            .section_by_name("llvm_offload_entries$OZZ")
            .ok_or(host)?;
        assert_eq!(keeper.size(), 1, "{host}");
    }
    Ok(())
}

#[test]
fn large_images_are_only_referred_to() -> Outcome {
    let place = ImagePlace::External {
        symbol: ".offld.image".to_owned(),
        size: 5 << 30,
    };
    let far = PlannedImage {
        place,
        parts: openmp::whole(0x90, (5 << 30) - 4),
        offload_arch: None,
    };
    let plan = plan(X86, Generation::Llvm21, vec![far]);
    let text = print_module(&plan)?;
    assert!(
        text.contains("\n@.offld.image = external hidden constant [5368709120 x i8]\n"),
        "{text}"
    );
    assert!(
        text.contains(
            "getelementptr ([5368709120 x i8], ptr @.offld.image, i64 0, i64 5368709116)"
        ),
        "{text}"
    );
    assert!(compile(&plan)?.len() < 4096);
    Ok(())
}

#[test]
fn f25_hosts_without_embedding_are_errors() {
    let error = |host: &str| match compile(&plan(host, Generation::Llvm21, Vec::new())) {
        Ok(_) => String::new(),
        Err(error) => error.to_string(),
    };
    assert_eq!(
        error("foo-bar"),
        "No available targets are compatible with triple \"foo-bar\""
    );
    assert_eq!(
        error("nvptx64-nvidia-cuda"),
        "No available targets are compatible with triple \"nvptx64-nvidia-cuda\""
    );
    let macho = error("arm64-apple-macosx14");
    assert!(
        macho.contains("`arm64-apple-macosx14`") && macho.contains("Mach-O"),
        "{macho}"
    );
}

#[test]
fn llvm_takes_every_host_that_the_table_names() {
    for arch in FAMILIES.iter().flat_map(|(_, names)| *names) {
        let made = Host::new(&format!("{arch}-unknown-linux-gnu"));
        assert!(made.is_ok(), "{arch}: {:?}", made.err());
    }
}

#[test]
fn requests_are_answered_in_order_and_rubbish_is_refused() -> Outcome {
    let frame = |bytes: &[u8]| [&u32::try_from(bytes.len()).unwrap().to_le_bytes(), bytes].concat();
    let text = Request::Make {
        form: Form::Text,
        plan: plan(X86, Generation::Llvm21, vec![image(X86, "", b"X")]),
    };
    let bad = Request::Make {
        form: Form::Object,
        plan: plan("foo-bar", Generation::Llvm21, Vec::new()),
    };
    let requests = [
        Request::Hello.encode()?,
        text.encode()?,
        bad.encode()?,
        b"rubbish".to_vec(),
        Request::DefaultTriple.encode()?,
    ];
    let mut answers = Vec::new();
    crate::serve(
        &mut requests.map(|request| frame(&request)).concat().as_slice(),
        &mut answers,
    )?;
    let mut from = answers.as_slice();
    let mut next = || crate::frame(&mut from).unwrap().unwrap();
    assert_eq!(next(), BUILD.as_bytes());
    assert!(
        matches!(Answer::decode(&next())?, Answer::Done(text) if text.starts_with(b"; ModuleID"))
    );
    assert!(
        matches!(Answer::decode(&next())?, Answer::Refused(why) if why.contains("No available targets"))
    );
    assert!(matches!(
        Answer::decode(&next())?,
        Answer::Refused("unknown request")
    ));
    assert!(matches!(Answer::decode(&next())?, Answer::Done(triple) if triple.contains(&b'-')));
    assert!(crate::frame(&mut from)?.is_none());
    Ok(())
}

#[test]
fn an_image_that_ends_after_its_bytes_is_an_error() {
    let bad = PlannedImage {
        place: ImagePlace::Inline(vec![0; 4]),
        parts: openmp::whole(2, 5),
        offload_arch: None,
    };
    assert!(print_module(&plan(X86, Generation::Llvm21, vec![bad])).is_err());
}

#[test]
fn the_program_registers_its_images() -> Outcome {
    if cfg!(not(target_arch = "x86_64")) {
        eprintln!("skipped: what it makes runs on x86-64");
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("rt.c"), include_str!("tests/runtime.c"))?;
    for (generation, seen) in [
        (
            Generation::Llvm14,
            "info 1 0/1 gfx90a\nregister 1 DEVICE-IMAGE 0\nmain\nunregister\n",
        ),
        (
            Generation::Llvm15,
            "register 1 DEVICE-IMAGE 0\nmain\nunregister\n",
        ),
        (
            Generation::Llvm20,
            "register 1 DEVICE-IMAGE 0\nmain\nunregister\n",
        ),
        (
            Generation::Llvm21,
            "register 1 DEVICE-IMAGE 0\nmain\nunregister\n",
        ),
    ] {
        let image = PlannedImage {
            offload_arch: Some("gfx90a".to_owned()),
            ..image(X86, "", b"DEVICE-IMAGE")
        };
        std::fs::write(
            at("wrapper.o"),
            compile(&plan(X86, generation, vec![image]))?,
        )?;
        let output = Command::new("cc")
            .args([at("rt.c"), at("wrapper.o")])
            .arg("-o")
            .arg(at("program"))
            .output()?;
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let output = Command::new(at("program")).output()?;
        assert_eq!(
            String::from_utf8_lossy(&output.stdout),
            seen,
            "{generation:?}"
        );
    }
    Ok(())
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'\\' {
            let hex = tail
                .get(..2)
                .and_then(|hex| u8::from_str_radix(std::str::from_utf8(hex).ok()?, 16).ok());
            bytes.extend(hex);
            rest = &tail[2..];
        } else {
            bytes.push(*first);
        }
    }
    bytes
}
