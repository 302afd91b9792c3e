//! Bundles several inputs into one output. Inputs are copied from file to file, so that they need
//! not be in memory (docs/spec/containers.md 2.8, 2.9).

use std::io::{self, BufWriter, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Result, bail};

use super::{Layout, Request, layout, object, targets, verbose};
use crate::error::Error;
use crate::formats::bundle::{self, text};
use crate::formats::bundled_object;
use crate::formats::compressed::{Compressor, Header, Options};
use crate::io::file_slice::FileSlice;
use crate::io::outputs::{Output, Outputs, io_error};
use crate::io::rope::Rope;
use crate::sys::session::Session;
use crate::sys::threads;

pub(super) fn run(request: &Request, session: &Session) -> Result<()> {
    let ids = targets::read(&request.targets, request.task)?;
    let inputs = request
        .inputs
        .iter()
        .map(|path| Input::open(path))
        .collect::<Result<Vec<_>>>()?;
    let [output] = &request.outputs[..] else {
        bail!("only one output file supported in bundling mode")
    };
    if inputs.len() != ids.len() {
        bail!("number of input files and targets should match in bundling mode");
    }
    let object = |(id, input): (&bundle::Id, _)| CodeObject {
        id: id.to_string(),
        is_host: id.kind == "host",
        input,
    };
    let objects: Vec<CodeObject<'_>> = ids.iter().zip(&inputs).map(object).collect();
    match layout(&request.file_type)? {
        Layout::Text(comment) => write(request, session, output, &text_bundle(&objects, comment)),
        Layout::Object => match host_object(&objects) {
            Some(host) => object::bundle(request, session, output, host, &objects),
            None => write(
                request,
                session,
                output,
                &binary_bundle(&objects, request.align)?,
            ),
        },
        Layout::Binary => write(
            request,
            session,
            output,
            &binary_bundle(&objects, request.align)?,
        ),
        Layout::Archive => bail!("Archive files are only supported for unbundling"),
    }
}

fn text_bundle(objects: &[CodeObject<'_>], comment: &str) -> Rope {
    let mut rope = Rope::default();
    for object in objects {
        rope.push_bytes(text::start_marker(comment, &object.id).into_bytes());
        rope.push_piece(object.input.contents.clone());
        rope.push_bytes(text::end_marker(comment, &object.id).into_bytes());
    }
    rope
}

fn binary_bundle(objects: &[CodeObject<'_>], align: u32) -> Result<Rope> {
    let sizes: Vec<(&str, u64)> = objects
        .iter()
        .map(|object| (object.id.as_str(), object.input.contents.size()))
        .collect();
    let frame = bundle::frame(&sizes, align.into())?;
    let mut rope = Rope::from(frame.head);
    for (object, offset) in objects.iter().zip(frame.offsets) {
        rope.pad_to(offset);
        rope.push_piece(object.input.contents.clone());
    }
    Ok(rope)
}

fn write(request: &Request, session: &Session, path: &Path, bundle: &Rope) -> Result<()> {
    let mut outputs = Outputs::new(session);
    let mut output = outputs.create_or_stdout(path)?;
    match request.compression {
        None => bundle
            .copy_to(&mut output)
            .map_err(|error| io_error(path, &error))?,
        Some(options) => compress(output, bundle, path, options, request.verbose, session)?,
    }
    outputs.commit()
}

fn compress(
    output: Output,
    bundle: &Rope,
    path: &Path,
    options: Options,
    verbose: bool,
    session: &Session,
) -> Result<()> {
    let context = |error: io::Error| io_error(path, &error);
    let started = Instant::now();
    let (all, place) = (bundle.clone(), path.to_owned());
    let mut output = threads::unless_stopped(&session.signals, move || {
        packed(output, &all, &place, options)
    })??;
    if verbose {
        let mut start = Vec::new();
        output
            .rewind()
            .and_then(|()| (&mut output).take(Header::LONGEST).read_to_end(&mut start))
            .map_err(context)?;
        verbose::compressed(
            &Header::read(&start, 0)?,
            options.level,
            started.elapsed(),
            &session.shell,
        );
    }
    Ok(())
}

/// Writes `bundle`, compressed, to `output`. At its highest levels, zstd may run for minutes before
/// it returns.
fn packed(output: Output, bundle: &Rope, path: &Path, options: Options) -> Result<Output> {
    let context = |error: io::Error| io_error(path, &error);
    let mut out = Compressor::new(BufWriter::new(output), bundle.size(), options)?;
    bundle.write_to(&mut out).map_err(context)?;
    let finished = out.finish().map_err(|error| match error {
        Error::Io { error, .. } => context(error),
        other => other.into(),
    })?;
    finished
        .into_inner()
        .map_err(|error| context(error.into_error()))
}

pub(super) struct Input {
    pub(super) path: PathBuf,
    pub(super) contents: FileSlice,
}

impl Input {
    /// Opens the input at `path`. `-` is stdin.
    pub(super) fn open(path: &Path) -> Result<Input> {
        Ok(Input {
            path: path.to_owned(),
            contents: FileSlice::open_one_of_many(path)?,
        })
    }
}

/// A code object to bundle: an input and its target.
pub(super) struct CodeObject<'a> {
    /// The target's ID, as stored in the bundle.
    pub(super) id: String,
    /// Whether this is the host's code object.
    pub(super) is_host: bool,
    pub(super) input: &'a Input,
}

/// The host's code object, if it is an object file, to which the others are added as sections.
/// Without it, the output is a binary bundle, whatever the other inputs are. (LLVM's bundler
/// crashes if a device object comes first and there is no host: docs/spec/faults.md B3.)
pub(super) fn host_object<'a>(objects: &'a [CodeObject<'a>]) -> Option<&'a CodeObject<'a>> {
    let host = objects.iter().find(|object| object.is_host)?;
    bundled_object::kind(host.input.contents.bytes()).map(|_| host)
}
