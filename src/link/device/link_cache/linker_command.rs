//! The linker command that a compiler would run for an image, as printed for `-###`, and the query
//! that asks the compiler for it.
//!
//! The answer is cached, because for a small image the compiler takes longer to choose the
//! arguments than the linker takes to link. Both the query and the cached answer have placeholders
//! for everything that differs from link to link.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::driver_files::{self, DriverProbePaths};
use super::linker_args::{Linker, LinkerCommand};
use super::reads::Reads;
use super::tool::{self, Tool};
use super::{DUMP, DeviceCache, INPUT, LinkQuery, OUTPUT, SharedTool, nvidia};
use offld_system::environment;
use offld_system::run::Probe;
use offld_system::store::{Cache, Digest, Key, KeyBuilder, Scope};
use offld_system::threads::lock;
use offload_formats::target::Target;

/// Returns the compiler's arguments for the query. `args`: the arguments for a link of [`INPUT`] to
/// [`OUTPUT`].
pub(super) fn query_args(args: &[OsString]) -> Vec<OsString> {
    let mut query = vec![OsString::from("-###")];
    query.extend(args.iter().cloned());
    if let Some(at) = query.iter().position(|arg| arg == "-dumpdir")
        && let Some(folder) = query.get_mut(at + 1)
    {
        *folder = DUMP.into();
    }
    query
}

/// Parses the linker command from the compiler's answer, or returns the reason why there is none.
pub(super) fn parse(stderr: &[u8]) -> Result<LinkerCommand, String> {
    let text = std::str::from_utf8(stderr)
        .map_err(|_| "the linker's command line is not in UTF-8".to_owned())?;
    let mut command = None;
    let mut warnings = String::new();
    for line in text.lines() {
        if let Some(args) = line.strip_prefix(" \"") {
            if command.replace(args).is_some() {
                return Err("the compiler would run more than one program".to_owned());
            }
        } else if line.contains(": warning: ")
            || line.contains(": note: ")
            || line.contains(": remark: ")
        {
            warnings.push_str(line);
            warnings.push('\n');
        } else if line.contains(": error: ")
            || line.starts_with(" (in-process)")
            || line.starts_with(" Arguments passed via")
        {
            return Err(format!("the compiler reports `{}`", line.trim()));
        }
    }
    let mut args = command
        .and_then(split_args)
        .ok_or_else(|| "the compiler prints no linker command for -###".to_owned())?;
    if args.iter().any(|arg| arg.starts_with('@')) {
        return Err("the linker's command line is in a response file".to_owned());
    }
    let program = PathBuf::from(args.remove(0));
    let count = |stand_in: &str| args.iter().filter(|arg| *arg == stand_in).count();
    if !program.is_absolute() || count(INPUT) != 1 || count(OUTPUT) != 1 {
        return Err("the linker command that the compiler prints has an unknown form".to_owned());
    }
    Ok(LinkerCommand {
        program,
        args,
        warnings,
    })
}

/// Splits a line of `-###`, starting after its first quote: `"a" "b\"c"`. A `\` escapes `"`, `\`
/// and `$`.
fn split_args(line: &str) -> Option<Vec<String>> {
    let mut args = Vec::new();
    let mut rest = line.chars();
    loop {
        let mut arg = String::new();
        loop {
            match rest.next()? {
                '"' => break,
                '\\' => arg.push(rest.next()?),
                other => arg.push(other),
            }
        }
        args.push(arg);
        match (rest.next(), rest.next()) {
            (None, _) => return Some(args),
            (Some(' '), Some('"')) => {}
            _ => return None,
        }
    }
}

// Queries the compiler for the linker's arguments: once for all jobs with the same query.
//
// A cached answer is used while everything that the compiler looks at is unchanged.

/// The architecture that replaces any other AMD architecture in queries, so that one answer serves
/// all of them.
const QUERIED_AMD_ARCH: &str = "gfx90a";

/// The cached answer of a compiler.
#[derive(Serialize, Deserialize)]
struct CachedAnswer {
    command: LinkerCommand,
    reads: Reads,
}

impl DeviceCache<'_> {
    /// Returns the linker command for `query`, or the reason why it cannot be determined.
    pub(super) fn linker_command(&self, query: &LinkQuery<'_>) -> Result<LinkerCommand, String> {
        let path = &query.cmd.program;
        if nvidia::is_nvlink(path) {
            return nvidia::direct(path, query.args);
        }
        tool::check_clang(path)?;
        driver_files::check_read_once(query.args)?;
        driver_files::check_reports(query.args)?;
        let target = &query.job.target;
        if target.is_nvptx() {
            nvidia::check_query(self.context.compiler.major, query.args)?;
        } else if !target.is_cpu() && !target.is_amdgcn() {
            return Err(format!(
                "the linker for {} does not list its input files",
                target.triple
            ));
        }
        let query_for = |processor: &str| -> Vec<OsString> {
            let named = OsString::from(format!("-mcpu={}", target.arch));
            let other = OsString::from(format!("-mcpu={processor}"));
            let args = query_args(query.args).into_iter();
            args.map(|arg| if arg == named { other.clone() } else { arg })
                .collect()
        };
        let queried_arch = queried_arch(target);
        let args = query_for(queried_arch);
        let linker_command = self.linker_command_for(path, &args, target.is_cpu())?;
        if queried_arch == target.arch {
            return Ok(linker_command);
        }
        match linker_command.for_processor(queried_arch, &target.arch) {
            Some(linker_command) => Ok(linker_command),
            None => self.linker_command_for(path, &query_for(&target.arch), false),
        }
    }

    /// Returns the compiler's answer to the query `args`, from the cache or by running it. Jobs
    /// with the same query share one answer.
    fn linker_command_for(
        &self,
        path: &Path,
        args: &[OsString],
        for_cpu: bool,
    ) -> Result<LinkerCommand, String> {
        let answer = {
            let mut commands = lock(&self.linker_commands);
            Arc::clone(commands.entry(args.to_vec()).or_default())
        };
        let mut answer = lock(&answer);
        if let Some(command) = answer.as_ref() {
            return command.clone();
        }
        let question = Question {
            path: path.to_owned(),
            args: args.to_vec(),
            environment: self.environment,
            compiler: self.shared_tool(path),
            asked: self.cache.clock().now(),
        };
        // The lookup needs the compiler's identity. Determining that takes as long as running the
        // compiler.
        let known = question
            .compiler
            .get()
            .and_then(|compiler| compiler.as_ref().ok());
        if let Some(command) = known.and_then(|compiler| self.known(&question, compiler)) {
            return answer.insert(Ok(command)).clone();
        }
        let asked = self.run_compiler(&question, for_cpu);
        if let Ok(asked) = &asked {
            let (cache, asked) = (Arc::clone(self.cache), asked.clone());
            self.cache.wait_with(move || question.keep(&cache, asked));
        }
        answer.insert(asked.map(|asked| asked.command)).clone()
    }

    /// Returns the cached answer if the files that the compiler read for it are unchanged.
    fn known(&self, question: &Question, compiler: &Tool) -> Option<LinkerCommand> {
        let key = question.key(compiler, &question.probed());
        let mut known: CachedAnswer =
            serde_json::from_slice(&self.cache.record(key, Scope::Local)?).ok()?;
        if known.reads.revalidate(question.asked).ok()? {
            let (cache, text) = (Arc::clone(self.cache), serde_json::to_vec(&known).ok()?);
            self.cache
                .later(move || cache.put_record(key, &text, Scope::Local));
        }
        Some(known.command)
    }

    /// Runs the compiler. It takes no job slot, because a job that waits for the answer may hold
    /// the last one.
    fn run_compiler(&self, question: &Question, for_cpu: bool) -> Result<Answer, String> {
        let io_error = |error: std::io::Error| format!("{}: {error}", question.path.display());
        // Everything waits for the compiler, so it starts first.
        let compiler = Probe::start(&question.path, &question.args).map_err(io_error)?;
        if for_cpu {
            self.preload_linker();
        }
        // The compiler will most probably choose the host linker.
        if Linker::of(self.context.host_linker).is_some() {
            let _ = self.tool(self.context.host_linker);
        }
        let probed = question.probed();
        let output = compiler.finish().map_err(io_error)?;
        if !output.success {
            return Err("the compiler fails with -###".to_owned());
        }
        let command = parse(&output.stderr)?;
        Ok(Answer {
            command,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
            probed,
        })
    }
}

/// The result of running the compiler.
#[derive(Clone)]
struct Answer {
    command: LinkerCommand,
    /// The compiler's stderr.
    stderr: String,
    /// The state of the paths that the compiler probes, while it ran.
    probed: DriverProbePaths,
}

/// A query and everything that its answer depends on, except files.
struct Question {
    path: PathBuf,
    args: Vec<OsString>,
    environment: Digest,
    compiler: SharedTool,
    /// A time before the compiler starts.
    asked: SystemTime,
}

impl Question {
    /// Returns the cache key of the answer by `compiler`, for this state of the probed paths.
    fn key(&self, compiler: &Tool, probed: &DriverProbePaths) -> Key {
        let mut key = KeyBuilder::default();
        key.add("linker_command 3")
            .add(compiler.digest.bytes())
            .add(self.path.as_os_str().as_encoded_bytes());
        key.add(self.environment.bytes()).add(
            environment::get(environment::PATH)
                .unwrap_or_default()
                .as_encoded_bytes(),
        );
        // The user's configuration files are below `HOME`.
        key.add(
            environment::get(environment::HOME)
                .unwrap_or_default()
                .as_encoded_bytes(),
        );
        key.add(
            std::env::current_dir()
                .unwrap_or_default()
                .as_os_str()
                .as_encoded_bytes(),
        );
        key.add(probed.digest.bytes());
        self.args.iter().for_each(|arg| {
            key.add(arg.as_encoded_bytes());
        });
        key.key()
    }

    /// Returns the current state of the paths that the compiler probes.
    fn probed(&self) -> DriverProbePaths {
        driver_files::probe_paths(&self.path, &self.args, self.asked)
    }

    /// Caches an answer, unless something that the compiler may have looked at has changed since it
    /// started.
    fn keep(&self, cache: &Arc<Cache>, answer: Answer) {
        let Ok(compiler) = self.compiler.get_or_init(|| Tool::of(&self.path, cache)) else {
            return;
        };
        let probed = self.probed();
        // A directory that was removed meanwhile has no timestamp to check, but it was part of the
        // first digest.
        let unchanged = probed.settled && probed.digest == answer.probed.digest;
        if !unchanged || compiler.verify_unchanged(self.asked).is_err() {
            return;
        }
        let Answer {
            command, stderr, ..
        } = answer;
        let Ok(reads) = driver_files::of(
            &self.path,
            &self.args,
            &stderr,
            &command.program,
            self.asked,
        ) else {
            return;
        };
        if let Ok(text) = serde_json::to_vec(&CachedAnswer { command, reads }) {
            let _ = cache.put_record(self.key(compiler, &probed), &text, Scope::Local);
        }
    }
}

/// The architecture in a query for `target`.
///
/// AMD command lines differ only in the architecture's name, unless the target has features. A
/// triple that names an architecture accepts no other.
fn queried_arch(target: &Target) -> &str {
    let by_name = target.is_amdgcn()
        && !target.arch.is_empty()
        && !target.arch.contains(':')
        && !target.triple_names_processor();
    if by_name {
        QUERIED_AMD_ARCH
    } else {
        &target.arch
    }
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;
    use offld_system::store::Store;

    const ANSWER: &str = "Debian clang version 22.1.8\nTarget: x86_64\nThread model: posix\nInstalledDir: /usr/bin\n\
        clang: warning: argument unused during compilation: '-x' [-Wunused]\n \
        \"/usr/bin/ld.lld\" \"-shared\" \"-o\" \"/dev/null/image\" \"a\\\"b\\\\c\" \"/dev/null\" \"-plugin-opt=dwo_dir=/dev/null/dump.dwo\"\n";

    #[test]
    fn an_answer_becomes_a_command() {
        let linker_command = parse(ANSWER.as_bytes()).unwrap();
        assert_eq!(linker_command.program, Path::new("/usr/bin/ld.lld"));
        assert_eq!(
            linker_command.warnings,
            "clang: warning: argument unused during compilation: '-x' [-Wunused]\n"
        );
        let line = linker_command.filled(
            &["i.o".into(), "j.o".into()],
            Path::new("out"),
            OsStr::new("prog."),
        );
        let line: Vec<String> = line
            .into_iter()
            .map(|arg| arg.into_string().unwrap())
            .collect();
        assert_eq!(
            line,
            [
                "-shared",
                "-o",
                "out",
                "a\"b\\c",
                "i.o",
                "j.o",
                "-plugin-opt=dwo_dir=prog.dwo"
            ]
        );
    }

    #[test]
    fn other_answers_than_one_linker_are_errors() {
        let twice = format!("{ANSWER} \"/usr/bin/objcopy\" \"x\"\n");
        assert!(
            parse(twice.as_bytes())
                .unwrap_err()
                .contains("more than one")
        );
        let failed = "clang: error: no such file or directory: 'x'\n";
        assert!(
            parse(failed.as_bytes())
                .unwrap_err()
                .contains("no such file")
        );
        let relative = ANSWER.replace("/usr/bin/ld.lld", "clang-sycl-linker");
        assert!(
            parse(relative.as_bytes())
                .unwrap_err()
                .contains("unknown form")
        );
        assert!(parse(b"").is_err());
        for end in 0..ANSWER.len() - 1 {
            // A truncated answer must not panic.
            let _ = parse(&ANSWER.as_bytes()[..end]);
        }
    }

    #[test]
    fn one_architecture_replaces_another() {
        let text = ANSWER.replace("-shared", "-plugin-opt=mcpu=gfx90a");
        let linker_command = parse(text.as_bytes()).unwrap();
        let other = linker_command.for_processor("gfx90a", "gfx1100").unwrap();
        assert!(
            other.args.contains(&"-plugin-opt=mcpu=gfx1100".to_owned())
                && !other.args.iter().any(|arg| arg.contains("gfx90a"))
        );
        assert_eq!(
            other.for_processor("gfx1100", "gfx90a").unwrap(),
            linker_command
        );
        assert_eq!(linker_command.for_processor("gfx906", "gfx1100"), None);
        let twice = parse(text.replace("dwo_dir", "gfx90a").as_bytes()).unwrap();
        assert_eq!(twice.for_processor("gfx90a", "gfx1100"), None);
    }

    #[test]
    fn a_query_has_placeholders_only() {
        let args: Vec<OsString> = ["-o", OUTPUT, "-dumpdir", "zaxpy.img.", INPUT]
            .map(OsString::from)
            .into();
        assert_eq!(
            query_args(&args),
            ["-###", "-o", OUTPUT, "-dumpdir", DUMP, INPUT]
        );
    }

    #[test]
    fn an_answer_is_cached_only_if_the_probed_paths_are_unchanged() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::new(
            Store::open(&dir.path().join("cache"), 1 << 30).unwrap(),
        ));
        // Any program can stand in for the compiler.
        let path = Path::new("/bin/sh").canonicalize().unwrap();
        let asked = SystemTime::now() + std::time::Duration::from_secs(3600);
        let question = Question {
            path,
            args: Vec::new(),
            environment: Digest::of(b"environment"),
            compiler: SharedTool::default(),
            asked,
        };
        let answer = || {
            let command = LinkerCommand {
                program: "/nowhere/ld.lld".into(),
                args: Vec::new(),
                warnings: String::new(),
            };
            Answer {
                command,
                stderr: String::new(),
                probed: question.probed(),
            }
        };
        let is_kept = || {
            let compiler = question.compiler.get().unwrap().as_ref().unwrap();
            cache
                .record(question.key(compiler, &question.probed()), Scope::Local)
                .is_some()
        };
        let mut of_another_moment = answer();
        of_another_moment.probed.digest = Digest::of(b"another");
        question.keep(&cache, of_another_moment);
        assert!(!is_kept());
        question.keep(&cache, answer());
        assert!(is_kept());
    }

    #[test]
    fn one_answer_serves_all_architectures_not_named_by_the_triple() {
        for (triple, arch, asked) in [
            ("amdgcn-amd-amdhsa", "gfx908", QUERIED_AMD_ARCH),
            ("amdgpu-amd-amdhsa", "gfx908", QUERIED_AMD_ARCH),
            ("amdgpu9.08-amd-amdhsa", "gfx908", "gfx908"),
            ("amdgpu9.08-amd-amdhsa", "", ""),
            ("amdgcn-amd-amdhsa", "gfx90a:xnack+", "gfx90a:xnack+"),
            ("amdgcn-amd-amdhsa", "", ""),
        ] {
            assert_eq!(
                queried_arch(&Target::new(triple, arch)),
                asked,
                "{triple} {arch}"
            );
        }
    }
}
