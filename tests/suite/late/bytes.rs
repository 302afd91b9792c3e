//! A late link gives the same bytes for any cache contents and number of jobs. `auto` depends only
//! on the command line and the inputs.

use libtest_mimic::{Failed, Trial};

use super::{LINKERS, link, object, stand_in};
use crate::kit::Image;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, made, passed, run,
    stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm("late::auto_is_late_from_a_size_on", by_size),
        with_llvm("late::what_cannot_be_late_is_early_and_says_why", obstacles),
        with_llvm("late::a_wrong_setting_is_an_error", wrong_setting),
        with_llvm("late::build_ids_are_of_the_images_too", build_ids),
    ];
    trials.extend(LINKERS.map(|linker| {
        with_llvm(&format!("late::same_bytes::{linker}"), move || {
            same_bytes(linker)
        })
    }));
    trials
}

fn bytes(work: &Work, name: &str) -> Result<Vec<u8>, Failed> {
    Ok(std::fs::read(work.path().join(name))?)
}

fn same_bytes(linker: &str) -> Outcome {
    let work = Work::new();
    object(&work)?;
    // gold writes the name of its temporary output into a CPU image unless there is a soname.
    let link = |work: &Work, name: &str, linker: &str| {
        let mut link = link(work, name, linker);
        if linker == "gold" {
            link.arg("-Xoffload-linker-x86_64-pc-linux-gnu")
                .arg("-soname=image");
        }
        link
    };
    run(link(&work, "program", linker).env("OFFLD_CACHE", "off"))?;
    let first = bytes(&work, "program")?;
    for (which, args) in [
        ("cold", &[][..]),
        ("warm", &[]),
        ("one job", &["1", "off"]),
        ("two", &["2", "off"]),
        ("eight", &["8"]),
    ] {
        let mut again = link(&work, "program", linker);
        again.env(
            "OFFLD_CACHE",
            if args.get(1).is_some() {
                "off".into()
            } else {
                work.path().join("cache").into_os_string()
            },
        );
        if let Some(jobs) = args.first() {
            again.arg(format!("-Wl,--wrapper-jobs={jobs}"));
        }
        run(&mut again)?;
        ensure(bytes(&work, "program")? == first, || {
            format!("{which}: other bytes")
        })?;
    }
    // Under make, through its jobserver.
    let mut make = work.command("make");
    let line = link(&work, "program", linker);
    let args: Vec<String> = line
        .get_args()
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    work.file(
        "Makefile",
        format!(
            "program:\n\t+OFFLD_LATE_IMAGES=on {} {}\n",
            llvm("clang").display(),
            args.join(" ")
        ),
    );
    run(make.args(["-B", "-j2", "program"]))?;
    ensure(
        bytes(&work, "program")? == first,
        || "under make: other bytes",
    )?;
    work.expect_no_temps()?;
    passed()
}

/// Whether the link of `main.o` with these additional arguments is late, and its stderr.
fn is_late(work: &Work, args: &[&str]) -> Result<(bool, String), Failed> {
    let mut link = stand_in(work, "echo image > $out");
    let stderr = stderr_of(
        link.arg("-Wl,--wrapper-verbose")
            .args(args)
            .env_remove("OFFLD_LATE_IMAGES"),
    )?;
    Ok((stderr.contains("/.offld-"), stderr))
}

fn by_size() -> Outcome {
    let work = Work::new();
    let large = "x".repeat(9 << 20);
    for (image, late) in [("small", false), (&large, true)] {
        work.fat_with(
            "main.o",
            &[Image::amd("gfx90a", image)],
            "int main(void) { return 0; }\n",
        )?;
        let (was_late, stderr) = is_late(&work, &[])?;
        ensure(was_late == late, || {
            format!("late: {was_late}, of {} bytes: {stderr}", image.len())
        })?;
        let (was_late, stderr) = is_late(&work, &["-Wl,--wrapper-late-images=off"])?;
        ensure(!was_late, || format!("late although it is off: {stderr}"))?;
        let (was_late, stderr) = is_late(&work, &["-Wl,--wrapper-late-images=on"])?;
        ensure(was_late, || format!("not late although it is on: {stderr}"))?;
    }
    passed()
}

fn obstacles() -> Outcome {
    let work = Work::new();
    work.fat_with(
        "main.o",
        &[Image::amd("gfx90a", "A")],
        "int main(void) { return 0; }\n",
    )?;
    work.file("script.ld", "SECTIONS { } INSERT AFTER .data;\n");
    let on = "-Wl,--wrapper-late-images=on";
    for args in [
        "-Wl,-Map=map",
        "-Wl,--emit-relocs",
        "-Wl,-q",
        "-Wl,-M",
        "-Wl,--print-map",
        "-Wl,-T,script.ld",
    ] {
        let (was_late, stderr) = is_late(&work, &[on, args])?;
        ensure(!was_late, || format!("{args}: late: {stderr}"))?;
        expect_in(&stderr, "no late link: ")?;
    }
    let mut partial = work.command(llvm("clang"));
    partial
        .args(["--offload-link", "-fuse-ld=lld", "-r", on, "-B"])
        .arg(&made().links)
        .args(["main.o", "-o", "partial.o"]);
    run(partial.env("OFFLD_CLANG", work.path().join("tools/clang")))?;
    // ld.lld embeds the output path if there is no -soname.
    work.file("versions", "V1 { global: main; };\n");
    let versions = "-Wl,--version-script=versions";
    let (was_late, stderr) = is_late(&work, &[on, versions])?;
    ensure(!was_late, || {
        format!("a version script without -soname: late: {stderr}")
    })?;
    let (was_late, stderr) = is_late(&work, &[on, versions, "-Wl,-soname=name"])?;
    ensure(was_late, || {
        format!("a version script with -soname: not late: {stderr}")
    })?;
    let (was_late, stderr) = is_late(&work, &[on, "-Wl,-z,now"])?;
    ensure(was_late, || format!("not late: {stderr}"))?;
    expect_not_in(&stderr, "no late link")?;
    passed()
}

fn wrong_setting() -> Outcome {
    let work = Work::new();
    object(&work)?;
    let stderr = crate::support::run_failing(
        link(&work, "program", "lld").env("OFFLD_LATE_IMAGES", "maybe"),
    )?;
    expect_in(&stderr, "OFFLD_LATE_IMAGES=maybe: expected auto, on or off")?;
    let stderr = crate::support::run_failing(
        link(&work, "program", "lld").arg("-Wl,--wrapper-late-images=2"),
    )?;
    expect_in(&stderr, "--wrapper-late-images=2: expected auto, on or off")?;
    passed()
}

/// The build id of `program`, linked late with this image and these additional arguments.
fn build_id(work: &Work, image: &str, args: &[&str]) -> Result<String, Failed> {
    run(stand_in(work, &format!("echo '{image}' > $out")).args(args))?;
    let notes = work.run("readelf", ["-nW", "program"])?;
    Ok(notes
        .lines()
        .find_map(|line| Some(line.split_once("Build ID: ")?.1))
        .unwrap_or_default()
        .trim()
        .to_owned())
}

fn build_ids() -> Outcome {
    let work = Work::new();
    work.fat_with(
        "main.o",
        &[Image::amd("gfx90a", "A")],
        "int main(void) { return 0; }\n",
    )?;
    let (one, other) = ("one image", "another one");
    for style in ["sha1", "md5", "fast"] {
        let style = format!("-Wl,--build-id={style}");
        let (first, second) = (
            build_id(&work, one, &[&style])?,
            build_id(&work, other, &[&style])?,
        );
        ensure(!first.is_empty() && first != second, || {
            format!("{style}: {first} for both")
        })?;
        expect_equal(&style, &first, &build_id(&work, one, &[&style])?)?;
    }
    expect_equal(
        "a given id",
        "0123456789abcdef",
        &build_id(&work, one, &["-Wl,--build-id=0x0123456789abcdef"])?,
    )?;
    expect_equal(
        "no id",
        "",
        &build_id(&work, one, &["-Wl,--build-id=none"])?,
    )?;
    passed()
}
