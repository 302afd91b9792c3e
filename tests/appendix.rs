//! Every promise of LLVM's documents has a test with its name (docs/spec/containers.md, Appendix A:
//! OB, PK, WR, OD). So has every fault of LLVM's tools that offld must not have
//! (docs/spec/faults.md: B, P, W). Examples: `ob_12_comma_lists`, `containers::b13 …`,
//! `cases/…/wr-06-….case`.

#![expect(
    clippy::expect_used,
    reason = "a test that cannot read the sources has failed"
)]

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// The prefixes of the rows, and the number of rows with each.
const ROWS: [(&str, u32); 7] = [
    ("ob", 62),
    ("pk", 17),
    ("wr", 23),
    ("od", 14),
    ("b", 24),
    ("p", 9),
    ("w", 3),
];

/// Rows that concern no tool: metadata that compilers write for compilers.
const NO_TOOLS: [Row; 1] = [("od", 4)];

type Row = (&'static str, u32);

#[test]
fn every_row_has_a_test_by_its_name() {
    let mut named: BTreeSet<Row> = BTreeSet::new();
    let this = root().join(file!());
    for path in files(&root().join("src"))
        .into_iter()
        .chain(files(&root().join("crates")))
        .chain(files(&root().join("tests")))
        .filter(|path| *path != this)
    {
        named.extend(
            match path.extension().and_then(|extension| extension.to_str()) {
                Some("rs") => rows_of_source(&fs::read_to_string(&path).expect("a source")),
                Some("case") => rows_of(&path.file_stem().unwrap_or_default().to_string_lossy()),
                _ => BTreeSet::new(),
            },
        );
    }
    let all = ROWS
        .iter()
        .flat_map(|(letters, count)| (1..=*count).map(move |number| (*letters, number)));
    let missing: Vec<String> = all
        .filter(|row| !named.contains(row) && !NO_TOOLS.contains(row))
        .map(|(letters, number)| show(letters, number))
        .collect();
    assert!(
        missing.is_empty(),
        "{} rows have no test by their name: {}",
        missing.len(),
        missing.join(" ")
    );
}

fn show(letters: &str, number: u32) -> String {
    if letters.len() == 1 {
        format!("{}{number}", letters.to_uppercase())
    } else {
        format!("{}-{number:02}", letters.to_uppercase())
    }
}

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

fn files(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)
        .expect("a folder")
        .map(|entry| entry.expect("an entry").path())
    {
        if entry.is_dir() {
            all.append(&mut files(&entry))
        } else {
            all.push(entry)
        }
    }
    all
}

/// The rows in a source's test names: functions after `#[test]`, and names of trials, which are
/// string literals. In a literal, rows count only at its start or after `::`, because file names
/// look like rows.
fn rows_of_source(text: &str) -> BTreeSet<Row> {
    let mut rows = BTreeSet::new();
    for after in text.split("#[test]").skip(1) {
        let name = after
            .split_once("fn ")
            .map(|(_, rest)| rest.split('(').next().unwrap_or_default());
        rows.extend(rows_of(name.unwrap_or_default()));
    }
    let code = text
        .lines()
        .map(|line| line.split("// ").next().unwrap_or_default());
    for literal in code.flat_map(|line| line.split('"').skip(1).step_by(2)) {
        rows.extend(leading_rows(
            literal.rsplit("::").next().unwrap_or_default(),
        ));
    }
    rows
}

fn words(name: &str) -> Vec<String> {
    name.split(|c: char| !c.is_ascii_alphanumeric())
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// The row at the start of `words`, and the number of words in it.
fn row_at(words: &[String]) -> Option<(Row, usize)> {
    let first = words.first()?;
    ROWS.iter().find_map(|(letters, count)| {
        let joined = first
            .strip_prefix(letters)
            .filter(|digits| !digits.is_empty() && digits.bytes().all(|b| b.is_ascii_digit()));
        let apart = (first == letters && letters.len() == 2)
            .then(|| words.get(1))
            .flatten()
            .map(String::as_str);
        let number: u32 = joined.or(apart)?.parse().ok()?;
        (1..=*count)
            .contains(&number)
            .then_some(((*letters, number), if joined.is_some() { 1 } else { 2 }))
    })
}

/// The rows anywhere in a name.
fn rows_of(name: &str) -> BTreeSet<Row> {
    let words = words(name);
    (0..words.len())
        .filter_map(|at| row_at(&words[at..]))
        .map(|(row, _)| row)
        .collect()
}

/// The rows at the start of a name that has more words after them. Numbers of decisions (`q14`) may
/// precede the rows.
fn leading_rows(name: &str) -> BTreeSet<Row> {
    let words = words(name);
    let is_decision = |word: &&String| {
        word.strip_prefix('q')
            .is_some_and(|number| number.parse::<u32>().is_ok())
    };
    let (mut rows, mut at) = (
        BTreeSet::new(),
        words.iter().take_while(is_decision).count(),
    );
    while let Some((row, taken)) = row_at(&words[at..]) {
        rows.insert(row);
        at += taken;
    }
    if at < words.len() {
        rows
    } else {
        BTreeSet::new()
    }
}

#[test]
fn rows_are_found_in_names() {
    let rows = |text: &str| rows_of_source(text).into_iter().collect::<Vec<_>>();
    assert_eq!(
        rows("#[test]\n#[cfg(x)]\nfn ob_09_ob_11_b13_lists() {}"),
        [("b", 13), ("ob", 9), ("ob", 11)]
    );
    assert_eq!(
        rows("trial(\"containers::wr_06 pairs by position\", w1)"),
        [("wr", 6)]
    );
    assert_eq!(
        rows(
            "trial(\"p3_nothing_matches\", x); open(\"p1\"); run(\"-o b2.o\"); // \"b4_not_this\""
        ),
        [("p", 3)]
    );
    assert_eq!(
        rows("trial(\"wrapper::q14_wr_15_survives\", x)"),
        [("wr", 15)]
    );
    assert_eq!(
        rows_of("ob-12-comma").into_iter().collect::<Vec<_>>(),
        [("ob", 12)]
    );
    assert!(rows("fn ob_12_a_helper() {}").is_empty() && rows_of("ob-63-b25-p0").is_empty());
}
