//! Writes a registration module: LLVM's output for the plan, with large images copied into their
//! positions.

use std::io::{Seek, Write};

use anyhow::{Context, Result, bail};

use super::Emit;
use crate::llvm::{Llvm, Purpose};
use offld_system::io::outputs::Output;
use offld_system::io::rope::Rope;
use offload_formats::bitstream::StreamPiece;
use offload_formats::bitstream::images::{FIRST_MARK, insert};
use offload_formats::deferred_section::{Wanted, make_room};
use offload_formats::model::ObjectFormat;
use offload_formats::registration::protocol::Form;
use offload_formats::registration::{self, ImagePlace, Images, LATER, Plan};

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
        Emit::Text => pieces(pieces_of_module(&made, contents)?, contents, out),
        Emit::Assembly => pieces(pieces_of_assembly(&made, contents)?, contents, out),
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

// Inserts images into a module's text or assembly. LLVM has printed zeros in their place, with a
// length that occurs nowhere else in the module (`FIRST_MARK` and the numbers after it). A string
// replaces the zeros.

/// A function that encodes an image's bytes.
type Encode = fn(&[u8], &mut Vec<u8>);

/// A part of a text with images.
pub(super) enum TextPiece {
    Text(String),
    /// The image with this index.
    Image(usize, Encode),
}

/// Directives for zeros in the assembly of different hosts.
const ZEROS: [&str; 3] = ["\t.zero\t", "\t.space\t", "\t.skip\t"];
/// The number of bytes per line of assembly.
const BYTES_PER_LINE: usize = 64;

/// Inserts images into the text of a module.
pub(super) fn pieces_of_module(text: &[u8], contents: &[Rope]) -> Result<Vec<TextPiece>> {
    split_at_images(text, contents, |rest, mark, size| {
        let zeros = format!("[{mark} x i8] zeroinitializer");
        let (before, after) = rest.split_once(&zeros)?;
        Some(match size {
            0 => (
                format!("{before}[0 x i8] zeroinitializer"),
                None,
                after.to_owned(),
            ),
            _ => (
                format!("{before}[{size} x i8] c\""),
                Some(module_string as Encode),
                format!("\"{after}"),
            ),
        })
    })
}

/// Inserts images into assembly.
pub(super) fn pieces_of_assembly(text: &[u8], contents: &[Rope]) -> Result<Vec<TextPiece>> {
    split_at_images(text, contents, |rest, mark, size| {
        let (before, after) = ZEROS
            .iter()
            .find_map(|zeros| rest.split_once(&format!("{zeros}{mark}\n")))?;
        Some((
            before.to_owned(),
            (size > 0).then_some(assembly_lines as Encode),
            after.to_owned(),
        ))
    })
}

/// Splits `text` at the positions of images, in their order, and replaces the marks by the images'
/// sizes everywhere else.
fn split_at_images(
    text: &[u8],
    contents: &[Rope],
    cut: impl Fn(&str, u64, u64) -> Option<(String, Option<Encode>, String)>,
) -> Result<Vec<TextPiece>> {
    let mut rest = String::from_utf8_lossy(text).into_owned();
    let mut pieces = Vec::new();
    for (index, content) in contents.iter().enumerate() {
        let Some((before, encode, after)) = cut(&rest, FIRST_MARK + index as u64, content.size())
        else {
            bail!("LLVM's text has no place for an image");
        };
        pieces.push(TextPiece::Text(before));
        pieces.extend(encode.map(|encode| TextPiece::Image(index, encode)));
        rest = after;
    }
    pieces.push(TextPiece::Text(rest));
    for piece in &mut pieces {
        let TextPiece::Text(text) = piece else {
            continue;
        };
        for (index, content) in contents.iter().enumerate() {
            *text = text.replace(
                &(FIRST_MARK + index as u64).to_string(),
                &content.size().to_string(),
            );
        }
    }
    Ok(pieces)
}

/// Encodes bytes as LLVM prints strings: unprintable bytes, quotation marks and backslashes in
/// hexadecimal.
fn module_string(bytes: &[u8], to: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    for byte in bytes {
        match byte {
            b'"' | b'\\' | ..0x20 | 0x7f.. => {
                to.extend([
                    b'\\',
                    DIGITS[usize::from(byte >> 4)],
                    DIGITS[usize::from(byte & 15)],
                ]);
            }
            plain => to.push(*plain),
        }
    }
}

/// Encodes bytes as `.ascii` lines. Unprintable bytes, quotation marks and backslashes become
/// three-digit octal numbers.
fn assembly_lines(bytes: &[u8], to: &mut Vec<u8>) {
    for line in bytes.chunks(BYTES_PER_LINE) {
        to.extend(b"\t.ascii\t\"");
        for byte in line {
            match byte {
                b'"' | b'\\' | ..0x20 | 0x7f.. => to.extend([
                    b'\\',
                    b'0' + (byte >> 6),
                    b'0' + (byte >> 3 & 7),
                    b'0' + (byte & 7),
                ]),
                plain => to.push(*plain),
            }
        }
        to.extend(b"\"\n");
    }
}
