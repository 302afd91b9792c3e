//! `offld doctor`: its report about this machine, and about a machine with missing parts.

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::support::{
    LLVM, Outcome, Work, cuda_tools, ensure, expect_equal, expect_in, expect_not_in, llvm, missing,
    offld, output, passed, shown, test, text, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("doctor::of_this_machine", this_machine),
        with_llvm("doctor::without_a_compiler", without_a_compiler),
        with_llvm("doctor::without_the_runtime", without_the_runtime),
        with_llvm("doctor::without_a_c_library", without_a_c_library),
        with_llvm("doctor::another_offld_llvm", another_offld_llvm),
        with_llvm("doctor::caches", caches),
        with_llvm("doctor::devices", devices),
        with_llvm(
            "doctor::an_unusable_key_is_a_reason_of_the_verdict",
            unusable_key,
        ),
        test("releases::doctor::with_nvidias_tools", with_nvidia_tools),
    ]
}

/// The doctor's reports in one environment. The exit status is the same for both.
struct Report {
    json: Value,
    text: String,
    status: i32,
}

impl Report {
    /// The row for a kind of link.
    fn link(&self, kind: &str) -> Result<&Value, Failed> {
        let links = self.json["links"].as_array().into_iter().flatten();
        links
            .into_iter()
            .find(|link| link["kind"] == kind)
            .ok_or_else(|| format!("no kind {kind}: {:#}", self.json).into())
    }

    /// The missing items of a kind, each with the ways to install it, as text.
    fn missing(&self, kind: &str) -> Result<String, Failed> {
        Ok(format!("{:#}", self.link(kind)?["missing"]))
    }

    /// The path of a tool or file.
    fn path(&self, name: &str) -> Option<&str> {
        let all = ["tools", "files"]
            .into_iter()
            .flat_map(|list| self.json[list].as_array().into_iter().flatten());
        all.into_iter().find(|part| part["name"] == name)?["path"].as_str()
    }
}

fn doctor(work: &Work, environment: &[(&str, &str)]) -> Result<Report, Failed> {
    let run_with = |args: &[&str]| {
        let mut doctor = work.command(offld());
        doctor
            .arg("doctor")
            .args(args)
            .env("OFFLD_CLANG", llvm("clang"))
            .env_remove("LIBRARY_PATH")
            .env_remove("VIRTUAL_ENV");
        let ended = output(doctor.envs(environment.iter().copied()))?;
        let described = shown(&doctor, &ended);
        ended
            .status
            .code()
            .map(|status| (status, ended, described.clone()))
            .ok_or_else(|| Failed::from(described))
    };
    let (status, json, described) = run_with(&["--json"])?;
    ensure(json.stderr.is_empty(), || described.clone())?;
    let (again, plain, _) = run_with(&[])?;
    expect_equal(
        "exit status of the text",
        &status.to_string(),
        &again.to_string(),
    )?;
    let json =
        serde_json::from_slice(&json.stdout).map_err(|error| format!("{error}: {described}"))?;
    Ok(Report {
        json,
        text: text(&plain.stdout),
        status,
    })
}

fn this_machine() -> Outcome {
    let work = Work::new();
    let report = doctor(&work, &[])?;
    expect_equal("exit status", "0", &report.status.to_string())?;
    ensure(
        report.json["version"] == 1 && report.json["host_openmp"] == true,
        || report.text.clone(),
    )?;
    ensure(
        report.link("openmp-host")?["missing"] == serde_json::json!([]),
        || report.text.clone(),
    )?;
    let chosen: Vec<&Value> = report.json["compilers"]
        .as_array()
        .into_iter()
        .flatten()
        .filter(|own| own["chosen"] == true)
        .collect();
    ensure(chosen.len() == 1 && chosen[0]["llvm"] == 22, || {
        format!("{chosen:?}")
    })?;
    expect_equal(
        "triple",
        "\"x86_64-pc-linux-gnu\"",
        &report.json["offld_llvm"]["host_triple"].to_string(),
    )?;
    for list in ["tools", "files", "linkers", "compilers"] {
        let paths = report.json[list]
            .as_array()
            .into_iter()
            .flatten()
            .filter_map(|part| part["path"].as_str());
        let gone: Vec<&str> = paths
            .filter(|path| !std::path::Path::new(path).exists())
            .collect();
        ensure(gone.is_empty(), || format!("{list}: not there: {gone:?}"))?;
    }
    expect_in(
        report.path("libomptarget.so").unwrap_or_default(),
        "/llvm-22/",
    )?;
    expect_in(&report.text, "  yes        OpenMP for the CPU\n")?;
    // The report about libompdevice matches the directory in which clang's linker searches.
    let device = std::path::Path::new(LLVM)
        .with_file_name("lib/amdgcn-amd-amdhsa/libompdevice.a")
        .exists();
    ensure(
        report.path("device runtime for amdgcn").is_some() == device,
        || report.text.clone(),
    )?;
    work.expect_no_temps()?;
    passed()
}

fn without_a_compiler() -> Outcome {
    let work = Work::new();
    let report = doctor(&work, &[("OFFLD_CLANG", "/nowhere/clang")])?;
    expect_equal("exit status", "1", &report.status.to_string())?;
    expect_in(
        &report.json["compiler_error"].to_string(),
        "OFFLD_CLANG: cannot find the device compiler `/nowhere/clang`",
    )?;
    let missing = report.missing("openmp-host")?;
    for part in [
        "\"from\": \"debian\"",
        "\"clang-22 lld-22\"",
        "\"OFFLD_CLANG=/path/to/clang\"",
    ] {
        expect_in(&missing, part)?;
    }
    expect_in(&report.text, "  no         OpenMP for the CPU\n")?;
    expect_in(&report.text, "verdict: nothing can be linked\n")?;
    // A clang that does not run.
    let broken = work.tool(
        "bin/clang",
        "#!/bin/sh\n[ \"$1\" = -dumpversion ] && echo 22.1.8 && exit\nexit 3\n",
    );
    let report = doctor(&work, &[("OFFLD_CLANG", &broken.display().to_string())])?;
    expect_equal("exit status", "1", &report.status.to_string())?;
    expect_in(&report.json["compiler_error"].to_string(), "does not run")?;
    expect_in(&report.text, "does not run\n")?;
    passed()
}

/// A stand-in for clang 22 that searches other directories.
fn clang(work: &Work, folders: &str) -> String {
    let script = format!(
        "#!/bin/sh\ncase $1 in -print-search-dirs) printf 'programs: ={LLVM}\\nlibraries: ={folders}\\n'; exit ;; esac\nexec {} \"$@\"\n",
        llvm("clang").display()
    );
    work.tool("own/bin/clang", &script).display().to_string()
}

fn without_the_runtime() -> Outcome {
    let work = Work::new();
    let clang = clang(&work, "/lib/x86_64-linux-gnu");
    let report = doctor(&work, &[("OFFLD_CLANG", &clang)])?;
    expect_equal("exit status", "1", &report.status.to_string())?;
    for kind in ["openmp-host", "openmp-amdgcn", "openmp-nvptx"] {
        let missing = report.missing(kind)?;
        expect_in(&missing, "\"what\": \"libomptarget.so\"")?;
        expect_in(&missing, "\"what\": \"liboffload-22-dev\"")?;
    }
    expect_not_in(&report.missing("hip")?, "libomptarget")?;
    // A directory from the environment contains the library.
    let report = doctor(
        &work,
        &[
            ("OFFLD_CLANG", &clang),
            ("LIBRARY_PATH", "/usr/lib/llvm-22/lib"),
        ],
    )?;
    expect_equal(
        "exit status with LIBRARY_PATH",
        "0",
        &report.status.to_string(),
    )?;
    passed()
}

fn without_a_c_library() -> Outcome {
    let work = Work::new();
    let report = doctor(
        &work,
        &[
            ("OFFLD_CLANG", &clang(&work, "/nowhere")),
            ("LIBRARY_PATH", "/usr/lib/llvm-22/lib"),
        ],
    )?;
    expect_equal("exit status", "1", &report.status.to_string())?;
    for kind in ["openmp-host", "hip", "sycl"] {
        for part in ["\"what\": \"crt1.o\"", "\"what\": \"libc.so\"", "libc6-dev"] {
            expect_in(&report.missing(kind)?, part)?;
        }
    }
    passed()
}

fn another_offld_llvm() -> Outcome {
    let work = Work::new();
    let other = work
        .tool("offld-llvm", "#!/bin/sh\nexit 0\n")
        .display()
        .to_string();
    for (path, described) in [
        (other.as_str(), "is not a working offld-llvm"),
        ("/nowhere", "names `/nowhere`, which is not a file"),
    ] {
        let report = doctor(&work, &[("OFFLD_LLVM", path)])?;
        expect_equal("exit status", "1", &report.status.to_string())?;
        expect_in(&report.json["offld_llvm"]["error"].to_string(), described)?;
        expect_in(
            &report.missing("cuda")?,
            "install offld and offld-llvm from the same build",
        )?;
        ensure(report.link("openmp-host")?["compile"] == true, || {
            report.text.clone()
        })?;
    }
    passed()
}

fn caches() -> Outcome {
    let work = Work::new();
    let report = doctor(&work, &[])?;
    expect_equal(
        "off",
        "\"OFFLD_CACHE=off\"",
        &report.json["cache"]["error"].to_string(),
    )?;
    ensure(report.json["remote"].is_null(), || report.text.clone())?;
    let folder = work.path().join("cache").display().to_string();
    let report = doctor(
        &work,
        &[("OFFLD_CACHE", &folder), ("OFFLD_CACHE_SIZE", "3G")],
    )?;
    ensure(
        report.json["cache"]["writable"] == true && report.json["cache"]["limit"] == 3_u64 << 30,
        || report.text.clone(),
    )?;
    ensure(
        !work.path().join("cache").exists(),
        || "looking has made the cache",
    )?;
    expect_in(&report.text, "  size       0 of 3.0G, 0 images\n")?;
    let report = doctor(&work, &[("OFFLD_CACHE", "/proc/1/nothing")])?;
    expect_in(
        &report.json["cache"]["error"].to_string(),
        "/proc/1/nothing",
    )?;
    if !cfg!(feature = "remote-cache") {
        let report = doctor(&work, &[("OFFLD_CACHE_REMOTE", "redis://127.0.0.1:1")])?;
        expect_in(
            &report.json["remote"]["problems"].to_string(),
            "was built without the feature `remote-cache`",
        )?;
        return passed();
    }
    std::fs::create_dir(work.path().join("shared"))?;
    let shared = format!("file://{}", work.path().join("shared").display());
    let report = doctor(
        &work,
        &[
            ("OFFLD_CACHE_REMOTE", &shared),
            ("OFFLD_CACHE_REMOTE_READONLY", "1"),
        ],
    )?;
    expect_in(
        &report.json["remote"]["problems"].to_string(),
        "not used, because the local cache is off",
    )?;
    ensure(
        report.json["remote"]["answers"] == true && report.json["remote"]["read_only"] == true,
        || report.text.clone(),
    )?;
    let report = doctor(
        &work,
        &[
            ("OFFLD_CACHE_REMOTE", "redis://name:word@127.0.0.1:1"),
            ("OFFLD_CACHE_REMOTE_TIMEOUT", "1"),
        ],
    )?;
    ensure(report.json["remote"]["answers"] == false, || {
        report.text.clone()
    })?;
    expect_in(
        &report.json["remote"]["problems"].to_string(),
        "is no longer used",
    )?;
    expect_not_in(&report.text, "word")?;
    expect_equal("a link does without it", "0", &report.status.to_string())?;
    passed()
}

fn devices() -> Outcome {
    let work = Work::new();
    work.file(
        "machine/sys/class/kfd/kfd/topology/nodes/1/properties",
        "gfx_target_version 90010\n",
    );
    let root = work.path().join("machine").display().to_string();
    let report = doctor(&work, &[("OFFLD_NATIVE_ROOT", &root)])?;
    expect_equal(
        "amd",
        "[\"gfx90a\"]",
        &report.json["devices"]["amd"].to_string(),
    )?;
    work.file("machine/proc/driver/nvidia/gpus/0/information", "");
    let report = doctor(&work, &[("OFFLD_NATIVE_ROOT", &root)])?;
    expect_in(
        &report.json["devices"]["error"].to_string(),
        "the NVIDIA GPUs (1)",
    )?;
    expect_equal("exit status", "0", &report.status.to_string())?;
    passed()
}

/// A key that no link accepts is a reason of the verdict, not only a line about the cache.
fn unusable_key() -> Outcome {
    let work = Work::new();
    let report = doctor(
        &work,
        &[
            ("OFFLD_CACHE", "cache"),
            ("OFFLD_CACHE_KEY", "/nonexistent"),
        ],
    )?;
    expect_equal("exit status", "1", &report.status.to_string())?;
    expect_equal(
        "host_openmp",
        "false",
        &report.json["host_openmp"].to_string(),
    )?;
    expect_in(
        &report.missing("openmp-host")?,
        "OFFLD_CACHE_KEY: cannot use the key `/nonexistent`",
    )?;
    passed()
}

fn with_nvidia_tools() -> Outcome {
    let Some(cuda) = cuda_tools(22) else {
        return missing("NVIDIA's tools (make setup-cuda)");
    };
    let work = Work::new();
    let bin = cuda.join("bin");
    let path = std::env::join_paths([bin.clone()].into_iter().chain(std::env::split_paths(
        &std::env::var_os("PATH").unwrap_or_default(),
    )));
    let path = path.map_err(|error| error.to_string())?;
    let report = doctor(&work, &[("PATH", &path.to_string_lossy())])?;
    for tool in ["ptxas", "nvlink", "fatbinary"] {
        expect_equal(
            tool,
            &bin.join(tool).display().to_string(),
            report.path(tool).unwrap_or_default(),
        )?;
        expect_not_in(&report.missing("cuda")?, &format!("\"what\": \"{tool}\""))?;
    }
    passed()
}
