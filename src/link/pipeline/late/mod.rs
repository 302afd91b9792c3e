//! Late images (docs/explanation/late-images.md): the host link runs in parallel with the device
//! links, with placeholders for the images. offld writes the images into the program when both are
//! done. No linker reads the images: they are copied once, and may be larger than the range of code
//! addresses.
//!
//! The command line and the inputs alone decide whether a link is late ([`wanted`]). So the same
//! link gives the same bytes, whatever the cache contains.

mod beside;
mod wanted;

use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow};

use super::steps::{after_link, one_line};
use crate::args::ArgumentList;
use crate::args::request::LinkRequest;
use crate::edit::backpatch::fill;
use crate::edit::files::replace_with_attributes;
use crate::io::file_slice::{FileSlice, Spool};
use crate::io::rope::Rope;
use crate::link::host::{self, Done, Place};
use crate::link::payload::{Group, Payload, PayloadImage};
use crate::link::register::{self, RegisterContext};
use crate::model::OffloadKind;
use crate::sys::jobs;
use crate::sys::run::{Cmd, PreloadedLinker};
use crate::sys::session::Session;
use crate::sys::trace::{Usage, span};
use crate::sys::unfinished::Directory;

pub(in crate::link::pipeline) use beside::beside;
pub(in crate::link::pipeline) use wanted::{Asked, wanted};

/// A program with placeholders for its images, in a temporary directory next to the output.
#[derive(Debug)]
pub(in crate::link::pipeline) struct Unfilled {
    program: PathBuf,
    /// The location of the final program.
    place: Place,
    _folder: Directory,
}

/// The parameters of the host link of a late link.
pub(in crate::link::pipeline) struct HostLink<'a> {
    /// The command line.
    pub ledger: &'a ArgumentList,
    /// The settings of the command line.
    pub request: &'a LinkRequest,
    pub linker: &'a Path,
    pub output: &'a Path,
    /// The parameters of the registration.
    pub context: RegisterContext<'a>,
    /// Arguments that the host link lacks for the OpenMP runtime.
    pub runtime: Vec<std::ffi::OsString>,
    /// The inputs of the host link, for error reports.
    pub inputs: Vec<String>,
    /// The row of the host link in a time trace.
    pub trace_line: usize,
}

/// Whether the host link can run before the images exist. It cannot for SYCL, because its
/// registration depends on the images. It cannot under a jobserver either, because make gives this
/// link only one token.
pub(in crate::link::pipeline) fn can_be_beside(request: &LinkRequest, groups: &[Group]) -> bool {
    !groups.iter().any(|group| group.kind == OffloadKind::Sycl) && !jobs::are_counted(request.jobs)
}

/// Returns payloads with the layout of the future images of `groups`, without contents. Not for
/// SYCL.
pub(in crate::link::pipeline) fn payloads_of(groups: &[Group]) -> Vec<Payload> {
    let of_group = |group: &Group| {
        // The runtimes of CUDA and HIP get one file for all devices.
        let count = if group.kind == OffloadKind::OpenMp {
            group.members.len()
        } else {
            1
        };
        let image = || PayloadImage {
            contents: Rope::default(),
            image: 0..0,
            file: None,
            target: None,
        };
        Payload {
            kind: group.kind,
            generation: group.generation,
            images: (0..count).map(|_| image()).collect(),
        }
    };
    groups.iter().map(of_group).collect()
}

impl HostLink<'_> {
    /// Links the host program with placeholders for the images of `payloads`. `preloaded`: the
    /// linker, if it was started early.
    ///
    /// # Errors
    /// The link failed. No file of it remains.
    pub(in crate::link::pipeline) fn run(
        &self,
        payloads: &[Payload],
        preloaded: impl FnOnce() -> Option<PreloadedLinker>,
        session: &Session,
    ) -> Result<Unfilled> {
        let objects = register::make(payloads, &self.context, session)?;
        self.context.llvm.dismiss();
        let beside = self
            .output
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        // A directory, because linkers preserve the mode of an existing file. In this directory the
        // program has its final name.
        let folder = Directory::new_in(beside, tempfile::Builder::new().prefix(".offld-"));
        let folder = folder.with_context(|| format!("cannot write `{}`", self.output.display()))?;
        let program = folder.join(self.output.file_name().unwrap_or("program".as_ref()));
        let place = Place::of(self.output, [])
            .map_err(|why| anyhow!("cannot write `{}`: {why}", self.output.display()))?;
        place
            .imitate(&program)
            .with_context(|| format!("cannot write `{}`", program.display()))?;
        let additions = host::additions(
            self.request,
            self.linker,
            self.context.host_triple,
            &objects,
        );
        let endings = host::endings(self.request, self.runtime.clone());
        let mut line = host::command_to(self.ledger, self.linker, &program, &additions, &endings);
        line.inputs.clone_from(&self.inputs);
        let Self {
            ledger,
            request,
            linker,
            output,
            ..
        } = *self;
        let done = Done {
            ledger,
            request,
            linker,
            objects: &objects,
            output,
            written: &program,
        };
        let linked = self
            .link(&line, preloaded(), session)
            .and_then(|()| after_link(&done, session));
        objects
            .iter()
            .for_each(|object| session.scratch.discard(object));
        linked.map(|()| Unfilled {
            program,
            place,
            _folder: folder,
        })
    }

    /// Writes the images of `payloads` into the program, which then replaces the output in one
    /// step. The program is `unfilled`, or is linked now if that is absent. Returns false, after a
    /// warning, if the host linker's output cannot be edited: the caller then links in the usual
    /// way.
    ///
    /// # Errors
    /// The host link failed, an image cannot be read, or the output cannot be written.
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
        let program = FileSlice::try_open(&unfilled.program).with_context(|| {
            format!(
                "`{}` reported success but wrote no program",
                self.linker.display()
            )
        })?;
        let mut spool = Spool::new(session);
        let filled = match fill(
            &program,
            &fillings,
            wanted::build_id_is_hashed(self.ledger),
            &mut spool,
        ) {
            Ok(filled) => filled,
            Err(error) => {
                session.signals.check()?;
                session.shell.warn(&format!(
                    "cannot write the device images into the output of `{}`: {error:#}; repeating the host link with the images",
                    self.linker.display()
                ));
                return Ok(false);
            }
        };
        let output = unfilled.place.of_program(&unfilled.program);
        replace_with_attributes(&unfilled.program, &filled, output, session).map(|()| true)
    }

    fn link(
        &self,
        line: &Cmd,
        preloaded: Option<PreloadedLinker>,
        session: &Session,
    ) -> Result<()> {
        let mut trace = session.trace.span(span::HOST, self.trace_line);
        trace.set_arg("linker", line.program.display().to_string());
        let ran = session.runner.run_preloaded(preloaded, line, &|| ());
        let (usage, _): (Usage, _) = ran.map_err(|error| {
            if self.request.verbose {
                error
            } else {
                one_line(error)
            }
        })?;
        trace.record_usage(usage);
        session.signals.check()
    }
}
