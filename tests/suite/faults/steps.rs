//! Faults in the running of steps: F9, F25, F27.

use libtest_mimic::Trial;

use crate::kit::Image;
use crate::support::{
    Outcome, Work, expect_equal, expect_in, output, passed, run, run_failing, shown, text,
    with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("faults::f09_the_status_of_the_host_linker", f09_host),
        with_llvm("faults::f09_the_status_of_the_device_compiler", f09_device),
        with_llvm("faults::f09_a_linker_that_cannot_be_run", f09_missing),
        with_llvm(
            "faults::f25_a_host_without_registration_is_told_before_device_links",
            f25,
        ),
        with_llvm("faults::f27_a_device_tool_that_writes_nothing", f27),
    ]
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

fn f09_device() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    work.fat("m.o", &[Image::amd("gfx90a", "M")])?;
    work.archive("lib.a", &["m.o"])?;
    work.tool("tools/clang", "#!/bin/sh\n[ \"$1\" = -dumpversion ] && { echo 22.1.8; exit; }\necho 'lld: no' >&2\nexit 7\n");
    let mut command = work.wrapper(["-o", "x", "a.o", "--whole-archive", "lib.a"]);
    let ended = output(&mut command)?;
    expect_equal(
        "the status",
        "Some(7)",
        &format!("{:?}", ended.status.code()),
    )?;
    let report = text(&ended.stderr);
    for part in [
        "lld: no\n",
        "error: device link for amdgcn-amd-amdhsa (gfx90a) failed: 'clang' exited with status 7\n",
        "\n  inputs: a.o: .llvm.offloading, lib.a(m.o): .llvm.offloading\n",
        "\n  command: \"",
    ] {
        expect_in(&report, part)?;
    }
    work.expect_no_host_link()?;
    work.expect_no_temps()?;
    passed()
}

fn f09_missing() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    work.fat("plain.o", &[])?;
    for object in ["a.o", "plain.o"] {
        let error =
            run_failing(&mut work.wrapper(["--linker-path=/no/such/ld", "-o", "x", object]))?;
        expect_in(
            &error,
            "error: host link failed: cannot run `/no/such/ld`: No such file or directory",
        )?;
        work.expect_no_temps()?;
    }
    let theirs = run_failing(&mut work.reference(["--linker-path=/no/such/ld", "-o", "x", "a.o"]))?;
    expect_equal(
        "LLVM says",
        "error: 'ld' failed",
        theirs.trim().split_once(": ").map_or("", |(_, text)| text),
    )?;
    passed()
}

fn f25() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    let macho = "cannot hold offload entries";
    for (triple, what) in [
        ("arm64-apple-macosx14", macho),
        ("x86_64-apple-darwin", macho),
        (
            "wasm32-unknown-unknown",
            "No available targets are compatible with triple \"wasm32-unknown-unknown\"",
        ),
    ] {
        let host = format!("--host-triple={triple}");
        for more in [
            &["-o", "x", "a.o"][..],
            &["-o", "x", "-r", "a.o"],
            &["-o", "x", "--override-image=hip=a.o"],
        ] {
            let error = run_failing(&mut work.wrapper([&[host.as_str()], more].concat()))?;
            expect_in(&error, what)?;
            expect_in(&error, triple)?;
            expect_equal("device links", "0", &work.device_lines()?.len().to_string())?;
            work.expect_no_host_link()?;
            work.expect_no_temps()?;
        }
        // A lone bundle depends on no host.
        run(&mut work.wrapper([&host, "--emit-fatbin-only", "-o", "x", "a.o"]))?;
        work.forget();
    }
    let theirs =
        output(&mut work.reference(["--host-triple=arm64-apple-macosx14", "-o", "x", "a.o"]))?;
    expect_equal(
        "LLVM's wrapper ends by itself with",
        "None",
        &format!("{:?}", theirs.status.code()),
    )?;
    passed()
}

fn f27() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    let nothing = work.tool(
        "tools/clang",
        "#!/bin/sh\n[ \"$1\" = -dumpversion ] && echo 22.1.8\nexit 0\n",
    );
    let error = run_failing(&mut work.wrapper(["-o", "x", "a.o"]))?;
    let expected = format!(
        "device link for amdgcn-amd-amdhsa (gfx90a) failed: `{}` succeeded but wrote nothing to its output\n  inputs: a.o",
        nothing.display()
    );
    expect_in(&error, &expected)?;
    work.expect_no_temps()?;
    // The same with a predictable output name: the image of an earlier link must not count.
    work.file("x.amdgcn.gfx90a.img", "of an earlier link");
    expect_in(
        &run_failing(&mut work.wrapper(["--save-temps", "-o", "x", "a.o"]))?,
        "wrote nothing to its output",
    )?;
    run(&mut work.reference(["-o", "x", "a.o"]))?;
    passed()
}
