//! `offld links DIR`: creates symlinks to offld with the names that compilers look for.

use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};

use super::EMULATED_TOOLS;

/// Creates the symlinks in `folder` and returns their paths. Replaces existing symlinks; an
/// existing file is an error.
pub(super) fn make(folder: &Path, as_ld: bool) -> Result<Vec<PathBuf>> {
    let me = std::env::current_exe().context("cannot find the executable of offld")?;
    fs::create_dir_all(folder)
        .with_context(|| format!("cannot create directory `{}`", folder.display()))?;
    let mut made = Vec::new();
    for personality in EMULATED_TOOLS
        .iter()
        .filter(|personality| as_ld || !personality.only_as_ld)
    {
        let link = folder.join(personality.name);
        match fs::symlink_metadata(&link) {
            Ok(meta) if meta.is_symlink() => fs::remove_file(&link)
                .with_context(|| format!("cannot replace `{}`", link.display()))?,
            Ok(_) => bail!(
                "`{}` exists and is not a symlink: remove the file, or pass another directory",
                link.display()
            ),
            Err(_) => {}
        }
        symlink(&me, &link)
            .with_context(|| format!("cannot create symlink `{}`", link.display()))?;
        made.push(link);
    }
    Ok(made)
}
