//! A link that was done, on its way into the cache: first whatever must be looked at before its files go, then, beside the host link,
//! what takes time.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use super::line::{self, Line, Linker};
use super::manifest::{self, Manifest, Variant};
use super::tool::Tool;
use crate::store::{Cache, Digest};
use crate::sys::clock::Clock;
use crate::sys::run;

/// How far the system's clock may be from the time that has passed: if somebody sets it, times of files tell nothing.
const CLOCK: Duration = Duration::from_millis(20);

/// A link that was done.
pub(super) struct FinishedLink {
    pub(super) line: Line,
    pub(super) program: PathBuf,
    pub(super) linker: Tool,
    pub(super) key: Digest,
    pub(super) image: PathBuf,
    /// Our own files on the line.
    pub(super) own: Vec<PathBuf>,
    pub(super) dependencies: PathBuf,
    /// What the linker said.
    pub(super) said: Vec<u8>,
    pub(super) begun: SystemTime,
    pub(super) clock: Instant,
}

/// The same, of which nothing is needed any more that later steps remove.
pub(super) struct CacheEntry {
    done: FinishedLink,
    prerequisites: Vec<String>,
    said: String,
}

impl FinishedLink {
    /// Takes what is in the temporary folder, or says why the link cannot be kept.
    pub(super) fn prepare(mut self) -> Result<CacheEntry, String> {
        let text =
            std::fs::read_to_string(&self.dependencies).map_err(|error| format!("{}: {error}", self.dependencies.display()))?;
        let prerequisites = line::prerequisites(&text).ok_or("the linker's list of what it has read is cut off")?;
        let said = String::from_utf8(std::mem::take(&mut self.said)).map_err(|_| "the linker's words are not in UTF-8")?;
        let said = plain(&said);
        if self.own.iter().any(|file| said.contains(&*file.to_string_lossy())) {
            return Err("the linker speaks of a temporary file".to_owned());
        }
        // The image's own name goes with the step that copies it.
        let kept = self.image.with_extension("kept");
        std::fs::hard_link(&self.image, &kept).map_err(|error| format!("{}: {error}", kept.display()))?;
        self.image = kept;
        Ok(CacheEntry { done: self, prerequisites, said })
    }
}

impl CacheEntry {
    /// Puts the image and what is known of the link into `cache`.
    pub(super) fn store(self, cache: &Cache) -> Result<(), String> {
        let CacheEntry { done, prerequisites, said } = self;
        let more = if done.line.linker == Linker::Gnu { own_folders(&done.program) } else { Vec::new() };
        let read = manifest::gather(&done.line, &prerequisites, &done.own, &more, done.begun)?;
        done.linker.still(done.begun)?;
        check_clock(cache.clock(), done.begun, done.clock)?;
        let failed = |error: anyhow::Error| format!("{error:#}");
        let image = cache.put_blob(&done.image, None).map_err(failed)?;
        let mut manifest = cache.own_record(done.key).map_or_else(Manifest::default, |bytes| Manifest::read(&bytes));
        manifest.add(Variant { files: read.files, absent: read.absent, image: image.to_string(), said });
        if let Some(shared) = cache.shared_record(done.key) {
            // What is put takes the place of what others have put.
            manifest.join(Manifest::of_others(&shared));
        }
        let text = serde_json::to_vec(&manifest).map_err(|error| error.to_string())?;
        cache.put_record(done.key, &text).map_err(failed)?;
        Ok(())
    }
}

/// An error if somebody has set the time of day since the moment that was `begun` by it, and `running` by the time that only runs forward.
fn check_clock(clock: &dyn Clock, begun: SystemTime, running: Instant) -> Result<(), String> {
    let passed = clock.running() - running;
    // Set back to before `begun`, it differs by all of the time that has passed, and by how far it was set back.
    let by_day = clock.now().duration_since(begun);
    let difference = by_day.map_or_else(|before| before.duration() + passed, |by_day| by_day.abs_diff(passed));
    // One that is being corrected runs up to a two-thousandth faster or slower.
    if difference > CLOCK + passed / 1000 { Err("the system's clock has been set".to_owned()) } else { Ok(()) }
}

/// `text` without the colours that a terminal was given: the next link may be by none.
fn plain(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or(part, |(_, rest)| rest))
}

/// Where GNU's linker searches by itself: `SEARCH_DIR("=/usr/lib")` in the script it shows.
fn own_folders(program: &Path) -> Vec<PathBuf> {
    let script = run::answer(program, &["--verbose"]).unwrap_or_default();
    let folders = script.split("SEARCH_DIR(\"").skip(1).filter_map(|rest| rest.split('"').next());
    folders.map(|folder| PathBuf::from(folder.trim_start_matches('='))).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::reference;
    use crate::sys::clock::TestClock;

    #[test]
    fn a_clock_that_is_set_is_noticed_and_one_that_is_corrected_is_not() {
        let hour = Duration::from_secs(3600);
        let clock = TestClock::stopped();
        let (begun, running) = (clock.now(), clock.running());
        assert_eq!(check_clock(&clock, begun, running), Ok(()));
        clock.pass(hour);
        assert_eq!(check_clock(&clock, begun, running), Ok(()));
        for (set, well) in [(hour + hour / 2000, true), (hour - hour / 2000, true), (hour + hour / 100, false), (hour / 2, false)]
        {
            clock.set(begun + set);
            assert_eq!(check_clock(&clock, begun, running).is_ok(), well, "{set:?}");
        }
        let clock = TestClock::stopped();
        let (begun, running) = (clock.now(), clock.running());
        clock.set(begun - Duration::from_millis(50));
        assert!(check_clock(&clock, begun, running).is_err(), "set back within the first moment");
    }

    #[test]
    fn colours_are_not_kept() {
        assert_eq!(plain("ld.lld: \x1b[0;1;35mwarning: \x1b[0mx\n"), "ld.lld: warning: x\n");
        assert_eq!(plain("plain\n"), "plain\n");
    }

    #[test]
    fn gnus_linker_names_its_folders() {
        let Some([program]) = reference::tools(["ld.bfd"]) else { return };
        assert!(own_folders(&program).contains(&PathBuf::from("/usr/lib")), "{:?}", own_folders(&program));
    }
}
