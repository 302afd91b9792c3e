//! The treemap: zooming in and out with the mouse, the keyboard and the browser's back and forward
//! buttons.

use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::browser::Browser;
use super::{in_chromium, kernel, small, written};
use crate::support::{Work, ensure, expect_equal, expect_in};
use offload_files::size::page::PageRow;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        in_chromium("tiles_open_by_clicks", clicks),
        in_chromium("tiles_open_by_keys", keys),
        in_chromium("the_browser_goes_back", back),
        in_chromium("tiles_are_as_large_as_their_bytes", areas),
        in_chromium("small_tiles_are_put_together", others),
    ]
}

/// The names and sizes in the breadcrumb.
const CRUMBS: &str =
    "[...document.querySelectorAll('#crumbs button')].map(at => at.title).join(' > ')";
/// The labels of the tiles that keys can reach, the largest first.
const TILES: &str = "[...document.querySelectorAll('button.tile')].map(at => at.ariaLabel.split(', ')[0]).join(' | ')";

fn expect(browser: &mut Browser, expression: &str, expected: &str) -> Result<(), Failed> {
    let actual = browser.text(expression)?;
    expect_equal(expression, expected, &actual)
}

fn tile(name: &str) -> String {
    format!("button.tile[aria-label^='{name},']")
}

fn clicks(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    browser.open(&written(work, "libsmall.so", false, &small())?)?;
    expect(browser, TILES, "gfx90a | sm_80 | host | containers")?;
    expect(browser, "document.title", "libsmall.so: sizes")?;
    expect_in(
        &browser.text("document.querySelector('#totals').textContent")?,
        "1.91M in file",
    )?;
    browser.click(&tile("gfx90a"), true)?;
    expect(browser, CRUMBS, "libsmall.so > gfx90a")?;
    expect(browser, TILES, "scale.cu | sum.cu | headers")?;
    browser.click(&tile("scale.cu"), true)?;
    // A translation unit with one template opens its instances directly.
    expect(browser, CRUMBS, "libsmall.so > gfx90a > scale.cu > scale")?;
    expect(browser, TILES, "scale<float> | scale<double>")?;
    browser.click("#crumbs li:nth-child(2) button", false)?;
    // A click on a tile inside another tile opens the inner one.
    let inner = "[...document.querySelectorAll('div.tile.opens')].findIndex(at => at.textContent.startsWith('<float>'))";
    ensure(
        browser.eval(inner)? != json!(-1),
        || "the instance is not drawn inside of its template",
    )?;
    let mark = format!("document.querySelectorAll('div.tile.opens')[{inner}].id = 'inner'");
    browser.eval(&mark)?;
    browser.click("#inner", true)?;
    expect(
        browser,
        CRUMBS,
        "libsmall.so > gfx90a > scale.cu > scale > scale<float>",
    )?;
    expect(browser, TILES, "code | debug")?;
    // The table shows the same items as the treemap.
    expect_in(
        &browser.text("document.querySelector('#count').textContent")?,
        "1 row in scale<float>",
    )?;
    // The tooltip of a tile shows all its values.
    browser.click(&tile("code"), false)?;
    let tip =
        "new Promise(done => setTimeout(() => done(document.querySelector('#tip').innerText), 50))";
    browser.ask(
        "Input.dispatchMouseEvent",
        json!({"type": "mouseMoved", "x": 300, "y": 400}),
    )?;
    let tip = browser.text(tip)?;
    for part in [
        "gfx90a › scale.cu › scale › scale<float>",
        "391K (400,000 bytes), 20%",
        "781K (800,000 bytes)",
    ] {
        expect_in(&tip, part)?;
    }
    browser.click("#crumbs li:nth-child(2) button", false)?;
    expect(browser, CRUMBS, "libsmall.so > gfx90a")?;
    // The measure can be switched to the uncompressed size.
    browser.click("#measure label:nth-of-type(2)", false)?;
    expect_in(
        &browser.text(&format!(
            "document.querySelector(\"{}\").ariaLabel",
            tile("sum.cu")
        ))?,
        "586K",
    )
}

fn keys(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    let focused = "document.activeElement.ariaLabel?.split(', ')[0] ?? document.activeElement.id";
    browser.open(&written(work, "libsmall.so", false, &small())?)?;
    // The Tab key alone reaches the treemap: all tiles together are one stop.
    for _ in 0..30 {
        browser.key("Tab")?;
        if browser.eval("document.activeElement.matches('button.tile')")? == json!(true) {
            break;
        }
    }
    expect(browser, focused, "gfx90a")?;
    let ring = "getComputedStyle(document.activeElement).outlineStyle + getComputedStyle(document.activeElement).outlineWidth";
    expect(browser, ring, "solid3px")?;
    ensure(
        browser.eval("!document.querySelector('#tip').hidden")? == json!(true),
        || "no tooltip for the tile in focus",
    )?;
    // The focus does not hide the tiles inside.
    let on_top = "(() => { const box = document.activeElement.getBoundingClientRect(); \
        return document.elementFromPoint(box.x + box.width / 3, box.y + box.height / 2) !== document.activeElement; })()";
    ensure(
        browser.eval(on_top)? == json!(true),
        || "the tile in focus hides what is in it",
    )?;
    expect_equal(
        "stops",
        "1",
        &browser.text("String(document.querySelectorAll('.tile[tabindex=\"0\"]').length)")?,
    )?;
    browser.key("ArrowRight")?;
    let right = browser.text(focused)?;
    ensure(right != "gfx90a", || "the arrow moves nothing")?;
    browser.key("ArrowLeft")?;
    expect(browser, focused, "gfx90a")?;
    browser.key("End")?;
    expect(browser, focused, "containers")?;
    browser.key("Home")?;
    browser.key("Enter")?;
    expect(browser, CRUMBS, "libsmall.so > gfx90a")?;
    expect(browser, focused, "scale.cu")?;
    browser.key("Enter")?;
    expect(browser, CRUMBS, "libsmall.so > gfx90a > scale.cu > scale")?;
    browser.key("Escape")?;
    expect(browser, CRUMBS, "libsmall.so > gfx90a")?;
    // After zooming out, the previously opened tile has the focus.
    expect(browser, focused, "scale.cu")?;
    browser.key("Backspace")?;
    expect(browser, CRUMBS, "libsmall.so")?;
    expect(browser, focused, "gfx90a")?;
    expect_in(
        &browser.text("document.querySelector('#said').textContent")?,
        "libsmall.so, 1.91M",
    )?;
    browser.key("/")?;
    expect(browser, focused, "search")?;
    // In the search field, the same keys edit the text.
    browser.write("sum")?;
    browser.key("Backspace")?;
    expect(browser, "document.activeElement.value", "su")
}

fn back(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    let page = written(work, "libsmall.so", false, &small())?;
    browser.open(&page)?;
    browser.click(&tile("gfx90a"), true)?;
    browser.click(&tile("scale.cu"), true)?;
    browser.eval("history.back()")?;
    browser.wait(&format!("{CRUMBS} === 'libsmall.so > gfx90a'"))?;
    browser.eval("history.back()")?;
    browser.wait(&format!("{CRUMBS} === 'libsmall.so'"))?;
    browser.eval("history.forward()")?;
    browser.wait(&format!("{CRUMBS} === 'libsmall.so > gfx90a'"))?;
    // The address selects the location as far as it exists, also when the page is opened.
    let addresses = [
        ("#/3", "libsmall.so > sm_80"),
        ("#/1/map", "libsmall.so > gfx90a"),
        ("#/1/2/0", "libsmall.so > gfx90a > sum.cu"),
        ("#/1/99", "libsmall.so > gfx90a"),
        ("#/length", "libsmall.so"),
    ];
    for (address, crumbs) in addresses {
        browser.eval(&format!("location.hash = '{address}'"))?;
        browser.wait(&format!(
            "location.hash === '{address}' && {CRUMBS} === '{crumbs}'"
        ))?;
        // The old page answers until the new one is loaded.
        browser.eval("window.old = true; location.reload()")?;
        let there =
            "window.old === undefined && document.documentElement.dataset.ready !== undefined";
        browser.wait(&format!("{there} && {CRUMBS} === '{crumbs}'"))?;
        ensure(
            browser.eval("document.querySelectorAll('button.tile').length > 0")? == json!(true),
            || format!("no tiles at {address}"),
        )?;
    }
    Ok(())
}

fn areas(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    browser.open(&written(work, "libsmall.so", false, &small())?)?;
    let area = |name: &str| {
        format!(
            "(() => {{ const box = document.querySelector(\"{}\").getBoundingClientRect(); return box.width * box.height; }})()",
            tile(name)
        )
    };
    let mut area_of = |name: &str| -> Result<f64, Failed> {
        Ok(browser.eval(&area(name))?.as_f64().ok_or("no area")?)
    };
    let all = [
        ("gfx90a", 1_050_000.0),
        ("sm_80", 500_000.0),
        ("host", 400_000.0),
        ("containers", 50_000.0),
    ];
    let unit = area_of("gfx90a")? / 1_050_000.0;
    for (name, bytes) in all {
        let off = area_of(name)? / (bytes * unit);
        ensure((0.98..1.02).contains(&off), || {
            format!("{name} has {off} of the area that it should have")
        })?;
    }
    // The tiles fill the treemap and do not overlap.
    let map = browser.eval(
        "document.querySelector('#map').clientWidth * document.querySelector('#map').clientHeight",
    )?;
    let filled = unit * 2_000_000.0 / map.as_f64().unwrap_or(1.0);
    ensure((0.98..1.02).contains(&filled), || {
        format!("{filled} of the treemap is filled")
    })
}

fn others(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    let kernels: Vec<PageRow> = (0..9_000)
        .map(|i| {
            kernel(
                "sm_80",
                "many.cu",
                &format!("many<{i}>"),
                "code",
                1_000 + i % 7,
            )
        })
        .collect();
    browser.open(&written(work, "libmany.so", false, &kernels)?)?;
    browser.click("button.tile", true)?;
    let count = browser
        .eval("document.querySelectorAll('.tile').length")?
        .as_u64()
        .unwrap_or(u64::MAX);
    ensure((20..3000).contains(&count), || format!("{count} tiles"))?;
    // Open "others" repeatedly: all small items can be reached.
    let there =
        "[...document.querySelectorAll('button.tile')].some(at => / others, /.test(at.ariaLabel))";
    let mark = "[...document.querySelectorAll('button.tile')].find(at => / others, /.test(at.ariaLabel)).id = 'others'";
    let mut opened = 0;
    while browser.eval(there)? == json!(true) && opened < 40 {
        browser.eval(mark)?;
        browser.eval("document.querySelector('#others').dispatchEvent(new PointerEvent('pointermove', { bubbles: true }))")?;
        let tip = browser.text("document.querySelector('#tip').innerText")?;
        ensure(
            tip.contains(" others") && !tip.contains("undefined"),
            || format!("the tooltip of others: {tip}"),
        )?;
        browser.click("#others", true)?;
        opened += 1;
    }
    ensure(opened > 0 && opened < 40, || {
        format!("others in others: {opened}")
    })?;
    let smallest = "[...document.querySelectorAll('button.tile')].pop().ariaLabel";
    expect_in(&browser.text(smallest)?, "1000, ")
}
