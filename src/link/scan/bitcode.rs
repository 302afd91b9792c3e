//! Host objects that are LLVM bitcode (`-flto`): the images they carry and what they say of themselves, read through `llvm/`.

use std::borrow::Cow;

use anyhow::{Context, Result};

use super::object::llvm14_image;
use super::{Definition, DeviceImage, HostFacts, Need, packaged};
use crate::link::inputs::InputObject;
use crate::llvm;

/// The device images that a module embeds.
pub(super) fn images(index: usize, input_object: &InputObject) -> Result<Vec<DeviceImage<'_>>> {
    let embedded = llvm::embedded_images(input_object.data()).with_context(|| input_object.origin.to_string())?;
    let mut all = Vec::new();
    for image in embedded {
        let origin = input_object.origin.in_section(&image.section);
        let found = match llvm14_image(index, &origin, &image.section, &image.bytes) {
            Some(found) => vec![found],
            None => packaged(index, &origin, &image.bytes)?,
        };
        // The bytes were copied out of the module, so each image keeps its own part of them.
        all.extend(found.into_iter().map(|image| DeviceImage { bytes: Cow::Owned(image.bytes.into_owned()), ..image }));
    }
    Ok(all)
}

/// What a module says of itself.
pub(super) fn facts(data: &[u8]) -> Result<HostFacts<'static>> {
    let module = llvm::symbols(data)?;
    let defined = module.defined.into_iter().map(|symbol| Definition {
        name: Cow::Owned(symbol.name.into_bytes()),
        weak: symbol.weak,
        common: symbol.common,
    });
    let undefined =
        module.undefined.into_iter().map(|symbol| Need { name: Cow::Owned(symbol.name.into_bytes()), weak: symbol.weak });
    Ok(HostFacts {
        defined: defined.collect(),
        undefined: undefined.collect(),
        generation: module.entries,
        refers_to_bounds: module.refers_to_bounds,
        alternate_names: Vec::new(),
        machine: None,
    })
}
