//! ld.lld starts before its command line is known and receives it through a pipe. The command line
//! must arrive unchanged, and a linker that is not needed must exit silently.

use std::process::{Command, Stdio};

use libtest_mimic::{Failed, Trial};

use crate::support::{
    LLVM, OFFLOAD, Outcome, Release, Work, expect_equal, expect_in, expect_not_in, llvm, made,
    passed, run, run_failing, run_offloaded, stderr_of, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("early_linker::odd_names_reach_it", odd_names),
        with_llvm("early_linker::it_is_gone_when_it_is_not_needed", not_needed),
        with_llvm("early_linker::its_errors_are_told_as_ever", errors),
        with_llvm("early_linker::a_linker_that_reads_stdin_is_given_it", stdin),
        with_llvm(
            "early_linker::many_objects_without_device_code",
            many_objects,
        ),
    ]
}

fn compiled(work: &Work, name: &str) -> Result<(), Failed> {
    let code = "#include <stdio.h>\nint main(void) { int x = 0;\n#pragma omp target map(tofrom: x)\n  x = 42;\n  printf(\"%d\\n\", x); }\n";
    let source = work.file("main.c", code);
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(["-O1", "-c"])
        .arg(source)
        .arg("-o")
        .arg(name))?;
    Ok(())
}

fn link(work: &Work, args: &[&str]) -> Command {
    let mut command = work.command(llvm("clang"));
    command
        .args(["-fuse-ld=lld", "-B"])
        .arg(&made().links)
        .args(OFFLOAD)
        .args(&Release::newest().link)
        .args(args);
    command
}

fn odd_names() -> Outcome {
    let work = Work::new();
    for name in [
        "o u t",
        "quo\"te",
        "back\\slash",
        "dollar$x",
        "ap'os",
        "semi;colon",
        "stern*",
        "new\nline",
        "-dash",
        "tab\tx",
    ] {
        let object = format!("./{name}.o");
        compiled(&work, &object)?;
        let output = format!("./{name}");
        let cache = work.path().join("cache");
        for _ in 0..2 {
            run(link(&work, &[&object, "-o", &output]).env("OFFLD_CACHE", &cache))?;
            expect_equal(
                name,
                "42\n",
                &run_offloaded(&mut work.command(work.path().join(name)))?,
            )?;
        }
    }
    work.expect_no_temps()?;
    passed()
}

/// The number of processes whose current directory is that of `work`.
pub(crate) fn at_work(work: &Work) -> Result<usize, Failed> {
    let folder = work.path().canonicalize()?;
    let processes = std::fs::read_dir("/proc")?
        .filter_map(|entry| std::fs::read_link(entry.ok()?.path().join("cwd")).ok());
    Ok(processes.filter(|cwd| *cwd == folder).count())
}

fn not_needed() -> Outcome {
    let work = Work::new();
    compiled(&work, "main.o")?;
    // After a failed device link, with or without a cache, the host linker has nothing to do.
    for cache in ["off", "cache"] {
        let mut failing = link(
            &work,
            &[
                "-Xoffload-linker",
                "--no-such-option",
                "main.o",
                "-o",
                "program",
            ],
        );
        let stderr = run_failing(failing.env("OFFLD_CACHE", cache))?;
        expect_in(&stderr, "unknown argument '--no-such-option'")?;
        expect_in(&stderr, "device link for x86_64-pc-linux-gnu failed")?;
        expect_not_in(&stderr, "no input files")?;
        expect_equal("processes that are left", "0", &at_work(&work)?.to_string())?;
    }
    work.expect_no_temps()?;
    // The device link runs a different linker than the one that was started early.
    let other = work.path().join("ld.lld");
    std::os::unix::fs::symlink(format!("{LLVM}/ld.lld"), &other)?;
    let option = format!("-Wl,--device-compiler=--ld-path={}", other.display());
    let args = [&option, "main.o", "-o", "program", "-Wl,--wrapper-verbose"];
    let stderr = stderr_of(link(&work, &args).env("OFFLD_CACHE", "cache"))?;
    expect_in(&stderr, &format!("\"{}\"", other.display()))?;
    expect_not_in(&stderr, "no input files")?;
    expect_equal(
        "the program",
        "42\n",
        &run_offloaded(&mut work.command("./program"))?,
    )?;
    passed()
}

fn errors() -> Outcome {
    let work = Work::new();
    compiled(&work, "main.o")?;
    let stderr = run_failing(&mut link(
        &work,
        &["main.o", "-Wl,no-such-file.o", "-o", "program"],
    ))?;
    expect_in(&stderr, "cannot open no-such-file.o")?;
    expect_in(
        &stderr,
        "error: host link failed: 'ld.lld' exited with status 1",
    )?;
    expect_not_in(&stderr, "/dev/stdin")?;
    expect_equal("processes that are left", "0", &at_work(&work)?.to_string())?;
    passed()
}

/// If ld.lld received its command line through stdin, it could not read a script from there.
fn stdin() -> Outcome {
    let work = Work::new();
    compiled(&work, "main.o")?;
    let script = work.file("script", "{ global: main; local: *; };");
    for path in ["/dev/stdin", "/proc/self/fd/0"] {
        let option = format!("-Wl,--version-script={path}");
        run(
            link(&work, &["main.o", &option, "-o", "program"]).stdin(std::fs::File::open(&script)?)
        )?;
        expect_equal(
            "the program",
            "42\n",
            &run_offloaded(&mut work.command("./program"))?,
        )?;
    }
    passed()
}

/// With many inputs, the linker loads before offld knows that there is no device code. The link
/// must then equal a link without offld: output, messages and exit status.
fn many_objects() -> Outcome {
    let work = Work::new();
    let mut args = vec!["main.o".to_owned()];
    let assemble = |name: &str, code: String| -> Outcome {
        let source = work.file(&format!("{name}.s"), code);
        run(work
            .command(llvm("clang"))
            .arg("-c")
            .arg(source)
            .arg("-o")
            .arg(format!("{name}.o")))?;
        passed()
    };
    assemble(
        "main",
        ".globl main\nmain: movl datum7(%rip), %eax\nret\n".to_owned(),
    )?;
    for number in 0..130 {
        assemble(
            &format!("datum{number}"),
            format!(".globl datum{number}\n.data\ndatum{number}: .long {number}\n"),
        )?;
        args.push(format!("datum{number}.o"));
    }
    let line = |driver: &[&str], args: &[String]| {
        let mut command = work.command(llvm("clang"));
        command.args(driver).args(args);
        command
    };
    let alone = ["-fuse-ld=lld", "-o", "out"];
    let linker = format!("--ld-path={}", made().links.join("ld.offld").display());
    let through_offld = [linker.as_str(), "-o", "out"];
    let result =
        |driver: &[&str], args: &[String]| -> Result<(String, String, Option<Vec<u8>>), Failed> {
            let ended = line(driver, args)
                .env("OFFLD_LINKER", llvm("ld.lld"))
                .stdin(Stdio::null())
                .output()?;
            let program = std::fs::read(work.path().join("out")).ok();
            let _ = std::fs::remove_file(work.path().join("out"));
            Ok((
                ended.status.to_string(),
                String::from_utf8_lossy(&ended.stderr).replace("offld", "lld"),
                program,
            ))
        };
    let missing = [&args[..], &["gone.o".to_owned()]].concat();
    let undefined = args
        .iter()
        .filter(|word| *word != "datum7.o")
        .cloned()
        .collect::<Vec<_>>();
    let shown = [&args[..], &["-Wl,--trace".to_owned()]].concat();
    for args in [&args, &missing, &undefined, &shown] {
        let (own, ours) = (result(&alone, args)?, result(&through_offld, args)?);
        expect_equal("the status", &own.0, &ours.0)?;
        expect_equal("what is said", &own.1, &ours.1)?;
        expect_equal(
            "whether the programs are equal",
            "true",
            &(own.2 == ours.2).to_string(),
        )?;
        expect_equal("processes that are left", "0", &at_work(&work)?.to_string())?;
    }
    expect_equal("the program's status", "Some(7)", &{
        run(&mut line(&through_offld, &args))?;
        format!("{:?}", work.command("./out").status()?.code())
    })?;
    work.expect_no_temps()?;
    passed()
}
