//! A remote cache with signed objects (`OFFLD_CACHE_KEY`). An object that was stored or moved
//! without the key counts as a miss, and one line reports it. Machines with the key get everything,
//! including code that runs before `main`.

use std::fs::{self, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use libtest_mimic::{Failed, Trial};
use offld_system::store::{Key, RemoteSettings, SecretKey};

use super::super::kit::Image;
use super::super::support::{
    OFFLOAD, Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, have_llvm, llvm, made,
    missing, passed, run, run_failing, stderr_of,
};
use super::links::names_below;
use super::servers::Server;
use super::{Machine, key, named, noise, over_with, redis_url, shared};

/// Part of the one message.
const WRONG: &str = ", or data not signed with the key in OFFLD_CACHE_KEY; ignored";

pub(super) fn trials() -> Vec<Trial> {
    let linked = |name: &str, programs: &'static [&'static str], run: fn() -> Outcome| {
        shared(&format!("signed::{name}"), programs, move || {
            if have_llvm() {
                run()
            } else {
                missing("LLVM 22")
            }
        })
    };
    vec![
        shared("signed::redis", &["redis-server"], || {
            over_with(&settings(&redis_url(&Server::redis(false)?, ""), Some(1))?)
        }),
        shared("signed::folder", &[], || {
            let folder = Work::new();
            over_with(&settings(
                &format!("file://{}/made", folder.path().display()),
                Some(1),
            )?)
        }),
        shared("signed::forged_records_images_and_parts", &[], forged),
        shared("signed::objects_in_the_places_of_others", &[], exchanged),
        shared("signed::another_key_and_none", &[], keys),
        shared("signed::objects_of_an_earlier_release", &[], earlier),
        shared("signed::registration_objects", &[], registration),
        linked(
            "a_second_user_links_nothing_with_redis",
            &["redis-server"],
            || second_user(&redis_url(&Server::redis(false)?, "/?prefix=team")),
        ),
        linked("a_second_user_links_nothing_with_a_folder", &[], || {
            let folder = Work::new();
            second_user(&format!("file://{}/cache", folder.path().display()))
        }),
        linked("forgeries_change_no_program", &[], forgeries),
        linked("a_key_that_is_no_secret_ends_the_link", &[], no_secret),
    ]
}

/// A file with a key of this number.
pub(super) fn key_file(folder: &Path, number: u8) -> Result<PathBuf, Failed> {
    let file = folder.join(format!("key{number}"));
    fs::write(&file, [number; 40])?;
    fs::set_permissions(&file, Permissions::from_mode(0o600))?;
    Ok(file)
}

/// The settings of a machine with long timeouts and the key of this number.
pub(super) fn settings(url: &str, number: Option<u8>) -> Result<RemoteSettings, Failed> {
    let work = Work::new();
    let read = |number| {
        SecretKey::read(&key_file(work.path(), number)?)
            .map_err(|error| Failed::from(format!("{error:#}")))
    };
    let each = Duration::from_secs(30);
    Ok(RemoteSettings {
        each,
        whole: each * 5,
        key: number.map(read).transpose()?,
        ..RemoteSettings::new(url)
    })
}

/// A machine with the key of this number.
fn machine(url: &str, number: Option<u8>) -> Result<Machine, Failed> {
    Machine::with(settings(url, number)?)
}

/// An object that anyone can create without the key: the format of crates/offld-system/src/store/remote/shared.rs,
/// with the digest that unsigned caches use.
pub(super) fn unsigned(name: &str, whole: usize, bytes: &[u8]) -> Vec<u8> {
    let head = [b"offld-r2", &[0][..], &(whole as u64).to_le_bytes()].concat();
    let mut digest = blake3::Hasher::new_derive_key("offld cache: keys of records 3");
    for part in [name.as_bytes(), &head, bytes] {
        digest.update(&(part.len() as u64).to_le_bytes());
        digest.update(part);
    }
    [&head[..], digest.finalize().as_bytes(), bytes].concat()
}

fn forged() -> Outcome {
    let folder = Work::new();
    let url = format!("file://{}", folder.path().display());
    let (writer, large) = (machine(&url, Some(1))?, noise(3 << 20));
    let name = writer.put(key(1), b"record", b"an image")?;
    let parts = writer.put(key(2), b"another", &large)?;
    writer.cache.finish();
    writer.quiet()?;
    let forge = |object: &str, whole: usize, bytes: &[u8]| {
        fs::write(folder.path().join(object), unsigned(object, whole, bytes))
    };
    let refused = |what: &str,
                   object: &str,
                   is_gone: &dyn Fn(&Machine) -> Result<bool, Failed>|
     -> Result<(), Failed> {
        let reader = machine(&url, Some(1))?;
        ensure(is_gone(&reader)?, || format!("{what}: it was taken"))?;
        reader.one_line(&[&format!("for `{object}`"), WRONG])
    };
    let (record, image, part) = (
        format!("signed/r/{}", key(1)),
        format!("signed/b/{name}"),
        format!("signed/b/{parts}.1"),
    );
    let before = [&record, &image, &part].map(|object| fs::read(folder.path().join(object)));
    forge(&record, 8, b"forgery!")?;
    refused("a record", &record, &|reader| {
        Ok(reader.record(key(1)).is_none())
    })?;
    forge(&image, 8, b"an imagf")?;
    refused("an image", &image, &|reader| {
        Ok(reader.fetch(name)?.is_none())
    })?;
    // The bytes are correct, but the signature is missing.
    forge(&image, 8, b"an image")?;
    refused("an image of the right bytes", &image, &|reader| {
        Ok(reader.fetch(name)?.is_none())
    })?;
    forge(&part, large.len(), &large[1 << 20..2 << 20])?;
    refused("a part", &part, &|reader| {
        Ok(reader.fetch(parts)?.is_none())
    })?;
    // With the original objects, everything works, so the forgeries caused the misses.
    for (object, bytes) in [&record, &image, &part].into_iter().zip(before) {
        fs::write(folder.path().join(object), bytes?)?;
    }
    let reader = machine(&url, Some(1))?;
    ensure(
        reader.record(key(1)).is_some() && reader.fetch(name)?.is_some(),
        || "what was signed is not there",
    )?;
    ensure(
        reader.fetch(parts)?.as_ref() == Some(&large),
        || "what was signed is not there, in parts",
    )?;
    reader.quiet()?;
    passed()
}

/// Objects that were signed with the key, each under another object's name.
fn exchanged() -> Outcome {
    let folder = Work::new();
    let url = format!("file://{}", folder.path().display());
    let (writer, large) = (machine(&url, Some(1))?, noise(4 << 20));
    let one = writer.put(key(1), b"one", b"blob one")?;
    let two = writer.put(key(2), b"two", b"blob two")?;
    let parts = writer.put(key(3), b"three", &large)?;
    writer.cache.finish();
    let exchange = |from: String, to: &str| {
        fs::copy(folder.path().join(from), folder.path().join(to)).map(drop)
    };
    let record = format!("signed/r/{}", key(2));
    exchange(format!("signed/r/{}", key(1)), &record)?;
    let reader = machine(&url, Some(1))?;
    ensure(
        reader.record(key(2)).is_none(),
        || "a record was taken for another",
    )?;
    reader.one_line(&[&record, WRONG])?;
    for (from, to, asked) in [
        (format!("signed/b/{one}"), format!("signed/b/{two}"), two),
        (
            format!("signed/b/{parts}.1"),
            format!("signed/b/{parts}.2"),
            parts,
        ),
        (
            format!("signed/r/{}", key(1)),
            format!("signed/b/{two}"),
            two,
        ),
    ] {
        exchange(from.clone(), &to)?;
        let reader = machine(&url, Some(1))?;
        ensure(reader.fetch(asked)?.is_none(), || {
            format!("{from} was taken for {to}")
        })?;
        reader.one_line(&[&to, WRONG])?;
    }
    // A missing part is not a forgery. The blob counts as missing.
    fs::remove_file(folder.path().join(format!("signed/b/{parts}.1")))?;
    let reader = machine(&url, Some(1))?;
    ensure(reader.fetch(parts)?.is_none(), || "an image with a hole")?;
    reader.quiet()?;
    passed()
}

/// Machines with one key, with another key and without a key, on one remote.
fn keys() -> Outcome {
    let folder = Work::new();
    let url = format!("file://{}", folder.path().display());
    let (first, without) = (machine(&url, Some(1))?, machine(&url, None)?);
    let name = first.put(key(1), b"signed", b"an image")?;
    first.cache.finish();
    // A machine without a key neither sees nor replaces signed objects, and prints no message.
    assert_eq!((without.record(key(1)), without.fetch(name)?), (None, None));
    without.put(key(1), b"unsigned", b"an image")?;
    without.cache.finish();
    without.quiet()?;
    let again = machine(&url, Some(1))?;
    assert_eq!(again.record(key(1)).as_deref(), Some(&b"signed"[..]));
    again.quiet()?;
    assert_eq!(
        machine(&url, None)?.record(key(1)).as_deref(),
        Some(&b"unsigned"[..])
    );
    // A machine with another key reports that the objects are not signed with its key, and stores
    // its own.
    let other = machine(&url, Some(2))?;
    assert_eq!((other.record(key(1)), other.fetch(name)?), (None, None));
    other.one_line(&[WRONG])?;
    other.put(key(1), b"another's", b"an image")?;
    other.cache.finish();
    let last = machine(&url, Some(1))?;
    assert_eq!((last.record(key(1)), last.fetch(name)?), (None, None));
    last.one_line(&[WRONG])?;
    passed()
}

/// Objects of offld 0.6 under the names of this version are not read.
fn earlier() -> Outcome {
    let folder = Work::new();
    let url = format!("file://{}", folder.path().display());
    let name = named(b"an image");
    for (number, prefix) in [(None, ""), (Some(1), "signed/")] {
        let (record, image) = (format!("{prefix}r/{}", key(1)), format!("{prefix}b/{name}"));
        for object in [&record, &image] {
            let mut digest = xxhash_rust::xxh3::Xxh3::new();
            for part in [object.as_bytes(), &8u64.to_le_bytes(), b"an image"] {
                digest.update(&(part.len() as u64).to_le_bytes());
                digest.update(part);
            }
            let bytes = [
                b"offld-r1",
                &[0][..],
                &8u64.to_le_bytes(),
                &digest.digest128().to_le_bytes(),
                b"an image",
            ]
            .concat();
            folder.file(object, bytes);
        }
        let reader = machine(&url, number)?;
        assert_eq!((reader.record(key(1)), reader.fetch(name)?), (None, None));
        reader.one_line(&["returned wrong or incomplete data for `", "r/"])?;
    }
    passed()
}

/// Code that runs before `main`. Machines with the key find it, and all others rebuild it.
fn registration() -> Outcome {
    if !Path::new(&crate::support::offld().with_file_name("offld-llvm")).is_file() {
        return missing("offld-llvm (the feature `llvm`)");
    }
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "an image")])?;
    let remote = work.path().join("remote");
    let url = format!("file://{}", remote.display());
    let key = key_file(work.path(), 1)?;
    let said = |cache: &str, key: &Path, more: &[(&str, &str)]| -> Result<String, Failed> {
        work.forget();
        let mut command = work.wrapper(["-o", "a.out", "a.o", "--wrapper-verbose"]);
        command
            .env("OFFLD_CACHE", work.path().join(cache))
            .env("OFFLD_CACHE_REMOTE", &url)
            .env("OFFLD_CACHE_KEY", key);
        stderr_of(command.envs(more.iter().copied()))
    };
    let object = || -> Result<Vec<u8>, Failed> { Ok(fs::read(work.registration_object()?)?) };
    let (none, shared) = (
        "registration code for openmp: not in the cache",
        "registration code for openmp: found in the remote cache",
    );
    expect_in(&said("first", &key, &[])?, none)?;
    let right = object()?;
    // offld-llvm, which creates this code, does not start: it would reject this timeout.
    let found = said("second", &key, &[("OFFLD_LLVM_TIMEOUT", "not looked at")])?;
    expect_in(&found, shared)?;
    expect_not_in(&found, "warning:")?;
    ensure(object()? == right, || "what was shared is another object")?;
    expect_in(
        &said("second", &key, &[])?,
        "registration code for openmp: found in the cache",
    )?;
    // An attacker with another key, or without one, has stored code under all names.
    let records: Vec<Key> = names_below(&remote.join("signed/r"))?
        .iter()
        .filter_map(|name| Key::parse(name))
        .collect();
    ensure(
        !records.is_empty(),
        || "nothing is signed: this tests nothing",
    )?;
    for (cache, by_key) in [("third", true), ("fourth", false)] {
        if by_key {
            let hostile = machine(&url, Some(2))?;
            for key in &records {
                hostile.put(*key, b"code of somebody else's", b"a blob")?;
            }
            hostile.cache.finish();
        } else {
            for key in &records {
                let object = format!("signed/r/{key}");
                fs::write(remote.join(&object), unsigned(&object, 4, b"code"))?;
            }
        }
        let said = said(cache, &key, &[])?;
        expect_in(&said, none)?;
        expect_in(&said, WRONG)?;
        expect_equal(
            "warnings",
            "1",
            &said.matches("warning:").count().to_string(),
        )?;
        ensure(object()? == right, || {
            format!("{cache}: a forged object was taken")
        })?;
    }
    passed()
}

/// A compiled program with device code for the host.
pub(super) fn compiled(work: &Work) -> Result<(), Failed> {
    let source = work.file(
        "a.c",
        "int main(void) { int x = 1;\n#pragma omp target map(x)\nx = 42;\nreturn x != 42; }\n",
    );
    run(work
        .command(llvm("clang"))
        .args(OFFLOAD)
        .arg("-c")
        .arg(source)
        .args(["-o", "a.o"]))?;
    // offld does not trust timestamps of files that were written a moment ago.
    std::thread::sleep(Duration::from_millis(60));
    Ok(())
}

/// A link by the user with the cache `cache`, of the program of the same name, below `tracer`.
pub(super) fn link(
    work: &Work,
    cache: &str,
    url: &str,
    key: Option<&Path>,
    tracer: &[&str],
) -> Result<String, Failed> {
    let mut command = match tracer {
        [] => work.command(llvm("clang")),
        [tracer, words @ ..] => {
            let mut command = work.command(tracer);
            command.args(words).arg(llvm("clang"));
            command
        }
    };
    command
        .args(OFFLOAD)
        .args([
            "-fuse-ld=lld",
            "a.o",
            "-Wl,--wrapper-verbose",
            "-o",
            cache,
            "-B",
        ])
        .arg(&made().links);
    command
        .env("OFFLD_CACHE", work.path().join(format!("{cache}-cache")))
        .env("OFFLD_CACHE_REMOTE", url);
    command.env("OFFLD_CACHE_REMOTE_TIMEOUT", "30");
    stderr_of(command.envs(key.map(|key| ("OFFLD_CACHE_KEY", key))))
}

/// Counts in a trace of processes: runs of offld-llvm, runs of clang other than `-###` queries, and
/// linkers that finished. A linker that was started early and not needed is killed.
fn runs(trace: &str) -> [usize; 3] {
    let processes: Vec<(&str, &str)> = trace
        .lines()
        .filter_map(|line| line.split_once(' '))
        .collect();
    // If another process interrupts the output, strace writes the end of a call on a later line:
    // the next one of the same process.
    let succeeded = |at: usize| {
        let (process, call) = processes[at];
        let end = if call.ends_with("<unfinished ...>") {
            processes[at + 1..]
                .iter()
                .find(|(other, _)| *other == process)
                .map_or("", |(_, end)| end)
        } else {
            call
        };
        end.ends_with("= 0")
    };
    let run = |name: &'static str| {
        let path = format!("/{name}\"");
        let own = processes.iter().enumerate().filter(move |(_, (_, call))| {
            call.trim_start().starts_with("execve(")
                && call
                    .split(',')
                    .next()
                    .is_some_and(|program| program.ends_with(&path))
        });
        own.filter(|(at, _)| succeeded(*at))
            .map(|(_, line)| *line)
            .collect::<Vec<_>>()
    };
    let ended = |process: &str| {
        processes
            .iter()
            .any(|(other, call)| *other == process && call.contains("+++ exited with 0 +++"))
    };
    let compilers = ["clang", "clang-22", "clang++"].map(run).concat();
    let working = compilers
        .iter()
        .filter(|(_, call)| !call.contains("-###"))
        .count();
    [
        run("offld-llvm").len(),
        working,
        run("ld.lld")
            .iter()
            .filter(|(process, _)| ended(process))
            .count(),
    ]
}

fn second_user(url: &str) -> Outcome {
    let Ok(strace) = which::which("strace") else {
        return missing("strace");
    };
    let (work, strace) = (Work::new(), strace.to_string_lossy().into_owned());
    compiled(&work)?;
    let key = key_file(work.path(), 1)?;
    let tracer = [
        strace.as_str(),
        "-f",
        "-v",
        "-s",
        "100000",
        "-e",
        "trace=execve",
        "-o",
        "trace",
    ];
    let mut counted = Vec::new();
    for cache in ["first", "second"] {
        let messages = link(&work, cache, url, Some(&key), &tracer)?;
        expect_not_in(&messages, "warning:")?;
        counted.push((
            messages,
            runs(&fs::read_to_string(work.path().join("trace"))?),
        ));
    }
    let [(_, cold), (messages, warm)] = &counted[..] else {
        return Err("two links".into());
    };
    // The compilers include the driver that the user called. The linkers include the host link.
    expect_equal(
        "the first user's offld-llvm, compilers and linkers",
        "[1, 1, 2]",
        &format!("{cold:?}"),
    )?;
    expect_equal("the second user's", "[0, 1, 1]", &format!("{warm:?}"))?;
    expect_in(
        messages,
        "device link for x86_64-pc-linux-gnu: found in the remote cache",
    )?;
    expect_in(
        messages,
        "registration code for openmp: found in the remote cache",
    )?;
    ensure(
        fs::read(work.path().join("first"))? == fs::read(work.path().join("second"))?,
        || "the programs differ",
    )?;
    passed()
}

fn forgeries() -> Outcome {
    let work = Work::new();
    compiled(&work)?;
    let remote = work.path().join("remote");
    let url = format!("file://{}", remote.display());
    let (key, other) = (key_file(work.path(), 1)?, key_file(work.path(), 2)?);
    link(&work, "first", &url, Some(&key), &[])?;
    let right = fs::read(work.path().join("first"))?;
    let not_found = "device link for x86_64-pc-linux-gnu: not in the cache";
    let linked =
        |cache: &str, key: Option<&Path>, expected: &str, warnings: usize| -> Result<(), Failed> {
            let messages = link(&work, cache, &url, key, &[])?;
            expect_in(&messages, expected)?;
            expect_equal(
                &format!("{cache}: warnings"),
                &warnings.to_string(),
                &messages.matches("warning:").count().to_string(),
            )?;
            ensure(fs::read(work.path().join(cache))? == right, || {
                format!("{cache}: another program")
            })
        };
    linked("none", None, not_found, 0)?;
    linked(
        "none-again",
        None,
        "device link for x86_64-pc-linux-gnu: found in the remote cache",
        0,
    )?;
    // With another key, everything is rebuilt under other names, except that images replace the
    // earlier ones, because their names depend on their contents only.
    linked("other", Some(&other), not_found, 0)?;
    linked("first-again", Some(&key), not_found, 1)?;
    linked(
        "second",
        Some(&key),
        "device link for x86_64-pc-linux-gnu: found in the remote cache",
        0,
    )?;
    // Every object as anyone can create it without the key: records with the same text, and images
    // with other bytes.
    for kind in ["r", "b"] {
        for file in names_below(&remote.join("signed").join(kind))? {
            let object = format!("signed/{kind}/{file}");
            let whole = fs::read(remote.join(&object))?;
            let (packing, body) = (whole[8], &whole[49..]);
            let mut bytes = if packing == 1 {
                zstd::bulk::decompress(body, 4 << 20)?
            } else {
                body.to_vec()
            };
            if kind == "b" {
                bytes.reverse();
            }
            fs::write(remote.join(&object), unsigned(&object, bytes.len(), &bytes))?;
        }
    }
    linked("third", Some(&key), not_found, 1)?;
    // Entries that are stored again are valid again.
    linked(
        "fourth",
        Some(&key),
        "device link for x86_64-pc-linux-gnu: found in the remote cache",
        0,
    )?;
    passed()
}

fn no_secret() -> Outcome {
    let work = Work::new();
    compiled(&work)?;
    let key = key_file(work.path(), 1)?;
    let wrapper = |key: &Path, cache: &str| {
        let mut command = work.command(llvm("clang"));
        command
            .args(OFFLOAD)
            .args(["-fuse-ld=lld", "a.o", "-o", "a.out", "-B"])
            .arg(&made().links);
        command
            .env("OFFLD_CACHE", cache)
            .env("OFFLD_CACHE_KEY", key);
        command
    };
    fs::set_permissions(&key, Permissions::from_mode(0o640))?;
    let stderr = run_failing(&mut wrapper(&key, "cache"))?;
    for part in [
        &*key.to_string_lossy(),
        "OFFLD_CACHE_KEY",
        "lets other users access it",
        "0640",
    ] {
        expect_in(&stderr, part)?;
    }
    ensure(
        !work.path().join("a.out").exists(),
        || "a program was linked all the same",
    )?;
    expect_in(
        &run_failing(&mut wrapper(&work.path().join("none"), "cache"))?,
        "cannot open the file",
    )?;
    // Without a cache, nothing is signed. Without device code, nothing is cached.
    run(&mut wrapper(&key, "off"))?;
    let source = work.file("plain.c", "int main(void) { return 0; }");
    let mut plain = work.command(llvm("clang"));
    plain.arg(source).args(["-o", "plain"]).arg(format!(
        "--ld-path={}",
        made().links.join("ld.offld").display()
    ));
    run(plain
        .env("OFFLD_CACHE", "cache")
        .env("OFFLD_CACHE_KEY", &key))?;
    fs::set_permissions(&key, Permissions::from_mode(0o600))?;
    run(&mut wrapper(&key, "cache"))?;
    passed()
}
