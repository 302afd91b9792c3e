//! Remote caches with altered objects: each counts as a miss, and one line reports it.

use std::os::unix::fs::symlink;
use std::path::Path;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use rustix::fs::{CWD, Mode, mkfifoat};

use super::super::support::{Outcome, Work, ensure, passed};
use super::servers::{Server, Strange};
use super::{Machine, key, named, noise, redis_url, shared, web_url};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        shared("damaged_in_redis", &["redis-server"], damaged_in_redis),
        shared("damaged_files", &["nginx"], damaged_files),
        shared("another_blob_in_its_place", &[], another_in_its_place),
        shared("pipes_and_devices_in_a_folder", &[], no_files),
        shared("garbage_for_everything", &[], garbage),
    ]
}

fn damaged_in_redis() -> Outcome {
    let server = Server::redis(false)?;
    let (url, blob) = (redis_url(&server, "/?prefix=x"), noise(1000));
    let writer = Machine::new(&url)?;
    let name = writer.put(key(1), b"record", &blob)?;
    writer.cache.finish();
    let damage = |object: String| server.tell_redis(&[b"SETRANGE", object.as_bytes(), b"51", b"?"]);
    damage(format!("x/r/{}", key(1)))?;
    let machine = Machine::new(&url)?;
    assert_eq!(machine.record(key(1)), None);
    assert!(
        machine.fetch(name)?.is_some_and(|fetched| fetched == blob),
        "the rest is of use"
    );
    machine.one_line(&["returned wrong or incomplete data for `r/"])?;
    damage(format!("x/b/{name}"))?;
    let machine = Machine::new(&url)?;
    assert_eq!((machine.record(key(1)), machine.fetch(name)?), (None, None));
    machine.one_line(&["returned wrong or incomplete data for `r/"])?;
    // An entry that is stored again is valid again.
    writer.put(key(1), b"record", &blob)?;
    writer.cache.finish();
    let machine = Machine::new(&url)?;
    assert_eq!(machine.record(key(1)).as_deref(), Some(&b"record"[..]));
    assert!(machine.fetch(name)?.is_some_and(|fetched| fetched == blob));
    machine.quiet()?;
    passed()
}

/// Changes the contents of a file.
fn change(file: &Path, change: impl Fn(&mut Vec<u8>)) -> Result<(), Failed> {
    let mut bytes = std::fs::read(file)?;
    change(&mut bytes);
    Ok(std::fs::write(file, bytes)?)
}

fn damaged_files() -> Outcome {
    let server = Server::nginx()?;
    let (url, blob) = (web_url(&server, "x"), noise(9 << 20));
    let writer = Machine::new(&url)?;
    let name = writer.put(key(1), b"record", &blob)?;
    writer.cache.finish();
    let file = |part: &str| server.path(&format!("files/x/b/{name}{part}"));
    type Damage<'d> = (&'static str, &'d dyn Fn(&mut Vec<u8>));
    let damages: [Damage<'_>; 7] = [
        ("", &|bytes| bytes[1000] ^= 1),
        ("", &|bytes| bytes[3] ^= 1),
        ("", &|bytes| bytes[9] ^= 1),
        ("", &|bytes| bytes.clear()),
        (".1", &|bytes| bytes.truncate(4000)),
        (".2", &|bytes| bytes.push(0)),
        (".2", &|bytes| bytes.extend_from_slice(&noise(20 << 20))),
    ];
    for (index, (part, damage)) in damages.iter().enumerate() {
        let before = std::fs::read(file(part))?;
        change(&file(part), damage)?;
        let machine = Machine::new(&url)?;
        assert_eq!(machine.fetch(name)?, None, "damage {index}");
        machine
            .one_line(&["returned wrong or incomplete data for `b/", part])
            .map_err(|failed| format!("{index}: {failed:?}"))?;
        std::fs::write(file(part), before)?;
    }
    // A missing object is not an error, because servers evict objects at any time.
    std::fs::remove_file(file(".1"))?;
    let machine = Machine::new(&url)?;
    assert_eq!(machine.fetch(name)?, None);
    machine.quiet()?;
    passed()
}

/// A valid object under another object's name.
fn another_in_its_place() -> Outcome {
    let folder = Work::new();
    let url = format!("file://{}", folder.path().display());
    let writer = Machine::new(&url)?;
    let (one, two) = (
        writer.put(key(1), b"one", b"blob one")?,
        writer.put(key(2), b"two", b"blob two")?,
    );
    writer.cache.finish();
    let path = |name: String| folder.path().join(name);
    std::fs::copy(path(format!("b/{one}")), path(format!("b/{two}")))?;
    std::fs::copy(path(format!("r/{}", key(1))), path(format!("r/{}", key(2))))?;
    let machine = Machine::new(&url)?;
    assert_eq!((machine.record(key(2)), machine.fetch(two)?), (None, None));
    machine.one_line(&["returned wrong or incomplete data for `r/"])?;
    assert!(machine.record(key(1)).is_some() && machine.fetch(one)?.is_some());
    machine.one_line(&[])?;
    passed()
}

/// A pipe that nobody writes to, a device without an end, a sparse file, a directory and a loop of
/// links, in the places of objects in a directory.
fn no_files() -> Outcome {
    let folder = Work::new();
    let url = format!("file://{}", folder.path().display());
    let writer = Machine::new(&url)?;
    let name = writer.put(key(1), b"record", b"blob")?;
    writer.cache.finish();
    let each = Duration::from_secs(5);
    let objects = [format!("r/{}", key(1)), format!("b/{name}")];
    type Put<'p> = (&'static str, &'p dyn Fn(&Path) -> std::io::Result<()>);
    let puts: [Put<'_>; 5] = [
        ("a pipe", &|path| {
            Ok(mkfifoat(CWD, path, Mode::RUSR | Mode::WUSR)?)
        }),
        ("a device", &|path| symlink("/dev/zero", path)),
        ("a sparse file", &|path| {
            std::fs::File::create(path)?.set_len(1 << 40)
        }),
        ("a directory", &|path| std::fs::create_dir(path)),
        ("a loop", &|path| symlink(path, path)),
    ];
    for (what, put) in puts {
        for object in &objects {
            let path = folder.path().join(object);
            let before = std::fs::read(&path)?;
            std::fs::remove_file(&path)?;
            put(&path)?;
            let machine = Machine::hasty(&url, each)?;
            let started = Instant::now();
            let got = (machine.record(key(1)), machine.fetch(name)?);
            machine.cache.finish();
            let took = started.elapsed();
            ensure(took < each * 2, || format!("{what}: {took:?}"))?;
            ensure(got.0.is_none() || got.1.is_none(), || {
                format!("{what} as {object}: {got:?}")
            })?;
            machine
                .one_line(&[])
                .map_err(|failed| format!("{what} as {object}: {failed:?}"))?;
            if path.is_dir() {
                std::fs::remove_dir(&path)?;
            } else {
                std::fs::remove_file(&path)?;
            }
            std::fs::write(&path, before)?;
        }
    }
    passed()
}

/// The answer of a captive portal to every request.
fn garbage() -> Outcome {
    let answer = "HTTP/1.1 200 OK\r\nContent-Length: 22\r\n\r\n<html>Welcome!</html>\n";
    let server = Strange::slow(answer, Duration::ZERO)?;
    let machine = Machine::new(&format!("http://127.0.0.1:{}/", server.port))?;
    for number in 1..5 {
        assert_eq!(
            (
                machine.record(key(number)),
                machine.fetch(named(&[number as u8]))?
            ),
            (None, None)
        );
    }
    machine.one_line(&["returned wrong or incomplete data for `r/"])?;
    passed()
}
