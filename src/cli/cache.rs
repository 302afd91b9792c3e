//! `offld cache …`: shows, locates, trims and empties the cache of device links, and explains misses. It works on the
//! cache that a link in the same environment would use.

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use jiff::tz::TimeZone;
use jiff::{Timestamp, civil};
use serde_json::json;

use crate::build_log::{self, Outcome, Summary, micros};
use crate::link::device::history::{self, History, PastLink};
use offld_system::environment::parse_size;
use offld_system::environment::{self, OFFLD_CACHE_KEY};
use offld_system::shell::{self, Shell};
use offld_system::store::local::{Collected, EVENTS, Store};
use offld_system::store::settings::{self, Setting};
use offld_system::store::{Cache, Event, Stats, remote};
use offld_system::table::{self, Style};
use offld_system::terminal::wrapped;
use offload_formats::model::printable;

/// The version of the JSON schema.
pub(super) const SCHEMA: u32 = 1;
/// The maximum wait for another process that is removing files from the cache. Removal takes long
/// only for very large caches.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// The options of `offld cache`.
#[derive(Debug, Args)]
#[command(
    after_help = "OFFLD_CACHE sets the directory of the cache [default: XDG_CACHE_HOME/offld, then ~/.cache/offld].\n\
    OFFLD_CACHE=off or --wrapper-cache=off turns the cache off. OFFLD_CACHE_SIZE sets the size limit.\n\
    With OFFLD_CACHE_LOG=FILE, each device link appends a line of JSON to FILE. `offld cache stats --since=TIME` and\n\
    `offld explain` read FILE."
)]
pub(super) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the size, hits and misses of the cache
    Stats {
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
        /// Summarize the build log since TIME: 90s, 15m, 2h or 1d ago; 14:30 or 2026-11-23T14:30;
        /// or @SECONDS since 1970
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Summarize this build log instead of the cache [default with --since: OFFLD_CACHE_LOG]
        #[arg(long, value_name = "FILE")]
        log: Option<PathBuf>,
    },
    /// Print why the last device links of OUTPUT were not taken from the cache
    Why {
        /// Print the report as JSON
        #[arg(long)]
        json: bool,
        /// Explain the device links of this linked file
        output: PathBuf,
    },
    /// Remove all entries from the cache, and reset the statistics
    Clear,
    /// Print the directory of the cache
    Path,
    /// Evict least recently used entries down to the size limit, and remove files left by
    /// interrupted links
    Gc {
        /// Set the size limit: bytes, or a size such as 500M or 2G [default: OFFLD_CACHE_SIZE, or
        /// 5G]
        #[arg(long, value_name = "SIZE")]
        max_size: Option<OsString>,
    },
}

pub(super) fn run(options: Options, shell: &Arc<Shell>) -> Result<()> {
    if let Command::Stats { json, since, log } = &options.command
        && (since.is_some() || log.is_some())
    {
        print(build_stats(log.as_deref(), since.as_deref(), *json, shell)?.as_bytes());
        return Ok(());
    }
    let setting = settings::resolve(settings::named_by_environment(&environment::get));
    let Setting {
        root,
        limit,
        why_off,
        ..
    } = &setting;
    let root = root.as_deref().ok_or_else(|| {
        anyhow!(
            "the cache is off: {}",
            why_off.as_deref().unwrap_or_default()
        )
    })?;
    let store = Store::of(&setting, root)?;
    match &options.command {
        Command::Stats { json: false, .. } => {
            print(text(&store, shell.stdout_style().width).as_bytes())
        }
        Command::Stats { json: true, .. } => print(json(&store)?.as_bytes()),
        Command::Why { json, output } => print(why(store, output, *json, shell)?.as_bytes()),
        Command::Path => {
            print(root.as_os_str().as_bytes());
            print(b"\n");
        }
        Command::Clear => report(&run_collection(&store, Store::clear)?),
        Command::Gc { max_size } => {
            let limit = max_size.as_deref().map_or(Ok(*limit), parse_max_size)?;
            report(&run_collection(&store, |store| store.gc(limit))?);
        }
    }
    Ok(())
}

// `offld cache why`: the last device links of an output, from the history in the cache.

/// Returns the report about the device links of `output`.
///
/// # Errors
/// The cache has no history of that output.
fn why(store: Store, output: &Path, json: bool, shell: &Shell) -> Result<String> {
    let root = store.root().display().to_string();
    let cache = Cache::new(store);
    let of_names = std::iter::once(output.to_owned()).chain(other_names(output));
    let histories = of_names
        .map(|name| history::of_output(&cache, &name))
        .find(|histories| !histories.is_empty())
        .unwrap_or_default();
    if histories.is_empty() {
        bail!(
            "the cache `{root}` has no device link of `{}`: to see the reason, link it again with OFFLD_VERBOSE=1",
            output.display()
        );
    }
    if json {
        let links = |(target, history): &(String, History)| json!({ "target": target, "links": history.links.iter().map(link_json).collect::<Vec<_>>() });
        return shell::json(&json!({
            "schema": SCHEMA,
            "output": output.to_string_lossy(),
            "targets": histories.iter().map(links).collect::<Vec<_>>(),
        }));
    }
    let mut text = String::new();
    for (target, history) in &histories {
        text.push_str(&format!("{target}\n"));
        for link in &history.links {
            let time = shown_moment(link.time_us);
            text.push_str(&match link.outcome {
                Outcome::Hit => format!("  {time}  found in the cache\n"),
                Outcome::Uncached => format!("  {time}  not cached\n"),
                _ => format!("  {time}  not in the cache\n"),
            });
            let changes: Vec<String> = link.changes.iter().map(ToString::to_string).collect();
            let reasons = match link.outcome {
                Outcome::Hit => Vec::new(),
                _ if changes.is_empty() => vec![link.why.clone()],
                _ => changes,
            };
            reasons
                .iter()
                .for_each(|reason| text.push_str(&format!("    {}\n", printable(reason))));
            if let Some(hit) = link.hit_us {
                text.push_str(&format!(
                    "    found in the cache since {}\n",
                    shown_moment(hit)
                ));
            }
        }
    }
    Ok(wrapped(&text, shell.stdout_style().width))
}

/// Other names of a file in its directory and in `deps` beside it. There, cargo has its linker write
/// programs and libraries, before it adds the names that users know.
fn other_names(file: &Path) -> Vec<PathBuf> {
    let identity = |path: &Path| {
        let metadata = path.metadata().ok()?;
        (metadata.nlink() > 1).then(|| (metadata.dev(), metadata.ino()))
    };
    let Some(own) = identity(file) else {
        return Vec::new();
    };
    let folder = file.parent().unwrap_or(Path::new("")).join(".");
    let entries = [folder.join("deps"), folder]
        .into_iter()
        .filter_map(|folder| folder.read_dir().ok())
        .flatten()
        .flatten();
    entries
        .map(|entry| entry.path())
        .filter(|path| identity(path) == Some(own))
        .collect()
}

fn link_json(link: &PastLink) -> serde_json::Value {
    json!({
        "time_us": link.time_us,
        "outcome": link.outcome.name(),
        "why": link.why,
        "changes": link.changes,
        "hit_us": link.hit_us,
    })
}

fn parse_max_size(size: &OsStr) -> Result<u64> {
    parse_size(size).context("--max-size")
}

/// Writes to stdout. A closed pipe is not an error.
fn print(text: &[u8]) {
    let _ = std::io::stdout().write_all(text);
}

/// Runs `collect`, which returns `None` while another process is removing files, and waits for that
/// process.
fn run_collection(
    store: &Store,
    collect: impl Fn(&Store) -> Result<Option<Collected>>,
) -> Result<Collected> {
    if !store.root().exists() {
        return Ok(Collected::default());
    }
    let start = Instant::now();
    loop {
        if let Some(collected) = collect(store)? {
            return Ok(collected);
        }
        if start.elapsed() > WAIT_LIMIT {
            bail!(
                "cannot lock the cache `{}`: another process has been removing files for {} s; try again later",
                store.root().display(),
                WAIT_LIMIT.as_secs()
            );
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn report(collected: &Collected) {
    let Collected {
        removed,
        freed,
        left,
    } = collected;
    let files = left.blobs + left.records;
    print(
        format!(
            "removed {removed} files, {}; left {files} files, {}\n",
            size(*freed),
            size(left.size)
        )
        .as_bytes(),
    );
}

fn size(bytes: u64) -> String {
    table::size(bytes, Style::default())
}

fn text(store: &Store, width: Option<usize>) -> String {
    let (contents, stats) = (store.contents(), store.stats());
    let mut lines = vec![
        ("directory", store.root().display().to_string()),
        (
            "size",
            format!("{} of {}", size(contents.size), size(store.limit())),
        ),
        ("images", contents.blobs.to_string()),
        ("records", contents.records.to_string()),
        ("hits", hits(&stats)),
        (
            "registrations",
            format!(
                "{} cached, {} generated",
                stats.get(Event::RegistrationHit),
                stats.get(Event::RegistrationMiss)
            ),
        ),
    ];
    let named = [
        (Event::Miss, "misses"),
        (Event::Uncached, "not cached"),
        (Event::Stored, "stored"),
        (Event::Evicted, "evicted"),
        (Event::Damaged, "damaged"),
    ];
    let remote = [
        (Event::RemoteHit, "remote hits"),
        (Event::RemoteMiss, "remote misses"),
        (Event::RemoteFault, "remote faults"),
    ];
    let count_of = |(event, name): &(Event, &'static str)| (*name, stats.get(*event).to_string());
    lines.extend(named.iter().map(count_of));
    // Most caches have no remote, so these lines are optional.
    if let Some(shared) = remote::shown_of_environment() {
        lines.insert(1, ("remote cache", shared));
        let signed =
            environment::get(OFFLD_CACHE_KEY).map(|key| ("signing key", key.display().to_string()));
        signed.into_iter().for_each(|line| lines.insert(2, line));
    }
    if contents.earlier > 0 {
        lines.push((
            "earlier",
            format!("{} of earlier releases", size(contents.earlier)),
        ));
    }
    if remote.iter().any(|(event, _)| stats.get(*event) > 0) {
        lines.extend(remote.iter().map(count_of));
    }
    let all: String = lines
        .iter()
        .map(|(name, value)| format!("{name:<14} {value}\n"))
        .collect();
    wrapped(&all, width)
}

/// Formats the number of hits, and the percentage of lookups that were hits.
fn hits(stats: &Stats) -> String {
    let (hits, misses) = (stats.get(Event::Hit), stats.get(Event::Miss));
    match hits.saturating_add(misses) {
        0 => hits.to_string(),
        all => format!("{hits} ({:.1}%)", hits as f64 * 100.0 / all as f64),
    }
}

fn json(store: &Store) -> Result<String> {
    let (contents, stats) = (store.contents(), store.stats());
    let mut all = json!({
        "schema": SCHEMA,
        "version": SCHEMA,
        "folder": store.root().to_string_lossy(),
        "limit": store.limit(),
        "size": contents.size,
        "earlier": contents.earlier,
        "images": contents.blobs,
        "blobs": contents.blobs,
        "records": contents.records,
    });
    if let Some(all) = all.as_object_mut() {
        all.extend(
            remote::shown_of_environment().map(|shared| ("remote".to_owned(), shared.into())),
        );
        all.extend(
            EVENTS
                .iter()
                .map(|(event, name)| ((*name).to_owned(), stats.get(*event).into())),
        );
    }
    shell::json(&all)
}

// `offld cache stats --since`: summarizes the device links of a build, from its log.

/// The maximum number of reasons in the text.
const SHOWN_REASONS: usize = 10;

/// Summarizes the links in `log` that began at `since` or later, as text or JSON.
fn build_stats(
    log: Option<&Path>,
    since: Option<&str>,
    json: bool,
    shell: &Shell,
) -> Result<String> {
    let from_environment = || environment::get(environment::OFFLD_CACHE_LOG).map(PathBuf::from);
    let log = log
        .map(Path::to_owned)
        .or_else(from_environment)
        .ok_or_else(|| {
            anyhow!(
                "--since needs a log: pass --log=FILE or set {} to the file the build wrote",
                environment::OFFLD_CACHE_LOG
            )
        })?;
    let since = since
        .map(|text| moment(text, SystemTime::now()))
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
        return Ok(build_text(&log, &summary, shell.stdout_style().width));
    }
    let mut all = serde_json::to_value(&summary).context("cannot write the report as JSON")?;
    all["schema"] = json!(SCHEMA);
    all["version"] = json!(SCHEMA);
    all["log"] = log.to_string_lossy().into();
    Ok(format!("{:#}\n", all))
}

fn build_text(log: &Path, sum: &Summary, width: Option<usize>) -> String {
    let time = |micros: u64| table::duration(Duration::from_micros(micros));
    let mut lines = vec![
        ("log", log.display().to_string()),
        ("device links", sum.links.to_string()),
    ];
    if let (Some(first), Some(last)) = (sum.first_us, sum.last_us) {
        lines.push(("from", shown_moment(first)));
        lines.push(("to", shown_moment(last)));
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

// Parses points in time on a command line: a duration before now, a time of day, or a date with a
// time.

/// Parses `text` relative to `now`. If `text` has no time zone, the machine's time zone applies.
fn moment(text: &str, now: SystemTime) -> Result<SystemTime> {
    let zone = TimeZone::system();
    if let Some(seconds) = text
        .strip_prefix('@')
        .and_then(|seconds| seconds.parse::<u64>().ok())
    {
        return UNIX_EPOCH
            .checked_add(Duration::from_secs(seconds))
            .ok_or_else(|| unknown_moment(text));
    }
    if let Some(length) = length(text) {
        return now
            .checked_sub(length)
            .filter(|then| *then >= UNIX_EPOCH)
            .ok_or_else(|| unknown_moment(text));
    }
    if let Ok(moment) = text.parse::<Timestamp>() {
        return Ok(moment.into());
    }
    if let Ok(time) = format!(
        "{text}{}",
        if text.matches(':').count() == 1 {
            ":00"
        } else {
            ""
        }
    )
    .parse::<civil::Time>()
        && text.contains(':')
        && !text.contains('-')
    {
        let today = Timestamp::try_from(now)?.to_zoned(zone.clone()).date();
        let moment = SystemTime::from(today.to_datetime(time).to_zoned(zone)?.timestamp());
        if moment > now {
            bail!("--since={text}: {text} is later than the current time");
        }
        return Ok(moment);
    }
    match text.parse::<civil::DateTime>() {
        Ok(moment) => Ok(moment.to_zoned(zone)?.timestamp().into()),
        Err(_) => Err(unknown_moment(text)),
    }
}

/// Parses a duration: `90s`, `15m`, `2h`, `1d`, `2h30m`.
fn length(text: &str) -> Option<Duration> {
    let mut total = Duration::ZERO;
    let mut rest = text;
    while !rest.is_empty() {
        let digits = rest.find(|c: char| !c.is_ascii_digit())?;
        let (count, after) = rest.split_at_checked(digits)?;
        let seconds = match after.chars().next()? {
            's' => 1,
            'm' => 60,
            'h' => 60 * 60,
            'd' => 24 * 60 * 60,
            _ => return None,
        };
        total = total.checked_add(Duration::from_secs(
            count.parse::<u64>().ok()?.checked_mul(seconds)?,
        ))?;
        rest = after.get(1..)?;
    }
    (!text.is_empty()).then_some(total)
}

fn unknown_moment(text: &str) -> anyhow::Error {
    anyhow!(
        "invalid time '{text}' for --since: expected a duration such as 90s, 15m, 2h or 1d, a time such as 14:30 or \
         2026-11-23T14:30, or seconds since 1970 such as @1700000000"
    )
}

/// Formats a point in time, in microseconds since 1970, in the machine's time zone:
/// `2026-11-23 14:30:05`.
fn shown_moment(micros: u64) -> String {
    let moment = i64::try_from(micros)
        .ok()
        .and_then(|micros| Timestamp::from_microsecond(micros).ok());
    let zoned = moment.map(|moment| moment.to_zoned(TimeZone::system()));
    zoned.map_or_else(
        || format!("@{}", micros / 1_000_000),
        |zoned| zoned.strftime("%Y-%m-%d %H:%M:%S").to_string(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn moments() {
        let now = UNIX_EPOCH + Duration::from_secs(1_700_000_000);
        let before = |text: &str| {
            now.duration_since(moment(text, now).unwrap())
                .unwrap()
                .as_secs()
        };
        let lengths = [
            ("90s", 90),
            ("15m", 900),
            ("2h30m", 9000),
            ("1d", 86_400),
            ("@1699999999", 1),
        ];
        for (text, seconds) in lengths {
            assert_eq!(before(text), seconds, "{text}");
        }
        assert_eq!(before("2023-11-14T22:13:19Z"), 1);
        assert_eq!(before("2023-11-14T22:13:19+00:00"), 1);
        // In every time zone, the formatted time parses to the same point in time.
        let text = shown_moment(1_699_999_990_000_000);
        assert_eq!(before(&text), 10, "{text}");
        let midnight = before("00:00");
        assert!(midnight < 25 * 60 * 60, "{midnight}");
        for text in [
            "",
            "x",
            "5",
            "5y",
            "m",
            "@",
            "@x",
            "99999999999999999999s",
            "25:00",
            "2023-13-01T00:00",
            "200000d",
        ] {
            assert!(moment(text, now).is_err(), "{text}");
        }
    }
}
