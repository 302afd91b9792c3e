//! `offld cache …`: shows, locates, trims and empties the cache of device links. It works on the
//! cache that a link in the same environment would use.

mod build;
mod since;

use std::ffi::{OsStr, OsString};
use std::io::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, bail};
use clap::{Args, Subcommand};
use serde_json::json;

use crate::args::values::parse_size;
use crate::store::local::{Collected, EVENTS, Store};
use crate::store::settings::{self, Setting};
use crate::store::{Event, Stats, remote};
use crate::sys::session::{OFFLD_CACHE_KEY, Session};
use crate::sys::shell::{self, Shell};
use crate::sys::table::{self, Style};
use crate::sys::terminal::wrapped;

/// The version of the JSON schema.
pub(super) const SCHEMA: u32 = 1;
/// The maximum wait for another process that is removing files from the cache. Removal takes long
/// only for very large caches.
const WAIT_LIMIT: Duration = Duration::from_secs(30);

/// The options of `offld cache`.
#[derive(Debug, Args)]
#[command(
    after_help = "The commands use the cache of links in this environment: the directory OFFLD_CACHE, else XDG_CACHE_HOME/offld, \
    else ~/.cache/offld.\nOFFLD_CACHE=off or --wrapper-cache=off turns the cache off; OFFLD_CACHE_SIZE sets the size limit.\n\
    OFFLD_CACHE_LOG=FILE: each device link appends a line of JSON to FILE, for `offld cache stats --since=TIME` and `offld explain`."
)]
pub(super) struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Show the size of the cache, and its hits and misses
    Stats {
        /// Write the report as JSON
        #[arg(long)]
        json: bool,
        /// Summarize the device links of the build log since TIME: a duration such as 90s, 15m, 2h
        /// or 1d, a time such as 14:30 or 2026-11-23T14:30, or @SECONDS since 1970
        #[arg(long, value_name = "TIME")]
        since: Option<String>,
        /// Read this build log [default: OFFLD_CACHE_LOG]
        #[arg(long, value_name = "FILE")]
        log: Option<PathBuf>,
    },
    /// Remove everything from the cache, and reset the counts
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
        print(build::stats(log.as_deref(), since.as_deref(), *json, shell)?.as_bytes());
        return Ok(());
    }
    let setting = settings::resolve(None);
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
            Session::env(OFFLD_CACHE_KEY).map(|key| ("signing key", key.display().to_string()));
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
