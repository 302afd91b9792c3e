//! Queries the compiler for the linker's command line: once for all jobs with the same query, and not at all if the answer is
//! cached and nothing has changed that the compiler looks at.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::driver_files;
use super::driver_probe_paths::{self, DriverProbePaths};
use super::linker_command::{self, LinkerCommand};
use super::reads::Reads;
use super::tool::{self, Tool};
use super::{DeviceCache, LinkQuery};
use crate::store::{Digest, KeyBuilder};
use crate::sys::run;
use crate::sys::session::{self, Session};
use crate::sys::threads;
use crate::target::Target;

/// The processor that is put into queries in place of any other of AMD's, so that one answer serves all of them.
const STANDS_FOR_AMD: &str = "gfx90a";

/// A compiler's answer as it is kept.
#[derive(Serialize, Deserialize)]
struct KnownCommand {
    command: LinkerCommand,
    reads: Reads,
}

impl DeviceCache<'_> {
    /// The linker's command for `query`, or why it cannot be determined.
    pub(super) fn linker_command(&self, query: &LinkQuery<'_>) -> Result<LinkerCommand, String> {
        let path = &query.cmd.program;
        tool::check_clang(path)?;
        let target = &query.job.target;
        if !target.is_cpu() && !target.is_amdgcn() {
            return Err(format!("the linker for {} does not list the files that it reads", target.triple));
        }
        let query_for = |processor: &str| -> Vec<OsString> {
            let named = OsString::from(format!("-mcpu={}", target.arch));
            let other = OsString::from(format!("-mcpu={processor}"));
            let args = linker_command::query(query.args).into_iter();
            args.map(|arg| if arg == named { other.clone() } else { arg }).collect()
        };
        let queried_processor = queried_processor(target);
        let args = query_for(queried_processor);
        let linker_command = self.linker_command_for(path, &args, target.is_cpu())?;
        if queried_processor == target.arch {
            return Ok(linker_command);
        }
        match linker_command.for_processor(queried_processor, &target.arch) {
            Some(linker_command) => Ok(linker_command),
            None => self.linker_command_for(path, &query_for(&target.arch), false),
        }
    }

    /// The compiler's answer to the query `args`, from the cache or by running it. Jobs with the same query wait for one answer.
    fn linker_command_for(&self, path: &Path, args: &[OsString], for_cpu: bool) -> Result<LinkerCommand, String> {
        let answer = {
            let mut commands = self.linker_commands.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(commands.entry(args.to_vec()).or_default())
        };
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(command) = answer.as_ref() {
            return command.clone();
        }
        let now = self.cache.clock().now();
        // A cached answer can be looked up only once the compiler's identity is known; until then, it is queried at the same time.
        let (driver_probe_paths, outcome) = if let Some(Ok(compiler)) = self.shared_tool(path).get() {
            let driver_probe_paths = driver_probe_paths::of(path, args, now);
            if let Some(linker_command) = self.known(self.linker_command_key(path, compiler, &driver_probe_paths, args), now) {
                return answer.insert(Ok(linker_command)).clone();
            }
            if for_cpu {
                self.preload_linker();
            }
            (driver_probe_paths, run_query(path, args))
        } else {
            let look = || {
                if for_cpu {
                    self.preload_linker();
                }
                driver_probe_paths::of(path, args, now)
            };
            threads::both(look, || run_query(path, args))
        };
        let outcome = self.tool(path).and_then(|compiler| Ok((compiler, outcome?)));
        if let (Ok((compiler, (command, said))), true) = (&outcome, driver_probe_paths.settled)
            && compiler.verify_unchanged(now).is_ok()
            && let Ok(reads) = driver_files::of(path, args, said, &command.program, now)
        {
            let key = self.linker_command_key(path, compiler, &driver_probe_paths, args);
            self.keep(key, &KnownCommand { command: command.clone(), reads });
        }
        answer.insert(outcome.map(|(_, (linker_command, _))| linker_command)).clone()
    }

    /// The answer that is kept under `key`, if the files are what they were that the compiler read for it.
    fn known(&self, key: Digest, now: SystemTime) -> Option<LinkerCommand> {
        let mut known: KnownCommand = serde_json::from_slice(&self.cache.own_record(key)?).ok()?;
        if known.reads.revalidate(now).ok()? {
            self.keep(key, &known);
        }
        Some(known.command)
    }

    fn keep(&self, key: Digest, known: &KnownCommand) {
        if let Ok(text) = serde_json::to_vec(known) {
            let cache = Arc::clone(self.cache);
            self.cache.later(move || cache.put_own_record(key, &text));
        }
    }

    fn linker_command_key(
        &self,
        path: &Path,
        compiler: &Tool,
        driver_probe_paths: &DriverProbePaths,
        args: &[OsString],
    ) -> Digest {
        let mut key = KeyBuilder::default();
        key.add("linker_command 2").add(compiler.digest.to_string()).add(path.as_os_str().as_encoded_bytes());
        key.add(self.environment.to_string()).add(Session::env(session::PATH).unwrap_or_default().as_encoded_bytes());
        // The user's own configuration files are below it.
        key.add(Session::env(session::HOME).unwrap_or_default().as_encoded_bytes());
        key.add(std::env::current_dir().unwrap_or_default().as_os_str().as_encoded_bytes());
        key.add(driver_probe_paths.digest.to_string());
        args.iter().for_each(|arg| {
            key.add(arg.as_encoded_bytes());
        });
        key.digest()
    }
}

/// The processor in a query for `target`. AMD's command lines differ in nothing but the processor's name, unless the target has
/// features as well. A triple that names a processor takes no other one.
fn queried_processor(target: &Target) -> &str {
    let by_name = target.is_amdgcn() && !target.arch.is_empty() && !target.arch.contains(':') && !target.triple_names_processor();
    if by_name { STANDS_FOR_AMD } else { &target.arch }
}

/// Runs the query; returns the answer, and all that the compiler has said. It takes no job slot, because a job that waits for the
/// answer may hold the last one.
fn run_query(path: &Path, args: &[OsString]) -> Result<(LinkerCommand, String), String> {
    match run::probe(path, args, &[]) {
        Ok(output) if output.success => {
            Ok((linker_command::parse(&output.stderr)?, String::from_utf8_lossy(&output.stderr).into_owned()))
        }
        Ok(_) => Err("the compiler fails when it is run with -###".to_owned()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_answer_serves_all_processors_that_the_triple_does_not_name() {
        for (triple, arch, asked) in [
            ("amdgcn-amd-amdhsa", "gfx908", STANDS_FOR_AMD),
            ("amdgpu-amd-amdhsa", "gfx908", STANDS_FOR_AMD),
            ("amdgpu9.08-amd-amdhsa", "gfx908", "gfx908"),
            ("amdgpu9.08-amd-amdhsa", "", ""),
            ("amdgcn-amd-amdhsa", "gfx90a:xnack+", "gfx90a:xnack+"),
            ("amdgcn-amd-amdhsa", "", ""),
        ] {
            assert_eq!(queried_processor(&Target::new(triple, arch)), asked, "{triple} {arch}");
        }
    }
}
