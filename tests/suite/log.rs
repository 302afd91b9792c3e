//! The log of a build (`OFFLD_CACHE_LOG`): what each device link left in it, and what `offld cache stats` and `offld explain` make
//! of it.

use std::path::Path;

use libtest_mimic::{Failed, Trial};
use serde_json::Value;

use super::kit::Image;
use super::support::{
    Outcome, Work, ensure, expect_equal, expect_in, expect_not_in, llvm, offld, output, passed, run, run_failing, stderr_of,
    text, with_llvm,
};

pub(crate) fn trials() -> Vec<Trial> {
    vec![
        with_llvm("log::each_device_link_has_a_line", lines),
        with_llvm("log::a_log_that_cannot_be_written_is_a_warning", unwritable),
        with_llvm("log::the_links_since_a_moment_are_summed_up", since),
        with_llvm("log::traces_of_all_tools_and_logs_are_explained_together", explained),
    ]
}

/// The lines of a log.
pub(crate) fn records(log: &Path) -> Result<Vec<Value>, Failed> {
    let text = std::fs::read_to_string(log)?;
    text.lines().map(|line| serde_json::from_str(line).map_err(|error| Failed::from(format!("{error}: {line}")))).collect()
}

/// What became of each link of a log, and why.
pub(crate) fn outcomes(log: &Path) -> Result<Vec<(String, String)>, Failed> {
    let text = |record: &Value, key: &str| record[key].as_str().unwrap_or_default().to_owned();
    Ok(records(log)?.iter().map(|record| (text(record, "outcome"), text(record, "why"))).collect())
}

/// A program for two devices of which nothing is real, linked by stand-ins.
fn program() -> Result<Work, Failed> {
    let work = Work::new();
    work.fat("a.o", &[Image::amd("gfx90a", "ninety"), Image::amd("gfx1100", "eleven hundred")])?;
    Ok(work)
}

fn lines() -> Outcome {
    let work = program()?;
    let log = work.path().join("log");
    for _ in 0..2 {
        run(work.wrapper(["-o", "x", "a.o"]).env("OFFLD_CACHE_LOG", &log))?;
    }
    // A dry run links nothing.
    run(work.wrapper(["--dry-run", "-o", "x", "a.o"]).env("OFFLD_CACHE_LOG", &log))?;
    let records = records(&log)?;
    expect_equal("lines", "4", &records.len().to_string())?;
    for record in &records {
        expect_equal("version", "1", &record["version"].to_string())?;
        expect_equal("program", &work.path().join("x").to_string_lossy(), record["program"].as_str().unwrap_or_default())?;
        expect_equal("outcome", "uncached", record["outcome"].as_str().unwrap_or_default())?;
        ensure(!record["why"].as_str().unwrap_or_default().is_empty(), || format!("no reason: {record}"))?;
        ensure(record["wall_us"].as_u64() > Some(0) && record["peak_memory"].as_u64() > Some(0), || format!("{record}"))?;
        ensure(record["image_bytes"].as_u64() > Some(0), || format!("{record}"))?;
    }
    let first = records.iter().find(|record| record["arch"] == "gfx1100").ok_or("no line for gfx1100")?;
    let bytes = first["input_bytes"].as_u64().unwrap_or_default();
    expect_equal("inputs", "1", &first["input_count"].to_string())?;
    expect_in(first["inputs"][0]["name"].as_str().unwrap_or_default(), "a.o")?;
    ensure(bytes >= 14 && first["inputs"][0]["bytes"].as_u64() == Some(bytes), || format!("{first}"))?;
    passed()
}

fn unwritable() -> Outcome {
    let work = program()?;
    let told = stderr_of(work.wrapper(["-o", "x", "a.o"]).env("OFFLD_CACHE_LOG", "none/log"))?;
    expect_equal("warnings", "1", &told.matches("cannot write the log `none/log`").count().to_string())?;
    passed()
}

fn since() -> Outcome {
    let work = program()?;
    let log = work.path().join("log");
    run(work.wrapper(["-o", "x", "a.o"]).env("OFFLD_CACHE_LOG", &log))?;
    let stats = |words: &[&str]| {
        let mut command = work.command(offld());
        command.args(["cache", "stats"]).args(words).env("OFFLD_CACHE_LOG", "log");
        command
    };
    let json: Value = serde_json::from_str(&run(&mut stats(&["--since=1h", "--json"]))?)?;
    for (key, value) in [("version", 1), ("links", 2), ("uncached", 2), ("hits", 0)] {
        expect_equal(key, &value.to_string(), &json[key].to_string())?;
    }
    expect_equal("reasons", "1", &json["reasons"].as_array().map_or(0, Vec::len).to_string())?;
    let shown = run(&mut stats(&["--log=log"]))?;
    expect_in(&shown, "device links   2\n")?;
    expect_in(&shown, "not cached     2 (100.0%)\n")?;
    // A line of an hour ago is left out.
    let record = std::fs::read_to_string(&log)?;
    let then = records(&log)?[0]["time_us"].as_u64().unwrap_or_default();
    let old = record.lines().next().unwrap_or_default().replace(&then.to_string(), &(then - 4_000_000_000).to_string());
    std::fs::write(&log, format!("{old}\n{record}"))?;
    expect_in(&run(&mut stats(&["--since=1h"]))?, "device links   2\n")?;
    expect_in(&run(&mut stats(&["--since=1d"]))?, "device links   3\n")?;
    let error = run_failing(&mut stats(&["--since=yesterday"]))?;
    expect_in(&error, "--since=yesterday: this is no time that is known")?;
    // Half a line, as a process that was killed leaves it, with a whole one glued to it by an offld that did not look.
    std::fs::write(&log, format!("{old}\n{{\"version\":1,\"time{old}\n{old}\n"))?;
    for command in [&mut stats(&["--log=log"]), work.command(offld()).args(["explain", "log"])] {
        let told = output(command)?;
        expect_equal("exit status", "Some(0)", &format!("{:?}", told.status.code()))?;
        expect_equal("warnings", "1", &text(&told.stderr).matches("log:2: this line is damaged").count().to_string())?;
        expect_in(&text(&told.stdout), "device links")?;
    }
    std::fs::write(&log, "{\"version\":1\n")?;
    expect_in(&run_failing(&mut stats(&["--since=1h"]))?, "log:1: ")?;
    let error = run_failing(stats(&["--since=1h"]).env_remove("OFFLD_CACHE_LOG"))?;
    expect_in(&error, "none is named: by --log=FILE, or by OFFLD_CACHE_LOG")?;
    expect_not_in(&run(work.command(offld()).args(["cache", "stats"]).env("OFFLD_CACHE", "cache"))?, "device links")?;
    passed()
}

/// The traces of LLVM's wrapper, of ours, and of clang, and the log of ours: a link that is in a trace and in the log is one.
fn explained() -> Outcome {
    let work = program()?;
    let traced = |name: &str| [format!("--wrapper-time-trace={name}"), "--wrapper-time-trace-granularity=0".to_owned()];
    let words = ["-o", "x", "a.o"];
    run(work.reference(words).args(traced("theirs.json")))?;
    run(work.wrapper(words).args(traced("ours.json")).env("OFFLD_CACHE_LOG", "log"))?;
    work.file("unit.c", "int unit;\n");
    run(work.command(llvm("clang")).args(["-ftime-trace=clang.json", "-ftime-trace-granularity=0", "-c", "unit.c"]))?;
    let explain = |words: &[&str]| {
        let mut command = work.command(offld());
        command.arg("explain").args(words);
        command
    };
    let files = ["theirs.json", "ours.json", "clang.json", "log"];
    let report: Value = serde_json::from_str(&run(&mut explain(&[&files[..], &["--json", "--top", "3"]].concat()))?)?;
    for (key, value) in [("version", 1), ("device_links", 4)] {
        expect_equal(key, &value.to_string(), &report[key].to_string())?;
    }
    expect_equal("of the log", "2", &report["cache"]["uncached"].to_string())?;
    expect_equal("--top 3", "3", &report["slowest"].as_array().map_or(0, Vec::len).to_string())?;
    let steps = report["critical_path"].as_array().ok_or("no critical path")?;
    let sum: u64 = steps.iter().filter_map(|step| step["wall_us"].as_u64()).sum();
    ensure(sum > 0 && Some(sum) <= report["wall_us"].as_u64(), || format!("{report:#}"))?;
    for file in &files[..3] {
        ensure(steps.iter().any(|step| step["program"] == *file), || format!("{file} is not on the path: {report:#}"))?;
    }
    let shown = run(&mut explain(&files))?;
    for part in ["4 device links\n", "\ncritical path\n", "\nslowest device links\n", "\ncache: hits 0, misses 0, not cached 2"] {
        expect_in(&shown, part)?;
    }
    work.file("half.json", "{\n\"traceEvents\": [\n{\"ph\": ");
    let damaged = output(&mut explain(&["log", "half.json"]))?;
    expect_equal("exit status", "Some(2)", &format!("{:?}", damaged.status.code()))?;
    expect_in(&text(&damaged.stderr), "half.json:3: this is no time trace, or it is damaged")?;
    passed()
}
