//! `offld inspect` and `readelf` show the origin of a file: the linker of its device code (from
//! offld's note), the compilers of its images, and the release of its entries.

use std::path::Path;
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::kit::{AMD, HOST, Image};
use crate::support::{
    LLVM, OFFLOAD, Outcome, Release, Work, cuda_tools, ensure, expect_equal, expect_in,
    expect_not_in, host_linker, llvm, made, missing, offld, output, passed, run, test, text,
    with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("inspect::a_note_says_who_linked_the_file", each_linker),
        with_llvm("inspect::relocatable_links_hand_the_note_on", relocatable),
        with_llvm("inspect::no_note_where_none_belongs", without),
        with_llvm("inspect::which_tools_made_an_image", producers),
        with_llvm("inspect::the_form_of_the_entries", || {
            entries(22, &["llvm_offload_entries", "56", "21 or later"])
        }),
        test("releases::the_form_of_entries_of_llvm_19", || {
            entries(19, &["omp_offloading_entries", "32", "14 to 19"])
        }),
        test("releases::which_tool_of_nvidia_made_an_image", cubin),
        with_llvm(
            "inspect::the_note_holds_versions_and_nothing_else",
            only_versions,
        ),
    ]
}

const VERSION: &str = env!("CARGO_PKG_VERSION");

fn inspect(work: &Work, file: &str) -> Result<Value, Failed> {
    let shown = text(&output(work.command(offld()).args(["inspect", "--json", file]))?.stdout);
    let report: Value =
        serde_json::from_str(&shown).map_err(|error| format!("{error}: {shown}"))?;
    Ok(report["files"][0].clone())
}

/// The number of notes with the owner offld in a file, as readelf prints them.
fn owners(work: &Work, file: &str) -> Result<usize, Failed> {
    Ok(run(work.command("readelf").args(["-n", file]))?
        .lines()
        .filter(|line| line.trim_start().starts_with("offld "))
        .count())
}

/// The link of `words` with `linker` in place of the stand-in.
fn link(work: &Work, linker: &Path, words: &[&str]) -> Command {
    let mut link = work.wrapper(words.iter().copied());
    link.arg(format!("--offld-linker={}", linker.display()));
    link
}

fn expect_linked_by(work: &Work, file: &str) -> Result<(), Failed> {
    let expected =
        format!("[{{\"device_compiler\":\"clang 22\",\"members\":[],\"offld\":\"{VERSION}\"}}]");
    expect_equal(
        file,
        &expected,
        &inspect(work, file)?["linked_by"].to_string(),
    )
}

fn each_linker() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::host("A")])?;
    for name in ["lld", "bfd", "gold", "mold", "wild"] {
        let Some(linker) = host_linker(name) else {
            return missing(name);
        };
        run(&mut link(
            &work,
            &linker,
            &["-shared", "--gc-sections", "-o", "lib.so", "a.o"],
        ))?;
        expect_equal(
            &format!("notes by {name}"),
            "2",
            &owners(&work, "lib.so")?.to_string(),
        )?;
        expect_linked_by(&work, "lib.so")?;
        run(work.command("strip").arg("lib.so"))?;
        expect_equal(
            "notes of the stripped file",
            "2",
            &owners(&work, "lib.so")?.to_string(),
        )?;
        expect_linked_by(&work, "lib.so")?;
        let shown = run(work.command(offld()).args(["inspect", "lib.so"]))?;
        expect_in(
            &shown,
            &format!("  device code linked by offld {VERSION} with clang 22\n"),
        )?;
    }
    passed()
}

fn relocatable() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::host("A")])?;
    work.fat("b.o", &[Image::host("B")])?;
    work.fat("plain.o", &[])?;
    for name in ["lld", "bfd"] {
        let Some(linker) = host_linker(name) else {
            return missing(name);
        };
        for part in ["a", "b"] {
            run(&mut link(
                &work,
                &linker,
                &["-r", "-o", &format!("{part}-r.o"), &format!("{part}.o")],
            ))?;
            expect_linked_by(&work, &format!("{part}-r.o"))?;
        }
        run(&mut link(
            &work,
            &linker,
            &["-shared", "-o", "lib.so", "a-r.o", "b-r.o", "plain.o"],
        ))?;
        expect_equal(
            &format!("notes by {name}"),
            "4",
            &owners(&work, "lib.so")?.to_string(),
        )?;
        expect_linked_by(&work, "lib.so")?;
        work.archive("parts.a", &["a-r.o", "plain.o"])?;
        let found = inspect(&work, "parts.a")?["linked_by"].to_string();
        expect_equal(
            "members",
            &format!(
                "[{{\"device_compiler\":\"clang 22\",\"members\":[\"a-r.o\"],\"offld\":\"{VERSION}\"}}]"
            ),
            &found,
        )?;
        std::fs::remove_file(work.path().join("parts.a"))?;
    }
    passed()
}

fn without() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::host("A")])?;
    work.fat("plain.o", &[])?;
    let lld = llvm("ld.lld");
    let cases: [(&str, &[&str]); 2] = [
        ("plain.so", &["-shared", "-o", "plain.so", "plain.o"]),
        (
            "quiet.so",
            &["-shared", "-o", "quiet.so", "a.o", "--no-offld-note"],
        ),
    ];
    for (file, words) in cases {
        run(&mut link(&work, &lld, words))?;
        expect_equal(file, "0", &owners(&work, file)?.to_string())?;
        expect_equal(file, "[]", &inspect(&work, file)?["linked_by"].to_string())?;
    }
    run(&mut link(
        &work,
        &lld,
        &["--emit-fatbin-only", "-o", "bundled", "a.o"],
    ))?;
    let images = std::fs::read(work.path().join("bundled"))?;
    ensure(
        !text(&images).contains("offld"),
        || "the bundled images name offld",
    )?;
    // A host with COFF objects.
    work.fat_for(
        "x86_64-pc-windows-msvc",
        "w.obj",
        &[Image::host("A")],
        "int w;\n",
    )?;
    let mut coff = work.command(made().links.join("clang-linker-wrapper"));
    coff.arg("--host-triple=x86_64-pc-windows-msvc")
        .env("OFFLD_CLANG", work.path().join("tools/clang"));
    run(coff.args(["--linker-path=tools/linker", "-out:w.dll", "w.obj"]))?;
    for made in std::fs::read_dir(work.path().join("made"))? {
        let bytes = std::fs::read(made?.path())?;
        ensure(
            !text(&bytes).contains(".note.offld"),
            || "a note in an object for Windows",
        )?;
    }
    passed()
}

/// The same program, linked in two directories with and without a filled cache, has the same bytes.
/// Its note has the allowed contents only.
fn only_versions() -> Outcome {
    let cache = Work::new();
    let mut programs = Vec::new();
    for caching in [false, true, true] {
        let work = Work::new();
        work.fat("a.o", &[Image::host("A")])?;
        let mut link = link(&work, &llvm("ld.lld"), &["-shared", "-o", "lib.so", "a.o"]);
        if caching {
            link.env("OFFLD_CACHE", cache.path());
        }
        run(&mut link)?;
        run(work.command(llvm("llvm-objcopy")).args([
            "--dump-section=.note.offld=note",
            "lib.so",
            "copy.so",
        ]))?;
        let note = std::fs::read(work.path().join("note"))?;
        let words = format!("offld {VERSION} offld clang 22");
        let strings: Vec<String> = run(work.command("strings").args(["-n", "4", "note"]))?
            .lines()
            .map(str::to_owned)
            .collect();
        expect_equal("the note", &words, &strings.join(" "))?;
        ensure(note.len() < 80, || format!("{} bytes of notes", note.len()))?;
        programs.push(std::fs::read(work.path().join("lib.so"))?);
        expect_not_in(&text(&note), &work.path().display().to_string())?;
    }
    ensure(
        programs.windows(2).all(|two| two[0] == two[1]),
        || "the links differ",
    )?;
    passed()
}

/// The version that clang prints, `clang version 22.1.8`, with a vendor's name before it.
fn clang_version() -> Result<String, Failed> {
    let stdout = run(Command::new(llvm("clang")).arg("--version"))?;
    Ok(stdout
        .lines()
        .next()
        .ok_or("clang says nothing")?
        .trim()
        .to_owned())
}

fn producers() -> Outcome {
    let work = Work::new();
    let source = work.file("part.c", "int part(int x) { return x + 1; }\n");
    for (name, words) in [("cpu.o", &[][..]), ("cpu.bc", &["-emit-llvm"])] {
        run(work
            .command(llvm("clang"))
            .args(["-c", "-o", name])
            .args(words)
            .arg(&source))?;
    }
    run(work
        .command(llvm("ld.lld"))
        .args(["-shared", "-o", "cpu.so", "cpu.o"]))?;
    let bytes = |name: &str| std::fs::read(work.path().join(name));
    let (object, bitcode, library) = (bytes("cpu.o")?, bytes("cpu.bc")?, bytes("cpu.so")?);
    let images = [
        Image {
            triple: HOST,
            arch: "a",
            kind: "openmp",
            bytes: &object,
        },
        Image {
            triple: HOST,
            arch: "b",
            kind: "openmp",
            bytes: &bitcode,
        },
        Image {
            triple: HOST,
            arch: "c",
            kind: "openmp",
            bytes: &library,
        },
        Image {
            triple: AMD,
            arch: "gfx90a",
            kind: "openmp",
            bytes: b"\x7fELF",
        },
    ];
    work.fat("a.o", &images)?;
    let found = inspect(&work, "a.o")?["images"]
        .as_array()
        .cloned()
        .unwrap_or_default();
    let clang = clang_version()?;
    let number = clang
        .split_once("version ")
        .and_then(|(_, rest)| rest.split(' ').next())
        .unwrap_or_default();
    let of = |index: usize| {
        found[index]["producers"]
            .as_array()
            .cloned()
            .unwrap_or_default()
    };
    ensure(
        of(0).len() == 1 && clang.starts_with(of(0)[0].as_str().unwrap_or("none")),
        || format!("{:?}, not {clang}", of(0)),
    )?;
    let release = number.split('+').next().unwrap_or_default();
    expect_in(&of(1)[0].to_string(), &format!("\"LLVM{release}"))?;
    let linked = format!("{:?}", of(2));
    expect_in(&linked, "LLD 22.")?;
    expect_in(&linked, "clang version 22.")?;
    expect_equal("of what is no image", "[]", &format!("{:?}", of(3)))?;
    let shown = run(work.command(offld()).args(["inspect", "a.o"]))?;
    expect_in(&shown, &format!(": made by LLVM{release}"))?;
    let linked = shown
        .lines()
        .find(|line| line.contains("LLD 22."))
        .unwrap_or_default();
    ensure(
        linked.contains(": made by ") && linked.contains("clang version"),
        || shown.clone(),
    )?;
    passed()
}

fn entries(major: u32, expected: &[&str; 3]) -> Outcome {
    let Some(release) = Release::of(major) else {
        return missing(format!("LLVM {major}"));
    };
    let work = Work::new();
    work.file("main.c", "int main(void) {\n  int x = 1;\n#pragma omp target map(tofrom: x)\n  x++;\n#pragma omp target map(tofrom: x)\n  x++;\n  return x;\n}\n");
    run(work
        .command(release.tool("clang"))
        .args(OFFLOAD)
        .args(&release.compile)
        .args(["-O1", "-fPIC", "-c", "main.c", "-o", "main.o"]))?;
    work.archive("main.a", &["main.o"])?;
    let mut link = work.command(made().links.join("ld.offld"));
    link.env("OFFLD_CLANG", release.tool("clang"))
        .env("OFFLD_LINKER", Path::new(LLVM).join("ld.lld"));
    run(link.args([
        "-shared",
        "-s",
        "--no-offload-runtime",
        "-o",
        "main.so",
        "main.o",
    ]))?;
    for file in ["main.o", "main.a", "main.so"] {
        let found = inspect(&work, file)?["entries"].clone();
        let [section, size, llvm] = expected;
        let members = if file == "main.a" {
            "[\"main.o\"]"
        } else {
            "[]"
        };
        let told = format!(
            "[{{\"count\":2,\"entry_size\":{size},\"llvm\":\"{llvm}\",\"members\":{members},\"section\":\"{section}\"}}]"
        );
        expect_equal(file, &told, &found.to_string())?;
        let shown = run(work.command(offld()).args(["inspect", file]))?;
        expect_in(
            &shown,
            &format!("{section}: 2 entries of {size} bytes, as in LLVM {llvm}\n"),
        )?;
    }
    passed()
}

fn cubin() -> Outcome {
    let Some(tools) = cuda_tools(22) else {
        return missing("NVIDIA's tools");
    };
    let work = Work::new();
    work.file(
        "k.ptx",
        ".version 7.0\n.target sm_80\n.address_size 64\n.visible .entry k() { ret; }\n",
    );
    run(work
        .command(tools.join("bin/ptxas"))
        .args(["-arch", "sm_80", "k.ptx", "-o", "k.cubin"]))?;
    let found = inspect(&work, "k.cubin")?["images"][0]["producers"].to_string();
    expect_in(&found, "[\"ptxas: Cuda compilation tools, release 1")?;
    passed()
}
