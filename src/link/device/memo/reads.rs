//! What a tool has read and what it has looked for in vain: files with their contents, and the paths at which it would have read
//! another file. Its result is what it was as long as those files are unchanged and those paths still lead to no file.

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use serde::{Deserialize, Serialize};

use super::file_snapshot::{FileSnapshot, FileStat};
use super::mounts;

/// How long a folder must have been left alone before its stat is kept: that of a folder in which somebody is at work would be
/// written anew with every link.
const CALM: Duration = Duration::from_secs(10 * 60);

/// Files that were read, and paths that led to no file.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Reads {
    files: Vec<FileSnapshot>,
    /// By the folder that the paths are in; the current one is the empty path.
    absent: BTreeMap<String, AbsentNames>,
}

/// Names that no file in one folder has.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct AbsentNames {
    names: BTreeSet<String>,
    /// Names that no folder has.
    #[serde(default, skip_serializing_if = "BTreeSet::is_empty")]
    folders: BTreeSet<String>,
    /// The folder's stat while there was none of them. As long as it stays the same nothing has appeared in it, and the names need
    /// not be looked for one by one. None if the folder was changed lately, or if its stat does not tell.
    folder: Option<FileStat>,
}

/// Collects [`Reads`] while they still are what the tool has read.
pub(super) struct Collector {
    reads: Reads,
    paths: HashSet<String>,
    /// The digests of the files so far: many have several paths, and reading them is what takes time.
    digests: HashMap<FileStat, String>,
    begun: SystemTime,
}

impl Collector {
    /// Nothing yet. `begun`: when the tool was started; see [`FileSnapshot::take`].
    pub(super) fn new(begun: SystemTime) -> Collector {
        Collector { reads: Reads::default(), paths: HashSet::new(), digests: HashMap::new(), begun }
    }

    /// Takes down the file at `path`.
    pub(super) fn read(&mut self, path: &Path) -> Result<(), String> {
        let text = text_of(path)?;
        if self.paths.insert(text.to_owned()) {
            let file = FileSnapshot::take(text, self.begun, &self.digests)?;
            if let Some(stat) = file.stat {
                self.digests.entry(stat).or_insert_with(|| file.digest.clone());
            }
            self.reads.files.push(file);
        }
        Ok(())
    }

    /// Takes down a path at which the tool may have looked for a file: what is there, or that nothing is.
    pub(super) fn looked_for(&mut self, path: &Path) -> Result<(), String> {
        if path.is_file() {
            // It was left aside, for example because it is for another machine. Then it must stay what it is.
            return self.read(path);
        }
        self.missed(path, |absent| &mut absent.names)
    }

    /// Takes down a path at which the tool would have looked into a folder if there were one. An error if there is one by now.
    pub(super) fn looked_for_folder(&mut self, path: &Path) -> Result<(), String> {
        if path.is_dir() {
            return Err(format!("{} has appeared", path.display()));
        }
        self.missed(path, |absent| &mut absent.folders)
    }

    fn missed(&mut self, path: &Path, names: impl Fn(&mut AbsentNames) -> &mut BTreeSet<String>) -> Result<(), String> {
        let (Some(folder), Some(name)) = (path.parent(), path.file_name()) else { return Ok(()) };
        let absent = self.reads.absent.entry(text_of(folder)?.to_owned()).or_default();
        names(absent).insert(text_of(Path::new(name))?.to_owned());
        Ok(())
    }

    /// What was taken down.
    pub(super) fn finish(self) -> Reads {
        self.reads
    }
}

impl Reads {
    /// Looks whether all of it still holds; an error says what does not. Returns whether stats were updated. `now`: a moment before
    /// this call.
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

    /// Forgets every stat, because they are those of another machine.
    pub(super) fn forget_stats(&mut self) {
        self.files.iter_mut().for_each(|file| file.stat = None);
        self.absent.values_mut().for_each(|names| names.folder = None);
    }

    /// The files that were read.
    pub(super) fn file_names(&self) -> Vec<&str> {
        self.files.iter().map(|file| file.path.as_str()).collect()
    }

    /// The paths that led to no file.
    pub(super) fn absent_paths(&self) -> BTreeSet<PathBuf> {
        let names = |absent: &AbsentNames| absent.names.iter().chain(&absent.folders).cloned().collect::<Vec<String>>();
        let each = self.absent.iter().map(|(folder, absent)| (Path::new(folder), names(absent)));
        each.flat_map(|(folder, names)| names.into_iter().map(move |name| folder.join(name))).collect()
    }

    /// Whether both have the same files with the same contents, and miss the same paths.
    pub(super) fn same_as(&self, other: &Reads) -> bool {
        let files = |reads: &Reads| reads.files.iter().map(|file| (file.path.clone(), file.digest.clone())).collect::<Vec<_>>();
        let names = |reads: &Reads| -> Vec<_> {
            let each = reads.absent.iter();
            each.map(|(folder, absent)| (folder.clone(), absent.names.clone(), absent.folders.clone())).collect()
        };
        files(self) == files(other) && names(self) == names(other)
    }

    #[cfg(test)]
    pub(super) fn of_file(file: FileSnapshot) -> Reads {
        Reads { files: vec![file], absent: BTreeMap::new() }
    }

    #[cfg(test)]
    pub(super) fn has_file(&self, path: &str) -> bool {
        self.files.iter().any(|file| file.path == path)
    }
}

impl AbsentNames {
    /// An error if there is a file or folder of one of the names in `folder`; else whether the folder's stat was updated.
    fn revalidate(&mut self, folder: &Path, now: SystemTime) -> Result<bool, String> {
        let place = if folder.as_os_str().is_empty() { Path::new(".") } else { folder };
        // In no folder there is no file.
        let Ok(stat) = FileStat::of(place) else { return Ok(false) };
        if self.folder == Some(stat) {
            return Ok(false);
        }
        let mut tells = stat.believed() && stat.at_rest(now, CALM);
        let files = self.names.iter().map(|name| (name, false));
        for (name, is_folder) in files.chain(self.folders.iter().map(|name| (name, true))) {
            let path = folder.join(name);
            let Ok(meta) = path.symlink_metadata() else { continue };
            if if is_folder { path.is_dir() } else { path.is_file() } {
                return Err(format!("{} has appeared", path.display()));
            }
            // What a link leads to may appear without a change of the folder that the link is in.
            tells &= !meta.is_symlink();
        }
        let known = self.folder;
        self.folder = Some(stat).filter(|_| tells && mounts::dates_folders(place));
        Ok(self.folder != known)
    }
}

fn text_of(path: &Path) -> Result<&str, String> {
    path.to_str().ok_or_else(|| format!("{} is not in UTF-8", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_did_not_change_is_not_searched_and_one_that_did_is() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("folder");
        let later = SystemTime::now() + Duration::from_secs(3600);
        let mut collector = Collector::new(later);
        for name in ["a", "b"] {
            collector.looked_for(&folder.join(name)).unwrap();
        }
        let mut reads = collector.finish();
        assert_eq!(reads.revalidate(later), Ok(false), "there is no such folder");
        std::fs::create_dir(&folder).unwrap();
        assert_eq!(reads.revalidate(SystemTime::now()), Ok(false), "it was made a moment ago");
        let on_known = mounts::dates_folders(&folder);
        assert_eq!(reads.revalidate(later), Ok(on_known));
        assert_eq!(reads.revalidate(later), Ok(false));
        std::fs::create_dir(folder.join("a")).unwrap();
        assert!(reads.revalidate(later).is_ok(), "a folder of that name is no file");
        // A symbolic link that leads nowhere, and then does: the folder does not change.
        std::os::unix::fs::symlink(dir.path().join("file"), folder.join("b")).unwrap();
        assert!(reads.revalidate(later).is_ok());
        std::fs::write(dir.path().join("file"), "x").unwrap();
        assert_eq!(reads.revalidate(later), Err(format!("{} has appeared", folder.join("b").display())));
    }

    #[test]
    fn what_is_there_must_stay_what_it_is() {
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
        assert!(reads.revalidate(later).unwrap_err().contains("libx.a has changed"));
    }

    #[test]
    fn a_folder_that_appears_is_noticed_and_a_file_of_that_name_is_not() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("glibc-hwcaps");
        let later = SystemTime::now() + Duration::from_secs(3600);
        let mut collector = Collector::new(later);
        collector.looked_for_folder(&folder).unwrap();
        let reads = collector.finish();
        let mut read = serde_json::from_str::<Reads>(&serde_json::to_string(&reads).unwrap()).unwrap();
        assert!(read.same_as(&reads) && !read.same_as(&Reads::default()));
        assert!(read.revalidate(later).is_ok());
        std::fs::write(&folder, "").unwrap();
        assert!(read.revalidate(later).is_ok());
        std::fs::remove_file(&folder).unwrap();
        std::fs::create_dir(&folder).unwrap();
        assert_eq!(read.revalidate(later), Err(format!("{} has appeared", folder.display())));
        assert!(Collector::new(later).looked_for_folder(&folder).is_err());
    }
}
