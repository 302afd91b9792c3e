//! Bundling: several inputs into one output, streamed from file to file (docs/spec/containers.md 2.8, 2.9).

use std::io::{self, BufWriter, Read, Seek, Write};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};

use super::kinds::{Layout, layout};
use super::{Request, object, targets, verbose};
use crate::formats::bundle::{self, text};
use crate::formats::compressed::{Compressor, Header, Options};
use crate::formats::fat_object;
use crate::io::outputs::{Output, Outputs, trouble};
use crate::io::piece::Piece;
use crate::io::rope;
use crate::sys::session::Session;

/// Makes the bundle.
pub(super) fn run(request: &Request, session: &Session) -> Result<()> {
    let ids = targets::read(&request.targets, request.task)?;
    let inputs = request.inputs.iter().map(|path| Input::open(path)).collect::<Result<Vec<_>>>()?;
    let [output] = &request.outputs[..] else { bail!("only one output file supported in bundling mode") };
    if inputs.len() != ids.len() {
        bail!("number of input files and targets should match in bundling mode");
    }
    let parts: Vec<Part<'_>> =
        ids.iter().zip(&inputs).map(|(id, input)| Part { id: id.to_string(), is_host: id.kind == "host", input }).collect();
    let parts = &parts[..];
    match layout(&request.file_type)? {
        Layout::Text(comment) => write(request, session, output, &Plan::text(parts, comment)),
        Layout::Object => match reference_object(parts) {
            Some(host) => object::bundle(request, session, output, host, parts),
            None => write(request, session, output, &Plan::binary(parts, request.align)?),
        },
        Layout::Binary => write(request, session, output, &Plan::binary(parts, request.align)?),
        Layout::Archive => bail!("Archive files are only supported for unbundling"),
    }
}

/// A code object to be bundled.
pub(super) struct Part<'a> {
    /// Its id, as it is written.
    pub(super) id: String,
    /// Whether it is the host's.
    pub(super) is_host: bool,
    /// Its bytes.
    pub(super) input: &'a Input,
}

/// An input.
pub(super) struct Input {
    pub(super) path: PathBuf,
    pub(super) contents: Piece,
}

impl Input {
    fn open(path: &Path) -> Result<Input> {
        Ok(Input { path: path.to_owned(), contents: Piece::open_one_of_many(path)? })
    }
}

/// The host's code object, if it is an object. Without a host there is no object to put sections into: a binary bundle is made,
/// whatever the inputs are (docs/spec/faults.md B3).
fn reference_object<'a>(parts: &'a [Part<'a>]) -> Option<&'a Part<'a>> {
    let host = parts.iter().find(|part| part.is_host)?;
    fat_object::kind(host.input.contents.bytes()).map(|_| host)
}

/// What is written, in order.
struct Plan<'a> {
    steps: Vec<Step<'a>>,
    size: u64,
}

enum Step<'a> {
    Bytes(Vec<u8>),
    Input(&'a Piece),
    /// Zeros up to this place.
    PadTo(u64),
}

impl<'a> Plan<'a> {
    fn text(parts: &'a [Part<'a>], comment: &str) -> Plan<'a> {
        let mut plan = Plan { steps: Vec::new(), size: 0 };
        for part in parts {
            plan.bytes(text::start_marker(comment, &part.id).into_bytes());
            plan.input(&part.input.contents);
            plan.bytes(text::end_marker(comment, &part.id).into_bytes());
        }
        plan
    }

    fn binary(parts: &'a [Part<'a>], align: u32) -> Result<Plan<'a>> {
        let objects: Vec<(&str, u64)> = parts.iter().map(|part| (part.id.as_str(), part.input.contents.size())).collect();
        let frame = bundle::frame(&objects, align.into())?;
        let mut plan = Plan { steps: Vec::new(), size: 0 };
        plan.bytes(frame.head);
        for (part, offset) in parts.iter().zip(frame.offsets) {
            plan.steps.push(Step::PadTo(offset));
            plan.size = offset;
            plan.input(&part.input.contents);
        }
        Ok(plan)
    }

    fn bytes(&mut self, bytes: Vec<u8>) {
        self.size += bytes.len() as u64;
        self.steps.push(Step::Bytes(bytes));
    }

    fn input(&mut self, input: &'a Piece) {
        self.size += input.size();
        if input.size() > 0 {
            self.steps.push(Step::Input(input));
        }
    }
}

fn write(request: &Request, session: &Session, path: &Path, plan: &Plan<'_>) -> Result<()> {
    let mut outputs = Outputs::new(session);
    let output = outputs.create_or_stdout(path)?;
    match request.compression {
        None => plain(output, plan, path)?,
        Some(options) => packed(output, plan, path, options, request.verbose, session)?,
    }
    outputs.commit()
}

fn plain(mut output: Output, plan: &Plan<'_>, path: &Path) -> Result<()> {
    let told = |error: io::Error| trouble(path, &error);
    for step in &plan.steps {
        match step {
            Step::Bytes(bytes) => output.write_all(bytes).map_err(told)?,
            Step::PadTo(offset) => output.pad_to(*offset).map_err(told)?,
            Step::Input(input) => input.copy_to(&mut output).map_err(told)?,
        }
    }
    Ok(())
}

fn packed(output: Output, plan: &Plan<'_>, path: &Path, options: Options, tell: bool, session: &Session) -> Result<()> {
    let told = |error: io::Error| trouble(path, &error);
    let started = Instant::now();
    let mut out = Compressor::new(BufWriter::new(output), plan.size, options)?;
    let mut at = 0;
    for step in &plan.steps {
        at += match step {
            Step::Bytes(bytes) => {
                out.write_all(bytes).map_err(told)?;
                bytes.len() as u64
            }
            Step::PadTo(offset) => io::copy(&mut io::repeat(0).take(offset.saturating_sub(at)), &mut out).map_err(told)?,
            Step::Input(input) => rope::stream(&mut input.reader(), &mut out).map_err(told)?,
        };
    }
    let finished = out.finish().map_err(|error| error.downcast::<io::Error>().map_or_else(|error| error, told))?;
    let mut output = finished.into_inner().map_err(|error| told(error.into_error()))?;
    if tell {
        let mut start = Vec::new();
        output.rewind().and_then(|()| (&mut output).take(Header::LONGEST).read_to_end(&mut start)).map_err(told)?;
        verbose::compressed(&Header::read(&start, 0)?, options.level, started.elapsed(), &session.shell);
    }
    Ok(())
}
