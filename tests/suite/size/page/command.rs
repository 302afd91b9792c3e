//! The page that `offld size --html` writes for real files: AMD GPU images, compiled by clang.

use std::path::PathBuf;

use libtest_mimic::{Failed, Trial};
use serde_json::json;

use super::browser::Browser;
use super::in_chromium;
use crate::support::{
    Outcome, Work, expect_equal, expect_in, expect_not_in, llvm, offld, passed, run_failing,
    with_llvm,
};

/// A name that no compiler generates, but that a file can contain.
const HOSTILE: &str = "</script><img src=x onerror=alert(1)>";

pub(super) fn trials() -> Vec<Trial> {
    vec![
        in_chromium("of_a_file", of_a_file),
        in_chromium("of_several_files", of_several_files),
        in_chromium("of_a_wheel", of_a_wheel),
        in_chromium("of_a_file_and_an_older_one", of_two_releases),
        with_llvm(
            "size::page::a_page_that_cannot_be_written",
            cannot_be_written,
        ),
    ]
}

/// An image with functions of the given numbers of instructions, of four bytes each.
fn image(
    work: &Work,
    name: &str,
    arch: &str,
    functions: &[(&str, usize)],
) -> Result<PathBuf, Failed> {
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
    compile
        .args([
            "--target=amdgcn-amd-amdhsa",
            &target,
            "-nogpulib",
            "-Wl,--build-id=none",
        ])
        .arg(source)
        .arg("-o")
        .arg(&path);
    crate::support::run(&mut compile)?;
    Ok(path)
}

/// Writes the page for these arguments.
fn page(work: &Work, args: &[&str]) -> Result<PathBuf, Failed> {
    work.run(offld(), [&["size", "--html", "page.html"], args].concat())?;
    Ok(work.path().join("page.html"))
}

/// Lets the table show the parts of kernels.
const BY_PARTS: &str = "document.querySelector('#rows').value = 'all'; document.querySelector('#rows').dispatchEvent(new Event('change'))";

/// The table row of a kernel's code.
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
    let file = image(
        work,
        "image.so",
        "gfx90a",
        &[
            (HOSTILE, 3_000),
            ("_Z4fillIfEvPT_", 2_000),
            ("_Z4fillIdEvPT_", 1_000),
        ],
    )?;
    let page = page(work, &["image.so"])?;
    // The sum equals the file size.
    let size = std::fs::metadata(file)?.len();
    expect_in(
        &std::fs::read_to_string(&page)?,
        &format!("<p id=\"totals\">{size} bytes in the file, "),
    )?;
    browser.open(&page)?;
    expect_equal(
        "names",
        &format!("{HOSTILE} | void fill<float>(float*) | void fill<double>(double*)"),
        &browser.text(NAMES)?,
    )?;
    let totals = browser.text("document.querySelector('#totals').textContent")?;
    expect_in(&totals, "3 kernels · 1 architecture")?;
    expect_equal(
        "elements",
        "0",
        &browser.text("String(document.querySelectorAll('img').length)")?,
    )?;
    // An instruction has four bytes. Other bytes of a kernel, such as its symbol, are separate
    // parts.
    browser.eval(BY_PARTS)?;
    for (name, expected) in [
        (HOSTILE, "11.7K"),
        ("void fill<float>(float*)", "7.81K"),
        ("void fill<double>(double*)", "3.91K"),
    ] {
        expect_equal(
            name,
            expected,
            &browser.text(&format!(
                "{}.querySelector('td.number').textContent",
                code_of(name)
            ))?,
        )?;
    }
    Ok(())
}

fn of_several_files(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    image(work, "one.so", "gfx90a", &[("one", 1_000)])?;
    image(work, "other.so", "gfx1100", &[("other", 2_000)])?;
    browser.open(&page(work, &["one.so", "other.so"])?)?;
    expect_equal("tiles", "one.so | other.so", &browser.text(TILES)?)?;
    expect_in(
        &browser.text("document.querySelector('#totals').textContent")?,
        "2 files · ",
    )?;
    browser.eval(
        "document.querySelector('#rows').value = 'arch'; document.querySelector('#rows').dispatchEvent(new Event('change'))",
    )?;
    let rows = "[...document.querySelectorAll('#body tr')].map(at => [...at.cells].slice(0, 2).map(cell => cell.textContent).join(' of ')).join(' | ')";
    expect_in(
        &browser.text(rows)?,
        "gfx1100 of other.so | gfx90a of one.so",
    )
}

/// Members are between the file and its architectures.
fn of_a_wheel(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    image(work, "one.so", "gfx90a", &[("one", 1_000)])?;
    image(work, "other.so", "gfx1100", &[("other", 2_000)])?;
    work.file(
        "make.py",
        "import zipfile\n\
         with zipfile.ZipFile('a.whl', 'w') as wheel:\n\
         \x20   wheel.write('one.so', 'some/one.so')\n\
         \x20   wheel.write('other.so', 'some/other.so')\n",
    );
    crate::support::run(work.command("python3").arg("make.py"))?;
    browser.open(&page(work, &["a.whl"])?)?;
    expect_equal(
        "tiles",
        "containers | some/one.so | some/other.so",
        &browser.text(TILES)?,
    )?;
    let choose = "document.querySelector('#rows').value = 'member'; document.querySelector('#rows').dispatchEvent(new Event('change'))";
    browser.eval(choose)?;
    expect_equal(
        "names",
        "some/other.so | some/one.so | no member",
        &browser.text(NAMES)?,
    )?;
    browser.eval(&choose.replace("member", "arch"))?;
    let rows = "[...document.querySelectorAll('#body tr')].map(at => [...at.cells].slice(0, 2).map(cell => cell.textContent).join(' of ')).join(' | ')";
    expect_in(
        &browser.text(rows)?,
        "gfx1100 of some/other.so | gfx90a of some/one.so",
    )
}

fn of_two_releases(work: &Work, browser: &mut Browser) -> Result<(), Failed> {
    image(
        work,
        "old.so",
        "gfx90a",
        &[("stays", 500), ("goes", 700), ("grows", 1_000)],
    )?;
    image(
        work,
        "new.so",
        "gfx90a",
        &[("stays", 500), ("comes", 600), ("grows", 1_500)],
    )?;
    browser.open(&page(work, &["--diff", "old.so", "new.so"])?)?;
    expect_equal(
        "title",
        "new.so, compared with old.so",
        &browser.text("document.querySelector('#title').textContent")?,
    )?;
    let fate = |name: &str| {
        format!(
            "(() => {{ const row = {}; return row.className + ' ' + row.cells[row.cells.length - 2].textContent; }})()",
            code_of(name)
        )
    };
    let expected = [
        ("stays", "same unchanged"),
        ("goes", "went ✖ −2.73K, gone"),
        ("comes", "came ✚ +2.34K, new"),
        ("grows", "grew ▲ +1.95K (+50%)"),
    ];
    browser.eval(BY_PARTS)?;
    for (name, expected) in expected {
        expect_equal(name, expected, &browser.text(&fate(name))?)?;
    }
    // A saved report of the old file gives the same page.
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
    let stderr = run_failing(work.command(offld()).args([
        "size",
        "--html",
        "no/such/folder/page.html",
        "image.so",
    ]))?;
    expect_in(
        &stderr,
        "cannot write the page to no/such/folder/page.html: No such file or directory",
    )?;
    expect_not_in(&stderr, ".offld-")?;
    passed()
}
