//! Damaged cache entries of ThinLTO units, and killed links.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};

use super::{COUNT, Units, files};
use crate::support::{Outcome, ensure, expect_equal, passed, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("lto::what_is_damaged_is_compiled_anew", damaged),
        with_llvm("lto::a_killed_link_leaves_nothing_in_the_cache", killed),
        with_llvm("lto::a_cache_that_cannot_be_written_is_read", read_only),
    ]
}

/// Alters every cached object. Returns their number.
fn damage(units: &Units, how: impl Fn(&mut Vec<u8>)) -> Result<usize, Failed> {
    let mut count = 0;
    for file in files(&units.cache()) {
        let mut bytes = fs::read(&file)?;
        if bytes.starts_with(b"\x7fELF") {
            how(&mut bytes);
            fs::set_permissions(&file, fs::Permissions::from_mode(0o644))?;
            fs::write(&file, bytes)?;
            count += 1;
        }
    }
    Ok(count)
}

fn damaged() -> Outcome {
    let hows: [fn(&mut Vec<u8>); 4] = [
        |bytes| {
            let middle = bytes.len() / 2;
            bytes[middle] ^= 1;
        },
        |bytes| bytes.truncate(bytes.len() / 2),
        Vec::clear,
        |bytes| bytes.extend(b"more"),
    ];
    let units = Units::new("thin")?;
    units.expect(0, COUNT, &[])?;
    for (at, how) in hows.iter().enumerate() {
        let before = units.stat("damaged")?;
        let count = damage(&units, how)?;
        ensure(count > COUNT, || format!("only {count} files to damage"))?;
        units.compile(0, 10 + u32::try_from(at)?)?;
        // `expect` compares the library with that of a link without a cache.
        units.expect(0, COUNT, &[])?;
        ensure(units.stat("damaged")? >= before + COUNT as u64, || {
            format!("not counted as damaged ({at})")
        })?;
    }
    // With one damaged object, offld compiles only that unit and the changed one.
    let unit = files(&units.cache())
        .into_iter()
        .find(|file| is_unit(file))
        .ok_or("no object of a unit")?;
    fs::set_permissions(&unit, fs::Permissions::from_mode(0o644))?;
    fs::write(&unit, "damaged")?;
    units.compile(0, 20)?;
    let (said, made) = units.linked(&units.cache(), &[])?;
    ensure(made == units.right(&[])?, || {
        format!("another library than without the cache\n{said}")
    })?;
    passed()
}

/// Whether a file is an object that ld.lld created from a translation unit. Images are shared
/// objects.
fn is_unit(file: &Path) -> bool {
    fs::read(file).is_ok_and(|bytes| bytes.starts_with(b"\x7fELF") && bytes.get(16) == Some(&1))
}

fn killed() -> Outcome {
    let units = Units::new("thin")?;
    let begun = Instant::now();
    let mut killed = 0;
    // Machines differ in speed, so the test tries several times.
    for pause in [20, 40, 60, 80, 100, 150, 200, 300] {
        let mut link = units
            .link(&units.cache(), &[])
            .stderr(Stdio::null())
            .spawn()?;
        std::thread::sleep(Duration::from_millis(pause));
        let ended = link.try_wait()?.is_some();
        link.kill()?;
        link.wait()?;
        if ended || begun.elapsed() > Duration::from_secs(20) {
            break;
        }
        killed += 1;
        let names = files(&units.cache())
            .into_iter()
            .filter_map(|file| Some(file.file_name()?.to_string_lossy().into_owned()));
        let left: Vec<String> = names
            .filter(|name| name.starts_with("llvmcache") || name.starts_with("Thin"))
            .collect();
        ensure(left.is_empty(), || format!("in the cache: {left:?}"))?;
    }
    ensure(killed > 0, || "no link was killed")?;
    units.compile(0, 2)?;
    let (said, made) = units.linked(&units.cache(), &[])?;
    ensure(made == units.right(&[])?, || {
        format!("another library than without the cache\n{said}")
    })?;
    units.compile(0, 3)?;
    units.expect(COUNT - 1, 1, &[])?;
    passed()
}

fn read_only() -> Outcome {
    let units = Units::new("thin")?;
    units.expect(0, COUNT, &[])?;
    let before = files(&units.cache());
    set_mode_of_folders(&units.cache(), 0o555)?;
    units.compile(0, 2)?;
    let wrote = fs::write(units.cache().join("probe"), "").is_ok();
    let (said, made) = units.linked(&units.cache(), &[])?;
    ensure(made == units.right(&[])?, || {
        format!("another library than without the cache\n{said}")
    })?;
    ensure(
        said.contains(&format!(
            "ThinLTO: {} units found in the cache, 1 compiled",
            COUNT - 1
        )),
        || said.clone(),
    )?;
    if !wrote {
        expect_equal(
            "the files in the cache",
            &before.len().to_string(),
            &files(&units.cache()).len().to_string(),
        )?;
    }
    set_mode_of_folders(&units.cache(), 0o755)?;
    passed()
}

/// Sets the mode of a directory and of everything below it.
fn set_mode_of_folders(folder: &Path, mode: u32) -> Result<(), Failed> {
    fs::set_permissions(folder, fs::Permissions::from_mode(mode))?;
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            set_mode_of_folders(&path, mode)?;
        }
    }
    Ok(())
}
