//! Writes the device code of a job to files for its linker: one file per input, or one archive.
//!
//! An archive is used if offld runs the linker directly, because creating hundreds of files takes
//! longer than linking them. It is also used if the linker reads no response files and its command
//! line would be too long.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::formats::archive;
use crate::link::select::DeviceJob;
use crate::sys::session::Session;

/// Size limit in bytes of a file list for a linker without response files. clang writes a response
/// file for commands of more than 128 KiB.
const MAX_LIST_BYTES: usize = 64 << 10;

/// The names of the files.
pub(super) struct Inputs {
    /// One file per input, in order.
    pub(super) each: Vec<PathBuf>,
    archive: PathBuf,
    /// Whether the linker gets the archive in any case.
    is_packed: bool,
}

impl Inputs {
    /// Chooses names with the extension `ending` for the inputs of `job`, and writes nothing.
    ///
    /// `packs`: the linker reads no response files, so a long list of inputs must be an archive.
    pub(super) fn named(
        job: &DeviceJob<'_>,
        ending: &str,
        packs: bool,
        session: &Session,
    ) -> Result<Inputs> {
        let mut each = Vec::with_capacity(job.inputs.len());
        for input in &job.inputs {
            let name = input.origin.innermost_name();
            let stem = name
                .rsplit_once('.')
                .map_or(name.as_str(), |(stem, _)| stem);
            each.push(
                session
                    .scratch
                    .path(&format!("{stem}-{}-{}", input.triple, input.arch), ending)?,
            );
        }
        let archive = session.scratch.path(
            &format!("device-{}-{}", job.target.triple, job.target.arch),
            "a",
        )?;
        let is_packed = packs
            && each
                .iter()
                .map(|path| path.as_os_str().len() + 1)
                .sum::<usize>()
                > MAX_LIST_BYTES;
        Ok(Inputs {
            each,
            archive,
            is_packed,
        })
    }

    /// The compiler's arguments for the inputs.
    pub(super) fn words(&self) -> Vec<OsString> {
        if self.is_packed {
            return vec![
                "-Wl,--whole-archive".into(),
                self.archive.clone().into(),
                "-Wl,--no-whole-archive".into(),
            ];
        }
        self.each.iter().map(|path| path.clone().into()).collect()
    }

    /// Writes the files for the arguments from [`Inputs::words`].
    pub(super) fn write_for_compiler(&self, job: &DeviceJob<'_>) -> Result<()> {
        if self.is_packed {
            self.write_archive(job)
        } else {
            self.write_each(job)
        }
    }

    fn write_each(&self, job: &DeviceJob<'_>) -> Result<()> {
        for (input, path) in job.inputs.iter().zip(&self.each) {
            std::fs::write(path, &input.bytes).with_context(|| cannot_write(path))?;
        }
        Ok(())
    }

    /// Writes the inputs, to one archive if `archives` permits that. Returns the linker's
    /// arguments, and the files.
    pub(super) fn write(
        &self,
        job: &DeviceJob<'_>,
        archives: bool,
    ) -> Result<(Vec<OsString>, Vec<PathBuf>)> {
        if !self.is_packed && (job.inputs.len() < 2 || !archives) {
            self.write_each(job)?;
            return Ok((
                self.each.iter().map(|path| path.clone().into()).collect(),
                self.each.clone(),
            ));
        }
        self.write_archive(job)?;
        Ok((
            vec![
                "--whole-archive".into(),
                self.archive.clone().into(),
                "--no-whole-archive".into(),
            ],
            vec![self.archive.clone()],
        ))
    }

    fn write_archive(&self, job: &DeviceJob<'_>) -> Result<()> {
        let name = |path: &Path| {
            path.file_name()
                .unwrap_or_default()
                .to_string_lossy()
                .into_owned()
        };
        // nvlink's wrapper extracts each member to a file with its name, and passes the list of
        // files to nvlink.
        let short = |(at, name): (usize, String)| {
            if self.is_packed {
                shortened(&name, at)
            } else {
                name
            }
        };
        let names = self
            .each
            .iter()
            .map(|path| name(path))
            .enumerate()
            .map(short);
        let members = names
            .zip(&job.inputs)
            .map(|(name, input)| (name, &*input.bytes));
        let written = File::create(&self.archive).and_then(|file| {
            let mut out = BufWriter::with_capacity(256 << 10, file);
            archive::write_plain(members, &mut out)?;
            out.flush()
        });
        written.with_context(|| cannot_write(&self.archive))
    }

    /// Removes the files after the link.
    pub(super) fn discard(&self, session: &Session) {
        if self.archive.exists() {
            session.scratch.discard(&self.archive);
        } else {
            self.each
                .iter()
                .for_each(|path| session.scratch.discard(path));
        }
    }
}

/// A short name for the member with index `at`: the first characters of its file name, and the
/// index.
fn shortened(name: &str, at: usize) -> String {
    const START: usize = 24;
    let (stem, ending) = name.rsplit_once('.').unwrap_or((name, "o"));
    let start: String = stem.chars().take(START).collect();
    format!("{start}.{at}.{ending}")
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write the device object `{}`", path.display())
}
