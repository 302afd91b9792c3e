//! Writes a finished link to the cache, with the manifest of its image.
//!
//! The first step reads the temporary files before they are removed. The second does the slow work,
//! in parallel with the host link.

use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::linker_args::{self, Linker, LinkerArgs};
use super::reads::Reads;
use super::tool::Tool;
use super::{linker_reads, nvidia};
use crate::build_log::Cost;
use crate::link::device::libraries::builtin_folders;
use offld_system::clock::{self, Moment};
use offld_system::launcher::Ran;
use offld_system::store::{BlobName, Cache, Key, Naming, Scope};

pub(super) struct FinishedLink {
    pub(super) linker_args: LinkerArgs,
    pub(super) program: PathBuf,
    /// The linker and the programs that it runs.
    pub(super) tools: Vec<Tool>,
    pub(super) key: Key,
    pub(super) image: PathBuf,
    /// offld's temporary files among the linker's inputs, and the directory of the linker's own
    /// temporary files.
    pub(super) temporary_files: Vec<PathBuf>,
    pub(super) dependencies: PathBuf,
    /// The files that a linker without a dependency file reads, as they were before the link.
    /// `None` for linkers that write one. The error is the reason why the files are unknown.
    pub(super) about_to_read: Result<Option<Reads>, String>,
    pub(super) stderr: Vec<u8>,
    pub(super) begun: Moment,
}

/// A finished link whose other temporary files have been read: only the hard link to its image is
/// still needed there.
pub(super) struct CacheEntry {
    link: FinishedLink,
    prerequisites: Vec<String>,
    stderr: String,
}

impl FinishedLink {
    /// Reads the files in the temporary directory, or returns the reason why the link cannot be
    /// cached.
    pub(super) fn prepare(mut self) -> Result<CacheEntry, String> {
        let prerequisites = if self.linker_args.linker == Linker::Nvidia {
            // NVIDIA's linker writes no dependency file. `nvidia` determines its inputs.
            Vec::new()
        } else {
            let text = std::fs::read_to_string(&self.dependencies)
                .map_err(|error| format!("{}: {error}", self.dependencies.display()))?;
            linker_args::prerequisites(self.linker_args.linker, &text)
                .ok_or("the linker's dependency file is truncated, or a name in it is ambiguous")?
        };
        let stderr = String::from_utf8(std::mem::take(&mut self.stderr))
            .map_err(|_| "the linker's messages are not in UTF-8")?;
        let stderr = strip_colours(&stderr);
        if self
            .temporary_files
            .iter()
            .any(|file| stderr.contains(&*file.to_string_lossy()))
        {
            return Err("the linker's messages name a temporary file".to_owned());
        }
        // A hard link, because a later step removes the image by its own name.
        let hard_link = self.image.with_extension("kept");
        std::fs::hard_link(&self.image, &hard_link)
            .map_err(|error| format!("{}: {error}", hard_link.display()))?;
        self.image = hard_link;
        Ok(CacheEntry {
            link: self,
            prerequisites,
            stderr,
        })
    }
}

/// Files that exist before the link and that a link by these `tools` depends on. Includes paths
/// where the loader would find other libraries.
pub(super) fn read_by_tools(
    tools: &[Tool],
    about_to_read: &Result<Option<Reads>, String>,
) -> Vec<PathBuf> {
    let read = about_to_read
        .as_ref()
        .ok()
        .and_then(Option::as_ref)
        .into_iter()
        .flat_map(Reads::file_names);
    let absent = tools
        .iter()
        .flat_map(Tool::absent)
        .filter(|path| !path.exists());
    tools
        .iter()
        .flat_map(Tool::files)
        .chain(read)
        .map(PathBuf::from)
        .chain(absent)
        .collect()
}

impl CacheEntry {
    /// Returns the first dependency that differs on the machine that ran the link.
    pub(super) fn differing(&self, ran: &Ran) -> Option<PathBuf> {
        let CacheEntry {
            link,
            prerequisites,
            ..
        } = self;
        let listed = prerequisites
            .iter()
            .map(PathBuf::from)
            .filter(|file| !link.temporary_files.contains(file));
        let all: Vec<PathBuf> = read_by_tools(&link.tools, &link.about_to_read)
            .into_iter()
            .chain(listed)
            .collect();
        ran.differing(all.iter().map(PathBuf::as_path))
            .map(Path::to_owned)
    }

    /// Stores the image and its manifest entry in `cache`. `cost`: the cost of the link.
    pub(super) fn store(self, cache: &Cache, cost: Cost) -> Result<(), String> {
        let CacheEntry {
            link,
            prerequisites,
            stderr,
        } = self;
        let line = &link.linker_args;
        let gnu = line.linker == Linker::Gnu;
        let folders = if gnu {
            builtin_folders(&link.program, line.emulation.as_deref())
        } else {
            Vec::new()
        };
        let begun = link.begun.time_of_day;
        let reads = match &link.about_to_read {
            Err(why) => return Err(why.clone()),
            Ok(Some(before)) => nvidia::after(line, before, begun)?,
            Ok(None) => {
                linker_reads::gather(line, &prerequisites, &link.temporary_files, &folders, begun)?
            }
        };
        for tool in &link.tools {
            tool.verify_unchanged(begun)?;
        }
        clock::check_not_set(cache.clock(), link.begun)?;
        let text_of = |error: anyhow::Error| format!("{error:#}");
        let image = cache
            .put_blob(&link.image, Scope::Shared)
            .map_err(text_of)?;
        let mut manifest = cache
            .record(link.key, Scope::Local)
            .map_or_else(Manifest::default, |bytes| Manifest::read(&bytes));
        manifest.add(ManifestEntry {
            reads,
            image: image.to_string(),
            stderr,
            cost: Some(cost),
        });
        if let Some(shared) = cache.record(link.key, Scope::Remote) {
            // Writing replaces the shared record, so the entries of other machines must be merged
            // in.
            manifest.merge(Manifest::from_remote(&shared));
        }
        let bytes = serde_json::to_vec(&manifest).map_err(|error| error.to_string())?;
        cache
            .put_record(link.key, &bytes, Scope::Shared)
            .map_err(text_of)
    }
}

/// Removes colour escape codes from `text`. A later hit may not write to a terminal.
fn strip_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        plain + part.split_once('m').map_or(part, |(_, rest)| rest)
    })
}

// Manifest of a cached device link: the image, and the files that the linker read in addition to
// the device code.
//
// It also lists each path where another file would have taken precedence. The image stays valid
// for the same device code and command while the files are unchanged and those paths do not exist.

/// Maximum number of entries per key. Switching between two versions of a library needs two.
const MAX_ENTRIES: usize = 8;

/// Links with the same cache key, latest first. They differ in the other files that they read.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// One entry for each set of files read.
    pub(super) entries: Vec<ManifestEntry>,
}

/// One recorded link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct ManifestEntry {
    /// Files read in addition to the device code, and paths that did not exist.
    pub(super) reads: Reads,
    /// The name of the image in the cache.
    pub(super) image: String,
    /// The linker's messages, which a cache hit prints again.
    pub(super) stderr: String,
    /// The cost of the link. Releases before 0.7 did not record it.
    #[serde(default)]
    pub(super) cost: Option<Cost>,
}

impl Manifest {
    /// Parses a record. A damaged record counts as empty, so the link runs again.
    pub(super) fn read(bytes: &[u8]) -> Manifest {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// Parses a record from another machine and drops its untrusted parts.
    ///
    /// File stats are dropped because equal stats do not mean equal contents there: file system
    /// images often have fixed timestamps and inode numbers. Entries are dropped if another image
    /// could be stored under the same image name.
    pub(super) fn from_remote(bytes: &[u8]) -> Manifest {
        let mut manifest = Manifest::read(bytes);
        let sure = |entry: &ManifestEntry| {
            BlobName::parse(&entry.image).is_some_and(|name| name.naming() == Naming::Sure)
        };
        manifest.entries.retain(sure);
        manifest.entries.truncate(MAX_ENTRIES);
        for entry in &mut manifest.entries {
            entry.reads.forget_stats();
            // Remove escape sequences, because the messages go to the terminal.
            entry
                .stderr
                .retain(|c| !c.is_control() || c == '\n' || c == '\t');
        }
        manifest
    }

    /// Returns the index of the entry whose files are unchanged, and whether the manifest must be
    /// written again.
    ///
    /// If there is none, the error is the reason why the latest entry is invalid. `now`: a time
    /// before this call.
    pub(super) fn find(&mut self, now: SystemTime) -> Result<(usize, bool), String> {
        let mut reason = None;
        for index in 0..self.entries.len() {
            match self.entries[index].reads.revalidate(now) {
                Ok(renewed) => {
                    // The first entry is evicted last, and later misses report the changes relative
                    // to it.
                    self.entries[..=index].rotate_right(1);
                    return Ok((0, renewed || index > 0));
                }
                Err(why) => reason = reason.or(Some(why)),
            }
        }
        Err(reason.unwrap_or_else(|| "no earlier link is recorded".to_owned()))
    }

    /// Adds an entry in front of all others.
    pub(super) fn add(&mut self, entry: ManifestEntry) {
        self.entries.retain(|old| !old.reads.same_as(&entry.reads));
        self.entries.insert(0, entry);
        self.entries.truncate(MAX_ENTRIES);
    }

    /// Appends the entries of `others` that are missing here.
    pub(super) fn merge(&mut self, others: Manifest) {
        for entry in others.entries {
            if !self
                .entries
                .iter()
                .any(|own| own.reads.same_as(&entry.reads))
            {
                self.entries.push(entry);
            }
        }
        self.entries.truncate(MAX_ENTRIES);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;
    use std::time::Duration;

    use super::super::file_snapshot::FileSnapshot;
    use super::super::linker_reads::gather;
    use super::*;
    use offld_system::store::Digest;

    #[test]
    fn colours_are_removed() {
        assert_eq!(
            strip_colours("ld.lld: \x1b[0;1;35mwarning: \x1b[0mx\n"),
            "ld.lld: warning: x\n"
        );
        assert_eq!(strip_colours("plain\n"), "plain\n");
    }

    fn entry(reads: Reads, image: &str) -> ManifestEntry {
        ManifestEntry {
            reads,
            image: image.to_owned(),
            stderr: String::new(),
            cost: None,
        }
    }

    #[test]
    fn a_file_earlier_in_the_search_path_invalidates_an_entry() {
        let dir = tempfile::tempdir().unwrap();
        let (first, second) = (dir.path().join("first"), dir.path().join("second"));
        std::fs::create_dir_all(&first).unwrap();
        std::fs::create_dir_all(&second).unwrap();
        let library = second.join("libx.a").to_str().unwrap().to_owned();
        std::fs::write(&library, "x").unwrap();
        let line = LinkerArgs::for_tests(Linker::Lld, vec![first.clone(), second.clone()]);
        let later = SystemTime::now() + Duration::from_secs(3600);
        let own = dir.path().join("own.o");
        let listed = [library.clone(), own.to_str().unwrap().to_owned()];
        let reads = gather(&line, &listed, &[own], &[], later).unwrap();
        assert_eq!(reads.file_names(), [library.as_str()]);
        let mut manifest = Manifest::read(
            &serde_json::to_vec(&Manifest {
                entries: vec![entry(reads, "")],
            })
            .unwrap(),
        );
        assert!(manifest.find(later).is_ok());
        for path in [
            first.join("libx.a"),
            first.join("libx.so"),
            second.join("libx.so"),
        ] {
            std::fs::write(&path, "y").unwrap();
            assert_eq!(
                manifest.find(later),
                Err(format!("{} has appeared", path.display()))
            );
            std::fs::remove_file(&path).unwrap();
        }
        assert!(manifest.find(later).is_ok());
        // A missing library is reported as such.
        std::fs::remove_file(&library).unwrap();
        assert_eq!(manifest.find(later), Err(format!("{library} was removed")));
    }

    #[test]
    fn the_latest_entries_come_first_and_the_oldest_are_evicted() {
        let entry = |text: &str| {
            entry(
                Reads::of_file(FileSnapshot {
                    path: "/x".into(),
                    stat: None,
                    digest: text.into(),
                }),
                text,
            )
        };
        let mut manifest = Manifest::default();
        for text in ["a", "b", "a", "c"] {
            manifest.add(entry(text));
        }
        assert_eq!(
            manifest
                .entries
                .iter()
                .map(|entry| entry.image.as_str())
                .collect::<Vec<_>>(),
            ["c", "a", "b"]
        );
        for count in 0..20 {
            manifest.add(entry(&count.to_string()));
        }
        assert_eq!(
            (manifest.entries.len(), manifest.entries[0].image.as_str()),
            (MAX_ENTRIES, "19")
        );
        assert_eq!(Manifest::read(b"garbage"), Manifest::default());
    }

    #[test]
    fn file_stats_of_other_machines_are_ignored() {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("libx.a").to_str().unwrap().to_owned();
        std::fs::write(&library, "here").unwrap();
        let later = SystemTime::now() + Duration::from_secs(3600);
        let seen = FileSnapshot::take(&library, later, &HashMap::new()).unwrap();
        // The same stat, as in two file system images with fixed timestamps.
        let entry = |digest: &str| {
            entry(
                Reads::of_file(FileSnapshot {
                    digest: digest.to_owned(),
                    ..seen.clone()
                }),
                digest,
            )
        };
        let text = |entries| serde_json::to_vec(&Manifest { entries }).unwrap();
        let there = text(vec![entry(&Digest::of(b"there").to_string())]);
        assert_eq!(Manifest::read(&there).find(later), Ok((0, false)));
        assert_eq!(
            Manifest::from_remote(&there).find(later),
            Err(format!("{library} has changed"))
        );
        let mut both = Manifest::from_remote(&there);
        both.merge(Manifest::from_remote(&text(vec![
            entry(&Digest::of(b"there").to_string()),
            entry(&seen.digest),
        ])));
        assert_eq!(both.find(later), Ok((0, true)));
        assert_eq!(both.entries[0].image, seen.digest);
        assert_eq!(both.entries.len(), 2);
    }

    #[test]
    fn entries_of_earlier_releases_are_compared_and_reused() {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("libx.a").to_str().unwrap().to_owned();
        std::fs::write(&library, "here").unwrap();
        let later = SystemTime::now() + Duration::from_secs(3600);
        let seen = FileSnapshot::take(&library, later, &HashMap::new()).unwrap();
        // Version 0.9 did not number writable mounts, so its stats have less information.
        let old = |digest: String| {
            let mut entry = serde_json::to_value(entry(
                Reads::of_file(FileSnapshot {
                    digest,
                    ..seen.clone()
                }),
                "",
            ))
            .unwrap();
            entry["reads"]["files"][0]["stat"] = serde_json::json!([4, 1, 1, 1, 1, 1, 1, 0]);
            let manifest = serde_json::json!({"entries": [entry]});
            Manifest::read(manifest.to_string().as_bytes())
        };
        let mut same = old(seen.digest.clone());
        assert_eq!(same.find(later), Ok((0, true)));
        assert_eq!(same.find(later), Ok((0, false)));
        assert_eq!(
            old(Digest::of(b"there").to_string()).find(later),
            Err(format!("{library} has changed"))
        );
    }

    #[test]
    fn messages_of_other_machines_are_shown_without_escapes() {
        let mut entry_with_escapes = entry(Reads::default(), &Digest::of(b"image").to_string());
        entry_with_escapes.stderr = "ld.lld: warning:\x1b[31m x\r\n".to_owned();
        let manifest = Manifest::from_remote(
            &serde_json::to_vec(&Manifest {
                entries: vec![entry_with_escapes],
            })
            .unwrap(),
        );
        assert_eq!(manifest.entries[0].stderr, "ld.lld: warning:[31m x\n");
    }

    #[test]
    fn images_of_other_machines_have_collision_free_names() {
        let named = |image: String| entry(Reads::default(), &image);
        let names =
            [Naming::Quick, Naming::Sure].map(|naming| BlobName::of(b"image", naming).to_string());
        let entries = vec![
            named(names[0].clone()),
            named("../etc/passwd".to_owned()),
            named(names[1].clone()),
        ];
        let manifest = Manifest::from_remote(&serde_json::to_vec(&Manifest { entries }).unwrap());
        assert_eq!(
            manifest
                .entries
                .iter()
                .map(|entry| entry.image.clone())
                .collect::<Vec<_>>(),
            names[1..]
        );
    }
}
