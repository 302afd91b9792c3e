//! Late images (docs/late-images.md): the host link does not wait for the device links but runs beside them, with placeholders in place
//! of the images, which are put into the program when both are done. So no linker ever sees the images: they are copied once, and
//! may be larger than what code can reach.
//!
//! Whether a link is late follows from its command line and its inputs ([`wanted`]), so that the same link gives the same bytes
//! whatever the cache holds.

mod beside;
mod wanted;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use tempfile::TempDir;

use super::steps::one_line;
use crate::args::Ledger;
use crate::args::request::LinkRequest;
use crate::edit::files::copy_with_attributes;
use crate::edit::fill::fill;
use crate::io::piece::{Piece, Spool};
use crate::io::rope::Rope;
use crate::link::host;
use crate::link::payload::{Group, Payload, PayloadImage};
use crate::link::register::{self, RegisterContext};
use crate::model::OffloadKind;
use crate::sys::jobs;
use crate::sys::run::{Cmd, PreloadedLinker};
use crate::sys::session::Session;
use crate::sys::trace::{Usage, span};

pub(in crate::link::pipeline) use beside::beside;
pub(in crate::link::pipeline) use wanted::{Asked, wanted};

/// A program with placeholders of images, in a temporary folder beside the place of the output.
#[derive(Debug)]
pub(in crate::link::pipeline) struct Unfilled {
    program: PathBuf,
    _folder: TempDir,
}

/// What the host link of a late link is made of.
pub(in crate::link::pipeline) struct HostLink<'a> {
    /// The command line.
    pub ledger: &'a Ledger,
    /// Its settings.
    pub request: &'a LinkRequest,
    /// The host linker.
    pub linker: &'a Path,
    /// The output.
    pub output: &'a Path,
    /// How the images are registered.
    pub context: RegisterContext<'a>,
    /// Arguments that the host link lacks for the OpenMP runtime.
    pub runtime: Vec<std::ffi::OsString>,
    /// Its inputs, for error reports.
    pub inputs: Vec<String>,
    /// The number of its line in a time trace.
    pub trace_line: usize,
}

/// Whether the host link can be done before there are images: what SYCL's runtime is told of them is part of it. Where make counts what
/// is run, it has one token for this link.
pub(in crate::link::pipeline) fn can_be_beside(request: &LinkRequest, groups: &[Group]) -> bool {
    !groups.iter().any(|group| group.kind == OffloadKind::Sycl) && !jobs::are_counted(request.jobs)
}

/// Payloads like those that the images of `groups` will be, without what is in them. Not for SYCL.
pub(in crate::link::pipeline) fn payloads_of(groups: &[Group]) -> Vec<Payload> {
    let of_group = |group: &Group| {
        // CUDA's and HIP's runtimes get one file for all devices.
        let count = if group.kind == OffloadKind::OpenMp { group.members.len() } else { 1 };
        let image = || PayloadImage { contents: Rope::default(), image: 0..0, file: None, target: None };
        Payload { kind: group.kind, generation: group.generation, images: (0..count).map(|_| image()).collect() }
    };
    groups.iter().map(of_group).collect()
}

impl HostLink<'_> {
    /// Links the host's program with placeholders of the images of `payloads`. `preloaded`: the linker, if it has been started.
    ///
    /// # Errors
    /// The link has failed; nothing of it is left.
    pub(in crate::link::pipeline) fn run(
        &self,
        payloads: &[Payload],
        preloaded: impl FnOnce() -> Option<PreloadedLinker>,
        session: &Session,
    ) -> Result<Unfilled> {
        let objects = register::make(payloads, &self.context, session)?;
        self.context.llvm.dismiss();
        let beside = self.output.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
        // A folder, since linkers keep the mode of a file that is there. In it the program has its own name.
        let folder = tempfile::Builder::new().prefix(".offld-").tempdir_in(beside);
        let folder = folder.with_context(|| format!("cannot write `{}`", self.output.display()))?;
        let program = folder.path().join(self.output.file_name().unwrap_or("program".as_ref()));
        let additions = host::additions(self.request, self.linker, self.context.host_triple, &objects);
        let endings = host::endings(self.request, self.runtime.clone());
        let mut line = host::command_to(self.ledger, self.linker, &program, &additions, &endings);
        line.inputs.clone_from(&self.inputs);
        let linked = self.link(&line, preloaded(), session);
        objects.iter().for_each(|object| session.scratch.discard(object));
        linked.map(|()| Unfilled { program, _folder: folder })
    }

    /// Puts the images of `payloads` into the program, which becomes the output: all of it, or nothing. The program is `unfilled`, or
    /// else linked now. False, and a warning, where the host linker has made something that cannot be changed: then the link is
    /// to be done in the usual way.
    ///
    /// # Errors
    /// The host link has failed, an image cannot be read, or the output not be written.
    pub(in crate::link::pipeline) fn finish(
        &self,
        unfilled: Option<Unfilled>,
        payloads: &[Payload],
        preloaded: impl FnOnce() -> Option<PreloadedLinker>,
        session: &Session,
    ) -> Result<bool> {
        let unfilled = match unfilled {
            Some(unfilled) => unfilled,
            None => self.run(payloads, preloaded, session)?,
        };
        let _filling = session.trace.span(span::FILL, 0);
        let fillings = register::fillings(payloads, &self.context)?;
        let program = Piece::try_open(&unfilled.program)
            .with_context(|| format!("`{}` ended well but wrote no program", self.linker.display()))?;
        let mut spool = Spool::new(session);
        let filled = match fill(&program, &fillings, wanted::build_id_is_hashed(self.ledger), &mut spool) {
            Ok(filled) => filled,
            Err(error) => {
                session.signals.check()?;
                session.shell.warn(&format!(
                    "device images cannot be put into the program that `{}` made: {error:#}; it is linked once more, with them",
                    self.linker.display()
                ));
                return Ok(false);
            }
        };
        let opened = std::fs::OpenOptions::new().write(true).open(self.output);
        if opened.is_err_and(|error| error.kind() == std::io::ErrorKind::PermissionDenied) {
            // Linkers replace what they may not write.
            host::remove_partial(self.output);
        }
        copy_with_attributes(&unfilled.program, &filled, self.output, session).map(|()| true)
    }

    fn link(&self, line: &Cmd, preloaded: Option<PreloadedLinker>, session: &Session) -> Result<()> {
        let mut trace = session.trace.span(span::HOST, self.trace_line);
        let ran = session.runner.run_preloaded(preloaded, line, &|| ());
        let (usage, _): (Usage, _) = ran.map_err(|error| if self.request.verbose { error } else { one_line(error) })?;
        trace.record_usage(usage);
        session.signals.check()
    }
}
