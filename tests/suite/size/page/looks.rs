//! The page in light and dark mode, narrow, printed, and with many rows: with screenshots.

use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::browser::Browser;
use super::{in_chromium, pictures, rows, small, written};
use crate::support::{Work, ensure, expect_equal};
use offload_files::size::page::PageRow;

pub(super) fn trials() -> Vec<Trial> {
    vec![
        in_chromium("light_and_dark", schemes),
        in_chromium("everything_has_a_name", named),
        in_chromium("narrow_windows", narrow),
        in_chromium("printed", printed),
        in_chromium("a_library_of_300_mb", large),
    ]
}

/// The brightness of a CSS colour, as the browser computes it, from 0 to 255.
fn brightness(browser: &mut Browser, colour: &str) -> Result<f64, Failed> {
    let script = format!(
        "(() => {{ const at = document.createElement('canvas').getContext('2d'); at.fillStyle = {colour}; at.fillRect(0, 0, 1, 1); \
            const [r, g, b] = at.getImageData(0, 0, 1, 1).data; return 0.3 * r + 0.6 * g + 0.1 * b; }})()"
    );
    Ok(browser.eval(&script)?.as_f64().ok_or("no colour")?)
}

/// The lowest contrast of a text with its background, as WCAG 2 computes it, among the labels and
/// sizes of tiles, the table and other texts.
const LEAST_CONTRAST: &str = r#"(() => {
    const at = document.createElement('canvas').getContext('2d', { willReadFrequently: true });
    const colour = (text) => {
        at.clearRect(0, 0, 1, 1); at.fillStyle = text; at.fillRect(0, 0, 1, 1);
        return [...at.getImageData(0, 0, 1, 1).data];
    };
    const light = (rgb) => {
        const [r, g, b] = rgb.map((c) => (c / 255 <= 0.04045 ? c / 255 / 12.92 : ((c / 255 + 0.055) / 1.055) ** 2.4));
        return 0.2126 * r + 0.7152 * g + 0.0722 * b;
    };
    const behind = (element) => {
        for (let up = element; up; up = up.parentElement) {
            const back = colour(getComputedStyle(up).backgroundColor);
            if (back[3] > 0) return back;
        }
        return [255, 255, 255, 255];
    };
    const contrast = (element) => {
        const back = behind(element);
        const fore = colour(getComputedStyle(element).color);
        const opacity = Number(getComputedStyle(element).opacity);
        const seen = [0, 1, 2].map((i) => fore[i] * opacity + back[i] * (1 - opacity));
        const [one, other] = [light(seen), light(back.slice(0, 3))].sort((a, b) => b - a);
        return (one + 0.05) / (other + 0.05);
    };
    const texts = ['.label', '.text .size', '#totals', '#count', '#body tr:nth-child(-n+20) .name', '#body tr:nth-child(-n+20) td', '#crumbs button',
        '#head button', 'legend', '.choice span', '#map-help', 'footer', '#legend li'];
    const all = texts.flatMap((text) => [...document.querySelectorAll(text)].map((element) => [contrast(element), text]));
    return all.sort((a, b) => a[0] - b[0])[0];
})()"#;

/// Fails unless every text has the contrast that WCAG 2 requires (level AA).
fn readable(browser: &mut Browser, what: &str) -> Result<(), Failed> {
    let least = browser.eval(LEAST_CONTRAST)?;
    ensure(least[0].as_f64().is_some_and(|ratio| ratio >= 4.5), || {
        format!("{what}: the least contrast is {least}")
    })
}

fn schemes(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    let page = written(
        work,
        "libtorch_cuda.so",
        false,
        &rows::library(12_000, 900 << 20, false),
    )?;
    let [back, tile] = [
        "getComputedStyle(document.documentElement).backgroundColor",
        "getComputedStyle(document.querySelector('button.tile')).backgroundColor",
    ];
    for scheme in ["light", "dark"] {
        browser.prefers(scheme)?;
        browser.open(&page)?;
        let dark = scheme == "dark";
        ensure((brightness(browser, back)? < 60.0) == dark, || {
            format!("the page is not {scheme}")
        })?;
        ensure((brightness(browser, tile)? < 128.0) == dark, || {
            format!("the tiles are not {scheme}")
        })?;
        readable(browser, scheme)?;
        browser.picture(&pictures()?.join(format!("{scheme}.png")))?;
    }
    // The switch overrides the system's colour scheme.
    browser.click("#theme label:nth-of-type(2)", false)?;
    ensure(
        brightness(browser, back)? > 200.0,
        || "the page is not light when light was chosen",
    )?;
    browser.click("#theme label:nth-of-type(1)", false)?;
    ensure(
        brightness(browser, back)? < 60.0,
        || "the page is not dark as the system has it",
    )?;
    browser.prefers("light")?;
    browser.click("button.tile", true)?;
    browser.click("#colour label:nth-of-type(2)", false)?;
    browser.ask(
        "Input.dispatchMouseEvent",
        json!({"type": "mouseMoved", "x": 420, "y": 420}),
    )?;
    browser.eval("new Promise(done => setTimeout(done, 300))")?;
    browser.picture(&pictures()?.join("parts.png"))?;
    let page = written(
        work,
        "libtorch_cuda.so",
        true,
        &rows::library(12_000, 900 << 20, true),
    )?;
    for scheme in ["light", "dark"] {
        browser.prefers(scheme)?;
        browser.open(&page)?;
        readable(browser, &format!("compared, {scheme}"))?;
        browser.picture(&pictures()?.join(format!("compared-{scheme}.png")))?;
    }
    Ok(())
}

/// The accessibility tree that Chromium computes for screen readers: all controls have names, and
/// the table is a table.
fn named(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    browser.open(&written(work, "libsmall.so", false, &small())?)?;
    browser.ask("Accessibility.enable", json!({}))?;
    let tree = browser.ask("Accessibility.getFullAXTree", json!({}))?;
    let nodes: Vec<(&str, &str)> = tree["nodes"]
        .as_array()
        .ok_or("no tree")?
        .iter()
        .filter(|node| node["ignored"] != json!(true))
        .map(|node| {
            (
                node["role"]["value"].as_str().unwrap_or_default(),
                node["name"]["value"].as_str().unwrap_or_default(),
            )
        })
        .collect();
    let names_of = |role: &str| {
        nodes
            .iter()
            .filter(|node| node.0 == role)
            .map(|node| node.1)
            .collect::<Vec<_>>()
    };
    for role in [
        "button",
        "radio",
        "searchbox",
        "combobox",
        "navigation",
        "table",
        "columnheader",
        "rowheader",
        "region",
        "group",
    ] {
        let names = names_of(role);
        ensure(!names.is_empty(), || format!("no {role} on the page"))?;
        ensure(names.iter().all(|name| !name.is_empty()), || {
            format!("a {role} has no name: {names:?}")
        })?;
    }
    expect_equal(
        "table",
        "Sizes, sorted by “In file”, descending",
        &names_of("table").join(""),
    )?;
    ensure(
        names_of("button").contains(&"gfx90a, 1.00M, 53% of all, 3 inside"),
        || format!("{:?}", names_of("button")),
    )?;
    expect_equal(
        "rows",
        "6",
        &names_of("rowheader").len().saturating_sub(1).to_string(),
    )
}

fn narrow(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    let page = written(
        work,
        "libtorch_cuda.so",
        true,
        &rows::library(3_000, 900 << 20, true),
    )?;
    for width in [360, 768, 2200] {
        browser.size(width, 800)?;
        browser.open(&page)?;
        let wide = browser
            .eval("document.documentElement.scrollWidth")?
            .as_u64()
            .unwrap_or(u64::MAX);
        ensure(wide <= u64::from(width), || {
            format!("the page is {wide} wide in a window of {width}")
        })?;
        browser.picture(&pictures()?.join(format!("{width}.png")))?;
    }
    // If the window size changes, so does that of the treemap.
    browser.size(700, 800)?;
    let right = "Math.max(...[...document.querySelectorAll('.tile')].map(at => at.getBoundingClientRect().right))";
    browser.wait(&format!(
        "Math.abs({right} - document.querySelector('#map').getBoundingClientRect().right) < 2"
    ))
}

fn printed(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    let page = written(
        work,
        "libtorch_cuda.so",
        false,
        &rows::library(600, 900 << 20, false),
    )?;
    browser.prefers("dark")?;
    browser.open(&page)?;
    let media =
        json!({"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]});
    browser.ask("Emulation.setEmulatedMedia", media)?;
    let back = brightness(
        browser,
        "getComputedStyle(document.documentElement).backgroundColor",
    )?;
    ensure(back > 250.0, || "paper is not white")?;
    let controls = "[...document.querySelectorAll('.choice, #search, #more')].every(at => at.checkVisibility() === false)";
    ensure(
        browser.eval(controls)? == json!(true),
        || "controls are printed",
    )?;
    let paper = browser.ask("Page.printToPDF", json!({"printBackground": true}))?;
    ensure(
        paper["data"]
            .as_str()
            .is_some_and(|data| data.starts_with("JVBERi0")),
        || "no PDF",
    )
}

/// 60,000 kernels with long C++ names: 10,000 kernels for six architectures. Then as many distinct
/// kernels.
fn large(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    let rows = rows::library(60_000, 300 << 20, true);
    let names: usize = rows.iter().map(|row| row.kernel.len()).sum();
    ensure(names > 10_000_000, || {
        format!("names of {names} bytes are not long")
    })?;
    let page = written(work, "liblarge.so", true, &rows)?;
    let size = std::fs::metadata(&page)?.len();
    eprintln!(
        "size_page: {} rows, {names} bytes of names, a page of {size} bytes",
        rows.len()
    );
    ensure(size < 5_000_000, || format!("the page has {size} bytes"))?;
    let different: Vec<PageRow> = rows::library(360_000, 300 << 20, false)
        .into_iter()
        .filter(|row| &*row.arch == "sm_80")
        .collect();
    let folder = Work::new();
    let size = std::fs::metadata(written(&folder, "libdifferent.so", false, &different)?)?.len();
    eprintln!(
        "size_page: {} rows of different kernels, a page of {size} bytes",
        different.len()
    );
    ensure(different.len() > 60_000 && size < 5_000_000, || {
        format!("the page of {} kernels has {size} bytes", different.len())
    })?;
    // The fastest of several runs counts, because other tests run at the same time.
    const LIMIT: f64 = 2_000.0;
    let mut times = Vec::new();
    while times.len() < 10 && times.iter().all(|time| *time >= LIMIT) {
        times.push(browser.open(&page)?);
    }
    eprintln!("size_page: drawn after {times:.0?} milliseconds");
    ensure(times.iter().any(|time| *time < LIMIT), || {
        format!("drawn after {times:?} milliseconds")
    })?;
    // Navigation is fast too.
    for step in [
        "document.querySelector('button.tile').click()",
        "history.back()",
    ] {
        let took = browser
            .eval(&format!("(() => {{ const start = performance.now(); {step}; return performance.now() - start; }})()"))?;
        ensure(took.as_f64().is_some_and(|took| took < 1_000.0), || {
            format!("{step} took {took} milliseconds")
        })?;
    }
    let count = browser.text("document.querySelector('#totals').textContent")?;
    let kernels = count
        .split(" · ")
        .find(|part| part.ends_with(" kernels"))
        .unwrap_or_default()
        .to_owned();
    // The same kernels for six architectures, without removed ones.
    expect_equal("kernels", "10,000 kernels", &kernels)
}
