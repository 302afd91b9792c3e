//! Commands that offld prints for in-process steps: the same arguments as LLVM's wrapper prints,
//! marked, and correct when run. Also the registration with placeholders for images.

use std::path::Path;

use libtest_mimic::{Failed, Trial};

use crate::kit::{AMD, HOST, Image, NVIDIA};
use crate::support::{
    LLVM, OFFLOAD, Outcome, Work, ensure, expect_equal, expect_in, llvm, made, passed, run,
    run_offloaded, stderr_of, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm(
            "dry_run::lines_of_bundler_and_objcopy_are_llvms_and_marked",
            same_lines,
        ),
        with_llvm("dry_run::save_temps_shows_discrete_steps", discrete_steps),
        with_llvm(
            "dry_run::steps_of_earlier_registrations_are_not_claimed",
            earlier_tables,
        ),
        with_llvm(
            "dry_run::the_steps_make_the_program_when_pasted",
            pasted_program,
        ),
        with_llvm(
            "dry_run::the_steps_of_a_relocatable_link_do_so_too",
            pasted_object,
        ),
        with_llvm(
            "dry_run::the_bundle_of_the_line_is_ours_byte_for_byte",
            same_bundle,
        ),
        with_llvm("dry_run::placeholders_of_a_dry_run_are_llvms", placeholders),
    ]
}

/// The end of a command that offld prints but does not run.
const MARK: &str = " # in process";

/// The printed commands.
fn commands(messages: &str) -> Vec<&str> {
    messages
        .lines()
        .filter(|line| line.starts_with(" \""))
        .collect()
}

fn program(line: &str) -> &str {
    let path = line
        .trim_start_matches(" \"")
        .split('"')
        .next()
        .unwrap_or_default();
    path.rsplit('/').next().unwrap_or_default()
}

/// The command with the program's name instead of its path, with `TEMP/` for temporary directories,
/// and without random parts of names there.
fn normalized(line: &str, temp: &Path) -> String {
    let temp = format!("{}/", temp.display());
    let words = line
        .trim_end_matches(MARK)
        .split(' ')
        .filter(|word| !word.is_empty())
        .map(|word| {
            let Some((before, path)) = word.split_once(&temp) else {
                return word.to_owned();
            };
            // offld's temporary files have their own directory. LLVM's have six digits before the
            // extension.
            let name = path.rsplit('/').next().unwrap_or_default();
            let (stem, end) = name.rsplit_once('.').unwrap_or((name, ""));
            let stem = stem
                .rsplit_once('-')
                .filter(|(_, random)| random.len() == 6)
                .map_or(stem, |(stem, _)| stem);
            format!("{before}TEMP/{stem}.{end}")
        });
    let words: Vec<String> = words.collect();
    [&[program(line).to_owned()], &words[1..]]
        .concat()
        .join(" ")
}

fn image(triple: &'static str, arch: &'static str, kind: &'static str) -> Image<'static> {
    Image {
        triple,
        arch,
        kind,
        bytes: b"code",
    }
}

/// An object for each kind.
fn objects(work: &Work) -> Result<(), Failed> {
    work.fat(
        "hip.o",
        &[image(AMD, "gfx90a", "hip"), image(AMD, "gfx908", "hip")],
    )?;
    work.fat(
        "cuda.o",
        &[
            image(NVIDIA, "sm_80", "cuda"),
            image(NVIDIA, "sm_70", "cuda"),
        ],
    )?;
    work.fat("openmp.o", &[image(HOST, "generic", "openmp")])?;
    work.fat(
        "sycl.o",
        &[image("spirv64-unknown-unknown", "generic", "sycl")],
    )?;
    Ok(())
}

/// The output of a dry run, by offld or by LLVM's wrapper.
fn shown(work: &Work, ours: bool, words: &[&str]) -> Result<String, Failed> {
    let program = if ours {
        made().links.join("clang-linker-wrapper")
    } else {
        llvm("clang-linker-wrapper")
    };
    let mut wrapper = work.command(program);
    wrapper.args([
        "--host-triple=x86_64-unknown-linux-gnu",
        "--linker-path=/usr/bin/ld",
        "--dry-run",
        "-o",
        "a.out",
    ]);
    stderr_of(
        wrapper
            .args(words)
            .env("OFFLD_CLANG", llvm("clang"))
            .env("PATH", "/usr/bin:/bin"),
    )
}

fn same_lines() -> Outcome {
    const TOOLS: [&str; 3] = ["clang-offload-bundler", "fatbinary", "llvm-objcopy"];
    let work = Work::new();
    objects(&work)?;
    let lines: [(&[&str], usize); 9] = [
        (&["hip.o"], 1),
        (&["hip.o", "--compress"], 1),
        (&["hip.o", "--compress", "--compression-level=9"], 1),
        (&["hip.o", "-r"], 2),
        (&["cuda.o"], 1),
        (&["cuda.o", "-r"], 2),
        (&["openmp.o", "-r"], 1),
        (&["sycl.o", "-r"], 1),
        (&["openmp.o", "hip.o", "-r"], 2),
    ];
    for (words, count) in lines {
        let steps = |ours: bool| -> Result<Vec<String>, Failed> {
            let messages = shown(&work, ours, words)?;
            let steps = commands(&messages)
                .into_iter()
                .filter(|line| TOOLS.contains(&program(line)));
            let marked =
                |line: &&str| line.ends_with(MARK) == (ours && program(line) != "fatbinary");
            let (right, wrong): (Vec<&str>, Vec<&str>) = steps.partition(marked);
            ensure(wrong.is_empty(), || {
                format!("{words:?}: marked, and should not be, or the other way round: {wrong:?}")
            })?;
            Ok(right
                .into_iter()
                .map(|line| {
                    normalized(line, &work.path().join("tmp")).replace("--relocatable", "-r")
                })
                .collect())
        };
        let (ours, theirs) = (steps(true)?, steps(false)?);
        expect_equal(&format!("{words:?}"), &theirs.join("\n"), &ours.join("\n"))?;
        expect_equal(
            &format!("steps of {words:?}"),
            &count.to_string(),
            &ours.len().to_string(),
        )?;
    }
    passed()
}

/// The programs in the output of a dry run with `--save-temps`, with brackets around in-process
/// steps.
fn programs(messages: &str) -> String {
    let name = |line: &&str| {
        if line.ends_with(MARK) {
            format!("[{}]", program(line))
        } else {
            program(line).to_owned()
        }
    };
    commands(messages)
        .iter()
        .map(name)
        .collect::<Vec<_>>()
        .join(" ")
}

fn discrete_steps() -> Outcome {
    let work = Work::new();
    objects(&work)?;
    let lines: [(&[&str], &str); 6] = [
        (
            &["openmp.o"],
            "clang [llvm-offload-binary] [llvm-offload-wrapper] [clang] ld",
        ),
        (
            &["openmp.o", "-r"],
            "clang [llvm-offload-binary] [llvm-offload-wrapper] [clang] ld [llvm-objcopy]",
        ),
        (
            &["hip.o"],
            "clang clang [clang-offload-bundler] [llvm-offload-wrapper] [clang] ld",
        ),
        (
            &["cuda.o"],
            "clang clang fatbinary [llvm-offload-wrapper] [clang] ld",
        ),
        (&["sycl.o"], "clang [llvm-offload-wrapper] [clang] ld"),
        (
            &["openmp.o", "hip.o"],
            "clang clang clang [clang-offload-bundler] [llvm-offload-binary] [llvm-offload-wrapper] [clang] [llvm-offload-wrapper] [clang] ld",
        ),
    ];
    for (words, expected) in lines {
        let messages = shown(&work, true, &[words, &["--save-temps"]].concat())?;
        expect_equal(&format!("{words:?}"), expected, &programs(&messages))?;
        let messages = shown(&work, true, words)?;
        ensure(
            !messages.contains("llvm-offload-wrapper") && !messages.contains("llvm-offload-binary"),
            || messages.clone(),
        )?;
    }
    // A real link prints the same.
    let messages = stderr_of(&mut work.wrapper([
        "hip.o",
        "--save-temps",
        "--wrapper-verbose",
        "-o",
        "a.out",
    ]))?;
    expect_in(
        &messages,
        "hip-amdgcn-amd-amdhsa--gfx90a,hip-amdgcn-amd-amdhsa--gfx908 -input=/dev/null ",
    )?;
    expect_in(
        &messages,
        " --kind=hip -o a.out.hip.image.wrapper.bc a.out.hipfb # in process\n",
    )?;
    passed()
}

/// LLVM's tool writes only the entry tables of LLVM 21 and later. For other tables, offld prints no
/// command, because its result would differ.
fn earlier_tables() -> Outcome {
    let work = Work::new();
    work.file("old.c", "__attribute__((section(\"omp_offloading_entries\"), used)) static const char entry[32] = {1};\n");
    work.file("image", "code");
    let pack = format!("--image=file=image,triple={HOST},arch=generic,kind=openmp");
    work.run(llvm("llvm-offload-binary"), ["-o", "packed", &pack])?;
    work.run(
        llvm("clang"),
        [
            "-c",
            "old.c",
            "-o",
            "old.o",
            "-Xclang",
            "-fembed-offload-object=packed",
        ],
    )?;
    let messages = shown(&work, true, &["old.o", "-r", "--save-temps"])?;
    expect_equal(&messages, "clang ld [llvm-objcopy]", &programs(&messages))?;
    expect_in(
        &messages,
        "--rename-section omp_offloading_entries=omp_offloading_entries_4b2008fd98c1dd4 ",
    )?;
    passed()
}

const SOURCE: &str = "#include <stdio.h>
int f(int x) {
  int y = 0;
#pragma omp target map(tofrom : y)
  y = x + 1;
  return y;
}
int main(void) {
  printf(\"%d\\n\", f(41));
  return 0;
}
";

/// The commands of clang's link of `SOURCE` with `flags`, from a dry run.
fn steps_of(work: &Work, flags: &[&str]) -> Result<Vec<String>, Failed> {
    work.file("p.c", SOURCE);
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-c", "p.c", "-o", "p.o"]))?;
    let mut clang = work.command(llvm("clang"));
    clang
        .args(OFFLOAD)
        .arg("-B")
        .arg(&made().links)
        .args(["p.o", "-o", "out", "-save-temps", "-Wl,--dry-run"])
        .args(flags);
    let stderr = stderr_of(clang.env("OFFLD_CLANG", llvm("clang")))?;
    Ok(commands(&stderr).into_iter().map(str::to_owned).collect())
}

/// Runs the commands in a shell, with the tool links in `with` in place of offld's.
fn paste(work: &Work, steps: &[String], with: &Path) -> Outcome {
    let (ours, other) = (
        made().links.display().to_string(),
        with.display().to_string(),
    );
    for step in steps {
        run(work
            .command("bash")
            .args(["-ec", &step.replace(&ours, &other)])
            .env("OFFLD_CLANG", llvm("clang")))?;
    }
    passed()
}

fn pasted_program() -> Outcome {
    for tools in [made().links.as_path(), Path::new(LLVM)] {
        let work = Work::new();
        let steps = steps_of(&work, &["-Wl,-rpath,/usr/lib/llvm-22/lib"])?;
        ensure(steps.len() == 5, || format!("{steps:?}"))?;
        paste(&work, &steps, tools)?;
        expect_equal(
            "the program",
            "42\n",
            &run_offloaded(&mut work.command(work.path().join("out")))?,
        )?;
    }
    passed()
}

fn pasted_object() -> Outcome {
    let work = Work::new();
    let steps = steps_of(&work, &["-r"])?;
    ensure(steps.len() == 6, || format!("{steps:?}"))?;
    paste(&work, &steps, &made().links)?;
    // The object registers its image itself, so this link needs no wrapper.
    let mut link = work.command(llvm("clang"));
    run(link.args([
        "out",
        "-o",
        "program",
        "-L/usr/lib/llvm-22/lib",
        "-lomptarget",
        "-lomp",
        "-Wl,-rpath,/usr/lib/llvm-22/lib",
    ]))?;
    expect_equal(
        "the program",
        "42\n",
        &run_offloaded(&mut work.command(work.path().join("program")))?,
    )?;
    passed()
}

/// LLVM's bundler, run with the printed command, writes the same bundle as offld.
fn same_bundle() -> Outcome {
    let work = Work::new();
    objects(&work)?;
    for words in [&["hip.o"][..], &["hip.o", "--compress"]] {
        let words = [words, &["--save-temps", "--wrapper-verbose", "-o", "a.out"]].concat();
        let told = stderr_of(&mut work.wrapper(words.iter().copied()))?;
        let line = commands(&told)
            .into_iter()
            .find(|line| program(line) == "clang-offload-bundler")
            .map(str::to_owned);
        let line = line.ok_or_else(|| format!("no bundler:\n{told}"))?;
        let ours = std::fs::read(work.path().join("a.out.hipfb"))?;
        let rest = line.splitn(3, '"').nth(2).unwrap_or_default();
        let by_llvm = format!(
            "{}{}",
            llvm("clang-offload-bundler").display(),
            rest.replace("=a.out.hipfb", "=theirs.hipfb")
        );
        run(work.command("bash").args(["-ec", &by_llvm]))?;
        let unpacked = |name: &str, bundle: &str| -> Result<Vec<u8>, Failed> {
            let input = format!("-input={bundle}");
            let targets = "-targets=hip-amdgcn-amd-amdhsa--gfx90a";
            work.run(
                llvm("clang-offload-bundler"),
                [
                    "-unbundle",
                    "-type=o",
                    targets,
                    &input,
                    &format!("-output={name}"),
                ],
            )?;
            Ok(std::fs::read(work.path().join(name))?)
        };
        if words.contains(&"--compress") {
            // The bytes of two compressors may differ.
            ensure(
                unpacked("one", "a.out.hipfb")? == unpacked("two", "theirs.hipfb")?,
                || "compressed bundles differ",
            )?;
        } else {
            ensure(
                ours == std::fs::read(work.path().join("theirs.hipfb"))?,
                || "bundles differ",
            )?;
        }
    }
    passed()
}

/// The variables and functions for images in a printed module, without sections and alignments,
/// which differ intentionally.
fn images_of(text: &str) -> String {
    let of_images = text
        .lines()
        .filter(|line| line.starts_with("@.fatbin_") || line.starts_with("@.sycl_offloading"));
    let lines =
        of_images.map(|line| line.split(", section \"").next().unwrap_or(line).to_owned() + "\n");
    lines.collect()
}

fn module(work: &Work, ours: bool, object: &str) -> Result<String, Failed> {
    let words = [object, "--dry-run", "--print-wrapped-module", "-o", "a.out"];
    let mut wrapper = if ours {
        work.command(made().links.join("clang-linker-wrapper"))
    } else {
        work.reference([])
    };
    wrapper
        .args([
            "--host-triple=x86_64-unknown-linux-gnu",
            "--linker-path=/usr/bin/ld",
        ])
        .args(words);
    wrapper.env("OFFLD_CLANG", crate::support::llvm("clang"));
    let printed = crate::support::output(&mut wrapper)?;
    ensure(printed.status.success(), || {
        crate::support::shown(&wrapper, &printed)
    })?;
    Ok(crate::support::text(&printed.stdout) + &crate::support::text(&printed.stderr))
}

fn placeholders() -> Outcome {
    let work = Work::new();
    let image = |triple, arch, kind| Image {
        triple,
        arch,
        kind,
        bytes: b"code",
    };
    work.fat(
        "hip.o",
        &[image(AMD, "gfx908", "hip"), image(AMD, "gfx90a", "hip")],
    )?;
    work.fat(
        "sycl.o",
        &[image("spirv64-unknown-unknown", "generic", "sycl")],
    )?;
    work.fat(
        "sycl2.o",
        &[
            image("spirv64-unknown-unknown", "generic", "sycl"),
            image("spirv64-unknown-unknown", "other", "sycl"),
        ],
    )?;
    for object in ["hip.o", "sycl.o", "sycl2.o"] {
        let (ours, theirs) = (
            images_of(&module(&work, true, object)?),
            images_of(&module(&work, false, object)?),
        );
        ensure(!ours.is_empty(), || "no images")?;
        expect_equal(object, &theirs, &ours)?;
    }
    // A real link creates a bundle.
    run(&mut work.wrapper(["hip.o", "-o", "a.out"]))?;
    passed()
}
