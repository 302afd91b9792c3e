//! The recipes of docs/guides/build-recipes.md that need no installed files, run unchanged with the
//! real build systems.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::support::{
    LLVM, Outcome, Work, ensure, expect_equal, expect_in, made, missing, passed, root, run,
    run_failing, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    let recipe = |name: &str, title: &'static str, tools: &'static [&'static str]| {
        with_llvm(&format!("build_systems::{name}"), move || {
            check(title, tools)
        })
    };
    vec![
        with_llvm("build_systems::every_recipe_has_a_test", all_of_them),
        recipe("cmake_with_b", CMAKE_B, &["cmake"]),
        recipe("cmake_with_offld_as_the_linker", CMAKE_LD, &["cmake"]),
        recipe("cmake_with_a_linker_type", CMAKE_TYPE, &[NEW_CMAKE]),
        recipe("meson_with_b", MESON_B, &["meson", "ninja"]),
        recipe(
            "meson_with_offld_as_the_linker",
            MESON_LD,
            &["meson", "ninja"],
        ),
        recipe("libtool", LIBTOOL, &AUTOTOOLS),
        with_llvm(
            "build_systems::cmake_needs_clang_for_ld_path",
            cmake_with_gcc,
        ),
        with_llvm("build_systems::cmake_with_fuse_ld", cmake_with_fuse_ld),
        with_llvm(
            "build_systems::libtool_needs_its_word_and_configure_must_not_have_it",
            libtool_without,
        ),
    ]
}

const CMAKE_B: &str = "CMake with -B";
const CMAKE_LD: &str = "CMake with offld as the linker";
const CMAKE_TYPE: &str = "CMake with a linker type";
const MESON_B: &str = "Meson with -B";
const MESON_LD: &str = "Meson with offld as the linker";
const LIBTOOL: &str = "libtool with flags";

/// The first CMake with linker types: the system's, or the wheel that `scripts/setup.sh` installs
/// in `target/cmake`.
const NEW_CMAKE: &str = "cmake 3.29";
const AUTOTOOLS: [&str; 4] = ["autoreconf", "automake", "libtoolize", "make"];

/// The code blocks in a section of the document, each with the text after its opening fence.
fn blocks(section: &str) -> Vec<(String, String)> {
    let mut all = Vec::new();
    let mut open: Option<(String, String)> = None;
    for line in section.lines() {
        match (line.strip_prefix("```"), &mut open) {
            (Some(info), None) => open = Some((info.to_owned(), String::new())),
            (Some(_), Some(_)) => all.extend(open.take()),
            (None, Some((_, text))) => text.extend([line, "\n"]),
            (None, None) => {}
        }
    }
    all
}

/// The recipes of the document, each with its title. The first one, without a title, has the
/// program.
fn sections() -> Result<Vec<(String, String)>, Failed> {
    let text = std::fs::read_to_string(root().join("docs/guides/build-recipes.md"))?;
    let titled = |section: &str| {
        section
            .split_once('\n')
            .map(|(title, text)| (title.to_owned(), text.to_owned()))
    };
    Ok(text.split("\n## ").filter_map(titled).collect())
}

/// The commands of a recipe. Writes the files of the recipe, the program and earlier recipes to
/// `work`. `DIR` stands for the directory with the tool links.
fn recipe(work: &Work, title: &str) -> Result<Vec<String>, Failed> {
    let sections = sections()?;
    let at = sections
        .iter()
        .position(|(own, _)| own == title)
        .ok_or_else(|| format!("no recipe `{title}`"))?;
    let earlier = sections[..at]
        .iter()
        .flat_map(|(_, text)| blocks(text))
        .filter(|(info, _)| info.contains(' '));
    let links = made().links.display().to_string();
    let mut commands = Vec::new();
    for (info, text) in earlier.chain(blocks(&sections[at].1)) {
        match info.split_once(' ') {
            Some((_, name)) => drop(work.file(name, text)),
            None if info == "sh" => {
                commands.extend(text.lines().map(|line| line.replace("DIR", &links)))
            }
            None => {
                return Err(format!(
                    "{title}: a block that is neither a file nor commands: {info}"
                )
                .into());
            }
        }
    }
    ensure(commands.len() >= 3, || format!("{title}: {commands:?}"))?;
    Ok(commands)
}

/// The path of `tool`, if it is installed. CMake must be a version with linker types.
fn find_tool(tool: &str) -> Option<PathBuf> {
    let ours = root().join("target/cmake/cmake/data/bin");
    let folders: Vec<PathBuf> = std::env::var_os("PATH")
        .iter()
        .flat_map(std::env::split_paths)
        .chain([ours])
        .collect();
    let name = tool.split(' ').next()?;
    let found = folders
        .iter()
        .map(|folder| folder.join(name))
        .filter(|path| path.is_file());
    found
        .into_iter()
        .find(|path| tool != NEW_CMAKE || knows_linker_types(path))
}

fn knows_linker_types(cmake: &Path) -> bool {
    let version = Command::new(cmake).arg("--version").output();
    let text = version
        .map(|version| String::from_utf8_lossy(&version.stdout).into_owned())
        .unwrap_or_default();
    let numbers = text
        .split_whitespace()
        .nth(2)
        .unwrap_or_default()
        .split('.')
        .map(|number| number.parse().unwrap_or(0));
    numbers.take(2).collect::<Vec<u32>>() >= vec![3, 29]
}

/// A shell that runs `line` in `work`. LLVM 22 and `tools` come first in its `PATH`, and it has its
/// own cache.
fn shell(work: &Work, line: &str, tools: &[&str]) -> Command {
    let own = tools
        .iter()
        .filter(|tool| tool.contains(' '))
        .filter_map(|tool| find_tool(tool)?.parent().map(Path::to_owned));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders = own
        .chain([PathBuf::from(LLVM)])
        .chain(std::env::split_paths(&path));
    let mut shell = work.command("bash");
    shell.args(["-ec", line]).env(
        "PATH",
        std::env::join_paths(folders).expect("folders without colons"),
    );
    for name in ["CC", "CFLAGS", "LDFLAGS", "CC_LD", "CMAKE_GENERATOR"] {
        shell.env_remove(name);
    }
    shell
        .env("OFFLD_CACHE", work.path().join("cache"))
        .env("LD_LIBRARY_PATH", "/usr/lib/llvm-22/lib");
    shell
}

fn check(title: &str, tools: &'static [&'static str]) -> Outcome {
    if let Some(tool) = tools.iter().find(|tool| find_tool(tool).is_none()) {
        return missing(tool);
    }
    let work = Work::new();
    let mut printed = String::new();
    for command in recipe(&work, title)? {
        printed = run(&mut shell(&work, &command, tools))?;
    }
    expect_equal(title, "10 40 on the device\n", &printed)?;
    // LLVM's wrapper would link this program, too. The cache of device links shows that offld did
    // it.
    let cached = std::fs::read_dir(work.path().join("cache")).map_or(0, Iterator::count);
    ensure(cached > 0, || {
        format!("{title}: offld has linked no device code")
    })?;
    passed()
}

fn all_of_them() -> Outcome {
    let titles: Vec<String> = sections()?
        .into_iter()
        .skip(1)
        .map(|(title, _)| title)
        .collect();
    expect_equal(
        "recipes",
        &[CMAKE_B, CMAKE_LD, CMAKE_TYPE, MESON_B, MESON_LD, LIBTOOL].join("\n"),
        &titles.join("\n"),
    )?;
    passed()
}

fn cmake_with_gcc() -> Outcome {
    let Some(_) = find_tool("cmake") else {
        return missing("cmake");
    };
    let work = Work::new();
    let commands = recipe(&work, CMAKE_LD)?;
    let without = commands[0].replace("CMAKE_C_COMPILER=clang", "CMAKE_C_COMPILER=gcc");
    ensure(without != commands[0], || "the recipe does not name clang")?;
    for line in [without.clone(), by_fuse_ld(&without)?] {
        let _ = std::fs::remove_dir_all(work.path().join("build"));
        expect_in(
            &run_failing(&mut shell(&work, &line, &[]))?,
            "is not able to compile a simple test program",
        )?;
    }
    passed()
}

/// The command with `-fuse-ld=offld`, which clang finds in `PATH`, instead of the linker's path.
fn by_fuse_ld(command: &str) -> Result<String, Failed> {
    let links = made().links.display().to_string();
    let changed = command.replace(&format!("--ld-path={links}/ld.offld"), "-fuse-ld=offld");
    ensure(changed != command, || format!("no linker in {command}"))?;
    Ok(format!("export PATH=\"$PATH:{links}\"; {changed}"))
}

fn cmake_with_fuse_ld() -> Outcome {
    let Some(_) = find_tool("cmake") else {
        return missing("cmake");
    };
    let work = Work::new();
    let commands = recipe(&work, CMAKE_LD)?;
    let [configure, build, program] = commands.as_slice() else {
        return Err(format!("{commands:?}").into());
    };
    let links = made().links.display().to_string();
    run(&mut shell(&work, &by_fuse_ld(configure)?, &[]))?;
    run(&mut shell(
        &work,
        &format!("export PATH=\"$PATH:{links}\"; {build}"),
        &[],
    ))?;
    expect_equal(
        "stdout",
        "10 40 on the device\n",
        &run(&mut shell(&work, program, &[]))?,
    )?;
    let cached = std::fs::read_dir(work.path().join("cache")).map_or(0, Iterator::count);
    ensure(cached > 0, || "offld has linked no device code")?;
    passed()
}

fn libtool_without() -> Outcome {
    if let Some(tool) = AUTOTOOLS.iter().find(|tool| find_tool(tool).is_none()) {
        return missing(tool);
    }
    let work = Work::new();
    let commands = recipe(&work, LIBTOOL)?;
    let [autoreconf, configure, make, program] = commands.as_slice() else {
        return Err(format!("{commands:?}").into());
    };
    run(&mut shell(&work, autoreconf, &[]))?;
    let flags = make.split_once(" LDFLAGS=").ok_or("no LDFLAGS")?.1;
    run_failing(&mut shell(
        &work,
        &format!("{configure} LDFLAGS={flags}"),
        &[],
    ))?;
    // Without `-XCClinker`, libtool drops the flags from the library's link. The link succeeds, but
    // no image has its kernel.
    run(&mut shell(&work, configure, &[]))?;
    run(&mut shell(&work, &make.replace("-XCClinker ", ""), &[]))?;
    run_failing(&mut shell(&work, program, &[]))?;
    passed()
}
