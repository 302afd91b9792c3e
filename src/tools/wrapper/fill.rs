//! Writes a registration module: LLVM's output for the plan, with large images copied into their
//! positions.

use std::io::{Seek, Write};

use anyhow::{Context, Result, bail};

use super::Emit;
use super::text::{self, TextPiece};
use crate::formats::bitstream::StreamPiece;
use crate::formats::bitstream::images::insert;
use crate::formats::deferred_section::{Wanted, make_room};
use crate::io::outputs::Output;
use crate::io::rope::Rope;
use crate::llvm::protocol::Form;
use crate::llvm::{Llvm, Purpose};
use crate::model::ObjectFormat;
use crate::registration::{self, ImagePlace, Images, LATER, Plan};

/// Writes `plan`, whose images are `contents`, to `out`.
pub(super) fn write(
    llvm: &Llvm<'_>,
    plan: &Plan,
    emit: Emit,
    contents: &[Rope],
    out: &mut Output,
) -> Result<()> {
    let late = places(plan).any(|place| matches!(place, ImagePlace::Later { .. }));
    let form = match emit {
        Emit::Bitcode => Form::Bitcode,
        Emit::Text => Form::Text,
        Emit::Assembly => Form::Assembly,
        Emit::Object => Form::Object,
    };
    let step = format!("registration code for {}", plan.images.kind().name());
    let inputs = vec![format!("{} images", contents.len())];
    let made = llvm.make(form, plan, &Purpose { step, inputs })?;
    if !late {
        return Ok(out.write_all(&made)?);
    }
    match emit {
        Emit::Bitcode => bitcode(&made, contents, out),
        Emit::Text => pieces(text::module(&made, contents)?, contents, out),
        Emit::Assembly => pieces(text::assembly(&made, contents)?, contents, out),
        Emit::Object => object(plan, made, contents, out),
    }
}

fn places(plan: &Plan) -> Box<dyn Iterator<Item = &ImagePlace> + '_> {
    match &plan.images {
        Images::OpenMp(images) => Box::new(images.iter().map(|image| &image.place)),
        Images::Sycl(images) => Box::new(images.iter().map(|image| &image.place)),
        Images::Cuda(place) | Images::Hip(place) | Images::SyclBinary(place, _) => {
            Box::new(std::iter::once(place))
        }
    }
}

fn bitcode(module: &[u8], contents: &[Rope], out: &mut Output) -> Result<()> {
    let sizes: Vec<u64> = contents.iter().map(Rope::size).collect();
    for piece in insert(module, &sizes).context("cannot put the images into the bitcode")? {
        match piece {
            StreamPiece::Bytes(bytes) => out.write_all(&bytes)?,
            StreamPiece::Hole { index, .. } => contents
                .get(index)
                .context("an image that does not exist")?
                .copy_to(out)?,
        }
    }
    Ok(())
}

fn pieces(pieces: Vec<TextPiece>, contents: &[Rope], out: &mut Output) -> Result<()> {
    for piece in pieces {
        match piece {
            TextPiece::Text(text) => out.write_all(text.as_bytes())?,
            TextPiece::Image(index, encode) => {
                let mut encoded = Vec::new();
                contents
                    .get(index)
                    .context("an image that does not exist")?
                    .for_each_chunk(|chunk| {
                        encoded.clear();
                        encode(chunk, &mut encoded);
                        out.write_all(&encoded)
                    })?;
            }
        }
    }
    Ok(())
}

fn object(plan: &Plan, object: Vec<u8>, contents: &[Rope], out: &mut Output) -> Result<()> {
    let coff = ObjectFormat::of(&plan.host_triple) == ObjectFormat::Coff;
    let section = registration::deferred_section(plan, coff);
    let wanted = Wanted {
        name: section.name,
        prefix: LATER,
        listed: section.listed,
    };
    let room = make_room(object, wanted).context("cannot put the images into the object")?;
    let ends = room.variables.iter().skip(1).copied().chain([room.size]);
    let rows: Vec<_> = room.variables.iter().zip(ends).zip(contents).collect();
    let fits = rows.iter().all(|((start, end), content)| {
        start
            .checked_add(content.size())
            .is_some_and(|own| own <= *end)
    });
    if !fits || room.variables.len() != contents.len() {
        // On 32-bit hosts, LLVM truncates the sizes of such images without an error.
        bail!(
            "objects of this host cannot hold {} bytes of images",
            contents.iter().map(Rope::size).sum::<u64>()
        );
    }
    out.write_all(&room.object)?;
    for ((start, _), content) in rows {
        out.pad_to(room.at + start)?;
        content.copy_to(out)?;
    }
    out.pad_to(room.at + room.size)?;
    Ok(out.rewind()?)
}
