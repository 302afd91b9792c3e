//! `offld split --kpack` and `offld merge`: programs of clang 22 register the same code objects from
//! archives as before, and merging gives every byte back. The HIP stub reads archives with code of
//! its own (`runtime-stubs/kpack.h`).

use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use md5::Digest as _;

use crate::kinds::{folder, stubs};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, expect_not_in, llvm, offld,
    output, passed, root, run, run_failing, shown, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    let ways = [
        ("several_structs", "--no-offload-new-driver", ""),
        ("new_driver", "--offload-new-driver", ""),
        ("rdc", "--offload-new-driver -fgpu-rdc", ""),
        (
            "compressed",
            "--no-offload-new-driver --offload-compress",
            "",
        ),
        ("library", "--no-offload-new-driver", "-shared"),
        (
            "not_position_independent",
            "--no-offload-new-driver -fno-pic",
            "-no-pie",
        ),
        ("bfd", "--no-offload-new-driver", "-fuse-ld=bfd"),
    ];
    let one = |(name, compile, link): (&str, &'static str, &'static str)| {
        with_llvm(&format!("kpack::split::{name}"), move || {
            installed(compile, link)
        })
    };
    let mut all: Vec<Trial> = ways.into_iter().map(one).collect();
    all.push(with_llvm("kpack::split::one_file", one_file));
    for (name, compile) in [
        ("rdc", "--offload-new-driver -fgpu-rdc"),
        ("no_rdc", "--offload-new-driver"),
        ("old_driver", "--no-offload-new-driver"),
    ] {
        all.push(with_llvm(
            &format!("kpack::split::option_of_links::{name}"),
            move || linked(compile),
        ));
    }
    all.push(with_llvm(
        "kpack::split::streams_of_other_compressors",
        other_compressor,
    ));
    all.push(with_llvm(
        "kpack::split::targets_become_no_paths",
        hostile_target,
    ));
    all.push(with_llvm(
        "kpack::split::changed_or_lost_parts_are_named",
        refused,
    ));
    all
}

/// Runs clang on the HIP program of `tests/kinds`.
fn clang(work: &Work, args: &str) -> Result<(), Failed> {
    let mut command = work.command(llvm("clang++"));
    command.args([
        "-O2",
        "-fPIC",
        "-nogpuinc",
        "-nogpulib",
        "--offload-arch=gfx90a,gfx908:xnack+",
    ]);
    command
        .args(["-Wno-unused-command-line-argument", "-isystem"])
        .arg(root().join("tests/device-headers"));
    command.args(args.split_whitespace());
    let before = std::env::var_os("PATH").unwrap_or_default();
    let tools = Path::new(&llvm("clang++")).parent().map(Path::to_path_buf);
    let path = std::env::join_paths(std::env::split_paths(&before).chain(tools))?;
    run(command.env("PATH", path))?;
    Ok(())
}

/// Builds the program, or a library and a program that uses it, below `install`.
pub(super) fn build(work: &Work, compile: &str, link: &str) -> Result<(), Failed> {
    for name in ["main", "other", "archived"] {
        let source = folder().join(format!("{name}.cpp"));
        clang(
            work,
            &format!("-x hip {compile} -c {} -o {name}.o", source.display()),
        )?;
    }
    for name in ["install/bin", "install/lib"] {
        std::fs::create_dir_all(work.path().join(name))?;
    }
    std::fs::write(work.path().join("install/readme"), "text\n")?;
    // An archive of another build.
    std::fs::create_dir_all(work.path().join("install/.kpack"))?;
    std::fs::write(
        work.path().join("install/.kpack/other_gfx90a.kpack"),
        "KPAK",
    )?;
    let stubs = stubs().display();
    if link == "-shared" {
        clang(
            work,
            &format!(
                "{compile} --hip-link -shared other.o archived.o -L{stubs} -lamdhip64 -o install/lib/libother.so"
            ),
        )?;
        clang(
            work,
            &format!(
                "{compile} --hip-link main.o -Linstall/lib -lother -Wl,-rpath,$ORIGIN/../lib -L{stubs} -lamdhip64 -o install/bin/program"
            ),
        )
    } else {
        clang(
            work,
            &format!(
                "{compile} {link} --hip-link main.o other.o archived.o -L{stubs} -lamdhip64 -o install/bin/program"
            ),
        )
    }
}

/// What the program prints, and its ledger.
fn ledger(work: &Work, program: &str) -> Result<(String, String), Failed> {
    ledger_of(work, &mut work.command(work.path().join(program)))
}

/// What a process prints, and its ledger.
pub(super) fn ledger_of(work: &Work, command: &mut Command) -> Result<(String, String), Failed> {
    let file = work.path().join("ledger");
    let _ = std::fs::remove_file(&file);
    command
        .env("OFFLD_LEDGER", &file)
        .env("LD_LIBRARY_PATH", stubs());
    let ended = output(command)?;
    let ledger = std::fs::read_to_string(&file)
        .map_err(|error| format!("{error}\n{}", shown(command, &ended)))?;
    expect_not_in(&ledger, "BAD:")?;
    Ok((text(&ended.stdout), ledger))
}

/// The code objects in a ledger, each once: form, size and hash.
pub(super) fn code_objects(ledger: &str) -> String {
    let images = ledger
        .lines()
        .filter(|line| line.starts_with("hip image ") && line.contains("amdgpu"));
    let facts: BTreeSet<&str> = images
        .filter_map(|line| Some(line.split_once(" is=")?.1))
        .collect();
    facts.into_iter().map(|line| format!("{line}\n")).collect()
}

/// The registered kernels and variables in a ledger.
pub(super) fn names(ledger: &str) -> String {
    let is_name = |line: &&str| {
        ["hip function", "hip var", "hip managed"]
            .iter()
            .any(|start| line.starts_with(start))
    };
    ledger
        .lines()
        .filter(is_name)
        .map(|line| format!("{line}\n"))
        .collect()
}

pub(super) fn same_trees(work: &Work, one: &str, other: &str) -> Result<(), Failed> {
    run(work.command("diff").args(["-r", one, other]))?;
    Ok(())
}

fn installed(compile: &str, link: &str) -> Outcome {
    let work = Work::new();
    build(&work, compile, link)?;
    let (printed, before) = ledger(&work, "install/bin/program")?;
    run(work.command(offld()).args([
        "split",
        "--kpack",
        "--kpack-name",
        "test",
        "install",
        "-d",
        "split",
    ]))?;
    for arch in ["gfx90a", "gfx908:xnack+"] {
        let archive = work.path().join(format!("split/.kpack/test_{arch}.kpack"));
        ensure(archive.is_file(), || format!("no {}", archive.display()))?;
    }
    let (printed_after, after) = ledger(&work, "split/bin/program")?;
    expect_equal("output", &printed, &printed_after)?;
    expect_equal("names", &names(&before), &names(&after))?;
    expect_in(&after, "hip kpack lib=0 of=")?;
    if !compile.contains("compress") {
        expect_equal(
            "code objects",
            &code_objects(&before),
            &code_objects(&after),
        )?;
    }
    // The program has a reference in place of its bundles.
    let sections = run(work
        .command(llvm("llvm-readelf"))
        .args(["-SW", "split/bin/program"]))?;
    expect_in(&sections, ".rocm_kpack_ref")?;
    expect_not_in(&sections, ".hip_fatbin ")?;
    let size = |name: &str| std::fs::metadata(work.path().join(name)).map(|meta| meta.len());
    ensure(
        size("split/bin/program")? < size("install/bin/program")?,
        || "not smaller",
    )?;
    run(work
        .command(offld())
        .args(["check", "--for", "gfx90a", "split/bin/program"])
        .env("LD_LIBRARY_PATH", stubs()))?;
    let report = run(work.command(offld()).args(["inspect", "split/bin/program"]))?;
    expect_in(&report, "kpack: code of bin/program")?;
    // Other tools can edit the program.
    run(work
        .command(llvm("llvm-strip"))
        .args(["split/bin/program", "-o", "split/bin/stripped"]))?;
    ledger(&work, "split/bin/stripped")?;
    std::fs::remove_file(work.path().join("split/bin/stripped"))?;
    // Every byte comes back.
    run(work
        .command(offld())
        .args(["merge", "split", "-d", "merged"]))?;
    same_trees(&work, "install", "merged")?;
    // A directory that exists loses no file.
    std::fs::create_dir_all(work.path().join("again/.kpack"))?;
    std::fs::write(work.path().join("again/.kpack/mine"), "text")?;
    run(work
        .command(offld())
        .args(["merge", "split", "-d", "again"]))?;
    expect_equal(
        "a file of the user",
        "text",
        &std::fs::read_to_string(work.path().join("again/.kpack/mine"))?,
    )?;
    work.expect_no_temps()?;
    passed()
}

fn one_file() -> Outcome {
    let work = Work::new();
    build(&work, "--no-offload-new-driver", "-shared")?;
    run(work
        .command(offld())
        .args(["split", "--kpack", "install/lib/libother.so", "-d", "out"]))?;
    ensure(
        work.path()
            .join("out/.kpack/libother_gfx90a.kpack")
            .is_file(),
        || "no archive",
    )?;
    let report = run(work.command(offld()).args(["inspect", "out/libother.so"]))?;
    expect_in(&report, "kpack: code of libother.so")?;
    // The recipe is not device code, and `check` does not read it.
    let report = run(work.command(offld()).args(["inspect", "out"]))?;
    ensure(!report.contains(".recipe"), || report.clone())?;
    let answers = output(
        work.command(offld())
            .args(["check", "--for", "gfx90a", "out"]),
    )?;
    expect_equal("check of the directory", "", &text(&answers.stderr))?;
    expect_in(&text(&answers.stdout), "verdict: yes")?;
    run(work
        .command(offld())
        .args(["merge", "out/libother.so", "-o", "again.so"]))?;
    let [old, new] =
        ["install/lib/libother.so", "again.so"].map(|name| std::fs::read(work.path().join(name)));
    ensure(old? == new?, || "merging does not give the library back")?;
    // Files without HIP code are copied.
    work.file("plain", "text");
    let told = run(work
        .command(offld())
        .args(["split", "--kpack", "plain", "-d", "out2"]))?;
    expect_in(&told, "no HIP code")?;
    expect_equal(
        "copy",
        "text",
        &std::fs::read_to_string(work.path().join("out2/plain"))?,
    )?;
    passed()
}

/// `--wrapper-kpack`: the link itself writes the archives.
fn linked(compile: &str) -> Outcome {
    let work = Work::new();
    let stubs = stubs().display();
    for name in ["main", "other", "archived"] {
        let source = folder().join(format!("{name}.cpp"));
        let source = source.display();
        clang(&work, &format!("-x hip {compile} -c {source} -o {name}.o"))?;
    }
    let links = crate::support::made().links.display();
    let link = |name: &str, option: &str| {
        std::fs::create_dir_all(work.path().join(name))?;
        clang(
            &work,
            &format!(
                "{compile} --hip-link -B {links} --ld-path={links}/ld.offld main.o other.o archived.o -L{stubs} -lamdhip64 {option} -o {name}/program"
            ),
        )
    };
    link("plain", "")?;
    let (printed, before) = ledger(&work, "plain/program")?;
    std::fs::create_dir_all(work.path().join("packed/.kpack"))?;
    work.file("packed/.kpack/program_gfx803.kpack", "of an older build");
    work.file("packed/.kpack/program_2_gfx803.kpack", "of another program");
    work.file(
        "packed/.kpack/program_gfx90a_gfx803.kpack",
        "of another program",
    );
    // The second link replaces the results of the first.
    for _ in 0..2 {
        // An archive of the program `program_gfx90a`.
        let other = work.file("packed/.kpack/program_gfx90a_gfx803.kpack", "KPAK");
        link("packed", "-Wl,--wrapper-kpack")?;
        std::fs::remove_file(other)?;
        let (printed_after, after) = ledger(&work, "packed/program")?;
        expect_equal("output", &printed, &printed_after)?;
        expect_equal("names", &names(&before), &names(&after))?;
        expect_in(&after, "hip kpack lib=0 of=")?;
        expect_equal(
            "code objects",
            &code_objects(&before),
            &code_objects(&after),
        )?;
    }
    let mut files: Vec<String> = std::fs::read_dir(work.path().join("packed/.kpack"))?
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .collect();
    files.sort();
    expect_equal(
        "archives",
        "program_2_gfx803.kpack program_gfx908:xnack+.kpack program_gfx90a.kpack",
        &files.join(" "),
    )?;
    run(work
        .command(offld())
        .args(["check", "--for", "gfx90a", "packed/program"])
        .env("LD_LIBRARY_PATH", stubs.to_string()))?;
    work.expect_no_temps()?;
    passed()
}

/// A bundle whose zstd stream no compressor writes: its blocks are stored as they are. Merging gives
/// its bytes back nevertheless.
fn other_compressor() -> Outcome {
    let work = Work::new();
    let source = folder().join("other.cpp");
    let device = format!(
        "-x hip --no-offload-new-driver --cuda-device-only --gpu-bundle-output -c {} -o plain.hipfb",
        source.display()
    );
    clang(&work, &device)?;
    let plain = std::fs::read(work.path().join("plain.hipfb"))?;
    let size = u32::try_from(plain.len())?;
    // Single segment, with the size in 4 bytes.
    let mut frame = vec![0x28, 0xb5, 0x2f, 0xfd, 0xa0];
    frame.extend(size.to_le_bytes());
    let blocks: Vec<&[u8]> = plain.chunks(100_000).collect();
    for (index, block) in blocks.iter().enumerate() {
        let is_last = u32::from(index + 1 == blocks.len());
        let header = u32::try_from(block.len())? << 3 | is_last;
        frame.extend(&header.to_le_bytes()[..3]);
        frame.extend(*block);
    }
    let mut bundle = b"CCOB\x02\0\x01\0".to_vec();
    bundle.extend((24 + u32::try_from(frame.len())?).to_le_bytes());
    bundle.extend(size.to_le_bytes());
    bundle.extend(&md5::Md5::digest(&plain)[..8]);
    bundle.extend(frame);
    work.file("stored.hipfb", bundle);
    let host = format!(
        "-x hip --no-offload-new-driver --cuda-host-only -Xclang -fcuda-include-gpubinary -Xclang stored.hipfb -c {} -o other.o",
        source.display()
    );
    clang(&work, &host)?;
    std::fs::create_dir(work.path().join("install"))?;
    let stubs = stubs().display();
    clang(
        &work,
        &format!(
            "--no-offload-new-driver --hip-link -shared other.o -L{stubs} -lamdhip64 -o install/libother.so"
        ),
    )?;
    let mut split = work.command(offld());
    run(split.args(["split", "--kpack", "install", "-d", "split"]))?;
    let report = run(work.command(offld()).args(["inspect", "split/libother.so"]))?;
    expect_in(&report, "gfx90a")?;
    expect_in(
        &report,
        "kpack: code of libother.so, 1 registration, in .kpack/",
    )?;
    let mut merge = work.command(offld());
    run(merge.args(["merge", "split", "-d", "merged"]))?;
    same_trees(&work, "install", "merged")?;
    passed()
}

/// A bundle whose target leads out of the directory.
fn hostile_target() -> Outcome {
    let work = Work::new();
    build(&work, "--no-offload-new-driver", "-shared")?;
    let mut bytes = std::fs::read(work.path().join("install/lib/libother.so"))?;
    let (old, new) = (b"--gfx908:xnack+", b"--gfx908/../../");
    let at: Vec<usize> = memchr::memmem::find_iter(&bytes, old).collect();
    ensure(!at.is_empty(), || "no such target")?;
    for at in at {
        bytes[at..at + new.len()].copy_from_slice(new);
    }
    work.file("hostile.so", bytes);
    let told =
        run_failing(
            work.command(offld())
                .args(["split", "--kpack", "hostile.so", "-d", "out"]),
        )?;
    expect_in(&told, "gfx908/../../ is not a target of an AMD GPU")?;
    expect_no_file(&work.path().join("out"))?;
    passed()
}

fn refused() -> Outcome {
    let work = Work::new();
    build(&work, "--no-offload-new-driver", "")?;
    run(work.command(offld()).args([
        "split",
        "--kpack",
        "--kpack-name",
        "test",
        "install",
        "-d",
        "split",
    ]))?;
    let merge = || {
        run_failing(
            work.command(offld())
                .args(["merge", "split", "-d", "merged"]),
        )
    };
    let archive = work.path().join("split/.kpack/test_gfx90a.kpack");
    let bytes = std::fs::read(&archive)?;
    std::fs::remove_file(&archive)?;
    expect_in(&merge()?, "a code object for gfx90a is in no archive")?;
    expect_no_file(&work.path().join("merged/bin/program"))?;
    std::fs::write(&archive, &bytes[..bytes.len() - 9])?;
    expect_in(&merge()?, "test_gfx90a.kpack")?;
    std::fs::write(&archive, &bytes)?;
    run(work.command(llvm("llvm-strip")).arg("split/bin/program"))?;
    expect_in(&merge()?, "changed since `offld split --kpack` wrote it")?;
    expect_no_file(&work.path().join("merged/bin/program"))?;
    // A new archive would replace one that is there.
    let mut again = work.command(offld());
    again.args([
        "split",
        "--kpack",
        "--kpack-name",
        "other",
        "install",
        "-d",
        "taken",
    ]);
    expect_in(&run_failing(&mut again)?, "pass another --kpack-name")?;
    passed()
}
