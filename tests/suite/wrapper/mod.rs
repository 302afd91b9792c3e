//! The wrappers by themselves: their modules in programs that run with the runtime stub and with
//! LLVM's own runtime, compared with the modules of LLVM's wrappers (`beside`). Also images larger
//! than the memory limit.

mod beside;

use libtest_mimic::{Failed, Trial};

use crate::kit::Image;
use crate::support::{
    LLVM, Outcome, Work, at_most_memory, ensure, expect_equal, expect_in, expect_no_file,
    expect_not_in, llvm, made, missing, passed, run, run_failing, run_offloaded, stderr_of, text,
    with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    let mut all = vec![
        with_llvm(
            "wrapper::wr_07_wr_08_wr_09_wr_17_wr_18_wr_19_wr_20_wr_23_od_02_od_12_od_13_programs",
            programs,
        ),
        with_llvm(
            "wrapper::wr_10_wr_11_od_03_od_11_collected_sections",
            section_garbage_collection,
        ),
        with_llvm("wrapper::q12_q13_od_10_sections", sections),
        with_llvm(
            "wrapper::q14_wr_15_wr_16_wr_21_the_list_of_target_ids_survives",
            list_survives,
        ),
        with_llvm(
            "wrapper::wr_22_od_12_the_runtime_finds_its_image",
            offloaded,
        ),
        with_llvm("wrapper::two_modules_in_one_program", two_modules),
        with_llvm("wrapper::a_pipe_is_an_input_too", pipes),
        with_llvm("wrapper::what_fails_leaves_nothing", nothing_left),
        with_llvm("wrapper::two_gib_are_wrapped_in_64_mib", two_gib),
    ];
    all.extend(beside::trials());
    all
}

const HOST: &str = "x86_64-pc-linux-gnu";

/// Host code with entries of the old layout, one per flag.
const MAIN: &str = r#"#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
struct entry { void *address; char *name; size_t size; int32_t flags, reserved; };
void kernel_a(void) {}
int global_b;
void constructor(void) {}
void destructor(void) {}
__attribute__((section("omp_offloading_entries"), retain, used, aligned(1))) struct entry entries[] = {
    { (void *)&kernel_a, "kernel_a", 0, 0, 0 }, { &global_b, "global_b", sizeof global_b, 1, 0 },
    { (void *)&constructor, "constructor", 0, 2, 0 }, { (void *)&destructor, "destructor", 0, 4, 0 } };
int main(void) { puts("main"); fflush(stdout); return 0; }
"#;

/// Target ids and bytes of images. Two images are for the same architecture.
const IMAGES: [(&str, &str); 5] = [
    ("gfx906", "IMAGE-ONE"),
    ("gfx90a", "IMAGE-TWO!"),
    ("gfx906", "IMAGE-THREE"),
    ("gfx90a:sramecc+:xnack-", "IMAGE-4"),
    ("sm_70", "IMAGE-FIVE"),
];

impl Work {
    /// Runs `clang-offload-wrapper` with the first `count` images.
    fn wrapped(&self, count: usize, output: &str) -> Result<(), Failed> {
        let mut wrap = self.command(made().links.join("clang-offload-wrapper"));
        wrap.args(["-target", HOST, "-o", output]);
        for (index, (arch, bytes)) in IMAGES.iter().take(count).enumerate() {
            self.file(&format!("image.{index}"), bytes);
            wrap.arg(format!("--offload-arch={arch}"))
                .arg(format!("image.{index}"));
        }
        expect_equal("stderr", "", &stderr_of(&mut wrap)?)
    }

    /// Links the host code and `wrapped` into a program, with the runtime stub.
    fn linked(&self, wrapped: &str, options: &[&str]) -> Result<(), Failed> {
        self.file("main.c", MAIN);
        let mut link = self.command(llvm("clang"));
        link.args(["main.c", wrapped, "-o", "program", "-lomptarget", "-L"])
            .arg(&made().stub)
            .args(options);
        run(&mut link).map(drop)
    }

    /// The output of the program and of the stub in it.
    fn registered(&self) -> Result<String, Failed> {
        let printed = run(self
            .command("./program")
            .env("LD_LIBRARY_PATH", &made().stub)
            .env_remove("OFFLD_LEDGER"))?;
        expect_not_in(&printed, "BAD:")?;
        let line = |line: &str| line.split(" hash=").next().unwrap_or_default().to_owned() + "\n";
        Ok(printed.lines().map(line).collect())
    }
}

/// The expected output of a program with the first `count` images.
fn expected(count: usize) -> String {
    let mut all = String::new();
    for (index, (arch, _)) in IMAGES.iter().take(count).enumerate() {
        all += &format!(
            "openmp image-info version=1 number={index} count={count} arch={arch} opts=null\n"
        );
    }
    all += &format!("openmp register lib=0 images={count} entries=4 layout=32\n");
    for (index, (_, bytes)) in IMAGES.iter().take(count).enumerate() {
        all += &format!(
            "openmp image lib=0 index={index} is=raw in=none size={}\n",
            bytes.len()
        );
    }
    let entry = |name: &str, size: u32, flags: u32| {
        format!(
            "openmp entry lib=0 name={name} size={size} flags={flags:#x} kind=unsaid data=0 addr=set aux=null\n"
        )
    };
    let entries = entry("constructor", 0, 2)
        + &entry("destructor", 0, 4)
        + &entry("global_b", 4, 1)
        + &entry("kernel_a", 0, 0);
    all + &entries + "main\nopenmp unregister lib=0\n"
}

/// The stub must see the target ids, the images, `main`, and the images again: with 1, 2 and 5
/// images, in every form.
fn programs() -> Outcome {
    for count in [1, 2, 5] {
        for form in ["bc", "ll", "s", "o"] {
            let work = Work::new();
            let output = format!("wrapped.{form}");
            work.wrapped(count, &output)?;
            let object = if form == "o" {
                output
            } else {
                work.run(llvm("clang"), ["-c", &output, "-o", "made.o"])?;
                "made.o".to_owned()
            };
            for linker in ["-fuse-ld=bfd", "-fuse-ld=lld"] {
                work.linked(&object, &[linker])?;
                expect_equal(
                    &format!("{count} images, .{form}, {linker}"),
                    &expected(count),
                    &work.registered()?,
                )?;
            }
        }
    }
    passed()
}

/// Garbage collection of sections keeps the table. ld.lld needs an option for that if no code
/// refers to the table.
fn section_garbage_collection() -> Outcome {
    let work = Work::new();
    work.wrapped(2, "wrapped.o")?;
    for options in [
        &["-fuse-ld=bfd", "-Wl,--gc-sections"][..],
        &["-fuse-ld=lld", "-Wl,--gc-sections"],
        &["-fuse-ld=lld", "-Wl,--gc-sections,-z,nostart-stop-gc"],
        &["-fuse-ld=lld", "-Wl,--gc-sections,--strip-all,--icf=all"],
    ] {
        work.linked("wrapped.o", options)?;
        expect_equal(&format!("{options:?}"), &expected(2), &work.registered()?)?;
    }
    // If no code refers to the table, the link fails instead of producing a program that registers
    // nothing.
    work.file("main.c", "int main(void) { return 0; }\n");
    let mut link = work.command(llvm("clang"));
    link.args([
        "main.c",
        "wrapped.o",
        "-o",
        "empty",
        "-fuse-ld=lld",
        "-Wl,--gc-sections",
        "-lomptarget",
        "-L",
    ])
    .arg(&made().stub);
    expect_in(&run_failing(&mut link)?, "__start_omp_offloading_entries")?;
    run(link.arg("-Wl,-z,nostart-stop-gc"))?;
    let printed = run(work
        .command("./empty")
        .env("LD_LIBRARY_PATH", &made().stub)
        .env_remove("OFFLD_LEDGER"))?;
    expect_in(
        &printed,
        "openmp register lib=0 images=2 entries=0 layout=0",
    )?;
    passed()
}

/// The name of the table's section has no dot. The section contains only the dummy and entries;
/// image infos are plain constants.
fn sections() -> Outcome {
    let work = Work::new();
    work.wrapped(2, "wrapped.ll")?;
    let module = std::fs::read_to_string(work.path().join("wrapped.ll"))?;
    let in_table: Vec<&str> = module
        .lines()
        .filter(|line| line.contains("section \"omp_offloading_entries\""))
        .collect();
    expect_equal("what is in the table", "1", &in_table.len().to_string())?;
    expect_in(
        in_table[0],
        "@__dummy.omp_offloading.entry = weak hidden constant [0 x %__tgt_offload_entry] zeroinitializer",
    )?;
    expect_not_in(&module, "\".omp_offloading_entries\"")?;
    for info in module
        .lines()
        .filter(|line| line.starts_with("@.offload_image_info"))
    {
        expect_in(
            info,
            " = internal unnamed_addr constant %__tgt_image_info {",
        )?;
        expect_not_in(info, "section")?;
    }
    passed()
}

/// One string per image, even for two images of one architecture, after stripping and section
/// garbage collection.
fn list_survives() -> Outcome {
    for form in ["bc", "o"] {
        for linker in ["-fuse-ld=bfd", "-fuse-ld=lld"] {
            let work = Work::new();
            let output = format!("wrapped.{form}");
            work.wrapped(3, &output)?;
            if form == "o" {
                work.run("cp", [&output, "made.o"])?;
            } else {
                work.run(llvm("clang"), ["-O2", "-c", &output, "-o", "made.o"])?;
            }
            work.linked("made.o", &[linker, "-O2", "-Wl,--gc-sections"])?;
            for strip in ["--strip-debug", "--strip-all"] {
                work.run("strip", [strip, "program"])?;
                work.run(
                    llvm("llvm-objcopy"),
                    ["--dump-section", ".offload_arch_list=list", "program"],
                )?;
                let list = text(&std::fs::read(work.path().join("list"))?);
                expect_equal(
                    &format!("the list, .{form}, {linker}, {strip}"),
                    "gfx906\0gfx90a\0gfx906\0",
                    &list,
                )?;
                expect_equal("the program", &expected(3), &work.registered()?)?;
            }
        }
    }
    passed()
}

/// LLVM's runtime selects the image for this host among several, and runs it.
fn offloaded() -> Outcome {
    let work = Work::new();
    work.file(
        "a.c",
        "#include <omp.h>\n#include <stdio.h>\nint main(void) {\n  int host = -1, sum = 0;\n\
         #pragma omp target map(from : host) map(tofrom : sum)\n  {\n    host = omp_is_initial_device();\n\
         for (int i = 0; i < 10; ++i) sum += i;\n  }\n  printf(\"%d %d\\n\", host, sum);\n  return 0;\n}\n",
    );
    let compile = [
        "-fopenmp",
        "-fopenmp-targets=x86_64-pc-linux-gnu",
        "-c",
        "a.c",
        "-o",
    ];
    work.run(
        llvm("clang"),
        [&compile[..], &["host.o", "--offload-host-only"]].concat(),
    )?;
    work.run(
        llvm("clang"),
        [&compile[..], &["device.o", "--offload-device-only"]].concat(),
    )?;
    work.run(
        llvm("clang"),
        ["-shared", "-nostdlib", "device.o", "-o", "device.so"],
    )?;
    let bytes = std::fs::read(work.path().join("device.so"))?;
    work.pack(
        "packed",
        &[
            Image::amd("gfx90a", "NOT FOR US"),
            Image {
                triple: HOST,
                arch: "",
                kind: "openmp",
                bytes: &bytes,
            },
        ],
    )?;
    // Images above 1 MiB do not pass through LLVM.
    let large = Image {
        triple: "amdgcn-amd-amdhsa",
        arch: "gfx942",
        kind: "openmp",
        bytes: &[7; 1 << 20],
    };
    work.pack(
        "large",
        &[
            large,
            Image {
                triple: HOST,
                arch: "",
                kind: "openmp",
                bytes: &bytes,
            },
        ],
    )?;
    for (inputs, form) in [
        (&["device.so"][..], "bc"),
        (&["device.so"], "o"),
        (&["packed"], "s"),
        (&["packed"], "o"),
        (&["large"], "o"),
        (&["large"], "bc"),
    ] {
        let output = format!("wrapped.{form}");
        let mut wrap = work.command(made().links.join("llvm-offload-wrapper"));
        run(wrap.args(["--kind=openmp", "-o", &output]).args(inputs))?;
        if form != "o" {
            work.run(llvm("clang"), ["-c", &output, "-o", "wrapped.o"])?;
        }
        let libraries = format!("-L{LLVM}/../lib");
        work.run(
            llvm("clang"),
            [
                "host.o",
                "wrapped.o",
                "-o",
                "program",
                &libraries,
                "-lomp",
                "-lomptarget",
            ],
        )?;
        let mut program = work.command("./program");
        let printed = run_offloaded(program.env("LD_LIBRARY_PATH", format!("{LLVM}/../lib")))?;
        expect_equal(&format!("{inputs:?}, .{form}"), "0 45\n", &printed)?;
    }
    passed()
}

/// Input from a pipe is wrapped like a file.
fn pipes() -> Outcome {
    let work = Work::new();
    work.file("image", vec![3; 2 << 20]);
    let tool = made().links.join("llvm-offload-wrapper");
    let base = format!("{} --kind=openmp --triple={HOST}", tool.display());
    work.run(
        &tool,
        ["--kind=openmp", "--triple", HOST, "-o", "file.bc", "image"],
    )?;
    work.run(
        "bash",
        [
            "-c",
            &format!("cat image | {base} -o stdin.bc - && {base} -o fifo.bc <(cat image)"),
        ],
    )?;
    work.run("bash", ["-c", &format!("{base} -o - image > stdout.bc")])?;
    for name in ["stdin.bc", "fifo.bc", "stdout.bc"] {
        work.run("cmp", ["file.bc", name])?;
    }
    expect_no_file(&work.path().join("-"))?;
    work.expect_no_temps()?;
    passed()
}

/// If the wrapper fails, an existing output stays unchanged.
fn nothing_left() -> Outcome {
    let work = Work::new();
    work.file("image", "IMAGE");
    work.file("out.bc", "BEFORE");
    let packed = std::fs::read(work.pack("packed", &[Image::amd("gfx90a", "PACKED")])?)?;
    work.file("cut", &packed[..packed.len() - 8]);
    for (tool, triple) in [
        ("llvm-offload-wrapper", "--triple"),
        ("clang-offload-wrapper", "--target"),
    ] {
        for inputs in [&["image", "cut"][..], &["image", "nowhere"]] {
            let mut wrap = work.command(made().links.join(tool));
            wrap.args((tool == "llvm-offload-wrapper").then_some("--kind=openmp"))
                .args([triple, HOST, "-o", "out.bc"]);
            let stderr = run_failing(wrap.args(inputs))?;
            expect_in(&stderr, inputs[1])?;
            expect_equal(
                "the output",
                "BEFORE",
                &std::fs::read_to_string(work.path().join("out.bc"))?,
            )?;
        }
    }
    let left = work.run("ls", ["-A"])?;
    expect_equal(
        "files",
        "cut\nimage\nout.bc\npacked\npacked.0.o\ntmp\n",
        &left,
    )?;
    passed()
}

/// The size of a large image, and the required disk space.
const LARGE: u64 = 2 << 30;
const ROOM: u64 = 8 << 30;
/// The memory limit for wrapping, in MiB.
const MEMORY: u64 = 64;

/// Memory use does not grow with images, for bitcode and for objects.
fn two_gib() -> Outcome {
    let work = Work::new();
    let free = work.run("df", ["--output=avail", "-B1", "."])?;
    if free
        .lines()
        .last()
        .unwrap_or_default()
        .trim()
        .parse::<u64>()?
        < ROOM
    {
        return missing(format!(
            "{} GiB of free disk in {}",
            ROOM >> 30,
            work.path().display()
        ));
    }
    let image = work.file("image", "first");
    let file = std::fs::OpenOptions::new().append(true).open(&image)?;
    file.set_len(LARGE - 4)?;
    std::io::Write::write_all(&mut &file, b"last")?;
    for (tool, triple, output) in [
        ("llvm-offload-wrapper", "--triple", "out.o"),
        ("llvm-offload-wrapper", "--triple", "out.bc"),
        ("clang-offload-wrapper", "--target", "out.o"),
    ] {
        let mut wrap = work.command(made().links.join(tool));
        wrap.args((tool == "llvm-offload-wrapper").then_some("--kind=openmp"))
            .args([triple, HOST, "-o", output, "image"]);
        at_most_memory(&mut wrap, MEMORY)?;
        let out = work.path().join(output);
        let size = std::fs::metadata(&out)?.len();
        ensure((LARGE..LARGE + 8192).contains(&size), || {
            format!("{output} has {size} bytes, for an image of {LARGE}")
        })?;
        if output == "out.o" {
            let headers = work.run(llvm("llvm-readelf"), ["-SW", "out.o"])?;
            expect_in(&headers, &format!("{LARGE:x}"))?;
            expect_in(
                &work.run(llvm("llvm-readelf"), ["-sW", "out.o"])?,
                &format!(" {LARGE} OBJECT "),
            )?;
        }
        std::fs::remove_file(out)?;
    }
    passed()
}

/// Host code with one entry of the old layout.
const ONE_ENTRY: &str = r#"#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
struct entry { void *address; char *name; size_t size; int32_t flags, reserved; };
void kernel(void) {}
__attribute__((section("omp_offloading_entries"), retain, used, aligned(1))) struct entry entries[] = {
    { (void *)&kernel, "kernel", 0, 0, 0 } };
int main(void) { puts("main"); return 0; }
"#;

/// Links two offld modules as objects, through `-r` and through LLVM's text form. Both register
/// their images.
fn two_modules() -> Outcome {
    let work = Work::new();
    work.file("main.c", ONE_ENTRY);
    let wrap = made().links.join("clang-offload-wrapper");
    for (image, form) in [("one", "o"), ("two", "ll")] {
        work.file(image, format!("IMAGE {image}"));
        run(work
            .command(&wrap)
            .args(["-target", HOST, "-o", &format!("{image}.{form}"), image]))?;
    }
    work.run(llvm("clang"), ["-c", "two.ll", "-o", "two.o"])?;
    for linker in ["-fuse-ld=bfd", "-fuse-ld=lld"] {
        for relocatable in [false, true] {
            let mut inputs = vec!["one.o", "two.o"];
            if relocatable {
                work.run(
                    llvm("clang"),
                    ["-r", "-nostdlib", linker, "one.o", "two.o", "-o", "both.o"],
                )?;
                inputs = vec!["both.o"];
            }
            let mut link = work.command(llvm("clang"));
            link.arg("main.c").args(inputs).args([
                "-Wl,--gc-sections",
                linker,
                "-lomptarget",
                "-o",
                "program",
                "-L",
            ]);
            run(link.arg(&made().stub))?;
            let printed = run(work
                .command("./program")
                .env("LD_LIBRARY_PATH", &made().stub)
                .env_remove("OFFLD_LEDGER"))?;
            expect_not_in(&printed, "BAD:")?;
            for lib in [0, 1] {
                expect_in(
                    &printed,
                    &format!("openmp register lib={lib} images=1 entries=1 layout=32"),
                )?;
                expect_in(
                    &printed,
                    &format!("openmp image lib={lib} index=0 is=raw in=none size=9"),
                )?;
                expect_in(&printed, &format!("openmp unregister lib={lib}"))?;
            }
        }
    }
    passed()
}
