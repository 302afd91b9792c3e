//! Remote caches that are dead, closed, silent or slow: each costs a bounded wait and one line.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use offld_system::store::{RemoteSettings, Scope};

use super::super::support::{Outcome, ensure, passed};
use super::servers::{PASSWORD, Server, Strange, free_port};
use super::signed::settings;
use super::{Machine, key, named, noise, redis_url, shared};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        shared("wrong_password", &["redis-server", "nginx"], wrong_password),
        shared("dead_port", &[], dead_port),
        shared("silent", &[], silent),
        shared("dribbling", &[], dribbling),
        shared("slow_in_all", &[], slow_in_all),
        shared(
            "redis_takes_its_time",
            &["redis-server"],
            redis_takes_its_time,
        ),
        shared("server_that_ends", &["redis-server"], server_that_ends),
        shared("redis_without_end", &[], redis_without_end),
        shared("sending_does_not_hold_up", &[], sending_does_not_hold_up),
        shared("an_end_is_an_end", &[], an_end_is_an_end),
    ]
}

fn wrong_password() -> Outcome {
    let (redis, web) = (Server::redis(true)?, Server::nginx()?);
    let closed = format!("127.0.0.1:{}/closed/", web.port);
    let urls = [
        (
            format!("redis://:{PASSWORD}no@127.0.0.1:{}", redis.port),
            "Password authentication failed",
        ),
        (redis_url(&redis, ""), "NOAUTH"),
        (
            format!("http://user:{PASSWORD}no@{closed}"),
            "access denied (HTTP status 401)",
        ),
        (
            format!("http://{closed}"),
            "access denied (HTTP status 401)",
        ),
    ];
    for (url, reason) in urls {
        let started = Instant::now();
        let machine = Machine::new(&url)?;
        assert_eq!(machine.record(key(1)), None);
        machine.put(key(1), b"record", b"blob")?;
        machine.cache.finish();
        machine.one_line(&["is no longer used", reason, "127.0.0.1"])?;
        at_most(started.elapsed(), Duration::ZERO)?;
    }
    passed()
}

/// Uses all cache operations of a link, from several threads. Returns the duration.
fn everything(machine: &Machine) -> Result<Duration, Failed> {
    let started = Instant::now();
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for index in 0..5 {
                    let key = key(thread * 10 + index);
                    assert_eq!(machine.record(key), None);
                    let to = machine.folder.path().join(format!("to{thread}"));
                    assert!(
                        machine
                            .cache
                            .fetch_blob(named(b"blob"), &to, Scope::Shared)
                            .is_ok_and(|there| !there)
                            && !to.exists()
                    );
                }
            });
        }
    });
    let name = machine.put(key(77), b"record", b"blob")?;
    machine.cache.finish();
    let took = started.elapsed();
    // The local cache still works.
    assert_eq!(machine.record(key(77)).as_deref(), Some(&b"record"[..]));
    assert!(machine.fetch(name)?.is_some());
    Ok(took)
}

/// Checks the duration, with additional time for a slow machine.
fn at_most(took: Duration, limit: Duration) -> Result<(), Failed> {
    let slack = Duration::from_secs(4);
    if took <= limit + slack {
        Ok(())
    } else {
        Err(format!("took {took:?}, where {limit:?} are allowed").into())
    }
}

fn dead_port() -> Outcome {
    for scheme in ["redis", "http"] {
        let url = format!("{scheme}://user:{PASSWORD}@127.0.0.1:{}/", free_port()?);
        let machine = Machine::new(&url)?;
        at_most(everything(&machine)?, Duration::ZERO)?;
        machine.one_line(&["is no longer used", "refused", scheme])?;
    }
    passed()
}

fn silent() -> Outcome {
    let each = Duration::from_millis(500);
    for scheme in ["redis", "http"] {
        let server = Strange::silent()?;
        let url = format!("{scheme}://user:{PASSWORD}@127.0.0.1:{}/", server.port);
        let machine = Machine::hasty(&url, each)?;
        at_most(everything(&machine)?, each)?;
        machine.one_line(&["is no longer used: no full answer within 500ms", scheme])?;
        let connections = server.connections.load(Ordering::SeqCst);
        assert!((1..=8).contains(&connections), "{connections} connections");
    }
    passed()
}

fn dribbling() -> Outcome {
    let each = Duration::from_millis(500);
    for (scheme, head) in [
        ("http", "HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n"),
        ("http", "HTTP/1.1 200 OK\r\nX: "),
        ("redis", "$1000000\r\n"),
    ] {
        let server = Strange::dribbling(head)?;
        let machine = Machine::hasty(&format!("{scheme}://127.0.0.1:{}/", server.port), each)?;
        at_most(everything(&machine)?, each)?;
        machine.one_line(&["is no longer used", scheme])?;
    }
    passed()
}

/// No single answer takes too long, but all together do.
fn slow_in_all() -> Outcome {
    let each = Duration::from_secs(1);
    let server = Strange::slow(
        "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n",
        Duration::from_millis(250),
    )?;
    let machine = Machine::hasty(&format!("http://127.0.0.1:{}/", server.port), each)?;
    let started = Instant::now();
    for number in 0..60 {
        assert_eq!(machine.record(key(number)), None);
    }
    at_most(started.elapsed(), each * 5)?;
    machine.one_line(&["is no longer used: this link has waited 5s in total"])?;
    passed()
}

/// The Redis library has a timeout of half a second, which must not apply.
fn redis_takes_its_time() -> Outcome {
    let server = Server::redis(false)?;
    let url = redis_url(&server, "");
    let machine = Machine::new(&url)?;
    machine.put(key(1), b"record", b"blob")?;
    machine.cache.finish();
    let other = Machine::new(&url)?;
    assert_eq!(other.record(key(2)), None, "it is connected now");
    std::thread::scope(|scope| {
        // The answer comes after the pause.
        scope.spawn(|| {
            server
                .tell_redis(&[b"CLIENT", b"PAUSE", b"1500", b"ALL"])
                .map_err(|_| ())
        });
        std::thread::sleep(Duration::from_millis(200));
        let started = Instant::now();
        assert!(other.record(key(1)).is_some());
        assert!(
            started.elapsed() > Duration::from_millis(600),
            "it was paused: {:?}",
            started.elapsed()
        );
    });
    other.quiet()?;
    passed()
}

fn server_that_ends() -> Outcome {
    let mut server = Server::redis(false)?;
    let machine = Machine::new(&redis_url(&server, ""))?;
    machine.put(key(1), b"record", b"blob")?;
    machine.cache.finish();
    let each = Duration::from_secs(2);
    let other = Machine::hasty(&redis_url(&server, ""), each)?;
    assert!(other.record(key(1)).is_some());
    server.stop();
    let started = Instant::now();
    for number in 2..20 {
        assert_eq!(other.record(key(number)), None);
    }
    assert!(other.fetch(named(b"blob"))?.is_none());
    at_most(started.elapsed(), each)?;
    other.one_line(&["is no longer used"])?;
    passed()
}

/// offld reads no more of an answer than an object may have, whatever length it claims.
fn redis_without_end() -> Outcome {
    /// An object with its framing, and the bytes that the system buffers for a program that does
    /// not read them.
    const MOST: usize = 32 << 20;
    let each = Duration::from_secs(20);
    for head in [
        "$2000000000\r\n",
        "+",
        "-ERR ",
        ":1",
        "*1000000\r\n$900000\r\n",
        "$-1\r\n",
        "",
    ] {
        // A key does not help: the answer is read before its signature can be checked.
        for number in [None, Some(1)] {
            let (server, taken) = Strange::endless(head)?;
            let url = format!("redis://127.0.0.1:{}/", server.port);
            let machine = Machine::with(RemoteSettings {
                each,
                whole: each * 5,
                ..settings(&url, number)?
            })?;
            let took = everything(&machine)?;
            let taken = taken.load(Ordering::SeqCst);
            ensure(taken < MOST, || {
                format!("{head:?}: {taken} bytes were taken (key {number:?})")
            })?;
            ensure(took < each, || {
                format!("{head:?}: {took:?} (key {number:?})")
            })?;
            machine.one_line(&["is no longer used", "redis"])?;
        }
    }
    passed()
}

/// The link continues while a server accepts nothing. At the end, it waits for the server for a
/// limited time.
fn sending_does_not_hold_up() -> Outcome {
    let each = Duration::from_millis(300);
    let server = Strange::slow(
        "HTTP/1.1 201 Created\r\nContent-Length: 0\r\n\r\n",
        Duration::from_secs(60),
    )?;
    let machine = Machine::hasty(&format!("http://127.0.0.1:{}/", server.port), each)?;
    let started = Instant::now();
    let blob = noise(5 << 20);
    machine.put(key(1), b"record", &blob)?;
    let putting = started.elapsed();
    // The local cache hashes and writes the data with an unoptimized build.
    assert!(putting < Duration::from_secs(6), "{putting:?}");
    machine.cache.finish();
    at_most(started.elapsed() - putting, each)?;
    machine.one_line(&["is no longer used: no full answer within 300ms"])?;
    assert!(machine.fetch(named(&blob))?.is_some());
    passed()
}

/// After a signal, offld does not wait for uploads.
fn an_end_is_an_end() -> Outcome {
    let server = Strange::silent()?;
    let machine = Machine::hasty(
        &format!("http://127.0.0.1:{}/", server.port),
        Duration::from_secs(30),
    )?;
    machine.put(key(1), b"record", b"blob")?;
    let started = Instant::now();
    machine
        .cache
        .finish_unless(&|| started.elapsed() > Duration::from_millis(200));
    at_most(started.elapsed(), Duration::from_millis(200))?;
    machine.quiet()?;
    passed()
}
