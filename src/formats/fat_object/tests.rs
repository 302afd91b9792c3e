//! Objects with sections added and taken away are those of llvm-objcopy, to the byte; and what a compiler made comes out again.

use super::*;
use crate::formats::reference::{Outcome, run, tools};
use std::path::Path;

const HOST: &str = "host-x86_64-unknown-linux-gnu-";
const IDS: [&str; 3] = [HOST, "hip-amdgcn-amd-amdhsa--gfx90a:xnack+", "hip-amdgcn-amd-amdhsa--gfx906"];
const PAYLOADS: [&[u8]; 3] = [b"\0", b"A code object of no particular length", b""];

/// What a plan writes.
fn written(plan: &Plan, object: &[u8], payloads: &[&[u8]]) -> Vec<u8> {
    let mut out = Vec::new();
    for part in &plan.parts {
        match part {
            Part::Object(range) => out.extend_from_slice(&object[range.start as usize..range.end as usize]),
            Part::Section(index) => out.extend_from_slice(payloads[*index]),
            Part::Made(bytes) => out.extend_from_slice(bytes),
            Part::Zeros(count) => out.resize(out.len() + *count as usize, 0),
        }
    }
    out
}

fn new_sections() -> Vec<NewSection<'static>> {
    IDS.iter().zip(PAYLOADS).map(|(id, payload)| NewSection { id, size: payload.len() as u64 }).collect()
}

/// What llvm-objcopy makes of `object`: with the sections, and of that again without them.
fn reference(objcopy: &Path, folder: &Path, object: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Box<dyn std::error::Error>> {
    std::fs::write(folder.join("in.o"), object)?;
    let mut args = Vec::new();
    for (index, (id, payload)) in IDS.iter().zip(PAYLOADS).enumerate() {
        std::fs::write(folder.join(format!("payload{index}")), payload)?;
        args.push(format!("--add-section=__CLANG_OFFLOAD_BUNDLE__{id}=payload{index}"));
        args.push(format!("--set-section-flags=__CLANG_OFFLOAD_BUNDLE__{id}=readonly,exclude"));
    }
    args.extend(["--", "in.o", "fat.o"].map(str::to_owned));
    run(objcopy, folder, &args)?;
    run(objcopy, folder, ["--regex", "--remove-section=__CLANG_OFFLOAD_BUNDLE__.*", "--", "fat.o", "out.o"])?;
    Ok((std::fs::read(folder.join("fat.o"))?, std::fs::read(folder.join("out.o"))?))
}

fn same(ours: &[u8], theirs: &[u8], what: &str) {
    if ours != theirs {
        let at = ours.iter().zip(theirs).take_while(|(one, other)| one == other).count();
        panic!("{what}: {} bytes, but LLVM {}; the first difference is at {at:#x}", ours.len(), theirs.len());
    }
}

/// Adds and takes away, beside llvm-objcopy. Returns the host object that came out.
fn round(objcopy: &Path, folder: &Path, object: &[u8], what: &str) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let (fat, bare) = reference(objcopy, folder, object)?;
    let new = new_sections();
    let plan = with_sections(object, &new)?;
    let ours = written(&plan, object, &PAYLOADS);
    assert_eq!(plan.size(&new), ours.len() as u64);
    same(&ours, &fat, &format!("{what}, fat"));
    let found = bundle_sections(&fat)?;
    assert_eq!(found.iter().map(|section| section.id).collect::<Vec<_>>(), IDS, "{what}");
    for (section, payload) in found.iter().zip(PAYLOADS) {
        assert_eq!(&fat[section.at as usize..][..section.size as usize], payload, "{what}");
    }
    let ours = written(&without_bundles(&fat)?, &fat, &[]);
    same(&ours, &bare, &format!("{what}, bare"));
    Ok(ours)
}

const SOURCE: &str = r#"
int table[100]; static int hidden = 3; extern int other(int);
__attribute__((section(".data.rel"))) int (*pointer)(int) = other;
int main(int argc, char **argv) { return other(argc) + table[argc] + hidden + (pointer != 0); }
_Thread_local int of_each_thread = 7;
const char *long_name_of_a_global_variable_that_needs_the_string_table = "text";
__attribute__((weak)) int weak_function(void) { return 1; }
"#;
const SOURCE_CXX: &str = r#"
template <class T> struct S { virtual T f(T t) { return t; } static T v; };
template <class T> T S<T>::v = 3;
inline int in_a_group(int x) { static int y = x; return y++; }
int g(int x) { S<int> s; S<long> t; return s.f(x) + (int)t.f(x) + S<int>::v + in_a_group(x); }
"#;

#[test]
fn ob_05_b19_objects_of_clang_come_out_as_they_were() -> Outcome {
    let Some([objcopy, clang]) = tools(["llvm-objcopy", "clang"]) else { return Ok(()) };
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    std::fs::write(folder.join("a.c"), SOURCE)?;
    std::fs::write(folder.join("a.cpp"), SOURCE_CXX)?;
    let elf = ["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu", "powerpc-unknown-linux-gnu", "i386-unknown-linux-gnu"];
    let coff = ["x86_64-pc-windows-msvc", "x86_64-w64-windows-gnu", "aarch64-pc-windows-msvc", "i686-pc-windows-msvc"];
    for target in
        elf.into_iter().chain(["riscv64-unknown-linux-gnu", "mips64el-unknown-linux-gnu", "s390x-unknown-linux-gnu"]).chain(coff)
    {
        for (source, flags) in [
            ("a.c", &["-O0"][..]),
            ("a.c", &["-O2", "-ffunction-sections", "-fdata-sections", "-faddrsig"]),
            ("a.cpp", &["-g", "-fno-exceptions", "-fno-threadsafe-statics"]),
        ] {
            let what = format!("{target} {source} {flags:?}");
            let for_target = format!("--target={target}");
            let compile = [&[&for_target, "-c", "-ffreestanding", "-o", "made.o", source], flags].concat();
            let compiled = run(&clang, folder, &compile);
            if compiled.is_err() {
                eprintln!("{what}: not compiled: {compiled:?}");
                assert!(!elf[..2].contains(&target), "{what}");
                continue;
            }
            let object = std::fs::read(folder.join("made.o"))?;
            let bare = round(&objcopy, folder, &object, &what)?;
            if !target.contains("windows") {
                same(&bare, &object, &what);
            }
        }
    }
    Ok(())
}
