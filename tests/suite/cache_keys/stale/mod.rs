//! Searches for stale results: a cached link, a change of a file that it read or would have read,
//! and a second link. Its result must equal that of a link without the cache. One scenario per
//! input class of linkers and compiler drivers (decision 0026), with ld.lld, ld.bfd and wild, on a
//! disk and in memory.

mod classes;
mod disks;
mod driver;
mod file_systems;
mod libraries;
mod names;
mod pipes;
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
    OFFLOAD, Outcome, Work, ensure, expect_in, expect_not_in, host_linker, llvm, made, missing,
    passed, run, stderr_of, with_llvm,
};

/// Every scenario with every linker and file system.
pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    let scenarios = libraries::SCENARIOS
        .iter()
        .chain(driver::SCENARIOS)
        .chain(classes::SCENARIOS);
    for scenario in scenarios
        .chain(names::SCENARIOS)
        .chain(tool_libraries::SCENARIOS)
    {
        for linker in EVERY {
            for folder in ["/tmp", "/dev/shm"] {
                if scenario.linkers.contains(linker) {
                    let system = if folder == "/tmp" {
                        "on_disk"
                    } else {
                        "in_memory"
                    };
                    let name = format!(
                        "cache_keys::stale::{}::{}_{system}",
                        scenario.name,
                        linker.replace('.', "_")
                    );
                    trials.push(with_llvm(&name, move || hunt_in(scenario, linker, folder)));
                }
            }
        }
    }
    trials.extend(trials_of! { disks file_systems pipes printed tool_libraries });
    trials
}

const EVERY: &[&str] = &["ld.lld", "ld.bfd", "ld.wild"];
pub(crate) const BOTH: &[&str] = &["ld.lld", "ld.bfd"];
const LLD: &[&str] = &["ld.lld"];
const GNU: &[&str] = &["ld.bfd"];

/// A change that could make a cached result stale.
struct Scenario {
    /// The test's name, with the number of the claim.
    name: &'static str,
    linkers: &'static [&'static str],
    /// The link's arguments in addition to the program's own object. `{}` stands for the hunt's
    /// directory.
    line: &'static [&'static str],
    /// Environment variables with directories relative to the hunt's. They precede the test
    /// environment's values.
    environment: &'static [(&'static str, &'static str)],
    before: fn(&Hunt) -> Result<(), Failed>,
    change: fn(&Hunt) -> Result<(), Failed>,
}

/// A directory, a linker and a cache.
pub(crate) struct Hunt {
    pub(crate) work: Work,
    linker: PathBuf,
}

/// The common inputs of all hunts, built once: an object whose kernel calls `helper`, and libraries
/// that define `helper` and differ in one constant only.
fn pieces() -> Result<&'static Path, Failed> {
    static PIECES: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let made = PIECES.get_or_init(|| {
        make_pieces().map_err(|failed| failed.message().unwrap_or("failed").to_owned())
    });
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
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .args(flags)
        .arg("kernel.c")
        .arg("-o")
        .arg(folder.join("kernel.o")))?;
    for which in 1..=2 {
        work.file(
            "helper.c",
            format!("int helper(int x) {{ return x + {which}000; }}\n"),
        );
        let object = folder.join(format!("helper{which}.o"));
        run(work
            .command(llvm("clang"))
            .args(flags)
            .arg("helper.c")
            .arg("-o")
            .arg(&object))?;
        fs::copy(&object, work.path().join("helper.o"))?;
        work.run(
            llvm("llvm-ar"),
            [
                OsString::from("rcsD"),
                folder.join(format!("libhelper{which}.a")).into(),
                "helper.o".into(),
            ],
        )?;
        let shared = folder.join(format!("libhelper{which}.so"));
        let soname = format!("-Wl,-soname,libhelper.so.{which}");
        run(work
            .command(llvm("clang"))
            .args(["-shared", &soname, "helper.o", "-o"])
            .arg(shared))?;
    }
    Ok(folder)
}

impl Hunt {
    pub(crate) fn new(linker: &str, folder: &Path) -> Result<Option<Hunt>, Failed> {
        let Some(linker) = host_linker(linker.trim_start_matches("ld.")) else {
            return Ok(None);
        };
        let hunt = Hunt {
            work: Work::within(folder),
            linker,
        };
        fs::copy(pieces()?.join("kernel.o"), hunt.at("kernel.o"))?;
        Ok(Some(hunt))
    }

    pub(crate) fn at(&self, name: &str) -> PathBuf {
        self.work.path().join(name)
    }

    /// `ld.lld`, `ld.bfd` or `ld.wild`.
    fn linker_name(&self) -> &str {
        self.linker
            .file_name()
            .and_then(|name| name.to_str())
            .unwrap_or_default()
    }

    /// Puts a library or object with the given answer at `name`. All versions have the same size
    /// and the same old timestamp.
    fn put(&self, piece: &str, answer: u32, name: &str) -> Result<(), Failed> {
        let (stem, ending) = piece.split_once('.').ok_or("a piece without an ending")?;
        let bytes = fs::read(pieces()?.join(format!("{stem}{answer}.{ending}")))?;
        self.write(name, &bytes)
    }

    /// Writes a file, in place if it exists.
    fn write(&self, name: &str, bytes: impl AsRef<[u8]>) -> Result<(), Failed> {
        let path = self.work.file(name, bytes);
        Ok(fs::File::options()
            .append(true)
            .open(path)?
            .set_modified(SystemTime::UNIX_EPOCH)?)
    }

    pub(crate) fn archive(&self, answer: u32, name: &str) -> Result<(), Failed> {
        self.put("libhelper.a", answer, name)
    }

    fn folder(&self, name: &str) -> Result<(), Failed> {
        Ok(fs::create_dir_all(self.at(name))?)
    }

    /// Sets an old timestamp on a directory, as archivers do after they add a file.
    fn date(&self, name: &str) -> Result<(), Failed> {
        Ok(fs::File::open(self.at(name))?.set_modified(SystemTime::UNIX_EPOCH)?)
    }

    fn link_to(&self, target: &str, name: &str) -> Result<(), Failed> {
        let _ = fs::remove_file(self.at(name));
        Ok(symlink(target, self.at(name))?)
    }

    /// A thin archive of `member`, made by LLVM's archiver. GNU ar would write the same bytes
    /// except for the flags of the index.
    fn thin(&self, name: &str, member: &str) -> Result<(), Failed> {
        let _ = fs::remove_file(self.at(name));
        self.work
            .run(llvm("llvm-ar"), ["rcsD", "--thin", name, member])
            .map(drop)
    }

    /// A program that calls ld.bfd or ld.lld with an additional option, so it acts as a different
    /// linker.
    fn other_linker(&self, name: &str) -> Result<(), Failed> {
        let script = format!(
            "#!/bin/sh\nexec {} \"$@\" --build-id=0x0badc0de\n",
            self.linker.display()
        );
        let path = self.work.file(name, script);
        Ok(fs::set_permissions(
            path,
            std::os::unix::fs::PermissionsExt::from_mode(0o755),
        )?)
    }

    /// A file that was written recently can change again without a new timestamp, so offld does not
    /// cache links that read it.
    pub(crate) fn rest(&self) {
        std::thread::sleep(Duration::from_millis(60));
    }

    /// Links with or without the cache. Returns the output and the messages.
    pub(crate) fn link(
        &self,
        line: &[&str],
        environment: &[(&str, &str)],
        cached: bool,
    ) -> Result<(Vec<u8>, String), Failed> {
        let mut command = self.command(line);
        for (name, folders) in environment {
            let own = folders.split(':').map(|folder| self.at(folder));
            let path = std::env::var_os("PATH")
                .filter(|_| *name == "PATH")
                .unwrap_or_default();
            let all: Vec<PathBuf> = own.chain(std::env::split_paths(&path)).collect();
            command.env(name, std::env::join_paths(all)?);
        }
        let cache = if cached {
            self.at("cache").into_os_string()
        } else {
            "off".into()
        };
        let stderr = stderr_of(command.env("OFFLD_CACHE", cache))?;
        Ok((fs::read(self.at("out.so"))?, stderr))
    }

    /// The link with `line` in addition to the program's own object.
    pub(crate) fn command(&self, line: &[&str]) -> Command {
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
        command.args(line.iter().map(|word| {
            word.replace("{}", &self.work.path().display().to_string())
                .replace("{linker}", short)
        }));
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
        None => missing(linker),
    }
}

fn hunted(hunt: &Hunt, scenario: &Scenario) -> Outcome {
    (scenario.before)(hunt)?;
    hunt.rest();
    let link = |cached| hunt.link(scenario.line, scenario.environment, cached);
    let (first, said) = link(true)?;
    expect_in(
        &said,
        "device link for x86_64-pc-linux-gnu: not in the cache: no earlier link of this output is recorded on this machine",
    )?;
    expect_not_in(&said, "not cached")?;
    let (again, said) = link(true)?;
    expect_in(
        &said,
        "device link for x86_64-pc-linux-gnu: found in the cache",
    )?;
    ensure(again == first, || "what was found is not what was kept")?;
    (scenario.change)(hunt)?;
    let (after, said) = link(true)?;
    let (right, _) = link(false)?;
    ensure(
        right != first,
        || "the change changes nothing: this scenario could not fail",
    )?;
    ensure(after == right, || format!("a stale image\n{said}"))?;
    passed()
}
