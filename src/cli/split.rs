//! `offld split FILE… -d DIR`: files are taken apart into a host part and a part for each device.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result};
use clap::Args;
use rayon::prelude::*;

use super::inspect::with_status;
use crate::edit::files::{copy_with_attributes, keep_attributes, tree};
use crate::edit::recipe::Device;
use crate::error::{self, Silent};
use crate::io::outputs::Outputs;
use crate::io::piece::Piece;
use crate::model::printable;
use crate::sys::progress::Meter;
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::{self, Shell};
use crate::sys::table::{self, Style};
use crate::sys::threads;
use crate::tools::split::{Split, split};

/// The exit status where a file could not be taken apart.
const FAILED: u8 = 2;

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "Makes NAME.host and NAME.DEVICE.part for each file NAME; `offld merge` puts them together again, byte for byte.\n\
    A file without device code is copied.\n\n\
    Exit status: 0, or 2 where a file could not be read or taken apart.\n\n\
    Examples:\n  offld split libhip.so -d parts\n  offld merge parts/libhip.so.host parts/libhip.so.*.part -o libhip.so\n  \
    offld split build/lib -d parts && offld merge parts -d build/lib";

/// The options of `offld split`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// Objects, libraries, programs, archives, wheels, bundles and other containers; folders, for all that is in them
    #[arg(required = true, value_name = "FILE")]
    files: Vec<PathBuf>,
    /// Write the parts below this folder
    #[arg(short, long, value_name = "DIR")]
    dir: PathBuf,
    /// Leave a compressed stream that cannot be made again, byte for byte, whole in the host part; else the file is compressed anew first
    #[arg(long)]
    keep_original: bool,
}

/// Runs `offld split`.
pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let mut files = Vec::new();
    for path in &options.files {
        let found = if path.is_dir() {
            tree(path, &options.dir, true, &mut files)
        } else {
            let name = path.file_name().with_context(|| format!("{}: has no name", path.display()));
            name.map(|name| files.push((path.clone(), options.dir.join(name))))
        };
        found.map_err(with_status)?;
    }
    // What is wrong with a file is told, and the others are taken apart.
    let size = |path: &Path| fs::metadata(path).map_or(0, |meta| meta.len());
    let meter = Meter::new(session.shell.is_terminal(), files.iter().map(|(path, _)| size(path)).sum());
    let each = |(path, place): &(PathBuf, PathBuf)| {
        let reached = meter.file();
        let told = one(path, place, options, &session);
        reached.up_to(size(path));
        told
    };
    let done: Vec<Result<String>> = threads::in_parallel(|| files.par_iter().map(each).collect());
    drop(meter);
    session.signals.check()?;
    let text: String = done.iter().flatten().map(String::as_str).collect();
    shell::print(&text).map_err(with_status)?;
    let errors: Vec<String> = done.iter().filter_map(|one| one.as_ref().err().map(error::chain)).collect();
    errors.iter().for_each(|error| shell.error(error));
    if errors.is_empty() { Ok(()) } else { Err(Silent { status: FAILED }.into()) }
}

/// Takes one file apart, and says what became of it. Either all of its parts are there in the end, or none.
fn one(path: &Path, place: &Path, options: &Options, session: &Session) -> Result<String> {
    session.signals.check()?;
    let piece = Piece::try_open(path).with_context(|| path.display().to_string())?;
    if let Some(folder) = place.parent() {
        fs::create_dir_all(folder).with_context(|| folder.display().to_string())?;
    }
    let Some(Split { host, parts, repacked, kept }) = split(path, &piece, options.keep_original, session)? else {
        copy_with_attributes(path, &piece.into(), place, session)?;
        return Ok(String::new());
    };
    let mut outputs = Outputs::new(session);
    let mut sizes = vec![format!("host {}", size(host.size()))];
    let named = |suffix: &str| {
        let mut name = place.as_os_str().to_owned();
        name.push(suffix);
        PathBuf::from(name)
    };
    let mut names = vec![(named(".host"), host)];
    for (device, rope) in parts {
        sizes.push(format!("{} {}", device.name(), size(rope.size())));
        let mut name = named(&format!(".{}.part", file_name(&device, false)));
        if names.iter().any(|(other, _)| *other == name) {
            name = named(&format!(".{}.part", file_name(&device, true)));
        }
        names.push((name, rope));
    }
    for (name, rope) in names {
        let mut output = outputs.create(&name)?;
        rope.copy_to(&mut output).with_context(|| name.display().to_string())?;
        keep_attributes(path, &output)?;
    }
    outputs.commit()?;
    let mut text = format!("{}: {}\n", printable(&path.display().to_string()), sizes.join(", "));
    if repacked > 0 {
        text.push_str(&format!(
            "  {repacked} compressed streams cannot be made again as they were: the merged file has the same contents, compressed anew\n"
        ));
    }
    if kept > 0 {
        text.push_str(&format!("  {kept} compressed streams cannot be made again: they are in the host part as they were\n"));
    }
    Ok(text)
}

/// A device in the name of a file.
fn file_name(device: &Device, with_triple: bool) -> String {
    let name = if with_triple { format!("{}-{}", device.triple, device.target) } else { device.name().to_owned() };
    name.chars().map(|letter| if letter.is_ascii_alphanumeric() || "-+._".contains(letter) { letter } else { '_' }).collect()
}

fn size(bytes: u64) -> String {
    table::size(bytes, Style { bytes: false, mangled: false, width: None })
}
