//! References in comments are valid: every `docs/spec/FILE.md N` is a section or a row of that
//! file. Every other path below `docs/` and every source path below `tests/` exists, and so does
//! every path in ARCHITECTURE.md and the decisions.

#![expect(
    clippy::expect_used,
    reason = "a test that cannot read the sources has failed"
)]

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust sources below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)
        .expect("a directory of the repository")
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            all.append(&mut sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            all.push(path);
        }
    }
    all
}

/// The files below `docs/` in `text`, each with the number after it, if any: `2.13`, `F17`, `B.1`.
/// The number must be on the same line.
fn references(text: &str) -> Vec<(&str, &str)> {
    let end_of = |text: &str, ends: fn(char) -> bool| text.find(ends).unwrap_or(text.len());
    let each = text.match_indices("docs/").map(|(at, _)| &text[at..]);
    each.filter_map(|text| {
        let path = &text[..text.find(".md")? + ".md".len()];
        let rest = text[path.len()..].strip_prefix(' ').unwrap_or_default();
        let number =
            rest[..end_of(rest, |c| !c.is_ascii_alphanumeric() && c != '.')].trim_end_matches('.');
        let plain = path
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "/-_.".contains(c));
        let is_number = number.contains(|c: char| c.is_ascii_digit());
        plain.then_some((path, if is_number { number } else { "" }))
    })
    .collect()
}

/// Whether `document` has a section or a row with this number.
fn has(document: &str, number: &str) -> bool {
    document.lines().any(|line| {
        let title = line.trim_start_matches(['#', '|', '*', ' ']);
        let is_heading = ["#", "|", "**"].iter().any(|start| line.starts_with(start));
        let rest = title
            .strip_prefix(number)
            .map(|rest| rest.trim_start_matches('.'));
        is_heading && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '*']))
    })
}

#[test]
fn documents_in_comments_exist() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for path in ["src", "crates", "tests"]
        .iter()
        .flat_map(|folder| sources(&root().join(folder)))
    {
        if path.ends_with(file!()) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source");
        for (document, number) in references(&text) {
            seen += 1;
            let exists = fs::read_to_string(root().join(document))
                .is_ok_and(|text| number.is_empty() || has(&text, number));
            if !exists {
                wrong.push(format!("{}: {document} {number}", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "invalid references:\n  {}",
        wrong.join("\n  ")
    );
    assert!(seen > 50, "only {seen} references were found");
}

/// The paths of sources below `tests/` in `text`.
fn tests(text: &str) -> Vec<&str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    let starts = text
        .match_indices("tests/")
        .filter(|(at, _)| !text[..*at].ends_with(is_path))
        .map(|(at, _)| &text[at..]);
    let paths = starts.map(|rest| &rest[..rest.find(|c| !is_path(c)).unwrap_or(rest.len())]);
    paths
        .map(|path| path.trim_end_matches('.'))
        .filter(|path| path.ends_with(".rs"))
        .collect()
}

#[test]
fn tests_in_comments_exist() {
    assert_eq!(
        tests("`tests/a.rs`, tests/b-c/d.rs. src/tests/no.rs tests/folder"),
        ["tests/a.rs", "tests/b-c/d.rs"]
    );
    let (mut seen, mut wrong) = (0, Vec::new());
    for path in ["src", "crates", "tests"]
        .iter()
        .flat_map(|folder| sources(&root().join(folder)))
        .filter(|path| !path.ends_with(file!()))
    {
        for named in tests(&fs::read_to_string(&path).expect("a source")) {
            seen += 1;
            if !root().join(named).is_file() {
                wrong.push(format!("{}: {named}", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "invalid references:\n  {}",
        wrong.join("\n  ")
    );
    assert!(seen > 2, "only {seen} references were found");
}

const FORMATS: &str = "crates/offload-formats/src";
const SYSTEM: &str = "crates/offld-system/src";
const FILES: &str = "crates/offload-files/src";

/// The paths among the code spans of a Markdown document: `src/link/`, `args/table.rs`, without
/// placeholders (`tests/cases/NAME/`).
fn code_paths(document: &str) -> Vec<&str> {
    let is_path = |span: &&str| {
        let plain = span
            .chars()
            .all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || "/-_.".contains(c));
        plain && span.contains('/') && span.starts_with(|c: char| c.is_ascii_lowercase())
    };
    document
        .lines()
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(is_path)
        .collect()
}

#[test]
fn paths_in_the_documents_of_the_design_exist() {
    assert_eq!(
        code_paths("`src/a-b.rs`, `x`, `/dev/shm`, `a/NAME.rs` b/c\n`d/`"),
        ["src/a-b.rs", "d/"]
    );
    let decisions = fs::read_dir(root().join("docs/dev/decisions"))
        .expect("the decisions")
        .flatten()
        .map(|entry| entry.path());
    let (mut seen, mut wrong) = (0, Vec::new());
    for path in decisions.chain([root().join("ARCHITECTURE.md")]) {
        for named in code_paths(&fs::read_to_string(&path).expect("a document")) {
            seen += 1;
            // The map leaves out `src/`, and `crates/NAME/src/` below a heading with the crate.
            let folders = ["", "src", FORMATS, SYSTEM, FILES];
            if !folders
                .iter()
                .any(|folder| root().join(folder).join(named).exists())
            {
                wrong.push(format!("{}: {named}", path.display()));
            }
        }
    }
    assert!(
        wrong.is_empty(),
        "paths that do not exist:\n  {}",
        wrong.join("\n  ")
    );
    assert!(seen > 50, "only {seen} paths were found");
}

#[test]
fn references_are_parsed() {
    let text = "//! As docs/spec/a-b.md 2.13. Or (docs/spec/faults.md F17, B3), docs/x.md. And docs/spec/a.md B.1: so; docs/spec/a.md";
    let found = [
        ("docs/spec/a-b.md", "2.13"),
        ("docs/spec/faults.md", "F17"),
        ("docs/x.md", ""),
        ("docs/spec/a.md", "B.1"),
        ("docs/spec/a.md", ""),
    ];
    assert_eq!(references(text), found);
    let document = "## 2. A\n### 2.13 B\n| F17 | c |\n**B.1 D**\n2.14 is not a chapter\n";
    assert!(
        ["2", "2.13", "F17", "B.1"]
            .iter()
            .all(|number| has(document, number))
    );
    assert!(
        ["1", "2.1", "F1", "2.14", "13"]
            .iter()
            .all(|number| !has(document, number))
    );
}
