//! The identity of a tool, for cache keys: its executable and every library that it could load, each by path, size, modification
//! time and build id, so that the same packages on another machine are the same tool. If a file is replaced by one that has all of
//! these in common, its ctime changes nevertheless; from then on the digest of its contents is part of the identity, too. What is
//! known of a tool is kept, and holds until one of its files changes, or a library appears where the loader would find it.

use std::collections::BTreeSet;
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
use crate::formats::dynamic;
use crate::formats::magic::ELF;
use crate::io::bytes::Bytes;
use crate::io::loader;
use crate::store::{Cache, Digest, Key, KeyBuilder};
use crate::sys::session::{self, Session};

/// The identity of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tool {
    /// The digest of all its files' identities.
    pub digest: Digest,
    known: KnownTool,
}

/// What is known of a tool.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct KnownTool {
    files: Vec<ToolFile>,
    /// Where the loader would find other libraries.
    missing: Reads,
}

/// One of a tool's files.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct ToolFile {
    path: String,
    stat: FileStat,
    /// Its build id, or the digest of its contents where it has none.
    build_id: String,
    /// The digest of its contents, once its stat has changed without its size, modification time or build id.
    contents: Option<String>,
}

impl Tool {
    /// The tool at `path`. An error if it is a script, or if its files cannot be determined or read.
    pub(crate) fn of(path: &Path, cache: &Arc<Cache>) -> Result<Tool, String> {
        let real = path.canonicalize().map_err(|error| format!("{}: {error}", path.display()))?;
        let now = cache.clock().now();
        let known = match load_record(&real, cache).and_then(|known| revalidate(known, now)) {
            Some((known, false)) => return Ok(Tool::new(known)),
            Some((known, true)) => known,
            None => inspect(&real, now)?,
        };
        known.keep(&real, cache);
        Ok(Tool::new(known))
    }

    /// The same, if its record is in the cache and still holds by the stats of files and folders alone; runs nothing and reads no
    /// file of the tool.
    pub(crate) fn from_record(path: &Path, cache: &Arc<Cache>) -> Option<Tool> {
        let real = path.canonicalize().ok()?;
        let mut known = load_record(&real, cache)?;
        if !known.files.iter().all(|file| file.is_untouched() && file.stat.believed()) {
            return None;
        }
        if known.missing.revalidate(cache.clock().now()).ok()? {
            known.keep(&real, cache);
        }
        Some(Tool::new(known))
    }

    /// Its files that are the same wherever it is installed: all but the loader's own lists.
    pub(in crate::link::device) fn files(&self) -> impl Iterator<Item = &str> {
        self.known.files.iter().map(|file| file.path.as_str()).filter(|path| ![loader::CACHE, loader::PRELOAD].contains(path))
    }

    /// Where the loader would find other libraries.
    pub(super) fn absent(&self) -> BTreeSet<PathBuf> {
        self.known.missing.absent_paths()
    }

    /// An error if a file of the tool has changed since this was determined, or possibly since the moment `since`, which may be
    /// earlier: the tool may have been started before its files were looked at.
    pub(crate) fn verify_unchanged(&self, since: SystemTime) -> Result<(), String> {
        if let Some(file) = self.known.files.iter().find(|file| !file.is_untouched() || !file.stat.settled(since)) {
            return Err(format!("{} has changed meanwhile", file.path));
        }
        self.known.missing.clone().revalidate(since).map(drop)
    }

    #[cfg(test)]
    pub(in crate::link::device) fn for_tests() -> Tool {
        Tool::new(KnownTool { files: Vec::new(), missing: Reads::default() })
    }

    fn new(known: KnownTool) -> Tool {
        let mut key = KeyBuilder::default();
        for file in &known.files {
            let contents = file.contents.as_deref().unwrap_or_default();
            key.add(&file.path).add(file.stat.size().to_le_bytes()).add(file.stat.modified()).add(&file.build_id).add(contents);
        }
        Tool { digest: key.digest(), known }
    }
}

impl KnownTool {
    /// Keeps it for later links, as what is known of the tool at `real`.
    fn keep(&self, real: &Path, cache: &Arc<Cache>) {
        if let Ok(text) = serde_json::to_vec(self) {
            let (own, key) = (Arc::clone(cache), record_key(real));
            cache.later(move || own.put_own_record(key, &text));
        }
    }
}

impl ToolFile {
    fn is_untouched(&self) -> bool {
        FileStat::of(Path::new(&self.path)).is_ok_and(|stat| stat == self.stat)
    }
}

fn load_record(real: &Path, cache: &Cache) -> Option<KnownTool> {
    let bytes = cache.own_record(record_key(real))?;
    serde_json::from_slice::<KnownTool>(&bytes).ok().filter(|known| !known.files.is_empty())
}

/// Compares the recorded files with those on disk: none if one has changed, or if another library would be found. If only the stat
/// of a file or folder differs, the record is updated, and the second value is true: it must be written again. `now`: a moment
/// before this call.
fn revalidate(mut known: KnownTool, now: SystemTime) -> Option<(KnownTool, bool)> {
    let mut renewed = known.missing.revalidate(now).ok()?;
    for file in &mut known.files {
        let path = Path::new(&file.path);
        let stat = FileStat::of(path).ok()?;
        if stat == file.stat && stat.believed() {
            continue;
        }
        let same = stat.size() == file.stat.size() && stat.modified() == file.stat.modified();
        if !same || !stat.settled(now) || build_id(&file.path, &Bytes::open(path).ok()?).ok()? != file.build_id {
            return None;
        }
        if !stat.differs_only_in_device(&file.stat) {
            file.contents = Some(file_snapshot::digest(path).ok()?.to_string());
        }
        renewed |= stat != file.stat;
        file.stat = stat;
    }
    Some((known, renewed))
}

/// The key of a tool's record: its path, and the variables that decide which libraries are loaded.
fn record_key(real: &Path) -> Key {
    let mut key = KeyBuilder::default();
    key.add("tool 4").add(real.as_os_str().as_encoded_bytes());
    for name in [session::LD_LIBRARY_PATH, session::LD_PRELOAD, session::LD_AUDIT] {
        key.add(Session::env(name).unwrap_or_default().as_encoded_bytes());
    }
    key.key()
}

/// The executable, its libraries, the files by which the dynamic loader finds them, and where it would find others. `begun`: a
/// moment before this call.
fn inspect(real: &Path, begun: SystemTime) -> Result<KnownTool, String> {
    let name = real.to_str().ok_or_else(|| format!("{} is not in UTF-8", real.display()))?;
    let mut open = OpenFiles::default();
    let (_, bytes) = open.open(real).map_err(|error| format!("{name}: {error}"))?;
    let dynamic = dynamic::read(bytes.as_slice()).map_err(|_| format!("{name} is a script: what it runs is not known"))?;
    let mut paths = vec![name.to_owned()];
    let mut missing = Collector::new(begun);
    if dynamic.interpreter.is_some() {
        let libraries = libraries::of(real, &mut open)?;
        paths.extend(libraries.files);
        libraries.missing.iter().try_for_each(|path| missing.looked_for(Path::new(path)))?;
        libraries.missing_folders.iter().try_for_each(|path| missing.looked_for_folder(path))?;
        for list in [loader::CACHE, loader::PRELOAD] {
            if Path::new(list).exists() {
                paths.push(list.to_owned());
            } else {
                missing.looked_for(Path::new(list))?;
            }
        }
    }
    let mut missing = missing.finish();
    // The stats of folders that have been left alone for long, so that the names in them need not be looked for each time.
    missing.revalidate(begun)?;
    let files = paths
        .into_iter()
        .map(|path| {
            let io_error = |error: std::io::Error| format!("{path}: {error}");
            let (stat, bytes) = open.open(Path::new(&path)).map_err(io_error)?;
            if !stat.settled(begun) {
                return Err(format!("{path} has only just been written"));
            }
            let build_id = build_id(&path, &bytes).map_err(io_error)?;
            Ok(ToolFile { stat, build_id, contents: None, path })
        })
        .collect::<Result<_, String>>()?;
    Ok(KnownTool { files, missing })
}

/// The build id in the file at `path`, which has these `bytes`, or the digest of its contents.
fn build_id(path: &str, bytes: &Bytes) -> std::io::Result<String> {
    let id = object::File::parse(bytes.as_slice()).ok().and_then(|elf| elf.build_id().ok().flatten().map(<[u8]>::to_vec));
    match id {
        Some(id) => Ok(id.iter().map(|byte| format!("{byte:02x}")).collect()),
        None => Ok(file_snapshot::digest(Path::new(path))?.to_string()),
    }
}

/// An error unless the compiler at `path` is an executable of the clang family, which answers `-###`. A script may run anything,
/// and a compiler launcher (`ccache`) is not the compiler.
pub(super) fn check_clang(path: &Path) -> Result<(), String> {
    let real: PathBuf = path.canonicalize().unwrap_or_default();
    let name = real.file_name().unwrap_or_default().to_string_lossy();
    let stem = name.trim_end_matches(|c: char| c.is_ascii_digit() || c == '.' || c == '-');
    if !["clang", "clang++", "amdclang", "amdclang++", "icx", "icpx"].contains(&stem) {
        return Err(format!("{} is not clang itself, so what it runs is not known", path.display()));
    }
    let mut magic = [0; 4];
    match File::open(&real).and_then(|mut file| file.read_exact(&mut magic)) {
        Ok(()) if magic == ELF => Ok(()),
        _ => Err(format!("{} is a script: what it runs is not known", path.display())),
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::formats::reference;
    use crate::store::Store;
    use crate::sys::clock::{Clock, TestClock};

    #[test]
    fn a_tool_that_is_replaced_in_place_is_another() {
        let Some([real]) = reference::tools(["true"]) else { return };
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::stopped());
        let store = Store::with_clock(&dir.path().join("cache"), 1 << 30, Arc::clone(&clock) as Arc<dyn Clock>).unwrap();
        let cache = Arc::new(Cache::new(store));
        let tool = dir.path().join("tool");
        let bytes = std::fs::read(&real).unwrap();
        let write = |bytes: &[u8]| {
            file_snapshot::write_anew(&tool, bytes);
            std::fs::set_permissions(&tool, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
            std::fs::File::open(&tool).unwrap().set_modified(SystemTime::UNIX_EPOCH).unwrap();
        };
        write(&bytes);
        assert!(Tool::of(&tool, &cache).unwrap_err().contains("only just"));
        // By the clock of the test, everything was written an hour ago.
        clock.pass(Duration::from_secs(3600));
        cache.finish();
        assert_eq!(Tool::from_record(&tool, &cache), None);
        let first = Tool::of(&tool, &cache).unwrap();
        cache.finish();
        assert_eq!(Tool::of(&tool, &cache).unwrap(), first);
        assert_eq!(Tool::from_record(&tool, &cache).unwrap(), first);
        assert_eq!(first.verify_unchanged(clock.now()), Ok(()));
        assert!(
            first.verify_unchanged(clock.now() - Duration::from_secs(2 * 3600)).unwrap_err().contains("has changed meanwhile")
        );
        // The same size, time and build id, and another byte at the end: only the ctime differs.
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
        // Written again with the same contents: the digest of the contents is compared now.
        write(&bytes);
        cache.finish();
        assert_eq!(Tool::of(&tool, &cache).unwrap().digest, third.digest);
    }

    #[test]
    fn scripts_are_refused() {
        let dir = tempfile::tempdir().unwrap();
        let cache = Arc::new(Cache::new(Store::open(&dir.path().join("cache"), 1 << 30).unwrap()));
        let script = dir.path().join("clang");
        std::fs::write(&script, "#!/bin/sh\nexec /usr/bin/clang\n").unwrap();
        assert!(Tool::of(&script, &cache).unwrap_err().contains("is a script"));
        assert!(check_clang(&script).unwrap_err().contains("is a script"));
        assert!(check_clang(Path::new("/bin/sh")).unwrap_err().contains("is not clang itself"));
    }
}
