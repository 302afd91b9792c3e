//! Registration objects are host code that runs before `main`. Without a key, they are never sent
//! to a remote cache and never taken from one, whatever it contains.

use libtest_mimic::{Failed, Trial};
use offld::programs::{Key, RemoteSettings};

use super::super::kit::Image;
use super::super::support::{Outcome, Work, expect_in, passed, stderr_of};
use super::{Machine, shared};

pub(super) fn trials() -> Vec<Trial> {
    vec![shared("registration_objects_stay_here", &[], stay_here)]
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
