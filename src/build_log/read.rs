//! Reads a log back. A line that is damaged is left out, because a process that was killed or a disk that was full leaves half a line
//! in an otherwise good log; a line of a later release is an error that names the file and the line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Record, VERSION};

/// What every version of a line has.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

/// What a log has.
#[derive(Debug)]
pub(crate) struct Contents {
    /// Its lines, in the order in which they were written.
    pub records: Vec<Record>,
    /// The lines that are damaged.
    pub damaged: Option<Damaged>,
}

/// Lines that are left out because they are damaged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damaged {
    path: PathBuf,
    /// The first of them, counted from 1.
    first: usize,
    /// How many there are.
    lines: u64,
}

impl Damaged {
    /// A warning.
    pub(crate) fn warning(&self) -> String {
        let (path, first) = (self.path.display(), self.first);
        match self.lines {
            1 => format!("{path}:{first}: this line is damaged and not counted"),
            lines => format!("{path}:{first}: this line and {} more are damaged and not counted", lines - 1),
        }
    }
}

/// What the log at `path` has.
///
/// # Errors
/// It cannot be read, no line of it can, or a line was written by a later release.
pub(crate) fn read(path: &Path) -> Result<Contents> {
    let bytes = std::fs::read(path).with_context(|| format!("cannot read the log `{}`", path.display()))?;
    let mut contents = Contents { records: Vec::new(), damaged: None };
    let lines = bytes.split(|byte| *byte == b'\n').zip(1..).filter(|(line, _)| !line.trim_ascii().is_empty());
    for (line, number) in lines {
        if let Some(record) = record(line).with_context(|| format!("{}:{number}", path.display()))? {
            contents.records.push(record);
        } else {
            let none = Damaged { path: path.to_owned(), first: number, lines: 0 };
            contents.damaged.get_or_insert(none).lines += 1;
        }
    }
    if let (Some(damaged), true) = (&contents.damaged, contents.records.is_empty()) {
        bail!("{}:{}: this is no line of a log of device links, or it is damaged", path.display(), damaged.first);
    }
    Ok(contents)
}

/// The record of a line; none if it is damaged.
fn record(line: &[u8]) -> Result<Option<Record>> {
    let Ok(Versioned { version }) = serde_json::from_slice(line) else { return Ok(None) };
    if version != VERSION {
        bail!("this line has version {version}, and this offld reads version {VERSION}");
    }
    Ok(serde_json::from_slice(line).ok())
}

#[cfg(test)]
mod tests {
    use super::super::{Outcome, example};
    use super::*;

    #[test]
    fn what_is_damaged_is_left_out_and_named_with_its_line() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let line = serde_json::to_string(&example(Outcome::Hit)).unwrap();
        std::fs::write(&path, format!("{line}\n\n{line}\n")).unwrap();
        let whole = read(&path).unwrap();
        assert_eq!((whole.records.len(), whole.damaged), (2, None));
        let half = &line[..line.len() / 2];
        let glued = format!("{half}{line}");
        for bad in [half, "[]", "{\"version\":1}", &glued, "\u{0}\u{0}"] {
            std::fs::write(&path, format!("{line}\n{bad}\n{line}\n")).unwrap();
            let read_back = read(&path).unwrap();
            assert_eq!(read_back.records.len(), 2, "{bad}");
            let warning = read_back.damaged.unwrap().warning();
            assert_eq!(warning, format!("{}:2: this line is damaged and not counted", path.display()));

            std::fs::write(&path, format!("\n{bad}\n{bad}\n")).unwrap();
            let error = format!("{:#}", read(&path).unwrap_err());
            assert!(error.starts_with(&format!("{}:2: ", path.display())) && error.contains("damaged"), "{error}");
        }
        std::fs::write(&path, format!("{half}\n{line}\n{glued}\n")).unwrap();
        let warning = read(&path).unwrap().damaged.unwrap().warning();
        assert_eq!(warning, format!("{}:1: this line and 1 more are damaged and not counted", path.display()));
    }

    #[test]
    fn a_line_of_a_later_release_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let line = serde_json::to_string(&example(Outcome::Hit)).unwrap();
        let later = line.replace("\"version\":1", "\"version\":9");
        std::fs::write(&path, format!("{line}\n{later}\n{line}\n")).unwrap();
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(error.starts_with(&format!("{}:2: ", path.display())) && error.contains("version 9"), "{error}");
        assert!(format!("{:#}", read(&dir.path().join("none")).unwrap_err()).contains("none"));
    }
}
