//! How the compiler is asked for a linker's line: once for all jobs with the same query, and not at all when the answer is kept and
//! nothing has changed that it looks at.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, PoisonError};

use super::driver_probe_paths::{self, Surroundings};
use super::linker_command::{self, LinkerCommand};
use super::tool::{self, Tool};
use super::{DeviceCache, LinkQuery};
use crate::store::{Digest, KeyBuilder};
use crate::sys::run;
use crate::sys::session::{self, Session};

/// The processor that is asked for in place of any other of AMD's.
const STANDS_FOR_AMD: &str = "gfx90a";

impl DeviceCache<'_> {
    /// The linker's line for `query`, or why there is none.
    pub(super) fn linker_command(&self, query: &LinkQuery<'_>) -> Result<LinkerCommand, String> {
        let path = &query.cmd.program;
        tool::check_clang(path)?;
        let target = &query.job.target;
        if !target.is_cpu() && !target.is_amdgcn() {
            return Err(format!("the linker for {} does not say which files it has read", target.triple));
        }
        let question_for = |processor: &str| -> Vec<OsString> {
            let named = OsString::from(format!("-mcpu={}", target.arch));
            let other = OsString::from(format!("-mcpu={processor}"));
            let words = linker_command::query(query.args).into_iter();
            words.map(|word| if word == named { other.clone() } else { word }).collect()
        };
        // The processor's name is all that AMD's lines differ in, unless features are told with it.
        let asked_for = if target.is_amdgcn() && !target.arch.contains(':') { STANDS_FOR_AMD } else { &target.arch };
        let args = question_for(asked_for);
        let linker_command = self.asked(path, &args, target.is_cpu())?;
        if asked_for == target.arch {
            return Ok(linker_command);
        }
        match linker_command.for_processor(asked_for, &target.arch) {
            Some(linker_command) => Ok(linker_command),
            None => self.asked(path, &question_for(&target.arch), false),
        }
    }

    /// The compiler's answer to `args`, kept or asked for. Jobs with the same query wait for one answer.
    fn asked(&self, path: &Path, args: &[OsString], for_cpu: bool) -> Result<LinkerCommand, String> {
        let answer = {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(answers.entry(args.to_vec()).or_default())
        };
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = answer.as_ref() {
            return known.clone();
        }
        let now = self.cache.clock().now();
        // Of a compiler that is not told yet nothing is known: it can be asked meanwhile.
        let (driver_probe_paths, told) = if let Some(Ok(compiler)) = self.slot(path).get() {
            let driver_probe_paths = driver_probe_paths::of(path, args, now);
            let kept = self.cache.own_record(self.recipe_key(path, compiler, &driver_probe_paths, args));
            if let Some(Ok(linker_command)) = kept.map(|kept| serde_json::from_slice::<LinkerCommand>(&kept)) {
                return answer.insert(Ok(linker_command)).clone();
            }
            if for_cpu {
                self.expect_linker();
            }
            (driver_probe_paths, ask(path, args))
        } else {
            std::thread::scope(|scope| {
                let asked = scope.spawn(|| ask(path, args));
                if for_cpu {
                    self.expect_linker();
                }
                let driver_probe_paths = driver_probe_paths::of(path, args, now);
                (driver_probe_paths, asked.join().unwrap_or_else(|_| Err("the compiler cannot be asked".to_owned())))
            })
        };
        let told = self.tool(path).and_then(|compiler| Ok((compiler, told?)));
        if let (Ok((compiler, linker_command)), true) = (&told, driver_probe_paths.at_rest)
            && compiler.still(now).is_ok()
            && let Ok(text) = serde_json::to_vec(linker_command)
        {
            let (cache, key) = (Arc::clone(self.cache), self.recipe_key(path, compiler, &driver_probe_paths, args));
            self.cache.later(move || cache.put_own_record(key, &text));
        }
        answer.insert(told.map(|(_, linker_command)| linker_command)).clone()
    }

    fn recipe_key(&self, path: &Path, compiler: &Tool, driver_probe_paths: &Surroundings, args: &[OsString]) -> Digest {
        let mut parts = KeyBuilder::default();
        parts.add("linker_command 1").add(compiler.digest.to_string()).add(path.as_os_str().as_encoded_bytes());
        parts.add(self.environment.to_string()).add(Session::env(session::PATH).unwrap_or_default().as_encoded_bytes());
        parts.add(std::env::current_dir().unwrap_or_default().as_os_str().as_encoded_bytes());
        parts.add(driver_probe_paths.digest.to_string());
        args.iter().for_each(|arg| {
            parts.add(arg.as_encoded_bytes());
        });
        parts.digest()
    }
}

/// It takes no slot of a jobserver: whoever waits for this answer may have one.
fn ask(path: &Path, args: &[OsString]) -> Result<LinkerCommand, String> {
    match run::ask(path, args, &[]) {
        Ok(told) if told.success => linker_command::answer(&told.stderr),
        Ok(_) => Err("the compiler does not say what it would run".to_owned()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}
