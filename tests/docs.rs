//! Checks of README.md and docs/: every link leads to an existing file and heading, and every page
//! is in the book and starts with a sentence. Every block of commands names the test that runs it
//! (`tests/docs/blocks.rs` describes the form).

#![expect(
    clippy::expect_used,
    reason = "a test that cannot read the documents has failed"
)]

#[path = "docs/blocks.rs"]
mod blocks;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use blocks::blocks;

/// Directories with documents of other projects.
const NOT_OURS: [&str; 4] = [".git", "target", "node_modules", "corpus"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Markdown file below `folder`.
fn documents(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)
        .expect("a directory of the repository")
        .flatten()
    {
        let (path, name) = (entry.path(), entry.file_name());
        let kind = entry.file_type().expect("the type of an entry");
        if kind.is_dir() && !NOT_OURS.iter().any(|other| name == *other) {
            all.append(&mut documents(&path));
        } else if kind.is_file() && path.extension().is_some_and(|end| end == "md") {
            all.push(path);
        }
    }
    all
}

/// Whether a block's language is that of a shell.
fn is_commands(info: &str) -> bool {
    ["sh", "bash", "shell", "console"].contains(&info.split(' ').next().unwrap_or_default())
}

/// The documents whose commands must have a mark: README.md and the pages below docs/, except for
/// the specifications.
fn pages() -> Vec<PathBuf> {
    let docs = root().join("docs");
    let mut pages = documents(&docs);
    pages.retain(|path| !path.ends_with("SUMMARY.md") && !path.starts_with(docs.join("spec")));
    pages.push(root().join("README.md"));
    pages.sort();
    pages
}

fn read(path: &Path) -> String {
    fs::read_to_string(path).expect("a document")
}

fn fail_on(what: &str, wrong: &[String]) {
    assert!(wrong.is_empty(), "{what}:\n  {}", wrong.join("\n  "));
}

/// The document without code: lines of code blocks are empty, and code spans are removed.
fn prose(document: &str) -> String {
    let mut lines: Vec<String> = document.lines().map(str::to_owned).collect();
    for block in blocks(document) {
        let length = block.text.lines().count() + 2;
        lines
            .iter_mut()
            .skip(block.line - 1)
            .take(if block.info.is_some() { length } else { 1 })
            .for_each(String::clear);
    }
    let without_code = |line: &String| line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    lines
        .iter()
        .map(without_code)
        .collect::<Vec<_>>()
        .join("\n")
}

/// The targets of links and images in a document: `[text](target)`, `![text](target)`.
fn links(document: &str) -> Vec<String> {
    // Code spans in a link's text are harmless, because only the target after `](` counts.
    let prose = prose(document);
    let starts = prose.match_indices("](").map(|(at, _)| &prose[at + 2..]);
    starts
        .filter_map(|rest| rest.split_once(')').map(|(target, _)| target.to_owned()))
        .collect()
}

/// The anchor of a heading, as on GitHub and in mdBook: lowercase letters, digits, `-` and `_`;
/// spaces become `-`.
fn anchor(heading: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || ['-', '_'].contains(&c);
    let small = heading.to_lowercase();
    small
        .chars()
        .filter_map(|c| {
            if c.is_whitespace() {
                Some('-')
            } else {
                plain(c).then_some(c)
            }
        })
        .collect()
}

fn anchors(document: &str) -> BTreeSet<String> {
    let code: BTreeSet<usize> = blocks(document)
        .into_iter()
        .filter(|block| block.info.is_some())
        .flat_map(|block| block.line..=block.line + block.text.lines().count() + 1)
        .collect();
    let lines = document
        .lines()
        .enumerate()
        .filter(|(index, _)| !code.contains(&(index + 1)));
    let headings = lines.filter_map(|(_, line)| {
        let text = line.trim_start_matches('#');
        (text.len() < line.len())
            .then(|| text.strip_prefix(' '))
            .flatten()
            .map(|text| anchor(text.trim()))
    });
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    headings
        .map(|own| {
            let count = seen.entry(own.clone()).or_default();
            *count += 1;
            if *count == 1 {
                own
            } else {
                format!("{own}-{}", *count - 1)
            }
        })
        .collect()
}

/// A path without `..`.
fn plain(path: &Path) -> PathBuf {
    path.components().fold(PathBuf::new(), |mut whole, part| {
        if part == Component::ParentDir {
            whole.pop();
        } else {
            whole.push(part)
        }
        whole
    })
}

#[test]
fn every_link_leads_somewhere() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for path in documents(&root()) {
        let text = read(&path);
        for target in links(&text)
            .into_iter()
            .filter(|target| !target.contains("://") && !target.starts_with("mailto:"))
        {
            seen += 1;
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let to = if file.is_empty() {
                path.clone()
            } else {
                plain(&path.with_file_name("").join(file))
            };
            let found = to.exists() && to.starts_with(root());
            if !found || !heading.is_empty() && !anchors(&read(&to)).contains(heading) {
                wrong.push(format!("{}: {target}", path.display()));
            }
        }
    }
    fail_on("links that lead nowhere", &wrong);
    assert!(seen > 100, "only {seen} links were found");
}

#[test]
fn every_page_is_in_the_book() {
    let summary = root().join("docs/SUMMARY.md");
    let listed: BTreeSet<PathBuf> = links(&read(&summary))
        .iter()
        .map(|target| plain(&summary.with_file_name("").join(target)))
        .collect();
    let mut all = documents(&root().join("docs"));
    all.retain(|path| *path != summary);
    all.push(root().join("README.md"));
    fail_on(
        "not in docs/SUMMARY.md",
        &all.iter()
            .filter(|path| !listed.contains(*path))
            .map(|path| path.display().to_string())
            .collect::<Vec<_>>(),
    );
    // A link to a document must lead to a page of the book.
    let mut wrong = Vec::new();
    for path in &listed {
        for target in links(&read(path))
            .into_iter()
            .filter(|target| !target.contains("://"))
        {
            let file = target.split('#').next().unwrap_or_default();
            let to = plain(&path.with_file_name("").join(file));
            if file.ends_with(".md") && !listed.contains(&to) {
                wrong.push(format!("{}: {target}", path.display()));
            }
        }
    }
    fail_on("links to documents that are not in the book", &wrong);
}

#[test]
fn every_command_names_its_test() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for path in pages() {
        for block in blocks(&read(&path)) {
            let place = format!("{}:{}", path.display(), block.line);
            let mark = block.mark.as_deref().unwrap_or_default();
            match block.info.as_deref() {
                None => wrong.push(format!("{place}: indented block: use a fenced block")),
                Some("") => wrong.push(format!(
                    "{place}: block without a language: add sh, console, text, …"
                )),
                Some(info) if is_commands(info) => {
                    seen += 1;
                    let why = mark
                        .strip_prefix("not run: ")
                        .or(mark.strip_prefix("test: "))
                        .or(mark.strip_prefix("run: ends with "));
                    if mark != "run" && why.is_none_or(|why| why.trim().is_empty()) {
                        wrong.push(format!(
                            "{place}: commands without a mark: add `<!-- run -->`, `<!-- test: NAME -->` or `<!-- not run: WHY -->`"
                        ));
                    }
                }
                Some(_) if block.text.lines().any(|line| line.starts_with("$ ")) => {
                    wrong.push(format!(
                        "{place}: commands with output: use the language `console`"
                    ));
                }
                Some(_) => {}
            }
        }
    }
    fail_on("commands in the documents", &wrong);
    assert!(seen > 30, "only {seen} blocks of commands were found");
}

#[test]
fn every_page_starts_with_a_sentence() {
    let has_introduction = |text: &str| {
        let mut lines = text.lines();
        let title = lines.next().is_some_and(|line| line.starts_with("# "));
        let empty = lines.next().is_some_and(str::is_empty);
        title
            && empty
            && lines
                .next()
                .is_some_and(|line| line.starts_with(|c: char| c.is_alphanumeric() || c == '`'))
    };
    let without = pages()
        .into_iter()
        .filter(|path| !has_introduction(&read(path)))
        .map(|path| path.display().to_string());
    fail_on(
        "pages without a title and a sentence below it",
        &without.collect::<Vec<_>>(),
    );
}

#[test]
fn the_readme_is_short() {
    let words = read(&root().join("README.md")).split_whitespace().count();
    assert!(words < 400, "{words} words");
}

#[test]
fn the_guide_to_build_systems_agrees_with_help() {
    let topics = read(&root().join("src/cli/topics.rs")).replace("\\\"", "\"");
    let page = read(&root().join("docs/guides/build-systems.md"));
    let table = page
        .split("| you have | you add |")
        .nth(1)
        .expect("the table")
        .lines()
        .skip(2);
    let rows: Vec<Vec<&str>> = table
        .take_while(|line| line.starts_with('|'))
        .map(|line| line.split('|').collect())
        .collect();
    assert_eq!(rows.len(), 5);
    for cell in rows.iter().flat_map(|row| &row[1..3]) {
        let cell = cell.replace('`', "");
        assert!(
            topics.contains(cell.trim()),
            "`offld help link` lacks: {cell}"
        );
    }
}

/// The text of all files of src/ and of the crates.
fn sources() -> String {
    let files = ["src", "crates"]
        .iter()
        .flat_map(|folder| scripts_and_sources(&root().join(folder)));
    files
        .filter(|path| path.extension().is_some_and(|end| end == "rs"))
        .map(|path| read(&path))
        .collect()
}

#[test]
fn messages_of_the_page_about_misses_are_printed() {
    let sources = sources();
    let page = "docs/guides/not-cached.md";
    let text = read(&root().join(page));
    let in_headings = text
        .lines()
        .filter_map(|line| line.strip_prefix("### `")?.strip_suffix('`'));
    // The first cell of a row can list several messages.
    let in_tables = text
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split_once(" | "))
        .flat_map(|(cell, _)| cell.split('`').step_by(2));
    let messages: Vec<&str> = in_headings.chain(in_tables).collect();
    // `…` stands for a variable part of the message. Messages about changes consist of the changed
    // part and "has changed".
    let change = " has changed";
    let has = |part: &str| sources.contains(part.trim());
    let is_printed = |message: &str| {
        let mut parts = message.split('…');
        parts.all(|part| {
            has(part)
                || part
                    .strip_suffix(change)
                    .is_some_and(|subject| has(subject) && has(change))
        })
    };
    let unknown = messages
        .iter()
        .filter(|message| !is_printed(message))
        .map(|message| format!("{page}: {message}"));
    fail_on("offld prints no such message", &unknown.collect::<Vec<_>>());
    assert!(
        messages.len() > 25,
        "only {} messages were found",
        messages.len()
    );
}

#[test]
fn the_environment_page_has_every_variable() {
    let source = read(&root().join("src/cli/environment.rs"));
    let rows = source
        .split("row(")
        .skip(1)
        .filter_map(|rest| rest.trim_start().strip_prefix('"')?.split('"').next());
    let page = read(&root().join("docs/reference/environment.md"));
    let missing: Vec<String> = rows
        .clone()
        .filter(|name| !page.contains(&format!("| `{name}` |")))
        .map(str::to_owned)
        .collect();
    fail_on("not in docs/reference/environment.md", &missing);
    assert!(rows.count() > 40, "too few variables were found");
}

#[test]
fn examples_of_json_have_the_current_version() {
    let page = read(&root().join("docs/reference/json.md"));
    let versions = [r#""generator": "offld "#, r#""offld": ""#].map(|start| {
        let found = page
            .split(start)
            .skip(1)
            .filter_map(|rest| rest.split('"').next());
        found.collect::<Vec<_>>()
    });
    for found in versions {
        assert!(!found.is_empty(), "the page has no examples");
        for version in found {
            assert_eq!(version, env!("CARGO_PKG_VERSION"));
        }
    }
}

/// A relative path would have a different meaning in every directory of a build.
#[test]
fn build_logs_have_absolute_paths() {
    const VARIABLE: &str = "OFFLD_CACHE_LOG=";
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for path in pages() {
        let text = read(&path);
        let commands = blocks(&text)
            .into_iter()
            .filter(|block| block.info.as_deref().is_some_and(is_commands));
        for block in commands {
            for value in block.text.split(VARIABLE).skip(1) {
                seen += 1;
                if !["$PWD/", "/", "\"$PWD/"]
                    .iter()
                    .any(|start| value.starts_with(start))
                {
                    let value = value.split_whitespace().next().unwrap_or_default();
                    wrong.push(format!(
                        "{}:{}: {VARIABLE}{value}",
                        path.display(),
                        block.line
                    ));
                }
            }
        }
    }
    fail_on("logs with relative paths", &wrong);
    assert!(seen > 0, "no log was found");
}

#[test]
fn documents_are_parsed() {
    let text = "# A b\n\n[x](y.md#z) `[n](o)`\n\n<!-- run -->\n```sh\n# not a heading\n[n](o)\n```\n\n    indented\n    more\n\n## `c`: D-e, f\n\n* list\n\n    of it\n";
    assert_eq!(links(text), ["y.md#z"]);
    assert_eq!(
        anchors(text).into_iter().collect::<Vec<_>>(),
        ["a-b", "c-d-e-f"]
    );
    let found = blocks(text);
    let shown: Vec<_> = found
        .iter()
        .map(|block| (block.line, block.info.as_deref(), block.mark.as_deref()))
        .collect();
    assert_eq!(shown, [(6, Some("sh"), Some("run")), (11, None, None)]);
    assert_eq!(found[0].text, "# not a heading\n[n](o)\n");
    assert_eq!(plain(Path::new("/a/b/../c.md")), Path::new("/a/c.md"));
}

/// The retired words of the glossary.
fn retired() -> Vec<String> {
    let page = read(&root().join("docs/reference/glossary.md"));
    let (_, table) = page.split_once("## Retired words").expect("the section");
    let cells = table
        .lines()
        .filter_map(|line| line.strip_prefix("| `")?.split(" |").next());
    cells
        .flat_map(|cell| {
            cell.split('`')
                .step_by(2)
                .map(str::to_owned)
                .collect::<Vec<_>>()
        })
        .filter(|word| !word.contains(','))
        .collect()
}

/// Every source file and script below `folder`.
fn scripts_and_sources(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder)
        .expect("a directory of the repository")
        .flatten()
    {
        let path = entry.path();
        if path.is_dir() {
            all.append(&mut scripts_and_sources(&path));
        } else if path
            .extension()
            .is_some_and(|end| end == "rs" || end == "sh" || end == "py")
        {
            all.push(path);
        }
    }
    all
}

/// The comments of a source file: the lines that begin with `//` or `#`, without code in backticks.
fn comments(text: &str) -> String {
    let comment = |line: &str| {
        let line = line.trim_start();
        let is_comment = line.starts_with("//")
            || line.starts_with('#') && !line.starts_with("#[") && !line.starts_with("#!");
        if is_comment {
            line.split('`').step_by(2).collect::<Vec<_>>().join(" ")
        } else {
            String::new()
        }
    };
    text.lines().map(comment).collect::<Vec<_>>().join("\n")
}

#[test]
fn retired_words_do_not_come_back() {
    let words = retired();
    assert!(words.len() > 8, "{words:?}");
    let mut texts: Vec<(PathBuf, String)> = Vec::new();
    let specifications = root().join("docs/spec");
    for path in documents(&root())
        .into_iter()
        .filter(|path| !path.starts_with(&specifications))
    {
        let text = prose(&read(&path));
        // The glossary's table has them in code font only.
        texts.push((path, text));
    }
    for folder in [
        "src",
        "crates",
        "benches",
        "scripts",
        "packaging",
        "fuzz/fuzz_targets",
    ] {
        for path in scripts_and_sources(&root().join(folder)) {
            let text = comments(&read(&path));
            texts.push((path, text));
        }
    }
    for case in ["help", "help-200", "topics", "check", "inspect"] {
        let path = root().join(format!("tests/cases/offld/{case}.case"));
        let text = read(&path);
        texts.push((path, text));
    }
    assert!(
        texts.len() > 400,
        "{} texts are found: is that all?",
        texts.len()
    );
    let mut wrong = Vec::new();
    for (path, text) in &texts {
        for (number, line) in text.lines().enumerate() {
            if line.starts_with("<!--") {
                continue;
            }
            let spaced: String = line
                .to_lowercase()
                .chars()
                .map(|c| if c.is_alphanumeric() { c } else { ' ' })
                .collect();
            let spaced = format!(
                " {} ",
                spaced
                    .split(' ')
                    .filter(|part| !part.is_empty())
                    .collect::<Vec<_>>()
                    .join(" ")
            );
            for word in words
                .iter()
                .filter(|word| spaced.contains(&format!(" {word} ")))
            {
                wrong.push(format!(
                    "{}:{}: {word}: {}",
                    path.display(),
                    number + 1,
                    line.trim()
                ));
            }
        }
    }
    fail_on("retired words (docs/reference/glossary.md)", &wrong);
}
