//! Processors in image headers, tested with images from LLVM and with headers copied from NVIDIA's
//! ptxas.

use super::*;
use crate::reference::{Outcome, run, tools};
use object::Endianness;
use object::write::elf::{FileHeader as Head, SectionHeader, Writer};

/// The parts of a cubin that name its processor. `compatibility` is the contents of `.nv.compat`.
fn cubin(abi_version: u8, flags: u32, compatibility: Option<&[u8]>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut elf = Writer::new(Endianness::Little, true, &mut bytes);
    elf.reserve_file_header();
    elf.reserve_null_section_index();
    let name = elf.add_section_name(b".nv.compat");
    elf.reserve_section_index();
    elf.reserve_shstrtab_section_index();
    let contents = compatibility.unwrap_or_default();
    let at = elf.reserve(contents.len() as u64, 1);
    elf.reserve_shstrtab().unwrap();
    elf.reserve_section_headers();
    let head = Head {
        abi_version,
        e_type: elf::ET_EXEC,
        e_machine: elf::EM_CUDA,
        e_flags: elf::FileFlags(flags),
        ..Head::default()
    };
    elf.write_file_header(&head).unwrap();
    elf.write(contents);
    elf.write_shstrtab();
    elf.write_null_section_header();
    elf.write_section_header(&SectionHeader {
        sh_name: if compatibility.is_some() {
            elf.section_name_offset(Some(name))
        } else {
            0
        },
        sh_type: elf::SHT_PROGBITS,
        sh_offset: at,
        sh_size: contents.len() as u64,
        ..SectionHeader::default()
    });
    elf.write_shstrtab_section_header();
    bytes
}

fn target(image: &[u8]) -> anyhow::Result<String> {
    Ok(Gpu::of_elf(image)?.map_or_else(String::new, |gpu| {
        format!("{} {}", gpu.triple, gpu.target_id())
    }))
}

/// Headers that ptxas of CUDA 12.8 and 13.5 write for an empty kernel, with the processor that
/// `cuobjdump -elf` of 13.5 prints.
#[test]
fn cubins_of_both_layouts_name_their_processor() {
    const PLAIN: &[u8] = &[2, 9, 0, 0, 2, 0xc, 0, 0, 2, 2, 1, 0];
    const EXACT: &[u8] = &[2, 9, 1, 0, 2, 0xc, 0, 0, 2, 2, 1, 0];
    for (abi_version, flags, compatibility, expected) in [
        (7, 0x004b_054b, None, "sm_75"),
        (7, 0x005a_055a, None, "sm_90"),
        (7, 0x005a_0d5a, None, "sm_90a"),
        // The SGEMM kernels of cuBLAS, which are not from ptxas.
        (7, 0x003c_0d3d, None, "sm_61"),
        (7, 0x003c_0d32, None, "sm_50"),
        (8, 0x0600_6402, None, "sm_100"),
        (8, 0x0600_640a, Some(&[2, 2, 1, 0][..]), "sm_100a"),
        (8, 0x0600_650a, None, "sm_101a"),
        (8, 0x0600_4b04, Some(PLAIN), "sm_75"),
        (8, 0x0600_5a04, Some(PLAIN), "sm_90"),
        (8, 0x0600_5a04, Some(EXACT), "sm_90a"),
        (8, 0x0600_6402, Some(EXACT), "sm_100a"),
        // `sm_103f`, which has no mark.
        (8, 0x0600_6702, Some(PLAIN), "sm_103"),
        (8, 0x0600_7902, Some(EXACT), "sm_121a"),
        // The attribute value 2 is for NVIDIA's internal use.
        (8, 0x0600_5a04, Some(&[2, 9, 2, 0]), "sm_90"),
    ] {
        let output = target(&cubin(abi_version, flags, compatibility)).unwrap();
        assert_eq!(
            output,
            format!("nvptx64-nvidia-cuda {expected}"),
            "ABI {abi_version}, flags {flags:#x}"
        );
    }
}

#[test]
fn a_cubin_whose_attributes_are_damaged_is_an_error() {
    let error = target(&cubin(8, 0x0600_5a04, Some(&[4, 9, 16, 0, 1]))).unwrap_err();
    assert_eq!(error.to_string(), "damaged section .nv.compat");
    let whole = cubin(8, 0x0600_5a04, Some(&[2, 9, 1, 0]));
    for len in 0..whole.len() {
        let _ = target(&whole[..len]);
    }
    assert!(target(&whole[..63]).is_err() && target(b"BC\xc0\xde").is_err());
}

/// The GPU in LLVM's output for `target`, a processor or target ID.
fn of_llvm(target: &str, version: u8) -> Result<Option<(Gpu, String)>, Box<dyn std::error::Error>> {
    let Some([clang, readobj]) = tools(["clang", "llvm-readobj"]) else {
        return Ok(None);
    };
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("k.c"), "void f(void) {}\n")?;
    let options = [
        format!("-mcpu={target}"),
        format!("-mcode-object-version={version}"),
    ];
    let line = [
        "--target=amdgcn-amd-amdhsa",
        "-nogpulib",
        "-c",
        "k.c",
        "-o",
        "k.o",
    ]
    .map(str::to_owned);
    run(&clang, dir.path(), line.iter().chain(&options))?;
    let gpu = Gpu::of_elf(&std::fs::read(dir.path().join("k.o"))?)?.ok_or("no GPU")?;
    let output = String::from_utf8(run(&readobj, dir.path(), ["--file-headers", "k.o"])?)?;
    Ok(Some((gpu, output)))
}

/// Processors that LLVM 22 does not have, with their numbers in
/// `llvm/include/llvm/BinaryFormat/ELF.h` of LLVM 24.
const AFTER_22: [(&str, u32); 9] = [
    ("gfx1154", 0x57),
    ("gfx1170", 0x5d),
    ("gfx1171", 0x5e),
    ("gfx1172", 0x5c),
    ("gfx1310", 0x50),
    ("gfx11-7-generic", 0x62),
    ("gfx12-5-generic", 0x5b),
    ("gfx13-generic", 0x63),
    ("gfx1250-strict", 0xeb),
];

#[test]
fn later_processors_of_amd_are_named_as_llvm_24_names_them() {
    for (processor, mach) in AFTER_22 {
        let mut image = cubin(4, mach | 1 << 24, None);
        (image[18], image[7]) = (224, 64);
        assert_eq!(
            target(&image).unwrap(),
            format!("amdgcn-amd-amdhsa {processor}")
        );
        assert_eq!(canonical_target_id(processor), processor);
        let arch = AmdArch::of_processor(processor).unwrap();
        assert_eq!(arch.processor().as_deref(), Some(processor));
    }
}

#[test]
fn every_processor_of_amd_is_named_as_llvm_names_it() -> Outcome {
    for processor in
        all_amd_processors().filter(|name| AFTER_22.iter().all(|(later, _)| later != name))
    {
        let Some((gpu, output)) = of_llvm(processor, 6)? else {
            return Ok(());
        };
        assert_eq!(
            (gpu.triple, gpu.target_id().as_str()),
            ("amdgcn-amd-amdhsa", processor)
        );
        let name = processor.replace('-', "_").to_uppercase();
        assert!(
            output.contains(&format!("EF_AMDGPU_MACH_AMDGCN_{name} ")),
            "{processor}: {output}"
        );
        assert_eq!(
            gpu.generic_version,
            processor.ends_with("-generic").then_some(1),
            "{processor}"
        );
    }
    Ok(())
}

#[test]
fn every_code_object_version_has_its_features() -> Outcome {
    for target in [
        "gfx90a:xnack+",
        "gfx90a:sramecc-:xnack+",
        "gfx906:sramecc+:xnack-",
        "gfx1010:xnack-",
        "gfx942",
    ] {
        for version in [4, 5, 6] {
            let Some((gpu, output)) = of_llvm(target, version)? else {
                return Ok(());
            };
            assert_eq!(gpu.target_id(), target, "{version}");
            for (feature, on) in &gpu.features {
                let flag = format!(
                    "EF_AMDGPU_FEATURE_{}_{}_V4",
                    feature.to_uppercase(),
                    if *on { "ON" } else { "OFF" }
                );
                assert!(
                    output.contains(&flag),
                    "{target} {version}: {flag} is not in {output}"
                );
            }
        }
    }
    Ok(())
}

#[test]
fn older_code_objects_have_their_features_elsewhere() {
    // A version 3 image for gfx906 has one bit per feature. A version 2 image has only the
    // processor.
    let mut image = cubin(1, 0x22f, None);
    image[18] = 224;
    image[7] = 64;
    assert_eq!(
        target(&image).unwrap(),
        "amdgcn-amd-amdhsa gfx906:sramecc+:xnack-"
    );
    image[8] = 0;
    assert_eq!(target(&image).unwrap(), "amdgcn-amd-amdhsa gfx906");
    // Mesa's images have version 0 and the bits of version 3.
    image[7] = 66;
    assert_eq!(
        target(&image).unwrap(),
        "amdgcn-amd-amdhsa gfx906:sramecc+:xnack-"
    );
}

#[test]
fn target_ids_have_one_spelling() {
    for (text, canonical) in [
        ("gfx90a:xnack+:sramecc-", "gfx90a:sramecc-:xnack+"),
        ("tahiti", "gfx600"),
        ("gfx90a:xnack", "gfx90a:xnack"),
        ("gfx90a:xnack+:xnack-", "gfx90a:xnack+:xnack-"),
        ("sm_90a", "sm_90a"),
    ] {
        assert_eq!(canonical_target_id(text), canonical);
    }
    assert_eq!(
        TargetId::of_triple("amdgcn-amd-amdhsa", "gfx1030:xnack+"),
        None
    );
    assert_eq!(
        TargetId::of_triple("nvptx64-nvidia-cuda", "sm_90:xnack+"),
        None
    );
    assert_eq!(TargetId::parse("gfx90a:+"), None);
}

fn arch(name: &str) -> AmdArch<'_> {
    AmdArch::parse(name).unwrap()
}

#[test]
fn names_and_processors() {
    for (name, processor) in [
        ("amdgcn", None),
        ("amdgpu", None),
        ("amdgpu6", None),
        ("amdgpu9", Some("gfx9-generic")),
        ("amdgpu9.4", Some("gfx9-4-generic")),
        ("amdgpu9.5", Some("gfx9-4-generic")),
        ("amdgpu10", Some("gfx10-1-generic")),
        ("amdgpu9.08", Some("gfx908")),
        ("amdgpu9.0a", Some("gfx90a")),
        ("amdgpu12.50", Some("gfx1250")),
        ("amdgpu12.50s", Some("gfx1250-strict")),
        ("amdgpu14.20", Some("gfx1420")),
    ] {
        assert_eq!(arch(name).processor().as_deref(), processor, "{name}");
        if let Some(processor) = processor {
            assert_eq!(AmdArch::of_processor(processor), Some(arch(name)), "{name}");
        }
    }
    for other in [
        "",
        "amdgc",
        "amdgcn9",
        "amdgpux",
        "amdgpu9.",
        "amdgpu.08",
        "amdgpu9.080",
        "amdgpu9.0A",
        "AMDGPU",
        "r600",
    ] {
        assert_eq!(AmdArch::parse(other), None, "{other}");
    }
    for other in ["", "gfx", "gfx9", "sm_90", "amdgcnspirv", "fiji", "gfx9-é"] {
        assert_eq!(AmdArch::of_processor(other), None, "{other}");
    }
    assert_eq!(
        AmdArch::of_processor("gfx90a:sramecc+:xnack-"),
        Some(arch("amdgpu9.0a"))
    );
}

#[test]
fn a_major_version_covers_its_minor_ones_and_no_minor_one_another() {
    for (one, other, covers) in [
        ("amdgcn", "amdgpu9.08", true),
        ("amdgpu9.08", "amdgcn", false),
        ("amdgpu", "amdgcn", true),
        ("amdgpu9", "amdgpu9.00", true),
        ("amdgpu9.00", "amdgpu9", false),
        ("amdgpu9.00", "amdgpu9.06", false),
        ("amdgpu9", "amdgpu9.08", false),
        ("amdgpu9", "amdgpu9.0a", false),
        ("amdgpu9", "amdgpu9.42", false),
        ("amdgpu9.4", "amdgpu9.50", true),
        ("amdgpu8", "amdgpu8.10", false),
        ("amdgpu6", "amdgpu6.01", true),
        ("amdgpu14", "amdgpu14.20", false),
        ("amdgpu11", "amdgpu11.54", true),
        ("amdgpu11", "amdgpu11.70", false),
        ("amdgpu11.7", "amdgpu11.72", true),
        ("amdgpu12.5", "amdgpu12.51", true),
        ("amdgpu12.5", "amdgpu12.50s", false),
        ("amdgpu12.50", "amdgpu12.50s", false),
        ("amdgpu13", "amdgpu13.10", true),
    ] {
        assert_eq!(arch(one).covers(&arch(other)), covers, "{one} for {other}");
    }
    assert!(
        arch("amdgpu9.00").agrees(&arch("amdgpu9"))
            && !arch("amdgpu9.00").agrees(&arch("amdgpu9.06"))
    );
}
