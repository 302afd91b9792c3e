//! Records the files that a tool read, and the paths where it would have read another file.
//!
//! The tool's result is unchanged while those files have the same contents and those paths lead to
//! no file.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::INPUT;
use super::file_snapshot::{self, FileSnapshot, FileStat};

/// Time without changes before a directory's stat is recorded. In a directory in use, the record
/// would change on every link.
const QUIET_TIME: Duration = Duration::from_secs(10 * 60);

/// Files that were read, and paths that led to no file.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reads {
    files: Vec<FileSnapshot>,
    /// Missing names, by directory. The current directory is the empty path.
    absent: BTreeMap<String, AbsentNames>,
}

/// Names that do not exist in one directory.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct AbsentNames {
    names: BTreeSet<String>,
    /// Names that are not directories.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    folders: BTreeSet<String>,
    /// The directory's stat when none of the names existed. While it is unchanged, nothing has
    /// appeared, and the names need no check. `None` after a recent change, or if the stat is not
    /// conclusive.
    folder: Option<FileStat>,
}

/// Collects [`Reads`], and checks that the files have not changed since the tool started.
pub(super) struct Collector {
    reads: Reads,
    paths: HashSet<String>,
    /// The digests of the files so far. Many files have several paths, and reading them takes most
    /// of the time.
    digests: HashMap<FileStat, String>,
    begun: SystemTime,
}

impl Collector {
    /// Creates an empty collector. `begun`: the start time of the tool, see [`FileSnapshot::take`].
    pub(super) fn new(begun: SystemTime) -> Collector {
        Collector {
            reads: Reads::default(),
            paths: HashSet::new(),
            digests: HashMap::new(),
            begun,
        }
    }

    /// Records the file at `path`.
    pub(super) fn read(&mut self, path: &Path) -> Result<(), String> {
        let text = text_of(path)?;
        if self.paths.insert(text.to_owned()) {
            let file = FileSnapshot::take(text, self.begun, &self.digests)?;
            if let Some(stat) = file.stat {
                self.digests
                    .entry(stat)
                    .or_insert_with(|| file.digest.clone());
            }
            self.reads.files.push(file);
        }
        Ok(())
    }

    /// Records a path where the tool may have looked for a file: the file, or its absence.
    pub(super) fn looked_for(&mut self, path: &Path) -> Result<(), String> {
        if path.is_file() {
            // The tool skipped the file, for example because it is for another architecture. If it
            // changes, the tool may read it.
            return self.read(path);
        }
        if path.metadata().is_ok_and(|meta| is_read_once(path, &meta)) {
            return Err(read_once(path));
        }
        self.record_missing(path, |absent| &mut absent.names)
    }

    /// Records that there is no directory at `path`, where the tool would have looked into one.
    /// Fails if there is one now.
    pub(super) fn looked_for_folder(&mut self, path: &Path) -> Result<(), String> {
        if path.is_dir() {
            return Err(format!("{} has appeared", path.display()));
        }
        self.record_missing(path, |absent| &mut absent.folders)
    }

    fn record_missing(
        &mut self,
        path: &Path,
        names: impl Fn(&mut AbsentNames) -> &mut BTreeSet<String>,
    ) -> Result<(), String> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else {
            return Ok(());
        };
        let absent = self
            .reads
            .absent
            .entry(text_of(folder)?.to_owned())
            .or_default();
        names(absent).insert(text_of(Path::new(name))?.to_owned());
        Ok(())
    }

    /// Returns the recorded files and paths.
    pub(super) fn finish(self) -> Reads {
        self.reads
    }
}

impl Reads {
    /// Fails, with the reason, unless everything is still valid. Returns whether stats were
    /// updated. `now`: a time before this call.
    pub(super) fn revalidate(&mut self, now: SystemTime) -> Result<bool, String> {
        let mut renewed = false;
        for (folder, names) in &mut self.absent {
            renewed |= names.revalidate(Path::new(folder), now)?;
        }
        for file in &mut self.files {
            renewed |= file.revalidate(now)?;
        }
        Ok(renewed)
    }

    /// Removes all stats, because they come from another machine.
    pub(super) fn forget_stats(&mut self) {
        self.files.iter_mut().for_each(|file| file.stat = None);
        self.absent
            .values_mut()
            .for_each(|names| names.folder = None);
    }

    pub(super) fn file_names(&self) -> Vec<&str> {
        self.files.iter().map(|file| file.path.as_str()).collect()
    }

    /// The paths that led to no file.
    pub(super) fn absent_paths(&self) -> BTreeSet<PathBuf> {
        let names = |absent: &AbsentNames| {
            absent
                .names
                .iter()
                .chain(&absent.folders)
                .cloned()
                .collect::<Vec<String>>()
        };
        let each = self
            .absent
            .iter()
            .map(|(folder, absent)| (Path::new(folder), names(absent)));
        each.flat_map(|(folder, names)| names.into_iter().map(move |name| folder.join(name)))
            .collect()
    }

    /// Whether both have the same files with the same contents, and the same missing paths.
    pub(super) fn same_as(&self, other: &Reads) -> bool {
        let files = |reads: &Reads| {
            reads
                .files
                .iter()
                .map(|file| (file.path.clone(), file.digest.clone()))
                .collect::<Vec<_>>()
        };
        let names = |reads: &Reads| -> Vec<_> {
            let each = reads.absent.iter();
            each.map(|(folder, absent)| {
                (folder.clone(), absent.names.clone(), absent.folders.clone())
            })
            .collect()
        };
        files(self) == files(other) && names(self) == names(other)
    }

    #[cfg(test)]
    pub(super) fn of_file(file: FileSnapshot) -> Reads {
        Reads {
            files: vec![file],
            absent: BTreeMap::new(),
        }
    }

    #[cfg(test)]
    pub(super) fn has_file(&self, path: &str) -> bool {
        self.files.iter().any(|file| file.path == path)
    }
}

impl AbsentNames {
    /// Fails if a file or directory with one of the names exists in `folder`. Returns whether the
    /// directory's stat was updated.
    fn revalidate(&mut self, folder: &Path, now: SystemTime) -> Result<bool, String> {
        let place = if folder.as_os_str().is_empty() {
            Path::new(".")
        } else {
            folder
        };
        // Without the directory, none of the names exists.
        let Ok(stat) = FileStat::of(place) else {
            return Ok(false);
        };
        if self.folder == Some(stat) {
            return Ok(false);
        }
        let mut is_conclusive = stat.believed() && stat.at_rest(now, QUIET_TIME);
        let files = self.names.iter().map(|name| (name, false));
        for (name, is_folder) in files.chain(self.folders.iter().map(|name| (name, true))) {
            let path = folder.join(name);
            let Ok(meta) = path.symlink_metadata() else {
                continue;
            };
            let is_one = |meta: std::fs::Metadata| match is_folder {
                true => meta.is_dir(),
                false => meta.is_file() || is_read_once(&path, &meta),
            };
            if path.metadata().is_ok_and(is_one) {
                return Err(format!("{} has appeared", path.display()));
            }
            // The target of a symlink may appear without a change of the directory that contains
            // the symlink.
            is_conclusive &= !meta.is_symlink();
        }
        let known = self.folder;
        self.folder = Some(stat).filter(|_| is_conclusive && file_snapshot::dates_folders(place));
        Ok(self.folder != known)
    }
}

/// Whether `path`, with this `meta`, is a pipe, terminal or the like, whose contents cannot be
/// known in advance. `/dev/null` is always empty, so it does not count.
pub(super) fn is_read_once(path: &Path, meta: &std::fs::Metadata) -> bool {
    path != Path::new(INPUT) && !meta.is_file() && !meta.is_dir()
}

/// The reason not to cache a link that reads from `path`.
pub(super) fn read_once(path: &Path) -> String {
    format!(
        "{} is not a regular file, so each read may return other contents",
        path.display()
    )
}

fn text_of(path: &Path) -> Result<&str, String> {
    path.to_str()
        .ok_or_else(|| format!("{} is not in UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_changed_directories_are_searched() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("folder");
        let later = SystemTime::now() + Duration::from_secs(3600);
        let mut collector = Collector::new(later);
        for name in ["a", "b"] {
            collector.looked_for(&folder.join(name)).unwrap();
        }
        let mut reads = collector.finish();
        assert_eq!(
            reads.revalidate(later),
            Ok(false),
            "there is no such folder"
        );
        std::fs::create_dir(&folder).unwrap();
        assert_eq!(
            reads.revalidate(SystemTime::now()),
            Ok(false),
            "it was made a moment ago"
        );
        let on_known = file_snapshot::dates_folders(&folder);
        assert_eq!(reads.revalidate(later), Ok(on_known));
        assert_eq!(reads.revalidate(later), Ok(false));
        std::fs::create_dir(folder.join("a")).unwrap();
        assert!(
            reads.revalidate(later).is_ok(),
            "a folder of that name is no file"
        );
        // A dangling symlink whose target appears: the directory does not change.
        file_snapshot::wait_for_timestamp_step();
        std::os::unix::fs::symlink(dir.path().join("file"), folder.join("b")).unwrap();
        assert!(reads.revalidate(later).is_ok());
        std::fs::write(dir.path().join("file"), "x").unwrap();
        assert_eq!(
            reads.revalidate(later),
            Err(format!("{} has appeared", folder.join("b").display()))
        );
    }

    #[test]
    fn pipes_are_errors() {
        let dir = tempfile::tempdir().unwrap();
        let (pipe, name) = (dir.path().join("pipe"), "pipe");
        let later = SystemTime::now() + Duration::from_secs(3600);
        let mut collector = Collector::new(later);
        collector.looked_for(&pipe).unwrap();
        let mut reads = collector.finish();
        rustix::fs::mkfifoat(
            rustix::fs::CWD,
            &pipe,
            rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR,
        )
        .unwrap();
        assert!(
            reads
                .revalidate(later)
                .unwrap_err()
                .contains(&format!("{name} has appeared"))
        );
        assert!(
            Collector::new(later)
                .looked_for(&pipe)
                .unwrap_err()
                .contains("is not a regular file")
        );
        assert_eq!(
            Collector::new(later).looked_for(Path::new("/dev/null")),
            Ok(())
        );
    }

    #[test]
    fn a_file_that_was_found_must_not_change() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("libx.a");
        std::fs::write(&file, "x").unwrap();
        let later = SystemTime::now() + Duration::from_secs(3600);
        let mut collector = Collector::new(later);
        collector.looked_for(&file).unwrap();
        collector.read(&file).unwrap();
        let mut reads = collector.finish();
        assert_eq!(reads.file_names().len(), 1);
        assert!(reads.revalidate(later).is_ok());
        std::fs::write(&file, "other").unwrap();
        assert!(
            reads
                .revalidate(later)
                .unwrap_err()
                .contains("libx.a has changed")
        );
    }

    #[test]
    fn a_new_directory_is_noticed_but_not_a_file() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("glibc-hwcaps");
        let later = SystemTime::now() + Duration::from_secs(3600);
        let mut collector = Collector::new(later);
        collector.looked_for_folder(&folder).unwrap();
        let reads = collector.finish();
        let mut read =
            serde_json::from_str::<Reads>(&serde_json::to_string(&reads).unwrap()).unwrap();
        assert!(read.same_as(&reads) && !read.same_as(&Reads::default()));
        assert!(read.revalidate(later).is_ok());
        std::fs::write(&folder, "").unwrap();
        assert!(read.revalidate(later).is_ok());
        file_snapshot::wait_for_timestamp_step();
        std::fs::remove_file(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        assert_eq!(
            read.revalidate(later),
            Err(format!("{} has appeared", folder.display()))
        );
        assert!(Collector::new(later).looked_for_folder(&folder).is_err());
    }
}
