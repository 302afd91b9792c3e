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
pub(super) const AFTER_HELP: &str = "N is the number of the image in `offld inspect`, for a wheel in that of the whole wheel; of a folder, --image FILE:N=IMAGE names\n\
    the file, by its path or its path in the folder. What the container says of the image stays.\n\n\
    Exit status: 0, or 2 where a file could not be read or changed; it is as it was then.\n\n\
    Examples:\n  offld replace program --image 1=tuned.hsaco -o tuned\n  offld replace libk.so --image 0=a.cubin --image 3=b.cubin --in-place\n  \
    offld replace some.whl --image 7=tuned.hsaco -d new\n  \
    offld replace build --image lib/libk.so:0=a.cubin --image lib/libm.so:2=b.cubin -d tuned";

/// The options of `offld replace`.
#[derive(Debug, Args)]
pub(super) struct Options {
    /// A program, library, archive, object, wheel, bundle or other container; or a folder with such
    #[arg(value_name = "FILE")]
    file: PathBuf,
    /// Put the file IMAGE in the place of image N; in a folder, of image N of the file FILE
    #[arg(long = "image", value_name = "[FILE:]N=IMAGE", required = true)]
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

/// `N=IMAGE` or `FILE:N=IMAGE`. There may be `=` and `:` in the names.
fn parse(text: &OsString) -> Result<NewImage> {
    let bytes = text.as_bytes();
    let path = |bytes: &[u8]| PathBuf::from(OsString::from_vec(bytes.to_vec()));
    let at = |at: usize| {
        let (before, after) = (bytes.get(..at)?, bytes.get(at + 1..)?);
        let digits = before.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
        let (file, number) = before.split_at(before.len() - digits);
        let index = std::str::from_utf8(number).ok()?.parse().ok()?;
        let file = match file.strip_suffix(b":") {
            Some(file) if !file.is_empty() => Some(path(file)),
            None if file.is_empty() => None,
            _ => return None,
        };
        Some(NewImage { file, index, path: path(after) })
    };
    let found = bytes.iter().enumerate().filter(|(_, byte)| **byte == b'=').find_map(|(place, _)| at(place));
    found.ok_or_else(|| Error::usage(format!("--image takes N=IMAGE or FILE:N=IMAGE, and not `{}`", text.display())).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_and_the_number_are_told_apart() {
        let told = |text: &str| {
            let new = parse(&text.into()).ok()?;
            Some((new.file.map(|file| file.display().to_string()), new.index, new.path.display().to_string()))
        };
        let of = |file: Option<&str>, index, path: &str| Some((file.map(str::to_owned), index, path.to_owned()));
        for (text, expected) in [
            ("3=a", of(None, 3, "a")),
            ("3=a=b:4=c", of(None, 3, "a=b:4=c")),
            ("lib/x.so:0=a", of(Some("lib/x.so"), 0, "a")),
            ("a=b.so:12=c", of(Some("a=b.so"), 12, "c")),
            ("a:1:2=c", of(Some("a:1"), 2, "c")),
            ("3=", of(None, 3, "")),
            (":3=a", None),
            ("x3=a", None),
            ("x:=a", None),
            ("x:1", None),
            ("99999999999999999999=a", None),
        ] {
            assert_eq!(told(text), expected, "{text}");
        }
    }
}
