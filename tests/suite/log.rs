//! The build log (`OFFLD_CACHE_LOG`): the lines that each device link writes, and how
//! `offld cache stats` and `offld explain` evaluate them.

use std::path::Path;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::kit::Image;
use super::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, offld, output, passed,
    run, run_failing, stderr_of, text, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("log::each_device_link_has_a_line", lines),
        with_llvm("log::the_links_since_a_moment_are_summed_up", since),
        with_llvm(
            "log::traces_of_all_tools_and_logs_are_explained_together",
            explained,
        ),
        with_llvm(
            "log::traces_of_a_whole_build_have_a_file_for_each_output",
            traces_of_a_build,
        ),
    ]
}

/// Reads the lines of a log.
pub(crate) fn records(log: &Path) -> Result<Vec<Value>, Failed> {
    let text = std::fs::read_to_string(log)?;
    text.lines()
        .map(|line| {
            serde_json::from_str(line).map_err(|error| Failed::from(format!("{error}: {line}")))
        })
        .collect()
}

/// The outcome of each link in a log, with its reason.
pub(crate) fn outcomes(log: &Path) -> Result<Vec<(String, String)>, Failed> {
    let text = |record: &Value, key: &str| record[key].as_str().unwrap_or_default().to_owned();
    Ok(records(log)?
        .iter()
        .map(|record| (text(record, "outcome"), text(record, "why")))
        .collect())
}

/// An object with stand-in images for two devices.
fn program() -> Result<Work, Failed> {
    let work = Work::new();
    work.fat(
        "a.o",
        &[
            Image::amd("gfx90a", "ninety"),
            Image::amd("gfx1100", "eleven hundred"),
        ],
    )?;
    Ok(work)
}

fn lines() -> Outcome {
    let work = program()?;
    let log = work.path().join("log");
    for _ in 0..2 {
        run(work
            .wrapper(["-o", "x", "a.o"])
            .env("OFFLD_CACHE_LOG", &log))?;
    }
    // A dry run links nothing.
    run(work
        .wrapper(["--dry-run", "-o", "x", "a.o"])
        .env("OFFLD_CACHE_LOG", &log))?;
    let records = records(&log)?;
    expect_equal("lines", "4", &records.len().to_string())?;
    for record in &records {
        expect_equal("version", "1", &record["version"].to_string())?;
        expect_equal(
            "program",
            &work.path().join("x").to_string_lossy(),
            record["program"].as_str().unwrap_or_default(),
        )?;
        expect_equal(
            "outcome",
            "uncached",
            record["outcome"].as_str().unwrap_or_default(),
        )?;
        ensure(
            !record["why"].as_str().unwrap_or_default().is_empty(),
            || format!("no reason: {record}"),
        )?;
        ensure(
            record["wall_us"].as_u64() > Some(0) && record["peak_memory"].as_u64() > Some(0),
            || format!("{record}"),
        )?;
        ensure(record["image_bytes"].as_u64() > Some(0), || {
            format!("{record}")
        })?;
    }
    let first = records
        .iter()
        .find(|record| record["arch"] == "gfx1100")
        .ok_or("no line for gfx1100")?;
    let bytes = first["input_bytes"].as_u64().unwrap_or_default();
    expect_equal("inputs", "1", &first["input_count"].to_string())?;
    expect_in(
        first["inputs"][0]["name"].as_str().unwrap_or_default(),
        "a.o",
    )?;
    ensure(
        bytes >= 14 && first["inputs"][0]["bytes"].as_u64() == Some(bytes),
        || format!("{first}"),
    )?;
    passed()
}

fn since() -> Outcome {
    let work = program()?;
    let log = work.path().join("log");
    run(work
        .wrapper(["-o", "x", "a.o"])
        .env("OFFLD_CACHE_LOG", &log))?;
    let stats = |args: &[&str]| {
        let mut command = work.command(offld());
        command
            .args(["cache", "stats"])
            .args(args)
            .env("OFFLD_CACHE_LOG", "log");
        command
    };
    let json: Value = serde_json::from_str(&run(&mut stats(&["--since=1h", "--json"]))?)?;
    for (key, value) in [
        ("schema", 1),
        ("version", 1),
        ("links", 2),
        ("uncached", 2),
        ("hits", 0),
    ] {
        expect_equal(key, &value.to_string(), &json[key].to_string())?;
    }
    expect_equal(
        "reasons",
        "1",
        &json["reasons"].as_array().map_or(0, Vec::len).to_string(),
    )?;
    let shown = run(&mut stats(&["--log=log"]))?;
    expect_in(&shown, "device links   2\n")?;
    expect_in(&shown, "not cached     2 (100.0%)\n")?;
    // --since leaves out a line from an hour ago.
    let record = std::fs::read_to_string(&log)?;
    let then = records(&log)?[0]["time_us"].as_u64().unwrap_or_default();
    let old = record
        .lines()
        .next()
        .unwrap_or_default()
        .replace(&then.to_string(), &(then - 4_000_000_000).to_string());
    std::fs::write(&log, format!("{old}\n{record}"))?;
    expect_in(&run(&mut stats(&["--since=1h"]))?, "device links   2\n")?;
    expect_in(&run(&mut stats(&["--since=1d"]))?, "device links   3\n")?;
    let error = run_failing(&mut stats(&["--since=yesterday"]))?;
    expect_in(&error, "invalid time 'yesterday' for --since")?;
    // A partial line, as a killed process leaves it, with a whole line appended by a process that
    // did not check the end.
    std::fs::write(&log, format!("{old}\n{{\"version\":1,\"time{old}\n{old}\n"))?;
    for command in [
        &mut stats(&["--log=log"]),
        work.command(offld()).args(["explain", "log"]),
    ] {
        let ended = output(command)?;
        expect_equal(
            "exit status",
            "Some(0)",
            &format!("{:?}", ended.status.code()),
        )?;
        expect_equal(
            "warnings",
            "1",
            &text(&ended.stderr)
                .matches("log:2: skipped a damaged line")
                .count()
                .to_string(),
        )?;
        expect_in(&text(&ended.stdout), "device links")?;
    }
    std::fs::write(&log, "{\"version\":1\n")?;
    expect_in(&run_failing(&mut stats(&["--since=1h"]))?, "log:1: ")?;
    let error = run_failing(stats(&["--since=1h"]).env_remove("OFFLD_CACHE_LOG"))?;
    expect_in(&error, "pass --log=FILE or set OFFLD_CACHE_LOG")?;
    expect_not_in(
        &run(work
            .command(offld())
            .args(["cache", "stats"])
            .env("OFFLD_CACHE", "cache"))?,
        "device links",
    )?;
    passed()
}

/// Time traces of LLVM's wrapper, offld and clang, and offld's log. A link that is in a trace and
/// in the log counts once.
fn explained() -> Outcome {
    let work = program()?;
    let traced = |name: &str| {
        [
            format!("--wrapper-time-trace={name}"),
            "--wrapper-time-trace-granularity=0".to_owned(),
        ]
    };
    let args = ["-o", "x", "a.o"];
    run(work.reference(args).args(traced("theirs.json")))?;
    run(work
        .wrapper(args)
        .args(traced("ours.json"))
        .env("OFFLD_CACHE_LOG", "log"))?;
    work.file("unit.c", "int unit;\n");
    run(work.command(llvm("clang")).args([
        "-ftime-trace=clang.json",
        "-ftime-trace-granularity=0",
        "-c",
        "unit.c",
    ]))?;
    let explain = |args: &[&str]| {
        let mut command = work.command(offld());
        command.arg("explain").args(args);
        command
    };
    let files = ["theirs.json", "ours.json", "clang.json", "log"];
    let report: Value = serde_json::from_str(&run(&mut explain(
        &[&files[..], &["--json", "--top", "3"]].concat(),
    ))?)?;
    for (key, value) in [("version", 1), ("device_links", 4)] {
        expect_equal(key, &value.to_string(), &report[key].to_string())?;
    }
    expect_equal("of the log", "2", &report["cache"]["uncached"].to_string())?;
    expect_equal(
        "--top 3",
        "3",
        &report["slowest"].as_array().map_or(0, Vec::len).to_string(),
    )?;
    let steps = report["critical_path"]
        .as_array()
        .ok_or("no critical path")?;
    let sum: u64 = steps
        .iter()
        .filter_map(|step| step["wall_us"].as_u64())
        .sum();
    ensure(sum > 0 && Some(sum) <= report["wall_us"].as_u64(), || {
        format!("{report:#}")
    })?;
    for file in &files[..3] {
        ensure(steps.iter().any(|step| step["program"] == *file), || {
            format!("{file} is not on the path: {report:#}")
        })?;
    }
    let shown = run(&mut explain(&files))?;
    for part in [
        "4 device links\n",
        "\ncritical path\n",
        "\nslowest device links\n",
        "\ncache: hits 0, misses 0, not cached 2",
    ] {
        expect_in(&shown, part)?;
    }
    work.file("half.json", "{\n\"traceEvents\": [\n{\"ph\": ");
    let damaged = output(&mut explain(&["log", "half.json"]))?;
    expect_equal(
        "exit status",
        "Some(2)",
        &format!("{:?}", damaged.status.code()),
    )?;
    expect_in(
        &text(&damaged.stderr),
        "half.json:3: not a time trace, or damaged",
    )?;
    passed()
}

/// `OFFLD_TIME_TRACE` and `OFFLD_VERBOSE` set the options of a single link for every link of a
/// build.
fn traces_of_a_build() -> Outcome {
    let work = program()?;
    work.fat("plain.o", &[])?;
    std::fs::create_dir(work.path().join("sub"))?;
    let link = |args: &[&str]| {
        let mut command = work.wrapper(args.iter().copied());
        command.env("OFFLD_TIME_TRACE", "traces/of/all");
        command
    };
    // The second link of an output overwrites the trace of the first; `sub/x` is a different
    // output.
    for args in [
        &["-o", "x", "a.o"][..],
        &["-o", "x", "a.o"],
        &["-o", "sub/x", "a.o"],
        &["-o", "y", "plain.o"],
    ] {
        expect_equal("shown", "", &stderr_of(&mut link(args))?)?;
    }
    let traces =
        std::fs::read_dir(work.path().join("traces/of/all"))?.collect::<Result<Vec<_>, _>>()?;
    expect_equal("traces", "2", &traces.len().to_string())?;
    for trace in traces {
        ensure(
            trace.file_name().to_string_lossy().starts_with("x-"),
            || format!("{trace:?}"),
        )?;
        let trace_json: Value = serde_json::from_slice(&std::fs::read(trace.path())?)?;
        let spans = trace_json["traceEvents"].as_array().ok_or("no events")?;
        ensure(
            spans
                .iter()
                .any(|span| span["name"] == "Handle all device input"),
            || format!("{trace_json:#}"),
        )?;
    }
    run(link(&["--wrapper-time-trace=one.json", "-o", "z", "a.o"]).env("OFFLD_TIME_TRACE", "none"))?;
    ensure(
        work.path().join("one.json").is_file() && !work.path().join("none").exists(),
        || "the option does not win",
    )?;
    work.file("file", "");
    let error = run_failing(link(&["-o", "z", "a.o"]).env("OFFLD_TIME_TRACE", "file/x"))?;
    expect_in(
        &error,
        "OFFLD_TIME_TRACE: cannot create the directory `file/x`",
    )?;

    let shown = stderr_of(&mut work.wrapper(["--wrapper-verbose", "-o", "x", "a.o"]))?;
    for (value, commands) in [("1", true), ("0", false), ("", false)] {
        let stderr = stderr_of(work.wrapper(["-o", "x", "a.o"]).env("OFFLD_VERBOSE", value))?;
        expect_equal(
            value,
            &shown
                .lines()
                .count()
                .min(if commands { usize::MAX } else { 0 })
                .to_string(),
            &stderr.lines().count().to_string(),
        )?;
    }
    passed()
}
