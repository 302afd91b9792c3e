//! `llvm-offload-binary` compared with LLVM's: each extracts the files that the other packs, both
//! pack the same bytes, and both find the data that the compilers of five releases embed.

use std::path::{Path, PathBuf};
use std::process::Output;

use libtest_mimic::{Failed, Trial};

use super::kit::{AMD, Image};
use super::support::{
    Outcome, Release, Work, at_most_memory, expect_equal, llvm, made, missing, output, passed, run,
    test, text, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm(
            "packager::pk_01_pk_02_pk_04_pk_07_pk_08_pk_09_pk_11_the_bytes_are_llvms",
            same_bytes,
        ),
        with_llvm(
            "packager::pk_10_pk_14_any_keys_in_any_order_read_the_same",
            same_strings,
        ),
        with_llvm(
            "packager::pk_12_pk_16_p4_q11_messages_and_statuses_are_llvms",
            same_messages,
        ),
        with_llvm(
            "packager::pk_03_pk_17_od_08_whatever_holds_images_gives_the_same_files",
            same_files,
        ),
        with_llvm(
            "packager::linked_programs_give_the_same_files",
            linked_programs,
        ),
        with_llvm("packager::p2_hip_of_any_release_is_found", old_hip),
        with_llvm("packager::p5_members_have_names_of_their_own", archives),
        with_llvm("packager::memory_does_not_grow_with_the_images", memory),
        with_llvm(
            "packager::what_is_compressed_is_one_binary_of_version_3",
            compressed,
        ),
    ];
    for major in [15, 16, 19, 22] {
        let name = format!(
            "{}packager::q10_pk_06_packed_and_extracted_by_either::{major}",
            releases(major)
        );
        trials.push(test(name, move || either_way(major)));
    }
    for major in [14, 15, 16, 19, 22] {
        let name = format!(
            "{}packager::od_05_od_06_od_07_od_14_fat_objects::{major}",
            releases(major)
        );
        trials.push(test(name, move || fat_objects(major)));
    }
    trials
}

/// The prefix of test names that need another release than LLVM 22.
fn releases(major: u32) -> &'static str {
    if major == 22 { "" } else { "releases::" }
}

fn ours() -> PathBuf {
    made().links.join("llvm-offload-binary")
}

fn theirs() -> PathBuf {
    llvm("llvm-offload-binary")
}

/// File names and contents.
type Files = Vec<(String, Vec<u8>)>;

/// Runs `tool` in a new directory. Returns its output and status, and the files that it wrote.
fn run_in_new_directory(
    folder: &Work,
    tool: &Path,
    args: &[&str],
) -> Result<(Output, Files), Failed> {
    let out = tempfile::Builder::new()
        .prefix("out-")
        .tempdir_in(folder.path())?;
    let ended = output(folder.command(tool).current_dir(out.path()).args(args))?;
    let mut files = Vec::new();
    for entry in std::fs::read_dir(out.path())? {
        let entry = entry?;
        files.push((
            entry.file_name().to_string_lossy().into_owned(),
            std::fs::read(entry.path())?,
        ));
    }
    files.sort();
    Ok((ended, files))
}

/// Status and messages, with `TOOL` for the path of the tool.
fn with_tool_name(ended: &Output, tool: &Path) -> String {
    let all = format!(
        "{:?}\n{}{}",
        ended.status.code(),
        text(&ended.stdout),
        text(&ended.stderr)
    );
    all.replace(&tool.display().to_string(), "TOOL")
}

/// Fails unless both tools write the same files, at least one.
fn expect_same_files(folder: &Work, args: &[&str]) -> Result<Files, Failed> {
    let (ended, files) = run_in_new_directory(folder, &ours(), args)?;
    let (their_ended, their_files) = run_in_new_directory(folder, &theirs(), args)?;
    expect_equal(
        &format!("{args:?}"),
        &with_tool_name(&their_ended, &theirs()),
        &with_tool_name(&ended, &ours()),
    )?;
    let names = |files: &Files| {
        files
            .iter()
            .map(|(name, _)| name.clone())
            .collect::<Vec<_>>()
            .join("\n")
    };
    expect_equal(&format!("{args:?}"), &names(&their_files), &names(&files))?;
    if files != their_files || files.is_empty() {
        return Err(format!(
            "{args:?}: {} files, whose contents differ, or none",
            files.len()
        )
        .into());
    }
    Ok(files)
}

/// Inputs of all kinds, in the parent of the directory in which the tools run.
fn inputs(folder: &Work) {
    folder.file("a.o", "object");
    folder.file("b.bc", "no bitcode");
    folder.file("lto.o", b"BC\xc0\xdebitcode");
    folder.file("wrapped", b"\xde\xc0\x17\x0bwrapped bitcode");
    folder.file("c.cubin", "cubin");
    folder.file("d.fatbin", "");
    folder.file("e.s", "ptx");
    folder.file("f.x.y", "unknown");
    folder.file("folder.o/none", "a dot in a folder");
    folder.file(".bc", "all extension");
    folder.file("O.O", "case");
}

fn same_bytes() -> Outcome {
    let folder = Work::new();
    inputs(&folder);
    let one = |rest: &str| vec![format!("--image=file=../{rest}")];
    let names = [
        "a.o",
        "b.bc",
        "lto.o",
        "wrapped",
        "c.cubin",
        "d.fatbin",
        "e.s",
        "f.x.y",
        "folder.o/none",
        ".bc",
        "O.O",
    ];
    // The keys are in LLVM's hash order, because offld keeps the given order.
    let mut cases: Vec<Vec<String>> = names
        .iter()
        .map(|name| one(&format!("{name},arch=gfx90a,triple={AMD},kind=openmp")))
        .collect();
    cases.extend(
        [
            "",
            ",kind=cuda",
            ",kind=hip",
            ",kind=sycl",
            ",kind=openmp,kind=cuda",
            ",kind=HIP",
        ]
        .map(|kind| {
            one(&format!(
                "a.o{kind},feature=x,arch=sm_70,triple=nvptx64-nvidia-cuda"
            ))
        }),
    );
    cases.push(one("a.o,arch=a,triple=t,arch=b,arch=triple"));
    cases.push(one("a.o,arch=sm_70,triple=triple"));
    cases.push(one("a.o,triple=a=b"));
    cases.push(one("a.o,file=../c.cubin,file=../d.fatbin,triple=t"));
    cases.push(
        [
            one("a.o,arch=1,triple=t"),
            one("b.bc,arch=2,triple=t"),
            one("a.o,arch=1,triple=t"),
        ]
        .concat(),
    );
    for case in &cases {
        let args: Vec<&str> = ["-o", "out"]
            .into_iter()
            .chain(case.iter().map(String::as_str))
            .collect();
        let (ended, files) = run_in_new_directory(&folder, &ours(), &args)?;
        let (their_ended, their_files) = run_in_new_directory(&folder, &theirs(), &args)?;
        if !ended.status.success()
            || ended.status != their_ended.status
            || files != their_files
            || files.is_empty()
        {
            return Err(format!(
                "{case:?}: {}{}",
                with_tool_name(&ended, &ours()),
                files.len()
            )
            .into());
        }
    }
    passed()
}

/// `obj2yaml` of a file, with the strings of each image sorted.
fn yaml(folder: &Work, name: &str) -> Result<String, Failed> {
    let with_tool_name = folder.run(llvm("obj2yaml"), [name])?;
    let mut lines: Vec<String> = Vec::new();
    let mut pairs: Vec<String> = Vec::new();
    for line in with_tool_name.lines() {
        if line.trim_start().starts_with("- Key:") {
            pairs.push(line.to_owned());
        } else if let (true, Some(last)) =
            (line.trim_start().starts_with("Value:"), pairs.last_mut())
        {
            last.push_str(line);
        } else {
            pairs.sort();
            lines.append(&mut pairs);
            lines.push(line.to_owned());
        }
    }
    Ok(lines.join("\n"))
}

fn same_strings() -> Outcome {
    let folder = Work::new();
    inputs(&folder);
    let images = [
        "--image=zz=1,triple=amdgcn-amd-amdhsa,foo,bar=,file=a.o,arch=gfx90a:xnack+,opt=3,kind=hip,sysroot=/,feature=+x;-y",
        "--image=kind=openmp,,vendor=amd,name=n,a=amd,version=1.2,file=lto.o,file=e.s,triple=x",
    ];
    folder.run(ours(), ["-o", "ours"].into_iter().chain(images))?;
    folder.run(theirs(), ["-o", "theirs"].into_iter().chain(images))?;
    expect_equal(
        "obj2yaml",
        &yaml(&folder, "theirs")?,
        &yaml(&folder, "ours")?,
    )?;
    let sizes = ["ours", "theirs"].map(|name| {
        std::fs::metadata(folder.path().join(name))
            .map(|meta| meta.len())
            .ok()
    });
    expect_equal(
        "size",
        &format!("{:?}", sizes[1]),
        &format!("{:?}", sizes[0]),
    )?;
    passed()
}

fn same_messages() -> Outcome {
    let folder = Work::new();
    inputs(&folder);
    folder.run(
        theirs(),
        [
            "-o",
            "in.bin",
            "--image=file=a.o,triple=t,arch=a",
            "--image=file=c.cubin,triple=t,arch=b",
        ],
    )?;
    let both = ["../in.bin", "-o", "x"];
    let cases: [&[&str]; 10] = [
        &["--help"],
        &both,
        &["-o", "x", "--image=triple=t"],
        &["--imag=file=a.o"],
        &["-o"],
        &["../nofile", "--image="],
        &["..", "--image="],
        &["../in.bin", "--archive", "--image=triple=t"],
        &["../in.bin", "--image=triple=t,file=one"],
        &["../in.bin", "../in.bin"],
    ];
    for args in cases {
        let (ended, files) = run_in_new_directory(&folder, &ours(), args)?;
        let (their_ended, their_files) = run_in_new_directory(&folder, &theirs(), args)?;
        expect_equal(
            &format!("{args:?}"),
            &with_tool_name(&their_ended, &theirs()),
            &with_tool_name(&ended, &ours()),
        )?;
        if files != their_files {
            return Err(format!("{args:?}: other files").into());
        }
    }
    // Without anything to do, both print their help. LLVM's is shorter than its `--help`.
    for args in [
        &["-h"][..],
        &[],
        &["--image=file=a.o"],
        &["--image="],
        &["-o", ""],
    ] {
        for tool in [ours(), theirs()] {
            let (ended, _) = run_in_new_directory(&folder, &tool, args)?;
            let with_tool_name = with_tool_name(&ended, &tool);
            if !with_tool_name.starts_with("Some(0)\nOVERVIEW: A utility for bundling")
                || !with_tool_name.contains("  -o <file>  ")
            {
                return Err(with_tool_name.into());
            }
        }
    }
    // Only the old tool name causes a deprecation warning.
    let old = made().links.join("clang-offload-packager");
    let (ended, _) =
        run_in_new_directory(&folder, &old, &["../in.bin", "--image=arch=a,file=one"])?;
    let (their_ended, _) = run_in_new_directory(
        &folder,
        &llvm("clang-offload-packager"),
        &["../in.bin", "--image=arch=a,file=one"],
    )?;
    expect_equal(
        "the old name",
        &with_tool_name(&their_ended, &theirs()),
        &with_tool_name(&ended, &ours()),
    )?;
    passed()
}

fn same_files() -> Outcome {
    let folder = Work::new();
    let images = [
        Image::amd("gfx90a", "one"),
        Image::host("two"),
        Image {
            kind: "hip",
            ..Image::amd("", "three")
        },
    ];
    folder.fat("fat.o", &images)?;
    folder.fat("fat2.o", &images[..2])?;
    folder.fat_for("x86_64-pc-windows-msvc", "coff.obj", &images, "int x;")?;
    folder.pack("alone", &images)?;
    folder.archive("lib.a", &["fat.o", "coff.obj", "fat2.o", "alone"])?;
    run(folder
        .command(llvm("llvm-ar"))
        .args(["rcsT", "thin.a", "fat.o", "fat2.o"]))?;
    run(folder
        .command("ld")
        .args(["-r", "fat.o", "fat2.o", "-o", "merged.o"]))?;
    let mut large_file = std::fs::read(folder.path().join("alone"))?;
    large_file.extend(std::fs::read(folder.path().join("alone"))?);
    folder.file("twice.bin", large_file);
    for name in [
        "fat.o",
        "coff.obj",
        "alone",
        "lib.a",
        "thin.a",
        "merged.o",
        "twice.bin",
    ] {
        let name = format!("../{name}");
        expect_same_files(&folder, &[&name, "--image="])?;
        expect_same_files(
            &folder,
            &[
                &name,
                "--image=kind=openmp",
                "--image=triple=amdgcn-amd-amdhsa,arch=,kind=hip",
            ],
        )?;
        // The last of several images is written, with LLVM's warning.
        expect_same_files(
            &folder,
            &[
                &name,
                "--image=arch=gfx90a,file=first",
                "--image=arch=generic,kind=openmp,file=second",
            ],
        )?;
    }
    // Without a filter, LLVM up to 22 extracts nothing. offld writes the same files as with an
    // empty filter.
    let (_, all) = run_in_new_directory(&folder, &ours(), &["../lib.a"])?;
    let filtered = expect_same_files(&folder, &["../lib.a", "--image="])?;
    if all != filtered {
        return Err("without a filter, other files".into());
    }
    passed()
}

fn linked_programs() -> Outcome {
    let folder = Work::new();
    folder.file("t.c", "int main(void) {\n  int x = 0;\n#pragma omp target map(tofrom : x)\n  x++;\n  return x;\n}\n");
    let links = made().links.display().to_string();
    let offload = [
        "-fopenmp",
        "-fopenmp-targets=x86_64-pc-linux-gnu",
        "-O1",
        "-fuse-ld=lld",
        "t.c",
        "-o",
    ];
    folder.run(llvm("clang"), [&offload[..], &["theirs"]].concat())?;
    folder.run(
        llvm("clang"),
        [&["-B", &links], &offload[..], &["ours"]].concat(),
    )?;
    folder.run(
        llvm("clang"),
        [
            &["-B", &links, "-shared", "-fPIC"],
            &offload[..],
            &["ours.so"],
        ]
        .concat(),
    )?;
    folder.run(
        llvm("clang"),
        [&["-r"], &offload[..], &["theirs.o"]].concat(),
    )?;
    for name in ["theirs", "ours", "ours.so", "theirs.o"] {
        expect_same_files(&folder, &[&format!("../{name}"), "--image="])?;
    }
    passed()
}

fn either_way(major: u32) -> Outcome {
    let Some(release) = Release::of(major) else {
        return missing(format!("LLVM {major} (make setup-releases)"));
    };
    let tool = release.tool("clang-offload-packager");
    let folder = Work::new();
    inputs(&folder);
    let images = [
        "--image=file=a.o,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=hip",
        "--image=file=c.cubin,triple=nvptx64-nvidia-cuda,arch=sm_70,kind=cuda",
        "--image=file=lto.o,triple=x86_64-pc-linux-gnu,arch=generic,kind=openmp",
    ];
    let legacy: &[&str] = if major < 21 { &["--legacy-kinds"] } else { &[] };
    folder.run(&tool, ["-o", "theirs.bin"].into_iter().chain(images))?;
    folder.run(ours(), [&["-o", "ours.bin"], legacy, &images].concat())?;
    expect_equal(
        "obj2yaml",
        &yaml(&folder, "theirs.bin")?,
        &yaml(&folder, "ours.bin")?,
    )?;
    let wanted = [
        ("kind=hip", "object"),
        ("kind=cuda,arch=sm_70", "cubin"),
        ("triple=x86_64-pc-linux-gnu", "BC"),
    ];
    for input in ["theirs.bin", "ours.bin"] {
        for (filter, start) in wanted {
            folder.run(ours(), [input, &format!("--image={filter},file=by-ours")])?;
            let by_ours = std::fs::read(folder.path().join("by-ours"))?;
            // The packager of LLVM 15 cannot extract.
            if major > 15 {
                folder.run(&tool, [input, &format!("--image={filter},file=by-theirs")])?;
                if by_ours != std::fs::read(folder.path().join("by-theirs"))? {
                    return Err(format!("{input} {filter}: other bytes").into());
                }
            }
            if !by_ours.starts_with(start.as_bytes()) {
                return Err(format!("{input} {filter}: wrong image").into());
            }
        }
    }
    passed()
}

fn fat_objects(major: u32) -> Outcome {
    let Some(release) = Release::of(major) else {
        return missing(format!("LLVM {major} (make setup-releases)"));
    };
    let folder = Work::new();
    folder.file(
        "t.c",
        "int f(int x) {\n#pragma omp target map(tofrom : x)\n  x++;\n  return x;\n}\n",
    );
    // For GPU code, clang also reads a host header, so a Windows target needs this directory.
    let coff = [
        "--target=x86_64-pc-windows-msvc",
        "-isystem",
        "/usr/include/x86_64-linux-gnu",
    ];
    let ways: [(&str, &[&str]); 3] = [("elf.o", &[]), ("coff.obj", &coff), ("lto.o", &["-flto"])];
    for (name, flags) in ways {
        let mut compile = folder.command(release.tool("clang"));
        let gpu = [
            "-fopenmp",
            "-fopenmp-targets=x86_64-pc-linux-gnu,amdgcn-amd-amdhsa",
            "-nogpulib",
        ];
        let gpu = gpu
            .into_iter()
            .chain(["-Xopenmp-target=amdgcn-amd-amdhsa", "-march=gfx90a"]);
        compile
            .args(&release.compile)
            .args(flags)
            .args(gpu)
            .args(["-O1", "-c", "t.c", "-o", name]);
        run(&mut compile)?;
        let input = format!("../{name}");
        if major > 14 {
            expect_same_files(&folder, &[&input, "--image="])?;
            continue;
        }
        // No LLVM tool reads the sections of LLVM 14, whose contents are the image.
        let (_, files) = run_in_new_directory(&folder, &ours(), &[&input])?;
        let names: Vec<&str> = files.iter().map(|(name, _)| name.as_str()).collect();
        let stem = name.split('.').next().unwrap_or_default();
        let expected = [
            format!("{stem}-amdgcn-amd-amdhsa-gfx90a.1.bc"),
            format!("{stem}-x86_64-pc-linux-gnu-.0.o"),
        ];
        expect_equal("files", &expected.join("\n"), &names.join("\n"))?;
        if name == "elf.o" {
            let section = "--dump-section=.llvm.offloading.amdgcn-amd-amdhsa.gfx90a.t=section";
            folder.run(llvm("llvm-objcopy"), [section, name, "copy.o"])?;
            if files[0].1 != std::fs::read(folder.path().join("section"))? {
                return Err("not what is in the section".into());
            }
        }
    }
    passed()
}

fn old_hip() -> Outcome {
    let folder = Work::new();
    inputs(&folder);
    let image = "--image=file=a.o,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=hip";
    folder.run(ours(), ["-o", "old.bin", "--legacy-kinds", image])?;
    folder.run(ours(), ["-o", "new.bin", image])?;
    for (name, stored) in [("old.bin", 3), ("new.bin", 4)] {
        if std::fs::read(folder.path().join(name))?.get(34) != Some(&stored) {
            return Err(format!("{name}: not {stored}").into());
        }
        let args = [name, "--error-on-no-match", "--image=kind=hip,file=found"];
        folder.run(ours(), args)?;
    }
    passed()
}

fn archives() -> Outcome {
    let folder = Work::new();
    folder.file("k.c", "int kernel(void) { return 1; } int table = 2;");
    folder.run(
        llvm("clang"),
        [
            "--target=amdgcn-amd-amdhsa",
            "-nogpulib",
            "-mcpu=gfx90a",
            "-c",
            "k.c",
            "-o",
            "k.o",
        ],
    )?;
    folder.run(
        llvm("clang"),
        [
            "--target=amdgcn-amd-amdhsa",
            "-nogpulib",
            "-emit-llvm",
            "-c",
            "k.c",
            "-o",
            "k.bc",
        ],
    )?;
    let images = [
        "--image=file=k.o,triple=t,arch=one",
        "--image=file=k.bc,triple=t,arch=two",
        "--image=file=k.c,triple=t,arch=two",
    ];
    folder.run(ours(), ["-o", "in.bin"].into_iter().chain(images))?;
    folder.run(
        ours(),
        ["in.bin", "--archive", "--image=triple=t,file=out.a"],
    )?;
    folder.run(
        ours(),
        [
            "in.bin",
            "--archive",
            "--image=arch=one,file=one.a",
            "--image=arch=two,file=two.a",
        ],
    )?;
    // llvm-ar builds the expected archive from the same members.
    folder.run(ours(), ["in.bin", "--image=triple=t"])?;
    let members = ["in-t-one.0.o", "in-t-two.1.bc", "in-t-two.2."];
    folder.run(
        llvm("llvm-ar"),
        ["rcsD", "expected.a"].into_iter().chain(members),
    )?;
    let read = |name: &str| std::fs::read(folder.path().join(name));
    if read("out.a")? != read("expected.a")? {
        return Err("not the archive that llvm-ar makes".into());
    }
    expect_equal(
        "members",
        "in-t-two.0.bc\nin-t-two.1.\n",
        &folder.run(llvm("llvm-ar"), ["t", "two.a"])?,
    )?;
    passed()
}

fn compressed() -> Outcome {
    let folder = Work::new();
    folder.file("a.o", "first ".repeat(3000));
    folder.file("b.o", "second".repeat(3001));
    let images = [
        "--image=file=a.o,triple=amdgcn-amd-amdhsa,arch=gfx90a,kind=hip",
        "--image=file=b.o,triple=t,arch=b",
    ];
    for (args, format) in [
        (&["--compress"][..], "zstd"),
        (&["--compress", "--compression-level=19"], "zstd"),
        (
            &[
                "--compress",
                "--compression-format=zlib",
                "--compression-level=9",
                "--format-version=3",
            ],
            "zlib",
        ),
    ] {
        let packed = ["-o", "packed.bin"]
            .into_iter()
            .chain(images)
            .chain(args.iter().copied());
        folder.run(ours(), packed)?;
        let plain = std::fs::metadata(folder.path().join("packed.bin"))?.len();
        let with_tool_name =
            folder.run(crate::support::offld(), ["inspect", "--json", "packed.bin"])?;
        let json: serde_json::Value = serde_json::from_str(&with_tool_name)?;
        let images = json["files"][0]["images"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        for (image, target) in images.iter().zip(["gfx90a", "b"]) {
            expect_equal(
                "image",
                target,
                image["target"].as_str().unwrap_or_default(),
            )?;
            let container = &image["path"][0];
            let shown = format!(
                "{} {} {}",
                container["version"],
                container["compression"],
                plain < 1000
            );
            expect_equal("container", &format!("3 \"{format}\" true"), &shown)?;
        }
        folder.run(ours(), ["packed.bin", "--image=arch=b,file=out.o"])?;
        expect_equal(
            "contents",
            &"second".repeat(3001),
            &std::fs::read_to_string(folder.path().join("out.o"))?,
        )?;
    }
    for (args, message) in [
        (
            &["--compress", "--format-version=2"][..],
            "--compress writes version 3 only: omit --format-version=2",
        ),
        (
            &["--compress", "--compression-level=99"],
            "--compression-level=99 is out of range",
        ),
        (
            &["--compress", "--compression-format=lz4"],
            "Cannot find option named 'lz4'",
        ),
        (
            &["--format-version=3"],
            "--format-version=3: expected 1 or 2",
        ),
    ] {
        let ended = output(
            folder
                .command(ours())
                .args(["-o", "none.bin"])
                .args(images)
                .args(args),
        )?;
        if ended.status.success() || !text(&ended.stderr).contains(message) {
            return Err(format!("{args:?}: {}", text(&ended.stderr)).into());
        }
    }
    passed()
}

fn memory() -> Outcome {
    const SIZE: u64 = 256 << 20;
    const LIMIT: u64 = 64;
    let folder = Work::new();
    std::fs::File::create(folder.path().join("large.o"))?.set_len(SIZE)?;
    let commands: [&[&str]; 6] = [
        &[
            "-o",
            "v1.bin",
            "--image=file=large.o,triple=t,arch=a",
            "--image=file=large.o,triple=t,arch=b",
        ],
        &[
            "-o",
            "v2.bin",
            "--format-version=2",
            "--image=file=large.o,triple=t",
            "--image=file=large.o,triple=t",
        ],
        &[
            "-o",
            "v3.bin",
            "--compress",
            "--image=file=large.o,triple=t",
            "--image=file=large.o,triple=t",
        ],
        &["v1.bin", "--image=arch=b,file=out.o"],
        &[
            "v2.bin",
            "--error-on-no-match",
            "--image=file=out.o,triple=t",
        ],
        &["v1.bin", "--archive", "--image=arch=b,file=out.a"],
    ];
    for args in commands {
        at_most_memory(
            folder
                .command(ours())
                .args(args)
                .stderr(std::process::Stdio::null()),
            LIMIT,
        )?;
    }
    let sizes = ["out.o", "out.a"]
        .map(|name| std::fs::metadata(folder.path().join(name)).map_or(0, |meta| meta.len()));
    if sizes[0] != SIZE || sizes[1] <= SIZE {
        return Err(format!("sizes: {sizes:?}").into());
    }
    passed()
}
