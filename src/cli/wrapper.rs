//! `llvm-offload-wrapper` and `clang-offload-wrapper`: two command lines for generating
//! registration code.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};

use crate::args::cl::{self, Kind, Opt, Outcome, ParsedLine, Positional, ToolSpec};
use crate::llvm::Llvm;
use crate::tools::wrapper::{Emit, INLINE_LIMIT, Input, Request, wrap};
use offld_system::session::{Session, SessionOptions};
use offld_system::shell::Shell;
use offload_formats::model::{Generation, LLVM_RELEASE, OffloadKind};

const KINDS: &[(&str, &str)] = &[
    ("openmp", "Wrap OpenMP binaries"),
    ("cuda", "Wrap CUDA binaries"),
    ("hip", "Wrap HIP binaries"),
    ("sycl", "Wrap SYCL binaries"),
];
const FORMS: &[(&str, &str)] = &[
    ("bc", "LLVM bitcode (for any other extension)"),
    ("ll", "LLVM IR (.ll)"),
    ("s", "Assembly (.s)"),
    ("o", "Object (.o, .obj)"),
];
const EMIT: Opt = Opt::new(
    "emit",
    Kind::Choice(FORMS),
    "<value>",
    "Output format [default: by the output's name]:",
);

static LLVM_TOOL: ToolSpec = ToolSpec {
    name: "llvm-offload-wrapper",
    overview: "Generate runtime registration code for a device binary image",
    usage: "Wrap input from <file>",
    category: "llvm-offload-wrapper options",
    options: &[
        Opt::new(
            "kind",
            Kind::Choice(KINDS),
            "<value>",
            "Wrap for offload kind:",
        )
        .required(),
        Opt::new(
            "o",
            Kind::Text,
            "<file>",
            "Write output to <file>, or to stdout if that is -.",
        )
        .required(),
        Opt::new(
            "triple",
            Kind::Text,
            "<string>",
            "Target triple for the wrapper module",
        ),
        Opt::new(
            "relocatable",
            Kind::Flag,
            "",
            "Wrap for a relocatable offloading application (OpenMP only)",
        ),
        EMIT,
    ],
    positional: Positional::Many,
    version,
};

static CLANG_TOOL: ToolSpec = ToolSpec {
    name: "clang-offload-wrapper",
    overview: "A tool to create a wrapper bitcode for offload target binaries. Takes offload\n\
               target binaries as input and produces bitcode file containing target binaries packaged\n\
               as data and initialization code which registers target binaries in offload runtime.",
    usage: "<input files>",
    category: "clang-offload-wrapper options",
    options: &[
        Opt::new(
            "o",
            Kind::Text,
            "<filename>",
            "Output filename, or - for stdout",
        )
        .required(),
        Opt::new(
            "offload-arch",
            Kind::List,
            "<offload-arch-name>",
            "Contains offload-arch of the following target binary.",
        ),
        Opt::new(
            "target",
            Kind::Text,
            "<triple>",
            "Target triple for the output module",
        )
        .required(),
        EMIT,
        Opt::new(
            "add-omp-offload-notes",
            Kind::Flag,
            "",
            "Add LLVMOMPOFFLOAD ELF notes to ELF device images.",
        )
        .hidden(),
        Opt::new(
            "save-temps",
            Kind::Flag,
            "",
            "Keep ELF images with notes in the current directory, and print their names.",
        )
        .hidden(),
    ],
    positional: Positional::Many,
    version,
};

/// The options of `llvm-offload-wrapper`, for the manual page.
pub(super) fn options_of_llvm() -> Vec<(String, String)> {
    LLVM_TOOL.listed()
}

/// The options of `clang-offload-wrapper`, for the manual page.
pub(super) fn options_of_clang() -> Vec<(String, String)> {
    CLANG_TOOL.listed()
}

/// Runs as `llvm-offload-wrapper`, the tool of LLVM 22.
pub(super) fn llvm_offload_wrapper(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    let Some(line) = read(&LLVM_TOOL, argv, shell)? else {
        return Ok(());
    };
    let session = Session::of(shell);
    let llvm = Llvm::new(&session);
    let kind = match line.text("kind").and_then(OsStr::to_str) {
        Some("cuda") => OffloadKind::Cuda,
        Some("hip") => OffloadKind::Hip,
        Some("sycl") => OffloadKind::Sycl,
        _ => OffloadKind::OpenMp,
    };
    let host_triple = match line.text("triple") {
        Some(triple) => text(triple, "triple")?,
        None => llvm.default_triple()?,
    };
    let inputs = line
        .positionals()
        .into_iter()
        .map(|path| Input {
            path: path.into(),
            offload_arch: None,
        })
        .collect();
    let output = output(&line);
    let request = Request {
        host_triple,
        kind,
        generation: Generation::Llvm21,
        inputs,
        emit: emit(&line, &output),
        output,
        notes: false,
        relocatable: line.flag("relocatable") == Some(true),
        inline_limit: INLINE_LIMIT,
    };
    wrap(&request, &llvm, &session)
}

/// Runs as `clang-offload-wrapper`, the tool of LLVM 14 and 15, with the options that AMD's version
/// adds.
pub(super) fn clang_offload_wrapper(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    let Some(line) = read(&CLANG_TOOL, argv, shell)? else {
        return Ok(());
    };
    let output = output(&line);
    let request = Request {
        host_triple: text(line.text("target").unwrap_or_default(), "target")?,
        kind: OffloadKind::OpenMp,
        generation: Generation::Llvm14,
        inputs: paired(&line)?,
        emit: emit(&line, &output),
        output,
        notes: line.flag("add-omp-offload-notes") == Some(true),
        relocatable: false,
        inline_limit: INLINE_LIMIT,
    };
    let save_temps = line.flag("save-temps") == Some(true);
    let session = Session::new(
        Arc::clone(shell),
        SessionOptions {
            save_temps,
            ..SessionOptions::default()
        },
    );
    wrap(&request, &Llvm::new(&session), &session)
}

/// Parses the command line. Prints the help or the version and returns `None` if the command line
/// requests one of them.
fn read(tool: &ToolSpec, argv: &[OsString], shell: &Shell) -> Result<Option<ParsedLine>> {
    match cl::parse(tool, shell.name(), argv)? {
        Outcome::Run(line) => Ok(Some(line)),
        Outcome::Print(text) => {
            cl::print(&text, shell);
            Ok(None)
        }
    }
}

/// Pairs each input with the `--offload-arch` before it. The runtime expects an architecture for
/// every image or for none, so a mixture is an error. An architecture without a following input is
/// an error, too.
fn paired(line: &ParsedLine) -> Result<Vec<Input>> {
    let mut inputs: Vec<Input> = Vec::new();
    let mut pending: Option<String> = None;
    for (name, value) in line.given() {
        match name {
            "offload-arch" => {
                let arch = text(value, "offload-arch")?;
                if arch.is_empty() {
                    bail!("--offload-arch= needs an architecture, such as gfx90a");
                }
                if let Some(before) = pending.replace(arch) {
                    bail!(
                        "no input follows --offload-arch={before}: put each --offload-arch before its input"
                    );
                }
            }
            "" => inputs.push(Input {
                path: value.into(),
                offload_arch: pending.take(),
            }),
            _ => {}
        }
    }
    if let Some(arch) = pending {
        bail!("no input follows --offload-arch={arch}: put each --offload-arch before its input");
    }
    let without = inputs.iter().find(|input| input.offload_arch.is_none());
    if let Some(without) = without.filter(|_| line.count("offload-arch") > 0) {
        bail!(
            "'{}' has no --offload-arch, but other inputs have one: put --offload-arch before each input",
            without.path.display()
        );
    }
    Ok(inputs)
}

fn output(line: &ParsedLine) -> PathBuf {
    line.text("o").unwrap_or_default().into()
}

fn emit(line: &ParsedLine, output: &Path) -> Emit {
    match line.text("emit").and_then(OsStr::to_str) {
        Some("bc") => Emit::Bitcode,
        Some("ll") => Emit::Text,
        Some("s") => Emit::Assembly,
        Some("o") => Emit::Object,
        _ => Emit::of(output),
    }
}

fn text(value: &OsStr, option: &str) -> Result<String> {
    value.to_str().map(str::to_owned).with_context(|| {
        format!(
            "invalid --{option} '{}': expected UTF-8 text",
            value.display()
        )
    })
}

fn version() -> String {
    format!(
        "offld {}\n  LLVM version {LLVM_RELEASE} (compatible)\n",
        env!("CARGO_PKG_VERSION")
    )
}
