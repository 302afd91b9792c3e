//! Late images (docs/explanation/late-images.md): the host link runs in parallel with the device
//! links, with placeholders for the images. offld writes the images into the program when both are
//! done. No linker reads the images: they are copied once, and may be larger than the 2 GiB
//! that code can address.
//!
//! The command line and the inputs alone decide whether a link is late: not the cache, the time, or
//! the number of jobs. So the same link gives the same bytes, whatever the cache contains.

use std::fmt;
use std::fs::Metadata;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::Builder;

use anyhow::{Context, Error, Result, anyhow};
use rustix::fs::{CWD, RenameFlags, renameat_with};

use super::{HostLink, Link};
use crate::args::settings::{LateImages, LinkSettings};
use crate::args::{Arg, ArgKind, ArgumentList, Dialect, Id, gnu_ld};
use crate::link::host::Place;
use crate::link::payload::{Group, Payload, PayloadImage};
use crate::link::register::{self, ExternalFiles};
use crate::toolchain::{self, LinkerFamily};
use offld_system::atomic_file::Directory;
use offld_system::io::file_slice::{FileSlice, Spool};
use offld_system::io::rope::Rope;
use offld_system::run::Cmd;
use offld_system::session::Session;
use offld_system::trace::span;
use offld_system::{jobs, threads};
use offload_files::edit::backpatch::{fill, rename};
use offload_files::edit::files::replace_with_attributes;
use offload_formats::model::{ObjectFormat, OffloadKind};
use offload_formats::registration::sycl;
use offload_formats::stable_names::StableNames;

/// The least size in bytes of the inputs' device code for which a late link is faster even if all
/// images are in the cache (docs/explanation/late-images.md).
const PAYS_FROM: u64 = 4 << 20;

/// A program with placeholders for its images, in a temporary directory next to the output.
#[derive(Debug)]
pub(super) struct Unfilled {
    program: PathBuf,
    /// The location of the final program.
    place: Place,
    _folder: Directory,
}

/// The reason why the output of the host linker cannot have stable names. The device code has them
/// already, so it must be linked again.
#[derive(Debug)]
pub(super) struct NamesNotPut(pub(super) String);

impl fmt::Display for NamesNotPut {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for NamesNotPut {}

/// Whether the host link can run before the images exist. It cannot for SYCL, because its
/// registration depends on the images. It cannot under a jobserver either, because make gives this
/// link only one token.
pub(super) fn can_be_beside(settings: &LinkSettings, groups: &[Group]) -> bool {
    !groups.iter().any(|group| group.kind == OffloadKind::Sycl)
        && !jobs::are_counted(settings.run.jobs)
}

/// Returns payloads with the layout of the future images of `groups`, without contents. Not for
/// SYCL.
pub(super) fn payloads_of(groups: &[Group]) -> Vec<Payload> {
    let of_group = |group: &Group| {
        let image = || PayloadImage {
            contents: Rope::default(),
            image: 0..0,
            file: None,
            target: None,
        };
        Payload {
            kind: group.kind,
            generation: group.generation,
            modules: group.modules.clone(),
            images: (0..group.image_count()).map(|_| image()).collect(),
        }
    };
    groups.iter().map(of_group).collect()
}

impl Link<'_> {
    /// Whether the link is late. In verbose mode, prints the reason why it cannot be late.
    /// `groups`: the registrations. `is_input`: whether the link reads a file. `device_bytes`:
    /// bytes of device code.
    ///
    /// # Errors
    /// `OFFLD_LATE_IMAGES` is invalid.
    pub(super) fn is_late(
        &self,
        host: &HostLink,
        groups: &[Group],
        is_input: &dyn Fn(&Metadata) -> bool,
        device_bytes: u64,
    ) -> Result<bool> {
        let setting = self.settings.run.late_images.get()?;
        if setting == LateImages::Off || (setting == LateImages::Auto && device_bytes < PAYS_FROM) {
            return Ok(false);
        }
        let obstacle = self
            .obstacle(host, groups)
            .or_else(|| Place::of(self.output, is_input).err());
        if let Some(why) = obstacle.as_ref().filter(|_| self.settings.run.verbose) {
            self.session.shell.note(&format!("no late link: {why}"));
        }
        Ok(obstacle.is_none())
    }

    /// Returns the reason why the link cannot be late.
    fn obstacle(&self, host: &HostLink, groups: &[Group]) -> Option<String> {
        let settings = self.settings;
        if settings.external_images.is_some() {
            return Some("the images are in files".to_owned());
        }
        if settings.host.relocatable {
            return Some("-r writes an object, not a program".to_owned());
        }
        let is_known_host = ["x86_64-", "aarch64-"]
            .iter()
            .any(|arch| host.triple.starts_with(arch))
            && !host.triple.ends_with("x32")
            && ObjectFormat::of(&host.triple) == ObjectFormat::Elf
            && settings.dialect == Dialect::Gnu;
        if !is_known_host {
            return Some(format!("the host {} is not supported", host.triple));
        }
        if groups.iter().any(|group| group.kind == OffloadKind::Sycl)
            && host.sycl > sycl::Registration::Llvm22
        {
            return Some(
                "the SYCL registration of LLVM 23 and later contains the image sizes".to_owned(),
            );
        }
        self.aside_obstacle()
    }

    /// Returns the reason why the host linker cannot write its output to a temporary location for
    /// offld to edit.
    pub(super) fn aside_obstacle(&self) -> Option<String> {
        let settings = self.settings;
        let shows_steps = settings.run.dry_run
            || settings.run.save_temps
            || settings.run.print_wrapped_module
            || settings.emit_fatbin_only;
        if shows_steps {
            return Some("an option prints or saves the steps of the link".to_owned());
        }
        if toolchain::linker_family(&self.linker) == LinkerFamily::Other {
            return Some(format!(
                "the linker `{}` is not supported",
                self.linker.display()
            ));
        }
        if let Some(arg) = self
            .arguments
            .args()
            .iter()
            .find(|arg| sees_the_output(arg, self.arguments))
        {
            let token = self
                .arguments
                .tokens()
                .get(arg.tokens.start)
                .map(|token| token.to_string_lossy().into_owned());
            return Some(format!(
                "{} depends on the linker's own output file",
                token.unwrap_or_default()
            ));
        }
        if self.names_versions_by_output() {
            return Some(
                "without -soname, symbol versions contain the name of the linker's output file"
                    .to_owned(),
            );
        }
        None
    }

    /// Whether the linker would write the path of its output into the version definitions. GNU ld
    /// writes only the last component, which is the same in a late link.
    fn names_versions_by_output(&self) -> bool {
        let has = |names: &[&str]| {
            let mut args = self.arguments.args().iter();
            args.any(|arg| matches!(arg.kind, ArgKind::Known(row) if names.contains(&row.name)))
        };
        let has_versions = has(&["version-script"])
            || self.arguments.tokens().iter().any(|token| {
                let token = token.to_string_lossy();
                ["-default-symver", "--default-symver"].contains(&&*token)
                    || gnu_ld::abbreviated(&token).contains(&"default-symver")
            });
        has_versions
            && !has(&["soname", "h"])
            && toolchain::linker_family(&self.linker) != LinkerFamily::Gnu
    }

    /// Links the host program with placeholders for the images of `payloads`. `trace_line`: its row
    /// in a time trace.
    ///
    /// # Errors
    /// The link failed. No file of it remains.
    pub(super) fn link_unfilled(
        &self,
        host: &HostLink,
        payloads: &[Payload],
        trace_line: usize,
    ) -> Result<Unfilled> {
        let objects = register::make(
            payloads,
            &ExternalFiles::default(),
            &self.registration(host),
            self.session,
        )?;
        self.background.llvm.dismiss();
        self.link_aside(host, &objects, &[], trace_line)
    }

    /// Links the host program with the registration objects `objects` into a directory next to the
    /// output. For `-r`, renames the entry tables `tables`.
    ///
    /// # Errors
    /// The link failed. No file of it remains.
    pub(super) fn link_aside(
        &self,
        host: &HostLink,
        objects: &[PathBuf],
        tables: &[&str],
        trace_line: usize,
    ) -> Result<Unfilled> {
        let session = self.session;
        let beside = self
            .output
            .parent()
            .filter(|folder| !folder.as_os_str().is_empty())
            .unwrap_or(Path::new("."));
        // A temporary directory, not a temporary file, because linkers preserve the mode of an
        // existing file. In this directory the program has its final name.
        let folder = Directory::new_in(beside, tempfile::Builder::new().prefix(".offld-"));
        let folder = folder.with_context(|| format!("cannot write `{}`", self.output.display()))?;
        let program = folder.join(self.output.file_name().unwrap_or("program".as_ref()));
        let place = Place::of(self.output, &|_| false)
            .map_err(|why| anyhow!("cannot write `{}`: {why}", self.output.display()))?;
        place
            .imitate(&program)
            .with_context(|| format!("cannot write `{}`", program.display()))?;
        let line = self.host_command(host, objects, Some(&program));
        let linked = self
            .run_host_linker(&line, trace_line)
            .and_then(|()| self.after_link(objects, &host.copies, &program))
            .and_then(|()| self.finish_relocatable(&program, tables));
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
    pub(super) fn fill(
        &self,
        unfilled: Option<Unfilled>,
        host: &HostLink,
        payloads: &[Payload],
    ) -> Result<bool> {
        let session = self.session;
        let unfilled = match unfilled {
            Some(unfilled) => unfilled,
            None => self.link_unfilled(host, payloads, 0)?,
        };
        let _filling = session.trace.span(span::FILL, 0);
        self.put_names(&unfilled.program, &host.names)?;
        let fillings = register::fillings(payloads, &self.registration(host))?;
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
            build_id_is_hashed(self.arguments),
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

    /// Puts the stable `names` into the linked file `program`.
    fn put_names(&self, program: &Path, names: &StableNames) -> Result<()> {
        if names.is_empty() {
            return Ok(());
        }
        rename(program, names, build_id_is_hashed(self.arguments)).map_err(|error| {
            let linker = self.linker.display();
            let why = format!("cannot put stable names into the output of `{linker}`: {error:#}");
            NamesNotPut(why).into()
        })
    }

    /// Puts the stable `names` into `program`, and moves it to the output's path.
    pub(super) fn publish(&self, program: &Unfilled, names: &StableNames) -> Result<()> {
        self.put_names(&program.program, names)?;
        let output = program.place.of_program(&program.program);
        // `program` may be a symlink (`Place::imitate`). Some linkers write to its target.
        let unreadable = || format!("cannot read `{}`", program.program.display());
        let written = std::fs::canonicalize(&program.program).with_context(unreadable)?;
        if move_to(&written, output).is_ok() {
            return Ok(());
        }
        // A symlink may lead to another file system.
        let linked = FileSlice::try_open(&written).with_context(unreadable)?;
        replace_with_attributes(&written, &Rope::from(linked), output, self.session)
    }

    fn run_host_linker(&self, line: &Cmd, trace_line: usize) -> Result<()> {
        let mut trace = self.session.trace.span(span::HOST, trace_line);
        trace.set_arg("linker", line.program.display().to_string());
        let preloaded = self.background.take_linker();
        let ran = self.session.runner.run_preloaded(preloaded, line, &|| ());
        let (usage, _) = ran.map_err(|error| self.shortened(error))?;
        trace.record_usage(usage);
        self.session.signals.check()
    }
}

/// Moves `program` to `output` in one step. An existing `output` is exchanged with `program`: if `program`
/// replaced it, ext4 would first write `program` to disk (`auto_da_alloc`).
fn move_to(program: &Path, output: &Path) -> io::Result<()> {
    let is_file = output.symlink_metadata().is_ok_and(|old| old.is_file());
    let exchange = || renameat_with(CWD, program, CWD, output, RenameFlags::EXCHANGE);
    if is_file && exchange().is_ok() {
        return Ok(());
    }
    std::fs::rename(program, output)
}

/// Whether an argument requires a special layout, asks for an output other than a program, or asks
/// for data about the linker's own output.
fn sees_the_output(arg: &Arg, arguments: &ArgumentList) -> bool {
    const OPTIONS: [&str; 17] = [
        "M",
        "Map",
        "N",
        "emit-llvm",
        "emit-relocs",
        "lto-emit-asm",
        "lto-emit-llvm",
        "n",
        "nmagic",
        "oformat",
        "omagic",
        "print-map",
        "q",
        "repro",
        "save-temps",
        "thinlto-index-only",
        "time-trace",
    ];
    /// Options of plugins and of ld.lld behind `-plugin-opt`.
    const OF_PLUGIN: [&str; 7] = [
        "emit-asm",
        "emit-llvm",
        "save-temps",
        "thinlto-index-only",
        "obj-path",
        "-save-temps",
        "lto-emit-asm",
    ];
    let name = match arg.kind {
        ArgKind::Known(row) if row.id == Id::Script => return true,
        ArgKind::Known(row) if row.name == "pack-dyn-relocs" => {
            return arg
                .value
                .as_ref()
                .is_some_and(|value| value.to_string_lossy().contains("android"));
        }
        ArgKind::Known(row) if row.name == "plugin-opt" => {
            let value = arg
                .value
                .as_ref()
                .map(|value| value.to_string_lossy())
                .unwrap_or_default();
            return OF_PLUGIN
                .iter()
                .any(|option| value == *option || value.starts_with(&format!("{option}=")));
        }
        ArgKind::Known(row) => row.name.to_owned(),
        ArgKind::Unknown => {
            let token = arguments
                .tokens()
                .get(arg.tokens.start)
                .map(|token| token.to_string_lossy())
                .unwrap_or_default();
            let Some(option) = token.strip_prefix("--").or(token.strip_prefix('-')) else {
                return false;
            };
            if gnu_ld::abbreviated(&token)
                .iter()
                .any(|name| OPTIONS.contains(name))
            {
                return true;
            }
            option
                .split_once('=')
                .map_or(option, |(name, _)| name)
                .to_owned()
        }
        ArgKind::Separator | ArgKind::Input => return false,
    };
    OPTIONS.contains(&name.as_str())
}

/// Whether the linker computes a build ID from its output. Then offld computes it again, with the
/// images.
fn build_id_is_hashed(arguments: &ArgumentList) -> bool {
    const HASHES: [&str; 7] = ["fast", "md5", "sha1", "tree", "sha256", "blake2b", "xxhash"];
    let build_id = arguments
        .args()
        .iter()
        .rev()
        .find(|arg| matches!(arg.kind, ArgKind::Known(row) if row.name == "build-id"));
    match build_id {
        // Some linkers write a build ID without the option, depending on their configuration.
        None => true,
        Some(arg) => match arg.value.as_ref().map(|value| value.to_string_lossy()) {
            None => true,
            Some(style) => HASHES.contains(&&*style),
        },
    }
}

/// Returns the results of `one` and `other`. They run in parallel, or one after the other if no
/// thread can be started.
///
/// # Errors
/// The error of the part that failed first. Its failure ends every process of this link.
pub(super) fn beside<A: Send, B>(
    session: &Session,
    one: impl FnOnce() -> Result<A> + Send,
    other: impl FnOnce() -> Result<B>,
) -> Result<(A, B)> {
    let failed = AtomicBool::new(false);
    let one = std::sync::Mutex::new(Some(one));
    let run_one = || {
        let work = threads::lock(&one).take();
        work.map(|work| guarded(work, &failed, session))
    };
    let (first, second) = std::thread::scope(|scope| {
        let thread = if threads::is_short() {
            None
        } else {
            Builder::new().spawn_scoped(scope, run_one).ok()
        };
        let second = guarded(other, &failed, session);
        let first = match thread.map(std::thread::ScopedJoinHandle::join) {
            Some(Ok(first)) => first,
            Some(Err(panic)) => std::panic::resume_unwind(panic),
            None => None,
        };
        (first, second)
    });
    // If the thread could not be started, `one` has not been taken.
    let first = first.or_else(|| if second.is_ok() { run_one() } else { None });
    match (first, second) {
        (Some(Ok(one)), Ok(other)) => Ok((one, other)),
        (Some(Err(failure)), Ok(_)) | (Some(Ok(_)) | None, Err(failure)) => Err(failure.error),
        (Some(Err(one)), Err(other)) => Err(if one.is_first { one.error } else { other.error }),
        (None, Ok(_)) => unreachable!("the first part runs even without a thread"),
    }
}

struct Failure {
    error: Error,
    /// Whether this part failed first, and not as a consequence of the other's failure.
    is_first: bool,
}

fn guarded<R>(
    work: impl FnOnce() -> Result<R>,
    failed: &AtomicBool,
    session: &Session,
) -> Result<R, Failure> {
    work().map_err(|error| {
        let is_first = !failed.swap(true, Ordering::SeqCst);
        if is_first {
            session.signals.stop();
        }
        Failure { error, is_first }
    })
}
