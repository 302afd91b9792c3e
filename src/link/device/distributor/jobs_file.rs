//! Parses the file in which ld.lld describes the jobs of a ThinLTO link (LLVM's DTLTO).
//!
//! It has the compiler and the arguments common to all jobs. Each job has its own arguments, inputs
//! and outputs. Other fields are ignored.

use std::path::Path;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

/// The argument with a unit's summary index. The index lists imported functions of other units, and
/// facts about them.
const INDEX: &str = "-fthinlto-index=";
/// Base memory of a compiler process, in bytes.
const BASE_MEMORY: u64 = 96 << 20;
/// Additional memory for each byte of bitcode.
const MEMORY_OF_BITCODE: u64 = 75;

/// The whole file.
#[derive(Debug, PartialEq, Eq, Deserialize)]
pub(super) struct JobsFile {
    common: Common,
    pub(super) jobs: Vec<BackendJob>,
}

/// Settings common to all jobs.
#[derive(Debug, PartialEq, Eq, Deserialize)]
struct Common {
    /// The output of the link.
    linker_output: String,
    /// The compiler and its first arguments.
    args: Vec<String>,
    /// Files that all jobs read, such as profiles.
    #[serde(default)]
    inputs: Vec<String>,
}

/// One job, which compiles a unit to an object.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
pub(super) struct BackendJob {
    /// The arguments after the common ones.
    args: Vec<String>,
    /// Input files: the unit, its index, and the units that it imports from.
    pub(super) inputs: Vec<String>,
    /// Output files: the object.
    pub(super) outputs: Vec<String>,
}

impl JobsFile {
    /// Reads and parses the file at `path`.
    pub(super) fn read(path: &Path) -> Result<JobsFile> {
        let bytes = std::fs::read(path)
            .with_context(|| format!("cannot read the list of jobs `{}`", path.display()))?;
        serde_json::from_slice(&bytes).with_context(|| {
            format!(
                "`{}` is not a list of ThinLTO jobs from ld.lld",
                path.display()
            )
        })
    }

    /// The path of the compiler.
    pub(super) fn program(&self) -> Result<&str> {
        match self.common.args.first() {
            Some(program) => Ok(program),
            None => bail!("the list of ThinLTO jobs names no compiler"),
        }
    }

    /// The output of the link.
    pub(super) fn linker_output(&self) -> &Path {
        Path::new(&self.common.linker_output)
    }

    /// The compiler's arguments for `job`.
    pub(super) fn words<'f>(&'f self, job: &'f BackendJob) -> impl Iterator<Item = &'f str> {
        self.common
            .args
            .iter()
            .skip(1)
            .chain(&job.args)
            .map(String::as_str)
    }

    pub(super) fn common_inputs(&self) -> &[String] {
        &self.common.inputs
    }
}

impl BackendJob {
    /// The object, if it is the only output.
    pub(super) fn output(&self) -> Option<&str> {
        match &self.outputs[..] {
            [output] => Some(output),
            _ => None,
        }
    }

    /// The unit's file name without its extension, for job lists.
    pub(super) fn name(&self) -> String {
        let stem = self
            .inputs
            .first()
            .and_then(|input| Path::new(input).file_stem());
        stem.unwrap_or_default().to_string_lossy().into_owned()
    }

    /// The path of the summary index.
    pub(super) fn index(&self) -> Option<&str> {
        self.args.iter().find_map(|word| word.strip_prefix(INDEX))
    }

    /// Total size of the inputs in bytes. Unreadable files count as empty.
    pub(super) fn size(&self) -> u64 {
        self.inputs
            .iter()
            .filter_map(|input| std::fs::metadata(input).ok())
            .map(|meta| meta.len())
            .sum()
    }

    /// Estimated peak memory in bytes.
    pub(super) fn memory(&self) -> u64 {
        BASE_MEMORY.saturating_add(MEMORY_OF_BITCODE.saturating_mul(self.size()))
    }

    #[cfg(test)]
    pub(super) fn for_tests(args: &[&str], inputs: &[&str], output: &str) -> BackendJob {
        let all = |words: &[&str]| words.iter().map(|word| (*word).to_owned()).collect();
        BackendJob {
            args: all(args),
            inputs: all(inputs),
            outputs: vec![output.to_owned()],
        }
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
        assert_eq!(
            (file.program().unwrap(), job.output()),
            ("/c/clang", Some("/t/a.1.9.native.o"))
        );
        assert_eq!(job.index(), Some("/t/a.1.9.native.o.thinlto.bc"));
        let words: Vec<&str> = file.words(job).collect();
        assert_eq!(words[..3], ["-c", "-O2", "/t/a.o"]);
        assert_eq!(job.inputs.len(), 3);
    }

    #[test]
    fn invalid_lists_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("jobs.json");
        let error = JobsFile::read(&path).unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot read the list of jobs `/"),
            "{error}"
        );
        for end in [0, 1, 40, TEXT.len() - 1] {
            std::fs::write(&path, &TEXT[..end]).unwrap();
            let error = JobsFile::read(&path).unwrap_err();
            assert!(
                error
                    .to_string()
                    .ends_with("is not a list of ThinLTO jobs from ld.lld"),
                "{error}"
            );
        }
        std::fs::write(
            &path,
            r#"{"common":{"linker_output":"","args":[]},"jobs":[]}"#,
        )
        .unwrap();
        assert!(JobsFile::read(&path).unwrap().program().is_err());
    }
}
