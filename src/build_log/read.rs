//! Reads a log. Damaged lines are skipped, because a killed process or a full disk leaves half a
//! line in an otherwise good log. A line of a later release is an error that names the file and the
//! line.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail};
use serde::Deserialize;

use super::{Record, VERSION};

/// The common part of all versions of a line.
#[derive(Deserialize)]
struct Versioned {
    version: u32,
}

#[derive(Debug)]
pub(crate) struct Contents {
    /// The records, in the order in which they were written.
    pub records: Vec<Record>,
    /// The damaged lines, if any.
    pub damaged: Option<Damaged>,
}

/// Damaged lines, which are skipped.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damaged {
    path: PathBuf,
    /// Number of the first damaged line, counted from 1.
    first: usize,
    /// Number of damaged lines.
    lines: u64,
}

impl Damaged {
    pub(crate) fn warning(&self) -> String {
        let (path, first) = (self.path.display(), self.first);
        match self.lines {
            1 => format!("{path}:{first}: skipped a damaged line"),
            lines => format!("{path}:{first}: skipped {lines} damaged lines, beginning here"),
        }
    }
}

/// Reads the log at `path`.
///
/// # Errors
/// The log cannot be read, all of its lines are damaged, or a line was written by a later release.
pub(crate) fn read(path: &Path) -> Result<Contents> {
    let bytes = std::fs::read(path)
        .with_context(|| format!("cannot read the build log `{}`", path.display()))?;
    let mut contents = Contents {
        records: Vec::new(),
        damaged: None,
    };
    let lines = bytes
        .split(|byte| *byte == b'\n')
        .zip(1..)
        .filter(|(line, _)| !line.trim_ascii().is_empty());
    for (line, number) in lines {
        if let Some(record) =
            record(line).with_context(|| format!("{}:{number}", path.display()))?
        {
            contents.records.push(record);
        } else {
            let none = Damaged {
                path: path.to_owned(),
                first: number,
                lines: 0,
            };
            contents.damaged.get_or_insert(none).lines += 1;
        }
    }
    if let (Some(damaged), true) = (&contents.damaged, contents.records.is_empty()) {
        bail!(
            "{}:{}: not a line of a build log, or damaged",
            path.display(),
            damaged.first
        );
    }
    Ok(contents)
}

/// Parses a line. Returns `None` if it is damaged.
///
/// # Errors
/// The line has another format version.
fn record(line: &[u8]) -> Result<Option<Record>> {
    let Ok(Versioned { version }) = serde_json::from_slice(line) else {
        return Ok(None);
    };
    if version != VERSION {
        bail!("log format version {version}; this offld reads version {VERSION}");
    }
    Ok(serde_json::from_slice(line).ok())
}

#[cfg(test)]
mod tests {
    use super::super::{Outcome, example};
    use super::*;

    #[test]
    fn damaged_lines_are_skipped_and_named() {
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
            assert_eq!(
                warning,
                format!("{}:2: skipped a damaged line", path.display())
            );

            std::fs::write(&path, format!("\n{bad}\n{bad}\n")).unwrap();
            let error = format!("{:#}", read(&path).unwrap_err());
            assert!(
                error.starts_with(&format!("{}:2: ", path.display())) && error.contains("damaged"),
                "{error}"
            );
        }
        std::fs::write(&path, format!("{half}\n{line}\n{glued}\n")).unwrap();
        let warning = read(&path).unwrap().damaged.unwrap().warning();
        assert_eq!(
            warning,
            format!(
                "{}:1: skipped 2 damaged lines, beginning here",
                path.display()
            )
        );
    }

    #[test]
    fn a_line_of_a_later_release_is_an_error() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("log");
        let line = serde_json::to_string(&example(Outcome::Hit)).unwrap();
        let later = line.replace("\"version\":1", "\"version\":9");
        std::fs::write(&path, format!("{line}\n{later}\n{line}\n")).unwrap();
        let error = format!("{:#}", read(&path).unwrap_err());
        assert!(
            error.starts_with(&format!("{}:2: ", path.display())) && error.contains("version 9"),
            "{error}"
        );
        assert!(format!("{:#}", read(&dir.path().join("none")).unwrap_err()).contains("none"));
    }
}
