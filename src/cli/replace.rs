//! `offld replace FILE --image N=IMAGE`: images of a finished file get other contents.

use std::ffi::OsString;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::PathBuf;
use std::sync::Arc;

use anyhow::Result;
use clap::Args;

use super::edits::EditOptions;
use super::inspect::with_status;
use crate::edit::Levels;
use crate::error::Error;
use crate::sys::session::{Session, SessionOptions};
use crate::sys::shell::Shell;
use crate::tools::replace::{NewImage, replace};

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "N is the number of the image in `offld inspect FILE`. What the container says of the image stays.\n\n\
    Exit status: 0, or 2 where a file could not be read or changed; it is as it was then.\n\n\
    Examples:\n  offld replace program --image 1=tuned.hsaco -o tuned\n  offld replace libk.so --image 0=a.cubin --image 3=b.cubin --in-place";

/// The options of `offld replace`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// A program, library, archive, object, bundle or other container
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Put the file IMAGE in the place of image N
    #[arg(long = "image", value_name = "N=IMAGE", required = true)]
    images: Vec<OsString>,
    #[command(flatten)]
    edits: EditOptions,
}

/// Runs `offld replace`.
pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let images = options.images.iter().map(parse).collect::<Result<Vec<_>>>().map_err(with_status)?;
    let engine = options.edits.options(false, Levels::default()).map_err(with_status)?;
    let changes = replace(&options.file, &images, &engine, &session).map_err(with_status)?;
    options.edits.tell(&changes, "replaced", shell)
}

fn parse(text: &OsString) -> Result<NewImage> {
    let wrong = || Error::usage(format!("--image takes N=IMAGE, and not `{}`", text.display()));
    let bytes = text.as_bytes();
    let at = bytes.iter().position(|byte| *byte == b'=').ok_or_else(wrong)?;
    let (number, path) = bytes.split_at(at);
    let index = std::str::from_utf8(number).ok().and_then(|number| number.parse().ok()).ok_or_else(wrong)?;
    let path = OsString::from_vec(path.get(1..).unwrap_or_default().to_vec());
    Ok(NewImage { index, path: path.into() })
}
