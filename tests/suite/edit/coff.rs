//! Windows objects: device images are removed, changed, split off and merged again, and LLVM's
//! tools still see the rest unchanged.

use libtest_mimic::{Failed, Trial};

use super::{refused, same, stdout_of, targets};
use crate::kit::{AMD, Image};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, llvm, offld, passed, run, run_failing,
    with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("edit::coff::objects_lose_images", prune),
        with_llvm("edit::coff::images_get_any_size", replace),
        with_llvm("edit::coff::objects_of_many_sections", many_sections),
        with_llvm("edit::coff::parts_come_back", split),
        with_llvm(
            "edit::coff::bundles_stay_where_code_looks_for_them",
            registered,
        ),
        with_llvm("edit::coff::builds_are_merged", merge),
        with_llvm(
            "edit::coff::builds_with_other_host_code_are_refused",
            merge_refused,
        ),
    ]
}

const TRIPLES: [&str; 4] = [
    "x86_64-pc-windows-msvc",
    "i686-pc-windows-msvc",
    "aarch64-pc-windows-msvc",
    "x86_64-w64-windows-gnu",
];

/// Code with relocations, debug information, unwind tables, and an inline function that the linker
/// deduplicates.
const SOURCE: &str = "int other(int); int data[40] = {1}; static int zero[100];\n\
    __declspec(selectany) int one = 5;\nint f(int x) { return other(data[x] + zero[x]) + one; }\n";

/// An object for `triple` with `images`.
fn object(work: &Work, triple: &str, images: &[Image<'_>]) -> Result<(), Failed> {
    let packed = work.pack("packed", images)?;
    work.file("a.c", SOURCE);
    let mut compile = work.command(llvm("clang"));
    compile.args([
        &format!("--target={triple}"),
        "-fms-extensions",
        "-g",
        "-O1",
        "-c",
        "a.c",
        "-o",
        "a.obj",
    ]);
    run(compile.arg(format!(
        "-Xclang=-fembed-offload-object={}",
        packed.display()
    )))?;
    Ok(())
}

/// LLVM's description of an object, without file offsets and without the size of the image section.
fn seen(work: &Work, file: &str) -> Result<String, Failed> {
    let mut read = work.command(llvm("llvm-readobj"));
    let text = run(read.args([
        "--file-header",
        "--sections",
        "--relocations",
        "--symbols",
        "--section-data",
        file,
    ]))?;
    let mut lines = Vec::new();
    let mut of_images = false;
    for line in text.lines() {
        if let Some(name) = line.trim().strip_prefix("Name: ") {
            of_images = name.starts_with(".llvm.offloading");
        }
        let is_of = |starts: &[&str]| starts.iter().any(|start| line.trim().starts_with(start));
        // Bytes are printed as `0C50: 10FF10AD …  |........|`.
        let is_size =
            of_images && (is_of(&["RawDataSize", "Length", "Checksum"]) || line.ends_with('|'));
        if !is_size && !is_of(&["PointerTo", "File: "]) {
            lines.push(line);
        }
    }
    Ok(lines.join("\n"))
}

/// The code of an object with its relocations, and its debug information.
fn code(work: &Work, file: &str) -> Result<String, Failed> {
    let mut dump = work.command(llvm("llvm-objdump"));
    let text = run(dump.args(["-d", "-r", "--no-show-raw-insn", file]))?;
    Ok(text.lines().skip(2).collect::<Vec<_>>().join("\n"))
}

fn prune() -> Outcome {
    let work = Work::new();
    let (one, other) = ("ONE".repeat(1001), "OTHER".repeat(501));
    for triple in TRIPLES {
        object(
            &work,
            triple,
            &[Image::amd("gfx90a", &one), Image::amd("gfx908", &other)],
        )?;
        let stdout = stdout_of(
            &work,
            ["prune", "--keep", "gfx90a", "a.obj", "-o", "new.obj"],
        )?;
        expect_in(&stdout, "1 of 2 images dropped: gfx908")?;
        expect_equal("images", "gfx90a", &targets(&work, "new.obj")?)?;
        expect_equal(triple, &seen(&work, "a.obj")?, &seen(&work, "new.obj")?)?;
        expect_equal(triple, &code(&work, "a.obj")?, &code(&work, "new.obj")?)?;
        let size = |name: &str| std::fs::metadata(work.path().join(name)).map(|meta| meta.len());
        ensure(
            size("new.obj")? + 2505 <= size("a.obj")?,
            || "the bytes of the image are still there",
        )?;
        // LLVM reads the remaining image.
        let word = format!("--image=file=image,triple={AMD},arch=gfx90a");
        run(work
            .command(llvm("llvm-offload-binary"))
            .args(["new.obj", &word]))?;
        ensure(
            std::fs::read(work.path().join("image"))? == one.as_bytes(),
            || "the image is another one",
        )?;
        expect_in(
            &refused(
                &work,
                ["prune", "--drop", "gfx*", "a.obj", "-o", "none.obj"],
            )?,
            "removing these images would leave ",
        )?;
        stdout_of(
            &work,
            [
                "prune",
                "--drop",
                "gfx*",
                "--allow-empty",
                "a.obj",
                "-o",
                "none.obj",
            ],
        )?;
        let none = run_failing(
            work.command(offld())
                .args(["inspect", "--json", "none.obj"]),
        )?;
        expect_equal("said of no device code", "", &none)?;
        expect_equal(triple, &code(&work, "a.obj")?, &code(&work, "none.obj")?)?;
    }
    run(work
        .command(llvm("llvm-lib"))
        .args(["/out:all.lib", "a.obj"]))?;
    expect_in(
        &refused(
            &work,
            ["prune", "--keep", "gfx908", "--in-place", "all.lib"],
        )?,
        "a Windows library",
    )?;
    // An archive in the format of MinGW's tools.
    run(work
        .command(llvm("llvm-ar"))
        .args(["--format=gnu", "rcs", "all.lib.a", "a.obj"]))?;
    std::fs::rename(work.path().join("all.lib.a"), work.path().join("all.lib"))?;
    stdout_of(
        &work,
        ["prune", "--keep", "gfx908", "--in-place", "all.lib"],
    )?;
    expect_equal("images", "gfx908", &targets(&work, "all.lib")?)?;
    run(work
        .command(llvm("llvm-nm"))
        .args(["--print-armap", "all.lib"]))?;
    passed()
}

fn replace() -> Outcome {
    let work = Work::new();
    for triple in TRIPLES {
        object(
            &work,
            triple,
            &[Image::amd("gfx90a", "ONE"), Image::amd("gfx908", "OTHER")],
        )?;
        for size in [0, 1, 17, 100_003] {
            work.file("image", vec![b'x'; size]);
            stdout_of(
                &work,
                [
                    "replace", "a.obj", "--image", "0=image", "--force", "-o", "new.obj",
                ],
            )?;
            expect_equal(triple, &seen(&work, "a.obj")?, &seen(&work, "new.obj")?)?;
            expect_equal(triple, &code(&work, "a.obj")?, &code(&work, "new.obj")?)?;
            expect_in(
                &stdout_of(&work, ["inspect", "--json", "new.obj"])?,
                &format!("\"size\": {size}"),
            )?;
        }
    }
    passed()
}

/// If an object has more sections than the usual header can count, its header and symbols have
/// another format.
fn many_sections() -> Outcome {
    let work = Work::new();
    let packed = work.pack(
        "packed",
        &[Image::amd("gfx90a", "ONE"), Image::amd("gfx908", "OTHER")],
    )?;
    let mut text = String::from("target triple = \"x86_64-pc-windows-msvc\"\n");
    for number in 0..33_000 {
        text += &format!("define i32 @f{number}() {{ ret i32 {number} }}\n");
    }
    work.file("many.ll", text);
    let mut compile = work.command(llvm("clang"));
    compile.args([
        "-Wno-override-module",
        "--target=x86_64-pc-windows-msvc",
        "-O0",
        "-ffunction-sections",
        "-c",
        "many.ll",
        "-o",
        "a.obj",
    ]);
    run(compile.arg(format!(
        "-Xclang=-fembed-offload-object={}",
        packed.display()
    )))?;
    expect_in(
        &run(work
            .command(llvm("llvm-readobj"))
            .args(["--file-header", "a.obj"]))?,
        "COFF-x86-64",
    )?;
    stdout_of(
        &work,
        ["prune", "--keep", "gfx908", "a.obj", "-o", "new.obj"],
    )?;
    expect_equal("images", "gfx908", &targets(&work, "new.obj")?)?;
    ensure(
        seen(&work, "a.obj")? == seen(&work, "new.obj")?,
        || "something else has changed",
    )?;
    passed()
}

fn split() -> Outcome {
    let work = Work::new();
    object(
        &work,
        TRIPLES[0],
        &[Image::amd("gfx90a", "ONE"), Image::amd("gfx908", "OTHER")],
    )?;
    stdout_of(&work, ["split", "a.obj", "-d", "parts"])?;
    let parts = [
        "parts/a.obj.host",
        "parts/a.obj.gfx908.part",
        "parts/a.obj.gfx90a.part",
    ];
    stdout_of(&work, ["merge", "-o", "back.obj"].into_iter().chain(parts))?;
    same(&work.path().join("a.obj"), &work.path().join("back.obj"))?;
    passed()
}

/// Code refers to the bundle in such an object, so its location is fixed. Its contents may change.
fn registered() -> Outcome {
    let work = Work::new();
    let bundle = "__attribute__((section(\".hip_fatbin\"), aligned(4096))) const unsigned char images[] = {\n#embed \"bundle\"\n};\n";
    let inputs = ["/dev/null", "one", "other"];
    work.file("one", "ONE");
    work.file("other", "OTHER");
    let mut make = work.command(llvm("clang-offload-bundler"));
    make.args(["-type=o", "-bundle-align=4096", "-output=bundle"])
        .args(inputs.map(|input| format!("-input={input}")));
    let devices = "hipv4-amdgcn-amd-amdhsa--gfx90a,hipv4-amdgcn-amd-amdhsa--gfx908";
    run(make.arg(format!("-targets=host-x86_64-unknown-linux-gnu-,{devices}")))?;
    work.file("a.c", bundle);
    let compile = [
        "--target=x86_64-pc-windows-msvc",
        "-std=c23",
        "-c",
        "a.c",
        "-o",
        "a.obj",
    ];
    run(work.command(llvm("clang")).args(compile))?;
    stdout_of(
        &work,
        ["prune", "--keep", "gfx90a", "a.obj", "-o", "new.obj"],
    )?;
    expect_equal("images", "gfx90a", &targets(&work, "new.obj")?)?;
    passed()
}

/// Compiles `source` for `triple` to `ARCH.obj`, with one image for this GPU.
fn build(
    work: &Work,
    triple: &str,
    arch: &str,
    source: &str,
    words: &[&str],
) -> Result<(), Failed> {
    let contents = format!("IMAGE FOR {arch}").repeat(arch.len() * 10);
    let packed = work.pack("packed", &[Image::amd(arch, &contents)])?;
    work.file("a.c", source);
    let mut compile = work.command(llvm("clang"));
    compile.args([
        &format!("--target={triple}"),
        "-fms-extensions",
        "-g",
        "-O1",
        "-c",
        "a.c",
        "-o",
        &format!("{arch}.obj"),
    ]);
    run(compile
        .arg(format!(
            "-Xclang=-fembed-offload-object={}",
            packed.display()
        ))
        .args(words))?;
    Ok(())
}

fn merge() -> Outcome {
    let work = Work::new();
    let archs = ["gfx90a", "gfx908", "gfx1100"];
    for triple in TRIPLES {
        for words in [
            &[][..],
            &["-ffunction-sections", "-fdata-sections"],
            &["-faddrsig", "-mguard=cf"],
        ] {
            // Only MinGW's driver supports control flow guards.
            let words = if words.contains(&"-mguard=cf") && !triple.ends_with("-gnu") {
                &["-faddrsig"][..]
            } else {
                words
            };
            archs
                .iter()
                .try_for_each(|arch| build(&work, triple, arch, SOURCE, words))?;
            let stdout = stdout_of(
                &work,
                [
                    "merge",
                    "-o",
                    "all.obj",
                    "gfx90a.obj",
                    "gfx908.obj",
                    "gfx1100.obj",
                ],
            )?;
            expect_in(&stdout, "all.obj: 3 builds merged, 3 images: ")?;
            let mut devices: Vec<String> = targets(&work, "all.obj")?
                .split(' ')
                .map(str::to_owned)
                .collect();
            devices.sort();
            expect_equal("devices", "gfx1100 gfx908 gfx90a", &devices.join(" "))?;
            // Everything else equals the first object.
            expect_equal(
                triple,
                &seen(&work, "gfx90a.obj")?,
                &seen(&work, "all.obj")?,
            )?;
            expect_equal(
                triple,
                &code(&work, "gfx90a.obj")?,
                &code(&work, "all.obj")?,
            )?;
            for arch in archs {
                let word = format!("--image=file=image,triple={AMD},arch={arch}");
                run(work
                    .command(llvm("llvm-offload-binary"))
                    .args(["all.obj", &word]))?;
                let expected = format!("IMAGE FOR {arch}").repeat(arch.len() * 10);
                ensure(
                    std::fs::read(work.path().join("image"))? == expected.as_bytes(),
                    || "the image is another one",
                )?;
            }
        }
    }
    for arch in archs {
        std::fs::rename(
            work.path().join(format!("{arch}.obj")),
            work.path().join("a.obj"),
        )?;
        let library = format!("{arch}.lib");
        run(work
            .command(llvm("llvm-ar"))
            .args(["--format=gnu", "rcs", &library, "a.obj"]))?;
    }
    stdout_of(
        &work,
        ["merge", "-o", "all.lib", "gfx90a.lib", "gfx908.lib"],
    )?;
    ensure(
        targets(&work, "all.lib")?.split(' ').count() == 2,
        || "the library has not both images",
    )?;
    run(work
        .command(llvm("llvm-nm"))
        .args(["--print-armap", "all.lib"]))?;
    work.expect_no_temps()?;
    passed()
}

fn merge_refused() -> Outcome {
    let work = Work::new();
    for triple in TRIPLES {
        build(&work, triple, "gfx90a", SOURCE, &[])?;
        for (old, new, expected) in [
            (
                "return other(data[x]",
                "return 3 + other(data[x]",
                ": .text: ",
            ),
            ("data[40] = {1}", "data[40] = {2}", ": .data: "),
            ("__declspec(selectany) int one = 5", "int one = 5", "one"),
            (
                "int f(int x)",
                "int g(int x) { return 1; } int f(int x)",
                ".text: ",
            ),
            ("other", "another", "another"),
        ] {
            build(&work, triple, "gfx908", &SOURCE.replace(old, new), &[])?;
            let stderr = refused(
                &work,
                ["merge", "-o", "none.obj", "gfx90a.obj", "gfx908.obj"],
            )?;
            expect_in(&stderr, "gfx908.obj differs from gfx90a.obj: ")?;
            expect_in(&stderr, expected)?;
        }
    }
    build(&work, TRIPLES[0], "gfx90a", SOURCE, &[])?;
    build(&work, TRIPLES[2], "gfx908", SOURCE, &[])?;
    let stderr = refused(
        &work,
        ["merge", "-o", "none.obj", "gfx90a.obj", "gfx908.obj"],
    )?;
    expect_in(
        &stderr,
        "the machine types of gfx90a.obj and of gfx908.obj differ",
    )?;
    ensure(
        !work.path().join("none.obj").exists(),
        || "a file was written",
    )?;
    passed()
}
