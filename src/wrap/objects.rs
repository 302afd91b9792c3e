//! The stage that makes host objects: payloads become plans, plans become objects in the temp folder. Small images sit in the
//! module; large ones never pass through LLVM but are streamed into an object of their own (decision 9).

use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use xxhash_rust::xxh3::Xxh3;

use super::image_object::{self, StreamedImage};
use super::{ImagePlace, Plan, PlannedImage};
use crate::bundle::{Payload, PayloadImage};
use crate::llvm;
use crate::session::Session;

/// Images of one registration up to this many bytes in all sit in the module.
const INLINE_LIMIT: u64 = 1 << 20;

/// What the stage is told about the link.
pub struct WrapContext<'a> {
    /// The host's triple.
    pub host_triple: &'a str,
    /// The output as the user named it.
    pub output: &'a Path,
    /// `-r`.
    pub relocatable: bool,
    /// `--print-wrapped-module`.
    pub print: bool,
    /// `--save-temps`: the module is kept as bitcode, too.
    pub keep_bitcode: bool,
}

/// The objects to add to the host link, in order.
pub fn make(payloads: &[Payload], context: &WrapContext<'_>, session: &Session) -> Result<Vec<PathBuf>> {
    let mut objects = Vec::new();
    for payload in payloads {
        session.signals.check()?;
        objects.append(&mut host_objects(payload, context, session)?);
    }
    Ok(objects)
}

fn host_objects(payload: &Payload, context: &WrapContext<'_>, session: &Session) -> Result<Vec<PathBuf>> {
    let base = context.output.file_name().unwrap_or(context.output.as_os_str()).to_string_lossy().into_owned();
    let stem = format!("{base}.{}.image", payload.kind.name());
    let total: u64 = payload.images.iter().map(|image| image.total_size).sum();
    let inline = total <= INLINE_LIMIT;
    let tag = if inline { 0 } else { tag(payload, context.output)? };
    let mut planned = Vec::new();
    for (index, image) in payload.images.iter().enumerate() {
        let place = if inline { ImagePlace::Inline(read_whole(image)?) } else { external(image, tag, index) };
        let start = image.head.len() as u64;
        planned.push(PlannedImage { place, start, end: start + image.body_size, offload_arch: None });
    }
    let plan = Plan {
        host_triple: context.host_triple.to_owned(),
        generation: payload.generation,
        images: planned,
        relocatable: context.relocatable,
    };
    if context.print {
        session.shell.line(llvm::print_module(&plan)?.trim_end());
    }
    if context.keep_bitcode {
        write(&session.scratch.path(&format!("{stem}.wrapper"), "bc")?, &llvm::compile_bitcode(&plan)?)?;
    }
    let wrapper = session.scratch.path(&format!("{stem}.wrapper"), "o")?;
    write(&wrapper, &llvm::compile(&plan)?)?;
    let mut objects = vec![wrapper];
    if !inline {
        objects.push(stream_images(payload, &plan, &stem, session)?);
    }
    Ok(objects)
}

fn stream_images(payload: &Payload, plan: &Plan, stem: &str, session: &Session) -> Result<PathBuf> {
    let path = session.scratch.path(stem, "o")?;
    let mut out = File::create(&path).with_context(|| format!("cannot write `{}`", path.display()))?;
    let images: Vec<StreamedImage> =
        payload.images.iter().zip(&plan.images).filter_map(|(image, planned)| streamed(image, planned)).collect();
    image_object::write(&mut out, &plan.host_triple, plan.relocatable, &images)
        .with_context(|| format!("cannot write `{}`", path.display()))?;
    for image in &payload.images {
        session.scratch.discard(&image.body);
    }
    Ok(path)
}

fn streamed(image: &PayloadImage, planned: &PlannedImage) -> Option<StreamedImage> {
    let ImagePlace::External { symbol, .. } = &planned.place else { return None };
    Some(StreamedImage {
        symbol: symbol.clone(),
        head: image.head.clone(),
        body: image.body.clone(),
        body_size: image.body_size,
        total_size: image.total_size,
    })
}

fn external(image: &PayloadImage, tag: u64, index: usize) -> ImagePlace {
    ImagePlace::External { symbol: format!(".omp_offloading.device_image.{tag:016x}.{index}"), size: image.total_size }
}

fn read_whole(image: &PayloadImage) -> Result<Vec<u8>> {
    let mut bytes = image.head.clone();
    let mut file = File::open(&image.body).with_context(|| format!("cannot read the linked image `{}`", image.body.display()))?;
    file.read_to_end(&mut bytes).with_context(|| format!("cannot read the linked image `{}`", image.body.display()))?;
    bytes.resize(usize::try_from(image.total_size)?, 0);
    Ok(bytes)
}

/// Tells the hidden symbols of one link's images from those of any other that ends up in the same program (`-r`): a hash of the
/// images and the name of the output, so the same link gives the same bytes.
fn tag(payload: &Payload, output: &Path) -> Result<u64> {
    let mut hash = Xxh3::new();
    hash.update(output.as_os_str().as_encoded_bytes());
    let mut buffer = vec![0; 1 << 20];
    for image in &payload.images {
        hash.update(&image.head);
        let mut file =
            File::open(&image.body).with_context(|| format!("cannot read the linked image `{}`", image.body.display()))?;
        loop {
            match file.read(&mut buffer).with_context(|| format!("cannot read the linked image `{}`", image.body.display()))? {
                0 => break,
                count => hash.update(&buffer[..count]),
            }
        }
    }
    Ok(hash.digest())
}

fn write(path: &Path, bytes: &[u8]) -> Result<()> {
    std::fs::write(path, bytes).with_context(|| format!("cannot write `{}`", path.display()))
}
