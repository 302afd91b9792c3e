//! The book of `make book`: every internal link leads to an existing page and anchor, and its
//! search finds a word in Chromium.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use libtest_mimic::{Failed, Trial};

use super::size::page::browser::{self, Browser};
use super::support::{Outcome, Work, ensure, missing, passed, root, test};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        test("book::every_link_leads_somewhere", links),
        test("book::the_search_finds_a_page", search),
    ]
}

fn book() -> PathBuf {
    root().join("target/book")
}

/// Reads the pages below a directory into `all`, by path.
fn pages(folder: &Path, all: &mut BTreeMap<PathBuf, String>) -> Result<(), Failed> {
    for entry in std::fs::read_dir(folder)? {
        let path = entry?.path();
        if path.is_dir() {
            pages(&path, all)?;
        } else if path.extension().is_some_and(|end| end == "html") {
            all.insert(path.clone(), std::fs::read_to_string(&path)?);
        }
    }
    Ok(())
}

/// The values of an attribute in a page.
fn values<'t>(page: &'t str, attribute: &str) -> Vec<&'t str> {
    let starts = format!(" {attribute}=\"");
    page.match_indices(&starts)
        .filter_map(|(at, found)| page[at + found.len()..].split('"').next())
        .collect()
}

fn links() -> Outcome {
    if !book().is_dir() {
        return missing("target/book (make book)");
    }
    let mut all = BTreeMap::new();
    pages(&book(), &mut all)?;
    // 404.html has links that only a server can resolve. Every page includes toc.html.
    all.retain(|path, _| !path.ends_with("404.html") && !path.ends_with("toc.html"));
    let (mut wrong, mut seen) = (Vec::new(), 0);
    for (path, page) in &all {
        for target in values(page, "href").into_iter().chain(values(page, "src")) {
            if target.contains("://") || target.starts_with("mailto:") || target.is_empty() {
                continue;
            }
            seen += 1;
            let (file, place) = target.split_once('#').unwrap_or((target, ""));
            let to = if file.is_empty() {
                path.clone()
            } else {
                path.with_file_name("").join(file)
            };
            let to = to.canonicalize().unwrap_or(to);
            let there = to.exists()
                && (place.is_empty()
                    || all
                        .get(&to)
                        .is_some_and(|page| values(page, "id").contains(&place)));
            if !there {
                wrong.push(format!("{}: {target}", path.display()));
            }
        }
    }
    ensure(seen > 500, || {
        format!("{seen} links are found: is that all?")
    })?;
    ensure(wrong.is_empty(), || {
        format!("links that lead nowhere:\n{}", wrong.join("\n"))
    })?;
    passed()
}

fn search() -> Outcome {
    if !browser::is_here() {
        return missing("chromium");
    }
    let page = book().join("index.html");
    if !page.is_file() {
        return missing("target/book (make book)");
    }
    let work = Work::new();
    let mut browser = Browser::start(&work)?;
    browser.load(&page)?;
    browser.wait("document.readyState === 'complete'")?;
    browser.key("/")?;
    browser.wait("document.activeElement.id === 'mdbook-searchbar' || document.activeElement.id === 'searchbar'")?;
    browser.write("jobserver")?;
    let results = "document.querySelectorAll('#mdbook-searchresults a, #searchresults a')";
    browser.wait(&format!("{results}.length > 0"))?;
    let found = browser.text(&format!(
        "[...{results}].map(link => link.getAttribute('href')).join(' ')"
    ))?;
    // Several pages contain the word. The page that explains it must be among the results.
    ensure(found.contains("docs/guides/memory.html"), || {
        format!("not among the results: {found}")
    })?;
    browser.picture(&root().join("target/book-search.png"))?;
    passed()
}
