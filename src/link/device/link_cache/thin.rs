//! Caches the objects of ThinLTO units, for links whose image is not cached because some units have
//! changed.
//!
//! ld.lld stores the objects in a directory and finds them by its own keys. It does not verify the
//! objects that it finds there. So each link gets a fresh directory, filled from offld's store with
//! the objects of an earlier link of the same program. The store identifies objects by the digest
//! of their contents. A record lists the objects of each link. New objects go into the store after
//! a successful link.
//!
//! This way, damaged objects never get into an image, and parallel links do not interfere. The
//! files of a killed link disappear with its temporary directory. Size limit, eviction and counters
//! are the same as for all other entries.
//!
//! ld.lld's code generator reports messages about a unit when it compiles it, as compilers do. A
//! cached unit reports none.
//!
//! ld.lld's keys cover the bitcode and the options known to ld.lld. Other dependencies are part of
//! the record's key: the linker's build, all its arguments, the environment, and the contents of
//! files named by options.

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
use crate::args::joined;
use offld_system::clock;
use offld_system::folder::OpenedFiles;
use offld_system::store::{BlobName, Cache, Digest, Key, KeyBuilder, Scope};

/// The version of the record format, which is part of the record's key.
const VERSION: &str = "thin 2";
/// Prefix of ld.lld's file names for complete objects.
const PREFIX: &str = "llvmcache-";
/// Keeps ld.lld from evicting objects by itself.
const POLICY: &str =
    "--thinlto-cache-policy=prune_after=0s:cache_size=0%:cache_size_bytes=0:cache_size_files=0";
/// Number of cached objects per unit, in addition to [`EXTRA_OBJECTS`]. Earlier versions help when
/// a change is reverted.
const OBJECTS_PER_UNIT: usize = 3;
/// Number of cached objects independent of the number of units.
const EXTRA_OBJECTS: usize = 64;

/// The record of a program: the objects of its units, most recently used first.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Units {
    objects: Vec<UnitObject>,
}

/// An object in the store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct UnitObject {
    /// ld.lld's file name.
    name: String,
    /// The name in the store.
    blob: String,
}

/// The directory with unit objects for a link that is about to run.
pub(super) struct ThinCache {
    key: Key,
    folder: PathBuf,
    /// The objects that ld.lld finds in the directory.
    given: Vec<UnitObject>,
    opened: Option<OpenedFiles>,
    /// The files named by linker arguments. Their contents are part of the key.
    files: Vec<(String, Digest)>,
    /// Maximum number of objects in the record.
    max_objects: usize,
}

/// The objects that ld.lld has added during a link.
struct NewUnits {
    cache: ThinCache,
    new: Vec<String>,
    used: BTreeSet<OsString>,
}

impl DeviceCache<'_> {
    /// Prepares the directory for a link with ThinLTO units. Returns `None` for other links.
    pub(super) fn units(
        &self,
        resolved: &ResolvedLink,
        query: &LinkQuery<'_>,
    ) -> Option<ThinCache> {
        ThinCache::prepare(
            resolved,
            query,
            self.key(&resolved.linker_command, &resolved.tools, &[]),
            self.cache,
        )
        .unwrap_or_else(|why| {
            self.note(|| format!("{}: ThinLTO units are not cached: {why}", query.cmd.step));
            None
        })
    }

    /// Stores the units that a link has compiled, in parallel with the host link.
    pub(super) fn keep_units(&self, units: ThinCache, tools: &[Tool], query: &LinkQuery<'_>) {
        let step = query.cmd.step.clone();
        let why_not = |why: String| format!("{step}: ThinLTO units are not cached: {why}");
        let ended = units.ended(tools, self.begun.time_of_day);
        let checked = ended.and_then(|new| {
            clock::check_not_set(self.cache.clock(), self.begun)?;
            Ok(new)
        });
        match checked {
            Err(why) => self.note(|| why_not(why.clone())),
            Ok(new) => {
                let (found, compiled) = new.count();
                self.note(|| {
                    format!(
                        "{step}: ThinLTO: {found} units found in the cache, {compiled} compiled"
                    )
                });
                let (cache, shell, verbose) = (
                    Arc::clone(self.cache),
                    Arc::clone(&self.session.shell),
                    self.verbose,
                );
                self.cache.later(move || match new.store(&cache) {
                    Err(why) if verbose => {
                        shell.note(&format!("{step}: ThinLTO units are not cached: {why}"))
                    }
                    _ => {}
                });
            }
        }
    }
}

impl ThinCache {
    /// Prepares the directory with the known objects. Returns `None` if the link would not benefit.
    fn prepare(
        resolved: &ResolvedLink,
        query: &LinkQuery<'_>,
        link: Key,
        cache: &Cache,
    ) -> Result<Option<ThinCache>, String> {
        let inputs = &query.job.inputs;
        // For a single unit, the cached image is enough.
        let worth = resolved.linker_args.linker == Linker::Lld && inputs.len() > 1;
        if !worth || !inputs.iter().any(|input| input.is_thin()) {
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
        let known = cache
            .record(key, Scope::Local)
            .and_then(|bytes| serde_json::from_slice::<Units>(&bytes).ok())
            .unwrap_or_default();
        let given = known
            .objects
            .into_iter()
            .filter(|object| object.fetch(cache, &folder))
            .collect();
        let opened = OpenedFiles::of(&folder);
        Ok(Some(ThinCache {
            key,
            folder,
            given,
            opened,
            files,
            max_objects: OBJECTS_PER_UNIT * inputs.len() + EXTRA_OBJECTS,
        }))
    }

    /// The linker arguments for the directory. They are not part of the cache key, because the
    /// image is the same.
    pub(super) fn arguments(&self) -> [OsString; 2] {
        [joined("--thinlto-cache-dir=", &self.folder), POLICY.into()]
    }

    /// Determines after the link which objects ld.lld has added and used.
    fn ended(mut self, tools: &[Tool], begun: SystemTime) -> Result<NewUnits, String> {
        let known: BTreeSet<&str> = self
            .given
            .iter()
            .map(|object| object.name.as_str())
            .collect();
        let entries = fs::read_dir(&self.folder)
            .map_err(|error| format!("{}: {error}", self.folder.display()))?;
        let names = entries
            .flatten()
            .filter_map(|entry| entry.file_name().into_string().ok());
        let mut new: Vec<String> = names
            .filter(|name| is_object(name) && !known.contains(name.as_str()))
            .collect();
        new.sort_unstable();
        let used = self
            .opened
            .take()
            .and_then(OpenedFiles::names)
            .unwrap_or_default();
        tools
            .iter()
            .try_for_each(|tool| tool.verify_unchanged(begun))?;
        for (name, digest) in &self.files {
            if !file_snapshot::digest(Path::new(name)).is_ok_and(|now| now == *digest) {
                return Err(format!("{name} has changed during the link"));
            }
        }
        Ok(NewUnits {
            cache: self,
            new,
            used,
        })
    }
}

impl NewUnits {
    /// Returns the number of cache hits, as far as known, and the number of compiled units.
    fn count(&self) -> (usize, usize) {
        let found = self
            .cache
            .given
            .iter()
            .filter(|object| self.used.contains(OsStr::new(&object.name)));
        (found.count(), self.new.len())
    }

    /// Puts the new objects into the store.
    fn store(self, cache: &Cache) -> Result<(), String> {
        let NewUnits {
            cache:
                ThinCache {
                    key,
                    folder,
                    given,
                    max_objects,
                    ..
                },
            new,
            used,
        } = self;
        let mut objects = Vec::new();
        for name in new {
            let blob = cache
                .put_blob(&folder.join(&name), Scope::Local)
                .map_err(|error| format!("{error:#}"))?;
            objects.push(UnitObject {
                name,
                blob: blob.to_string(),
            });
        }
        let (in_use, unused): (Vec<_>, Vec<_>) = given
            .iter()
            .cloned()
            .partition(|object| used.contains(OsStr::new(&object.name)));
        objects.extend(in_use);
        objects.extend(unused);
        // Another link of the program may have finished meanwhile.
        let now = cache
            .record(key, Scope::Local)
            .and_then(|bytes| serde_json::from_slice::<Units>(&bytes).ok())
            .unwrap_or_default();
        objects.extend(now.objects);
        let mut names = BTreeSet::new();
        objects.retain(|object| names.insert(object.name.clone()));
        objects.truncate(max_objects);
        if objects != given {
            let bytes =
                serde_json::to_vec(&Units { objects }).map_err(|error| error.to_string())?;
            let _ = cache.put_record(key, &bytes, Scope::Local);
        }
        Ok(())
    }
}

impl UnitObject {
    /// Copies the object to `folder` under ld.lld's name. Returns whether that has succeeded.
    fn fetch(&self, cache: &Cache, folder: &Path) -> bool {
        let Some(blob) = BlobName::parse(&self.blob).filter(|_| is_object(&self.name)) else {
            return false;
        };
        cache
            .fetch_blob(blob, &folder.join(&self.name), Scope::Local)
            .unwrap_or(false)
    }
}

/// Creates an empty directory at `path`. A retried link finds objects that a killed ld.lld left
/// there, which are not trusted.
fn make_empty(path: &Path) -> std::io::Result<()> {
    match fs::remove_dir_all(path) {
        Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
        _ => fs::create_dir(path),
    }
}

/// Whether a file with this name is an object that ld.lld has completed.
fn is_object(name: &str) -> bool {
    name.strip_prefix(PREFIX)
        .is_some_and(|key| !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

/// The key of the record: all dependencies of the objects that ld.lld's own keys do not cover.
///
/// It includes the program's name, so that programs with equal arguments do not evict each other's
/// units. `link`: the key of the same link without device code.
fn key(link: Key, query: &LinkQuery<'_>, files: &[(String, Digest)]) -> Key {
    let mut key = KeyBuilder::default();
    key.add(VERSION).add(link.bytes()).add(
        query
            .program
            .file_name()
            .unwrap_or_default()
            .as_encoded_bytes(),
    );
    for (name, digest) in files {
        key.add(name).add(digest.bytes());
    }
    key.key()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_retried_link_begins_with_an_empty_directory() {
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
    fn only_object_names_of_ld_lld_are_accepted() {
        assert!(is_object("llvmcache-0123456789ABCDEF"));
        for name in [
            "llvmcache-",
            "llvmcache-../../x",
            "Thin-123.tmp.o",
            "llvmcache.timestamp",
            "",
            "llvmcache-a/b",
        ] {
            assert!(!is_object(name), "{name}");
        }
    }
}
