//! SYCL: compares printed modules with LLVM's, compiles modules for every host, and runs a program
//! that registers its images.
//!
//! Differences from LLVM's text: the images are not in `.llvm.offloading`, because a later link
//! would look there for OffloadBinaries, and the edit after `-r` would remove them. Their alignment
//! is explicit, because runtimes read SPIR-V as 32-bit integers.

use super::*;
use offload_formats::registration::SyclImage;
use offload_formats::registration::sycl::Registration;

fn sycl(bytes: &[u8], symbols: &[&str]) -> SyclImage {
    SyclImage {
        place: ImagePlace::Inline(bytes.to_vec()),
        image_kind: ImageKind::None,
        triple: "spirv64-unknown-unknown".to_owned(),
        symbols: symbols.iter().map(|&symbol| symbol.to_owned()).collect(),
    }
}

fn in_own_section(text: String) -> String {
    text.replace(
        "section \".llvm.offloading\"",
        "section \".sycl_offloading\", align 8",
    )
}

#[test]
fn prints_what_llvm_22_prints() -> Outcome {
    let two = || Images::Sycl(vec![sycl(b"SPV1", &["k1", "k2"]), sycl(b"SPV22", &["k3"])]);
    for host in [X86, "x86_64-pc-windows-msvc"] {
        assert_prints(
            &plan_of(host, Generation::Llvm21, two()),
            &format!("sycl-2img.{host}"),
            in_own_section,
        )?;
    }
    assert_prints(
        &plan_of(X86, Generation::Llvm21, Images::Sycl(Vec::new())),
        &format!("sycl.{X86}"),
        in_own_section,
    )
}

#[test]
fn f29_images_for_several_targets_have_the_same_kernels() -> Outcome {
    let native = SyclImage {
        image_kind: ImageKind::Object,
        triple: "spirv64_gen".to_owned(),
        ..sycl(b"NATIVE", &["k1", "k2"])
    };
    let images = Images::Sycl(vec![sycl(b"SPV1", &["k1"]), native, sycl(b"NONE", &[])]);
    let text = print_module(&plan_of(X86, Generation::Llvm21, images))?;
    assert_eq!(
        text.matches("\n@.offloading.entry.k1 = ").count(),
        1,
        "{text}"
    );
    assert!(!text.contains(".offloading.entry.k1."), "{text}");
    assert!(
        text.contains("i16 1, i16 3, ptr @.sycl_offloading.device_images, ptr null, ptr null"),
        "{text}"
    );
    assert!(
        text.contains("{ i16 3, i8 8, i8 1, ptr @.sycl_offloading.target.1,"),
        "{text}"
    );
    Ok(())
}

#[test]
fn f17_compiles_for_every_host_without_sections_of_images() -> Outcome {
    let windows = ["x86_64-pc-windows-msvc", "aarch64-pc-windows-msvc"];
    for host in HOSTS.iter().map(|(host, ..)| *host).chain(windows) {
        for relocatable in [false, true] {
            let images = Images::Sycl(vec![sycl(b"SPIR-V", &["kernel"])]);
            let bytes = compile(&Plan {
                relocatable,
                ..plan_of(host, Generation::Llvm21, images)
            })?;
            let file = object::File::parse(&bytes[..])?;
            let section = file.section_by_name(".sycl_offloading").ok_or(host)?;
            assert_eq!(
                (section.align(), section.data()?),
                (8, &b"SPIR-V"[..]),
                "{host}"
            );
            assert!(file.section_by_name(".llvm.offloading").is_none(), "{host}");
            if file.format() == object::BinaryFormat::Elf {
                assert_eq!(
                    image_section(&bytes, ".sycl_offloading")?,
                    Some((1, 2)),
                    "{host}"
                );
                for section in [".init_array.1", ".fini_array.1", "llvm_offload_entries"] {
                    assert!(file.section_by_name(section).is_some(), "{host}: {section}");
                }
            } else {
                for section in [".CRT$XCA00001", "llvm_offload_entries$OE"] {
                    assert!(file.section_by_name(section).is_some(), "{host}: {section}");
                }
            }
        }
    }
    Ok(())
}

#[test]
fn the_program_registers_all_its_images() -> Outcome {
    if cfg!(not(target_arch = "x86_64")) {
        eprintln!("skipped: what it makes runs on x86-64");
        return Ok(());
    }
    let dir = tempfile::tempdir()?;
    let at = |name: &str| dir.path().join(name);
    std::fs::write(at("rt.c"), include_str!("sycl.c"))?;
    let images = Images::Sycl(vec![sycl(b"SPV1", &["k1", "k2"]), sycl(b"SPV22", &["k1"])]);
    std::fs::write(
        at("wrapper.o"),
        compile(&plan_of(X86, Generation::Llvm21, images))?,
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
    let wanted = "register 1 2\nimage 3 8 0 spirv64-unknown-unknown '' '' SPV1 k1 k2\nimage 3 8 0 spirv64-unknown-unknown '' '' SPV22 k1\n\
                  main\nunregister\n";
    assert_eq!(String::from_utf8_lossy(&output.stdout), wanted);
    Ok(())
}

#[test]
fn later_runtimes_get_one_binary_from_code_for_every_host() -> Outcome {
    let windows = ["x86_64-pc-windows-msvc", "aarch64-pc-windows-msvc"];
    for host in HOSTS.iter().map(|(host, ..)| *host).chain(windows) {
        for release in [Registration::Llvm23, Registration::Llvm24] {
            let plan = plan_of(
                host,
                Generation::Llvm21,
                Images::SyclBinary(ImagePlace::Inline(b"BINARY".to_vec()), release),
            );
            for relocatable in [false, true] {
                let bytes = compile(&Plan {
                    relocatable,
                    ..plan.clone()
                })?;
                let file = object::File::parse(&bytes[..])?;
                let elf = file.format() == object::BinaryFormat::Elf;
                let section = file
                    .sections()
                    .find(|section| section.name().is_ok_and(|name| name == ".sycl_fatbin"))
                    .ok_or(host)?;
                assert_eq!(
                    (section.align(), section.data()?),
                    (8, &b"BINARY"[..]),
                    "{host}"
                );
                let has = |name: &str| file.section_by_name(name).is_some();
                let (start, end) = if release == Registration::Llvm24 {
                    (".init_array.101", false)
                } else {
                    (".init_array.1", true)
                };
                assert!(
                    !elf || (has(start) && has(".fini_array.1") == end),
                    "{host} {release:?}"
                );
                assert!(
                    !has("llvm_offload_entries") && !has(".llvm.offloading"),
                    "{host}"
                );
            }
        }
    }
    Ok(())
}
