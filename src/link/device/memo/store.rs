//! Writes a finished link to the cache, in two steps: first reads the temporary files before they are removed, then, in parallel
//! with the host link, does what takes time.

use std::path::{Path, PathBuf};
use std::time::{Instant, SystemTime};

use super::linker_args::{self, Linker, LinkerArgs};
use super::linker_reads;
use super::manifest::{Manifest, ManifestEntry};
use super::nvidia;
use super::reads::Reads;
use super::tool::Tool;
use crate::build_log::Cost;
use crate::store::{Cache, Key};
use crate::sys::clock;
use crate::sys::launcher::Ran;
use crate::sys::run;

/// A link that was run.
pub(super) struct FinishedLink {
    pub(super) linker_args: LinkerArgs,
    pub(super) program: PathBuf,
    /// The linker, and the programs that it runs.
    pub(super) tools: Vec<Tool>,
    pub(super) key: Key,
    pub(super) image: PathBuf,
    /// Temporary files of offld among the linker's inputs, and the folder in which the linker has its own.
    pub(super) temporary_files: Vec<PathBuf>,
    pub(super) dependencies: PathBuf,
    /// What a linker that writes no such file was about to read when it was started, or why that is not known.
    pub(super) about_to_read: Result<Option<Reads>, String>,
    /// The linker's stderr.
    pub(super) stderr: Vec<u8>,
    pub(super) begun: SystemTime,
    pub(super) begun_monotonic: Instant,
}

/// The same, once nothing of the temporary folder is needed any more but the image's hard link.
pub(super) struct CacheEntry {
    link: FinishedLink,
    prerequisites: Vec<String>,
    stderr: String,
}

impl FinishedLink {
    /// Reads what is in the temporary folder, or says why the link cannot be cached.
    pub(super) fn prepare(mut self) -> Result<CacheEntry, String> {
        let prerequisites = if self.linker_args.linker == Linker::Nvidia {
            // It writes no dependency file; `nvidia` knows what it reads.
            Vec::new()
        } else {
            let text = std::fs::read_to_string(&self.dependencies)
                .map_err(|error| format!("{}: {error}", self.dependencies.display()))?;
            linker_args::prerequisites(&text).ok_or("the linker's dependency file is truncated")?
        };
        let stderr = String::from_utf8(std::mem::take(&mut self.stderr)).map_err(|_| "the linker's messages are not in UTF-8")?;
        let stderr = strip_colours(&stderr);
        if self.temporary_files.iter().any(|file| stderr.contains(&*file.to_string_lossy())) {
            return Err("the linker's messages name a temporary file".to_owned());
        }
        // A hard link, because a later step removes the image by its own name.
        let kept = self.image.with_extension("kept");
        std::fs::hard_link(&self.image, &kept).map_err(|error| format!("{}: {error}", kept.display()))?;
        self.image = kept;
        Ok(CacheEntry { link: self, prerequisites, stderr })
    }
}

/// The files that a link by these `tools` depends on before it has begun, and where the loader would find others.
pub(super) fn read_by_tools(tools: &[Tool], about_to_read: &Result<Option<Reads>, String>) -> Vec<PathBuf> {
    let read = about_to_read.as_ref().ok().and_then(Option::as_ref).into_iter().flat_map(Reads::file_names);
    let absent = tools.iter().flat_map(Tool::absent).filter(|path| !path.exists());
    tools.iter().flat_map(Tool::files).chain(read).map(PathBuf::from).chain(absent).collect()
}

impl CacheEntry {
    /// The first file that the link depends on and that is not the same on the machine on which it has run.
    pub(super) fn differing(&self, ran: &Ran) -> Option<PathBuf> {
        let CacheEntry { link, prerequisites, .. } = self;
        let listed = prerequisites.iter().map(PathBuf::from).filter(|file| !link.temporary_files.contains(file));
        let all: Vec<PathBuf> = read_by_tools(&link.tools, &link.about_to_read).into_iter().chain(listed).collect();
        ran.differing(all.iter().map(PathBuf::as_path)).map(Path::to_owned)
    }

    /// Puts the image and the manifest entry into `cache`. `cost`: what the link has cost.
    pub(super) fn store(self, cache: &Cache, cost: Cost) -> Result<(), String> {
        let CacheEntry { link, prerequisites, stderr } = self;
        let line = &link.linker_args;
        let gnu = line.linker == Linker::Gnu;
        let folders = if gnu { builtin_folders(&link.program, line.emulation.as_deref()) } else { Vec::new() };
        let reads = match &link.about_to_read {
            Err(why) => return Err(why.clone()),
            Ok(Some(before)) => nvidia::after(line, before, link.begun)?,
            Ok(None) => linker_reads::gather(line, &prerequisites, &link.temporary_files, &folders, link.begun)?,
        };
        for tool in &link.tools {
            tool.verify_unchanged(link.begun)?;
        }
        clock::check_not_set(cache.clock(), link.begun, link.begun_monotonic)?;
        let text_of = |error: anyhow::Error| format!("{error:#}");
        let image = cache.put_blob(&link.image, None).map_err(text_of)?;
        let mut manifest = cache.own_record(link.key).map_or_else(Manifest::default, |bytes| Manifest::read(&bytes));
        manifest.add(ManifestEntry { reads, image: image.to_string(), stderr, cost: Some(cost) });
        if let Some(shared) = cache.shared_record(link.key) {
            // Writing replaces the shared record, so the entries that other machines have added must be kept.
            manifest.merge(Manifest::from_remote(&shared));
        }
        let bytes = serde_json::to_vec(&manifest).map_err(|error| error.to_string())?;
        cache.put_record(link.key, &bytes).map_err(text_of)?;
        Ok(())
    }
}

/// `text` without escape codes for colours: the next link may not write to a terminal.
fn strip_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| plain + part.split_once('m').map_or(part, |(_, rest)| rest))
}

/// The folders that GNU's linker searches by default for the machine `emulation`, in which `=` stands for the sysroot: they are in
/// the script that `--verbose` prints.
pub(in crate::link::device) fn builtin_folders(program: &Path, emulation: Option<&str>) -> Vec<PathBuf> {
    let mut args: Vec<&str> = emulation.into_iter().flat_map(|emulation| ["-m", emulation]).collect();
    args.push("--verbose");
    linker_reads::script_words(run::stdout_of(program, &args).unwrap_or_default().as_bytes()).1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::reference;

    #[test]
    fn colours_are_not_kept() {
        assert_eq!(strip_colours("ld.lld: \x1b[0;1;35mwarning: \x1b[0mx\n"), "ld.lld: warning: x\n");
        assert_eq!(strip_colours("plain\n"), "plain\n");
    }

    #[test]
    fn gnus_linker_names_its_folders() {
        let Some([program]) = reference::tools(["ld.bfd"]) else { return };
        for emulation in [None, Some("elf_x86_64")] {
            let folders = builtin_folders(&program, emulation);
            assert!(folders.iter().any(|folder| folder.ends_with("usr/lib")), "{folders:?}");
        }
    }
}
