//! `offld prune` on OpenMP programs of every linker. Pruned programs run offloaded, also after
//! tools that change finished files, and are as large as programs that never had the removed
//! images.

use std::os::unix::fs::PermissionsExt as _;
use std::path::Path;

use libtest_mimic::{Completion, Failed, Trial};

use super::programs::{Kind, LARGE, Wrapper, link};
use crate::effort::rounds;
use crate::support::{
    Outcome, Work, ensure, expect_equal, host_linker, llvm, missing, offld, output, passed, run,
    run_offloaded, test, text,
};

const LINKERS: [&str; 5] = ["ld.lld", "bfd", "gold", "mold", "wild"];
type Commands = &'static [&'static [&'static str]];
const RPATH: &[&str] = &[
    "patchelf",
    "--set-rpath",
    "/a/path/long/enough/to/move/things/about/in/the/file",
    "FILE",
];
/// Commands that change a finished program. `FILE` stands for the program.
const TOOLS: [Commands; 8] = [
    &[],
    &[&["strip", "FILE"]],
    &[&["llvm-strip", "FILE"]],
    &[&["objcopy", "--strip-debug", "FILE"]],
    &[RPATH],
    &[RPATH, &["strip", "FILE"]],
    &[&["strip", "FILE"], RPATH],
    &[RPATH, &["patchelf", "--add-needed", "libm.so.6", "FILE"]],
];

/// The tools that do not break programs of `linker`. patchelf 0.14 damages every program that wild
/// links.
fn tools(linker: &str) -> Vec<Commands> {
    let survives = |commands: &Commands| {
        linker != "wild"
            || !commands
                .iter()
                .any(|command| command.first() == Some(&"patchelf"))
    };
    TOOLS.into_iter().filter(survives).collect()
}

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for (number, linker) in LINKERS.into_iter().enumerate() {
        let kinds = Kind::of(linker);
        for (turn, kind) in kinds.into_iter().enumerate() {
            let run = move || pruned(linker, kind, Wrapper::Offld, number * kinds.len() + turn);
            trials.push(test(format!("edit::prune::{linker}::{}", kind.name()), run));
        }
        trials.push(test(format!("edit::prune::llvm::{linker}"), move || {
            of_llvm(linker, number)
        }));
    }
    trials
}

/// Programs from LLVM's own wrapper. A short run tries one kind with each linker, a long one all.
fn of_llvm(linker: &'static str, number: usize) -> Outcome {
    let kinds = Kind::of(linker);
    let count = rounds(
        "kinds of programs of LLVM's wrapper that are pruned, of each linker",
        kinds.len(),
        1,
    );
    for kind in kinds.into_iter().cycle().skip(number).take(count) {
        let done = pruned(linker, kind, Wrapper::Llvm, number).map_err(|failed| {
            format!("{}: {}", kind.name(), failed.message().unwrap_or_default())
        })?;
        if !matches!(done, Completion::Completed) {
            return Ok(done);
        }
    }
    passed()
}

/// A program that can be written again in its original form.
struct Program<'a> {
    work: &'a Work,
    kind: Kind,
    /// The bytes with all images, and those of the pruned program.
    old: Vec<u8>,
    new: Vec<u8>,
    /// The registration logs of the program with one image and of the program with all. They are
    /// for programs without any other check of the pruned form.
    ledgers: [String; 2],
}

/// If a run does not try all tools on stripped programs, `turn` selects the tool.
fn pruned(linker: &str, kind: Kind, wrapper: Wrapper, turn: usize) -> Outcome {
    if !llvm("clang").is_file() {
        return missing("LLVM 22");
    }
    if host_linker(linker.trim_start_matches("ld.")).is_none() {
        return missing(linker);
    }
    let work = &Work::new();
    let path = work.path().join(kind.file());
    link(work, linker, kind, wrapper, true)?;
    let one = std::fs::read(&path)?;
    let of_one = ledger(work, kind)?;
    link(work, linker, kind, wrapper, false)?;
    let old = std::fs::read(&path)?;
    ensure(old.len() as u64 > one.len() as u64 + 2 * LARGE, || {
        format!("{} bytes with four images", old.len())
    })?;
    let ledgers = [of_one, ledger(work, kind)?];
    let old_faults = faults(work, kind.file())?;
    let new = prune(work, kind, one.len())?;
    let sections = work.run("readelf", ["-SW", kind.file()])?;
    ensure(sections.contains(".llvm.offloading"), || sections)?;
    let new_faults: Vec<String> = faults(work, kind.file())?
        .into_iter()
        .filter(|fault| !old_faults.contains(fault))
        .collect();
    ensure(new_faults.is_empty(), || new_faults.join("\n"))?;
    let program = Program {
        work,
        kind,
        old,
        new,
        ledgers,
    };
    let tools = tools(linker);
    tools
        .iter()
        .try_for_each(|commands| program.runs_after(commands))?;
    stripped(program, &one, &tools, turn)
}

/// The same for a program that was stripped first, so no symbol shows the locations of images.
fn stripped(mut program: Program<'_>, one: &[u8], tools: &[Commands], turn: usize) -> Outcome {
    let (work, name) = (program.work, program.kind.file());
    write(work, name, one)?;
    work.run("strip", [name])?;
    let expected = std::fs::metadata(work.path().join(name))?.len();
    write(work, name, &program.old)?;
    work.run("strip", [name])?;
    program.old = std::fs::read(work.path().join(name))?;
    program.new = prune(work, program.kind, expected.try_into()?)?;
    program.runs_after(&[])?;
    let count = rounds(
        "tools that a pruned program is changed by which was stripped before",
        tools.len(),
        1,
    );
    tools
        .iter()
        .cycle()
        .skip(turn)
        .take(count)
        .try_for_each(|commands| program.runs_after(commands))?;
    passed()
}

/// Keeps only the image for the CPU. Returns the program's bytes. Their number must be `expected`,
/// the size of a program that never had other images. The tolerance is one percent or a page for
/// each segment.
fn prune(work: &Work, kind: Kind, expected: usize) -> Result<Vec<u8>, Failed> {
    work.run(
        offld(),
        ["prune", "--keep", "cpu", "--in-place", kind.file()],
    )?;
    let new = std::fs::read(work.path().join(kind.file()))?;
    let segments = work
        .run("readelf", ["-lW", kind.file()])?
        .lines()
        .filter(|line| line.starts_with("  LOAD"))
        .count();
    let most = (expected / 100).max(segments * 4096);
    ensure(new.len().abs_diff(expected) <= most, || {
        format!(
            "{} bytes in {segments} segments, not {expected} and at most {most} more or less",
            new.len()
        )
    })?;
    Ok(new)
}

/// The complaints of tools that read programs.
fn faults(work: &Work, name: &str) -> Result<Vec<String>, Failed> {
    let mut all = Vec::new();
    let checks: [&[&str]; 4] = [
        &["readelf", "-aW", name],
        &["gdb", "-batch", "-ex", "info files", name],
        &["eu-elflint", "--gnu-ld", name],
        &["/lib64/ld-linux-x86-64.so.2", "--verify", name],
    ];
    for command in checks {
        let Some((tool, args)) = command
            .split_first()
            .filter(|(tool, _)| which::which(tool).is_ok())
        else {
            continue;
        };
        let done = output(work.command(tool).args(args))?;
        let messages = if *tool == "eu-elflint" {
            done.stdout
        } else {
            done.stderr
        };
        // Section numbers may differ, and tools pad them with blanks.
        all.extend(text(&messages).lines().map(|line| {
            format!(
                "{tool}: {}",
                line.replace(|one: char| one.is_ascii_digit() || one == ' ', "")
            )
        }));
        if *tool != "eu-elflint" && !done.status.success() {
            all.push(format!("{tool}: {}", done.status));
        }
    }
    Ok(all)
}

fn write(work: &Work, name: &str, data: &[u8]) -> Result<(), Failed> {
    let path = work.file(name, data);
    Ok(std::fs::set_permissions(
        path,
        std::fs::Permissions::from_mode(0o755),
    )?)
}

impl Program<'_> {
    /// Changes the pruned program with each tool in turn and runs it. Releases of patchelf break
    /// static programs that were never pruned, and some others. If the unpruned program does not
    /// run afterwards either, the pruned one need not.
    fn runs_after(&self, commands: &[&[&str]]) -> Result<(), Failed> {
        let Err(failed) = self.change_and_run(&self.new, commands) else {
            return Ok(());
        };
        let has_patchelf = commands
            .iter()
            .any(|command| command.first() == Some(&"patchelf"));
        if has_patchelf && self.change_and_run(&self.old, commands).is_err() {
            return Ok(());
        }
        Err(format!("{commands:?}: {}", failed.message().unwrap_or_default()).into())
    }

    fn change_and_run(&self, data: &[u8], commands: &[&[&str]]) -> Result<(), Failed> {
        write(self.work, self.kind.file(), data)?;
        for command in commands {
            let (name, args) = command.split_first().ok_or("a tool")?;
            let tool = if name.starts_with("llvm-") {
                llvm(name)
            } else {
                Path::new(name).to_owned()
            };
            if which::which(&tool).is_err() {
                return missing(name).map(drop);
            }
            self.work.run(
                tool,
                args.iter().map(|arg| {
                    if *arg == "FILE" {
                        self.kind.file()
                    } else {
                        arg
                    }
                }),
            )?;
        }
        if self.kind.is_static() {
            let [of_one, of_all] = &self.ledgers;
            let ledger = ledger(self.work, self.kind)?;
            ensure(
                hashes(&ledger).iter().all(|hash| of_all.contains(hash)),
                || format!("not an image as before: {ledger}"),
            )?;
            return expect_equal("ledger", &without_hashes(of_one), &without_hashes(&ledger));
        }
        let mut program = self.work.command(self.work.path().join(self.kind.run()));
        let printed = run_offloaded(program.env("LD_LIBRARY_PATH", self.work.path()))?;
        expect_equal("output", "9900 0\n", &printed)
    }
}

/// The registration log and output of a static program, which runs on the host. Empty for other
/// programs.
fn ledger(work: &Work, kind: Kind) -> Result<String, Failed> {
    if !kind.is_static() {
        return Ok(String::new());
    }
    let path = work.path().join("ledger");
    let printed = run(work
        .command(work.path().join(kind.run()))
        .env("OFFLD_LEDGER", &path))?;
    expect_equal("output", "9900 1\n", &printed)?;
    let ledger = std::fs::read_to_string(&path)?;
    std::fs::remove_file(path)?;
    ensure(
        !hashes(&ledger).is_empty() && !ledger.contains("BAD:"),
        || ledger.clone(),
    )?;
    Ok(ledger)
}

/// The hashes of the images in a registration log.
fn hashes(ledger: &str) -> Vec<&str> {
    ledger
        .split_whitespace()
        .filter(|word| word.starts_with("hash="))
        .collect()
}

/// A registration log that can be compared between two links. gold writes the name of its temporary
/// file into an image.
fn without_hashes(ledger: &str) -> String {
    hashes(ledger)
        .iter()
        .fold(ledger.to_owned(), |text, hash| text.replace(hash, "hash"))
}
