//! Terminal output of commands: widths, colours, non-ASCII characters, and exit statuses of invalid
//! command lines. Expected output for 60, 80 and 200 columns is in
//! `tests/cases/offld/terminal-*.case`, `help-*.case` and `tests/pictures`.

mod escaped;

use libtest_mimic::{Failed, Trial};

use super::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, offld, output, passed, root,
    shown, test, text, with_llvm,
};
use crate::kit::Image;

pub(crate) fn trials() -> Vec<Trial> {
    let mut trials = vec![
        test(
            "terminal::pictures_are_not_wider_than_their_terminals",
            pictures,
        ),
        with_llvm(
            "terminal::a_real_terminal_has_its_own_width_and_colours",
            real_terminal,
        ),
        with_llvm(
            "terminal::other_characters_are_shown_in_utf8_locales_only",
            characters,
        ),
        test("terminal::manual_pages_do_not_depend_on_it", manual_pages),
    ];
    trials.extend(escaped::trials());
    trials
}

/// Checks the lines that each case prints: none is wider than its terminal, except for unbreakable
/// words, and no heading is cut.
fn pictures() -> Outcome {
    const TITLES: [&str; 12] = [
        "#",
        "where",
        "container",
        "kind",
        "triple",
        "target",
        "format",
        "size",
        "packed",
        "sha256",
        "name",
        "uncompressed",
    ];
    for width in [60, 80, 200] {
        for name in ["terminal", "help"] {
            let path = root().join(format!("tests/cases/offld/{name}-{width}.case"));
            let written = std::fs::read_to_string(&path)?;
            let printed: Vec<&str> = written
                .lines()
                .filter_map(|line| line.strip_prefix('|'))
                .collect();
            ensure(printed.len() > 40, || {
                format!("{}: nothing is printed", path.display())
            })?;
            for line in printed
                .iter()
                .map(|line| line.strip_prefix(' ').unwrap_or(line))
            {
                let fits = line.chars().count() <= width || !line.trim().contains(' ');
                ensure(fits, || {
                    format!(
                        "{}: {} characters: {line}",
                        path.display(),
                        line.chars().count()
                    )
                })?;
                let columns: Vec<&str> = line.split_whitespace().collect();
                if columns.first() == Some(&"#") {
                    let cut = columns.iter().find(|word| !TITLES.contains(word));
                    ensure(cut.is_none(), || {
                        format!("{}: the heading {cut:?} of `{line}`", path.display())
                    })?;
                }
            }
        }
    }
    passed()
}

/// An object with two images.
fn object(work: &Work) -> Result<(), Failed> {
    work.fat(
        "kernels.o",
        &[Image::hip("gfx90a", b"ONE"), Image::cuda("sm_80", b"TWO")],
    )?;
    Ok(())
}

/// Runs `offld` with these arguments and variables. Returns its output and exit status.
fn run_offld(work: &Work, args: &[&str], env: &[(&str, &str)]) -> Result<(String, i32), Failed> {
    let mut command = work.command(offld());
    let ended = output(command.args(args).envs(env.iter().copied()))?;
    let status = ended
        .status
        .code()
        .ok_or_else(|| Failed::from(shown(&command, &ended)))?;
    Ok((text(&ended.stdout) + &text(&ended.stderr), status))
}

/// Runs it on a pseudoterminal, which `script` creates.
fn on_terminal(work: &Work, columns: usize, line: &str) -> Result<String, Failed> {
    on_terminal_in("C.UTF-8", work, columns, line)
}

/// Runs it on a pseudoterminal in this locale.
pub(crate) fn on_terminal_in(
    locale: &str,
    work: &Work,
    columns: usize,
    line: &str,
) -> Result<String, Failed> {
    let mut command = work.command("script");
    let line = format!("stty cols {columns} rows 50; {} {line}", offld().display());
    command
        .args(["-qec", &line, "/dev/null"])
        .env("TERM", "xterm")
        .env("LC_ALL", locale)
        .env_remove("NO_COLOR");
    let ended = output(&mut command)?;
    Ok(text(&ended.stdout).replace('\r', ""))
}

fn real_terminal() -> Outcome {
    let work = Work::new();
    object(&work)?;
    let plain = |columns| on_terminal(&work, columns, "--color=never inspect kernels.o");
    for columns in [60, 80] {
        let shown = plain(columns)?;
        expect_in(&shown, "gfx90a")?;
        ensure(
            shown.lines().all(|line| line.chars().count() <= columns),
            || shown.clone(),
        )?;
    }
    expect_not_in(&plain(200)?, "not shown:")?;
    expect_in(&plain(60)?, "not shown: ")?;
    let help = on_terminal(&work, 60, "size --help")?;
    let bare: Vec<String> = help
        .lines()
        .map(|line| line.split("\x1b[").map(after_escape).collect::<String>())
        .collect();
    ensure(bare.iter().all(|line| line.chars().count() <= 60), || {
        help.clone()
    })?;
    expect_in(
        &on_terminal(&work, 80, "check kernels.o")?,
        "verdict: \x1b[",
    )?;
    expect_not_in(
        &on_terminal(&work, 80, "--color=never check kernels.o")?,
        "\x1b[",
    )?;
    passed()
}

/// The rest of a text after a colour escape sequence.
fn after_escape(part: &str) -> &str {
    let is_code = |c: char| c.is_ascii_digit() || c == ';';
    part.trim_start_matches(is_code)
        .strip_prefix('m')
        .unwrap_or(part)
}

fn characters() -> Outcome {
    let work = Work::new();
    object(&work)?;
    for (locale, ascii) in [
        ("C.UTF-8", false),
        ("en_US.utf8", false),
        ("C", true),
        ("POSIX", true),
        ("de_DE.ISO-8859-1", true),
    ] {
        for args in [
            &["inspect", "kernels.o"][..],
            &["help", "link"],
            &["help", "names"],
        ] {
            let (shown, _) = run_offld(&work, args, &[("LC_ALL", locale), ("COLUMNS", "40")])?;
            ensure(shown.is_ascii() == ascii, || format!("{locale}: {shown}"))?;
        }
    }
    passed()
}

/// Manual pages do not depend on the terminal of their author.
fn manual_pages() -> Outcome {
    let work = Work::new();
    for (folder, columns) in [("narrow", "60"), ("wide", "250")] {
        expect_equal(
            "status",
            "0",
            &run_offld(&work, &["man", folder], &[("COLUMNS", columns)])?
                .1
                .to_string(),
        )?;
    }
    let mut count = 0;
    for entry in std::fs::read_dir(work.path().join("narrow"))? {
        let name = entry?.file_name();
        let page = |folder: &str| std::fs::read_to_string(work.path().join(folder).join(&name));
        expect_equal(&name.to_string_lossy(), &page("wide")?, &page("narrow")?)?;
        count += 1;
    }
    ensure(count > 20, || format!("{count} pages"))?;
    passed()
}
