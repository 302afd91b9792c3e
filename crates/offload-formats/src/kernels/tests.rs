//! Tests of the kernel readers on damaged images. `tests/suite` compares results for intact images
//! with the vendors' tools.

use super::*;
use crate::reference::{Outcome, run, tools};

const SOURCE: &str = "__attribute__((amdgpu_kernel)) void first(int *a) { a[1] = 2; }\n\
                      __attribute__((amdgpu_kernel)) void second(int *a) { a[3] = a[4]; }\n";

#[test]
fn damaged_images_are_errors_or_other_kernels() -> Outcome {
    let Some([clang]) = tools(["clang"]) else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    std::fs::write(dir.path().join("k.c"), SOURCE)?;
    run(
        &clang,
        dir.path(),
        [
            "--target=amdgcn-amd-amdhsa",
            "-mcpu=gfx90a",
            "-nogpulib",
            "-O1",
            "k.c",
            "-o",
            "k.co",
        ],
    )?;
    let image = std::fs::read(dir.path().join("k.co"))?;
    let kernels = read(&image)?;
    let summary: Vec<_> = kernels
        .iter()
        .map(|kernel| {
            (
                kernel.name.as_str(),
                kernel.arguments,
                kernel.code_size > Some(0),
            )
        })
        .collect();
    assert_eq!(
        summary,
        [("first", Some(8), true), ("second", Some(8), true)]
    );
    for len in (0..image.len()).step_by(37) {
        let _ = read(&image[..len]);
    }
    // Each byte of the note's first kernel, and every seventh of the rest.
    let note = image
        .windows(6)
        .position(|word| word == b"AMDGPU")
        .ok_or("no note")?;
    for at in (note..note + 600).chain((0..image.len()).step_by(7)) {
        for value in [0, 0x7f, 0xdf, 0xff] {
            let mut changed = image.clone();
            changed[at] = value;
            let _ = read(&changed);
        }
    }
    Ok(())
}

/// ROCr's own kernels (code object version 1) have notes padded to four bytes in a section that is
/// aligned to eight.
#[test]
fn notes_are_padded_to_four_bytes_whatever_their_section_says() -> Outcome {
    let Some([clang]) = tools(["clang"]) else {
        return Ok(());
    };
    let dir = tempfile::tempdir()?;
    let note = r#"__asm__(".section .note,\"a\",@note\n.p2align 3\n.long 4, 12, 2\n.asciz \"AMD\"\n.zero 12\n.text");"#;
    std::fs::write(dir.path().join("k.c"), format!("{note}\n{SOURCE}"))?;
    run(
        &clang,
        dir.path(),
        [
            "--target=amdgcn-amd-amdhsa",
            "-mcpu=gfx90a",
            "-nogpulib",
            "-O1",
            "k.c",
            "-o",
            "k.co",
        ],
    )?;
    let kernels = read(&std::fs::read(dir.path().join("k.co"))?)?;
    let names: Vec<&str> = kernels.iter().map(|kernel| kernel.name.as_str()).collect();
    assert_eq!(names, ["first", "second"]);
    Ok(())
}

#[test]
fn a_cubin_with_truncated_attributes_is_an_error() {
    // `.nv.info`: an attribute with a value of 16 bytes, of which 4 are present.
    assert!(cubin_attributes(&[4, 0x2f, 16, 0, 1, 2, 3, 4], ".nv.info").is_err());
    assert_eq!(
        cubin_attributes(&[4, 0x2f, 2, 0, 1, 2, 3, 0x19, 8, 0], ".nv.info").unwrap(),
        [(0x2f, &[1, 2][..]), (0x19, &[8, 0])]
    );
    assert!(cubin_attributes(&[4, 0x2f, 2], ".nv.info").is_err());
}
