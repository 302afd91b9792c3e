//! `offld cache …`: shows, locates, trims and empties the cache of device links. It works on the cache that a link in the same
//! environment would use.

mod build;
mod since;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::args::size::parse_size;
use crate::store::local::{Collected, EVENTS, Store};
use crate::store::settings::{self, Setting};
use crate::store::{Event, Stats, remote};
use crate::sys::session::{OFFLD_CACHE_KEY, Session};
use crate::sys::shell::Shell;
use crate::sys::table::{self, Style};

/// The text below the options in the help.
pub(super) const AFTER_HELP: &str = "The cache is where a link would have it: in the folder OFFLD_CACHE, else in XDG_CACHE_HOME/offld, \
    else in ~/.cache/offld.\nOFFLD_CACHE=off or --wrapper-cache=off turns it off, OFFLD_CACHE_SIZE says how large it may be.\n\
    OFFLD_CACHE_LOG=FILE: each device link appends a line of JSON to FILE, for `offld cache stats --since=TIME` and `offld explain`.";

/// How long to wait for another process that is removing files from the cache. That takes long only for very large caches.
const PATIENCE: Duration = Duration::from_secs(30);

/// The options of `offld cache`.
#[derive(Debug, Args)]
pub(super) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show how much is in the cache, and how often links found what they need
    Stats {
        /// Write it as JSON
        #[arg(long)]
        json: bool,
        /// Show what became of the device links since then instead, from the log: a length of time such as 90s, 15m, 2h or 1d, a time
        /// such as 14:30 or 2026-11-23T14:30, or @SECONDS since 1970
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// The log to read; without it the one that OFFLD_CACHE_LOG names
        #[arg(long, value_name = "FILE")]
        log: Option<PathBuf>,
    },
    /// Remove everything from the cache, and forget the counts
    Clear,
    /// Print the folder of the cache
    Path,
    /// Remove what was not used for longest until the cache is no larger than it may be, and what killed links left
    Gc {
        /// The size to come down to: a number of bytes, or something like 500M or 2G
        #[arg(long, value_name = "SIZE")]
        max_size: Option<OsString>,
    },
}

/// Runs `offld cache`.
pub(super) fn run(options: &Options, shell: &Shell) -> Result<()> {
    if let Command::Stats { json, since, log } = &options.command
        && (since.is_some() || log.is_some())
    {
        print(build::stats(log.as_deref(), since.as_deref(), *json, shell)?.as_bytes());
        return Ok(());
    }
    let setting = settings::resolve(None);
    let Setting { root, limit, why_off, .. } = &setting;
    let root = root.as_deref().ok_or_else(|| anyhow!("the cache is off: {}", why_off.as_deref().unwrap_or_default()))?;
    let store = Store::of(&setting, root)?;
    match &options.command {
        Command::Stats { json: false, .. } => print(text(&store).as_bytes()),
        Command::Stats { json: true, .. } => print(json(&store)?.as_bytes()),
        Command::Path => {
            print(root.as_os_str().as_bytes());
            print(b"\n");
        }
        Command::Clear => report(&collected(&store, Store::clear)?),
        Command::Gc { max_size } => {
            let limit = max_size.as_deref().map_or(Ok(*limit), parse_max_size)?;
            report(&collected(&store, |store| store.gc(limit))?);
        }
    }
    Ok(())
}

fn parse_max_size(size: &OsStr) -> Result<u64> {
    parse_size(size).context("--max-size")
}

/// Writes to stdout. A reader that has closed the pipe is not an error.
fn print(text: &[u8]) {
    let _ = std::io::stdout().write_all(text);
}

/// Runs `collect`, which returns none while another process is removing files; waits for that process.
fn collected(store: &Store, collect: impl Fn(&Store) -> Result<Option<Collected>>) -> Result<Collected> {
    if !store.root().exists() {
        return Ok(Collected::default());
    }
    let start = Instant::now();
    loop {
        if let Some(collected) = collect(store)? {
            return Ok(collected);
        }
        if start.elapsed() > PATIENCE {
            bail!("another process has been clearing `{}` for {} seconds: try again", store.root().display(), PATIENCE.as_secs());
        }
        std::thread::sleep(Duration::from_millis(50));
    }
}

fn report(collected: &Collected) {
    let Collected { removed, freed, left } = collected;
    let files = left.blobs + left.records;
    print(format!("removed {removed} files, {}; left {files} files, {}\n", size(*freed), size(left.size)).as_bytes());
}

fn size(bytes: u64) -> String {
    table::size(bytes, Style::default())
}

fn text(store: &Store) -> String {
    let (contents, stats) = (store.contents(), store.stats());
    let mut lines = vec![
        ("folder", store.root().display().to_string()),
        ("size", format!("{} of {}", size(contents.size), size(store.limit()))),
        ("images", contents.blobs.to_string()),
        ("records", contents.records.to_string()),
        ("hits", hits(&stats)),
        ("registrations", format!("{} found, {} made", stats.get(Event::RegistrationHit), stats.get(Event::RegistrationMiss))),
    ];
    let named = [
        (Event::Miss, "misses"),
        (Event::Uncached, "not cacheable"),
        (Event::Stored, "stored"),
        (Event::Evicted, "evicted"),
        (Event::Damaged, "damaged"),
    ];
    let remote = [(Event::RemoteHit, "remote hits"), (Event::RemoteMiss, "remote misses"), (Event::RemoteFault, "remote faults")];
    let counted = |(event, name): &(Event, &'static str)| (*name, stats.get(*event).to_string());
    lines.extend(named.iter().map(counted));
    // Most caches have no remote side, and then there is nothing to show.
    if let Some(shared) = remote::shown_of_environment() {
        lines.insert(1, ("shared at", shared));
        let signed = Session::env(OFFLD_CACHE_KEY).map(|key| ("signed with", key.display().to_string()));
        signed.into_iter().for_each(|line| lines.insert(2, line));
    }
    if contents.earlier > 0 {
        lines.push(("earlier", format!("{} of earlier releases", size(contents.earlier))));
    }
    if remote.iter().any(|(event, _)| stats.get(*event) > 0) {
        lines.extend(remote.iter().map(counted));
    }
    lines.iter().map(|(name, value)| format!("{name:<14} {value}\n")).collect()
}

/// The number of hits, and the percentage of lookups that were hits.
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
        "version": 1,
        "folder": store.root().to_string_lossy(),
        "limit": store.limit(),
        "size": contents.size,
        "earlier": contents.earlier,
        "blobs": contents.blobs,
        "records": contents.records,
    });
    if let Some(all) = all.as_object_mut() {
        all.extend(remote::shown_of_environment().map(|shared| ("remote".to_owned(), shared.into())));
        all.extend(EVENTS.iter().map(|(event, name)| ((*name).to_owned(), stats.get(*event).into())));
    }
    let mut text = serde_json::to_string_pretty(&all).context("cannot write the numbers as JSON")?;
    text.push('\n');
    Ok(text)
}
