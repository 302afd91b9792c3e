//! The worked examples of docs/tutorials/incremental-hip.md and docs/guides/build-time.md. All
//! blocks with the mark `<!-- test: build_loop::NAME -->` form one script. The `text` block after
//! each shows lines that the script prints.

use std::path::PathBuf;

use libtest_mimic::{Failed, Trial};

use super::docs::blocks::blocks;
use super::log::outcomes;
use super::support::{
    LLVM, Outcome, Work, ensure, expect_equal, expect_in, missing, offld, passed, root, run,
    with_llvm,
};

const HIP: Example = Example {
    name: "cmake_hip",
    page: "docs/tutorials/incremental-hip.md",
    tool: "cmake",
    first: 4,
    hits: 2,
    misses: 6,
};
const OPENMP: Example = Example {
    name: "openmp_lto",
    page: "docs/guides/build-time.md",
    tool: "make",
    first: 1,
    hits: 1,
    misses: 2,
};

/// An example, and the device links that it does.
struct Example {
    /// The test name without `build_loop::`.
    name: &'static str,
    page: &'static str,
    /// A program that must be installed.
    tool: &'static str,
    /// Device links of the first build. All of them are misses.
    first: usize,
    /// Cache hits of all builds.
    hits: usize,
    /// Cache misses of all builds.
    misses: usize,
}

pub(crate) fn trials() -> Vec<Trial> {
    [HIP, OPENMP]
        .map(|example| {
            with_llvm(&format!("build_loop::{}", example.name), move || {
                example.run()
            })
        })
        .into()
}

impl Example {
    /// Reads the commands of the example, and the output that its page shows.
    fn read(&self) -> Result<(String, Vec<String>), Failed> {
        let text = std::fs::read_to_string(root().join(self.page))?;
        let mark = format!("test: build_loop::{}", self.name);
        let (mut script, mut shown) = (String::new(), Vec::new());
        let mut after_commands = false;
        for block in blocks(&text) {
            let is_command = block.mark.as_deref() == Some(mark.as_str());
            if is_command {
                // Edited files must be newer than the files of the previous build.
                script.push_str("sleep 1\n");
                script.push_str(&block.text);
            } else if after_commands && block.info.as_deref() == Some("text") {
                shown.extend(block.text.lines().map(str::to_owned));
            }
            after_commands = is_command;
        }
        ensure(!script.is_empty() && !shown.is_empty(), || {
            format!("{}: no blocks with `{mark}`", self.page)
        })?;
        Ok((script, shown))
    }

    /// Runs the commands in one shell and compares their output and the build log.
    fn run(&self) -> Outcome {
        if which::which(self.tool).is_err() {
            return missing(self.tool);
        }
        let (script, shown) = self.read()?;
        let work = Work::new();
        let bin = offld()
            .parent()
            .map(PathBuf::from)
            .ok_or("offld is in no directory")?;
        let path = std::env::var_os("PATH").unwrap_or_default();
        let directories = [bin, PathBuf::from(LLVM)]
            .into_iter()
            .chain(std::env::split_paths(&path));
        let mut shell = work.command("bash");
        shell
            .args(["-ec", &script])
            .env("PATH", std::env::join_paths(directories)?);
        for name in [
            "CC",
            "CXX",
            "CFLAGS",
            "CXXFLAGS",
            "LDFLAGS",
            "CMAKE_GENERATOR",
            "MAKEFLAGS",
            "MAKELEVEL",
        ] {
            shell.env_remove(name);
        }
        shell.env("LD_LIBRARY_PATH", "/usr/lib/llvm-22/lib");
        let printed = run(&mut shell)?;
        for line in &shown {
            ensure(
                printed.lines().any(|own| matches_pattern(own, line)),
                || format!("`{line}` is not printed:\n{printed}"),
            )?;
        }
        let outcomes: Vec<String> = outcomes(&work.path().join("build.log"))?
            .into_iter()
            .map(|(outcome, _)| outcome)
            .collect();
        let begin: Vec<&str> = outcomes
            .iter()
            .take(self.first)
            .map(String::as_str)
            .collect();
        expect_equal(
            "the first build",
            &vec!["miss"; self.first].join(" "),
            &begin.join(" "),
        )?;
        expect_equal(
            "device links",
            &(self.hits + self.misses).to_string(),
            &outcomes.len().to_string(),
        )?;
        for (outcome, count) in [("hit", self.hits), ("miss", self.misses)] {
            let found = outcomes.iter().filter(|own| *own == outcome).count();
            expect_equal(outcome, &count.to_string(), &found.to_string())?;
        }
        expect_in(&printed, "slowest device links\n")?;
        passed()
    }
}

/// Whether the printed line `own` matches the line `shown`, in which each `…` stands for any text.
fn matches_pattern(own: &str, shown: &str) -> bool {
    let mut parts = shown.split('…');
    let Some(mut rest) = parts.next().and_then(|start| own.strip_prefix(start)) else {
        return false;
    };
    let mut is_open = false;
    for part in parts {
        let Some((_, after)) = rest.split_once(part) else {
            return false;
        };
        rest = after;
        is_open = part.is_empty();
    }
    rest.is_empty() || is_open
}
