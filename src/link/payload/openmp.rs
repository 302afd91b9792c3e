//! OpenMP payloads: each image in an OffloadBinary with its triple and architecture, so that tools
//! can list it in the finished program. The runtime gets only the image inside. Images of LLVM 14
//! have no container.

use anyhow::{Context, Result};

use super::{Payload, PayloadImage};
use crate::formats::{intel_spirv, offload_binary};
use crate::io::rope::Rope;
use crate::link::device::Linked;
use crate::model::{Generation, OffloadKind};
use crate::sys::session::Session;

/// Returns the payload of the images of one generation.
pub(super) fn payload(
    images: &[&Linked],
    generation: Generation,
    session: &Session,
) -> Result<Payload> {
    let images = images
        .iter()
        .map(|image| package(image, session))
        .collect::<Result<_>>()?;
    Ok(Payload {
        kind: OffloadKind::OpenMp,
        generation,
        images,
    })
}

fn package(image: &Linked, session: &Session) -> Result<PayloadImage> {
    let mut body = image.path.clone();
    if image.target.is_intel_spirv() {
        let spirv = std::fs::read(&body)
            .with_context(|| format!("cannot read the linked image `{}`", body.display()))?;
        if !spirv.is_empty() {
            body = session
                .scratch
                .path(&format!("{}.container", image.target.arch_name()), "img")?;
            std::fs::write(&body, intel_spirv::wrap_intel_spirv(&spirv))
                .with_context(|| format!("cannot write `{}`", body.display()))?;
        }
    }
    let file = Some(body.clone());
    let bare = Rope::of_file(body)
        .with_context(|| format!("the device link for {} wrote no image", image.target))?;
    if image.generation == Generation::Llvm14 {
        return Ok(PayloadImage::whole(bare, file));
    }
    let strings = [
        ("triple", image.triple.as_str()),
        ("arch", image.target.arch.as_str()),
    ];
    let frame = offload_binary::frame(
        image.image_kind,
        OffloadKind::OpenMp as u16,
        0,
        &strings,
        bare.size(),
    );
    let target = Some((image.triple.clone(), image.target.arch.clone()));
    let start = frame.head.len() as u64;
    let image = start..start + bare.size();
    let mut contents = Rope::default();
    contents.push_bytes(frame.head);
    contents.append(bare);
    contents.pad_to(frame.total_size);
    Ok(PayloadImage {
        contents,
        image,
        file,
        target,
    })
}
