//! `offld cache stats --since`: summarizes the device links of a build, from its log.

use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow};
use serde_json::json;

use super::{SCHEMA, since};
use crate::build_log::{self, Outcome, Summary, micros};
use crate::model::printable;
use crate::sys::session::{self, Session};
use crate::sys::shell::Shell;
use crate::sys::table::{self, Style};
use crate::sys::terminal::wrapped;

/// The maximum number of reasons in the text.
const SHOWN_REASONS: usize = 10;

/// Summarizes the links in `log` that began at `since` or later, as text or JSON.
pub(super) fn stats(
    log: Option<&Path>,
    since: Option<&str>,
    json: bool,
    shell: &Shell,
) -> Result<String> {
    let from_environment = || Session::env(session::OFFLD_CACHE_LOG).map(PathBuf::from);
    let log = log
        .map(Path::to_owned)
        .or_else(from_environment)
        .ok_or_else(|| {
            anyhow!(
                "--since needs a log: pass --log=FILE or set {} to the file the build wrote",
                session::OFFLD_CACHE_LOG
            )
        })?;
    let since = since
        .map(|text| since::moment(text, SystemTime::now()))
        .transpose()?;
    let from = since.map_or(0, |since| {
        micros(since.duration_since(UNIX_EPOCH).unwrap_or_default())
    });
    let contents = build_log::read(&log)?;
    if let Some(damaged) = &contents.damaged {
        shell.warn(&damaged.warning());
    }
    let summary = Summary::of(
        contents
            .records
            .iter()
            .filter(|record| record.time_us >= from),
    );
    if !json {
        return Ok(text(&log, &summary, shell.stdout_style().width));
    }
    let mut all = serde_json::to_value(&summary).context("cannot write the report as JSON")?;
    all["schema"] = json!(SCHEMA);
    all["version"] = json!(SCHEMA);
    all["log"] = log.to_string_lossy().into();
    Ok(format!("{:#}\n", all))
}

fn text(log: &Path, sum: &Summary, width: Option<usize>) -> String {
    let time = |micros: u64| table::duration(Duration::from_micros(micros));
    let mut lines = vec![
        ("log", log.display().to_string()),
        ("device links", sum.links.to_string()),
    ];
    if let (Some(first), Some(last)) = (sum.first_us, sum.last_us) {
        lines.push(("from", since::shown(first)));
        lines.push(("to", since::shown(last)));
    }
    for (outcome, name) in Outcome::ALL {
        let of_all = sum.count(outcome) as f64 * 100.0 / sum.links.max(1) as f64;
        lines.push((name, format!("{} ({of_all:.1}%)", sum.count(outcome))));
    }
    if sum.shared_hits > 0 {
        lines.push(("remote hits", sum.shared_hits.to_string()));
    }
    if sum.not_kept > 0 {
        lines.push(("not stored", sum.not_kept.to_string()));
    }
    let memory = table::size(sum.peak_memory, Style::default());
    lines.push((
        "run time",
        format!(
            "{}, CPU {}, memory up to {memory}",
            time(sum.wall_us),
            time(sum.cpu_us)
        ),
    ));
    if sum.waited_us > 0 {
        lines.push(("waited", time(sum.waited_us)));
    }
    let unknown = match sum.saved_unknown {
        0 => String::new(),
        count => format!(" (unknown for {count} hits)"),
    };
    lines.push((
        "saved",
        format!(
            "{}, CPU {}{unknown}",
            time(sum.saved_wall_us),
            time(sum.saved_cpu_us)
        ),
    ));
    let mut text: String = lines
        .iter()
        .map(|(name, value)| format!("{name:<14} {value}\n"))
        .collect();
    if !sum.reasons.is_empty() {
        text.push_str("\nwhy\n");
        let name = |outcome: Outcome| {
            Outcome::ALL
                .iter()
                .find(|(own, _)| *own == outcome)
                .map_or("", |(_, name)| *name)
        };
        let line = |reason: &build_log::Reason| {
            format!(
                "  {:>4}  {:<10}  {}\n",
                reason.links,
                name(reason.outcome),
                printable(&reason.why)
            )
        };
        text.extend(sum.reasons.iter().take(SHOWN_REASONS).map(line));
        let more = sum.reasons.len().saturating_sub(SHOWN_REASONS);
        if more > 0 {
            text.push_str(&format!("  and {more} more reasons\n"));
        }
    }
    wrapped(&text, width)
}
