//! The worked examples of docs/build-loop.md, run as they stand there.

use std::path::PathBuf;

use libtest_mimic::{Failed, Trial};

use super::log::outcomes;
use super::support::{LLVM, Outcome, Work, ensure, expect_equal, expect_in, made, missing, offld, passed, root, run, with_llvm};

const HIP: &str = "CMake: a HIP project";
const OPENMP: &str = "Make: an OpenMP application with LTO";

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("build_loop::cmake_hip", || example(HIP, "cmake", 8, &["miss"; 4], &[(2, "hit"), (6, "miss")])),
        with_llvm("build_loop::openmp_lto", || example(OPENMP, "make", 3, &["miss"], &[(1, "hit"), (2, "miss")])),
        with_llvm("build_loop::every_example_has_a_test", all_of_them),
    ]
}

/// The blocks of a section: each with what stands after its fence.
fn blocks(section: &str) -> Vec<(String, String)> {
    let mut parts = section.split("\n```");
    parts.next();
    let inside = parts.step_by(2);
    inside.filter_map(|block| block.split_once('\n').map(|(info, text)| (info.to_owned(), format!("{text}\n")))).collect()
}

fn sections() -> Result<Vec<(String, String)>, Failed> {
    let text = std::fs::read_to_string(root().join("docs/build-loop.md"))?;
    let titled = |section: &str| section.split_once('\n').map(|(title, text)| (title.to_owned(), text.to_owned()));
    Ok(text.split("\n## ").skip(1).filter_map(titled).collect())
}

/// Runs the example: its files are written, its commands are run in one shell, and what it prints has the lines that the document shows.
/// `first`: what becomes of the device links that come first; `counted`: how many there are of each outcome in all.
fn example(title: &str, tool: &str, lines: usize, first: &[&str], counted: &[(usize, &str)]) -> Outcome {
    if which::which(tool).is_err() {
        return missing(tool);
    }
    let work = Work::new();
    let links = made().links.display().to_string();
    let sections = sections()?;
    let section = &sections.iter().find(|(own, _)| own == title).ok_or_else(|| format!("no example `{title}`"))?.1;
    let (mut script, mut shown) = (String::new(), String::new());
    for (info, text) in blocks(section) {
        match (info.split_once(' '), info.as_str()) {
            (Some((_, name)), _) => drop(work.file(name, text.replace("DIR", &links))),
            (None, "sh") => script = text.replace("DIR", &links),
            (None, "text") => shown = text,
            _ => return Err(format!("a block that is neither a file nor commands nor what they print: {info}").into()),
        }
    }
    let bin = offld().parent().map(PathBuf::from).ok_or("no folder")?;
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = [bin, PathBuf::from(LLVM)].into_iter().chain(std::env::split_paths(&path));
    let mut shell = work.command("bash");
    shell.args(["-ec", &script]).env("PATH", std::env::join_paths(folders).expect("folders without colons"));
    for name in ["CC", "CXX", "CFLAGS", "CXXFLAGS", "LDFLAGS", "CMAKE_GENERATOR", "MAKEFLAGS", "MAKELEVEL"] {
        shell.env_remove(name);
    }
    shell.env("OFFLD_CACHE", work.path().join("cache")).env("LD_LIBRARY_PATH", "/usr/lib/llvm-22/lib");
    let printed = run(&mut shell)?;
    ensure(!shown.is_empty(), || "the example shows nothing")?;
    for line in shown.lines() {
        expect_in(&printed, &format!("{line}\n"))?;
    }
    let outcomes: Vec<String> = outcomes(&work.path().join("build.log"))?.into_iter().map(|(outcome, _)| outcome).collect();
    let begin: Vec<&str> = outcomes.iter().take(first.len()).map(String::as_str).collect();
    expect_equal("the first build", &first.join(" "), &begin.join(" "))?;
    expect_equal("device links", &lines.to_string(), &outcomes.len().to_string())?;
    for (count, outcome) in counted {
        let found = outcomes.iter().filter(|own| own == outcome).count();
        expect_equal(outcome, &count.to_string(), &found.to_string())?;
    }
    expect_in(&printed, "slowest device links\n")?;
    passed()
}

fn all_of_them() -> Outcome {
    let with_commands = sections()?.into_iter().filter(|(_, text)| blocks(text).iter().any(|(info, _)| info == "sh"));
    let titles: Vec<String> = with_commands.map(|(title, _)| title).collect();
    for title in [HIP, OPENMP] {
        ensure(titles.iter().any(|own| own == title), || format!("no example `{title}`: {titles:?}"))?;
    }
    passed()
}
