//! `clang-offload-bundler`: LLVM's options, and LLVM's checks of a command line, in LLVM's order
//! and with its texts. They run before any file is opened (docs/spec/containers.md 2.1 to 2.3).

use std::ffi::{OsStr, OsString};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Result, anyhow, bail};

use crate::args::cl::{self, Kind, Opt, Outcome, ParsedLine, Positional};
use offld_system::environment;
use offld_system::session::Session;
use offld_system::shell::Shell;
use offld_system::threads;
use offload_files::bundler::{self, Request, Task};
use offload_formats::compressed::{self, Version};
use offload_formats::model::LLVM_RELEASE;

const NAME: &str = "clang-offload-bundler";
/// The only category of LLVM's `-debug-only` for this tool.
const COMPATIBILITY: &str = "CodeObjectCompatibility";

static TOOL: cl::ToolSpec = cl::ToolSpec {
    name: NAME,
    // The first two lines end with a space.
    overview: "A tool to bundle several input files of the specified type <type> \nreferring to the same source file but different \
               targets into a single \none. The resulting file can also be unbundled into different files by \nthis tool if \
               -unbundle is provided.",
    usage: "",
    category: "clang-offload-bundler options",
    options: &[
        Opt::new(
            "###",
            Kind::Flag,
            "",
            "Print any external commands that are to be executed instead of actually executing them - for testing purposes.",
        ),
        Opt::new(
            "allow-missing-bundles",
            Kind::Flag,
            "",
            "Create empty files if bundles are missing when unbundling.",
        ),
        Opt::new(
            "bundle-align",
            Kind::Uint,
            "<uint>",
            "Alignment of bundle for binary files",
        ),
        Opt::new(
            "check-input-archive",
            Kind::Flag,
            "",
            "Check if input heterogeneous archive is valid in terms of TargetID rules.",
        ),
        Opt::new(
            "compress",
            Kind::Flag,
            "",
            "Compress output file when bundling.",
        ),
        Opt::new(
            "compression-level",
            Kind::Int,
            "<n>",
            "Specify the compression level (integer)",
        ),
        // LLVM's help omits this option, too.
        Opt::new("debug-only", Kind::CommaList, "", ""),
        Opt::new(
            "hip-openmp-compatible",
            Kind::Flag,
            "",
            "Treat hip and hipv4 offload kinds as compatible with openmp kind, and vice versa.",
        ),
        Opt::new(
            "input",
            Kind::List,
            "<string>",
            "Input file. Can be specified multiple times for multiple input files.",
        ),
        Opt::new(
            "inputs",
            Kind::CommaList,
            "<string>",
            "[<input file>,...] (deprecated)",
        ),
        Opt::new(
            "list",
            Kind::Flag,
            "",
            "List bundle IDs in the bundled file.",
        ),
        Opt::new(
            "output",
            Kind::List,
            "<string>",
            "Output file. Can be specified multiple times for multiple output files.",
        ),
        Opt::new(
            "outputs",
            Kind::CommaList,
            "<string>",
            "[<output file>,...] (deprecated)",
        ),
        Opt::new(
            "targets",
            Kind::CommaList,
            "<string>",
            "[<offload kind>-<target triple>,...]",
        ),
        Opt::new("type", Kind::Text, "<string>", TYPES).required(),
        Opt::new(
            "unbundle",
            Kind::Flag,
            "",
            "Unbundle bundled file into several output files.",
        ),
        Opt::new("verbose", Kind::Flag, "", "Print debug information."),
    ],
    positional: Positional::None,
    version: || {
        // Scripts read the LLVM release after the word `version`.
        format!(
            "offld {NAME} version {LLVM_RELEASE} (offld {})\n",
            env!("CARGO_PKG_VERSION")
        )
    },
};

/// The options, for the manual page.
pub(super) fn options() -> Vec<(String, String)> {
    TOOL.listed()
}

const TYPES: &str = "\
Type of the files to be bundled/unbundled.
Current supported types are:
  i    - cpp-output
  ii   - c++-cpp-output
  cui  - cuda-cpp-output
  hipi - hip-cpp-output
  d    - dependency
  ll   - llvm
  bc   - llvm-bc
  s    - assembler
  o    - object
  a    - archive of objects
  gch  - precompiled-header
  ast  - clang AST file";

pub(super) fn run(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    let line = match cl::parse(&TOOL, shell.name(), argv)? {
        Outcome::Print(text) => {
            cl::print(&text, shell);
            return Ok(());
        }
        Outcome::Run(line) => line,
    };
    let request = request(&line, shell)?;
    bundler::run(&request, &Session::of(shell))
}

/// Converts `line` into a request, after LLVM's checks.
fn request(line: &ParsedLine, shell: &Shell) -> Result<Request> {
    let settings = CompressionSettings::new(line, shell);
    let on = |name: &str| line.flag(name) == Some(true);
    let files = Files::new(line, shell)?;
    let task = check(line, &files)?;
    let explain = line.list("debug-only");
    if let Some(unknown) = explain.iter().find(|name| **name != COMPATIBILITY) {
        shell.warn(&format!(
            "-debug-only={}: unknown name ignored; expected {COMPATIBILITY}",
            unknown.to_string_lossy()
        ));
    }
    Ok(Request {
        task,
        file_type: line.text("type").unwrap_or_default().to_owned(),
        targets: line
            .list("targets")
            .into_iter()
            .map(OsStr::to_owned)
            .collect(),
        inputs: files.inputs,
        outputs: files.outputs,
        align: line.uint("bundle-align").unwrap_or(1),
        compression: settings.compression(),
        verbose: settings.verbose,
        show_commands: on("###"),
        allow_missing: on("allow-missing-bundles"),
        hip_openmp_compatible: on("hip-openmp-compatible"),
        check_input_archive: on("check-input-archive"),
        explain: explain.iter().any(|name| *name == COMPATIBILITY),
    })
}

/// The input and output files, from a repeated option (`-input`) or a deprecated list (`-inputs`).
struct Files {
    inputs: Vec<PathBuf>,
    outputs: Vec<PathBuf>,
}

impl Files {
    fn new(line: &ParsedLine, shell: &Shell) -> Result<Files> {
        let inputs = Files::given(line, "input", "inputs", shell)?;
        Ok(Files {
            inputs,
            outputs: Files::given(line, "output", "outputs", shell)?,
        })
    }

    fn given(line: &ParsedLine, name: &str, old: &str, shell: &Shell) -> Result<Vec<PathBuf>> {
        if line.count(name) > 0 && line.count(old) > 0 {
            bail!("-{old} and -{name} cannot be used together, use only -{name} instead");
        }
        if line.count(old) > 0 {
            shell.warn(&format!("-{old} is deprecated, use -{name} instead"));
        }
        Ok([name, old]
            .into_iter()
            .flat_map(|name| line.list(name))
            .map(PathBuf::from)
            .collect())
    }
}

/// LLVM's checks for conflicting options, in LLVM's order. Targets are checked later, and files
/// after the targets.
fn check(line: &ParsedLine, files: &Files) -> Result<Task> {
    let on = |name: &str| line.flag(name) == Some(true);
    let (inputs, outputs, targets) = (
        files.inputs.len(),
        files.outputs.len(),
        line.list("targets").len(),
    );
    let rules = |rules: &[(bool, &str)]| match rules.iter().find(|(broken, _)| *broken) {
        Some((_, text)) => Err(anyhow!("{text}")),
        None => Ok(()),
    };
    if on("list") {
        rules(&[
            (
                on("unbundle"),
                "-unbundle and -list cannot be used together",
            ),
            (inputs != 1, "only one input file supported for -list"),
            (outputs > 0, "-outputs option is invalid for -list"),
            (targets > 0, "-targets option is invalid for -list"),
        ])?;
        return Ok(Task::List);
    }
    let archive = line.text("type") == Some(OsStr::new("a"));
    let check_archive = on("check-input-archive");
    rules(&[
        (
            check_archive && !on("unbundle"),
            "-check-input-archive cannot be used while bundling",
        ),
        (
            check_archive && !archive,
            "-check-input-archive can only be used for unbundling archives (-type=a)",
        ),
        (outputs == 0, "no output file specified!"),
        (
            targets == 0,
            "for the --targets option: must be specified at least once!",
        ),
    ])?;
    if on("unbundle") {
        rules(&[
            (
                inputs != 1,
                "only one input file supported in unbundling mode",
            ),
            (
                outputs != targets,
                "number of output files and targets should match in unbundling mode",
            ),
        ])?;
        return Ok(Task::Unbundle);
    }
    rules(&[
        (archive, "Archive files are only supported for unbundling"),
        (
            outputs != 1,
            "only one output file supported in bundling mode",
        ),
        (
            inputs != targets,
            "number of input files and targets should match in bundling mode",
        ),
    ])?;
    Ok(Task::Bundle)
}

/// CompressionSettings, from options, else from environment variables, else from LLVM's defaults.
struct CompressionSettings {
    compress: bool,
    options: compressed::Options,
    /// Whether to print sizes and times of compression and decompression.
    verbose: bool,
}

impl CompressionSettings {
    /// The settings for `line`. A variable with an invalid value is ignored with LLVM's warning.
    fn new(line: &ParsedLine, shell: &Shell) -> CompressionSettings {
        let variable =
            |name: &str| std::env::var_os(name).map(|value| value.to_string_lossy().into_owned());
        let ignored =
            variable(environment::OFFLOAD_BUNDLER_IGNORE_ENV_VAR).is_some_and(|value| value == "1");
        let variable = |name: &str| if ignored { None } else { variable(name) };
        let is_one = |name: &str| variable(name).is_some_and(|value| value == "1");
        let level = variable(environment::OFFLOAD_BUNDLER_COMPRESSION_LEVEL)
            .and_then(|text| level(&text, shell));
        let version = variable(environment::COMPRESSED_BUNDLE_FORMAT_VERSION)
            .and_then(|text| version(&text, shell));
        let default = compressed::Options::default();
        CompressionSettings {
            compress: line
                .flag("compress")
                .unwrap_or_else(|| is_one(environment::OFFLOAD_BUNDLER_COMPRESS)),
            options: compressed::Options {
                version: version.unwrap_or(default.version),
                level: line
                    .int("compression-level")
                    .or(level)
                    .unwrap_or(default.level),
                workers: threads::for_compression(),
                ..default
            },
            verbose: line
                .flag("verbose")
                .unwrap_or_else(|| is_one(environment::OFFLOAD_BUNDLER_VERBOSE)),
        }
    }

    /// The compression of the output, or `None` if it stays uncompressed.
    fn compression(&self) -> Option<compressed::Options> {
        self.compress.then_some(self.options)
    }
}

/// Parses a decimal number with an optional `-`. Like LLVM, rejects a leading `+`.
fn level(text: &str, shell: &Shell) -> Option<i32> {
    let level = decimal(text.strip_prefix('-').unwrap_or(text)).and_then(|_| text.parse().ok());
    if level.is_none() {
        shell.line(&format!(
            "Warning: Invalid value for {}: {text}. Ignoring it.",
            environment::OFFLOAD_BUNDLER_COMPRESSION_LEVEL
        ));
    }
    level
}

fn version(text: &str, shell: &Shell) -> Option<Version> {
    let name = environment::COMPRESSED_BUNDLE_FORMAT_VERSION;
    match decimal(text).and_then(|digits| digits.parse::<u16>().ok()) {
        Some(2) => Some(Version::V2),
        Some(3) => Some(Version::V3),
        Some(_) => {
            shell.line(&format!("Warning: Invalid value for {name}: {text}. Valid values are 2 or 3. Using default version 3."));
            None
        }
        None => {
            shell.line(&format!(
                "Warning: Invalid value for {name}: {text}. Using default version 3."
            ));
            None
        }
    }
}

/// Returns `text` if it consists of decimal digits.
fn decimal(text: &str) -> Option<&str> {
    (!text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit())).then_some(text)
}
