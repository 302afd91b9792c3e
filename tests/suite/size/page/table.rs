//! The table: search, sorting, and grouping by architecture, translation unit, template or part.
//! Also the page that compares two files.

use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::browser::Browser;
use super::{in_chromium, kernel, rows, small, written};
use crate::support::{Work, ensure, expect_equal, expect_in, expect_not_in};
use offload_files::size::page::PageRow;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        in_chromium("the_table_is_searched_and_sorted", search_and_sort),
        in_chromium("the_table_sums_up_to_the_file", sums),
        in_chromium("the_table_shows_the_first_rows_and_more", show_more),
        in_chromium("hostile_names_stay_text", hostile),
        in_chromium("without_scripts_there_are_tables", without_scripts),
        in_chromium("changes_have_signs_and_words", changes),
    ]
}

/// The names in the table, from top to bottom.
const NAMES: &str =
    "[...document.querySelectorAll('#body .name')].map(at => at.textContent).join(' | ')";
const COUNT: &str = "document.querySelector('#count').textContent";
const SUM: &str = "document.querySelector('#foot td.number').textContent";

fn expect(browser: &mut Browser, expression: &str, expected: &str) -> Result<(), Failed> {
    let actual = browser.text(expression)?;
    expect_equal(expression, expected, &actual)
}

/// The sorted column and its direction.
const SORTED: &str = "[...document.querySelectorAll('#head th')].filter(at => at.ariaSort !== 'none')\
    .map(at => at.querySelector('button').dataset.key + ' ' + at.ariaSort).join()";

fn search_and_sort(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    browser.open(&written(work, "libsmall.so", false, &small())?)?;
    expect(browser, SORTED, "file descending")?;
    expect(
        browser,
        NAMES,
        "scale<float> | scale<float> | sum | scale<double> | lonely | no kernel",
    )?;
    browser.click("#head button[data-key=name]", false)?;
    expect(browser, SORTED, "name ascending")?;
    expect(
        browser,
        NAMES,
        "lonely | scale<double> | scale<float> | scale<float> | sum | no kernel",
    )?;
    // The focus stays on the title, so a key sorts too.
    browser.key("Enter")?;
    expect(browser, SORTED, "name descending")?;
    // All search terms must match, in any column and any case.
    browser.click("#search", false)?;
    browser.write("SCALE gfx")?;
    browser.wait(&format!("{COUNT} === '2 rows found'"))?;
    expect(browser, NAMES, "scale<float> | scale<double>")?;
    expect(browser, SUM, "684K")?;
    // Tiles without a match are dimmed in the treemap.
    let dim = "[...document.querySelectorAll('button.tile.dim')].map(at => at.ariaLabel.split(', ')[0]).join(' | ')";
    expect(browser, dim, "sm_80 | host | containers")?;
    browser.write(" nothing-like-it")?;
    browser.wait(&format!("{COUNT} === '0 rows found'"))?;
    browser.eval("document.querySelector('#search').select()")?;
    browser.key("Backspace")?;
    browser.wait(&format!("{COUNT} === '6 rows'"))?;
    expect(browser, dim, "")?;
    // A click on a name opens its location in the treemap.
    browser.eval("[...document.querySelectorAll('#body .name')].find(at => at.textContent === 'sum').id = 'sum'")?;
    browser.click("#sum", false)?;
    expect(
        browser,
        "[...document.querySelectorAll('#crumbs button')].map(at => at.title).join(' > ')",
        "libsmall.so > gfx90a > sum.cu",
    )?;
    expect_in(
        &browser.text("document.querySelector('#caption').textContent")?,
        "Sizes in sum.cu",
    )
}

/// However the rows are grouped, they add up to all bytes.
fn sums(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    browser.open(&written(work, "libsmall.so", false, &small())?)?;
    let by = [
        ("arch", "gfx90a | sm_80 | host | containers"),
        (
            "unit",
            "scale.cu | code | scale.cu | sum.cu | unit unknown | padding | headers",
        ),
        ("template", "scale | scale | sum | lonely | no kernel"),
        (
            "all",
            "scale<float> | code | scale<float> | sum | scale<double> | lonely | scale<float> | padding | headers",
        ),
        ("part", "code | debug | padding | headers"),
    ];
    for (level, expected) in by {
        let choose = "(() => { const at = document.querySelector('#rows'); at.value = '{}'; at.dispatchEvent(new Event('change')); })()";
        browser.eval(&choose.replace("{}", level))?;
        expect(browser, NAMES, expected)?;
        expect(browser, SUM, "1.91M")?;
    }
    expect(
        browser,
        "document.querySelector('#body td.number').textContent",
        "1.72M",
    )
}

fn show_more(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    browser.open(&written(
        work,
        "liblarge.so",
        false,
        &rows::library(6_000, 300 << 20, false),
    )?)?;
    expect_in(&browser.text(COUNT)?, "the first 500 of 6,0")?;
    let rows = "String(document.querySelectorAll('#body tr').length)";
    expect(browser, rows, "500")?;
    browser.click("#more", false)?;
    expect(browser, rows, "1000")?;
    let focused =
        "[...document.querySelectorAll('#body tr')].indexOf(document.activeElement.closest('tr'))";
    ensure(
        browser.eval(focused)? == json!(500),
        || "the focus is not on the first of the new rows",
    )?;
    browser.click("#search", false)?;
    browser.write("flash_bwd sm_90a")?;
    browser.wait(&format!("/^[0-9]+ rows found$/.test({COUNT})"))?;
    ensure(
        browser.eval("document.querySelector('#more').hidden")? == json!(true),
        || "more rows are offered than there are",
    )
}

fn hostile(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    let name = "</script><img src=x onerror=\"alert(1)\"><b>'\u{2028}\u{202e}${alert(2)}";
    let rows = [
        kernel(
            "<i>gfx90a</i>",
            "</style><img src=y>",
            name,
            "<u>code</u>",
            10,
        ),
        kernel("sm_80", "a", name, "code", 20),
    ];
    browser.open(&written(work, name, false, &rows)?)?;
    expect(
        browser,
        "document.querySelector('#title').textContent",
        name,
    )?;
    for _ in 0..4 {
        browser.click("button.tile", true)?;
        for selector in ["img", "b", "i", "u"] {
            let count = browser.eval(&format!("document.querySelectorAll('{selector}').length"))?;
            ensure(count == json!(0), || {
                format!("a name has become an element: {selector}")
            })?;
        }
    }
    browser.eval("document.querySelector('#crumbs button').click()")?;
    expect_in(&browser.text(NAMES)?, name)?;
    let style = browser.text("document.querySelector('meta[http-equiv]').content")?;
    expect_in(&style, "default-src 'none'")?;
    expect_not_in(&style, "unsafe")
}

fn without_scripts(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    browser.scripts(false)?;
    browser.load(&written(work, "libsmall.so", false, &small())?)?;
    browser.wait(
        "document.readyState === 'complete' && document.querySelector('noscript') !== null",
    )?;
    let text = browser.text("document.body.innerText")?;
    for part in [
        "2000000 bytes in the file, ",
        "need JavaScript",
        "gfx90a\t1050000\t2100000",
        "scale<float>\tgfx90a\t500000\t1000000",
    ] {
        expect_in(&text, part)?;
    }
    browser.scripts(true)
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
