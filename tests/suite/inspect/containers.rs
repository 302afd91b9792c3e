//! A file of each container format, and nested containers: their contents compared with the
//! listings of the tools that write them.

use std::os::unix::fs::FileExt;
use std::path::Path;

use libtest_mimic::{Failed, Trial};

use super::{Report, field, inspect, inspect_well, line, lines, sha256};
use crate::kit::{HOST, Image};
use crate::support::{
    Outcome, Work, at_most_memory, cuda_tools, expect_equal, expect_in, llvm, made, missing,
    passed, run, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("inspect::container::offload_binary", offload_binary),
        with_llvm("inspect::container::compressed_bundles", compressed_bundles),
        with_llvm("inspect::container::one_in_the_other", nested),
        with_llvm("inspect::container::coff_and_pe", coff),
        with_llvm("inspect::container::archives", archives),
        with_llvm("inspect::container::bare_images", bare),
        with_llvm("inspect::container::extracted_all_or_none", extracted),
        with_llvm("inspect::container::damaged_files_are_named", damaged),
        with_llvm("inspect::container::memory_does_not_grow", memory),
        test("releases::inspect::container::fatbinary", fatbinary),
    ]
}

/// Kind, triple, target and hash of each image, sorted.
fn expected_images(work: &Work, images: &[Image<'_>]) -> Result<String, Failed> {
    let mut all = Vec::new();
    for Image {
        triple,
        arch,
        kind,
        bytes,
    } in images
    {
        std::fs::write(work.path().join("bytes"), bytes)?;
        all.push(format!(
            "{kind}|{triple}|{arch}|{}\n",
            sha256(work, "bytes")?
        ));
    }
    all.sort();
    Ok(all.concat())
}

const FACTS: [&str; 4] = ["kinds", "triple", "target", "sha256"];

fn offload_binary() -> Outcome {
    let work = Work::new();
    let images = Image::of_each_kind();
    work.pack("packed", &images)?;
    let report = inspect_well(&work, ["packed"])?;
    expect_equal(
        "images",
        &expected_images(&work, &images)?,
        &lines(report.images(0), &FACTS),
    )?;
    // obj2yaml must report the same kinds, flags, strings in order, and contents.
    let yaml = work.run(llvm("obj2yaml"), ["packed"])?;
    let members: Vec<&str> = yaml.split("- ImageKind:").skip(1).collect();
    expect_equal("members", "3", &members.len().to_string())?;
    for (member, image) in members.iter().zip(report.images(0)) {
        for (key, value) in image["strings"].as_object().ok_or("strings")? {
            expect_in(member, &format!("Key:             {key}\n"))?;
            expect_in(member, value.as_str().unwrap_or_default())?;
        }
        let kinds = [
            ("openmp", "OFK_OpenMP"),
            ("cuda", "OFK_Cuda"),
            ("hip", "OFK_HIP"),
        ];
        let name = kinds
            .iter()
            .find(|(kind, _)| field(image, "kinds") == *kind)
            .map_or("none", |(_, name)| name);
        expect_in(member, name)?;
        expect_equal("flags", "0", &field(image, "flags"))?;
    }
    // An OffloadBinary as an image of another, and junk after one.
    let inner = std::fs::read(work.path().join("packed"))?;
    work.pack(
        "outer",
        &[Image {
            triple: HOST,
            arch: "x",
            kind: "sycl",
            bytes: &inner,
        }],
    )?;
    let report = inspect_well(&work, ["outer"])?;
    expect_equal(
        "inner images",
        &expected_images(&work, &images)?,
        &lines(report.images(0), &FACTS),
    )?;
    let steps = report.images(0)[0]["path"].as_array().map_or(0, Vec::len);
    expect_equal("steps", "2", &steps.to_string())?;
    passed()
}

fn bundle(work: &Work, name: &str, args: &[&str], env: &[(&str, &str)]) -> Result<(), Failed> {
    work.file("one", "ONE ".repeat(3000));
    work.file("two", "TWO ".repeat(5000));
    work.file("none", "");
    let mut command = work.command(llvm("clang-offload-bundler"));
    command.args([
        "-type=bc",
        "-targets=host-x86_64-unknown-linux-gnu-,hip-amdgcn-amd-amdhsa--gfx906,hipv4-amdgcn-amd-amdhsa--gfx90a:xnack-",
    ]);
    command
        .args(["-input=none", "-input=one", "-input=two"])
        .arg(format!("-output={name}"))
        .args(args);
    run(command.envs(env.iter().copied()))?;
    Ok(())
}

/// Fails unless `report` lists the images of the bundle that `bundle` wrote.
fn expect_bundle(work: &Work, report: &Report, file: usize, times: usize) -> Result<(), Failed> {
    let (one, two) = (sha256(work, "one")?, sha256(work, "two")?);
    let hip = "hip|amdgcn-amd-amdhsa|";
    let all = format!("{hip}gfx906|{one}\n").repeat(times)
        + &format!("{hip}gfx90a:xnack-|{two}\n").repeat(times);
    expect_equal("images", &all, &lines(report.device(file), &FACTS))
}

fn compressed_bundles() -> Outcome {
    let work = Work::new();
    bundle(&work, "plain", &[], &[])?;
    bundle(&work, "v3", &["-compress"], &[])?;
    bundle(
        &work,
        "v2",
        &["-compress"],
        &[("COMPRESSED_BUNDLE_FORMAT_VERSION", "2")],
    )?;
    let read = |name: &str| std::fs::read(work.path().join(name));
    let zeros = vec![0; 4096 - read("v3")?.len()];
    std::fs::write(
        work.path().join("row"),
        [read("v3")?, zeros, read("plain")?, read("v2")?].concat(),
    )?;
    let report = inspect_well(&work, ["plain", "v3", "v2", "row"])?;
    for (file, version) in [(1, "3"), (2, "2")] {
        expect_bundle(&work, &report, file, 1)?;
        let step = &report.images(file)[1]["path"][0];
        expect_equal(
            "step",
            &format!("compressed-bundle|{version}|zstd"),
            &line(step, &["name", "version", "compression"]),
        )?;
        let name = field(&report.json["files"][file], "file");
        let (size, plain) = (read(&name)?.len(), read("plain")?.len());
        expect_equal(
            "sizes",
            &format!("{size}|{plain}"),
            &line(step, &["size", "plain_size"]),
        )?;
        expect_equal(
            "of the image",
            &size.to_string(),
            &field(&report.images(file)[1], "compressed_size"),
        )?;
    }
    expect_bundle(&work, &report, 3, 3)?;
    let starts: Vec<String> = report
        .images(3)
        .iter()
        .step_by(3)
        .map(|image| field(&image["path"][0], "offset"))
        .collect();
    expect_equal(
        "starts",
        &format!("0 4096 {}", 4096 + read("plain")?.len()),
        &starts.join(" "),
    )?;
    // `--headers-only` reports everything except hashes.
    let names = [
        "id",
        "kinds",
        "triple",
        "target",
        "size",
        "compressed_size",
        "container",
    ];
    let headers = inspect_well(&work, ["--headers-only", "plain", "v3", "v2", "row"])?;
    for file in 0..4 {
        expect_equal(
            "headers",
            &lines(report.images(file), &names),
            &lines(headers.images(file), &names),
        )?;
        expect_equal("no hash", "", &field(&headers.images(file)[1], "sha256"))?;
    }
    passed()
}

/// A bundle in a compressed bundle in a section of a library in an archive, for each archive
/// format.
fn nested() -> Outcome {
    let work = Work::new();
    bundle(&work, "v3", &["-compress"], &[])?;
    work.file("a.c", "int a;\n");
    let clang = |args: &[&str]| work.run(llvm("clang"), args);
    clang(&["-c", "-fPIC", "a.c", "-o", "a.o"])?;
    work.run(
        llvm("llvm-objcopy"),
        [
            "--add-section=.hip_fatbin=v3",
            "--set-section-flags=.hip_fatbin=alloc,readonly",
            "a.o",
        ],
    )?;
    clang(&["-shared", "a.o", "-o", "liba.so"])?;
    work.run(llvm("llvm-ar"), ["rcs", "lib.a", "liba.so"])?;
    work.run(llvm("llvm-ar"), ["rcs", "outer.a", "lib.a"])?;
    work.run(llvm("llvm-ar"), ["rcsT", "thin.a", "liba.so", "a.o"])?;
    let report = inspect_well(&work, ["a.o", "liba.so", "outer.a", "thin.a"])?;
    for (file, times) in [(0, 1), (1, 1), (2, 1), (3, 2)] {
        expect_bundle(&work, &report, file, times)?;
    }
    let image = &report.images(2)[1];
    let place = line(image, &["members", "section", "container", "offset"]);
    expect_equal("place", "lib.a+liba.so|.hip_fatbin|bundle|", &place)?;
    let steps: Vec<String> = image["path"]
        .as_array()
        .ok_or("path")?
        .iter()
        .map(|step| line(step, &["in", "name"]))
        .collect();
    let expected = "member|lib.a member|liba.so section|.hip_fatbin container|compressed-bundle container|bundle";
    expect_equal("steps", expected, &steps.join(" "))?;
    // Offsets refer to the file: the section's bytes are at that offset.
    let bytes = std::fs::read(work.path().join("outer.a"))?;
    let at = image["path"][2]["offset"].as_u64().unwrap_or_default() as usize;
    expect_equal(
        "the section",
        "CCOB",
        &String::from_utf8_lossy(&bytes[at..at + 4]),
    )?;
    let member = field(&report.images(3)[0]["path"][0], "file");
    expect_equal("a thin archive's member", "liba.so", &member)?;
    passed()
}

fn archives() -> Outcome {
    let work = Work::new();
    let images = Image::of_each_kind();
    work.fat("a.o", &images)?;
    work.fat("plain.o", &[])?;
    work.archive("lib.a", &["a.o", "plain.o", "a.o"])?;
    let report = inspect_well(&work, ["lib.a"])?;
    let once = expected_images(&work, &images)?;
    let twice: String = once
        .lines()
        .map(|line| format!("{line}\n{line}\n"))
        .collect();
    expect_equal("images", &twice, &lines(report.images(0), &FACTS))?;
    // Files are reported in the order of the arguments. A file without device code is reported as
    // such.
    let mixed = inspect_well(&work, ["plain.o", "a.o", "plain.o", "lib.a"])?;
    let counts: Vec<String> = (0..4)
        .map(|file| mixed.images(file).len().to_string())
        .collect();
    expect_equal("images of each", "0 3 0 6", &counts.join(" "))?;
    let none = inspect(&work, ["plain.o"])?;
    expect_equal("status without device code", "1", &none.status.to_string())?;
    expect_equal("stderr", "", &none.stderr)?;
    passed()
}

/// COFF objects, and a program with truncated section names.
fn coff() -> Outcome {
    let work = Work::new();
    let images = Image::of_each_kind();
    work.fat_for("x86_64-pc-windows-msvc", "a.obj", &images, "int a;\n")?;
    bundle(&work, "v3", &["-compress"], &[])?;
    let source = "void __hipRegisterFatBinary(void *);\nint start(void) { __hipRegisterFatBinary(0); return 0; }\n";
    work.fat_for("x86_64-pc-windows-msvc", "main.obj", &[], source)?;
    work.run(
        llvm("llvm-objcopy"),
        [
            "--add-section=.hip_fatbin=v3",
            "--set-section-flags=.hip_fatbin=readonly,data",
            "main.obj",
        ],
    )?;
    work.file(
        "hip.def",
        "LIBRARY amdhip64_6.dll\nEXPORTS\n__hipRegisterFatBinary\n",
    );
    work.run(
        llvm("llvm-dlltool"),
        ["-m", "i386:x86-64", "-d", "hip.def", "-l", "hip.lib"],
    )?;
    let args = [
        "/entry:start",
        "/subsystem:console",
        "/nodefaultlib",
        "/opt:noref",
        "main.obj",
        "hip.lib",
        "/out:main.exe",
    ];
    work.run(llvm("lld-link"), args)?;
    let report = inspect_well(&work, ["a.obj", "main.obj", "main.exe"])?;
    expect_equal(
        "images",
        &expected_images(&work, &images)?,
        &lines(report.images(0), &FACTS),
    )?;
    expect_bundle(&work, &report, 1, 1)?;
    expect_bundle(&work, &report, 2, 1)?;
    expect_equal(
        "type",
        "coff-object pe",
        &[0, 2]
            .map(|file| field(&report.json["files"][file], "type"))
            .join(" "),
    )?;
    expect_equal(
        "section",
        ".hip_fat",
        &field(&report.images(2)[0], "section"),
    )?;
    expect_equal(
        "object",
        "hip|elsewhere",
        &line(&report.registrations(1)[0], &["runtime", "found"]),
    )?;
    let registered = &report.registrations(2)[0];
    expect_equal(
        "program",
        "hip|__hipRegisterFatBinary|library",
        &line(registered, &["runtime", "symbol", "found"]),
    )?;
    expect_equal(
        "library",
        "amdhip64_6.dll",
        &field(&registered["libraries"][0], "name"),
    )?;
    passed()
}

fn bare() -> Outcome {
    let work = Work::new();
    work.file("k.c", "void kernel(void) {}\n");
    let compile = |target: &[&str], args: &[&str]| {
        work.run(
            llvm("clang"),
            [&["-nogpulib", "-c", "k.c"], target, args].concat(),
        )
    };
    compile(
        &["--target=amdgcn-amd-amdhsa", "-mcpu=gfx906"],
        &["-o", "amd.o"],
    )?;
    compile(
        &["--target=nvptx64-nvidia-cuda"],
        &["-emit-llvm", "-o", "nv.bc"],
    )?;
    compile(&["--target=nvptx64-nvidia-cuda"], &["-S", "-o", "nv.s"])?;
    compile(
        &["--target=spirv64-unknown-unknown"],
        &["-emit-llvm", "-o", "spirv.bc"],
    )?;
    compile(
        &["--target=x86_64-unknown-linux-gnu"],
        &["-emit-llvm", "-o", "host.bc"],
    )?;
    std::fs::write(work.path().join("k.spv"), [3, 2, 0x23, 7, 0, 5, 1, 0])?;
    let report = inspect_well(
        &work,
        ["amd.o", "nv.bc", "nv.s", "spirv.bc", "k.spv", "host.bc"],
    )?;
    let all: Vec<String> = (0..6)
        .map(|file| lines(report.images(file), &["triple", "format"]))
        .collect();
    let expected = "amdgcn-amd-amdhsa|elf\nnvptx64-nvidia-cuda|bitcode\nnvptx64-nvidia-cuda|ptx\nspirv64-unknown-unknown|bitcode\n|spirv\n";
    expect_equal("bare images", expected, &all.concat())?;
    let types: Vec<String> = (0..6)
        .map(|file| field(&report.json["files"][file], "type"))
        .collect();
    expect_equal(
        "types",
        "elf-object bitcode ptx bitcode spirv bitcode",
        &types.join(" "),
    )?;
    passed()
}

/// Extraction writes all images or none, and overwrites no file.
fn extracted() -> Outcome {
    let work = Work::new();
    work.fat(
        "a.o",
        &[
            Image {
                arch: "../../evil",
                ..Image::of_each_kind()[0]
            },
            Image::of_each_kind()[1],
        ],
    )?;
    work.run("mkdir", ["sub"])?;
    work.run("cp", ["a.o", "sub/a.o"])?;
    let report = inspect_well(&work, ["--extract", "out", "a.o", "sub/a.o"])?;
    let mut names = Vec::new();
    for file in 0..2 {
        for image in report.images(file) {
            let name = field(image, "extracted");
            expect_equal(&name, &field(image, "sha256"), &sha256(&work, &name)?)?;
            expect_equal(
                &name,
                "out",
                &Path::new(&name)
                    .parent()
                    .unwrap_or(Path::new(""))
                    .display()
                    .to_string(),
            )?;
            names.push(name);
        }
    }
    names.sort();
    names.dedup();
    expect_equal("files", "4", &names.len().to_string())?;
    let listed = || work.run("ls", ["-A", "out"]);
    let before = listed()?;
    std::fs::remove_file(work.path().join(&names[0]))?;
    let left = listed()?;
    let mut again = work.command(crate::support::offld());
    let failed = crate::support::output(again.args(["inspect", "--extract", "out", "a.o"]))?;
    expect_equal(
        "status",
        "2",
        &failed.status.code().unwrap_or_default().to_string(),
    )?;
    expect_in(
        &crate::support::text(&failed.stderr),
        "already exists: remove the file, or pass another directory",
    )?;
    expect_equal("as before", &left, &listed()?)?;
    expect_equal(
        "one less",
        "1",
        &(before.lines().count() - left.lines().count()).to_string(),
    )?;
    work.expect_no_temps()?;
    passed()
}

/// The error names the file, member, section and offset. All other contents are shown.
fn damaged() -> Outcome {
    let work = Work::new();
    work.fat("good.o", &Image::of_each_kind())?;
    work.fat("bad.o", &Image::of_each_kind())?;
    let mut bytes = std::fs::read(work.path().join("bad.o"))?;
    let at = bytes
        .windows(4)
        .position(|word| word == [0x10, 0xff, 0x10, 0xad])
        .ok_or("no offload binary")?;
    // The size of the second image.
    let next = bytes[at + 8..]
        .windows(4)
        .position(|word| word == [0x10, 0xff, 0x10, 0xad]);
    let second = at + 8 + next.ok_or("no second")?;
    bytes[second + 64..second + 72].fill(0x7f);
    std::fs::write(work.path().join("bad.o"), &bytes)?;
    work.archive("lib.a", &["good.o", "bad.o", "good.o"])?;
    let report = inspect(&work, ["lib.a", "nothing", "good.o"])?;
    expect_equal("status", "2", &report.status.to_string())?;
    expect_in(
        &report.stderr,
        &format!(
            "error: lib.a(bad.o): .llvm.offloading: offload-binary at {:#x}+0x20: image size past the end\n",
            second - at
        ),
    )?;
    expect_in(&report.stderr, "error: nothing: No such file or directory")?;
    expect_equal("errors", "2", &report.stderr.lines().count().to_string())?;
    expect_equal(
        "images that are whole",
        "8 0 3",
        &[0, 1, 2]
            .map(|file| report.images(file).len().to_string())
            .join(" "),
    )?;
    passed()
}

/// NVIDIA's container, uncompressed and in every compression mode of the tool.
fn fatbinary() -> Outcome {
    let Some(tools) = cuda_tools(22) else {
        return missing("NVIDIA's tools (make setup-cuda)");
    };
    let work = Work::new();
    work.file(
        "k.ptx",
        ".version 8.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n",
    );
    work.file(
        "a.ptx",
        ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k() { ret; }\n",
    );
    let tool =
        |name: &str, args: &[&str]| run(work.command(tools.join("bin").join(name)).args(args));
    tool("ptxas", &["-arch=sm_80", "k.ptx", "-o", "k80.cubin"])?;
    tool("ptxas", &["-arch=sm_90", "k.ptx", "-o", "k90.cubin"])?;
    tool("ptxas", &["-arch=sm_90a", "a.ptx", "-o", "k90a.cubin"])?;
    for mode in ["none", "default", "size", "speed", "balance"] {
        let mode_option = format!("--compress-mode={mode}");
        let file = format!("{mode}.fatbin");
        let elf = |sm: &str| format!("--image3=kind=elf,sm={sm},file=k{sm}.cubin");
        tool(
            "fatbinary",
            &[
                "-64",
                "--compress-all",
                &mode_option,
                "--create",
                &file,
                &elf("80"),
                &elf("90"),
                &elf("90a"),
                "--image3=kind=ptx,sm=80,file=k.ptx",
            ],
        )?;
        let report = inspect_well(&work, [file.as_str(), "--kernels"])?;
        let dumped = tool("cuobjdump", &[&file])?;
        let blocks: Vec<&str> = dumped.split("Fatbin ").skip(1).collect();
        expect_equal(
            "entries",
            &blocks.len().to_string(),
            &report.images(0).len().to_string(),
        )?;
        for (block, image) in blocks.iter().zip(report.images(0)) {
            let arch = block
                .lines()
                .find_map(|line| line.strip_prefix("arch = "))
                .unwrap_or_default();
            let kind = if block.starts_with("ptx") {
                "ptx"
            } else {
                "cubin"
            };
            expect_equal(
                mode,
                &format!("{arch}|{kind}|nvptx64-nvidia-cuda"),
                &line(image, &["target", "format", "triple"]),
            )?;
            let packed = !image["compressed_size"].is_null();
            expect_equal(
                mode,
                &block.contains("\ncompressed\n").to_string(),
                &packed.to_string(),
            )?;
            if kind == "cubin" {
                expect_equal("kernel", "k", &field(&image["kernels"][0], "name"))?;
                tool("cuobjdump", &["-xelf", &format!("{arch}.cubin"), &file])?;
                let number = report
                    .images(0)
                    .iter()
                    .position(|other| other == image)
                    .unwrap_or_default()
                    + 1;
                expect_equal(
                    "code",
                    &sha256(&work, format!("{mode}.{number}.{arch}.cubin"))?,
                    &field(image, "sha256"),
                )?;
            } else {
                tool("cuobjdump", &["-xptx", "all", &file])?;
                expect_equal(
                    "PTX",
                    &sha256(&work, format!("{mode}.1.{arch}.ptx"))?,
                    &field(image, "sha256"),
                )?;
            }
        }
    }
    passed()
}

/// An image of 600 MiB, alone and compressed. For compressed data, the memory use is one window of
/// 128 MiB.
fn memory() -> Outcome {
    const SIZE: u64 = 600 << 20;
    let work = Work::new();
    let image = std::fs::File::create(work.path().join("image"))?;
    image.set_len(SIZE)?;
    // Some random bytes, because an image of zeros would exceed the allowed compression ratio.
    let mut state = 1_u32;
    let mut next = || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 24) as u8
    };
    for at in (0..SIZE).step_by(8 << 20) {
        let noise: Vec<u8> = (0..64 << 10).map(|_| next()).collect();
        image.write_all_at(&noise, at)?;
    }
    work.file("none", "");
    let bundle = |name: &str, compress: &[&str]| {
        let mut command = work.command(made().links.join("clang-offload-bundler"));
        command.args([
            "-type=bc",
            "-targets=host-x86_64-unknown-linux-gnu-,hip-amdgcn-amd-amdhsa--gfx906",
            "-input=none",
        ]);
        run(command
            .args(["-input=image", &format!("-output={name}")])
            .args(compress))
    };
    bundle("plain", &[])?;
    bundle("packed", &["-compress"])?;
    for (name, most) in [("plain", 120), ("packed", 300)] {
        let mut command = work.command(crate::support::offld());
        at_most_memory(command.args(["inspect", "--kernels", name]), most)?;
    }
    passed()
}
