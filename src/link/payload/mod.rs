//! Packs linked images into the containers that their runtimes read: one OffloadBinary for each
//! OpenMP image, one fatbinary for CUDA, one bundle for HIP. SYCL's linker has packed its images
//! already; they are put together if one container of all images is needed.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs::File;
use std::io::{BufWriter, Write};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, anyhow, bail};

use crate::args::joined;
use crate::args::settings::LinkSettings;
use crate::link::device::{Linked, Tool};
use crate::link::select::DeviceJob;
use crate::toolchain;
use offld_system::clock::{self, Moment};
use offld_system::io::bytes::Bytes;
use offld_system::io::rope::Rope;
use offld_system::response::Style;
use offld_system::run::{CapturedOutput, Cmd, Equivalent};
use offld_system::session::Session;
use offld_system::store::{BlobName, Cache, Digest, Key, KeyBuilder, Scope};
use offld_system::{atomic_file, threads};
use offload_formats::bundle::{self, Id};
use offload_formats::compressed::{self, Compressor};
use offload_formats::model::{Generation, OffloadKind, OffloadKinds};
use offload_formats::registration::{Modules, sycl};
use offload_formats::{offload_binary, spirv};

/// The packed images of one registration.
#[derive(Debug)]
pub(crate) struct Payload {
    /// The runtime.
    pub kind: OffloadKind,
    /// The generation of the entry table.
    pub generation: Generation,
    /// The modules that register themselves.
    pub modules: Modules,
    /// The images, in order.
    pub images: Vec<PayloadImage>,
}

/// One packed image, as a list of ranges of the linked images' files, so that it needs no file of
/// its own.
#[derive(Debug)]
pub(crate) struct PayloadImage {
    /// The bytes that the program contains.
    pub contents: Rope,
    /// The range of the contents that the runtime gets.
    pub image: Range<u64>,
    /// The file with the image outside its container, if there is one.
    pub file: Option<PathBuf>,
    /// The triple (for HIP the ID in a bundle) and the architecture of the image; none for a file
    /// with several images.
    pub target: Option<(String, String)>,
}

impl PayloadImage {
    /// Returns an image whose bytes are all for the runtime, and that is also in `file`.
    fn whole(contents: Rope, file: Option<PathBuf>) -> Self {
        let image = 0..contents.size();
        PayloadImage {
            contents,
            image,
            file,
            target: None,
        }
    }

    fn with_target(self, id: String, arch: String) -> Self {
        PayloadImage {
            target: Some((id, arch)),
            ..self
        }
    }
}

/// The options for packing.
pub(crate) struct BundleContext<'a> {
    pub settings: &'a LinkSettings,
    /// The file name of the link's output, which is the prefix of temporary names.
    pub out_base: String,
    /// The triple of the host.
    pub host_triple: &'a str,
    pub cache: Option<&'a Arc<Cache>>,
}

impl<'a> BundleContext<'a> {
    /// Whether the host's pointers have 64 bits.
    fn host_is_64_bit(&self) -> bool {
        const NARROW: [&str; 6] = ["i386", "i486", "i586", "i686", "arm", "riscv32"];
        let arch = self.host_triple.split('-').next().unwrap_or_default();
        !NARROW
            .iter()
            .any(|narrow| arch == *narrow || (*narrow == "arm" && arch.starts_with("armv")))
    }

    /// Returns the cache, unless a dry run or `--save-temps` needs the commands.
    fn cache(&self) -> Option<&'a Arc<Cache>> {
        self.cache
            .filter(|_| !self.settings.run.dry_run && !self.settings.run.save_temps)
    }

    /// Returns the compression of a bundle; without `--compression-level=`, LLVM's default.
    fn compression(&self) -> Result<compressed::Options> {
        let workers = threads::for_compression();
        let mut options = compressed::Options {
            workers,
            ..compressed::Options::default()
        };
        if let Some(text) = &self.settings.device.compression_level {
            options.level = text
                .parse()
                .with_context(|| format!("--compression-level={text}: expected a number"))?;
        }
        Ok(options)
    }
}

/// The images of one registration, by their index among the device jobs or the linked images.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Group {
    /// The runtime.
    pub kind: OffloadKind,
    /// The generation of the entry table.
    pub generation: Generation,
    /// The modules that register themselves.
    pub modules: Modules,
    /// The images, by their index, in order.
    pub members: Vec<usize>,
}

impl Group {
    /// The number of images of its payload. The runtimes of CUDA and HIP get one container for all
    /// devices.
    pub(crate) fn image_count(&self) -> usize {
        if self.kind == OffloadKind::OpenMp {
            self.members.len()
        } else {
            1
        }
    }
}

/// The properties of an image that decide its registration.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RegisteredImage<'a> {
    pub kinds: OffloadKinds,
    pub generation: Generation,
    pub modules: &'a Modules,
}

impl<'a> From<&'a Linked> for RegisteredImage<'a> {
    fn from(image: &'a Linked) -> Self {
        RegisteredImage {
            kinds: image.kinds,
            generation: image.generation,
            modules: &image.modules,
        }
    }
}

impl<'a> From<&'a DeviceJob<'_>> for RegisteredImage<'a> {
    fn from(job: &'a DeviceJob<'_>) -> Self {
        RegisteredImage {
            kinds: job.kinds,
            generation: job.generation,
            modules: &job.modules,
        }
    }
}

/// Returns the modules of the images of a registration, each once.
fn modules_of<'a>(kind: OffloadKind, images: impl Iterator<Item = &'a Modules>) -> Modules {
    let mut all = Modules::default();
    if ![OffloadKind::Cuda, OffloadKind::Hip].contains(&kind) {
        return all;
    }
    let mut has_table = false;
    let mut known = HashSet::new();
    for modules in images {
        has_table |= !modules.alone;
        let new = modules.ids.iter().filter(|id| known.insert(*id));
        all.ids.extend(new.cloned());
    }
    all.alone = !all.ids.is_empty() && !has_table;
    all
}

/// Returns the registrations for `images`. Kinds are in registration order, and generations in
/// order within a kind.
pub(crate) fn groups<'a>(images: impl Iterator<Item = RegisteredImage<'a>>) -> Vec<Group> {
    let images: Vec<RegisteredImage<'a>> = images.collect();
    let mut groups = Vec::new();
    for kind in OffloadKind::ALL {
        let of_kind = || {
            let images = images.iter().enumerate();
            images.filter(|(_, image)| image.kinds.contains(kind))
        };
        let mut generations: Vec<Generation> =
            of_kind().map(|(_, image)| image.generation).collect();
        generations.sort();
        generations.dedup();
        if kind == OffloadKind::Sycl {
            // SYCL's runtime gets its entries together with the registration, so one registration
            // serves all generations.
            generations.drain(..generations.len().saturating_sub(1));
        }
        for generation in generations {
            let of_this = |image: &RegisteredImage<'_>| {
                kind == OffloadKind::Sycl || image.generation == generation
            };
            let members = || of_kind().filter(|(_, image)| of_this(image));
            groups.push(Group {
                kind,
                generation,
                modules: modules_of(kind, members().map(|(_, image)| image.modules)),
                members: members().map(|(index, _)| index).collect(),
            });
        }
    }
    groups
}

/// Returns the payloads of a link, one for each of its [`groups`].
pub(crate) fn bundle(
    linked: &[Linked],
    context: &BundleContext<'_>,
    session: &Session,
) -> Result<Vec<Payload>> {
    let in_files = context.settings.external_images.is_some();
    let payload = |Group {
                       kind,
                       generation,
                       modules,
                       members,
                   }: Group| {
        let images: Vec<&Linked> = members
            .iter()
            .filter_map(|index| linked.get(*index))
            .collect();
        let images = match kind {
            OffloadKind::OpenMp => images
                .iter()
                .map(|image| openmp_image(image, session))
                .collect(),
            OffloadKind::Cuda if in_files => images
                .iter()
                .map(|image| {
                    let arch = image.target.arch.clone();
                    let one = cuda_image(&[*image], &modules, context, session)?;
                    Ok(one.with_target(String::new(), arch))
                })
                .collect(),
            OffloadKind::Cuda => {
                cuda_image(&images, &modules, context, session).map(|one| vec![one])
            }
            OffloadKind::Hip if in_files => images
                .iter()
                .map(|image| {
                    let contents = Rope::of_file(image.path.clone())?;
                    let one = PayloadImage::whole(contents, Some(image.path.clone()));
                    let arch = image.target.target_id().unwrap_or_default().into_owned();
                    Ok(one.with_target(bundle_id(image)?.to_string(), arch))
                })
                .collect(),
            OffloadKind::Hip => hip_image(&images, context, session).map(|one| vec![one]),
            OffloadKind::Sycl => sycl(&images, context.settings.emit_fatbin_only),
        }?;
        Ok(Payload {
            kind,
            generation,
            modules,
            images,
        })
    };
    groups(linked.iter().map(RegisteredImage::from))
        .into_iter()
        .map(payload)
        .collect()
}

/// Writes the only payload of the link as the output, atomically, instead of a host link
/// (`--emit-fatbin-only`).
pub(crate) fn emit(payloads: &[Payload], output: &Path, session: &Session) -> Result<()> {
    let [payload] = payloads else {
        let kinds: Vec<&str> = payloads.iter().map(|payload| payload.kind.name()).collect();
        match kinds.len() {
            0 => bail!(
                "--emit-fatbin-only: the inputs have no device code, so there is no fatbinary to write"
            ),
            _ => bail!(
                "--emit-fatbin-only writes one fatbinary, but the inputs have device code of several kinds: {}",
                kinds.join(", ")
            ),
        }
    };
    let [image] = payload.images.as_slice() else {
        bail!(
            "Expected a single bundled image for direct fat binary output: there are {} {} images",
            payload.images.len(),
            payload.kind.name()
        );
    };
    session
        .runner
        .edit(output, &|output| write_out(image, output))
}

fn write_out(image: &PayloadImage, output: &Path) -> Result<()> {
    let written = atomic_file::replace(output, |out| {
        if !out.metadata()?.is_file() {
            return Ok(image.contents.write_to(out)?);
        }
        image.contents.write_at(out, 0)?;
        Ok(out.set_len(image.contents.size())?)
    });
    written.with_context(|| format!("cannot write `{}`", output.display()))
}

// OffloadBinaries as payloads.
//
// * OpenMP: each image in an OffloadBinary with its triple and architecture, so that tools can list
//   it in the finished program. The runtime gets only the image inside. Images of LLVM 14 have no
//   container.
// * SYCL: the files of SYCL's device linker, which are OffloadBinaries, or one OffloadBinary of all
//   their images. The runtimes of LLVM 23 and later take the single one, and clang embeds it in a
//   host object (`--emit-fatbin-only`).

/// Returns an image of an OpenMP payload.
fn openmp_image(image: &Linked, session: &Session) -> Result<PayloadImage> {
    let mut body = image.path.clone();
    if image.target.is_intel_spirv() {
        let spirv = std::fs::read(&body)
            .with_context(|| format!("cannot read the linked image `{}`", body.display()))?;
        if !spirv.is_empty() {
            body = session
                .scratch
                .path(&format!("{}.container", image.target.arch_name()), "img")?;
            std::fs::write(&body, spirv::wrap_intel_spirv(&spirv))
                .with_context(|| format!("cannot write `{}`", body.display()))?;
        }
    }
    let file = Some(body.clone());
    let bare = Rope::of_file(body)
        .with_context(|| format!("the device link for {} wrote no image", image.target))?;
    let target = Some((image.triple.clone(), image.target.arch.clone()));
    if image.generation == Generation::Llvm14 {
        return Ok(PayloadImage {
            target,
            ..PayloadImage::whole(bare, file)
        });
    }
    let strings = [
        ("triple", image.triple.as_str()),
        ("arch", image.target.arch.as_str()),
    ];
    let frame = offload_binary::frame(
        image.image_kind,
        OffloadKind::OpenMp as u16,
        0,
        &strings,
        bare.size(),
    );
    let start = frame.head.len() as u64;
    let image = start..start + bare.size();
    let mut contents = Rope::framed(frame.head, [(start, bare)]);
    contents.pad_to(frame.total_size);
    Ok(PayloadImage {
        contents,
        image,
        file,
        target,
    })
}

/// Returns the images of a SYCL payload; as one file with `as_one`.
fn sycl(images: &[&Linked], as_one: bool) -> Result<Vec<PayloadImage>> {
    if as_one {
        let files: Vec<&Path> = images.iter().map(|image| image.path.as_path()).collect();
        return Ok(vec![PayloadImage::whole(sycl_binary(&files)?, None)]);
    }
    let files = images.iter().map(|image| {
        Ok(PayloadImage::whole(
            Rope::of_file(image.path.clone())?,
            Some(image.path.clone()),
        ))
    });
    files.collect()
}

/// Returns one OffloadBinary with all images in the files of SYCL's device linker.
pub(crate) fn sycl_binary(files: &[&Path]) -> Result<Rope> {
    let opened = files
        .iter()
        .map(|file| Ok((*file, Bytes::of(file)?)))
        .collect::<Result<Vec<_>>>()?;
    if opened.iter().all(|(_, bytes)| bytes.as_slice().is_empty()) {
        // A dry run leaves empty files.
        return Ok(Rope::default());
    }
    let mut images = Vec::new();
    for (file, bytes) in &opened {
        let read = offload_binary::read_all(bytes.as_slice())
            .with_context(|| format!("cannot read the linked image `{}`", file.display()))?;
        images.extend(read.into_iter().map(|image| (*file, image)));
    }
    let (places, images): (Vec<&Path>, Vec<offload_binary::Image<'_>>) = images.into_iter().unzip();
    let (head, size) =
        sycl::binary_head(&images).context("the kernel names of the SYCL images exceed 4 GiB")?;
    let mut binary = Rope::default();
    binary.push_bytes(head);
    for (file, image) in places.into_iter().zip(images) {
        push_image(&mut binary, file, image);
    }
    binary.pad_to(size);
    Ok(binary)
}

/// Appends the bytes of an image in `file`. A decompressed image has no offset in the file.
pub(crate) fn push_image(contents: &mut Rope, file: &Path, image: offload_binary::Image<'_>) {
    match image.at {
        0 => contents.push_bytes(image.image.into_owned()),
        at => contents.push_file(file.to_path_buf(), at, image.image.len() as u64),
    }
}

// CUDA payload: one fatbinary of all images, which NVIDIA's `fatbinary` writes
// (docs/spec/link-driver.md 7).

/// Returns the fatbinary of the images of one generation.
fn cuda_image(
    images: &[&Linked],
    modules: &Modules,
    context: &BundleContext<'_>,
    session: &Session,
) -> Result<PayloadImage> {
    let output = session.scratch.path(&context.out_base, "fatbin")?;
    let width = if context.host_is_64_bit() {
        "-64"
    } else {
        "-32"
    };
    let mut options = vec![width];
    if !modules.is_empty() {
        // As `nvcc -dlink` does.
        options.push("-link");
    }
    if images.iter().any(|image| image.debug) {
        options.push("-g");
    }
    let mut args: Vec<OsString> = options.iter().map(OsString::from).collect();
    args.extend(["--create".into(), output.clone().into_os_string()]);
    let mut described = Vec::new();
    for image in images {
        let arch = image
            .target
            .arch
            .strip_prefix("sm_")
            .unwrap_or(&image.target.arch);
        let option = format!("--image3=kind=elf,sm={arch},file=");
        args.push(joined(&option, &image.path));
        described.push((image.path.as_path(), option));
    }
    let cmd = Cmd {
        step: "bundling of CUDA images".to_owned(),
        program: session.runner.program(
            toolchain::cuda_tool("fatbinary", context.settings.device.cuda_path.as_deref()),
            "fatbinary",
        )?,
        args,
        quoting: Style::Gnu,
        inputs: images
            .iter()
            .map(|image| format!("the image for {}", image.target))
            .collect(),
        output: Some(output.clone()),
    };
    let cached = context
        .cache()
        .and_then(|cache| FatbinaryCache::new(cache, &cmd.program, &options, &described));
    if cached
        .as_ref()
        .map_or(Ok(false), |cached| cached.fetch(&output))?
    {
        if context.settings.run.verbose {
            session
                .shell
                .note(&format!("{}: found in the cache", cmd.step));
        }
    } else if let Some(cached) = cached {
        let (_, captured) = session.runner.run_capturing(&cmd, &|| ())?;
        cached.put(&output, &captured);
    } else {
        session.runner.run(&cmd)?;
    }
    Ok(PayloadImage::whole(
        Rope::of_file(output.clone())?,
        Some(output),
    ))
}

/// The cache lookup of one fatbinary. NVIDIA's `fatbinary` reads only the images, and no
/// environment variable (the test `releases::nvidia` traces it). So the key consists of the images'
/// contents, their options, and the identity of the tool.
struct FatbinaryCache<'c> {
    cache: &'c Arc<Cache>,
    tool: Tool,
    /// The time before the tool runs.
    begun: Moment,
    key: Key,
}

impl<'c> FatbinaryCache<'c> {
    /// Prepares the lookup for `images`, each a file and its option for the tool. The tool is at
    /// `program` and gets `options` as well. Returns none if the tool or an image cannot be read.
    fn new(
        cache: &'c Arc<Cache>,
        program: &Path,
        options: &[&str],
        images: &[(&Path, String)],
    ) -> Option<Self> {
        let begun = cache.clock().moment();
        let tool = Tool::of(program, cache).ok()?;
        let mut key = KeyBuilder::default();
        key.add("fatbinary 2")
            .add(tool.digest.to_string())
            .add(options.join(" "));
        for (file, option) in images {
            key.add(option)
                .add(Digest::of(Bytes::open(file).ok()?.as_slice()).to_string());
        }
        Some(FatbinaryCache {
            cache,
            tool,
            begun,
            key: key.key(),
        })
    }

    /// Writes the cached fatbinary to `output`. Returns false on a cache miss.
    fn fetch(&self, output: &Path) -> Result<bool> {
        let name = self
            .cache
            .record(self.key, Scope::Local)
            .and_then(|name| BlobName::parse(std::str::from_utf8(&name).ok()?));
        name.map_or(Ok(false), |name| {
            self.cache.fetch_blob(name, output, Scope::Local)
        })
    }

    /// Stores the new fatbinary `output`, after the tool printed `captured`. If the tool printed a
    /// message, the fatbinary is not stored, because only another run repeats the message. Failures
    /// to store are ignored: the tool runs again.
    fn put(self, output: &Path, captured: &CapturedOutput) {
        let unchanged = || {
            self.tool.verify_unchanged(self.begun.time_of_day)?;
            clock::check_not_set(self.cache.clock(), self.begun)
        };
        if captured.stderr.is_empty()
            && !captured.printed
            && unchanged().is_ok()
            && let Ok(name) = self.cache.put_blob(output, Scope::Local)
        {
            let _ = self
                .cache
                .put_record(self.key, name.to_string().as_bytes(), Scope::Local);
        }
    }
}

// HIP payload: one offload bundle of all images in the format of clang-offload-bundler
// (docs/spec/link-driver.md 7), compressed with `--compress`.

/// Alignment of code objects in a bundle, in bytes: the runtime maps them by page.
const BUNDLE_ALIGN: u64 = 4096;

/// The host's target, with the same name on every host. In a bundle, a dash follows it.
const HOST_ID: &str = "host-x86_64-unknown-linux-gnu";

/// Returns the bundle of the images of one generation. It is written to a file only if it is
/// compressed, or with `--save-temps`.
fn hip_image(
    images: &[&Linked],
    context: &BundleContext<'_>,
    session: &Session,
) -> Result<PayloadImage> {
    let mut images = images.to_vec();
    if images.iter().all(|image| image.modules.alone) {
        // The order of HIP's old driver.
        images.sort_by(|one, other| one.target.arch.cmp(&other.target.arch));
    }
    let images = images.as_slice();
    let mut bundle = composed_bundle(images)?;
    let path = || session.scratch.path(&context.out_base, "hipfb");
    let output = if context.settings.device.compress || session.scratch.keeps() {
        Some(path()?)
    } else {
        None
    };
    session.runner.show_in_process(&|| {
        let output = output.clone().map_or_else(path, Ok)?;
        Ok(vec![bundler_command(images, &output, context)?])
    })?;
    if let Some(output) = &output {
        write_bundle(&bundle, output, context, session)
            .with_context(|| format!("cannot write the HIP bundle `{}`", output.display()))?;
        bundle = Rope::of_file(output.clone())?;
    }
    Ok(PayloadImage::whole(bundle, output))
}

/// Returns the clang-offload-bundler command that writes the same bundle.
fn bundler_command(
    images: &[&Linked],
    output: &Path,
    context: &BundleContext<'_>,
) -> Result<Equivalent> {
    let mut args: Vec<OsString> = vec![
        "-type=o".into(),
        format!("-bundle-align={BUNDLE_ALIGN}").into(),
    ];
    if context.settings.device.compress {
        args.push("-compress".into());
    }
    if let Some(level) = &context.settings.device.compression_level {
        args.push(format!("-compression-level={level}").into());
    }
    let ids: Vec<String> = images
        .iter()
        .map(|image| Ok(bundle_id(image)?.to_string()))
        .collect::<Result<_>>()?;
    args.push(
        format!(
            "-targets={HOST_ID}{}",
            ids.iter().map(|id| format!(",{id}")).collect::<String>()
        )
        .into(),
    );
    args.push("-input=/dev/null".into());
    args.extend(images.iter().map(|image| joined("-input=", &image.path)));
    args.push(joined("-output=", output));
    Ok((
        toolchain::llvm_tool("clang-offload-bundler", &context.settings.device),
        args,
    ))
}

fn composed_bundle(images: &[&Linked]) -> Result<Rope> {
    let ids: Vec<Id> = images
        .iter()
        .map(|image| bundle_id(image))
        .collect::<Result<_>>()?;
    bundle::check(&ids).map_err(|fault| anyhow!("{fault}"))?;
    let files = images
        .iter()
        .map(|image| Rope::of_file(image.path.clone()))
        .collect::<Result<Vec<_>>>()?;
    if files.iter().all(|file| file.size() == 0) {
        // In a dry run, an empty file stands for the bundle, as with LLVM. A device link that runs
        // never leaves an empty file.
        return Ok(Rope::default());
    }
    // The host's entry is empty.
    let mut names = vec![format!("{HOST_ID}-")];
    names.extend(ids.iter().map(Id::to_string));
    let sizes = std::iter::once(0).chain(files.iter().map(Rope::size));
    let objects: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(sizes).collect();
    let frame = bundle::frame(&objects, BUNDLE_ALIGN)?;
    // Empty objects are padded as well.
    let contents = std::iter::once(Rope::default()).chain(files);
    Ok(Rope::framed(
        frame.head,
        frame.offsets.into_iter().zip(contents),
    ))
}

fn write_bundle(
    bundle: &Rope,
    output: &Path,
    context: &BundleContext<'_>,
    session: &Session,
) -> Result<()> {
    let mut out = File::create(output)?;
    if context.settings.device.compress {
        let (options, bundle) = (context.compression()?, bundle.clone());
        // At the highest level, zstd does not return for minutes.
        let pack = move || -> Result<()> {
            let mut packed = Compressor::new(BufWriter::new(out), bundle.size(), options)?;
            bundle.write_to(&mut packed)?;
            Ok(packed.finish()?.flush()?)
        };
        threads::unless_stopped(&session.signals, pack)??;
    } else {
        bundle.write_at(&mut out, 0)?;
        out.set_len(bundle.size())?;
    }
    Ok(())
}

/// Returns the bundle ID of an image. AMD's SPIR-V has its own triple. All other images have the
/// triple of amdgcn, because the runtime looks for no other.
fn bundle_id(image: &Linked) -> Result<Id> {
    let target = &image.target;
    let triple = if target.arch == "amdgcnspirv" {
        "spirv64-amd-amdhsa"
    } else {
        "amdgcn-amd-amdhsa"
    };
    let processor = target.target_id().with_context(|| {
        format!("the image for {target} names no architecture, which the HIP runtime needs: compile with --offload-arch=")
    })?;
    // HIP's old driver names the version of the code objects. The runtime takes both names.
    let kind = if image.modules.alone { "hipv4" } else { "hip" };
    Ok(Id::new(kind, triple, &processor))
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::reference;
    use offld_system::clock::{Clock, TestClock};
    use offld_system::store::Store;

    #[test]
    fn output_during_a_clock_change_is_not_cached() {
        let Some([program]) = reference::tools(["true"]) else {
            return;
        };
        let dir = tempfile::tempdir().unwrap();
        let clock = Arc::new(TestClock::stopped());
        let store = Store::with_clock(
            &dir.path().join("cache"),
            1 << 30,
            Arc::clone(&clock) as Arc<dyn Clock>,
        )
        .unwrap();
        let cache = Arc::new(Cache::new(store));
        clock.pass(Duration::from_secs(3600));
        let (image, made, found) = (
            dir.path().join("image"),
            dir.path().join("made"),
            dir.path().join("found"),
        );
        for file in [&image, &made] {
            std::fs::write(file, "CUDA").unwrap();
        }
        let lookup = || {
            FatbinaryCache::new(&cache, &program, &["-64"], &[(&image, "sm=80".to_owned())])
                .unwrap()
        };
        for (set_back, is_cached) in [(Duration::from_secs(60), false), (Duration::ZERO, true)] {
            let begun = lookup();
            clock.set(clock.now() - set_back);
            begun.put(&made, &CapturedOutput::default());
            cache.finish();
            assert_eq!(lookup().fetch(&found).unwrap(), is_cached, "{set_back:?}");
        }
        assert_eq!(std::fs::read(&found).unwrap(), b"CUDA");
    }
}
