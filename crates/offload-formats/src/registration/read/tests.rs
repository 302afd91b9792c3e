//! Registrations in files from `cc`, intact and damaged.

use std::path::Path;
use std::process::Command;

use object::elf;

use super::read;
use crate::elf::raw::{FileHeader, Record, SectionHeader};

/// A table of two entries, an image, and its descriptor, in the layout of LLVM's wrapper.
const SOURCE: &str = r#"
extern char __start_llvm_offload_entries[], __stop_llvm_offload_entries[];
static int variable, kernel;
struct entry { unsigned long reserved; unsigned short version, kind; unsigned flags; void *address; const char *name; unsigned long size, data; void *aux; };
__attribute__((used, section("llvm_offload_entries"))) struct entry entries[2] = {
  { 0, 1, 1, 0, &kernel, "the_kernel", 0, 0, 0 }, { 0, 1, 1, 0, &variable, "the_variable", 4, 7, 0 } };
__attribute__((used, section(".llvm.offloading"))) const char image[64] = "image";
struct row { const void *start, *end, *first, *last; };
struct row rows[1] = { { image, image + 64, __start_llvm_offload_entries, __stop_llvm_offload_entries } };
struct descriptor { int count; struct row *rows; void *first, *last; };
struct descriptor descriptor = { 1, rows, __start_llvm_offload_entries, __stop_llvm_offload_entries };
"#;

/// Compiles the source with `cc` and the arguments `arguments`.
fn compiled(folder: &Path, arguments: &[&str]) -> Vec<u8> {
    let (source, output) = (folder.join("registers.c"), folder.join("output"));
    std::fs::write(&source, SOURCE).unwrap();
    let done = Command::new("cc")
        .arg(&source)
        .arg("-o")
        .arg(&output)
        .args(arguments)
        .status()
        .unwrap();
    assert!(done.success(), "{arguments:?}");
    std::fs::read(output).unwrap()
}

#[test]
fn objects_libraries_and_fixed_programs_are_read_alike() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = ["-no-pie", "-nostdlib", "-Wl,-e,0"];
    for arguments in [
        &["-c"][..],
        &["-c", "-fPIC"],
        &["-shared", "-fPIC"],
        &["-shared", "-fPIC", "-s"],
        &fixed,
    ] {
        let found = read(&compiled(folder.path(), arguments)).unwrap();
        let entries: Vec<_> = found.tables[0]
            .entries
            .iter()
            .map(|entry| (entry.name.as_deref(), entry.size, entry.data))
            .collect();
        assert_eq!(
            entries,
            [(Some("the_kernel"), 0, 0), (Some("the_variable"), 4, 7)],
            "{arguments:?}"
        );
        assert_eq!(found.descriptors.len(), 1, "{arguments:?}");
        let image = &found.descriptors[0].images[0];
        assert_eq!(image.end - image.start, 64, "{arguments:?}");
        assert_eq!(found.linked, !arguments.contains(&"-c"), "{arguments:?}");
    }
}

#[test]
fn no_damage_ends_the_reader() {
    let folder = tempfile::tempdir().unwrap();
    for arguments in [
        &["-c", "-g0"][..],
        &["-no-pie", "-nostdlib", "-s", "-Wl,-e,0"],
        &[
            "-shared",
            "-fPIC",
            "-nostdlib",
            "-s",
            "-Wl,-z,noseparate-code",
        ],
    ] {
        let whole = compiled(folder.path(), arguments);
        for len in 0..whole.len() {
            let _ = read(&whole[..len]);
        }
        for at in 0..whole.len() {
            for flip in [1, 0x80, 0xff] {
                let mut damaged = whole.clone();
                damaged[at] ^= flip;
                let _ = read(&damaged);
            }
        }
    }
}

#[test]
fn sections_and_relocations_that_share_their_bytes_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let whole = compiled(folder.path(), &["-shared", "-fPIC"]);
    let (class, header) = FileHeader::read(&whole).unwrap();
    let sections =
        SectionHeader::table(class, &whole, header.shoff, header.shnum.into(), "").unwrap();
    // Reads the program with section header `at` replaced.
    let changed = |at: usize, section: &SectionHeader| {
        let mut data = whole.clone();
        let start = header.shoff as usize + at * SectionHeader::size(class);
        data[start..start + SectionHeader::size(class)].copy_from_slice(&section.to_bytes(class));
        read(&data)
    };
    let is_data =
        |section: &SectionHeader| section.kind == elf::SHT_PROGBITS && section.is_allocated();
    let data: Vec<usize> = (0..sections.len())
        .filter(|at| is_data(&sections[*at]))
        .collect();
    let [first, second, ..] = data[..] else {
        panic!("{sections:?}")
    };
    assert!(changed(second, &sections[second]).is_ok());
    let error = changed(second, &sections[first]).unwrap_err().to_string();
    assert_eq!(error, "sections overlap");
    // Other sections become relocation tables, all at the offset of the file's own.
    let mut data = whole.clone();
    let table = sections
        .iter()
        .find(|section| section.kind == elf::SHT_RELA && section.is_allocated())
        .unwrap();
    data.truncate(header.shoff as usize);
    let size = header.shoff / 24 * 24;
    let table = SectionHeader {
        offset: 0,
        size,
        addr: u64::MAX >> 1,
        ..*table
    };
    sections
        .iter()
        .chain([&table; 40])
        .for_each(|section| section.append(class, &mut data));
    let count = u16::try_from(sections.len() + 40).unwrap();
    data[60..62].copy_from_slice(&count.to_le_bytes());
    assert_eq!(
        read(&data).unwrap_err().to_string(),
        "relocation sections overlap"
    );
}

#[test]
fn descriptors_that_share_their_images_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let many = "struct descriptor more[2000] = { [0 ... 1999] = { 1, rows, __start_llvm_offload_entries, __stop_llvm_offload_entries } };";
    let (source, output) = (folder.path().join("many.c"), folder.path().join("many.so"));
    let large = SOURCE
        .replace("image[64]", "image[1000000]")
        .replace("image + 64", "image + 1000000");
    std::fs::write(&source, format!("{large}{many}")).unwrap();
    assert!(
        Command::new("cc")
            .arg(&source)
            .arg("-o")
            .arg(&output)
            .args(["-shared", "-fPIC"])
            .status()
            .unwrap()
            .success()
    );
    let error = read(&std::fs::read(output).unwrap())
        .unwrap_err()
        .to_string();
    assert_eq!(error, "OpenMP descriptors share their images");
}
