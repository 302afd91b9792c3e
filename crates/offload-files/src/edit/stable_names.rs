//! Puts stable names into a linked file, whose device images have them already.

use std::fs::OpenOptions;
use std::os::unix::fs::FileExt;
use std::path::Path;

use anyhow::{Context, Result};
use sha2::{Digest, Sha256};
use xxhash_rust::xxh3::Xxh3;

use super::files::build_id_place;
use offld_system::io::file_slice::FileSlice;
use offload_formats::elf::rename::in_place;
use offload_formats::stable_names::StableNames;

/// Puts the stable `names` into the ELF file at `path`, in place. With `new_build_id`, a build id
/// in it becomes a digest of its contents.
///
/// # Errors
/// The file is damaged, or cannot be written.
pub fn rename(path: &Path, names: &StableNames, new_build_id: bool) -> Result<()> {
    let file = FileSlice::try_open(path)?;
    let patches = in_place(file.bytes(), names)?;
    drop(file);
    if patches.is_empty() {
        return Ok(());
    }
    let out = OpenOptions::new().write(true).open(path)?;
    for patch in &patches {
        out.write_all_at(&patch.bytes, patch.offset)?;
    }
    if new_build_id && let Some((offset, id)) = build_id_of(path)? {
        out.write_all_at(&id, offset)?;
    }
    Ok(())
}

/// The offset of the build id of the file at `path`, and its new contents.
fn build_id_of(path: &Path) -> Result<Option<(u64, Vec<u8>)>> {
    const CUT: &str = "a build id past the end";
    let file = FileSlice::try_open(path)?;
    let bytes = file.bytes();
    let Some((offset, len)) = build_id_place(bytes) else {
        return Ok(None);
    };
    let (before, rest) = bytes
        .split_at_checked(usize::try_from(offset)?)
        .context(CUT)?;
    let mut hash = Xxh3::new();
    hash.update(before);
    hash.update(rest.get(len..).context(CUT)?);
    let digest = Sha256::digest(hash.digest128().to_le_bytes());
    Ok(Some((
        offset,
        digest.iter().cycle().take(len).copied().collect(),
    )))
}
