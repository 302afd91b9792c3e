//! `offld doctor`: what it says of this machine, and of one where something is missing.

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::support::{
    LLVM, Outcome, Work, cuda_tools, ensure, expect_equal, expect_in, expect_not_in, llvm, missing, offld, output, passed, shown,
    test, text, with_llvm,
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
        test("releases::doctor::with_nvidias_tools", with_nvidias_tools),
    ]
}

/// What the doctor says in an environment: JSON, text and exit status, which is the same for both.
struct Told {
    json: Value,
    text: String,
    status: i32,
}

impl Told {
    /// The row of a kind of link.
    fn link(&self, kind: &str) -> Result<&Value, Failed> {
        let links = self.json["links"].as_array().into_iter().flatten();
        links.into_iter().find(|link| link["kind"] == kind).ok_or_else(|| format!("no kind {kind}: {:#}", self.json).into())
    }

    /// What is missing for a kind, each with its ways to get it, as lines.
    fn missing(&self, kind: &str) -> Result<String, Failed> {
        Ok(format!("{:#}", self.link(kind)?["missing"]))
    }

    /// Where a tool or file is.
    fn path(&self, name: &str) -> Option<&str> {
        let all = ["tools", "files"].into_iter().flat_map(|list| self.json[list].as_array().into_iter().flatten());
        all.into_iter().find(|part| part["name"] == name)?["path"].as_str()
    }
}

fn doctor(work: &Work, environment: &[(&str, &str)]) -> Result<Told, Failed> {
    let asked = |words: &[&str]| {
        let mut doctor = work.command(offld());
        doctor.arg("doctor").args(words).env("OFFLD_CLANG", llvm("clang")).env_remove("LIBRARY_PATH").env_remove("VIRTUAL_ENV");
        let ended = output(doctor.envs(environment.iter().copied()))?;
        let said = shown(&doctor, &ended);
        ended.status.code().map(|status| (status, ended, said.clone())).ok_or_else(|| Failed::from(said))
    };
    let (status, json, said) = asked(&["--json"])?;
    ensure(json.stderr.is_empty(), || said.clone())?;
    let (again, plain, _) = asked(&[])?;
    expect_equal("exit status of the text", &status.to_string(), &again.to_string())?;
    let json = serde_json::from_slice(&json.stdout).map_err(|error| format!("{error}: {said}"))?;
    Ok(Told { json, text: text(&plain.stdout), status })
}

fn this_machine() -> Outcome {
    let work = Work::new();
    let told = doctor(&work, &[])?;
    expect_equal("exit status", "0", &told.status.to_string())?;
    ensure(told.json["version"] == 1 && told.json["host_openmp"] == true, || told.text.clone())?;
    ensure(told.link("openmp-host")?["missing"] == serde_json::json!([]), || told.text.clone())?;
    let chosen: Vec<&Value> =
        told.json["compilers"].as_array().into_iter().flatten().filter(|own| own["chosen"] == true).collect();
    ensure(chosen.len() == 1 && chosen[0]["llvm"] == 22, || format!("{chosen:?}"))?;
    expect_equal("triple", "\"x86_64-pc-linux-gnu\"", &told.json["offld_llvm"]["host_triple"].to_string())?;
    for list in ["tools", "files", "linkers", "compilers"] {
        let paths = told.json[list].as_array().into_iter().flatten().filter_map(|part| part["path"].as_str());
        let gone: Vec<&str> = paths.filter(|path| !std::path::Path::new(path).exists()).collect();
        ensure(gone.is_empty(), || format!("{list}: not there: {gone:?}"))?;
    }
    expect_in(told.path("libomptarget.so").unwrap_or_default(), "/llvm-22/")?;
    expect_in(&told.text, "  yes        OpenMP, the processor as device\n")?;
    // What is said of libompdevice is so: the folder where clang has its linker look has none.
    let device = std::path::Path::new(LLVM).with_file_name("lib/amdgcn-amd-amdhsa/libompdevice.a").exists();
    ensure(told.path("device runtime for amdgcn").is_some() == device, || told.text.clone())?;
    work.expect_no_temps()?;
    passed()
}

fn without_a_compiler() -> Outcome {
    let work = Work::new();
    let told = doctor(&work, &[("OFFLD_CLANG", "/nowhere/clang")])?;
    expect_equal("exit status", "1", &told.status.to_string())?;
    expect_in(&told.json["compiler_error"].to_string(), "OFFLD_CLANG: cannot find the device compiler `/nowhere/clang`")?;
    let missing = told.missing("openmp-host")?;
    for part in ["\"from\": \"debian\"", "\"clang-22 lld-22\"", "\"OFFLD_CLANG=/path/to/clang\""] {
        expect_in(&missing, part)?;
    }
    expect_in(&told.text, "  no         OpenMP, the processor as device\n")?;
    expect_in(&told.text, "verdict: nothing can be linked\n")?;
    // A program that is called clang and does not run.
    let broken = work.tool("bin/clang", "#!/bin/sh\n[ \"$1\" = -dumpversion ] && echo 22.1.8 && exit\nexit 3\n");
    let told = doctor(&work, &[("OFFLD_CLANG", &broken.display().to_string())])?;
    expect_equal("exit status", "1", &told.status.to_string())?;
    expect_in(&told.json["compiler_error"].to_string(), "does not run")?;
    expect_in(&told.text, "does not run\n")?;
    passed()
}

/// A clang that answers as LLVM 22's, but for where it searches.
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
    let told = doctor(&work, &[("OFFLD_CLANG", &clang)])?;
    expect_equal("exit status", "1", &told.status.to_string())?;
    for kind in ["openmp-host", "openmp-amdgcn", "openmp-nvptx"] {
        let missing = told.missing(kind)?;
        expect_in(&missing, "\"what\": \"libomptarget.so\"")?;
        expect_in(&missing, "\"what\": \"liboffload-22-dev\"")?;
    }
    expect_not_in(&told.missing("hip")?, "libomptarget")?;
    // A folder that the environment names has it.
    let told = doctor(&work, &[("OFFLD_CLANG", &clang), ("LIBRARY_PATH", "/usr/lib/llvm-22/lib")])?;
    expect_equal("exit status with LIBRARY_PATH", "0", &told.status.to_string())?;
    passed()
}

fn without_a_c_library() -> Outcome {
    let work = Work::new();
    let told = doctor(&work, &[("OFFLD_CLANG", &clang(&work, "/nowhere")), ("LIBRARY_PATH", "/usr/lib/llvm-22/lib")])?;
    expect_equal("exit status", "1", &told.status.to_string())?;
    for kind in ["openmp-host", "hip", "sycl"] {
        for part in ["\"what\": \"crt1.o\"", "\"what\": \"libc.so\"", "libc6-dev"] {
            expect_in(&told.missing(kind)?, part)?;
        }
    }
    passed()
}

fn another_offld_llvm() -> Outcome {
    let work = Work::new();
    let other = work.tool("offld-llvm", "#!/bin/sh\nexit 0\n").display().to_string();
    for (path, said) in
        [(other.as_str(), "is no offld-llvm that runs here"), ("/nowhere", "names `/nowhere`, which is not a file")]
    {
        let told = doctor(&work, &[("OFFLD_LLVM", path)])?;
        expect_equal("exit status", "1", &told.status.to_string())?;
        expect_in(&told.json["offld_llvm"]["error"].to_string(), said)?;
        expect_in(&told.missing("cuda")?, "install offld and offld-llvm of one build")?;
        ensure(told.link("openmp-host")?["compile"] == true, || told.text.clone())?;
    }
    passed()
}

fn caches() -> Outcome {
    let work = Work::new();
    let told = doctor(&work, &[])?;
    expect_equal("off", "\"OFFLD_CACHE=off\"", &told.json["cache"]["error"].to_string())?;
    ensure(told.json["remote"].is_null(), || told.text.clone())?;
    let folder = work.path().join("cache").display().to_string();
    let told = doctor(&work, &[("OFFLD_CACHE", &folder), ("OFFLD_CACHE_SIZE", "3G")])?;
    ensure(told.json["cache"]["writable"] == true && told.json["cache"]["limit"] == 3_u64 << 30, || told.text.clone())?;
    ensure(!work.path().join("cache").exists(), || "looking has made the cache")?;
    expect_in(&told.text, "  size    0 of 3.0G, 0 images\n")?;
    let told = doctor(&work, &[("OFFLD_CACHE", "/proc/1/nothing")])?;
    expect_in(&told.json["cache"]["error"].to_string(), "/proc/1/nothing")?;
    if !cfg!(feature = "remote-cache") {
        let told = doctor(&work, &[("OFFLD_CACHE_REMOTE", "redis://127.0.0.1:1")])?;
        expect_in(&told.json["remote"]["problems"].to_string(), "was built without the feature `remote-cache`")?;
        return passed();
    }
    std::fs::create_dir(work.path().join("shared"))?;
    let shared = format!("file://{}", work.path().join("shared").display());
    let told = doctor(&work, &[("OFFLD_CACHE_REMOTE", &shared), ("OFFLD_CACHE_REMOTE_READONLY", "1")])?;
    expect_in(&told.json["remote"]["problems"].to_string(), "the cache is off, and so this one is not used")?;
    ensure(told.json["remote"]["answers"] == true && told.json["remote"]["read_only"] == true, || told.text.clone())?;
    let told = doctor(&work, &[("OFFLD_CACHE_REMOTE", "redis://name:word@127.0.0.1:1"), ("OFFLD_CACHE_REMOTE_TIMEOUT", "1")])?;
    ensure(told.json["remote"]["answers"] == false, || told.text.clone())?;
    expect_in(&told.json["remote"]["problems"].to_string(), "is not used any further")?;
    expect_not_in(&told.text, "word")?;
    expect_equal("a link does without it", "0", &told.status.to_string())?;
    passed()
}

fn devices() -> Outcome {
    let work = Work::new();
    work.file("machine/sys/class/kfd/kfd/topology/nodes/1/properties", "gfx_target_version 90010\n");
    let root = work.path().join("machine").display().to_string();
    let told = doctor(&work, &[("OFFLD_NATIVE_ROOT", &root)])?;
    expect_equal("amd", "[\"gfx90a\"]", &told.json["devices"]["amd"].to_string())?;
    work.file("machine/proc/driver/nvidia/gpus/0/information", "");
    let told = doctor(&work, &[("OFFLD_NATIVE_ROOT", &root)])?;
    expect_in(&told.json["devices"]["error"].to_string(), "1 GPUs of NVIDIA")?;
    expect_equal("exit status", "0", &told.status.to_string())?;
    passed()
}

fn with_nvidias_tools() -> Outcome {
    let Some(cuda) = cuda_tools(22) else { return missing("NVIDIA's tools (make setup-cuda)") };
    let work = Work::new();
    let bin = cuda.join("bin");
    let path = std::env::join_paths(
        [bin.clone()].into_iter().chain(std::env::split_paths(&std::env::var_os("PATH").unwrap_or_default())),
    );
    let path = path.map_err(|error| error.to_string())?;
    let told = doctor(&work, &[("PATH", &path.to_string_lossy())])?;
    for tool in ["ptxas", "nvlink", "fatbinary"] {
        expect_equal(tool, &bin.join(tool).display().to_string(), told.path(tool).unwrap_or_default())?;
        expect_not_in(&told.missing("cuda")?, &format!("\"what\": \"{tool}\""))?;
    }
    passed()
}
