//! The jobs of a ThinLTO link, from the file in which ld.lld describes them (LLVM's DTLTO), and the
//! cache keys of their objects.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::super::link_cache::{Tool, digest_of_file};
use offld_system::store::{Digest, Key, KeyBuilder};
use offld_system::threads;
use offload_formats::bitstream::{self, Item, Record, Tail};

// Parses the file in which ld.lld describes the jobs of a ThinLTO link (LLVM's DTLTO).
//
// It has the compiler and the arguments common to all jobs. Each job has its own arguments, inputs
// and outputs. Other fields are ignored.

/// The argument with a unit's summary index. The index lists imported functions of other units, and
/// facts about them.
const INDEX: &str = "-fthinlto-index=";
/// Base memory of a compiler process, in bytes.
const BASE_MEMORY: u64 = 96 << 20;
/// Additional memory for each byte of bitcode.
const MEMORY_OF_BITCODE: u64 = 75;

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

// Cache keys for ThinLTO objects: the compiler, its arguments, the environment, and the contents
// of all inputs.
//
// File names are not part of the key, because most are in a temporary directory. In arguments,
// each file name is replaced by its role. The summary index names the units to import from. Each
// of those names is replaced by the unit's digest.

/// Prefix of the keys of units.
pub(super) const KIND: &str = "thinlto unit 1";
/// LLVM's ids of the block that lists units, and of its record with a unit's number and name.
const MODULE_STRTAB: u32 = 19;
const ENTRY: u64 = 1;

/// Key parts common to the units of one link, and the digests of all input files.
#[derive(Clone)]
pub(super) struct UnitKeys {
    tool: Arc<Tool>,
    environment: Digest,
    files: Arc<BTreeMap<String, Result<Digest, String>>>,
}

impl UnitKeys {
    /// Computes the digests for the jobs in `file`, whose compiler is `tool`.
    pub(super) fn new(tool: Tool, environment: Digest, file: &JobsFile) -> Self {
        let all = file
            .jobs
            .iter()
            .flat_map(|job| &job.inputs)
            .chain(file.common_inputs());
        let mut names: Vec<&String> = all.collect();
        names.sort_unstable();
        names.dedup();
        let digest = |at: usize| (names[at].clone(), digest(names[at]));
        let files = threads::run_indexed(names.len(), 0, digest)
            .into_iter()
            .collect();
        UnitKeys {
            tool: Arc::new(tool),
            environment,
            files: Arc::new(files),
        }
    }

    /// The files of the compiler.
    pub(super) fn tool_files(&self) -> impl Iterator<Item = PathBuf> {
        self.tool.files().map(PathBuf::from)
    }

    /// Returns the key of the object of `job`: `key`, extended by everything that the object
    /// depends on. Fails if the job does not have
    /// the form that ld.lld 22 writes, or if an input is unreadable.
    pub(super) fn of(
        &self,
        job: &BackendJob,
        file: &JobsFile,
        mut key: KeyBuilder,
    ) -> Result<Key, String> {
        let (Some(output), Some(index)) = (job.output(), job.index()) else {
            return Err("the job differs from those that ld.lld 22 writes".to_owned());
        };
        key.add(self.environment.bytes())
            .add(self.tool.digest.bytes());
        let words: Vec<String> = file
            .words(job)
            .map(|word| without_file_names(word, job, output))
            .collect();
        key.add((words.len() as u64).to_le_bytes());
        words.iter().for_each(|word| {
            key.add(word);
        });
        for input in file
            .common_inputs()
            .iter()
            .chain(job.inputs.iter().filter(|input| *input != index))
        {
            key.add(self.file(input)?.bytes());
        }
        let bytes = std::fs::read(index).map_err(|error| format!("{index}: {error}"))?;
        key.add(
            self.index(&bytes)
                .unwrap_or_else(|| Digest::of(&bytes))
                .bytes(),
        );
        Ok(key.key())
    }

    /// Fails if an input of `job` has changed. `begun`: a time before the first file was read.
    pub(super) fn verify_unchanged(
        &self,
        job: &BackendJob,
        begun: SystemTime,
    ) -> Result<(), String> {
        for input in &job.inputs {
            if digest(input).as_ref() != Ok(self.file(input)?) {
                return Err(format!("{input} has changed during the link"));
            }
        }
        self.tool.verify_unchanged(begun)
    }

    fn file(&self, name: &str) -> Result<&Digest, String> {
        self.files
            .get(name)
            .ok_or_else(|| format!("{name} is not in the list of jobs"))?
            .as_ref()
            .map_err(Clone::clone)
    }

    /// Returns the digest of a summary index with units identified by contents, or `None` if it
    /// cannot be parsed.
    fn index(&self, bytes: &[u8]) -> Option<Digest> {
        let stream = bitstream::read(bytes).ok()?;
        let mut key = KeyBuilder::default();
        self.add(&stream.items, None, &mut key);
        Some(key.digest())
    }

    fn add(&self, items: &[Item], block: Option<u32>, key: &mut KeyBuilder) {
        for item in items {
            match item {
                // The encoding of records does not matter.
                Item::Abbreviation(_) => {}
                Item::Block(inner) => {
                    key.add("block").add(inner.id.to_le_bytes());
                    self.add(&inner.items, Some(inner.id), key);
                    key.add("end");
                }
                Item::Unread(inner) => {
                    key.add("unread")
                        .add(inner.id.to_le_bytes())
                        .add(&inner.body);
                }
                Item::Record(record) => self.add_record(record, block, key),
            }
        }
    }

    fn add_record(&self, record: &Record, block: Option<u32>, key: &mut KeyBuilder) {
        let bytes_of = |values: &[u64]| {
            values
                .iter()
                .flat_map(|value| value.to_le_bytes())
                .collect::<Vec<u8>>()
        };
        let name_of = |name: &[u64]| {
            name.iter()
                .map(|byte| u8::try_from(*byte).ok())
                .collect::<Option<Vec<u8>>>()
        };
        if let (Some(MODULE_STRTAB), [ENTRY, number, name @ ..]) = (block, &record.values[..])
            && let Some(Ok(contents)) =
                name_of(name).and_then(|name| self.files.get(std::str::from_utf8(&name).ok()?))
        {
            key.add("unit")
                .add(number.to_le_bytes())
                .add(contents.bytes());
            return;
        }
        key.add("record").add(bytes_of(&record.values));
        if let Tail::Blob(bytes) = &record.tail {
            key.add("blob").add(bytes);
        }
    }
}

fn digest(name: &str) -> Result<Digest, String> {
    digest_of_file(Path::new(name)).map_err(|error| format!("{name}: {error}"))
}

/// Replaces a file name at the end of `word` by the file's role in the job.
fn without_file_names(word: &str, job: &BackendJob, output: &str) -> String {
    let inputs = job
        .inputs
        .iter()
        .enumerate()
        .map(|(at, input)| (input.as_str(), format!("<input {at}>")));
    for (name, what) in inputs.chain([(output, "<output>".to_owned())]) {
        if let Some(before) = word
            .strip_suffix(name)
            .filter(|before| before.is_empty() || before.ends_with('='))
        {
            return format!("{before}{what}");
        }
    }
    word.to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use offload_formats::bitstream::{Block, Stream};
    use offload_formats::compose::Part;

    fn record(values: Vec<u64>) -> Item {
        Item::Record(Record {
            abbreviation: None,
            values,
            tail: Tail::None,
        })
    }

    /// Builds an index that names `units`, with one more record.
    fn index(units: &[&str], more: u64) -> Vec<u8> {
        let entry = |(at, name): (usize, &&str)| {
            record(
                [1, at as u64]
                    .into_iter()
                    .chain(name.bytes().map(u64::from))
                    .collect(),
            )
        };
        let block = |id, items| {
            Item::Block(Block {
                id,
                width: 4,
                items,
                inherited: 0,
                was_at: 0,
            })
        };
        let names = block(MODULE_STRTAB, units.iter().enumerate().map(entry).collect());
        let written = bitstream::write(&Stream {
            items: vec![block(8, vec![names, record(vec![7, more])])],
        })
        .unwrap();
        let [Part::Bytes(bytes)] = &written.parts[..] else {
            panic!("not bytes")
        };
        bytes.to_vec()
    }

    fn keys(files: &[(&str, &str)]) -> UnitKeys {
        let tool = Tool::for_tests();
        let files = files
            .iter()
            .map(|(name, contents)| ((*name).to_owned(), Ok(Digest::of(contents.as_bytes()))))
            .collect();
        UnitKeys {
            tool: Arc::new(tool),
            environment: Digest::of(b""),
            files: Arc::new(files),
        }
    }

    #[test]
    fn an_index_is_identified_by_the_contents_of_its_units() {
        let one = keys(&[("/t/1/a.o", "a"), ("/t/1/b.o", "b")]);
        let other = keys(&[("/temporary/2/a.o", "a"), ("/temporary/2/b.o", "b")]);
        let of_one = one.index(&index(&["/t/1/a.o", "/t/1/b.o"], 3)).unwrap();
        assert_eq!(
            Some(of_one),
            other.index(&index(&["/temporary/2/a.o", "/temporary/2/b.o"], 3))
        );
        for (units, more) in [
            (&["/t/1/b.o", "/t/1/a.o"], 3),
            (&["/t/1/a.o", "/t/1/a.o"], 3),
            (&["/t/1/a.o", "/t/1/b.o"], 4),
        ] {
            assert_ne!(
                Some(of_one),
                one.index(&index(units, more)),
                "{units:?} {more}"
            );
        }
        let changed = keys(&[("/t/1/a.o", "a"), ("/t/1/b.o", "c")]);
        assert_ne!(
            Some(of_one),
            changed.index(&index(&["/t/1/a.o", "/t/1/b.o"], 3))
        );
        // A unit that is not an input is identified by its name.
        assert_ne!(
            one.index(&index(&["/t/1/c.o"], 3)),
            one.index(&index(&["/t/1/d.o"], 3))
        );
        assert_eq!(one.index(b"BC\xc0\xde garbage"), None);
    }

    #[test]
    fn file_names_are_replaced_in_arguments() {
        let job = BackendJob::for_tests(&[], &["/t/a.o", "/t/a.bc"], "/t/a.native.o");
        let all = [
            "/t/a.o",
            "-fthinlto-index=/t/a.bc",
            "/t/a.native.o",
            "-O2",
            "-profile=/t/else",
            "x/t/a.o",
        ];
        let without_file_names: Vec<String> = all
            .iter()
            .map(|word| without_file_names(word, &job, "/t/a.native.o"))
            .collect();
        assert_eq!(
            without_file_names,
            [
                "<input 0>",
                "-fthinlto-index=<input 1>",
                "<output>",
                "-O2",
                "-profile=/t/else",
                "x/t/a.o"
            ]
        );
    }

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
