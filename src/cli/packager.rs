//! `llvm-offload-binary`, named `clang-offload-packager` up to LLVM 21: packs device images into a
//! file and extracts them.

use std::ffi::OsString;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Result, bail};

use crate::args::cl::{self, Kind, Opt, Outcome, ParsedLine, Positional};
use crate::toolchain;
use offld_system::session::Session;
use offld_system::shell::Shell;
use offload_files::packager::{self, Extract, Format, ImageArguments, Pack};
use offload_formats::model::LLVM_MAJOR;
use offload_formats::recipe::{Recipe, Style};

static TOOL: cl::ToolSpec = cl::ToolSpec {
    name: "llvm-offload-binary",
    overview: "A utility for bundling several object files into a single binary.\n\
               The output binary can then be embedded into the host section table\n\
               to create a fatbinary containing offloading code.",
    usage: "Extract from <file>.",
    category: "llvm-offload-binary options",
    options: &[
        Opt::new(
            "archive",
            Kind::Flag,
            "",
            "Write extracted files to a static archive",
        ),
        Opt::new(
            "compress",
            Kind::Flag,
            "",
            "Compress the output, as LLVM 24 does: one binary of version 3 for all images",
        )
        .hidden(),
        Opt::new(
            "compression-format",
            Kind::Choice(&[("zstd", "zstd (default)"), ("zlib", "zlib")]),
            "<value>",
            "Format of --compress:",
        )
        .hidden(),
        Opt::new(
            "compression-level",
            Kind::Int,
            "<n>",
            "Level of --compress (default: 3 for zstd, 6 for zlib)",
        )
        .hidden(),
        Opt::new(
            "error-on-no-match",
            Kind::Flag,
            "",
            "Fail, and write nothing, if an --image matches nothing",
        )
        .hidden(),
        Opt::new(
            "format-version",
            Kind::Uint,
            "<uint>",
            "Version to write: 1 (default), or 2, one binary for all images",
        )
        .hidden(),
        Opt::new(
            "image",
            Kind::List,
            "<<key>=<value>,...>",
            "List of key and value arguments. Required keywords are 'file' and 'triple'.",
        ),
        Opt::new(
            "legacy-kinds",
            Kind::Flag,
            "",
            "Write the offload kind numbers of LLVM 15 to 20 (hip is 3)",
        )
        .hidden(),
        Opt::new("o", Kind::Text, "<file>", "Write output to <file>."),
    ],
    positional: Positional::One,
    version: || {
        format!(
            "offld {} LLVM version {LLVM_MAJOR} (compatible)\n",
            env!("CARGO_PKG_VERSION")
        )
    },
};

/// The options, for the manual page.
pub(super) fn options() -> Vec<(String, String)> {
    TOOL.listed()
}

/// The LLVM release that renamed the packager.
const RENAMED_IN: u32 = 22;
/// The first LLVM release that stores kinds as bits, with 4 for HIP.
const KINDS_ARE_BITS: u32 = 21;

pub(super) fn llvm_offload_binary(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    run(argv, shell, false)
}

pub(super) fn clang_offload_packager(argv: &[OsString], shell: &Arc<Shell>) -> Result<()> {
    run(argv, shell, true)
}

fn run(argv: &[OsString], shell: &Arc<Shell>, old_name: bool) -> Result<()> {
    let line = match cl::parse(&TOOL, shell.name(), argv)? {
        Outcome::Print(text) => {
            cl::print(&text, shell);
            return Ok(());
        }
        Outcome::Run(line) => line,
    };
    // Tools of the compiler's release read the output, so the calling compiler's release decides.
    // Before LLVM 21 kinds have other numbers, and before LLVM 22 the old name is not deprecated.
    let caller = if old_name {
        toolchain::calling_release()
    } else {
        None
    };
    if old_name && is_deprecated(shell.name()) && caller.is_none_or(|release| release >= RENAMED_IN)
    {
        shell.line(
            "warning: 'clang-offload-packager' is deprecated. Use 'llvm-offload-binary' instead.",
        );
    }
    // LLVM treats an empty name as a missing one.
    let output = line
        .text("o")
        .filter(|name| !name.is_empty())
        .map(PathBuf::from);
    let input = line
        .positionals()
        .first()
        .filter(|name| !name.is_empty())
        .map(PathBuf::from);
    let session = Session::of(shell);
    let images = line
        .list("image")
        .into_iter()
        .map(ImageArguments::parse)
        .collect();
    match (input, output) {
        (None, None) => {
            cl::print(line.help(), shell);
            Ok(())
        }
        (Some(_), Some(_)) => {
            bail!(
                "Packaging to an output file and extracting from an input file are mutually exclusive."
            )
        }
        (None, Some(output)) => {
            let legacy_kinds = line
                .flag("legacy-kinds")
                .unwrap_or(caller.is_some_and(|release| release < KINDS_ARE_BITS));
            let compression = compression(&line)?;
            packager::pack(
                &Pack {
                    images,
                    output,
                    format: format(&line)?,
                    compression,
                    legacy_kinds,
                },
                &session,
            )
        }
        (Some(input), None) => {
            let archive = line.flag("archive").unwrap_or_default();
            let all_must_match = line.flag("error-on-no-match").unwrap_or_default();
            let all = images.is_empty();
            let done = packager::extract(
                &Extract {
                    input,
                    images,
                    archive,
                    all_must_match,
                },
                &session,
            )?;
            let names = done
                .generated
                .iter()
                .filter(|_| all)
                .map(|name| format!("Extracted: {name}\n"));
            print(&names.collect::<String>())
        }
    }
}

/// Returns the compression of the output, or `None` if the command line does not request any.
fn compression(line: &ParsedLine) -> Result<Option<Recipe>> {
    if !line.flag("compress").unwrap_or_default() {
        return Ok(None);
    }
    if let Some(version @ 1..=2) = line.uint("format-version") {
        bail!("--compress writes version 3 only: omit --format-version={version}");
    }
    let is_zlib = line
        .text("compression-format")
        .is_some_and(|format| format == "zlib");
    let (style, usual, levels) = if is_zlib {
        (Style::Zlib, 6, 0..=9)
    } else {
        (Style::Zstd, 3, zstd::compression_level_range())
    };
    let level = line.int("compression-level").unwrap_or(usual);
    if !levels.contains(&level) {
        bail!(
            "--compression-level={level} is out of range: expected {} to {}",
            levels.start(),
            levels.end()
        );
    }
    Ok(Some(Recipe { style, level }))
}

fn format(line: &ParsedLine) -> Result<Format> {
    match line.uint("format-version") {
        None | Some(1) => Ok(Format::Separate),
        Some(2) => Ok(Format::Shared),
        // Only compressed binaries have version 3.
        Some(3) if line.flag("compress").unwrap_or_default() => Ok(Format::Shared),
        Some(other) => bail!("--format-version={other}: expected 1 or 2"),
    }
}

/// Whether LLVM prints the deprecation warning for this program name. It prints none for a name
/// with a version suffix, such as `clang-offload-packager-22`.
fn is_deprecated(called: &str) -> bool {
    let stem = Path::new(called)
        .file_stem()
        .unwrap_or_default()
        .to_string_lossy();
    stem.ends_with("clang-offload-packager") || !stem.contains("clang-offload-packager")
}

fn print(text: &str) -> Result<()> {
    // A closed pipe is not an error.
    let _ = std::io::stdout().write_all(text.as_bytes());
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::is_deprecated;

    #[test]
    fn only_the_unversioned_old_name_is_deprecated() {
        let names = [
            "/x/clang-offload-packager",
            "clang-offload-packager.exe",
            "offld",
            "x86_64-clang-offload-packager",
        ];
        assert!(names.into_iter().all(is_deprecated));
        assert!(!is_deprecated("/usr/bin/clang-offload-packager-22"));
    }
}
