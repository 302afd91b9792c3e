//! User-visible text: manual pages, help, errors about settings, and commands that can be pasted.

use libtest_mimic::{Failed, Trial};

use crate::kit::Image;
use crate::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, made, offld, passed, run,
    stderr_of, test, with_llvm,
};

pub(super) fn trials() -> Vec<Trial> {
    vec![
        test(
            "usage::every_option_of_a_help_is_in_its_manual_page",
            options_in_pages,
        ),
        test(
            "usage::every_environment_variable_is_in_the_manual",
            variables_in_pages,
        ),
        test(
            "usage::no_help_names_a_file_that_is_not_installed",
            help_without_files,
        ),
        with_llvm("usage::printed_commands_run_when_pasted", pasted),
        with_llvm("usage::a_bad_setting_of_the_cache_warns_once", bad_settings),
        with_llvm(
            "usage::stats_claim_no_remote_that_cannot_be_reached",
            stats_without_remote,
        ),
        test(
            "usage::the_build_by_default_has_the_remote_cache",
            default_features,
        ),
    ]
}

/// The tools, each with the name of its manual page.
const PAGES: [(&str, &str); 6] = [
    ("clang-linker-wrapper", "offld-clang-linker-wrapper.1"),
    ("ld.offld", "ld.offld.1"),
    ("llvm-offload-binary", "offld-llvm-offload-binary.1"),
    ("llvm-offload-wrapper", "offld-llvm-offload-wrapper.1"),
    ("clang-offload-wrapper", "offld-clang-offload-wrapper.1"),
    ("clang-offload-bundler", "offld-clang-offload-bundler.1"),
];

/// The manual pages as text, without roff markup.
fn pages(work: &Work) -> Result<impl Fn(&str) -> Result<String, Failed>, Failed> {
    work.run(offld(), ["man", "pages"])?;
    let folder = work.path().join("pages");
    Ok(move |name: &str| {
        let page = std::fs::read_to_string(folder.join(name))
            .map_err(|error| format!("{name}: {error}"))?;
        Ok(page
            .replace("\\-", "-")
            .replace("\\fB", "")
            .replace("\\fR", ""))
    })
}

fn options_in_pages() -> Outcome {
    let work = Work::new();
    let page = pages(&work)?;
    for (tool, name) in PAGES {
        let page = page(name)?;
        let help = run(work.command(offld()).args([tool, "--help-hidden"]))?;
        let options: Vec<&str> = help
            .lines()
            .filter_map(|line| line.trim_start().split([' ', '=']).next())
            .collect();
        let options: Vec<&str> = options
            .into_iter()
            .filter(|word| word.starts_with('-'))
            .collect();
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
    let source = |file| std::fs::read_to_string(crate::support::root().join(file));
    let sources = source("crates/offld-system/src/environment.rs")?;
    let ours: Vec<&str> = sources
        .split('"')
        .filter(|word| word.starts_with("OFFLD_") || word.starts_with("OFFLOAD_"))
        .collect();
    ensure(ours.len() > 10, || "no names of variables in the sources")?;
    for name in ours {
        expect_in(&all, name)?;
    }
    expect_in(&page("ld.offld.1")?, "OFFLD_LINKER")?;
    expect_in(
        &page("offld-clang-offload-bundler.1")?,
        "OFFLOAD_BUNDLER_COMPRESS",
    )?;
    expect_in(&page("offld-cache.1")?, "OFFLD_CACHE_SIZE")?;
    passed()
}

fn help_without_files() -> Outcome {
    let work = Work::new();
    let own =
        ["links", "inspect", "cache", "completions", "man"].map(|command| vec![command, "--help"]);
    let of_cache = ["stats", "clear", "path", "gc"].map(|command| vec!["cache", command, "--help"]);
    let tools = PAGES.map(|(tool, _)| vec![tool, "--help-hidden"]);
    for words in own
        .into_iter()
        .chain(of_cache)
        .chain(tools)
        .chain([vec!["--help"]])
    {
        let help = run(work.command(offld()).args(&words))?;
        for file in ["docs/", ".md", "README"] {
            expect_not_in(&help, file)?;
        }
    }
    passed()
}

/// Unusual names in the commands of a dry run. If a shell runs a printed command, the tool gets the
/// original arguments.
fn pasted() -> Outcome {
    let work = Work::new();
    let odd = "o u't\t$x\u{1b}.o";
    work.fat(odd, &[Image::amd("gfx90a", "A")])?;
    let words = [
        "--dry-run",
        "--save-temps",
        "-o",
        "my x",
        odd,
        "-rpath=a`b\"c",
    ];
    let stderr = stderr_of(&mut work.wrapper(words))?;
    let commands: Vec<&str> = stderr
        .lines()
        .filter(|line| line.starts_with(" \""))
        .collect();
    let commands: Vec<&str> = commands
        .into_iter()
        .filter(|line| !line.ends_with(" # in process"))
        .collect();
    expect_equal("commands", "2", &commands.len().to_string())?;
    for command in &commands {
        run(work.command("bash").arg("-c").arg(command))?;
    }
    let pasted = (work.device_lines()?, work.host_line()?);
    ensure(pasted.1.iter().any(|word| word == "-rpath=a`b\"c"), || {
        format!("{:?}", pasted.1)
    })?;
    work.forget();
    run(&mut work.wrapper(words[1..].iter().copied()))?;
    let linked = (work.device_lines()?, work.host_line()?);
    expect_equal(
        "what the tools got",
        &format!("{linked:#?}"),
        &format!("{pasted:#?}"),
    )?;
    passed()
}

fn bad_settings() -> Outcome {
    let work = Work::new();
    work.fat(
        "a.o",
        &[Image::amd("gfx90a", "A"), Image::amd("gfx908", "B")],
    )?;
    work.fat("plain.o", &[])?;
    let warnings = |input: &str, name: &str, value: &str| -> Result<String, Failed> {
        let mut link = work.wrapper(["-o", "x", input]);
        let told = stderr_of(
            link.env("OFFLD_CACHE", work.path().join("cache"))
                .env(name, value),
        )?;
        Ok(told)
    };
    let told = warnings("a.o", "OFFLD_CACHE_SIZE", "many")?;
    expect_in(&told, "warning: OFFLD_CACHE_SIZE: invalid size 'many'")?;
    expect_equal(
        "warnings",
        "1",
        &told.matches("warning: ").count().to_string(),
    )?;
    let file = work.path().join("a.o");
    for folder in [file.clone(), file.join("cache")] {
        let told = stderr_of(work.wrapper(["-o", "x", "a.o"]).env("OFFLD_CACHE", folder))?;
        expect_in(&told, "warning: OFFLD_CACHE: `")?;
        expect_in(
            &told,
            "is not a directory, and cannot become one; device links are not cached",
        )?;
        expect_equal(
            "warnings",
            "1",
            &told.matches("warning: ").count().to_string(),
        )?;
    }
    expect_equal(
        "without device code",
        "",
        &warnings("plain.o", "OFFLD_CACHE_SIZE", "many")?,
    )?;
    expect_equal(
        "a good value",
        "",
        &warnings("a.o", "OFFLD_CACHE_SIZE", "500M")?,
    )?;
    if cfg!(feature = "remote-cache") {
        std::fs::create_dir(work.path().join("remote"))?;
        let remote = format!("file://{}", work.path().join("remote").display());
        for (name, value) in [
            ("OFFLD_CACHE_REMOTE_TIMEOUT", "soon"),
            ("OFFLD_CACHE_REMOTE_READONLY", "perhaps"),
        ] {
            let mut link = work.command(made().links.join("clang-linker-wrapper"));
            // Cached device links require a real clang and linker.
            link.args([
                "--host-triple=x86_64-unknown-linux-gnu",
                "--linker-path=/bin/true",
                "-o",
                "x",
                "a.o",
            ]);
            link.env("OFFLD_CLANG", crate::support::llvm("clang"))
                .env("OFFLD_CACHE", work.path().join("cache"));
            let told =
                crate::support::output(link.env("OFFLD_CACHE_REMOTE", &remote).env(name, value))?;
            let told = String::from_utf8_lossy(&told.stderr).into_owned();
            expect_equal(
                &format!("warnings of {name}\n{told}"),
                "1",
                &told.matches(name).count().to_string(),
            )?;
        }
    }
    passed()
}

fn stats_without_remote() -> Outcome {
    let work = Work::new();
    let stats = |remote: &str| -> Result<String, Failed> {
        let mut stats = work.command(offld());
        let text = run(stats
            .args(["cache", "stats"])
            .env("OFFLD_CACHE", work.path().join("cache"))
            .env("OFFLD_CACHE_REMOTE", remote))?;
        let mut json = work.command(offld());
        json.args(["cache", "stats", "--json"])
            .env("OFFLD_CACHE", work.path().join("cache"))
            .env("OFFLD_CACHE_REMOTE", remote);
        Ok(text + &run(&mut json)?)
    };
    for unreachable in ["ftp://machine/cache", "machine:6379"] {
        expect_not_in(&stats(unreachable)?, "remote cache ")?;
        expect_not_in(&stats(unreachable)?, "\"remote\"")?;
    }
    let reachable = stats("redis://machine")?.contains("remote cache ");
    expect_equal(
        "a remote by redis is shown",
        &cfg!(feature = "remote-cache").to_string(),
        &reachable.to_string(),
    )?;
    passed()
}

fn default_features() -> Outcome {
    let manifest = std::fs::read_to_string(crate::support::root().join("Cargo.toml"))?;
    let default = manifest
        .lines()
        .find(|line| line.starts_with("default = "))
        .unwrap_or_default();
    expect_in(default, "\"remote-cache\"")?;
    let page = std::fs::read_to_string(crate::support::root().join("docs/guides/install.md"))?;
    let cost = page
        .split("The default build includes the remote cache")
        .nth(1)
        .unwrap_or_default();
    expect_in(cost, " MB of executable and ")?;
    expect_in(cost, " ms to each start")?;
    passed()
}
