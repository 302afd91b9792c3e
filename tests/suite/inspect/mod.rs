//! `offld inspect`: what it says of programs of every kind, of the fat objects of five releases, of a file of each container, of kernels and
//! of damaged files, held against what LLVM's and NVIDIA's own tools say.

mod containers;
mod kernels;
mod packages;
pub(crate) mod programs;
mod releases;

use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::size::adds_up;
use super::support::{Work, expect_equal, llvm, output, shown, text};

pub(crate) fn trials() -> Vec<Trial> {
    let all = [containers::trials(), kernels::trials(), packages::trials(), programs::trials(), releases::trials()];
    all.into_iter().flatten().collect()
}

/// What `offld inspect --json` says.
struct Told {
    json: Value,
    /// Its exit status.
    status: i32,
    /// What it says on stderr.
    stderr: String,
}

fn inspect<'a>(work: &Work, words: impl IntoIterator<Item = &'a str>) -> Result<Told, Failed> {
    let words: Vec<&str> = words.into_iter().collect();
    let mut command = work.command(crate::support::offld());
    command.args(["inspect", "--json"]).args(&words);
    let ended = output(&mut command)?;
    // What is inspected anywhere is counted as well: every byte once.
    for file in words.iter().filter(|word| work.path().join(word).is_file()) {
        adds_up(work, file)?;
    }
    let json = serde_json::from_slice(&ended.stdout).map_err(|error| format!("{error}\n{}", shown(&command, &ended)))?;
    Ok(Told { json, status: ended.status.code().unwrap_or(-1), stderr: text(&ended.stderr) })
}

/// The same of files that have device code and no faults.
fn inspect_well<'a>(work: &Work, words: impl IntoIterator<Item = &'a str>) -> Result<Told, Failed> {
    let told = inspect(work, words)?;
    expect_equal("schema", "1", &told.json["schema"].to_string())?;
    if told.status == 0 && told.stderr.is_empty() { Ok(told) } else { Err(format!("{}: {}", told.status, told.stderr).into()) }
}

impl Told {
    /// The images of the file with this index.
    fn images(&self, file: usize) -> &[Value] {
        self.json["files"][file]["images"].as_array().map_or(&[], Vec::as_slice)
    }

    /// Those that are not a bundle's entry for the host.
    fn device(&self, file: usize) -> Vec<&Value> {
        let host = |image: &&Value| image["kinds"].as_array().is_some_and(|kinds| kinds.iter().any(|kind| kind == "host"));
        self.images(file).iter().filter(|image| !host(image)).collect()
    }

    fn registrations(&self, file: usize) -> &[Value] {
        self.json["files"][file]["registrations"].as_array().map_or(&[], Vec::as_slice)
    }
}

/// A member of an object as text; nothing for null.
fn field(value: &Value, name: &str) -> String {
    match &value[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Array(all) => all.iter().map(|each| each.as_str().unwrap_or_default()).collect::<Vec<_>>().join("+"),
        other => other.to_string(),
    }
}

/// Some of an object's members in a line.
fn line(value: &Value, names: &[&str]) -> String {
    names.iter().map(|name| field(value, name)).collect::<Vec<_>>().join("|")
}

/// The images in lines, one member after the other, sorted.
fn lines<'a>(images: impl IntoIterator<Item = &'a Value>, names: &[&str]) -> String {
    let mut lines: Vec<String> = images.into_iter().map(|image| line(image, names) + "\n").collect();
    lines.sort();
    lines.concat()
}

/// What `sha256sum` says of a file.
fn sha256(work: &Work, file: impl AsRef<Path>) -> Result<String, Failed> {
    let told = work.run("sha256sum", [file.as_ref()])?;
    Ok(told.split(' ').next().unwrap_or_default().to_owned())
}

/// The contents of a section, as a file.
fn section(work: &Work, file: &str, name: &str, to: &str) -> Result<PathBuf, Failed> {
    work.run(llvm("llvm-objcopy"), [&format!("--dump-section={name}={to}"), file, "/dev/null"])?;
    Ok(work.path().join(to))
}

/// The images that `llvm-objdump --offloading` lists, as `producer|triple|arch` lines, sorted.
fn objdump(work: &Work, file: &str) -> Result<String, Failed> {
    let listed = work.run(llvm("llvm-objdump"), ["--offloading", file])?;
    let mut images = Vec::new();
    for block in listed.split("OFFLOADING IMAGE").skip(1) {
        let value = |key: &str| {
            let found = block.lines().find_map(|line| line.strip_prefix(key)).map(str::trim);
            found.unwrap_or_default().to_owned()
        };
        images.push(format!("{}|{}|{}\n", value("producer"), value("triple"), value("arch")));
    }
    images.sort();
    Ok(images.concat())
}
