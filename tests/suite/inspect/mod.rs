//! `offld inspect`: its report for programs of every kind, fat objects of five releases, each
//! container format, kernels and damaged files. LLVM's and NVIDIA's own tools must show the same.

mod containers;
mod files;
mod kernels;
mod packages;
pub(crate) mod programs;
mod provenance;
mod releases;
mod wheels;

use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::size::adds_up;
use super::support::{Work, expect_equal, llvm, output, shown, text};

pub(crate) fn trials() -> Vec<Trial> {
    trials_of! { containers files kernels packages programs provenance releases wheels }
}

/// The result of `offld inspect --json`.
struct Report {
    json: Value,
    /// The exit status.
    status: i32,
    stderr: String,
}

fn inspect<'a>(work: &Work, args: impl IntoIterator<Item = &'a str>) -> Result<Report, Failed> {
    let args: Vec<&str> = args.into_iter().collect();
    let mut command = work.command(crate::support::offld());
    command.args(["inspect", "--json"]).args(&args);
    let ended = output(&mut command)?;
    // `offld size` must count every byte of each inspected file once.
    for file in args.iter().filter(|word| work.path().join(word).is_file()) {
        adds_up(work, file)?;
    }
    let json = serde_json::from_slice(&ended.stdout)
        .map_err(|error| format!("{error}\n{}", shown(&command, &ended)))?;
    Ok(Report {
        json,
        status: ended.status.code().unwrap_or(-1),
        stderr: text(&ended.stderr),
    })
}

/// Inspects files with device code, which must succeed without errors.
fn inspect_well<'a>(
    work: &Work,
    args: impl IntoIterator<Item = &'a str>,
) -> Result<Report, Failed> {
    let report = inspect(work, args)?;
    expect_equal("schema", "1", &report.json["schema"].to_string())?;
    if report.status == 0 && report.stderr.is_empty() {
        Ok(report)
    } else {
        Err(format!("{}: {}", report.status, report.stderr).into())
    }
}

impl Report {
    /// The images of the file with this index.
    fn images(&self, file: usize) -> &[Value] {
        self.json["files"][file]["images"]
            .as_array()
            .map_or(&[], Vec::as_slice)
    }

    /// The images other than host entries of bundles.
    fn device(&self, file: usize) -> Vec<&Value> {
        let host = |image: &&Value| {
            image["kinds"]
                .as_array()
                .is_some_and(|kinds| kinds.iter().any(|kind| kind == "host"))
        };
        self.images(file)
            .iter()
            .filter(|image| !host(image))
            .collect()
    }

    fn registrations(&self, file: usize) -> &[Value] {
        self.json["files"][file]["registrations"]
            .as_array()
            .map_or(&[], Vec::as_slice)
    }
}

/// A value of an object as text; empty for null.
fn field(value: &Value, name: &str) -> String {
    match &value[name] {
        Value::String(text) => text.clone(),
        Value::Null => String::new(),
        Value::Array(all) => all
            .iter()
            .map(|each| each.as_str().unwrap_or_default())
            .collect::<Vec<_>>()
            .join("+"),
        other => other.to_string(),
    }
}

/// Some values of an object, separated by `|`.
fn line(value: &Value, names: &[&str]) -> String {
    names
        .iter()
        .map(|name| field(value, name))
        .collect::<Vec<_>>()
        .join("|")
}

/// These values of all images, one image per line, sorted.
fn lines<'a>(images: impl IntoIterator<Item = &'a Value>, names: &[&str]) -> String {
    let mut lines: Vec<String> = images
        .into_iter()
        .map(|image| line(image, names) + "\n")
        .collect();
    lines.sort();
    lines.concat()
}

/// The digest that `sha256sum` prints for a file.
fn sha256(work: &Work, file: impl AsRef<Path>) -> Result<String, Failed> {
    let digest = work.run("sha256sum", [file.as_ref()])?;
    Ok(digest.split(' ').next().unwrap_or_default().to_owned())
}

/// Extracts the contents of a section into a file.
fn section(work: &Work, file: &str, name: &str, to: &str) -> Result<PathBuf, Failed> {
    work.run(
        llvm("llvm-objcopy"),
        [&format!("--dump-section={name}={to}"), file, "/dev/null"],
    )?;
    Ok(work.path().join(to))
}

/// The images that `llvm-objdump --offloading` lists, as `producer|triple|arch` lines, sorted.
fn objdump(work: &Work, file: &str) -> Result<String, Failed> {
    let listed = work.run(llvm("llvm-objdump"), ["--offloading", file])?;
    let mut images = Vec::new();
    for block in listed.split("OFFLOADING IMAGE").skip(1) {
        let value = |key: &str| {
            let found = block
                .lines()
                .find_map(|line| line.strip_prefix(key))
                .map(str::trim);
            found.unwrap_or_default().to_owned()
        };
        images.push(format!(
            "{}|{}|{}\n",
            value("producer"),
            value("triple"),
            value("arch")
        ));
    }
    images.sort();
    Ok(images.concat())
}
