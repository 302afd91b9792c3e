//! `offld prune` on device image files, device libraries, and images in plain data. Image files are
//! removed as a whole; the others stay unchanged.

use libtest_mimic::Trial;

use crate::check::modules::{
    code_object, device_libraries, fatbinary, hip_library, library_with_data,
};
use crate::edit::{images, refused, stdout_of, targets, wheels};
use crate::support::{
    Outcome, Work, at_most_memory, ensure, expect_equal, expect_in, expect_no_file, llvm, passed,
    run, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "edit::prune::a_file_that_is_an_image_goes_as_a_whole",
            whole_files,
        ),
        with_llvm(
            "edit::prune::a_member_that_is_an_image_goes_with_its_line_of_the_record",
            members,
        ),
        with_llvm("edit::prune::device_libraries_stay_as_they_are", libraries),
        with_llvm("edit::prune::images_in_data_stay_as_they_are", data),
        with_llvm("edit::prune::large_data_takes_no_memory", memory),
        with_llvm(
            "edit::prune::lto_ir_is_kept_dropped_and_extracted_as_it_is_stored",
            lto_ir,
        ),
    ]
}

fn whole_files() -> Outcome {
    let work = Work::new();
    std::fs::create_dir(work.path().join("d"))?;
    code_object(&work, "gfx942", "d/k_gfx942.co")?;
    code_object(&work, "gfx90a", "d/k_gfx90a.co")?;
    let stdout = stdout_of(&work, ["prune", "--keep", "gfx942", "d", "-d", "out"])?;
    expect_in(&stdout, "d/k_gfx90a.co: ")?;
    expect_in(&stdout, "removed, 1 of 1 images dropped: gfx90a")?;
    expect_no_file(&work.path().join("out/k_gfx90a.co"))?;
    expect_equal("images", "gfx942", &targets(&work, "out/k_gfx942.co")?)?;
    stdout_of(&work, ["prune", "--drop", "gfx90a", "d", "--dry-run"])?;
    ensure(
        work.path().join("d/k_gfx90a.co").exists(),
        || "removed by a dry run",
    )?;
    // Without `--allow-empty`, offld refuses to remove the last image of everything, or a file that
    // the command line names.
    for words in [
        ["prune", "--keep", "gfx1100", "d", "--in-place"],
        ["prune", "--drop", "gfx90a", "d/k_gfx90a.co", "--in-place"],
    ] {
        expect_in(
            &refused(&work, words)?,
            "so nothing is left of the file; pass --allow-empty to remove it",
        )?;
    }
    expect_in(
        &refused(
            &work,
            [
                "prune",
                "--drop",
                "gfx90a",
                "d/k_gfx90a.co",
                "-o",
                "none.co",
            ],
        )?,
        "pass --allow-empty",
    )?;
    expect_no_file(&work.path().join("none.co"))?;
    ensure(
        work.path().join("d/k_gfx90a.co").exists() && work.path().join("d/k_gfx942.co").exists(),
        || "removed",
    )?;
    stdout_of(&work, ["prune", "--drop", "gfx90a", "d", "--in-place"])?;
    expect_no_file(&work.path().join("d/k_gfx90a.co"))?;
    stdout_of(
        &work,
        [
            "prune",
            "--drop",
            "gfx942",
            "--allow-empty",
            "d/k_gfx942.co",
            "--in-place",
        ],
    )?;
    expect_no_file(&work.path().join("d/k_gfx942.co"))?;
    passed()
}

fn members() -> Outcome {
    let work = Work::new();
    wheels::package(&work, "package", "py3-none-any")?;
    for arch in ["gfx90a", "gfx942"] {
        for kernel in ["first", "second"] {
            code_object(&work, arch, &format!("package/some/{kernel}_{arch}.co"))?;
        }
    }
    wheels::pack(&work, "package", "some-1.0-py3-none-any.whl")?;
    let stdout = stdout_of(
        &work,
        [
            "prune",
            "--keep",
            "gfx942",
            "some-1.0-py3-none-any.whl",
            "-d",
            "out",
        ],
    )?;
    expect_in(
        &stdout,
        "2 of 4 images dropped: gfx90a; members removed: some/first_gfx90a.co and 1 more",
    )?;
    wheels::check(&work, "out/some-1.0-py3-none-any.whl")?;
    expect_equal(
        "images",
        "gfx942 gfx942",
        &targets(&work, "out/some-1.0-py3-none-any.whl")?,
    )?;
    let all = images(&work, "some-1.0-py3-none-any.whl")?;
    let kept: Vec<&String> = all
        .iter()
        .filter(|image| image.contains("gfx942"))
        .collect();
    ensure(
        images(&work, "out/some-1.0-py3-none-any.whl")?
            .iter()
            .collect::<Vec<_>>()
            == kept,
        || "other images",
    )?;
    let said_of_none = refused(
        &work,
        [
            "prune",
            "--keep",
            "sm_90",
            "some-1.0-py3-none-any.whl",
            "-d",
            "none",
        ],
    )?;
    expect_in(&said_of_none, "removing these images would leave ")?;
    passed()
}

fn libraries() -> Outcome {
    let work = Work::new();
    std::fs::create_dir(work.path().join("d"))?;
    device_libraries(&work, "d")?;
    hip_library(&work, &["gfx90a", "gfx942"], "d/lib.so")?;
    stdout_of(&work, ["prune", "--keep", "gfx90a", "d", "-d", "out"])?;
    expect_equal("images", "gfx90a", &targets(&work, "out/lib.so")?)?;
    for name in ["ocml.bc", "libdevice.10.bc"] {
        let read = |folder: &str| std::fs::read(work.path().join(folder).join(name));
        ensure(read("d")? == read("out")?, || format!("{name} has changed"))?;
    }
    passed()
}

fn data() -> Outcome {
    let work = Work::new();
    library_with_data(&work, &fatbinary(&[80, 90]), "lib.so")?;
    let messages = stdout_of(
        &work,
        ["prune", "--keep", "sm_90", "lib.so", "-o", "out.so"],
    )?;
    expect_in(&messages, "unchanged; 2 images in data sections stay")?;
    ensure(
        std::fs::read(work.path().join("lib.so"))? == std::fs::read(work.path().join("out.so"))?,
        || "changed",
    )?;
    work.file("other.ptx", crate::check::modules::ptx("sm_80"));
    let messages = refused(
        &work,
        [
            "replace",
            "lib.so",
            "--image",
            "0=other.ptx",
            "-o",
            "out.so",
        ],
    )?;
    expect_in(
        &messages,
        "cannot change images in data sections: the program loads them itself",
    )?;
    passed()
}

fn memory() -> Outcome {
    const SIZE: u64 = 256 << 20;
    const LIMIT: u64 = 64;
    let work = Work::new();
    work.file("k.fatbin", fatbinary(&[80]));
    let data = ".section .ldata,\"awl\",@progbits\n";
    work.file("data.s", format!("{data}.byte 1\n.zero {SIZE}\n.incbin \"k.fatbin\"\n.section .note.GNU-stack,\"\",@progbits\n"));
    run(work
        .command(llvm("clang"))
        .args(["-shared", "-nostdlib", "data.s", "-o", "lib.so"]))?;
    for words in [
        &["inspect", "lib.so"][..],
        &["size", "lib.so"],
        &["prune", "--keep", "sm_90", "lib.so", "-o", "out.so"],
    ] {
        at_most_memory(
            work.command(crate::support::offld())
                .args(words)
                .stdout(std::process::Stdio::null()),
            LIMIT,
        )?;
    }
    expect_equal("images", "sm_80", &targets(&work, "lib.so")?)?;
    passed()
}

/// LTO IR as `nvcc -gencode arch=compute_80,code=lto_80` stores it: marked as compressed with zstd,
/// and scrambled.
fn lto_ir() -> Outcome {
    const ENTRY: usize = 16;
    let work = Work::new();
    let mut bytes = fatbinary(&[80, 90]);
    let stored = bytes[ENTRY + 8..ENTRY + 16].to_vec();
    bytes[ENTRY] = 8;
    bytes[ENTRY + 16..ENTRY + 20].copy_from_slice(&stored[..4]);
    bytes[ENTRY + 40..ENTRY + 48].copy_from_slice(&0x18011u64.to_le_bytes());
    bytes[ENTRY + 56..ENTRY + 64].copy_from_slice(&123_456u64.to_le_bytes());
    let size = u64::from_le_bytes(stored.try_into().map_err(|_| "no size")?) as usize;
    work.file("k.fatbin", &bytes);
    for part in ["lto-ir", "sm_80", "121K"] {
        expect_in(&stdout_of(&work, ["inspect", "k.fatbin"])?, part)?;
    }
    expect_in(&stdout_of(&work, ["size", "k.fatbin"])?, "lto_80")?;
    stdout_of(&work, ["inspect", "--extract", "images", "k.fatbin"])?;
    let extracted = std::fs::read(
        work.path()
            .join("images/k.fatbin.0.nvptx64-nvidia-cuda-sm_80.bin"),
    )?;
    ensure(
        extracted == bytes[ENTRY + 64..ENTRY + 64 + size],
        || "not what is stored",
    )?;
    for (pattern, left) in [("sm_80", "sm_80"), ("sm_90", "sm_90")] {
        stdout_of(
            &work,
            ["prune", "--keep", pattern, "k.fatbin", "-o", "small.fatbin"],
        )?;
        expect_equal("images", left, &targets(&work, "small.fatbin")?)?;
    }
    stdout_of(
        &work,
        [
            "recompress",
            "--level",
            "19",
            "k.fatbin",
            "-o",
            "again.fatbin",
        ],
    )?;
    expect_equal("images", "sm_80 sm_90", &targets(&work, "again.fatbin")?)?;
    let stderr = refused(
        &work,
        [
            "replace",
            "k.fatbin",
            "--image",
            "0=k.fatbin",
            "-o",
            "other.fatbin",
            "--force",
        ],
    )?;
    expect_in(&stderr, "cannot replace LTO IR")?;
    passed()
}
