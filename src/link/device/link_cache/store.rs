//! Writes a finished link to the cache.
//!
//! The first step reads the temporary files before they are removed. The second does the slow work,
//! in parallel with the host link.

use std::path::{Path, PathBuf};

use super::linker_args::{self, Linker, LinkerArgs};
use super::linker_reads;
use super::manifest::{Manifest, ManifestEntry};
use super::nvidia;
use super::reads::Reads;
use super::tool::Tool;
use crate::build_log::Cost;
use crate::store::{Cache, Key, Scope};
use crate::sys::clock::{self, Moment};
use crate::sys::launcher::Ran;
use crate::sys::run;

/// A link that has finished.
pub(super) struct FinishedLink {
    pub(super) linker_args: LinkerArgs,
    pub(super) program: PathBuf,
    /// The linker and the programs that it runs.
    pub(super) tools: Vec<Tool>,
    pub(super) key: Key,
    pub(super) image: PathBuf,
    /// offld's temporary files among the linker's inputs, and the directory of the linker's own
    /// temporary files.
    pub(super) temporary_files: Vec<PathBuf>,
    pub(super) dependencies: PathBuf,
    /// The files that a linker without a dependency file reads, as they were before the link.
    /// `None` for linkers that write one. The error is the reason why the files are unknown.
    pub(super) about_to_read: Result<Option<Reads>, String>,
    pub(super) stderr: Vec<u8>,
    pub(super) begun: Moment,
}

/// A finished link that needs only the image's hard link from the temporary directory.
pub(super) struct CacheEntry {
    link: FinishedLink,
    prerequisites: Vec<String>,
    stderr: String,
}

impl FinishedLink {
    /// Reads the files in the temporary directory, or returns the reason why the link cannot be
    /// cached.
    pub(super) fn prepare(mut self) -> Result<CacheEntry, String> {
        let prerequisites = if self.linker_args.linker == Linker::Nvidia {
            // NVIDIA's linker writes no dependency file. `nvidia` determines its inputs.
            Vec::new()
        } else {
            let text = std::fs::read_to_string(&self.dependencies)
                .map_err(|error| format!("{}: {error}", self.dependencies.display()))?;
            linker_args::prerequisites(self.linker_args.linker, &text)
                .ok_or("the linker's dependency file is truncated, or a name in it is ambiguous")?
        };
        let stderr = String::from_utf8(std::mem::take(&mut self.stderr))
            .map_err(|_| "the linker's messages are not in UTF-8")?;
        let stderr = strip_colours(&stderr);
        if self
            .temporary_files
            .iter()
            .any(|file| stderr.contains(&*file.to_string_lossy()))
        {
            return Err("the linker's messages name a temporary file".to_owned());
        }
        // A hard link, because a later step removes the image by its own name.
        let hard_link = self.image.with_extension("kept");
        std::fs::hard_link(&self.image, &hard_link)
            .map_err(|error| format!("{}: {error}", hard_link.display()))?;
        self.image = hard_link;
        Ok(CacheEntry {
            link: self,
            prerequisites,
            stderr,
        })
    }
}

/// Files that exist before the link and that a link by these `tools` depends on. Includes paths
/// where the loader would find other libraries.
pub(super) fn read_by_tools(
    tools: &[Tool],
    about_to_read: &Result<Option<Reads>, String>,
) -> Vec<PathBuf> {
    let read = about_to_read
        .as_ref()
        .ok()
        .and_then(Option::as_ref)
        .into_iter()
        .flat_map(Reads::file_names);
    let absent = tools
        .iter()
        .flat_map(Tool::absent)
        .filter(|path| !path.exists());
    tools
        .iter()
        .flat_map(Tool::files)
        .chain(read)
        .map(PathBuf::from)
        .chain(absent)
        .collect()
}

impl CacheEntry {
    /// Returns the first dependency that differs on the machine that ran the link.
    pub(super) fn differing(&self, ran: &Ran) -> Option<PathBuf> {
        let CacheEntry {
            link,
            prerequisites,
            ..
        } = self;
        let listed = prerequisites
            .iter()
            .map(PathBuf::from)
            .filter(|file| !link.temporary_files.contains(file));
        let all: Vec<PathBuf> = read_by_tools(&link.tools, &link.about_to_read)
            .into_iter()
            .chain(listed)
            .collect();
        ran.differing(all.iter().map(PathBuf::as_path))
            .map(Path::to_owned)
    }

    /// Stores the image and its manifest entry in `cache`. `cost`: the cost of the link.
    pub(super) fn store(self, cache: &Cache, cost: Cost) -> Result<(), String> {
        let CacheEntry {
            link,
            prerequisites,
            stderr,
        } = self;
        let line = &link.linker_args;
        let gnu = line.linker == Linker::Gnu;
        let folders = if gnu {
            builtin_folders(&link.program, line.emulation.as_deref())
        } else {
            Vec::new()
        };
        let begun = link.begun.time_of_day;
        let reads = match &link.about_to_read {
            Err(why) => return Err(why.clone()),
            Ok(Some(before)) => nvidia::after(line, before, begun)?,
            Ok(None) => {
                linker_reads::gather(line, &prerequisites, &link.temporary_files, &folders, begun)?
            }
        };
        for tool in &link.tools {
            tool.verify_unchanged(begun)?;
        }
        clock::check_not_set(cache.clock(), link.begun)?;
        let text_of = |error: anyhow::Error| format!("{error:#}");
        let image = cache
            .put_blob(&link.image, Scope::Shared)
            .map_err(text_of)?;
        let mut manifest = cache
            .record(link.key, Scope::Local)
            .map_or_else(Manifest::default, |bytes| Manifest::read(&bytes));
        manifest.add(ManifestEntry {
            reads,
            image: image.to_string(),
            stderr,
            cost: Some(cost),
        });
        if let Some(shared) = cache.record(link.key, Scope::Remote) {
            // Writing replaces the shared record, so the entries of other machines must be merged
            // in.
            manifest.merge(Manifest::from_remote(&shared));
        }
        let bytes = serde_json::to_vec(&manifest).map_err(|error| error.to_string())?;
        cache
            .put_record(link.key, &bytes, Scope::Shared)
            .map_err(text_of)
    }
}

/// Removes colour escape codes from `text`. A later hit may not write to a terminal.
fn strip_colours(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |plain, part| {
        plain + part.split_once('m').map_or(part, |(_, rest)| rest)
    })
}

/// Returns the default search directories of GNU ld for `emulation`, from the script that
/// `--verbose` prints. In them, `=` stands for the sysroot.
pub(in crate::link::device) fn builtin_folders(
    program: &Path,
    emulation: Option<&str>,
) -> Vec<PathBuf> {
    let mut args: Vec<&str> = emulation
        .into_iter()
        .flat_map(|emulation| ["-m", emulation])
        .collect();
    args.push("--verbose");
    linker_reads::script_words(
        run::stdout_of(program, &args)
            .unwrap_or_default()
            .as_bytes(),
    )
    .1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::formats::reference;

    #[test]
    fn colours_are_removed() {
        assert_eq!(
            strip_colours("ld.lld: \x1b[0;1;35mwarning: \x1b[0mx\n"),
            "ld.lld: warning: x\n"
        );
        assert_eq!(strip_colours("plain\n"), "plain\n");
    }

    #[test]
    fn gnu_ld_prints_its_directories() {
        let Some([program]) = reference::tools(["ld.bfd"]) else {
            return;
        };
        for emulation in [None, Some("elf_x86_64")] {
            let folders = builtin_folders(&program, emulation);
            assert!(
                folders.iter().any(|folder| folder.ends_with("usr/lib")),
                "{folders:?}"
            );
        }
    }
}
