//! Unusual signals, resource limits that end programs, and file names with terminal control
//! characters.

use std::process::{Command, Stdio};

use libtest_mimic::{Failed, Trial};

use crate::early_linker::at_work;
use crate::faults::stopped::{at_any_time, started, stopped, tell};
use crate::kit::{AMD, Image};
use crate::support::{
    LLVM, OFFLOAD, Outcome, Work, ensure, expect_equal, expect_in, expect_no_file, expect_not_in,
    llvm, made, output, passed, run, shown, test, text, with_llvm,
};

const SIGNALS: [(&str, i32); 7] = [
    ("quit", 3),
    ("abrt", 6),
    ("usr1", 10),
    ("usr2", 12),
    ("alrm", 14),
    ("xcpu", 24),
    ("xfsz", 25),
];

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        with_llvm(
            "regressions::g19b_waiting_linkers_are_gone_after_any_signal",
            waiting_linkers,
        ),
        with_llvm(
            "regressions::g19c_a_limit_on_the_size_of_files_leaves_nothing",
            size_of_files,
        ),
        with_llvm("regressions::g19d_names_in_messages_are_escaped", messages),
        with_llvm(
            "regressions::g19e_names_in_reports_and_lists_are_escaped",
            reports,
        ),
        with_llvm("regressions::g19g_names_in_programs_are_escaped", programs),
        with_llvm("regressions::g19h_names_of_symbols_are_escaped", symbols),
        test(
            "regressions::g19f_names_of_damaged_archives_are_escaped",
            damaged_archives,
        ),
    ];
    for (name, signal) in SIGNALS {
        for stage in ["device", "bundling", "host", "relocatable"] {
            let test = format!("regressions::g19a_sig{name}_in_the_{stage}_link_leaves_nothing");
            trials.push(with_llvm(&test, move || stopped(signal, stage)));
        }
    }
    trials.push(with_llvm(
        "regressions::g19a_sigusr1_at_any_time_leaves_nothing",
        || at_any_time(10),
    ));
    trials
}

/// A slow device compiler.
const SLOW: &str = "#!/bin/sh\n[ \"$1\" = -dumpversion ] && { echo 22.1.8; exit; }\necho $$ > pid.1; echo $$ > inner.1\nexec sleep 60\n";

fn waiting_linkers() -> Outcome {
    for (name, signal) in SIGNALS {
        let work = Work::new();
        work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
        work.tool("tools/clang", SLOW);
        let linker = format!("--linker-path={LLVM}/ld.lld");
        let mut command = work.wrapper(["-m", "elf_x86_64", &linker, "-o", "x", "a.o"]);
        let mut link = command.stderr(Stdio::piped()).spawn()?;
        started(work.path(), 1, &mut link)?;
        ensure(
            at_work(&work)? >= 2,
            || "no linker waits, so this test shows nothing",
        )?;
        tell(&link, signal)?;
        let ended = link.wait_with_output()?;
        let stderr = text(&ended.stderr);
        expect_equal(
            name,
            &format!("Some({})", 128 + signal),
            &format!("{:?}", ended.status.code()),
        )?;
        expect_in(&stderr, &format!("error: stopped by signal {signal}\n"))?;
        expect_not_in(&stderr, "no input files")?;
        expect_equal("processes that are left", "0", &at_work(&work)?.to_string())?;
        work.expect_no_temps()?;
    }
    passed()
}

fn size_of_files() -> Outcome {
    let work = Work::new();
    let bytes = vec![7u8; 3 << 20];
    work.fat(
        "a.o",
        &[Image {
            triple: AMD,
            arch: "gfx90a",
            kind: "hip",
            bytes: &bytes,
        }],
    )?;
    let link = work.wrapper(["-o", "x", "a.o"]);
    let mut limited = Command::new("prlimit");
    limited
        .arg("--fsize=1000000")
        .arg(link.get_program())
        .args(link.get_args())
        .current_dir(work.path());
    limited.envs(
        link.get_envs()
            .filter_map(|(name, value)| Some((name, value?))),
    );
    let ended = output(&mut limited)?;
    ensure(ended.status.code().is_some_and(|code| code != 0), || {
        shown(&limited, &ended)
    })?;
    expect_in(&text(&ended.stderr), "error: ")?;
    work.expect_no_temps()?;
    expect_no_file(&work.path().join("x"))?;
    passed()
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

fn damaged_archives() -> Outcome {
    let work = Work::new();
    let header = format!(
        "{:<16}{:<12}{:<6}{:<6}{:<8}{:<10}`\n",
        "\u{1b}[1mx.o/", 0, 0, 0, 644, 4000
    );
    work.file("short.a", format!("!<arch>\n{header}too short"));
    for words in [
        &["inspect", "short.a"][..],
        &[
            "clang-linker-wrapper",
            "--linker-path=/bin/true",
            "-o",
            "x",
            "short.a",
        ],
    ] {
        let ended = output(work.command(crate::support::offld()).args(words))?;
        expect_in(&text(&ended.stderr), "\\u{1b}[1mx.o")?;
        is_harmless(&text(&ended.stderr))?;
    }
    passed()
}
