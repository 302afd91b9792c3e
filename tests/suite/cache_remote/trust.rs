//! A local cache with images from a remote cache, and a link that no longer trusts that remote: the
//! link accepts signed objects only, or those signed with another key.

use std::fs;
use std::path::Path;

use libtest_mimic::{Failed, Trial};
use offld_system::store::BlobName;

use super::super::support::{
    Outcome, Work, ensure, expect_in, expect_not_in, have_llvm, missing, passed,
};
use super::links::names_below;
use super::signed::{compiled, key_file, link, unsigned};
use super::{named, shared};

pub(super) fn trials() -> Vec<Trial> {
    let linked = |name: &str, run: fn() -> Outcome| {
        shared(&format!("trust::{name}"), &[], move || {
            if have_llvm() {
                run()
            } else {
                missing("LLVM 22")
            }
        })
    };
    vec![
        linked(
            "what_an_unsigned_remote_gave_is_not_used_with_a_key",
            unsigned_before,
        ),
        linked(
            "what_an_old_key_signed_is_not_used_with_a_new_one",
            signed_before,
        ),
    ]
}

const NOT_FOUND: &str = "device link for x86_64-pc-linux-gnu: not in the cache";
const FOUND: &str = "device link for x86_64-pc-linux-gnu: found in the cache";
const SHARED: &str = "device link for x86_64-pc-linux-gnu: found in the remote cache";

/// The bytes of the object `name` of a remote, without the header.
fn body(remote: &Path, name: &str) -> Result<Vec<u8>, Failed> {
    let whole = fs::read(remote.join(name))?;
    let (packing, body) = (whole[8], &whole[49..]);
    Ok(if packing == 1 {
        zstd::bulk::decompress(body, 4 << 20)?
    } else {
        body.to_vec()
    })
}

/// Replaces the images on an unsigned remote with altered ones, and the records with records that
/// name them. Returns their names.
fn forge(remote: &Path) -> Result<Vec<BlobName>, Failed> {
    let mut forged = Vec::new();
    let records = names_below(&remote.join("r"))?;
    for image in names_below(&remote.join("b"))? {
        let mut bytes = body(remote, &format!("b/{image}"))?;
        let at = bytes
            .windows(7)
            .position(|window| window == b"Linker:")
            .ok_or("an image without its linker's name")?;
        bytes[at] = b'l';
        let name = named(&bytes);
        let object = format!("b/{name}");
        fs::write(remote.join(&object), unsigned(&object, bytes.len(), &bytes))?;
        for record in &records {
            let object = format!("r/{record}");
            let text =
                String::from_utf8(body(remote, &object)?)?.replace(&image, &name.to_string());
            fs::write(
                remote.join(&object),
                unsigned(&object, text.len(), text.as_bytes()),
            )?;
        }
        forged.push(name);
    }
    Ok(forged)
}

fn unsigned_before() -> Outcome {
    let work = Work::new();
    compiled(&work)?;
    let remote = work.path().join("remote");
    let url = format!("file://{}", remote.display());
    link(&work, "first", &url, None, &[])?;
    let right = fs::read(work.path().join("first"))?;
    let forged = forge(&remote)?;
    ensure(
        !forged.is_empty(),
        || "nothing is forged: this tests nothing",
    )?;
    expect_in(&link(&work, "second", &url, None, &[])?, SHARED)?;
    ensure(
        fs::read(work.path().join("second"))? != right,
        || "the forged image changes nothing: this tests nothing",
    )?;
    // The same local cache, which from now on trusts signed objects only.
    let key = key_file(work.path(), 1)?;
    let said = link(&work, "second", &url, Some(&key), &[])?;
    expect_in(&said, NOT_FOUND)?;
    ensure(fs::read(work.path().join("second"))? == right, || {
        format!("a forged image is in the program\n{said}")
    })?;
    expect_in(&link(&work, "second", &url, Some(&key), &[])?, FOUND)?;
    // The forged images are not signed for others either.
    for record in names_below(&remote.join("signed/r"))? {
        let said =
            String::from_utf8_lossy(&body(&remote, &format!("signed/r/{record}"))?).into_owned();
        forged
            .iter()
            .try_for_each(|name| expect_not_in(&said, &name.to_string()))?;
    }
    expect_in(&link(&work, "third", &url, Some(&key), &[])?, SHARED)?;
    ensure(
        fs::read(work.path().join("third"))? == right,
        || "a forged image has been signed",
    )?;
    passed()
}

fn signed_before() -> Outcome {
    let work = Work::new();
    compiled(&work)?;
    let url = format!("file://{}", work.path().join("remote").display());
    let [old, new] = [key_file(work.path(), 1)?, key_file(work.path(), 2)?];
    link(&work, "first", &url, Some(&old), &[])?;
    let messages = link(&work, "second", &url, Some(&old), &[])?;
    expect_in(&messages, SHARED)?;
    expect_in(
        &messages,
        "registration code for openmp: found in the remote cache",
    )?;
    let messages = link(&work, "second", &url, Some(&new), &[])?;
    expect_in(&messages, NOT_FOUND)?;
    expect_in(&messages, "registration code for openmp: not in the cache")?;
    expect_not_in(&messages, "warning:")?;
    // The local cache now records the inputs of the link that it ran itself.
    let messages = link(&work, "second", &url, Some(&key_file(work.path(), 3)?), &[])?;
    expect_in(&messages, NOT_FOUND)?;
    expect_in(&messages, "the signing key (OFFLD_CACHE_KEY) has changed")?;
    passed()
}
