//! The rows add up to the size of the file: for a file of every format, for the output of many
//! tools, and for damaged files.

use std::path::PathBuf;

use libtest_mimic::{Failed, Trial};

use super::{adds_up, bytes, row, size};
use crate::kit::{HOST, Image};
use crate::support::{
    OFFLOAD, Outcome, Work, cuda_tools, ensure, expect_equal, llvm, missing, passed, root, run,
    test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("size::sum::containers", containers),
        with_llvm("size::sum::host_formats", host_formats),
        with_llvm("size::sum::archives_and_wheels", archives),
        with_llvm("size::sum::of_damaged_files", damaged),
        test("size::sum::of_this_system", of_this_system),
        test("releases::size::sum::fatbinaries", fatbinaries),
    ]
}

/// OffloadBinaries, binary and text bundles, and compressed bundles: in objects, nested, and
/// concatenated.
fn containers() -> Outcome {
    let work = Work::new();
    work.pack("packed", &Image::of_each_kind())?;
    let inner = std::fs::read(work.path().join("packed"))?;
    work.pack(
        "nested",
        &[Image {
            triple: HOST,
            arch: "x",
            kind: "sycl",
            bytes: &inner,
        }],
    )?;
    work.file("row", [inner.as_slice(), &[0; 24], &inner].concat());
    work.fat("fat.o", &Image::of_each_kind())?;
    work.file("one", "ONE ".repeat(30_000));
    work.file("two", "TWO, and another one ".repeat(5000));
    work.file("host", "");
    let targets = "-targets=host-x86_64-unknown-linux-gnu,hip-amdgcn-amd-amdhsa--gfx90a,hip-amdgcn-amd-amdhsa--gfx1100";
    let inputs = ["-input=host", "-input=one", "-input=two"];
    for (name, kind, more) in [
        ("bundle", "-type=bc", &[][..]),
        ("ccob", "-type=bc", &["-compress"]),
        ("text", "-type=ll", &[]),
    ] {
        let mut command = work.command(llvm("clang-offload-bundler"));
        run(command
            .args([kind, targets])
            .args(inputs)
            .args(more)
            .arg(format!("-output={name}")))?;
    }
    for file in ["packed", "nested", "row", "fat.o", "bundle", "ccob", "text"] {
        adds_up(&work, file)?;
    }
    // In compressed data, the uncompressed sizes equal those of the images, and compressed bytes
    // add up to the file.
    let json = size(&work, ["--by", "arch", "ccob"])?;
    let file = std::fs::metadata(work.path().join("ccob"))?.len();
    let sizes_of = |arch: &str| {
        row(&json["total"], arch)
            .map(|row| (bytes(row), row["inflated"].as_u64().unwrap_or_default()))
    };
    let ((one, one_inflated), (two, two_inflated)) = (sizes_of("gfx90a")?, sizes_of("gfx1100")?);
    expect_equal(
        "inflated",
        "120000 105000",
        &format!("{one_inflated} {two_inflated}"),
    )?;
    ensure(one + two <= file && one > two, || {
        format!("{one} and {two} of {file}")
    })?;
    passed()
}

/// 64-bit and 32-bit ELF files of both byte orders: objects, programs, libraries, and files without
/// section headers. COFF objects and a PE file.
fn host_formats() -> Outcome {
    let work = Work::new();
    work.file("a.c", "int data[400] = {1}; static int more[99]; int f(int x) { return data[x] + more[x] + x * 3; }\nint main(void) { return f(0) - 1; }\n");
    let clang = llvm("clang");
    for (index, triple) in [
        "x86_64-linux-gnu",
        "i386-linux-gnu",
        "aarch64-linux-gnu",
        "powerpc64-linux-gnu",
        "s390x-linux-gnu",
    ]
    .iter()
    .enumerate()
    {
        let object = format!("{index}.o");
        run(work
            .command(&clang)
            .arg(format!("--target={triple}"))
            .args(["-g", "-c", "a.c", "-o", &object]))?;
        adds_up(&work, &object)?;
    }
    for (name, more) in [
        ("program", &[][..]),
        ("library", &["-shared", "-fPIC"]),
        ("static", &["-static"]),
    ] {
        run(work
            .command(&clang)
            .args(["-g", "a.c", "-o", name])
            .args(more))?;
        adds_up(&work, name)?;
    }
    run(work
        .command(llvm("llvm-strip"))
        .args(["--strip-sections", "program", "-o", "bare"]))?;
    adds_up(&work, "bare")?;
    for triple in [
        "x86_64-pc-windows-msvc",
        "aarch64-pc-windows-msvc",
        "i686-pc-windows-msvc",
    ] {
        run(work
            .command(&clang)
            .arg(format!("--target={triple}"))
            .args(["-c", "a.c", "-o", "a.obj"]))?;
        adds_up(&work, "a.obj")?;
    }
    run(work.command(&clang).args([
        "--target=x86_64-pc-windows-msvc",
        "-c",
        "a.c",
        "-o",
        "a.obj",
    ]))?;
    let mut link = work.command(llvm("lld-link"));
    run(link.args([
        "/dll",
        "/noentry",
        "/export:f",
        "/out:a.dll",
        "a.obj",
        "/force:unresolved",
    ]))?;
    adds_up(&work, "a.dll")?;
    passed()
}

/// Archives, thin archives and nested archives; a wheel with stored and compressed members.
fn archives() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &Image::of_each_kind())?;
    work.fat("b.o", &Image::of_each_kind()[..1])?;
    work.file("readme.txt", "text\n".repeat(1000));
    run(work
        .command(llvm("llvm-ar"))
        .args(["rc", "lib.a", "a.o", "b.o", "readme.txt"]))?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["rcT", "thin.a", "a.o", "b.o"]))?;
    run(work
        .command(llvm("llvm-ar"))
        .args(["rc", "outer.a", "lib.a", "b.o"]))?;
    for name in ["lib.a", "thin.a", "outer.a"] {
        adds_up(&work, name)?;
    }
    let of_thin = size(&work, ["thin.a"])?;
    let members: u64 = ["thin.a", "a.o", "b.o"]
        .iter()
        .map(|name| std::fs::metadata(work.path().join(name)).map_or(0, |meta| meta.len()))
        .sum();
    expect_equal(
        "a thin archive with its members",
        &members.to_string(),
        &bytes(&of_thin["total"]).to_string(),
    )?;
    let units = size(&work, ["--by", "unit", "lib.a"])?;
    row(&units["total"], "a.o")?;
    let script = "import zipfile as z\n\
        w = z.ZipFile('w.whl', 'w')\n\
        w.write('a.o', 'pkg/a.o', z.ZIP_STORED)\nw.write('lib.a', 'pkg/lib.a', z.ZIP_DEFLATED)\n\
        w.write('readme.txt', 'pkg/readme.txt', z.ZIP_DEFLATED)\nw.close()\n";
    run(work.command("python3").args(["-c", script]))?;
    adds_up(&work, "w.whl")?;
    let wheel = size(&work, ["--by", "part", "w.whl"])?;
    // In the wheel, and in the archive inside it.
    expect_equal(
        "the text of the wheel",
        "10000",
        &row(&wheel["total"], "files")?["inflated"].to_string(),
    )?;
    let own = bytes(row(&wheel["total"], "container")?);
    ensure(own < 2000, || format!("{own} bytes of containers' own"))?;
    passed()
}

/// Truncated files: readable data is counted, and the sum still equals the file size.
fn damaged() -> Outcome {
    let work = Work::new();
    let source = root().join("tests/programs/reduction.c");
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-O1", "-c"])
        .arg(source)
        .args(["-o", "whole.o"]))?;
    work.pack("packed", &Image::of_each_kind())?;
    for name in ["whole.o", "packed"] {
        let whole = std::fs::read(work.path().join(name))?;
        for cut in [1, 5, 9, 13, 16] {
            work.file("cut", &whole[..whole.len() * cut / 17]);
            adds_up(&work, "cut")?;
        }
        // Wrong sizes and offsets, one changed byte at a time.
        for at in (0..whole.len().min(400)).step_by(7) {
            let mut wrong = whole.clone();
            wrong[at] ^= 0xff;
            work.file("wrong", wrong);
            adds_up(&work, "wrong")?;
        }
    }
    passed()
}

/// Programs, libraries and archives of this system.
fn of_this_system() -> Outcome {
    let work = Work::new();
    let mut count = 0;
    let mut folders = ["/usr/lib/x86_64-linux-gnu", "/usr/bin"]
        .map(PathBuf::from)
        .to_vec();
    // One directory per installed release of gcc.
    folders.extend(
        std::fs::read_dir("/usr/lib/gcc/x86_64-linux-gnu")?
            .filter_map(|entry| Some(entry.ok()?.path())),
    );
    for folder in folders {
        let mut paths: Vec<_> = std::fs::read_dir(folder)?
            .filter_map(|entry| Some(entry.ok()?.path()))
            .collect();
        paths.sort();
        let is_file = |path: &PathBuf| {
            std::fs::metadata(path).is_ok_and(|meta| meta.is_file() && meta.len() < 8 << 20)
        };
        for path in paths.into_iter().filter(is_file).step_by(40).take(10) {
            adds_up(&work, path.to_str().ok_or("a path that is not UTF-8")?)?;
            count += 1;
        }
    }
    ensure(count >= 10, || format!("only {count} files"))?;
    passed()
}

/// Fatbinaries of NVIDIA's own tools, compressed and uncompressed: kernels with code, constants,
/// debug information and PTX.
fn fatbinaries() -> Outcome {
    let Some(tools) = cuda_tools(22).map(|cuda| cuda.join("bin")) else {
        return missing("NVIDIA's tools (make setup-cuda)");
    };
    let work = Work::new();
    let kernel = |name: &str| {
        format!(
            ".visible .entry {name}(.param .u64 p)\n{{\n.reg .b64 a;\nld.param.u64 a, [p];\nst.global.u64 [a], 7;\nret;\n}}\n"
        )
    };
    work.file(
        "k.ptx",
        format!(
            ".version 7.0\n.target sm_80\n.address_size 64\n{}{}",
            kernel("first"),
            kernel("second")
        ),
    );
    for (arch, cubin) in [("sm_80", "80.cubin"), ("sm_90", "90.cubin")] {
        run(work.command(tools.join("ptxas")).args([
            &format!("--gpu-name={arch}"),
            "k.ptx",
            "-o",
            cubin,
        ]))?;
        adds_up(&work, cubin)?;
    }
    for (name, more) in [
        ("plain", "--compress=false"),
        ("packed", "--compress-mode=size"),
    ] {
        let mut command = work.command(tools.join("fatbinary"));
        command.args(["-64", more, &format!("--create={name}")]);
        command.args([
            "--image3=kind=elf,sm=80,file=80.cubin",
            "--image3=kind=elf,sm=90,file=90.cubin",
            "--image3=kind=ptx,sm=80,file=k.ptx",
        ]);
        run(&mut command)?;
        adds_up(&work, name)?;
        let json = size(&work, ["--by", "arch,kernel", name])?;
        for arch in ["sm_80", "sm_90", "compute_80"] {
            kernels(row(&json["total"], arch)?)?;
        }
        let sizes = |cubin: &str| {
            std::fs::metadata(work.path().join(cubin)).map(|meta| meta.len().to_string())
        };
        expect_equal(
            "sm_90, inflated",
            &sizes("90.cubin")?,
            &row(&json["total"], "sm_90")?["inflated"].to_string(),
        )?;
    }
    passed()
}

fn kernels(arch: &serde_json::Value) -> Result<(), Failed> {
    for kernel in ["first", "second"] {
        ensure(bytes(row(arch, kernel)?) > 0, || {
            format!("{kernel} has no bytes")
        })?;
    }
    Ok(())
}
