//! A page that compares two files: grown, shrunken, added and removed items, with colours, signs
//! and words.

use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::browser::Browser;
use super::page::PageRow;
use super::{in_chromium, kernel, written};
use crate::support::{Work, ensure, expect_equal};

pub(super) fn trials() -> Vec<Trial> {
    vec![in_chromium("changes_have_signs_and_words", changes)]
}

fn with_old_size(row: PageRow, old: u64) -> PageRow {
    PageRow {
        old_file: Some(old),
        old_inflated: Some(2 * old),
        ..row
    }
}

fn rows() -> Vec<PageRow> {
    vec![
        with_old_size(
            kernel("gfx90a", "a.cu", "grown", "code", 300 << 10),
            200 << 10,
        ),
        with_old_size(
            kernel("gfx90a", "a.cu", "shrunk", "code", 100 << 10),
            150 << 10,
        ),
        with_old_size(
            kernel("gfx90a", "a.cu", "same", "code", 500 << 10),
            500 << 10,
        ),
        with_old_size(kernel("gfx90a", "b.cu", "gone", "code", 0), 80 << 10),
        kernel("sm_90", "a.cu", "fresh", "code", 120 << 10),
    ]
}

fn changes(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    browser.open(&written(work, "libnew.so", true, &rows())?)?;
    let table = "[...document.querySelectorAll('#body tr')].map(at => at.className + ' ' + at.querySelector('.name').textContent + ': ' \
        + at.querySelector('td.change, td:nth-last-child(2)').textContent).join('\\n')";
    let expected = "came fresh: ✚ +120K, new\n\
        grew grown: ▲ +100K (+50%)\n\
        same same: unchanged\n\
        shrank shrunk: ▼ −50.0K (−33%)\n\
        went gone: ✖ −80.0K, gone";
    expect_equal("the table", expected, &browser.text(table)?)?;
    let totals = browser.text("document.querySelector('#totals').textContent")?;
    ensure(totals.contains("▲ +90.0K (+9.7%)"), || totals.clone())?;
    browser.click("button.tile[aria-label^='gfx90a']", true)?;
    browser.click("button.tile[aria-label^='a.cu']", true)?;
    let tile = |name: &str, what: &str| {
        format!(
            "getComputedStyle(document.querySelector(\"button.tile[aria-label^='{name},']\")).{what}"
        )
    };
    let mut colours = Vec::new();
    for name in ["grown", "shrunk", "same"] {
        colours.push(browser.text(&tile(name, "backgroundColor"))?);
    }
    ensure(
        colours[0] != colours[1] && colours[1] != colours[2] && colours[0] != colours[2],
        || format!("{colours:?}"),
    )?;
    expect_equal(
        "label",
        "grown, 300K, 29% of all, +100K (+50%)",
        &browser.text("document.querySelector('button.tile.grew').ariaLabel")?,
    )?;
    // With the area by change, unchanged items have no tile.
    browser.click("#area label:nth-of-type(2)", false)?;
    let names = "[...document.querySelectorAll('button.tile')].map(at => at.ariaLabel.split(', ')[0]).join(' | ')";
    expect_equal("tiles by change", "grown | shrunk", &browser.text(names)?)?;
    // A removed item keeps its old area.
    browser.key("Escape")?;
    browser.click("#area label:nth-of-type(1)", false)?;
    let removed_label = "document.querySelector('button.tile.went').ariaLabel";
    expect_equal(
        "gone",
        "b.cu, 0, 0.0% of all, −80.0K, gone, 1 inside",
        &browser.text(removed_label)?,
    )?;
    let dashed = browser
        .text("getComputedStyle(document.querySelector('button.tile.went')).borderTopStyle")?;
    expect_equal("the border of what is gone", "dashed", &dashed)?;
    ensure(
        browser.eval("document.querySelector('#legend').textContent")?
            == json!("▲ grew▼ shrank✚ new✖ goneunchanged"),
        || "the legend",
    )
}
