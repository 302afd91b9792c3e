//! Fault F33: more than 2 GiB of device images in one program, and more than 3.

use std::sync::{Mutex, PoisonError};

use libtest_mimic::{Failed, Trial};

use crate::effort::rounds;
use crate::kit::{HOLES, Image};
use crate::support::{
    LLVM, Outcome, Work, at_most_memory, ensure, expect_equal, expect_in, llvm, made, missing,
    passed, run, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![with_llvm("faults::f33_more_than_3_gib_of_images", || {
        f33("lld", &["-pie"], "off")
    })];
    trials.push(with_llvm("faults::f33_external_images", external));
    for linker in ["lld", "bfd", "gold", "mold", "wild"] {
        for kind in ["-pie", "-no-pie"] {
            let name = format!("faults::f33_late_{linker}{kind}");
            trials.push(with_llvm(&name, move || late(linker, kind)));
        }
    }
    trials
}

/// The size of each of three images, in bytes.
const IMAGE: u64 = 1_080_000_000;

/// The disk space for the link and the program, in bytes: 6 GiB at most, and a reserve for other
/// tests.
const ROOM: u64 = 8 << 30;

fn free_bytes(work: &Work) -> Result<u64, Failed> {
    let stdout = work.run("df", ["--output=avail", "-B1", "."])?;
    Ok(stdout.lines().last().unwrap_or_default().trim().parse()?)
}

/// The result of a test without enough disk space.
fn no_room(work: &Work) -> Result<Option<Outcome>, Failed> {
    let text = || {
        let place = work.path().display();
        missing(format!("{} GiB of free disk in {place}", ROOM >> 30))
    };
    Ok((free_bytes(work)? < ROOM).then(text))
}

/// Host code with data of its own, which must stay addressable.
const MAIN: &str = "#include <stdio.h>\nint table[1 << 20];\nint main(void) { puts(\"runs\"); return table[12345]; }\n";

/// Late links with images of that size. A short run does one of them.
fn late(linker: &'static str, kind: &'static str) -> Outcome {
    let all = rounds(
        "late: links of 3 GiB by each host linker, PIE and not",
        2u32,
        1,
    ) == 2;
    if !all && (linker, kind) != ("bfd", "-no-pie") {
        return passed();
    }
    // These links need much disk space, so they run one at a time.
    static ONE: Mutex<()> = Mutex::new(());
    let _one = ONE.lock().unwrap_or_else(PoisonError::into_inner);
    f33(linker, &[kind], "on")
}

/// The same images in files beside the program, which is small. A start without such a GPU does not
/// read them.
fn external() -> Outcome {
    let work = Work::new();
    if let Some(missing) = no_room(&work)? {
        return missing;
    }
    link(&work, "lld", &["-Wl,--wrapper-external-images"], "off")?;
    let size = std::fs::metadata(work.path().join("program"))?.len();
    ensure(size < 1 << 20, || format!("the program has {size} bytes"))?;
    let start = || {
        let mut start = work.command(work.path().join("program"));
        start.env("LD_LIBRARY_PATH", &made().stub);
        start.env_remove("OFFLD_LEDGER");
        start
    };
    let registered = run(&mut start())?;
    expect_in(&registered, "openmp register lib=0 images=0 ")?;
    expect_in(&registered, "runs\n")?;
    at_most_memory(&mut start(), 6)?;
    // All of them, which the program checks byte by byte.
    let registered = run(start().env("HSA_OVERRIDE_GFX_VERSION", "9.0.6"))?;
    expect_in(&registered, "openmp register lib=0 images=3 ")?;
    passed()
}

fn f33(linker: &str, words: &[&str], late: &str) -> Outcome {
    let work = Work::new();
    if let Some(missing) = no_room(&work)? {
        return missing;
    }
    link(&work, linker, words, late)?;
    let size = std::fs::metadata(work.path().join("program"))?.len();
    ensure(size > 3 * IMAGE, || {
        format!("the program has {size} bytes, with three images of {IMAGE}")
    })?;
    // The registration log goes to standard output, before and after the program's own text.
    let registered = run(work
        .command("./program")
        .env("LD_LIBRARY_PATH", &made().stub)
        .env_remove("OFFLD_LEDGER"))?;
    expect_in(&registered, "openmp register lib=0 images=3 ")?;
    expect_equal(
        "images of that size",
        "3",
        &registered
            .matches(&format!(" size={IMAGE} "))
            .count()
            .to_string(),
    )?;
    expect_in(&registered, "runs\n")?;
    passed()
}

/// Links `program` with three images of that size.
fn link(work: &Work, linker: &str, words: &[&str], late: &str) -> Result<(), Failed> {
    let archs = ["gfx906", "gfx90a", "gfx908"];
    work.fat_with("a.o", &archs.map(|arch| Image::amd(arch, "A")), MAIN)?;
    let compiler = work.tool(
        "tools/clang",
        &HOLES.replace("SIZE", &(IMAGE - 4).to_string()),
    );
    let mut link = work.command(llvm("clang"));
    link.env("OFFLD_CLANG", compiler)
        .env("OFFLD_LATE_IMAGES", late);
    link.args(["--offload-link", &format!("-fuse-ld={linker}"), "-B"])
        .arg(&made().links)
        .args(words);
    run(link
        .args(["a.o", "-Wl,--no-as-needed", "-lomptarget", "-o", "program"])
        .arg(format!("-L{LLVM}/../lib")))?;
    work.expect_no_temps()
}
