//! Finds `offld-llvm`: the path in `OFFLD_LLVM`, else the folder of the running `offld`, else `../libexec/offld` from there.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use crate::sys::session::{self, Session};

/// The program's file name.
pub(crate) const NAME: &str = "offld-llvm";

/// The path of `offld-llvm`.
///
/// # Errors
/// It is in none of the places; the error names them and says how to get it.
pub(crate) fn find() -> Result<PathBuf> {
    if let Some(named) = Session::env(session::OFFLD_LLVM) {
        let path = PathBuf::from(named);
        if !path.is_file() {
            bail!("{} names `{}`, which is not a file", session::OFFLD_LLVM, path.display());
        }
        return Ok(path);
    }
    let own = std::env::current_exe().context("cannot tell where offld is, and so not where offld-llvm is")?;
    let places = places(own.parent().unwrap_or(Path::new("/")));
    match places.iter().find(|place| place.is_file()) {
        Some(found) => Ok(found.clone()),
        None => bail!(
            "registration code is made by LLVM, in the program `{NAME}`, which is not installed: it is neither {} (build it with `cargo \
             build --features llvm` or `make install`, or name it with {})",
            places.iter().map(|place| format!("`{}`", place.display())).collect::<Vec<_>>().join(" nor "),
            session::OFFLD_LLVM
        ),
    }
}

fn places(folder: &Path) -> Vec<PathBuf> {
    let mut places = vec![folder.join(NAME)];
    places.extend(folder.parent().map(|above| above.join("libexec/offld").join(NAME)));
    // The library's own tests run one folder below the programs that cargo builds.
    if cfg!(test) {
        places.extend(folder.parent().map(|above| above.join(NAME)));
    }
    places
}
