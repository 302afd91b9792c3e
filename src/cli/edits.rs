//! What the commands that change finished files have in common: where the new files go, and how it is told what became of them.

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use serde::Serialize;

use super::inspect::with_status;
use crate::edit::Levels;
use crate::edit::files::{self, Change, To};
use crate::error::{Error, Silent};
use crate::model::printable;
use crate::sys::shell::{self, Shell};
use crate::sys::table::{self, Style};

/// The exit status where a file could not be changed.
const FAILED: u8 = 2;
/// The version of the report's form.
const SCHEMA: u32 = 1;

/// The options that all of these commands have.
#[derive(Debug, Args)]
#[command(group = clap::ArgGroup::new("place").required(true).multiple(false).args(["output", "in_place", "dir", "dry_run"]))]
pub(super) struct EditOptions {
    /// Write the new file here; - is stdout
    #[arg(short, long, value_name = "OUT")]
    output: Option<PathBuf>,
    /// Put the new files in the places of the old ones
    #[arg(long)]
    in_place: bool,
    /// Write the new files below this folder, under their names; of folders, all that is in them
    #[arg(short, long, value_name = "DIR")]
    dir: Option<PathBuf>,
    /// Say what would become of the files, and write nothing
    #[arg(long)]
    dry_run: bool,
    /// Change files that are signed, and in place those that have several hard links
    #[arg(long)]
    force: bool,
    /// Give changed programs and libraries a build id of their own
    #[arg(long)]
    new_build_id: bool,
    /// Write a report as JSON to stdout, with the digests of the files
    #[arg(long)]
    json: bool,
    /// Show sizes in bytes
    #[arg(long)]
    bytes: bool,
}

impl EditOptions {
    /// The same for the engine.
    pub(super) fn options(&self, allow_empty: bool, levels: Levels) -> Result<files::Options> {
        let to = match (&self.output, &self.dir) {
            (Some(path), _) => To::File(path.clone()),
            (_, Some(dir)) => To::Folder(dir.clone()),
            _ => To::InPlace,
        };
        if self.json && to == To::File("-".into()) {
            return Err(Error::usage("the file and the report cannot both go to stdout").into());
        }
        let (dry_run, force, new_build_id, digests) = (self.dry_run, self.force, self.new_build_id, self.json);
        Ok(files::Options { to, dry_run, force, allow_empty, new_build_id, levels, digests, image_bytes: false })
    }

    /// Says what became of the files.
    pub(super) fn tell(&self, changes: &[Change], verb: &str, shell: &Shell) -> Result<()> {
        let text = if self.json {
            let report = Report { schema: SCHEMA, generator: format!("offld {}", env!("CARGO_PKG_VERSION")), files: changes };
            let mut text = serde_json::to_string_pretty(&report).context("cannot write the report as JSON")?;
            text.push('\n');
            text
        } else {
            changes.iter().filter(|change| change.error.is_none()).map(|change| self.line(change, verb)).collect()
        };
        let printed = if self.output.as_deref() == Some("-".as_ref()) {
            shell.text(&text);
            Ok(())
        } else {
            shell::print(&text)
        };
        changes.iter().filter_map(|change| change.error.as_ref()).for_each(|error| shell.error(error));
        printed.map_err(with_status)?;
        if changes.iter().any(|change| change.error.is_some()) { Err(Silent { status: FAILED }.into()) } else { Ok(()) }
    }

    fn line(&self, change: &Change, verb: &str) -> String {
        let style = Style { bytes: self.bytes, mangled: false, width: None };
        let size = |bytes| table::size(bytes, style);
        let file = printable(&change.file);
        let changed: Vec<_> = change.images.iter().filter(|image| image.fate != "keep").collect();
        if !change.changed {
            return format!("{file}: {}, as it was\n", size(change.after));
        }
        let mut names: Vec<&str> = changed
            .iter()
            .map(|image| if image.target.is_empty() { image.triple.as_str() } else { image.target.as_str() })
            .collect();
        names.sort_unstable();
        names.dedup();
        let what = match changed.len() {
            0 => String::new(),
            count => format!(", {count} of {} images {verb}: {}", change.images.len(), names.join(", ")),
        };
        let saved = (change.before as f64 - change.after as f64) / (change.before.max(1) as f64) * 100.0;
        let sign = if saved < 0.0 { "+" } else { "-" };
        format!("{file}: {} -> {} ({sign}{:.1} %){what}\n", size(change.before), size(change.after), saved.abs())
    }
}

/// The report of these commands.
#[derive(Debug, Serialize)]
struct Report<'r> {
    schema: u32,
    generator: String,
    files: &'r [Change],
}
