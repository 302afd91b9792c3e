//! HIP's payload: one offload bundle of all images, made in process as clang-offload-bundler makes it (docs/spec/link-driver.md
//! 7), compressed when asked.

use std::fs::File;
use std::io::{BufWriter, Write};
use std::path::Path;

use anyhow::{Context, Result, anyhow};

use super::{BundleContext, Payload, PayloadImage};
use crate::formats::bundle::{self, Id};
use crate::formats::compressed::Compressor;
use crate::io::rope::Rope;
use crate::link::device::Linked;
use crate::model::{Generation, OffloadKind};
use crate::sys::session::Session;

/// What the runtime maps code objects at.
const ALIGN: u64 = 4096;

/// The bundle of the images of one generation. It becomes a file only when it is compressed, or when files are to be left.
pub(super) fn payload(
    images: &[&Linked],
    generation: Generation,
    context: &BundleContext<'_>,
    session: &Session,
) -> Result<Payload> {
    let mut bundle = composed(images)?;
    if context.compress || session.scratch.keeps() {
        let output = session.scratch.path(&context.out_base, "hipfb")?;
        write(&bundle, &output, context).with_context(|| format!("cannot write the HIP bundle `{}`", output.display()))?;
        bundle = Rope::of_file(output)?;
    }
    Ok(Payload { kind: OffloadKind::Hip, generation, images: vec![PayloadImage::whole(bundle)] })
}

fn composed(images: &[&Linked]) -> Result<Rope> {
    let ids: Vec<Id> = images.iter().map(|image| id(image)).collect();
    bundle::check(&ids).map_err(|fault| anyhow!("{fault}"))?;
    let files = images.iter().map(|image| Rope::of_file(image.path.clone())).collect::<Result<Vec<_>>>()?;
    // The host has an entry without bytes, under this name on every host.
    let mut names = vec!["host-x86_64-unknown-linux-gnu-".to_owned()];
    names.extend(ids.iter().map(Id::to_string));
    let sizes = std::iter::once(0).chain(files.iter().map(Rope::size));
    let objects: Vec<(&str, u64)> = names.iter().map(String::as_str).zip(sizes).collect();
    let frame = bundle::frame(&objects, ALIGN)?;
    let mut all = Rope::default();
    all.push_bytes(frame.head);
    // Also before an empty object.
    for (offset, file) in frame.offsets.into_iter().zip(std::iter::once(Rope::default()).chain(files)) {
        all.pad_to(offset);
        all.append(file);
    }
    Ok(all)
}

fn write(bundle: &Rope, output: &Path, context: &BundleContext<'_>) -> Result<()> {
    let mut out = File::create(output)?;
    if context.compress {
        let mut packed = Compressor::new(BufWriter::new(out), bundle.size(), context.compression()?)?;
        bundle.write_to(&mut packed)?;
        packed.finish()?.flush()?;
    } else {
        bundle.write_at(&mut out, 0)?;
        out.set_len(bundle.size())?;
    }
    Ok(())
}

/// The id of an image: AMD's SPIR-V has a triple of its own, everything else is amdgcn whatever its triple says.
fn id(image: &Linked) -> Id {
    let triple = if image.target.arch == "amdgcnspirv" { "spirv64-amd-amdhsa" } else { "amdgcn-amd-amdhsa" };
    Id::new("hip", triple, &image.target.arch)
}
