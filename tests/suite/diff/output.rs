//! The output of `offld diff`: tables, Markdown, JSON, saved kernels, and errors.

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use crate::size::page::browser::{self, Browser};
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, llvm, missing, offld, output, passed, run,
    run_failing, shown, text, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("diff::tables", tables),
        with_llvm("diff::saved_kernels", saved_kernels),
        with_llvm("diff::new_and_gone_architectures", architectures),
        with_llvm("diff::what_cannot_be_compared", errors),
        with_llvm("diff::code_for_cpus_is_unknown", cpus),
        with_llvm("diff::changed_code_is_disassembled", changed_code),
        with_llvm("diff::spir_v_by_kernel", spirv),
        with_llvm("diff::the_page_has_all_changes", page),
        with_llvm("diff::the_page_is_searched_and_sorted", page_in_chromium),
    ]
}

const OLD: &str = "\
#define KERNEL __attribute__((amdgpu_kernel)) void\n\
KERNEL same(int *p) { *p = 1; }\n\
KERNEL edited(int *p) { *p = 2; }\n\
KERNEL larger(int *p) { *p = 3; }\n\
KERNEL gone(int *p) { *p = 4; }\n\
KERNEL before(int *p) { *p = 5; }\n";
const NEW: &str = "\
#define KERNEL __attribute__((amdgpu_kernel)) void\n\
KERNEL added(int *p) { *p = 6; }\n\
KERNEL after(int *p) { *p = 5; }\n\
KERNEL larger(int *p) { *p = 3; __builtin_amdgcn_s_barrier(); for (int i = 0; i < 40; i++) p[i] = p[i + 40] * i; }\n\
KERNEL edited(int *p) { *p = 20; }\n\
KERNEL same(int *p) { *p = 1; }\n";

/// Compiles `source` for a GPU.
fn image(work: &Work, name: &str, source: &str, arch: &str) -> Result<(), Failed> {
    work.file("kernels.c", source);
    run(work
        .command(llvm("clang"))
        .args(["-target", "amdgcn-amd-amdhsa", "-nogpulib", "-O2"])
        .arg(format!("-mcpu={arch}"))
        .args(["kernels.c", "-o", name]))?;
    Ok(())
}

/// The output of `offld diff`, which exits with `status`.
fn diff(work: &Work, args: &[&str], status: i32) -> Result<String, Failed> {
    let mut command = work.command(offld());
    command.arg("diff").args(args);
    let ended = output(&mut command)?;
    ensure(ended.status.code() == Some(status), || {
        shown(&command, &ended)
    })?;
    Ok(text(&ended.stdout))
}

fn tables() -> Outcome {
    let work = Work::new();
    image(&work, "old.co", OLD, "gfx90a")?;
    image(&work, "new.co", NEW, "gfx90a")?;
    let shown = diff(&work, &["old.co", "new.co"], 1)?;
    let rows: Vec<&str> = shown.lines().collect();
    expect_equal(
        "heading",
        "gfx90a: 5 kernels: 2 changed, 1 new, 1 gone, 1 renamed",
        rows[0],
    )?;
    let row = |start: &str| {
        let mut found = rows
            .iter()
            .filter(|row| row.trim_start().starts_with(start));
        found
            .next()
            .ok_or_else(|| format!("no row `{start}` in\n{shown}"))
    };
    row("new      added")?;
    row("gone     gone")?;
    expect_in(row("renamed  after")?, "was before")?;
    expect_in(row("changed  edited")?, "code")?;
    let larger = row("changed  larger")?;
    expect_in(larger, "code, vgprs ")?;
    expect_in(larger, "code size ")?;

    let markdown = diff(&work, &["--markdown", "old.co", "new.co"], 1)?;
    expect_in(&markdown, "| renamed | `after` | was before |")?;
    let json: Value = serde_json::from_str(&diff(&work, &["--json", "old.co", "new.co"], 1)?)
        .map_err(|error| error.to_string())?;
    expect_equal("unchanged", "1", &json["archs"][0]["unchanged"].to_string())?;

    expect_equal(
        "no changes",
        "gfx90a: 5 kernels, no changes\n",
        &diff(&work, &["old.co", "old.co"], 0)?,
    )?;
    passed()
}

fn saved_kernels() -> Outcome {
    let work = Work::new();
    image(&work, "old.co", OLD, "gfx90a")?;
    image(&work, "new.co", NEW, "gfx90a")?;
    diff(&work, &["--save", "old.json", "old.co"], 0)?;
    expect_equal(
        "the report",
        &diff(&work, &["old.co", "new.co"], 1)?,
        &diff(&work, &["old.json", "new.co"], 1)?,
    )?;
    // A file of a later version.
    let saved = std::fs::read_to_string(work.path().join("old.json"))?;
    work.file("later.json", saved.replace("\"schema\":1", "\"schema\":2"));
    let mut command = work.command(offld());
    command.args(["diff", "later.json", "new.co"]);
    expect_in(
        &run_failing(&mut command)?,
        "`later.json`: kernels of version 2, but this offld reads version 1",
    )?;
    passed()
}

fn architectures() -> Outcome {
    let work = Work::new();
    for folder in ["old", "new"] {
        std::fs::create_dir_all(work.path().join(folder))?;
    }
    image(&work, "old/a.co", OLD, "gfx90a")?;
    image(&work, "old/b.co", OLD, "gfx1030")?;
    image(&work, "new/a.co", OLD, "gfx90a")?;
    image(&work, "new/b.co", OLD, "gfx1100")?;
    expect_equal(
        "report",
        "gfx1030: architecture gone, 5 kernels\n\
         gfx1100: new architecture, 5 kernels\n\
         gfx90a: 5 kernels, no changes\n",
        &diff(&work, &["old", "new"], 1)?,
    )?;
    passed()
}

fn errors() -> Outcome {
    let work = Work::new();
    image(&work, "old.co", OLD, "gfx90a")?;
    work.file("empty.o", "no device code");
    for (args, expected) in [
        (
            &["old.co"][..],
            "pass two files to compare, or --save with one",
        ),
        (
            &["old.co", "empty.o"],
            "`empty.o`: no device code to compare",
        ),
        (&["old.co", "missing.o"], "missing.o"),
    ] {
        let mut command = work.command(offld());
        let ended = output(command.arg("diff").args(args))?;
        ensure(ended.status.code() == Some(2), || shown(&command, &ended))?;
        expect_in(&text(&ended.stderr), expected)?;
    }
    passed()
}

fn cpus() -> Outcome {
    let work = Work::new();
    work.file(
        "program.c",
        "int main(void) { int x = 0;\n#pragma omp target map(x)\n  x = 1;\n  return x - 1; }\n",
    );
    run(work.command(llvm("clang")).args([
        "-fopenmp",
        "-fopenmp-targets=x86_64-pc-linux-gnu",
        "-c",
        "program.c",
    ]))?;
    expect_in(
        &diff(&work, &["program.o", "program.o"], 1)?,
        "1 kernel: code of 1 not compared",
    )?;
    passed()
}

/// `--changed-code` shows instructions without addresses, in each format.
fn changed_code() -> Outcome {
    let work = Work::new();
    image(&work, "old.co", OLD, "gfx90a")?;
    image(&work, "new.co", NEW, "gfx90a")?;
    let with_tools = |args: &[&str]| {
        let path = format!("{}:/usr/bin:/bin", crate::support::LLVM);
        let mut command = work.command(offld());
        command.args(["diff", "--changed-code"]).args(args);
        command.env("PATH", path);
        output(&mut command).map(|ended| text(&ended.stdout))
    };
    let shown = with_tools(&["old.co", "new.co"])?;
    expect_in(&shown, "\nedited:\n  @@ ")?;
    expect_in(
        &shown,
        "\n  -v_mov_b32_e32 v1, 2\n  +v_mov_b32_e32 v1, 20\n",
    )?;
    expect_in(&shown, " more lines\n")?;
    let json: Value = serde_json::from_str(&with_tools(&["--json", "old.co", "new.co"])?)?;
    let changes = json["archs"][0]["changes"].as_array().ok_or("no changes")?;
    let diff_of = |kernel: &str| {
        let mut found = changes.iter().filter(|change| change["kernel"] == kernel);
        found.next().map(|change| &change["code_diff"])
    };
    ensure(diff_of("edited").is_some_and(Value::is_string), || {
        json.to_string()
    })?;
    ensure(diff_of("added").is_some_and(Value::is_null), || {
        json.to_string()
    })?;
    let markdown = with_tools(&["--markdown", "old.co", "new.co"])?;
    expect_in(&markdown, "`edited`\n\n```diff\n@@ ")?;
    // PTX needs no program.
    for (name, value) in [("old.ptx", 1), ("new.ptx", 2)] {
        work.file(
            "kernel.c",
            format!("__attribute__((nvptx_kernel)) void kernel(int *p) {{ *p = {value}; }}\n"),
        );
        run(work
            .command(llvm("clang"))
            .args([
                "-target",
                "nvptx64-nvidia-cuda",
                "-march=sm_80",
                "-Xclang",
                "-target-feature",
                "-Xclang",
                "+ptx70",
                "-nogpulib",
            ])
            .args(["-O2", "-S", "kernel.c", "-o", name]))?;
    }
    let shown = diff(&work, &["--changed-code", "old.ptx", "new.ptx"], 1)?;
    expect_in(&shown, "\n  -")?;
    // Without a disassembler, the error names the missing program.
    let mut command = work.command(offld());
    command
        .args(["diff", "--changed-code", "old.co", "new.co"])
        .env("PATH", "/none");
    let failed = run_failing(&mut command)?;
    expect_in(
        &failed,
        "--changed-code needs llvm-objdump on PATH for code for AMD",
    )?;
    passed()
}

/// The page has each change, escaped, and forbids the browser to load anything.
fn page() -> Outcome {
    let work = Work::new();
    image(&work, "old.co", OLD, "gfx90a")?;
    image(&work, "new<b>.co", NEW, "gfx90a")?;
    let shown = diff(&work, &["--html", "page.html", "old.co", "new<b>.co"], 1)?;
    expect_in(&shown, "gfx90a: 5 kernels: 2 changed")?;
    let page = std::fs::read_to_string(work.path().join("page.html"))?;
    expect_in(
        &page,
        "<title>new&lt;b&gt;.co, compared with old.co: kernels</title>",
    )?;
    expect_in(
        &page,
        "<tr><td>renamed</td><th scope=\"row\"><bdi class=\"name\">after</bdi></th><td>gfx90a</td><td class=\"difference\">was before</td><td>new&lt;b&gt;.co</td></tr>",
    )?;
    ensure(page.matches("<tr><td>").count() == 5, || page.clone())?;
    ensure(
        !page.contains("{{") && !page.contains("http://") && !page.contains("https:"),
        || page.clone(),
    )?;
    passed()
}

/// The kernels that the page shows, in their order.
const SHOWN: &str = "[...document.querySelectorAll('#table tbody tr:not([hidden]) th')].map(at => at.textContent).join(' ')";

fn page_in_chromium() -> Outcome {
    if !browser::is_here() {
        return missing("chromium");
    }
    let work = Work::new();
    image(&work, "old.co", OLD, "gfx90a")?;
    image(&work, "new.co", NEW, "gfx90a")?;
    diff(&work, &["--html", "page.html", "old.co", "new.co"], 1)?;
    let mut browser = Browser::start(&work)?;
    browser.load(&work.path().join("page.html"))?;
    browser.wait("document.readyState === 'complete'")?;
    let all = "added gone after edited larger";
    expect_equal("shown", all, &browser.text(SHOWN)?)?;
    browser.click("#search", false)?;
    browser.write("changed vgprs")?;
    browser.wait("document.querySelector('#count').textContent === '1 of 5 kernels'")?;
    expect_equal("found", "larger", &browser.text(SHOWN)?)?;
    browser.eval("document.querySelector('#search').value = ''; document.querySelector('#search').dispatchEvent(new Event('input')); 0")?;
    browser.click("#table thead th:nth-child(2) button", false)?;
    browser
        .wait("document.querySelector('#table thead th:nth-child(2)').ariaSort === 'ascending'")?;
    expect_equal(
        "sorted",
        "added after edited gone larger",
        &browser.text(SHOWN)?,
    )?;
    browser.click("#table thead th:nth-child(2) button", false)?;
    expect_equal(
        "sorted",
        "larger gone edited after added",
        &browser.text(SHOWN)?,
    )?;
    // Without scripts, the table is there as well.
    browser.scripts(false)?;
    browser.load(&work.path().join("page.html"))?;
    browser.wait("document.querySelector('#bar').hidden")?;
    expect_equal("without scripts", all, &browser.text(SHOWN)?)?;
    browser.scripts(true)?;
    browser.expect_no_trouble()?;
    passed()
}

/// Kernels of SPIR-V in another order, with other code beside them, and with another constant.
fn spirv() -> Outcome {
    const FIRST: &str = "constant int table[4] = {1, TWO, 3, 4};\n\
        int helper(int x) { return x * 3; }\n\
        kernel void first(global int *p) { p[get_global_id(0)] = helper(p[0]) + table[1]; }\n";
    const SECOND: &str = "kernel void second(global float *p) { p[1] = sqrt(p[0]) + MORE; }\n";
    const THIRD: &str =
        "kernel void third(global int *p) { for (int i = 0; i < p[1]; i++) p[i] += i; }\n";
    const ADDED: &str = "kernel void added(global long *p) { *p = 77; }\n";
    let work = Work::new();
    for (name, source, args) in [
        (
            "old.spv",
            [FIRST, SECOND, THIRD].concat(),
            ["-DTWO=2", "-DMORE=0.5f"],
        ),
        (
            "moved.spv",
            [THIRD, SECOND, FIRST].concat(),
            ["-DTWO=2", "-DMORE=0.5f"],
        ),
        (
            "debug.spv",
            ["\n\n", FIRST, SECOND, THIRD].concat(),
            ["-DTWO=2", "-gline-tables-only"],
        ),
        (
            "new.spv",
            [ADDED, THIRD, SECOND, FIRST].concat(),
            ["-DTWO=2", "-DMORE=1.5f"],
        ),
        (
            "constant.spv",
            [FIRST, SECOND, THIRD].concat(),
            ["-DTWO=9", "-DMORE=0.5f"],
        ),
    ] {
        work.file("kernels.cl", source);
        let mut compile = work.command(llvm("clang"));
        compile
            .args(["-target", "spirv64-unknown-unknown", "-x", "cl"])
            .args(["-cl-std=CL2.0", "-Xclang", "-finclude-default-header"])
            .args(["-O0", "-c", "kernels.cl", "-o", name])
            .args(args);
        if name == "debug.spv" {
            compile.arg("-DMORE=0.5f");
        }
        run(&mut compile)?;
    }
    for same in ["moved.spv", "debug.spv"] {
        let shown = diff(&work, &["old.spv", same], 0)?;
        expect_equal(same, "unknown: 3 kernels, no changes\n", &shown)?;
    }
    let shown = diff(&work, &["old.spv", "new.spv"], 1)?;
    expect_in(&shown, "unknown: 4 kernels: 1 changed, 1 new\n")?;
    expect_in(&shown, "changed  second  code\n")?;
    let shown = diff(&work, &["old.spv", "constant.spv"], 1)?;
    expect_in(&shown, "unknown: 3 kernels: 1 changed\n")?;
    expect_in(&shown, "changed  first   code\n")?;
    passed()
}
