//! Identity of a tool, for cache keys: its executable and all libraries that it could load.
//!
//! Each file counts by path, size, mtime and build id, so the same packages on another machine are
//! the same tool. A file may be replaced by another that equals it in all of these. Its ctime
//! changes nevertheless, and from then on the digest of its contents is part of the identity.
//!
//! In a file system image (of a disk or container), the creator chooses the timestamps. There,
//! contents are compared after each new mount. If timestamps are not trusted at all, contents are
//! compared every time.
//!
//! Of the loader's cache, only the entries for those libraries count, and not its timestamp: the
//! installation of any package replaces it.
//!
//! The identity is cached. It is valid until one of the files changes, or a library appears where
//! the loader would find it first.

use std::collections::{BTreeSet, HashMap};
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use object::Object;
use serde::{Deserialize, Serialize};

use super::file_snapshot::{self, FileStat};
use super::libraries::{self, OpenFiles};
use super::reads::{Collector, Reads};
use offld_system::environment;
use offld_system::io::bytes::Bytes;
use offld_system::io::loader;
use offld_system::store::{Cache, Digest, Key, KeyBuilder, Scope};
use offld_system::threads;
use offload_formats::dynamic;
use offload_formats::magic::ELF;

/// The version of the record format, which is part of the record's key.
const VERSION: &str = "tool 6";
/// Maximum number of earlier file identities in a record.
const MAX_EARLIER: usize = 1000;

/// The identity of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tool {
    /// The digest of the identities of all files.
    pub digest: Digest,
    known: KnownTool,
}

/// The cached facts about a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KnownTool {
    files: Vec<ToolFile>,
    /// Paths where the loader would find other libraries.
    missing: Reads,
    /// Identities ([`ToolFile::identity`]) that the files had earlier. If a file has one of them
    /// again, it may still differ, so its contents count, too.
    #[serde(default)]
    earlier: Vec<String>,
}

#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ToolFile {
    path: String,
    stat: FileStat,
    /// The build id, or the digest of the contents if there is none. For the loader's cache, the
    /// digest of the entries for the tool's libraries.
    build_id: String,
    /// The digest of the contents, as part of the key. Set once the stat has changed but size,
    /// mtime and build id have not.
    contents: Option<String>,
    /// The digest of the contents, set if an equal stat could mean other contents after the file
    /// system is mounted again, and for the loader's cache.
    #[serde(default)]
    seen: Option<String>,
}

impl Tool {
    /// Identifies the tool at `path`. Fails if it is a script, or if its files cannot be determined
    /// or read.
    pub(crate) fn of(path: &Path, cache: &Arc<Cache>) -> Result<Tool, String> {
        let real = path
            .canonicalize()
            .map_err(|error| format!("{}: {error}", path.display()))?;
        let now = cache.clock().now();
        let last = load_record(&real, cache);
        let known = match last.clone().and_then(|known| revalidate(known, now)) {
            Some((known, false)) => return Ok(Tool::new(known)),
            Some((known, true)) => known,
            None => inspect(&real, now, last.as_ref())?,
        };
        known.keep(&real, cache);
        Ok(Tool::new(known))
    }

    /// Like [`Tool::of`], but only if the cached record is valid by file stats alone. Starts no
    /// program and reads no file of the tool.
    pub(crate) fn from_record(path: &Path, cache: &Arc<Cache>) -> Option<Tool> {
        let real = path.canonicalize().ok()?;
        let mut known = load_record(&real, cache)?;
        if !known
            .files
            .iter()
            .all(|file| file.stat.believed() && file.is_untouched())
        {
            return None;
        }
        if known.missing.revalidate(cache.clock().now()).ok()? {
            known.keep(&real, cache);
        }
        Some(Tool::new(known))
    }

    /// Files that are the same on every machine with this tool: all except the loader's cache and
    /// preload list.
    pub(in crate::link::device) fn files(&self) -> impl Iterator<Item = &str> {
        self.known
            .files
            .iter()
            .map(|file| file.path.as_str())
            .filter(|path| ![loader::CACHE, loader::PRELOAD].contains(path))
    }

    /// Paths where the loader would find other libraries.
    pub(super) fn absent(&self) -> BTreeSet<PathBuf> {
        self.known.missing.absent_paths()
    }

    /// Fails if a file of the tool may have changed after `since`, or has changed since this
    /// identity was determined. The tool may have been started before its files were inspected, so
    /// `since` may be earlier.
    pub(crate) fn verify_unchanged(&self, since: SystemTime) -> Result<(), String> {
        if let Some(file) = self
            .known
            .files
            .iter()
            .find(|file| !file.is_untouched() || !file.stat.settled(since))
        {
            return Err(format!("{} has changed during the link", file.path));
        }
        let untrusted: Vec<&ToolFile> = self
            .known
            .files
            .iter()
            .filter(|file| !file.stat.believed())
            .collect();
        let digests = digests(&untrusted).map_err(|error| error.to_string())?;
        if let Some((file, _)) = untrusted
            .iter()
            .zip(&digests)
            .find(|(file, digest)| file.seen.as_ref() != Some(*digest))
        {
            return Err(format!("{} has changed during the link", file.path));
        }
        self.known.missing.clone().revalidate(since).map(drop)
    }

    #[cfg(test)]
    pub(in crate::link::device) fn for_tests() -> Tool {
        Tool::new(KnownTool {
            files: Vec::new(),
            missing: Reads::default(),
            earlier: Vec::new(),
        })
    }

    fn new(known: KnownTool) -> Tool {
        let mut key = KeyBuilder::default();
        for file in &known.files {
            if file.is_loader_cache() {
                key.add(&file.path).add(&file.build_id);
                continue;
            }
            let contents = file.contents.as_deref().unwrap_or_default();
            key.add(&file.path)
                .add(file.stat.size().to_le_bytes())
                .add(file.stat.modified())
                .add(&file.build_id)
                .add(contents);
        }
        Tool {
            digest: key.digest(),
            known,
        }
    }
}

impl KnownTool {
    /// Returns earlier identities, latest first, without those of `files`.
    fn identities_without(&self, files: &[ToolFile]) -> Vec<String> {
        let now: BTreeSet<String> = files.iter().map(ToolFile::identity).collect();
        let mut seen = BTreeSet::new();
        let all = self
            .files
            .iter()
            .map(ToolFile::identity)
            .chain(self.earlier.iter().cloned());
        all.filter(|identity| !now.contains(identity) && seen.insert(identity.clone()))
            .take(MAX_EARLIER)
            .collect()
    }

    /// Stores the record of the tool at `real` in the background.
    fn keep(&self, real: &Path, cache: &Arc<Cache>) {
        if let Ok(text) = serde_json::to_vec(self) {
            let (own, key) = (Arc::clone(cache), record_key(VERSION, real));
            cache.later(move || own.put_record(key, &text, Scope::Local));
        }
    }
}

impl ToolFile {
    /// Whether the stat is unchanged. That is conclusive only if the stat is trusted
    /// ([`FileStat::believed`]).
    fn is_untouched(&self) -> bool {
        FileStat::of(Path::new(&self.path)).is_ok_and(|stat| stat == self.stat)
    }

    /// Whether this is the list that ldconfig writes.
    fn is_loader_cache(&self) -> bool {
        self.path == loader::CACHE
    }

    /// Whether the file still has the contents of the record.
    fn has_equal_contents(&self) -> bool {
        let contents = file_snapshot::digest(Path::new(&self.path));
        contents.is_ok_and(|digest| self.seen == Some(digest.to_string()))
    }

    /// The file's identity without its contents.
    fn identity(&self) -> String {
        let mut key = KeyBuilder::default();
        key.add(&self.path)
            .add(self.stat.size().to_le_bytes())
            .add(self.stat.modified())
            .add(&self.build_id);
        key.digest().to_string().chars().take(32).collect()
    }
}

fn load_record(real: &Path, cache: &Cache) -> Option<KnownTool> {
    let bytes = cache.record(record_key(VERSION, real), Scope::Local)?;
    serde_json::from_slice::<KnownTool>(&bytes)
        .ok()
        .filter(|known| !known.files.is_empty())
}

/// Compares the record with the files on disk. Returns `None` if one has changed, or if the loader
/// would find another library.
///
/// If only stats differ, the record is updated, and the flag is true: it must be written again.
/// `now`: a time before this call.
fn revalidate(known: KnownTool, now: SystemTime) -> Option<(KnownTool, bool)> {
    let mut renewed = known.clone();
    let mut changed = renewed.missing.revalidate(now).ok()?;
    let mut untrusted: Vec<&mut ToolFile> = Vec::new();
    for (file, old) in renewed.files.iter_mut().zip(&known.files) {
        let path = Path::new(&file.path);
        file.stat = FileStat::of(path).ok()?;
        if file.stat == old.stat && file.stat.believed() {
            continue;
        }
        changed |= file.stat != old.stat;
        if file.is_loader_cache() {
            if !file.stat.settled(now) || !file.has_equal_contents() {
                return None;
            }
            continue;
        }
        let same =
            file.stat.size() == old.stat.size() && file.stat.modified() == old.stat.modified();
        if !same
            || !file.stat.settled(now)
            || build_id(&file.path, &Bytes::open(path).ok()?).ok()? != old.build_id
        {
            return None;
        }
        untrusted.push(file);
    }
    let old_seen: Vec<Option<String>> = untrusted.iter().map(|file| file.seen.clone()).collect();
    decide_contents(&mut untrusted, &known).ok()?;
    changed |= untrusted
        .iter()
        .zip(&old_seen)
        .any(|(file, old)| file.seen != *old);
    Some((renewed, changed))
}

/// Decides for each of `files` whether its contents are part of the identity, based on the earlier
/// record `known`.
fn decide_contents(files: &mut [&mut ToolFile], known: &KnownTool) -> std::io::Result<()> {
    let old = |file: &ToolFile| {
        known
            .files
            .iter()
            .find(|old| old.path == file.path && old.identity() == file.identity())
    };
    let is_vouched_for = |file: &ToolFile, old: &ToolFile| {
        (old.stat == file.stat && file.stat.believed()) || file.stat.is_mounted_anew(&old.stat)
    };
    let mut compared = Vec::new();
    for file in files.iter_mut().filter(|file| !file.is_loader_cache()) {
        let before = old(file);
        file.contents = before.and_then(|old| old.contents.clone());
        file.seen = before.and_then(|old| old.seen.clone());
        let was_known = before.is_some() || known.earlier.contains(&file.identity());
        let is_same = before.is_some_and(|old| is_vouched_for(file, old));
        if (was_known && !is_same) || (!file.stat.is_on_disk() && file.seen.is_none()) {
            compared.push((&mut **file, was_known));
        }
    }
    let of: Vec<&ToolFile> = compared.iter().map(|(file, _)| &**file).collect();
    let digests = digests(&of)?;
    for ((file, was_known), digest) in compared.into_iter().zip(digests) {
        if was_known && file.seen.as_ref() != Some(&digest) {
            file.contents = Some(digest.clone());
        }
        file.seen = Some(digest).filter(|_| !file.stat.is_on_disk());
    }
    Ok(())
}

/// Computes the digests of the contents of `files` with all threads.
fn digests(files: &[&ToolFile]) -> std::io::Result<Vec<String>> {
    let mut places: HashMap<FileStat, usize> = HashMap::new();
    let mut contents: Vec<Bytes> = Vec::new();
    let mut at = Vec::with_capacity(files.len());
    for file in files {
        // Most libraries have several paths.
        let place = *places.entry(file.stat).or_insert(contents.len());
        if place == contents.len() {
            contents.push(Bytes::open(Path::new(&file.path))?);
        }
        at.push(place);
    }
    if contents.is_empty() {
        return Ok(Vec::new());
    }
    let slices: Vec<&[u8]> = contents.iter().map(Bytes::as_slice).collect();
    let digests: Vec<String> = threads::in_parallel(|| Digest::of_all(&slices))
        .iter()
        .map(Digest::to_string)
        .collect();
    Ok(at.into_iter().map(|place| digests[place].clone()).collect())
}

/// The key of a tool's record: its path, and the variables that select the libraries.
fn record_key(version: &str, real: &Path) -> Key {
    let mut key = KeyBuilder::default();
    key.add(version).add(real.as_os_str().as_encoded_bytes());
    for name in [
        environment::LD_LIBRARY_PATH,
        environment::LD_PRELOAD,
        environment::LD_AUDIT,
    ] {
        key.add(
            environment::get(name)
                .unwrap_or_default()
                .as_encoded_bytes(),
        );
    }
    key.key()
}

/// Collects the executable, its libraries, the loader's lists, and paths where the loader would
/// find other libraries.
///
/// `begun`: a time before this call. `last`: the earlier record of the tool.
fn inspect(real: &Path, begun: SystemTime, last: Option<&KnownTool>) -> Result<KnownTool, String> {
    let name = real
        .to_str()
        .ok_or_else(|| format!("{} is not in UTF-8", real.display()))?;
    let mut open = OpenFiles::default();
    let (_, bytes) = open
        .open(real)
        .map_err(|error| format!("{name}: {error}"))?;
    let dynamic = dynamic::read(bytes.as_slice())
        .map_err(|_| format!("{name} is a script, which can run any program"))?;
    let mut paths = vec![name.to_owned()];
    let mut missing = Collector::new(begun);
    let mut listed = None;
    if dynamic.interpreter.is_some() {
        let libraries = libraries::of(real, &mut open)?;
        listed = Some(libraries.listed.to_string());
        paths.extend(libraries.files);
        libraries
            .missing
            .iter()
            .try_for_each(|path| missing.looked_for(Path::new(path)))?;
        libraries
            .missing_folders
            .iter()
            .try_for_each(|path| missing.looked_for_folder(path))?;
        for list in [loader::CACHE, loader::PRELOAD] {
            if Path::new(list).exists() {
                paths.push(list.to_owned());
            } else {
                missing.looked_for(Path::new(list))?;
            }
        }
    }
    let mut missing = missing.finish();
    // Records the stats of directories that have not changed for a while, so that later checks need
    // not look for each name.
    missing.revalidate(begun)?;
    let mut files = paths
        .into_iter()
        .map(|path| {
            let io_error = |error: std::io::Error| format!("{path}: {error}");
            let (stat, bytes) = open.open(Path::new(&path)).map_err(io_error)?;
            if !stat.settled(begun) {
                return Err(format!(
                    "{path} was modified too recently to detect a later change"
                ));
            }
            let (build_id, seen) = match &listed {
                Some(listed) if path == loader::CACHE => {
                    let contents = Digest::of(bytes.as_slice());
                    (listed.clone(), Some(contents.to_string()))
                }
                _ => (build_id(&path, &bytes).map_err(io_error)?, None),
            };
            Ok(ToolFile {
                stat,
                build_id,
                contents: None,
                seen,
                path,
            })
        })
        .collect::<Result<Vec<ToolFile>, String>>()?;
    let nothing = KnownTool {
        files: Vec::new(),
        missing: Reads::default(),
        earlier: Vec::new(),
    };
    let last = last.unwrap_or(&nothing);
    decide_contents(&mut files.iter_mut().collect::<Vec<_>>(), last)
        .map_err(|error| format!("{name}: {error}"))?;
    Ok(KnownTool {
        earlier: last.identities_without(&files),
        files,
        missing,
    })
}

/// Returns the build id of the file at `path` with these `bytes`, or the digest of its contents.
fn build_id(path: &str, bytes: &Bytes) -> std::io::Result<String> {
    let id = object::File::parse(bytes.as_slice())
        .ok()
        .and_then(|elf| elf.build_id().ok().flatten().map(<[u8]>::to_vec));
    match id {
        Some(id) => Ok(id.iter().map(|byte| format!("{byte:02x}")).collect()),
        None => Ok(file_snapshot::digest(Path::new(path))?.to_string()),
    }
}

/// Fails unless the compiler at `path` is an executable of the clang family, which answers `-###`.
///
/// A script may run anything, and a compiler launcher (`ccache`) is not the compiler.
pub(super) fn check_clang(path: &Path) -> Result<(), String> {
    let real: PathBuf = path.canonicalize().unwrap_or_default();
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    if !["clang", "clang++", "amdclang", "amdclang++", "icx", "icpx"].contains(&stem) {
        return Err(format!(
            "{} is not clang itself: name the clang executable",
            path.display()
        ));
    }
    let mut magic = [0; 4];
    match File::open(&real).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) if magic == ELF => Ok(()),
        _ => Err(format!(
            "{} is a script, which can run any program",
            path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::reference;
    use offld_system::clock::{Clock, TestClock};
    use offld_system::store::Store;

    #[test]
    fn a_tool_that_is_replaced_in_place_is_another() {
        let Some([real]) = reference::tools(["true"]) else {
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::stopped());
        let store = Store::with_clock(
            &dir.path().join("cache"),
            1 << 30,
            Arc::clone(&clock) as Arc<dyn Clock>,
        )
        .unwrap();
        let cache = Arc::new(Cache::new(store));
        let tool = dir.path().join("tool");
        let bytes = std::fs::read(&real).unwrap();
        let write = |bytes: &[u8]| {
            file_snapshot::write_anew(&tool, bytes);
            std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755))
                .unwrap();
            std::fs::File::open(&tool)
                .unwrap()
                .set_modified(SystemTime::UNIX_EPOCH)
                .unwrap();
        };
        write(&bytes);
        assert!(
            Tool::of(&tool, &cache)
                .unwrap_err()
                .contains("too recently")
        );
        // By the test's clock, everything was written an hour ago.
        clock.pass(Duration::from_secs(3600));
        cache.finish();
        assert_eq!(Tool::from_record(&tool, &cache), None);
        let first = Tool::of(&tool, &cache).unwrap();
        cache.finish();
        assert_eq!(Tool::of(&tool, &cache).unwrap(), first);
        assert_eq!(Tool::from_record(&tool, &cache).unwrap(), first);
        assert_eq!(first.verify_unchanged(clock.now()), Ok(()));
        assert!(
            first
                .verify_unchanged(clock.now() - Duration::from_secs(2 * 3600))
                .unwrap_err()
                .contains("has changed during")
        );
        // The same size, mtime and build id, with another byte at the end: only the ctime differs.
        let mut other = bytes.clone();
        *other.last_mut().unwrap() ^= 1;
        write(&other);
        cache.finish();
        assert!(first.verify_unchanged(clock.now()).is_err());
        assert_eq!(Tool::from_record(&tool, &cache), None);
        let second = Tool::of(&tool, &cache).unwrap();
        assert_ne!(second.digest, first.digest);
        write(&bytes);
        cache.finish();
        let third = Tool::of(&tool, &cache).unwrap();
        assert!(third.digest != second.digest && third.digest != first.digest);
        // The same contents again: from now on the digest is compared.
        write(&bytes);
        cache.finish();
        assert_eq!(Tool::of(&tool, &cache).unwrap().digest, third.digest);
        // First other contents, then a file that equals the first one in everything but its
        // contents.
        write(&[&bytes[..], b"more"].concat());
        cache.finish();
        let longer = Tool::of(&tool, &cache).unwrap();
        write(&other);
        cache.finish();
        let fourth = Tool::of(&tool, &cache).unwrap();
        assert!(![first.digest, third.digest, longer.digest].contains(&fourth.digest));
    }

    #[test]
    fn records_of_earlier_releases_are_not_trusted() {
        let Some([real]) = reference::tools(["true"]) else {
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::stopped());
        clock.pass(Duration::from_secs(3600));
        let store = Store::with_clock(
            &dir.path().join("cache"),
            1 << 30,
            Arc::clone(&clock) as Arc<dyn Clock>,
        )
        .unwrap();
        let cache = Arc::new(Cache::new(store));
        let tool = dir
            .path()
            .join("tool")
            .canonicalize()
            .unwrap_or(dir.path().join("tool"));
        std::fs::copy(&real, &tool).unwrap();
        // As version 0.9 wrote it: mount numbers only for read-only mounts, and no content digests.
        let stat = serde_json::to_value(FileStat::of(&tool).unwrap()).unwrap();
        let mut parts = stat.as_array().unwrap().clone();
        parts[7] = 0.into();
        let file = serde_json::json!({"path": tool, "stat": parts, "build_id": "of 0.9", "contents": null});
        let record = serde_json::json!({"files": [file], "missing": {"files": [], "absent": {}}});
        let key = record_key("tool 4", &tool);
        let text = record.to_string();
        cache
            .put_record(key, text.as_bytes(), Scope::Local)
            .unwrap();
        cache.finish();
        assert_eq!(Tool::from_record(&tool, &cache), None);
        assert_ne!(
            Tool::of(&tool, &cache).unwrap().known.files[0].build_id,
            "of 0.9"
        );
        // Both formats can be parsed, so neither record counts as damaged.
        assert_eq!(
            serde_json::from_value::<KnownTool>(record).unwrap().files[0].seen,
            None
        );
    }

    #[test]
    fn contents_are_compared_if_timestamps_may_be_of_another_mount() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("tool");
        std::fs::write(&path, "first").unwrap();
        let name = path.to_str().unwrap().to_owned();
        let digest = |text: &str| Some(Digest::of(text.as_bytes()).to_string());
        // The stat of the file on the mount `number`.
        let stat = |number: u64| -> FileStat {
            let mut parts = serde_json::to_value(FileStat::of(&path).unwrap())
                .unwrap()
                .as_array()
                .unwrap()
                .clone();
            parts[7] = number.into();
            serde_json::from_value(parts.into()).unwrap()
        };
        let file = |number, seen: Option<String>| {
            let (build_id, path) = ("an id".to_owned(), name.clone());
            ToolFile {
                path,
                stat: stat(number),
                build_id,
                contents: None,
                seen,
            }
        };
        let weighed = |before: ToolFile, mut now: ToolFile| {
            let known = KnownTool {
                files: vec![before],
                missing: Reads::default(),
                earlier: Vec::new(),
            };
            decide_contents(&mut [&mut now], &known).unwrap();
            (now.contents, now.seen)
        };
        const DISKS: [u64; 2] = [100, 102];
        const IMAGES: [u64; 2] = [101, 103];
        // A disk that is mounted again has the same files. An image may have others then, and an
        // unknown file system at any time.
        assert_eq!(
            weighed(file(DISKS[0], None), file(DISKS[1], None)),
            (None, None)
        );
        assert_eq!(
            weighed(file(IMAGES[0], digest("first")), file(IMAGES[1], None)),
            (None, digest("first"))
        );
        assert_eq!(
            weighed(file(IMAGES[0], digest("other")), file(IMAGES[1], None)),
            (digest("first"), digest("first"))
        );
        assert_eq!(
            weighed(file(u64::MAX, digest("other")), file(u64::MAX, None)),
            (digest("first"), digest("first"))
        );
        assert_eq!(
            weighed(file(IMAGES[0], digest("other")), file(IMAGES[0], None)),
            (None, digest("other"))
        );
    }

    #[test]
    fn scripts_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::new(
            Store::open(&dir.path().join("cache"), 1 << 30).unwrap(),
        ));
        let script = dir.path().join("clang");
        std::fs::write(&script, "#!/bin/sh\nexec /usr/bin/clang\n").unwrap();
        assert!(
            Tool::of(&script, &cache)
                .unwrap_err()
                .contains("is a script")
        );
        assert!(check_clang(&script).unwrap_err().contains("is a script"));
        assert!(
            check_clang(Path::new("/bin/sh"))
                .unwrap_err()
                .contains("is not clang itself")
        );
    }
}
