//! Programs and libraries of every linker whose sections have other sizes run, as they are and after tools that change them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use object::{Object as _, ObjectSection as _};

use super::{index_of, resized};
use crate::formats::elf::resize::{NewSize, Patch, addresses};
use crate::formats::reference::{Outcome, missing, run, tools};

const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
__asm__(".section .llvm.offloading,\"a\",@progbits\n.balign 16\nstart:\n.rept 40000\n.byte 1,2,3,4,5,6,7,8\n.endr\n.previous\n"
        ".section .pointer,\"aw\",@progbits\n.balign 8\nimages: .quad start\n.previous\n");
extern const unsigned char *const images __attribute__((visibility("hidden")));
static const char *volatile table[] = { "one", "two" };
static int zeros[3000];
int check(void) {
    long size = atol(getenv("SIZE"));
    for (long at = 0; at < size; at++) if (images[at] != at % 8 + 1) return 1;
    for (int at = 0; at < 3000; at++) if (zeros[at]) return 2;
    return strcmp(table[1], "two") ? 3 : puts("right") < 0;
}
#ifndef LIBRARY
int main(void) { return check(); }
#endif
"#;
const LINKERS: [&str; 4] = ["ld.lld", "ld.bfd", "ld.gold", "mold"];
const KINDS: [(&str, &[&str]); 4] = [
    ("pie", &["-pie", "-fPIE"]),
    ("fixed", &["-no-pie", "-fno-pie"]),
    ("library", &["-shared", "-fPIC", "-DLIBRARY"]),
    ("64k", &["-pie", "-fPIE", "-Wl,-z,max-page-size=65536"]),
];
/// The command lines of tools, `FILE` being the program.
const TOOLS: [&[&[&str]]; 5] = [
    &[],
    &[&["strip", "FILE"]],
    &[&["llvm-strip", "FILE"]],
    &[&["objcopy", "--strip-debug", "FILE"]],
    &[&["patchelf", "--set-rpath", "/a/path/long/enough/to/move/things/about/in/the/file", "FILE"], &["strip", "FILE"]],
];

/// Writes `data` as a program or a library, with what each tool makes of it, and runs it.
fn check(folder: &Path, kind: &str, data: &[u8], size: usize) -> Outcome {
    for commands in TOOLS {
        let name = if kind == "library" { "libchanged.so" } else { "changed" };
        let path = folder.join(name);
        std::fs::write(&path, data)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        for command in commands {
            let (tool, args) = command.split_first().ok_or("a tool")?;
            let Some([tool]) = tools([tool]) else { continue };
            run(&tool, folder, args.iter().map(|arg| if *arg == "FILE" { name } else { arg }))?;
        }
        let program = if kind == "library" { folder.join("user") } else { path };
        let done = Command::new(program).env("SIZE", size.to_string()).env("LD_LIBRARY_PATH", folder).output()?;
        assert_eq!((done.status.code(), &done.stdout[..]), (Some(0), &b"right\n"[..]), "{kind}, {size} bytes, {commands:?}");
    }
    Ok(())
}

/// The file with `size` bytes of images, and the pointer to them made right.
fn with_images(data: &[u8], size: usize) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let contents: Vec<u8> = (0..size).map(|at| (at % 8 + 1) as u8).collect();
    let section = index_of(data, ".llvm.offloading");
    let new = addresses(data, &[NewSize { section, size: size as u64 }])?;
    let file = object::File::parse(data)?;
    let old = file.section_by_name(".llvm.offloading").ok_or("images")?.address();
    let mut patches = Vec::new();
    for section in [".rela.dyn", ".pointer"].iter().filter_map(|name| file.section_by_name(name)) {
        let (offset, _) = section.file_range().ok_or("bytes")?;
        let words = section.data()?.chunks_exact(8).enumerate().filter(|(_, word)| *word == old.to_le_bytes());
        patches.extend(words.map(|(at, _)| Patch { offset: offset + at as u64 * 8, bytes: new[0].to_le_bytes().to_vec() }));
    }
    assert!(!patches.is_empty());
    Ok(resized(data, &[(section, &contents)], &patches)?)
}

#[test]
fn files_of_every_linker_run() -> Outcome {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let Some([clang, readelf]) = tools(["clang", "readelf"]) else { return Ok(()) };
    if !cfg!(target_arch = "x86_64") {
        missing("x86-64");
        return Ok(());
    }
    std::fs::write(folder.join("check.c"), SOURCE)?;
    std::fs::write(folder.join("user.c"), "int check(void); int main(void) { return check(); }")?;
    for linker in LINKERS {
        let Some([linker]) = tools([linker]) else { continue };
        for (kind, flags) in KINDS {
            let output = if kind == "library" { "libchanged.so" } else { "before" };
            let linked_by = format!("--ld-path={}", linker.display());
            run(&clang, folder, [&linked_by, "check.c", "-o", output].into_iter().chain(flags.iter().copied()))?;
            if kind == "library" {
                run(&clang, folder, ["user.c", "-L.", "-lchanged", "-o", "user"])?;
            }
            let before = std::fs::read(folder.join(output))?;
            for size in [0, 50_000] {
                let after = with_images(&before, size)?;
                let page = if kind == "64k" { 0x10000 } else { 0x1000 };
                assert!(before.len() - after.len() + 2 * page > 320_000 - size, "{linker:?} {kind}: {}", after.len());
                std::fs::write(folder.join("after"), &after)?;
                // What it complains of, it writes to stderr.
                run(&readelf, folder, ["-aW", "after"])?;
                check(folder, kind, &after, size)?;
                check(folder, kind, &with_images(&after, 330_000)?, 330_000)?;
            }
        }
    }
    Ok(())
}
