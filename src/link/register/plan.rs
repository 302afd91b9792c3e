//! Converts payloads to plans. A plan usually contains only the names of its images' symbols. So it
//! is known before the images are linked, and is the same for every program with the same number of
//! images of a kind. If the user is shown the module, or the output is linked again, small images
//! are part of the plan, as with LLVM's tools.

use std::path::Path;

use anyhow::{Context, Result, bail};
use xxhash_rust::xxh3::Xxh3;

use super::{RegisterContext, image_files};
use crate::link::payload::{self, Group, Payload};
use offld_system::io::bytes::Bytes;
use offld_system::io::rope::Rope;
use offload_files::image_object::{ImageSymbol, StreamedImage};
use offload_formats::model::{Generation, ImageKind, OffloadKind};
use offload_formats::offload_binary;
use offload_formats::registration::fatbin::{self, ModuleCalls};
use offload_formats::registration::{
    ImagePlace, Images, Modules, Plan, PlannedImage, SyclImage, openmp, sycl,
};

/// Total size in bytes up to which the images of one registration are part of a module that
/// contains images.
const INLINE_LIMIT: u64 = 1 << 20;

/// Returns the plan for the images of `group` before they are linked; none if it depends on their
/// contents.
pub(super) fn before(group: &Group, context: &RegisterContext<'_>) -> Option<Plan> {
    plan_of_symbols(
        group.kind,
        group.generation,
        &group.modules,
        group.image_count(),
        context,
    )
}

/// Returns the plan for `images` images that consists of their symbols only; none if this
/// registration needs more.
fn plan_of_symbols(
    kind: OffloadKind,
    generation: Generation,
    modules: &Modules,
    images: usize,
    context: &RegisterContext<'_>,
) -> Option<Plan> {
    let settings = context.settings;
    let is_shown = settings.run.print_wrapped_module
        || settings.run.save_temps
        || settings.host.relocatable
        || settings.run.dry_run;
    // No tool of LLVM registers modules, so there is no other form to show.
    let in_files = settings.external_images.is_some();
    let is_separate = (!is_shown || !modules.is_empty() || in_files) && kind != OffloadKind::Sycl;
    let tag = tag(kind, generation).digest();
    let place = |index: usize| {
        if in_files {
            let table = format!(".offld_images.{tag:016x}");
            return ImagePlace::Files { table };
        }
        let start = symbol(kind, tag, index);
        ImagePlace::Between {
            stop: format!("{start}.end"),
            start,
        }
    };
    let images = match kind {
        OffloadKind::Cuda => Images::Cuda(place(0)),
        OffloadKind::Hip => Images::Hip(place(0)),
        _ => {
            let image = |index| PlannedImage {
                place: place(index),
                parts: Vec::new(),
                offload_arch: None,
            };
            Images::OpenMp((0..images).map(image).collect())
        }
    };
    let host_triple = context.host_triple.to_owned();
    is_separate.then_some(Plan {
        host_triple,
        generation,
        images,
        relocatable: false,
        protection: context.protection,
        modules: modules.clone(),
    })
}

/// Returns the plan for `payload`, and the images that the plan refers to and does not contain.
pub(super) fn of(
    payload: &Payload,
    context: &RegisterContext<'_>,
) -> Result<(Plan, Vec<StreamedImage>)> {
    if payload.kind != OffloadKind::OpenMp
        && payload.kind != OffloadKind::Sycl
        && payload.images.len() != 1
        && context.settings.external_images.is_none()
    {
        bail!(
            "{} registration takes one file with the code for all devices, not {}",
            payload.kind.name(),
            payload.images.len()
        );
    }
    if let Some(plan) = plan_of_symbols(
        payload.kind,
        payload.generation,
        &payload.modules,
        payload.images.len(),
        context,
    ) {
        let images = streamed_images(&plan, payload);
        return Ok((plan, images));
    }
    let mut sycl = Vec::new();
    let contents = contents(payload, context, &mut sycl)?;
    if context.late {
        let tag = tag(payload.kind, payload.generation).digest();
        return sycl_plan_of_symbols(payload, context, contents, sycl, tag);
    }
    let inline = contents.iter().map(Rope::size).sum::<u64>() <= INLINE_LIMIT;
    let tag = if inline {
        0
    } else {
        tag_of_contents(payload, context)?
    };
    let (mut places, mut streamed) = (Vec::new(), Vec::new());
    for (index, contents) in contents.into_iter().enumerate() {
        if inline {
            places.push(ImagePlace::Inline(
                contents.read().context("cannot read a linked image")?,
            ));
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
        relocatable: context.settings.host.relocatable,
        protection: context.protection,
        modules: Modules::default(),
    };
    Ok((plan, streamed))
}

/// Returns the plan for SYCL images with only their symbols and kernels, and those images.
fn sycl_plan_of_symbols(
    payload: &Payload,
    context: &RegisterContext<'_>,
    contents: Vec<Rope>,
    facts: Vec<SyclFacts>,
    tag: u64,
) -> Result<(Plan, Vec<StreamedImage>)> {
    let (mut places, mut streamed) = (Vec::new(), Vec::new());
    for (index, contents) in contents.into_iter().enumerate() {
        let start = symbol(payload.kind, tag, index);
        let (stop, size) = (format!("{start}.end"), contents.size());
        let symbols = [(&start, 0, size), (&stop, size, 0)];
        let symbols = symbols
            .map(|(name, at, size)| ImageSymbol {
                name: name.clone(),
                at,
                size,
            })
            .to_vec();
        streamed.push(StreamedImage { symbols, contents });
        places.push(ImagePlace::Between { start, stop });
    }
    let (host_triple, generation) = (context.host_triple.to_owned(), payload.generation);
    let images = images(payload, context, places, facts)?;
    Ok((
        Plan {
            host_triple,
            generation,
            images,
            relocatable: false,
            protection: context.protection,
            modules: Modules::default(),
        },
        streamed,
    ))
}

/// Returns the images of `payload` with the symbols that `plan` refers to.
fn streamed_images(plan: &Plan, payload: &Payload) -> Vec<StreamedImage> {
    let places: Vec<&ImagePlace> = match &plan.images {
        Images::OpenMp(images) => images.iter().map(|image| &image.place).collect(),
        Images::Cuda(place) | Images::Hip(place) => vec![place],
        Images::Sycl(_) | Images::SyclBinary(..) => Vec::new(),
    };
    let names = names_of_modules(plan);
    let with_symbols = |(place, image): (&ImagePlace, &payload::PayloadImage)| {
        let ImagePlace::Between { start, stop } = place else {
            return None;
        };
        let symbol = |name: &str, at, size| ImageSymbol {
            name: name.to_owned(),
            at,
            size,
        };
        let (from, to) = (image.image.start, image.image.end);
        let mut symbols = vec![symbol(start, from, to - from), symbol(stop, to, 0)];
        symbols.extend(names.iter().map(|name| symbol(name, from, to - from)));
        Some(StreamedImage {
            symbols,
            contents: image.contents.clone(),
        })
    };
    places
        .into_iter()
        .zip(&payload.images)
        .filter_map(with_symbols)
        .collect()
}

/// Returns the names that modules of HIP's old driver have for the image of `plan`.
fn names_of_modules(plan: &Plan) -> Vec<String> {
    match plan.images {
        Images::Hip(_) => {
            let ids = plan.modules.ids.iter();
            ids.map(|id| ModuleCalls::symbol(fatbin::HIP_IMAGE, id))
                .collect()
        }
        _ => Vec::new(),
    }
}

/// Returns the bytes of each image of `payload`. For SYCL, also collects the facts that the plan
/// contains.
fn contents(
    payload: &Payload,
    context: &RegisterContext<'_>,
    sycl: &mut Vec<SyclFacts>,
) -> Result<Vec<Rope>> {
    if payload.kind != OffloadKind::Sycl {
        return Ok(payload
            .images
            .iter()
            .map(|image| image.contents.clone())
            .collect());
    }
    if context.sycl > sycl::Registration::Llvm22 {
        return Ok(vec![payload::sycl_binary(
            &image_files(payload).collect::<Vec<_>>(),
        )?]);
    }
    let mut contents = Vec::new();
    for file in image_files(payload) {
        contents.append(&mut sycl_images(file, sycl)?);
    }
    Ok(contents)
}

/// Returns the part of a plan that describes the images of each kind.
fn images(
    payload: &Payload,
    context: &RegisterContext<'_>,
    places: Vec<ImagePlace>,
    sycl_facts: Vec<SyclFacts>,
) -> Result<Images> {
    let one = |mut places: Vec<ImagePlace>| match (places.pop(), places.pop()) {
        (Some(place), None) => Ok(place),
        _ => bail!("{} registration takes one file", payload.kind.name()),
    };
    Ok(match payload.kind {
        OffloadKind::OpenMp => {
            let planned = payload
                .images
                .iter()
                .zip(places)
                .map(|(image, place)| PlannedImage {
                    place,
                    parts: openmp::whole(image.image.start, image.image.end),
                    offload_arch: None,
                });
            Images::OpenMp(planned.collect())
        }
        OffloadKind::Cuda => Images::Cuda(one(places)?),
        OffloadKind::Hip => Images::Hip(one(places)?),
        OffloadKind::Sycl if context.sycl > sycl::Registration::Llvm22 => {
            Images::SyclBinary(one(places)?, context.sycl)
        }
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

/// Returns the images in a file of OffloadBinaries, which SYCL's device linker writes. The runtime
/// gets the images without that container.
fn sycl_images(file: &Path, facts: &mut Vec<SyclFacts>) -> Result<Vec<Rope>> {
    let bytes = Bytes::of(file)?;
    let mut sources = Vec::new();
    if bytes.as_slice().is_empty() {
        // In a dry run, one empty image with one unnamed kernel stands for all images, as with
        // LLVM.
        facts.push(SyclFacts {
            image_kind: ImageKind::None,
            triple: String::new(),
            symbols: vec![String::new()],
        });
        sources.push(Rope::default());
    }
    for image in offload_binary::read_all(bytes.as_slice())
        .with_context(|| format!("cannot read the linked image `{}`", file.display()))?
    {
        facts.push(SyclFacts {
            image_kind: image.image_kind,
            triple: image.triple().into_owned(),
            symbols: sycl::kernels(&image),
        });
        let mut contents = Rope::default();
        payload::push_image(&mut contents, file, image);
        sources.push(contents);
    }
    Ok(sources)
}

/// Returns the name of an image's symbol.
fn symbol(kind: OffloadKind, tag: u64, index: usize) -> String {
    let prefix = match kind {
        OffloadKind::OpenMp => openmp::IMAGE,
        OffloadKind::Cuda => ".cuda.fatbin_image",
        OffloadKind::Hip => ".hip.fatbin_image",
        OffloadKind::Sycl => ".sycl_offloading.data",
    };
    format!("{prefix}.{tag:016x}.{index}")
}

/// Returns a hash that distinguishes the symbols of this registration's images from those of other
/// registrations in one link.
fn tag(kind: OffloadKind, generation: Generation) -> Xxh3 {
    let mut hash = Xxh3::new();
    hash.update(&[kind as u8, generation as u8]);
    hash
}

/// Like [`tag`], for a registration that contains images. A relocatable output is linked with
/// others, so the hash includes the images and the output's name; the same link gives the same
/// bytes. For other outputs, no image is read.
pub(super) fn tag_of_contents(payload: &Payload, context: &RegisterContext<'_>) -> Result<u64> {
    let mut hash = tag(payload.kind, payload.generation);
    if context.settings.host.relocatable {
        hash.update(context.output.as_os_str().as_encoded_bytes());
        for image in &payload.images {
            image
                .contents
                .for_each_chunk(|chunk| {
                    hash.update(chunk);
                    Ok(())
                })
                .context("cannot read a linked image")?;
        }
    }
    Ok(hash.digest())
}
