//! The commands that report on files, builds and this machine: `inspect`, `diff`, `check`, `gate`,
//! `explain` and `doctor`. `size` has a file of its own.

use std::ffi::OsString;
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, bail};
use clap::{Args, ValueHint};

use super::{Selected, finish, max_unpacked, note_nothing};
use crate::tools::{doctor, explain};
use offld_system::native;
use offld_system::session::Session;
use offld_system::shell::{self, Shell};
use offld_system::table::Style;
use offload_files::check::report::Answer;
use offload_files::gate::policy::Policy;
use offload_files::inspect::{report_text, summary_text};
use offload_files::{check, contents, diff, gate, inspect};

/// The exit status of `offld gate` if a file violates the policy.
const VIOLATED: u8 = 3;

/// The options of `offld inspect`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 if the files contain device code, 1 if the files contain no device code, 2 if a part could not be read\n\
    (stderr has the errors; the report covers the readable parts).\n\n\
    Examples:\n  offld inspect --kernels program\n  offld inspect --json *.a | jq '.files[].images[].target'\n  \
    offld inspect --extract images libhip.so"
)]
pub(super) struct Inspect {
    /// Read files, all files in directories, or stdin (-): objects, libraries, programs, archives,
    /// wheels, zip files, tar archives, .deb packages, bundles, device images; uncompressed, or
    /// compressed with gzip, xz, zstd or bzip2
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Show registers, shared memory, scratch memory and code size of kernels in ELF images
    #[arg(long)]
    kernels: bool,
    /// Show mangled kernel names in the table
    #[arg(long, requires = "kernels")]
    no_demangle: bool,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Write each image to a new file in DIR. If one exists already or cannot be written, write none
    #[arg(long, value_name = "DIR")]
    extract: Option<PathBuf>,
    /// Read only headers, compute no hashes, and decompress only the start of compressed bundles
    #[arg(long, conflicts_with_all = ["kernels", "extract"])]
    headers_only: bool,
    /// Limit decompressed data to a size such as 500M [default: 64G]. It is also limited to the larger
    /// of 64 MB and 1000 times the file size
    #[arg(long, value_name = "SIZE")]
    max_unpacked: Option<OsString>,
    /// Show sizes in bytes
    #[arg(long)]
    bytes: bool,
    /// Show all columns and full names, regardless of the terminal width
    #[arg(long)]
    wide: bool,
    /// Read only headers, and show totals for each kind and target instead of images
    #[arg(long, conflicts_with_all = ["kernels", "json"])]
    summary: bool,
}

/// Lists the device code in files, as a table or as JSON. The exit status has grep's meanings: 0 if
/// there is device code, 1 if there is none, 2 if a part could not be read.
pub(super) fn inspect(options: Inspect, shell: &Arc<Shell>) -> Result<()> {
    let named = options.files.clone();
    let request = inspect::Request {
        files: options.files,
        options: contents::Options {
            kernels: options.kernels,
            // The headers are sufficient for totals.
            headers_only: options.headers_only || (options.summary && options.extract.is_none()),
            max_unpacked: max_unpacked(options.max_unpacked.as_ref())?,
            packs: true,
            ..contents::Options::default()
        },
        extract: options.extract,
    };
    let report = inspect::inspect(&request, &Session::of(shell))?;
    if report.files.is_empty() {
        note_nothing(&named, shell);
    }
    let style = Style {
        bytes: options.bytes,
        mangled: options.no_demangle,
        ..shell.stdout_style().wide(options.wide)
    };
    let text = match (options.json, options.summary) {
        (true, _) => shell::json(&report)?,
        (false, true) => summary_text(&report, style),
        (false, false) => report_text(&report, style),
    };
    let has_device_code = report
        .files
        .iter()
        .any(|file| file.images.iter().any(|image| image.is_device()));
    let mut errors = report.files.iter().flat_map(|file| &file.errors).peekable();
    let status = match errors.peek() {
        Some(_) => 2,
        None => u8::from(!has_device_code),
    };
    finish(&text, errors, status, shell)
}

/// The options of `offld diff`.
#[derive(Debug, Args)]
#[command(
    after_help = "The report lists new, gone and renamed kernels, and kernels whose code or use of resources differs. Code that only moved\n\
    counts as equal: addresses, the order of functions, build IDs, timestamps, paths and debug information are ignored.\n\n\
    Exit status: 0 if no kernel differs, 1 if kernels differ or could not be compared, or 2 if a file could not be read.\n\n\
    Examples:\n  offld diff libold.so libnew.so\n  offld diff --markdown old.whl new.whl >> \"$GITHUB_STEP_SUMMARY\"\n  \
    offld diff --save v1.json libx.so   # and after the next build:\n  offld diff v1.json libx.so"
)]
pub(super) struct Diff {
    /// Compare this build: a file, directory, wheel, or list written by --save
    old: PathBuf,
    /// Compare with this later build; optional with --save
    new: Option<PathBuf>,
    #[command(flatten)]
    selected: Selected,
    /// Show the instructions that differ; needs llvm-objdump for AMD, and nvdisasm for NVIDIA
    #[arg(long)]
    changed_code: bool,
    /// Write the kernels of NEW, or of the only build, to FILE, for later comparisons
    #[arg(long, value_name = "FILE")]
    save: Option<PathBuf>,
    /// Print the report as JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the report as Markdown
    #[arg(long)]
    markdown: bool,
    /// Write a self-contained web page to FILE, with a table that can be searched and sorted
    #[arg(long, value_name = "FILE")]
    html: Option<PathBuf>,
    /// Limit decompressed data to a size such as 500M [default: 64G]. It is also limited to the larger
    /// of 64 MB and 1000 times the file size
    #[arg(long, value_name = "SIZE")]
    max_unpacked: Option<OsString>,
    /// Show mangled kernel names in the table
    #[arg(long)]
    no_demangle: bool,
    /// Show all columns and full names, regardless of the terminal width
    #[arg(long)]
    wide: bool,
}

/// Compares the kernels of two builds. The exit status is 1 if kernels differ.
pub(super) fn diff(options: Diff, shell: &Arc<Shell>) -> Result<()> {
    let selection = options.selected.selection()?;
    let (old, new) = match options.new {
        Some(new) => (Some(options.old), new),
        None if options.save.is_some() => (None, options.old),
        None => bail!("pass two files to compare, or --save with one"),
    };
    let new = vec![new];
    let request = diff::Request {
        old: old.clone().unwrap_or_default(),
        new,
        selection: Arc::clone(&selection),
        max_unpacked: max_unpacked(options.max_unpacked.as_ref())?,
        changed_code: options.changed_code,
    };
    let session = Session::of(shell);
    if let Some(path) = &options.save {
        diff::save(&request, path, &session)?;
    }
    if old.is_none() {
        return Ok(());
    }
    let report = diff::diff(&request, &session)?;
    Selected::check(&selection, shell)?;
    if let Some(path) = &options.html {
        diff::report::save_page(&report, path)?;
    }
    let style = Style {
        mangled: options.no_demangle,
        ..shell.stdout_style().wide(options.wide)
    };
    let text = if options.json {
        report.to_json()?
    } else if options.markdown {
        diff::report::markdown(&report)
    } else {
        diff::report::text(&report, style)
    };
    finish(
        &text,
        std::iter::empty::<&String>(),
        u8::from(report.differs()),
        shell,
    )
}

/// The options of `offld check`.
#[derive(Debug, Args)]
#[command(
    after_help = "Exit status: 0 if the verdict is yes, 2 if a file could not be read, 1 for all other verdicts.\n\
    The verdict is the last line of the output.\n\n\
    Examples:\n  offld check program\n  offld check --for gfx90a:xnack+ libkernels.so\n  \
    offld check --for sm_90,sm_120 package.whl\n  offld check --for native build/\n  \
    offld check --json lib.so | jq '.files[].findings[].text'"
)]
pub(super) struct Check {
    /// Read files, all files in directories, or stdin (-): objects, libraries, programs, archives,
    /// wheels, zip files, tar archives, .deb packages; uncompressed, or compressed with gzip, xz,
    /// zstd or bzip2
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Check which image each of these devices would load: gfx1101, gfx90a:xnack+, sm_120,
    /// x86-64-v3, aarch64-linux-gnu, a compute capability such as 8.6, a GPU such as rtx4090 or
    /// mi300x, or native for this machine; the prefix openmp:, cuda: or hip: selects one runtime
    #[arg(long = "for", value_name = "DEVICE", value_delimiter = ',', value_hint = ValueHint::Other)]
    devices: Vec<String>,
    #[command(flatten)]
    selected: Selected,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
}

/// Checks whether the registered images exist, or which image a device would load. The exit status
/// is the answer.
pub(super) fn check(options: Check, shell: &Arc<Shell>) -> Result<()> {
    let asked = options.devices.iter().map(|text| check::Asked::parse(text));
    let asked = asked.collect::<Result<Vec<_>>>()?;
    let by_name = asked
        .iter()
        .flat_map(|asked| &asked.devices)
        .filter_map(|wanted| wanted.by_name.as_ref());
    by_name.for_each(|text| shell.note(text));
    let selection = options.selected.selection()?;
    let request = check::Request {
        files: options.files,
        asked,
        selection: Arc::clone(&selection),
    };
    let report = check::check(&request, &Session::of(shell))?;
    Selected::check(&selection, shell)?;
    let text = if options.json {
        report.to_json()?
    } else {
        check::report::text(&report, shell.stdout_style())
    };
    let status = match report.answer {
        Answer::Yes => 0,
        Answer::No | Answer::Unknown | Answer::NotApplicable => 1,
        Answer::Unreadable => 2,
    };
    let errors = report.files.iter().flat_map(|file| &file.errors);
    finish(&text, errors, status, shell)
}

/// The options of `offld gate`.
#[derive(Debug, Args)]
#[command(
    after_help = "A policy is a TOML file with rules. A rule applies to the files that match its patterns. It requires or forbids\n\
    architectures, and limits sizes and the growth of kernels. `offld help policies` lists the keys. A rule that applies to no file is an error.\n\n\
    Exit status: 0 if the files meet the policy, 3 if they violate it, or 2 if the policy is invalid or a file could not be read.\n\n\
    Examples:\n  offld gate --init dist/*.whl > device-code.toml\n  offld gate device-code.toml dist/*.whl\n  \
    offld gate --baseline v1.json device-code.toml libx.so"
)]
pub(super) struct Gate {
    /// Check files and all files in directories against the policy POLICY; with --init, all
    /// arguments are files
    #[arg(required = true, value_names = ["POLICY", "FILE"], num_args = 1..)]
    files: Vec<PathBuf>,
    /// Print a policy that the files meet
    #[arg(long, conflicts_with_all = ["baseline", "json", "markdown"])]
    init: bool,
    /// Compare with OLD: an earlier file or directory, or a file from `offld diff --save` or `offld
    /// size --save`; repeatable
    #[arg(long, value_name = "OLD")]
    baseline: Vec<PathBuf>,
    /// Accept rules that apply to none of the files, such as those that a commit changes
    #[arg(long, conflicts_with = "init")]
    allow_unused_rules: bool,
    /// Print the report as JSON
    #[arg(long, conflicts_with = "markdown")]
    json: bool,
    /// Print the report as Markdown
    #[arg(long)]
    markdown: bool,
    /// Limit decompressed data to a size such as 500M [default: 64G]. It is also limited to the larger
    /// of 64 MB and 1000 times the file size
    #[arg(long, value_name = "SIZE")]
    max_unpacked: Option<OsString>,
}

/// Checks files against a policy, or prints a policy that they meet.
pub(super) fn gate(options: Gate, shell: &Arc<Shell>) -> Result<()> {
    let max_unpacked = max_unpacked(options.max_unpacked.as_ref())?;
    let session = Session::of(shell);
    if options.init {
        return shell::print(&gate::init::policy(&options.files, max_unpacked, &session)?);
    }
    let [policy, files @ ..] = options.files.as_slice() else {
        bail!("pass a policy and files");
    };
    if files.is_empty() {
        bail!("pass files after the policy, or --init to write a policy");
    }
    let request = gate::Request {
        policy: Policy::read(policy)?,
        files: files.to_vec(),
        baseline: options.baseline,
        allow_unused: options.allow_unused_rules,
        max_unpacked,
    };
    let report = gate::gate(&request, &session)?;
    let text = if options.json {
        report.to_json()?
    } else if options.markdown {
        gate::report::markdown(&report)
    } else {
        gate::report::text(&report)
    };
    // A file that could not be read may hide a violation.
    let status = match (report.errors.is_empty(), report.passes()) {
        (false, _) => 2,
        (true, false) => VIOLATED,
        (true, true) => 0,
    };
    finish(&text, &report.errors, status, shell)
}

/// The options of `offld explain`.
#[derive(Debug, Args)]
#[command(
    after_help = "With OFFLD_CACHE_LOG=FILE, a build writes a build log. With --wrapper-time-trace=FILE, a link writes a time trace. The command\n\
    reads time traces of offld, clang (-ftime-trace) and LLVM's wrapper. offld infers the critical path from start and end times.\n\
    The path ends with the last step. The predecessor of each step is the last step that ended before it started.\n\n\
    Exit status: 0, or 2 if a file could not be read.\n\n\
    Examples:\n  OFFLD_CACHE_LOG=$PWD/build.log make && offld explain build.log\n  offld explain --top 3 --json build.log link.json"
)]
pub(super) struct Explain {
    /// Time traces and build logs from the same build
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// List the N slowest device links (0 lists all)
    #[arg(long, default_value_t = 10, value_name = "N")]
    top: usize,
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Show full names, regardless of the terminal width
    #[arg(long)]
    wide: bool,
}

/// Reports which steps of a build took time.
pub(super) fn explain(options: Explain, shell: &Arc<Shell>) -> Result<()> {
    let top = Some(options.top).filter(|top| *top > 0);
    let report = explain::explain(&options.files, top)?;
    for damaged in &report.damaged {
        shell.warn(&damaged.warning());
    }
    let text = if options.json {
        shell::json(&report)?
    } else {
        explain::text(&report, shell.stdout_style().wide(options.wide))
    };
    shell::print(&text)
}

/// The options of `offld doctor`.
#[derive(Debug, Args)]
#[command(
    after_help = "The report covers links with the current values of OFFLD_CLANG, OFFLD_LINKER, OFFLD_LLVM, OFFLD_CACHE and other variables.\n\
    The command queries clang, offld-llvm and the remote cache, and changes nothing.\n\n\
    Exit status: 0 if OpenMP programs for the CPU can be linked, else 1.\n\n\
    Examples:\n  offld doctor\n  OFFLD_CLANG=/opt/rocm/llvm/bin/clang offld doctor\n  \
    offld doctor --json | jq '.links[] | select(.link | not) | .kind, .missing[].what'"
)]
pub(super) struct Doctor {
    /// Print the report as JSON
    #[arg(long)]
    json: bool,
    /// Show missing requirements for all GPUs, not only for the GPUs of this machine
    #[arg(long)]
    all: bool,
}

/// Reports the available and the missing requirements of links, and how to install the missing ones.
/// The exit status is 1 if OpenMP programs for the CPU cannot be linked.
pub(super) fn doctor(options: Doctor, shell: &Arc<Shell>) -> Result<()> {
    let request = doctor::Request {
        native_root: native::root(),
    };
    let report = doctor::examine(&request, &Session::of(shell));
    let text = if options.json {
        shell::json(&report)?
    } else {
        doctor::text::text(&report, options.all, shell.stdout_style())
    };
    let status = u8::from(!report.host_openmp);
    finish(&text, [""; 0], status, shell)
}
