//! What users are told: manual pages, help, errors about what they have set, commands that can be pasted.

use std::path::Path;
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use crate::kit::Image;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, made, passed, run, run_failing, stderr_of, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test("regressions::g23a_every_option_of_a_help_is_in_its_manual_page", options_in_pages),
        test("regressions::g23b_every_environment_variable_is_in_the_manual", variables_in_pages),
        test("regressions::g23c_no_help_names_a_file_that_is_not_installed", help_without_files),
        with_llvm("regressions::g23d_a_misspelled_option_of_ours_is_told", misspelled),
        with_llvm("regressions::g23e_an_error_names_the_variable_that_was_wrong", wrong_variables),
        with_llvm("regressions::g23f_a_compiler_that_is_not_a_clang_is_told", not_a_clang),
        with_llvm("regressions::g25b_a_reproduction_has_one_folder_at_its_top", top_folder),
    ]
}

fn offld() -> &'static str {
    env!("CARGO_BIN_EXE_offld")
}

/// The tools, each with the name of its page.
const PAGES: [(&str, &str); 6] = [
    ("clang-linker-wrapper", "offld-clang-linker-wrapper.1"),
    ("ld.offld", "ld.offld.1"),
    ("llvm-offload-binary", "offld-llvm-offload-binary.1"),
    ("llvm-offload-wrapper", "offld-llvm-offload-wrapper.1"),
    ("clang-offload-wrapper", "offld-clang-offload-wrapper.1"),
    ("clang-offload-bundler", "offld-clang-offload-bundler.1"),
];

/// The pages, as text without what roff adds.
fn pages(work: &Work) -> Result<impl Fn(&str) -> Result<String, Failed>, Failed> {
    work.run(offld(), ["man", "pages"])?;
    let folder = work.path().join("pages");
    Ok(move |name: &str| {
        let page = std::fs::read_to_string(folder.join(name)).map_err(|error| format!("{name}: {error}"))?;
        Ok(page.replace("\\-", "-").replace("\\fB", "").replace("\\fR", ""))
    })
}

fn options_in_pages() -> Outcome {
    let work = Work::new();
    let page = pages(&work)?;
    for (tool, name) in PAGES {
        let page = page(name)?;
        let help = run(work.command(offld()).args([tool, "--help-hidden"]))?;
        let options: Vec<&str> = help.lines().filter_map(|line| line.trim_start().split([' ', '=']).next()).collect();
        let options: Vec<&str> = options.into_iter().filter(|word| word.starts_with('-')).collect();
        ensure(options.len() > 3, || help.clone())?;
        for option in options {
            expect_in(&page, option)?;
        }
    }
    passed()
}

fn variables_in_pages() -> Outcome {
    let work = Work::new();
    let page = pages(&work)?;
    let all = page("offld.1")?;
    let source = std::fs::read_to_string(crate::support::root().join("src/sys/session.rs"))?;
    let ours: Vec<&str> = source.split('"').filter(|word| word.starts_with("OFFLD_") || word.starts_with("OFFLOAD_")).collect();
    ensure(ours.len() > 10, || "no names of variables in session.rs")?;
    for name in ours {
        expect_in(&all, name)?;
    }
    expect_in(&page("ld.offld.1")?, "OFFLD_LINKER")?;
    expect_in(&page("offld-clang-offload-bundler.1")?, "OFFLOAD_BUNDLER_COMPRESS")?;
    expect_in(&page("offld-cache.1")?, "OFFLD_CACHE_SIZE")?;
    passed()
}

fn help_without_files() -> Outcome {
    let work = Work::new();
    let own = ["links", "inspect", "cache", "completions", "man"].map(|command| vec![command, "--help"]);
    let of_cache = ["stats", "clear", "path", "gc"].map(|command| vec!["cache", command, "--help"]);
    let tools = PAGES.map(|(tool, _)| vec![tool, "--help-hidden"]);
    for words in own.into_iter().chain(of_cache).chain(tools).chain([vec!["--help"]]) {
        let help = run(work.command(offld()).args(&words))?;
        for file in ["docs/", ".md", "README"] {
            expect_not_in(&help, file)?;
        }
    }
    passed()
}

fn misspelled() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    for (wrong, right) in [
        ("--wrapper-vebose", "--wrapper-verbose"),
        ("--wrapper-jobs", "--wrapper-jobs=<value>"),
        ("--offld-clnag=/x", "--offld-clang=<value>"),
        ("--save-tmps", "--save-temps"),
    ] {
        let told = stderr_of(&mut work.wrapper(["-o", "x", "a.o", wrong]))?;
        expect_in(&told, &format!("warning: `{wrong}` is no option of offld and goes to the linker; did you mean `{right}`?"))?;
    }
    let others =
        ["--gc-sections", "--compress-debug-sections=zlib", "--hash-style=gnu", "--build-id", "-soname=x", "--reproducible"];
    let told = stderr_of(work.wrapper(["-o", "x", "a.o"]).args(others))?;
    expect_not_in(&told, "did you mean `--wrapper")?;
    expect_not_in(&told, "did you mean `--compress")?;
    passed()
}

fn wrong_variables() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    let link = || work.wrapper(["-o", "x", "a.o"]);
    expect_in(
        &run_failing(link().env("OFFLD_CLANG", "/no/clang"))?,
        "error: OFFLD_CLANG: cannot find the device compiler `/no/clang`",
    )?;
    let option = run_failing(link().arg("--offld-clang=/no/clang"))?;
    expect_in(&option, "error: --offld-clang=: cannot find the device compiler `/no/clang`")?;
    let mut linker = work.command(made().links.join("ld.offld"));
    linker.args(["-o", "x", "a.o"]).env("OFFLD_LINKER", "/no/ld");
    expect_in(&run_failing(&mut linker)?, "error: OFFLD_LINKER: cannot find the host linker `/no/ld`")?;
    expect_in(&run_failing(link().env("OFFLD_LLVM", "/no/llvm"))?, "OFFLD_LLVM names `/no/llvm`")?;
    passed()
}

fn not_a_clang() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    for other in ["/bin/true", "gcc"] {
        let told = run_failing(work.wrapper(["-o", "x", "a.o"]).env("OFFLD_CLANG", other))?;
        expect_in(&told, "error: OFFLD_CLANG: `")?;
        expect_in(&told, "is not a clang")?;
        expect_equal("lines", "1", &told.lines().count().to_string())?;
    }
    // One by another name says what it is.
    work.tool("mycc", "#!/bin/sh\n[ \"$1\" = --version ] && { echo 'Acme clang version 22.0'; exit; }; exit 5\n");
    let told = run_failing(work.wrapper(["-o", "x", "a.o"]).env("OFFLD_CLANG", work.path().join("mycc")))?;
    expect_in(&told, "device link for amdgcn-amd-amdhsa (gfx90a) failed")?;
    passed()
}

fn top_folder() -> Outcome {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "A")])?;
    run(&mut work.wrapper(["-o", "x", "a.o", "--reproduce=sub.d.tar"]))?;
    run(work.wrapper(["-o", "x", "a.o"]).env("OFFLD_REPRODUCE", "all"))?;
    let named = |tar: &Path| tar.file_stem().unwrap_or_default().to_string_lossy().into_owned();
    let tars = std::fs::read_dir(work.path().join("all"))?.flatten().map(|entry| entry.path());
    for tar in tars.chain([work.path().join("sub.d.tar")]) {
        let listed = run(Command::new("tar").arg("tf").arg(&tar))?;
        let top = named(&tar) + "/";
        ensure(listed.lines().all(|entry| entry.starts_with(&top)), || listed.clone())?;
        expect_in(&listed, &format!("{top}run.sh\n"))?;
    }
    passed()
}
