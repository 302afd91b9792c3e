//! Device links: runs one link per image, in parallel and longest first.
//!
//! The linker is clang or nvlink. The results are in the order of the jobs, independent of timing
//! (docs/spec/faults.md F7).

mod clang;
mod codegen_options;
mod codegen_threads;
mod costs;
mod distribution;
mod distributor;
mod libraries;
mod link_cache;
mod messages;
mod nvlink;
mod running;
mod schedule;

use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};
use object::{Endianness, elf};

pub(crate) use distributor::{DistributorRequest, run as distribute};
pub(crate) use libraries::{
    HostLibrary, added_libraries, host_libraries, leave_symbols_open, linker_finds, missing_runtime,
};
pub(crate) use link_cache::{Tool, history};
pub(crate) use nvlink::{needs_no_compiler, required_symbols};

use crate::args;
use crate::args::settings::{Jobs, LinkSettings, MemoryLimit};
use crate::build_log::Log;
use crate::link::scan::{DeviceImage, Form};
use crate::link::select::DeviceJob;
use crate::toolchain::{self, Compiler};
use offld_system::io::bytes::Bytes;
use offld_system::progress::Progress;
use offld_system::response::Style;
use offld_system::run::Cmd;
use offld_system::session::Session;
use offld_system::store::Caching;
use offload_formats::elf::raw::FileHeader;
use offload_formats::error::{self, StepFailed};
use offload_formats::gpu::Gpu;
use offload_formats::model::{Generation, ImageKind, OffloadKind, OffloadKinds};
use offload_formats::registration::Modules;
use offload_formats::target::Target;
use offload_formats::{archive, offload_binary};

use codegen_threads::Partitions;
use costs::Costs;
use link_cache::DeviceCache;
use messages::ThinHint;
use offld_system::jobs::JobSlots;
use running::{Expected, Links};
use schedule::RunnerSlots;

/// A linked image in a file.
#[derive(Debug, Clone)]
pub(crate) struct Linked {
    /// The target that the image runs on.
    pub target: Target,
    /// The triple for the image's header: that of the first input whose triple matches up to
    /// trailing dashes, else the target's.
    pub triple: String,
    /// The generation of the entry table that lists the image's kernels.
    pub generation: Generation,
    /// The runtimes that the image is registered with.
    pub kinds: OffloadKinds,
    /// The modules that register themselves with the image.
    pub modules: Modules,
    /// Whether nvcc compiled code in it for debugging.
    pub debug: bool,
    /// The format that the linker wrote.
    pub image_kind: ImageKind,
    pub path: PathBuf,
}

/// Settings and services that all device links of one run share.
pub(crate) struct DeviceContext<'a> {
    pub settings: &'a LinkSettings,
    /// The compiler that runs the device links.
    pub compiler: &'a Compiler,
    pub host_triple: &'a str,
    /// The linker of the host link. Device links for the host's architecture use it as well
    /// (docs/spec/faults.md F34).
    pub host_linker: &'a Path,
    /// Arguments to preload ld.lld for the host's architecture, if it can be preloaded.
    pub preload_args: Option<Vec<OsString>>,
    /// Libraries of the host link that device code for CPUs may use.
    pub libraries: &'a [HostLibrary],
    /// File name of the link's output. Temporary file names begin with it.
    pub out_base: String,
    pub caching: &'a Caching,
    /// Called once a device link is running, so that the caller can do other work meanwhile. Each
    /// device link may call it.
    pub while_running: &'a (dyn Fn() + Sync),
}

impl DeviceContext<'_> {
    /// Whether the compiler links for `target` with ld.lld.
    fn links_by_lld(&self, target: &Target) -> bool {
        target.is_amdgcn() || target.is_cpu() && toolchain::is_ld_lld(self.host_linker)
    }

    /// Whether each bitcode input for `target` is compiled by itself before the link (`--no-lto`,
    /// llvm/llvm-project#201135).
    fn compiles_each(&self, target: &Target) -> bool {
        self.settings.device.no_lto && target.is_amdgcn()
    }
}

/// The arguments of a compiler or linker so far, in order.
#[derive(Default)]
pub(super) struct ArgList(Vec<OsString>);

impl ArgList {
    pub(super) fn arg(&mut self, arg: impl Into<OsString>) -> &mut Self {
        self.0.push(arg.into());
        self
    }

    pub(super) fn path(&mut self, path: &Path) -> &mut Self {
        self.arg(path.as_os_str())
    }

    /// Adds `prefix` and `value` as one argument.
    pub(super) fn joined(&mut self, prefix: &str, value: &OsStr) -> &mut Self {
        self.arg(args::joined(prefix, value))
    }

    pub(super) fn finish(self) -> Vec<OsString> {
        self.0
    }
}

/// Links the images of all jobs.
pub(crate) fn link(
    jobs: &[DeviceJob<'_>],
    context: &DeviceContext<'_>,
    session: &Session,
) -> Result<Vec<Linked>> {
    messages::warn_of_object_calls(jobs, context, &session.shell);
    let planned: Vec<Planned<'_>> = jobs
        .iter()
        .map(|job| plan(job, context, session))
        .collect::<Result<_>>()?;
    let in_order = session.runner.in_order();
    let run = &context.settings.run;
    let (jobs_at_once, memory) = if in_order {
        (Jobs::N(1), MemoryLimit::Off)
    } else {
        (run.jobs, run.memory.get()?)
    };
    let slots = JobSlots::new(jobs_at_once, memory, in_order, run.verbose, &session.shell);
    let places = RunnerSlots::new(slots, session);
    let costs = Costs::new(
        context.caching.cache().ok(),
        planned
            .first()
            .map_or(Path::new(""), |planned| &planned.program),
    );
    let expected = Expected::new(&planned, &costs);
    let order = if in_order || planned.len() < 2 {
        (0..planned.len()).collect()
    } else {
        schedule::longest_first(
            &expected
                .all()
                .iter()
                .map(|expected| expected.time)
                .collect::<Vec<f64>>(),
        )
    };
    let progress = Progress::new(session.shell.is_terminal() && !run.dry_run);
    let cache = cache(context, session);
    let distributes = distribution::is_wanted(context.settings, session)?;
    let log = context.settings.cache.log.as_ref().filter(|_| !run.dry_run);
    let log = log.map(|path| Arc::new(Log::new(path.clone(), Arc::clone(&session.shell))));
    let hint = ThinHint::default();
    let links = Links {
        planned: &planned,
        expected,
        costs: &costs,
        places: &places,
        progress: &progress,
        session,
        context,
        hint: &hint,
        log: log.as_ref(),
        distributes,
        cache: cache.as_ref().map_err(String::as_str),
    };
    let done = schedule::run(&links, &order, &places, session);
    costs.keep();
    all_succeeded(done)?;
    Ok(planned.into_iter().map(|planned| planned.linked).collect())
}

/// Merges the errors of all jobs into one, with the exit status of the first failure. Every job has
/// been tried by then.
fn all_succeeded(results: Vec<Result<()>>) -> Result<()> {
    let mut failures: Vec<anyhow::Error> = results.into_iter().filter_map(Result::err).collect();
    if failures.len() < 2 {
        return failures.pop().map_or(Ok(()), Err);
    }
    let status = failures.first().map_or(1, error::exit_status);
    let mut reports: Vec<String> = failures.iter().map(error::chain).collect();
    // A signal ends all jobs with the same report.
    reports.dedup();
    Err(StepFailed::new(reports.join("\n"), status).into())
}

/// Opens the cache for device links, or returns the reason why it is off.
///
/// A dry run gives an empty reason. With `--save-temps` every command must run, because the user
/// wants its temporary files.
fn cache<'a>(
    context: &'a DeviceContext<'a>,
    session: &'a Session,
) -> std::result::Result<DeviceCache<'a>, String> {
    let settings = context.settings;
    let cache = match context.caching.cache() {
        _ if settings.run.dry_run => return Err(String::new()),
        _ if settings.run.save_temps => Err("--save-temps needs the temporary files of every link"),
        cache => cache,
    };
    match cache {
        Ok(cache) => Ok(DeviceCache::new(cache, context, session)),
        Err(why) => {
            if settings.run.verbose {
                session
                    .shell
                    .note(&format!("device links are not cached: {why}"));
            }
            Err(why.to_owned())
        }
    }
}

/// A job with its file names. The names depend on the order of requests, so they are chosen before
/// the parallel part begins.
struct Planned<'a> {
    job: &'a DeviceJob<'a>,
    inputs: Inputs,
    cmd: Cmd,
    /// The compiler's arguments with placeholders for files, for the cache's query. Empty if the
    /// job cannot be cached.
    query: Vec<OsString>,
    dependencies: PathBuf,
    program: PathBuf,
    linked: Linked,
}

fn plan<'a>(
    job: &'a DeviceJob<'a>,
    context: &DeviceContext<'_>,
    session: &Session,
) -> Result<Planned<'a>> {
    let by_nvlink = nvlink::serves(job, context);
    if !by_nvlink {
        nvlink::check_inputs(job)?;
    }
    // nvlink recognises file types by the extension.
    let ending = |input: &DeviceImage<'_>| match input.form {
        _ if !by_nvlink => "o",
        Form::LtoObject => "o",
        Form::Ptx => "ptx",
        Form::Code => "cubin",
    };
    let packs = job.target.is_nvptx() && !by_nvlink && nvlink::is_wrapped(context);
    let inputs = Inputs::named(job, &ending, packs, session)?;
    let words = inputs.words();
    let Target { arch, .. } = &job.target;
    let output = session.scratch.path(
        &format!("{}.{}.{arch}", context.out_base, job.target.arch_name()),
        "img",
    )?;
    let partitions = Partitions::of(job, context)?;
    let command = |inputs: &[OsString], output: &Path| {
        if by_nvlink {
            return nvlink::command(job, context, inputs, output, session);
        }
        let mut args = clang::arguments(job, context, inputs, output)?;
        args.extend(partitions.argument());
        Ok((context.compiler.path.clone(), args))
    };
    let (program, args) = command(&words, &output)?;
    // The cache supports links by a single program. A compiler that compiles before it links runs
    // two.
    let query = if context.compiles_each(&job.target) || context.caching.cache().is_err() {
        Vec::new()
    } else {
        command(&[link_cache::INPUT.into()], Path::new(link_cache::OUTPUT))?.1
    };
    let step = format!("device link for {}", job.target);
    if let Partitions::Ignored(why) = &partitions
        && context.settings.run.verbose
    {
        session.shell.note(&format!(
            "{step}: --wrapper-lto-partitions= is ignored: {why}"
        ));
    }
    let cmd = Cmd {
        step,
        program,
        args,
        quoting: Style::Gnu,
        inputs: job
            .inputs
            .iter()
            .map(|input| input.origin.to_string())
            .collect(),
        output: Some(output.clone()),
    };
    let image_kind = if context.settings.device.embed_bitcode {
        ImageKind::Bitcode
    } else {
        ImageKind::Object
    };
    let spelled = job
        .inputs
        .iter()
        .find(|input| input.triple.trim_end_matches('-') == job.target.triple);
    let triple = spelled.map_or_else(|| job.target.triple.clone(), |input| input.triple.clone());
    let dependencies = output.with_extension("d");
    let program = context
        .settings
        .output
        .clone()
        .unwrap_or_else(|| PathBuf::from(&context.out_base));
    let linked = Linked {
        target: job.target.clone(),
        triple,
        generation: job.generation,
        kinds: job.kinds,
        modules: job.modules.clone(),
        debug: job.inputs.iter().any(|input| input.debug),
        image_kind,
        path: output,
    };
    Ok(Planned {
        job,
        inputs,
        cmd,
        query,
        dependencies,
        program,
        linked,
    })
}

// `--override-image=<kind>=<file>`: uses the user's linked images instead of all device code in
// the inputs (docs/spec/link-driver.md 9.3).
//
// The target is read from the ELF header, or from the OffloadBinary for SYCL.

/// Reads the images of the options, in order.
pub(crate) fn override_images(options: &[(String, PathBuf)]) -> Result<Vec<Linked>> {
    options
        .iter()
        .map(|(kind, file)| {
            override_image(kind, file)
                .with_context(|| format!("--override-image={kind}={}", file.display()))
        })
        .collect()
}

fn override_image(kind: &str, file: &Path) -> Result<Linked> {
    let found = OffloadKind::ALL
        .into_iter()
        .find(|known| known.name() == kind);
    let kind = found
        .ok_or_else(|| anyhow!("unknown kind `{kind}`: expected openmp, cuda, hip or sycl"))?;
    let bytes = Bytes::of(file)?;
    let (triple, arch) = match kind {
        OffloadKind::Sycl => packed_target(bytes.as_slice()).with_context(|| {
            format!(
                "`{}` is not an OffloadBinary, the output of SYCL's device linker",
                file.display()
            )
        })?,
        _ => elf_target(bytes.as_slice())
            .with_context(|| format!("`{}` is not an ELF image", file.display()))?,
    };
    Ok(Linked {
        target: Target::new(&triple, &arch),
        triple,
        generation: Generation::Llvm21,
        kinds: OffloadKinds::default().with(kind),
        modules: Modules::default(),
        debug: false,
        image_kind: ImageKind::Object,
        path: file.to_path_buf(),
    })
}

/// Returns triple and architecture of the first image in a file of OffloadBinaries, as written by
/// SYCL's device linker.
fn packed_target(data: &[u8]) -> Result<(String, String)> {
    let images = offload_binary::read_all(data)?;
    let first = images.first().context("the OffloadBinary has no image")?;
    Ok((first.triple().into_owned(), first.arch().into_owned()))
}

/// Returns triple and architecture from the ELF header, in LLVM's spelling for such images. AMD
/// architectures have no features.
fn elf_target(data: &[u8]) -> Result<(String, String)> {
    let (class, header) = FileHeader::read(data)?;
    let named = |arch: &str| Ok((format!("{arch}--"), String::new()));
    match header.machine {
        elf::EM_AMDGPU | elf::EM_CUDA => {
            let gpu = Gpu::of_elf(data)?.context("the ELF header names no GPU")?;
            Ok((gpu.triple.to_owned(), gpu.processor))
        }
        elf::EM_X86_64 => named("x86_64"),
        elf::EM_386 => named("i386"),
        elf::EM_AARCH64 => named("aarch64"),
        elf::EM_PPC64 => named(if class.endian == Endianness::Little {
            "powerpc64le"
        } else {
            "powerpc64"
        }),
        elf::EM_RISCV => named("riscv64"),
        elf::EM_S390 => named("s390x"),
        elf::EM_LOONGARCH => named("loongarch64"),
        other => bail!("unsupported ELF machine {}", other.0),
    }
}

// Writes the device code of a job to files for its linker: one file per input, or one archive.
//
// An archive is used if offld runs the linker directly, because creating hundreds of files takes
// longer than linking them. It is also used if the linker reads no response files and its command
// line would be too long.

/// Size limit in bytes of a file list for a linker without response files. clang writes a response
/// file for commands of more than 128 KiB.
const MAX_LIST_BYTES: usize = 64 << 10;

/// The names of the files.
struct Inputs {
    /// One file per input, in order.
    each: Vec<PathBuf>,
    archive: PathBuf,
    /// Whether the linker gets the archive in any case.
    is_packed: bool,
}

impl Inputs {
    /// Chooses names for the inputs of `job`, and writes nothing. `ending`: the extension for an
    /// input.
    ///
    /// `packs`: the linker reads no response files, so a long list of inputs must be an archive.
    fn named(
        job: &DeviceJob<'_>,
        ending: &dyn Fn(&DeviceImage<'_>) -> &'static str,
        packs: bool,
        session: &Session,
    ) -> Result<Inputs> {
        let mut each = Vec::with_capacity(job.inputs.len());
        for input in &job.inputs {
            let name = input.origin.innermost_name();
            let stem = name
                .rsplit_once('.')
                .map_or(name.as_str(), |(stem, _)| stem);
            each.push(session.scratch.path(
                &format!("{stem}-{}-{}", input.triple, input.arch),
                ending(input),
            )?);
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
    fn words(&self) -> Vec<OsString> {
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
    fn write_for_compiler(&self, job: &DeviceJob<'_>) -> Result<()> {
        if self.is_packed {
            self.write_archive(job)
        } else {
            self.write_each(job)
        }
    }

    fn write_each(&self, job: &DeviceJob<'_>) -> Result<()> {
        for (input, path) in job.inputs.iter().zip(&self.each) {
            std::fs::write(path, input.bytes.to_link()).with_context(|| cannot_write(path))?;
        }
        Ok(())
    }

    /// Writes the inputs, to one archive if `archives` permits that. Returns the linker's
    /// arguments, and the files.
    fn write(&self, job: &DeviceJob<'_>, archives: bool) -> Result<(Vec<OsString>, Vec<PathBuf>)> {
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
            .map(|(name, input)| (name, input.bytes.to_link()));
        let written = File::create(&self.archive).and_then(|file| {
            let mut out = BufWriter::with_capacity(256 << 10, file);
            archive::write_plain(members, &mut out)?;
            out.flush()
        });
        written.with_context(|| cannot_write(&self.archive))
    }

    /// Removes the files after the link.
    fn discard(&self, session: &Session) {
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn f12_an_unknown_kind_is_named_with_its_option() {
        let error = override_images(&[("foo".to_owned(), "a.o".into())]).unwrap_err();
        assert_eq!(
            offload_formats::error::chain(&error),
            "--override-image=foo=a.o: unknown kind `foo`: expected openmp, cuda, hip or sycl"
        );
    }

    #[test]
    fn targets_are_read_from_the_header() {
        let mut elf = vec![0u8; 64];
        elf[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
        (elf[16], elf[18], elf[20]) = (3, 62, 1);
        assert_eq!(
            elf_target(&elf).unwrap(),
            ("x86_64--".to_owned(), String::new())
        );
        (elf[18], elf[48]) = (224, 0x3f);
        assert_eq!(
            elf_target(&elf).unwrap(),
            ("amdgcn-amd-amdhsa".to_owned(), "gfx90a".to_owned())
        );
        (elf[18], elf[48]) = (190, 80);
        assert_eq!(
            elf_target(&elf).unwrap(),
            ("nvptx64-nvidia-cuda".to_owned(), "sm_80".to_owned())
        );
        // A cubin of CUDA 12.8 for a single architecture, sm_90a.
        elf[8] = 7;
        elf[48..52].copy_from_slice(&[0x5a, 0x0d, 0x5a, 0x00]);
        assert_eq!(
            elf_target(&elf).unwrap(),
            ("nvptx64-nvidia-cuda".to_owned(), "sm_90a".to_owned())
        );
        assert!(elf_target(b"BC\xc0\xde").is_err());
    }
}
