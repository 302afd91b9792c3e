//! Lists what is in a store, by reading its folders.

use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::layout::Layout;
use super::{Digest, on_disk};

/// How much is in a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// The number of blobs.
    pub blobs: u64,
    /// The number of records.
    pub records: u64,
    /// The room that they take on the disk, in bytes.
    pub size: u64,
}

/// A blob or a record.
pub(super) struct StoreEntry {
    pub path: PathBuf,
    pub size: u64,
    /// The time of its last use.
    pub used: SystemTime,
    pub is_blob: bool,
}

/// All blobs and records, in no order. Files that disappear meanwhile, and files with other names than ours, are left out.
pub(super) fn entries(layout: &Layout) -> Vec<StoreEntry> {
    let mut all = Vec::new();
    for (folder, is_blob) in [(layout.blobs(), true), (layout.records(), false)] {
        for fan in files(&folder) {
            all.extend(files(&fan.path()).filter_map(|file| entry(&file, is_blob)));
        }
    }
    all
}

impl Contents {
    pub(super) fn of(entries: &[StoreEntry]) -> Contents {
        let blobs = entries.iter().filter(|entry| entry.is_blob).count() as u64;
        Contents { blobs, records: entries.len() as u64 - blobs, size: entries.iter().map(|entry| entry.size).sum() }
    }
}

/// The files in a folder; none where it cannot be read.
pub(super) fn files(folder: &Path) -> impl Iterator<Item = DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

fn entry(file: &DirEntry, is_blob: bool) -> Option<StoreEntry> {
    Digest::parse(file.file_name().to_str()?)?;
    let meta = file.metadata().ok().filter(|meta| meta.is_file())?;
    let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Some(StoreEntry { path: file.path(), size: on_disk(meta.len()), used, is_blob })
}
