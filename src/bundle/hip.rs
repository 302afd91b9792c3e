//! HIP's payload: one offload bundle of all images, made in process as clang-offload-bundler makes it (link-driver.md 7), compressed
//! when asked.

use std::fs::File;
use std::io::{BufWriter, Read, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use super::{BundleContext, Payload, PayloadImage};
use crate::device::Linked;
use crate::formats::bundle::{self, Id, Source};
use crate::formats::compressed::Compressor;
use crate::model::{Generation, OffloadKind};
use crate::session::Session;

/// What the runtime maps code objects at.
const ALIGN: u64 = 4096;

/// The bundle of the images of one generation.
pub(super) fn payload(
    images: &[&Linked],
    generation: Generation,
    context: &BundleContext<'_>,
    session: &Session,
) -> Result<Payload> {
    let output = session.scratch.path(&context.out_base, "hipfb")?;
    write(images, &output, context).with_context(|| format!("cannot write the HIP bundle `{}`", output.display()))?;
    Ok(Payload { kind: OffloadKind::Hip, generation, images: vec![PayloadImage::whole(output)?] })
}

fn write(images: &[&Linked], output: &Path, context: &BundleContext<'_>) -> Result<()> {
    let ids: Vec<Id> = images.iter().map(|image| id(image)).collect();
    bundle::check(&ids).map_err(|fault| anyhow!("{fault}"))?;
    // The host has an entry without bytes, under this name on every host.
    let mut names = vec!["host-x86_64-unknown-linux-gnu-".to_owned()];
    names.extend(ids.iter().map(Id::to_string));
    let mut sources: Vec<Source<'_, Box<dyn Read>>> = vec![Source { id: &names[0], size: 0, bytes: Box::new(std::io::empty()) }];
    for (image, name) in images.iter().zip(&names[1..]) {
        let file = File::open(&image.path).with_context(|| format!("cannot read the linked image `{}`", image.path.display()))?;
        sources.push(Source { id: name, size: file.metadata()?.len(), bytes: Box::new(file) });
    }
    let mut out = BufWriter::new(File::create(output)?);
    if context.compress {
        let sizes: Vec<(&str, u64)> = sources.iter().map(|source| (source.id, source.size)).collect();
        let plain_size = bundle::frame(&sizes, ALIGN)?.total_size;
        let mut packed = Compressor::new(out, plain_size, context.compression()?)?;
        bundle::write(sources, ALIGN, &mut packed)?;
        out = packed.finish()?;
    } else {
        bundle::write(sources, ALIGN, &mut out)?;
    }
    out.flush()?;
    Ok(())
}

/// The id of an image: AMD's SPIR-V has a triple of its own, everything else is amdgcn whatever its triple says.
fn id(image: &Linked) -> Id {
    let triple = if image.target.arch == "amdgcnspirv" { "spirv64-amd-amdhsa" } else { "amdgcn-amd-amdhsa" };
    Id::new("hip", triple, &image.target.arch)
}
