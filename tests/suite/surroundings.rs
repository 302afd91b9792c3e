//! Links in unusual surroundings: few open files, closed standard streams, no `/proc`, and other
//! locales, time zones and names of the user. The program has the same bytes, or there is an error
//! and nothing is left.

use std::path::PathBuf;
use std::process::{Command, Output};

use libtest_mimic::{Failed, Trial};

use crate::setup::mount_namespace;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_no_file, llvm, made, missing, output, passed, run,
    run_offloaded, shown, text, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("surroundings::few_open_files", few_files),
        with_llvm("surroundings::closed_standard_streams", closed_streams),
        with_llvm("surroundings::without_proc", without_proc),
        with_llvm("surroundings::locale_time_and_user", locale_and_time),
    ]
}

/// A program with two images, and the bytes that every link of it gives.
struct Program {
    work: Work,
    expected: Vec<u8>,
}

impl Program {
    fn new() -> Result<Program, Failed> {
        let work = Work::new();
        work.file(
            "main.c",
            "int printf(const char *, ...);\nint main(void) {\n  int x = 0;\n\
             #pragma omp target map(from : x)\n  x = 42;\n  printf(\"%d\\n\", x);\n}\n",
        );
        run(work.command(llvm("clang")).args([
            "-O1",
            "-fopenmp",
            "-fopenmp-targets=x86_64-pc-linux-gnu,amdgcn-amd-amdhsa",
            "-Xopenmp-target=amdgcn-amd-amdhsa",
            "-march=gfx90a",
            "-nogpulib",
            "-c",
            "main.c",
        ]))?;
        let mut program = Program {
            work,
            expected: Vec::new(),
        };
        run(&mut program.link(&[]))?;
        expect_equal(
            "its output",
            "42\n",
            &run_offloaded(&mut program.work.command("./program"))?,
        )?;
        program.expected = std::fs::read(program.output())?;
        Ok(program)
    }

    fn output(&self) -> PathBuf {
        self.work.path().join("program")
    }

    /// The link, as an argument of the command `prefix`.
    fn link(&self, prefix: &[&str]) -> Command {
        let mut command = match prefix {
            [] => self.work.command(llvm("clang")),
            [first, rest @ ..] => {
                let mut command = self.work.command(first);
                command.args(rest).arg(llvm("clang"));
                command
            }
        };
        command
            .args([
                "-fopenmp",
                "-fopenmp-targets=x86_64-pc-linux-gnu,amdgcn-amd-amdhsa",
                "-Xopenmp-target=amdgcn-amd-amdhsa",
                "-march=gfx90a",
                "-nogpulib",
                "-fuse-ld=lld",
                "-Wl,--device-linker=amdgcn-amd-amdhsa=--unresolved-symbols=ignore-all",
                "main.o",
                "-o",
                "program",
                "-B",
            ])
            .arg(&made().links);
        command
    }

    /// The output of a failed link, or `None` after success. Fails if the program has other bytes.
    /// Also fails if a failed link prints no error, or leaves a program or a temporary file.
    fn error_of(&self, command: &mut Command) -> Result<Option<String>, Failed> {
        let _ = std::fs::remove_file(self.output());
        let ended = output(command)?;
        self.work
            .expect_no_temps()
            .map_err(|failed| with_output(command, &ended, &failed))?;
        if ended.status.success() {
            ensure(std::fs::read(self.output())? == self.expected, || {
                shown(command, &ended) + "the program has other bytes"
            })?;
            return Ok(None);
        }
        expect_no_file(&self.output()).map_err(|failed| with_output(command, &ended, &failed))?;
        ensure(
            ended.status.code().is_some() && text(&ended.stderr).contains("error"),
            || shown(command, &ended),
        )?;
        Ok(Some(shown(command, &ended)))
    }

    fn must_succeed(&self, command: &mut Command) -> Outcome {
        match self.error_of(command)? {
            Some(shown) => Err(shown.into()),
            None => passed(),
        }
    }
}

fn with_output(command: &Command, ended: &Output, failed: &Failed) -> Failed {
    format!(
        "{}{}",
        shown(command, ended),
        failed.message().unwrap_or_default()
    )
    .into()
}

fn few_files() -> Outcome {
    let program = Program::new()?;
    let mut ends = Vec::new();
    for limit in (4..=20).chain([24, 32, 64, 128]) {
        let limit = format!("--nofile={limit}");
        let error = program.error_of(&mut program.link(&["prlimit", &limit]))?;
        ends.push(error.is_none());
    }
    ensure(
        ends.contains(&false) && ends.ends_with(&[true, true]),
        || format!("{ends:?}"),
    )?;
    passed()
}

fn closed_streams() -> Outcome {
    let program = Program::new()?;
    for closed in ["<&-", ">&-", "2>&-", "<&- >&-", ">&- 2>&-", "<&- >&- 2>&-"] {
        let script = format!("exec \"$0\" \"$@\" {closed}");
        program.must_succeed(&mut program.link(&["sh", "-c", &script]))?;
    }
    passed()
}

fn without_proc() -> Outcome {
    let program = Program::new()?;
    let Some(namespace) = mount_namespace(&program.work) else {
        return missing("mount namespaces (unshare --mount)");
    };
    let hides = "mount -t tmpfs none /proc; exec \"$0\" \"$@\"";
    let prefix = [&["unshare"], namespace, &["sh", "-euc", hides]].concat();
    program.must_succeed(&mut program.link(&prefix))
}

fn locale_and_time() -> Outcome {
    let program = Program::new()?;
    let variables: [&[(&str, &str)]; 7] = [
        &[("LC_ALL", "C.UTF-8"), ("TZ", "Pacific/Kiritimati")],
        &[("LC_ALL", "tr_TR.UTF-8"), ("LANGUAGE", "tr")],
        &[("LC_ALL", "nowhere"), ("TZ", ":/dev/null")],
        &[("TZ", "XXX-167:59:59"), ("SOURCE_DATE_EPOCH", "1")],
        &[("HOME", "/nowhere"), ("USER", "nobody")],
        &[("TERM", "dumb"), ("COLUMNS", "1"), ("CLICOLOR_FORCE", "1")],
        &[("POSIXLY_CORRECT", "1"), ("MALLOC_PERTURB_", "165")],
    ];
    for set in variables {
        program.must_succeed(program.link(&[]).envs(set.iter().copied()))?;
    }
    program.must_succeed(&mut program.link(&["env", "-u", "HOME", "-u", "USER", "-u", "LC_ALL"]))
}
