//! `make` targets: the packages and tools that they install or ask for, and the files that
//! `make uninstall` removes.

use std::path::Path;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, missing, offld, passed, root,
    run, run_failing, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test(
            "setup::the_demo_asks_for_what_it_needs_and_not_again",
            demo_packages,
        ),
        test(
            "setup::the_demo_takes_the_llvm_that_is_here",
            demo_with_llvm_19,
        ),
        test(
            "setup::a_build_without_its_llvm_says_what_to_install",
            build_without_llvm,
        ),
        test(
            "setup::the_demo_stops_where_it_may_install_nothing",
            demo_without_root,
        ),
        test(
            "setup::the_docs_name_the_packages_of_the_build",
            documented_packages,
        ),
        test("setup::an_old_rust_is_told_which_one_is_needed", old_rust),
        with_llvm(
            "setup::tests_pass_where_rocm_and_cuda_are_installed",
            || beside_gpu_toolkits(&SENSITIVE),
        ),
        test("releases::setup::and_those_with_nvidias_tools", || {
            beside_gpu_toolkits(&SENSITIVE_WITH_CUDA)
        }),
        test(
            "setup::make_uninstall_takes_away_what_was_installed",
            uninstall,
        ),
    ]
}

/// Sets up CUDA and ROCm in the script's mount namespace, in `PATH` and in the loader's cache, and
/// runs a test there.
const WITH_TOOLKITS: &str = r#"
mount -t tmpfs none /usr/local && mount -t tmpfs none /opt
mkdir -p /usr/local/cuda/bin /usr/local/cuda/lib64 /opt/rocm/bin /opt/rocm/lib
for tool in /usr/local/cuda/bin/{nvcc,ptxas,nvlink,fatbinary,cuobjdump} /opt/rocm/bin/hipcc; do
    printf '#!/bin/sh\nexit 1\n' > "$tool" && chmod +x "$tool"
done
cc -shared -fPIC -Wl,-soname,libcudart.so.13 "$1/cuda.c" -o /usr/local/cuda/lib64/libcudart.so.13
cc -shared -fPIC -Wl,-soname,libamdhip64.so.6 "$1/hip.c" -o /opt/rocm/lib/libamdhip64.so.6
ln -s libcudart.so.13 /usr/local/cuda/lib64/libcudart.so
ln -s libamdhip64.so.6 /opt/rocm/lib/libamdhip64.so
ldconfig -C cache -f <(printf '%s\n' /usr/local/cuda/lib64 /opt/rocm/lib 'include /etc/ld.so.conf')
mount --bind cache /etc/ld.so.cache
PATH=$PATH:/usr/local/cuda/bin:/opt/rocm/bin "$2" --exact "$3"
"#;

/// Tests that once failed on machines with CUDA or ROCm.
const SENSITIVE: [&str; 3] = [
    "cuda::llvm_15_has_nvlink_run_for_it",
    "faults::f19_kind_3_on_an_amd_gpu_is_hip",
    "faults::f28_a_fat_binary_of_cuda",
];
const SENSITIVE_WITH_CUDA: [&str; 1] = ["releases::inspect::program::of_four_kinds"];

/// The arguments with which `unshare` runs a command that may mount, or `None` if that is not
/// permitted.
pub(crate) fn mount_namespace(work: &Work) -> Option<&'static [&'static str]> {
    // Root needs no user namespace, which some systems and containers forbid.
    const BY_ROOT: &[&str] = &["--mount"];
    const BY_ANYONE: &[&str] = &["--user", "--map-root-user", "--mount"];
    let is_permitted = |namespace: &&&[&str]| {
        let mut unshare = work.command("unshare");
        unshare
            .args(**namespace)
            .args(["mount", "-t", "tmpfs", "none", "/opt"])
            .output()
            .is_ok_and(|ended| ended.status.success())
    };
    [BY_ROOT, BY_ANYONE].iter().find(is_permitted).copied()
}

fn beside_gpu_toolkits(names: &[&str]) -> Outcome {
    let suite = std::env::current_exe()?;
    if suite.starts_with("/usr/local") || suite.starts_with("/opt") {
        return missing("a build outside /usr/local and /opt, which this test hides");
    }
    let work = Work::new();
    let Some(namespace) = mount_namespace(&work) else {
        return missing("mount namespaces (unshare --mount)");
    };
    for name in names {
        let mut inside = work.command("unshare");
        inside
            .args(namespace)
            .args(["bash", "-euc", WITH_TOOLKITS, "bash"])
            .arg(root().join("runtime-stubs"))
            .arg(&suite)
            .arg(name);
        let stdout = run(inside.env_remove("TMPDIR"))?;
        ensure(!stdout.contains("running 0 tests"), || {
            format!("no test is called {name}")
        })?;
    }
    passed()
}

/// The packages in the list `name` in scripts/setup.sh.
fn packages(name: &str) -> Result<Vec<String>, Failed> {
    let script = std::fs::read_to_string(root().join("scripts/setup.sh"))?;
    let list = script
        .split(&format!("\n{name}=(\n"))
        .nth(1)
        .and_then(|rest| rest.split("\n)").next());
    let lines = list
        .ok_or_else(|| format!("no list `{name}` in setup.sh"))?
        .lines();
    let lines = lines.map(str::trim).filter(|line| !line.starts_with('#'));
    Ok(lines
        .flat_map(str::split_whitespace)
        .map(str::to_owned)
        .collect())
}

/// The `PATH` of a system without installed packages. Its apt records the requested packages and
/// installs them.
fn bare_system(work: &Work) -> String {
    work.tool(
        "bin/dpkg-query",
        "#!/bin/sh\nfor package; do :; done\ngrep -qx \"$package\" \"${0%/bin/*}/installed\" && printf installed\n",
    );
    work.tool("bin/apt-cache", "#!/bin/sh\necho '  Candidate: 1.0'\n");
    work.tool(
        "bin/apt-get",
        "#!/bin/sh\necho \"$@\" >> \"${0%/bin/*}/asked\"\nfor word; do case $word in -*|*=*|install|update) ;; *) echo \"$word\" >> \"${0%/bin/*}/installed\" ;; esac; done\n",
    );
    work.tool(
        "bin/sudo",
        "#!/bin/sh\n[ \"$1\" = -n ] && shift\nexec \"$@\"\n",
    );
    work.tool("bin/cargo", "#!/bin/sh\necho 'cargo 1.95.0'\n");
    work.file("installed", "");
    format!(
        "{}:{}",
        work.path().join("bin").display(),
        std::env::var("PATH").unwrap_or_default()
    )
}

fn demo_packages() -> Outcome {
    let work = Work::new();
    let path = bare_system(&work);
    let setup = || {
        let mut setup = work.command(root().join("scripts/setup.sh"));
        setup
            .args(["--demo", "stamp"])
            .env("PATH", &path)
            .env_remove("LLVM");
        setup
    };
    run(&mut setup())?;
    ensure(
        work.path().join("stamp").is_file(),
        || "no stamp where everything is there",
    )?;
    let installed = std::fs::read_to_string(work.path().join("installed"))?;
    expect_equal(
        "what the demo installs",
        &packages("build")?.join("\n"),
        installed.trim(),
    )?;
    for of_tests in packages("tests")?
        .iter()
        .map(String::as_str)
        .chain(["redis-server", "nginx-light"])
    {
        expect_not_in(&format!("\n{installed}"), &format!("\n{of_tests}\n"))?;
    }
    std::fs::remove_file(work.path().join("asked"))?;
    run(&mut setup())?;
    ensure(
        !work.path().join("asked").exists(),
        || "apt was asked again",
    )?;
    // The demo needs only the packages for the demo, not those for tests.
    let shown = run(Command::new("make")
        .args(["-n", "demo", "SETUP_DEMO=/no/stamp", "SETUP=/no/other"])
        .current_dir(root()))?;
    expect_in(&shown, "setup.sh --demo")?;
    expect_not_in(&shown, "/no/other")?;
    passed()
}

/// A machine with LLVM 19 and without LLVM 22. The packages, build and example use LLVM 19.
fn demo_with_llvm_19() -> Outcome {
    let work = Work::new();
    let path = bare_system(&work);
    let chosen = |folders: &[&str]| {
        let folder_of_all = work.path().join(folders.join("-"));
        for folder in folders {
            work.tool(
                &format!("{}/{folder}/bin/llvm-config", folders.join("-")),
                "#!/bin/sh\n",
            );
        }
        std::fs::create_dir_all(&folder_of_all)?;
        let messages = run(work
            .command(script("llvm.sh"))
            .env("LLVM_ROOT", &folder_of_all))?;
        let mut make = Command::new("make");
        // In a clone where the demo has already run, the setup's stamp file would skip the setup.
        make.args(["-n", "demo", "build", "SETUP_DEMO=/no/stamp"])
            .current_dir(root());
        make.env("LLVM_ROOT", &folder_of_all)
            .env_remove("LLVM")
            .env_remove("MAKEFLAGS");
        Ok::<_, Failed>((messages.trim().to_owned(), run(&mut make)?))
    };
    for (folders, release) in [
        (&[][..], "22"),
        (&["llvm-14"], "22"),
        (&["llvm-19"], "19"),
        (&["llvm-19", "llvm-22"], "22"),
        (&["llvm-22"], "22"),
    ] {
        let (messages, shown) = chosen(folders)?;
        expect_equal(
            &format!("the release on a machine with {folders:?}"),
            release,
            &messages,
        )?;
        expect_in(&shown, &format!("LLVM={release} scripts/setup.sh --demo"))?;
        expect_in(&shown, &format!("clang++-{release} "))?;
        let build =
            format!("cargo build --profile demo --no-default-features --features llvm{release}\n");
        expect_in(&shown, &build)?;
        let features = "cargo build --release --no-default-features --features llvm19 --features remote-cache\n";
        expect_equal(
            "features",
            &(release == "19").to_string(),
            &shown.contains(features).to_string(),
        )?;
    }
    let mut setup = work.command(script("setup.sh"));
    run(setup
        .args(["--demo", "stamp"])
        .env("PATH", &path)
        .env("LLVM", "19"))?;
    let installed = std::fs::read_to_string(work.path().join("installed"))?;
    let wanted: Vec<String> = packages("build")?
        .iter()
        .map(|name| name.replace("-22", "-19"))
        .collect();
    let wanted: Vec<String> = wanted
        .into_iter()
        .filter(|name| name != "liboffload-19-dev")
        .collect();
    expect_equal(
        "what the demo installs",
        &wanted.join("\n"),
        installed.trim(),
    )?;
    passed()
}

fn script(name: &str) -> std::path::PathBuf {
    root().join("scripts").join(name)
}

/// Runs this build's build script with other features and other directories.
fn build_without_llvm() -> Outcome {
    let build = offld().with_file_name("build");
    let scripts = std::fs::read_dir(&build)?.filter_map(|entry| Some(entry.ok()?.path()));
    let scripts = scripts.filter(|path| {
        path.file_name()
            .is_some_and(|name| name.to_string_lossy().starts_with("offld-"))
    });
    let scripts = scripts
        .map(|folder| folder.join("build-script-build"))
        .filter(|script| script.is_file());
    let newest = scripts.max_by_key(|script| {
        std::fs::metadata(script)
            .and_then(|data| data.modified())
            .ok()
    });
    let Some(built) = newest else {
        return Err(format!("no build script in {}", build.display()).into());
    };
    let work = Work::new();
    work.tool("old/bin/llvm-config", "#!/bin/sh\necho 14.0.6\n");
    work.tool("good/bin/llvm-config-19", "#!/bin/sh\necho 19.1.7\n");
    let told = |features: &[&str], prefixes: &[(&str, &str)]| {
        let mut command = work.command(&built);
        command
            .env("CARGO_MANIFEST_DIR", root())
            .env("HOST", "x")
            .env("TARGET", "y")
            .env("PATH", "/nowhere");
        for release in ["191", "201", "211", "221"] {
            command.env_remove(format!("LLVM_SYS_{release}_PREFIX"));
        }
        for (name, _) in std::env::vars_os()
            .filter(|(name, _)| name.to_string_lossy().starts_with("CARGO_FEATURE_"))
        {
            command.env_remove(name);
        }
        command.envs(
            features
                .iter()
                .map(|feature| (format!("CARGO_FEATURE_{feature}"), "1")),
        );
        run(command.envs(prefixes.iter().map(|(release, folder)| {
            (
                format!("LLVM_SYS_{release}_PREFIX"),
                work.path().join(folder),
            )
        })))
    };
    let both = ["WITH_LLVM", "LLVM22", "LLVM19"];
    expect_in(
        &told(&both, &[])?,
        "cargo::error=one feature chooses the LLVM of offld-llvm, and `llvm22` and `llvm19` of them is on",
    )?;
    expect_in(&told(&["WITH_LLVM"], &[])?, "and none of them is on")?;
    for folder in ["old", "none"] {
        let messages = told(&["WITH_LLVM", "LLVM22"], &[("221", folder)])?;
        let errors: Vec<&str> = messages
            .lines()
            .filter(|line| line.starts_with("cargo::error="))
            .collect();
        ensure(errors.len() == 1, || messages.clone())?;
        for part in [
            "LLVM 22 is not here (no llvm-config of it in ",
            &format!("/{folder}/bin): install llvm-22-dev, libpolly-22-dev,"),
            "LLVM_SYS_221_PREFIX",
            "`--no-default-features --features llvm19,remote-cache`",
            "`--no-default-features --features remote-cache`",
        ] {
            expect_in(errors[0], part)?;
        }
    }
    expect_in(
        &told(&["WITH_LLVM", "LLVM19"], &[])?,
        "LLVM 19 is not here (no llvm-config of it in PATH): install llvm-19-dev,",
    )?;
    for (features, prefixes) in [
        (&["WITH_LLVM", "LLVM19"][..], &[("191", "good")][..]),
        (&["REMOTE_CACHE"], &[]),
    ] {
        let messages = told(features, prefixes)?;
        expect_not_in(&messages, "cargo::error")?;
        expect_in(&messages, "cargo::rustc-env=OFFLD_SOURCES=")?;
    }
    passed()
}

/// A system without installed packages whose user is not root. `make` prints the required steps and
/// builds nothing.
fn demo_without_root() -> Outcome {
    let work = Work::new();
    work.tool("bin/dpkg-query", "#!/bin/sh\nexit 1\n");
    work.tool("bin/id", "#!/bin/sh\necho 1000\n");
    work.tool("bin/sudo", "#!/bin/sh\nexit 1\n");
    work.tool("bin/cargo", "#!/bin/sh\necho 'cargo 1.95.0'\n");
    work.tool(
        "bin/apt-get",
        "#!/bin/sh\necho \"$@\" >> \"${0%/bin/*}/asked\"\n",
    );
    // Package sources that have everything except LLVM 22, and package sources without any lists
    // yet.
    let known = "#!/bin/sh\ncase $2 in *-22*) echo '  Candidate: (none)' ;; *) echo '  Candidate: 1.0'; echo ' 500 http://debian.example' ;; esac\n";
    let unknown = "#!/bin/sh\n[ $2 = dpkg ] && echo '  Candidate: 1.0'\nexit 0\n";
    let path = format!(
        "{}:{}",
        work.path().join("bin").display(),
        std::env::var("PATH").unwrap_or_default()
    );
    let wanted = format!(
        "apt-get install -y --no-install-recommends {}",
        packages("build")?.join(" ")
    );
    for (codename, lists, source) in [
        ("bookworm", known, "debian-security bookworm-security main"),
        ("trixie", known, "debian.org/debian trixie main"),
        (
            "noble",
            known,
            "apt.llvm.org/noble/ llvm-toolchain-noble-22 main",
        ),
        ("bookworm", unknown, "apt-get update &&"),
    ] {
        work.tool("bin/apt-cache", lists);
        work.file("os-release", format!("VERSION_CODENAME={codename}\n"));
        let mut setup = work.command(root().join("scripts/setup.sh"));
        setup
            .args(["--demo", "stamp"])
            .env("PATH", &path)
            .env("OS_RELEASE", work.path().join("os-release"));
        setup.env_remove("REQUIRE_TOOLS");
        let told = run_failing(&mut setup)?;
        for part in [&wanted, source, "nothing was built"] {
            expect_in(&told, part)?;
        }
        ensure(
            told.contains("no apt source has") == (lists == known),
            || format!("sources of which nothing is known: {told}"),
        )?;
    }
    ensure(
        !work.path().join("asked").exists(),
        || "apt was asked by a user who may not",
    )?;
    ensure(
        !work.path().join("stamp").exists(),
        || "a stamp, though everything is missing",
    )?;
    passed()
}

fn documented_packages() -> Outcome {
    let page = std::fs::read_to_string(root().join("docs/guides/install.md"))?;
    let named: Vec<&str> = page
        .lines()
        .filter(|line| line.trim_start().starts_with("apt install"))
        .collect();
    let named: Vec<&str> = named
        .iter()
        .flat_map(|line| {
            line.split('#')
                .next()
                .unwrap_or_default()
                .split_whitespace()
        })
        .collect();
    for package in packages("build")? {
        ensure(named.contains(&package.as_str()), || {
            format!(
                "{package} is not in the `apt install` lines of docs/guides/install.md: {named:?}"
            )
        })?;
    }
    passed()
}

fn old_rust() -> Outcome {
    let work = Work::new();
    let manifest = std::fs::read_to_string(root().join("Cargo.toml"))?;
    let wanted = manifest
        .lines()
        .find_map(|line| line.strip_prefix("rust-version = \"")?.strip_suffix('"'))
        .unwrap_or("none");
    for (version, is_old) in [
        ("1.85.1", true),
        ("1.89.0", true),
        ("1.90.0", false),
        ("1.100.0", false),
        ("2.0.0", false),
    ] {
        let cargo = work.tool(
            "cargo",
            &format!("#!/bin/sh\n[ \"$1\" = --version ] && {{ echo 'cargo {version} (abc 2025-01-01)'; exit; }}\nexit 0\n"),
        );
        let mut build = Command::new("make");
        build
            .arg("build")
            .arg(format!("CARGO={}", cargo.display()))
            .current_dir(root())
            .env_remove("MAKEFLAGS");
        if is_old {
            let stderr = run_failing(&mut build)?;
            let found = format!(
                "offld needs Rust {wanted} or later, but {} is Rust {}.",
                cargo.display(),
                &version[..4]
            );
            expect_in(&stderr, &found)?;
        } else {
            run(&mut build)?;
        }
    }
    for file in ["README.md", "Makefile"] {
        expect_in(
            &std::fs::read_to_string(root().join(file))?,
            &format!("Rust {wanted}"),
        )?;
    }
    passed()
}

fn files(folder: &Path) -> Result<String, Failed> {
    run(Command::new("find")
        .arg(".")
        .args(["-not", "-type", "d"])
        .current_dir(folder))
}

fn uninstall() -> Outcome {
    let work = Work::new();
    // The built files that `make install` installs.
    let offld = Path::new(env!("CARGO_BIN_EXE_offld"));
    work.file("built/release/none", "");
    std::fs::hard_link(offld, work.path().join("built/release/offld"))
        .or_else(|_| std::fs::copy(offld, work.path().join("built/release/offld")).map(drop))?;
    work.tool("built/release/offld-llvm", "#!/bin/sh\n");
    for other in ["bin/ld.lld", "share/man/man1/ls.1", "libexec/other/tool"] {
        work.file(&format!("to here/usr/{other}"), "");
    }
    run(Command::new("chmod")
        .args(["-R", "a+rX"])
        .arg(work.path().join("to here")))?;
    let before = files(&work.path().join("to here"))?;
    // Root installs for all users, even if the umask makes new files private.
    let make = |what: &str| {
        let mut make = Command::new("sh");
        make.args(["-c", "umask 077; exec make \"$@\"", "sh"])
            .current_dir(root());
        make.arg(what)
            .arg("PREFIX=/usr")
            .arg(format!("DESTDIR={}", work.path().join("to here").display()));
        make.env("CARGO_TARGET_DIR", work.path().join("built"))
            .env_remove("MAKEFLAGS");
        make
    };
    // `make install` prints a summary, but neither its commands nor the links.
    let shown = run(&mut make("install"))?;
    expect_in(&shown, "is installed in")?;
    expect_not_in(&shown, "install -")?;
    expect_not_in(&shown, "clang-offload-bundler")?;
    let installed = files(&work.path().join("to here"))?;
    for file in [
        "./usr/bin/offld\n",
        "./usr/share/man/man1/ld.offld.1\n",
        "./usr/libexec/offld/clang-linker-wrapper\n",
        "./usr/share/cmake/offld/offldConfig.cmake\n",
        "./usr/share/doc/offld/LICENSE\n",
        "./usr/share/doc/offld/NOTICE\n",
    ] {
        expect_in(&installed, file)?;
    }
    let closed = run(Command::new("find")
        .arg(work.path().join("to here/usr"))
        .args(["!", "-type", "l", "!", "-perm", "-044"]))?;
    expect_equal("files that other users cannot read", "", &closed)?;
    run(&mut make("uninstall"))?;
    let sorted = |text: &str| {
        let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
        lines.sort();
        lines.join("\n")
    };
    expect_equal(
        "what is left",
        &sorted(&before),
        &sorted(&files(&work.path().join("to here"))?),
    )?;
    passed()
}
