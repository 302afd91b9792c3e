//! The files that NVIDIA's tools open and the variables they query. The cache key must include
//! everything that can change a link's result.

use std::collections::BTreeSet;
use std::fs;

use libtest_mimic::{Failed, Trial};

use super::Site;
use crate::support::{Outcome, ensure, expect_in, llvm, missing, passed, run, test};

/// Variables that the tools read but that do not affect images: temporary directories, CPU
/// features, and `bar`. LLVM reads `bar` so that optimizers cannot know that it is never set.
const HARMLESS: [&str; 6] = ["TMPDIR", "TMP", "TEMP", "TEMPDIR", "OPENSSL_ia32cap", "bar"];

pub(super) fn trials() -> Vec<Trial> {
    let mut trials = Vec::new();
    for major in [15, 19, 22] {
        trials.push(test(
            format!("releases::nvidia::what_is_opened::{major}"),
            move || opened(major),
        ));
        trials.push(test(
            format!("releases::nvidia::variables_that_are_read::{major}"),
            move || variables(major),
        ));
    }
    trials
}

/// The commands of a link, then the command that packs the fatbinary. LLVM's nvlink wrapper links
/// bitcode and machine code. For LLVM 15, nvlink links machine code.
fn commands(site: &Site) -> Vec<Vec<String>> {
    let toolkit = site.work.path().join("toolkit");
    let linker = if site.release.major < 19 {
        vec![
            toolkit.join("bin/nvlink").display().to_string(),
            "-m64".to_owned(),
        ]
    } else {
        vec![
            site.release
                .tool("clang-nvlink-wrapper")
                .display()
                .to_string(),
            format!("--cuda-path={}", toolkit.display()),
            "-lb1".to_owned(),
            "-plugin-opt=O2".to_owned(),
        ]
    };
    let inputs = if site.release.major < 19 {
        vec!["a.cubin", "b.cubin"]
    } else {
        vec!["a.device"]
    };
    let mut link = linker;
    link.extend(["-o", "image", "-arch", "sm_80", "-Lnone", "-L."].map(str::to_owned));
    link.extend(inputs.into_iter().map(str::to_owned));
    let pack = [
        &*toolkit.join("bin/fatbinary").display().to_string(),
        "-64",
        "--create",
        "fatbin",
        "--image3=kind=elf,sm=80,file=image",
    ]
    .map(str::to_owned);
    vec![link, pack.into()]
}

fn site(major: u32) -> Result<Site, Outcome> {
    let site = Site::new(major, major >= 19)?;
    for name in ["a", "b"] {
        fs::copy(
            site.work.path().join(format!("{name}.device")),
            site.work.path().join(format!("{name}.cubin")),
        )
        .map_err(|error| Err(error.into()))?;
    }
    fs::create_dir_all(site.work.path().join("tmp")).map_err(|error| Err(error.into()))?;
    Ok(site)
}

/// The files in the output of strace: whether the file existed, and its name.
fn files_of(trace: &str) -> BTreeSet<(bool, String)> {
    // The line of an interrupted call has no result. The file then counts as opened.
    let named = trace
        .lines()
        .filter(|line| line.contains('('))
        .filter_map(|line| {
            let name = line.split('"').nth(1)?;
            let result = line.rsplit_once(" = ").map_or("", |(_, result)| result);
            Some((!result.starts_with("-1"), name.to_owned()))
        });
    named.collect()
}

fn opened(major: u32) -> Outcome {
    let Ok(strace) = which::which("strace") else {
        return missing("strace");
    };
    let site = match site(major) {
        Ok(site) => site,
        Err(outcome) => return outcome,
    };
    let directory = site.work.path().display().to_string();
    let mut programs = BTreeSet::new();
    let mut read = BTreeSet::new();
    for args in commands(&site) {
        let mut traced = site.work.command(&strace);
        traced
            .args([
                "-f",
                "-s",
                "4096",
                "-e",
                "trace=%file,%process",
                "-o",
                "trace",
            ])
            .args(&args);
        run(traced
            .env("TMPDIR", site.work.path().join("tmp"))
            .env_remove("LIBRARY_PATH"))?;
        let trace = fs::read_to_string(site.work.path().join("trace"))?;
        programs.extend(
            trace
                .lines()
                .filter(|line| line.contains("execve("))
                .filter_map(|line| line.split('"').nth(1).map(str::to_owned)),
        );
        read.extend(files_of(&trace));
    }
    // The dynamic loader's own files are part of the tool's identity.
    let loaders = |name: &str| name.contains(".so") || name.starts_with("/etc/ld.so");
    let system = |name: &str| {
        name.starts_with("/proc/self/")
            || name.is_empty()
            || fs::metadata(name).is_ok_and(|meta| meta.is_dir())
    };
    let temporary = |name: &str| {
        name.starts_with(&format!("{directory}/tmp/"))
            || ["image", "fatbin", "trace"].contains(&name)
    };
    let mut unknown = Vec::new();
    for (there, name) in &read {
        let known = [
            "a.device",
            "a.cubin",
            "b.cubin",
            "./libb1.a",
            "libb1.a",
            "none/libb1.a",
        ]
        .contains(&name.as_str());
        let folder_of_loader = !there
            && (name.contains("glibc-hwcaps")
                || ["/tls", "/haswell", "/xeon_phi", "/avx512_1", "/x86_64"]
                    .iter()
                    .any(|folder| name.contains(folder))
                || name.contains("nvvm/lib64"));
        if !(known
            || loaders(name)
            || system(name)
            || temporary(name)
            || programs.contains(name)
            || folder_of_loader)
        {
            unknown.push(format!(
                "{} {name}",
                if *there { "opened" } else { "looked for" }
            ));
        }
    }
    ensure(unknown.is_empty(), || {
        format!(
            "files that the cache knows nothing of:\n{}",
            unknown.join("\n")
        )
    })?;
    let names: Vec<&str> = programs
        .iter()
        .filter_map(|path| path.rsplit('/').next())
        .collect();
    let expected: &[&str] = if major < 19 {
        &["fatbinary", "nvlink"]
    } else {
        &["clang-nvlink-wrapper", "fatbinary", "nvlink", "ptxas"]
    };
    for name in expected {
        ensure(names.contains(name), || {
            format!("{name} was not run: {names:?}")
        })?;
    }
    ensure(names.len() == expected.len(), || {
        format!("other programs were run: {names:?}")
    })?;
    if major >= 19 {
        expect_in(&format!("{read:?}"), "none/libb1.a")?;
    }
    passed()
}

/// A library that records the names of queried variables.
const SPY: &str = "#define _GNU_SOURCE
#include <fcntl.h>
#include <string.h>
#include <unistd.h>
extern char **environ;
char *getenv(const char *name) {
  int file = open(SPY_FILE, O_WRONLY | O_CREAT | O_APPEND, 0600);
  if (file >= 0) { write(file, name, strlen(name)); write(file, \"\\n\", 1); close(file); }
  unsigned long length = strlen(name);
  for (char **each = environ; *each; each++)
    if (!strncmp(*each, name, length) && (*each)[length] == '=') return *each + length + 1;
  return 0;
}
char *secure_getenv(const char *name) { return getenv(name); }
char *__secure_getenv(const char *name) { return getenv(name); }
";

fn variables(major: u32) -> Outcome {
    let site = match site(major) {
        Ok(site) => site,
        Err(outcome) => return outcome,
    };
    let log = site.work.path().join("asked");
    site.work.file(
        "spy.c",
        SPY.replace("SPY_FILE", &format!("\"{}\"", log.display())),
    );
    run(site
        .work
        .command(llvm("clang"))
        .args(["-w", "-shared", "-fPIC", "spy.c", "-o", "spy.so"]))?;
    for args in commands(&site) {
        let mut command = site.work.command(&args[0]);
        run(command
            .args(&args[1..])
            .env("LD_PRELOAD", site.work.path().join("spy.so"))
            .env_remove("LIBRARY_PATH"))?;
    }
    let text = fs::read_to_string(&log)
        .map_err(|error| Failed::from(format!("nothing was asked for: {error}")))?;
    let names: BTreeSet<&str> = text.lines().collect();
    // Variables with these prefixes are part of the key. With LIBRARY_PATH, nothing is cached.
    let known = |name: &str| {
        name.starts_with("LLVM_")
            || name.starts_with("CUDA_")
            || name == "LIBRARY_PATH"
            || HARMLESS.contains(&name)
    };
    let unknown: Vec<&str> = names.iter().copied().filter(|name| !known(name)).collect();
    ensure(unknown.is_empty(), || {
        format!("variables that the cache knows nothing of: {unknown:?}")
    })?;
    ensure(names.contains("LIBRARY_PATH"), || {
        format!("the library saw nothing: {names:?}")
    })?;
    passed()
}
