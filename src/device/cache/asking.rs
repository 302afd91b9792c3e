//! How the compiler is asked for a linker's line: once for all jobs with the same question, and not at all when the answer is kept and
//! nothing has changed that it looks at.

use std::ffi::OsString;
use std::path::Path;
use std::sync::{Arc, PoisonError};
use std::time::SystemTime;

use super::recipe::{self, Recipe};
use super::surroundings::{self, Surroundings};
use super::tool::{self, Tool};
use super::{DeviceCache, Question};
use crate::cache::{Digest, Parts};
use crate::run;
use crate::session::{self, Session};

/// The processor that is asked for in place of any other of AMD's.
const STANDS_FOR_AMD: &str = "gfx90a";

impl DeviceCache<'_> {
    /// The linker's line for `question`, or why there is none.
    pub(super) fn recipe(&self, question: &Question<'_>) -> Result<Recipe, String> {
        let path = &question.cmd.program;
        tool::check_clang(path)?;
        let target = &question.job.target;
        if !target.is_cpu() && !target.is_amdgcn() {
            return Err(format!("the linker for {} does not say which files it has read", target.triple));
        }
        let question_for = |processor: &str| -> Vec<OsString> {
            let named = OsString::from(format!("-mcpu={}", target.arch));
            let other = OsString::from(format!("-mcpu={processor}"));
            let words = recipe::question(question.args).into_iter();
            words.map(|word| if word == named { other.clone() } else { word }).collect()
        };
        // The processor's name is all that AMD's lines differ in, unless features are told with it.
        let asked_for = if target.is_amdgcn() && !target.arch.contains(':') { STANDS_FOR_AMD } else { &target.arch };
        let args = question_for(asked_for);
        let recipe = self.asked(path, &args, target.is_cpu())?;
        if asked_for == target.arch {
            return Ok(recipe);
        }
        match recipe.for_processor(asked_for, &target.arch) {
            Some(recipe) => Ok(recipe),
            None => self.asked(path, &question_for(&target.arch), false),
        }
    }

    /// The compiler's answer to `args`, kept or asked for. Jobs with the same question wait for one answer.
    fn asked(&self, path: &Path, args: &[OsString], for_cpu: bool) -> Result<Recipe, String> {
        let answer = {
            let mut answers = self.answers.lock().unwrap_or_else(PoisonError::into_inner);
            Arc::clone(answers.entry(args.to_vec()).or_default())
        };
        let mut answer = answer.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = answer.as_ref() {
            return known.clone();
        }
        let now = SystemTime::now();
        // Of a compiler that is not told yet nothing is known: it can be asked meanwhile.
        let (surroundings, told) = if let Some(Ok(compiler)) = self.slot(path).get() {
            let surroundings = surroundings::of(path, args, now);
            let kept = self.cache.own_record(self.recipe_key(path, compiler, &surroundings, args));
            if let Some(Ok(recipe)) = kept.map(|kept| serde_json::from_slice::<Recipe>(&kept)) {
                return answer.insert(Ok(recipe)).clone();
            }
            if for_cpu {
                self.expect_linker();
            }
            (surroundings, ask(path, args))
        } else {
            std::thread::scope(|scope| {
                let asked = scope.spawn(|| ask(path, args));
                if for_cpu {
                    self.expect_linker();
                }
                let surroundings = surroundings::of(path, args, now);
                (surroundings, asked.join().unwrap_or_else(|_| Err("the compiler cannot be asked".to_owned())))
            })
        };
        let told = self.tool(path).and_then(|compiler| Ok((compiler, told?)));
        if let (Ok((compiler, recipe)), true) = (&told, surroundings.at_rest)
            && compiler.still(now).is_ok()
            && let Ok(text) = serde_json::to_vec(recipe)
        {
            let (cache, key) = (Arc::clone(self.cache), self.recipe_key(path, compiler, &surroundings, args));
            self.cache.later(move || cache.put_own_record(key, &text));
        }
        answer.insert(told.map(|(_, recipe)| recipe)).clone()
    }

    fn recipe_key(&self, path: &Path, compiler: &Tool, surroundings: &Surroundings, args: &[OsString]) -> Digest {
        let mut parts = Parts::default();
        parts.add("recipe 1").add(compiler.digest.to_string()).add(path.as_os_str().as_encoded_bytes());
        parts.add(self.environment.to_string()).add(Session::env(session::PATH).unwrap_or_default().as_encoded_bytes());
        parts.add(std::env::current_dir().unwrap_or_default().as_os_str().as_encoded_bytes());
        parts.add(surroundings.digest.to_string());
        args.iter().for_each(|arg| {
            parts.add(arg.as_encoded_bytes());
        });
        parts.digest()
    }
}

/// It takes no slot of a jobserver: whoever waits for this answer may have one.
fn ask(path: &Path, args: &[OsString]) -> Result<Recipe, String> {
    match run::ask(path, args, &[]) {
        Ok(told) if told.success => recipe::answer(&told.stderr),
        Ok(_) => Err("the compiler does not say what it would run".to_owned()),
        Err(error) => Err(format!("{}: {error}", path.display())),
    }
}
