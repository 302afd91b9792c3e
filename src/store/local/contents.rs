//! Lists the entries of a store, and those of earlier releases next to it, by reading the
//! directories.

use std::time::SystemTime;

use super::super::{BlobName, Key};
use super::layout::{BLOBS, EARLIER, Layout, Place, RECORDS, VERSION};
use super::on_disk;

/// Totals of a store.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Contents {
    /// Number of blobs.
    pub blobs: u64,
    /// Number of records.
    pub records: u64,
    /// Disk space of all entries, in bytes, including those of earlier releases below the same
    /// directory.
    pub size: u64,
    /// The part of `size` that belongs to earlier releases, in bytes.
    pub earlier: u64,
}

pub(super) struct StoreEntry {
    /// The layout that it belongs to.
    pub version: &'static str,
    pub place: Place,
    pub size: u64,
    /// Time of its last use.
    pub used: SystemTime,
    pub is_blob: bool,
}

/// Lists all blobs and records, including those of earlier releases, in no particular order. Files
/// that disappear meanwhile, and files with names that offld does not use, are omitted.
pub(super) fn entries(layout: &Layout) -> Vec<StoreEntry> {
    let versions = [VERSION].into_iter().chain(EARLIER);
    versions
        .flat_map(|version| entries_of(layout, version))
        .collect()
}

fn entries_of(layout: &Layout, version: &'static str) -> Vec<StoreEntry> {
    let mut all = Vec::new();
    for (kind, is_blob) in [(BLOBS, true), (RECORDS, false)] {
        let fans = layout
            .folder_of(version, kind)
            .map(|folder| folder.entries())
            .unwrap_or_default();
        for fan in fans
            .iter()
            .filter(|fan| fan.is_folder)
            .filter_map(|fan| fan.name.to_str())
        {
            let folder = format!("{kind}/{fan}");
            let Ok(opened) = layout.folder_of(version, &folder) else {
                continue;
            };
            all.extend(
                opened
                    .entries()
                    .into_iter()
                    .filter(|file| file.is_file)
                    .filter_map(|file| {
                        // Earlier releases name all entries by digests of 32 digits.
                        let is_record = !is_blob && version == VERSION;
                        let ours = |name: &&str| {
                            if is_record {
                                Key::parse(name).is_some()
                            } else {
                                BlobName::parse(name).is_some()
                            }
                        };
                        let name = file.name.to_str().filter(ours)?.to_owned();
                        let place = Place {
                            folder: folder.clone(),
                            name,
                        };
                        Some(StoreEntry {
                            version,
                            place,
                            size: on_disk(file.size),
                            used: file.modified,
                            is_blob,
                        })
                    }),
            );
        }
    }
    all
}

impl Contents {
    pub(super) fn of(entries: &[StoreEntry]) -> Contents {
        entries.iter().fold(Contents::default(), |all, entry| {
            let one = Contents::one(entry);
            Contents {
                blobs: all.blobs + one.blobs,
                records: all.records + one.records,
                size: all.size + one.size,
                earlier: all.earlier + one.earlier,
            }
        })
    }

    /// The totals without `entry`.
    pub(super) fn without(self, entry: &StoreEntry) -> Contents {
        let one = Contents::one(entry);
        Contents {
            blobs: self.blobs - one.blobs,
            records: self.records - one.records,
            size: self.size - one.size,
            earlier: self.earlier - one.earlier,
        }
    }

    fn one(entry: &StoreEntry) -> Contents {
        let own = entry.version == VERSION;
        let count = |kind: bool| u64::from(own && kind);
        let earlier = if own { 0 } else { entry.size };
        Contents {
            blobs: count(entry.is_blob),
            records: count(!entry.is_blob),
            size: entry.size,
            earlier,
        }
    }
}
