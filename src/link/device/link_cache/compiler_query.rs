//! Queries the compiler for the linker's arguments: once for all jobs with the same query.
//!
//! A cached answer is used while everything that the compiler looks at is unchanged.

use std::ffi::OsString;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::driver_files;
use super::driver_probe_paths::{self, DriverProbePaths};
use super::linker_args::Linker;
use super::linker_command::{self, LinkerCommand};
use super::nvidia;
use super::reads::Reads;
use super::tool::{self, Tool};
use super::{DeviceCache, LinkQuery, SharedTool};
use crate::store::{Cache, Digest, Key, KeyBuilder, Scope};
use crate::sys::run::Probe;
use crate::sys::session::{self, Session};
use crate::sys::threads::lock;
use crate::target::Target;

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
            let args = linker_command::query(query.args).into_iter();
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
        let command = linker_command::parse(&output.stderr)?;
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
            Session::env(session::PATH)
                .unwrap_or_default()
                .as_encoded_bytes(),
        );
        // The user's configuration files are below `HOME`.
        key.add(
            Session::env(session::HOME)
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
        driver_probe_paths::of(&self.path, &self.args, self.asked)
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
    use super::*;
    use crate::store::Store;

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
