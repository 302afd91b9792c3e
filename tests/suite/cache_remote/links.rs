//! Links of one program by two machines that share a cache: the second machine does no device link
//! and produces the same program.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use offld_system::store::{Key, RemoteSettings};

use super::super::kit::Image;
use super::super::stable_names;
use super::super::support::{
    OFFLOAD, Outcome, Work, expect_equal, expect_in, expect_not_in, have_llvm, llvm, made, missing,
    passed, root, run, run_offloaded, stderr_of, test,
};
use super::servers::{PASSWORD, Server, Strange, free_port};
use super::{Machine, redis_url, shared, web_url};

/// Messages of `--wrapper-verbose`.
const FIRST: &str = "device link for x86_64-pc-linux-gnu: not in the cache";
const SHARED: &str = "found in the remote cache";
const OWN: &str = "device link for x86_64-pc-linux-gnu: found in the cache";
/// AWS's example keys.
const AWS: [(&str, &str); 2] = [
    ("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE"),
    ("AWS_SECRET_ACCESS_KEY", "wJalrXUtnFEMI-K7MDENG+bPxRfiCY"),
];

pub(super) fn trials() -> Vec<Trial> {
    vec![
        linked("redis", &["redis-server"], || {
            between(&redis_url(&Server::redis(false)?, "/3"), &[])
        }),
        linked("web", &["nginx"], || {
            between(&web_url(&Server::nginx()?, "cache"), &[])
        }),
        linked("folder", &[], || {
            let folder = Work::new();
            between(&format!("file://{}/cache", folder.path().display()), &[])
        }),
        linked("checkouts_by_redis", &["redis-server"], || {
            stable_names::machines(&redis_url(&Server::redis(false)?, ""))
        }),
        linked("checkouts_by_folder", &[], || {
            let folder = Work::new();
            stable_names::machines(&format!("file://{}/cache", folder.path().display()))
        }),
        linked("s3", &["nginx"], s3),
        linked("tls", &["nginx", "openssl"], tls),
        linked("redis_over_tls", &["redis-server", "openssl"], tls_redis),
        linked("a_library_of_another_machine", &[], another_library),
        linked("trouble_is_no_error", &["redis-server"], trouble),
        linked("a_silent_remote_costs_its_time_once", &[], silent),
        linked("nothing_is_asked_without_device_code", &[], nothing_to_ask),
        test(
            "cache_remote::links::without_the_feature",
            without_the_feature,
        ),
        shared("registration_objects_stay_here", &[], stay_here),
    ]
}

fn linked(
    name: &str,
    programs: &'static [&'static str],
    run: impl FnOnce() -> Outcome + Send + 'static,
) -> Trial {
    shared(&format!("links::{name}"), programs, || {
        if have_llvm() {
            run()
        } else {
            missing("LLVM 22")
        }
    })
}

/// The compiled program.
fn object(folder: &Work) -> Result<PathBuf, Failed> {
    let object = folder.path().join("zaxpy.o");
    let mut compile = folder.command(llvm("clang++"));
    run(compile
        .arg("-O2")
        .args(OFFLOAD)
        .arg("-c")
        .arg(root().join("examples/zaxpy/zaxpy.cpp"))
        .arg("-o")
        .arg(&object))?;
    Ok(object)
}

/// A link of the program to `zaxpy-CACHE`, on the machine with the cache `cache`.
fn link(folder: &Work, cache: &str, remote: &str) -> Command {
    let mut link = folder.command(llvm("clang++"));
    link.args(OFFLOAD).arg("-B").arg(&made().links).args([
        "zaxpy.o",
        "-Wl,--wrapper-verbose",
        "-o",
        &format!("zaxpy-{cache}"),
    ]);
    link.env("OFFLD_CACHE", folder.path().join(cache))
        .env("OFFLD_CACHE_REMOTE", remote);
    // The machine may be busy with other tests.
    link.env("OFFLD_CACHE_REMOTE_TIMEOUT", "30");
    link
}

fn same_programs(folder: &Work, one: &str, two: &str) -> Result<(), Failed> {
    let program = |name: &str| std::fs::read(folder.path().join(format!("zaxpy-{name}")));
    if program(one)? == program(two)? {
        Ok(())
    } else {
        Err(format!("zaxpy-{one} and zaxpy-{two} are not the same").into())
    }
}

/// Links on one machine, then on another, then on the second again.
fn between(remote: &str, environment: &[(&str, &str)]) -> Outcome {
    let folder = Work::new();
    object(&folder)?;
    for (cache, expected) in [("a", FIRST), ("b", SHARED), ("b", OWN), ("a", OWN)] {
        let stderr = stderr_of(link(&folder, cache, remote).envs(environment.iter().copied()))?;
        expect_in(&stderr, expected)?;
        expect_not_in(&stderr, "warning:")?;
    }
    same_programs(&folder, "a", "b")?;
    run_offloaded(&mut folder.command(folder.path().join("zaxpy-b")))?;
    let mut stats = folder.command(crate::support::offld());
    let stats = run(stats
        .args(["cache", "stats"])
        .env("OFFLD_CACHE", folder.path().join("b"))
        .env("OFFLD_CACHE_REMOTE", remote))?;
    expect_in(&stats, "remote hits    1")?;
    expect_in(&stats, "remote cache   ")?;
    folder.expect_no_temps()?;
    passed()
}

/// S3 requests work on a web server that creates directories. It does not verify the signatures.
fn s3() -> Outcome {
    let server = Server::nginx()?;
    let url = format!(
        "s3://bucket/some/prefix?region=eu-north-1&endpoint=http://127.0.0.1:{}",
        server.port
    );
    between(&url, &AWS)?;
    let log = std::fs::read_to_string(server.path("access.log"))?;
    expect_in(&log, "PUT /bucket/some/prefix/r/")?;
    expect_in(&log, "PUT /bucket/some/prefix/b/")?;
    for line in log.lines() {
        expect_in(line, "AWS4-HMAC-SHA256 Credential=AKIDEXAMPLE/")?;
        expect_in(line, "/eu-north-1/s3/aws4_request")?;
    }
    passed()
}

/// Over TLS, with a trusted certificate and with an unknown one.
fn tls() -> Outcome {
    let server = Server::nginx_tls()?;
    let url = format!("https://user:{PASSWORD}@127.0.0.1:{}/closed/", server.port);
    let certificate = server.path("certificate");
    between(&url, &[("SSL_CERT_FILE", &certificate.to_string_lossy())])?;
    let folder = Work::new();
    object(&folder)?;
    let stderr = stderr_of(&mut link(&folder, "a", &url))?;
    expect_in(&stderr, "is no longer used: invalid peer certificate")?;
    expect_not_in(&stderr, PASSWORD)?;
    passed()
}

fn tls_redis() -> Outcome {
    let server = Server::redis_tls()?;
    let url = format!(
        "rediss://:{PASSWORD}@127.0.0.1:{}/2?prefix=a/b",
        server.port
    );
    let certificate = server.path("certificate");
    between(&url, &[("SSL_CERT_FILE", &certificate.to_string_lossy())])?;
    let folder = Work::new();
    object(&folder)?;
    let stderr = stderr_of(&mut link(&folder, "a", &url))?;
    expect_in(&stderr, "is no longer used: invalid peer certificate")?;
    expect_not_in(&stderr, PASSWORD)?;
    passed()
}

/// Two machines with different versions of a library of the device link. Each has its own image and
/// never uses the other's.
fn another_library() -> Outcome {
    let (folder, remote) = (Work::new(), Work::new());
    object(&folder)?;
    let remote = format!("file://{}", remote.path().display());
    let library = |value: u32| -> Result<(), Failed> {
        let source = folder.file(
            "lib/extra.c",
            format!("int extra(void) {{ return {value}; }}"),
        );
        let library = folder.path().join("lib/libextra.so");
        let _ = std::fs::remove_file(&library);
        run(folder
            .command(llvm("clang"))
            .args(["-shared", "-fPIC", "-nostdlib"])
            .arg(source)
            .arg("-o")
            .arg(&library))?;
        // offld does not trust timestamps of files that were written a moment ago.
        std::thread::sleep(Duration::from_millis(50));
        Ok(())
    };
    let link = |cache: &str| {
        let mut link = link(&folder, cache, &remote);
        link.args(["-Llib", "-lextra"]);
        stderr_of(&mut link)
    };
    library(1)?;
    expect_in(&link("a")?, FIRST)?;
    library(22)?;
    expect_in(&link("b")?, FIRST)?;
    expect_in(&link("b")?, OWN)?;
    expect_in(&link("c")?, SHARED)?;
    library(1)?;
    // The second machine's entry has not replaced the first machine's.
    expect_in(&link("b")?, SHARED).or_else(|_| expect_in(&link("b")?, OWN))?;
    expect_in(&link("d")?, SHARED)?;
    passed()
}

/// Each problem gives a warning that shows no password. The link succeeds.
fn trouble() -> Outcome {
    let redis = Server::redis(true)?;
    let cases = [
        (
            format!("redis://:{PASSWORD}@127.0.0.1:{}", free_port()?),
            "is no longer used: Connection refused",
        ),
        (redis_url(&redis, ""), "is no longer used: "),
        (
            format!("redis://:{PASSWORD}x@127.0.0.1:{}", redis.port),
            "Password authentication failed",
        ),
        (
            format!("gopher://:{PASSWORD}@127.0.0.1"),
            "unknown scheme `gopher`",
        ),
        (
            format!("redis://:{PASSWORD}@127.0.0.1/tables"),
            "not a database number",
        ),
        (format!("{PASSWORD}@127.0.0.1"), "is not a URL"),
    ];
    let folder = Work::new();
    object(&folder)?;
    for (index, (url, expected)) in cases.iter().enumerate() {
        let cache = index.to_string();
        let stderr = stderr_of(&mut link(&folder, &cache, url))?;
        expect_in(&stderr, expected)?;
        expect_not_in(&stderr, PASSWORD)?;
        expect_in(&stderr, FIRST)?;
        expect_equal(
            "warnings",
            "1",
            &stderr.matches("warning:").count().to_string(),
        )?;
        expect_in(&stderr_of(&mut link(&folder, &cache, url))?, OWN)?;
        same_programs(&folder, &cache, "0")?;
    }
    passed()
}

fn silent() -> Outcome {
    let server = Strange::silent()?;
    let folder = Work::new();
    object(&folder)?;
    let timed = |cache: &str, url: &str| -> Result<(Duration, String), Failed> {
        let started = Instant::now();
        let messages = stderr_of(link(&folder, cache, url).env("OFFLD_CACHE_REMOTE_TIMEOUT", "1"))?;
        Ok((started.elapsed(), messages))
    };
    let (alone, _) = timed("alone", "")?;
    let (took, messages) = timed("a", &format!("redis://127.0.0.1:{}", server.port))?;
    expect_in(&messages, "is no longer used: no full answer within 1s")?;
    let most = alone * 2 + Duration::from_secs(4);
    if took > most {
        return Err(format!("took {took:?}, alone {alone:?}").into());
    }
    let (_, messages) = timed("a", "")?;
    expect_in(&messages, OWN)?;
    // An invalid timeout is reported when offld is about to use the remote, and the link continues.
    let mut link = link(&folder, "b", &format!("redis://127.0.0.1:{}", free_port()?));
    let messages = stderr_of(link.env("OFFLD_CACHE_REMOTE_TIMEOUT", "soon"))?;
    expect_in(
        &messages,
        "invalid OFFLD_CACHE_REMOTE_TIMEOUT `soon`: expected seconds above 0",
    )?;
    passed()
}

/// A link without device code does not contact the remote.
fn nothing_to_ask() -> Outcome {
    let server = Strange::silent()?;
    let folder = Work::new();
    let source = folder.file("main.c", "int main(void) { return 0; }");
    let mut link = folder.command(llvm("clang"));
    link.arg(source).args(["-o", "main"]).arg(format!(
        "--ld-path={}",
        made().links.join("ld.offld").display()
    ));
    link.env("OFFLD_CACHE", folder.path().join("a")).env(
        "OFFLD_CACHE_REMOTE",
        format!("redis://127.0.0.1:{}", server.port),
    );
    expect_equal("stderr", "", &stderr_of(&mut link)?)?;
    expect_equal(
        "connections",
        "0",
        &server
            .connections
            .load(std::sync::atomic::Ordering::SeqCst)
            .to_string(),
    )?;
    passed()
}

fn without_the_feature() -> Outcome {
    if !have_llvm() {
        return missing("LLVM 22");
    }
    let folder = Work::new();
    object(&folder)?;
    let remote = format!("file://{}", Path::new("/proc/none").display());
    let stderr = stderr_of(&mut link(&folder, "a", &remote))?;
    let expected = if cfg!(feature = "remote-cache") {
        "is no longer used"
    } else {
        "built without the feature `remote-cache`"
    };
    expect_in(&stderr, expected)?;
    expect_equal(
        "warnings",
        "1",
        &stderr.matches("warning:").count().to_string(),
    )?;
    passed()
}

/// The names of all files below a directory.
pub(super) fn names_below(folder: &std::path::Path) -> Result<Vec<String>, Failed> {
    let mut names = Vec::new();
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            names.append(&mut names_below(&path)?);
        } else {
            names.extend(
                path.file_name()
                    .map(|name| name.to_string_lossy().into_owned()),
            );
        }
    }
    Ok(names)
}

fn stay_here() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "an image")])?;
    let remote = work.path().join("remote");
    let url = format!("file://{}", remote.display());
    let said = |cache: &str| -> Result<String, Failed> {
        work.forget();
        let mut command = work.wrapper(["-o", "a.out", "a.o", "--wrapper-verbose"]);
        command
            .env("OFFLD_CACHE", work.path().join(cache))
            .env("OFFLD_CACHE_REMOTE", &url);
        stderr_of(&mut command)
    };
    let object = || -> Result<Vec<u8>, Failed> { Ok(std::fs::read(work.registration_object()?)?) };
    expect_in(
        &said("first")?,
        "registration code for openmp: not in the cache",
    )?;
    let right = object()?;
    // No part of the entry is at the remote.
    let records = names_below(&work.path().join("first/v3/r"))?;
    let there = if remote.exists() {
        names_below(&remote)?
    } else {
        Vec::new()
    };
    if let Some(sent) = records.iter().find(|record| there.contains(record)) {
        return Err(format!("the record {sent} was sent to the remote").into());
    }
    // A hostile remote has something under the key of every entry that this machine has cached.
    let hostile = Machine::with(RemoteSettings::new(&url))?;
    for key in records.iter().filter_map(|name| Key::parse(name)) {
        hostile.put(key, b"code of somebody else's", b"a blob")?;
    }
    hostile.cache.finish();
    if names_below(&remote)?.len() < records.len() {
        return Err("the hostile remote holds nothing: this tests nothing".into());
    }
    for cache in ["second", "first"] {
        let expected = if cache == "first" {
            "found in the cache"
        } else {
            "not in the cache"
        };
        expect_in(
            &said(cache)?,
            &format!("registration code for openmp: {expected}"),
        )?;
        if object()? != right {
            return Err(format!(
                "with {cache}, the registration object is another than without a remote"
            )
            .into());
        }
    }
    passed()
}
