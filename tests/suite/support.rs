//! Shared helpers of the tests: the program under test and the tools for comparison, commands whose
//! failures print everything, and the rule for missing tools.

use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::process::CommandExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::OnceLock;

use libtest_mimic::{Completion, Failed, Trial};
use tempfile::TempDir;

/// The result of a test.
pub(crate) type Outcome = Result<Completion, Failed>;

/// The programs of the LLVM 22 installation, for comparison.
pub(crate) const LLVM: &str = "/usr/lib/llvm-22/bin";
/// clang's options for offloading to the CPU.
pub(crate) const OFFLOAD: [&str; 2] = ["-fopenmp", "-fopenmp-targets=x86_64-pc-linux-gnu"];

/// A test that passed.
pub(crate) fn passed() -> Outcome {
    Ok(Completion::Completed)
}

/// A test.
pub(crate) fn test(
    name: impl Into<String>,
    run: impl FnOnce() -> Outcome + Send + 'static,
) -> Trial {
    let name = name.into();
    Trial::ignorable_test(name.clone(), move || crate::effort::timed(&name, run))
}

/// A test that needs only LLVM 22.
pub(crate) fn with_llvm(name: &str, run: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    test(name, || {
        if have_llvm() {
            run()
        } else {
            missing("LLVM 22 (clang-22, lld-22, libomp-22-dev, liboffload-22-dev)")
        }
    })
}

/// The result of a test without its tool: ignored with a message, or a failure with
/// `REQUIRE_TOOLS=1`.
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

/// Whether LLVM 22 is installed.
pub(crate) fn have_llvm() -> bool {
    llvm("clang").is_file() && llvm("clang-linker-wrapper").is_file()
}

/// A release of LLVM: its compilers and its OpenMP runtime. The paths of LLVM 22 are fixed; those
/// of the others come from the list that `make setup-releases` writes (scripts/RELEASES.md).
#[derive(Clone)]
pub(crate) struct Release {
    /// The major version.
    pub major: u32,
    /// The directory of its programs.
    pub bin: PathBuf,
    /// The directory of its OpenMP libraries.
    pub lib: PathBuf,
    /// Options for compiling OpenMP device code, in addition to [`OFFLOAD`].
    pub compile: Vec<String>,
    /// Options for links, in addition to [`OFFLOAD`].
    pub link: Vec<String>,
}

impl Release {
    /// LLVM 22, from its installation directory.
    pub(crate) fn newest() -> Release {
        Release {
            major: 22,
            bin: LLVM.into(),
            lib: "/usr/lib/llvm-22/lib".into(),
            compile: Vec::new(),
            link: Vec::new(),
        }
    }

    /// LLVM 14, 15, 16, 19 or 22, if it is installed.
    pub(crate) fn of(major: u32) -> Option<Release> {
        if major == 22 {
            return have_llvm().then(Release::newest);
        }
        let line = release_line(&major.to_string())?;
        let value = |key: &str| word_of(&line, key);
        let lib = PathBuf::from(value("lib")?);
        // In 14, the driver that makes fat objects is not the default.
        let flags: Vec<String> = value("flags").into_iter().collect();
        let compile = [&flags[..], &["-isystem".to_owned(), value("include")?]].concat();
        let link = [&flags[..], &[format!("-L{}", lib.display())]].concat();
        Some(Release {
            major,
            bin: value("bin")?.into(),
            lib,
            compile,
            link,
        })
    }

    /// One of its programs.
    pub(crate) fn tool(&self, name: &str) -> PathBuf {
        self.bin.join(name)
    }
}

/// The values after `key` in the list of releases. `key` is a release, `rocm` or `spirv`.
fn release_line(key: &str) -> Option<String> {
    let folder = std::env::var_os("OFFLD_RELEASES")
        .map_or_else(|| root().join("target/releases"), PathBuf::from);
    let list = std::fs::read_to_string(folder.join("releases.txt")).ok()?;
    list.lines()
        .find_map(|line| Some(line.strip_prefix(key)?.strip_prefix(' ')?.to_owned()))
}

/// The value of `key=` in a line of `key=value` pairs. It extends to the next pair, because paths
/// may contain spaces.
fn word_of(line: &str, key: &str) -> Option<String> {
    let is_pair = |word: &str| {
        let (key, _) = word.split_once('=').unwrap_or_default();
        !key.is_empty() && key.chars().all(|c| c.is_ascii_alphanumeric())
    };
    let mut words = line.split(' ').skip_while(|word| {
        word.strip_prefix(key)
            .is_none_or(|rest| !rest.starts_with('='))
    });
    let first = words
        .next()?
        .strip_prefix(key)?
        .strip_prefix('=')?
        .to_owned();
    Some(
        words
            .take_while(|word| !is_pair(word))
            .fold(first, |value, word| value + " " + word),
    )
}

/// The directory of NVIDIA's tools for the compilers of LLVM `major` (scripts/RELEASES.md), from
/// the list that `make setup-cuda` writes.
pub(crate) fn cuda_tools(major: u32) -> Option<PathBuf> {
    cuda_folder("cuda ", if major < 22 { "before22" } else { "path" })
}

/// The directory of NVIDIA's compiler nvcc, with its headers and libraries.
pub(crate) fn nvcc() -> Option<PathBuf> {
    cuda_folder("nvcc ", "path")
}

/// The value of `key` in the line of the list of NVIDIA's tools that begins with `start`.
fn cuda_folder(start: &str, key: &str) -> Option<PathBuf> {
    let folder =
        std::env::var_os("OFFLD_CUDA").map_or_else(|| root().join("target/cuda"), PathBuf::from);
    let list = std::fs::read_to_string(folder.join("cuda.txt")).ok()?;
    list.lines()
        .find_map(|line| word_of(line.strip_prefix(start)?, key))
        .map(PathBuf::from)
}

/// The directory of AMD's device libraries, which are bitcode.
pub(crate) fn rocm_bitcode() -> Option<PathBuf> {
    word_of(&release_line("rocm")?, "bitcode").map(PathBuf::from)
}

/// Whether the SPIR-V linker is installed.
pub(crate) fn have_spirv_link() -> bool {
    release_line("spirv")
        .is_some_and(|line| word_of(&line, "link").is_some_and(|link| Path::new(&link).is_file()))
}

/// The directory of wild, which `scripts/setup.sh` compiles.
fn folder_of_wild() -> PathBuf {
    root().join("target/wild/bin")
}

/// A host linker, by its name after clang's `-fuse-ld=`.
pub(crate) fn host_linker(name: &str) -> Option<PathBuf> {
    let path = match name {
        "lld" => llvm("ld.lld"),
        "wild" => folder_of_wild().join("ld.wild"),
        name => return which::which(format!("ld.{name}")).ok(),
    };
    path.is_file().then_some(path)
}

/// The program under test: `OFFLD_BIN`, or else that of this build.
pub(crate) fn offld() -> PathBuf {
    let built = || {
        let path = Path::new(env!("CARGO_BIN_EXE_offld"));
        path.strip_prefix(env!("CARGO_MANIFEST_DIR"))
            .map_or(path.to_owned(), |below| root().join(below))
    };
    std::env::var_os("OFFLD_BIN").map_or_else(built, PathBuf::from)
}

static ROOT_LINK: OnceLock<TempDir> = OnceLock::new();

/// The root of the project. If its path has spaces, this is a symlink without spaces, because tests
/// use it in shell scripts and command lines.
pub(crate) fn root() -> &'static Path {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"));
    if !env!("CARGO_MANIFEST_DIR").contains(char::is_whitespace) {
        return path;
    }
    static LINK: OnceLock<PathBuf> = OnceLock::new();
    LINK.get_or_init(|| {
        let folder = ROOT_LINK.get_or_init(|| {
            tempfile::Builder::new()
                .prefix("offld-root-")
                .tempdir()
                .expect("a temporary folder")
        });
        let link = folder.path().join("clone");
        std::os::unix::fs::symlink(path, &link).expect("a symlink");
        link
    })
}

/// Files that are created once per run of the suite.
pub(crate) struct Made {
    folder: TempDir,
    /// The directory of all tool links except `ld`.
    pub links: PathBuf,
    /// The same with `ld`.
    pub as_ld: PathBuf,
    /// A directory with the runtime stub under the names of libomptarget in LLVM 22 and earlier. If
    /// it precedes the real one, a program that is linked with the real one runs with the stub,
    /// whose constructors and destructors run in the same order.
    pub stub: PathBuf,
    /// A cache that tests share.
    pub cache: PathBuf,
}

static MADE: OnceLock<Made> = OnceLock::new();

/// The files of this run. The first call creates them.
pub(crate) fn made() -> &'static Made {
    MADE.get_or_init(|| {
        let folder = tempfile::Builder::new()
            .prefix("offld-suite-")
            .tempdir()
            .expect("a temporary folder");
        let offld = offld();
        let (links, as_ld) = (folder.path().join("links"), folder.path().join("as-ld"));
        run(Command::new(&offld).arg("links").arg(&links)).expect("offld links");
        run(Command::new(&offld).args(["links", "--as-ld"]).arg(&as_ld))
            .expect("offld links --as-ld");
        let stub = folder.path().join("stub");
        std::fs::create_dir(&stub).expect("a folder");
        let source = root().join("runtime-stubs/openmp.c");
        run(Command::new("cc")
            .args([
                "-std=c11",
                "-Wall",
                "-Werror",
                "-shared",
                "-fPIC",
                "-Wl,-soname,libomptarget.so.22.1",
            ])
            .arg(source)
            .arg("-o")
            .arg(stub.join("libomptarget.so.22.1")))
        .expect("the runtime stub");
        for name in [
            "libomptarget.so",
            "libomptarget.so.15",
            "libomptarget.so.16",
            "libomptarget.so.19.1",
        ] {
            std::os::unix::fs::symlink("libomptarget.so.22.1", stub.join(name)).expect("a symlink");
        }
        let cache = folder.path().join("cache");
        Made {
            folder,
            links,
            as_ld,
            stub,
            cache,
        }
    })
}

impl Made {
    /// The path of a directory that several tests share. The first of them creates it.
    pub(crate) fn shared(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }
}

/// Removes the files of the run.
pub(crate) fn unmake() {
    for folder in [MADE.get().map(|made| &made.folder), ROOT_LINK.get()]
        .into_iter()
        .flatten()
    {
        let _ = std::fs::remove_dir_all(folder.path());
    }
}

/// The directory of one test, which is removed when the value is dropped.
pub(crate) struct Work(TempDir);

impl Work {
    /// A new empty directory.
    pub(crate) fn new() -> Work {
        Work(
            tempfile::Builder::new()
                .prefix("offld-test-")
                .tempdir()
                .expect("a temporary folder"),
        )
    }

    /// A new directory below `folder`, for tests that depend on the file system.
    pub(crate) fn within(folder: &Path) -> Work {
        Work(
            tempfile::Builder::new()
                .prefix("offld-test-")
                .tempdir_in(folder)
                .expect("a temporary folder"),
        )
    }

    /// The path of the directory.
    pub(crate) fn path(&self) -> &Path {
        self.0.path()
    }

    /// The value of `XDG_RUNTIME_DIR` for commands of this test, a directory outside of it.
    pub(crate) fn session(&self) -> PathBuf {
        let session = made()
            .folder
            .path()
            .join("sessions")
            .join(self.path().file_name().unwrap_or_default());
        std::fs::create_dir_all(&session).expect("a folder");
        session
    }

    /// Writes a file, with missing directories, and returns its path.
    pub(crate) fn file(&self, name: &str, contents: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path().join(name);
        if let Some(folder) = path.parent() {
            std::fs::create_dir_all(folder).expect("a folder");
        }
        std::fs::write(&path, contents).expect("a file");
        path
    }

    /// A command that runs in the directory, with its temporary files below it and without offld's
    /// environment variables.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        let mut command = Command::new(program);
        let temp = self.path().join("tmp");
        std::fs::create_dir_all(&temp).expect("a folder");
        // Each test has its own table of running links, so that its links do not wait for those of
        // other tests.
        command
            .current_dir(self.path())
            .env("TMPDIR", temp)
            .env("XDG_RUNTIME_DIR", self.session());
        // For `-fuse-ld=wild`.
        let path = std::env::var_os("PATH").unwrap_or_default();
        if let Ok(path) =
            std::env::join_paths(std::env::split_paths(&path).chain([folder_of_wild()]))
        {
            command.env("PATH", path);
        }
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
            .env_remove("OFFLD_TIME_TRACE")
            .env_remove("OFFLD_VERBOSE")
            .env_remove("OFFLD_CACHE_SIZE")
            .env_remove("OFFLD_LTO_PARTITIONS")
            .env_remove("OFFLD_DISTRIBUTE")
            .env_remove("OFFLD_STABLE_NAMES")
            .env("OFFLD_CACHE", "off")
            .env_remove("OFFLD_CACHE_KEY")
            .env_remove("OFFLD_CACHE_REMOTE")
            .env_remove("OFFLD_CACHE_REMOTE_READONLY")
            .env_remove("OFFLD_CACHE_REMOTE_TIMEOUT")
            .env_remove("MAKEFLAGS")
            .env_remove("COLUMNS")
            .env("LC_ALL", "C");
        command
    }

    /// Runs a program, which must succeed, and returns its stdout.
    pub(crate) fn run(
        &self,
        program: impl AsRef<OsStr>,
        args: impl IntoIterator<Item = impl AsRef<OsStr>>,
    ) -> Result<String, Failed> {
        run(self.command(program).args(args))
    }

    /// Fails if a temporary file or the table of running links is left.
    pub(crate) fn expect_no_temps(&self) -> Result<(), Failed> {
        for (variable, folder) in [
            ("TMPDIR", self.path().join("tmp")),
            ("XDG_RUNTIME_DIR", self.session()),
        ] {
            let left: Vec<_> = std::fs::read_dir(folder)?
                .filter_map(|entry| Some(entry.ok()?.file_name()))
                .collect();
            ensure(left.is_empty(), || format!("left in {variable}: {left:?}"))?;
        }
        Ok(())
    }
}

/// Restarts the suite with default signal handling if it inherited ignored signals, as under
/// `nohup` or in the background of a script. Otherwise the processes of the tests would inherit
/// them too, and no signal of a test would end them.
pub(crate) fn with_default_signals() {
    /// SIGHUP, SIGINT, SIGQUIT, SIGTERM and SIGXFSZ, as bits of `SigIgn`.
    const SENT_BY_TESTS: u64 = 1 | 1 << 1 | 1 << 2 | 1 << 14 | 1 << 24;
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status
        .lines()
        .find_map(|line| u64::from_str_radix(line.strip_prefix("SigIgn:")?.trim(), 16).ok());
    if ignored.is_some_and(|ignored| ignored & SENT_BY_TESTS != 0) {
        let suite = std::env::current_exe().expect("the suite knows its own file");
        let error = Command::new("env")
            .arg("--default-signal")
            .arg(suite)
            .args(std::env::args_os().skip(1))
            .exec();
        eprintln!(
            "warning: tests of signals will fail, because signals are ignored here and env (GNU coreutils 8.31) cannot be run: {error}"
        );
    }
}

/// Runs `command`, which must succeed, and returns its stdout. The failure has everything about the
/// command.
pub(crate) fn run(command: &mut Command) -> Result<String, Failed> {
    let output = output(command)?;
    if output.status.success() {
        Ok(text(&output.stdout))
    } else {
        Err(shown(command, &output).into())
    }
}

/// Runs `command`, which must fail, and returns its stderr.
pub(crate) fn run_failing(command: &mut Command) -> Result<String, Failed> {
    let output = output(command)?;
    if output.status.success() {
        Err(format!("should have failed: {}", shown(command, &output)).into())
    } else {
        Ok(text(&output.stderr))
    }
}

/// Runs `command`, which must succeed, and returns its stderr. The failure has everything about the
/// command.
pub(crate) fn stderr_of(command: &mut Command) -> Result<String, Failed> {
    let output = output(command)?;
    if output.status.success() {
        Ok(text(&output.stderr))
    } else {
        Err(shown(command, &output).into())
    }
}

/// Runs `command`, which may succeed or fail.
pub(crate) fn output(command: &mut Command) -> Result<Output, Failed> {
    once_written(command, Command::output)
}

/// Starts `command`.
pub(crate) fn spawned(command: &mut Command) -> Result<Child, Failed> {
    once_written(command, Command::spawn)
}

/// Starts `command` by `start`. If its program has just been written, a child process of another test
/// may still have it open (ETXTBSY), so this waits for that process.
fn once_written<T>(
    command: &mut Command,
    start: impl Fn(&mut Command) -> std::io::Result<T>,
) -> Result<T, Failed> {
    let mut result = start(command);
    for _ in 0..100 {
        match &result {
            Err(error) if error.kind() == std::io::ErrorKind::ExecutableFileBusy => {}
            _ => break,
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
        result = start(command);
    }
    result.map_err(|error| format!("cannot run {command:?}: {error}").into())
}

/// The command, its working directory, its status and its output, as text.
pub(crate) fn shown(command: &Command, output: &Output) -> String {
    let mut all = String::new();
    let _ = writeln!(
        all,
        "{command:?}\n  in {:?}: {}",
        command.get_current_dir().unwrap_or(Path::new(".")),
        output.status
    );
    let _ = write!(
        all,
        "--- stdout\n{}--- stderr\n{}",
        text(&output.stdout),
        text(&output.stderr)
    );
    all
}

/// Bytes as text.
pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// Fails with `reason` unless `condition` holds.
pub(crate) fn ensure<T: Into<String>>(
    condition: bool,
    reason: impl FnOnce() -> T,
) -> Result<(), Failed> {
    if condition {
        Ok(())
    } else {
        Err(reason().into().into())
    }
}

/// Fails if there is a file at `path`.
pub(crate) fn expect_no_file(path: &Path) -> Result<(), Failed> {
    ensure(!path.exists(), || {
        format!("{} exists, but should not", path.display())
    })
}

/// Fails with both texts if they differ.
pub(crate) fn expect_equal(what: &str, expected: &str, actual: &str) -> Result<(), Failed> {
    if expected == actual {
        Ok(())
    } else {
        Err(format!("{what}\n--- expected\n{expected}\n--- actual\n{actual}").into())
    }
}

/// Fails unless `text` contains `part`.
pub(crate) fn expect_in(text: &str, part: &str) -> Result<(), Failed> {
    if text.contains(part) {
        Ok(())
    } else {
        Err(format!("`{part}` is not in:\n{text}").into())
    }
}

/// Fails if `text` contains `part`.
pub(crate) fn expect_not_in(text: &str, part: &str) -> Result<(), Failed> {
    if text.contains(part) {
        Err(format!("`{part}` is in:\n{text}").into())
    } else {
        Ok(())
    }
}

/// Runs a program with mandatory offloading and returns its stdout.
pub(crate) fn run_offloaded(command: &mut Command) -> Result<String, Failed> {
    run(command.env("OMP_TARGET_OFFLOAD", "mandatory"))
}

/// The registration log of the runtime stub for `program`, which is linked with the runtime of
/// `release`. The program's own output and status do not matter, because some programs rightly
/// behave differently without a device.
pub(crate) fn ledger(
    folder: &Work,
    program: &mut Command,
    release: &Release,
) -> Result<String, Failed> {
    let file = folder.path().join("ledger");
    let libraries =
        std::env::join_paths([&made().stub, &release.lib]).expect("folders without colons");
    program
        .env("LD_LIBRARY_PATH", libraries)
        .env("OFFLD_LEDGER", &file);
    let output = output(program)?;
    let ledger = std::fs::read_to_string(&file)
        .map_err(|error| format!("no ledger: {error}\n{}", shown(program, &output)))?;
    std::fs::remove_file(file)?;
    expect_not_in(&ledger, "BAD:")?;
    Ok(ledger)
}

/// Runs `command`, which must succeed, and returns its peak memory in MiB. GNU time starts it,
/// because the kernel's figure includes the peak of the process that forked it: GNU time is small,
/// but this harness may be large.
pub(crate) fn peak_memory(command: &mut Command) -> Result<u64, Failed> {
    let report = tempfile::NamedTempFile::new()?;
    let mut timed = Command::new("/usr/bin/time");
    timed
        .args(["--quiet", "--format=%M", "--output"])
        .arg(report.path())
        .arg(command.get_program())
        .args(command.get_args());
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
    let kib = std::fs::read_to_string(report.path())?
        .trim()
        .parse::<u64>();
    match kib {
        Ok(kib) if ended.success() => Ok(kib / 1024),
        _ => Err(format!("{command:?}: {ended}, peak of memory: {kib:?} KiB").into()),
    }
}

/// Runs `command`, and fails if its peak memory exceeds `most` MiB.
pub(crate) fn at_most_memory(command: &mut Command, most: u64) -> Result<(), Failed> {
    let peak = peak_memory(command)?;
    if peak > most {
        Err(format!("{command:?}: {peak} MiB, but the limit is {most} MiB").into())
    } else {
        Ok(())
    }
}

/// A pseudorandom sequence that depends on its seed only (splitmix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number below `end`.
    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end.max(1) as u64) as usize
    }

    /// True in `percent` of 100 cases.
    pub(crate) fn chance(&mut self, percent: usize) -> bool {
        self.below(100) < percent
    }

    /// The elements in random order.
    pub(crate) fn shuffled<T>(&mut self, mut elements: Vec<T>) -> Vec<T> {
        for last in (1..elements.len()).rev() {
            elements.swap(last, self.below(last + 1));
        }
        elements
    }
}
