//! What `offld size --html` writes of real files: images for AMD's GPUs, made by clang.

use std::path::PathBuf;

use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::browser::Browser;
use super::in_chromium;
use crate::support::{Outcome, Work, expect_equal, expect_in, llvm, offld, passed, run_failing, with_llvm};

/// A name that no compiler makes, and any file may have.
const HOSTILE: &str = "</script><img src=x onerror=alert(1)>";

pub(super) fn trials() -> Vec<Trial> {
    vec![
        in_chromium("of_a_file", of_a_file),
        in_chromium("of_several_files", of_several_files),
        in_chromium("of_a_file_and_an_older_one", of_two_releases),
        with_llvm("size_page::a_page_that_cannot_be_written", cannot_be_written),
    ]
}

/// An image with functions of so many instructions of four bytes.
fn image(work: &Work, name: &str, arch: &str, functions: &[(&str, usize)]) -> Result<PathBuf, Failed> {
    let mut text = String::from(".text\n");
    for (function, instructions) in functions {
        text.push_str(&format!(
            ".globl \"{function}\"\n.protected \"{function}\"\n.p2align 8\n.type \"{function}\",@function\n\"{function}\":\n.rept {instructions}\n\
             s_nop 0\n.endr\n.size \"{function}\", .-\"{function}\"\n"
        ));
    }
    let source = work.file(&format!("{name}.s"), text);
    let path = work.path().join(name);
    let target = format!("-mcpu={arch}");
    let mut compile = work.command(llvm("clang"));
    compile.args(["--target=amdgcn-amd-amdhsa", &target, "-nogpulib", "-Wl,--build-id=none"]).arg(source).arg("-o").arg(&path);
    crate::support::run(&mut compile)?;
    Ok(path)
}

/// The page of these words.
fn page(work: &Work, words: &[&str]) -> Result<PathBuf, Failed> {
    work.run(offld(), [&["size", "--html", "page.html"], words].concat())?;
    Ok(work.path().join("page.html"))
}

/// Has the table show the parts of kernels.
const BY_PARTS: &str =
    "document.querySelector('#rows').value = 'all'; document.querySelector('#rows').dispatchEvent(new Event('change'))";

/// The row of the table with a kernel's code.
fn code_of(kernel: &str) -> String {
    format!(
        "[...document.querySelectorAll('#body tr')].find(at => at.querySelector('.name').textContent === {} && [...at.cells].some(cell => \
         cell.textContent === 'code'))",
        json!(kernel)
    )
}

const TILES: &str = "[...document.querySelectorAll('button.tile')].map(at => at.ariaLabel.split(', ')[0]).sort().join(' | ')";
const NAMES: &str = "[...document.querySelectorAll('#body .name:not(.rest)')].map(at => at.textContent).join(' | ')";

fn of_a_file(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    let file = image(work, "image.so", "gfx90a", &[(HOSTILE, 3_000), ("_Z4fillIfEvPT_", 2_000), ("_Z4fillIdEvPT_", 1_000)])?;
    let page = page(work, &["image.so"])?;
    // The sum is the file's size.
    let size = std::fs::metadata(file)?.len();
    expect_in(&std::fs::read_to_string(&page)?, &format!("<p id=\"totals\">{size} bytes in the file, "))?;
    browser.open(&page)?;
    expect_equal("names", &format!("{HOSTILE} | void fill<float>(float*) | void fill<double>(double*)"), &browser.text(NAMES)?)?;
    let totals = browser.text("document.querySelector('#totals').textContent")?;
    expect_in(&totals, "3 kernels · 1 architecture")?;
    expect_equal("elements", "0", &browser.text("String(document.querySelectorAll('img').length)")?)?;
    // An instruction has four bytes. What else belongs to a kernel (its symbol) are other parts.
    browser.eval(BY_PARTS)?;
    for (name, expected) in
        [(HOSTILE, "11.7 KiB"), ("void fill<float>(float*)", "7.81 KiB"), ("void fill<double>(double*)", "3.91 KiB")]
    {
        expect_equal(name, expected, &browser.text(&format!("{}.querySelector('td.number').textContent", code_of(name)))?)?;
    }
    Ok(())
}

fn of_several_files(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    image(work, "one.so", "gfx90a", &[("one", 1_000)])?;
    image(work, "other.so", "gfx1100", &[("other", 2_000)])?;
    browser.open(&page(work, &["one.so", "other.so"])?)?;
    expect_equal("tiles", "one.so | other.so", &browser.text(TILES)?)?;
    expect_in(&browser.text("document.querySelector('#totals').textContent")?, "2 files · ")?;
    browser.eval(
        "document.querySelector('#rows').value = 'arch'; document.querySelector('#rows').dispatchEvent(new Event('change'))",
    )?;
    let rows = "[...document.querySelectorAll('#body tr')].map(at => [...at.cells].slice(0, 2).map(cell => cell.textContent).join(' of ')).join(' | ')";
    expect_in(&browser.text(rows)?, "gfx1100 of other.so | gfx90a of one.so")
}

fn of_two_releases(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    image(work, "old.so", "gfx90a", &[("stays", 500), ("goes", 700), ("grows", 1_000)])?;
    image(work, "new.so", "gfx90a", &[("stays", 500), ("comes", 600), ("grows", 1_500)])?;
    browser.open(&page(work, &["--diff", "old.so", "new.so"])?)?;
    expect_equal("title", "new.so, compared with old.so", &browser.text("document.querySelector('#title').textContent")?)?;
    let fate = |name: &str| {
        format!(
            "(() => {{ const row = {}; return row.className + ' ' + row.cells[row.cells.length - 2].textContent; }})()",
            code_of(name)
        )
    };
    let expected = [
        ("stays", "same unchanged"),
        ("goes", "went ✖ −2.73 KiB, gone"),
        ("comes", "came ✚ +2.34 KiB, new"),
        ("grows", "grew ▲ +1.95 KiB (+50 %)"),
    ];
    browser.eval(BY_PARTS)?;
    for (name, expected) in expected {
        expect_equal(name, expected, &browser.text(&fate(name))?)?;
    }
    // What was kept of the old one says the same.
    work.run(offld(), ["size", "--save", "old.json", "old.so"])?;
    browser.open(&page(work, &["--diff", "old.json", "new.so"])?)?;
    browser.eval(BY_PARTS)?;
    for (name, expected) in expected {
        expect_equal(name, expected, &browser.text(&fate(name))?)?;
    }
    Ok(())
}

fn cannot_be_written() -> Outcome {
    let work = Work::new();
    image(&work, "image.so", "gfx90a", &[("one", 1_000)])?;
    let told = run_failing(work.command(offld()).args(["size", "--html", "no/such/folder/page.html", "image.so"]))?;
    expect_in(&told, "cannot write the page to no/such/folder/page.html")?;
    passed()
}
