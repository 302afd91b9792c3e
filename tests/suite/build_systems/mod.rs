//! The projects of tests/build-systems, built by the real build systems as
//! docs/guides/build-systems.md describes, with offld installed by `make install`.

mod recipes;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use libtest_mimic::{Failed, Trial};

use super::support::{
    LLVM, Outcome, Work, ensure, expect_equal, expect_in, made, missing, offld, passed, root, run,
    run_failing, with_llvm,
};

/// A section of the document with its project, required tools and number of device links.
struct Project {
    title: &'static str,
    folder: &'static str,
    tools: &'static [&'static str],
    device_links: usize,
    /// The output of the programs.
    prints: &'static [&'static str],
}

const PRINTED: &str = "10 40 100 on the device";
const ONCE: &[&str] = &[PRINTED];

const PROJECTS: [(&str, Project); 7] = [
    (
        "cmake",
        Project {
            title: "CMake: find_package",
            folder: "cmake",
            tools: &["cmake"],
            device_links: 2,
            prints: &[PRINTED; 3],
        },
    ),
    (
        "cmake_linker_type",
        Project {
            title: "CMake: linker type OFFLD",
            folder: "cmake",
            tools: &[NEW_CMAKE],
            device_links: 2,
            prints: ONCE,
        },
    ),
    (
        "cmake_toolchain",
        Project {
            title: "CMake: toolchain file",
            folder: "cmake-plain",
            tools: &["cmake"],
            device_links: 2,
            prints: ONCE,
        },
    ),
    (
        "meson",
        Project {
            title: "Meson",
            folder: "meson",
            tools: &["meson", "ninja"],
            device_links: 2,
            prints: ONCE,
        },
    ),
    (
        "make",
        Project {
            title: "Make",
            folder: "make",
            tools: &["make", "pkg-config"],
            device_links: 2,
            prints: ONCE,
        },
    ),
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
        Project {
            title: "cargo",
            folder: "cargo",
            tools: &["cargo", "pkg-config"],
            device_links: 2,
            prints: &["60", PRINTED],
        },
    ),
];

/// CMake with linker types. `scripts/setup.sh` installs it in `target/cmake` if the system's CMake
/// is older.
const NEW_CMAKE: &str = "cmake 3.29";

pub(crate) fn trials() -> Vec<Trial> {
    let built = PROJECTS.into_iter().map(|(name, project)| {
        with_llvm(&format!("build_systems::{name}"), move || build(&project))
    });
    let others = [
        with_llvm("build_systems::every_section_has_a_project", all_of_them),
        with_llvm("build_systems::cmake_as_the_linker", cmake_as_the_linker),
        with_llvm(
            "build_systems::cmake_toolchain_with_hip",
            cmake_toolchain_with_hip,
        ),
        with_llvm(
            "build_systems::cmake_toolchain_of_a_clone",
            cmake_toolchain_of_a_clone,
        ),
        with_llvm(
            "build_systems::cmake_toolchain_sets_the_flags_of_each_language",
            cmake_flags,
        ),
        with_llvm(
            "build_systems::cmake_says_what_is_wrong",
            cmake_says_what_is_wrong,
        ),
        with_llvm("build_systems::pkg_config", pkg_config),
        with_llvm("build_systems::relative_prefixes", relative_prefixes),
    ];
    built.chain(others).chain(recipes::trials()).collect()
}

/// The prefix in which offld is installed, once for all tests. If the installation fails, each of
/// these tests fails.
fn prefix() -> Result<PathBuf, Failed> {
    static PREFIX: OnceLock<Result<PathBuf, String>> = OnceLock::new();
    let installed = PREFIX.get_or_init(|| {
        install().map_err(|failed| failed.message().unwrap_or_default().to_owned())
    });
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
    run(make("install", &prefix).env("CARGO_TARGET_DIR", folder.join("built")))?;
    Ok(prefix)
}

/// `make GOAL PREFIX=…`.
fn make(goal: &str, prefix: &Path) -> Command {
    let mut make = Command::new("make");
    make.arg(goal)
        .arg(format!("PREFIX={}", prefix.display()))
        .current_dir(root())
        .env_remove("MAKEFLAGS")
        .env_remove("DESTDIR");
    make
}

/// The path of a tool. For [`NEW_CMAKE`], only a CMake with linker types counts.
fn find_tool(tool: &str) -> Option<PathBuf> {
    if tool != NEW_CMAKE {
        return which::which(tool).ok();
    }
    let ours = root().join("target/cmake/cmake/data/bin/cmake");
    let all = which::which_all("cmake")
        .into_iter()
        .flatten()
        .chain([ours].into_iter().filter(|path| path.is_file()));
    all.into_iter().find(|cmake| {
        let version = Command::new(cmake)
            .arg("--version")
            .output()
            .map(|version| String::from_utf8_lossy(&version.stdout).into_owned());
        let version = version.unwrap_or_default();
        let numbers = version
            .split_whitespace()
            .nth(2)
            .unwrap_or_default()
            .split('.')
            .map(|number| number.parse().unwrap_or(0));
        numbers.take(2).collect::<Vec<u32>>() >= vec![3, 29]
    })
}

/// A directory with a copy of a project and the shared sources.
fn project(folder: &str) -> Result<Work, Failed> {
    let work = Work::new();
    for part in [folder, "src"] {
        let from = root().join("tests/build-systems").join(part);
        let to = if part == "src" {
            work.path().join("src")
        } else {
            work.path().to_owned()
        };
        std::fs::create_dir_all(&to)?;
        run(Command::new("cp").arg("-R").arg(from.join(".")).arg(&to))?;
    }
    Ok(work)
}

/// A shell whose `PATH` starts with `tools` and LLVM 22, and that finds offld in its prefix.
fn shell(work: &Work, script: &str, tools: &[&str]) -> Result<Command, Failed> {
    let prefix = prefix()?;
    let own = tools
        .iter()
        .filter_map(|tool| Some(find_tool(tool)?.parent()?.to_owned()))
        .filter(|folder| folder.starts_with(root()));
    let path = std::env::var_os("PATH").unwrap_or_default();
    let folders: Vec<PathBuf> = own
        .chain([PathBuf::from(LLVM)])
        .chain(std::env::split_paths(&path))
        .collect();
    let mut shell = work.command("bash");
    shell.args([
        "-ec",
        &script.replace("PREFIX", &prefix.display().to_string()),
    ]);
    shell.env(
        "PATH",
        std::env::join_paths(folders).expect("folders without colons"),
    );
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
    // Variables that cargo sets for this test must not reach the cargo of a project.
    for (name, _) in
        std::env::vars_os().filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_"))
    {
        shell.env_remove(name);
    }
    if let Some(home) = std::env::var_os("CARGO_HOME") {
        shell.env("CARGO_HOME", home);
    }
    shell
        .env("CMAKE_PREFIX_PATH", &prefix)
        .env("PKG_CONFIG_PATH", prefix.join("share/pkgconfig"));
    shell
        .env("XDG_DATA_DIRS", prefix.join("share"))
        .env("LD_LIBRARY_PATH", "/usr/lib/llvm-22/lib");
    shell
        .env("OFFLD_CACHE_LOG", work.path().join("log"))
        .env("OMP_TARGET_OFFLOAD", "mandatory");
    Ok(shell)
}

/// The number of device links in the project's build log.
fn device_links(work: &Work) -> usize {
    std::fs::read_to_string(work.path().join("log")).map_or(0, |log| log.lines().count())
}

/// A section of the document: its title, and its code blocks, each with the info string of its
/// fence.
type Section = (String, Vec<(String, String)>);

/// The sections whose commands these tests run, without the blocks of other tests.
fn sections() -> Result<Vec<Section>, Failed> {
    const MARK: &str = "<!-- test: build_systems::";
    let text = std::fs::read_to_string(root().join("docs/guides/build-systems.md"))?;
    let all = text
        .split("\n## ")
        .skip(1)
        .filter(|section| section.contains(MARK))
        .filter_map(|section| section.split_once('\n'));
    let blocks = |text: &str| {
        let parts: Vec<&str> = text.split("\n```").collect();
        let pairs = parts
            .chunks_exact(2)
            .filter_map(|pair| Some((pair[0], pair[1].split_once('\n')?)));
        let is_ours = |before: &str| {
            before
                .lines()
                .last()
                .is_some_and(|line| line.starts_with(MARK))
        };
        let ours = pairs.filter(|(before, (info, _))| *info != "sh" || is_ours(before));
        ours.map(|(_, (info, text))| (info.to_owned(), text.to_owned()))
            .collect::<Vec<_>>()
    };
    Ok(all
        .map(|(title, text)| (title.to_owned(), blocks(text)))
        .collect())
}

fn build(project: &Project) -> Outcome {
    if let Some(tool) = project.tools.iter().find(|tool| find_tool(tool).is_none()) {
        return missing(tool);
    }
    let sections = sections()?;
    let (_, blocks) = sections
        .iter()
        .find(|(title, _)| title == project.title)
        .ok_or_else(|| format!("no section `{}`", project.title))?;
    let work = self::project(project.folder)?;
    let mut script = String::new();
    for (info, text) in blocks {
        if info == "sh" {
            script.push_str(text);
        } else {
            ensure(is_in(text, work.path())?, || {
                format!(
                    "{}: this is in no file of the project:\n{text}",
                    project.title
                )
            })?;
        }
    }
    let output = run(&mut shell(&work, &script, project.tools)?)?;
    let printed: Vec<&str> = output
        .lines()
        .filter(|line| *line == "60" || line.contains(" on the "))
        .collect();
    expect_equal(
        "what the programs print",
        &project.prints.join("\n"),
        &printed.join("\n"),
    )?;
    expect_equal(
        "device links",
        &project.device_links.to_string(),
        &device_links(&work).to_string(),
    )?;
    work.expect_no_temps()?;
    passed()
}

/// Whether any file below the directory contains `text`.
fn is_in(text: &str, folder: &Path) -> Result<bool, Failed> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        let found = if path.is_dir() {
            is_in(text, &path)?
        } else {
            std::fs::read_to_string(&path).is_ok_and(|all| all.contains(text))
        };
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

/// CMake without linker types, and with the toolchain file.
fn cmake_as_the_linker() -> Outcome {
    let Some(_) = find_tool("cmake") else {
        return missing("cmake");
    };
    for (folder, options) in [
        (
            "cmake",
            "-DAS_LINKER=ON -DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++",
        ),
        (
            "cmake-plain",
            "-DOFFLD_AS_LINKER=ON --toolchain PREFIX/share/cmake/offld/offldToolchain.cmake",
        ),
    ] {
        let work = project(folder)?;
        let printed = run(&mut shell(
            &work,
            &format!("cmake -B build {options}; cmake --build build --verbose; build/app"),
            &[],
        )?)?;
        expect_in(
            &printed,
            &format!("--ld-path={}/bin/ld.offld", prefix()?.display()),
        )?;
        expect_in(&printed, PRINTED)?;
        expect_equal(folder, "2", &device_links(&work).to_string())?;
    }
    passed()
}

/// clang links the device code of a HIP translation unit when it compiles that unit.
fn cmake_toolchain_with_hip() -> Outcome {
    let Some(_) = find_tool("cmake") else {
        return missing("cmake");
    };
    let work = Work::new();
    work.file(
        "CMakeLists.txt",
        "cmake_minimum_required(VERSION 3.20)\nproject(kernels CXX)\nadd_library(kernels SHARED scale.cpp)\n\
         target_compile_options(kernels PRIVATE -x hip --offload-new-driver --offload-arch=gfx90a,gfx1100 -nogpuinc -nogpulib)\n",
    );
    work.file(
        "scale.cpp",
        "#define __global__ __attribute__((global))\nstruct dim3 { unsigned x, y, z; };\n\
         extern \"C\" int hipLaunchKernel(const void *, dim3, dim3, void **, unsigned long, void *);\n\
         extern \"C\" int __hipPopCallConfiguration(dim3 *, dim3 *, unsigned long *, void **);\n\
         __global__ void scale(float *data, float by) { data[0] *= by; }\n",
    );
    // Flags from the environment are added to the flags of the toolchain file.
    for (flags, line) in [("", ""), ("CXXFLAGS=-DSCALE=2", "-DSCALE=2")] {
        let script = format!(
            "{flags} cmake --toolchain PREFIX/share/cmake/offld/offldToolchain.cmake -B build; cmake --build build --verbose"
        );
        let _ = std::fs::remove_dir_all(work.path().join("build"));
        let _ = std::fs::remove_file(work.path().join("log"));
        expect_in(&run(&mut shell(&work, &script, &[])?)?, line)?;
        expect_equal("device links", "2", &device_links(&work).to_string())?;
    }
    work.expect_no_temps()?;
    passed()
}

/// The toolchain file of a clone, next to which nothing is installed.
fn cmake_toolchain_of_a_clone() -> Outcome {
    let Some(_) = find_tool("cmake") else {
        return missing("cmake");
    };
    let work = project("cmake-plain")?;
    let file = root().join("share/cmake/offld/offldToolchain.cmake");
    let mut configure = work.command("cmake");
    let error = run_failing(configure.args(["-B", "build", "--toolchain"]).arg(file))?;
    expect_in(&error, "offld is not installed in")?;
    passed()
}

/// The compile flags that the toolchain file sets. As a linker, offld needs none.
fn cmake_flags() -> Outcome {
    let Some(_) = find_tool("cmake") else {
        return missing("cmake");
    };
    let work = Work::new();
    work.file(
        "check.cmake",
        format!(
            "include({}/share/cmake/offld/offldToolchain.cmake)\n\
             foreach(language IN ITEMS C CXX HIP Fortran)\n\
             \x20 message(STATUS \"${{language}}:${{CMAKE_${{language}}_FLAGS_INIT}}\")\n\
             endforeach()\n",
            prefix()?.display()
        ),
    );
    let expected = |flag: &str| {
        ["C", "CXX", "HIP", "Fortran"]
            .map(|language| format!("-- {language}:{flag}\n"))
            .concat()
    };
    let flag = format!(" -B{}/libexec/offld", prefix()?.display());
    for (options, flag) in [("", &*flag), ("-DOFFLD_AS_LINKER=ON", "")] {
        let script = format!("cmake {options} -P check.cmake");
        let shown = run(&mut shell(&work, &script, &[])?)?;
        expect_equal(options, &expected(flag), &shown)?;
    }
    passed()
}

fn cmake_says_what_is_wrong() -> Outcome {
    let Some(_) = find_tool("cmake") else {
        return missing("cmake");
    };
    let work = project("cmake")?;
    let configure = |options: &str, more: &str| {
        work.file("src/more.cmake", more);
        let _ = std::fs::remove_dir_all(work.path().join("build"));
        run_failing(&mut shell(
            &work,
            &format!("cmake -B build {options} -DCMAKE_PROJECT_app_INCLUDE=src/more.cmake"),
            &[],
        )?)
    };
    let clang = "-DCMAKE_C_COMPILER=clang -DCMAKE_CXX_COMPILER=clang++";
    let error = configure("-DCMAKE_C_COMPILER=gcc -DCMAKE_CXX_COMPILER=g++", "")?;
    expect_in(
        &error.replace("\n ", ""),
        "offld_enable(scale): no language has clang as its compiler",
    )?;
    for (more, expected) in [
        (
            "find_package(offld REQUIRED)\noffld_enable(nothing)\n",
            "offld_enable(nothing): nothing is not a target of this project",
        ),
        (
            "find_package(offld REQUIRED)\nadd_library(x SHARED src/sum.c)\noffld_enable(x OPENMP x86)\n",
            "offld_enable(x): unknown arguments: OPENMP;x86",
        ),
        (
            "find_package(offld 99 REQUIRED)\n",
            "requested version \"99\"",
        ),
    ] {
        expect_in(&configure(clang, more)?, expected)?;
    }
    passed()
}

/// The files for CMake, Meson and pkg-config contain the prefix, so it must be absolute.
fn relative_prefixes() -> Outcome {
    let work = Work::new();
    for goal in ["install", "uninstall"] {
        let mut make = make(goal, Path::new("a/relative"));
        make.env("DESTDIR", work.path());
        expect_in(
            &run_failing(&mut make)?,
            "PREFIX is not an absolute path: a/relative",
        )?;
    }
    ensure(work.path().read_dir()?.next().is_none(), || {
        "files were installed".to_owned()
    })?;
    passed()
}

fn pkg_config() -> Outcome {
    let Some(_) = find_tool("pkg-config") else {
        return missing("pkg-config");
    };
    let work = Work::new();
    let pkg_config = |option: &str| {
        run(&mut shell(
            &work,
            &format!("pkg-config {option} offld"),
            &[],
        )?)
    };
    expect_equal(
        "version",
        concat!(env!("CARGO_PKG_VERSION"), "\n"),
        &pkg_config("--modversion")?,
    )?;
    for (option, name) in [
        ("--variable=names", "clang-linker-wrapper"),
        ("--variable=linker", ""),
        ("--libs", "clang-linker-wrapper"),
    ] {
        let value = pkg_config(option)?;
        let path = Path::new(value.trim().trim_start_matches("-B")).join(name);
        let path = if name.is_empty() {
            PathBuf::from(value.trim())
        } else {
            path
        };
        ensure(path.exists(), || {
            format!("{option}: {} is not there", path.display())
        })?;
    }
    let flags = format!("-B{}/libexec/offld", prefix()?.display());
    expect_equal("--cflags", &flags, pkg_config("--cflags")?.trim())?;
    expect_in(&pkg_config("--variable=libtool")?, "-XCClinker -B/")?;
    passed()
}
