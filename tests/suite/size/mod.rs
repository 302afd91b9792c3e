//! `offld size`: every byte counted once, and the same numbers as LLVM's tools, binutils and
//! NVIDIA's; comparisons, budgets, and duplicates.

mod against;
mod compared;
mod members;
pub(crate) mod page;
mod sums;

use std::path::Path;
use std::process::Command;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::support::{Work, expect_equal, offld, output, shown};

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { against compared members page sums }
}

/// The report of `offld size --json` for readable files.
fn size<'a>(work: &Work, args: impl IntoIterator<Item = &'a str>) -> Result<Value, Failed> {
    let mut command = work.command(offld());
    command.args(["size", "--json", "--top", "0"]).args(args);
    let ended = output(&mut command)?;
    if !ended.status.success() || !ended.stderr.is_empty() {
        return Err(shown(&command, &ended).into());
    }
    let json: Value = serde_json::from_slice(&ended.stdout)
        .map_err(|error| format!("{error}\n{}", shown(&command, &ended)))?;
    expect_equal("schema", "1", &json["schema"].to_string())?;
    Ok(json)
}

/// The row with this name below `parent`.
fn row<'r>(parent: &'r Value, name: &str) -> Result<&'r Value, Failed> {
    let rows = parent["rows"].as_array().into_iter().flatten();
    let names: Vec<String> = rows.clone().map(|row| row["name"].to_string()).collect();
    let found = rows.clone().find(|row| row["name"] == name);
    found.ok_or_else(|| format!("no row `{name}` among {names:?}").into())
}

/// The bytes of a row in the file.
fn bytes(row: &Value) -> u64 {
    row["file"].as_u64().unwrap_or(u64::MAX)
}

/// The sum of the leaves of a tree of rows: bytes in the file, and uncompressed size.
fn leaves(row: &Value) -> (u64, u64) {
    match row["rows"].as_array().filter(|rows| !rows.is_empty()) {
        Some(rows) => rows
            .iter()
            .map(leaves)
            .fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1)),
        None => (bytes(row), row["inflated"].as_u64().unwrap_or(u64::MAX)),
    }
}

/// Fails unless every byte of `file` is counted once.
pub(crate) fn adds_up(work: &Work, file: &str) -> Result<(), Failed> {
    let mut command = work.command(offld());
    command.args([
        "size",
        "--json",
        "--by",
        "arch,part,kernel,section,unit,container",
        file,
    ]);
    let ended = output(&mut command)?;
    let json: Value = serde_json::from_slice(&ended.stdout)
        .map_err(|error| format!("{error}\n{}", shown(&command, &ended)))?;
    let on_disk = std::fs::metadata(work.path().join(Path::new(file)))?.len();
    let thin = json["files"][0]["type"] == "thin-archive";
    let size = json["files"][0]["size"].as_u64().unwrap_or(u64::MAX);
    // The members of a thin archive are separate files, but counted with it.
    expect_equal(
        &format!("the size of {file}"),
        &(thin || size == on_disk).to_string(),
        "true",
    )?;
    expect_equal(
        &format!("the total of {file}"),
        &size.to_string(),
        &bytes(&json["total"]).to_string(),
    )?;
    let (sum, inflated) = leaves(&json["total"]);
    expect_equal(
        &format!("the sum of {file}"),
        &size.to_string(),
        &sum.to_string(),
    )?;
    expect_equal(
        &format!("the inflated sum of {file}"),
        &json["files"][0]["inflated"].to_string(),
        &inflated.to_string(),
    )?;
    let images = json["images"]
        .as_array()
        .into_iter()
        .flatten()
        .map(bytes)
        .sum::<u64>();
    expect_equal(
        &format!("the images of {file} are in it"),
        "true",
        &(images <= size).to_string(),
    )
}

/// With `OFFLD_TEST_SIZES=1`, as in `make test-long`: when a test's directory is removed,
/// `offld size` counts every file with device code in it. If a sum does not match the file's size,
/// that test fails.
impl Drop for Work {
    fn drop(&mut self) {
        crate::edit::split::there_and_back(self);
        if std::env::var_os("OFFLD_TEST_SIZES").is_none() || std::thread::panicking() {
            return;
        }
        let ended = Command::new(offld())
            .args(["size", "--json", "--by", "file,arch,part,section"])
            .arg(self.path())
            .output();
        let json = ended
            .ok()
            .and_then(|ended| serde_json::from_slice::<Value>(&ended.stdout).ok());
        let Some(json) = json else {
            panic!("offld size fails on {}", self.path().display())
        };
        for file in json["files"].as_array().into_iter().flatten() {
            let name = file["file"].as_str().unwrap_or_default();
            // Unreadable files belong to tests of such files.
            if file["type"] == "unreadable" {
                continue;
            }
            let rows = json["total"]["rows"].as_array().into_iter().flatten();
            let counted: u64 = rows
                .filter(|row| row["name"] == name)
                .map(|row| leaves(row).0)
                .sum();
            // A tool that was stopped can remove its temporary files later than the test ends.
            let Ok(size) = std::fs::metadata(name).map(|meta| meta.len()) else {
                continue;
            };
            assert!(
                counted == size || holds_thin_archive(Path::new(name)),
                "{name}: {counted} bytes were counted of {size}"
            );
        }
    }
}

/// Whether a file is or contains a thin archive, whose members are separate files but counted with
/// it.
fn holds_thin_archive(path: &Path) -> bool {
    std::fs::read(path)
        .unwrap_or_default()
        .windows(8)
        .any(|part| part == b"!<thin>\n")
}
