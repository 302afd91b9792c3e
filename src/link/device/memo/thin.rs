//! The cache of ThinLTO's units, for a link whose image is not in the cache because some of its units have changed. ld.lld keeps the
//! objects that it makes of units in a folder, and finds them there by keys of its own.
//!
//! That folder is never one that stays: ld.lld does not check what it finds in it. Each link gets a folder of its own, with the
//! objects that an earlier link of the same program has left, out of the store, where each has the digest of its contents; a record
//! says which belong to a link. What ld.lld adds goes into the store when the link has succeeded. So nothing that is damaged gets
//! into an image, links that run at once do not meet, what a killed link leaves goes with its temporary folder, and limit,
//! collection and counters are those of everything else.
//!
//! What ld.lld's code generator says of a unit it says when it compiles it, as compilers do: of a unit that was found it says nothing.
//!
//! ld.lld's keys are made of the bitcode and of those options that it knows to matter. What else an object may depend on (the
//! linker's build, all its words, the environment, what is in the files that it is told to read) is part of the record's key.

use std::collections::BTreeSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use serde::{Deserialize, Serialize};

use super::file_snapshot;
use super::linker_args::Linker;
use super::{DeviceCache, LinkQuery, ResolvedLink, Tool};
use crate::formats::{bitcode, magic};
use crate::store::{BlobName, Cache, Digest, Key, KeyBuilder};
use crate::sys::clock;
use crate::sys::opened::OpenedFiles;

/// The number of the record's format, which is part of its key.
const VERSION: &str = "thin 2";
/// How ld.lld begins the names of objects that are complete.
const PREFIX: &str = "llvmcache-";
/// ld.lld removes nothing by itself.
const POLICY: &str = "--thinlto-cache-policy=prune_after=0s:cache_size=0%:cache_size_bytes=0:cache_size_files=0";
/// How many objects are kept for each unit, besides [`MORE`]: those of earlier versions, for whoever goes back to one.
const OF_EACH: usize = 3;
/// How many there may be anyway.
const MORE: usize = 64;

/// What is known of a program's units: the objects, those that were used last in front.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Units {
    objects: Vec<UnitObject>,
}

/// An object in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct UnitObject {
    /// ld.lld's name for it.
    name: String,
    /// Its name in the store.
    blob: String,
}

/// The units of one link that is about to run.
pub(super) struct ThinCache {
    key: Key,
    folder: PathBuf,
    /// The objects that ld.lld finds in the folder.
    given: Vec<UnitObject>,
    opened: Option<OpenedFiles>,
    /// The files that the linker's words name, whose contents are part of the key.
    files: Vec<(String, Digest)>,
    /// How many objects are kept.
    most: usize,
}

/// What ld.lld has added in a link.
struct NewUnits {
    cache: ThinCache,
    new: Vec<String>,
    used: BTreeSet<OsString>,
}

impl DeviceCache<'_> {
    /// The folder for the units of a link with ThinLTO, if it has any.
    pub(super) fn units(&self, resolved: &ResolvedLink, query: &LinkQuery<'_>) -> Option<ThinCache> {
        ThinCache::prepare(resolved, query, self.key(&resolved.linker_command, &resolved.tools, &[]), self.cache).unwrap_or_else(
            |why| {
                self.note(|| format!("{}: its units are not cached: {why}", query.cmd.step));
                None
            },
        )
    }

    /// Keeps the units that a link has compiled, while the host is linked.
    pub(super) fn keep_units(&self, units: ThinCache, tools: &[Tool], query: &LinkQuery<'_>) {
        let step = query.cmd.step.clone();
        let why_not = |why: String| format!("{step}: its units are not cached: {why}");
        let (begun, running) = self.begun;
        let ended = units.ended(tools, begun);
        match ended.and_then(|new| clock::check_not_set(self.cache.clock(), begun, running).map(|()| new)) {
            Err(why) => self.note(|| why_not(why.clone())),
            Ok(new) => {
                let (found, compiled) = new.count();
                self.note(|| format!("{step}: ThinLTO: {found} units found in the cache, {compiled} compiled"));
                let (cache, shell, verbose) = (Arc::clone(self.cache), Arc::clone(&self.session.shell), self.verbose);
                self.cache.later(move || match new.store(&cache) {
                    Err(why) if verbose => shell.note(&format!("{step}: its units are not cached: {why}")),
                    _ => {}
                });
            }
        }
    }
}

impl ThinCache {
    /// Prepares the folder for a link, with the objects that are known; none if the link has no use for it.
    fn prepare(resolved: &ResolvedLink, query: &LinkQuery<'_>, link: Key, cache: &Cache) -> Result<Option<ThinCache>, String> {
        let inputs = &query.job.inputs;
        let is_thin = |bytes: &[u8]| magic::is_bitcode(bytes) && bitcode::is_thin(bytes).unwrap_or(false);
        // A program of one unit is known as a whole or not at all.
        let worth = resolved.linker_args.linker == Linker::Lld && inputs.len() > 1;
        if !worth || !inputs.iter().any(|input| is_thin(&input.bytes)) {
            return Ok(None);
        }
        let names = &resolved.linker_args.files;
        let digest = |name: &String| match file_snapshot::digest(Path::new(name)) {
            Ok(digest) => Ok((name.clone(), digest)),
            Err(error) => Err(format!("{name}: {error}")),
        };
        let files = names.iter().map(digest).collect::<Result<Vec<_>, _>>()?;
        let key = key(link, query, &files);
        let folder = query.image.with_extension("units");
        make_empty(&folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        let known = cache.own_record(key).and_then(|bytes| serde_json::from_slice::<Units>(&bytes).ok()).unwrap_or_default();
        let given = known.objects.into_iter().filter(|object| object.fetch(cache, &folder)).collect();
        let opened = OpenedFiles::of(&folder);
        Ok(Some(ThinCache { key, folder, given, opened, files, most: OF_EACH * inputs.len() + MORE }))
    }

    /// The arguments by which ld.lld uses the folder. They do not belong to what a link is known by: the image is the same.
    pub(super) fn arguments(&self) -> [OsString; 2] {
        let mut folder = OsString::from("--thinlto-cache-dir=");
        folder.push(&self.folder);
        [folder, POLICY.into()]
    }

    /// After the link: what it has added and what it has used.
    fn ended(mut self, tools: &[Tool], begun: SystemTime) -> Result<NewUnits, String> {
        let known: BTreeSet<&str> = self.given.iter().map(|object| object.name.as_str()).collect();
        let entries = fs::read_dir(&self.folder).map_err(|error| format!("{}: {error}", self.folder.display()))?;
        let names = entries.flatten().filter_map(|entry| entry.file_name().into_string().ok());
        let mut new: Vec<String> = names.filter(|name| is_object(name) && !known.contains(name.as_str())).collect();
        new.sort_unstable();
        let used = self.opened.take().and_then(OpenedFiles::names).unwrap_or_default();
        tools.iter().try_for_each(|tool| tool.verify_unchanged(begun))?;
        for (name, digest) in &self.files {
            if !file_snapshot::digest(Path::new(name)).is_ok_and(|now| now == *digest) {
                return Err(format!("{name} has changed during the link"));
            }
        }
        Ok(NewUnits { cache: self, new, used })
    }
}

impl NewUnits {
    /// How many units were found, if that is known, and how many were compiled.
    fn count(&self) -> (usize, usize) {
        let found = self.cache.given.iter().filter(|object| self.used.contains(OsStr::new(&object.name)));
        (found.count(), self.new.len())
    }

    /// Puts what is new into the store.
    fn store(self, cache: &Cache) -> Result<(), String> {
        let NewUnits { cache: ThinCache { key, folder, given, most, .. }, new, used } = self;
        let mut objects = Vec::new();
        for name in new {
            let blob = cache.put_own_blob(&folder.join(&name)).map_err(|error| format!("{error:#}"))?;
            objects.push(UnitObject { name, blob: blob.to_string() });
        }
        let (in_use, unused): (Vec<_>, Vec<_>) =
            given.iter().cloned().partition(|object| used.contains(OsStr::new(&object.name)));
        objects.extend(in_use);
        objects.extend(unused);
        // Another link of the program may have ended meanwhile.
        let now = cache.own_record(key).and_then(|bytes| serde_json::from_slice::<Units>(&bytes).ok()).unwrap_or_default();
        objects.extend(now.objects);
        let mut names = BTreeSet::new();
        objects.retain(|object| names.insert(object.name.clone()));
        objects.truncate(most);
        if objects != given {
            let bytes = serde_json::to_vec(&Units { objects }).map_err(|error| error.to_string())?;
            cache.put_own_record(key, &bytes);
        }
        Ok(())
    }
}

impl UnitObject {
    /// Puts the object into `folder` under ld.lld's name; returns whether it is there, whole.
    fn fetch(&self, cache: &Cache, folder: &Path) -> bool {
        let Some(blob) = BlobName::parse(&self.blob).filter(|_| is_object(&self.name)) else { return false };
        cache.fetch_own_blob(blob, &folder.join(&self.name)).unwrap_or(false)
    }
}

/// Makes an empty folder at `path`. A link that is tried again has left one there: what ld.lld was killed at is not trusted.
fn make_empty(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => fs::create_dir(path),
    }
}

/// Whether a file of this name is an object that ld.lld has completed.
fn is_object(name: &str) -> bool {
    name.strip_prefix(PREFIX).is_some_and(|key| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// The key of the record: everything that the objects depend on, but for what ld.lld's own keys are made of; and the program's name,
/// so that programs with the same words do not displace each other's units. `link`: the key of the same link of no device code.
fn key(link: Key, query: &LinkQuery<'_>, files: &[(String, Digest)]) -> Key {
    let mut key = KeyBuilder::default();
    key.add(VERSION).add(link.bytes()).add(query.program.file_name().unwrap_or_default().as_encoded_bytes());
    for (name, digest) in files {
        key.add(name).add(digest.bytes());
    }
    key.key()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_link_that_is_tried_again_begins_with_an_empty_folder() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("image.units");
        for _ in 0..2 {
            make_empty(&folder).unwrap();
            assert_eq!(fs::read_dir(&folder).unwrap().count(), 0);
            fs::write(folder.join("llvmcache-0123"), "half").unwrap();
        }
        assert!(make_empty(&dir.path().join("none/image.units")).is_err());
    }

    #[test]
    fn only_names_that_ld_lld_gives_lead_to_files() {
        assert!(is_object("llvmcache-0123456789ABCDEF"));
        for name in ["llvmcache-", "llvmcache-../../x", "Thin-123.tmp.o", "llvmcache.timestamp", "", "llvmcache-a/b"] {
            assert!(!is_object(name), "{name}");
        }
    }
}
