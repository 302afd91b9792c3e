//! What is in a store, found by going through its folders.

use std::fs::{self, DirEntry};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use super::layout::Layout;
use super::{Digest, on_disk};

/// How much there is.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// How many blobs.
    pub blobs: u64,
    /// How many records.
    pub records: u64,
    /// The room that they take, in bytes.
    pub size: u64,
}

/// A blob or record.
pub(super) struct Entry {
    pub path: PathBuf,
    pub size: u64,
    /// When it was used last.
    pub used: SystemTime,
    pub is_blob: bool,
}

/// All of them, in no order. What disappears meanwhile, and what nobody of ours has put there, is not in the list.
pub(super) fn entries(layout: &Layout) -> Vec<Entry> {
    let mut all = Vec::new();
    for (folder, is_blob) in [(layout.blobs(), true), (layout.records(), false)] {
        for fan in files(&folder) {
            all.extend(files(&fan.path()).filter_map(|file| entry(&file, is_blob)));
        }
    }
    all
}

impl Contents {
    pub(super) fn of(entries: &[Entry]) -> Contents {
        let blobs = entries.iter().filter(|entry| entry.is_blob).count() as u64;
        Contents { blobs, records: entries.len() as u64 - blobs, size: entries.iter().map(|entry| entry.size).sum() }
    }
}

/// What is in a folder; nothing where it cannot be read.
pub(super) fn files(folder: &Path) -> impl Iterator<Item = DirEntry> {
    fs::read_dir(folder).into_iter().flatten().flatten()
}

fn entry(file: &DirEntry, is_blob: bool) -> Option<Entry> {
    Digest::parse(file.file_name().to_str()?)?;
    let meta = file.metadata().ok().filter(|meta| meta.is_file())?;
    let used = meta.modified().unwrap_or(SystemTime::UNIX_EPOCH);
    Some(Entry { path: file.path(), size: on_disk(meta.len()), used, is_blob })
}
