//! Host objects that are LLVM bitcode (`-flto`): their device images, symbols and entry tables,
//! read through `formats::bitcode`.

use std::borrow::Cow;

use anyhow::{Context, Result};

use super::object::llvm14_image;
use super::{Definition, DeviceImage, HostFacts, Need, packaged};
use crate::formats::bitcode;
use crate::link::inputs::InputObject;
use crate::model::Origin;

/// Returns the device images that a module embeds.
pub(super) fn images(index: usize, input_object: &InputObject) -> Result<Vec<DeviceImage<'_>>> {
    let embedded = bitcode::embedded_images(input_object.data())
        .with_context(|| input_object.origin().to_string())?;
    let mut all = Vec::new();
    for image in embedded {
        let origin = input_object.origin().in_section(&image.section);
        match image.bytes {
            Cow::Borrowed(bytes) => all.extend(in_section(index, &origin, &image.section, bytes)?),
            // The module stores these bytes in another encoding, so each image gets its own copy.
            Cow::Owned(bytes) => {
                let found = in_section(index, &origin, &image.section, &bytes)?;
                all.extend(found.into_iter().map(|image| DeviceImage {
                    bytes: Cow::Owned(image.bytes.into_owned()),
                    ..image
                }));
            }
        }
    }
    Ok(all)
}

fn in_section<'a>(
    index: usize,
    origin: &Origin,
    section: &str,
    bytes: &'a [u8],
) -> Result<Vec<DeviceImage<'a>>> {
    match llvm14_image(index, origin, section, bytes) {
        Some(found) => Ok(vec![found]),
        None => packaged(index, origin, bytes),
    }
}

/// Returns the symbols and entry table of a module.
pub(super) fn facts(data: &[u8]) -> Result<HostFacts<'_>> {
    let module = bitcode::symbols(data)?;
    let defined = module.defined.into_iter().map(|symbol| Definition {
        name: symbol.name,
        weak: symbol.weak,
        common: symbol.common,
    });
    let undefined = module.undefined.into_iter().map(|symbol| Need {
        name: symbol.name,
        weak: symbol.weak,
    });
    Ok(HostFacts {
        defined: defined.collect(),
        undefined: undefined.collect(),
        generation: module.entries,
        older_generation: module.older_entries,
        refers_to_bounds: module.refers_to_bounds,
        alternate_names: Vec::new(),
        machine: None,
        protection: None,
    })
}
