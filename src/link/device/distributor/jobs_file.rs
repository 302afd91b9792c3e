//! The file in which ld.lld describes the jobs of a ThinLTO link (LLVM's DTLTO): the compiler with the words that all jobs have in common,
//! and for each job its own words, what it reads, and what it writes. What else is in it is ignored.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The word by which a compiler gets the summary index of a unit: which functions of which other units it imports, and what is known of
/// them.
const INDEX: &str = "-fthinlto-index=";
/// What a compiler takes besides what grows with its unit.
const BASE_MEMORY: u64 = 96 << 20;
/// What it takes for each byte of bitcode.
const MEMORY_OF_BITCODE: u64 = 75;

/// The whole file.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct JobsFile {
    common: Common,
    /// The jobs.
    pub(super) jobs: Vec<BackendJob>,
}

/// What all jobs have in common.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Common {
    /// What is linked.
    linker_output: String,
    /// The compiler, and its first words.
    args: Vec<String>,
    /// Files that all jobs read: profiles.
    #[serde(default)]
    inputs: Vec<String>,
}

/// One job: a unit becomes an object.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct BackendJob {
    /// The compiler's further words.
    args: Vec<String>,
    /// The files that it reads: the unit, its index, the units that it imports from.
    pub(super) inputs: Vec<String>,
    /// The files that it writes: the object.
    pub(super) outputs: Vec<String>,
}

impl JobsFile {
    /// Reads the file at `path`.
    pub(super) fn read(path: &Path) -> Result<JobsFile> {
        let bytes = std::fs::read(path).with_context(|| format!("cannot read the list of jobs `{}`", path.display()))?;
        serde_json::from_slice(&bytes)
            .with_context(|| format!("`{}` is no list of ThinLTO jobs as ld.lld writes it", path.display()))
    }

    /// The compiler.
    pub(super) fn program(&self) -> Result<&str> {
        match self.common.args.first() {
            Some(program) => Ok(program),
            None => bail!("the list of ThinLTO jobs names no compiler"),
        }
    }

    /// What is linked.
    pub(super) fn linker_output(&self) -> &Path {
        Path::new(&self.common.linker_output)
    }

    /// The compiler's words for `job`.
    pub(super) fn words<'f>(&'f self, job: &'f BackendJob) -> impl Iterator<Item = &'f str> {
        self.common.args.iter().skip(1).chain(&job.args).map(String::as_str)
    }

    /// The files that all jobs read.
    pub(super) fn common_inputs(&self) -> &[String] {
        &self.common.inputs
    }
}

impl BackendJob {
    /// The object that it writes, if that is all it writes.
    pub(super) fn output(&self) -> Option<&str> {
        match &self.outputs[..] {
            [output] => Some(output),
            _ => None,
        }
    }

    /// The name of the unit, for job lists.
    pub(super) fn name(&self) -> String {
        let stem = self.inputs.first().and_then(|input| Path::new(input).file_stem());
        stem.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// Its summary index.
    pub(super) fn index(&self) -> Option<&str> {
        self.args.iter().find_map(|word| word.strip_prefix(INDEX))
    }

    /// How many bytes it reads, as far as that can be known.
    pub(super) fn size(&self) -> u64 {
        self.inputs.iter().filter_map(|input| std::fs::metadata(input).ok()).map(|meta| meta.len()).sum()
    }

    /// How much memory it takes, by an estimate.
    pub(super) fn memory(&self) -> u64 {
        BASE_MEMORY.saturating_add(MEMORY_OF_BITCODE.saturating_mul(self.size()))
    }

    #[cfg(test)]
    pub(super) fn for_tests(args: &[&str], inputs: &[&str], output: &str) -> BackendJob {
        let all = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        BackendJob { args: all(args), inputs: all(inputs), outputs: vec![output.to_owned()] }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As ld.lld 22 writes it.
    const TEXT: &str = r#"{"common":{"linker_output":"/t/x.img","args":["/c/clang","-c","-O2"],"inputs":[]},"jobs":[
        {"args":["/t/a.o","-fthinlto-index=/t/a.1.9.native.o.thinlto.bc","-o","/t/a.1.9.native.o"],
         "inputs":["/t/a.o","/t/a.1.9.native.o.thinlto.bc","/t/b.o"],"outputs":["/t/a.1.9.native.o"]}]}"#;

    #[test]
    fn a_list_of_lld_is_read() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.json");
        std::fs::write(&path, TEXT).unwrap();
        let file = JobsFile::read(&path).unwrap();
        let job = &file.jobs[0];
        assert_eq!((file.program().unwrap(), job.output()), ("/c/clang", Some("/t/a.1.9.native.o")));
        assert_eq!(job.index(), Some("/t/a.1.9.native.o.thinlto.bc"));
        let words: Vec<&str> = file.words(job).collect();
        assert_eq!(words[..3], ["-c", "-O2", "/t/a.o"]);
        assert_eq!(job.inputs.len(), 3);
    }

    #[test]
    fn what_is_no_such_list_is_told() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.json");
        let error = JobsFile::read(&path).unwrap_err();
        assert!(error.to_string().starts_with("cannot read the list of jobs `/"), "{error}");
        for end in [0, 1, 40, TEXT.len() - 1] {
            std::fs::write(&path, &TEXT[..end]).unwrap();
            let error = JobsFile::read(&path).unwrap_err();
            assert!(error.to_string().ends_with("is no list of ThinLTO jobs as ld.lld writes it"), "{error}");
        }
        std::fs::write(&path, r#"{"common":{"linker_output":"","args":[]},"jobs":[]}"#).unwrap();
        assert!(JobsFile::read(&path).unwrap().program().is_err());
    }
}
