//! Inspection of bitcode files: host modules with embedded device images, and device modules.

use anyhow::{Context, Result};

use super::image::{self, ImageMetadata};
use super::layout::Part;
use super::objects;
use super::report::Step;
use super::walk::{Cursor, Walk};
use crate::formats::bitcode;
use crate::formats::gpu::AmdArch;
use crate::io::file_slice::FileSlice;

/// Inspects the images that the module at `cursor` embeds. A module without any is added as an
/// image if it is for a device.
pub(super) fn host(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    walk.bytes(cursor, Part::Bitcode);
    let embedded =
        bitcode::embedded_images(cursor.piece.bytes()).with_context(|| cursor.place.to_string())?;
    if embedded.is_empty() {
        return device(walk, cursor);
    }
    for image in embedded {
        let size = image.bytes.len() as u64;
        let piece = FileSlice::made(|out| Ok(out.write_all(&image.bytes)?))?;
        let place = cursor.place.then(Step::Section {
            name: image.section.to_string(),
            offset: None,
            size,
        });
        let facts = objects::of_named_section(&image.section, &cursor.facts);
        walk.enter(&cursor.deeper(piece, place, facts).inside());
    }
    Ok(())
}

fn device(walk: &mut Walk<'_>, cursor: &Cursor) -> Result<()> {
    let triple = bitcode::symbols(cursor.piece.bytes())
        .with_context(|| cursor.place.to_string())?
        .triple;
    let arch = triple.split('-').next().unwrap_or_default();
    if AmdArch::parse(arch).is_some()
        || ["r600", "nvptx", "nvptx64", "spir", "spir64"].contains(&arch)
        || arch.starts_with("spirv")
    {
        let facts = ImageMetadata {
            triple,
            ..cursor.facts.clone()
        };
        image::add(
            walk,
            &Cursor {
                facts,
                ..cursor.clone()
            },
        )?;
    }
    Ok(())
}
