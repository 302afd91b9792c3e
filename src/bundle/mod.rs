//! Packs linked images the way their runtime wants them. OpenMP: an OffloadBinary for each image, of which only the head is
//! made here; the image stays in its file. CUDA, HIP and SYCL payloads are not made yet, and a link that needs one says so.

mod openmp;

use std::path::PathBuf;

use anyhow::{Result, bail};

use crate::device::{Linked, of_kind};
use crate::model::{Generation, OffloadKind};
use crate::session::Session;

/// Everything one registration hands to its runtime.
#[derive(Debug)]
pub struct Payload {
    /// The runtime.
    pub kind: OffloadKind,
    /// The entry table.
    pub generation: Generation,
    /// The images, in order.
    pub images: Vec<PayloadImage>,
}

/// One image: `head`, then the file's bytes, then zeros up to `total_size`.
#[derive(Debug)]
pub struct PayloadImage {
    /// What precedes the image (an OffloadBinary's header, strings and padding).
    pub head: Vec<u8>,
    /// The image.
    pub body: PathBuf,
    /// Its size in bytes.
    pub body_size: u64,
    /// Size of head, image and padding.
    pub total_size: u64,
}

/// The payloads of a link: kinds in registration order, generations in order within a kind (decision 2).
pub fn bundle(linked: &[Linked], session: &Session) -> Result<Vec<Payload>> {
    let mut payloads = Vec::new();
    for kind in OffloadKind::ALL {
        let images = of_kind(linked, kind);
        let mut generations: Vec<Generation> = images.iter().map(|image| image.generation).collect();
        generations.sort();
        generations.dedup();
        for generation in generations {
            let images: Vec<&Linked> = images.iter().copied().filter(|image| image.generation == generation).collect();
            match kind {
                OffloadKind::OpenMp => payloads.push(openmp::payload(&images, generation, session)?),
                other => bail!(
                    "{} registration is not part of this version of offld: only OpenMP images can be registered",
                    other.name()
                ),
            }
        }
    }
    Ok(payloads)
}
