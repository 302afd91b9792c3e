//! Tests with generated objects, whose images are CPU code compiled by `cc`, or arbitrary bytes
//! with a target name.

use std::process::Command;
use std::sync::Arc;

use object::write::{Object, Relocation, Symbol, SymbolSection};
use object::{
    Architecture, BinaryFormat, Endianness, RelocationFlags, SectionKind, SymbolFlags, SymbolKind,
    SymbolScope, elf,
};

use super::*;
use crate::contents::{Options, Reader};
use offld_system::session::{Session, SessionOptions};
use offld_system::shell::Shell;
use offload_formats::model::ImageKind;
use offload_formats::offload_binary;

const CPU: &str = "x86_64-pc-linux-gnu";
const AMD: &str = "amdgcn-amd-amdhsa";
/// The prefix of kernel names in CPU images.
const PREFIX: &str = "__omp_offloading_1_2_";
const OPENMP: u16 = 1;
const HIP: u16 = 4;

/// An image: its kind, triple, target and bytes.
type Given<'a> = (u16, &'a str, &'a str, &'a [u8]);

/// A shared object with these functions.
fn library(kernels: &[&str]) -> Vec<u8> {
    let folder = tempfile::tempdir().unwrap();
    let (source, output) = (
        folder.path().join("device.c"),
        folder.path().join("device.so"),
    );
    std::fs::write(
        &source,
        kernels
            .iter()
            .map(|name| format!("void {PREFIX}{name}(void) {{}}\n"))
            .collect::<String>(),
    )
    .unwrap();
    assert!(
        Command::new("cc")
            .args(["-shared", "-fPIC", "-nostdlib", "-o"])
            .arg(&output)
            .arg(&source)
            .status()
            .unwrap()
            .success()
    );
    std::fs::read(output).unwrap()
}

/// A host object that registers `kernels` with OpenMP, and has these images.
fn host(kernels: &[&str], images: &[Given<'_>]) -> Vec<u8> {
    let mut object = Object::new(BinaryFormat::Elf, Architecture::X86_64, Endianness::Little);
    let device = object.add_section(
        Vec::new(),
        b".llvm.offloading".to_vec(),
        SectionKind::ReadOnlyData,
    );
    for (kind, triple, target, bytes) in images {
        let strings = [("triple", *triple), ("arch", *target)];
        object.append_section_data(
            device,
            &offload_binary::write(ImageKind::Object, *kind, 0, &strings, bytes),
            8,
        );
    }
    let names = object.add_section(Vec::new(), b".rodata".to_vec(), SectionKind::ReadOnlyData);
    let table = object.add_section(
        Vec::new(),
        b"llvm_offload_entries".to_vec(),
        SectionKind::Data,
    );
    let symbol = object.add_symbol(Symbol {
        name: b"names".to_vec(),
        value: 0,
        size: 0,
        kind: SymbolKind::Data,
        scope: SymbolScope::Compilation,
        weak: false,
        section: SymbolSection::Section(names),
        flags: SymbolFlags::None,
    });
    for name in kernels {
        let name = object.append_section_data(names, format!("{PREFIX}{name}\0").as_bytes(), 1);
        let entry = [
            &[0; 8][..],
            &1_u16.to_le_bytes(),
            &OPENMP.to_le_bytes(),
            &[0; 44],
        ]
        .concat();
        let entry = object.append_section_data(table, &entry, 8);
        let flags = RelocationFlags::Elf {
            r_type: elf::R_X86_64_64,
        };
        object
            .add_relocation(
                table,
                Relocation {
                    offset: entry + 24,
                    symbol,
                    addend: name as i64,
                    flags,
                },
            )
            .unwrap();
    }
    object.write().unwrap()
}

fn report(name: &str, bytes: &[u8]) -> FileReport {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join(name);
    std::fs::write(&path, bytes).unwrap();
    let shell = Arc::new(Shell::from_write("test", Box::new(std::io::sink())));
    let session = Session::new(shell, SessionOptions::default());
    let options = Options {
        kernels: true,
        registered: true,
        ..Options::default()
    };
    let report = Reader::new(options, &session).open(&path).unwrap();
    FileReport {
        file: name.to_owned(),
        ..report
    }
}

/// The plan for these builds, or the error.
fn plan(builds: &[&[u8]]) -> Result<Vec<MergedUnit>, String> {
    let reports: Vec<_> = builds
        .iter()
        .zip(1..)
        .map(|(bytes, number)| report(&format!("b{number}"), bytes))
        .collect();
    for report in &reports {
        assert_eq!(report.errors, [""; 0]);
    }
    check_images(&reports).map_err(|error| error.to_string())
}

#[test]
fn images_come_in_the_order_of_a_link_whatever_the_order_of_builds() {
    let cpu = library(&["one", "two"]);
    let build = |target: &str| host(&["one", "two"], &[(OPENMP, AMD, target, target.as_bytes())]);
    let (first, second) = (build("gfx908"), build("gfx90a:xnack+"));
    let (third, fourth) = (
        build("gfx90a:xnack-"),
        host(&["one", "two"], &[(OPENMP, CPU, "", &cpu)]),
    );
    let found = plan(&[&first, &second, &third, &fourth]).unwrap();
    assert_eq!(found.len(), 1);
    assert_eq!((found[0].kind, found[0].index), (OffloadKind::OpenMp, 0));
    let builds = |unit: &MergedUnit| {
        unit.images
            .iter()
            .map(|image| image.build)
            .collect::<Vec<_>>()
    };
    assert_eq!(builds(&found[0]), [3, 2, 1, 0]);
    assert_eq!(
        builds(&plan(&[&fourth, &third, &second, &first]).unwrap()[0]),
        [0, 1, 2, 3]
    );
    assert!(check_images(&[]).unwrap().is_empty());
}

#[test]
fn the_same_image_is_taken_once_and_another_for_its_target_is_refused() {
    let cpu = library(&["one"]);
    let first = host(&["one"], &[(OPENMP, CPU, "", &cpu)]);
    let second = host(
        &["one"],
        &[(OPENMP, CPU, "", &cpu), (OPENMP, AMD, "gfx908", b"one")],
    );
    let found = plan(&[&first, &second]).unwrap();
    let expected = [
        Taken {
            build: 0,
            image: 0,
            also: vec![(1, 0)],
        },
        Taken {
            build: 1,
            image: 1,
            also: Vec::new(),
        },
    ];
    assert_eq!(found[0].images, expected);
    let other = host(&["one"], &[(OPENMP, CPU, "", &library(&["one", "more"]))]);
    let message = plan(&[&first, &other]).unwrap_err();
    assert_eq!(
        message,
        "b1 and b2 have different images for x86_64-pc-linux-gnu: a runtime would take only one of them"
    );
    // Two spellings of one target.
    let spelled = |target: &str, bytes: &[u8]| host(&["one"], &[(OPENMP, AMD, target, bytes)]);
    let message = plan(&[
        &spelled("gfx90a:xnack+:sramecc-", b"a"),
        &spelled("gfx90a:sramecc-:xnack+", b"b"),
    ])
    .unwrap_err();
    assert!(
        message.ends_with("a runtime would take only one of them"),
        "{message}"
    );
}

#[test]
fn a_kernel_that_an_image_lacks_is_named() {
    let whole = host(
        &["one", "two"],
        &[(OPENMP, CPU, "", &library(&["one", "two"]))],
    );
    let part = host(
        &["one", "two"],
        &[(OPENMP, CPU, "haswell", &library(&["one"]))],
    );
    let message = plan(&[&whole, &part]).unwrap_err();
    assert_eq!(
        message,
        "b2: kernel `__omp_offloading_1_2_two` is registered and not in image 0 (x86_64-pc-linux-gnu (haswell))"
    );
    let none = host(&["one", "two"], &[]);
    assert_eq!(
        plan(&[&whole, &none]).unwrap_err(),
        "b2: 2 kernels are registered with OpenMP, but no image has them"
    );
    // Without a table of kernels, images are compared with each other.
    let build =
        |target: &str, kernels: &[&str]| host(&[], &[(HIP, CPU, target, &library(kernels))]);
    assert_eq!(
        plan(&[&build("a", &["one"]), &build("b", &["one"])]).unwrap()[0]
            .images
            .len(),
        2
    );
    let message = plan(&[&build("a", &["one"]), &build("b", &["one", "two"])]).unwrap_err();
    assert_eq!(
        message,
        "b1: kernel `__omp_offloading_1_2_two` is not in image 0 (x86_64-pc-linux-gnu (a)), but b2 has it for x86_64-pc-linux-gnu (b)"
    );
}

#[test]
fn targets_that_a_runtime_cannot_tell_apart_are_refused() {
    let build = |target: &str| host(&[], &[(OPENMP, AMD, target, target.as_bytes())]);
    let message = plan(&[&build("gfx90a"), &build("gfx90a:xnack+")]).unwrap_err();
    let expected = "b2 has an image for amdgcn-amd-amdhsa (gfx90a:xnack+), and b1 for amdgcn-amd-amdhsa (gfx90a): \
                    a runtime takes the first on a device that runs both";
    assert_eq!(message, expected);
    assert!(plan(&[&build("gfx90a:xnack-"), &build("gfx90a:xnack+")]).is_ok());
    assert!(plan(&[&build("gfx90a"), &build("gfx908:xnack+")]).is_ok());
}

#[test]
fn builds_with_other_kinds_or_none_are_refused() {
    let build = |kind: u16| host(&[], &[(kind, AMD, "gfx908", b"a")]);
    let message = plan(&[&build(OPENMP), &build(HIP)]).unwrap_err();
    assert_eq!(
        message,
        "b1 has device code for OpenMP, but b2 has device code for HIP in its place"
    );
    let message = plan(&[&build(OPENMP), &host(&[], &[])]).unwrap_err();
    assert_eq!(
        message,
        "b1 has device code for OpenMP, but b2 has none in its place"
    );
}

#[test]
fn an_image_that_is_not_what_its_container_says_is_refused() {
    // An image for gfx908 that is labelled as gfx90a.
    let mut image = library(&["one"]);
    image[18..20].copy_from_slice(&elf::EM_AMDGPU.0.to_le_bytes());
    image[7] = 64;
    image[8] = 2;
    image[48..52].copy_from_slice(&0x30_u32.to_le_bytes());
    let build = |target: &str| host(&[], &[(OPENMP, AMD, target, &image)]);
    assert!(plan(&[&build("gfx908")]).is_ok());
    let message = plan(&[&build("gfx90a")]).unwrap_err();
    assert!(
        message.contains("is labelled as amdgcn-amd-amdhsa (gfx90a), but its own header is for"),
        "{message}"
    );
}
