//! What comments refer to can be looked up: every `docs/spec/FILE.md N` is a chapter or a row of that file, and every other path below
//! `docs/` is a file; so is every path of a source below `tests/`.

#![expect(clippy::expect_used, reason = "a test that cannot read the sources has failed")]

use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// The Rust sources below `folder`.
fn sources(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the repository").flatten() {
        let path = entry.path();
        if path.is_dir() {
            all.append(&mut sources(&path));
        } else if path.extension().is_some_and(|end| end == "rs") {
            all.push(path);
        }
    }
    all
}

/// The files below `docs/` that `text` names, each with the number that follows it, if one does: `2.13`, `F17`, `B.1`. A name that the
/// end of a line cuts off from its number is one without.
fn references(text: &str) -> Vec<(&str, &str)> {
    let end_of = |text: &str, ends: fn(char) -> bool| text.find(ends).unwrap_or(text.len());
    let each = text.match_indices("docs/").map(|(at, _)| &text[at..]);
    each.filter_map(|text| {
        let path = &text[..text.find(".md")? + ".md".len()];
        let rest = text[path.len()..].strip_prefix(' ').unwrap_or_default();
        let number = rest[..end_of(rest, |c| !c.is_ascii_alphanumeric() && c != '.')].trim_end_matches('.');
        let plain = path.chars().all(|c| c.is_ascii_alphanumeric() || "/-_.".contains(c));
        let is_number = number.contains(|c: char| c.is_ascii_digit());
        plain.then_some((path, if is_number { number } else { "" }))
    })
    .collect()
}

/// Whether `document` has a chapter or a row of this number.
fn has(document: &str, number: &str) -> bool {
    document.lines().any(|line| {
        let words = line.trim_start_matches(['#', '|', '*', ' ']);
        let begins = ["#", "|", "**"].iter().any(|start| line.starts_with(start));
        let rest = words.strip_prefix(number).map(|rest| rest.trim_start_matches('.'));
        begins && rest.is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '*']))
    })
}

#[test]
fn what_comments_refer_to_is_there() {
    let mut seen = 0;
    let mut wrong = Vec::new();
    for path in ["src", "tests"].iter().flat_map(|folder| sources(&root().join(folder))) {
        if path.ends_with(file!()) {
            continue;
        }
        let text = fs::read_to_string(&path).expect("a source");
        for (document, number) in references(&text) {
            seen += 1;
            let there = fs::read_to_string(root().join(document)).is_ok_and(|text| number.is_empty() || has(&text, number));
            if !there {
                wrong.push(format!("{}: {document} {number}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "nobody can look up:\n  {}", wrong.join("\n  "));
    assert!(seen > 50, "{seen} references are found: is that all?");
}

/// The sources below `tests/` that `text` names.
fn tests(text: &str) -> Vec<&str> {
    let is_path = |c: char| c.is_ascii_alphanumeric() || "/-_.".contains(c);
    let starts = text.match_indices("tests/").filter(|(at, _)| !text[..*at].ends_with(is_path)).map(|(at, _)| &text[at..]);
    let paths = starts.map(|rest| &rest[..rest.find(|c| !is_path(c)).unwrap_or(rest.len())]);
    paths.map(|path| path.trim_end_matches('.')).filter(|path| path.ends_with(".rs")).collect()
}

#[test]
fn tests_that_are_named_are_there() {
    assert_eq!(tests("`tests/a.rs`, tests/b-c/d.rs. src/tests/no.rs tests/folder"), ["tests/a.rs", "tests/b-c/d.rs"]);
    let (mut seen, mut wrong) = (0, Vec::new());
    for path in ["src", "tests"].iter().flat_map(|folder| sources(&root().join(folder))).filter(|path| !path.ends_with(file!())) {
        for named in tests(&fs::read_to_string(&path).expect("a source")) {
            seen += 1;
            if !root().join(named).is_file() {
                wrong.push(format!("{}: {named}", path.display()));
            }
        }
    }
    assert!(wrong.is_empty(), "nobody can look up:\n  {}", wrong.join("\n  "));
    assert!(seen > 2, "{seen} references are found: is that all?");
}

#[test]
fn references_are_read() {
    let text =
        "//! As docs/spec/a-b.md 2.13. Or (docs/spec/faults.md F17, B3), docs/x.md. And docs/spec/a.md B.1: so; docs/spec/a.md";
    let found = [
        ("docs/spec/a-b.md", "2.13"),
        ("docs/spec/faults.md", "F17"),
        ("docs/x.md", ""),
        ("docs/spec/a.md", "B.1"),
        ("docs/spec/a.md", ""),
    ];
    assert_eq!(references(text), found);
    let document = "## 2. A\n### 2.13 B\n| F17 | c |\n**B.1 D**\n2.14 is not a chapter\n";
    assert!(["2", "2.13", "F17", "B.1"].iter().all(|number| has(document, number)));
    assert!(["1", "2.1", "F1", "2.14", "13"].iter().all(|number| !has(document, number)));
}
