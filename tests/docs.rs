//! README.md and docs/: every link of a document leads to a file and a heading that are there, every page is in the book and begins by saying
//! what it is for, and every block of commands says who runs it (`tests/docs/blocks.rs` has the form).

#![expect(clippy::expect_used, reason = "a test that cannot read the documents has failed")]

#[path = "docs/blocks.rs"]
mod blocks;

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Component, Path, PathBuf};

use blocks::blocks;

/// Folders whose documents are not the project's.
const NOT_OURS: [&str; 4] = [".git", "target", "node_modules", "corpus"];

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Markdown file below `folder`.
fn documents(folder: &Path) -> Vec<PathBuf> {
    let mut all = Vec::new();
    for entry in fs::read_dir(folder).expect("a folder of the repository").flatten() {
        let (path, name) = (entry.path(), entry.file_name());
        let kind = entry.file_type().expect("what an entry is");
        if kind.is_dir() && !NOT_OURS.iter().any(|other| name == *other) {
            all.append(&mut documents(&path));
        } else if kind.is_file() && path.extension().is_some_and(|end| end == "md") {
            all.push(path);
        }
    }
    all
}

/// Whether a language is one of commands.
fn is_commands(info: &str) -> bool {
    ["sh", "bash", "shell", "console"].contains(&info.split(' ').next().unwrap_or_default())
}

/// The documents whose commands must say who runs them: README.md and the pages of docs/.
fn pages() -> Vec<PathBuf> {
    let pages = fs::read_dir(root().join("docs")).expect("docs/").flatten().map(|entry| entry.path());
    let mut pages: Vec<PathBuf> = pages.filter(|path| path.extension().is_some_and(|end| end == "md")).collect();
    pages.retain(|path| !path.ends_with("SUMMARY.md"));
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

/// The document without what is code, whose lines are empty then, and whose code within lines is gone.
fn prose(document: &str) -> String {
    let mut lines: Vec<String> = document.lines().map(str::to_owned).collect();
    for block in blocks(document) {
        let length = block.text.lines().count() + 2;
        lines.iter_mut().skip(block.line - 1).take(if block.info.is_some() { length } else { 1 }).for_each(String::clear);
    }
    let without_code = |line: &String| line.split('`').step_by(2).collect::<Vec<_>>().join(" ");
    lines.iter().map(without_code).collect::<Vec<_>>().join("\n")
}

/// The targets of the links and pictures of a document: `[text](target)`, `![text](target)`.
fn links(document: &str) -> Vec<String> {
    // Code within a link's text is no trouble: only what is between the brackets' end and the parenthesis counts.
    let prose = prose(document);
    let starts = prose.match_indices("](").map(|(at, _)| &prose[at + 2..]);
    starts.filter_map(|rest| rest.split_once(')').map(|(target, _)| target.to_owned())).collect()
}

/// What headings are linked by, as GitHub and mdBook make it: small letters, digits, `-` and `_`; spaces are `-`.
fn anchor(heading: &str) -> String {
    let plain = |c: char| c.is_alphanumeric() || ['-', '_'].contains(&c);
    let small = heading.to_lowercase();
    small.chars().filter_map(|c| if c.is_whitespace() { Some('-') } else { plain(c).then_some(c) }).collect()
}

fn anchors(document: &str) -> BTreeSet<String> {
    let code: BTreeSet<usize> = blocks(document)
        .into_iter()
        .filter(|block| block.info.is_some())
        .flat_map(|block| block.line..=block.line + block.text.lines().count() + 1)
        .collect();
    let lines = document.lines().enumerate().filter(|(index, _)| !code.contains(&(index + 1)));
    let headings = lines.filter_map(|(_, line)| {
        let text = line.trim_start_matches('#');
        (text.len() < line.len()).then(|| text.strip_prefix(' ')).flatten().map(|text| anchor(text.trim()))
    });
    let mut seen: BTreeMap<String, usize> = BTreeMap::new();
    headings
        .map(|own| {
            let count = seen.entry(own.clone()).or_default();
            *count += 1;
            if *count == 1 { own } else { format!("{own}-{}", *count - 1) }
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
        for target in links(&text).into_iter().filter(|target| !target.contains("://") && !target.starts_with("mailto:")) {
            seen += 1;
            let (file, heading) = target.split_once('#').unwrap_or((&target, ""));
            let to = if file.is_empty() { path.clone() } else { plain(&path.with_file_name("").join(file)) };
            let found = to.exists() && to.starts_with(root());
            if !found || !heading.is_empty() && !anchors(&read(&to)).contains(heading) {
                wrong.push(format!("{}: {target}", path.display()));
            }
        }
    }
    fail_on("links that lead nowhere", &wrong);
    assert!(seen > 100, "{seen} links are found: is that all?");
}

#[test]
fn every_page_is_in_the_book() {
    let summary = root().join("docs/SUMMARY.md");
    let listed: BTreeSet<PathBuf> =
        links(&read(&summary)).iter().map(|target| plain(&summary.with_file_name("").join(target))).collect();
    let mut all = documents(&root().join("docs"));
    all.retain(|path| *path != summary);
    all.push(root().join("README.md"));
    fail_on(
        "not in docs/SUMMARY.md",
        &all.iter().filter(|path| !listed.contains(*path)).map(|path| path.display().to_string()).collect::<Vec<_>>(),
    );
    // In the book a link to a document is one to a page of it.
    let mut wrong = Vec::new();
    for path in &listed {
        for target in links(&read(path)).into_iter().filter(|target| !target.contains("://")) {
            let file = target.split('#').next().unwrap_or_default();
            let to = plain(&path.with_file_name("").join(file));
            if file.ends_with(".md") && !listed.contains(&to) {
                wrong.push(format!("{}: {target}", path.display()));
            }
        }
    }
    fail_on("links of the book to documents that are not in it", &wrong);
}

#[test]
fn every_command_says_who_runs_it() {
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for path in pages() {
        for block in blocks(&read(&path)) {
            let place = format!("{}:{}", path.display(), block.line);
            let mark = block.mark.as_deref().unwrap_or_default();
            match block.info.as_deref() {
                None => wrong.push(format!("{place}: an indented block; put a fence around it")),
                Some("") => wrong.push(format!("{place}: a block without a language: sh, console, text, …")),
                Some(info) if is_commands(info) => {
                    seen += 1;
                    let why =
                        mark.strip_prefix("not run: ").or(mark.strip_prefix("test: ")).or(mark.strip_prefix("run: ends with "));
                    if mark != "run" && why.is_none_or(|why| why.trim().is_empty()) {
                        wrong.push(format!(
                            "{place}: who runs this? `<!-- run -->`, `<!-- test: NAME -->` or `<!-- not run: WHY -->`"
                        ));
                    }
                }
                Some(_) if block.text.lines().any(|line| line.starts_with("$ ")) => {
                    wrong.push(format!("{place}: commands with what they print are `console`"));
                }
                Some(_) => {}
            }
        }
    }
    fail_on("commands in the documents", &wrong);
    assert!(seen > 30, "{seen} blocks of commands are found: is that all?");
}

#[test]
fn every_page_begins_by_saying_what_it_is_for() {
    let says = |text: &str| {
        let mut lines = text.lines();
        let title = lines.next().is_some_and(|line| line.starts_with("# "));
        let empty = lines.next().is_some_and(str::is_empty);
        title && empty && lines.next().is_some_and(|line| line.starts_with(|c: char| c.is_alphanumeric() || c == '`'))
    };
    let silent = pages().into_iter().filter(|path| !says(&read(path))).map(|path| path.display().to_string());
    fail_on("no title with a sentence below it", &silent.collect::<Vec<_>>());
}

#[test]
fn the_readme_has_two_screens_and_what_help_says() {
    let readme = read(&root().join("README.md"));
    assert!(readme.lines().count() <= 110, "{} lines", readme.lines().count());
    // What `offld help link` says of each way is what the table says.
    let topics = read(&root().join("src/cli/topics.rs")).replace("\\\"", "\"");
    for page in ["README.md", "docs/use.md"] {
        let text = read(&root().join(page));
        let table = text.split("| you have | you add |").nth(1).expect("the table").lines().skip(2);
        let rows: Vec<Vec<&str>> = table.take_while(|line| line.starts_with('|')).map(|line| line.split('|').collect()).collect();
        assert_eq!(rows.len(), 5, "{page}");
        for cell in rows.iter().flat_map(|row| &row[1..3]) {
            // The page may say more of it, after a colon.
            let cell = cell.replace('`', "");
            let said = cell.split(": ").next().unwrap_or_default().trim();
            assert!(topics.contains(said), "{page}: `offld help link` does not say: {said}");
        }
    }
}

#[test]
fn documents_are_read() {
    let text = "# A b\n\n[x](y.md#z) `[n](o)`\n\n<!-- run -->\n```sh\n# not a heading\n[n](o)\n```\n\n    indented\n    more\n\n## `c`: D-e, f\n\n* list\n\n    of it\n";
    assert_eq!(links(text), ["y.md#z"]);
    assert_eq!(anchors(text).into_iter().collect::<Vec<_>>(), ["a-b", "c-d-e-f"]);
    let found = blocks(text);
    let shown: Vec<_> = found.iter().map(|block| (block.line, block.info.as_deref(), block.mark.as_deref())).collect();
    assert_eq!(shown, [(6, Some("sh"), Some("run")), (11, None, None)]);
    assert_eq!(found[0].text, "# not a heading\n[n](o)\n");
    assert_eq!(plain(Path::new("/a/b/../c.md")), Path::new("/a/c.md"));
}
