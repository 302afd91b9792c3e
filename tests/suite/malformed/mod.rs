//! Damaged files, each given to every tool that reads its format. The tool's error is one line with
//! the file, the offset and the defect. It leaves no output and no temporary file, needs little
//! memory whatever sizes the file claims, and does not hang.

pub(crate) mod mutations;
mod rows;
mod samples;

use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use crate::support::{Outcome, Work, made, offld, output, passed, shown, text, with_llvm};
use rows::Row;

/// A tool that reads files.
#[derive(Clone, Copy)]
pub(crate) enum Reader {
    /// The bundler, listing files of this type.
    List(&'static str),
    /// The bundler, extracting one target from files of this type.
    Unbundle(&'static str),
    /// The packager, extracting all images.
    Extract,
    /// `llvm-offload-wrapper`, for this kind.
    Wrap(&'static str),
    /// `offld inspect`.
    Inspect,
    /// `clang-linker-wrapper`, with the file as an input.
    Link,
}

/// The expected result of a tool for a file.
#[derive(Clone, Copy)]
pub(crate) enum Verdict {
    /// An error that contains this text.
    Bad(&'static str),
    /// Success, with this output.
    Good(&'static str),
    /// An error without an offset, because the input never ends.
    Endless,
}

/// The target that the tests extract from bundles.
pub(crate) const TARGET: &str = "hip-amdgcn-amd-amdhsa--gfx906:xnack+";
/// The limit on a tool's data segment in KiB: the tool's own use, and the use for files of any
/// size.
const MEMORY: &str = "163840";
/// Enough time even on a loaded machine.
const LONGEST: Duration = Duration::from_secs(20);

/// One test for each row.
pub(crate) fn trials() -> Vec<Trial> {
    rows::ROWS
        .iter()
        .map(|row| with_llvm(&format!("malformed::{}", row.name), move || check(row)))
        .chain(mutations::trials())
        .collect()
}

fn check(row: &Row) -> Outcome {
    let bytes = (row.make)(samples::samples()?)?;
    for (reader, verdict) in row.verdicts {
        let work = Work::new();
        work.file(row.file, &bytes);
        let mut command = reader.command(&work, row.file);
        let start = Instant::now();
        let output = output(&mut command)?;
        let result = judge(*reader, *verdict, row.file, &output)
            .and_then(|()| leftovers(&work, *verdict, row.file));
        result.map_err(|why| {
            format!(
                "{}\n{}",
                why.message().unwrap_or_default(),
                shown(&command, &output)
            )
        })?;
        if start.elapsed() > LONGEST {
            return Err(format!("took {:?}: {command:?}", start.elapsed()).into());
        }
    }
    passed()
}

/// Starts `tool`, `offld` or one of its other names, with limited memory.
fn limited(work: &Work, tool: &str) -> Command {
    let tool = if tool == "offld" {
        offld()
    } else {
        made().links.join(tool)
    };
    let mut command = work.command("/bin/sh");
    command
        .args([
            "-c",
            &format!("ulimit -d {MEMORY} || exit 99; exec \"$0\" \"$@\""),
        ])
        .arg(tool)
        .env("RAYON_NUM_THREADS", "2");
    command
}

impl Reader {
    fn command(self, work: &Work, file: &str) -> Command {
        let (tool, words): (&str, Vec<String>) = match self {
            Reader::List(kind) => (
                "clang-offload-bundler",
                vec![
                    format!("-type={kind}"),
                    "-list".into(),
                    format!("-input={file}"),
                ],
            ),
            Reader::Unbundle(kind) => {
                let rest = [
                    format!("-input={file}"),
                    format!("-targets={TARGET}"),
                    "-output=out".into(),
                ];
                (
                    "clang-offload-bundler",
                    [
                        vec![format!("-type={kind}"), "-unbundle".into()],
                        rest.to_vec(),
                    ]
                    .concat(),
                )
            }
            Reader::Extract => ("llvm-offload-binary", vec![file.into()]),
            Reader::Wrap(kind) => {
                let rest =
                    ["--triple=x86_64-unknown-linux-gnu", "-o", "out.bc", file].map(String::from);
                (
                    "llvm-offload-wrapper",
                    [vec![format!("--kind={kind}")], rest.to_vec()].concat(),
                )
            }
            Reader::Inspect => ("offld", vec!["inspect".into(), file.into()]),
            Reader::Link => {
                let rest = [
                    "--host-triple=x86_64-unknown-linux-gnu",
                    "--linker-path=/bin/true",
                    "-o",
                    "out",
                    file,
                ];
                ("clang-linker-wrapper", rest.map(String::from).to_vec())
            }
        };
        let mut command = limited(work, tool);
        command.args(words);
        command
    }

    /// The exit status for a rejected file. That of `offld inspect` depends on the kind of error.
    fn refusal(self) -> i32 {
        if matches!(self, Reader::Inspect) {
            2
        } else {
            1
        }
    }
}

fn judge(reader: Reader, verdict: Verdict, file: &str, output: &Output) -> Result<(), Failed> {
    let (stdout, stderr) = (text(&output.stdout), text(&output.stderr));
    let told = |holds: bool, what: &str| {
        if holds {
            Ok(())
        } else {
            Err(Failed::from(what.to_owned()))
        }
    };
    match verdict {
        Verdict::Bad(words) => {
            told(
                output.status.code() == Some(reader.refusal()),
                "another exit status was expected",
            )?;
            told(
                stderr.lines().count() == 1,
                "one line was expected on stderr",
            )?;
            told(
                stderr.contains(": error: "),
                "an error was expected on stderr",
            )?;
            told(stderr.contains(file), "the error does not name the file")?;
            told(
                stderr.contains(words),
                &format!("the error does not say `{words}`"),
            )?;
            // For a defect in an object's headers, the only location is the object itself.
            let place = ["+0x", "offset 0x", "bytes)"]
                .iter()
                .any(|place| stderr.contains(place));
            told(place, "the error does not say where")
        }
        Verdict::Endless => {
            told(
                output.status.code() == Some(reader.refusal()),
                "another exit status was expected",
            )?;
            told(
                stderr.contains(": error: ") && stderr.contains(file),
                "an error that names the file was expected",
            )?;
            told(
                stderr.len() < 1 << 20,
                "an error was repeated again and again",
            )
        }
        Verdict::Good(words) => {
            told(output.status.code() == Some(0), "success was expected")?;
            told(
                stdout.contains(words) || stderr.contains(words),
                &format!("`{words}` is not printed"),
            )
        }
    }
}

/// A failure leaves only the input. No run leaves temporary files.
fn leftovers(work: &Work, verdict: Verdict, file: &str) -> Result<(), Failed> {
    work.expect_no_temps()?;
    let all = std::fs::read_dir(work.path())?
        .map(|entry| entry.map(|entry| entry.file_name()))
        .collect::<Result<Vec<_>, _>>()?;
    let left: Vec<_> = all
        .into_iter()
        .filter(|name| name != "tmp" && Path::new(name) != Path::new(file))
        .collect();
    if matches!(verdict, Verdict::Good(_)) || left.is_empty() {
        Ok(())
    } else {
        Err(format!("left behind: {left:?}").into())
    }
}
