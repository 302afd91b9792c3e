//! The stage that generates host objects: payloads become plans, and plans become objects in the temporary folder. Small images are part
//! of the module that LLVM compiles; large ones do not pass through LLVM but are streamed into a separate object.

pub(crate) mod image_object;
mod kept;
mod note;
mod shown;
#[cfg(test)]
mod tests;

use std::fs::File;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, Result, bail};
use rayon::prelude::*;
use xxhash_rust::xxh3::Xxh3;

use crate::args::request::LinkRequest;
use crate::formats::offload_binary;
use crate::io::bytes::Bytes;
use crate::io::rope::Rope;
use crate::link::payload::{self, Payload, PayloadImage};
use crate::llvm::protocol::Form;
use crate::llvm::{Llvm, Purpose};
use crate::model::{ImageKind, OffloadKind};
use crate::registration::{self, ImagePlace, Images, Plan, PlannedImage, SyclImage};
use crate::registration::{openmp, sycl};
use crate::store::Cache;
use crate::sys::session::Session;
use crate::sys::threads;
use image_object::StreamedImage;

/// The images of one registration are part of the module if they have at most this many bytes in all.
const INLINE_LIMIT: u64 = 1 << 20;
/// An image of at least this size gets an object of its own.
const LARGE: u64 = 8 << 20;

/// What this stage needs to know about the link.
pub(crate) struct RegisterContext<'a> {
    /// The host's triple.
    pub host_triple: &'a str,
    /// The output as the user named it.
    pub output: &'a Path,
    /// `-r`.
    pub relocatable: bool,
    /// `--print-wrapped-module`.
    pub print: bool,
    /// What SYCL's runtime is handed.
    pub sycl: sycl::Registration,
    /// `--offld-clang=`.
    pub offld_clang: Option<&'a Path>,
    /// `--save-temps`: the module is kept as bitcode, too.
    pub keep_bitcode: bool,
    /// Report what is found in the cache.
    pub verbose: bool,
    /// Note in the file who linked its device code.
    pub note: bool,
    /// The major version of the device compiler, if it is known.
    pub device_compiler: Option<u32>,
    /// Generates registration code.
    pub llvm: &'a Llvm<'a>,
    /// The cache, or why there is none.
    pub cache: &'a std::result::Result<Arc<Cache>, String>,
}

impl<'a> RegisterContext<'a> {
    /// For the link that `request` asks for.
    pub(crate) fn new(
        request: &'a LinkRequest,
        output: &'a Path,
        host_triple: &'a str,
        sycl: sycl::Registration,
        device_compiler: Option<u32>,
        llvm: &'a Llvm<'a>,
        cache: &'a std::result::Result<Arc<Cache>, String>,
    ) -> Self {
        RegisterContext {
            host_triple,
            output,
            relocatable: request.relocatable,
            print: request.print_wrapped_module,
            sycl,
            offld_clang: request.offld_clang.as_deref(),
            keep_bitcode: request.save_temps,
            verbose: request.verbose,
            note: !request.no_note,
            device_compiler,
            llvm,
            cache,
        }
    }
}

/// The objects to add to the host link, in order.
pub(crate) fn make(payloads: &[Payload], context: &RegisterContext<'_>, session: &Session) -> Result<Vec<PathBuf>> {
    let mut objects = Vec::new();
    for (index, payload) in payloads.iter().enumerate() {
        session.signals.check()?;
        objects.append(&mut host_objects(payload, index == 0, context, session)?);
        // The images are in objects now, so their files can go, except for those that a later payload uses, too.
        let later = |file: &Path| payloads[index + 1..].iter().flat_map(files).any(|other| other == file);
        files(payload).filter(|file| !later(file)).for_each(|file| session.scratch.discard(file));
    }
    Ok(objects)
}

/// The sections of the entries that are registered, each once.
pub(crate) fn tables(payloads: &[Payload]) -> Vec<&'static str> {
    let mut tables: Vec<&str> = payloads.iter().map(|payload| payload.generation.entry_section(payload.kind)).collect();
    tables.sort_unstable();
    tables.dedup();
    tables
}

/// The files that a payload's images are made of.
fn files(payload: &Payload) -> impl Iterator<Item = &Path> {
    payload.images.iter().flat_map(|image| image.contents.files())
}

fn host_objects(payload: &Payload, first: bool, context: &RegisterContext<'_>, session: &Session) -> Result<Vec<PathBuf>> {
    let base = context.output.file_name().unwrap_or(context.output.as_os_str()).to_string_lossy().into_owned();
    let stem = format!("{base}.{}.image", payload.kind.name());
    let (plan, streamed) = planned(payload, context)?;
    let purpose = purpose(payload);
    if context.print {
        let text = context.llvm.make(Form::Text, &plan, &purpose)?;
        session.shell.line(String::from_utf8_lossy(&text).trim_end());
    }
    let wrapper = session.scratch.path(&format!("{stem}.wrapper"), "o")?;
    if context.keep_bitcode {
        let bitcode = session.scratch.path(&format!("{stem}.wrapper"), "bc")?;
        session.runner.show_in_process(&|| shown::commands(payload, context, &bitcode, &wrapper, session))?;
        session.runner.make(&bitcode, &|path| write(path, &context.llvm.make(Form::Bitcode, &plan, &purpose)?))?;
    }
    session
        .runner
        .make(&wrapper, &|path| note::write(path, &kept::object(&plan, &purpose, context, session)?, first, context))?;
    let mut objects = vec![wrapper];
    if !streamed.is_empty() {
        objects.append(&mut stream_images(&plan, &streamed, &stem, session)?);
    }
    Ok(objects)
}

/// The purpose of the registration code of `payload`, for error reports.
fn purpose(payload: &Payload) -> Purpose {
    let inputs = files(payload).map(|file| file.file_name().unwrap_or(file.as_os_str()).to_string_lossy().into_owned());
    Purpose { step: format!("registration code for {}", payload.kind.name()), inputs: inputs.collect() }
}

/// The plan for `payload`, and the images that it refers to instead of containing them.
fn planned(payload: &Payload, context: &RegisterContext<'_>) -> Result<(Plan, Vec<StreamedImage>)> {
    let mut sycl = Vec::new();
    let mut sources: Vec<StreamedImage> = Vec::new();
    if payload.kind == OffloadKind::Sycl && context.sycl > sycl::Registration::Llvm22 {
        sources
            .push(StreamedImage { symbol: String::new(), contents: payload::sycl::binary(&files(payload).collect::<Vec<_>>())? });
    } else if payload.kind == OffloadKind::Sycl {
        for file in files(payload) {
            sources.append(&mut sycl_images(file, &mut sycl)?);
        }
    } else {
        let whole = |image: &PayloadImage| StreamedImage { symbol: String::new(), contents: image.contents.clone() };
        sources.extend(payload.images.iter().map(whole));
    }
    let inline = sources.iter().map(|source| source.contents.size()).sum::<u64>() <= INLINE_LIMIT;
    let tag = if inline { 0 } else { tag(payload, context)? };
    let mut places = Vec::new();
    for (index, source) in sources.iter_mut().enumerate() {
        if inline {
            places.push(ImagePlace::Inline(source.contents.read().context("cannot read a linked image")?));
        } else {
            source.symbol = format!("{}.{tag:016x}.{index}", symbol_prefix(payload.kind));
            places.push(ImagePlace::External { symbol: source.symbol.clone(), size: source.contents.size() });
        }
    }
    let plan = Plan {
        host_triple: context.host_triple.to_owned(),
        generation: payload.generation,
        images: images(payload, context, places, sycl)?,
        relocatable: context.relocatable,
    };
    Ok((plan, if inline { Vec::new() } else { sources }))
}

/// What a plan says about the images of each kind.
fn images(
    payload: &Payload,
    context: &RegisterContext<'_>,
    places: Vec<ImagePlace>,
    sycl_facts: Vec<SyclFacts>,
) -> Result<Images> {
    let one = |mut places: Vec<ImagePlace>| match (places.pop(), places.pop()) {
        (Some(place), None) => Ok(place),
        _ => bail!("{} takes one file with the code for all devices, not {}", payload.kind.name(), payload.images.len()),
    };
    Ok(match payload.kind {
        OffloadKind::OpenMp => {
            let planned = payload.images.iter().zip(places).map(|(image, place)| PlannedImage {
                place,
                parts: openmp::whole(image.image.start, image.image.end),
                offload_arch: None,
            });
            Images::OpenMp(planned.collect())
        }
        OffloadKind::Cuda => Images::Cuda(one(places)?),
        OffloadKind::Hip => Images::Hip(one(places)?),
        OffloadKind::Sycl if context.sycl > sycl::Registration::Llvm22 => Images::SyclBinary(one(places)?, context.sycl),
        OffloadKind::Sycl => {
            let image = |(place, facts): (ImagePlace, SyclFacts)| SyclImage {
                place,
                image_kind: facts.image_kind,
                triple: facts.triple,
                symbols: facts.symbols,
            };
            Images::Sycl(places.into_iter().zip(sycl_facts).map(image).collect())
        }
    })
}

/// The metadata of a SYCL image in its OffloadBinary.
struct SyclFacts {
    image_kind: ImageKind,
    triple: String,
    symbols: Vec<String>,
}

/// The images in a file of OffloadBinaries, which SYCL's device linker writes: the runtime gets the images without that container.
fn sycl_images(file: &Path, facts: &mut Vec<SyclFacts>) -> Result<Vec<StreamedImage>> {
    let bytes = Bytes::of(file)?;
    let mut sources = Vec::new();
    if bytes.as_slice().is_empty() {
        // Of a dry run: as LLVM has it, one image without contents stands for all, with one kernel without a name.
        facts.push(SyclFacts { image_kind: ImageKind::None, triple: String::new(), symbols: vec![String::new()] });
        sources.push(StreamedImage { symbol: String::new(), contents: Rope::default() });
    }
    for image in offload_binary::read_all(bytes.as_slice()).with_context(|| format!("the linked image `{}`", file.display()))? {
        facts.push(SyclFacts {
            image_kind: image.image_kind,
            triple: image.triple().into_owned(),
            symbols: sycl::kernels(&image),
        });
        let mut contents = Rope::default();
        payload::sycl::push_image(&mut contents, file, image);
        sources.push(StreamedImage { symbol: String::new(), contents });
    }
    Ok(sources)
}

fn symbol_prefix(kind: OffloadKind) -> &'static str {
    match kind {
        OffloadKind::OpenMp => ".omp_offloading.device_image",
        OffloadKind::Cuda => ".cuda.fatbin_image",
        OffloadKind::Hip => ".hip.fatbin_image",
        OffloadKind::Sycl => ".sycl_offloading.data",
    }
}

/// Writes objects for `images`, in their order, in parallel. A large image gets an object of its own, because the system does not let two
/// threads write to one file at the same time.
fn stream_images(plan: &Plan, images: &[StreamedImage], stem: &str, session: &Session) -> Result<Vec<PathBuf>> {
    let is_large = |image: &StreamedImage| image.contents.size() >= LARGE;
    let groups: Vec<&[StreamedImage]> = images.chunk_by(|one, next| !is_large(one) && !is_large(next)).collect();
    let paths = groups.iter().map(|_| session.scratch.path(stem, "o")).collect::<Result<Vec<_>>>()?;
    let in_all = images.iter().map(|image| image.contents.size()).fold(0, u64::saturating_add);
    let section = registration::plan_section(plan);
    let write = |images: &[StreamedImage], path: &Path| {
        session.signals.check()?;
        let mut out = File::create(path).with_context(|| format!("cannot write `{}`", path.display()))?;
        image_object::write(&mut out, &plan.host_triple, section, images, in_all)
            .with_context(|| format!("cannot write `{}`", path.display()))
    };
    let written: Vec<Result<()>> =
        threads::in_parallel(|| groups.par_iter().zip(&paths).map(|(images, path)| write(images, path)).collect());
    written.into_iter().collect::<Result<()>>()?;
    Ok(paths)
}

/// A number that makes the symbol names of this registration's images unique in the final program. Only relocatable outputs are linked
/// with others: for them it is a hash of the images and the output's name, so that the same link gives the same bytes. Otherwise it only
/// has to differ between the registrations of one link, so no image is read.
fn tag(payload: &Payload, context: &RegisterContext<'_>) -> Result<u64> {
    let mut hash = Hash(Xxh3::new());
    hash.0.update(&[payload.kind as u8, payload.generation as u8]);
    if context.relocatable {
        hash.0.update(context.output.as_os_str().as_encoded_bytes());
        for image in &payload.images {
            image.contents.write_to(&mut hash).context("cannot read a linked image")?;
        }
    }
    Ok(hash.0.digest())
}

/// A hash of what is written.
struct Hash(Xxh3);

impl Write for Hash {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.update(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write `{}`", path.display()))
}
