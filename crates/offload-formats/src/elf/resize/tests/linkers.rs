//! Tests that programs and libraries of every linker run with new section sizes, both directly and
//! after other tools have changed them.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;
use std::process::Command;

use object::{Object as _, ObjectSection as _};

use super::{index_of, with_pointers};
use crate::elf::resize::{NewSize, Patch, addresses};
use crate::reference::{Outcome, missing, output, run, tools};

const SOURCE: &str = r#"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
__asm__(".section .llvm.offloading,\"a\",@progbits\n.balign 16\nstart:\n.rept 40000\n.byte 1,2,3,4,5,6,7,8\n.endr\n.previous\n"
        ".section .pointer,\"aw\",@progbits\n.balign 8\n"
        "images: .quad start\nrows: .quad first\nfirst: .quad start, start + 1\n.previous\n");
extern const unsigned char *const images __attribute__((visibility("hidden")));
extern const unsigned char **const rows __attribute__((visibility("hidden")));
static const char *volatile table[] = { "one", "two" };
static int zeros[3000];
int check(void) {
    long size = atol(getenv("SIZE"));
    for (long at = 0; at < size; at++) if (images[at] != at % 8 + 1) return 1;
    for (long at = 0; at < atol(getenv("ROWS")); at++) if (rows[at] != images + at) return 4;
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
/// Command lines of tools. `FILE` represents the program.
const TOOLS: [&[&[&str]]; 5] = [
    &[],
    &[&["strip", "FILE"]],
    &[&["llvm-strip", "FILE"]],
    &[&["objcopy", "--strip-debug", "FILE"]],
    &[
        &[
            "patchelf",
            "--set-rpath",
            "/a/path/long/enough/to/move/things/about/in/the/file",
            "FILE",
        ],
        &["strip", "FILE"],
    ],
];

/// Writes `data` as a program or library, applies each tool to it, and runs the result.
fn check(folder: &Path, kind: &str, data: &[u8], size: usize, rows: usize) -> Outcome {
    for commands in TOOLS {
        let name = if kind == "library" {
            "libchanged.so"
        } else {
            "changed"
        };
        let path = folder.join(name);
        std::fs::write(&path, data)?;
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(0o755))?;
        for command in commands {
            let (tool, args) = command.split_first().ok_or("a tool")?;
            let Some([tool]) = tools([tool]) else {
                continue;
            };
            run(
                &tool,
                folder,
                args.iter()
                    .map(|arg| if *arg == "FILE" { name } else { arg }),
            )?;
        }
        let program = if kind == "library" {
            folder.join("user")
        } else {
            path
        };
        let mut command = Command::new(program);
        command
            .envs([("SIZE", size.to_string()), ("ROWS", rows.to_string())])
            .env("LD_LIBRARY_PATH", folder);
        let done = output(&mut command)?;
        let what = format!("{kind}, {size} bytes, {rows} rows, {commands:?}");
        assert_eq!(
            (done.status.code(), &done.stdout[..]),
            (Some(0), &b"right\n"[..]),
            "{what}"
        );
    }
    Ok(())
}

/// Returns the file with `size` bytes of images and an updated pointer to them, and with an array
/// of `rows` pointers unless `rows` is 0.
fn with_images(
    data: &[u8],
    size: usize,
    rows: usize,
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let contents: Vec<u8> = (0..size).map(|at| (at % 8 + 1) as u8).collect();
    let section = index_of(data, ".llvm.offloading");
    let (new, array) = addresses(
        data,
        &[NewSize {
            section,
            size: size as u64,
            may_move: false,
        }],
        rows,
    )?;
    let file = object::File::parse(data)?;
    let pointers = file.section_by_name(".pointer").ok_or("pointers")?;
    let old = file
        .section_by_name(".llvm.offloading")
        .ok_or("images")?
        .address();
    let mut moved = vec![(old, new[0])];
    if rows > 0 {
        let before = file
            .section_by_name(".data.rel.pointers")
            .map(|section| section.address());
        moved.push((before.unwrap_or(pointers.address() + 16), array));
    }
    let mut patches = Vec::new();
    let addends = file
        .section_by_name(".rela.dyn")
        .map(|section| (section, 2, 3));
    for (section, first, step) in [(pointers, 0, 1)].into_iter().chain(addends) {
        let (offset, _) = section.file_range().ok_or("bytes")?;
        for (at, word) in section
            .data()?
            .chunks_exact(8)
            .enumerate()
            .skip(first)
            .step_by(step)
        {
            if let Some((_, new)) = moved.iter().find(|(old, _)| word == old.to_le_bytes()) {
                patches.push(Patch {
                    offset: offset + at as u64 * 8,
                    bytes: new.to_le_bytes().to_vec(),
                });
            }
        }
    }
    assert!(!patches.is_empty());
    let rows: Vec<u64> = (0..rows as u64).map(|row| new[0] + row).collect();
    Ok(with_pointers(
        data,
        &[(section, &contents)],
        &patches,
        &rows,
    )?)
}

/// Checks a file that gets pointers twice.
fn with_more_rows(folder: &Path, kind: &str, before: &[u8], readelf: &Path) -> Outcome {
    for size in [50_000, 330_000] {
        let mut now = with_images(before, size, 12)?;
        std::fs::write(folder.join("after"), &now)?;
        run(readelf, folder, ["-aW", "after"])?;
        check(folder, kind, &now, size, 12)?;
        now = with_images(&now, size + 30_000, 20)?;
        check(folder, kind, &now, size + 30_000, 20)?;
    }
    Ok(())
}

#[test]
fn files_of_every_linker_run() -> Outcome {
    let folder = tempfile::tempdir()?;
    let folder = folder.path();
    let Some([clang, readelf]) = tools(["clang", "readelf"]) else {
        return Ok(());
    };
    if !cfg!(target_arch = "x86_64") {
        missing("x86-64");
        return Ok(());
    }
    std::fs::write(folder.join("check.c"), SOURCE)?;
    std::fs::write(
        folder.join("user.c"),
        "int check(void); int main(void) { return check(); }",
    )?;
    for linker in LINKERS {
        let Some([linker]) = tools([linker]) else {
            continue;
        };
        for (kind, flags) in KINDS {
            let output = if kind == "library" {
                "libchanged.so"
            } else {
                "before"
            };
            let linked_by = format!("--ld-path={}", linker.display());
            run(
                &clang,
                folder,
                [&linked_by, "check.c", "-o", output]
                    .into_iter()
                    .chain(flags.iter().copied()),
            )?;
            if kind == "library" {
                run(&clang, folder, ["user.c", "-L.", "-lchanged", "-o", "user"])?;
            }
            let before = std::fs::read(folder.join(output))?;
            for size in [0, 50_000] {
                let after = with_images(&before, size, 0)?;
                let page = if kind == "64k" { 0x10000 } else { 0x1000 };
                assert!(
                    before.len() - after.len() + 2 * page > 320_000 - size,
                    "{linker:?} {kind}: {}",
                    after.len()
                );
                std::fs::write(folder.join("after"), &after)?;
                // readelf writes its warnings to stderr, and `run` fails on any output there.
                run(&readelf, folder, ["-aW", "after"])?;
                check(folder, kind, &after, size, 0)?;
                check(folder, kind, &with_images(&after, 330_000, 0)?, 330_000, 0)?;
            }
            with_more_rows(folder, kind, &before, &readelf)?;
        }
    }
    Ok(())
}
