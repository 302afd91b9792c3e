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
use offload_formats::elf::resize::Patch;
use offload_formats::stable_names::StableNames;

/// Puts the stable `names` into the ELF file at `path`, in place. With `new_build_id`, a build id
/// in it becomes a digest of its contents.
///
/// # Errors
/// The file is damaged, or cannot be written.
pub fn rename(path: &Path, names: &StableNames, new_build_id: bool) -> Result<()> {
    let file = FileSlice::try_open(path)?;
    let mut patches = in_place(file.bytes(), names)?;
    if new_build_id {
        patches.extend(build_id(file.bytes(), &patches)?);
    }
    drop(file);
    let out = OpenOptions::new().write(true).open(path)?;
    for patch in &patches {
        out.write_all_at(&patch.bytes, patch.offset)?;
    }
    Ok(())
}

/// The new build id of the file `bytes` with `patches`, if it has one.
fn build_id(bytes: &[u8], patches: &[Patch]) -> Result<Option<Patch>> {
    let Some((offset, len)) = build_id_place(bytes) else {
        return Ok(None);
    };
    // The digest is of the file without its build id.
    let mut changes: Vec<(u64, usize, &[u8])> = vec![(offset, len, &[])];
    changes.extend(
        patches
            .iter()
            .map(|patch| (patch.offset, patch.bytes.len(), &patch.bytes[..])),
    );
    changes.sort_by_key(|(offset, ..)| *offset);
    let (mut hash, mut done) = (Xxh3::new(), 0);
    for (offset, len, new) in changes {
        let start = usize::try_from(offset)?;
        hash.update(bytes.get(done..start).context("overlapping changes")?);
        hash.update(new);
        done = start + len;
    }
    hash.update(bytes.get(done..).context("a build id past the end")?);
    let digest = Sha256::digest(hash.digest128().to_le_bytes());
    Ok(Some(Patch {
        offset,
        bytes: digest.iter().cycle().take(len).copied().collect(),
    }))
}
