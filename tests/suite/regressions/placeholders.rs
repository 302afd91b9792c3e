//! The registration in a dry run, with placeholders for the images that it does not link: the same
//! as LLVM's wrapper.

use libtest_mimic::{Failed, Trial};

use crate::kit::{AMD, Image};
use crate::support::{Outcome, Work, ensure, expect_equal, made, passed, run, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    vec![with_llvm(
        "regressions::g04a_placeholders_of_a_dry_run_are_llvms",
        placeholders,
    )]
}

/// The variables and functions for images in a printed module, without sections and alignments,
/// which differ intentionally.
fn images_of(text: &str) -> String {
    let of_images = text
        .lines()
        .filter(|line| line.starts_with("@.fatbin_") || line.starts_with("@.sycl_offloading"));
    let lines =
        of_images.map(|line| line.split(", section \"").next().unwrap_or(line).to_owned() + "\n");
    lines.collect()
}

fn module(work: &Work, ours: bool, object: &str) -> Result<String, Failed> {
    let words = [object, "--dry-run", "--print-wrapped-module", "-o", "a.out"];
    let mut wrapper = if ours {
        work.command(made().links.join("clang-linker-wrapper"))
    } else {
        work.reference([])
    };
    wrapper
        .args([
            "--host-triple=x86_64-unknown-linux-gnu",
            "--linker-path=/usr/bin/ld",
        ])
        .args(words);
    wrapper.env("OFFLD_CLANG", crate::support::llvm("clang"));
    let printed = crate::support::output(&mut wrapper)?;
    ensure(printed.status.success(), || {
        crate::support::shown(&wrapper, &printed)
    })?;
    Ok(crate::support::text(&printed.stdout) + &crate::support::text(&printed.stderr))
}

fn placeholders() -> Outcome {
    let work = Work::new();
    let image = |triple, arch, kind| Image {
        triple,
        arch,
        kind,
        bytes: b"code",
    };
    work.fat(
        "hip.o",
        &[image(AMD, "gfx908", "hip"), image(AMD, "gfx90a", "hip")],
    )?;
    work.fat(
        "sycl.o",
        &[image("spirv64-unknown-unknown", "generic", "sycl")],
    )?;
    work.fat(
        "sycl2.o",
        &[
            image("spirv64-unknown-unknown", "generic", "sycl"),
            image("spirv64-unknown-unknown", "other", "sycl"),
        ],
    )?;
    for object in ["hip.o", "sycl.o", "sycl2.o"] {
        let (ours, theirs) = (
            images_of(&module(&work, true, object)?),
            images_of(&module(&work, false, object)?),
        );
        ensure(!ours.is_empty(), || "no images")?;
        expect_equal(object, &theirs, &ours)?;
    }
    // A real link creates a bundle.
    run(&mut work.wrapper(["hip.o", "-o", "a.out"]))?;
    passed()
}
