//! Finds `offld-llvm`: the path in `OFFLD_LLVM`, else the directory of the running `offld`, else
//! `../libexec/offld` from there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::sys::session::{self, Session};

/// The program's file name.
pub(crate) const NAME: &str = "offld-llvm";

/// Returns the path of `offld-llvm`.
///
/// # Errors
/// The program is in none of these locations. The error lists them, with the command that installs
/// the program.
pub(crate) fn find() -> Result<PathBuf> {
    if let Some(named) = Session::env(session::OFFLD_LLVM) {
        let path = PathBuf::from(named);
        if !path.is_file() {
            bail!(
                "{} names `{}`, which is not a file",
                session::OFFLD_LLVM,
                path.display()
            );
        }
        return Ok(path);
    }
    let own = std::env::current_exe()
        .context("cannot determine the path of offld, next to which offld-llvm is installed")?;
    let candidates = candidates(own.parent().unwrap_or(Path::new("/")));
    match candidates.iter().find(|place| place.is_file()) {
        Some(found) => Ok(found.clone()),
        None => bail!(
            "cannot find `{NAME}`, the program that generates registration code: neither {} exists. Build it with `cargo build \
             --features llvm` or `make install`, or set {} to its path",
            candidates
                .iter()
                .map(|place| format!("`{}`", place.display()))
                .collect::<Vec<_>>()
                .join(" nor "),
            session::OFFLD_LLVM
        ),
    }
}

fn candidates(folder: &Path) -> Vec<PathBuf> {
    let mut candidates = vec![folder.join(NAME)];
    candidates.extend(
        folder
            .parent()
            .map(|above| above.join("libexec/offld").join(NAME)),
    );
    // The library's own tests run one directory below the programs that cargo builds.
    if cfg!(test) {
        candidates.extend(folder.parent().map(|above| above.join(NAME)));
    }
    candidates
}
