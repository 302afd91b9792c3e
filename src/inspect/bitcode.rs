//! Bitcode by itself: a host module with device images in it, or device code.

use anyhow::{Context, Result};

use super::leaf::{self, Facts};
use super::objects;
use super::report::Step;
use super::walk::{Spot, Walk};
use crate::llvm;
use crate::piece::Piece;

/// Goes into the images of the module at `spot`, or adds it as one.
pub(super) fn host(walk: &mut Walk<'_>, spot: &Spot) -> Result<()> {
    let embedded = llvm::embedded_images(spot.piece.bytes()).with_context(|| spot.place.to_string())?;
    if embedded.is_empty() {
        return device(walk, spot);
    }
    for image in embedded {
        let size = image.bytes.len() as u64;
        let piece = Piece::made(|out| Ok(out.write_all(&image.bytes)?))?;
        let place = spot.place.then(Step::Section { name: image.section.clone(), offset: None, size });
        let facts = objects::of_named_section(&image.section, &spot.facts);
        walk.enter(&spot.deeper(piece, place, facts).inside());
    }
    Ok(())
}

fn device(walk: &mut Walk<'_>, spot: &Spot) -> Result<()> {
    let triple = llvm::symbols(spot.piece.bytes()).with_context(|| spot.place.to_string())?.triple;
    let arch = triple.split('-').next().unwrap_or_default();
    if ["amdgcn", "r600", "nvptx", "nvptx64", "spir", "spir64"].contains(&arch) || arch.starts_with("spirv") {
        let facts = Facts { triple, ..spot.facts.clone() };
        leaf::add(walk, &Spot { facts, ..spot.clone() })?;
    }
    Ok(())
}
