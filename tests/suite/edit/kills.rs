//! Killed edits: the file is then the old one or the new one, never a third.

use std::fs;
use std::path::Path;
use std::process::Stdio;
use std::time::{Duration, Instant};

use libtest_mimic::{Failed, Trial};
use rustix::process::{Pid, Signal, kill_process};

use super::stdout_of;
use crate::effort::rounds;
use crate::kit::Image;
use crate::support::{Outcome, Work, ensure, offld, passed, with_llvm};

pub(super) fn trials() -> Vec<Trial> {
    vec![with_llvm(
        "edit::kills::the_file_is_the_old_one_or_the_new_one",
        killed,
    )]
}

const MIB: usize = 1 << 20;
/// The signals that end the edits, in turn.
const SIGNALS: [Signal; 3] = [Signal::KILL, Signal::TERM, Signal::INT];

/// Bytes without repetition.
fn noise(seed: u64, len: usize) -> Vec<u8> {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state.to_le_bytes()
    };
    (0..len / 8).flat_map(step).collect()
}

/// The results of the edits.
#[derive(Debug, Default)]
struct Found {
    old: u32,
    new: u32,
    /// The number of edits that ended with a failure because of their signal.
    ended: u32,
}

fn killed() -> Outcome {
    let work = Work::new();
    let (one, other) = (noise(1, 12 * MIB), noise(2, 12 * MIB));
    work.fat(
        "old.o",
        &[Image::hip("gfx90a", &one), Image::hip("gfx908", &other)],
    )?;
    let began = Instant::now();
    stdout_of(&work, ["prune", "--keep", "gfx90a", "old.o", "-o", "new.o"])?;
    let whole = began.elapsed();
    let (old, new) = (
        fs::read(work.path().join("old.o"))?,
        fs::read(work.path().join("new.o"))?,
    );
    let folder = work.path().join("changed");
    fs::create_dir(&folder)?;
    let mut found = Found::default();
    let count = rounds("edit: edits that are killed", 200u32, 12);
    for round in 0..count {
        // At any time from the start to a bit after the end, with each signal.
        let share = f64::from(round.wrapping_mul(2_654_435_761) >> 16) / f64::from(1 << 16);
        let signal = SIGNALS[round as usize % SIGNALS.len()];
        one_edit(
            &work,
            &folder,
            whole.mul_f64(share * 1.2),
            signal,
            &old,
            &new,
            &mut found,
        )
        .map_err(|failed| {
            format!(
                "round {round}, {signal:?}: {}",
                failed.message().unwrap_or_default()
            )
        })?;
    }
    ensure(found.old > 0 && found.ended > 0, || {
        format!("no edit was ended early: {found:?}")
    })?;
    ensure(count < 100 || found.new > 0, || {
        format!("no edit came to its end: {found:?}")
    })?;
    passed()
}

/// Changes a file in `folder` that has the bytes `old`, sends `signal` after the time `after`, and
/// checks the remaining files.
fn one_edit(
    work: &Work,
    folder: &Path,
    after: Duration,
    signal: Signal,
    old: &[u8],
    new: &[u8],
    found: &mut Found,
) -> Result<(), Failed> {
    let file = folder.join("file.o");
    fs::write(&file, old)?;
    let mut prune = work.command(offld());
    prune
        .args(["prune", "--keep", "gfx90a", "--in-place"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let mut child = prune.spawn()?;
    std::thread::sleep(after);
    let pid = i32::try_from(child.id())
        .ok()
        .and_then(Pid::from_raw)
        .ok_or("no process")?;
    // The process may have ended already. It is a zombie until `wait`.
    kill_process(pid, signal)?;
    let status = child.wait()?;
    found.ended += u32::from(!status.success());
    let there = fs::read(&file)?;
    if there == old {
        found.old += 1;
        ensure(
            !status.success(),
            || "the edit came to its end, and the file is the old one",
        )?;
    } else {
        ensure(there == new, || {
            format!(
                "a third file, of {} bytes; it ended with {status}",
                there.len()
            )
        })?;
        found.new += 1;
    }
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path == file {
            continue;
        }
        // After SIGKILL, offld cannot remove its own temporary file.
        let is_ours = path
            .file_name()
            .is_some_and(|name| name.as_encoded_bytes().starts_with(b".offld-"));
        ensure(signal == Signal::KILL && is_ours, || {
            format!("{} is left", path.display())
        })?;
        fs::remove_file(&path)?;
    }
    if signal == Signal::KILL {
        fs::remove_dir_all(work.path().join("tmp"))?;
        return Ok(());
    }
    work.expect_no_temps()
}
