//! Light and dark, narrow and printed, and large: with pictures.

use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::browser::Browser;
use super::{in_chromium, pictures, rows, written};
use crate::support::{Work, ensure, expect_equal};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        in_chromium("light_and_dark", schemes),
        in_chromium("narrow_windows", narrow),
        in_chromium("printed", printed),
        in_chromium("a_library_of_300_mb", large),
    ]
}

/// The brightness of a colour that the browser has computed, from 0 to 255.
fn brightness(browser: &mut Browser, of: &str) -> Result<f64, Failed> {
    let script = format!(
        "(() => {{ const at = document.createElement('canvas').getContext('2d'); at.fillStyle = {of}; at.fillRect(0, 0, 1, 1); \
            const [r, g, b] = at.getImageData(0, 0, 1, 1).data; return 0.3 * r + 0.6 * g + 0.1 * b; }})()"
    );
    Ok(browser.eval(&script)?.as_f64().ok_or("no colour")?)
}

fn schemes(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    let page = written(work, "libtorch_cuda.so", false, &rows::library(12_000, 900 << 20, false))?;
    let [back, tile, text] = [
        "getComputedStyle(document.documentElement).backgroundColor",
        "getComputedStyle(document.querySelector('button.tile')).backgroundColor",
        "getComputedStyle(document.querySelector('button.tile')).color",
    ];
    for scheme in ["light", "dark"] {
        browser.prefers(scheme)?;
        browser.open(&page)?;
        let dark = scheme == "dark";
        ensure((brightness(browser, back)? < 60.0) == dark, || format!("the page is not {scheme}"))?;
        // What is written on tiles is far from their colour.
        let contrast = brightness(browser, tile)? - brightness(browser, text)?;
        ensure(contrast.abs() > 100.0 && (contrast < 0.0) == dark, || format!("contrast {contrast} when {scheme}"))?;
        browser.picture(&pictures()?.join(format!("{scheme}.png")))?;
    }
    // The switch wins over the system.
    browser.click("#theme label:nth-of-type(2)", false)?;
    ensure(brightness(browser, back)? > 200.0, || "the page is not light when light was chosen")?;
    browser.click("#theme label:nth-of-type(1)", false)?;
    ensure(brightness(browser, back)? < 60.0, || "the page is not dark as the system has it")?;
    browser.prefers("light")?;
    browser.click("button.tile", true)?;
    browser.click("#colour label:nth-of-type(2)", false)?;
    browser.ask("Input.dispatchMouseEvent", json!({"type": "mouseMoved", "x": 420, "y": 420}))?;
    browser.eval("new Promise(done => setTimeout(done, 300))")?;
    browser.picture(&pictures()?.join("parts.png"))?;
    let page = written(work, "libtorch_cuda.so", true, &rows::library(12_000, 900 << 20, true))?;
    for scheme in ["light", "dark"] {
        browser.prefers(scheme)?;
        browser.open(&page)?;
        browser.picture(&pictures()?.join(format!("compared-{scheme}.png")))?;
    }
    Ok(())
}

fn narrow(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    let page = written(work, "libtorch_cuda.so", true, &rows::library(3_000, 900 << 20, true))?;
    for width in [360, 768, 2200] {
        browser.size(width, 800)?;
        browser.open(&page)?;
        let wide = browser.eval("document.documentElement.scrollWidth")?.as_u64().unwrap_or(u64::MAX);
        ensure(wide <= u64::from(width), || format!("the page is {wide} wide in a window of {width}"))?;
        browser.picture(&pictures()?.join(format!("{width}.png")))?;
    }
    // A window that changes its size has a treemap of that size.
    browser.size(700, 800)?;
    let right = "Math.max(...[...document.querySelectorAll('.tile')].map(at => at.getBoundingClientRect().right))";
    browser.wait(&format!("Math.abs({right} - document.querySelector('#map').getBoundingClientRect().right) < 2"))
}

fn printed(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    let page = written(work, "libtorch_cuda.so", false, &rows::library(600, 900 << 20, false))?;
    browser.prefers("dark")?;
    browser.open(&page)?;
    let media = json!({"media": "print", "features": [{"name": "prefers-color-scheme", "value": "dark"}]});
    browser.ask("Emulation.setEmulatedMedia", media)?;
    let back = brightness(browser, "getComputedStyle(document.documentElement).backgroundColor")?;
    ensure(back > 250.0, || "paper is not white")?;
    let controls = "[...document.querySelectorAll('.choice, #search, #more')].every(at => at.checkVisibility() === false)";
    ensure(browser.eval(controls)? == json!(true), || "controls are printed")?;
    let paper = browser.ask("Page.printToPDF", json!({"printBackground": true}))?;
    ensure(paper["data"].as_str().is_some_and(|data| data.starts_with("JVBERi0")), || "no PDF")
}

/// 60,000 kernels with the names that C++ gives them.
fn large(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    let rows = rows::library(60_000, 300 << 20, true);
    let names: usize = rows.iter().map(|row| row.kernel.len()).sum();
    ensure(names > 10_000_000, || format!("names of {names} bytes are not long"))?;
    let page = written(work, "liblarge.so", true, &rows)?;
    let size = std::fs::metadata(&page)?.len();
    eprintln!("size_page: {} rows, {names} bytes of names, a page of {size} bytes", rows.len());
    ensure(size < 5_000_000, || format!("the page has {size} bytes"))?;
    let mut times = Vec::new();
    for _ in 0..3 {
        times.push(browser.open(&page)?);
    }
    times.sort_by(f64::total_cmp);
    eprintln!("size_page: drawn after {times:.0?} milliseconds");
    ensure(times[1] < 2_000.0, || format!("drawn after {times:?} milliseconds"))?;
    // Each step in it is quick as well.
    for step in ["document.querySelector('button.tile').click()", "history.back()"] {
        let took = browser
            .eval(&format!("(() => {{ const start = performance.now(); {step}; return performance.now() - start; }})()"))?;
        ensure(took.as_f64().is_some_and(|took| took < 1_000.0), || format!("{step} took {took} milliseconds"))?;
    }
    let count = browser.text("document.querySelector('#totals').textContent")?;
    let kernels = count.split(" · ").find(|part| part.ends_with(" kernels")).unwrap_or_default().to_owned();
    // The same ones for six architectures, where they are not gone.
    expect_equal("kernels", "10,000 kernels", &kernels)
}
