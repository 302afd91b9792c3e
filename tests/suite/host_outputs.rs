//! Outputs of the host linker: dependency files and maps name no temporary file of offld, and a
//! truncated output is an error.

use std::fs;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::kit::{HOLES, Image};
use crate::support::{
    OFFLOAD, Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, expect_not_in,
    host_linker, llvm, made, missing, offld, output, passed, run, run_failing, spawned, text,
    with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm(
            "host_outputs::reports_of_ld_lld_are_the_same_each_time",
            reports,
        ),
        with_llvm("host_outputs::a_cut_pe_file_is_an_error", truncated_pe),
        with_llvm(
            "host_outputs::tools_replace_what_llvms_tools_replace",
            tools,
        ),
        with_llvm(
            "host_outputs::a_program_that_runs_can_be_edited",
            edited_while_running,
        ),
        with_llvm(
            "host_outputs::temporary_files_are_kept_where_clang_keeps_its_own",
            saved_temporaries,
        ),
        with_llvm(
            "host_outputs::wild_cannot_link_relocatable_outputs",
            wild_relocatable,
        ),
    ];
    for linker in ["lld", "bfd", "gold", "mold", "wild"] {
        trials.push(with_llvm(
            &format!("host_outputs::dependency_files::{linker}"),
            move || dependencies(linker),
        ));
        trials.push(with_llvm(
            &format!("host_outputs::a_cut_output_is_an_error::{linker}"),
            move || truncated_output(linker),
        ));
        if linker != "wild" {
            trials.push(with_llvm(
                &format!("host_outputs::maps_are_the_same_each_time::{linker}"),
                move || maps(linker),
            ));
        }
    }
    trials
}

/// The directory for temporary files in these tests. ld.lld escapes its name in dependency files,
/// other linkers do not.
const TEMP: &str = "with space#and$";

/// A link of `in.o` by `linker` with these arguments.
fn link(work: &Work, linker: &Path, late: &str, args: &[&str]) -> Command {
    // The default stand-in for the device compiler does not support spaces in names.
    work.tool("tools/clang", &HOLES.replace("SIZE", "100"));
    let mut link = work.wrapper(args.iter().copied());
    link.arg("in.o")
        .arg(format!("--offld-linker={}", linker.display()))
        .env("OFFLD_LATE_IMAGES", late);
    let _ = fs::create_dir_all(work.path().join(TEMP));
    link.env("TMPDIR", work.path().join(TEMP));
    link
}

/// Whether make considers `app` up to date according to the rules in `link.d`.
fn up_to_date(work: &Work) -> Result<bool, Failed> {
    let ended = output(
        work.command("make")
            .args(["-q", "-f", "link.d", "-f", "Makefile", "app"]),
    )?;
    let stderr = text(&ended.stderr);
    ensure(ended.status.code().is_some_and(|code| code < 2), || {
        format!("make: {stderr}")
    })?;
    Ok(ended.status.success())
}

fn dependencies(name: &str) -> Outcome {
    let work = Work::new();
    let Some(linker) = host_linker(name) else {
        return missing(name);
    };
    work.fat("in.o", &[Image::amd("gfx90a", "A")])?;
    work.file("device.bc", "device code of the command line");
    work.file("Makefile", "app:\n\t@echo linked\n");
    let mut spellings = vec![
        vec!["--dependency-file=link.d"],
        vec!["--dependency-file", "link.d"],
    ];
    if name != "lld" {
        spellings.push(vec!["-dependency-file=link.d"]);
        spellings.push(vec!["-dependency-file", "link.d"]);
    }
    if name == "bfd" {
        spellings.push(vec!["--depend=link.d"]);
        spellings.push(vec!["-depe=link.d"]);
    }
    for spelling in &spellings {
        for (late, args) in [
            ("off", &["-shared"][..]),
            ("on", &["-shared"]),
            ("off", &["-r"]),
        ] {
            // mold 1.10 writes no dependency file for a relocatable output, and offld refuses such
            // outputs of wild.
            if args == ["-r"] && ["mold", "wild"].contains(&name) {
                continue;
            }
            let with_context = |failed: Failed| {
                format!(
                    "{spelling:?} {args:?}, late: {late}: {}",
                    failed.message().unwrap_or_default()
                )
            };
            let _ = fs::remove_file(work.path().join("link.d"));
            let given = ["--device-linker=device.bc", "-o", "app"];
            run(&mut link(
                &work,
                &linker,
                late,
                &[spelling, args, &given].concat(),
            ))?;
            let rules = fs::read_to_string(work.path().join("link.d"))?;
            expect_not_in(&rules, "offld-").map_err(with_context)?;
            expect_not_in(&rules, "\n\n\n").map_err(with_context)?;
            expect_in(&rules, "app:").map_err(with_context)?;
            expect_in(&rules, "\nin.o:\n").map_err(with_context)?;
            ensure(up_to_date(&work).map_err(with_context)?, || {
                format!("not up to date by\n{rules}")
            })?;
            // A file that only the device link reads, and an input of the host link.
            for changed in ["device.bc", "in.o"] {
                let app = fs::metadata(work.path().join("app"))?.modified()?;
                let times = fs::File::options()
                    .append(true)
                    .open(work.path().join(changed))?;
                times.set_modified(app + std::time::Duration::from_secs(1))?;
                ensure(!up_to_date(&work)?, || {
                    format!("up to date although {changed} has changed, by\n{rules}")
                })?;
                times.set_modified(app - std::time::Duration::from_secs(1))?;
            }
        }
    }
    // As the linker, without additional device inputs; and in a dry run, which writes no dependency
    // file.
    fs::remove_file(work.path().join("link.d"))?;
    let mut alone = work.command(made().links.join("ld.offld"));
    alone.args([
        "-shared",
        "--dependency-file=link.d",
        "-o",
        "app",
        "in.o",
        "--no-offload-runtime",
    ]);
    alone
        .arg(format!("--offld-linker={}", linker.display()))
        .env("OFFLD_CLANG", work.path().join("tools/clang"));
    run(&mut alone)?;
    expect_not_in(&fs::read_to_string(work.path().join("link.d"))?, "offld-")?;
    ensure(up_to_date(&work)?, || "not up to date after ld.offld")?;
    fs::remove_file(work.path().join("link.d"))?;
    run(&mut link(
        &work,
        &linker,
        "off",
        &[
            "-shared",
            "--dry-run",
            "--dependency-file=link.d",
            "-o",
            "app",
        ],
    ))?;
    expect_no_file(&work.path().join("link.d"))?;
    passed()
}

fn maps(name: &str) -> Outcome {
    let work = Work::new();
    let Some(linker) = host_linker(name) else {
        return missing(name);
    };
    work.fat("in.o", &[Image::amd("gfx90a", "A")])?;
    let mut spellings = vec![vec!["-Map=map"], vec!["-Map", "map"], vec!["--Map=map"]];
    if name == "bfd" {
        spellings.push(vec!["--Ma=map"]);
        spellings.push(vec!["-Map=map", "--cref"]);
    }
    for spelling in spellings {
        let maps = [0, 1].map(|_| {
            run(&mut link(
                &work,
                &linker,
                "off",
                &[&spelling[..], &["-shared", "-o", "app"]].concat(),
            ))?;
            let map = fs::read_to_string(work.path().join("map"))?;
            fs::remove_file(work.path().join("map"))?;
            expect_in(&map, "app.openmp.image.")?;
            expect_not_in(&map, "/offld-")?;
            Ok::<_, Failed>(map)
        });
        let [first, second] = maps;
        expect_equal(&format!("{spelling:?}"), &first?, &second?)?;
    }
    passed()
}

fn reports() -> Outcome {
    let work = Work::new();
    work.fat("in.o", &[Image::amd("gfx90a", "A")])?;
    work.file("runtime.c", "void __tgt_register_lib(void *d) { (void)d; }\nvoid __tgt_unregister_lib(void *d) { (void)d; }\n");
    run(work
        .command(llvm("clang"))
        .args(["-fPIC", "-c", "runtime.c", "-o", "runtime.o"]))?;
    work.archive("libruntime.a", &["runtime.o"])?;
    let report = || {
        let args = [
            "-shared",
            "--why-extract=why",
            "--print-archive-stats=stats",
            "-o",
            "app",
            "libruntime.a",
        ];
        run(&mut link(&work, &llvm("ld.lld"), "off", &args))?;
        Ok::<_, Failed>(
            ["why", "stats"]
                .map(|file| fs::read_to_string(work.path().join(file)).unwrap_or_default())
                .concat(),
        )
    };
    let (first, second) = (report()?, report()?);
    expect_in(
        &first,
        "app.openmp.image.wrapper.o\tlibruntime.a(runtime.o)\t__tgt_",
    )?;
    expect_equal("reports", &first, &second)?;
    passed()
}

/// A linker that runs `linker` and then truncates its output to `$CUT` bytes.
fn truncating_linker(work: &Work, linker: &Path) -> std::path::PathBuf {
    let script = "#!/bin/sh\nLINKER \"$@\" || exit\nfor word; do case $last in -o) out=$word ;; esac; last=$word; done\n\
        [ -z \"$CUT\" ] || truncate -s \"$CUT\" \"$out\"\n";
    work.tool(
        "tools/cutting",
        &script.replace("LINKER", &linker.display().to_string()),
    )
}

fn truncated_output(name: &str) -> Outcome {
    let work = Work::new();
    let Some(linker) = host_linker(name) else {
        return missing(name);
    };
    work.fat("in.o", &[Image::amd("gfx90a", "A")])?;
    let cutter = truncating_linker(&work, &linker);
    for args in [["-shared", "-s"], ["-shared", "-znow"], ["-r", "-znow"]] {
        if args[0] == "-r" && name == "wild" {
            continue;
        }
        let args = [&args[..], &["-o", "app"]].concat();
        run(&mut link(&work, &cutter, "off", &args))?;
        let whole = fs::metadata(work.path().join("app"))?.len();
        for size in [whole / 64 * 63, whole / 2, 100, 10] {
            let stderr =
                run_failing(link(&work, &cutter, "off", &args).env("CUT", size.to_string()))?;
            expect_in(
                &stderr,
                "cutting` reported success but `app` is truncated: ",
            )?;
            expect_in(&stderr, &format!("is truncated: {size} of at least "))?;
            expect_no_file(&work.path().join("app"))?;
        }
    }
    let remaining = fs::read_dir(work.path().join(TEMP))?.count();
    ensure(remaining == 0, || {
        format!("{remaining} temporary files are left")
    })?;
    passed()
}

/// wild 0.10 drops the bounds of entry tables in relocatable outputs, so kernels would be missing
/// at run time.
fn wild_relocatable() -> Outcome {
    let work = Work::new();
    let Some(wild) = host_linker("wild") else {
        return missing("wild");
    };
    work.fat("in.o", &[Image::amd("gfx90a", "A")])?;
    let stderr = run_failing(&mut link(&work, &wild, "off", &["-r", "-o", "app.o"]))?;
    expect_in(
        &stderr,
        "drops the symbol `__start_llvm_offload_entries` from a relocatable output: use ld.lld",
    )?;
    expect_no_file(&work.path().join("app.o"))?;
    passed()
}

/// A program that defines the runtime functions.
const RUNTIME: &str = "void __tgt_register_lib(void *d) { (void)d; }\nvoid __tgt_unregister_lib(void *d) { (void)d; }\n\
    int atexit(void (*f)(void)) { return !f; }\nvoid __main(void) {}\nint main(void) { return 0; }\n";

/// Compares how offld's tools and LLVM's treat an existing output: a file, a symlink, or a running
/// program.
fn tools() -> Outcome {
    let work = Work::new();
    work.fat("in.o", &[Image::amd("gfx90a", "A")])?;
    let image = "--image=file=in.o,triple=amdgcn-amd-amdhsa,arch=gfx90a";
    let targets = "-targets=host-x86_64-unknown-linux-gnu-,hip-amdgcn-amd-amdhsa--gfx90a";
    run(work
        .command(llvm("llvm-offload-binary"))
        .args(["-o", "packed", image]))?;
    let bundle =
        |kind: &'static str| vec![kind, targets, "-input=in.o", "-input=in.o", "-output=out"];
    let lines = [
        ("llvm-offload-binary", vec!["-o", "out", image]),
        (
            "llvm-offload-binary",
            vec!["packed", "--image=file=out,arch=gfx90a"],
        ),
        ("clang-offload-bundler", bundle("-type=o")),
        ("clang-offload-bundler", bundle("-type=bc")),
        (
            "llvm-offload-wrapper",
            vec![
                "--kind=openmp",
                "--triple=x86_64-unknown-linux-gnu",
                "in.o",
                "-o",
                "out",
            ],
        ),
    ];
    for (tool, args) in &lines {
        for state in ["file", "symlink", "broken symlink", "running"] {
            // LLVM's bundler leaves two files in this case.
            if args[0] == "-type=o" && state == "broken symlink" {
                continue;
            }
            let made = |program: &Path, running: bool| {
                let (out, real) = (work.path().join("out"), work.path().join("real"));
                let _ = (fs::remove_file(&out), fs::remove_file(&real));
                let old = if state == "symlink" { &real } else { &out };
                if state.contains("symlink") {
                    std::os::unix::fs::symlink("real", &out)?;
                }
                if state != "broken symlink" {
                    fs::copy("/bin/sleep", old)?;
                    fs::set_permissions(old, fs::Permissions::from_mode(0o700))?;
                }
                let process = if running {
                    Some(spawned(Command::new(&out).arg("60"))?)
                } else {
                    None
                };
                let ended = output(work.command(program).args(args))?;
                if let Some(mut process) = process {
                    process.kill()?;
                    process.wait()?;
                }
                let is_link = fs::symlink_metadata(&out)?.is_symlink();
                let real = fs::metadata(&real)
                    .map(|meta| meta.mode())
                    .unwrap_or_default();
                let description = format!(
                    "{}, symlink: {is_link}, mode {:o}, real: {real:o}",
                    ended.status,
                    fs::metadata(&out)?.mode()
                );
                Ok::<_, Failed>((description, fs::read(&out)?))
            };
            let running = state == "running";
            let (ours, our_bytes) = made(&offld_tool(tool), running)?;
            // Some LLVM tools cannot write to a running program. Then only the resulting file is
            // compared.
            let (theirs, their_bytes) =
                made(&llvm(tool), running && *tool == "llvm-offload-binary")?;
            expect_equal(&format!("{tool} {args:?}: {state}"), &theirs, &ours)?;
            ensure(
                our_bytes.len() == their_bytes.len() || *tool == "llvm-offload-wrapper",
                || format!("{tool} {state}: other bytes"),
            )?;
        }
    }
    passed()
}

/// The names of files that a link has left in a directory.
fn saved_files(folder: &Path) -> Result<String, Failed> {
    let names =
        fs::read_dir(folder)?.map(|entry| Ok(entry?.file_name().to_string_lossy().into_owned()));
    let mut names = names.collect::<Result<Vec<_>, std::io::Error>>()?;
    names.retain(|name| name.starts_with("app.") || name.contains("-generic."));
    names.sort();
    Ok(names.join(" "))
}

fn saved_temporaries() -> Outcome {
    let work = Work::new();
    work.file("in.c", "int main(void) {\n int r = 0;\n#pragma omp target map(from : r)\n r = 42;\n return r != 42;\n}\n");
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-c", "in.c"]))?;
    for (option, output, in_output) in [
        ("-save-temps=obj", "sub/app", true),
        ("-save-temps=cwd", "sub/app", false),
        ("-save-temps", "sub/app", false),
        ("-save-temps=obj", "app", false),
    ] {
        let _ = fs::remove_dir_all(work.path().join("sub"));
        fs::create_dir(work.path().join("sub"))?;
        let mut link = work.command(llvm("clang"));
        run(link
            .args(OFFLOAD)
            .args([option, "in.o", "-o", output, "-B"])
            .arg(&made().links))?;
        let (with_output, here) = (
            saved_files(&work.path().join("sub"))?,
            saved_files(work.path())?,
        );
        let (full, empty) = if in_output {
            (with_output, here)
        } else {
            (here, with_output)
        };
        for name in [
            "app.openmp.image.wrapper.o",
            "app.openmp.image.wrapper.bc",
            ".img",
            "in-x86_64-pc-linux-gnu-generic.o",
        ] {
            expect_in(&full, name)?;
        }
        expect_equal(
            &format!("{option}: left in the other directory"),
            "",
            &empty,
        )?;
        for name in saved_files(work.path())?
            .split(' ')
            .filter(|name| !name.is_empty())
        {
            fs::remove_file(work.path().join(name))?;
        }
    }
    passed()
}

/// The path of one of offld's tools.
fn offld_tool(tool: &str) -> std::path::PathBuf {
    made().links.join(tool)
}

fn edited_while_running() -> Outcome {
    let work = Work::new();
    let images = ["gfx906", "gfx90a"].map(|arch| Image::amd(arch, "A"));
    work.fat_with(
        "in.o",
        &images,
        &format!(
            "unsigned sleep(unsigned);\n{}",
            RUNTIME.replace("{ return 0; }", "{ return sleep(60); }")
        ),
    )?;
    work.tool("tools/clang", &HOLES.replace("SIZE", "100"));
    let mut link = work.command(llvm("clang"));
    link.args([
        "--offload-link",
        "-fuse-ld=lld",
        "-Wl,--no-offload-runtime",
        "in.o",
        "-o",
        "program",
        "-B",
    ])
    .arg(&made().links);
    run(link.env("OFFLD_CLANG", work.path().join("tools/clang")))?;
    std::os::unix::fs::symlink("program", work.path().join("link"))?;
    let mut process = spawned(&mut Command::new(work.path().join("program")))?;
    let pruned =
        run(work
            .command(offld())
            .args(["prune", "--keep", "gfx90a", "--in-place", "link"]));
    process.kill()?;
    process.wait()?;
    pruned?;
    ensure(
        fs::symlink_metadata(work.path().join("link"))?.is_symlink(),
        || "the symlink was replaced",
    )?;
    let listed = run(work.command(offld()).args(["inspect", "program"]))?;
    expect_in(&listed, "gfx90a")?;
    expect_not_in(&listed, "gfx906")?;
    passed()
}

fn truncated_pe() -> Outcome {
    let work = Work::new();
    work.fat_for(
        "x86_64-w64-windows-gnu",
        "in.o",
        &[Image::amd("gfx90a", "A")],
        RUNTIME,
    )?;
    let cutter = truncating_linker(&work, &llvm("ld.lld"));
    let args = [
        "-m",
        "i386pep",
        "--host-triple=x86_64-w64-windows-gnu",
        "-e",
        "main",
        "-o",
    ];
    let args = [&args[..], &["app.exe"]].concat();
    run(&mut link(&work, &cutter, "off", &args))?;
    let whole = fs::metadata(work.path().join("app.exe"))?.len();
    let stderr =
        run_failing(link(&work, &cutter, "off", &args).env("CUT", (whole / 2).to_string()))?;
    expect_in(&stderr, "reported success but `app.exe` is truncated")?;
    expect_no_file(&work.path().join("app.exe"))?;
    passed()
}
