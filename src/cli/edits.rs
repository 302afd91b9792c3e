//! Options and reports that the editing commands share: the destination of the new files, and the
//! summary of changes.

use std::path::PathBuf;
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use super::inspect::with_status;
use crate::edit::files::{self, Change, ImageChange, To};
use crate::edit::{Levels, Recompressed};
use crate::error::{Error, Silent};
use crate::model::printable;
use crate::sys::shell::{self, Shell};
use crate::sys::table::{self, Style};
use crate::sys::terminal::wrapped;

/// The exit status if a file could not be changed.
const FAILED: u8 = 2;
/// The version of the report's schema.
const SCHEMA: u32 = 1;

/// The options that all of these commands have.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("place").required(true).multiple(false).args(["output", "in_place", "dir", "dry_run"]))]
pub(super) struct EditOptions {
    /// Write the new file to OUT; - for stdout
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Replace the original files
    #[arg(long)]
    in_place: bool,
    /// Write the new files below DIR, under their names; for directories, copy all other files as
    /// well
    #[arg(short, long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Report the changes, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Also change signed files and, in place, files with several hard links
    #[arg(long)]
    force: bool,
    /// Give changed programs and libraries a new build ID
    #[arg(long)]
    new_build_id: bool,
    /// Write the report as JSON to stdout, with digests of the files
    #[arg(long)]
    json: bool,
    /// Show sizes in bytes
    #[arg(long)]
    bytes: bool,
}

impl EditOptions {
    /// The options for `edit`.
    pub(super) fn options(&self, allow_empty: bool, levels: Levels) -> Result<files::Options> {
        let selection = Arc::default();
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
        let (dry_run, force, new_build_id, digests) =
            (self.dry_run, self.force, self.new_build_id, self.json);
        let image_bytes = false;
        Ok(files::Options {
            to,
            dry_run,
            force,
            allow_empty,
            new_build_id,
            levels,
            digests,
            image_bytes,
            selection,
        })
    }

    /// Prints the changes of each file, as text or JSON, and the errors.
    pub(super) fn tell(&self, changes: &[Change], verb: &str, shell: &Shell) -> Result<()> {
        let text = if self.json {
            let report = Report {
                schema: SCHEMA,
                generator: format!("offld {}", env!("CARGO_PKG_VERSION")),
                files: changes,
            };
            let mut text =
                serde_json::to_string_pretty(&report).context("cannot write the report as JSON")?;
            text.push('\n');
            text
        } else {
            let lines: String = changes
                .iter()
                .filter(|change| change.error.is_none())
                .map(|change| self.line(change, verb))
                .collect();
            wrapped(&lines, shell.stdout_style().width)
        };
        let printed = if self.output.as_deref() == Some("-".as_ref()) {
            shell.text(&text);
            Ok(())
        } else {
            shell::print(&text)
        };
        changes
            .iter()
            .filter_map(|change| change.error.as_ref())
            .for_each(|error| shell.error(error));
        printed.map_err(with_status)?;
        if changes.iter().any(|change| change.error.is_some()) {
            Err(Silent { status: FAILED }.into())
        } else {
            Ok(())
        }
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
        let recompressed = change.recompressed.map_or(String::new(), recompressed);
        if !change.changed {
            return format!(
                "{file}: {}, unchanged{recompressed}{in_data}\n",
                size(change.after)
            );
        }
        let mut names: Vec<&str> = changed
            .iter()
            .map(|image| {
                if image.target.is_empty() {
                    image.triple.as_str()
                } else {
                    image.target.as_str()
                }
            })
            .collect();
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
            "{file}: {before} -> {after} ({sign}{saved:.1}%){what}{recompressed}{members}{in_data}\n"
        )
    }
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
