//! The tools that offld emulates: offld behaves as a different tool for each name that it is called
//! by. Each tool turns its command line into a request to the library. Only `main` turns a result
//! into an exit status. The parts that several commands share are here as well.

mod bundler;
mod cache;
mod edits;
mod environment;
mod help;
mod link;
mod manual;
mod merge;
mod own;
mod packager;
mod reports;
mod size;
mod split;
mod topics;
mod wrapper;

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use clap::{Args, ValueHint};

use crate::args::Role;
use crate::args::cl::Refused;
use offld_system::environment::parse_size;
use offld_system::native::{self, Machine};
use offld_system::shell::{self, Shell};
use offload_files::contents;
use offload_files::contents::selection::Selection;
use offload_formats::error::{self, Error, Silent};
use offload_formats::model::{OffloadKind, printable};
use offload_formats::target::{Selector, Target};

/// Runs a tool with its arguments (without `argv[0]`).
type RunFn = fn(&[OsString], &Arc<Shell>) -> anyhow::Result<()>;

/// A tool that offld emulates when it is called by the tool's name.
pub(crate) struct EmulatedTool {
    /// The name of the executable, or the first argument of `offld`.
    pub name: &'static str,
    /// One line for the help text.
    pub about: &'static str,
    /// Whether `offld links` creates this name only with `--as-ld`.
    pub only_as_ld: bool,
    family: Family,
    /// Its options as its help spells them, each with its help text.
    options: fn() -> Vec<(String, String)>,
    run: RunFn,
}

/// A group of tools that read the same environment variables.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Family {
    Link,
    Bundler,
    Packager,
    Wrapper,
}

/// All tools, in the order of the help text.
pub(crate) const EMULATED_TOOLS: [EmulatedTool; 8] = [
    EmulatedTool {
        name: "clang-linker-wrapper",
        about: "the linker wrapper, which clang with -B DIR runs in place of LLVM's tool",
        only_as_ld: false,
        family: Family::Link,
        options: || link::options(Role::Wrapper),
        run: link::clang_linker_wrapper,
    },
    EmulatedTool {
        name: "ld.offld",
        about: "the linker, for -fuse-ld=offld, --ld-path= or direct use",
        only_as_ld: false,
        family: Family::Link,
        options: || link::options(Role::Ld),
        run: link::ld_offld,
    },
    EmulatedTool {
        name: "ld",
        about: "the linker, for drivers such as gcc that find offld only through -B DIR",
        only_as_ld: true,
        family: Family::Link,
        options: || link::options(Role::Ld),
        run: link::ld,
    },
    EmulatedTool {
        name: "llvm-offload-binary",
        about: "packs device images into OffloadBinaries, and extracts images from any supported file",
        only_as_ld: false,
        family: Family::Packager,
        options: packager::options,
        run: packager::llvm_offload_binary,
    },
    EmulatedTool {
        name: "clang-offload-packager",
        about: "llvm-offload-binary, under the name of LLVM 21 and earlier",
        only_as_ld: false,
        family: Family::Packager,
        options: packager::options,
        run: packager::clang_offload_packager,
    },
    EmulatedTool {
        name: "llvm-offload-wrapper",
        about: "generates registration code for device images, like the tool of LLVM 22",
        only_as_ld: false,
        family: Family::Wrapper,
        options: wrapper::options_of_llvm,
        run: wrapper::llvm_offload_wrapper,
    },
    EmulatedTool {
        name: "clang-offload-wrapper",
        about: "generates registration code for device images, like the tool of LLVM 14 and 15",
        only_as_ld: false,
        family: Family::Wrapper,
        options: wrapper::options_of_clang,
        run: wrapper::clang_offload_wrapper,
    },
    EmulatedTool {
        name: "clang-offload-bundler",
        about: "a replacement for LLVM's tool: bundles and unbundles code objects for several targets",
        only_as_ld: false,
        family: Family::Bundler,
        options: bundler::options,
        run: bundler::run,
    },
];

/// Runs the program: selects the tool by `argv[0]`, else by the first argument, and prints the
/// error if the tool fails.
pub fn main(argv: Vec<OsString>) -> ExitCode {
    let called = argv.first().cloned().unwrap_or_else(|| "offld".into());
    let shell = Arc::new(Shell::stderr(&called.to_string_lossy()));
    let result = match by_name(&called) {
        Some(personality) => (personality.run)(&argv[1..], &shell),
        None => own::run(&argv, &shell),
    };
    match result {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            match error.downcast_ref::<Refused>() {
                Some(refused) => refused.lines.iter().for_each(|line| shell.line(line)),
                None if error.is::<error::Silent>() => {}
                None => shell.error(&error::chain(&error)),
            }
            ExitCode::from(error::exit_status(&error))
        }
    }
}

/// Returns the tool for the executable's name, without directory, `.exe`, version suffix (`-22`)
/// and target prefix. clang searches `PATH` for names with a target prefix
/// (`x86_64-pc-linux-gnu-clang-linker-wrapper`).
fn by_name(called: &OsStr) -> Option<&'static EmulatedTool> {
    let name = Path::new(called).file_name()?.to_str()?;
    let name = name.strip_suffix(".exe").unwrap_or(name);
    let name = name
        .trim_end_matches(|c: char| c.is_ascii_digit() || c == '.')
        .trim_end_matches('-');
    EMULATED_TOOLS.iter().find(|personality| {
        name.strip_suffix(personality.name)
            .is_some_and(|prefix| prefix.is_empty() || prefix.ends_with('-'))
    })
}

/// Returns the tool whose name is the first argument of `offld`. `offld ld` is `ld.offld`.
fn by_word(word: &OsStr) -> Option<&'static EmulatedTool> {
    let word = if word == "ld" {
        OsStr::new("ld.offld")
    } else {
        word
    };
    EMULATED_TOOLS
        .iter()
        .find(|personality| personality.name == word)
}

// Parts that several commands share: `--only` and `--exclude` select files and members, `native`
// selects this machine's devices, `--max-unpacked` limits decompressed data. Also the end of a
// command: its report, its errors, its exit status.

/// The options.
#[derive(Debug, Args)]
struct Selected {
    /// Process only matching files and package members (wheel, zip, tar), by path or name;
    /// repeatable
    #[arg(long, value_name = "GLOB", value_hint = ValueHint::Other)]
    only: Vec<String>,
    /// Skip matching files and package members (wheel, zip, tar), by path or name; repeatable
    #[arg(long, value_name = "GLOB", value_hint = ValueHint::Other)]
    exclude: Vec<String>,
}

impl Selected {
    fn selection(&self) -> Result<Arc<Selection>> {
        Ok(Arc::new(Selection::new(&self.only, &self.exclude)?))
    }

    /// Fails if a pattern of `--only` matched nothing, and warns of unmatched patterns of
    /// `--exclude`.
    fn check(selection: &Selection, shell: &Shell) -> Result<()> {
        if let Some(pattern) = selection.unmatched_only().next() {
            return Err(Error::usage(format!(
                "no file or member matches `{}` of --only",
                printable(pattern)
            ))
            .into());
        }
        for pattern in selection.unmatched_exclude() {
            shell.warn(&format!(
                "no file or member matches `{}` of --exclude",
                printable(pattern)
            ));
        }
        Ok(())
    }
}

/// Parses the value of `--max-unpacked`.
fn max_unpacked(size: Option<&OsString>) -> Result<u64> {
    size.map_or(Ok(contents::Options::default().max_unpacked), |size| {
        parse_size(size).context("--max-unpacked")
    })
}

/// Returns the devices of this machine that `selector` selects. A GPU selector without a matching
/// GPU is an error.
fn native(selector: &Selector) -> Result<Vec<Target>> {
    let machine = Machine::read(&native::root())?;
    let kind = selector.kind();
    let amd = machine
        .amd
        .iter()
        .map(|name| Target::new("amdgcn-amd-amdhsa", name));
    let nvidia = machine
        .nvidia
        .iter()
        .map(|name| Target::new("nvptx64-nvidia-cuda", name));
    let cpu = Target::new(&format!("{}-pc-linux-gnu", std::env::consts::ARCH), "");
    let all: Vec<Target> = match kind {
        Some(OffloadKind::Hip) => amd.collect(),
        Some(OffloadKind::Cuda) => nvidia.collect(),
        _ => amd.chain(nvidia).chain([cpu]).collect(),
    };
    if all.is_empty() {
        bail!("`{selector}`: no matching GPU on this machine");
    }
    Ok(all)
}

/// Says that the files and directories at `paths` contain no file with device code.
fn note_nothing(paths: &[PathBuf], shell: &Shell) {
    let paths: Vec<String> = paths
        .iter()
        .map(|path| format!("`{}`", printable(&path.display().to_string())))
        .collect();
    shell.note(&format!("no file with device code in {}", paths.join(", ")));
}

/// Prints a report, then `errors`. Fails with `status` unless it is 0.
fn finish(
    text: &str,
    errors: impl IntoIterator<Item = impl AsRef<str>>,
    status: u8,
    shell: &Shell,
) -> Result<()> {
    let printed = shell::print(text);
    for error in errors {
        shell.error(error.as_ref());
    }
    printed?;
    match status {
        0 => Ok(()),
        status => Err(Silent { status }.into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_name_selects_the_personality() {
        let name = |called: &str| by_name(OsStr::new(called)).map(|personality| personality.name);
        assert_eq!(
            name("/x/clang-linker-wrapper"),
            Some("clang-linker-wrapper")
        );
        assert_eq!(
            name("clang-linker-wrapper-22"),
            Some("clang-linker-wrapper")
        );
        assert_eq!(
            name("x86_64-pc-linux-gnu-clang-linker-wrapper"),
            Some("clang-linker-wrapper")
        );
        assert_eq!(name("ld.offld"), Some("ld.offld"));
        assert_eq!(name("/dir/ld"), Some("ld"));
        assert_eq!(name("x86_64-linux-gnu-ld"), Some("ld"));
        assert_eq!(name("offld"), None);
        assert_eq!(name("offld-0.1"), None);
    }
}
