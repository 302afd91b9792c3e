//! The page of `offld size --html` in Chromium: clicks, keys and rendering. Screenshots stay in
//! `target/size-page`.

pub(crate) mod browser;
mod command;
mod looks;
mod rows;
mod table;
mod treemap;

use std::path::PathBuf;

use libtest_mimic::{Failed, Trial};

use browser::Browser;

use crate::support::{Outcome, Work, missing, passed, root, test};
use offload_files::size::page::{self, PageRow};

pub(super) fn trials() -> Vec<Trial> {
    trials_of! { treemap table looks command }
}

/// A test that needs Chromium. It gets a browser, which must have recorded no errors at the end.
fn in_chromium(
    name: &str,
    run: impl FnOnce(&Work, &mut Browser) -> Result<(), Failed> + Send + 'static,
) -> Trial {
    test(format!("size::page::{name}"), || {
        if !browser::is_here() {
            return missing("chromium");
        }
        let work = Work::new();
        let mut browser = Browser::start(&work)?;
        run(&work, &mut browser)?;
        browser.expect_no_trouble()?;
        passed() as Outcome
    })
}

/// Writes a page of `rows`.
fn written(work: &Work, title: &str, compared: bool, rows: &[PageRow]) -> Result<PathBuf, Failed> {
    let path = work.path().join("page.html");
    let mut bytes = Vec::new();
    page::write(&mut bytes, title, "offld 0.0.0", compared, rows)?;
    std::fs::write(&path, bytes)?;
    Ok(path)
}

/// The directory for screenshots.
fn pictures() -> Result<PathBuf, Failed> {
    let folder = root().join("target/size-page");
    std::fs::create_dir_all(&folder)?;
    Ok(folder)
}

/// A row of a kernel. `kernel` may be an instance of a template.
fn kernel(arch: &str, unit: &str, kernel: &str, part: &str, file: u64) -> PageRow {
    let template = kernel.split('<').next().unwrap_or_default();
    let [arch, unit, template, kernel, part] = [arch, unit, template, kernel, part].map(Into::into);
    PageRow {
        arch,
        unit,
        template,
        kernel,
        part,
        file,
        inflated: 2 * file,
        ..PageRow::default()
    }
}

/// A small library with two architectures, two translation units and other parts: 2,000,000 bytes
/// in the file.
fn small() -> Vec<PageRow> {
    vec![
        kernel("gfx90a", "scale.cu", "scale<float>", "code", 400_000),
        kernel("gfx90a", "scale.cu", "scale<float>", "debug", 100_000),
        kernel("gfx90a", "scale.cu", "scale<double>", "code", 200_000),
        kernel("gfx90a", "sum.cu", "sum", "code", 300_000),
        kernel("gfx90a", "", "", "headers", 50_000),
        kernel("sm_80", "scale.cu", "scale<float>", "code", 350_000),
        kernel("sm_80", "", "lonely", "code", 150_000),
        kernel("host", "", "", "code", 400_000),
        kernel("", "", "", "padding", 50_000),
    ]
}
