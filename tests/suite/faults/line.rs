//! Faults in the parsing of a command line: F1 to F6, F11, F18, F21, F23.

use libtest_mimic::{Failed, Trial};

use crate::kit::Image;
use crate::support::{
    OFFLOAD, Outcome, Work, expect_equal, expect_in, expect_not_in, llvm, made, output, passed,
    run, run_failing, run_offloaded, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("faults::f01_a_link_without_o_has_its_images", f01),
        with_llvm("faults::f02_two_outputs_one_registration", f02),
        with_llvm("faults::f03_library_is_l", f03),
        with_llvm("faults::f04_pop_state_ends_whole_archive", f04),
        with_llvm("faults::f05_values_of_options_are_no_inputs", f05),
        with_llvm("faults::f06_start_lib_is_an_archive", f06),
        with_llvm("faults::f11_printed_commands_can_be_pasted", f11),
        with_llvm("faults::f18_bstatic_is_obeyed", f18),
        with_llvm("faults::f21_three_megabytes_of_arguments", f21),
        with_llvm(
            "faults::f21_a_long_line_without_device_code_is_linked_once",
            f21_once,
        ),
        with_llvm(
            "faults::f23_version_and_help_on_a_link_line_are_the_linkers",
            f23,
        ),
    ]
}

/// The objects that offld added to a host command line, each with the argument before it.
fn made_objects(line: &[String]) -> Vec<(String, String)> {
    let before = |at: usize| {
        at.checked_sub(1)
            .map_or(String::new(), |at| line[at].clone())
    };
    let ours = line
        .iter()
        .enumerate()
        .filter(|(_, word)| word.ends_with(".image.wrapper.o"));
    ours.map(|(at, word)| (before(at), word.clone())).collect()
}

fn f01() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    run(&mut work.wrapper(["a.o"]))?;
    let line = work.host_line()?;
    expect_equal(
        "objects of ours",
        "1",
        &made_objects(&line).len().to_string(),
    )?;
    expect_equal(
        "the last word",
        "a.o",
        line.last().map_or("", String::as_str),
    )?;
    let object = work.registration_object()?;
    expect_in(
        &run(work.command(llvm("llvm-nm")).arg(object))?,
        "U __tgt_register_lib",
    )?;
    work.forget();
    run(&mut work.reference(["a.o"]))?;
    expect_equal("LLVM drops the images", "a.o", &work.host_line()?.join(" "))?;
    passed()
}

fn f02() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    run(&mut work.wrapper(["a.o", "-o", "x", "-o", "y"]))?;
    let objects = made_objects(&work.host_line()?);
    expect_equal("objects of ours", "1", &objects.len().to_string())?;
    expect_equal("they stand after", "y", &objects[0].0)?;
    work.forget();
    run(&mut work.reference(["a.o", "-o", "x", "-o", "y"]))?;
    // LLVM's names have a random part before the extension.
    let twice = work
        .host_line()?
        .iter()
        .filter(|word| word.contains(".image.wrapper-"))
        .count();
    expect_equal("LLVM links its object", "2", &twice.to_string())?;
    passed()
}

fn f03() -> Outcome {
    let work = Work::new();
    work.fat("m.o", &[Image::amd("gfx90a", "A")])?;
    work.archive("libh.a", &["m.o"])?;
    work.fat_with("a.o", &[], "extern int m_o; int main() { return m_o; }")?;
    let spellings: [&[&str]; 5] = [
        &["--library", "h"],
        &["--library=h"],
        &["-library", "h"],
        &["-library=h"],
        &["-l", "h"],
    ];
    for spelling in spellings {
        work.forget();
        let words = [&["-o", "x", "a.o", "-L."], spelling].concat();
        run(&mut work.wrapper(words.iter().copied()))?;
        expect_equal(
            &format!("images with {spelling:?}"),
            "1",
            &work.images()?.len().to_string(),
        )?;
        expect_in(&work.host_line()?.join(" "), &spelling.join(" "))?;
    }
    let nothing = work.command(made().links.join("clang-linker-wrapper"));
    let mut nothing = nothing;
    nothing.args([
        "--linker-path=/usr/bin/ld",
        "-o",
        "x",
        "a.o",
        "--library",
        "nothere",
    ]);
    expect_in(&run_failing(&mut nothing)?, "cannot find -lnothere")?;
    passed()
}

fn f04() -> Outcome {
    let work = Work::new();
    for name in ["a", "b"] {
        work.fat(&format!("{name}.o"), &[Image::amd("gfx90a", name)])?;
        work.archive(&format!("{name}.a"), &[&format!("{name}.o")])?;
    }
    run(&mut work.wrapper([
        "-o",
        "x",
        "--push-state",
        "--whole-archive",
        "a.a",
        "--pop-state",
        "b.a",
    ]))?;
    expect_equal("what is linked", "a", &work.images()?[0].1)?;
    passed()
}

fn f05() -> Outcome {
    let work = Work::new();
    for name in ["script.o", "elf_x86_64", "main", "memory", "a.so.1"] {
        work.fat(name, &[Image::amd("gfx90a", name)])?;
    }
    work.fat("real.o", &[Image::amd("gfx90a", "real")])?;
    let words = [
        "-o",
        "x",
        "-T",
        "script.o",
        "-m",
        "elf_x86_64",
        "-e",
        "main",
        "-z",
        "memory",
        "-soname",
        "a.so.1",
        "real.o",
    ];
    run(&mut work.wrapper(words))?;
    expect_equal("what is linked", "real", &work.images()?[0].1)?;
    work.forget();
    run(&mut work.reference(words))?;
    expect_equal(
        "LLVM links",
        "script.oelf_x86_64mainmemorya.so.1real",
        &work.images()?[0].1,
    )?;
    passed()
}

fn f06() -> Outcome {
    let work = Work::new();
    work.fat_with(
        "a.o",
        &[Image::amd("gfx90a", "a")],
        "extern int used_o; int main() { return used_o; }",
    )?;
    work.fat("used.o", &[Image::amd("gfx90a", "used")])?;
    work.fat("unused.o", &[Image::amd("gfx90a", "unused")])?;
    let words = [
        "-o",
        "x",
        "a.o",
        "--start-lib",
        "unused.o",
        "used.o",
        "--end-lib",
    ];
    run(&mut work.wrapper(words))?;
    expect_equal("what is linked", "aused", &work.images()?[0].1)?;
    work.forget();
    run(&mut work.reference(words))?;
    expect_equal("LLVM links", "aunusedused", &work.images()?[0].1)?;
    passed()
}

fn f11() -> Outcome {
    let work = Work::new();
    work.fat("a b.o", &[Image::amd("gfx90a", "A")])?;
    for name in ["it's", "$HOME", "*"] {
        work.file(name, "");
    }
    let words = [
        "--dry-run",
        "-o",
        "o u t",
        "a b.o",
        "it's",
        "$HOME",
        "-rpath",
        "",
        "*",
        "-L=/x",
    ];
    let printed = output(&mut work.wrapper(words))?;
    let commands = text(&printed.stderr);
    let host = commands
        .lines()
        .rfind(|line| line.starts_with(" \""))
        .unwrap_or_default();
    // A shell must read exactly these arguments.
    let seen = run(work.command("sh").arg("-c").arg(format!(
        "show() {{ shift; printf '%s\\n' \"$@\"; }}; show {host}"
    )))?;
    let seen: Vec<&str> = seen
        .lines()
        .filter(|word| !word.ends_with(".image.wrapper.o"))
        .collect();
    expect_equal(
        "what a shell reads",
        "-o\no u t\na b.o\nit's\n$HOME\n-rpath\n\n*\n-L=/x",
        &seen.join("\n"),
    )?;
    let theirs = text(&output(&mut work.reference(["--dry-run", "-o", "o u t", "a b.o"]))?.stderr);
    expect_in(&theirs, "-o o u t ")?;
    passed()
}

fn f18() -> Outcome {
    let work = Work::new();
    work.fat("m.o", &[Image::amd("gfx90a", "m")])?;
    work.archive("libh.a", &["m.o"])?;
    work.fat_with("a.o", &[], "extern int m_o; int main() { return m_o; }")?;
    work.run(
        llvm("clang"),
        ["-shared", "-fPIC", "-x", "c", "m.o.c", "-o", "libh.so"],
    )?;
    let linked = |words: &[&str]| -> Result<usize, Failed> {
        work.forget();
        run(&mut work.wrapper([&["-o", "x", "a.o", "-L."], words].concat()))?;
        Ok(work.images()?.len())
    };
    for words in [
        &["-Bstatic", "-lh"][..],
        &["-static", "-lh"],
        &["-dn", "-lh"],
        &["-non_shared", "-lh"],
        &["-l:libh.a"],
    ] {
        expect_equal(
            &format!("images with {words:?}"),
            "1",
            &linked(words)?.to_string(),
        )?;
    }
    for words in [
        &["-lh"][..],
        &["-Bstatic", "-Bdynamic", "-lh"],
        &["-l:libh.so"],
        &["-lh", "-Bstatic"],
    ] {
        expect_equal(
            &format!("images with {words:?}"),
            "0",
            &linked(words)?.to_string(),
        )?;
    }
    passed()
}

/// A real program with offloading, linked with a command line that is too long for a system call.
fn f21() -> Outcome {
    let work = Work::new();
    let source = "int main() { int on = 0;\n#pragma omp target map(tofrom: on)\n on = 7;\n return on - 7; }\n";
    work.file("p.c", source);
    work.run(
        llvm("clang"),
        [&OFFLOAD[..], &["-c", "p.c", "-o", "p.o"]].concat(),
    )?;
    let folders: String = (0..30_000)
        .map(|at| format!("-L/nowhere/{at:090}\n"))
        .collect();
    assert!(folders.len() > 3_000_000);
    work.file("folders", folders);
    let mut link = work.command(llvm("clang"));
    link.args(OFFLOAD)
        .arg("-B")
        .arg(&made().links)
        .args(["p.o", "@folders", "-o", "p"]);
    run(&mut link)?;
    run_offloaded(&mut work.command("./p"))?;
    work.expect_no_temps()?;
    let mut reference = work.command(llvm("clang"));
    reference.args(OFFLOAD).args(["p.o", "@folders", "-o", "q"]);
    expect_in(&run_failing(&mut reference)?, "failed")?;
    passed()
}

/// If possible, offld does such a link before `main`.
fn f21_once() -> Outcome {
    let work = Work::new();
    work.tool(
        "tools/linker",
        "#!/bin/sh\necho linked >> log\nexit $(cat status)\n",
    );
    let folders: Vec<String> = (0..6000)
        .map(|at| format!("-L/a/folder/by/a/long/name/{at}"))
        .collect();
    for status in ["0", "3"] {
        work.file("status", status);
        work.file("log", "");
        let ended = output(work.wrapper(["-o", "x"]).args(&folders))?;
        expect_equal(
            "the status",
            status,
            &ended.status.code().unwrap_or(-1).to_string(),
        )?;
        expect_equal(
            "links",
            "linked\n",
            &std::fs::read_to_string(work.path().join("log"))?,
        )?;
        work.expect_no_temps()?;
    }
    passed()
}

fn f23() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    for word in ["--version", "--help", "-version", "-v", "--help-hidden"] {
        work.forget();
        run(&mut work.wrapper(["-o", "x", "a.o", word]))?;
        expect_equal(
            "the last word of the host line",
            word,
            work.host_line()?.last().map_or("", String::as_str),
        )?;
        expect_equal("images", "1", &work.images()?.len().to_string())?;
    }
    work.forget();
    run(&mut work.reference(["-o", "x", "a.o", "--version"]))?;
    work.expect_no_host_link()?;
    for (alone, part) in [
        ("--version", "offld "),
        ("--help", "OPTIONS:"),
        ("--help-hidden", "--bitcode-library"),
    ] {
        let shown = run(work
            .command(made().links.join("clang-linker-wrapper"))
            .arg(alone))?;
        expect_in(&shown, part)?;
    }
    let shown = run(work
        .command(made().links.join("clang-linker-wrapper"))
        .arg("--help"))?;
    expect_not_in(&shown, "--bitcode-library")?;
    passed()
}
