//! kpack: archives and programs as AMD's tools write them (`make.py` writes archives from the
//! description of the format), and accidents that users of such programs had.

use std::path::Path;
use std::process::Stdio;

use libtest_mimic::{Failed, Trial};
use serde_json::{Value, json};

use crate::support::{
    Outcome, Work, expect_equal, expect_in, llvm, offld, output, passed, root, run, run_failing,
    shown, test, text, with_llvm,
};

mod accidents;
mod split;
mod stopped;
mod wheels;

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = vec![
        test("kpack::fixtures_of_amd", fixtures),
        with_llvm("kpack::program_with_archives", program),
        with_llvm("kpack::library_for_windows", windows),
        with_llvm("kpack::prune_and_replace", edits),
        with_llvm("kpack::wheels_with_archives", wheels_with_archives),
    ];
    all.extend(accidents::trials());
    all.extend(split::trials());
    all.extend(stopped::trials());
    all.extend(wheels::trials());
    all
}

/// Writes an archive or a reference from its description.
fn make(work: &Work, description: &Value) -> Outcome {
    let mut command = work.command("python3");
    command.arg(root().join("tests/suite/kpack/make.py"));
    work.file("description.json", description.to_string());
    let file = std::fs::File::open(work.path().join("description.json"))?;
    run(command.stdin(Stdio::from(file)))?;
    passed()
}

/// An archive with these entries: program, architecture, file.
fn archive(work: &Work, output: &str, scheme: &str, entries: &[[&str; 3]]) -> Outcome {
    archive_with(work, output, scheme, entries, &json!({}))
}

/// An archive whose table of contents has `changes`.
fn archive_with(
    work: &Work,
    output: &str,
    scheme: &str,
    entries: &[[&str; 3]],
    changes: &Value,
) -> Outcome {
    let path = work.path().join(output);
    std::fs::create_dir_all(path.parent().ok_or("a folder")?)?;
    let mut archs: Vec<&str> = entries.iter().map(|entry| entry[1]).collect();
    archs.sort_unstable();
    archs.dedup();
    make(
        work,
        &json!({
            "output": output, "group": "test", "family": "gfx9", "arches": archs, "scheme": scheme,
            "entries": entries, "changes": changes,
        }),
    )
}

/// A code object for an architecture, with a kernel of this name.
fn code_object(work: &Work, name: &str, arch: &str, kernel: &str) -> Outcome {
    work.file(
        "kernel.c",
        format!("__attribute__((amdgpu_kernel)) void {kernel}(int *p) {{ *p = 1; }}\n"),
    );
    run(work.command(llvm("clang")).args([
        "-target",
        "amdgcn-amd-amdhsa",
        &format!("-mcpu={arch}"),
        "-nogpulib",
        "-O2",
        "kernel.c",
        "-o",
        name,
    ]))?;
    passed()
}

/// A shared library as AMD's splitter leaves it: its structs refer to archives.
struct Library<'a> {
    output: &'a str,
    /// Its path in the installation, as the reference has it.
    binary: &'a str,
    search_paths: &'a [&'a str],
    /// The numbers of registrations.
    numbers: &'a [u32],
    magic: &'a str,
}

impl<'a> Library<'a> {
    fn new(
        output: &'a str,
        binary: &'a str,
        search_paths: &'a [&'a str],
        numbers: &'a [u32],
    ) -> Self {
        Library {
            output,
            binary,
            search_paths,
            numbers,
            magic: "0x4B504948",
        }
    }

    fn make(&self, work: &Work) -> Outcome {
        let path = work.path().join(self.output);
        std::fs::create_dir_all(path.parent().ok_or("a folder")?)?;
        make(
            work,
            &json!({"output": "reference", "reference":
                {"kpack_search_paths": self.search_paths, "kernel_name": self.binary}}),
        )?;
        let mut source = ".section .hipFatBinSegment,\"aw\"\n.p2align 3\n".to_owned();
        for number in self.numbers {
            source.push_str(&format!(
                ".long {}, 1\n.quad reference, {number}\n",
                self.magic
            ));
        }
        source.push_str(".section .rocm_kpack_ref,\"a\"\nreference:\n.incbin \"reference\"\n");
        source.push_str(".text\n.globl start\nstart: call __hipRegisterFatBinary@PLT\nret\n");
        work.file("library.s", source);
        // A library that looks like HIP's runtime.
        work.file(
            "hip.c",
            "void **__hipRegisterFatBinary(const void *data) { return 0; }\n",
        );
        let folder = path.parent().ok_or("a folder")?;
        run(work
            .command(llvm("clang"))
            .args(["-shared", "-fPIC", "hip.c", "-o"])
            .arg(folder.join("libamdhip64.so")))?;
        run(work
            .command(llvm("clang"))
            .args([
                "-shared",
                "library.s",
                "-lamdhip64",
                "-Wl,-rpath,$ORIGIN",
                "-L",
            ])
            .arg(folder)
            .args(["-o", self.output]))?;
        passed()
    }
}

const PATHS: [&str; 1] = ["../.kpack/test_@GFXARCH@.kpack"];

/// The usual installation: a library with two registrations, and archives for two architectures.
fn installation(work: &Work, scheme: &str) -> Outcome {
    for arch in ["gfx90a", "gfx942"] {
        for number in [0, 1] {
            code_object(
                work,
                &format!("{arch}.{number}"),
                arch,
                &format!("kernel{number}"),
            )?;
        }
        let [zero, one] = [0, 1].map(|number| format!("{arch}.{number}"));
        archive(
            work,
            &format!(".kpack/test_{arch}.kpack"),
            scheme,
            &[
                ["lib/libtest.so#0", arch, &zero],
                ["lib/libtest.so#1", arch, &one],
            ],
        )?;
    }
    Library::new("lib/libtest.so", "lib/libtest.so", &PATHS, &[0, 1]).make(work)
}

fn inspect(work: &Work, args: &[&str]) -> Result<Value, Failed> {
    let mut command = work.command(offld());
    command.args(["inspect", "--json"]).args(args);
    let ended = output(&mut command)?;
    serde_json::from_slice(&ended.stdout).map_err(|_| shown(&command, &ended).into())
}

/// The facts of the images of a file, one line each.
fn images(report: &Value, file: usize, facts: &[&str]) -> String {
    let images = report["files"][file]["images"].as_array();
    let line = |image: &Value| {
        let facts = facts.iter().map(|fact| match &image[*fact] {
            Value::String(text) => text.clone(),
            other => other.to_string(),
        });
        facts.collect::<Vec<_>>().join(" ") + "\n"
    };
    images.into_iter().flatten().map(line).collect()
}

/// The test archives of AMD's runtime, rebuilt from their description.
fn fixtures() -> Outcome {
    let work = Work::new();
    let code = |start: &str, parts: &[(u8, usize)]| {
        let fill = parts.iter().flat_map(|(byte, count)| vec![*byte; *count]);
        start.bytes().chain(fill).collect::<Vec<u8>>()
    };
    work.file("n1", code("KERNEL1_GFX900_DATA", &[(0, 100)]));
    work.file("n2", code("KERNEL2_GFX906_DATA", &[(0, 200)]));
    work.file("n3", code("KERNEL3_APP_GFX900", &[(0xff, 150)]));
    work.file(
        "z1",
        code("HIP_KERNEL_GFX1100_", &[(b'A', 500), (b'B', 500)]),
    );
    work.file(
        "z2",
        code("HIP_KERNEL_GFX1101_", &[(b'X', 300), (b'Y', 300)]),
    );
    work.file("z3", code("TEST_APP_KERNEL___", &[(b'B', 1000)]));
    archive(
        &work,
        "test_noop.kpack",
        "none",
        &[
            ["lib/libtest.so#0", "gfx900", "n1"],
            ["lib/libtest.so#0", "gfx906", "n2"],
            ["bin/testapp#0", "gfx900", "n3"],
        ],
    )?;
    archive(
        &work,
        "test_zstd.kpack",
        "zstd-per-kernel",
        &[
            ["lib/libhip.so#0", "gfx1100", "z1"],
            ["lib/libhip.so#0", "gfx1101", "z2"],
            ["bin/hiptest#0", "gfx1100", "z3"],
        ],
    )?;
    let report = inspect(&work, &["test_noop.kpack", "test_zstd.kpack"])?;
    let facts = ["id", "triple", "target", "size"];
    expect_equal(
        "test_noop",
        "lib/libtest.so#0 amdgcn-amd-amdhsa gfx900 119\n\
         lib/libtest.so#0 amdgcn-amd-amdhsa gfx906 219\n\
         bin/testapp#0 amdgcn-amd-amdhsa gfx900 168\n",
        &images(&report, 0, &facts),
    )?;
    expect_equal(
        "test_zstd",
        "lib/libhip.so#0 amdgcn-amd-amdhsa gfx1100 1019\n\
         lib/libhip.so#0 amdgcn-amd-amdhsa gfx1101 619\n\
         bin/hiptest#0 amdgcn-amd-amdhsa gfx1100 1018\n",
        &images(&report, 1, &facts),
    )?;
    // The bytes are those that went in.
    for (file, names) in [
        ("test_noop.kpack", ["n1", "n2", "n3"]),
        ("test_zstd.kpack", ["z1", "z2", "z3"]),
    ] {
        let folder = format!("out.{file}");
        run(work
            .command(offld())
            .args(["inspect", file, "--extract", &folder]))?;
        let mut found: Vec<Vec<u8>> = Vec::new();
        for entry in std::fs::read_dir(work.path().join(&folder))? {
            found.push(std::fs::read(entry?.path())?);
        }
        for name in names {
            let expected = std::fs::read(work.path().join(name))?;
            if !found.contains(&expected) {
                return Err(format!("{file}: {name} was not extracted").into());
            }
        }
        let size = run(work.command(offld()).args(["size", file]))?;
        expect_in(&size, "gfx")?;
    }
    passed()
}

/// Commands follow a library to its archives.
fn program() -> Outcome {
    for scheme in ["none", "zstd-per-kernel"] {
        let work = Work::new();
        installation(&work, scheme)?;
        let shown = run(work.command(offld()).args(["inspect", "lib/libtest.so"]))?;
        expect_in(&shown, "4 device images")?;
        expect_in(&shown, "kpack: code of lib/libtest.so, 2 registrations")?;
        let report = inspect(&work, &["--kernels", "lib/libtest.so"])?;
        expect_equal(
            "images",
            "lib/libtest.so#0 gfx90a\nlib/libtest.so#1 gfx90a\nlib/libtest.so#0 gfx942\nlib/libtest.so#1 gfx942\n",
            &images(&report, 0, &["id", "target"]),
        )?;
        expect_equal("faults", "[]", &report["files"][0]["faults"].to_string())?;
        run(work.command(offld()).args(["check", "lib/libtest.so"]))?;
        run(work.command(offld()).args([
            "check",
            "--for",
            "gfx90a,gfx942:xnack+",
            "lib/libtest.so",
        ]))?;
        let no = refused(&work, &["--for", "gfx1100", "lib/libtest.so"])?;
        expect_in(
            &no,
            "install a kpack archive for gfx1100, or compile with --offload-arch=gfx1100",
        )?;
        // From another directory, and through a link.
        std::os::unix::fs::symlink("lib/libtest.so", work.path().join("link.so"))?;
        run(work
            .command(offld())
            .args(["check", "--for", "gfx90a", "link.so"]))?;
        run(work
            .command(offld())
            .args(["check", "--for", "gfx90a", "."]))?;
        let size = run(work.command(offld()).args(["size", "lib/libtest.so"]))?;
        for part in ["test_gfx90a.kpack", "test_gfx942.kpack", "libtest.so"] {
            expect_in(&size, part)?;
        }
        let kernels =
            run(work
                .command(offld())
                .args(["diff", "lib/libtest.so", "lib/libtest.so"]))?;
        expect_in(&kernels, "4")?;
    }
    passed()
}

/// A library for Windows, whose sections have short names, refers to archives like others.
fn windows() -> Outcome {
    let work = Work::new();
    installation(&work, "zstd-per-kernel")?;
    make(
        &work,
        &json!({"output": "reference", "reference":
            {"kpack_search_paths": PATHS, "kernel_name": "lib/libtest.so"}}),
    )?;
    let structs =
        ".long 0x4B504948, 1\n.quad reference, 0\n.long 0x4B504948, 1\n.quad reference, 1\n";
    work.file(
        "windows.s",
        format!(
            ".section .hipFatB,\"dw\"\n.p2align 3\n{structs}.section .kpackrf,\"dr\"\nreference:\n\
             .incbin \"reference\"\n.text\n.globl start\nstart: leaq structs(%rip), %rax\nret\n\
             .section .hipFatB\nstructs:\n"
        ),
    );
    run(work.command(llvm("clang")).args([
        "--target=x86_64-pc-windows-msvc",
        "-c",
        "windows.s",
        "-o",
        "windows.obj",
    ]))?;
    run(work.command(llvm("lld-link")).args([
        "/dll",
        "/noentry",
        "/include:start",
        "/export:start",
        "/out:lib/test.dll",
        "windows.obj",
    ]))?;
    let shown = run(work.command(offld()).args(["inspect", "lib/test.dll"]))?;
    expect_in(&shown, "4 device images")?;
    expect_in(&shown, "kpack: code of lib/libtest.so, 2 registrations")?;
    run(work
        .command(offld())
        .args(["check", "--for", "gfx90a", "lib/test.dll"]))?;
    let no = refused(&work, &["--for", "gfx1100", "lib/test.dll"])?;
    expect_in(&no, "gfx1100")?;
    // Edits of the library leave the archives as they are, and say so.
    let mut strip = work.command(offld());
    let told = run(strip.args(["strip-device", "lib/libtest.so", "-o", "stripped.so"]))?;
    expect_in(
        &told,
        "images in `../.kpack/test_@GFXARCH@.kpack` stay: edit them there",
    )?;
    for arch in ["gfx90a", "gfx942"] {
        std::fs::remove_file(work.path().join(format!(".kpack/test_{arch}.kpack")))?;
    }
    let no = refused(&work, &["lib/test.dll"])?;
    expect_in(&no, "no kpack archive ../.kpack/test_@GFXARCH@.kpack")?;
    passed()
}

fn edits() -> Outcome {
    for scheme in ["none", "zstd-per-kernel"] {
        let work = Work::new();
        code_object(&work, "a", "gfx90a", "one")?;
        code_object(&work, "b", "gfx942", "two")?;
        code_object(&work, "c", "gfx942", "three")?;
        archive(
            &work,
            "x.kpack",
            scheme,
            &[
                ["lib/a.so#0", "gfx90a", "a"],
                ["lib/a.so#0", "gfx942", "b"],
                ["lib/b.so#0", "gfx942", "c"],
            ],
        )?;
        run(work.command(offld()).args([
            "prune",
            "--keep",
            "gfx942",
            "x.kpack",
            "-o",
            "pruned.kpack",
        ]))?;
        // AMD's writer makes the same archive of these entries.
        archive(
            &work,
            "expected.kpack",
            scheme,
            &[["lib/a.so#0", "gfx942", "b"], ["lib/b.so#0", "gfx942", "c"]],
        )?;
        let [pruned, expected] =
            ["pruned.kpack", "expected.kpack"].map(|name| std::fs::read(work.path().join(name)));
        if pruned? != expected? {
            return Err(format!("{scheme}: not the bytes of AMD's writer").into());
        }
        run(work
            .command(offld())
            .args(["split", "x.kpack", "-d", "parts"]))?;
        let parts = std::fs::read_dir(work.path().join("parts"))?;
        let parts: Vec<_> = parts
            .collect::<Result<Vec<_>, _>>()?
            .into_iter()
            .map(|part| part.path())
            .collect();
        run(work
            .command(offld())
            .arg("merge")
            .args(&parts)
            .args(["-o", "merged.kpack"]))?;
        let [old, merged] =
            ["x.kpack", "merged.kpack"].map(|name| std::fs::read(work.path().join(name)));
        if old? != merged? {
            return Err(format!("{scheme}: split and merge do not give the archive back").into());
        }
    }
    passed()
}

/// A wheel with a program and its archives, and wheels with one part each.
fn wheels_with_archives() -> Outcome {
    let work = Work::new();
    installation(&work, "zstd-per-kernel")?;
    let zip = |name: &str, files: &[&str]| -> Outcome {
        let mut command = work.command("python3");
        command.args(["-m", "zipfile", "-c", name]).args(files);
        run(&mut command)?;
        passed()
    };
    let packs = [".kpack/test_gfx90a.kpack", ".kpack/test_gfx942.kpack"];
    // python -m zipfile stores base names, so whole directories are added.
    zip("all.whl", &["lib/", ".kpack/"])?;
    run(work
        .command(offld())
        .args(["check", "--for", "gfx90a", "all.whl"]))?;
    run_failing(
        work.command(offld())
            .args(["check", "--for", "gfx1100", "all.whl"]),
    )?;
    zip("host.whl", &["lib/"])?;
    let host = refused(&work, &["host.whl"])?;
    expect_in(&host, "kpack archives of another package")?;
    zip("device.whl", &[packs[0]])?;
    run(work
        .command(offld())
        .args(["check", "--for", "gfx90a", "device.whl"]))?;
    passed()
}

/// The text of `offld check`, which fails.
fn refused(work: &Work, args: &[&str]) -> Result<String, Failed> {
    let mut command = work.command(offld());
    command.arg("check").args(args);
    let ended = output(&mut command)?;
    if ended.status.success() {
        return Err(shown(&command, &ended).into());
    }
    Ok(text(&ended.stdout) + &text(&ended.stderr))
}

fn remove(work: &Work, name: &str) -> Outcome {
    std::fs::remove_file(work.path().join(Path::new(name)))?;
    passed()
}
