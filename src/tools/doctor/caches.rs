//! The state of the cache of device links, and of the remote cache.

use std::path::Path;
use std::sync::{Arc, Mutex};

use rustix::fs::Access;

use super::report::{Cache, Remote};
use crate::error;
use crate::store::local::Store;
use crate::store::settings::{self, Setting};
use crate::store::{self, Key, RemoteSettings, SecretKey};
use crate::sys::threads::lock;

/// Examines the cache that a link in this environment would use.
pub(super) fn own() -> Cache {
    let setting = settings::resolve(None);
    let Setting {
        root,
        limit,
        why_off,
        ..
    } = &setting;
    let Some(root) = root else {
        return Cache {
            error: why_off.clone(),
            ..Cache::default()
        };
    };
    let mut cache = Cache {
        folder: Some(root.clone()),
        limit: Some(*limit),
        writable: is_writable(root),
        ..Cache::default()
    };
    match Store::of(&setting, root) {
        Ok(store) => {
            let contents = store.contents();
            (cache.size, cache.images) = (Some(contents.size), Some(contents.blobs));
            cache.error =
                (!cache.writable).then(|| format!("cannot write to `{}`", root.display()));
        }
        Err(error) => cache.error = Some(error::chain(&error)),
    }
    cache
}

/// The reason why every link with device code fails: a cache with an unusable key.
pub(super) fn key_error() -> Option<String> {
    settings::resolve(None).root?;
    SecretKey::of_environment()
        .err()
        .map(|error| error::chain(&error))
}

/// Whether files can be created in `folder`, or `folder` itself can be created.
fn is_writable(folder: &Path) -> bool {
    let there = folder.ancestors().find(|path| path.exists());
    there.is_some_and(|path| {
        path.is_dir() && rustix::fs::access(path, Access::WRITE_OK | Access::EXEC_OK).is_ok()
    })
}

/// Examines the remote cache by a request for a key that it does not have. It needs the local
/// cache, `own`.
pub(super) fn shared(own: &Cache) -> Option<Remote> {
    let settings = RemoteSettings::from_environment()?;
    let mut problems: Vec<String> = settings.doubt.clone().into_iter().collect();
    if own.folder.is_none() {
        problems.push("not used, because the local cache is off".to_owned());
    }
    let key = SecretKey::of_environment().unwrap_or_else(|error| {
        problems.push(error::chain(&error));
        None
    });
    let (url, read_only, signed) = (settings.shown(), settings.read_only, key.is_some());
    let messages: Arc<Mutex<Vec<String>>> = Arc::default();
    let tell = {
        let messages = Arc::clone(&messages);
        Arc::new(move |text: &str| lock(&messages).push(text.to_owned()))
    };
    let answers = match store::Remote::open(&RemoteSettings { key, ..settings }, tell) {
        Ok(remote) => {
            remote.record(Key::of("offld doctor"));
            !remote.troubled()
        }
        Err(error) => {
            problems.push(error::chain(&error));
            false
        }
    };
    problems.append(&mut lock(&messages));
    Some(Remote {
        url,
        read_only,
        signed,
        answers,
        problems,
    })
}
