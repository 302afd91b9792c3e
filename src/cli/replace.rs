//! `offld replace FILE --image N=IMAGE`: replaces the contents of images in a finished file.

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
pub(super) const AFTER_HELP: &str = "N is the number of the image in `offld inspect`; for a wheel, in the report of the whole wheel. For a directory, --image\n\
    FILE:N=IMAGE names the file, by its path or its path in the directory. The metadata of the image in its container stays unchanged.\n\n\
    Exit status: 0, or 2 if a file could not be read or changed; such a file is unchanged.\n\n\
    Examples:\n  offld replace program --image 1=tuned.hsaco -o tuned\n  offld replace libk.so --image 0=a.cubin --image 3=b.cubin --in-place\n  \
    offld replace some.whl --image 7=tuned.hsaco -d new\n  \
    offld replace build --image lib/libk.so:0=a.cubin --image lib/libm.so:2=b.cubin -d tuned";

/// The options of `offld replace`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// A program, library, archive, object, wheel, bundle or other container, or a directory with
    /// such files
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Replace image N with the file IMAGE; in a directory, image N of FILE
    #[arg(long = "image", value_name = "[FILE:]N=IMAGE", required = true)]
    images: Vec<OsString>,
    #[command(flatten)]
    edits: EditOptions,
}

pub(super) fn run(options: &Options, shell: &Arc<Shell>) -> Result<()> {
    let session = Session::new(Arc::clone(shell), SessionOptions::default());
    let images = options
        .images
        .iter()
        .map(parse)
        .collect::<Result<Vec<_>>>()
        .map_err(with_status)?;
    let engine = options
        .edits
        .options(false, Levels::default())
        .map_err(with_status)?;
    let changes = replace(&options.file, &images, &engine, &session).map_err(with_status)?;
    options.edits.tell(&changes, "replaced", shell)
}

/// Parses `N=IMAGE` or `FILE:N=IMAGE`. The names may contain `=` and `:`.
fn parse(text: &OsString) -> Result<NewImage> {
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
            "invalid --image '{}': expected N=IMAGE or FILE:N=IMAGE",
            text.display()
        ))
        .into()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn file_and_number_are_separated() {
        let parsed = |text: &str| {
            let new = parse(&text.into()).ok()?;
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
