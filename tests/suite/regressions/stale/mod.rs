//! Stale hunts: a link that is kept in the cache, a change of something that it read or would have read, and the link again. What comes
//! of that must be what a link without the cache makes. One scenario for each class of inputs of linkers and compiler drivers
//! (docs/cache.md), with ld.lld and with ld.bfd, on a disk and in memory.

mod classes;
mod disks;
mod driver;
mod libraries;
mod printed;
mod tool_libraries;

use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::{Duration, SystemTime};

use libtest_mimic::{Failed, Trial};

use crate::support::{
    LLVM, OFFLOAD, Outcome, Work, ensure, expect_in, expect_not_in, llvm, made, missing, passed, run, stderr_of, with_llvm,
};

/// Every scenario, by linker and file system.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let scenarios = libraries::SCENARIOS.iter().chain(driver::SCENARIOS).chain(classes::SCENARIOS);
    for scenario in scenarios.chain(tool_libraries::SCENARIOS) {
        for linker in ["ld.lld", "ld.bfd"] {
            for folder in ["/tmp", "/dev/shm"] {
                if scenario.linkers.contains(&linker) {
                    let system = if folder == "/tmp" { "on_disk" } else { "in_memory" };
                    let name = format!("regressions::{}::{}_{system}", scenario.name, linker.replace('.', "_"));
                    trials.push(with_llvm(&name, move || hunt_in(scenario, linker, folder)));
                }
            }
        }
    }
    trials.extend(disks::trials());
    trials.extend(printed::trials());
    trials.extend(tool_libraries::trials());
    trials
}

pub(super) const BOTH: &[&str] = &["ld.lld", "ld.bfd"];
const LLD: &[&str] = &["ld.lld"];
const GNU: &[&str] = &["ld.bfd"];

/// One way to go stale.
struct Scenario {
    /// The test's name, with the number of the claim.
    name: &'static str,
    linkers: &'static [&'static str],
    /// What the link's line has besides the program's own object; `{}` stands for the folder of the hunt.
    line: &'static [&'static str],
    /// Variables, whose values are folders relative to that of the hunt, before those of the test.
    environment: &'static [(&'static str, &'static str)],
    before: fn(&Hunt) -> Result<(), Failed>,
    change: fn(&Hunt) -> Result<(), Failed>,
}

/// A folder, a linker, a cache.
pub(super) struct Hunt {
    pub(super) work: Work,
    linker: PathBuf,
}

/// What all hunts link, made once: an object whose kernel calls `helper`, and libraries with a `helper` each, which differ in nothing but
/// one constant.
fn pieces() -> Result<&'static Path, Failed> {
    static PIECES: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = PIECES.get_or_init(|| make_pieces().map_err(|failed| failed.message().unwrap_or("failed").to_owned()));
    made.as_deref().map_err(|error| error.clone().into())
}

fn make_pieces() -> Result<PathBuf, Failed> {
    let folder = made().shared("stale");
    fs::create_dir_all(&folder)?;
    let work = Work::new();
    let kernel = "#pragma omp begin declare target\nint helper(int);\n#pragma omp end declare target\n\
        int kernel(int x) {\n#pragma omp target map(tofrom: x)\n  x = helper(x) + 1;\n  return x;\n}\n";
    work.file("kernel.c", kernel);
    let flags = ["-O1", "-fPIC", "-c"];
    run(work.command(llvm("clang")).args(OFFLOAD).args(flags).arg("kernel.c").arg("-o").arg(folder.join("kernel.o")))?;
    for which in 1..=2 {
        work.file("helper.c", format!("int helper(int x) {{ return x + {which}000; }}\n"));
        let object = folder.join(format!("helper{which}.o"));
        run(work.command(llvm("clang")).args(flags).arg("helper.c").arg("-o").arg(&object))?;
        fs::copy(&object, work.path().join("helper.o"))?;
        work.run(
            llvm("llvm-ar"),
            [OsString::from("rcsD"), folder.join(format!("libhelper{which}.a")).into(), "helper.o".into()],
        )?;
        let shared = folder.join(format!("libhelper{which}.so"));
        let soname = format!("-Wl,-soname,libhelper.so.{which}");
        run(work.command(llvm("clang")).args(["-shared", &soname, "helper.o", "-o"]).arg(shared))?;
    }
    Ok(folder)
}

impl Hunt {
    pub(super) fn new(linker: &str, folder: &Path) -> Result<Option<Hunt>, Failed> {
        let linker = if linker == "ld.lld" { Some(Path::new(LLVM).join("ld.lld")) } else { which::which(linker).ok() };
        let Some(linker) = linker else { return Ok(None) };
        let hunt = Hunt { work: Work::within(folder), linker };
        fs::copy(pieces()?.join("kernel.o"), hunt.at("kernel.o"))?;
        Ok(Some(hunt))
    }

    pub(super) fn at(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// `ld.lld` or `ld.bfd`.
    fn linker_name(&self) -> &'static str {
        if self.linker.starts_with(LLVM) { "ld.lld" } else { "ld.bfd" }
    }

    /// Puts a library or object of the given answer at `name`, dated long ago: by size and date nothing tells one from another.
    fn put(&self, piece: &str, answer: u32, name: &str) -> Result<(), Failed> {
        let (stem, ending) = piece.split_once('.').ok_or("a piece without an ending")?;
        let bytes = fs::read(pieces()?.join(format!("{stem}{answer}.{ending}")))?;
        self.write(name, &bytes)
    }

    /// Writes a file, in place if it exists.
    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<(), Failed> {
        let path = self.work.file(name, bytes);
        Ok(fs::File::options().append(true).open(path)?.set_modified(SystemTime::UNIX_EPOCH)?)
    }

    pub(super) fn archive(&self, answer: u32, name: &str) -> Result<(), Failed> {
        self.put("libhelper.a", answer, name)
    }

    fn folder(&self, name: &str) -> Result<(), Failed> {
        Ok(fs::create_dir_all(self.at(name))?)
    }

    fn link_to(&self, target: &str, name: &str) -> Result<(), Failed> {
        let _ = fs::remove_file(self.at(name));
        Ok(symlink(target, self.at(name))?)
    }

    /// A thin archive of `member`, made by LLVM's archiver: by GNU's its bytes would be the same but for the flags of the index.
    fn thin(&self, name: &str, member: &str) -> Result<(), Failed> {
        let _ = fs::remove_file(self.at(name));
        self.work.run(llvm("llvm-ar"), ["rcsD", "--thin", name, member]).map(drop)
    }

    /// A program that calls ld.bfd or ld.lld and adds an option of its own: another linker.
    fn other_linker(&self, name: &str) -> Result<(), Failed> {
        let script = format!("#!/bin/sh\nexec {} \"$@\" --build-id=0x0badc0de\n", self.linker.display());
        let path = self.work.file(name, script);
        Ok(fs::set_permissions(path, std::os::unix::fs::PermissionsExt::from_mode(0o755))?)
    }

    /// Files that were written a moment ago may be written again without a trace: links that read them are not kept.
    pub(super) fn rest(&self) {
        std::thread::sleep(Duration::from_millis(60));
    }

    /// Links with or without the cache; the output, and what was said.
    pub(super) fn link(&self, line: &[&str], environment: &[(&str, &str)], cached: bool) -> Result<(Vec<u8>, String), Failed> {
        let mut command = self.command(line);
        for (name, folders) in environment {
            let own = folders.split(':').map(|folder| self.at(folder));
            let path = std::env::var_os("PATH").filter(|_| *name == "PATH").unwrap_or_default();
            let all: Vec<PathBuf> = own.chain(std::env::split_paths(&path)).collect();
            command.env(name, std::env::join_paths(all)?);
        }
        let cache = if cached { self.at("cache").into_os_string() } else { "off".into() };
        let said = stderr_of(command.env("OFFLD_CACHE", cache))?;
        Ok((fs::read(self.at("out.so"))?, said))
    }

    /// The link with `line` besides the program's own object.
    pub(super) fn command(&self, line: &[&str]) -> Command {
        let mut command = self.work.command(made().links.join("clang-linker-wrapper"));
        let linker = format!("--linker-path={}", self.linker.display());
        command.args([
            "--host-triple=x86_64-unknown-linux-gnu",
            &linker,
            "--wrapper-verbose",
            "-shared",
            "-o",
            "out.so",
            "kernel.o",
        ]);
        let short = self.linker_name().trim_start_matches("ld.");
        command
            .args(line.iter().map(|word| word.replace("{}", &self.work.path().display().to_string()).replace("{linker}", short)));
        command.env("OFFLD_CLANG", llvm("clang"));
        command
    }
}

fn hunt_in(scenario: &Scenario, linker: &str, folder: &str) -> Outcome {
    if !Path::new(folder).is_dir() {
        return missing(format!("the folder {folder}"));
    }
    match Hunt::new(linker, Path::new(folder))? {
        Some(hunt) => hunted(&hunt, scenario),
        None => missing(format!("{linker} (binutils)")),
    }
}

fn hunted(hunt: &Hunt, scenario: &Scenario) -> Outcome {
    (scenario.before)(hunt)?;
    hunt.rest();
    let link = |cached| hunt.link(scenario.line, scenario.environment, cached);
    let (first, said) = link(true)?;
    expect_in(&said, "device link for x86_64-pc-linux-gnu: not in the cache: it is linked here for the first time")?;
    expect_not_in(&said, "not cached")?;
    let (again, said) = link(true)?;
    expect_in(&said, "device link for x86_64-pc-linux-gnu: found in the cache")?;
    ensure(again == first, || "what was found is not what was kept")?;
    (scenario.change)(hunt)?;
    let (after, said) = link(true)?;
    let (right, _) = link(false)?;
    ensure(right != first, || "the change changes nothing: this scenario could not fail")?;
    ensure(after == right, || format!("a stale image\n{said}"))?;
    passed()
}
