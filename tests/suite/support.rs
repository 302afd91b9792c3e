//! What the tests share: the tools under test and the tools beside them, commands whose failure shows everything, and the rule
//! for missing tools.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use libtest_mimic::{Completion, Failed, Trial};
use tempfile::TempDir;

/// How a test ends.
pub(crate) type Outcome = Result<Completion, Failed>;

/// The LLVM 22 installation that everything is held against.
pub(crate) const LLVM: &str = "/usr/lib/llvm-22/bin";
/// What makes clang offload to the host.
pub(crate) const OFFLOAD: [&str; 2] = ["-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu"];

/// A test that passed.
pub(crate) fn passed() -> Outcome {
    Ok(Completion::Completed)
}

/// A test.
pub(crate) fn test(name: impl Into<String>, run: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    Trial::ignorable_test(name, run)
}

/// A test that needs LLVM 22, and only that.
pub(crate) fn with_llvm(name: &str, run: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    test(name, || if have_llvm() { run() } else { missing("LLVM 22 (clang-22, lld-22, libomp-22-dev, liboffload-22-dev)") })
}

/// What a test does whose tool is not here: an ignored test that says so, a failure with `REQUIRE_TOOLS=1`.
pub(crate) fn missing(what: impl std::fmt::Display) -> Outcome {
    if std::env::var_os("REQUIRE_TOOLS").is_some_and(|value| value == "1") {
        return Err(format!("missing: {what} (REQUIRE_TOOLS=1)").into());
    }
    Ok(Completion::ignored_with(format!("missing: {what}")))
}

/// A tool of LLVM 22.
pub(crate) fn llvm(tool: &str) -> PathBuf {
    Path::new(LLVM).join(tool)
}

/// Whether LLVM 22 is here at all.
pub(crate) fn have_llvm() -> bool {
    llvm("clang").is_file() && llvm("clang-linker-wrapper").is_file()
}

/// A release of LLVM: its compilers and its OpenMP runtime. LLVM 22 is always known; the others, and where they are, by the list that
/// `make setup-releases` writes (scripts/RELEASES.md).
#[derive(Clone)]
pub(crate) struct Release {
    /// Its major version.
    pub major: u32,
    /// The folder of its programs.
    pub bin: PathBuf,
    /// The folder of its OpenMP libraries.
    pub lib: PathBuf,
    /// What a compile of OpenMP code for a device says besides [`OFFLOAD`].
    pub compile: Vec<String>,
    /// What a link says besides [`OFFLOAD`].
    pub link: Vec<String>,
}

impl Release {
    /// LLVM 22, by its own folders.
    pub(crate) fn newest() -> Release {
        Release { major: 22, bin: LLVM.into(), lib: "/usr/lib/llvm-22/lib".into(), compile: Vec::new(), link: Vec::new() }
    }

    /// LLVM 14, 15, 16, 19 or 22.
    pub(crate) fn of(major: u32) -> Option<Release> {
        if major == 22 {
            return have_llvm().then(Release::newest);
        }
        let line = release_line(&major.to_string())?;
        let value = |key: &str| word_of(&line, key);
        let lib = PathBuf::from(value("lib")?);
        // In 14 the driver that makes fat objects is not yet the default one.
        let flags: Vec<String> = value("flags").into_iter().collect();
        let compile = [&flags[..], &["-isystem".to_owned(), value("include")?]].concat();
        let link = [&flags[..], &[format!("-L{}", lib.display())]].concat();
        Some(Release { major, bin: value("bin")?.into(), lib, compile, link })
    }

    /// One of its programs.
    pub(crate) fn tool(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }
}

/// What the list of releases says after `key`: a release, or `rocm`, or `spirv`.
fn release_line(key: &str) -> Option<String> {
    let folder = std::env::var_os("OFFLD_RELEASES").map_or_else(|| root().join("target/releases"), PathBuf::from);
    let list = std::fs::read_to_string(folder.join("releases.txt")).ok()?;
    list.lines().find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(' ')?.to_owned()))
}

fn word_of(line: &str, key: &str) -> Option<String> {
    line.split(' ').find_map(|word| Some(word.strip_prefix(key)?.strip_prefix('=')?.to_owned()))
}

/// The folder of NVIDIA's tools, as the compilers of LLVM `major` want them (scripts/RELEASES.md), by the list that `make setup-cuda`
/// writes.
pub(crate) fn cuda_tools(major: u32) -> Option<PathBuf> {
    let folder = std::env::var_os("OFFLD_CUDA").map_or_else(|| root().join("target/cuda"), PathBuf::from);
    let list = std::fs::read_to_string(folder.join("cuda.txt")).ok()?;
    let key = if major < 22 { "before22" } else { "path" };
    list.lines().find_map(|line| word_of(line.strip_prefix("cuda ")?, key)).map(PathBuf::from)
}

/// AMD's device libraries, as bitcode.
pub(crate) fn rocm_bitcode() -> Option<PathBuf> {
    word_of(&release_line("rocm")?, "bitcode").map(PathBuf::from)
}

/// Whether the linker of SPIR-V modules is here.
pub(crate) fn have_spirv_link() -> bool {
    release_line("spirv").is_some_and(|line| word_of(&line, "link").is_some_and(|link| Path::new(&link).is_file()))
}

/// The program under test: this build's, or the one that `OFFLD_BIN` names.
pub(crate) fn offld() -> PathBuf {
    std::env::var_os("OFFLD_BIN").unwrap_or_else(|| env!("CARGO_BIN_EXE_offld").into()).into()
}

/// The root of the project.
pub(crate) fn root() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
}

/// What is made once for a run of the suite.
pub(crate) struct Made {
    folder: TempDir,
    /// A folder with every name of offld but `ld`.
    pub links: PathBuf,
    /// The same with `ld`.
    pub as_ld: PathBuf,
    /// A folder with the runtime stub under the names of libomptarget in LLVM 22 and earlier: put before the real one, a program
    /// linked against that runs with it, and it is set up and torn down in the order the real one would be.
    pub stub: PathBuf,
    /// A cache of device links that tests share.
    pub cache: PathBuf,
}

static MADE: OnceLock<Made> = OnceLock::new();

/// The folders of names and the runtime stub.
pub(crate) fn made() -> &'static Made {
    MADE.get_or_init(|| {
        let folder = tempfile::Builder::new().prefix("offld-suite-").tempdir().expect("a temporary folder");
        let offld = offld();
        let (links, as_ld) = (folder.path().join("links"), folder.path().join("as-ld"));
        run(Command::new(&offld).arg("links").arg(&links)).expect("offld links");
        run(Command::new(&offld).args(["links", "--as-ld"]).arg(&as_ld)).expect("offld links --as-ld");
        let stub = folder.path().join("stub");
        std::fs::create_dir(&stub).expect("a folder");
        let source = root().join("runtime-stubs/openmp.c");
        run(Command::new("cc")
            .args(["-std=c11", "-Wall", "-Werror", "-shared", "-fPIC", "-Wl,-soname,libomptarget.so.22.1"])
            .arg(source)
            .arg("-o")
            .arg(stub.join("libomptarget.so.22.1")))
        .expect("the runtime stub");
        for name in ["libomptarget.so", "libomptarget.so.15", "libomptarget.so.16", "libomptarget.so.19.1"] {
            std::os::unix::fs::symlink("libomptarget.so.22.1", stub.join(name)).expect("a symlink");
        }
        let cache = folder.path().join("cache");
        Made { folder, links, as_ld, stub, cache }
    })
}

impl Made {
    /// A folder for what several tests share; the first to ask makes it.
    pub(crate) fn shared(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Removes what was made for the run.
pub(crate) fn unmake() {
    if let Some(made) = MADE.get() {
        let _ = std::fs::remove_dir_all(made.folder.path());
    }
}

/// A folder for one test, gone when it is done.
pub(crate) struct Work(TempDir);

impl Work {
    /// An empty folder.
    pub(crate) fn new() -> Work {
        Work(tempfile::Builder::new().prefix("offld-test-").tempdir().expect("a temporary folder"))
    }

    /// One below `folder`, for what depends on the file system.
    pub(crate) fn within(folder: &Path) -> Work {
        Work(tempfile::Builder::new().prefix("offld-test-").tempdir_in(folder).expect("a temporary folder"))
    }

    /// Its path.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The folder of the user's session for what runs in it, which is elsewhere.
    pub(crate) fn session(&self) -> PathBuf {
        let session = made().folder.path().join("sessions").join(self.path().file_name().unwrap_or_default());
        std::fs::create_dir_all(&session).expect("a folder");
        session
    }

    /// A file in it.
    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        std::fs::write(&path, contents).expect("a file");
        path
    }

    /// A command that runs in it, with temporary files below it and without what the environment says to offld.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let temp = self.path().join("tmp");
        std::fs::create_dir_all(&temp).expect("a folder");
        // Links of other tests are not to be waited for.
        command.current_dir(self.path()).env("TMPDIR", temp).env("XDG_RUNTIME_DIR", self.session());
        command
            .env_remove("OFFLD_MEMORY")
            .env_remove("OFFLD_MEMORY_ROOT")
            .env_remove("OFFLD_WITHIN")
            .env_remove("OFFLD_LAUNCHER")
            .env_remove("OFFLD_LAUNCHER_WAIT")
            .env_remove("OFFLD_REMOTE_JOBS")
            .env_remove("OFFLD_SHARED_TMP")
            .env_remove("OFFLD_CLANG")
            .env_remove("OFFLD_LINKER")
            .env_remove("OFFLD_LLVM")
            .env_remove("OFFLD_LLVM_TIMEOUT")
            .env_remove("OFFLD_REPRODUCE")
            .env_remove("OFFLD_CACHE_SIZE")
            .env_remove("OFFLD_LTO_PARTITIONS")
            .env_remove("OFFLD_DISTRIBUTE")
            .env("OFFLD_CACHE", "off")
            .env_remove("OFFLD_CACHE_KEY")
            .env_remove("OFFLD_CACHE_REMOTE")
            .env_remove("OFFLD_CACHE_REMOTE_READONLY")
            .env_remove("OFFLD_CACHE_REMOTE_TIMEOUT")
            .env_remove("MAKEFLAGS")
            .env("LC_ALL", "C");
        command
    }

    /// `command` run to success; its stdout.
    pub(crate) fn run(
        &self,
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<String, Failed> {
        run(self.command(program).args(args))
    }

    /// A failure if any temporary file is left.
    pub(crate) fn expect_no_temps(&self) -> Result<(), Failed> {
        let left: Vec<_> =
            std::fs::read_dir(self.path().join("tmp"))?.filter_map(|entry| Some(entry.ok()?.file_name())).collect();
        if left.is_empty() { Ok(()) } else { Err(format!("left in TMPDIR: {left:?}").into()) }
    }
}

/// Runs `command`; its stdout when it succeeds, everything about it when not.
pub(crate) fn run(command: &mut Command) -> Result<String, Failed> {
    let output = output(command)?;
    if output.status.success() { Ok(text(&output.stdout)) } else { Err(shown(command, &output).into()) }
}

/// Runs `command`, which must fail; its stderr.
pub(crate) fn run_failing(command: &mut Command) -> Result<String, Failed> {
    let output = output(command)?;
    if output.status.success() {
        Err(format!("should have failed: {}", shown(command, &output)).into())
    } else {
        Ok(text(&output.stderr))
    }
}

/// Runs `command`; its stderr when it succeeds, everything about it when not.
pub(crate) fn stderr_of(command: &mut Command) -> Result<String, Failed> {
    let output = output(command)?;
    if output.status.success() { Ok(text(&output.stderr)) } else { Err(shown(command, &output).into()) }
}

/// Runs `command`, whatever comes of it.
pub(crate) fn output(command: &mut Command) -> Result<Output, Failed> {
    /// What the system says of a program that was written a moment ago, while another test's child still has it open.
    const BUSY: i32 = 26;
    let mut result = command.output();
    for _ in 0..100 {
        if result.as_ref().err().and_then(std::io::Error::raw_os_error) != Some(BUSY) {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        result = command.output();
    }
    result.map_err(|error| format!("cannot run {command:?}: {error}").into())
}

/// The command, where it ran, its status and all it printed.
pub(crate) fn shown(command: &Command, output: &Output) -> String {
    let mut all = String::new();
    let _ = writeln!(all, "{command:?}\n  in {:?}: {}", command.get_current_dir().unwrap_or(Path::new(".")), output.status);
    let _ = write!(all, "--- stdout\n{}--- stderr\n{}", text(&output.stdout), text(&output.stderr));
    all
}

/// Bytes as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// A failure that says `reason`, unless `condition` holds.
pub(crate) fn ensure<T: Into<String>>(condition: bool, reason: impl FnOnce() -> T) -> Result<(), Failed> {
    if condition { Ok(()) } else { Err(reason().into().into()) }
}

/// A failure if there is a file at `path`.
pub(crate) fn expect_no_file(path: &Path) -> Result<(), Failed> {
    ensure(!path.exists(), || format!("{} is there, and should not be", path.display()))
}

/// A failure with both texts when they differ.
pub(crate) fn expect_equal(what: &str, expected: &str, actual: &str) -> Result<(), Failed> {
    if expected == actual { Ok(()) } else { Err(format!("{what}\n--- expected\n{expected}\n--- actual\n{actual}").into()) }
}

/// A failure unless `text` holds `part`.
pub(crate) fn expect_in(text: &str, part: &str) -> Result<(), Failed> {
    if text.contains(part) { Ok(()) } else { Err(format!("`{part}` is not in:\n{text}").into()) }
}

/// A failure if `text` holds `part`.
pub(crate) fn expect_not_in(text: &str, part: &str) -> Result<(), Failed> {
    if text.contains(part) { Err(format!("`{part}` is in:\n{text}").into()) } else { Ok(()) }
}

/// Runs a program offloaded (it fails where it cannot offload); its stdout.
pub(crate) fn run_offloaded(command: &mut Command) -> Result<String, Failed> {
    run(command.env("OMP_TARGET_OFFLOAD", "mandatory"))
}

/// What `program`, linked against the runtime of `release` in `folder`, registers: the ledger of the runtime stub. What else becomes
/// of the program does not matter: some rightly print something else without a device.
pub(crate) fn ledger(folder: &Work, program: &mut Command, release: &Release) -> Result<String, Failed> {
    let file = folder.path().join("ledger");
    let libraries = std::env::join_paths([&made().stub, &release.lib]).expect("folders without colons");
    program.env("LD_LIBRARY_PATH", libraries).env("OFFLD_LEDGER", &file);
    let output = output(program)?;
    let ledger = std::fs::read_to_string(&file).map_err(|error| format!("no ledger: {error}\n{}", shown(program, &output)))?;
    std::fs::remove_file(file)?;
    expect_not_in(&ledger, "BAD:")?;
    Ok(ledger)
}

/// Runs `command` to success; its peak of memory, in MiB. GNU time starts it: what the system counts for a process holds the peak of
/// the one that it was started from, and GNU time is small where this harness may be large.
pub(crate) fn peak_memory(command: &mut Command) -> Result<u64, Failed> {
    let told = tempfile::NamedTempFile::new()?;
    let mut timed = Command::new("/usr/bin/time");
    timed.args(["--quiet", "--format=%M", "--output"]).arg(told.path()).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => timed.env(name, value),
            None => timed.env_remove(name),
        };
    }
    if let Some(folder) = command.get_current_dir() {
        timed.current_dir(folder);
    }
    let ended = timed.stdin(Stdio::null()).stdout(Stdio::null()).status()?;
    let kib = std::fs::read_to_string(told.path())?.trim().parse::<u64>();
    match kib {
        Ok(kib) if ended.success() => Ok(kib / 1024),
        _ => Err(format!("{command:?}: {ended}, peak of memory: {kib:?} KiB").into()),
    }
}

/// The same, and a failure beyond `most` MiB.
pub(crate) fn at_most_memory(command: &mut Command, most: u64) -> Result<(), Failed> {
    let peak = peak_memory(command)?;
    if peak > most { Err(format!("{command:?}: {peak} MiB, where {most} are allowed").into()) } else { Ok(()) }
}
