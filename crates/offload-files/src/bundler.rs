//! The tool clang-offload-bundler: bundles code objects of several targets into one file, unbundles
//! and lists them (docs/spec/containers.md 2). Either all outputs appear, or none.
//!
//! This file has the request, its target IDs, its `-verbose` output, and bundling. `unbundle`
//! unbundles files and archives, and lists; `container` reads bundles.

pub(crate) mod container;
mod unbundle;

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::io::{self, BufWriter, Read, Seek};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use container::Inflated;
use offld_system::io::file_slice::FileSlice;
use offld_system::io::outputs::{Output, Outputs, io_error};
use offld_system::io::rope::Rope;
use offld_system::run::beside_us_or_on_path;
use offld_system::session::Session;
use offld_system::shell::Shell;
use offld_system::threads;
use offload_formats::bundle::{self, Id, IdFault, MAGIC, is_known_arch, text};
use offload_formats::bundled_object::{self, NewSection};
use offload_formats::compressed::{self, Compressor, Header, Method, Options};
use offload_formats::error::Error;

/// The task of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Bundle inputs into one output.
    Bundle,
    /// Unbundle one input into several outputs.
    Unbundle,
    /// Print the IDs in one input.
    List,
}

/// A run of the bundler.
#[derive(Debug, Clone)]
pub struct Request {
    /// The task.
    pub task: Task,
    /// The file type (`-type`), as given.
    pub file_type: OsString,
    /// The IDs, as given: one for each input when bundling, one for each output when unbundling.
    pub targets: Vec<OsString>,
    /// The inputs. `-` is stdin.
    pub inputs: Vec<PathBuf>,
    /// The outputs. `-` is stdout.
    pub outputs: Vec<PathBuf>,
    /// The alignment of code objects in a binary bundle, in bytes.
    pub align: u32,
    /// The compression of the bundle, if any.
    pub compression: Option<compressed::Options>,
    /// Whether to print sizes, hashes and speeds of compression and decompression.
    pub verbose: bool,
    /// Whether to print the llvm-objcopy commands that LLVM's bundler would run, and write nothing.
    pub show_commands: bool,
    /// Whether a target without a code object gets an empty output.
    pub allow_missing: bool,
    /// Whether HIP code objects are compatible with OpenMP targets and vice versa.
    pub hip_openmp_compatible: bool,
    /// Whether conflicting target IDs of code objects in an archive's members are an error.
    pub check_input_archive: bool,
    /// Whether to print each comparison of a code object with a target.
    pub explain: bool,
}

/// Executes `request`. Errors that LLVM's bundler also reports have its wording, because scripts
/// match it.
pub fn run(request: &Request, session: &Session) -> Result<()> {
    match request.task {
        Task::Bundle => bundle_inputs(request, session),
        Task::Unbundle => unbundle::run(request, session),
        Task::List => unbundle::list(request, session),
    }
}

/// The bundle format of a file type (docs/spec/containers.md 2.7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    /// A text bundle with this comment prefix.
    Text(&'static str),
    /// A binary bundle.
    Binary,
    /// Sections of an object if the reference input is one, otherwise a binary bundle.
    Object,
    /// An archive whose members are like `Object`.
    Archive,
}

/// The layout for `-type=name`.
fn layout(name: &OsStr) -> Result<Layout> {
    Ok(match name.to_str() {
        Some("i" | "ii" | "cui" | "hipi") => Layout::Text("//"),
        Some("d" | "s") => Layout::Text("#"),
        Some("ll") => Layout::Text(";"),
        Some("bc" | "gch" | "ast") => Layout::Binary,
        Some("o") => Layout::Object,
        Some("a") => Layout::Archive,
        _ => bail!("'{}': invalid file type specified", name.to_string_lossy()),
    })
}

// The target IDs of a command line (`-targets=`), with LLVM's checks in LLVM's order and LLVM's
// messages (docs/spec/containers.md 2.3).

/// Parses the IDs. Every form that an LLVM release accepts is valid, and no part is dropped: LLVM
/// drops target IDs with unknown processors (docs/spec/faults.md B1, B17).
fn read_ids(texts: &[OsString], task: Task) -> Result<Vec<Id>> {
    let mut seen = BTreeSet::new();
    let mut ids = Vec::with_capacity(texts.len());
    for text in texts {
        if !seen.insert(text) {
            bail!(IdFault::Duplicate);
        }
        ids.push(parse_id(&text.to_string_lossy())?);
    }
    let fault = bundle::check(&ids);
    if let Err(fault @ IdFault::Conflict(..)) = &fault {
        bail!(fault.clone());
    }
    check_hosts(&ids, task)?;
    // LLVM only compares the texts. It accepts two spellings of an ID and writes a bundle that no
    // reader accepts (docs/spec/faults.md B4).
    fault?;
    Ok(ids)
}

fn parse_id(text: &str) -> Result<Id> {
    let mut parts = text.splitn(6, '-');
    let kind = parts.next().unwrap_or_default();
    let triple: Vec<&str> = parts.take(4).collect();
    let arch = triple.first().copied().unwrap_or_default();
    if arch.is_empty() && triple.len() < 4 {
        bail!(
            "Targets need to follow the format '<offload kind>-<target triple>', where '<target triple>' follows the format \
             '<kind>-<arch>-<vendor>-<os>-<env>[-<target id>[:target features]]'."
        );
    }
    let mut faults = String::new();
    if !["host", "openmp", "hip", "hipv4"].contains(&kind) {
        faults.push_str(&format!(", unknown offloading kind '{kind}'"));
    }
    if !is_known_arch(arch) {
        faults.push_str(&format!(", unknown target triple '{}'", triple.join("-")));
    }
    if !faults.is_empty() {
        bail!("invalid target '{text}'{faults}");
    }
    Ok(Id::parse(text))
}

fn check_hosts(ids: &[Id], task: Task) -> Result<()> {
    let hosts = ids.iter().filter(|id| id.kind == "host").count();
    let valid = match task {
        Task::Bundle => hosts == 1 || ids.iter().all(is_hip),
        Task::Unbundle | Task::List => hosts <= 1,
    };
    if !valid {
        bail!("expecting exactly one host target but got {hosts}");
    }
    Ok(())
}

/// HIP bundles need no host entry.
fn is_hip(id: &Id) -> bool {
    id.kind == "hip" || id.kind == "hipv4"
}

// The output of `-verbose` about compression and decompression. The lines are LLVM's
// (docs/spec/containers.md 2.15).

/// Prints statistics of a bundle with this header that was compressed at `level`.
fn print_compressed(header: &Header, level: i32, time: Duration, shell: &Shell) {
    let total = header.total.unwrap_or_default();
    let packed = total.saturating_sub(header.size);
    shell.line(&format!(
        "Compressed bundle format version: {}",
        header.version
    ));
    shell.line(&format!(
        "Total file size (including headers): {} bytes",
        with_commas(total)
    ));
    shell.line(&format!(
        "Compression method used: {}",
        method_name(header.method)
    ));
    shell.line(&format!("Compression level: {level}"));
    shell.line(&format!(
        "Binary size before compression: {} bytes",
        with_commas(header.plain_size)
    ));
    shell.line(&format!(
        "Binary size after compression: {} bytes",
        with_commas(packed)
    ));
    ratios(packed, header.plain_size, shell);
    shell.line(&format!(
        "Compression speed: {} MB/s",
        speed(header.plain_size, time)
    ));
    shell.line(&format!("Truncated MD5 hash: {:#018x}", header.hash));
}

/// Prints statistics of each compressed bundle in a file, or a line if there are none.
fn print_read(request: &Request, file: &FileSlice, compressed: &[Inflated], shell: &Shell) {
    if !request.verbose {
        return;
    }
    // LLVM prints nothing for a file that is shorter than the header of a compressed bundle.
    if compressed.is_empty() && file.size() > 20 {
        shell.line("Uncompressed bundle.");
    }
    compressed
        .iter()
        .for_each(|one| print_decompressed(one, shell));
}

/// Prints statistics of a decompressed bundle with a verified hash.
fn print_decompressed(bundle: &Inflated, shell: &Shell) {
    shell.line(&format!(
        "Compressed bundle format version: {}",
        bundle.version
    ));
    if bundle.version > 1 {
        shell.line(&format!(
            "Total file size (from header): {} bytes",
            with_commas(bundle.total_size)
        ));
    }
    shell.line(&format!(
        "Decompression method: {}",
        method_name(bundle.method)
    ));
    shell.line(&format!(
        "Size before decompression: {} bytes",
        with_commas(bundle.packed_size)
    ));
    shell.line(&format!(
        "Size after decompression: {} bytes",
        with_commas(bundle.plain_size)
    ));
    ratios(bundle.packed_size, bundle.plain_size, shell);
    shell.line(&format!(
        "Decompression speed: {} MB/s",
        speed(bundle.plain_size, bundle.time)
    ));
    shell.line(&format!("Stored hash: {:#018x}", bundle.hash));
    shell.line(&format!("Recalculated hash: {:#018x}", bundle.hash));
    shell.line("Hashes match: Yes");
}

fn ratios(packed: u64, plain: u64, shell: &Shell) {
    let (packed, plain) = (packed as f64, plain as f64);
    shell.line(&format!("Compression rate: {:.2}", plain / packed));
    shell.line(&format!(
        "Compression ratio: {:.2}%",
        packed / plain * 100.0
    ));
}

fn speed(size: u64, time: Duration) -> String {
    format!(
        "{:.2}",
        size as f64 / f64::from(1 << 20) / time.as_secs_f64().max(1e-9)
    )
}

fn method_name(method: Method) -> &'static str {
    match method {
        Method::Zlib => "zlib",
        Method::Zstd => "zstd",
    }
}

/// `1234567` as `1,234,567`.
fn with_commas(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

// Bundling (docs/spec/containers.md 2.8, 2.9, 2.10).

/// Bundles the inputs into one output. Inputs are copied from file to file, so that they need not
/// be in memory.
fn bundle_inputs(request: &Request, session: &Session) -> Result<()> {
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
    let contents = objects
        .iter()
        .map(|object| Rope::from(object.input.contents.clone()));
    Ok(Rope::framed(
        frame.head,
        frame.offsets.into_iter().zip(contents),
    ))
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
fn show_host(fat: &Path, session: &Session) {
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
    beside_us_or_on_path("llvm-objcopy")
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

#[cfg(test)]
mod tests {
    use super::*;

    const HOST: &str = "host-x86_64-unknown-linux-gnu";
    const GPU: &str = "hip-amdgcn-amd-amdhsa--gfx906";

    fn ids(texts: &[&str], task: Task) -> Result<Vec<String>, String> {
        let texts: Vec<OsString> = texts.iter().map(OsString::from).collect();
        let ids = read_ids(&texts, task).map_err(|error| error.to_string())?;
        Ok(ids.iter().map(Id::to_string).collect())
    }

    #[test]
    fn b17_triples_of_any_length() {
        for (text, id) in [
            ("host-x86_64", "host-x86_64-unknown-unknown-unknown-"),
            (
                "host-x86_64-unknown-linux",
                "host-x86_64-unknown-linux-unknown-",
            ),
            ("hip-amdgcn-amd-amdhsa-gfx906", GPU),
        ] {
            assert_eq!(ids(&[text], Task::Unbundle), Ok(vec![id.to_owned()]));
        }
        for text in ["", "host", "host-"] {
            assert!(
                ids(&[text], Task::Unbundle)
                    .is_err_and(|error| error.starts_with("Targets need to follow the format"))
            );
        }
    }

    #[test]
    fn ob_27_one_host_unless_all_is_hip() {
        let other = "openmp-nvptx64-nvidia-cuda--sm_70";
        let hosts = |count| Err(format!("expecting exactly one host target but got {count}"));
        assert_eq!(
            ids(&[GPU, HOST, other], Task::Bundle).map(|ids| ids.len()),
            Ok(3)
        );
        assert_eq!(ids(&[GPU, other], Task::Bundle), hosts(0));
        assert_eq!(ids(&[GPU], Task::Bundle), Ok(vec![GPU.to_owned()]));
        assert_eq!(ids(&[other], Task::Unbundle).map(|ids| ids.len()), Ok(1));
        for task in [Task::Bundle, Task::Unbundle] {
            assert_eq!(
                ids(&[HOST, "host-aarch64-unknown-linux-gnu"], task),
                hosts(2)
            );
        }
    }

    #[test]
    fn b4_ob_34_the_same_in_other_words() {
        for texts in [
            [GPU, "hip-amdgcn-amd-amdhsa-unknown-gfx906"],
            [
                "hip-amdgcn-amd-amdhsa--fiji",
                "hip-amdgcn-amd-amdhsa--gfx803",
            ],
        ] {
            assert_eq!(
                ids(&texts, Task::Bundle),
                Err("Duplicate targets are not allowed".to_owned())
            );
        }
    }

    #[test]
    fn numbers_have_commas() {
        for (number, text) in [
            (0, "0"),
            (999, "999"),
            (1000, "1,000"),
            (15196, "15,196"),
            (1_234_567, "1,234,567"),
        ] {
            assert_eq!(with_commas(number), text);
        }
    }
}
