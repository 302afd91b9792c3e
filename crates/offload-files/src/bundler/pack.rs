//! Bundles several inputs into one output. Inputs are copied from file to file, so that they need
//! not be in memory (docs/spec/containers.md 2.8, 2.9, 2.10).

use std::io::{self, BufWriter, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::Instant;

use anyhow::{Context, Result, bail};

use super::{Layout, Request, layout, print_compressed, read_ids};
use offld_system::io::file_slice::FileSlice;
use offld_system::io::outputs::{Output, Outputs, io_error};
use offld_system::io::rope::Rope;
use offld_system::programs;
use offld_system::session::Session;
use offld_system::threads;
use offload_formats::bundle::{self, MAGIC, text};
use offload_formats::bundled_object::{self, NewSection};
use offload_formats::compressed::{Compressor, Header, Options};
use offload_formats::error::Error;

pub(super) fn run(request: &Request, session: &Session) -> Result<()> {
    let ids = read_ids(&request.targets, request.task)?;
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
            Some(host) => bundle_object(request, session, output, host, &objects),
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
        print_compressed(
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

struct Input {
    path: PathBuf,
    contents: FileSlice,
}

impl Input {
    /// Opens the input at `path`. `-` is stdin.
    fn open(path: &Path) -> Result<Input> {
        Ok(Input {
            path: path.to_owned(),
            contents: FileSlice::open_one_of_many(path)?,
        })
    }
}

/// A code object to bundle: an input and its target.
struct CodeObject<'a> {
    /// The target's ID, as stored in the bundle.
    id: String,
    /// Whether this is the host's code object.
    is_host: bool,
    input: &'a Input,
}

/// The host's code object, if it is an object file, to which the others are added as sections.
/// Without it, the output is a binary bundle, whatever the other inputs are. (LLVM's bundler
/// crashes if a device object comes first and there is no host: docs/spec/faults.md B3.)
fn host_object<'a>(objects: &'a [CodeObject<'a>]) -> Option<&'a CodeObject<'a>> {
    let host = objects.iter().find(|object| object.is_host)?;
    bundled_object::kind(host.input.contents.bytes()).map(|_| host)
}

// Bundles into the sections of a host object (docs/spec/containers.md 2.10). LLVM runs
// llvm-objcopy for this. offld writes the object itself, and `-###` only prints objcopy's command
// line.

/// Writes the object file `host` with a section for each of `objects`. The host's own section is a
/// mark of one zero byte.
fn bundle_object(
    request: &Request,
    session: &Session,
    output: &Path,
    host: &CodeObject<'_>,
    objects: &[CodeObject<'_>],
) -> Result<()> {
    if request.compression.is_some() {
        let name = output.display();
        session
            .shell
            .warn(&format!("-compress has no effect on '{name}': bundles in the sections of an object are not compressed"));
    }
    if request.show_commands {
        show_bundling(output, host, objects, session);
        return Ok(());
    }
    let context = |error: io::Error| io_error(output, &error);
    let object = &host.input.contents;
    let payloads: Vec<FileSlice> = objects.iter().map(payload).collect();
    let sections: Vec<NewSection<'_>> = objects
        .iter()
        .zip(&payloads)
        .map(|(object, piece)| NewSection {
            id: &object.id,
            size: piece.size(),
        })
        .collect();
    let parts = bundled_object::with_sections(object.bytes(), &sections)
        .with_context(|| host.input.path.display().to_string())?;
    let whole = Rope::of_parts(object, parts, payloads.into_iter().map(Rope::from))?;
    let mut outputs = Outputs::new(session);
    let mut made = outputs.create_anew_or_stdout(output)?;
    if let Ok(about) = std::fs::metadata(&host.input.path) {
        // objcopy gives its output the mode of its input.
        made.file()
            .set_permissions(about.permissions())
            .map_err(context)?;
    }
    whole.copy_to(&mut made).map_err(context)?;
    outputs.commit()
}

fn payload(object: &CodeObject<'_>) -> FileSlice {
    if object.is_host {
        FileSlice::owned(vec![0])
    } else {
        object.input.contents.clone()
    }
}

/// Prints the command with which LLVM's bundler would make `output`. LLVM creates a temporary file
/// for the host's mark. `XXXXXX` replaces the random part of its name.
fn show_bundling(
    output: &Path,
    host: &CodeObject<'_>,
    objects: &[CodeObject<'_>],
    session: &Session,
) {
    let mark = temporary();
    let section = String::from_utf8_lossy(MAGIC);
    let mut arguments = vec![objcopy().display().to_string()];
    for object in objects {
        let file = if object.is_host {
            mark.display()
        } else {
            object.input.path.display()
        };
        arguments.push(format!("--add-section={section}{}={file}", object.id));
        arguments.push(format!(
            "--set-section-flags={section}{}=readonly,exclude",
            object.id
        ));
    }
    arguments.extend([
        "--".to_owned(),
        host.input.path.display().to_string(),
        output.display().to_string(),
    ]);
    show(&arguments, session);
}

/// Prints the command with which LLVM's bundler would extract the host object from `fat`.
pub(super) fn show_host(fat: &Path, session: &Session) {
    let remove = format!("--remove-section={}.*", String::from_utf8_lossy(MAGIC));
    let arguments: [&Path; 6] = [
        &objcopy(),
        "--regex".as_ref(),
        remove.as_ref(),
        "--".as_ref(),
        fat,
        &temporary(),
    ];
    show(
        &arguments.map(|argument| argument.display().to_string()),
        session,
    );
}

fn objcopy() -> PathBuf {
    programs::beside_us_or_on_path("llvm-objcopy")
}

fn temporary() -> PathBuf {
    std::env::temp_dir().join("clang-offload-bundler-XXXXXX.tmp")
}

fn show(arguments: &[String], session: &Session) {
    let quoted: Vec<String> = arguments
        .iter()
        .map(|argument| {
            format!(
                "\"{}\"",
                argument.replace('\\', "\\\\").replace('"', "\\\"")
            )
        })
        .collect();
    session.shell.line(&quoted.join(" "));
}
