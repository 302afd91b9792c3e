//! The remote cache: two machines (two empty directories) share one remote, in a real Redis, on a
//! real web server, or in a directory. Dead, silent, slow, closed and damaged remotes cost a
//! bounded wait and one line.

mod claims;
mod damage;
mod links;
mod servers;
mod signed;
mod trouble;
mod trust;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use offld_system::store::{BlobName, Cache, Key, Naming, RemoteSettings, Scope, Store};

use super::support::{Outcome, Work, expect_equal, expect_in, missing, passed, test};
use servers::{PASSWORD, Server, Strange, program};

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = trouble::trials();
    trials.extend(trials_of! { claims damage links signed trust });
    trials.extend([
        shared("redis", &["redis-server"], || {
            over(&redis_url(&Server::redis(false)?, ""))
        }),
        shared(
            "redis_with_a_password_a_database_and_a_prefix",
            &["redis-server"],
            redis_with_everything,
        ),
        shared("web", &["nginx"], || {
            over(&web_url(&Server::nginx()?, "some/where"))
        }),
        shared(
            "web_where_folders_have_to_be_made",
            &[],
            folders_have_to_be_made,
        ),
        shared("web_with_a_password", &["nginx"], || {
            let server = Server::nginx()?;
            over(&format!(
                "http://user:{PASSWORD}@127.0.0.1:{}/closed/",
                server.port
            ))
        }),
        shared("folder", &[], || {
            let folder = Work::new();
            over(&format!("file://{}/made", folder.path().display()))
        }),
        shared("read_only", &["redis-server", "nginx"], read_only),
        test("cache_remote::without_the_feature", without_the_feature),
    ]);
    trials
}

/// A test that requires the feature and these programs.
fn shared(
    name: &str,
    programs: &'static [&'static str],
    run: impl FnOnce() -> Outcome + Send + 'static,
) -> Trial {
    with_feature(format!("cache_remote::{name}"), programs, run)
}

/// The same with the full test name.
fn with_feature(
    name: String,
    programs: &'static [&'static str],
    run: impl FnOnce() -> Outcome + Send + 'static,
) -> Trial {
    test(name, move || {
        if !cfg!(feature = "remote-cache") {
            return missing("the feature `remote-cache` in this build (--features remote-cache)");
        }
        match programs.iter().find(|name| program(name).is_none()) {
            Some(name) => missing(format!("{name} (redis-server, nginx-light)")),
            None => run(),
        }
    })
}

fn redis_url(server: &Server, rest: &str) -> String {
    format!("redis://127.0.0.1:{}{rest}", server.port)
}

fn web_url(server: &Server, path: &str) -> String {
    format!("http://127.0.0.1:{}/{path}", server.port)
}

/// One machine's cache in this process: an empty directory, the remote, and the reported messages.
struct Machine {
    folder: Work,
    cache: Cache,
    messages: Arc<Mutex<Vec<String>>>,
}

impl Machine {
    /// A machine with long timeouts, because servers may be slow while other tests run.
    fn new(url: &str) -> Result<Machine, Failed> {
        Machine::hasty(url, Duration::from_secs(30))
    }

    fn with(settings: RemoteSettings) -> Result<Machine, Failed> {
        let (folder, messages) = (Work::new(), Arc::new(Mutex::new(Vec::new())));
        let store = Store::open(&folder.path().join("cache"), 1 << 30)
            .map_err(|error| format!("{error:#}"))?;
        let hear = Arc::clone(&messages);
        let tell = move |text: &str| hear.lock().expect("no panic").push(text.to_owned());
        let cache = Cache::shared(store, settings, Arc::new(tell));
        Ok(Machine {
            folder,
            cache,
            messages,
        })
    }

    /// A machine with the timeout `each`.
    fn hasty(url: &str, each: Duration) -> Result<Machine, Failed> {
        Machine::with(RemoteSettings {
            each,
            whole: each * 5,
            ..RemoteSettings::new(url)
        })
    }

    fn messages(&self) -> Vec<String> {
        let said = self.messages.lock().expect("no panic").clone();
        assert!(!said.iter().any(|text| text.contains(PASSWORD)), "{said:?}");
        said
    }

    /// Checks that there was no message.
    fn quiet(&self) -> Result<(), Failed> {
        expect_equal("what was said", "", &self.messages().join("\n"))
    }

    /// Checks that there was one message, which contains all `parts`.
    fn one_line(&self, parts: &[&str]) -> Result<(), Failed> {
        let said = self.messages();
        expect_equal("lines", "1", &said.len().to_string()).map_err(|_| format!("{said:?}"))?;
        parts.iter().try_for_each(|part| expect_in(&said[0], part))
    }

    fn put(&self, key: Key, record: &[u8], blob: &[u8]) -> Result<BlobName, Failed> {
        let name = format!("{}.img", named(blob));
        // The cache has made the file of an earlier call read-only.
        let _ = std::fs::remove_file(self.folder.path().join(&name));
        let file = self.folder.file(&name, blob);
        let name = self
            .cache
            .put_blob(&file, Scope::Shared)
            .map_err(|error| format!("{error:#}"))?;
        self.cache
            .put_record(key, record, Scope::Shared)
            .map_err(|error| format!("{error:#}"))?;
        Ok(name)
    }

    fn record(&self, key: Key) -> Option<Vec<u8>> {
        self.cache.record(key, Scope::Shared)
    }

    fn fetch(&self, name: BlobName) -> Result<Option<Vec<u8>>, Failed> {
        let to = self.folder.path().join("fetched");
        let _ = std::fs::remove_file(&to);
        let there = self
            .cache
            .fetch_blob(name, &to, Scope::Shared)
            .map_err(|error| format!("{error:#}"))?;
        match (there, to.exists()) {
            (true, true) => Ok(Some(std::fs::read(&to)?)),
            (false, false) => Ok(None),
            (there, file) => Err(format!("there: {there}, but a file: {file}").into()),
        }
    }
}

/// A key with this number.
fn key(number: u128) -> Key {
    Key::of(number.to_le_bytes())
}

/// The name of a blob that is shared.
fn named(blob: &[u8]) -> BlobName {
    BlobName::of(blob, Naming::Sure)
}

/// Bytes that do not compress well.
fn noise(len: usize) -> Vec<u8> {
    let mut state = 1u64;
    let mut next = || {
        state = state
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8
    };
    (0..len).map(|_| next()).collect()
}

/// An entry that one machine stores is available to another, even if the remote later disappears.
fn over(url: &str) -> Outcome {
    let each = Duration::from_secs(30);
    over_with(&RemoteSettings {
        each,
        whole: each * 5,
        ..RemoteSettings::new(url)
    })
}

fn over_with(settings: &RemoteSettings) -> Outcome {
    const MIB: usize = 1 << 20;
    let blobs = [
        Vec::new(),
        b"an image".to_vec(),
        vec![7; 4 * MIB],
        noise(4 * MIB + 1),
        noise(9 * MIB),
    ];
    let machine = || Machine::with(settings.clone());
    let (a, b, early) = (machine()?, machine()?, machine()?);
    for (index, blob) in blobs.iter().enumerate() {
        let key = key(index as u128 + 1);
        assert_eq!(
            (early.record(key), early.fetch(named(blob))?),
            (None, None),
            "before it is there"
        );
        let name = a.put(key, format!("record {index}").as_bytes(), blob)?;
        assert_eq!(name, named(blob));
        assert!(!a.cache.was_shared(name));
    }
    a.cache.finish();
    for (index, blob) in blobs.iter().enumerate() {
        let name = named(blob);
        let record = b.record(key(index as u128 + 1)).ok_or("no record")?;
        expect_equal(
            "record",
            &format!("record {index}"),
            &String::from_utf8_lossy(&record),
        )?;
        assert!(
            b.fetch(name)?.is_some_and(|fetched| fetched == *blob),
            "blob {index} of {} bytes",
            blob.len()
        );
        assert!(b.cache.was_shared(name));
    }
    // A record that is stored again replaces the earlier one.
    a.put(key(1), b"another", b"an image")?;
    a.cache.finish();
    assert_eq!(machine()?.record(key(1)).as_deref(), Some(&b"another"[..]));
    b.cache.finish();
    a.quiet()?;
    b.quiet()?;
    // The entries are now in this machine's own cache.
    let store = Store::open(&b.folder.path().join("cache"), 1 << 30)
        .map_err(|error| format!("{error:#}"))?;
    let to = b.folder.path().join("again");
    for (index, blob) in blobs.iter().enumerate() {
        assert!(store.record(key(index as u128 + 1)).is_some());
        assert!(
            store.fetch_blob(named(blob), &to).is_ok_and(|there| there)
                && std::fs::read(&to)? == *blob
        );
    }
    expect_equal(
        "remote hits",
        &blobs.len().to_string(),
        &store
            .stats()
            .get(offld_system::store::Event::RemoteHit)
            .to_string(),
    )?;
    passed()
}

fn folders_have_to_be_made() -> Outcome {
    let (server, asked) = Strange::strict()?;
    let machine = Machine::new(&format!("http://127.0.0.1:{}/some/where", server.port))?;
    for number in 1..3 {
        machine.put(key(number), b"record", format!("blob {number}").as_bytes())?;
    }
    machine.cache.finish();
    machine.quiet()?;
    let asked = asked.lock().expect("no panic").clone();
    let count = |word: &str| {
        asked
            .iter()
            .filter(|question| question.starts_with(word))
            .count()
    };
    assert_eq!(
        count("MKCOL /some/where/b/") + count("MKCOL /some/where/r/"),
        2,
        "{asked:?}"
    );
    // Two records and two blobs, and one failed attempt for each kind.
    assert_eq!(count("PUT "), 6, "{asked:?}");
    passed()
}

fn redis_with_everything() -> Outcome {
    let server = Server::redis(true)?;
    over(&format!(
        "redis://:{PASSWORD}@127.0.0.1:{}/5?prefix=team%2Fone",
        server.port
    ))?;
    expect_in(&server.tell_redis(&[b"DBSIZE"])?, "NOAUTH")?;
    let auth: &[&[u8]] = &[b"AUTH", PASSWORD.as_bytes()];
    let keys = server.tell_redis_all(&[auth, &[b"SELECT", b"5"], &[b"KEYS", b"*"]])?;
    expect_in(&keys, &format!("team/one/b/{}", named(b"an image")))?;
    expect_equal(
        "what is elsewhere",
        "+OK\r\n:0",
        &server.tell_redis_all(&[auth, &[b"DBSIZE"]])?,
    )?;
    passed()
}

fn read_only() -> Outcome {
    let (redis, web) = (Server::redis(false)?, Server::nginx()?);
    let settings = RemoteSettings {
        read_only: true,
        ..RemoteSettings::new(redis_url(&redis, ""))
    };
    let machine = Machine::with(settings.clone())?;
    machine.put(key(1), b"record", b"blob")?;
    machine.cache.finish();
    machine.quiet()?;
    expect_equal("keys", ":0", &redis.tell_redis(&[b"DBSIZE"])?)?;
    let other = Machine::new(&redis_url(&redis, ""))?;
    let name = other.put(key(1), b"record", b"blob")?;
    other.cache.finish();
    let machine = Machine::with(settings)?;
    assert!(machine.record(key(1)).is_some() && machine.fetch(name)?.is_some());
    machine.quiet()?;
    // A read-only remote directory is not created.
    let folder = Work::new();
    let url = format!("file://{}/not/there", folder.path().display());
    let machine = Machine::with(RemoteSettings {
        read_only: true,
        ..RemoteSettings::new(url)
    })?;
    assert_eq!(machine.record(key(1)), None);
    machine.one_line(&["is no longer used: No such file"])?;
    assert!(!folder.path().join("not").exists());
    // A server that rejects writes causes one message, and reads continue.
    let writer = Machine::new(&web_url(&web, "open"))?;
    writer.put(key(2), b"record", b"blob")?;
    writer.cache.finish();
    std::fs::rename(web.path("files/open"), web.path("files/fixed/open"))?;
    let machine = Machine::new(&web_url(&web, "fixed/open"))?;
    machine.put(key(3), b"more", b"more")?;
    machine.put(key(4), b"and more", b"and more")?;
    machine.cache.finish();
    machine.one_line(&["is no longer written: HTTP status 405"])?;
    assert!(machine.record(key(2)).is_some() && machine.fetch(name)?.is_some());
    machine.one_line(&[])?;
    passed()
}

fn without_the_feature() -> Outcome {
    let machine = Machine::new(&format!("redis://:{PASSWORD}@127.0.0.1:1"))?;
    machine.cache.finish();
    // There was no request, so there is no message.
    machine.quiet()?;
    if cfg!(feature = "remote-cache") {
        return passed();
    }
    assert_eq!(machine.record(key(1)), None);
    machine.one_line(&["built without the feature `remote-cache`"])?;
    let name = machine.put(key(1), b"record", b"blob")?;
    assert!(machine.fetch(name)?.is_some());
    machine.cache.finish();
    machine.one_line(&[])?;
    passed()
}
