//! Faults in the parsing of a command line, and in the running of steps: F9, F11, F21.

use libtest_mimic::Trial;

use crate::kit::Image;
use crate::support::{
    OFFLOAD, Outcome, Work, expect_equal, expect_in, llvm, made, output, passed, run, run_failing,
    run_offloaded, shown, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("faults::f11_printed_commands_can_be_pasted", f11),
        with_llvm("faults::f21_three_megabytes_of_arguments", f21),
        with_llvm(
            "faults::f21_a_long_line_without_device_code_is_linked_once",
            f21_once,
        ),
        with_llvm("faults::f09_the_status_of_the_host_linker", f09_host),
    ]
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

fn f09_host() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    work.fat("plain.o", &[])?;
    for (script, status, how) in [
        (
            "#!/bin/sh\nprintf 'ld3: \\033[1mno\\377 such\\n  thing' >&2\nexit 3\n",
            3,
            "'linker' exited with status 3",
        ),
        (
            "#!/bin/sh\nprintf 'ld3: \\033[1mno\\377 such\\n  thing' >&2\nkill -9 $$\n",
            137,
            "'linker' was ended by signal 9",
        ),
    ] {
        work.tool("tools/linker", script);
        let mut command = work.wrapper(["a.o", "plain.o", "-o", "o u t"]);
        let name = command.get_program().to_string_lossy().into_owned();
        let ended = output(&mut command)?;
        expect_equal(
            "the status",
            &format!("Some({status})"),
            &format!("{:?}", ended.status.code()),
        )?;
        // offld passes the linker's messages through byte for byte, before its own.
        let own = b"ld3: \x1b[1mno\xff such\n  thing";
        let Some(report) = ended.stderr.strip_prefix(own) else {
            return Err(shown(&command, &ended).into());
        };
        let report = text(report);
        // A linker that exits with an error has already explained it. For a killed linker, the
        // message includes its command.
        let rest = if status == 3 {
            " (--wrapper-verbose shows its command)\n"
        } else {
            "\n  inputs: a.o, plain.o\n  command: \""
        };
        let first = format!("{name}: error: host link failed: {how}{rest}");
        if !report.starts_with(&first) {
            return Err(format!("the report does not start\n{first}\nbut\n{report}").into());
        }
        let linker = work.path().join("tools/linker").display().to_string();
        let shown = if status == 3 {
            text(&output(command.arg("--wrapper-verbose"))?.stderr)
        } else {
            report
        };
        expect_in(&shown, &format!("\"{linker}\" a.o plain.o -o 'o u t' "))?;
        work.expect_no_temps()?;
        // Without device code, the linker replaces the offld process, and its exit status reaches
        // the caller directly.
        let ended = output(&mut work.wrapper(["plain.o", "-o", "x"]))?;
        expect_equal("all of stderr", &text(own), &text(&ended.stderr))?;
        let plain = if status == 137 {
            "signal: 9 (SIGKILL)"
        } else {
            "exit status: 3"
        };
        expect_equal("the status", plain, &ended.status.to_string())?;
    }
    work.tool("tools/linker", "#!/bin/sh\nexit 3\n");
    let theirs = output(&mut work.reference(["a.o", "-o", "x"]))?;
    expect_equal(
        "LLVM ends with",
        "Some(1)",
        &format!("{:?}", theirs.status.code()),
    )?;
    passed()
}
