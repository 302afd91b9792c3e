//! The commands that change the images of finished files, and their common options: `prune`,
//! `replace`, `recompress` and `strip-device`.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::Result;
use clap::{Args, ValueHint};
use serde::Serialize;

use super::{Selected, finish, native};
use offld_system::session::Session;
use offld_system::shell::{self, Shell};
use offld_system::table::{self, Style};
use offld_system::terminal::wrapped;
use offload_files::contents::report::Image;
use offload_files::edit::files::{self, Change, ImageChange, To, change};
use offload_files::edit::{Levels, Recompressed, Repack, Verdict};
use offload_files::prune::Patterns;
use offload_files::replace::NewImage;
use offload_files::{prune, replace, strip_device};
use offload_formats::error::Error;
use offload_formats::model::printable;
use offload_formats::target::Selector;

/// The version of the report's schema.
const SCHEMA: u32 = 1;

/// The options of `offld prune`.
#[derive(Debug, Args)]
#[command(
    after_help = "Patterns are [KIND:][TRIPLE:]ARCH[:FEATURES], with * ? [abc] in names: gfx90a, gfx9*, hip:gfx942:xnack+, sm_90, cpu, native.\n\
    With both --keep and --drop, --drop takes precedence.\n\n\
    Exit status: 0, or 2 if a file could not be read or changed. Files with errors stay unchanged.\n\n\
    Examples:\n  offld prune --keep gfx90a,gfx942 libhip.so -o small/libhip.so\n  offld prune --keep native --in-place program\n  \
    offld prune --drop 'sm_[567]?' -d pruned wheels/*.whl"
)]
#[command(group = clap::ArgGroup::new("which").required(true).multiple(true).args(["keep", "drop"]))]
pub(super) struct Prune {
    /// Prune files, or all files in directories: objects, libraries, programs, archives, wheels,
    /// bundles, other containers
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Keep only images that match these patterns
    #[arg(long, value_name = "PATTERNS", value_hint = ValueHint::Other, value_delimiter = ',')]
    keep: Vec<Selector>,
    /// Remove images that match these patterns
    #[arg(long, value_name = "PATTERNS", value_hint = ValueHint::Other, value_delimiter = ',')]
    drop: Vec<Selector>,
    /// Allow removing the last image of a registration, bundle or object (without images, OpenMP
    /// programs run on the host, CUDA and HIP programs fail)
    #[arg(long)]
    allow_empty: bool,
    #[command(flatten)]
    selected: Selected,
    #[command(flatten)]
    edits: EditOptions,
}

pub(super) fn prune(options: Prune, shell: &Arc<Shell>) -> Result<()> {
    let patterns = Patterns {
        keep: resolve_native(options.keep)?,
        drop: resolve_native(options.drop)?,
    };
    let selection = options.selected.selection()?;
    let engine = files::Options {
        selection: Arc::clone(&selection),
        allow_empty: options.allow_empty,
        ..options.edits.options()?
    };
    let pruned = prune::prune(&options.files, &patterns, &engine, &Session::of(shell))?;
    for pattern in &pruned.unused {
        shell.warn(&format!(
            "pattern `{}` selects no image",
            printable(pattern)
        ));
    }
    options.edits.tell(&pruned.changes, "dropped", shell)?;
    Selected::check(&selection, shell)
}

/// Replaces `native` in the patterns with the devices of this machine.
fn resolve_native(selectors: Vec<Selector>) -> Result<Vec<Selector>> {
    let one = |selector: Selector| match selector.is_native() {
        true => native(&selector).map(|devices| selector.with_native(&devices)),
        false => Ok(selector),
    };
    selectors.into_iter().map(one).collect()
}

/// The options of `offld replace`.
#[derive(Debug, Args)]
#[command(
    after_help = "N is the number of the image in the report of `offld inspect`; for a wheel, inspect the whole wheel. For a directory, pass\n\
    --image PATH:N=IMAGE. PATH is absolute, or relative to the edited directory or the current directory. The container\n\
    keeps the metadata of the replaced image. --force also accepts images that do not suit the device.\n\n\
    Exit status: 0, or 2 if a file could not be read or changed. Files with errors stay unchanged.\n\n\
    Examples:\n  offld replace program --image 1=tuned.hsaco -o tuned\n  offld replace libk.so --image 0=a.cubin --image 3=b.cubin --in-place\n  \
    offld replace some.whl --image 7=tuned.hsaco -d new\n  \
    offld replace build --image lib/libk.so:0=a.cubin --image lib/libm.so:2=b.cubin -d tuned"
)]
pub(super) struct Replace {
    /// Edit this file (program, library, archive, object, wheel, bundle, other container) or
    /// directory
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace image N (in a directory: image N of the file PATH) with the file IMAGE
    #[arg(long = "image", value_name = "[PATH:]N=IMAGE", required = true)]
    images: Vec<OsString>,
    #[command(flatten)]
    edits: EditOptions,
}

pub(super) fn replace(options: Replace, shell: &Arc<Shell>) -> Result<()> {
    let images = options.images.iter().map(new_image);
    let images = images.collect::<Result<Vec<_>>>()?;
    let engine = options.edits.options()?;
    let changes = replace::replace(&options.file, &images, &engine, &Session::of(shell))?;
    options.edits.tell(&changes, "replaced", shell)
}

/// Parses `N=IMAGE` or `PATH:N=IMAGE`. The names may contain `=` and `:`.
fn new_image(text: &OsString) -> Result<NewImage> {
    let bytes = text.as_bytes();
    let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    let at = |at: usize| {
        let (before, after) = (bytes.get(..at)?, bytes.get(at + 1..)?);
        let digits = before
            .iter()
            .rev()
            .take_while(|byte| byte.is_ascii_digit())
            .count();
        let (file, number) = before.split_at(before.len() - digits);
        let index = std::str::from_utf8(number).ok()?.parse().ok()?;
        let file = match file.strip_suffix(b":") {
            Some(file) if !file.is_empty() => Some(path(file)),
            None if file.is_empty() => None,
            _ => return None,
        };
        Some(NewImage {
            file,
            index,
            path: path(after),
        })
    };
    let found = bytes
        .iter()
        .enumerate()
        .filter(|(_, byte)| **byte == b'=')
        .find_map(|(equals, _)| at(equals));
    found.ok_or_else(|| {
        Error::usage(format!(
            "invalid --image '{}': expected N=IMAGE or PATH:N=IMAGE",
            text.display()
        ))
        .into()
    })
}

/// The options of `offld recompress`.
#[derive(Debug, Args)]
#[command(
    after_help = "The command recompresses compressed HIP bundles, OffloadBinaries of version 3 and zstd entries of fatbinaries. The\n\
    compression method, zstd or zlib, stays. The zstd window of a bundle covers 256 MiB of images, or 2 GiB from level 20 on.\n\
    Data that is repeated within the window is stored once. Bundles keep their version: version 2 needs LLVM 19 or ROCm 6.2,\n\
    version 3 needs LLVM 22 or ROCm 7. LZ4 entries of fatbinaries do not change.\n\n\
    Exit status: 0, or 2 if a file could not be read or changed. Files with errors stay unchanged.\n\n\
    Examples:\n  offld recompress --level 19 libhip.so -o small/libhip.so\n  offld recompress --level 22 -d small build/lib"
)]
pub(super) struct Recompress {
    /// Recompress files, or all files in directories: objects, libraries, programs, archives, wheels,
    /// bundles, other containers
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Set the zstd level: 1 to 22 (compilers use 3; levels from 20 on can require 2 GiB of memory
    /// or more)
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(i32).range(1..=22))]
    level: i32,
    #[command(flatten)]
    edits: EditOptions,
}

pub(super) fn recompress(options: Recompress, shell: &Arc<Shell>) -> Result<()> {
    let engine = files::Options {
        levels: Levels {
            level: Some(options.level),
            repack: Repack::All,
            only_smaller: true,
            sort: true,
        },
        ..options.edits.options()?
    };
    let keep = |_: &Path, images: &[Image]| Ok(vec![Verdict::Keep; images.len()]);
    let changes = change(&options.files, &engine, &Session::of(shell), &keep)?;
    options.edits.tell(&changes, "changed", shell)
}

/// The options of `offld strip-device`.
#[derive(Debug, Args)]
#[command(
    after_help = "The command removes debug sections from AMD images, NVIDIA cubins and CPU images. Data that a runtime loads stays unchanged:\n\
    segments, addresses, symbols and kernel metadata. To remove debug information from host code, run `strip`.\n\n\
    Exit status: 0, or 2 if a file could not be read or changed. Files with errors stay unchanged.\n\n\
    Examples:\n  offld strip-device --in-place libhip.so\n  offld strip-device -d small build/lib"
)]
pub(super) struct StripDevice {
    /// Strip files, or all files in directories: objects, libraries, programs, archives, wheels,
    /// bundles, other containers
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    #[command(flatten)]
    edits: EditOptions,
}

pub(super) fn strip_device(options: StripDevice, shell: &Arc<Shell>) -> Result<()> {
    let engine = options.edits.options()?;
    let changes = strip_device::strip_device(&options.files, &engine, &Session::of(shell))?;
    options.edits.tell(&changes, "stripped", shell)
}

/// The options that all of these commands have.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("place").required(true).multiple(false).args(["output", "in_place", "dir", "dry_run"]))]
struct EditOptions {
    /// Write the new file to OUT (- is stdout)
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Replace the original files
    #[arg(long)]
    in_place: bool,
    /// Write new files below DIR, under the original names. If FILE is a directory, also copy its
    /// unchanged files
    #[arg(short, long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Report the changes without writing files
    #[arg(long)]
    dry_run: bool,
    /// Change signed files, and with --in-place also files with several hard links
    #[arg(long)]
    force: bool,
    /// Give changed programs and libraries a new build ID
    #[arg(long)]
    new_build_id: bool,
    /// Print the report as JSON, with digests of the files
    #[arg(long)]
    json: bool,
    /// Show sizes in bytes
    #[arg(long)]
    bytes: bool,
}

impl EditOptions {
    /// The options for `edit`.
    fn options(&self) -> Result<files::Options> {
        let to = match (&self.output, &self.dir) {
            (Some(path), _) => To::File(path.clone()),
            (_, Some(dir)) => To::Folder(dir.clone()),
            _ => To::InPlace,
        };
        if self.json && to == To::File("-".into()) {
            return Err(
                Error::usage("cannot write the file and the JSON report both to stdout: pass -o FILE, or omit --json").into()
            );
        }
        Ok(files::Options {
            to,
            dry_run: self.dry_run,
            force: self.force,
            allow_empty: false,
            new_build_id: self.new_build_id,
            levels: Levels::default(),
            digests: self.json,
            image_bytes: false,
            selection: Arc::default(),
        })
    }

    /// Prints the changes of each file, as text or JSON, and the errors.
    fn tell(&self, changes: &[Change], verb: &str, shell: &Shell) -> Result<()> {
        let text = if self.json {
            shell::json(&Report {
                schema: SCHEMA,
                generator: format!("offld {}", env!("CARGO_PKG_VERSION")),
                files: changes,
            })?
        } else {
            let lines: String = changes
                .iter()
                .filter(|change| change.error.is_none())
                .map(|change| self.line(change, verb))
                .collect();
            wrapped(&lines, shell.stdout_style().width)
        };
        let errors = changes.iter().filter_map(|change| change.error.as_ref());
        let mut errors = errors.peekable();
        let status = if errors.peek().is_some() { 2 } else { 0 };
        if self.output.as_deref() == Some("-".as_ref()) {
            shell.text(&text);
            return finish("", errors, status, shell);
        }
        finish(&text, errors, status, shell)
    }

    fn line(&self, change: &Change, verb: &str) -> String {
        let style = Style {
            bytes: self.bytes,
            ..Style::default()
        };
        let size = |bytes| table::size(bytes, style);
        let file = printable(&change.file);
        let changed: Vec<_> = change
            .images
            .iter()
            .filter(|image| image.fate != "keep")
            .collect();
        let in_data = change.images.iter().filter(|image| image.in_data).count();
        let in_data = match in_data {
            0 => String::new(),
            1 => "; 1 image in data sections stays".to_owned(),
            count => format!("; {count} images in data sections stay"),
        };
        let beside: String = change
            .external
            .iter()
            .map(|directory| {
                format!(
                    "; images in `{}` stay: edit them there",
                    printable(directory)
                )
            })
            .collect();
        let recompressed = change.recompressed.map_or(String::new(), recompressed);
        if !change.changed {
            return format!(
                "{file}: {}, unchanged{recompressed}{in_data}{beside}\n",
                size(change.after)
            );
        }
        let mut names: Vec<&str> = changed.iter().map(|image| image.arch.as_str()).collect();
        names.sort_unstable();
        names.dedup();
        // Host entries are not device images.
        let is_device = |image: &&ImageChange| image.kinds.iter().all(|kind| kind != "host");
        let devices = change.images.iter().filter(is_device).count();
        let what = match changed.len() {
            0 => String::new(),
            count => format!(", {count} of {devices} images {verb}: {}", names.join(", ")),
        };
        if change.removed {
            return format!("{file}: {}, removed{what}\n", size(change.before));
        }
        let no_ptx = if loses_all_ptx(&change.images) {
            "; no PTX is left, so GPUs newer than the machine code cannot run it"
        } else {
            ""
        };
        let members = match change.removed_members.as_slice() {
            [] => String::new(),
            [one] => format!("; member removed: {}", printable(one)),
            [first, rest @ ..] => format!(
                "; members removed: {} and {} more",
                printable(first),
                rest.len()
            ),
        };
        let saved =
            (change.before as f64 - change.after as f64) / (change.before.max(1) as f64) * 100.0;
        let sign = if saved < 0.0 { "+" } else { "-" };
        let (before, after, saved) = (size(change.before), size(change.after), saved.abs());
        format!(
            "{file}: {before} -> {after} ({sign}{saved:.1}%){what}{no_ptx}{recompressed}{members}{in_data}{beside}\n"
        )
    }
}

/// Whether an edit removes all PTX of a file, and keeps machine code of NVIDIA GPUs.
fn loses_all_ptx(images: &[ImageChange]) -> bool {
    let is_ptx = |image: &&ImageChange| image.arch.starts_with("compute_");
    let kept = || images.iter().filter(|image| image.fate != "drop");
    images.iter().any(|image| is_ptx(&image))
        && !kept().any(|image| is_ptx(&image))
        && kept().any(|image| image.arch.starts_with("sm_"))
}

/// Formats the number of recompressed containers in a file:
/// `; 3 of 259 compressed containers recompressed`.
fn recompressed(done: Recompressed) -> String {
    let Recompressed { smaller, all, lz4 } = done;
    let containers = if all == 1 { "container" } else { "containers" };
    let kept = match all - smaller - lz4.min(all - smaller) {
        0 => String::new(),
        1 => ", 1 would not become smaller".to_owned(),
        count => format!(", {count} would not become smaller"),
    };
    let lz4 = if lz4 > 0 {
        format!(", {lz4} with LZ4 left unchanged")
    } else {
        String::new()
    };
    format!("; {smaller} of {all} compressed {containers} recompressed{lz4}{kept}")
}

/// The JSON report of the editing commands.
#[derive(Debug, Serialize)]
struct Report<'r> {
    schema: u32,
    generator: String,
    files: &'r [Change],
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_and_number_are_separated() {
        let parsed = |text: &str| {
            let new = new_image(&text.into()).ok()?;
            Some((
                new.file.map(|file| file.display().to_string()),
                new.index,
                new.path.display().to_string(),
            ))
        };
        let image = |file: Option<&str>, index, path: &str| {
            Some((file.map(str::to_owned), index, path.to_owned()))
        };
        for (text, expected) in [
            ("3=a", image(None, 3, "a")),
            ("3=a=b:4=c", image(None, 3, "a=b:4=c")),
            ("lib/x.so:0=a", image(Some("lib/x.so"), 0, "a")),
            ("a=b.so:12=c", image(Some("a=b.so"), 12, "c")),
            ("a:1:2=c", image(Some("a:1"), 2, "c")),
            ("3=", image(None, 3, "")),
            (":3=a", None),
            ("x3=a", None),
            ("x:=a", None),
            ("x:1", None),
            ("99999999999999999999=a", None),
        ] {
            assert_eq!(parsed(text), expected, "{text}");
        }
    }
}
