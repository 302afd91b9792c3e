//! Names with terminal control characters: messages and reports show them escaped.

use libtest_mimic::{Failed, Trial};

use crate::kit::{AMD, Image};
use crate::support::{
    LLVM, OFFLOAD, Outcome, Work, ensure, expect_in, llvm, made, output, passed, run, text,
    with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("terminal::names_in_messages_are_escaped", messages),
        with_llvm("terminal::names_in_reports_and_lists_are_escaped", reports),
        with_llvm("terminal::names_in_programs_are_escaped", programs),
        with_llvm("terminal::names_of_symbols_are_escaped", symbols),
    ]
}

/// Colours, a bell, a terminal title, a line that looks like an offld message, C1's control
/// sequence introducer, and a right-to-left override.
const ODD: &str = "gfx\u{1b}[31m\u{7}\u{1b}]0;title\u{7}\nerror: all is well\u{9b}31m\u{202e}";

/// Fails if `text` has a control character that a terminal would obey, or a line in which a name
/// passes for an offld message.
fn is_harmless(text: &str) -> Outcome {
    let odd = text
        .chars()
        .find(|c| (c.is_control() && *c != '\n') || *c == '\u{202e}');
    ensure(odd.is_none(), || format!("{odd:?} is in {text:?}"))?;
    ensure(
        !text
            .lines()
            .any(|line| line.starts_with("error: all is well")),
        || text.to_owned(),
    )?;
    passed()
}

fn messages() -> Outcome {
    let work = Work::new();
    work.fat(
        "a.o",
        &[Image {
            triple: AMD,
            arch: ODD,
            kind: "hip",
            bytes: b"A",
        }],
    )?;
    work.fat(
        "\u{1b}[1mb.o",
        &[Image {
            triple: "amdgcn-amd-\u{1b}[7mamdhsa",
            arch: "gfx90a",
            kind: "openmp",
            bytes: b"B",
        }],
    )?;
    work.archive("lib.a", &["\u{1b}[1mb.o"])?;
    for words in [
        &[
            "--wrapper-verbose",
            "--wrapper-why",
            "-o",
            "x",
            "a.o",
            "--whole-archive",
            "lib.a",
        ][..],
        &["--dry-run", "-o", "x", "a.o", "\u{1b}[1mb.o"],
        &[
            "--wrapper-why",
            "--emit-fatbin-only",
            "-o",
            "x",
            "a.o",
            "lib.a",
        ],
    ] {
        let mut command = work.wrapper(words.iter().copied());
        let ended = output(&mut command)?;
        is_harmless(&text(&ended.stderr))?;
        is_harmless(&text(&ended.stdout))?;
    }
    // A failing link prints its inputs.
    work.tool(
        "tools/clang",
        "#!/bin/sh\n[ \"$1\" = -dumpversion ] && { echo 22.1.8; exit; }\nexit 1\n",
    );
    let ended = output(&mut work.wrapper(["-o", "x", "a.o", "--whole-archive", "lib.a"]))?;
    expect_in(&text(&ended.stderr), "\\u{1b}[1mb.o")?;
    is_harmless(&text(&ended.stderr))
}

fn reports() -> Outcome {
    let work = Work::new();
    work.fat(
        "a.o",
        &[Image {
            triple: AMD,
            arch: ODD,
            kind: "hip",
            bytes: b"A",
        }],
    )?;
    std::fs::copy(work.path().join("a.o"), work.path().join("\u{1b}[1mb.o"))?;
    work.archive("lib.a", &["\u{1b}[1mb.o"])?;
    for words in [
        &["inspect", "a.o", "lib.a", "\u{1b}[1mb.o"][..],
        &["inspect", "--extract", "out", "lib.a"],
        &["inspect", "\u{1b}[1mnone"],
    ] {
        let ended = output(work.command(crate::support::offld()).args(words))?;
        is_harmless(&(text(&ended.stdout) + &text(&ended.stderr)))?;
        expect_in(&(text(&ended.stdout) + &text(&ended.stderr)), "\\u{1b}")?;
    }
    work.file("one", "1");
    work.file("host", "0");
    let id = format!("-targets=host-x86_64-unknown-linux-gnu,hip-{AMD}--gfx90a");
    let mut bundle = work.command(made().links.join("clang-offload-bundler"));
    output(bundle.args([
        "-type=bc",
        &id,
        "-input=host",
        "-input=one",
        "-output=bundle",
    ]))?;
    let mut bytes = std::fs::read(work.path().join("bundle"))?;
    let at = bytes
        .windows(6)
        .position(|window| window == b"gfx90a")
        .ok_or("no id in the bundle")?;
    bytes[at..at + 6].copy_from_slice(b"g\x1b[7m\x07");
    work.file("bundle", bytes);
    let ended = output(
        work.command(made().links.join("clang-offload-bundler"))
            .args(["-type=bc", "-list", "-input=bundle"]),
    )?;
    expect_in(&text(&ended.stdout), "g\\u{1b}[7m\\u{7}")?;
    is_harmless(&text(&ended.stdout))
}

/// `inspect` also shows text from the sections of programs and images.
fn programs() -> Outcome {
    let work = Work::new();
    work.file(
        "kernel.c",
        "__attribute__((amdgpu_kernel)) void kernel_with_a_long_name(int *a) { *a = 1; }",
    );
    let device = [
        "--target=amdgcn-amd-amdhsa",
        "-mcpu=gfx90a",
        "-nogpulib",
        "-O1",
        "kernel.c",
        "-o",
        "image",
    ];
    run(work.command(llvm("clang")).args(device))?;
    work.file(
        "main.c",
        "int x; int main(void) {\n#pragma omp target\n  x = 1;\n  return x;\n}",
    );
    let mut link = work.command(llvm("clang"));
    run(link
        .args(OFFLOAD)
        .arg("-B")
        .arg(&made().links)
        .args(["main.c", "-o", "program"])
        .env("OFFLD_CLANG", llvm("clang")))?;
    let odd = b"\x1b[31m\x07\nerror: all is well";
    for (file, name) in [
        ("image", &b"kernel_with_a_long_name"[..]),
        ("image", b"clang version"),
        ("program", b"clang version"),
        ("program", b"clang 22"),
    ] {
        let bytes = std::fs::read(work.path().join(file))?;
        let finder = memchr::memmem::Finder::new(name);
        let mut changed = bytes.clone();
        for at in finder.find_iter(&bytes) {
            let length = name.len().min(odd.len());
            changed[at..at + length].copy_from_slice(&odd[..length]);
        }
        ensure(changed != bytes, || {
            format!("{} is not in {file}", text(name))
        })?;
        work.file("odd", &changed);
        let ended =
            output(
                work.command(crate::support::offld())
                    .args(["inspect", "--kernels", "odd"]),
            )?;
        let told = text(&ended.stdout) + &text(&ended.stderr);
        expect_in(&told, "\\u{1b}[31m")
            .map_err(|_| Failed::from(format!("{} of {file}: {told}", text(name))))?;
        is_harmless(&told)?;
    }
    passed()
}

/// A symbol name with a line that looks like an offld message.
const LABEL: &str = "__asm__(\"__hip_fatbin_x\\nerror: all is well\\033[31m\")";

/// Messages with symbols: from `--wrapper-why`, in a hint about a missing file, and about HIP's old
/// driver.
fn symbols() -> Outcome {
    let work = Work::new();
    let device = format!(
        "int f(int) {LABEL}; int main(void) {{ int x = 0;\n#pragma omp target map(tofrom : x)\n  x = f(x);\n  return x; }}"
    );
    let host = format!(
        "extern const char f[] {LABEL}; __attribute__((section(\".hipFatBinSegment\"))) const void *wrapper = f;"
    );
    let callee = format!("int f(int) {LABEL}; int f(int x) {{ return x; }}");
    for (name, source, flags) in [
        ("device", &device, &OFFLOAD[..]),
        ("host", &host, &[]),
        ("callee", &callee, &[]),
        ("both", &callee, &OFFLOAD[..]),
    ] {
        let source = if name == "both" {
            format!("#pragma omp begin declare target\n{source}\n#pragma omp end declare target\n")
        } else {
            source.clone()
        };
        work.file(&format!("{name}.c"), source);
        run(work
            .command(llvm("clang"))
            .args(flags)
            .args(["-fPIC", "-c", &format!("{name}.c")]))?;
    }
    work.archive("lib.a", &["both.o"])?;
    for (objects, says) in [
        (
            &["device.o", "callee.o"][..],
            "is host code: callee.o defines it",
        ),
        (
            &["device.o", "lib.a"],
            "extracts the member for `__hip_fatbin_x",
        ),
        (
            &["--start-group", "device.o", "lib.a", "--end-group"],
            "extracts the member for `__hip_fatbin_x",
        ),
        (&["host.o"], "was compiled by HIP's old driver"),
    ] {
        for linker in ["ld", "lld"] {
            let program = if linker == "ld" {
                "/usr/bin/ld".to_owned()
            } else {
                format!("{LLVM}/ld.lld")
            };
            let mut link = work.command(made().links.join("clang-linker-wrapper"));
            link.args([
                "--host-triple=x86_64-pc-linux-gnu",
                "--wrapper-why",
                "-shared",
                "-o",
                "x",
            ])
            .args(objects);
            link.arg(format!("--linker-path={program}"))
                .env("OFFLD_CLANG", llvm("clang"));
            let stderr = text(&output(&mut link)?.stderr);
            expect_in(&stderr, says)?;
            // Only offld's own lines. The linker's messages and commands are not offld's.
            let ours: Vec<&str> = stderr
                .lines()
                .filter(|line| line.contains("__hip_fatbin_x") && line.contains("all is well"))
                .collect();
            ensure(!ours.is_empty(), || stderr.clone())?;
            ours.into_iter().try_for_each(|line| {
                expect_in(line, "__hip_fatbin_x\\nerror: all is well\\u{1b}[31m")
            })?;
        }
    }
    passed()
}
