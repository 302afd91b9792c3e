//! Lists what is in a store, by reading its folders.

use std::time::SystemTime;

use super::layout::{BLOBS, Layout, Place, RECORDS};
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
    pub place: Place,
    pub size: u64,
    /// The time of its last use.
    pub used: SystemTime,
    pub is_blob: bool,
}

/// All blobs and records, in no order. Files that disappear meanwhile, and files with other names than ours, are left out.
pub(super) fn entries(layout: &Layout) -> Vec<StoreEntry> {
    let mut all = Vec::new();
    for (kind, is_blob) in [(BLOBS, true), (RECORDS, false)] {
        let fans = layout.folder(kind).map(|folder| folder.entries()).unwrap_or_default();
        for fan in fans.iter().filter(|fan| fan.is_folder).filter_map(|fan| fan.name.to_str()) {
            let folder = format!("{kind}/{fan}");
            let Ok(opened) = layout.folder(&folder) else { continue };
            all.extend(opened.entries().into_iter().filter(|file| file.is_file).filter_map(|file| {
                let name = file.name.to_str().filter(|name| Digest::parse(name).is_some())?.to_owned();
                let place = Place { folder: folder.clone(), name };
                Some(StoreEntry { place, size: on_disk(file.size), used: file.modified, is_blob })
            }));
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
