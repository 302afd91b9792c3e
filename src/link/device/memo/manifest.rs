//! The manifest of a cached device link: every file that the linker read besides the device code, every path at which it would have read
//! another file had one existed, and the image. A later link of the same device code by the same command gives the same image as long as
//! those files are unchanged and those paths still do not exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::file_snapshot::FileSnapshot;
use super::linker_args::LinkerArgs;

/// How many entries are kept for one key. Switching between two versions of a library needs two.
const MAX_ENTRIES: usize = 8;

/// The links with one cache key, the latest first. They differ in the other files that they read.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// One for each set of files read.
    pub(super) entries: Vec<ManifestEntry>,
}

/// One link that was run.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ManifestEntry {
    /// The files that it read, besides the device code.
    pub(super) files: Vec<FileSnapshot>,
    /// The paths that did not exist: file names by folder.
    pub(super) absent: BTreeMap<String, Vec<String>>,
    /// The digest of the image, in hexadecimal digits.
    pub(super) image: String,
    /// The linker's messages, to be printed again.
    pub(super) stderr: String,
}

impl Manifest {
    /// Reads a record. One that cannot be parsed counts as empty, so that the link is run again.
    pub(super) fn read(bytes: &[u8]) -> Manifest {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// Reads a record that another machine has written. Its file stats are dropped: even if they are equal to those here, the contents
    /// may differ, because images of file systems are often made with fixed times and numbers.
    pub(super) fn from_remote(bytes: &[u8]) -> Manifest {
        let mut manifest = Manifest::read(bytes);
        manifest.entries.iter_mut().flat_map(|entry| &mut entry.files).for_each(|file| file.stat = None);
        manifest
    }

    /// Finds the entry whose files are unchanged: its index, and whether the manifest must be written again. If there is none, the reason
    /// why the latest is not valid. `now`: a moment before this call.
    pub(super) fn find(&mut self, now: SystemTime) -> Result<(usize, bool), String> {
        let mut reason = None;
        for index in 0..self.entries.len() {
            match self.entries[index].revalidate(now) {
                Ok(renewed) => {
                    // Moved to the front: it is dropped last, and a later miss reports what has changed compared with it.
                    self.entries[..=index].rotate_right(1);
                    return Ok((0, renewed || index > 0));
                }
                Err(why) => reason = reason.or(Some(why)),
            }
        }
        Err(reason.unwrap_or_else(|| "no earlier link is recorded".to_owned()))
    }

    /// Adds an entry as the latest.
    pub(super) fn add(&mut self, entry: ManifestEntry) {
        self.entries.retain(|old| !old.has_same_reads(&entry));
        self.entries.insert(0, entry);
        self.entries.truncate(MAX_ENTRIES);
    }

    /// Adds the entries of `others` that this manifest lacks, after its own.
    pub(super) fn merge(&mut self, others: Manifest) {
        for entry in others.entries {
            if !self.entries.iter().any(|own| own.has_same_reads(&entry)) {
                self.entries.push(entry);
            }
        }
        self.entries.truncate(MAX_ENTRIES);
    }
}

impl ManifestEntry {
    /// Whether both have read the same files with the same contents.
    fn has_same_reads(&self, other: &ManifestEntry) -> bool {
        let contents =
            |files: &[FileSnapshot]| files.iter().map(|file| (file.path.clone(), file.digest.clone())).collect::<Vec<_>>();
        contents(&self.files) == contents(&other.files) && self.absent == other.absent
    }

    fn revalidate(&mut self, now: SystemTime) -> Result<bool, String> {
        for (folder, names) in &self.absent {
            let folder = Path::new(folder);
            // Each path is checked by itself: most of these folders exist, so checking the folder would not save anything.
            if let Some(there) = names.iter().map(|name| folder.join(name)).find(|path| path.exists()) {
                return Err(format!("{} has appeared", there.display()));
            }
        }
        let mut renewed = false;
        for file in &mut self.files {
            renewed |= file.revalidate(now)?;
        }
        Ok(renewed)
    }
}

/// The files that a link read, and the paths that it would have preferred but that did not exist.
#[derive(Debug, Default)]
pub(super) struct LinkReads {
    pub(super) files: Vec<FileSnapshot>,
    pub(super) absent: BTreeMap<String, Vec<String>>,
}

/// Collects what a link read. `prerequisites`: the files of the linker's dependency file; `temporary_files`: those of offld, which are
/// left out; `builtin_folders`: folders that the linker searches by default; `begun`: when it was started.
pub(super) fn gather(
    line: &LinkerArgs,
    prerequisites: &[String],
    temporary_files: &[PathBuf],
    builtin_folders: &[PathBuf],
    begun: SystemTime,
) -> Result<LinkReads, String> {
    let mut names: BTreeSet<&str> = prerequisites.iter().map(String::as_str).collect();
    names.retain(|name| !temporary_files.iter().any(|file| file == Path::new(name)));
    names.extend(line.files.iter().map(String::as_str));
    let mut read = LinkReads::default();
    let mut absent: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    let mut shadowing_paths = BTreeSet::new();
    for name in &names {
        read.files.push(FileSnapshot::take(name, begun)?);
        // A file that an argument names by its path is not searched for.
        if !line.files.iter().any(|file| file == name) {
            shadowing_paths.extend(line.shadowing_paths(name, builtin_folders));
        }
    }
    for path in shadowing_paths {
        let text = path.to_str().ok_or_else(|| format!("{} is not in UTF-8", path.display()))?;
        if names.contains(text) {
            continue;
        }
        if path.is_file() {
            // It exists, but the linker skipped it: it is for another machine, or not of the form requested. It must stay unchanged.
            read.files.push(FileSnapshot::take(text, begun)?);
        } else if let (Some(folder), Some(name)) = (path.parent(), path.file_name()) {
            absent.entry(folder.to_owned()).or_default().insert(name.to_string_lossy().into_owned());
        }
    }
    read.absent =
        absent.into_iter().map(|(folder, names)| (folder.to_string_lossy().into_owned(), names.into_iter().collect())).collect();
    Ok(read)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::super::linker_args::Linker;
    use super::*;
    use crate::store::Digest;

    #[test]
    fn a_file_that_appears_earlier_ends_it() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        std::fs::create_dir_all(&first).unwrap();
        std::fs::create_dir_all(&second).unwrap();
        let library = second.join("libx.a").to_str().unwrap().to_owned();
        std::fs::write(&library, "x").unwrap();
        let line = LinkerArgs::for_tests(Linker::Lld, vec![first.clone(), second.clone()]);
        let later = SystemTime::now() + Duration::from_secs(3600);
        let read = gather(&line, &[library.clone(), "/tmp/own.o".to_owned()], &["/tmp/own.o".into()], &[], later).unwrap();
        assert_eq!(read.files.len(), 1);
        let entry = ManifestEntry { files: read.files, absent: read.absent, image: String::new(), stderr: String::new() };
        let mut manifest = Manifest::read(&serde_json::to_vec(&Manifest { entries: vec![entry] }).unwrap());
        assert_eq!(manifest.find(later), Ok((0, false)));
        for path in [first.join("libx.a"), first.join("libx.so"), second.join("libx.so")] {
            std::fs::write(&path, "y").unwrap();
            assert_eq!(manifest.find(later), Err(format!("{} has appeared", path.display())));
            std::fs::remove_file(&path).unwrap();
        }
        assert_eq!(manifest.find(later), Ok((0, false)));
        // A missing library is reported as such.
        std::fs::remove_file(&library).unwrap();
        assert_eq!(manifest.find(later), Err(format!("{library} is gone")));
    }

    #[test]
    fn the_latest_come_first_and_the_oldest_go() {
        let entry = |text: &str| ManifestEntry {
            files: vec![FileSnapshot { path: "/x".into(), stat: None, digest: text.into() }],
            absent: BTreeMap::new(),
            image: text.into(),
            stderr: String::new(),
        };
        let mut manifest = Manifest::default();
        for text in ["a", "b", "a", "c"] {
            manifest.add(entry(text));
        }
        assert_eq!(manifest.entries.iter().map(|entry| entry.image.as_str()).collect::<Vec<_>>(), ["c", "a", "b"]);
        for count in 0..20 {
            manifest.add(entry(&count.to_string()));
        }
        assert_eq!((manifest.entries.len(), manifest.entries[0].image.as_str()), (MAX_ENTRIES, "19"));
        assert_eq!(Manifest::read(b"garbage"), Manifest::default());
    }

    #[test]
    fn file_stats_of_other_machines_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("libx.a").to_str().unwrap().to_owned();
        std::fs::write(&library, "here").unwrap();
        let later = SystemTime::now() + Duration::from_secs(3600);
        let seen = FileSnapshot::take(&library, later).unwrap();
        let entry = |digest: &str| {
            // The same stat, as in two images of file systems with fixed times.
            let files = vec![FileSnapshot { digest: digest.to_owned(), ..seen.clone() }];
            ManifestEntry { files, absent: BTreeMap::new(), image: digest.to_owned(), stderr: String::new() }
        };
        let text = |entries| serde_json::to_vec(&Manifest { entries }).unwrap();
        let there = text(vec![entry(&Digest::of(b"there").to_string())]);
        assert_eq!(Manifest::read(&there).find(later), Ok((0, false)));
        assert_eq!(Manifest::from_remote(&there).find(later), Err(format!("{library} has changed")));
        let mut both = Manifest::from_remote(&there);
        both.merge(Manifest::from_remote(&text(vec![entry(&Digest::of(b"there").to_string()), entry(&seen.digest)])));
        assert_eq!(both.find(later), Ok((0, true)));
        assert_eq!(both.entries[0].image, seen.digest);
        assert_eq!(both.entries.len(), 2);
    }
}
