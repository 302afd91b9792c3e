//! Registrations of files that `cc` makes, whole and damaged.

use std::path::Path;
use std::process::Command;

use super::read;

/// A table of two entries, an image, and its descriptor, as LLVM's wrapper has them.
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

/// The bytes of the source, as `words` make `cc` compile it.
fn compiled(folder: &Path, words: &[&str]) -> Vec<u8> {
    let (source, output) = (folder.join("registers.c"), folder.join("output"));
    std::fs::write(&source, SOURCE).unwrap();
    let done = Command::new("cc").arg(&source).arg("-o").arg(&output).args(words).status().unwrap();
    assert!(done.success(), "{words:?}");
    std::fs::read(output).unwrap()
}

#[test]
fn objects_libraries_and_fixed_programs_are_read_alike() {
    let folder = tempfile::tempdir().unwrap();
    let fixed = ["-no-pie", "-nostdlib", "-Wl,-e,0"];
    for words in [&["-c"][..], &["-c", "-fPIC"], &["-shared", "-fPIC"], &["-shared", "-fPIC", "-s"], &fixed] {
        let found = read(&compiled(folder.path(), words)).unwrap();
        let entries: Vec<_> =
            found.tables[0].entries.iter().map(|entry| (entry.name.as_deref(), entry.size, entry.data)).collect();
        assert_eq!(entries, [(Some("the_kernel"), 0, 0), (Some("the_variable"), 4, 7)], "{words:?}");
        assert_eq!(found.descriptors.len(), 1, "{words:?}");
        let image = &found.descriptors[0].images[0];
        assert_eq!(image.end - image.start, 64, "{words:?}");
        assert_eq!(found.linked, !words.contains(&"-c"), "{words:?}");
    }
}

#[test]
fn no_damage_ends_the_reader() {
    let folder = tempfile::tempdir().unwrap();
    for words in [
        &["-c", "-g0"][..],
        &["-no-pie", "-nostdlib", "-s", "-Wl,-e,0"],
        &["-shared", "-fPIC", "-nostdlib", "-s", "-Wl,-z,noseparate-code"],
    ] {
        let whole = compiled(folder.path(), words);
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
fn descriptors_that_share_their_images_are_an_error() {
    let folder = tempfile::tempdir().unwrap();
    let many = "struct descriptor more[2000] = { [0 ... 1999] = { 1, rows, __start_llvm_offload_entries, __stop_llvm_offload_entries } };";
    let (source, output) = (folder.path().join("many.c"), folder.path().join("many.so"));
    let large = SOURCE.replace("image[64]", "image[1000000]").replace("image + 64", "image + 1000000");
    std::fs::write(&source, format!("{large}{many}")).unwrap();
    assert!(Command::new("cc").arg(&source).arg("-o").arg(&output).args(["-shared", "-fPIC"]).status().unwrap().success());
    let error = read(&std::fs::read(output).unwrap()).unwrap_err().to_string();
    assert_eq!(error, "OpenMP's descriptors share their images");
}
