//! Accidents with kpack that users reported: `offld check` names each.

use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::{Library, PATHS, archive, archive_with, code_object, installation, refused, remove};
use crate::support::{Work, expect_in, passed, with_llvm};

const ZSTD: &str = "zstd-per-kernel";
const PACK: &str = ".kpack/test_gfx90a.kpack";

pub(super) fn trials() -> Vec<Trial> {
    vec![
        accident("kpack::accident::no_archive", no_archive),
        accident("kpack::accident::moved_library", moved_library),
        accident("kpack::accident::archive_of_another_build", other_build),
        accident("kpack::accident::swapped_archives", swapped),
        accident("kpack::accident::wrong_label", wrong_label),
        accident("kpack::accident::variant_hides_the_full_archive", variant),
        accident("kpack::accident::numbers_of_another_count", numbers),
        accident("kpack::accident::lost_variant", lost_variant),
        accident("kpack::accident::code_is_still_embedded", embedded),
        accident("kpack::accident::wrong_size", wrong_size),
        accident("kpack::accident::architecture_not_listed", not_listed),
        accident("kpack::accident::keys_without_numbers", no_numbers),
        accident("kpack::accident::cut_off", cut_off),
        accident("kpack::accident::damaged_frame", damaged_frame),
    ]
}

fn accident(name: &str, run: fn() -> Result<(), Failed>) -> Trial {
    with_llvm(name, move || {
        run()?;
        passed()
    })
}

fn installed() -> Result<Work, Failed> {
    let work = Work::new();
    installation(&work, ZSTD)?;
    Ok(work)
}

/// ROCm/TheRock#5446: no wheel had RCCL's archives.
fn no_archive() -> Result<(), Failed> {
    let work = installed()?;
    remove(&work, PACK)?;
    remove(&work, ".kpack/test_gfx942.kpack")?;
    let text = refused(&work, &["lib/libtest.so"])?;
    expect_in(&text, "no kpack archive ../.kpack/test_@GFXARCH@.kpack")
}

/// ROCm/rocm-systems#7069: the library is loaded from another folder than the archives'.
fn moved_library() -> Result<(), Failed> {
    let work = installed()?;
    std::fs::create_dir_all(work.path().join("elsewhere/deep"))?;
    std::fs::copy(
        work.path().join("lib/libtest.so"),
        work.path().join("elsewhere/deep/libtest.so"),
    )?;
    expect_in(
        &refused(&work, &["elsewhere/deep/libtest.so"])?,
        "looked for in",
    )
}

/// ROCm/rocm-libraries#8660: host and device parts of different builds.
fn other_build() -> Result<(), Failed> {
    let work = installed()?;
    remove(&work, ".kpack/test_gfx942.kpack")?;
    archive(
        &work,
        PACK,
        ZSTD,
        &[["lib/libother.so#0", "gfx90a", "gfx90a.0"]],
    )?;
    expect_in(
        &refused(&work, &["lib/libtest.so"])?,
        "test_gfx90a.kpack has no code of lib/libtest.so, but of lib/libother.so",
    )
}

fn swapped() -> Result<(), Failed> {
    let work = installed()?;
    let folder = work.path().join(".kpack");
    std::fs::rename(
        folder.join("test_gfx942.kpack"),
        folder.join("test_gfx90a.kpack"),
    )?;
    expect_in(
        &refused(&work, &["lib/libtest.so"])?,
        "is named for gfx90a, but has code for gfx942",
    )
}

/// The table of contents has another architecture than the code object.
fn wrong_label() -> Result<(), Failed> {
    let work = installed()?;
    archive(
        &work,
        PACK,
        ZSTD,
        &[
            ["lib/libtest.so#0", "gfx90a", "gfx942.0"],
            ["lib/libtest.so#1", "gfx90a", "gfx90a.1"],
        ],
    )?;
    expect_in(
        &refused(&work, &["lib/libtest.so"])?,
        "its own header is for amdgcn-amd-amdhsa (gfx942)",
    )
}

/// ROCm/rocm-systems#9953, ROCm/TheRock#7081: an archive for `xnack-` has a few code objects, and
/// the loader does not look into the full one.
fn variant() -> Result<(), Failed> {
    let work = installed()?;
    code_object(&work, "variant", "gfx90a:xnack-", "kernel0")?;
    archive(
        &work,
        ".kpack/test_gfx90a:xnack-.kpack",
        ZSTD,
        &[["lib/libtest.so#0", "gfx90a:xnack-", "variant"]],
    )?;
    expect_in(
        &refused(&work, &["lib/libtest.so"])?,
        "does not look for the code for gfx90a",
    )
}

/// ROCm/rocm-systems#6943: the table of contents and the structs count differently.
fn numbers() -> Result<(), Failed> {
    let work = installed()?;
    Library::new("lib/libtest.so", "lib/libtest.so", &PATHS, &[0, 1, 2, 3]).make(&work)?;
    let text = refused(&work, &["lib/libtest.so"])?;
    expect_in(&text, "for 2 of 4 registrations, such as lib/libtest.so#2")?;
    Library::new("lib/libtest.so", "lib/libtest.so", &PATHS, &[0]).make(&work)?;
    let text = refused(&work, &["lib/libtest.so"])?;
    expect_in(
        &text,
        "code of lib/libtest.so#1, which the program does not register",
    )
}

/// ROCm/rocm-systems#7645: the splitter dropped the code for xnack.
fn lost_variant() -> Result<(), Failed> {
    let work = installed()?;
    let entries = [
        ["lib/libtest.so#0", "gfx90a", "gfx90a.0"],
        ["lib/libtest.so#1", "gfx90a", "gfx90a.1"],
    ];
    archive_with(
        &work,
        PACK,
        ZSTD,
        &entries,
        &json!({"gfx_arches": ["gfx90a", "gfx90a:xnack+"]}),
    )?;
    expect_in(
        &refused(&work, &["lib/libtest.so"])?,
        "gfx90a:xnack+ is in the list of architectures, but",
    )
}

/// ROCm/rocm-libraries#8660: the host file was not transformed, so nobody opens the archives.
fn embedded() -> Result<(), Failed> {
    let work = installed()?;
    let library = Library {
        magic: "0x48495046",
        ..Library::new("lib/libtest.so", "lib/libtest.so", &PATHS, &[0, 1])
    };
    library.make(&work)?;
    expect_in(
        &refused(&work, &["lib/libtest.so"])?,
        "HIP never looks into the archives",
    )
}

/// ROCm/rocm-libraries#11392: the loader allocates what the table of contents says.
fn wrong_size() -> Result<(), Failed> {
    let work = installed()?;
    let entry = |ordinal: u32, size: u64| json!({"type": "hsaco", "ordinal": ordinal, "original_size": size});
    let size = std::fs::metadata(work.path().join("gfx90a.1"))?.len();
    let toc = json!({"lib/libtest.so#0": {"gfx90a": entry(0, 1 << 40)}, "lib/libtest.so#1": {"gfx90a": entry(1, size)}});
    let entries = [
        ["lib/libtest.so#0", "gfx90a", "gfx90a.0"],
        ["lib/libtest.so#1", "gfx90a", "gfx90a.1"],
    ];
    archive_with(&work, PACK, ZSTD, &entries, &json!({"toc": toc}))?;
    expect_in(
        &refused(&work, &["lib/libtest.so"])?,
        "the loader allocates by the table",
    )
}

fn not_listed() -> Result<(), Failed> {
    let work = installed()?;
    let entries = [
        ["lib/libtest.so#0", "gfx90a", "gfx90a.0"],
        ["lib/libtest.so#1", "gfx90a", "gfx90a.1"],
    ];
    archive_with(
        &work,
        PACK,
        ZSTD,
        &entries,
        &json!({"gfx_arches": ["gfx908"]}),
    )?;
    expect_in(
        &refused(&work, &["lib/libtest.so"])?,
        "gfx90a is not in the list of architectures",
    )
}

/// Archives of the prototype have no numbers.
fn no_numbers() -> Result<(), Failed> {
    let work = installed()?;
    archive(
        &work,
        PACK,
        ZSTD,
        &[["lib/libtest.so", "gfx90a", "gfx90a.0"]],
    )?;
    expect_in(
        &refused(&work, &["lib/libtest.so"])?,
        "has no number of a registration",
    )
}

/// The writer was killed before it filled in the offset of the table.
fn cut_off() -> Result<(), Failed> {
    let work = installed()?;
    let path = work.path().join(PACK);
    let mut bytes = std::fs::read(&path)?;
    bytes[8..16].fill(0);
    std::fs::write(&path, &bytes)?;
    expect_in(
        &refused(&work, &["lib/libtest.so"])?,
        "the file is incomplete",
    )?;
    std::fs::write(&path, &bytes[..bytes.len() / 2])?;
    expect_in(&refused(&work, &["lib/libtest.so"])?, "test_gfx90a.kpack")
}

fn damaged_frame() -> Result<(), Failed> {
    let work = installed()?;
    let path = work.path().join(PACK);
    let mut bytes = std::fs::read(&path)?;
    let at = 64 + 4 + 4 + 40;
    bytes[at..at + 8].fill(0xff);
    std::fs::write(&path, &bytes)?;
    expect_in(&refused(&work, &["lib/libtest.so"])?, "lib/libtest.so")?;
    Ok(())
}
