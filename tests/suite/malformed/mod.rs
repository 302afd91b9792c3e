//! Damaged files, each given to every tool that reads its kind. A tool says in one line which file is wrong,
//! where and how; it leaves no output and no temporary file, needs little memory whatever the file claims, and does not hang.

mod rows;
mod samples;

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use crate::support::{Outcome, Work, made, output, passed, shown, text, with_llvm};
use rows::Row;

/// A tool that reads files.
#[derive(Clone, Copy)]
pub(crate) enum Reader {
    /// The bundler, listing files of this type.
    List(&'static str),
    /// The bundler, taking one target out of files of this type.
    Unbundle(&'static str),
    /// The packager, extracting all.
    Extract,
    /// `llvm-offload-wrapper`, for this kind.
    Wrap(&'static str),
    /// `offld inspect`.
    Inspect,
    /// `clang-linker-wrapper`, with the file among its inputs.
    Link,
}

/// What a tool makes of a file.
#[derive(Clone, Copy)]
pub(crate) enum Verdict {
    /// It is refused, with these words.
    Bad(&'static str),
    /// It is taken as it is; this is printed.
    Good(&'static str),
    /// It goes on without an end, and is refused for that, which has no place.
    Endless,
}

/// The target that is taken out of bundles.
pub(crate) const TARGET: &str = "hip-amdgcn-amd-amdhsa--gfx906:xnack+";
/// How much private memory a tool may use, in KiB: what it needs for files of any size, and what the program itself takes.
const MEMORY: &str = "163840";
/// A loaded machine is slow, but not this slow.
const LONGEST: Duration = Duration::from_secs(20);

/// A test for each row.
pub(crate) fn trials() -> Vec<Trial> {
    rows::ROWS.iter().map(|row| with_llvm(&format!("malformed::{}", row.name), move || check(row))).collect()
}

fn check(row: &Row) -> Outcome {
    let bytes = (row.make)(samples::samples()?)?;
    for (reader, verdict) in row.verdicts {
        let work = Work::new();
        work.file(row.file, &bytes);
        let mut command = reader.command(&work, row.file);
        let start = Instant::now();
        let output = output(&mut command)?;
        let result = judge(*reader, *verdict, row.file, &output).and_then(|()| leftovers(&work, *verdict, row.file));
        result.map_err(|why| format!("{}\n{}", why.message().unwrap_or_default(), shown(&command, &output)))?;
        if start.elapsed() > LONGEST {
            return Err(format!("took {:?}: {command:?}", start.elapsed()).into());
        }
    }
    passed()
}

impl Reader {
    fn command(self, work: &Work, file: &str) -> Command {
        let (tool, words): (&str, Vec<String>) = match self {
            Reader::List(kind) => {
                ("clang-offload-bundler", vec![format!("-type={kind}"), "-list".into(), format!("-input={file}")])
            }
            Reader::Unbundle(kind) => {
                let rest = [format!("-input={file}"), format!("-targets={TARGET}"), "-output=out".into()];
                ("clang-offload-bundler", [vec![format!("-type={kind}"), "-unbundle".into()], rest.to_vec()].concat())
            }
            Reader::Extract => ("llvm-offload-binary", vec![file.into()]),
            Reader::Wrap(kind) => {
                let rest = ["--triple=x86_64-unknown-linux-gnu", "-o", "out.bc", file].map(String::from);
                ("llvm-offload-wrapper", [vec![format!("--kind={kind}")], rest.to_vec()].concat())
            }
            Reader::Inspect => ("offld", vec!["inspect".into(), file.into()]),
            Reader::Link => {
                let rest = ["--host-triple=x86_64-unknown-linux-gnu", "--linker-path=/bin/true", "-o", "out", file];
                ("clang-linker-wrapper", rest.map(String::from).to_vec())
            }
        };
        let tool = if tool == "offld" { crate::support::offld() } else { made().links.join(tool) };
        let mut command = work.command("/bin/sh");
        command.args(["-c", &format!("ulimit -d {MEMORY} || exit 99; exec \"$0\" \"$@\"")]).arg(tool).args(words);
        command.env("RAYON_NUM_THREADS", "2");
        command
    }

    /// The exit status for a file that is refused: that of `offld inspect` says what kind of trouble there was.
    fn refusal(self) -> i32 {
        if matches!(self, Reader::Inspect) { 2 } else { 1 }
    }
}

fn judge(reader: Reader, verdict: Verdict, file: &str, output: &Output) -> Result<(), Failed> {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let told = |holds: bool, what: &str| if holds { Ok(()) } else { Err(Failed::from(what.to_owned())) };
    match verdict {
        Verdict::Bad(words) => {
            told(output.status.code() == Some(reader.refusal()), "another exit status was expected")?;
            told(stderr.lines().count() == 1, "one line was expected on stderr")?;
            told(stderr.contains(": error: "), "an error was expected on stderr")?;
            told(stderr.contains(file), "the error does not name the file")?;
            told(stderr.contains(words), &format!("the error does not say `{words}`"))?;
            // What is wrong with the headers of a whole object has no place but the object.
            let place = ["+0x", "offset 0x", "bytes)"].iter().any(|place| stderr.contains(place));
            told(place, "the error does not say where")
        }
        Verdict::Endless => {
            told(output.status.code() == Some(reader.refusal()), "another exit status was expected")?;
            told(stderr.contains(": error: ") && stderr.contains(file), "an error that names the file was expected")?;
            told(stderr.len() < 1 << 20, "an error was repeated again and again")
        }
        Verdict::Good(words) => {
            told(output.status.code() == Some(0), "success was expected")?;
            told(stdout.contains(words) || stderr.contains(words), &format!("`{words}` is not printed"))
        }
    }
}

/// A failure leaves nothing but the input; nothing leaves temporary files.
fn leftovers(work: &Work, verdict: Verdict, file: &str) -> Result<(), Failed> {
    work.expect_no_temps()?;
    let all = std::fs::read_dir(work.path())?.map(|entry| entry.map(|entry| entry.file_name())).collect::<Result<Vec<_>, _>>()?;
    let left: Vec<_> = all.into_iter().filter(|name| name != "tmp" && Path::new(name) != Path::new(file)).collect();
    if matches!(verdict, Verdict::Good(_)) || left.is_empty() { Ok(()) } else { Err(format!("left behind: {left:?}").into()) }
}
