//! From payloads to plans. A plan usually says nothing of its images but the names of their symbols, so it is known before they are
//! linked, and is the same for every program that has as many of a kind. Where the user is shown the module, or the output is
//! linked again, small images are part of it, as with LLVM's tools.

use std::io::{self, Write};
use std::path::Path;

use anyhow::{Context, Result, bail};
use xxhash_rust::xxh3::Xxh3;

use super::image_object::{ImageSymbol, StreamedImage};
use super::{RegisterContext, files};
use crate::formats::offload_binary;
use crate::io::bytes::Bytes;
use crate::io::rope::Rope;
use crate::link::payload::{self, Group, Payload};
use crate::model::{Generation, ImageKind, OffloadKind};
use crate::registration::{ImagePlace, Images, Plan, PlannedImage, SyclImage};
use crate::registration::{openmp, sycl};

/// The images of one registration are part of a module that contains images if they have at most this many bytes in all.
const INLINE_LIMIT: u64 = 1 << 20;

/// The plan for the images of `group`, before they are linked; none if it depends on what they hold.
pub(super) fn before(group: &Group, context: &RegisterContext<'_>) -> Option<Plan> {
    // CUDA's and HIP's runtimes get one file for all devices.
    let images = if group.kind == OffloadKind::OpenMp { group.members.len() } else { 1 };
    plan_apart(group.kind, group.generation, images, context)
}

/// The plan for `images` images of which only symbols are known; none if this registration needs more.
fn plan_apart(kind: OffloadKind, generation: Generation, images: usize, context: &RegisterContext<'_>) -> Option<Plan> {
    let apart = !(context.print || context.keep_bitcode || context.relocatable || context.dry_run) && kind != OffloadKind::Sycl;
    let tag = tag(kind, generation).digest();
    let place = |index: usize| {
        let start = symbol(kind, tag, index);
        ImagePlace::Between { stop: format!("{start}.end"), start }
    };
    let images = match kind {
        OffloadKind::Cuda => Images::Cuda(place(0)),
        OffloadKind::Hip => Images::Hip(place(0)),
        _ => {
            let image = |index| PlannedImage { place: place(index), parts: Vec::new(), offload_arch: None };
            Images::OpenMp((0..images).map(image).collect())
        }
    };
    let host_triple = context.host_triple.to_owned();
    apart.then_some(Plan { host_triple, generation, images, relocatable: false })
}

/// The plan for `payload`, and the images that it refers to instead of containing them.
pub(super) fn of(payload: &Payload, context: &RegisterContext<'_>) -> Result<(Plan, Vec<StreamedImage>)> {
    if payload.kind != OffloadKind::OpenMp && payload.kind != OffloadKind::Sycl && payload.images.len() != 1 {
        bail!("{} takes one file with the code for all devices, not {}", payload.kind.name(), payload.images.len());
    }
    if let Some(plan) = plan_apart(payload.kind, payload.generation, payload.images.len(), context) {
        let images = streamed_apart(&plan, payload);
        return Ok((plan, images));
    }
    let mut sycl = Vec::new();
    let contents = contents(payload, context, &mut sycl)?;
    if context.late {
        let tag = tag(payload.kind, payload.generation).digest();
        return between(payload, context, (contents, sycl), tag);
    }
    let inline = contents.iter().map(Rope::size).sum::<u64>() <= INLINE_LIMIT;
    let tag = if inline { 0 } else { tag_of_contents(payload, context)? };
    let (mut places, mut streamed) = (Vec::new(), Vec::new());
    for (index, contents) in contents.into_iter().enumerate() {
        if inline {
            places.push(ImagePlace::Inline(contents.read().context("cannot read a linked image")?));
        } else {
            let (symbol, size) = (symbol(payload.kind, tag, index), contents.size());
            streamed.push(StreamedImage::whole(&symbol, contents));
            places.push(ImagePlace::External { symbol, size });
        }
    }
    let plan = Plan {
        host_triple: context.host_triple.to_owned(),
        generation: payload.generation,
        images: images(payload, context, places, sycl)?,
        relocatable: context.relocatable,
    };
    Ok((plan, streamed))
}

/// The plan for SYCL's images, of which only symbols and kernels are known, and those images.
fn between(
    payload: &Payload,
    context: &RegisterContext<'_>,
    (contents, facts): (Vec<Rope>, Vec<SyclFacts>),
    tag: u64,
) -> Result<(Plan, Vec<StreamedImage>)> {
    let (mut places, mut streamed) = (Vec::new(), Vec::new());
    for (index, contents) in contents.into_iter().enumerate() {
        let start = symbol(payload.kind, tag, index);
        let (stop, size) = (format!("{start}.end"), contents.size());
        let symbols = [(&start, 0, size), (&stop, size, 0)];
        let symbols = symbols.map(|(name, at, size)| ImageSymbol { name: name.clone(), at, size }).to_vec();
        streamed.push(StreamedImage { symbols, contents });
        places.push(ImagePlace::Between { start, stop });
    }
    let (host_triple, generation) = (context.host_triple.to_owned(), payload.generation);
    let images = images(payload, context, places, facts)?;
    Ok((Plan { host_triple, generation, images, relocatable: false }, streamed))
}

/// The images of `payload` with the symbols that `plan` refers to.
fn streamed_apart(plan: &Plan, payload: &Payload) -> Vec<StreamedImage> {
    let places: Vec<&ImagePlace> = match &plan.images {
        Images::OpenMp(images) => images.iter().map(|image| &image.place).collect(),
        Images::Cuda(place) | Images::Hip(place) => vec![place],
        Images::Sycl(_) | Images::SyclBinary(..) => Vec::new(),
    };
    let with_symbols = |(place, image): (&ImagePlace, &payload::PayloadImage)| {
        let ImagePlace::Between { start, stop } = place else { return None };
        let symbol = |name: &str, at, size| ImageSymbol { name: name.to_owned(), at, size };
        let (from, to) = (image.image.start, image.image.end);
        let symbols = vec![symbol(start, from, to - from), symbol(stop, to, 0)];
        Some(StreamedImage { symbols, contents: image.contents.clone() })
    };
    places.into_iter().zip(&payload.images).filter_map(with_symbols).collect()
}

/// The bytes of each image of `payload`; of SYCL's, also what their plan says of them.
fn contents(payload: &Payload, context: &RegisterContext<'_>, sycl: &mut Vec<SyclFacts>) -> Result<Vec<Rope>> {
    if payload.kind != OffloadKind::Sycl {
        return Ok(payload.images.iter().map(|image| image.contents.clone()).collect());
    }
    if context.sycl > sycl::Registration::Llvm22 {
        return Ok(vec![payload::sycl::binary(&files(payload).collect::<Vec<_>>())?]);
    }
    let mut contents = Vec::new();
    for file in files(payload) {
        contents.append(&mut sycl_images(file, sycl)?);
    }
    Ok(contents)
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
        _ => bail!("{} takes one file", payload.kind.name()),
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
fn sycl_images(file: &Path, facts: &mut Vec<SyclFacts>) -> Result<Vec<Rope>> {
    let bytes = Bytes::of(file)?;
    let mut sources = Vec::new();
    if bytes.as_slice().is_empty() {
        // Of a dry run: as LLVM has it, one image without contents stands for all, with one kernel without a name.
        facts.push(SyclFacts { image_kind: ImageKind::None, triple: String::new(), symbols: vec![String::new()] });
        sources.push(Rope::default());
    }
    for image in offload_binary::read_all(bytes.as_slice()).with_context(|| format!("the linked image `{}`", file.display()))? {
        facts.push(SyclFacts {
            image_kind: image.image_kind,
            triple: image.triple().into_owned(),
            symbols: sycl::kernels(&image),
        });
        let mut contents = Rope::default();
        payload::sycl::push_image(&mut contents, file, image);
        sources.push(contents);
    }
    Ok(sources)
}

/// The name of the symbol of an image.
fn symbol(kind: OffloadKind, tag: u64, index: usize) -> String {
    let prefix = match kind {
        OffloadKind::OpenMp => ".omp_offloading.device_image",
        OffloadKind::Cuda => ".cuda.fatbin_image",
        OffloadKind::Hip => ".hip.fatbin_image",
        OffloadKind::Sycl => ".sycl_offloading.data",
    };
    format!("{prefix}.{tag:016x}.{index}")
}

/// A number that makes the symbols of this registration's images differ from those of other registrations of one link.
fn tag(kind: OffloadKind, generation: Generation) -> Xxh3 {
    let mut hash = Xxh3::new();
    hash.update(&[kind as u8, generation as u8]);
    hash
}

/// The same for a relocatable output, which is linked with others: a hash of the images and the output's name, so that the same
/// link gives the same bytes. Other outputs need no image to be read.
pub(super) fn tag_of_contents(payload: &Payload, context: &RegisterContext<'_>) -> Result<u64> {
    let mut hash = Hash(tag(payload.kind, payload.generation));
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
