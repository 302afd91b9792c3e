//! The benchmark (`benches/compare.sh`), run once on small inputs: it writes its table, compares
//! rows with their bounds, and leaves no files behind. The measured times have no meaning here.

use std::path::{Path, PathBuf};
use std::process::Command;

use libtest_mimic::{Failed, Trial};

use super::support::{
    Outcome, Work, expect_equal, expect_in, expect_not_in, host_linker, missing, output, passed,
    root, run, run_failing, text, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("bench::a_table_of_every_row_and_the_machine", table),
        with_llvm(
            "bench::a_row_beyond_its_bound_fails_the_check",
            exceeded_bounds,
        ),
        with_llvm(
            "bench::an_unknown_group_is_told_and_what_fails_leaves_nothing",
            failures,
        ),
    ]
}

/// The benchmark script with one run per row and inputs of 1 MiB. `None` if hyperfine or GNU time
/// is missing.
fn bench(work: &Work, args: &[&str]) -> Option<Command> {
    let measured_with = ["/usr/bin/hyperfine", "/usr/bin/time"];
    if !measured_with.iter().all(|tool| Path::new(tool).is_file()) {
        return None;
    }
    let mut command = work.command(root().join("benches/compare.sh"));
    command
        .args(args)
        .env("OFFLD", crate::support::offld())
        .env("RUNS", "1")
        .env("LARGE_RUNS", "1");
    command
        .env("SIZE", "1")
        .env("IMAGES", "2")
        .env("PAIRED_RUNS", "1");
    Some(command)
}

fn missing_tools() -> Outcome {
    missing("hyperfine and GNU time in /usr/bin")
}

/// Writes a `bounds.txt` that every measurement meets, except for `rows`: key, share of LLVM's
/// time, memory.
fn bounds(work: &Work, rows: &[[&str; 3]]) -> Result<PathBuf, Failed> {
    let mut all = String::new();
    for line in std::fs::read_to_string(root().join("benches/bounds.txt"))?
        .lines()
        .filter(|line| !line.starts_with('#'))
    {
        let key = line.split_whitespace().next().unwrap_or_default();
        let [_, share, memory] = rows
            .iter()
            .find(|row| row[0] == key)
            .copied()
            .unwrap_or([key, "1000", "10000"]);
        all += &format!("{key} {share} {memory}\n");
    }
    Ok(work.file("bounds", all))
}

/// The cells of a Markdown table, row by row, without its head.
fn rows(table: &str) -> Vec<Vec<String>> {
    let rows = table
        .lines()
        .filter(|line| line.starts_with('|') && !line.starts_with("|---"))
        .skip(1);
    rows.map(|line| {
        line.trim_matches('|')
            .split('|')
            .map(|cell| cell.trim().to_owned())
            .collect()
    })
    .collect()
}

fn table() -> Outcome {
    let work = Work::new();
    let Some(mut command) = bench(
        &work,
        &["--check", "--write=results.md", "images", "containers"],
    ) else {
        return missing_tools();
    };
    let printed = run(command.env("BOUNDS", bounds(&work, &[])?))?;
    expect_not_in(&printed, "**")?;
    let rows = rows(&printed);
    expect_equal("rows", "15", &rows.len().to_string())?;
    for row in &rows {
        expect_complete(row)?;
    }
    for what in [
        "2 MiB of HIP images, compressed §",
        "list 2 x 1 MiB, compressed",
    ] {
        if !rows
            .iter()
            .any(|row| row.first().is_some_and(|cell| cell == what))
        {
            return Err(format!("no row `{what}` in:\n{printed}").into());
        }
    }
    let written = std::fs::read_to_string(work.path().join("results.md"))?;
    let table = printed.split("\n\n").next().unwrap_or_default();
    expect_in(&written, table)?;
    expect_in(&written, "| LLVM | Debian clang version 22.")?;
    work.expect_no_temps()?;
    passed()
}

/// Fails unless a row has both times, a ratio and both memory sizes. Rows about the start of a
/// program have no time and memory of LLVM, and no ratio.
fn expect_complete(row: &[String]) -> Result<(), Failed> {
    let cell = |index: usize| row.get(index).map_or("", String::as_str);
    let ours = cell(3).ends_with(" ms") && cell(9).ends_with(" MiB");
    let theirs = if cell(0).starts_with("start of a program") {
        [2, 4, 8].iter().all(|&index| cell(index) == "–")
    } else {
        cell(2).ends_with(" ms")
            && cell(4).parse::<f64>().is_ok_and(|ratio| ratio > 0.0)
            && cell(8).ends_with(" MiB")
    };
    if row.len() == 12 && ours && theirs {
        Ok(())
    } else {
        Err(format!("an incomplete row: {row:?}").into())
    }
}

fn exceeded_bounds() -> Outcome {
    // One row measures wild.
    if host_linker("wild").is_none() {
        return missing("wild");
    }
    let work = Work::new();
    let few = bounds(
        &work,
        &[["zaxpy-cold", "0.001", "-"], ["zaxpy-warm", "-", "1"]],
    )?;
    let Some(mut command) = bench(&work, &["--check", "zaxpy"]) else {
        return missing_tools();
    };
    let ended = output(command.env("BOUNDS", few))?;
    expect_equal("status", "Some(1)", &format!("{:?}", ended.status.code()))?;
    let marks: Vec<String> = rows(&text(&ended.stdout))
        .into_iter()
        .filter_map(|mut row| row.pop())
        .collect();
    expect_equal(
        "marks",
        ";**misses its bound**;**too much memory**;;;;;",
        &marks.join(";"),
    )?;
    work.expect_no_temps()?;
    passed()
}

fn failures() -> Outcome {
    let work = Work::new();
    let Some(mut command) = bench(&work, &["zaxpi"]) else {
        return missing_tools();
    };
    expect_in(&run_failing(&mut command)?, "usage: compare.sh")?;
    let Some(mut command) = bench(&work, &["--write", "zaxpy"]) else {
        return missing_tools();
    };
    expect_in(&run_failing(&mut command)?, "usage: compare.sh")?;
    let (Some(mut command), offld) = (
        bench(&work, &["zaxpy"]),
        work.tool("offld", "#!/bin/sh\nexit 1\n"),
    ) else {
        return missing_tools();
    };
    run_failing(command.env("OFFLD", offld))?;
    work.expect_no_temps()?;
    passed()
}
