//! Faults in the reading and selection of inputs: F10, F14, F20, F24.

use libtest_mimic::{Failed, Trial};

use crate::kit::Image;
use crate::support::{
    OFFLOAD, Outcome, Release, Work, expect_equal, expect_in, expect_not_in, llvm, made, missing,
    output, passed, run, run_failing, run_offloaded, shown, test, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("faults::f10_the_archive_member_is_named", f10),
        with_llvm(
            "faults::f14_whatever_pulls_a_member_brings_its_device_code",
            f14_pulled,
        ),
        test(
            "releases::f20_objects_of_llvm_19_keep_their_entry_table",
            f20,
        ),
        with_llvm(
            "faults::f24_bad_fields_are_told_with_their_place",
            f24_fields,
        ),
        with_llvm("faults::f24_no_byte_of_an_object_can_crash_us", f24_bytes),
        with_llvm("faults::f24_files_cut_short", f24_cut),
    ]
}

/// The offset of the OffloadBinary in an object.
fn packed_at(object: &[u8]) -> usize {
    object
        .windows(4)
        .position(|bytes| bytes == [0x10, 0xff, 0x10, 0xad])
        .expect("an OffloadBinary")
}

fn f10() -> Outcome {
    let work = Work::new();
    let object = work.fat("badmem.o", &[Image::amd("gfx90a", "bad")])?;
    let mut bytes = std::fs::read(&object)?;
    let at = packed_at(&bytes);
    bytes[at + 8..at + 16].copy_from_slice(&u64::MAX.to_le_bytes());
    std::fs::write(object, bytes)?;
    work.archive("libbad.a", &["badmem.o"])?;
    let error = run_failing(&mut work.wrapper(["-o", "x", "libbad.a"]))?;
    expect_in(
        &error,
        "libbad.a(badmem.o): .llvm.offloading+0x0: size field past the end",
    )?;
    expect_not_in(
        &run_failing(&mut work.reference(["-o", "x", "libbad.a"]))?,
        "badmem",
    )?;
    passed()
}

/// The contents of the only image of a link of `words`, by offld and by LLVM.
fn linked_by_both(work: &Work, words: &[&str]) -> Result<(String, String), Failed> {
    let content = |images: Vec<(String, String)>| {
        images
            .into_iter()
            .map(|(_, bytes)| bytes)
            .collect::<Vec<_>>()
            .join(" | ")
    };
    work.forget();
    run(&mut work.wrapper(words.iter().copied()))?;
    let ours = content(work.images()?);
    work.forget();
    run(&mut work.reference(words.iter().copied()))?;
    Ok((ours, content(work.images()?)))
}

/// A shared library with an undefined symbol, a common symbol, and a call in GCC's intermediate
/// code.
fn f14_pulled() -> Outcome {
    if which::which("gcc").is_err() {
        return missing("gcc");
    }
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "a")])?;
    work.fat_with(
        "m.o",
        &[Image::amd("gfx90a", "m")],
        "int x = 1; int f(void) { return 0; }",
    )?;
    work.archive("libh.a", &["m.o"])?;
    work.file("f.c", "int f(void); int g(void) { return f(); }");
    work.file("x.c", "int x;");
    work.run(
        llvm("clang"),
        ["-shared", "-fPIC", "-nostdlib", "f.c", "-o", "libs.so"],
    )?;
    work.run(llvm("clang"), ["-fcommon", "-c", "x.c"])?;
    work.run(
        llvm("clang"),
        ["-flto", "-fcommon", "-c", "x.c", "-o", "x.bc"],
    )?;
    work.run("gcc", ["-flto", "-c", "f.c", "-o", "gcc.o"])?;
    for input in ["libs.so", "x.o", "x.bc", "gcc.o"] {
        let (ours, _) = linked_by_both(&work, &["-o", "x", "a.o", input, "libh.a"])?;
        expect_equal(input, "am", &ours)?;
    }
    passed()
}

fn f20() -> Outcome {
    let Some(release) = Release::of(19) else {
        return missing("LLVM 19 (make setup-releases)");
    };
    let clang = release.tool("clang");
    let work = Work::new();
    let source = "#include <stdio.h>\nint main() { int on = 0;\n#pragma omp target map(tofrom: on)\n on = 7;\n printf(\"%d\\n\", on); }\n";
    work.file("p.c", source);
    let mut compile = work.command(&clang);
    run(compile
        .args(OFFLOAD)
        .args(&release.compile)
        .args(["-O1", "-c", "p.c", "-o", "p.o"]))?;
    let link = |wrapper: Option<&std::path::Path>, clang: &std::path::Path, name: &str| {
        let mut link = work.command(clang);
        link.args(OFFLOAD).arg("-L").arg(&release.lib);
        if let Some(folder) = wrapper {
            link.arg("-B").arg(folder);
        }
        run(link.args(["p.o", "-o", name]))
    };
    link(Some(&made().links), &clang, "ours")?;
    let printed = run_offloaded(work.command("./ours").env("LD_LIBRARY_PATH", &release.lib))?;
    expect_equal("stdout", "7\n", &printed)?;
    // LLVM 22's wrapper links them without a message, and the program finds no entries.
    link(None, &llvm("clang"), "theirs")?;
    let mut theirs = work.command("./theirs");
    theirs
        .env("LD_LIBRARY_PATH", &release.lib)
        .env("OMP_TARGET_OFFLOAD", "mandatory");
    let ended = output(&mut theirs)?;
    if ended.status.success() {
        return Err(format!(
            "LLVM 22's wrapper links objects of LLVM 19 rightly: {}",
            shown(&theirs, &ended)
        )
        .into());
    }
    passed()
}

fn f24_fields() -> Outcome {
    let work = Work::new();
    let object = work.fat("a.o", &[Image::amd("gfx90a", "image")])?;
    let good = std::fs::read(&object)?;
    let at = packed_at(&good);
    for (field, what, place) in [
        (8, "size field past the end", "+0x0"),
        (16, "entry past the end", "+0x0"),
        (40, "string table past the end", "+0x20"),
        (48, "number of strings past the end", "+0x20"),
        (56, "image offset past the end", "+0x20"),
        (64, "image size past the end", "+0x20"),
        (72, "string past the end", "+0x48"),
        (80, "string past the end", "+0x48"),
    ] {
        let mut bytes = good.clone();
        bytes[at + field..at + field + 8].copy_from_slice(&(1u64 << 40).to_le_bytes());
        std::fs::write(&object, bytes)?;
        let error = run_failing(&mut work.wrapper(["-o", "x", "a.o"]))?;
        expect_in(
            &error,
            &format!("error: a.o: .llvm.offloading{place}: {what}\n"),
        )?;
        work.expect_no_temps()?;
        if field == 64 {
            let theirs = output(&mut work.reference(["-o", "x", "a.o"]))?;
            expect_equal(
                "LLVM ends by itself with",
                "None",
                &format!("{:?}", theirs.status.code()),
            )?;
            std::fs::remove_dir_all(work.path().join("tmp"))?;
        }
    }
    // The second of two OffloadBinaries. Its offset counts from the start of the section.
    let two = work.fat(
        "two.o",
        &[
            Image::amd("gfx90a", "first"),
            Image::amd("gfx90a", "second"),
        ],
    )?;
    let mut bytes = std::fs::read(&two)?;
    let at = packed_at(&bytes);
    let size = usize::from(bytes[at + 8]);
    bytes[at + size + 64..at + size + 72].copy_from_slice(&(1u64 << 40).to_le_bytes());
    std::fs::write(&two, bytes)?;
    let error = run_failing(&mut work.wrapper(["-o", "x", "two.o"]))?;
    expect_in(
        &error,
        &format!(
            "error: two.o: .llvm.offloading+{:#x}: image size past the end\n",
            size + 0x20
        ),
    )?;
    passed()
}

/// Changes each byte of the section and of the ELF header in turn. The result must be a link or an
/// error.
fn f24_bytes() -> Outcome {
    let work = Work::new();
    let object = work.fat("a.o", &[Image::amd("gfx90a", "image")])?;
    let good = std::fs::read(&object)?;
    let at = packed_at(&good);
    let size = usize::from(good[at + 8]);
    for place in (0..64).chain(at..at + size) {
        let mut bytes = good.clone();
        bytes[place] ^= 0xff;
        std::fs::write(&object, bytes)?;
        let mut command = work.wrapper(["--dry-run", "-o", "x", "a.o"]);
        let ended = output(&mut command)?;
        let error = text(&ended.stderr);
        let is_expected = ended.status.code() == Some(0)
            || (ended.status.code() == Some(1) && error.contains(" a.o: "));
        if !is_expected || error.contains("panicked") {
            return Err(format!(
                "with byte {place:#x} of a.o changed: {}",
                shown(&command, &ended)
            )
            .into());
        }
    }
    passed()
}

fn f24_cut() -> Outcome {
    let work = Work::new();
    let object = work.fat("a.o", &[Image::amd("gfx90a", "image")])?;
    let archive = work.archive("lib.a", &["a.o"])?;
    for (file, whole) in [
        (&object, std::fs::read(&object)?),
        (&archive, std::fs::read(&archive)?),
    ] {
        let name = file
            .file_name()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        for length in [16, 20, 63, 64, 100, whole.len() / 2, whole.len() - 8] {
            std::fs::write(file, &whole[..length])?;
            let mut command = work.wrapper(["--dry-run", "-o", "x", &name]);
            let ended = output(&mut command)?;
            let error = text(&ended.stderr);
            let is_expected =
                ended.status.code() == Some(0) || error.contains(&format!("error: {name}"));
            if !is_expected || error.contains("panicked") {
                return Err(
                    format!("{name} cut to {length} bytes: {}", shown(&command, &ended)).into(),
                );
            }
        }
        std::fs::write(file, whole)?;
    }
    passed()
}
