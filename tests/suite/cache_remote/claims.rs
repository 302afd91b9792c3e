//! Remote caches whose objects claim to be large. Their cost is bounded by the bytes received, by
//! the cache's size limit, and by the time that a link waits.

use std::io::{Read, Write};
use std::net::TcpListener;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use offld_system::store::RemoteSettings;

use super::super::support::{Outcome, ensure, passed};
use super::{Machine, key, named, noise, with_feature};

/// The maximum size of one object, in bytes.
const PART: usize = 4 << 20;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        claims(
            "cache_remote::claims::few_bytes_do_not_fill_the_disk",
            few_bytes,
        ),
        claims(
            "cache_remote::claims::nothing_larger_than_the_caches_limit_is_fetched",
            larger_than_the_cache,
        ),
        claims(
            "cache_remote::claims::inflating_counts_as_waiting",
            inflating,
        ),
        claims(
            "cache_remote::claims::what_is_mostly_zeros_is_shared_all_the_same",
            zeros,
        ),
    ]
}

fn claims(name: &str, run: impl FnOnce() -> Outcome + Send + 'static) -> Trial {
    with_feature(name.to_owned(), &[], run)
}

/// A web server that has every object of every blob. Each part is `bytes`, and each claims to be
/// from a blob of `whole` bytes.
struct Claims {
    url: String,
    asked: Arc<AtomicUsize>,
}

impl Claims {
    fn new(whole: u64, bytes: Vec<u8>) -> Result<Claims, Failed> {
        let listener = TcpListener::bind("127.0.0.1:0")?;
        let url = format!("http://{}/", listener.local_addr()?);
        let asked = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&asked);
        let packed = zstd::bulk::compress(&bytes, 1)?;
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                let mut request = [0; 4096];
                let read = stream.read(&mut request).unwrap_or(0);
                let text = String::from_utf8_lossy(&request[..read]).into_owned();
                let name = text
                    .split(' ')
                    .nth(1)
                    .unwrap_or_default()
                    .trim_start_matches('/');
                count.fetch_add(1, Ordering::SeqCst);
                let object = object(name, whole, &packed);
                let head = format!(
                    "HTTP/1.1 200 OK\r\nContent-Length: {}\r\nConnection: close\r\n\r\n",
                    object.len()
                );
                let _ = stream.write_all(head.as_bytes());
                if text.starts_with("GET") {
                    let _ = stream.write_all(&object);
                }
            }
        });
        Ok(Claims { url, asked })
    }

    fn asked(&self) -> usize {
        self.asked.load(Ordering::SeqCst)
    }
}

/// An object in the format of crates/offld-system/src/store/remote/shared.rs. Without signatures, any process that
/// can write to the remote can create one.
fn object(name: &str, whole: u64, packed: &[u8]) -> Vec<u8> {
    let head = [b"offld-r2", &[1][..], &whole.to_le_bytes()].concat();
    let mut digest = blake3::Hasher::new_derive_key("offld cache: keys of records 3");
    for part in [name.as_bytes(), &head, packed] {
        digest.update(&(part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    [&head[..], digest.finalize().as_bytes(), packed].concat()
}

fn few_bytes() -> Outcome {
    let server = Claims::new(200 * PART as u64, vec![0; PART])?;
    let machine = Machine::new(&server.url)?;
    ensure(
        machine.fetch(named(b"a blob"))?.is_none(),
        || "a blob that is none",
    )?;
    ensure(server.asked() <= 4, || {
        format!("{} parts of zeros were fetched", server.asked())
    })?;
    machine.one_line(&["returned wrong or incomplete data for `b/"])?;
    passed()
}

fn larger_than_the_cache() -> Outcome {
    let server = Claims::new(1 << 40, noise(PART))?;
    let machine = Machine::new(&server.url)?;
    ensure(
        machine.fetch(named(b"a blob"))?.is_none(),
        || "a blob that is none",
    )?;
    ensure(server.asked() <= 2, || {
        format!("{} parts were fetched", server.asked())
    })?;
    passed()
}

fn inflating() -> Outcome {
    const PARTS: usize = 200;
    let mut bytes = noise(PART / 50);
    bytes.resize(PART, 0);
    let server = Claims::new((PARTS * PART) as u64, bytes)?;
    // Some machines fetch and decompress forty of them in a tenth of a second.
    let (each, whole) = (Duration::from_secs(30), Duration::from_millis(100));
    let machine = Machine::with(RemoteSettings {
        each,
        whole,
        ..RemoteSettings::new(&server.url)
    })?;
    let begun = Instant::now();
    ensure(
        machine.fetch(named(b"a blob"))?.is_none(),
        || "a blob that is none",
    )?;
    ensure(server.asked() < PARTS / 2, || {
        format!("{} parts, in {:?}", server.asked(), begun.elapsed())
    })?;
    machine.one_line(&["this link has waited 100ms in total"])?;
    passed()
}

fn zeros() -> Outcome {
    let folder = super::Work::new();
    let url = format!("file://{}", folder.path().display());
    let (writer, reader) = (Machine::new(&url)?, Machine::new(&url)?);
    let image = vec![0; 3 * PART + 5];
    let name = writer.put(key(1), b"record", &image)?;
    writer.cache.finish();
    ensure(
        reader.fetch(name)?.as_ref() == Some(&image),
        || "it is not there",
    )?;
    reader.quiet()?;
    passed()
}
