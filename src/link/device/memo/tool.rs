//! The identity of a tool, for cache keys: its executable and every library that it loads, each by path, size, modification time
//! and build id, so that the same packages on another machine are the same tool. If a file is replaced by one that has all of these
//! in common, its ctime changes nevertheless; from then on the digest of its contents is part of the identity, too.

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use object::Object;
use serde::{Deserialize, Serialize};

use super::file_snapshot::{self, FileStat};
use super::libraries::{self, OpenFiles};
use crate::formats::dynamic;
use crate::formats::magic::ELF;
use crate::io::bytes::Bytes;
use crate::io::loader;
use crate::store::{Cache, Digest, KeyBuilder};
use crate::sys::session::{self, Session};

/// The identity of a tool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Tool {
    /// The digest of all its files' identities.
    pub digest: Digest,
    files: Vec<ToolFile>,
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
        let files = match load_record(&real, cache).and_then(|files| revalidate(files, now)) {
            Some((files, false)) => return Ok(Tool::new(files)),
            Some((files, true)) => files,
            None => inspect(&real, now)?,
        };
        if let Ok(text) = serde_json::to_vec(&files) {
            let (own, key) = (Arc::clone(cache), record_key(&real));
            cache.later(move || own.put_own_record(key, &text));
        }
        Ok(Tool::new(files))
    }

    /// The same, if its record is in the cache and no file's stat has changed since; runs nothing and reads no file of the tool.
    pub(crate) fn from_record(path: &Path, cache: &Cache) -> Option<Tool> {
        let files = load_record(&path.canonicalize().ok()?, cache)?;
        files.iter().all(|file| file.is_untouched() && file.stat.believed()).then(|| Tool::new(files))
    }

    /// An error if a file of the tool has changed since this was determined, or possibly since the moment `since`, which may be
    /// earlier: the tool may have been started before its files were looked at.
    pub(crate) fn verify_unchanged(&self, since: SystemTime) -> Result<(), String> {
        match self.files.iter().find(|file| !file.is_untouched() || !file.stat.settled(since)) {
            Some(file) => Err(format!("{} has changed meanwhile", file.path)),
            None => Ok(()),
        }
    }

    fn new(files: Vec<ToolFile>) -> Tool {
        let mut key = KeyBuilder::default();
        for file in &files {
            let contents = file.contents.as_deref().unwrap_or_default();
            key.add(&file.path).add(file.stat.size().to_le_bytes()).add(file.stat.modified()).add(&file.build_id).add(contents);
        }
        Tool { digest: key.digest(), files }
    }
}

impl ToolFile {
    fn is_untouched(&self) -> bool {
        FileStat::of(Path::new(&self.path)).is_ok_and(|stat| stat == self.stat)
    }
}

fn load_record(real: &Path, cache: &Cache) -> Option<Vec<ToolFile>> {
    let bytes = cache.own_record(record_key(real))?;
    serde_json::from_slice::<Vec<ToolFile>>(&bytes).ok().filter(|files| !files.is_empty())
}

/// Compares the recorded files with those on disk: none if one has changed. If only the stat of a file differs, the record is
/// updated, and the second value is true: it must be written again. `now`: a moment before this call.
fn revalidate(mut files: Vec<ToolFile>, now: SystemTime) -> Option<(Vec<ToolFile>, bool)> {
    let mut renewed = false;
    for file in &mut files {
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
    Some((files, renewed))
}

/// The key of a tool's record: its path, and the variables that decide which libraries are loaded.
fn record_key(real: &Path) -> Digest {
    let mut key = KeyBuilder::default();
    key.add("tool 2").add(real.as_os_str().as_encoded_bytes());
    for name in [session::LD_LIBRARY_PATH, session::LD_PRELOAD] {
        key.add(Session::env(name).unwrap_or_default().as_encoded_bytes());
    }
    key.digest()
}

/// The executable, its libraries, and the files by which the dynamic loader finds them. `begun`: a moment before this call.
fn inspect(real: &Path, begun: SystemTime) -> Result<Vec<ToolFile>, String> {
    let name = real.to_str().ok_or_else(|| format!("{} is not in UTF-8", real.display()))?;
    let mut open = OpenFiles::default();
    let (_, bytes) = open.open(real).map_err(|error| format!("{name}: {error}"))?;
    let dynamic = dynamic::read(bytes.as_slice()).map_err(|_| format!("{name} is a script: what it runs is not known"))?;
    let mut paths = vec![name.to_owned()];
    if dynamic.interpreter.is_some() {
        paths.extend(libraries::of(real, &mut open)?);
        let loaders = [loader::CACHE, "/etc/ld.so.preload"].into_iter().filter(|path| Path::new(path).exists());
        paths.extend(loaders.map(str::to_owned));
    }
    paths
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
        .collect()
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
