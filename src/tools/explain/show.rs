//! The report as text.

use std::time::Duration;

use super::{DeviceLink, Report, Step};
use crate::build_log::{Outcome, Summary};
use crate::sys::table::{self, Style};

/// How many inputs of a device link, and how many reasons, are shown.
const INPUTS: usize = 3;
const REASONS: usize = 10;

fn time(micros: u64) -> String {
    table::duration(Duration::from_micros(micros))
}

/// The report for people.
pub(crate) fn text(report: &Report, style: Style) -> String {
    let mut out = format!("{} from the first to the last, {} device links\n", time(report.wall_us), report.device_links);
    if !report.critical_path.is_empty() {
        out.push_str("\ncritical path\n");
        let mut rows = vec![["from", "for", "what", "device", "program"].map(str::to_owned)];
        rows.extend(report.critical_path.iter().map(step));
        table::columns(&mut out, &rows, &[0, 1], style);
    }
    if !report.slowest.is_empty() {
        out.push_str("\nslowest device links\n");
        let mut rows = vec![["time", "cpu", "memory", "cache", "device", "program", "inputs"].map(str::to_owned)];
        rows.extend(report.slowest.iter().map(|link| device_link(link, style)));
        table::columns(&mut out, &rows, &[0, 1, 2], style);
    }
    if let Some(cache) = &report.cache {
        cache_lines(&mut out, cache, style);
    }
    out
}

fn step(step: &Step) -> [String; 5] {
    let what = if step.what.is_empty() { "(nothing is known)" } else { &step.what };
    [time(step.begin_us), time(step.wall_us), what.to_owned(), step.target.clone(), step.program.clone()]
}

fn device_link(link: &DeviceLink, style: Style) -> [String; 7] {
    let cache = match link.outcome {
        None => "",
        Some(Outcome::Hit) => "hit",
        Some(Outcome::Miss) => "miss",
        Some(Outcome::Uncached) => "not cached",
        Some(Outcome::Failed) => "failed",
    };
    let named = link.inputs.iter().take(INPUTS);
    let mut inputs: Vec<String> =
        named.clone().map(|input| format!("{} {}", input.name, table::size(input.bytes, style))).collect();
    let more = link.input_count.saturating_sub(inputs.len() as u64);
    if more > 0 {
        inputs.push(format!("{more} more"));
    }
    [
        time(link.wall_us),
        time(link.cpu_us),
        table::size(link.peak_memory, style),
        cache.to_owned(),
        link.target.clone(),
        link.program.clone(),
        inputs.join(", "),
    ]
}

fn cache_lines(out: &mut String, cache: &Summary, style: Style) {
    let counts: Vec<String> = Outcome::ALL.iter().map(|(outcome, name)| format!("{name} {}", cache.count(*outcome))).collect();
    out.push_str(&format!("\ncache: {}; saved {}\n", counts.join(", "), time(cache.saved_wall_us)));
    let name = |outcome: Outcome| Outcome::ALL.iter().find(|(own, _)| *own == outcome).map_or("", |(_, name)| *name);
    let rows: Vec<[String; 3]> = cache
        .reasons
        .iter()
        .take(REASONS)
        .map(|reason| [reason.links.to_string(), name(reason.outcome).to_owned(), reason.why.clone()])
        .collect();
    table::columns(out, &rows, &[0], style);
    let more = cache.reasons.len().saturating_sub(REASONS);
    if more > 0 {
        out.push_str(&format!("  and {more} more reasons\n"));
    }
}
