//! Writes the device code of a job to files for its linker: one for each input, or, if the linker is run directly, all in one
//! archive, because creating hundreds of files takes longer than linking them.

use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::formats::archive;
use crate::link::select::DeviceJob;
use crate::sys::session::Session;

/// The names of the files.
pub(super) struct Inputs {
    /// One for each input, in order.
    pub(super) each: Vec<PathBuf>,
    archive: PathBuf,
}

impl Inputs {
    /// Chooses names for the inputs of `job`, with the extension `ending`; writes nothing.
    pub(super) fn named(job: &DeviceJob<'_>, ending: &str, session: &Session) -> Result<Inputs> {
        let mut each = Vec::with_capacity(job.inputs.len());
        for input in &job.inputs {
            let name = input.origin.innermost_name();
            let stem = name.rsplit_once('.').map_or(name.as_str(), |(stem, _)| stem);
            each.push(session.scratch.path(&format!("{stem}-{}-{}", input.triple, input.arch), ending)?);
        }
        let archive = session.scratch.path(&format!("device-{}-{}", job.target.triple, job.target.arch), "a")?;
        Ok(Inputs { each, archive })
    }

    /// Writes a file for each input.
    pub(super) fn write_each(&self, job: &DeviceJob<'_>) -> Result<()> {
        for (input, path) in job.inputs.iter().zip(&self.each) {
            std::fs::write(path, &input.bytes).with_context(|| cannot_write(path))?;
        }
        Ok(())
    }

    /// Writes the inputs, into one archive if `archives` permits it. Returns the linker's arguments for them, and the files.
    pub(super) fn write(&self, job: &DeviceJob<'_>, archives: bool) -> Result<(Vec<OsString>, Vec<PathBuf>)> {
        if job.inputs.len() < 2 || !archives {
            self.write_each(job)?;
            return Ok((self.each.iter().map(|path| path.clone().into()).collect(), self.each.clone()));
        }
        let name = |path: &Path| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        let members = self.each.iter().zip(&job.inputs).map(|(path, input)| (name(path), &*input.bytes));
        let written = File::create(&self.archive).and_then(|file| {
            let mut out = BufWriter::with_capacity(256 << 10, file);
            archive::write_plain(members, &mut out)?;
            out.flush()
        });
        written.with_context(|| cannot_write(&self.archive))?;
        Ok((vec!["--whole-archive".into(), self.archive.clone().into(), "--no-whole-archive".into()], vec![self.archive.clone()]))
    }

    /// Removes the files: the device code is linked.
    pub(super) fn discard(&self, session: &Session) {
        if self.archive.exists() {
            session.scratch.discard(&self.archive);
        } else {
            self.each.iter().for_each(|path| session.scratch.discard(path));
        }
    }
}

fn cannot_write(path: &Path) -> String {
    format!("cannot write the device object `{}`", path.display())
}
