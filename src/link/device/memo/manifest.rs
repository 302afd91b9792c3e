//! What is written down of a device link that was done: every file that it read besides the device code, every file that it would have
//! read in place of one had it been there, and what came of it. A later link of the same device code by the same command gives the
//! same image as long as all of that holds.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::line::Line;
use super::stamp::FileSnapshot;

/// How many are kept of one key: switching between two versions of a library needs two.
const MOST: usize = 8;

/// All that is known of the links of one key, the latest first.
#[derive(Debug, Default, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Manifest {
    /// Each with other files.
    pub(super) variants: Vec<Variant>,
}

/// One link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Variant {
    /// What it read, as it was.
    pub(super) files: Vec<FileSnapshot>,
    /// What was not there: names by folder.
    pub(super) absent: BTreeMap<String, Vec<String>>,
    /// The digest of the image, in hexadecimal digits.
    pub(super) image: String,
    /// What the linker said.
    pub(super) said: String,
}

impl Manifest {
    /// Out of a record's bytes. What cannot be read is empty.
    pub(super) fn read(bytes: &[u8]) -> Manifest {
        serde_json::from_slice(bytes).unwrap_or_default()
    }

    /// Out of the bytes of a record that other machines have written. Their files' stamps say nothing of the files here, not even
    /// when they are the same: images of file systems have them fixed.
    pub(super) fn of_others(bytes: &[u8]) -> Manifest {
        let mut manifest = Manifest::read(bytes);
        manifest.variants.iter_mut().flat_map(|variant| &mut variant.files).for_each(|file| file.stamp = None);
        manifest
    }

    /// The link whose files are as they were, and whether stamps were taken anew; else what is the matter with the latest.
    /// `now`: a moment before this call.
    pub(super) fn find(&mut self, now: SystemTime) -> Result<(usize, bool), String> {
        let mut reason = None;
        for index in 0..self.variants.len() {
            match self.variants[index].holds(now) {
                Ok(renewed) => {
                    // The one in use is the last to be dropped, and the one that a later change is told against.
                    self.variants[..=index].rotate_right(1);
                    return Ok((0, renewed || index > 0));
                }
                Err(why) => reason = reason.or(Some(why)),
            }
        }
        Err(reason.unwrap_or_else(|| "nothing is known of it".to_owned()))
    }

    /// Adds the latest.
    pub(super) fn add(&mut self, variant: Variant) {
        self.variants.retain(|old| !old.is_like(&variant));
        self.variants.insert(0, variant);
        self.variants.truncate(MOST);
    }

    /// Adds what only others know, after what is known here.
    pub(super) fn join(&mut self, others: Manifest) {
        for variant in others.variants {
            if !self.variants.iter().any(|own| own.is_like(&variant)) {
                self.variants.push(variant);
            }
        }
        self.variants.truncate(MOST);
    }
}

impl Variant {
    /// Whether both have read the same.
    fn is_like(&self, other: &Variant) -> bool {
        let contents =
            |files: &[FileSnapshot]| files.iter().map(|file| (file.path.clone(), file.digest.clone())).collect::<Vec<_>>();
        contents(&self.files) == contents(&other.files) && self.absent == other.absent
    }

    fn holds(&mut self, now: SystemTime) -> Result<bool, String> {
        for (folder, names) in &self.absent {
            let folder = Path::new(folder);
            // Most of these folders are there, and none of the names.
            if let Some(there) = names.iter().map(|name| folder.join(name)).find(|path| path.exists()) {
                return Err(format!("{} has appeared", there.display()));
            }
        }
        let mut renewed = false;
        for file in &mut self.files {
            renewed |= file.holds(now)?;
        }
        Ok(renewed)
    }
}

/// What a link read, and did not find.
#[derive(Debug, Default)]
pub(super) struct Read {
    pub(super) files: Vec<FileSnapshot>,
    pub(super) absent: BTreeMap<String, Vec<String>>,
}

/// From the names that the linker wrote down as `prerequisites`, without those in `own`, our own files. `more`: folders where the linker
/// searches by itself. `begun`: when it began.
pub(super) fn gather(
    line: &Line,
    prerequisites: &[String],
    own: &[PathBuf],
    more: &[PathBuf],
    begun: SystemTime,
) -> Result<Read, String> {
    let mut names: BTreeSet<&str> = prerequisites.iter().map(String::as_str).collect();
    names.retain(|name| !own.iter().any(|own| own == Path::new(name)));
    names.extend(line.files.iter().map(String::as_str));
    let mut read = Read::default();
    let mut absent: BTreeMap<PathBuf, BTreeSet<String>> = BTreeMap::new();
    let mut shadowing_paths = BTreeSet::new();
    for name in &names {
        read.files.push(FileSnapshot::now(name, begun)?);
        // What the line names by its path is not searched for.
        if !line.files.iter().any(|file| file == name) {
            shadowing_paths.extend(line.shadowing_paths(name, more));
        }
    }
    for rival in shadowing_paths {
        let text = rival.to_str().ok_or_else(|| format!("{} is not in UTF-8", rival.display()))?;
        if names.contains(text) {
            continue;
        }
        if rival.is_file() {
            // There, and passed over: of another machine, or not the form that was asked for. Only as it is now.
            read.files.push(FileSnapshot::now(text, begun)?);
        } else if let (Some(folder), Some(name)) = (rival.parent(), rival.file_name()) {
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

    use super::super::line::Linker;
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
        let line = Line::for_tests(Linker::Lld, vec![first.clone(), second.clone()]);
        let later = SystemTime::now() + Duration::from_secs(3600);
        let read = gather(&line, &[library.clone(), "/tmp/own.o".to_owned()], &["/tmp/own.o".into()], &[], later).unwrap();
        assert_eq!(read.files.len(), 1);
        let variant = Variant { files: read.files, absent: read.absent, image: String::new(), said: String::new() };
        let mut manifest = Manifest::read(&serde_json::to_vec(&Manifest { variants: vec![variant] }).unwrap());
        assert_eq!(manifest.find(later), Ok((0, false)));
        for rival in [first.join("libx.a"), first.join("libx.so"), second.join("libx.so")] {
            std::fs::write(&rival, "y").unwrap();
            assert_eq!(manifest.find(later), Err(format!("{} has appeared", rival.display())));
            std::fs::remove_file(&rival).unwrap();
        }
        assert_eq!(manifest.find(later), Ok((0, false)));
        // A folder that was not there is the same as a file that was not.
        std::fs::remove_file(&library).unwrap();
        assert_eq!(manifest.find(later), Err(format!("{library} is gone")));
    }

    #[test]
    fn the_latest_come_first_and_the_oldest_go() {
        let variant = |text: &str| Variant {
            files: vec![FileSnapshot { path: "/x".into(), stamp: None, digest: text.into() }],
            absent: BTreeMap::new(),
            image: text.into(),
            said: String::new(),
        };
        let mut manifest = Manifest::default();
        for text in ["a", "b", "a", "c"] {
            manifest.add(variant(text));
        }
        assert_eq!(manifest.variants.iter().map(|variant| variant.image.as_str()).collect::<Vec<_>>(), ["c", "a", "b"]);
        for count in 0..20 {
            manifest.add(variant(&count.to_string()));
        }
        assert_eq!((manifest.variants.len(), manifest.variants[0].image.as_str()), (MOST, "19"));
        assert_eq!(Manifest::read(b"garbage"), Manifest::default());
    }

    #[test]
    fn stamps_of_others_are_not_believed() {
        let dir = tempfile::tempdir().unwrap();
        let library = dir.path().join("libx.a").to_str().unwrap().to_owned();
        std::fs::write(&library, "here").unwrap();
        let later = SystemTime::now() + Duration::from_secs(3600);
        let seen = FileSnapshot::now(&library, later).unwrap();
        let variant = |digest: &str| {
            // The same stamp, as two images of file systems could have it.
            let files = vec![FileSnapshot { digest: digest.to_owned(), ..seen.clone() }];
            Variant { files, absent: BTreeMap::new(), image: digest.to_owned(), said: String::new() }
        };
        let text = |variants| serde_json::to_vec(&Manifest { variants }).unwrap();
        let there = text(vec![variant(&Digest::of(b"there").to_string())]);
        assert_eq!(Manifest::read(&there).find(later), Ok((0, false)));
        assert_eq!(Manifest::of_others(&there).find(later), Err(format!("{library} has changed")));
        let mut both = Manifest::of_others(&there);
        both.join(Manifest::of_others(&text(vec![variant(&Digest::of(b"there").to_string()), variant(&seen.digest)])));
        assert_eq!(both.find(later), Ok((0, true)));
        assert_eq!(both.variants[0].image, seen.digest);
        assert_eq!(both.variants.len(), 2);
    }
}
