//! The projects of tests/build-systems, built by the real build systems as docs/build-systems.md says, with offld as `make install` puts it.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use super::support::{
    LLVM, Outcome, Work, ensure, expect_equal, expect_in, made, missing, offld, passed, root, run, run_failing, with_llvm,
};

/// A section of the document, its project, the tools that it needs, and how many device links there are.
struct Project {
    title: &'static str,
    folder: &'static str,
    tools: &'static [&'static str],
    device_links: usize,
    /// What the programs print.
    prints: &'static [&'static str],
}

const PRINTED: &str = "10 40 100 on the device";
const ONCE: &[&str] = &[PRINTED];

const PROJECTS: [(&str, Project); 7] = [
    (
        "cmake",
        Project {
            title: "CMake: find_package and offld_enable",
            folder: "cmake",
            tools: &["cmake"],
            device_links: 2,
            prints: &[PRINTED; 3],
        },
    ),
    (
        "cmake_linker_type",
        Project {
            title: "CMake 3.29 and later: the linker type OFFLD",
            folder: "cmake",
            tools: &[NEW_CMAKE],
            device_links: 2,
            prints: ONCE,
        },
    ),
    (
        "cmake_toolchain",
        Project { title: "CMake: the toolchain file", folder: "cmake-plain", tools: &["cmake"], device_links: 2, prints: ONCE },
    ),
    ("meson", Project { title: "Meson", folder: "meson", tools: &["meson", "ninja"], device_links: 2, prints: ONCE }),
    ("make", Project { title: "Make", folder: "make", tools: &["make", "pkg-config"], device_links: 2, prints: ONCE }),
    (
        "autotools",
        Project {
            title: "Autotools with libtool",
            folder: "autotools",
            tools: &["autoreconf", "automake", "libtoolize", "make", "pkg-config"],
            device_links: 2,
            prints: ONCE,
        },
    ),
    (
        "cargo",
        Project { title: "cargo", folder: "cargo", tools: &["cargo", "pkg-config"], device_links: 2, prints: &["60", PRINTED] },
    ),
];

/// A CMake with linker types, which `scripts/setup.sh` puts into `target/cmake` where the system's is older.
const NEW_CMAKE: &str = "cmake 3.29";

pub(crate) fn trials() -> Vec<Trial> {
    let built = PROJECTS.into_iter().map(|(name, project)| with_llvm(&format!("build_systems::{name}"), move || build(&project)));
    let others = [
        with_llvm("build_systems::every_section_has_a_project", all_of_them),
        with_llvm("build_systems::cmake_as_the_linker", cmake_as_the_linker),
        with_llvm("build_systems::cmake_says_what_is_wrong", cmake_says_what_is_wrong),
        with_llvm("build_systems::pkg_config", pkg_config),
    ];
    built.chain(others).collect()
}

/// The prefix that offld is installed in, once for all tests; a failure of that is everybody's.
fn prefix() -> Result<PathBuf, Failed> {
    static PREFIX: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let installed = PREFIX.get_or_init(|| install().map_err(|failed| failed.message().unwrap_or_default().to_owned()));
    installed.clone().map_err(Failed::from)
}

fn install() -> Result<PathBuf, Failed> {
    let folder = made().shared("build-systems");
    let release = folder.join("built/release");
    std::fs::create_dir_all(&release)?;
    for name in ["offld", "offld-llvm"] {
        let (from, to) = (offld().with_file_name(name), release.join(name));
        std::fs::hard_link(&from, &to).or_else(|_| std::fs::copy(&from, &to).map(drop))?;
    }
    let prefix = folder.join("prefix");
    let mut make = Command::new("make");
    make.arg("install").arg(format!("PREFIX={}", prefix.display())).current_dir(root());
    run(make.env("CARGO_TARGET_DIR", folder.join("built")).env_remove("MAKEFLAGS").env_remove("DESTDIR"))?;
    Ok(prefix)
}

/// Where a tool is; of CMake one that has linker types, if that is asked for.
fn there(tool: &str) -> Option<PathBuf> {
    if tool != NEW_CMAKE {
        return which::which(tool).ok();
    }
    let ours = root().join("target/cmake/cmake/data/bin/cmake");
    let all = which::which_all("cmake").into_iter().flatten().chain([ours].into_iter().filter(|path| path.is_file()));
    all.into_iter().find(|cmake| {
        let told = Command::new(cmake).arg("--version").output().map(|told| String::from_utf8_lossy(&told.stdout).into_owned());
        let told = told.unwrap_or_default();
        let numbers = told.split_whitespace().nth(2).unwrap_or_default().split('.').map(|number| number.parse().unwrap_or(0));
        numbers.take(2).collect::<Vec<u32>>() >= vec![3, 29]
    })
}

/// A folder with a project and the sources.
fn project(folder: &str) -> Result<Work, Failed> {
    let work = Work::new();
    for part in [folder, "src"] {
        let from = root().join("tests/build-systems").join(part);
        let to = if part == "src" { work.path().join("src") } else { work.path().to_owned() };
        std::fs::create_dir_all(&to)?;
        run(Command::new("cp").arg("-R").arg(from.join(".")).arg(&to))?;
    }
    Ok(work)
}

/// A shell that finds offld in its prefix, and LLVM 22 and `tools` first.
fn shell(work: &Work, script: &str, tools: &[&str]) -> Result<Command, Failed> {
    let prefix = prefix()?;
    let own = tools.iter().filter_map(|tool| Some(there(tool)?.parent()?.to_owned())).filter(|folder| folder.starts_with(root()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = own.chain([PathBuf::from(LLVM)]).chain(std::env::split_paths(&path)).collect();
    let mut shell = work.command("bash");
    shell.args(["-ec", &script.replace("PREFIX", &prefix.display().to_string())]);
    shell.env("PATH", std::env::join_paths(folders).expect("folders without colons"));
    for name in [
        "CC",
        "CXX",
        "CC_LD",
        "CXX_LD",
        "CFLAGS",
        "CXXFLAGS",
        "LDFLAGS",
        "DESTDIR",
        "CMAKE_GENERATOR",
        "CMAKE_TOOLCHAIN_FILE",
        "MAKELEVEL",
    ] {
        shell.env_remove(name);
    }
    // What cargo tells this test about its own package.
    for (name, _) in std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_")) {
        shell.env_remove(name);
    }
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        shell.env("CARGO_HOME", home);
    }
    shell.env("CMAKE_PREFIX_PATH", &prefix).env("PKG_CONFIG_PATH", prefix.join("share/pkgconfig"));
    shell.env("XDG_DATA_DIRS", prefix.join("share")).env("LD_LIBRARY_PATH", "/usr/lib/llvm-22/lib");
    shell.env("OFFLD_CACHE_LOG", work.path().join("log")).env("OMP_TARGET_OFFLOAD", "mandatory");
    Ok(shell)
}

/// How many device links offld has done for the project.
fn device_links(work: &Work) -> usize {
    std::fs::read_to_string(work.path().join("log")).map_or(0, |log| log.lines().count())
}

/// A section of the document: its title, and its blocks, each with what stands after the fence.
type Section = (String, Vec<(String, String)>);

/// The sections that have blocks.
fn sections() -> Result<Vec<Section>, Failed> {
    let text = std::fs::read_to_string(root().join("docs/build-systems.md"))?;
    let all = text.split("\n## ").skip(1).filter_map(|section| section.split_once('\n'));
    let blocks = |text: &str| {
        let inside = text.split("\n```").skip(1).step_by(2).filter_map(|block| block.split_once('\n'));
        inside.map(|(info, text)| (info.to_owned(), text.to_owned())).collect::<Vec<_>>()
    };
    Ok(all.map(|(title, text)| (title.to_owned(), blocks(text))).filter(|(_, blocks)| !blocks.is_empty()).collect())
}

fn build(project: &Project) -> Outcome {
    if let Some(tool) = project.tools.iter().find(|tool| there(tool).is_none()) {
        return missing(tool);
    }
    let sections = sections()?;
    let (_, blocks) =
        sections.iter().find(|(title, _)| title == project.title).ok_or_else(|| format!("no section `{}`", project.title))?;
    let work = self::project(project.folder)?;
    let mut script = String::new();
    for (info, text) in blocks {
        if info == "sh" {
            script.push_str(text);
        } else {
            ensure(is_in(text, work.path())?, || format!("{}: this is in no file of the project:\n{text}", project.title))?;
        }
    }
    let told = run(&mut shell(&work, &script, project.tools)?)?;
    let printed: Vec<&str> = told.lines().filter(|line| *line == "60" || line.contains(" on the ")).collect();
    expect_equal("what the programs print", &project.prints.join("\n"), &printed.join("\n"))?;
    expect_equal("device links", &project.device_links.to_string(), &device_links(&work).to_string())?;
    work.expect_no_temps()?;
    passed()
}

/// Whether a file of the folder has `text`.
fn is_in(text: &str, folder: &Path) -> Result<bool, Failed> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let found =
            if path.is_dir() { is_in(text, &path)? } else { std::fs::read_to_string(&path).is_ok_and(|all| all.contains(text)) };
        if found {
            return Ok(true);
        }
    }
    Ok(false)
}

fn all_of_them() -> Outcome {
    let titles: Vec<String> = sections()?.into_iter().map(|(title, _)| title).collect();
    let projects: Vec<&str> = PROJECTS.iter().map(|(_, project)| project.title).collect();
    expect_equal("sections", &projects.join("\n"), &titles.join("\n"))?;
    passed()
}

/// With a CMake that has no linker types, and by the toolchain file.
fn cmake_as_the_linker() -> Outcome {
    let Some(_) = there("cmake") else { return missing("cmake") };
    for (folder, options) in [
        ("cmake", "-DAS_LINKER=ON -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++"),
        ("cmake-plain", "-DOFFLD_AS_LINKER=ON --toolchain PREFIX/share/cmake/offld/offldToolchain.cmake"),
    ] {
        let work = project(folder)?;
        let told = run(&mut shell(&work, &format!("cmake -B build {options}; cmake --build build --verbose; build/app"), &[])?)?;
        expect_in(&told, &format!("--ld-path={}/bin/ld.offld", prefix()?.display()))?;
        expect_in(&told, PRINTED)?;
        expect_equal(folder, "2", &device_links(&work).to_string())?;
    }
    passed()
}

fn cmake_says_what_is_wrong() -> Outcome {
    let Some(_) = there("cmake") else { return missing("cmake") };
    let work = project("cmake")?;
    let configure = |options: &str, more: &str| {
        work.file("src/more.cmake", more);
        let _ = std::fs::remove_dir_all(work.path().join("build"));
        run_failing(&mut shell(&work, &format!("cmake -B build {options} -DCMAKE_PROJECT_app_INCLUDE=src/more.cmake"), &[])?)
    };
    let clang = "-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++";
    let told = configure("-DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++", "")?;
    expect_in(&told.replace("\n ", ""), "offld_enable(scale): no language has clang as its compiler")?;
    for (more, expected) in [
        ("find_package(offld REQUIRED)\noffld_enable(nothing)\n", "offld_enable(nothing): there is no such target"),
        (
            "find_package(offld REQUIRED)\nadd_library(x SHARED src/sum.c)\noffld_enable(x OPENMP x86)\n",
            "offld_enable(x): not known: OPENMP;x86",
        ),
        ("find_package(offld 99 REQUIRED)\n", "requested version \"99\""),
    ] {
        expect_in(&configure(clang, more)?, expected)?;
    }
    passed()
}

fn pkg_config() -> Outcome {
    let Some(_) = there("pkg-config") else { return missing("pkg-config") };
    let work = Work::new();
    let asked = |words: &str| run(&mut shell(&work, &format!("pkg-config {words} offld"), &[])?);
    expect_equal("version", concat!(env!("CARGO_PKG_VERSION"), "\n"), &asked("--modversion")?)?;
    for (words, name) in
        [("--variable=names", "clang-linker-wrapper"), ("--variable=linker", ""), ("--libs", "clang-linker-wrapper")]
    {
        let told = asked(words)?;
        let path = Path::new(told.trim().trim_start_matches("-B")).join(name);
        let path = if name.is_empty() { PathBuf::from(told.trim()) } else { path };
        ensure(path.exists(), || format!("{words}: {} is not there", path.display()))?;
    }
    expect_in(&asked("--variable=libtool")?, "-XCClinker -B/")?;
    passed()
}
